//! The records workload on Elasticsearch: a document for each record.

use std::{fmt::Write as _, io::Write as _, sync::Arc, time::Duration};

use acidtest_engine::{Attempt, ClientTask, Fault};
use acidtest_locks::LockService;
use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    LoadProgress, Place,
    records::{
        self, Action, Answer, Connector, Layout, Lookup, Operations, RecordVisitor, RecordsStore, Refresh,
        Request, Requirements, Scenario, tag_of,
    },
};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;

use crate::{
    Elasticsearch, delete,
    document::{self, GetAnswer, Page, StoredDocument},
    fault::{Effect, Error, Step, ended, kind},
    http::{self, Connection, Content},
    load,
    locking::{self, Locks, Patience},
    names::{Table, push_id},
    pages::read_back,
    server::{ConnectOptions, ready},
};

/// The language in which updates are scripted.
pub(crate) const LANGUAGE: &str = "painless";

/// The script of an update. The server compiles it once, and knows it by its text.
const SCRIPT: &str = "ctx._source.version += 1; ctx._source.putAll(params.fields)";

/// How often the server itself retries a scripted update that lost against another.
const RETRIES: u32 = 10;

/// How long a client's connection may wait for an index that the server is recovering.
pub(crate) const RECOVERED: Duration = Duration::from_secs(2);

impl RecordsStore for Elasticsearch {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let table = Table::of(place);
            let done = load::load(&self.server, &table, self.translog, layout, loaded).await;
            done.map_err(self.server.failed("loading the records"))?;
            locking::prepare(self.locks.as_deref(), place).await
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = Clients {
            server: self.server.clone(),
            table: Table::of(place),
            place: place.clone(),
            lock: wanted.lock,
            refresh: refresh(wanted.refresh),
            locks: self.locks.clone(),
            has_scripts: self.has_scripts(),
            decides: wanted.decides,
        };
        records::task(connector, scenario)
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let record = u64::from(layout.fields) * u64::from(layout.field_bytes);
            let read = read_back(&mut connection, &Table::of(place), record, "key", &mut |hit| match hit
                .kept
                .document()
            {
                Some(document) => each(&hit.id.0, document.version, tag_of(document.fields())),
                None => each(&hit.id.0, 0, None),
            })
            .await;
            read.map_err(self.server.failed("reading the records back"))
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let gone = delete(&mut connection, &Table::of(place).index).await;
            gone.map_err(self.server.failed("removing the records"))?;
            locking::clear(self.locks.as_deref(), place).await
        })
    }
}

/// The parameter by which a write chooses when searches find it.
fn refresh(refresh: Refresh) -> &'static str {
    match refresh {
        Refresh::No => "",
        Refresh::WaitFor => "&refresh=wait_for",
        Refresh::Yes => "&refresh=true",
    }
}

/// The connector of a trial's clients, with the settings that they share.
struct Clients {
    server: ConnectOptions,
    table: Table,
    place: Place,
    lock: Lock,
    refresh: &'static str,
    locks: Option<Arc<dyn LockService>>,
    has_scripts: bool,
    /// Whether anything would be scripted.
    decides: bool,
}

/// One client's connection to the server, and to the lock service under the hard lock.
struct Client {
    connection: Connection,
    alias: String,
    lock: Lock,
    refresh: &'static str,
    locks: Option<Locks>,
    path: String,
}

impl Connector for Clients {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        if self.lock == Lock::Native && self.decides && !self.has_scripts {
            return Err(format!(
                "the server has no script engine for {LANGUAGE}: the native lock is a scripted _update; \
                 leave it out, or use a server with the module lang-painless, as Elastic's own packages have it"
            ));
        }
        let locks = match self.lock {
            Lock::Hard => Some(Locks::connect(self.locks.as_deref(), &self.place).await?),
            _ => None,
        };
        let mut connection = self.server.connect().await.map_err(|error| error.to_string())?;
        let recovered = ready(&mut connection, &self.table.index, RECOVERED).await;
        recovered.map_err(|error| format!("the index {} is not ready: {error}", self.table.index))?;
        Ok(Client {
            connection,
            alias: self.table.alias.clone(),
            lock: self.lock,
            refresh: self.refresh,
            locks,
            path: String::new(),
        })
    }
}

