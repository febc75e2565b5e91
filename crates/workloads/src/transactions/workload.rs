//! The transactions workload, as the runner uses it.

use std::sync::{Arc, OnceLock};

use acidtest_engine::ClientTask;
use acidtest_model::{Lock, StoreError, Task, count};

use super::{
    Final, Ledger, OPERATIONS, Parameters, Promise, Requirements, Scenario, State, TransactionsStore,
    audit::{ANOMALIES, audit},
    ledger::MOST,
};
use crate::{
    AuditResult, Combine, DataSize, Guarantee, Levels, LoadProgress, Place, Served, Side, Store, TrialLedger,
    TrialSetup, Workload, WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::{DURABILITY, INTEGRITY, ISOLATION, REPLICATION, TLS},
    trial::{no_host, no_port},
    workload::read,
};

const NAME: &str = "transactions";

/// The isolation levels are an order here: each rules out more anomalies than the one before.
const GUARANTEES: &[Guarantee] = &[
    Guarantee::option(
        "isolation",
        Levels::Ordered(&["read-uncommitted", "read-committed", "repeatable-read", "serializable"]),
    ),
    DURABILITY,
    REPLICATION,
    TLS,
    INTEGRITY,
];

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "transactions at random on a few lists, registers and accounts, protected by the isolation level alone\n\
              the history is searched for the anomalies that the level rules out, as Elle does",
    operations: OPERATIONS,
    audit: "no anomaly occurs that the store's documentation rules out at this isolation level; what it permits is counted; \
            predicates are not tested",
    guarantees: GUARANTEES,
    counts: &[(ANOMALIES, Combine::Sum)],
    shares: &[],
    terms: &[
        ("read", "a transaction that only reads, from its begin to its commit, retries included"),
        ("write", "a transaction that also writes, from its begin to its commit, retries included"),
    ],
    refused: None,
    refusal: "",
    apart: "",
    demand: None,
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Transactions::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

#[derive(Clone, Debug)]
pub struct Transactions {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Transactions {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

/// Bytes of a row's values, once lists are full.
const ROW_BYTES: u64 = 400;

/// Bytes of memory for each row: its place in the ledger, and what is read of it in the end.
const KEPT: [u64; 2] = [4, 700];

/// Bytes of memory that the check takes for each operation of a transaction: measured as 272 MiB for a million transactions of 1 to 4.
const CHECKED_BYTES: u64 = 140;

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { mix, keys, skew, operations, write_share, .. } = parameters;
    let of = match operations {
        1 => "1 operation".to_owned(),
        most => format!("1–{most} operations"),
    };
    let headline = format!(
        "{mix}, {of} a transaction, {:.0} % of them write, {} keys, {skew}",
        write_share * 100.0,
        count(u64::from(*keys))
    );
    let does = OPERATIONS.iter().zip([*write_share < 1.0, *write_share > 0.0]);
    WorkloadSpec {
        does: does.filter(|(_, does)| *does).map(|(name, _)| *name).collect(),
        lock: Some(Lock::None),
        // no lock is missing where the level alone is to protect
        decides: false,
        isolation: parameters.isolation.0,
        ..WorkloadSpec::new(&KIND, parameters, format!("a transaction of {of}"), headline)
    }
}

impl Workload for Transactions {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, _: Option<u64>) -> DataSize {
        let rows = DataSize::of(self.parameters.layout().rows(), ROW_BYTES, KEPT);
        // half of the most is the mean
        let operations = u64::from(self.parameters.operations).div_ceil(2);
        DataSize { audit_bytes: rows.audit_bytes + MOST * CHECKED_BYTES * operations, ..rows }
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        let layout = self.parameters.layout();
        let ledger = Arc::new(Ledger::new(layout, self.parameters.keys, setup.part.of));
        Box::new(TransactionsTrial {
            scenario: Scenario::new(&self.parameters, ledger, setup.clients, setup.seed),
            wanted: Requirements { isolation: self.spec.isolation, layout },
            promise: OnceLock::new(),
        })
    }
}

struct TransactionsTrial {
    scenario: Scenario,
    wanted: Requirements,
    /// What the store promises, as read when the data was loaded.
    promise: OnceLock<Promise>,
}

impl TransactionsTrial {
    /// What the store promises when the trial is over: another server, or other settings, may have taken over.
    async fn promised_now(&self, store: Result<&dyn Store, StoreError>) -> Result<Promise, StoreError> {
        port(store?)?.promise(&self.wanted).await
    }
}

fn port(store: &dyn Store) -> Result<&dyn TransactionsStore, StoreError> {
    store.transactions().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for TransactionsTrial {
    fn rows(&self) -> u64 {
        self.wanted.layout.rows()
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let port = port(store)?;
            let promise = port.promise(&self.wanted).await?;
            self.promise.get_or_init(|| promise);
            port.load(place, &self.wanted.layout, loaded).await
        })
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        Ok(port(store)?.client(place, &self.wanted, self.scenario.clone()))
    }

    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError> {
        let served = port(store)?.serve(place, &self.wanted).filter(|_| side == Side::Client);
        served.ok_or_else(no_host)
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
            let layout = &self.wanted.layout;
            let began = Final::began();
            let end = async {
                let mut state = State::default();
                port(store.clone()?)?.state(place, layout, &mut state).await?;
                Ok(Final::of(state, began))
            };
            let end = end.await.map_err(|error: StoreError| error.to_string());
            let promise = self.promise.get().ok_or_else(|| "its data was not loaded".to_owned());
            let mut audit = audit(&self.scenario.ledger, layout, promise.clone(), &end);
            if let (Ok(promised), Ok(now)) = (promise, self.promised_now(store).await)
                && *promised != now
            {
                let changed = format!(
                    "what the store promises has changed during the trial: {} before ({}), {} after ({})",
                    promised.level, promised.source, now.level, now.source
                );
                audit.withdraw_of(ISOLATION, &changed);
            }
            AuditResult::new(audit, None)
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
