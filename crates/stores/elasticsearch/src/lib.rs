//! Elasticsearch over its REST interface: one kept-alive connection per client.
//!
#![doc = include_str!("../GUARANTEES.md")]

mod document;
mod fault;
mod http;
mod load;
mod locking;
mod names;
mod pages;
mod parcels;
mod records;
mod server;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use acidtest_locks::LockService;
use acidtest_model::{
    Address, CellRequest, Durability, EffectiveSettings, Isolation, Lock, StoreError, StoreKind, Support,
    Task, all_has_effect,
};
use acidtest_workloads::{
    Identity, Owner, Store,
    parcels::{ParcelsStore, lacks_index},
    records::RecordsStore,
    time_opening,
};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{
    fault::{Error, kind},
    http::{Answer, Connection},
    server::{ConnectOptions, Greeting, call, script_languages, send, settled},
};

/// The store's entry in the list of stores: its names, and which lock modes, durability levels, isolation levels
/// and workloads it supports, each with the means or the reason.
pub const KIND: StoreKind = StoreKind {
    name: "elasticsearch",
    title: "Elasticsearch",
    schemes: &["elasticsearch", "es", "http", "https"],
    address: "elasticsearch://USER:PASSWORD@HOST:9200",
    hosting: acidtest_model::Hosting::Program,
    default_port: 9200,
    locks: &[
        (Lock::None, Support::Yes("get, then index with the computed version")),
        (Lock::Soft, Support::Yes("get, then index with if_seq_no and if_primary_term")),
        (Lock::Hard, Support::Yes("a lock of the lock service, fenced by if_seq_no and if_primary_term")),
        (Lock::Native, Support::Yes("scripted _update, where the server has painless")),
    ],
    durability: &[
        (Durability::None, Support::Yes("index.translog.durability=async")),
        (
            Durability::Process,
            Support::No(
                "an index' translog is either synced before the answer or not even written: see disk",
            ),
        ),
        (Durability::Disk, Support::Yes("index.translog.durability=request")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, NO_LEVELS),
        (Isolation::ReadCommitted, NO_LEVELS),
        (Isolation::RepeatableRead, NO_LEVELS),
        (Isolation::Serializable, NO_LEVELS),
    ],
    transactions: Support::No("Elasticsearch has no transactions: each document is by itself"),
    refresh: Support::Yes("refresh=wait_for or true; without, whenever the index is refreshed"),
    tls: Support::Yes("stunnel in front of the server, whose open jars speak none"),
    replication: &[],
    replica_reads: None,
    lock_service: true,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: false,
    in_memory: false,
    // they share the heap, which does not grow
    client_kib: 0,
    workloads: &[
        ("records", Support::Yes("get, index, create, search, scripted _update")),
        ("parcels", Support::Yes("create, index, _mget, _bulk")),
        ("transactions", Support::No("it has no transactions over several documents")),
        ("logs", acidtest_model::NO_SINK),
    ],
    refuses,
    idle: all_has_effect,
};

const NO_LEVELS: Support = Support::No("it has no transactions: each document is by itself");