/// The result of a get, on which the write that follows depends.
struct ReadDocument {
    found: Lookup,
    seq_no: u64,
    primary_term: u64,
}

/// The condition under which a write replaces its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// No condition: it replaces whatever document is there.
    Nothing,
    /// Only if the document is the same that was read.
    Unchanged,
}

#[derive(Deserialize)]
struct Scripted<'a> {
    #[serde(borrow)]
    get: Written<'a>,
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(rename = "_source", borrow)]
    kept: StoredDocument<'a>,
}

impl Client {
    /// Begins the path of a request on one document.
    fn path(&mut self, endpoint: &str, key: &str) -> &mut String {
        let path = &mut self.path;
        path.clear();
        path.push('/');
        path.push_str(&self.alias);
        path.push_str(endpoint);
        push_id(path, key);
        path
    }

    /// Begins the path of a write on one document, with the parameters of `demand` and of refreshing.
    fn write_path(&mut self, endpoint: &str, key: &str, demand: Demand, seen: Option<&ReadDocument>) {
        let refresh = self.refresh;
        let path = self.path(endpoint, key);
        path.push_str("?require_alias=true");
        path.push_str(refresh);
        if let (Demand::Unchanged, Some(ReadDocument { seq_no, primary_term, .. })) = (demand, seen) {
            // writing to a string cannot fail
            let _ = write!(path, "&if_seq_no={seq_no}&if_primary_term={primary_term}");
        }
    }

