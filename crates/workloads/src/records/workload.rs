//! The records workload, as the runner uses it.

use std::sync::Arc;

use acidtest_engine::ClientTask;
use acidtest_model::{Lock, StoreError, Task, count};

use super::{
    Action, Final, Ledger, OPERATIONS, Parameters, RecordsStore, Refresh, Requirements, Scenario, audit,
};
use crate::{
    AuditResult, DataSize, LoadProgress, Place, Served, Side, Store, TrialLedger, TrialSetup, Workload,
    WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::OF_READ_DECIDE_WRITE,
    trial::{no_host, no_port},
    workload::read,
};

const NAME: &str = "records";

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "records read, updated, inserted, scanned and modified by key\n\
              YCSB's core workloads A to F, with lock modes, transactions and isolation levels",
    operations: OPERATIONS,
    audit: "no update is lost or made up, no inserted record is lost, doubled or made up, no read finds a record \
            torn, missing or older than what was acknowledged before it",
    guarantees: OF_READ_DECIDE_WRITE,
    counts: &[],
    shares: &[],
    terms: &[],
    refused: None,
    refusal: "",
    apart: "a stale read is found only if the same process wrote",
    demand: None,
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Records::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

#[derive(Clone, Debug)]
pub struct Records {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Records {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

/// Bytes of memory for each record: the ledger's account of it; and its number by its key, what was read of it, and what is left
/// of that for the next trial.
const KEPT: [u64; 2] = [16, 75];

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { mix, records, fields, field_bytes, transaction, .. } = parameters;
    let together = match transaction {
        1 => String::new(),
        several => format!(", {several} operations a transaction"),
    };
    let headline = format!(
        "{mix}, {} records of {fields} × {field_bytes} B, keys {}{together}",
        count(*records),
        parameters.choice()
    );
    let actions = [Action::Read, Action::Update, Action::Insert, Action::Scan, Action::Modify];
    let does = actions.into_iter().filter(|action| mix.does(*action));
    let scans = parameters.layout().scans;
    let data = format!("{records} records of {fields} x {field_bytes} B, scans: {scans}");
    let unit = format!("an operation of mix {}", String::from(mix.clone()));
    WorkloadSpec {
        does: does.map(|action| OPERATIONS[action as usize]).collect(),
        lock: mix.is_locked().then_some(Lock::Hard),
        isolation: parameters.isolation.0,
        transaction: *transaction,
        refreshes: parameters.refresh != Refresh::No,
        replica_reads: replica_reads(parameters),
        decides: mix.does(Action::Update) || mix.does(Action::Modify),
        data: (!mix.does(Action::Insert)).then_some(data),
        ..WorkloadSpec::new(&KIND, parameters, unit, headline)
    }
}

/// Whether replicas may answer some of its operations; the error says why not.
fn replica_reads(parameters: &Parameters) -> Result<(), String> {
    let Parameters { mix, transaction, .. } = parameters;
    let does = |actions: &[Action]| actions.iter().any(|action| mix.does(*action));
    let name = String::from(mix.clone());
    if !does(&[Action::Read, Action::Scan]) {
        Err(format!("mix {name} has no reads of its own: ask for one such as --mix b"))
    } else if *transaction > 1 && does(&[Action::Update, Action::Insert, Action::Modify]) {
        Err(format!(
            "a transaction of mix {name} may write, and is the leader's: leave --transaction out, or ask for --mix c"
        ))
    } else {
        Ok(())
    }
}

impl Workload for Records {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, _: Option<u64>) -> DataSize {
        let layout = self.parameters.layout();
        DataSize::of(layout.records, layout.record_bytes(), KEPT)
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        let layout = self.parameters.layout();
        let ledger = Ledger::of(setup.part, layout, setup.reusable.unwrap_or_default()).reading(setup.reads);
        let ledger = Arc::new(ledger);
        let wanted = Requirements {
            lock: setup.lock,
            decides: self.spec.decides,
            isolation: self.spec.isolation,
            transaction: self.parameters.transaction,
            refresh: self.parameters.refresh,
            layout,
        };
        Box::new(RecordsTrial { scenario: Scenario::new(&self.parameters, ledger, setup.seed), wanted })
    }
}

struct RecordsTrial {
    scenario: Scenario,
    wanted: Requirements,
}

fn port(store: &dyn Store) -> Result<&dyn RecordsStore, StoreError> {
    store.records().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for RecordsTrial {
    fn rows(&self) -> u64 {
        self.wanted.layout.records
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.load(place, &self.wanted.layout, loaded).await })
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
            let ledger = &self.scenario.ledger;
            let state = async {
                let mut state = Final::of(ledger);
                let mut each = |key: &str, version: u64, tag: Option<u64>| state.take(key, version, tag);
                port(store?)?.state(place, &self.wanted.layout, &mut each).await?;
                Ok(state)
            };
            audit(ledger, state.await)
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
