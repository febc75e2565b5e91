//! What a run asks of each member of a cluster that it has started, as the cluster's operator. Each is asked at its own address.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use acidtest_model::{Address, Consistency, EffectiveReplication, MemberId, Replication, StoreError, Task};

use crate::Place;

/// What a member says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it takes writes.
    pub leads: bool,
    /// How far it has the log, in bytes: what it has written, or, of a replica, what it has received and keeps.
    pub received: u64,
    /// How much of that it has applied, so that readers see it.
    pub applied: u64,
}

/// A member of a cluster, at its own address.
pub trait Replica: Send + Sync {
    /// Whether it leads, and how far it has come.
    fn standing(&self) -> Task<'_, Result<Standing, StoreError>>;

    /// Makes a replica the leader. Returns once it takes writes.
    fn promote(&self) -> Task<'_, Result<(), StoreError>>;

    /// Has a replica, which the leader knows by this name, follow the leader that it reaches at this address.
    fn follow<'a>(&'a self, name: MemberId, leader: &'a Address) -> Task<'a, Result<(), StoreError>>;

    /// Has a leader's acknowledgements wait for its replicas as these levels say, of which these are all.
    fn acknowledge<'a>(
        &'a self,
        level: Replication,
        consistency: Consistency,
        replicas: &'a [MemberId],
    ) -> Task<'a, Result<(), StoreError>>;

    /// What the leader's settings amount to in a cluster of so many nodes, read back.
    fn replication(&self, nodes: u32) -> Task<'_, Result<EffectiveReplication, StoreError>>;

    /// What the member has of a trial: of each of its objects, by name, a text that is the same on two members only if they have the same
    /// rows. The text begins with the number of rows.
    fn contents<'a>(&'a self, place: &'a Place) -> Task<'a, Result<BTreeMap<String, String>, StoreError>>;
}
