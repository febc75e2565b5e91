//! The records as replicas show them: each server has applied the leader's commits up to one of them, and shows what there was then.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use acidtest_model::Consistency;
use acidtest_workloads::{
    Attempt,
    records::{Action, Layout, Request},
};
use rand::RngExt;
use tokio::time::Instant;

use super::{Found, Row, RowChange, State, read, torn};
use crate::{Bug, faults::Plant, world::SERVERS};

/// How many commits are kept, so that replicas can be that far behind.
const KEPT: usize = 64;

/// How many commits a replica is behind at most, and for how long.
const BEHIND: (u64, Duration) = (8, Duration::from_millis(30));

/// The same of one that should wait and does not.
const FAR_BEHIND: (u64, Duration) = (48, Duration::from_millis(300));

/// The last commits of the leader, and how many of all of them each server has applied, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// How many commits there were before those that are kept.
    first: u64,
    commits: VecDeque<Vec<RowChange>>,
    servers: [Replica; SERVERS],
    /// What replicas have by [`Bug::ShowUncommitted`], each until its record is written at the leader.
    uncommitted: BTreeMap<String, Row>,
    /// The newest version of each record that each client was shown, for [`Bug::GoBack`].
    shown: BTreeMap<(u64, String), u64>,
}

/// What one server has applied.
#[derive(Clone, Debug, Default)]
struct Replica {
    applied: u64,
    /// It applies nothing more before there are so many commits, or it is so late.
    waits: Option<(u64, Instant)>,
    /// The versions of records that are damaged there, and how: until they are written again.
    damaged: BTreeMap<String, (u64, Damage)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Torn,
    Lacking,
}

impl Log {
    fn end(&self) -> u64 {
        self.first + self.commits.len() as u64
    }

    /// Adds what was committed last.
    pub(super) fn note(&mut self, changes: Vec<RowChange>) {
        for change in &changes {
            self.uncommitted.remove(&change.key);
        }
        self.commits.push_back(changes);
        if self.commits.len() > KEPT {
            self.commits.pop_front();
            self.first += 1;
        }
    }

    /// Has replicas show what the leader has by now, as after all of it was copied anew.
    pub(super) fn restart(&mut self) {
        *self = Self { first: self.end(), ..Self::default() };
        let end = self.first;
        self.servers.iter_mut().for_each(|server| server.applied = end);
    }

    /// Ends what was under way at the last leader.
    pub(super) fn promote(&mut self) {
        self.uncommitted.clear();
    }

    /// Has replicas show what the leader does not commit.
    pub(super) fn show_uncommitted(&mut self, written: BTreeMap<String, Row>) {
        self.uncommitted.extend(written);
    }

    /// Whether a client is shown less of a record than before.
    fn goes_back(&mut self, client: u64, key: &str, row: &Row, plant: &mut Plant) -> bool {
        if !plant.has(Bug::GoBack) {
            return false;
        }
        let before = self.shown.insert((client, key.to_owned()), row.version);
        before == Some(row.version) && row.before.is_some() && plant.strikes(Bug::GoBack)
    }

    /// Has a server apply what it is to show by now. Returns up to where.
    fn apply(&mut self, server: usize, plant: &mut Plant) -> u64 {
        let (first, end) = (self.first, self.end());
        let replica = &mut self.servers[server];
        let is_over = |(until, time): (u64, Instant)| end >= until || Instant::now() >= time;
        if replica.waits.is_none_or(is_over) {
            replica.applied = end;
            let behind = match plant.faults.replicas {
                Some(Consistency::Strong) => plant.strikes(Bug::LagBehind).then_some(FAR_BEHIND),
                _ => Some(BEHIND),
            };
            replica.waits = behind
                .map(|(commits, time)| (end + plant.rng.random_range(0..=commits), Instant::now() + time));
        }
        replica.applied = replica.applied.max(first);
        replica.applied
    }
}

/// The rows after one of the last commits.
struct View<'a> {
    rows: &'a BTreeMap<String, Row>,
    /// Those that were written since, as they were before.
    since: BTreeMap<&'a str, Option<&'a Row>>,
}

impl<'a> View<'a> {
    fn of(state: &'a State, applied: u64) -> Self {
        let mut since = BTreeMap::new();
        let skipped = usize::try_from(applied.saturating_sub(state.log.first)).unwrap_or(usize::MAX);
        for change in state.log.commits.iter().skip(skipped).flatten() {
            since.entry(change.key.as_str()).or_insert(change.before.as_ref());
        }
        Self { rows: &state.rows, since }
    }

    fn row(&self, key: &str) -> Option<&'a Row> {
        self.since.get(key).copied().unwrap_or_else(|| self.rows.get(key))
    }

    /// The rows from this key on, in their order.
    fn from(&self, key: &str) -> impl Iterator<Item = &'a Row> {
        self.rows.range(key.to_owned()..).filter_map(|(key, _)| self.row(key))
    }
}

impl State {
    /// Does operations that change nothing at a server that follows.
    ///
    /// # Errors
    /// How they end if one of them finds no record.
    pub(super) fn look_at_replica(
        &mut self,
        (server, client): (usize, u64),
        layout: &Layout,
        plant: &mut Plant,
        requests: &[Request],
        found: &mut [Found],
    ) -> Result<(), Attempt> {
        let applied = self.log.apply(server, plant);
        for (request, found) in requests.iter().zip(found) {
            let view = View::of(self, applied);
            if request.action == Action::Scan {
                let rows = view.from(&request.key).take(request.length as usize);
                rows.for_each(|row| found.record(row.version, &row.bytes));
                continue;
            }
            let row = view.row(&request.key).ok_or(Attempt::Refused)?.clone();
            let log = &mut self.log;
            let hides = row.writer == Some(client) && plant.strikes(Bug::HideOwn);
            let row = if hides || log.goes_back(client, &request.key, &row, plant) {
                row.earlier().ok_or(Attempt::Refused)?
            } else {
                row
            };
            let uncommitted = log.uncommitted.get(&request.key);
            let row = uncommitted.filter(|next| next.version == row.version + 1).cloned().unwrap_or(row);
            let row = log.servers[server].damage(&request.key, row, layout, plant).ok_or(Attempt::Refused)?;
            read(layout, plant, &row, found)?;
        }
        Ok(())
    }
}

impl Replica {
    /// The row as the server has it, which a bug may damage now; none if it lacks it.
    fn damage(&mut self, key: &str, row: Row, layout: &Layout, plant: &mut Plant) -> Option<Row> {
        for (bug, damage) in [(Bug::TearAtReplica, Damage::Torn), (Bug::LackAtReplica, Damage::Lacking)] {
            let can_be = damage == Damage::Lacking || row.before.is_some();
            if can_be && plant.strikes(bug) {
                self.damaged.insert(key.to_owned(), (row.version, damage));
            }
        }
        match self.damaged.get(key) {
            Some((version, Damage::Lacking)) if *version == row.version => None,
            Some((version, Damage::Torn)) if *version == row.version => {
                let before = row.before.as_ref().map_or(&row.bytes, |(_, bytes)| bytes);
                Some(Row { bytes: torn(before, &row.bytes, layout), ..row })
            }
            _ => Some(row),
        }
    }
}
