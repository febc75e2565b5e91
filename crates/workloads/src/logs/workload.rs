//! The logs workload, as the runner uses it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
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

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "clients come, send log entries to a gateway, which stores them, and leave\n\
              with the two architectures of the log study: each entry in a transaction of its own, or queue and collectors",
    operations: OPERATIONS,
    audit: "every acknowledged entry is stored, once and as it was sent, and none that was refused or never sent",
    guarantees: &[
        DURABILITY,
        Guarantee::option("queue", Levels::Ordered(&["memory", "disk"])).paid_by(OPERATIONS[0]),
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
        let Parameters { entries, entries_per_request, ramp, hold_open, give_up, architecture, .. } =
            &self.parameters;
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
        let way = match (architecture, self.parameters.queue) {
            (Architecture::Direct, _) => "direct",
            (Architecture::Queued, LogQueue::Disk) => "queue on disk",
            (Architecture::Queued, LogQueue::Memory) => "queue in memory",
        };
        parts.push(way.to_owned());
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
            sink: OnceLock::new(),
        })
    }
}

struct LogsTrial {
    parameters: Parameters,
    scenario: Scenario,
    /// The gateway in front of the store, once it was started.
    gateway: OnceLock<Gateway>,
    /// The durability level of the database behind it.
    sink: OnceLock<Durability>,
}

fn port(store: &dyn Store) -> Result<&dyn LogsStore, StoreError> {
    store.logs().ok_or_else(|| no_port(NAME))
}

impl LogsTrial {
    /// Whether what is acknowledged waits in the gateway's memory.
    fn is_in_memory(&self) -> bool {
        let Parameters { architecture, queue, .. } = &self.parameters;
        self.gateway.get().is_some() && (*architecture, *queue) == (Architecture::Queued, LogQueue::Memory)
    }

    /// Waits until the gateway, if there is one, says that its queue is empty. It may be on its way back; how long it may
    /// take is for the runner to say.
    async fn drained(&self) -> GatewayState {
        let Some(gateway) = self.gateway.get() else { return GatewayState::default() };
        loop {
            match gateway.state().await {
                Ok(state) if state.waiting == 0 => return state,
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Waits until the gateway's queue is empty, and reads what is stored.
    async fn read(&self, store: &dyn LogsStore, place: &Place) -> Result<StoredState, StoreError> {
        let ledger = &self.scenario.ledger;
        let gateway = self.drained().await;
        let took = ledger.since().map(|(first, last)| match self.parameters.architecture {
            // what is acknowledged is stored
            Architecture::Direct => (first.saturating_sub(last), Duration::ZERO),
            Architecture::Queued => (first, last),
        });
        store.entries(place, &mut |entry| ledger.found(entry)).await?;
        Ok(StoredState { gateway, took })
    }
}

impl WorkloadTrial for LogsTrial {
    fn rows(&self) -> u64 {
        0
    }

    fn rows_left(&self) -> u64 {
        // what waits has to be stored before it is read: a database may store a thousand a second
        self.scenario.ledger.acknowledged() * 10
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        _: &'a Place,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store).map(|_| ()) })
    }

    fn front(&self, store: &dyn Store, place: &Place) -> Result<Option<Front>, StoreError> {
        let Some(sink) = port(store)?.sink(place) else { return Ok(None) };
        let password = sink.address.password.as_ref().map(|word| ("ACIDTEST_PASSWORD", word.clone()));
        let (role, arguments) = (Role::Gateway, self.parameters.gateway(&sink));
        Ok(Some(Front { role, arguments, secrets: password.into_iter().collect() }))
    }

    fn reach(&self, address: &Address, token: &str) {
        self.gateway.get_or_init(|| Gateway::new(address, token));
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
            Ok(if self.is_in_memory() {
                let because = "acknowledged entries wait in the gateway's memory".to_owned();
                EffectiveSettings { durability: Durability::None, because, ..settings }
            } else {
                settings
            })
        })
    }

    fn kept_by(&self, member: Role, settings: &EffectiveSettings) -> Durability {
        match member {
            Role::Gateway if self.is_in_memory() => Durability::None,
            Role::Gateway => Durability::Disk,
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
