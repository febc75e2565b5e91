//! State that all connections to a reference store share: its outages, its history and its strikes of the planted
//! bug; and the simulated network between a client and the store.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_workloads::{Attempt, Boundary, Fault, WorkloadTrial};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::{Instant, sleep};

use crate::{
    Faults, Watch,
    faults::{Plant, SWAPPED},
};

/// Number of events that a history keeps; older ones are dropped.
const KEPT: usize = 20_000;

/// How long the store is reachable at first, in milliseconds, so that every client gets a first connection.
const AT_FIRST: u64 = 40;
/// How long the store is reachable between two outages, in milliseconds.
const THERE: std::ops::Range<u64> = 20..200;
/// How long an outage takes, in milliseconds.
const AWAY: std::ops::Range<u64> = 1..60;

/// The longest delay of a request or of an answer, in milliseconds.
const SLOWEST: u64 = 12;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that all connections to one reference store share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) faults: Faults,
    /// Whether clients run one after the other, so that the store's answers so far are all that they know.
    pub(crate) exact: bool,
    seeds: AtomicU64,
    connections: AtomicU64,
    struck: AtomicU64,
    /// Number of changes that were asked for since there was room last.
    changes: AtomicU64,
    is_sound: AtomicBool,
    presence: Mutex<Availability>,
    told: Mutex<ToldTrial>,
    history: Option<Mutex<History>>,
}

/// The simulated outages of the store.
#[derive(Debug)]
struct Availability {
    rng: Xoshiro256PlusPlus,
    is_there: bool,
    /// Number of outages so far. No connection outlives one.
    left: u64,
    until: Option<Instant>,
}

/// The trial that is told of each outage as of a crash, while it has its effect.
#[derive(Default)]
struct ToldTrial(Option<Arc<dyn WorkloadTrial>>);

impl fmt::Debug for ToldTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a trial" } else { "nobody" })
    }
}

#[derive(Debug)]
struct History {
    begun: Instant,
    events: VecDeque<String>,
}

impl World {
    pub(crate) fn new(faults: Faults, seed: u64, Watch { exact, recorded }: Watch) -> Self {
        let presence = Availability {
            rng: Xoshiro256PlusPlus::seed_from_u64(!seed),
            is_there: true,
            left: 0,
            until: None,
        };
        let history = || Mutex::new(History { begun: Instant::now(), events: VecDeque::new() });
        Self {
            faults,
            exact,
            seeds: AtomicU64::new(seed),
            connections: AtomicU64::new(0),
            struck: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            is_sound: AtomicBool::new(false),
            presence: Mutex::new(presence),
            told: Mutex::default(),
            history: recorded.then(history),
        }
    }

    /// A seed that no other connection of this store gets.
    pub(crate) fn next_seed(&self) -> u64 {
        self.seeds.fetch_add(1, Relaxed)
    }

    fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Relaxed)
    }

    /// Turns the planted bug on or off from now on.
    pub(crate) fn plant(&self, does: bool) {
        self.is_sound.store(!does, Relaxed);
    }

    /// Whether the planted bug is turned off for now.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_sound.load(Relaxed)
    }

    /// How often it has gone away so far, as by a kill.
    pub(crate) fn kills(&self) -> u64 {
        self.presence();
        locked(&self.presence).left
    }

    pub(crate) fn is_there(&self) -> bool {
        self.presence().is_some()
    }

    /// Makes room anew for as many changes as it has room for.
    pub(crate) fn make_room(&self) {
        self.changes.store(0, Relaxed);
    }

    /// Counts a change that is asked for; returns how many there were before it.
    pub(crate) fn change(&self) -> u64 {
        self.changes.fetch_add(1, Relaxed)
    }

    /// Counts a strike of the bug.
    pub(crate) fn struck(&self) {
        self.struck.fetch_add(1, Relaxed);
    }

    /// How often the bug has struck so far.
    pub(crate) fn strikes(&self) -> u64 {
        self.struck.load(Relaxed)
    }

    /// Number of outages so far; none during one.
    fn presence(&self) -> Option<u64> {
        if !self.faults.outages {
            return Some(0);
        }
        let presence = &mut *locked(&self.presence);
        let now = Instant::now();
        let mut until = *presence.until.get_or_insert(now + Duration::from_millis(AT_FIRST));
        while until <= now {
            presence.left += u64::from(presence.is_there);
            presence.is_there = !presence.is_there;
            // before anybody can see it
            self.note_boundary(if presence.is_there {
                &[Boundary::After]
            } else {
                &[Boundary::Before, Boundary::During]
            });
            let range = if presence.is_there { THERE } else { AWAY };
            until += Duration::from_millis(presence.rng.random_range(range));
        }
        presence.until = Some(until);
        presence.is_there.then_some(presence.left)
    }

    /// Tells this trial of outages from now on.
    pub(crate) fn tell(&self, trial: Option<Arc<dyn WorkloadTrial>>) {
        locked(&self.told).0 = trial;
    }

    fn note_boundary(&self, stages: &[Boundary]) {
        if self.faults.unasked {
            return;
        }
        if let Some(trial) = &locked(&self.told).0 {
            for stage in stages {
                trial.ledger().note_boundary(*stage);
            }
        }
    }

    /// Adds an event on a connection to the history, if one is kept.
    pub(crate) fn note(&self, connection: u64, event: impl FnOnce() -> String) {
        let Some(history) = &self.history else { return };
        let history = &mut *locked(history);
        if history.events.len() == KEPT {
            history.events.pop_front();
        }
        let passed = history.begun.elapsed().as_micros();
        history.events.push_back(format!("{passed:>9} µs  connection {connection:>3}  {}", event()));
    }

    /// The events that were kept, oldest first.
    pub(crate) fn history(&self) -> Vec<String> {
        self.history
            .as_ref()
            .map_or_else(Vec::new, |history| locked(history).events.iter().cloned().collect())
    }
}

