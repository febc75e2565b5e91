//! The queue workload, as the runner uses it.

use std::sync::Arc;

use acidtest_engine::ClientTask;
use acidtest_model::{EffectiveDurability, EffectiveSettings, Lock, StoreError, Task, count};

use super::{
    Ack, Consume, Delivery, Ledger, NAME, OPERATIONS, Parameters, Phase, QueueKind, QueueStore, Requirements,
    SPANS, Scenario,
    audit::{LOST, audit, audit_with_dropped},
    delivery::DELIVERY,
};
use crate::{
    AuditResult, Combine, Consuming, DataSize, Guarantee, Levels, LoadProgress, MessageCounts, Place, Served,
    Side, Store, TrialLedger, TrialSetup, Workload, WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::{ATOMICITY, DURABILITY, INTEGRITY, ORDER, REPLICATION, TLS},
    trial::{no_host, no_port},
    workload::read,
};

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "producers publish messages and consumers take them, at once or one after the other\n\
              with the acknowledgements, transactions and persistence of the locks study's message broker",
    operations: OPERATIONS,
    audit: "every acknowledged message is consumed, none is made up, damaged, or delivered again that was \
            acknowledged; in order per producer where the store promises it",
    guarantees: GUARANTEES,
    counts: &[("redelivered", Combine::Sum)],
    shares: &[],
    terms: &[
        (
            OPERATIONS[0],
            "until it counts as published (ack none: written to the connection; confirm: answered; transaction: \
             committed).",
        ),
        (
            OPERATIONS[1],
            "from asking for a message until it has arrived and, where due, is acknowledged; refused counts how often \
             there was none for 50 ms.",
        ),
        (SPANS[0], "from a message's publishing to its receipt, including its time in the queue."),
    ],
    refused: None,
    refusal: "empty",
    apart: "order is judged between clients of one process, and only where the store flags what was delivered before",
    demand: None,
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Queue::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

const GUARANTEES: &[Guarantee] = {
    const PUBLISH: &str = OPERATIONS[0];
    const SWITCH: Levels = Levels::Ordered(&["false", "true"]);
    &[
        DURABILITY,
        REPLICATION,
        TLS,
        Guarantee::option("ack", Levels::Ordered(&["none", "confirm", "transaction"])).paid_by(PUBLISH),
        Guarantee::option("consume", Levels::Ordered(&["auto", "ack", "transaction"])).paid_by(OPERATIONS[1]),
        Guarantee::option("persistent", SWITCH).paid_by(PUBLISH),
        Guarantee::option("queue", Levels::Without(&["default", "classic"])).paid_by(PUBLISH),
        Guarantee::option("replicas", Levels::Number).paid_by(PUBLISH),
        Guarantee::option("deduplicate", SWITCH).paid_by(PUBLISH),
        DELIVERY,
        ATOMICITY,
        INTEGRITY,
        ORDER,
    ]
};

