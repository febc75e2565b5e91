//! The logs workload, as the runner uses it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use acidtest_engine::ClientTask;
use acidtest_model::{
    Address, Disruption, Durability, EffectiveDurability, EffectiveSettings, Lock, Role, StoreError, Task,
    count,
};
use serde_json::value::RawValue;

use super::{
    Architecture, GatewayState, Ledger, LogQueue, LogsStore, NAME, OPERATIONS, Parameters, Rows, Scenario,
    StoredState, audit, client, first,
    http::Gateway,
    ledger,
    settling::{self, Settled, Settling},
};
use crate::{
    AuditResult, Crash, DURABILITY, DataSize, Front, Guarantee, Levels, LoadProgress, Over, Place, Ramp,
    RunningService, Served, Side, Store, TrialSetup, Workload, WorkloadKind, WorkloadSpec, WorkloadTrial,
    WrittenLedger,
    guarantee::{INTEGRITY, TLS},
    time_opening,
    workload::{no_host, no_port, read, read_ledger, written_ledger},
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
        TLS,
        INTEGRITY,
    ],
    counts: &[
        ("saved", Over::Sum),
        ("given_up", Over::Sum),
        ("saved_per_second", Over::Mean),
        ("most_clients", Over::Most),
        ("sent", Over::Sum),
        ("acknowledged", Over::Sum),
        ("not_sent", Over::Sum),
        ("suppressed", Over::Sum),
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

/// The logs workload with its parameters.
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

/// What the workload with these parameters says of itself.
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
        // in a table of its own, a trial's entries need not be told from others
        let prefix = match self.parameters.gateway {
            Some(_) => format!("{}-c", setup.mark),
            None => String::new(),
        };
        let mut ledger = Ledger::new(setup.clients, setup.epoch).with_prefix(prefix);
        if self.parameters.gateway.is_some() || self.parameters.broker().is_some() {
            ledger = ledger.with_doubtful_refusals();
        }
        let ledger = Arc::new(ledger);
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
            mark: format!("{}-", setup.mark),
        })
    }
}

/// What the database behind the gateway keeps.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its durability level.
    durability: EffectiveDurability,
    /// Whether it is a file in the process that stores in it.
    within: bool,
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
    /// What the database behind it keeps.
    sink: OnceLock<Kept>,
    /// What all ids begin with that the trial sends to such a gateway.
    mark: String,
}

/// The setting that says which TLS is spoken with the database behind a gateway.
const DATABASE_TLS: &str = "TLS to the database";

/// How often a gateway that runs already is asked what it is, if it does not say so.
const ASKED: u32 = 10;

