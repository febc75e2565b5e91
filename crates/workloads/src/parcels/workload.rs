//! The parcels workload, as the runner uses it.

use std::sync::Arc;

use super::{
    audit::{Final, audit},
    client::{OPERATIONS, Scenario},
    ledger::Ledger,
    parameters::{Action, Index, Parameters},
    port::{ParcelsStore, Requirements},
    scan::{MOST, StoredScan},
    stream::{LoadMethod, Loading},
};
use crate::{
    AuditResult, DataSize, Guarantee, LoadProgress, Place, Served, Side, Store, TrialLedger, TrialSetup,
    Workload, WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::{ATOMICITY, DURABILITY, INTEGRITY, LOCK, REPLICATION, TLS},
    trial::{no_host, no_port},
    workload::read,
};
use acidtest_engine::ClientTask;
use acidtest_model::{StoreError, Task, count};

const NAME: &str = "parcels";

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "scans of parcels inserted, each with its parcel's next count, and read by parcel or by id\n\
              the table of the study \"MemSQL for MemEx\", with lock modes, batches and an audit",
    operations: OPERATIONS,
    audit: "every acknowledged scan is there once and as it was written, ids are unique, and the counts of a parcel are \
            1 to k, never above 7, without a gap or a repeat",
    guarantees: GUARANTEES,
    counts: &[],
    shares: &[],
    terms: &[
        (
            "insert",
            "a scan gets its SCAN_ID, and its parcel's next SCAN_COUNT; with --insert-batch, rate and times here are of \
             whole batches, while ok/s above counts scans",
        ),
        ("hash", "all scans of a parcel are read"),
        ("id", "one scan is read by its SCAN_ID"),
    ],
    refused: None,
    refusal: "",
    apart: "a read is checked only against what the same process inserted",
    demand: Some(DEMAND),
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Parcels::new(read(values)?)?)),
    idle: |values| read(values).as_ref().map_or_else(|_| Vec::new(), Parameters::idle),
};

/// The rows a second that the study asks for: 50,000,000 parcels a day with seven scans each.
const DEMAND: f64 = 50_000_000.0 * 7.0 / 86_400.0;

/// What its findings break, and what has a price.
const GUARANTEES: &[Guarantee] = &[LOCK, DURABILITY, REPLICATION, TLS, ATOMICITY, INTEGRITY];

#[derive(Clone, Debug)]
pub struct Parcels {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Parcels {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

/// Bytes of a row's values: its texts, its id, count and date.
const ROW_BYTES: u64 = 50;

/// Bytes of memory for each scan that is loaded: the ledger computes what it must be, and the audit notes what is there.
const KEPT: [u64; 2] = [0, 12];

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { mix, parcels, scans, load, index, insert_batch, .. } = parameters;
    let (unit, together) = match insert_batch {
        1 => (format!("an operation of mix {}", String::from(mix.clone())), String::new()),
        several => (
            format!("a scan inserted, or a read, of mix {}", String::from(mix.clone())),
            format!(", {several} at once"),
        ),
    };
    let loaded = match (scans, load) {
        (0, _) => "no scans loaded".to_owned(),
        (1, _) => "1 scan loaded".to_owned(),
        (scans, LoadMethod::Bulk) => format!("{} scans loaded", count(*scans)),
        (scans, LoadMethod::Single) => format!("{} scans loaded row by row", count(*scans)),
    };
    let indexed = match index {
        Index::Hash => "",
        Index::None => ", no index on SCAN_HASH",
    };
    let headline =
        format!("{mix}, {} × {MOST} scans on their way{together}, {loaded}{indexed}", count(*parcels));
    let all = [Action::Insert, Action::ByHash, Action::ById];
    let does = all.into_iter().filter(|action| mix.does(*action));
    let decides = mix.does(Action::Insert);
    let data = format!("{scans} scans, {parcels} parcels at a time, {load:?}, {index:?}");
    WorkloadSpec {
        does: does.map(|action| OPERATIONS[action as usize]).collect(),
        batches: vec![(OPERATIONS[Action::Insert as usize], *insert_batch)],
        decides,
        data: (!decides).then_some(data),
        ..WorkloadSpec::new(&KIND, parameters, unit, headline)
    }
}

impl Workload for Parcels {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, _: Option<u64>) -> DataSize {
        DataSize::of(self.parameters.scans, ROW_BYTES, KEPT)
    }

    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        // trials that share their data share the seed of its stream
        let seed = if self.spec.decides { setup.seed } else { 0 };
        let Parameters { index, insert_batch, .. } = self.parameters;
        let loading = self.parameters.loading(seed);
        let ledger = Arc::new(Ledger::of(setup.part, loading, insert_batch == 1));
        ledger.note_loaded();
        let wanted = Requirements { lock: setup.lock, index, batch: insert_batch };
        Box::new(ParcelsTrial {
            scenario: Scenario::new(&self.parameters, ledger, setup.seed),
            wanted,
            loading,
            leaves: !self.spec.decides,
        })
    }
}

struct ParcelsTrial {
    scenario: Scenario,
    wanted: Requirements,
    loading: Loading,
    /// Whether its data may be left to another trial.
    leaves: bool,
}

fn port(store: &dyn Store) -> Result<&dyn ParcelsStore, StoreError> {
    store.parcels().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for ParcelsTrial {
    fn rows(&self) -> u64 {
        self.loading.scans
    }

    fn rows_left(&self) -> u64 {
        self.scenario.ledger.ends().iter().sum()
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.load(place, &self.wanted, &self.loading, loaded).await })
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        let port = port(store)?;
        Ok(port.client(place, &self.wanted, self.scenario.clone().with(port.ids())))
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
            let read = async {
                let port = port(store?)?;
                let mut state = Final::of(ledger, port.ids());
                let mut each = |stored: StoredScan| state.take(ledger, &stored);
                port.state(place, &mut each).await?;
                Ok((state, port.size(place).await))
            };
            let (state, size) = match read.await {
                Ok((state, size)) => (Ok(state), size.ok()),
                Err(error) => (Err(error), None),
            };
            AuditResult { size, ..audit(ledger, state, self.leaves) }
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
