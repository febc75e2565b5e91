//! The logs workload, as the runner uses it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use acidtest_engine::ClientTask;
use acidtest_model::{Address, Durability, EffectiveSettings, Lock, Role, StoreError, Task, count};
use serde_json::value::RawValue;

use super::{
    Architecture, GatewayState, Ledger, LogQueue, LogsStore, NAME, OPERATIONS, Parameters, Rows, Scenario,
    StoredState, audit, client,
    http::Gateway,
    ledger,
    settling::{self, Settling},
};
use crate::{
    AuditResult, Crash, DURABILITY, Front, Guarantee, Levels, LoadProgress, Over, Place, Served, Side, Store,
    TrialSetup, Values, Visits, Workload, WorkloadKind, WorkloadTrial, WrittenLedger,
    guarantee::INTEGRITY,
    workload::{no_host, no_port, read, read_ledger, written, written_ledger},
};

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "clients come, send log entries to a gateway, which stores them, and leave\n\
              with the two architectures of the log study: each entry in a transaction of its own, or queue and collectors",
    operations: OPERATIONS,
    audit: "every acknowledged entry is stored, once and as it was sent, and none that was refused or never sent",
    guarantees: &[
        DURABILITY,
        Guarantee::option("queue", Levels::Without(&["memory"])).paid_by(OPERATIONS[0]),
        INTEGRITY,
    ],
    counts: &[
        ("sent", Over::Sum),
        ("acknowledged", Over::Sum),
        ("saved", Over::Sum),
        ("saved_per_second", Over::Mean),
        ("given_up", Over::Sum),
        ("not_sent", Over::Sum),
        ("suppressed", Over::Sum),
        ("most_clients", Over::Most),
    ],
    shares: &[("not saved", "not_saved", "sent"), ("of acknowledged", "lost", "acknowledged")],
    terms: &[(
        OPERATIONS[0],
        "a request, until it is acknowledged; a connection that has to be opened for it is part of its time. Refused by a \
         full queue, failed without a connection, unknown when it was given up.",
    )],
    apart: "the most clients at once is the sum of what each process had",
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Logs::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

/// The logs workload with its parameters.
#[derive(Clone, Debug)]
pub struct Logs {
    parameters: Parameters,
}

impl Logs {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { parameters })
    }
}

impl Workload for Logs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operations(&self) -> &'static [&'static str] {
        OPERATIONS
    }

    fn unit(&self) -> String {
        match self.parameters.entries_per_request {
            1 => "an entry acknowledged".to_owned(),
            several => format!("a request of {} entries acknowledged", count(several.into())),
        }
    }

    fn values(&self) -> Values {
        written(&self.parameters)
    }

    fn headline(&self) -> String {
        let Parameters { entries, entries_per_request, ramp, hold_open, give_up, .. } = &self.parameters;
        let mut parts = vec![format!("{} entries a client", count((*entries).into()))];
        if *entries_per_request > 1 {
            parts.push(format!("{} a request", count((*entries_per_request).into())));
        }
        parts.push(if *hold_open {
            format!("all connected, sent over {ramp}")
        } else {
            format!("clients come over {ramp}")
        });
        parts.push(format!("given up after {give_up}"));
        parts.push(self.parameters.way().to_owned());
        parts.join(", ")
    }

    /// No lock mode applies, because nothing is read to decide what to write.
    fn lock(&self) -> Option<Lock> {
        Some(Lock::None)
    }

    fn decides(&self) -> bool {
        false
    }

    fn without(&self, _: Lock) -> &'static [Guarantee] {
        &[]
    }

    fn visits(&self) -> Option<Visits> {
        let Parameters { ramp, hold_open, give_up, retry, .. } = &self.parameters;
        Some(Visits {
            ramp: ramp.0,
            operations: self.parameters.requests(),
            stay: *hold_open,
            give_up: give_up.0,
            retry: *retry,
        })
    }

    fn has_running_gateway(&self) -> bool {
        self.parameters.gateway.is_some()
    }

    fn front(&self) -> Vec<Role> {
        if self.has_running_gateway() {
            return Vec::new();
        }
        match self.parameters.broker() {
            Some(_) => vec![Role::Queue, Role::Gateway, Role::Collector],
            None => vec![Role::Gateway],
        }
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        // in a table of its own, a trial's entries need not be told from others
        let prefix = if self.has_running_gateway() { format!("{}-", setup.mark) } else { String::new() };
        let ledger = Arc::new(Ledger::new(setup.clients, setup.epoch).with_prefix(prefix));
        let scenario = Scenario {
            ledger,
            together: self.parameters.entries_per_request.into(),
            message_bytes: self.parameters.entry_bytes as usize,
        };
        Box::new(LogsTrial {
            parameters: self.parameters.clone(),
            scenario,
            gateway: OnceLock::new(),
            collector: OnceLock::new(),
            found: OnceLock::new(),
            sink: OnceLock::new(),
        })
    }
}

