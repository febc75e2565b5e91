//! Elasticsearch over its REST interface: one kept-alive connection a client.
//!
//! # Guarantees
//!
//! Checked on Elasticsearch 7.17.29 (scripts: 7.10.2), one node. Each trial has an index of one shard without
//! replicas, whose document's id is the record's key: `{"key", "version", "field0", …}`. Of these only `key`
//! is mapped (doc values; indexed if ranges are read). Writes go by an alias with `require_alias`, since a write
//! to an index that is gone would make it again.
//!
//! | guarantee | requests and settings |
//! | --- | --- |
//! | read | `GET /ALIAS/_doc/KEY`: from the translog what no search sees yet |
//! | insert | `PUT /ALIAS/_create/KEY`; 409 if it is there |
//! | scan | `POST /ALIAS/_search`: `range` on `key`, sorted by it, `allow_partial_search_results=false`. Sees what was refreshed |
//! | lock none | `GET /ALIAS/_doc/KEY`, then `PUT /ALIAS/_doc/KEY` with the computed version |
//! | lock soft | the same with `if_seq_no` and `if_primary_term` of what was read; 409 means stale |
//! | lock hard | a lock of the lock service on the key (lease of 10 s), the two requests of soft, and the lock is given up. One that another holds is asked for again every 1 to 3 ms, for 1 s |
//! | lock native | `POST /ALIAS/_update/KEY` with a Painless script and `retry_on_conflict=10`; a modify gets first and adds `if_seq_no` and `if_primary_term` |
//! | durability none | `index.translog.durability=async` |
//! | durability disk | `index.translog.durability=request` |
//!
//! **Durability.** With `request` the translog is synced (`fsync`) before the answer, for several requests at
//! once where they come together. With `async` it lies in the server's own memory until 1 MiB has gathered or 5 s are
//! over: a killed server loses it. Nothing lies between the two: there is no rung *process*.
//!
//! **The fence of the hard lock.** A holder that outlives its lease must not write over its successor. Every
//! write under the lock demands `if_seq_no` and `if_primary_term` of what was read under it: it is refused,
//! with no effect, if anything was written between its own read and write. Elasticsearch could hold a fencing
//! token too (`version=TOKEN&version_type=external` refuses what is not above the stored version), but that
//! looks at the tokens of writes alone: a late write under token 5 is let through after the holder of token 6 has
//! read and before it writes, and is then overwritten, acknowledged as it was. The two demands exclude each
//! other in one request ("compare and write operations can not use versioning"). A token would
//! have to be above all internal versions of the document as well, over the whole life of the index.
//!
//! **Visibility.** A write is seen by gets at once, by scans when the index was refreshed: whenever the server
//! does so (every second, where somebody searches), before the answer (`refresh=wait_for`), or by the write itself
//! (`refresh=true`). Loading ends with a refresh.
//!
//! # Errors
//!
//! | error | outcome |
//! | --- | --- |
//! | 409, unless it answers an insert; a lock not had within 1 s | conflict |
//! | 409 to an insert, 404 of a document | refused |
//! | any other answer below 500: nothing was written | failed |
//! | among them 429 of a full queue or heap | failed, "rejected: …"; while loading it is sent again |
//! | 503 of a block of the cluster | failed, and a new connection |
//! | any other from 500 on, to a read | failed, and a new connection |
//! | the same, to a write: it may have been done, and its sync or its answer failed | unknown |
//! | the connection breaks before a byte was sent, or while reading or locking | failed, and a new connection |
//! | the connection breaks after a write was sent, or its answer makes no sense | unknown |
//!
//! Caveat. Elasticsearch repeats a write by itself when its shard fails under it (the shard's node is lost, or the
//! disk): a 409 can then be the answer to a write's own repetition.

mod document;
mod fault;
mod http;
mod load;
mod names;
mod records;
mod server;
mod settings;

use std::collections::BTreeMap;

use acidtest_locks::LockService;
use acidtest_model::{
    Address, Durability, Effective, Lock, StoreError, StoreKind, Support, Task, all_has_effect, never,
};
use acidtest_workloads::{Owner, Store, records::RecordsStore};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{
    fault::{Error, kind},
    http::{Answer, Line},
    server::{Greeting, Server, call, script_languages, send, settled},
};

/// The store's row of the matrix.
pub const KIND: StoreKind = StoreKind {
    name: "elasticsearch",
    title: "Elasticsearch",
    schemes: &["elasticsearch", "es"],
    address: "elasticsearch://USER:PASSWORD@HOST:9200",
    server: acidtest_model::Server::Program,
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
    isolation: &[],
    transactions: Support::No("Elasticsearch has no transactions: each document is by itself"),
    refresh: Support::Yes("refresh=wait_for or true; without, whenever the index is refreshed"),
    lock_service: true,
    rung_of_data: false,
    workloads: &[("records", Support::Yes("get, index, create, search, scripted _update"))],
    refuses: never,
    idle: all_has_effect,
};