/// The reason why the store cannot run a cell that asks only for what it has.
fn refuses(request: &CellRequest<'_>) -> Option<&'static str> {
    if request.workload == "parcels" && request.lock == Lock::Native && request.does(&["insert"]) {
        return Some(parcels::NO_NATIVE);
    }
    lacks_index(request).then_some(
        "documents are found by their ids, which are made of parcel and count: there is no index to leave out (--index none)",
    )
}

#[derive(Debug)]
pub struct Elasticsearch {
    server: ConnectOptions,
    /// `index.translog.durability` of the indices that acidtest creates.
    translog: &'static str,
    locks: Option<Arc<dyn LockService>>,
    /// Languages in which an update can be scripted; `None` where the server does not tell.
    languages: Option<Vec<String>>,
}

impl Elasticsearch {
    /// Opens the server, connecting once to see that it can be reached and knows its indices.
    ///
    /// Elasticsearch has no setting of durability for a server, but one for each index. So acidtest creates its
    /// indices for the durability level, and for *disk*, Elasticsearch's own default, where none is asked for. Hard locks are
    /// kept by `locks`.
    ///
    /// # Errors
    /// The server does not answer, or not to this user and password, or is no Elasticsearch.
    pub async fn open(
        address: &Address,
        durability: Option<Durability>,
        locks: Option<Arc<dyn LockService>>,
    ) -> Result<Self, StoreError> {
        let server = ConnectOptions::new(address, KIND.default_port)?;
        let languages = first(&server).await.map_err(|error| server.unreachable(&error))?;
        let translog = settings::translog(durability.unwrap_or(Durability::Disk));
        Ok(Self { server, translog, locks, languages })
    }

    /// Whether updates can be scripted, which the native lock needs; true where the server does not tell.
    /// Elastic's packages have the language, Painless; the server's jars by themselves do not.
    #[must_use]
    pub fn has_scripts(&self) -> bool {
        self.languages.as_ref().is_none_or(|names| names.iter().any(|name| name == records::LANGUAGE))
    }

    /// The namespace's indices, each with the run's id if it holds a mark.
    async fn indices(
        &self,
        connection: &mut Connection,
        namespace: &str,
    ) -> Result<BTreeMap<String, Option<String>>, Error> {
        let path = format!("/{}*/_mapping?expand_wildcards=all", names::prefix(namespace));
        let found: BTreeMap<String, Index> = connection.get(&path).await.and_then(Answer::read)?;
        let run = |index: Index| index.mappings.meta.and_then(|meta| meta.acidtest_run);
        Ok(found.into_iter().map(|(name, index)| (name, run(index))).collect())
    }
}

async fn first(server: &ConnectOptions) -> Result<Option<Vec<String>>, Error> {
    let mut connection = server.connect().await?;
    let _: Greeting = connection.get("/").await?.read()?;
    settled(&mut connection).await?;
    Ok(script_languages(&mut connection).await)
}

#[derive(Deserialize)]
struct Index {
    mappings: Mappings,
}

#[derive(Deserialize)]
struct Mappings {
    #[serde(rename = "_meta", default)]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    acidtest_run: Option<String>,
}

impl Store for Elasticsearch {
    fn identity(&self) -> Task<'_, Result<Option<Identity>, StoreError>> {
        Box::pin(async {
            let mut connection = self.server.reach().await?;
            match settings::identity(&mut connection).await {
                // a user who may not ask, or a proxy that answers for others
                Err(Error::Refused(_) | Error::Nonsense(_)) => Ok(None),
                answered => answered.map_err(self.server.failed("asking which server answers")),
            }
        })
    }

    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let mut connection = self.server.reach().await?;
            let read = settings::read(&mut connection, self.translog, self.languages.as_deref()).await;
            read.map_err(self.server.failed("reading the settings"))
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.server.reach()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let found = self.indices(&mut connection, namespace).await;
            let found = found.map_err(self.server.failed("looking for the namespace"))?;
            if found.is_empty() {
                return Ok(Owner::Nobody);
            }
            let run = found.get(&names::mark(namespace)).cloned().flatten();
            Ok(run.map_or(Owner::Stranger, Owner::Run))
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let path = format!("/{}", names::mark(namespace));
            let body = json!({
                "settings": {"number_of_shards": 1, "number_of_replicas": 0},
                "mappings": {"dynamic": false, "_meta": {"acidtest_run": run}},
            });
            match send(&mut connection, Method::PUT, &path, &body).await.and_then(Answer::done) {
                Ok(()) => Ok(()),
                Err(error) if error.is(kind::INDEX_EXISTS) => Err(StoreError::Occupied {
                    namespace: format!("index prefix \"{}\"", names::prefix(namespace)),
                    address: self.server.address().to_string(),
                }),
                Err(error) => Err(self.server.failed("making the namespace")(error)),
            }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let removed = async {
                let prefix = names::prefix(namespace);
                let mark = names::mark(namespace);
                let found = self.indices(&mut connection, namespace).await?;
                // an alias of this name may belong to an index outside the namespace
                let ours = found.keys().filter(|name| name.starts_with(&prefix) && **name != mark);
                // the mark goes last, so that the rest of an interrupted removal is still known as acidtest's
                for name in ours.chain(found.keys().filter(|name| **name == mark)) {
                    delete(&mut connection, name).await?;
                }
                Ok(())
            };
            removed.await.map_err(self.server.failed("removing the namespace"))
        })
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }
}

/// Removes an index; one that does not exist is no error.
async fn delete(connection: &mut Connection, index: &str) -> Result<(), Error> {
    match call(connection, Method::DELETE, &format!("/{index}")).await.and_then(Answer::done) {
        Err(error) if error.is(kind::NO_INDEX) => Ok(()),
        done => done,
    }
}
