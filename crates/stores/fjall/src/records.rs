//! The records workload on fjall.
//!
//! A record is a value under its key: eight bytes of version, lowest first, and then its fields, which are all
//! of one length.

use std::{slice, sync::Arc};

use acidtest_model::{Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place, Served,
    records::{
        self, Action, Answer, Connector, Fields, Layout, Lookup, Operations, RecordVisitor, RecordsStore,
        Request, Requirements, Scenario, key_name, tag_of,
    },
};
use fjall::{Iter, PersistMode, UserValue};

use crate::{
    Fjall,
    error::{OperationResult, in_doubt, undone},
    files::{Files, Table, Transaction, drop_keyspace, keyspace, make_keyspace},
    named,
};

/// The name of the keyspace within the trial.
const TABLE: &str = "usertable";

/// Number of records that are loaded in one batch.
const BATCH: u64 = 1_000;

const LOADING: &str = "loading the records";

/// Writes a record as a value into this buffer, in place of its old contents.
fn encode(value: &mut Vec<u8>, version: u64, fields: &Fields) {
    value.clear();
    value.extend_from_slice(&version.to_le_bytes());
    for field in fields.iter() {
        value.extend_from_slice(field.as_bytes());
    }
}

/// A record's version, and its fields one after the other; none if the value is no record.
fn decode(value: &[u8]) -> Option<(u64, &[u8])> {
    let (version, fields) = value.split_first_chunk()?;
    Some((u64::from_le_bytes(*version), fields))
}

/// Splits the bytes of a record's fields into the single fields.
fn split<'a>(fields: &'a [u8], layout: &Layout) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    fields.chunks(layout.field_bytes as usize)
}

impl RecordsStore for Fjall {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let name = named(place, TABLE);
            self.on_files(LOADING, |database| make_keyspace(database, &name).map(drop))?;
            let (mut fields, mut value) = (Fields::default(), Vec::new());
            let mut first = 0;
            while first < layout.records {
                let next = layout.records.min(first + BATCH);
                self.on_files(LOADING, |database| {
                    let keyspace = keyspace(database, &name)?;
                    let mut batch = database.batch().durability(None);
                    for number in first..next {
                        layout.fill(number, &mut fields);
                        encode(&mut value, 0, &fields);
                        batch.insert(&keyspace, key_name(number), value.as_slice());
                    }
                    Ok(batch.commit()?)
                })?;
                loaded.add(next - first);
                first = next;
                // lets the caller look at the progress, or give up
                tokio::task::yield_now().await;
            }
            self.on_files(LOADING, |database| Ok(database.persist(PersistMode::SyncAll)?))
        })
    }

    fn client(&self, place: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        records::task(FjallConnector::of(self, place, wanted), scenario)
    }

    fn serve(&self, place: &Place, wanted: &Requirements) -> Option<Served> {
        Some(records::serve(FjallConnector::of(self, place, wanted), wanted.layout))
    }

    fn state<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        each: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("reading the final records", |database| {
                for record in keyspace(database, &named(place, TABLE))?.iter() {
                    let (key, value) = record.into_inner()?;
                    let (version, fields) = decode(&value).unwrap_or_default();
                    each(&String::from_utf8_lossy(&key), version, tag_of(split(fields, layout)));
                }
                Ok(())
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.on_files("removing the records", |database| drop_keyspace(database, &named(place, TABLE)))
        })
    }
}

struct FjallConnector {
    files: Arc<Files>,
    name: String,
    lock: Lock,
    layout: Layout,
}

impl FjallConnector {
    fn of(store: &Fjall, place: &Place, wanted: &Requirements) -> Self {
        let Requirements { lock, layout, .. } = *wanted;
        Self { files: Arc::clone(&store.files), name: named(place, TABLE), lock, layout }
    }
}

struct Client {
    table: Table,
    lock: Lock,
    codec: Codec,
}

impl Connector for FjallConnector {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, String> {
        // every transaction is serializable, so that there is no isolation level to set
        let table = self.files.table(&self.name, self.lock).map_err(|error| error.to_string())?;
        Ok(Client { table, lock: self.lock, codec: Codec { layout: self.layout, value: Vec::new() } })
    }
}

/// Converts values to answers, and requests to values.
struct Codec {
    layout: Layout,
    /// The value to write, in a buffer that is used again and again.
    value: Vec<u8>,
}

impl Codec {
    /// Parses the value of a key. Puts the record into the answer if `asked`, and a torn one in any case.
    fn found(&self, value: Option<&UserValue>, asked: bool, answer: &mut Answer) -> Lookup {
        let Some(value) = value else { return Lookup::Nothing };
        let Some((version, fields)) = decode(value) else {
            answer.torn();
            return Lookup::Torn;
        };
        if asked {
            answer.record(version, split(fields, &self.layout));
        }
        Lookup::Record(version)
    }

    fn read(&self, value: Option<&UserValue>, answer: &mut Answer) -> Attempt {
        self.found(value, true, answer).read()
    }

    /// Puts the first records of a range into the answer, as many as the request asks for.
    fn listed(&self, range: Iter, request: &Request, answer: &mut Answer) -> OperationResult {
        for record in range.take(request.length as usize) {
            self.read(Some(&record.value()?), answer);
        }
        Ok(Attempt::Ok)
    }