struct LogsTrial {
    parameters: Parameters,
    scenario: Scenario,
    /// The gateway in front of the store, once it was started.
    gateway: OnceLock<Gateway>,
    /// What empties the broker in which the gateway has its queue, if it is in one.
    collector: OnceLock<Gateway>,
    /// What a gateway that runs already says it is; none where it says nothing.
    found: OnceLock<Option<(Architecture, LogQueue, GatewayState)>>,
    /// The durability level of the database behind it.
    sink: OnceLock<Durability>,
}

fn port(store: &dyn Store) -> Result<&dyn LogsStore, StoreError> {
    store.logs().ok_or_else(|| no_port(NAME))
}

impl LogsTrial {
    /// What survives of the entries that wait in the queue, and why, where there is a queue.
    fn queue(&self) -> Option<(Durability, &'static str)> {
        self.gateway.get()?;
        let (architecture, queue) = match self.found.get() {
            Some(Some((architecture, queue, _))) => (*architecture, *queue),
            Some(None) => return Some((Durability::None, "the gateway does not say where entries wait")),
            None => (self.parameters.architecture, self.parameters.queue),
        };
        Some(match queue {
            _ if architecture == Architecture::Direct => return None,
            LogQueue::Disk => (Durability::Disk, "acknowledged entries wait in the gateway's synced files"),
            LogQueue::Memory => (Durability::None, "acknowledged entries wait in the gateway's memory"),
            LogQueue::RabbitMq => {
                (Durability::Disk, "acknowledged entries wait in RabbitMQ, whose quorum queue is synced")
            }
            LogQueue::Nats => {
                (Durability::Process, "acknowledged entries wait in NATS, which syncs them later")
            }
        })
    }

    /// The rows of the trial's entries.
    fn rows(&self, store: &dyn LogsStore, place: &Place) -> Rows {
        if self.parameters.gateway.is_some() {
            self.parameters.rows_of_gateway(self.scenario.ledger.prefix())
        } else {
            store.rows(place)
        }
    }

    /// The same without what a gateway that runs already had done before the trial.
    fn since_begun(&self, now: GatewayState) -> GatewayState {
        let before =
            self.found.get().copied().flatten().map_or_else(GatewayState::default, |(.., state)| state);
        GatewayState {
            stored: now.stored.saturating_sub(before.stored),
            repeated: now.repeated.saturating_sub(before.repeated),
            ..now
        }
    }

    /// Whether entries may be on their way into the store that no queue shows any more: in a broker, or in what a gateway
    /// that runs already has.
    fn has_hidden(&self) -> bool {
        self.parameters.broker().is_some() || self.parameters.gateway.is_some()
    }

    /// Waits until what was acknowledged is stored, and reads it into the ledger.
    async fn read(&self, store: &dyn LogsStore, place: &Place) -> Result<StoredState, StoreError> {
        let ledger = &self.scenario.ledger;
        let services = [&self.gateway, &self.collector].into_iter().filter_map(OnceLock::get);
        let settling =
            Settling::new(services.collect(), self.has_hidden(), self.parameters.gateway.is_some());
        let (gateway, moved) = settling.read(ledger, store, &self.rows(store, place)).await?;
        let took = ledger.since(moved).map(|(first, last)| match self.parameters.architecture {
            // what is acknowledged is stored
            Architecture::Direct => (first.saturating_sub(last), Duration::ZERO),
            Architecture::Queued => (first, last),
        });
        Ok(StoredState { gateway: gateway.map(|now| self.since_begun(now)), took })
    }
}

impl WorkloadTrial for LogsTrial {
    fn rows(&self) -> u64 {
        0
    }

    fn rows_left(&self) -> u64 {
        self.scenario.ledger.acknowledged()
    }

    fn settles(&self) -> Duration {
        // a database may store a thousand a second
        let stored = Duration::from_millis(self.scenario.ledger.acknowledged());
        stored + if self.has_hidden() { settling::LONGEST } else { Duration::ZERO }
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        _: &'a Place,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store).map(|_| ()) })
    }

    fn front(
        &self,
        store: &dyn Store,
        place: &Place,
        started: &[(Role, Address)],
    ) -> Result<Option<Front>, StoreError> {
        let sink = port(store)?.sink(place).filter(|_| self.parameters.gateway.is_none());
        let Some(sink) = sink else { return Ok(None) };
        let address = |role| started.iter().find(|(each, _)| *each == role).map(|(_, address)| address);
        // without a user, whose password would be that of the database
        let queue = address(Role::Queue).map(|address| Address { user: None, ..address.clone() });
        let password = || sink.address.password.as_ref().map(|word| ("ACIDTEST_PASSWORD", word.clone()));
        let ours = |role, arguments| {
            Some(Front { role, server: None, arguments, secrets: password().into_iter().collect() })
        };
        Ok(match (self.parameters.broker(), &queue) {
            (Some(broker), None) => Some(Front {
                role: Role::Queue,
                server: Some(broker),
                arguments: Vec::new(),
                secrets: Vec::new(),
            }),
            (_, queue) if address(Role::Gateway).is_none() => {
                ours(Role::Gateway, self.parameters.gateway(&sink, queue.as_ref()))
            }
            (_, Some(queue)) if address(Role::Collector).is_none() => {
                ours(Role::Collector, self.parameters.collector(&sink, queue))
            }
            _ => None,
        })
    }

