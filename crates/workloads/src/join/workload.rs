//! The join workload, as the runner uses it.

use std::{collections::BTreeMap, time::Instant};

use acidtest_engine::ClientTask;
use acidtest_model::{StoreError, Task, count};

use super::{Ext, JoinStore, OPERATIONS, Parameters, Scenario, TableOrder};
use crate::{
    Audit, AuditResult, DataSize, Finding, LoadProgress, Place, Preparation, ReusableData, Served, Side,
    Store, TrialLedger, TrialSetup, Verdict, Workload, WorkloadKind, WorkloadSpec, WorkloadTrial,
    guarantee::{INTEGRITY, OF_READ_DECIDE_WRITE},
    trial::{no_host, no_port},
    workload::{NOTHING_WRITTEN, idle, read},
};

const NAME: &str = "join";

/// The workload's entry in [`WORKLOADS`](crate::WORKLOADS).
pub const KIND: WorkloadKind = WorkloadKind {
    name: NAME,
    summary: "a table of 100 rows joined to a large one, in both orders, cold and warm\n\
              the join of the study \"Highly scalable NewSQL database system CockroachDB\"",
    operations: OPERATIONS,
    audit: "every join returns exactly the keys that were loaded",
    guarantees: OF_READ_DECIDE_WRITE,
    counts: &[],
    shares: &[],
    terms: &[],
    refused: None,
    refusal: "",
    apart: "",
    demand: None,
    parameters: Parameters::described,
    with: |values| Ok(Box::new(Join::new(read(values)?)?)),
    idle: |_| idle(&[("max_retries", false, NOTHING_WRITTEN)]),
};

#[derive(Clone, Debug)]
pub struct Join {
    parameters: Parameters,
    spec: WorkloadSpec,
}

impl Join {
    /// The workload with these parameters.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn new(parameters: Parameters) -> Result<Self, String> {
        parameters.check()?;
        Ok(Self { spec: spec(&parameters), parameters })
    }
}

fn spec(parameters: &Parameters) -> WorkloadSpec {
    let Parameters { records, fields, field_bytes, ext_rows, value, .. } = parameters;
    let headline = format!(
        "ext of {} rows and usertable of {} records, value = {value}, both orders",
        count((*ext_rows).into()),
        count(*records)
    );
    WorkloadSpec {
        decides: false,
        data: Some(format!("{records} records of {fields} x {field_bytes} B and {ext_rows} rows of ext")),
        ..WorkloadSpec::new(&KIND, parameters, "a join".to_owned(), headline)
    }
}

impl Workload for Join {
    fn spec(&self) -> &WorkloadSpec {
        &self.spec
    }

    fn size(&self, _: u32, _: Option<u64>) -> DataSize {
        let layout = self.parameters.layout();
        DataSize::of(layout.records, layout.record_bytes(), [0, 0])
    }

    fn trial(&self, _: TrialSetup) -> Box<dyn WorkloadTrial> {
        let ext = self.parameters.ext();
        let hits = ext.iter().filter(|row| row.value == self.parameters.value);
        let scenario = Scenario::new(hits.map(|row| row.key.clone()).collect());
        Box::new(JoinTrial { parameters: self.parameters.clone(), ext, scenario })
    }
}

struct JoinTrial {
    parameters: Parameters,
    ext: Vec<Ext>,
    scenario: Scenario,
}

fn port(store: &dyn Store) -> Result<&dyn JoinStore, StoreError> {
    store.join().ok_or_else(|| no_port(NAME))
}

impl WorkloadTrial for JoinTrial {
    fn rows(&self) -> u64 {
        self.parameters.records
    }

    fn load<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
        loaded: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.load(place, &self.parameters.layout(), &self.ext, loaded).await })
    }

    fn prepare<'a>(
        &'a self,
        store: &'a dyn Store,
        place: &'a Place,
    ) -> Task<'a, Result<Preparation, StoreError>> {
        Box::pin(async move {
            let store = port(store)?;
            let (mut first_ns, mut plans) = (BTreeMap::new(), BTreeMap::new());
            for (turn, (order, name)) in TableOrder::ALL.into_iter().zip(OPERATIONS).enumerate() {
                if turn > 0 {
                    // the data that the other order has read is warm, so it is loaded anew
                    store.unload(place).await?;
                    store.load(place, &self.parameters.layout(), &self.ext, &LoadProgress::default()).await?;
                }
                let mut clock = Instant::now();
                let mut begin = || clock = Instant::now();
                store.first(place, order, self.parameters.value, &mut begin).await?;
                let took = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
                first_ns.insert((*name).to_owned(), took);
                // after the first execution, because explaining a query warms the data that it reads
                plans.insert((*name).to_owned(), store.explain(place, order, self.parameters.value).await?);
            }
            Ok(Preparation { first_ns, plans })
        })
    }

    fn client(&self, store: &dyn Store, place: &Place) -> Result<ClientTask, StoreError> {
        Ok(port(store)?.client(place, self.parameters.value, self.scenario.clone()))
    }

    fn serve(&self, store: &dyn Store, place: &Place, side: Side) -> Result<Served, StoreError> {
        let served = port(store)?.serve(place, self.parameters.value).filter(|_| side == Side::Client);
        served.ok_or_else(no_host)
    }

    fn ledger(&self) -> &dyn TrialLedger {
        &self.scenario
    }

    /// Counts the joins that were acknowledged with wrong rows; nothing is written, so nothing has to be read back.
    fn audit<'a>(&'a self, store: Result<&'a dyn Store, StoreError>, _: &'a Place) -> Task<'a, AuditResult> {
        let (acknowledged, wrong) = self.scenario.found();
        let doubt = match (store, acknowledged) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(_), 0) => Some("no join was acknowledged".to_owned()),
            (Ok(_), _) => None,
        };
        let finding = Finding::new("wrong", wrong, "joins", INTEGRITY)
            .or_loss()
            .within_epoch(self.scenario.wrong_at_first());
        let audit = Audit::of(vec![finding], doubt, [("acknowledged_joins", acknowledged)]);
        // rows that differ from the loaded ones may be wrong for the next trial too
        let reusable = (audit.verdict == Verdict::Holds).then(ReusableData::default);
        Box::pin(async { AuditResult::new(audit, reusable) })
    }

    fn unload<'a>(&'a self, store: &'a dyn Store, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { port(store)?.unload(place).await })
    }
}
