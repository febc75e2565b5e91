//! The checks that every store's join must pass. Each panics if the store fails it, and returns early if the store
//! is left out of the tests.

use acidtest_engine::{Load, Outcome};
use acidtest_model::Lock;
use acidtest_workloads::{
    LoadProgress, Place, Store, TrialSetup, Verdict, Workload,
    join::{Join, JoinStore, OPERATIONS, Parameters, TableOrder},
};

use crate::{AfterRemoval, NAMESPACE, SEED, Subject, for_time, steps, wait, with_more_time};

/// Joins in both orders of the tables find the right rows without a fault, on 2,000 records and on 3.
pub fn finds_its_rows<S: Store>(_: &Subject<S>, store: &S) {
    let full = Parameters { records: 2_000, ..Parameters::default() };
    // the key of the first record ends in 1
    let tiny = Parameters { records: 3, ext_rows: 3, value: 1, ..Parameters::default() };
    for (trial, parameters) in (1..).zip([full, tiny]) {
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        let rows = parameters.records;
        with_more_time(500, |millis| {
            let setup = TrialSetup::new(Lock::None, SEED, 4);
            let trial = Join::new(parameters.clone()).unwrap().trial(setup);
            let loaded = LoadProgress::default();
            wait(trial.load(store, &place, &loaded)).unwrap();
            assert!(loaded.rows() >= rows, "{} of {rows} rows were counted", loaded.rows());
            let load = Load { operations: OPERATIONS, ..for_time(millis) };
            let tasks = (0..4).map(|_| trial.client(store, &place).unwrap()).collect();
            let measured = steps::run(store, &load, tasks);
            let audit = wait(trial.audit(Ok(store), &place)).audit;
            eprintln!("{:.0} a second, {audit}", measured.throughput());
            assert!(measured.faults.is_empty() && measured.stopped.is_none(), "{measured:?}");
            wait(trial.unload(store, &place)).unwrap();
            if measured.operations.iter().any(|operation| operation.count(Outcome::Ok) == 0) {
                return Err(format!("{audit:?} {measured:?}"));
            }
            assert_eq!(audit.verdict, Verdict::Holds, "{audit:?}");
            Ok(())
        });
    }
}

/// The first execution calls `begin` once, and the store explains its plan for each order of the tables.
pub fn is_explained<S: Store>(subject: &Subject<S>, store: &S) {
    let port = port(store);
    let parameters = Parameters { records: 2_000, ..Parameters::default() };
    let place = Place { namespace: NAMESPACE.to_owned(), trial: 1 };
    let (layout, ext) = (parameters.layout(), parameters.ext());
    wait(port.load(&place, &layout, &ext, &LoadProgress::default())).unwrap();
    for order in TableOrder::ALL {
        let mut begun = 0;
        wait(port.first(&place, order, parameters.value, &mut || begun += 1)).unwrap();
        assert_eq!(begun, 1, "{order:?}");
        let plan = wait(port.explain(&place, order, parameters.value)).unwrap();
        eprintln!("{order:?}\n{plan}");
        assert!(!plan.trim().is_empty(), "{order:?}");
    }
    wait(port.unload(&place)).unwrap();
    if subject.gone == AfterRemoval::Error {
        wait(port.first(&place, TableOrder::ExtFirst, parameters.value, &mut || ())).unwrap_err();
    }
}

fn port(store: &impl Store) -> &dyn JoinStore {
    store.join().unwrap()
}
