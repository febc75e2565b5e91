//! What all connections to a reference store share: whether it is there, what it did, and whether it must be caught.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_workloads::{Attempt, Fault};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::{Instant, sleep};

use crate::{Faults, Watch, faults::Plant};

/// Events that are kept: the last ones.
const KEPT: usize = 20_000;

/// How long the store is there at first, so that every client gets a first connection, and later; and how long it is
/// away in between. In milliseconds.
const AT_FIRST: u64 = 40;
const THERE: std::ops::Range<u64> = 20..200;
const AWAY: std::ops::Range<u64> = 1..60;

/// The longest that anything takes on its way, in milliseconds.
const SLOWEST: u64 = 12;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all connections to one reference store share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) faults: Faults,
    /// Whether clients run one after the other, so that what the store has answered is what they know.
    pub(crate) exact: bool,
    seeds: AtomicU64,
    connections: AtomicU64,
    struck: AtomicU64,
    is_sound: AtomicBool,
    presence: Mutex<Availability>,
    history: Option<Mutex<History>>,
}

/// Whether the store is there.
#[derive(Debug)]
struct Availability {
    rng: Xoshiro256PlusPlus,
    is_there: bool,
    /// Counts how often it went away: connections do not outlive that.
    left: u64,
    until: Option<Instant>,
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
            is_sound: AtomicBool::new(false),
            presence: Mutex::new(presence),
            history: recorded.then(history),
        }
    }

    /// A seed that no other connection has.
    pub(crate) fn next_seed(&self) -> u64 {
        self.seeds.fetch_add(1, Relaxed)
    }

    /// Whether the bug strikes from now on.
    pub(crate) fn plant(&self, does: bool) {
        self.is_sound.store(!does, Relaxed);
    }

    /// Whether the store is as a correct one for now, whatever is planted.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_sound.load(Relaxed)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.presence().is_some()
    }

    /// The bug has struck.
    pub(crate) fn struck(&self) {
        self.struck.fetch_add(1, Relaxed);
    }

    /// How often the bug has struck.
    pub(crate) fn strikes(&self) -> u64 {
        self.struck.load(Relaxed)
    }

    /// How often the store has gone away; none while it is.
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
            let range = if presence.is_there { THERE } else { AWAY };
            until += Duration::from_millis(presence.rng.random_range(range));
        }
        presence.until = Some(until);
        presence.is_there.then_some(presence.left)
    }

    /// Notes what happened on a connection, if anybody wants to know.
    pub(crate) fn note(&self, connection: u64, event: impl FnOnce() -> String) {
        let Some(history) = &self.history else { return };
        let history = &mut *locked(history);
        if history.events.len() == KEPT {
            history.events.pop_front();
        }
        let passed = history.begun.elapsed().as_micros();
        history.events.push_back(format!("{passed:>9} µs  connection {connection:>3}  {}", event()));
    }

    /// What happened, oldest first.
    pub(crate) fn history(&self) -> Vec<String> {
        self.history
            .as_ref()
            .map_or_else(Vec::new, |history| locked(history).events.iter().cloned().collect())
    }
}

/// A client's way to the store: what is slow on it, and what is lost.
#[derive(Debug)]
pub(crate) struct Link {
    plant: Plant,
    /// Of the connection, in the history.
    pub(crate) number: u64,
    /// How often the store had gone away when it was opened.
    left: u64,
    is_cut: bool,
}

impl Link {
    /// Opens a connection, if the store is there. One before or after a trial meets nothing but bugs.
    pub(crate) fn open(plant: Plant, is_calm: bool) -> Result<Self, String> {
        let number = plant.world.connections.fetch_add(1, Relaxed);
        let mut plant = plant;
        if is_calm {
            let Faults { bug, every, unflagged, unconfirmed, .. } = plant.faults;
            plant.faults = Faults { bug, every, unflagged, unconfirmed, ..Faults::default() };
            return Ok(Self { plant, number, left: 0, is_cut: false });
        }
        let left = plant.world.presence().ok_or("the store is away")?;
        Ok(Self { plant, number, left, is_cut: false })
    }

    /// Whether nothing that is sent arrives any more.
    pub(crate) fn is_gone(&self) -> bool {
        let outlived = self.plant.faults.outages && self.plant.world.presence() != Some(self.left);
        self.is_cut || outlived
    }

    /// How long something takes on its way.
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

    fn is_lost(&mut self) -> bool {
        let share = self.plant.faults.cuts / 2.0;
        self.is_cut |= self.plant.happens(share);
        self.is_gone()
    }

    /// Something on its way to the store, unless it is lost there.
    pub(crate) async fn carry(&mut self) -> Result<(), Fault> {
        self.slow().await;
        if self.is_lost() { Err(Fault::lost("planted: the connection is gone")) } else { Ok(()) }
    }

    /// An operation on its way to the store. What ends it there has changed nothing.
    pub(crate) async fn send(&mut self) -> Result<(), Attempt> {
        self.carry().await.map_err(Attempt::Failed)?;
        let faults = self.plant.faults;
        if self.plant.happens(faults.failures) {
            return Err(Attempt::Failed(Fault::answered("planted: the store failed to do it")));
        }
        if self.plant.happens(faults.conflicts) {
            return Err(Attempt::Conflict);
        }
        Ok(())
    }

    /// The answer on its way back: it may be lost, whatever was done.
    pub(crate) async fn answer<T>(&mut self, answer: T) -> Result<T, Fault> {
        self.slow().await;
        if self.is_lost() { Err(Fault::lost("planted: the answer is lost")) } else { Ok(answer) }
    }

    /// The same for an attempt.
    pub(crate) async fn answer_attempt(&mut self, attempt: Attempt) -> Attempt {
        self.answer(attempt).await.unwrap_or_else(Attempt::Unknown)
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        self.plant.world.note(self.number, event);
    }
}