/// An Elasticsearch server.
#[derive(Debug)]
pub struct Elasticsearch {
    server: Server,
    /// `index.translog.durability` of the indices that it makes.
    translog: &'static str,
    locks: Option<LockService>,
    /// Languages of scripts; none where the server does not say.
    languages: Option<Vec<String>>,
}

impl Elasticsearch {
    /// Opens the server, connecting once to see that it can be reached and knows its indices.
    ///
    /// Elasticsearch has no setting of a server for durability, but one of each index. So acidtest makes its
    /// indices for the rung, and for *disk*, Elasticsearch's own default, where none is asked for. Hard locks
    /// are kept by `locks`.
    ///
    /// # Errors
    /// A server that does not answer, or not to this user and password, or is none.
    pub async fn open(
        address: &Address,
        rung: Option<Durability>,
        locks: Option<LockService>,
    ) -> Result<Self, StoreError> {
        let server = Server::new(address, KIND.default_port)?;
        let languages = first(&server).await.map_err(|error| server.unreachable(&error))?;
        let translog = settings::translog(rung.unwrap_or(Durability::Disk));
        Ok(Self { server, translog, locks, languages })
    }

    /// Whether updates can be scripted, as far as is known: the native lock needs it. Elastic's packages have
    /// the language, Painless; the server's jars by themselves do not.
    #[must_use]
    pub fn has_scripts(&self) -> bool {
        self.languages.as_ref().is_none_or(|names| names.iter().any(|name| name == records::LANGUAGE))
    }

    /// The namespace's indices, with the run's id where they hold a mark.
    async fn indices(
        &self,
        line: &mut Line,
        namespace: &str,
    ) -> Result<BTreeMap<String, Option<String>>, Error> {
        let path = format!("/{}*/_mapping?expand_wildcards=all", names::prefix(namespace));
        let found: BTreeMap<String, Index> = line.get(&path).await.and_then(Answer::read)?;
        let run = |index: Index| index.mappings.meta.and_then(|meta| meta.acidtest_run);
        Ok(found.into_iter().map(|(name, index)| (name, run(index))).collect())
    }
}

async fn first(server: &Server) -> Result<Option<Vec<String>>, Error> {
    let mut line = server.connect().await?;
    let _: Greeting = line.get("/").await?.read()?;
    settled(&mut line).await?;
    Ok(script_languages(&mut line).await)
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
    fn effective(&self) -> Task<'_, Result<Effective, StoreError>> {
        Box::pin(async {
            let mut line = self.server.reach().await?;
            let read = settings::read(&mut line, self.translog, self.languages.as_deref()).await;
            read.map_err(self.server.failed("reading the settings"))
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let mut line = self.server.reach().await?;
            let found = self.indices(&mut line, namespace).await;
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
            let mut line = self.server.reach().await?;
            let path = format!("/{}", names::mark(namespace));
            let body = json!({
                "settings": {"number_of_shards": 1, "number_of_replicas": 0},
                "mappings": {"dynamic": false, "_meta": {"acidtest_run": run}},
            });
            match send(&mut line, Method::PUT, &path, &body).await.and_then(Answer::done) {
                Ok(()) => Ok(()),
                Err(error) if error.is(kind::INDEX_EXISTS) => Err(StoreError::Occupied {
                    namespace: format!("index prefix \"{}\"", names::prefix(namespace)),
                    address: self.server.address().to_owned(),
                }),
                Err(error) => Err(self.server.failed("making the namespace")(error)),
            }
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut line = self.server.reach().await?;
            let removed = async {
                let prefix = names::prefix(namespace);
                let mark = names::mark(namespace);
                let found = self.indices(&mut line, namespace).await?;
                // an alias of this name may belong to an index that is not in the namespace
                let ours = found.keys().filter(|name| name.starts_with(&prefix) && **name != mark);
                // the mark goes last
                for name in ours.chain(found.keys().filter(|name| **name == mark)) {
                    delete(&mut line, name).await?;
                }
                Ok(())
            };
            removed.await.map_err(self.server.failed("removing the namespace"))
        })
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }
}

/// Removes an index, if it is there.
async fn delete(line: &mut Line, index: &str) -> Result<(), Error> {
    match call(line, Method::DELETE, &format!("/{index}")).await.and_then(Answer::done) {
        Err(error) if error.is(kind::NO_INDEX) => Ok(()),
        done => done,
    }
}