    /// Prepares the value that an update or a modify writes, from the record that it read. The outcome is ok if there
    /// is one to write.
    fn changed(&mut self, read: Option<&UserValue>, request: &Request, answer: &mut Answer) -> Attempt {
        let found = self.found(read, request.action == Action::Modify, answer);
        match found.above() {
            Ok(version) => {
                answer.wrote(version);
                encode(&mut self.value, version, &request.fields);
                Attempt::Ok
            }
            Err(ended) => ended,
        }
    }

    fn apply(
        &mut self,
        inside: &mut Transaction<'_>,
        request: &Request,
        answer: &mut Answer,
    ) -> OperationResult {
        let key = request.key.as_bytes();
        let done = match request.action {
            Action::Read => return Ok(self.read(inside.get(key)?.as_ref(), answer)),
            Action::Scan => return self.listed(inside.from(key), request, answer),
            Action::Insert if inside.get(key)?.is_some() => Attempt::Refused,
            Action::Insert => {
                encode(&mut self.value, 0, &request.fields);
                Attempt::Ok
            }
            Action::Update | Action::Modify => self.changed(inside.get(key)?.as_ref(), request, answer),
        };
        if done == Attempt::Ok {
            inside.put(key, &self.value);
        }
        Ok(done)
    }
}

impl Client {
    fn alone(&mut self, request: &Request, answer: &mut Answer) -> OperationResult {
        let key = request.key.as_bytes();
        match (request.action, self.lock) {
            (Action::Read, _) => Ok(self.codec.read(self.table.get(key)?.as_ref(), answer)),
            (Action::Scan, _) => self.codec.listed(self.table.snapshot().from(key), request, answer),
            (Action::Update | Action::Modify, Lock::None) => self.write_unprotected(request, answer),
            (Action::Update | Action::Modify, Lock::Native) => Ok(self.write_in_one(request, answer)),
            _ => self.together(slice::from_ref(request), slice::from_mut(answer)),
        }
    }

    fn write_unprotected(&mut self, request: &Request, answer: &mut Answer) -> OperationResult {
        let key = request.key.as_bytes();
        let done = self.codec.changed(self.table.get(key)?.as_ref(), request, answer);
        if done != Attempt::Ok {
            return Ok(done);
        }
        // a transaction that has read nothing cannot be refused
        let mut transaction = self.table.begin()?;
        transaction.put(key, &self.codec.value);
        Ok(transaction.commit())
    }

    fn write_in_one(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let Self { table, codec, .. } = self;
        let mut done = Attempt::Refused;
        let committed = table.fetch_update(request.key.as_bytes(), |read| {
            // called again if other writes came between
            answer.clear();
            done = codec.changed(read, request, answer);
            // a value that stays as it was is returned unchanged: returning none would remove it
            if done == Attempt::Ok { Some(codec.value.as_slice().into()) } else { read.cloned() }
        });
        committed.map_or_else(in_doubt, |_| done)
    }

    fn together(&mut self, requests: &[Request], answers: &mut [Answer]) -> OperationResult {
        let mut transaction = self.table.begin()?;
        for (request, answer) in requests.iter().zip(answers) {
            let done = self.codec.apply(&mut transaction, request, answer)?;
            if done != Attempt::Ok {
                return Ok(done);
            }
        }
        Ok(transaction.commit())
    }

    /// Performs requests that only read, in one snapshot, so that nothing is locked and nothing can conflict.
    fn read_together(&self, requests: &[Request], answers: &mut [Answer]) -> OperationResult {
        let view = self.table.snapshot();
        for (request, answer) in requests.iter().zip(answers) {
            let key = request.key.as_bytes();
            let done = match request.action {
                Action::Scan => self.codec.listed(view.from(key), request, answer)?,
                _ => self.codec.read(view.get(key)?.as_ref(), answer),
            };
            if done != Attempt::Ok {
                return Ok(done);
            }
        }
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.alone(request, answer).unwrap_or_else(|error| undone(&error))
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let reads = |request: &Request| matches!(request.action, Action::Read | Action::Scan);
        let done = if requests.iter().all(reads) {
            self.read_together(requests, answers)
        } else {
            self.together(requests, answers)
        };
        done.unwrap_or_else(|error| undone(&error))
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{operations, wait};

    use super::*;

    #[test]
    fn what_is_no_record_is_told_as_torn_and_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = Fjall { files: Arc::new(Files::at(&folder.path().join("db"), Some(Durability::None))) };
        let connect = |place: &Place, Requirements { lock, layout, .. }| FjallConnector {
            files: Arc::clone(&store.files),
            name: named(place, TABLE),
            lock,
            layout,
        };
        let spoil = async |place: &Place, key: &str| {
            let database = store.files.database().unwrap();
            // shorter than the eight bytes of a version
            keyspace(&database, &named(place, TABLE)).unwrap().insert(key, b"garbled").unwrap();
        };
        wait(operations::garbled(&store, &Lock::ALL, connect, spoil));
    }

    #[test]
    fn a_native_write_leaves_what_is_no_record_as_it_is() {
        let layout = Layout { records: 1, fields: 2, field_bytes: 20, scans: false };
        let mut codec = Codec { layout, value: Vec::new() };
        let request = Request::default();
        for (value, torn) in [(&b"garbled"[..], true), (&u64::MAX.to_le_bytes(), false)] {
            let mut answer = Answer::default();
            let ended = codec.changed(Some(&value.into()), &request, &mut answer);
            assert!(matches!(ended, Attempt::Failed(_)), "{ended:?}");
            let mut told = Answer::default();
            if torn {
                told.torn();
            }
            assert_eq!(format!("{answer:?}"), format!("{told:?}"));
        }
    }
}
