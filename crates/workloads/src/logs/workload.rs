//! The logs workload, as the runner uses it.

use acidtest_model::{Lock, Role, count};

use super::{Architecture, NAME, OPERATIONS, Parameters, trial::LogsTrial};
use crate::{
    Combine, DURABILITY, DataSize, Guarantee, Levels, Ramp, RunningService, TrialSetup, Workload,
    WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::{INTEGRITY, REPLICATION, TLS},
    workload::read,
};

/// The most collectors that a gateway has where nobody says how many.
const COLLECTORS: u32 = 2;

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "clients come, send log entries to a gateway, which stores them, and leave\n\
              with the two architectures of the log study: each entry in a transaction of its own, or queue and collectors",
    operations: OPERATIONS,
    audit: "every acknowledged entry is stored, once and as it was sent, and none that was refused or never sent",
    guarantees: &[
        DURABILITY,
        REPLICATION,
        Guarantee::option("queue", Levels::Without(&["memory"])).paid_by(OPERATIONS[0]),
        TLS,
        INTEGRITY,
    ],
    counts: &[
        ("saved", Combine::Sum),
        ("given_up", Combine::Sum),
        ("saved_per_second", Combine::Mean),
        ("most_clients", Combine::Most),
        ("sent", Combine::Sum),
        ("acknowledged", Combine::Sum),
        ("not_sent", Combine::Sum),
        ("suppressed", Combine::Sum),
    ],
    shares: &[("not saved", "not_saved", "sent"), ("of acknowledged", "lost", "acknowledged")],
    terms: &[(
        OPERATIONS[0],
        "a request, until it is acknowledged; a connection that has to be opened for it is part of its time. Refused by a \
         full queue, failed without a connection, unknown when it was given up.",
    )],
    refused: None,
    refusal: "",
    apart: "the most clients at once is the sum of what each process had",
    demand: None,
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Logs::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

#[derive(Clone, Debug)]
pub struct Logs {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Logs {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

/// Bytes of an entry besides its message, as it is sent and stored.
const FRAME_BYTES: u64 = 180;

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { entries, entries_per_request, ramp, hold_open, give_up, retry, .. } = parameters;
    let (unit, together) = match entries_per_request {
        1 => ("an entry acknowledged".to_owned(), None),
        several => (
            format!("a request of {} entries acknowledged", count((*several).into())),
            Some(format!("{} a request", count((*several).into()))),
        ),
    };
    let come = if *hold_open {
        format!("all connected, sent over {ramp}")
    } else {
        format!("clients come over {ramp}")
    };
    let headline: Vec<String> = [format!("{} entries a client", count((*entries).into()))]
        .into_iter()
        .chain(together)
        .chain([come, format!("given up after {give_up}"), parameters.way().to_owned()])
        .collect();
    let running = parameters.running_gateway().zip(parameters.others_table());
    let starts_gateway = parameters.gateway.is_none();
    WorkloadSpec {
        // no lock mode applies, because nothing is read to decide what to write
        lock: Some(Lock::None),
        decides: false,
        ramp: Some(Ramp {
            length: ramp.0,
            operations: parameters.requests(),
            stay: *hold_open,
            give_up: give_up.0,
            retry: *retry,
        }),
        services: match parameters.broker() {
            _ if !starts_gateway => Vec::new(),
            Some(_) => vec![Role::Queue, Role::Gateway, Role::Collector],
            None => vec![Role::Gateway],
        },
        running_service: running
            .map(|(address, table)| RunningService { table: table.to_owned(), tls: address.tls.is_some() }),
        connections: Some(match parameters.architecture {
            Architecture::Direct => parameters.sink_connections,
            Architecture::Queued => parameters.collectors.unwrap_or(COLLECTORS),
        }),
        collectors: parameters
            .collectors
            .filter(|_| starts_gateway && parameters.architecture == Architecture::Queued),
        ..WorkloadSpec::new(&KIND, parameters, unit, headline.join(", "))
    }
}

impl Workload for Logs {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, clients: u32, _: Option<u64>) -> DataSize {
        let entries = u64::from(clients).saturating_mul(self.parameters.entries.into());
        DataSize::of(entries, u64::from(self.parameters.entry_bytes) + FRAME_BYTES, [1, 1])
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        Box::new(LogsTrial::new(self.parameters.clone(), &setup))
    }
}
