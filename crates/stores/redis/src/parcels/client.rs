//! One client's timed operations on scans.

use std::{sync::Arc, time::Duration};

use acidtest_engine::Attempt;
use acidtest_model::Lock;
use acidtest_workloads::parcels::{Found, Inserted, MOST, Operations, Parcel, Scan};
use redis::{Cmd, Pipeline, RedisWrite, ToRedisArgs, cmd, pipe};

use super::{ACQUIRE, COLUMNS, INSERT, Names, READ, SETTLE, add_texts, stored, torn, write_date};
use crate::{
    keys,
    lock::{LEASE, Locks},
    protocol::{Error, Reply, nonsense, pairs},
    records::{bytes, digits},
    server::{Request as Effect, ended},
    session::{Session, Step},
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
    async fn count(&mut self, scans: &[Scan]) -> Result<u64, Error> {
        let Self { session, lock, names, counts, date, command, .. } = self;
        let mut read = match lock {
            Lock::Soft => session.watch(Lists(names, scans)),
            _ => session.reads(),
        }?;
        for scan in scans {
            command.clear();
            read.push(command.arg("LLEN").arg(names.list(scan.hash())))?;
        }
        read.push(cmd("INCRBY").arg(&names.ids).arg(scans.len()))?;
        read.push(&cmd("TIME"))?;
        let mut answers = read.answers().await?;
        counts.clear();
        for _ in scans {
            counts.push(next_count(answers.reply()?.integer()?));
        }
        let last: u64 = answers.reply()?.integer()?;
        write_date(answers.reply()?, date)?;
        (last + 1).checked_sub(scans.len() as u64).ok_or_else(nonsense)
    }

    /// Counts the parcels' scans, then inserts in one `MULTI … EXEC`; under the soft lock only if none of the parcels has
    /// been given another scan.
    async fn insert_counted(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Step<Attempt> {
        let first = self.count(scans).await.map_err(ended(Effect::Harmless))?;
        let mut write = std::mem::take(&mut self.pipeline);
        write.clear();
        for (place, scan, count) in self.accepted(scans) {
            self.names.put(&mut write, scan, (first + place as u64, count), &self.date);
        }
        let is_done = if write.is_empty() {
            Ok(true)
        } else {
            self.session.exec(&write, Effect::Change).await.map(|done| done.is_some())
        };
        self.pipeline = write;
        if !is_done? {
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
        let (token, rows) = locks.take(session, &ACQUIRE, acquire).await?;
        let rows =
            rows.array().and_then(|rows| if rows.len() == scans.len() { Ok(rows) } else { Err(nonsense()) });
        let harmless = ended(Effect::Harmless);
        counts.clear();
        for rows in rows.map_err(&harmless)? {
            counts.push(next_count(rows.integer().map_err(&harmless)?));
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
        let effect = if number > 0 { Effect::Script } else { Effect::Harmless };
        let first: Option<u64> = asked.await.and_then(Reply::optional).map_err(ended(effect))?;
        let first = match first {
            // nothing was to be written, whoever holds the locks now
            _ if number == 0 => 0,
            Some(0) => return Err(ended(effect)(nonsense())),
            Some(first) => first,
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
        let given = asked.await.and_then(|answer| given(answer, scans.len(), &mut self.counts));
        let first = given.map_err(ended(Effect::Script))?;
        self.tell(first, inserted);
        Ok(Attempt::Ok)
    }

    async fn read_parcel(&mut self, parcel: &Parcel, found: &mut Found) -> Step<Attempt> {
        let Self { session, names, .. } = self;
        let asked = session.run(&READ, |read| {
            read.arg(1).arg(names.list(parcel.hash())).arg(&names.scan).arg(&COLUMNS);
        });
        let harmless = ended(Effect::Harmless);
        for scan in asked.await.and_then(pairs).map_err(&harmless)? {
            let [id, columns] = scan;
            let id = digits(bytes(id));
            columns.clone().array().map_err(&harmless)?;
            // an id without a scan was put into the list by nobody here
            found.take(stored(id, columns).ok().flatten().unwrap_or_else(|| torn(id)));
        }
        Ok(Attempt::Ok)
    }

    async fn read_scan(&mut self, id: u64, found: &mut Found) -> Step<Attempt> {
        self.command.clear();
        self.command.arg("HMGET").arg(self.names.scan(id)).arg(&COLUMNS);
        let scan = match keys::held(self.session.ask(&self.command).await) {
            Ok(Some(reply)) => stored(Some(id), reply),
            Ok(None) => Ok(Some(torn(Some(id)))),
            Err(error) => Err(error),
        };
        let Some(scan) = scan.map_err(ended(Effect::Harmless))? else { return Ok(Attempt::Refused) };
        found.take(scan);
        Ok(Attempt::Ok)
    }
}

/// The first id that the script has given, and the counts of so many scans.
fn given(answer: Reply<'_>, scans: usize, counts: &mut Vec<Option<u8>>) -> Result<u64, Error> {
    let mut answer = answer.array()?;
    let first: u64 = answer.next().unwrap_or(Reply::Nil).integer()?;
    counts.clear();
    for count in answer {
        let count = Some(count.integer()?).filter(|count| *count <= MOST).ok_or_else(nonsense)?;
        counts.push((count > 0).then_some(count));
    }
    let is_given = first > 0 || counts.iter().all(Option::is_none);
    if counts.len() == scans && is_given { Ok(first) } else { Err(nonsense()) }
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
