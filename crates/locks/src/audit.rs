//! Audits whether a lock service kept its promise, from the acknowledgements that its clients saw. It knows no
//! service.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use acidtest_workloads::{Audit, Finding, Verdict, guarantee::LOCK};

use crate::Grant;

/// Collects the acknowledgements of grants, renewals and releases that all clients of some locks saw.
///
/// A cell for each lock holds its owner: set when a grant is acknowledged, cleared before its release is sent. A
/// client that finds it occupied by a holder whose lease has not ended has proof that the service granted one lock
/// twice. Clients count their leases from before they asked, and so end before the service does: a correct service is
/// never accused, however late an answer is read.
#[derive(Debug)]
pub struct Watch {
    cells: Vec<Mutex<Cell>>,
}

#[derive(Debug, Default)]
struct Cell {
    holder: Option<Holder>,
    /// The highest token acknowledged.
    token: u64,
    seen: Observations,
}

#[derive(Debug)]
struct Holder {
    client: u32,
    until: Instant,
}

/// Counts of events on one lock, or on several.
#[derive(Clone, Copy, Debug, Default)]
struct Observations {
    grants: u64,
    overlaps: u64,
    stale_tokens: u64,
    outlived: u64,
    late: u64,
}

impl Watch {
    /// A watch over that many locks, which are known by their index.
    #[must_use]
    pub fn new(locks: usize) -> Self {
        Self { cells: (0..locks).map(|_| Mutex::default()).collect() }
    }

    /// Records that a client has the acknowledgement of a grant. `false`: its lease ended before the answer was read,
    /// and the client must not act on it.
    #[must_use = "a grant whose lease has ended must not be acted on"]
    pub fn granted(&self, lock: usize, client: u32, grant: &Grant) -> bool {
        let Some(mut cell) = self.cell(lock) else { return false };
        // taken while the cell is locked, so that the time holds until the cell is set
        let now = Instant::now();
        cell.seen.grants += 1;
        if grant.until() <= now {
            // another client may rightly hold the lock by now, under a higher token
            cell.seen.late += 1;
            return false;
        }
        match &cell.holder {
            Some(holder) if holder.until > now => cell.seen.overlaps += 1,
            Some(_) => cell.seen.outlived += 1,
            None => {}
        }
        if grant.token() <= cell.token {
            cell.seen.stale_tokens += 1;
        }
        cell.token = cell.token.max(grant.token());
        cell.holder = Some(Holder { client, until: grant.until() });
        true
    }

    /// Records that a client has the acknowledgement that its grant was renewed.
    pub fn renewed(&self, lock: usize, client: u32, grant: &Grant) {
        let Some(mut cell) = self.cell(lock) else { return };
        let now = Instant::now();
        match &mut cell.holder {
            Some(holder) if holder.client == client => holder.until = grant.until(),
            // two clients have been told that they hold the lock
            Some(holder) if holder.until > now && grant.until() > now => cell.seen.overlaps += 1,
            _ => {}
        }
    }

    /// Records that a client is about to send a release.
    pub fn releasing(&self, lock: usize, client: u32) {
        let Some(mut cell) = self.cell(lock) else { return };
        if cell.holder.as_ref().is_some_and(|holder| holder.client == client) {
            cell.holder = None;
        }
    }

    fn cell(&self, lock: usize) -> Option<MutexGuard<'_, Cell>> {
        Some(locked(self.cells.get(lock)?))
    }
}

/// The checks that a guarded resource makes of the tokens of those who use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Refuses reads and writes under a token below the highest that it has seen.
    Full,
    /// Checks the tokens of writes alone, which is too little: a late write is let through if the next holder has
    /// read and not yet written.
    WritesOnly,
    /// Ignores tokens.
    Off,
}

/// A counter that holders of a lock raise by reading it and writing one more. If an acknowledged increment is
/// missing, it was overwritten.
#[derive(Debug)]
pub struct GuardedCounter {
    fencing: Fencing,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    value: u64,
    token: u64,
    written: u64,
    refused: u64,
}

/// The error of a request under a stale token: a holder with a higher token was here before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a holder with a later token was here")]
pub struct Stale;

impl GuardedCounter {
    /// A counter at zero, which has seen no token.
    #[must_use]
    pub fn new(fencing: Fencing) -> Self {
        Self { fencing, state: Mutex::default() }
    }

    /// Reads the value for the holder of that token.
    pub fn read(&self, token: u64) -> Result<u64, Stale> {
        let mut state = locked(&self.state);
        if self.fencing == Fencing::Full {
            state.pass(token)?;
        }
        Ok(state.value)
    }

    /// Overwrites the value for the holder of that token.
    pub fn write(&self, token: u64, value: u64) -> Result<(), Stale> {
        let mut state = locked(&self.state);
        if self.fencing != Fencing::Off {
            state.pass(token)?;
        }
        state.value = value;
        state.written += 1;
        Ok(())
    }
}

impl State {
    fn pass(&mut self, token: u64) -> Result<(), Stale> {
        if token < self.token {
            self.refused += 1;
            return Err(Stale);
        }
        self.token = token;
        Ok(())
    }
}

/// The audit of the watch's records and the counters' values.
///
/// `overlap`: a lock was granted while another's lease on it had not ended. `token`: a grant's token was not
/// above those before it. `lost`: an acknowledged increment is missing: after an `overlap`, or where a holder
/// outlived its lease (`outlived`) and nothing fenced it off.
#[must_use]
pub fn audit(watch: &Watch, counters: &[GuardedCounter]) -> Audit {
    let mut seen = Observations::default();
    for cell in &watch.cells {
        let each = locked(cell).seen;
        seen.grants += each.grants;
        seen.overlaps += each.overlaps;
        seen.stale_tokens += each.stale_tokens;
        seen.outlived += each.outlived;
        seen.late += each.late;
    }
    if seen.grants == 0 {
        return Audit::unknown("no lock was granted");
    }
    let states = counters.iter().map(|counter| *locked(&counter.state));
    let (mut written, mut value, mut refused) = (0, 0, 0);
    for state in states {
        written += state.written;
        value += state.value;
        refused += state.refused;
    }
    let findings = [
        ("overlap", seen.overlaps, "grants"),
        ("token", seen.stale_tokens, "grants"),
        ("lost", written.saturating_sub(value), "increments"),
    ]
    .map(|(name, count, unit)| Finding::new(name, count, unit, LOCK));
    let broken = findings.iter().any(|finding| finding.count > 0);
    let evidence = [
        ("grants", seen.grants),
        ("late", seen.late),
        ("outlived", seen.outlived),
        ("refused", refused),
        ("written", written),
    ];
    let evidence: BTreeMap<String, i64> = evidence
        .into_iter()
        .map(|(name, count)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX)))
        .collect();
    let verdict = if broken { Verdict::Broken } else { Verdict::Holds };
    Audit {
        verdict,
        reason: None,
        excused: Vec::new(),
        promised: Vec::new(),
        findings: findings.into(),
        evidence,
        anomalies: Vec::new(),
        promised_level: None,
    }
}

/// Locks the mutex even if another thread panicked while it held it: counts are valid after any panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