#[derive(Clone, Debug)]
pub struct Queue {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Queue {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

fn counted(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let delivery = parameters.delivery();
    let (publish, consume) = (OPERATIONS[0], OPERATIONS[1]);
    // consumed messages count where both kinds of clients take part, because they went all the way through
    let (does, counts, done) = match parameters.phase {
        Phase::Publish => (vec![publish], publish, "published"),
        Phase::Consume => (vec![consume], consume, "consumed"),
        Phase::Both => (vec![publish, consume], consume, "published and consumed"),
    };
    let values = Parameters {
        prefetch: Some(parameters.prefetch()),
        backlog: Some(parameters.backlog()),
        ..parameters.clone()
    };
    let drains = parameters.phase == Phase::Consume;
    WorkloadSpec {
        does,
        counted: vec![counts],
        spans: SPANS,
        // no lock mode applies, because nothing is read to decide what to write
        lock: Some(Lock::None),
        decides: false,
        forgone: if delivery.promises() { &[] } else { &[DELIVERY] },
        clients: Some(delivery.producers + delivery.consumers),
        // producers set the pace where both kinds of clients take part: consumers take whatever there is
        scheduled: (parameters.phase == Phase::Both).then_some(parameters.producers),
        // consumers of a backlog take messages until none is left, whatever the rate
        is_paced: !drains,
        // a warm-up would drain the backlog that is to be measured
        warms_up: !drains,
        ..WorkloadSpec::new(&KIND, &values, format!("a message {done}"), headline(parameters))
    }
}

fn headline(parameters: &Parameters) -> String {
    let Parameters { message_bytes, persistent, queue, .. } = parameters;
    let Delivery { producers, consumers, ack, consume, in_flight, batch, prefetch, .. } =
        parameters.delivery();
    let mut parts = vec![format!("messages of {message_bytes} B")];
    if producers > 0 {
        let how = match ack {
            Ack::Transaction => format!("{batch} a transaction"),
            Ack::None | Ack::Confirm => format!("{in_flight} in flight"),
        };
        parts.push(format!("{} (ack {}, {how})", counted(producers, "producer"), ack.name()));
    }
    if consumers > 0 {
        let how = match consume {
            Consume::Auto => String::new(),
            Consume::Ack | Consume::Transaction => format!(", {batch} at once, prefetch {prefetch}"),
        };
        parts.push(format!("{} (consume {}{how})", counted(consumers, "consumer"), consume.name()));
    }
    if parameters.backlog() > 0 {
        parts.push(format!("{} loaded", count(parameters.backlog())));
    }
    parts.push(if *persistent { "persistent" } else { "transient" }.to_owned());
    match queue {
        QueueKind::Default => {}
        QueueKind::Classic => parts.push("classic queue".to_owned()),
        QueueKind::Quorum => parts.push("quorum queue".to_owned()),
    }
    parts.join(", ")
}

impl Workload for Queue {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, _: Option<u64>) -> DataSize {
        DataSize::of(self.parameters.backlog(), self.parameters.message_bytes.into(), [1, 1])
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        let delivery = self.parameters.delivery();
        let ledger = Arc::new(Ledger::of(setup.part, delivery.producers, self.parameters.backlog()));
        let wanted = Requirements { delivery, message_bytes: self.parameters.message_bytes };
        Box::new(QueueTrial { scenario: Scenario::since(setup.origin, ledger), wanted })
    }
}

/// Lowers the durability level to none where producers ask for no acknowledgement: a durability level is a promise about
/// acknowledged messages.
fn acknowledged(delivery: &Delivery, settings: EffectiveSettings) -> EffectiveSettings {
    if delivery.ack != Ack::None || delivery.producers == 0 {
        return settings;
    }
    let because = "without acknowledgements nobody says that a message arrived".to_owned();
    EffectiveSettings { durability: EffectiveDurability::None, because, ..settings }
}

struct QueueTrial {
    scenario: Scenario,
    wanted: Requirements,
}

fn port(store: &dyn Store) -> Result<&dyn QueueStore, StoreError> {
    store.queue().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for QueueTrial {
    fn rows(&self) -> u64 {
        self.scenario.ledger.backlog()
    }

    fn rows_left(&self) -> u64 {
        self.scenario.ledger.depth()
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.load(place, &self.wanted, &self.scenario, loaded).await })
    }

    fn settings<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        server: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async move {
            let settings = port(store)?.settings(place, &self.wanted, server).await?;
            Ok(acknowledged(&self.wanted.delivery, settings))
        })
    }

    fn consuming(&self) -> Option<&dyn Consuming> {
        Some(self)
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        Ok(port(store)?.client(place, &self.wanted, self.scenario.clone()))
    }

    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError> {
        let store = port(store)?;
        let served = match side {
            Side::Client => None,
            Side::Publisher => store.serve_publisher(place, &self.wanted),
            Side::Subscriber => store.serve_subscriber(place, &self.wanted),
        };
        served.ok_or_else(no_host)
    }

    fn ledger(&self) -> &dyn TrialLedger {
        &self.scenario
    }

    fn audit<'a>(
        &'a self,
        store: Result<&'a dyn Store, StoreError>,
        place: &'a Place,
    ) -> Task<'a, AuditResult> {
        Box::pin(async move {
            let Scenario { ledger, .. } = &self.scenario;
            let store = store.and_then(port);
            let drained = match &store {
                Ok(store) => store.drain(place, &self.wanted, &self.scenario).await,
                Err(error) => Err(error.clone()),
            };
            let mut judged = audit(ledger, drained);
            if judged.count(LOST) > 0
                && let Ok(store) = store
                && let Some(dropped) = store.dropped(place).await
            {
                judged = audit_with_dropped(ledger, &dropped);
            }
            AuditResult { limits: self.scenario.limits(), ..AuditResult::new(judged, None) }
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}

impl Consuming for QueueTrial {
    fn outstanding(&self) -> u64 {
        self.scenario.ledger.outstanding()
    }

    fn gauge(&self) -> (&'static str, u64) {
        ("depth", self.scenario.ledger.depth())
    }

    fn counts(&self) -> MessageCounts {
        self.scenario.ledger.message_counts()
    }

    fn note_elsewhere(&self, counts: MessageCounts) {
        self.scenario.ledger.note_elsewhere(counts);
    }

    fn is_ordered(&self, store: &dyn Store) -> bool {
        port(store).is_ok_and(|store| store.is_ordered(&self.wanted))
    }
}
