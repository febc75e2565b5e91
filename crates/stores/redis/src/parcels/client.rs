//! One client's timed operations on scans.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::Lock;
use acidtest_workloads::parcels::{Found, Inserted, MOST, Operations, Parcel, Scan};
use redis::{Cmd, Pipeline, RedisResult, RedisWrite, ToRedisArgs, Value, pipe};

use super::{ACQUIRE, COLUMNS, INSERT, Names, READ, SETTLE, add_texts, columns, stored, torn, write_date};
use crate::{
    keys,
    lock::{LEASE, Locks},
    records::{bytes, digits},
    server::{Request as Effect, ended},
    session::{Session, Step, nonsense},
};

pub(super) struct Client {
    session: Session,
    locks: Locks,
    lock: Lock,
    names: Arc<Names>,
    /// The count of each scan of the current insert; none for one that is refused. Kept to reuse its memory.
    counts: Vec<Option<u8>>,
    /// The date of the current insert.
    date: String,
    /// The current command and the current pipeline, kept to reuse their memory.
    command: Cmd,
    pipeline: Pipeline,
}

/// The outcome of an answer of another shape to what changes no scan.
fn no_answer() -> Attempt {
    Attempt::Failed(Fault::lost("the server's answer makes no sense"))
}

/// The count of a parcel's next scan; none if the parcel has its seven.
fn next_count(rows: u64) -> Option<u8> {
    u8::try_from(rows).ok().filter(|rows| *rows < MOST).map(|rows| rows + 1)
}

/// The keys of the lists of all parcels of an insert.
struct Lists<'a>(&'a Names, &'a [Scan]);

impl ToRedisArgs for Lists<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        for scan in self.1 {
            self.0.list(scan.hash()).write_redis_args(out);
        }
    }
}

impl Client {
    pub(super) fn new(session: Session, locks: Locks, lock: Lock, names: Arc<Names>) -> Self {
        Self {
            session,
            locks,
            lock,
            names,
            counts: Vec::new(),
            date: String::new(),
            command: Cmd::new(),
            pipeline: pipe(),
        }
    }

