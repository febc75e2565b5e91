//! What a workload says of itself once its parameters have values.

use std::time::Duration;

use acidtest_model::{CellRequest, Isolation, Lock, Role};
use serde::Serialize;

use crate::{Guarantee, Values, WorkloadKind, guarantee::LOCK, workload::written};

/// What a workload with a value for each of its parameters says of itself, as data. `new` has what is usual; a workload states
/// where it differs.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says one thing, and none rules another out")]
pub struct WorkloadSpec {
    /// Its kind's name.
    pub name: &'static str,
    /// Names of its operations, in the order of their kinds.
    pub operations: &'static [&'static str],
    /// Every parameter with its value.
    pub values: Values,
    /// The workload with its most important values, in a line.
    pub headline: String,
    /// The unit that throughput counts, in words (`a capture or release`).
    pub unit: String,
    /// The operations that occur with these parameters; usually all.
    pub does: Vec<&'static str>,
    /// The operations that throughput counts; usually all.
    pub counted: Vec<&'static str>,
    /// Names of the times that it records and that belong to no single operation; usually none.
    pub spans: &'static [&'static str],
    /// What its rates count, as a sentence, where a reader may take them for rates of a part of that.
    pub rates_count: Option<String>,
    /// How many operations one acknowledgement stands for: the number of operations in a transaction; usually 1.
    pub transaction: u32,
    /// Operations that stand for another number of what throughput counts than a transaction has, by name.
    pub batches: Vec<(&'static str, u32)>,
    /// The only lock mode that makes sense with these parameters; `None` if any does, as usual.
    pub lock: Option<Lock>,
    /// The isolation level that is asked for; `None` for the store's own default, as usual.
    pub isolation: Option<Isolation>,
    /// Whether it decides anything from what it reads, so that a lock has something to protect; usually so.
    pub decides: bool,
    /// The guarantees that its parameters do without, whatever the lock mode; usually none.
    pub forgone: &'static [Guarantee],
    /// A description of the data to be loaded. Trials with equal descriptions may use the same data one after the other.
    /// `None` where every trial must begin with data of its own, as usual.
    pub data: Option<String>,
    /// How many clients its own parameters ask for; `None` if they leave that open, as usual.
    pub clients: Option<u32>,
    /// How many of its clients, counted from the first, the rate and the number of operations are for; `None` if they are for
    /// all, as usual.
    pub scheduled: Option<u32>,
    /// Whether a rate or a number of operations can be set for it; usually so.
    pub is_paced: bool,
    /// Whether a trial may be driven for a while before it is measured; usually so.
    pub warms_up: bool,
    /// Whether it asks for written documents to be searchable at a given moment; usually not.
    pub refreshes: bool,
    /// Whether it has operations that replicas may answer, or why not, as a phrase; usually not.
    pub replica_reads: Result<(), String>,
    /// Whether it can replay a generated sequence; usually not.
    pub replays: bool,
    /// How its clients come and go; `None` where all of them are there all the time, as usual.
    pub ramp: Option<Ramp>,
    /// The roles of the services that are started for its trials in front of a store with a process or a file; usually none.
    pub services: Vec<Role>,
    /// The service of the user's own that its clients talk to instead; usually none.
    pub running_service: Option<RunningService>,
    /// How many connections to the store its services open at most; none where each client has one, as usual.
    pub connections: Option<u32>,
    /// How many transactions at once a service is to store by, where that is asked for.
    pub collectors: Option<u32>,
}

/// Clients that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// The time over which they come.
    pub length: Duration,
    /// How many operations each of them does.
    pub operations: u64,
    /// Whether they are all there from the beginning to the end instead, and share the operations at even distances.
    pub stay: bool,
    /// The time limit of an operation.
    pub give_up: Duration,
    /// Whether what is refused is tried again until then.
    pub retry: bool,
}

/// A service that runs already, and stores what clients send it in a server or a file of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningService {
    /// The table that it stores in, `TABLE` or `SCHEMA.TABLE`.
    pub table: String,
    /// Whether its address has TLS.
    pub tls: bool,
}