/// What a gateway that runs already says it is; none if it says nothing.
async fn found(gateway: &Gateway) -> Option<(Architecture, LogQueue, GatewayState)> {
    for _ in 0..ASKED {
        if let Ok(found) = gateway.found().await {
            return Some(found);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    None
}

fn port(store: &dyn Store) -> Result<&dyn LogsStore, StoreError> {
    store.logs().ok_or_else(|| no_port(NAME))
}

impl LogsTrial {
    /// How entries come into the database, and where they wait; none where a gateway that runs already does not say so.
    fn ways(&self) -> Option<(Architecture, LogQueue)> {
        match self.found.get() {
            Some(found) => found.map(|(architecture, queue, _)| (architecture, queue)),
            None => Some((self.parameters.architecture, self.parameters.queue)),
        }
    }

    /// What survives of the entries that wait in the queue, and why, where there is a queue.
    fn queue(&self) -> Option<(Durability, &'static str)> {
        self.gateway.get()?;
        let Some((architecture, queue)) = self.ways() else {
            return Some((
                Durability::None,
                "the gateway does not say to this user, who was not added with --operator, where entries wait",
            ));
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
        match self.parameters.others_table() {
            Some(table) => Rows::among_others(table, self.scenario.ledger.prefix()),
            None => store.rows(place),
        }
    }

    /// Whether entries may be on their way into the store that no queue shows any more: in a broker, or in what a gateway
    /// that runs already has.
    fn has_hidden(&self) -> bool {
        let is_in_front = self.gateway.get().is_some();
        is_in_front && (self.parameters.broker().is_some() || self.parameters.gateway.is_some())
    }

    /// Waits until what was acknowledged is stored, and reads it into the ledger.
    async fn read(&self, store: &dyn LogsStore, place: &Place) -> Result<StoredState, StoreError> {
        let ledger = &self.scenario.ledger;
        let is_running = self.parameters.gateway.is_some();
        let services = [&self.gateway, &self.collector].into_iter().filter_map(OnceLock::get);
        let settling = Settling::new(services.collect(), self.has_hidden(), is_running);
        let settled = settling.read(ledger, store, &self.rows(store, place)).await?;
        let is_direct = self.ways().is_some_and(|(architecture, _)| architecture == Architecture::Direct);
        let took = ledger.since(settled.moved).map(|(first, last)| {
            // directly, what is acknowledged is stored
            if is_direct { (first.saturating_sub(last), Duration::ZERO) } else { (first, last) }
        });
        // a gateway that runs already need not say when it has stored what
        let is_timed = is_direct || !is_running || self.has_stored_all(settled.state);
        let repeated = settled.state.map(|state| state.repeated);
        Ok(StoredState {
            // those of others are among them
            suppressed: repeated.filter(|_| !is_running),
            took: took.filter(|_| is_timed),
            doubt: settling::doubt(settled.state)
                .or_else(|| if is_running { self.doubt(&settled) } else { None }),
        })
    }

    /// How a gateway that runs already stands, less what it had done before the trial.
    fn since_begun(&self, now: Option<GatewayState>) -> Option<GatewayState> {
        let (now, (.., before)) = now.zip(self.found.get().copied().flatten())?;
        Some(GatewayState {
            acknowledged: now.acknowledged.saturating_sub(before.acknowledged),
            stored: now.stored.saturating_sub(before.stored),
            repeated: now.repeated.saturating_sub(before.repeated),
            ..now
        })
    }

    /// Whether a gateway that runs already says that it has stored as much as clients were acknowledged.
    fn has_stored_all(&self, now: Option<GatewayState>) -> bool {
        let since = self.since_begun(now);
        since.is_some_and(|since| since.stored + since.repeated >= self.scenario.ledger.acknowledged())
    }

    /// Why what a gateway that runs already has acknowledged may be on its way, although it says that nothing waits.
    fn doubt(&self, settled: &Settled) -> Option<&'static str> {
        let ledger = &self.scenario.ledger;
        let since = self.since_begun(settled.state);
        let before = self.found.get().copied().flatten().map(|(.., before)| before.instance);
        let is_one = settled.is_one && before == settled.state.map(|now| now.instance);
        if settled.saved == 0 {
            return Some(
                "no entry is in the table that was read; --store and --table say where the gateway stores",
            );
        }
        if !is_one || since.is_none_or(|since| since.acknowledged < ledger.acknowledged()) {
            return Some(
                "the gateway was started anew, or is not the only one at this address: what waits is not known",
            );
        }
        let is_in_rabbit = self.ways().is_none_or(|(_, queue)| queue == LogQueue::RabbitMq);
        is_in_rabbit.then_some("RabbitMQ does not show what collectors elsewhere hold")
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

    fn is_noticed(&self, member: Role, disruption: &Disruption) -> bool {
        let has_queue = self.ways().is_none_or(|(architecture, _)| architecture == Architecture::Queued);
        if self.gateway.get().is_none() || !has_queue {
            return true;
        }
        match member {
            Role::Clients => true,
            // a kill may fall between two requests, and strikes what waits there; one that is asked to stop stores it
            Role::Gateway => {
                self.parameters.broker().is_some() || !matches!(disruption, Disruption::Kill { .. })
            }
            _ => false,
        }
    }

    fn running_gateway(&self) -> Option<Address> {
        self.parameters.running_gateway()
    }

    fn try_gateway<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<String>, StoreError>> {
        Box::pin(async move {
            let (Some(gateway), Some(table)) = (self.gateway.get(), self.parameters.others_table()) else {
                return Ok(None);
            };
            let rows = Rows::among_others(table, &format!("{}first-", self.mark));
            first::send_first(gateway, port(store)?, &rows, first::PATIENCE).await
        })
    }

    fn reach(&self, role: Role, address: &Address, token: Option<&str>) -> Result<(), StoreError> {
        let service = match role {
            Role::Gateway => &self.gateway,
            Role::Collector => &self.collector,
            _ => return Ok(()),
        };
        let gateway = Gateway::new(address, token.unwrap_or_default())?;
        service.get_or_init(|| gateway);
        Ok(())
    }

    fn connecting<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<Duration>, StoreError>> {
        match self.gateway.get() {
            Some(gateway) => Box::pin(time_opening(gateway.opened())),
            None => store.connecting(),
        }
    }

    fn settings<'a>(
        &'a self,
        store: &'a dyn Store,
        _: &'a Place,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            let mut settings = port(store)?.settings(server);
            if let Some(gateway) = self.gateway.get() {
                // the clients' connections are to the gateway
                let behind = std::mem::replace(&mut settings.tls, gateway.negotiated().await?);
                settings.settings.extend(behind.map(|tls| (DATABASE_TLS.to_owned(), tls.to_string())));
            }
            if let (Some(gateway), true) = (self.gateway.get(), self.parameters.gateway.is_some()) {
                let found = found(gateway).await;
                self.found.get_or_init(|| found);
            }
            self.sink.get_or_init(|| Kept { durability: settings.durability, within: store.blocking() });
            Ok(match self.queue() {
                Some((durability, because)) if settings.durability > durability.into() => {
                    settings.at(durability, because.to_owned())
                }
                _ => settings,
            })
        })
    }

    fn kept_by(&self, member: Role, settings: &EffectiveSettings) -> EffectiveDurability {
        match member {
            // what waits in a broker is not kept here
            Role::Gateway if self.parameters.broker().is_some() => EffectiveDurability::Disk,
            Role::Gateway | Role::Queue => self.queue().map_or(Durability::Disk, |(level, _)| level).into(),
            Role::Collector => EffectiveDurability::Disk,
            _ => self.sink.get().map_or(settings.durability, |kept| kept.durability),
        }
    }

    /// The level is the lower one of the queue's and the database's. A database in a file ends with whoever stores in it.
    fn keeps(&self, member: Role, settings: &EffectiveSettings) -> bool {
        let has_broker = self.ways().is_some_and(|(_, queue)| queue.broker().is_some());
        let is_shown = |level: EffectiveDurability| level == settings.durability;
        let sink = self.kept_by(Role::Server, settings);
        let has_file = self.sink.get().is_some_and(|kept| kept.within) && is_shown(sink);
        let has_queue = self.queue().is_some_and(|(level, _)| is_shown(level.into()));
        match member {
            Role::Server => is_shown(sink),
            Role::Gateway => !has_broker && (has_queue || has_file),
            Role::Queue => has_broker && has_queue,
            Role::Collector => has_broker && has_file,
            _ => false,
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
            let rows = match self.parameters.others_table() {
                // with the first entry, which is none of the clients'
                Some(table) => Rows::among_others(table, &self.mark),
                None => port.rows(place),
            };
            port.unload(&rows).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use super::*;
    use crate::logs::{Id, ledger::Ending};

    /// What a gateway that runs already does not show is not called lost.
    #[test]
    fn a_running_gateway_is_believed_no_more_than_it_can_know() {
        let before = GatewayState { waiting: 0, acknowledged: 100, stored: 100, repeated: 0, instance: 7 };
        let doubt = |queue, saved: u64, now: GatewayState| {
            let trial = LogsTrial {
                parameters: Parameters { gateway: Some("http://a".to_owned()), ..Parameters::default() },
                scenario: scenario(),
                gateway: OnceLock::from(reached()),
                collector: OnceLock::new(),
                found: OnceLock::from(Some((Architecture::Queued, queue, before))),
                sink: OnceLock::new(),
                mark: String::new(),
            };
            let ledger = &trial.scenario.ledger;
            for sequence in 0..3 {
                let id = || std::iter::once(Id { client: 0, sequence });
                ledger.sending(id());
                ledger.ended(id(), Ending::Acknowledged);
            }
            let moved = Instant::now();
            let is_one = now.instance != 8;
            trial.doubt(&Settled { state: Some(now), moved, is_one, saved })
        };
        let all = GatewayState { acknowledged: 103, stored: 102, ..before };
        assert_eq!(doubt(LogQueue::Disk, 2, all), None);
        let told = |queue, saved, now| doubt(queue, saved, now).unwrap();
        assert!(told(LogQueue::Disk, 0, all).contains("--store and --table"));
        assert!(told(LogQueue::RabbitMq, 2, all).contains("collectors elsewhere"));
        let fewer = [102, 3].map(|acknowledged| GatewayState { acknowledged, ..all });
        let others = [8, 9].map(|instance| GatewayState { instance, ..all });
        for other in fewer.into_iter().chain(others) {
            assert!(told(LogQueue::Disk, 2, other).contains("started anew"));
        }
    }

    /// A kill of a gateway that has a queue of its own strikes what waits there, also between two requests.
    #[test]
    fn clients_need_not_notice_what_strikes_a_queue() {
        let noticed = |architecture, queue, member, fault: &str| {
            let trial = LogsTrial {
                parameters: Parameters { architecture, queue, ..Parameters::default() },
                scenario: scenario(),
                gateway: OnceLock::from(reached()),
                collector: OnceLock::new(),
                found: OnceLock::new(),
                sink: OnceLock::new(),
                mark: String::new(),
            };
            let faults: acidtest_model::Faults = fault.parse().unwrap();
            trial.is_noticed(member, &faults.0[0].disruption)
        };
        let (queued, direct) = (Architecture::Queued, Architecture::Direct);
        for queue in [LogQueue::Disk, LogQueue::Memory] {
            assert!(!noticed(queued, queue, Role::Gateway, "kill:gateway@1s"));
            assert!(noticed(queued, queue, Role::Gateway, "restart:gateway@1s"));
            assert!(!noticed(queued, queue, Role::Server, "kill@1s"));
        }
        assert!(noticed(queued, LogQueue::Nats, Role::Gateway, "kill:gateway@1s"));
        assert!(!noticed(queued, LogQueue::Nats, Role::Collector, "kill:collector@1s"));
        assert!(noticed(direct, LogQueue::Disk, Role::Gateway, "kill:gateway@1s"));
        assert!(noticed(direct, LogQueue::Disk, Role::Server, "kill@1s"));
        assert!(noticed(queued, LogQueue::Disk, Role::Clients, "disconnect@1s"));
    }

    /// The level that is shown is that of those who keep entries at it.
    #[test]
    fn a_level_is_of_the_member_that_keeps_entries_at_it() {
        use Durability::{Disk, None, Process};
        let keep = |architecture, queue, sink: Durability, within| {
            let trial = LogsTrial {
                parameters: Parameters { architecture, queue, ..Parameters::default() },
                scenario: scenario(),
                gateway: OnceLock::from(reached()),
                collector: OnceLock::new(),
                found: OnceLock::new(),
                sink: OnceLock::from(Kept { durability: sink.into(), within }),
                mark: String::new(),
            };
            let durability = trial.queue().map_or(sink, |(level, _)| level.min(sink)).into();
            let settings = EffectiveSettings {
                version: String::new(),
                durability,
                because: String::new(),
                settings: BTreeMap::new(),
                tls: Option::None,
            };
            Role::ALL.into_iter().filter(|role| trial.keeps(*role, &settings)).collect::<Vec<_>>()
        };
        let (queued, direct) = (Architecture::Queued, Architecture::Direct);
        for (architecture, queue, sink, members) in [
            (direct, LogQueue::Disk, Disk, &[Role::Server][..]),
            (queued, LogQueue::Disk, Disk, &[Role::Server, Role::Gateway]),
            (queued, LogQueue::Disk, Process, &[Role::Server]),
            (queued, LogQueue::Memory, Disk, &[Role::Gateway]),
            (queued, LogQueue::Nats, Disk, &[Role::Queue]),
            (queued, LogQueue::RabbitMq, Disk, &[Role::Server, Role::Queue]),
            (queued, LogQueue::RabbitMq, None, &[Role::Server]),
        ] {
            assert_eq!(keep(architecture, queue, sink, false), members, "{architecture:?} {queue:?} {sink}");
        }
        // a file is in the process that stores in it
        for (architecture, queue, role) in [
            (direct, LogQueue::Disk, Role::Gateway),
            (queued, LogQueue::Disk, Role::Gateway),
            (queued, LogQueue::RabbitMq, Role::Collector),
        ] {
            assert!(keep(architecture, queue, Disk, true).contains(&role), "{architecture:?} {queue:?}");
        }
    }

    fn reached() -> Gateway {
        Gateway::new(&Address::loopback("http", None, 1, ""), "").unwrap()
    }

    fn scenario() -> Scenario {
        let ledger = Arc::new(Ledger::new(1, Instant::now()));
        Scenario { ledger, together: 1, message_bytes: 50 }
    }

    #[test]
    fn durability_is_what_the_weaker_of_queue_and_database_has() {
        let trial = |queue| LogsTrial {
            parameters: Parameters { queue, ..Parameters::default() },
            scenario: scenario(),
            gateway: OnceLock::from(reached()),
            collector: OnceLock::new(),
            found: OnceLock::new(),
            sink: OnceLock::from(Kept { durability: EffectiveDurability::Disk, within: false }),
            mark: String::new(),
        };
        let settings = EffectiveSettings {
            version: String::new(),
            durability: EffectiveDurability::Disk,
            because: String::new(),
            settings: BTreeMap::new(),
            tls: None,
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