    /// The scans that are not refused, each with its place in the insert and its count.
    fn accepted<'a>(&'a self, scans: &'a [Scan]) -> impl Iterator<Item = (usize, &'a Scan, u8)> {
        let all = scans.iter().zip(&self.counts).enumerate();
        all.filter_map(|(place, (scan, count))| Some((place, scan, (*count)?)))
    }

    /// Says of each scan what it was given: the ids from the first one on, of which the refused ones take none.
    fn tell(&self, first: u64, inserted: &mut Inserted) {
        let mut id = first;
        for count in &self.counts {
            match count {
                Some(count) => {
                    inserted.took(id, *count);
                    id = id.saturating_add(1);
                }
                None => inserted.refused(),
            }
        }
    }

    /// Counts each parcel's scans, and is given an id for each scan and the time, in one round trip. Returns the first
    /// id. The ids of scans that are then refused are left out, as those of a sequence are.
    async fn count(&mut self, scans: &[Scan]) -> Step<u64> {
        let mut read = match self.lock {
            Lock::Soft => self.session.watch(Lists(&self.names, scans)),
            _ => pipe(),
        };
        for scan in scans {
            read.cmd("LLEN").arg(self.names.list(scan.hash()));
        }
        read.cmd("INCRBY").arg(&self.names.ids).arg(scans.len());
        read.cmd("TIME");
        let answer: RedisResult<Vec<Value>> = read.query_async(&mut self.session.connection).await;
        let answer = answer.map_err(ended(Effect::Harmless))?;
        let [rows @ .., Value::Int(last), time] = &answer[..] else { return Err(no_answer()) };
        self.counts.clear();
        for rows in rows {
            let Value::Int(rows) = rows else { return Err(no_answer()) };
            self.counts.push(next_count(u64::try_from(*rows).map_err(|_| no_answer())?));
        }
        write_date(time, &mut self.date).ok_or_else(no_answer)?;
        let last = u64::try_from(*last).ok().filter(|_| self.counts.len() == scans.len());
        last.and_then(|last| (last + 1).checked_sub(scans.len() as u64)).ok_or_else(no_answer)
    }

    /// Counts the parcels' scans, then inserts in one `MULTI … EXEC`; under the soft lock only if none of the parcels has
    /// been given another scan.
    async fn insert_counted(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let first = self.count(scans).await?;
        let mut write = std::mem::take(&mut self.pipeline);
        write.clear();
        write.atomic();
        for (place, scan, count) in self.accepted(scans) {
            self.names.put(&mut write, scan, (first + place as u64, count), &self.date);
        }
        let done = if write.is_empty() { Ok(Some(Vec::new())) } else { self.session.exec(&write).await };
        self.pipeline = write;
        if done?.is_none() {
            return Ok(Attempt::Conflict);
        }
        for (id, count) in (first..).zip(&self.counts) {
            match count {
                Some(count) => inserted.took(id, *count),
                None => inserted.refused(),
            }
        }
        Ok(Attempt::Ok)
    }

    /// Takes the locks of all parcels and counts their scans, then inserts and gives the locks up.
    async fn insert_locked(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let Self { session, locks, names, counts, .. } = self;
        let acquire = |acquire: &mut Cmd, fence: &str| {
            acquire.arg(1 + 2 * scans.len()).arg(fence).arg(Lists(names, scans));
            for scan in scans {
                acquire.arg(names.lock(scan.hash()));
            }
            acquire.arg(LEASE.as_millis());
        };
        let (token, rows): (i64, Vec<i64>) = locks.take(session, &ACQUIRE, acquire).await?;
        if rows.len() != scans.len() {
            return Err(no_answer());
        }
        counts.clear();
        for rows in rows {
            counts.push(next_count(u64::try_from(rows).map_err(|_| no_answer())?));
        }

        let Self { session, names, counts, .. } = self;
        let accepted = || scans.iter().zip(&*counts).filter_map(|(scan, count)| Some((scan, (*count)?)));
        let number = accepted().count();
        let asked = session.run(&SETTLE, |settle| {
            settle.arg(1 + scans.len() + number).arg(&names.ids);
            for scan in scans {
                settle.arg(names.lock(scan.hash()));
            }
            for (scan, _) in accepted() {
                settle.arg(names.list(scan.hash()));
            }
            settle.arg(token).arg(scans.len()).arg(&names.scan);
            for (scan, count) in accepted() {
                settle.arg(count);
                add_texts(settle, scan);
            }
        });
        let effect = if number > 0 { Effect::Change } else { Effect::Harmless };
        let first: Option<i64> = asked.await.map_err(ended(effect))?;
        let first = match first {
            // nothing was to be written, whoever holds the locks now
            _ if number == 0 => 0,
            Some(first) => u64::try_from(first).ok().filter(|first| *first > 0).ok_or_else(nonsense)?,
            None => return Ok(Attempt::Conflict),
        };
        self.tell(first, inserted);
        Ok(Attempt::Ok)
    }

    /// Counts and inserts in one call of a script.
    async fn insert_in_one(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let Self { session, names, .. } = self;
        let asked = session.run(&INSERT, |insert| {
            insert.arg(1 + scans.len()).arg(&names.ids).arg(Lists(names, scans));
            insert.arg(&names.scan).arg(MOST);
            for scan in scans {
                add_texts(insert, scan);
            }
        });
        // the driver would take a negative number for a large one, if it were asked for one without a sign
        let answer: Vec<i64> = asked.await.map_err(ended(Effect::Change))?;
        let Some((first, counts)) = answer.split_first() else { return Err(nonsense()) };
        let first = u64::try_from(*first).map_err(|_| nonsense())?;
        self.counts.clear();
        for count in counts {
            let count = u8::try_from(*count).ok().filter(|count| *count <= MOST).ok_or_else(nonsense)?;
            self.counts.push((count > 0).then_some(count));
        }
        let is_given = first > 0 || self.counts.iter().all(Option::is_none);
        if counts.len() != scans.len() || !is_given {
            return Err(nonsense());
        }
        self.tell(first, inserted);
        Ok(Attempt::Ok)
    }

    async fn read_parcel(&mut self, parcel: &Parcel, found: &mut Found) -> Step<Attempt> {
        let Self { session, names, .. } = self;
        let asked = session.run(&READ, |read| {
            read.arg(1).arg(names.list(parcel.hash())).arg(&names.scan).arg(&COLUMNS);
        });
        let answer: Vec<Value> = asked.await.map_err(ended(Effect::Harmless))?;
        let (scans, rest) = answer.as_chunks();
        if !rest.is_empty() {
            return Err(no_answer());
        }
        for [id, reply] in scans {
            let id = digits(bytes(id));
            let Value::Array(columns) = reply else { return Err(no_answer()) };
            // an id without a scan was put into the list by nobody here
            found.take(stored(id, columns).unwrap_or_else(|| torn(id)));
        }
        Ok(Attempt::Ok)
    }

    async fn read_scan(&mut self, id: u64, found: &mut Found) -> Step<Attempt> {
        self.command.clear();
        self.command.arg("HMGET").arg(self.names.scan(id)).arg(&COLUMNS);
        let reply: RedisResult<Value> = self.session.ask(&self.command).await;
        let scan = match keys::held(reply).map_err(ended(Effect::Harmless))? {
            Some(reply) => stored(Some(id), columns(&reply).ok_or_else(no_answer)?),
            None => Some(torn(Some(id))),
        };
        let Some(scan) = scan else { return Ok(Attempt::Refused) };
        found.take(scan);
        Ok(Attempt::Ok)
    }
}

impl Operations for Client {
    fn lock_wait(&mut self) -> Duration {
        self.locks.take_waited()
    }

    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let done = match self.lock {
            Lock::None | Lock::Soft => self.insert_counted(scans, inserted).await,
            Lock::Hard => self.insert_locked(scans, inserted).await,
            Lock::Native => self.insert_in_one(scans, inserted).await,
        };
        done.unwrap_or_else(|ended| ended)
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.read_parcel(parcel, found).await.unwrap_or_else(|ended| ended)
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        self.read_scan(id, found).await.unwrap_or_else(|ended| ended)
    }
}
