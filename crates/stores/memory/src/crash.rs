//! What a store with a planted bug forgets when it is killed: an outage is a kill, after which a correct store has all
//! that it acknowledged. And what a correct cluster forgets whose acknowledgements wait for no replica: the end of its log.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use acidtest_model::Replication;

use crate::{Bug, world::World};

/// Writes that are kept in mind at most; older ones are never forgotten.
const KEPT: usize = 1000;

/// Most writes that a store forgets which loses the last ones, each as whole as it was committed.
const LAST: usize = 3;

/// The writes of one trial's data since the last kill.
#[derive(Clone, Debug)]
pub(crate) struct Journal<W> {
    world: Arc<World>,
    /// How many losses there were when it was last looked at.
    kills: u64,
    /// Each with the connection that it came by.
    writes: Vec<(u64, W)>,
}

/// What a store forgets of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Forgotten<W> {
    /// All of it.
    Whole(W),
    /// Half of its parts.
    Half(W),
}

impl<W> Journal<W> {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), kills: world.losses(), writes: Vec::new() }
    }

    pub(crate) fn bug(&self) -> Option<Bug> {
        self.world.faults.bug
    }

    /// Whether the end of it is lost with a leader, as no acknowledgement waits for a replica.
    pub(crate) fn loses_its_end(&self) -> bool {
        self.world.faults.replication == Replication::Async
    }

    /// Keeps all, although a leader was cut off.
    pub(crate) fn keep(&mut self) {
        self.kills = self.world.losses();
    }

    /// Keeps a write in mind.
    pub(crate) fn note(&mut self, connection: u64, write: W) {
        if self.loses_its_end() || self.world.faults.bug.is_some_and(Bug::strikes_at_a_kill) {
            if self.writes.len() == KEPT {
                self.writes.remove(0);
            }
            self.writes.push((connection, write));
        }
    }

    /// What the store forgets of the writes before the last kill, if it was killed since this was last asked. `parts`
    /// says how many parts a write has.
    pub(crate) fn forgotten(&mut self, parts: impl Fn(&W) -> usize) -> Vec<Forgotten<W>> {
        let kills = self.world.losses();
        if kills == self.kills {
            return Vec::new();
        }
        self.kills = kills;
        let mut writes = std::mem::take(&mut self.writes);
        // the same kill of the same trial is the same each time
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(kills ^ writes.len() as u64);
        if self.loses_its_end() {
            let lost = rng.random_range(0..=LAST.min(writes.len()));
            return writes
                .drain(writes.len() - lost..)
                .rev()
                .map(|(_, write)| Forgotten::Whole(write))
                .collect();
        }
        let Some(bug) = self.world.faults.bug.filter(|_| !self.world.is_sound() && !writes.is_empty()) else {
            return Vec::new();
        };
        let forgotten: Vec<Forgotten<W>> = match bug {
            Bug::LoseLast | Bug::BringBack => {
                let first = writes.len() - rng.random_range(1..=LAST.min(writes.len()));
                writes.drain(first..).rev().map(|(_, write)| Forgotten::Whole(write)).collect()
            }
            Bug::LoseMiddle if writes.len() > 1 => {
                let (_, write) = writes.remove(rng.random_range(0..writes.len() - 1));
                vec![Forgotten::Whole(write)]
            }
            Bug::LoseClient => {
                let (client, _) = writes[rng.random_range(0..writes.len())];
                let of_client = writes.into_iter().rev().filter(|(connection, _)| *connection == client);
                of_client.map(|(_, write)| Forgotten::Whole(write)).collect()
            }
            Bug::ForgetHeld => writes.into_iter().map(|(_, write)| Forgotten::Whole(write)).collect(),
            Bug::ForgetHalf => {
                let last = writes.into_iter().rev().find(|(_, write)| parts(write) > 1);
                last.into_iter().map(|(_, write)| Forgotten::Half(write)).collect()
            }
            _ => Vec::new(),
        };
        if !forgotten.is_empty() {
            self.world.struck();
        }
        forgotten
    }
}