    fn running_gateway(&self) -> Option<Address> {
        self.parameters.running_gateway()
    }

    fn reach(&self, role: Role, address: &Address, token: Option<&str>) {
        let service = match role {
            Role::Gateway => &self.gateway,
            Role::Collector => &self.collector,
            _ => return,
        };
        service.get_or_init(|| Gateway::new(address, token.unwrap_or_default()));
    }

    fn settings<'a>(
        &'a self,
        store: &'a dyn Store,
        _: &'a Place,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            let settings = port(store)?.settings(server);
            if let (Some(gateway), true) = (self.gateway.get(), self.parameters.gateway.is_some()) {
                let found = async {
                    let ((architecture, queue), state) = (gateway.way().await?, gateway.state().await?);
                    Ok::<_, StoreError>((architecture, queue, state))
                };
                let found = found.await.ok();
                self.found.get_or_init(|| found);
            }
            self.sink.get_or_init(|| settings.durability);
            Ok(match self.queue() {
                Some((durability, because)) if durability < settings.durability => {
                    EffectiveSettings { durability, because: because.to_owned(), ..settings }
                }
                _ => settings,
            })
        })
    }

    fn kept_by(&self, member: Role, settings: &EffectiveSettings) -> Durability {
        match member {
            // what waits in a broker is not kept here
            Role::Gateway if self.parameters.broker().is_some() => Durability::Disk,
            Role::Gateway | Role::Queue => self.queue().map_or(Durability::Disk, |(level, _)| level),
            Role::Collector => Durability::Disk,
            _ => self.sink.get().copied().unwrap_or(settings.durability),
        }
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        if let Some(gateway) = self.gateway.get() {
            return Ok(client::task(gateway.clone(), self.scenario.clone()));
        }
        port(store)?.client(place, self.scenario.clone()).ok_or_else(|| no_port(NAME))
    }

    fn serve(&self, _: &dyn Store, _: &Place, _: Side) -> Result<Served, StoreError> {
        Err(no_host())
    }

    fn ledger(&self) -> Result<WrittenLedger, String> {
        written_ledger(&self.scenario.ledger.written())
    }

    /// Whatever is lost is durability's: nothing has to be told apart by the server's lives.
    fn note_crash(&self, _: Crash) {}

    fn merge(&self, ledger: &RawValue, _: bool) -> Result<(), String> {
        let ledger: ledger::Written = read_ledger(ledger)?;
        self.scenario.ledger.merge(&ledger)
    }

    fn audit<'a>(
        &'a self,
        store: Result<&'a dyn Store, StoreError>,
        place: &'a Place,
    ) -> Task<'a, AuditResult> {
        Box::pin(async move {
            let read = async { self.read(port(store?)?, place).await };
            AuditResult::new(audit(&self.scenario.ledger, &read.await), None)
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let port = port(store)?;
            port.unload(&self.rows(port, place)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use super::*;

    #[test]
    fn durability_is_what_the_weaker_of_queue_and_database_has() {
        let trial = |queue| LogsTrial {
            parameters: Parameters { queue, ..Parameters::default() },
            scenario: Scenario {
                ledger: Arc::new(Ledger::new(1, Instant::now())),
                together: 1,
                message_bytes: 50,
            },
            gateway: OnceLock::from(Gateway::new(&Address::loopback("http", None, 1, ""), "")),
            collector: OnceLock::new(),
            found: OnceLock::new(),
            sink: OnceLock::from(Durability::Disk),
        };
        let settings = EffectiveSettings {
            version: String::new(),
            durability: Durability::Disk,
            because: String::new(),
            settings: BTreeMap::new(),
        };
        for (queue, at_gateway, at_queue) in [
            (LogQueue::Disk, Durability::Disk, Durability::Disk),
            (LogQueue::Memory, Durability::None, Durability::None),
            (LogQueue::RabbitMq, Durability::Disk, Durability::Disk),
            (LogQueue::Nats, Durability::Disk, Durability::Process),
        ] {
            let trial = trial(queue);
            assert_eq!(trial.kept_by(Role::Gateway, &settings), at_gateway, "{queue:?}");
            assert_eq!(trial.kept_by(Role::Queue, &settings), at_queue, "{queue:?}");
            assert_eq!(trial.kept_by(Role::Collector, &settings), Durability::Disk, "{queue:?}");
            assert_eq!(trial.kept_by(Role::Server, &settings), Durability::Disk, "{queue:?}");
        }
    }
}