/// The simulated network between a client and the store, with its delays and losses.
#[derive(Debug)]
pub(crate) struct Link {
    plant: Plant,
    /// The connection's number, as the history shows it.
    pub(crate) number: u64,
    /// Number of outages when the connection was opened; of one that ends at a pooler, when the request was passed on.
    left: u64,
    is_cut: bool,
    /// Whether it ends at a pooler.
    is_pooled: bool,
}

impl Link {
    /// Opens a connection, or fails during an outage, which a pooler does not.
    pub(crate) fn open(plant: Plant) -> Result<Self, String> {
        if plant.faults.pooled {
            let number = plant.world.next_connection();
            return Ok(Self { plant, number, left: 0, is_cut: false, is_pooled: true });
        }
        Self::of_queue(plant, false)
    }

    /// Opens a queue's connection, which messages are held by and no pooler is before, or fails during an outage. A calm one,
    /// before or after a trial, has no faults but the bug and the missing flags and confirmations.
    pub(crate) fn of_queue(mut plant: Plant, is_calm: bool) -> Result<Self, String> {
        let number = plant.world.next_connection();
        let mut left = 0;
        if is_calm {
            let Faults { bug, every, unflagged, unconfirmed, .. } = plant.faults;
            plant.faults = Faults { bug, every, unflagged, unconfirmed, ..Faults::default() };
        } else {
            left = plant.world.presence().ok_or("the store is away")?;
        }
        Ok(Self { plant, number, left, is_cut: false, is_pooled: false })
    }

    /// Whether the connection is lost: cut, or older than the last outage.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_cut || (!self.is_pooled && self.is_outlived())
    }

    /// Whether an outage has begun since the connection was opened, or its pooler has passed the request on.
    fn is_outlived(&self) -> bool {
        self.plant.faults.outages && self.plant.world.presence() != Some(self.left)
    }

    /// Draws the delay of a request or of an answer: none, or 1 to 12 ms.
    pub(crate) fn delay(&mut self) -> Duration {
        let slow = self.plant.happens(self.plant.faults.delays);
        Duration::from_millis(if slow { self.plant.rng.random_range(1..=SLOWEST) } else { 0 })
    }

    async fn slow(&mut self) {
        let delay = self.delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
    }

    /// Draws whether the connection is lost now, and returns whether it is.
    pub(crate) fn is_lost(&mut self) -> bool {
        let share = self.plant.faults.cuts / 2.0;
        self.is_cut |= self.plant.happens(share);
        self.is_gone()
    }

    /// Carries a request to the store, after its delay.
    ///
    /// # Errors
    /// If the connection is lost, or the store is away behind a pooler, so that the request does not arrive.
    pub(crate) async fn carry(&mut self) -> Result<(), Fault> {
        self.slow().await;
        if self.is_lost() {
            return Err(Fault::lost("planted: the connection is gone"));
        }
        if self.is_pooled {
            let there = self.plant.world.presence();
            self.left = there.ok_or_else(|| Fault::answered("planted: the pooler has no server"))?;
        }
        Ok(())
    }

    /// Carries an operation to the store, after its delay.
    ///
    /// # Errors
    /// The outcome of an operation that ends here and has changed nothing: a lost connection, a failure or a
    /// conflict.
    pub(crate) async fn send(&mut self) -> Result<(), Attempt> {
        self.carry().await.map_err(Attempt::Failed)?;
        let faults = self.plant.faults;
        if self.plant.happens(faults.failures) {
            return Err(self.plant.failure());
        }
        if self.plant.happens(faults.conflicts) {
            return Err(Attempt::Conflict);
        }
        Ok(())
    }

    /// The same of an operation that changes something, for which the store needs room.
    ///
    /// # Errors
    /// The same, and a failure where there is no room.
    pub(crate) async fn send_change(&mut self) -> Result<(), Attempt> {
        self.send().await?;
        self.plant.no_room().map_or(Ok(()), Err)
    }

    /// Carries an answer back, after its delay.
    ///
    /// # Errors
    /// The client's connection is lost, or the pooler's to the store. The operation has been applied nevertheless.
    pub(crate) async fn answer<T>(&mut self, answer: T) -> Result<T, Fault> {
        self.slow().await;
        if self.is_lost() {
            return Err(Fault::lost("planted: the answer is lost"));
        }
        if self.is_pooled && self.is_outlived() {
            return Err(Fault::answered("planted: the pooler has lost its server"));
        }
        Ok(answer)
    }

    /// Carries an operation's outcome back, after its delay; the outcome is unknown if the answer is lost, or swapped for an error.
    pub(crate) async fn answer_attempt(&mut self, attempt: Attempt) -> Attempt {
        match self.answer(attempt).await {
            Ok(attempt) => self.plant.passed_on(attempt),
            Err(fault) => Attempt::Unknown(fault),
        }
    }

    /// Carries back the answer of a queue to a consumer, after its delay.
    ///
    /// # Errors
    /// If the connection is lost, or the answer swapped for an error; the operation has been applied anyway.
    pub(crate) async fn answer_consumer<T>(&mut self, answer: T) -> Result<T, Fault> {
        let answer = self.answer(answer).await?;
        if self.plant.is_swapped() { Err(Fault::lost(SWAPPED)) } else { Ok(answer) }
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        self.plant.world.note(self.number, event);
    }
}
