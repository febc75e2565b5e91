//! One client's timed operations on records.

use std::{collections::HashMap, sync::Arc, time::Duration};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::Lock;
use acidtest_workloads::records::{Action, Answer, Lookup, Operations, Request};
use redis::{Cmd, pipe};

use super::{INSERT, MODIFY, Names, SCAN, TRANSACT, UPDATE, take, take_all};
use crate::{
    lock::{self, Locked, Locks},
    protocol::{Reply, nonsense},
    server::{Request as Effect, ended},
    session::{Session, Step},
};

pub(super) struct Client {
    session: Session,
    locks: Locks,
    lock: Lock,
    names: Arc<Names>,
    /// Keys of the current record and of its lock, kept to reuse their memory.
    key: String,
    lock_key: String,
    /// The current command, kept to reuse its memory.
    command: Cmd,
    /// Records written by the current transaction: by number, the version and the index of the request.
    written: HashMap<u64, (u64, usize)>,
}

impl Client {
    pub(super) fn new(session: Session, locks: Locks, lock: Lock, names: Arc<Names>) -> Self {
        Self {
            session,
            locks,
            lock,
            names,
            key: String::new(),
            lock_key: String::new(),
            command: Cmd::new(),
            written: HashMap::new(),
        }
    }

    /// Reads as much of the current record as the action needs.
    async fn read(&mut self, action: Action, answer: &mut Answer) -> Step<Lookup> {
        self.command.clear();
        self.command.arg("HMGET").arg(&self.key).arg(self.names.wanted(action));
        let reply = self.session.ask(&self.command).await.map_err(ended(Effect::Harmless))?;
        take(reply, self.names.wanted(action), answer)
    }

    async fn insert(&mut self, request: &Request) -> Step<Attempt> {
        let Self { session, names, key, .. } = self;
        let asked = session.run(&INSERT, |insert| {
            insert.arg(1 + usize::from(names.index.is_some())).arg(&*key).arg(&names.index);
            insert.arg(&request.key);
            names.add_record(insert, 0, &request.fields);
        });
        let is_new = asked.await.and_then(Reply::flag).map_err(ended(Effect::Script))?;
        Ok(if is_new { Attempt::Ok } else { Attempt::Refused })
    }

    async fn scan(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let Self { session, names, .. } = self;
        let asked = session.run(&SCAN, |scan| names.add_scan(scan, request));
        let records = asked.await.and_then(Reply::array).map_err(ended(Effect::Harmless))?;
        take_all(records, &names.columns, answer)?;
        Ok(Attempt::Ok)
    }

    async fn write_unprotected(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let version = self.read(request.action, answer).await?.above()?;
        self.command.clear();
        self.command.arg("HSET").arg(&self.key);
        self.names.add_record(&mut self.command, version, &request.fields);
        self.session.ask(&self.command).await.map_err(ended(Effect::Change))?;
        answer.wrote(version);
        Ok(Attempt::Ok)
    }

    async fn write_if_unchanged(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let harmless = ended(Effect::Harmless);
        let wanted = self.names.wanted(request.action);
        self.command.clear();
        self.command.arg("HMGET").arg(&self.key).arg(wanted);
        let mut read = self.session.watch(&self.key).map_err(&harmless)?;
        read.push(&self.command).map_err(&harmless)?;
        let reply = read.answers().await.and_then(|mut answers| answers.reply()).map_err(harmless)?;
        let version = take(reply, wanted, answer)?.above()?;
        let mut write = pipe();
        write.add_command(self.names.set(&self.key, version, request));
        if self.session.exec(&write, Effect::Change).await?.is_none() {
            return Ok(Attempt::Conflict);
        }
        answer.wrote(version);
        Ok(Attempt::Ok)
    }

    async fn write_locked(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        self.lock_key.clear();
        self.lock_key.push_str(&self.names.lock);
        self.lock_key.push_str(&request.key);
        let Self { session, locks, names, key, lock_key, .. } = self;
        let locked = Locked { hash: key, lock: lock_key };
        let wanted = names.wanted(request.action);
        let (token, reply) = locks.acquire(session, locked, wanted).await?;
        let version = match take(reply, wanted, answer)?.above() {
            Ok(version) => version,
            Err(ended) => return lock::give_up(session, locked, token).await.map(|_| ended),
        };
        let write = |settle: &mut Cmd| {
            settle.arg("HSET");
            names.add_record(settle, version, &request.fields);
        };
        let done = lock::write(session, locked, token, write).await?;
        answer.wrote(version);
        Ok(done)
    }

