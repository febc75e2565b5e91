//! One trial of the logs workload.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{
    Architecture, GatewayState, Ledger, LogQueue, LogsStore, NAME, Parameters, Rows, Scenario, StoredState,
    audit, client,
    http::Gateway,
    settling::{self, Settled, Settling},
};
use crate::{
    AuditResult, LoadProgress, Place, Served, Services, Side, Store, TrialLedger, TrialSetup, WorkloadTrial,
    trial::{no_host, no_port},
};
use acidtest_engine::ClientTask;
use acidtest_model::{Durability, EffectiveDurability, EffectiveSettings, StoreError, Task};

/// What the database behind the gateway keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Its durability level.
    pub(super) durability: EffectiveDurability,
    /// Whether it is a file in the process that stores in it.
    pub(super) within: bool,
}

pub(super) struct LogsTrial {
    pub(super) parameters: Parameters,
    pub(super) scenario: Scenario,
    /// The gateway in front of the store, once it was started.
    pub(super) gateway: OnceLock<Gateway>,
    /// What empties the broker in which the gateway has its queue, if it is in one.
    pub(super) collector: OnceLock<Gateway>,
    /// What a gateway that runs already says it is; none where it says nothing.
    pub(super) found: OnceLock<Option<(Architecture, LogQueue, GatewayState)>>,
    /// What the database behind it keeps.
    pub(super) sink: OnceLock<Kept>,
    /// What all ids begin with that the trial sends to such a gateway.
    pub(super) mark: String,
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

pub(super) fn port(store: &dyn Store) -> Result<&dyn LogsStore, StoreError> {
    store.logs().ok_or_else(|| no_port(NAME))
}

impl LogsTrial {
    pub(super) fn new(parameters: Parameters, setup: &TrialSetup) -> Self {
        // in a table of its own, a trial's entries need not be told from others
        let prefix = match parameters.gateway {
            Some(_) => format!("{}-c", setup.mark),
            None => String::new(),
        };
        let mut ledger = Ledger::new(setup.clients, setup.origin).with_prefix(prefix);
        if parameters.gateway.is_some() || parameters.broker().is_some() {
            ledger = ledger.with_doubtful_refusals();
        }
        let ledger = Arc::new(ledger);
        let scenario = Scenario {
            ledger,
            together: parameters.entries_per_request.into(),
            message_bytes: parameters.entry_bytes as usize,
        };
        Self {
            parameters,
            scenario,
            gateway: OnceLock::new(),
            collector: OnceLock::new(),
            found: OnceLock::new(),
            sink: OnceLock::new(),
            mark: format!("{}-", setup.mark),
        }
    }

    /// How entries come into the database, and where they wait; none where a gateway that runs already does not say so.
    pub(super) fn ways(&self) -> Option<(Architecture, LogQueue)> {
        match self.found.get() {
            Some(found) => found.map(|(architecture, queue, _)| (architecture, queue)),
            None => Some((self.parameters.architecture, self.parameters.queue)),
        }
    }

    /// What survives of the entries that wait in the queue, and why, where there is a queue.
    pub(super) fn queue(&self) -> Option<(Durability, &'static str)> {
        self.gateway.get()?;
        let Some((architecture, queue)) = self.ways() else {
            return Some((
                Durability::None,
                "the gateway does not show where entries wait to this user, who was not added with --operator",
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
    pub(super) fn has_hidden(&self) -> bool {
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
                "the table that was read has no entry; --store and --table must name where the gateway stores",
            );
        }
        if !is_one || since.is_none_or(|since| since.acknowledged < ledger.acknowledged()) {
            return Some(
                "the gateway was restarted, or is not the only one at this address: how much waits is unknown",
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

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        _: &'a Place,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store).map(|_| ()) })
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

    fn services(&self) -> Option<&dyn Services> {
        Some(self)
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

    fn ledger(&self) -> &dyn TrialLedger {
        &*self.scenario.ledger
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
impl LogsTrial {
    /// One whose clients have reached their gateway.
    pub(super) fn reached(parameters: Parameters) -> Self {
        use acidtest_model::{Address, Lock};
        let gateway = Gateway::new(&Address::loopback("http", None, 1, ""), "").unwrap();
        let trial = Self::new(parameters, &TrialSetup::new(Lock::None, 1, 1));
        Self { gateway: OnceLock::from(gateway), ..trial }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::logs::{Id, ledger::Ending};

    /// What a gateway that runs already does not show is not called lost.
    #[test]
    fn a_running_gateway_is_believed_no_more_than_it_can_know() {
        let before = GatewayState { waiting: 0, acknowledged: 100, stored: 100, repeated: 0, instance: 7 };
        let doubt = |queue, saved: u64, now: GatewayState| {
            let trial = LogsTrial {
                found: OnceLock::from(Some((Architecture::Queued, queue, before))),
                ..LogsTrial::reached(Parameters {
                    gateway: Some("http://a".to_owned()),
                    ..Parameters::default()
                })
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
            assert!(told(LogQueue::Disk, 2, other).contains("restarted"));
        }
    }
}