    /// Gets a document, `whole` or its version alone.
    async fn get(&mut self, key: &str, whole: bool, answer: &mut Answer) -> Step<Option<ReadDocument>> {
        let path = self.path("/_doc/", key);
        if !whole {
            path.push_str("?_source_includes=version");
        }
        let got = self.connection.get(&self.path).await.and_then(http::Answer::read_found::<GetAnswer<'_>>);
        let Some(GetAnswer { seq_no, primary_term, kept }) = got.map_err(ended(Effect::None))? else {
            return Ok(None);
        };
        Ok(Some(ReadDocument { found: kept.found(whole, answer), seq_no, primary_term }))
    }

    async fn read(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let seen = self.get(&request.key, true, answer).await?;
        Ok(if seen.is_some() { Attempt::Ok } else { Attempt::Refused })
    }

    async fn insert(&mut self, request: &Request) -> Step<Attempt> {
        let body = body(request, 0);
        self.write_path("/_create/", &request.key, Demand::Nothing, None);
        match self.put(body).await {
            Err(error) if error.is(kind::VERSION_CONFLICT) => Ok(Attempt::Refused),
            done => done.map(|()| Attempt::Ok).map_err(ended(Effect::Change)),
        }
    }

    /// Sends a document to the path made before.
    async fn put(&mut self, body: Bytes) -> Result<(), Error> {
        self.connection.ask(Method::PUT, &self.path, Content::Json, body).await?.done()
    }

    async fn scan(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        self.path.clear();
        let _ = write!(self.path, "/{}/_search?allow_partial_search_results=false", self.alias);
        let mut body = Vec::with_capacity(160);
        let _ = write!(body, "{{\"size\":{},\"track_total_hits\":false,\"sort\":[\"key\"],", request.length);
        body.extend_from_slice(b"\"query\":{\"range\":{\"key\":{\"gte\":");
        document::push_text(&mut body, &request.key);
        body.extend_from_slice(b"}}}}");
        let asked = self.connection.ask(Method::POST, &self.path, Content::Json, body.into()).await;
        let page = asked.and_then(http::Answer::read::<Page<'_>>);
        let hits =
            page.and_then(|page| page.whole().map_err(Error::Nonsense)).map_err(ended(Effect::None))?;
        for hit in &hits {
            hit.kept.found(true, answer);
        }
        Ok(Attempt::Ok)
    }

    /// Reads a record, the whole one for a modify, and writes the version above the one read.
    async fn change(&mut self, request: &Request, demand: Demand, answer: &mut Answer) -> Step<Attempt> {
        let whole = request.action == Action::Modify;
        let Some(seen) = self.get(&request.key, whole, answer).await? else { return Ok(Attempt::Refused) };
        let version = seen.found.above()?;
        let body = body(request, version);
        self.write_path("/_doc/", &request.key, demand, Some(&seen));
        self.put(body).await.map_err(ended(Effect::Change))?;
        answer.wrote(version);
        Ok(Attempt::Ok)
    }

    /// Lets the server raise the version and write the fields. A modify reads the record before, and demands that
    /// it is still the same.
    async fn script(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let seen = if request.action == Action::Modify {
            let Some(seen) = self.get(&request.key, true, answer).await? else { return Ok(Attempt::Refused) };
            // checked here, as the script would also change a document without a valid version
            seen.found.above()?;
            Some(seen)
        } else {
            None
        };
        self.write_path("/_update/", &request.key, Demand::Unchanged, seen.as_ref());
        if seen.is_none() {
            // retry_on_conflict and if_seq_no exclude each other
            let _ = write!(self.path, "&retry_on_conflict={RETRIES}");
        }
        self.path.push_str("&_source=version");
        let mut body = Vec::with_capacity(2048);
        let _ = write!(
            body,
            "{{\"script\":{{\"lang\":\"{LANGUAGE}\",\"source\":\"{SCRIPT}\",\"params\":{{\"fields\":"
        );
        document::push_fields(&mut body, &request.fields);
        body.extend_from_slice(b"}}}");
        let asked = self.connection.ask(Method::POST, &self.path, Content::Json, body.into()).await;
        match asked.and_then(http::Answer::read::<Scripted<'_>>) {
            Ok(Scripted { get }) => match get.kept.document() {
                Some(document) => {
                    answer.wrote(document.version);
                    Ok(Attempt::Ok)
                }
                None => Ok(Attempt::Unknown(Fault::answered("what it wrote is not a record"))),
            },
            Err(error) if error.is(kind::NO_DOCUMENT) => Ok(Attempt::Refused),
            Err(error) => Err(ended(Effect::Change)(error)),
        }
    }

    /// Changes a record under its lock at the lock service.
    async fn change_locked(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let Some(locks) = &mut self.locks else { return Err(locking::none()) };
        let grant = locks.acquire(&request.key, &mut Patience::default()).await?;
        let ended = self.change(request, Demand::Unchanged, answer).await.unwrap_or_else(|ended| ended);
        // a write that may still be in flight keeps its lock until the lease ends
        if !matches!(ended, Attempt::Unknown(_))
            && let Some(locks) = &mut self.locks
        {
            locks.release(grant).await;
        }
        Ok(ended)
    }
}

/// The document that a request writes.
fn body(request: &Request, version: u64) -> Bytes {
    let length = request.fields.iter().map(|field| field.len() + 16).sum::<usize>();
    let mut body = Vec::with_capacity(length + request.key.len() + 64);
    document::push(&mut body, &request.key, version, &request.fields);
    body.into()
}

impl Operations for Client {
    fn lock_wait(&mut self) -> Duration {
        self.locks.as_mut().map_or(Duration::ZERO, Locks::take_waited)
    }

    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let done = match (request.action, self.lock) {
            (Action::Read, _) => self.read(request, answer).await,
            (Action::Insert, _) => self.insert(request).await,
            (Action::Scan, _) => self.scan(request, answer).await,
            (Action::Update | Action::Modify, Lock::None) => {
                self.change(request, Demand::Nothing, answer).await
            }
            (Action::Update | Action::Modify, Lock::Soft) => {
                self.change(request, Demand::Unchanged, answer).await
            }
            (Action::Update | Action::Modify, Lock::Hard) => self.change_locked(request, answer).await,
            (Action::Update | Action::Modify, Lock::Native) => self.script(request, answer).await,
        };
        done.unwrap_or_else(|ended| ended)
    }
}

#[cfg(test)]
pub(crate) mod tests;