    async fn update_in_one(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let Self { session, names, key, .. } = self;
        let asked = session.run(&UPDATE, |update| {
            update.arg(1).arg(&*key);
            names.add_fields(update, &request.fields);
        });
        let written = asked.await.and_then(Reply::optional).map_err(ended(Effect::Script))?;
        let Some(version) = written else { return Ok(Attempt::Refused) };
        answer.wrote(version);
        Ok(Attempt::Ok)
    }

    async fn modify_in_one(&mut self, request: &Request, answer: &mut Answer) -> Step<Attempt> {
        let Self { session, names, key, .. } = self;
        let asked = session.run(&MODIFY, |modify| {
            modify.arg(1).arg(&*key);
            names.add_fields(modify, &request.fields);
        });
        let reply = asked.await.map_err(ended(Effect::Script))?;
        let found = take(reply, &names.columns, answer).map_err(Attempt::after_a_part)?;
        if found == Lookup::Nothing {
            return Ok(Attempt::Refused);
        }
        // the script has overwritten the value, whatever it was
        answer.wrote(found.above().map_err(Attempt::after_a_part)?);
        Ok(Attempt::Ok)
    }

    fn record_key(&self, request: &Request) -> String {
        [self.names.record.as_str(), &request.key].concat()
    }

    /// Carries out reads and scans in one `MULTI … EXEC`.
    async fn read_together(&mut self, requests: &[Request], answers: &mut [Answer]) -> Step<Attempt> {
        let mut read = pipe();
        for request in requests {
            if request.action == Action::Scan {
                read.add_command(self.names.scan_call(request));
            } else {
                read.cmd("HMGET").arg(self.record_key(request)).arg(&self.names.columns);
            }
        }
        // nothing is watched
        let Some(found) = self.session.exec(&read, Effect::Harmless).await? else {
            return Ok(Attempt::Conflict);
        };
        let columns = &self.names.columns;
        for ((request, answer), reply) in requests.iter().zip(answers).zip(found) {
            match request.action {
                Action::Scan => {
                    let records = reply.array().map_err(ended(Effect::Harmless))?;
                    take_all(records, columns, answer)?;
                }
                _ if take(reply, columns, answer)? == Lookup::Nothing => return Ok(Attempt::Refused),
                _ => {}
            }
        }
        Ok(Attempt::Ok)
    }

    /// Reads the records on which the requests depend, then writes in one `MULTI … EXEC`; under the soft lock
    /// only if none of the records that were read has changed.
    async fn write_together(&mut self, requests: &[Request], answers: &mut [Answer]) -> Step<Attempt> {
        let keys: Vec<String> = requests.iter().map(|request| self.record_key(request)).collect();
        let decided = || requests.iter().zip(&keys).filter(|(request, _)| request.action != Action::Scan);
        let harmless = ended(Effect::Harmless);
        let read = match self.lock {
            Lock::Soft => self.session.watch(decided().map(|(_, key)| key).collect::<Vec<_>>()),
            _ => self.session.reads(),
        };
        let mut read = read.map_err(&harmless)?;
        for (request, key) in decided() {
            self.command.clear();
            self.command.arg("HMGET").arg(key).arg(self.names.wanted(request.action));
            read.push(&self.command).map_err(&harmless)?;
        }
        let mut found = read.answers().await.map_err(&harmless)?;

        let mut write = pipe();
        // of each scan: its place among the commands, and among the requests
        let mut scans = Vec::new();
        self.written.clear();
        for (at, (request, answer)) in requests.iter().zip(&mut *answers).enumerate() {
            if request.action == Action::Scan {
                scans.push((write.len(), at));
                write.add_command(self.names.scan_call(request));
                continue;
            }
            let reply = found.reply().map_err(&harmless)?;
            let found = match self.written.get(&request.number) {
                // a transaction sees its own writes
                Some(&(version, by)) => {
                    if matches!(request.action, Action::Read | Action::Modify) {
                        answer.record(version, requests[by].fields.iter().map(str::as_bytes));
                    }
                    Lookup::Record(version)
                }
                None => take(reply, self.names.wanted(request.action), answer)?,
            };
            let version = match (request.action, found) {
                (Action::Insert, Lookup::Nothing) => 0,
                (Action::Insert, _) | (Action::Read, Lookup::Nothing) => return Ok(Attempt::Refused),
                (Action::Read, _) => continue,
                (_, found) => {
                    let version = found.above()?;
                    answer.wrote(version);
                    version
                }
            };
            self.written.insert(request.number, (version, at));
            write.add_command(self.names.set(&keys[at], version, request));
            if let (Action::Insert, Some(index)) = (request.action, &self.names.index) {
                write.cmd("ZADD").arg(index).arg(0).arg(&request.key);
            }
        }
        let done = self.session.exec(&write, Effect::Change).await?;
        let Some(done) = done else { return Ok(Attempt::Conflict) };
        let mut scans = scans.into_iter().peekable();
        for (place, reply) in done.enumerate() {
            if let Some((_, at)) = scans.next_if(|(scan, _)| *scan == place) {
                let records = reply.array().map_err(ended(Effect::Change))?;
                take_all(records, &self.names.columns, &mut answers[at]).map_err(Attempt::after_a_part)?;
            }
        }
        Ok(Attempt::Ok)
    }

