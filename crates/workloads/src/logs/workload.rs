//! The logs workload, as the runner uses it.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use acidtest_engine::ClientTask;
use acidtest_model::{Address, Durability, EffectiveSettings, Lock, Role, StoreError, Task, count};
use serde_json::value::RawValue;

use super::{
    Architecture, GatewayState, Ledger, LogQueue, LogsStore, NAME, OPERATIONS, Parameters, Scenario,
    StoredState, audit, client, http::Gateway, ledger,
};
use crate::{
    AuditResult, Crash, DURABILITY, Front, Guarantee, Levels, LoadProgress, Place, Served, Side, Store,
    TrialSetup, Values, Visits, Workload, WorkloadKind, WorkloadTrial, WrittenLedger,
    guarantee::INTEGRITY,
    workload::{no_host, no_port, read, read_ledger, written, written_ledger},
};

/// How often it is looked whether the gateway's queue is empty.
const LOOK: Duration = Duration::from_millis(20);

/// How long a broker's queue has to be seen empty: a gateway asks once a second how much waits there.
const FRESH: Duration = Duration::from_secs(3);

/// How long an acknowledged entry is waited for that no broker shows any more, and nobody has stored. `RabbitMQ` gives back
/// after a minute and a half what a consumer holds whose connection is dead, NATS after half a minute, and a consumer of NATS
/// that hands out nothing is made anew after 45 s.
const QUIET: Duration = Duration::from_mins(3);

/// Time between two looks at the store, while such an entry is waited for.
const AGAIN: Duration = Duration::from_secs(5);

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
        "sent",
        "acknowledged",
        "saved",
        "saved_per_second",
        "given_up",
        "not_sent",
        "suppressed",
        "most_clients",
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

    fn front(&self) -> Vec<Role> {
        match self.parameters.broker() {
            Some(_) => vec![Role::Queue, Role::Gateway, Role::Collector],
            None => vec![Role::Gateway],
        }
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        let ledger = Arc::new(Ledger::new(setup.clients, setup.epoch));
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
    /// The durability level of the database behind it.
    sink: OnceLock<Durability>,
}

fn port(store: &dyn Store) -> Result<&dyn LogsStore, StoreError> {
    store.logs().ok_or_else(|| no_port(NAME))
}

impl LogsTrial {
    /// What survives of the entries that wait in the queue, and why, where there is a queue.
    fn queue(&self) -> Option<(Durability, &'static str)> {
        self.gateway.get().filter(|_| self.parameters.architecture == Architecture::Queued)?;
        Some(match self.parameters.queue {
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

    /// How gateway and collector stand.
    async fn state(&self) -> Result<GatewayState, StoreError> {
        let mut all = GatewayState::default();
        for service in [&self.gateway, &self.collector].into_iter().filter_map(OnceLock::get) {
            all = all.and(service.state().await?);
        }
        Ok(all)
    }

    /// Waits until the queue is seen to be empty. Gateway and collector may be on their way back; how long they may take is
    /// for the runner to say. Notes in `moved` how much was stored, and when that was last seen to change.
    async fn drained(&self, moved: &mut (u64, Instant)) -> GatewayState {
        let fresh = if self.parameters.broker().is_some() { FRESH } else { Duration::ZERO };
        let mut empty = None;
        loop {
            let (state, now) = (self.state().await, Instant::now());
            match state {
                Ok(state) => {
                    let stored = state.stored + state.repeated;
                    if moved.0 != stored {
                        *moved = (stored, now);
                    }
                    if state.waiting > 0 {
                        empty = None;
                    } else if now.duration_since(*empty.get_or_insert(now)) >= fresh {
                        return state;
                    }
                }
                Err(_) => empty = None,
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the gateway's queue is empty, and reads what is stored.
    async fn read(&self, store: &dyn LogsStore, place: &Place) -> Result<StoredState, StoreError> {
        let ledger = &self.scenario.ledger;
        let mut moved = (0, Instant::now());
        let (mut saved, mut quiet) = (0, Instant::now());
        loop {
            let gateway = match self.gateway.get() {
                Some(_) => self.drained(&mut moved).await,
                None => GatewayState::default(),
            };
            let took = ledger.since(moved.1).map(|(first, last)| match self.parameters.architecture {
                // what is acknowledged is stored
                Architecture::Direct => (first.saturating_sub(last), Duration::ZERO),
                Architecture::Queued => (first, last),
            });
            ledger.forget_found();
            store.entries(place, &mut |entry| ledger.found(entry)).await?;
            let totals = ledger.totals();
            if totals.saved > saved {
                (saved, quiet) = (totals.saved, Instant::now());
            }
            // a broker does not show what a collector holds that was killed: it comes back
            let may_come = self.parameters.broker().is_some() && quiet.elapsed() < QUIET;
            if totals.lost == 0 || !may_come {
                return Ok(StoredState { gateway, took });
            }
            tokio::time::sleep(AGAIN).await;
        }
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
        let comes_back = if self.parameters.broker().is_some() { QUIET * 2 } else { Duration::ZERO };
        stored + comes_back
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
        let Some(sink) = port(store)?.sink(place) else { return Ok(None) };
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
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