impl WorkloadSpec {
    /// What is usual for a workload of this kind: all of its operations occur and count, each by itself; it reads, decides and
    /// writes; its clients are there all the time, as many as the plan says, and talk to the store.
    pub(crate) fn new(
        kind: &WorkloadKind,
        parameters: &impl Serialize,
        unit: String,
        headline: String,
    ) -> Self {
        Self {
            name: kind.name,
            operations: kind.operations,
            values: written(parameters),
            headline,
            unit,
            does: kind.operations.to_vec(),
            counted: kind.operations.to_vec(),
            spans: &[],
            rates_count: None,
            transaction: 1,
            batches: Vec::new(),
            lock: None,
            isolation: None,
            decides: true,
            forgone: &[],
            data: None,
            clients: None,
            scheduled: None,
            is_paced: true,
            warms_up: true,
            refreshes: false,
            replica_reads: Err("so far only the workload records is read at replicas".to_owned()),
            replays: false,
            ramp: None,
            services: Vec::new(),
            running_service: None,
            connections: None,
            collectors: None,
        }
    }

    /// How many of what throughput counts one acknowledged operation of this name stands for.
    #[must_use]
    pub fn units(&self, operation: &str) -> u32 {
        let batch = self.batches.iter().find(|(name, _)| *name == operation);
        batch.map_or(self.transaction, |(_, units)| *units)
    }

    /// How many connections to the store a trial with so many clients has at most.
    #[must_use]
    pub fn connections_of(&self, clients: u32) -> u32 {
        self.connections.unwrap_or(clients)
    }

    /// The guarantees that a trial in this lock mode does without: a finding that only they prevent breaks no promise.
    #[must_use]
    pub fn without(&self, lock: Lock) -> Vec<&'static str> {
        let unlocked = (self.decides && !lock.promises()).then_some(LOCK.name);
        self.forgone.iter().map(|guarantee| guarantee.name).chain(unlocked).collect()
    }

    /// The demands of a cell on a store, besides its durability level.
    #[must_use]
    pub fn request(&self, lock: Lock) -> CellRequest<'static> {
        CellRequest {
            workload: self.name,
            operations: self.does.clone(),
            lock,
            isolation: self.isolation,
            transaction: self.transaction,
            parameters: self.values.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{inventory, logs, parcels, queue, workload::Workload};

    fn of(kind: &WorkloadKind, values: &serde_json::Value) -> Box<dyn Workload> {
        (kind.with)(values.as_object().unwrap()).unwrap()
    }

    #[test]
    fn an_operation_stands_for_its_batch_or_its_transaction() {
        let parcels = of(&parcels::KIND, &serde_json::json!({ "insert_batch": 8 }));
        assert_eq!(["insert", "hash"].map(|name| parcels.spec().units(name)), [8, 1]);
        let four = WorkloadSpec { transaction: 4, ..parcels.spec().clone() };
        assert_eq!(["insert", "hash"].map(|name| four.units(name)), [8, 4]);
    }

    /// A gateway stands between the clients of logs and the store.
    #[test]
    fn a_store_has_a_connection_for_each_client_unless_a_service_is_in_front_of_it() {
        let connections = |kind: &WorkloadKind, values| of(kind, &values).spec().connections_of(18_000);
        assert_eq!(connections(&inventory::KIND, serde_json::json!({})), 18_000);
        assert_eq!(connections(&logs::KIND, serde_json::json!({ "architecture": "direct" })), 50);
        assert_eq!(connections(&logs::KIND, serde_json::json!({ "collectors": 7 })), 7);
    }

    #[test]
    fn a_lock_is_done_without_only_where_it_protects_something() {
        let inventory = of(&inventory::KIND, &serde_json::json!({}));
        let without = |lock| inventory.spec().without(lock);
        assert_eq!([Lock::None, Lock::Native].map(without), [vec!["lock"], vec![]]);
        let unacknowledged = of(&queue::KIND, &serde_json::json!({ "ack": "none" }));
        let queue = of(&queue::KIND, &serde_json::json!({}));
        for (workload, forgone) in [(unacknowledged, vec!["delivery"]), (queue, vec![])] {
            let of_each = Lock::ALL.map(|lock| workload.spec().without(lock));
            assert!(of_each.iter().all(|without| *without == forgone), "{of_each:?}");
        }
    }
}