    /// Sends all requests of a transaction in one call of a script.
    async fn do_in_one(&mut self, requests: &[Request], answers: &mut [Answer]) -> Step<Attempt> {
        let Self { session, names, .. } = self;
        let columns = names.columns.len();
        let written = 2 * (columns - 1);
        let asked = session.run(&TRANSACT, |call| {
            call.arg(requests.len() + usize::from(names.index.is_some()));
            for request in requests {
                call.arg([names.record.as_str(), &request.key].concat());
            }
            call.arg(&names.index).arg(&names.record).arg(requests.len()).arg(columns).arg(&names.columns);
            for request in requests {
                match request.action {
                    Action::Read => {
                        call.arg("r").arg(0);
                    }
                    Action::Update | Action::Modify => {
                        let letter = if request.action == Action::Update { "u" } else { "m" };
                        call.arg(letter).arg(written);
                        names.add_fields(call, &request.fields);
                    }
                    Action::Insert => {
                        let key = if names.index.is_some() { request.key.as_str() } else { "" };
                        call.arg("i").arg(1 + 2 + written).arg(key);
                        names.add_record(call, 0, &request.fields);
                    }
                    Action::Scan => {
                        call.arg("s").arg(2).arg(&request.key).arg(request.length);
                    }
                }
            }
        });
        let changed = ended(Effect::Script);
        let done = match asked.await.map_err(&changed)? {
            Reply::Nil => return Ok(Attempt::Refused),
            done => done.array().map_err(&changed)?,
        };
        if done.len() != requests.len() {
            return Err(changed(nonsense()));
        }
        for (answer, done) in answers.iter_mut().zip(done) {
            let [version, records] = done.exactly().map_err(&changed)?;
            let records = records.array().map_err(&changed)?;
            take_all(records, &names.columns, answer).map_err(Attempt::after_a_part)?;
            if let Some(version) = version.optional().map_err(&changed)? {
                answer.wrote(version);
            }
        }
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    fn lock_wait(&mut self) -> Duration {
        self.locks.take_waited()
    }

    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.key.clear();
        self.key.push_str(&self.names.record);
        self.key.push_str(&request.key);
        let done = match (request.action, self.lock) {
            (Action::Read, _) => self.read(Action::Read, answer).await.map(Lookup::read),
            (Action::Insert, _) => self.insert(request).await,
            (Action::Scan, _) => self.scan(request, answer).await,
            (Action::Update | Action::Modify, Lock::None) => self.write_unprotected(request, answer).await,
            (Action::Update | Action::Modify, Lock::Soft) => self.write_if_unchanged(request, answer).await,
            (Action::Update | Action::Modify, Lock::Hard) => self.write_locked(request, answer).await,
            (Action::Update, Lock::Native) => self.update_in_one(request, answer).await,
            (Action::Modify, Lock::Native) => self.modify_in_one(request, answer).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let reads = || requests.iter().all(|each| matches!(each.action, Action::Read | Action::Scan));
        let done = match self.lock {
            Lock::Native => self.do_in_one(requests, answers).await,
            // not reached: the check of the plan refuses such cells
            Lock::Hard => Err(Attempt::Failed(Fault::answered(super::ONE_LOCK))),
            Lock::None | Lock::Soft if reads() => self.read_together(requests, answers).await,
            Lock::None | Lock::Soft => self.write_together(requests, answers).await,
        };
        done.unwrap_or_else(|ended| ended)
    }
}
