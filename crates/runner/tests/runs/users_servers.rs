//! Runs on servers of the user's own: several addresses of one.

use acidtest_report::Plan;
use acidtest_runner::{Failure, Finished, Interrupt, Silent};
use acidtest_store_memory::{Faults, Memory};
use acidtest_workloads::{Owner, Store, Verdict};

use crate::told::{Bench, Step, Teller, plan};

fn owner(server: &Memory, namespace: &str) -> Owner {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(server.owner(namespace)).unwrap()
}

/// The price of TLS on one's own server has two addresses of it, and so have engines side by side: what one keeps there for its
/// next trial is not the other's to remove.
#[test]
fn two_addresses_of_one_server_have_a_namespace_each() {
    let store = Teller::new("served");
    let server = store.serve(Faults::default());
    let records = [("records".to_owned(), 20.into()), ("mix".to_owned(), "a".into())];
    let usual = plan(3);
    let plan = Plan { workload: "records".to_owned(), parameters: records.into(), ..usual };
    let bench = Bench::new();
    let targets = || vec![store.at("127.0.0.1"), store.at("localhost")];
    let run = |begun| bench.run(&plan, targets(), begun, &mut Silent, &Interrupt::default());
    let Finished { mut result, failure } = run(None).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    let mut namespaces = Vec::new();
    for cell in &result.cells {
        assert_eq!((cell.error.as_deref(), cell.trials.len(), cell.verdict()), (None, 3, Verdict::Holds));
        assert_eq!(cell.trials.iter().filter(|trial| trial.data.left_by.is_some()).count(), 2, "it was kept");
        namespaces.push(cell.effective.as_ref().unwrap().settings.get("namespace").map(String::as_str));
    }
    namespaces.sort_unstable();
    assert_eq!(namespaces, [None, Some("acidtest_2")], "the usual name is not told");
    for name in ["acidtest", "acidtest_2"] {
        assert_eq!(owner(&server, name), Owner::Nobody, "{name}");
    }
    assert!(bench.lab().namespaces().unwrap().is_empty());
    // a run that was killed has left both, and goes on
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (name, mark) in [("acidtest", "run-1.2"), ("acidtest_2", "run-1")] {
        runtime.block_on(server.create(name, mark)).unwrap();
    }
    result.cells.iter_mut().for_each(|cell| drop(cell.trials.pop()));
    let Finished { result, failure } = run(Some(result)).unwrap();
    assert!(failure.is_none(), "{failure:?}");
    assert!(result.cells.iter().all(|cell| cell.error.is_none() && cell.trials.len() == 3));
    assert_eq!([owner(&server, "acidtest"), owner(&server, "acidtest_2")], [Owner::Nobody, Owner::Nobody]);
}

/// What another run has left under the second name is no more the run's than what it has left under the first.
#[test]
fn a_second_namespace_is_refused_as_the_first_is() {
    let store = Teller::new("served");
    let server = store.serve(Faults::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(server.create("acidtest_2", "run-0")).unwrap();
    let targets = || vec![store.at("127.0.0.1"), store.at("localhost")];
    let run = |plan: &Plan| Bench::new().run(plan, targets(), None, &mut Silent, &Interrupt::default());
    let errors = |finished: Result<Finished, Failure>| -> Vec<String> {
        finished.unwrap().result.cells.into_iter().filter_map(|cell| cell.error).collect()
    };
    let said = errors(run(&plan(1)));
    assert!(
        matches!(&said[..], [one] if one.contains("namespace \"acidtest_2\" exists already")),
        "{said:?}"
    );
    assert_eq!(owner(&server, "acidtest_2"), Owner::Run("run-0".to_owned()));
    assert!(errors(run(&Plan { replace: true, ..plan(1) })).is_empty());
    // a user who may not make it is told why it is needed
    store.told.fail(Step::Create, store.told.taken(Step::Create) + 2);
    let said = errors(run(&plan(1)));
    let needed = "on the same server, and has \"acidtest\" there, so that this one needs \"acidtest_2\"";
    assert!(matches!(&said[..], [one] if one.contains(needed)), "{said:?}");
}
