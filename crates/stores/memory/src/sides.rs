//! The data of one trial as each leader of a cluster has them. Of what is no cluster, there is one.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{
    crash::Journal,
    world::{Situation, World, locked},
};

/// Data that a cluster's members have each.
pub(crate) trait Replicated: Clone {
    /// A write, as far as it is kept in mind.
    type Write;

    /// The writes since the last kill; none before any clients write.
    fn journal(&mut self) -> Option<&mut Journal<Self::Write>>;

    /// Forgets what a kill has cost, or was lost with a leader.
    fn forget(&mut self);

    /// Keeps what is there: it is the leader's own that is cut off.
    fn keep(&mut self) {
        if let Some(journal) = self.journal() {
            journal.keep();
        }
    }

    /// Ends what clients had begun at the last leader.
    fn promote(&mut self) {}
}

/// The data of each side of a cluster.
#[derive(Debug)]
pub(crate) struct Sides<S>(Mutex<All<S>>);

#[derive(Debug)]
struct All<S> {
    world: Arc<World>,
    seen: Situation,
    /// Those of the member that leads.
    leader: S,
    /// Those of the one that will be promoted, while the leader is cut off.
    replica: Option<S>,
    /// Those of the leader before, as long as it answers.
    old: Option<S>,
}

impl<S: Replicated> Sides<S> {
    pub(crate) fn new(world: &Arc<World>, leader: S) -> Self {
        let (world, seen) = (Arc::clone(world), world.situation());
        Self(Mutex::new(All { world, seen, leader, replica: None, old: None }))
    }

    /// The data that the leader of this number has, or the one that leads by now, if that one is gone.
    pub(crate) fn at(&self, leader: u64) -> Side<'_, S> {
        let mut all = locked(&self.0);
        all.look();
        let is_old = leader < all.seen.leader && all.old.is_some();
        Side { all, of: if is_old { Of::Old } else { Of::Leader } }
    }

    /// The data that replicas follow: of the one that leads, or that will, while the leader is cut off.
    pub(crate) fn followed(&self) -> Side<'_, S> {
        let mut all = locked(&self.0);
        all.look();
        let of = if all.replica.is_some() { Of::Replica } else { Of::Leader };
        Side { all, of }
    }

    /// The data of the member that leads.
    pub(crate) fn newest(&self) -> Side<'_, S> {
        self.at(u64::MAX)
    }

    /// Does this with the data of each leader.
    pub(crate) fn each(&self, mut change: impl FnMut(&mut S)) {
        let all = &mut *locked(&self.0);
        [Some(&mut all.leader), all.replica.as_mut(), all.old.as_mut()]
            .into_iter()
            .flatten()
            .for_each(&mut change);
    }
}

impl<S: Replicated> All<S> {
    /// Has happen what has happened to leaders since it was last asked.
    fn look(&mut self) {
        let now = self.world.situation();
        let is_promoted = now.leader != self.seen.leader;
        if let Some(replica) = self.replica.take_if(|_| is_promoted) {
            self.promote(replica);
        }
        if now.begun != self.seen.begun {
            if now.was_cut_off {
                let mut replica = self.leader.clone();
                replica.forget();
                self.leader.keep();
                if now.leader == now.begun {
                    self.promote(replica);
                } else {
                    self.replica = Some(replica);
                }
            } else {
                self.leader.forget();
                self.leader.promote();
            }
        }
        if !now.is_split {
            self.old = None;
        }
        self.seen = now;
    }

    fn promote(&mut self, mut replica: S) {
        replica.promote();
        self.old = Some(mem::replace(&mut self.leader, replica));
    }
}

/// The data of one leader, locked.
pub(crate) struct Side<'a, S> {
    all: MutexGuard<'a, All<S>>,
    of: Of,
}

/// Whose data they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Leader,
    Replica,
    Old,
}

impl<S> Deref for Side<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        let All { leader, replica, old, .. } = &*self.all;
        let other = match self.of {
            Of::Leader => None,
            Of::Replica => replica.as_ref(),
            Of::Old => old.as_ref(),
        };
        other.unwrap_or(leader)
    }
}

impl<S> DerefMut for Side<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        let All { leader, replica, old, .. } = &mut *self.all;
        let other = match self.of {
            Of::Leader => None,
            Of::Replica => replica.as_mut(),
            Of::Old => old.as_mut(),
        };
        other.unwrap_or(leader)
    }
}
