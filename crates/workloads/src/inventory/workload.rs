//! The inventory workload, as the runner uses it.

use std::sync::Arc;

use acidtest_engine::ClientTask;
use acidtest_model::{Lock, StoreError, Task, count};

use super::{
    InventoryStore, OPERATIONS, Parameters, Replay, Scenario, Sequence, Stock, audit, client::StockOperation,
};
use crate::{
    AuditResult, DataSize, LoadProgress, Place, Served, Side, Store, TrialLedger, TrialSetup, Workload,
    WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::OF_READ_DECIDE_WRITE,
    trial::{no_host, no_port},
    workload::read,
};

const NAME: &str = "inventory";

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "units captured from and released to stock, under contention\n\
              the workload of the study \"Datastore testing for IMS\", with its values as defaults",
    operations: OPERATIONS,
    audit: "no unit is taken twice, lost or made up: the final stock must be the initial one less what was \
            acknowledged as captured, plus what was released, within what is unknown",
    guarantees: OF_READ_DECIDE_WRITE,
    counts: &[],
    shares: &[],
    terms: &[],
    refused: Some((
        "capture",
        "the stock was sold out; a larger --initial-max, or a smaller --capture-share, leaves more to sell",
    )),
    refusal: "",
    apart: "units that were oversold and put back before the end go unnoticed",
    demand: None,
    parameters: Parameters::described,
    with: |values| {
        let parameters: Parameters = read(values)?;
        parameters.check().map_err(|error| error.to_string())?;
        Ok(Box::new(Inventory { spec: spec(&parameters), parameters }))
    },
    idle: |_| Vec::new(),
};

#[derive(Clone, Debug)]
pub struct Inventory {
    parameters: Parameters,
    spec: WorkloadSpec,
}

/// Bytes of a row's values.
const ROW_BYTES: u64 = 40;

/// Bytes of memory for each tuple: its place in the stock and its account in the ledger, on a cache line of its own; and what is
/// read of it at the end.
const KEPT: [u64; 2] = [130, 50];

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { items, capture_share: share, units_max, skew, .. } = parameters;
    let unit = if *share >= 1.0 {
        "a capture"
    } else if *share <= 0.0 {
        "a release"
    } else {
        "a capture or release"
    };
    let items = count(u64::from(*items));
    let headline = format!("{items} items, {:.0} % captures, 1–{units_max} units, {skew}", share * 100.0);
    WorkloadSpec {
        rates_count: rates_count(*share),
        replays: true,
        ..WorkloadSpec::new(&KIND, parameters, unit.to_owned(), headline)
    }
}

fn rates_count(share: f64) -> Option<String> {
    const ORDERS: f64 = 8000.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is above 0")]
    let all = count((ORDERS / share).round() as u64);
    (share > 0.0 && share < 1.0).then(|| {
        format!(
            "Rates count captures (orders) and releases alike: at a capture share of {share}, 8,000 orders a second are an \
             offered rate of {all}; those that are refused are not in ok/s."
        )
    })
}

impl Workload for Inventory {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, trace: Option<u64>) -> DataSize {
        let stock = DataSize::of(self.parameters.items.into(), ROW_BYTES, KEPT);
        let sequence = trace.unwrap_or_default().saturating_mul(size_of::<StockOperation>() as u64);
        DataSize { ledger_bytes: stock.ledger_bytes.saturating_add(sequence), ..stock }
    }

    /// All trials of a round have the same stock and operations; those of other rounds have different ones.
    fn trial(&self, setup: TrialSetup) -> Box<dyn WorkloadTrial> {
        let TrialSetup { lock, seed, clients, trace, part, .. } = setup;
        let stock = Arc::new(Stock::draw(&self.parameters, seed));
        let sequence = trace.map(|length| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            Arc::new(Sequence::draw(&self.parameters, &stock, length, seed))
        });
        let scenario = Scenario::of(part, &self.parameters, stock, sequence, seed);
        Box::new(InventoryTrial { scenario, lock, in_order: clients == 1 })
    }
}

struct InventoryTrial {
    scenario: Scenario,
    lock: Lock,
    in_order: bool,
}

fn port(store: &dyn Store) -> Result<&dyn InventoryStore, StoreError> {
    store.inventory().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for InventoryTrial {
    fn rows(&self) -> u64 {
        self.scenario.stock.items.len() as u64
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            port(store)?.load(place, self.lock, &self.scenario.stock).await?;
            loaded.add(self.rows());
            Ok(())
        })
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        Ok(port(store)?.client(place, self.lock, self.scenario.clone()))
    }

    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError> {
        let served = port(store)?.serve(place, self.lock).filter(|_| side == Side::Client);
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
            let Scenario { stock, ledger, sequence, .. } = &self.scenario;
            let held = async { port(store?)?.stock(place).await };
            let replay = sequence.as_deref().map(|sequence| Replay { sequence, in_order: self.in_order });
            AuditResult::new(audit(stock, ledger, held.await, replay), None)
        })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
