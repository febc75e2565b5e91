//! Runs on servers of the user's own: several addresses of one, and faults that the user's commands bring about.

use std::{sync::Arc, time::Duration};

use acidtest_model::{Commands, Durability, Hosting, MemberId, Span, StoreKind};
use acidtest_results::{Plan, TrialResult};
use acidtest_runner::{Failure, FaultStage, Finished, Interrupt, Observer, Silent, remove_leftover};
use acidtest_store_memory::{Bug, Faults, KIND, Memory};
use acidtest_testbed::with_more_time;
use acidtest_workloads::{DURABILITY, Identity, Owner, Store, Verdict, guarantee::LOCK};

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

/// What another run has left under the second name stays, also where the first is to be replaced: nobody has asked for that name.
#[test]
fn a_second_namespace_takes_no_name_that_another_run_has() {
    let store = Teller::new("served");
    let server = store.serve(Faults::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(server.create("acidtest_2", "run-0")).unwrap();
    let targets = || vec![store.at("127.0.0.1"), store.at("localhost")];
    let run = |plan: &Plan| Bench::new().run(plan, targets(), None, &mut Silent, &Interrupt::default());
    let errors = |finished: Result<Finished, Failure>| -> Vec<String> {
        finished.unwrap().result.cells.into_iter().filter_map(|cell| cell.error).collect()
    };
    for replace in [false, true] {
        assert!(errors(run(&Plan { replace, ..plan(1) })).is_empty());
        assert_eq!(owner(&server, "acidtest_2"), Owner::Run("run-0".to_owned()));
        assert_eq!(
            [owner(&server, "acidtest"), owner(&server, "acidtest_3")],
            [Owner::Nobody, Owner::Nobody]
        );
    }
    // a user who may not make it is told why it is needed
    store.told.fail(Step::Create, store.told.taken(Step::Create) + 2);
    let said = errors(run(&plan(1)));
    let needed = "on the same server and uses \"acidtest\" there, so this one needs \"acidtest_3\"";
    assert!(matches!(&said[..], [one] if one.contains(needed)), "{said:?}");
}

/// A server that drops writes from a fault on, in this life and with these data.
struct Struck {
    store: &'static Teller,
    server: Arc<Memory>,
    then: Option<Identity>,
}

impl Observer for Struck {
    fn fault(&mut self, _: &str, _: MemberId, stage: FaultStage, _: Duration) {
        if let (FaultStage::Begun, Some(then)) = (stage, self.then.take()) {
            *self.store.told.identity.lock().unwrap() = Some(then);
            self.server.plant(true);
        }
    }
}

fn identity(life: &str, data: &str) -> Identity {
    Identity { life: life.to_owned(), data: Some(data.to_owned()), is_exact: true }
}

/// A trial on a server of this level that is to be killed by a command; from then on it drops writes, in this life and with these
/// data. Returns it, and whether it breaks a promise.
fn killed_by_command(level: Durability, then: &Identity) -> (TrialResult, bool) {
    let kind = StoreKind { name: "served", schemes: &["served"], hosting: Hosting::Program, ..KIND };
    with_more_time(250, |millis| {
        let store = Teller::of(kind);
        let server = store.serve(Faults::bug(Bug::DropWrite));
        server.plant(false);
        *store.told.durability.lock().unwrap() = Some(level);
        *store.told.identity.lock().unwrap() = Some(identity("a", "x"));
        let plan = Plan {
            faults: vec!["kill@60ms".parse().unwrap()],
            commands: Commands {
                kill: Some("true".to_owned()),
                start: Some("true".to_owned()),
                ..Commands::default()
            },
            duration: Span(Duration::from_millis(millis)),
            ..plan(1)
        };
        let mut observer = Struck { store, server: Arc::clone(&server), then: Some(then.clone()) };
        let targets = vec![store.at("db.example")];
        let finished = Bench::new().run(&plan, targets, None, &mut observer, &Interrupt::default());
        let Finished { result, failure } = finished.unwrap();
        assert!(failure.is_none(), "{failure:?}");
        let [cell] = &result.cells[..] else { panic!("{result:?}") };
        let [trial] = &cell.trials[..] else { panic!("{cell:?}") };
        if server.strikes() == 0 {
            return Err(format!("no write was dropped: {trial:?}"));
        }
        Ok((trial.clone(), cell.breaks_promise()))
    })
}

fn found(trial: &TrialResult) -> Vec<&str> {
    let found = trial.audit.findings.iter().filter(|finding| finding.count > 0);
    found.map(|finding| finding.guarantee.as_str()).collect()
}

/// The server that answers after a kill is another one: what it has not is no loss of the first one's level.
#[test]
fn a_failover_that_was_asked_for_accuses_no_durability_level() {
    let (trial, is_broken) = killed_by_command(Durability::Disk, &identity("b", "y"));
    assert_eq!((trial.audit.verdict, is_broken), (Verdict::Unknown, false), "{}", trial.audit);
    assert!(trial.audit.to_string().contains("another server answered"), "{}", trial.audit);
    let [injected] = &trial.injections[..] else { panic!("{trial:?}") };
    assert!(injected.another_server && !injected.crash && trial.restarts.is_empty(), "{injected:?}");
    // one that serves the same data has lost what it has not
    let (trial, is_broken) = killed_by_command(Durability::Disk, &identity("b", "x"));
    assert!(trial.audit.verdict == Verdict::Broken && is_broken, "{}", trial.audit);
    assert!(found(&trial).iter().all(|guarantee| *guarantee == DURABILITY.name), "{}", trial.audit);
}

/// A kill that ends nothing explains nothing: what a lock has let through in the one life of the server breaks its promise,
/// whatever the level of durability is.
#[test]
fn a_kill_that_ends_nothing_excuses_no_lock() {
    let (trial, is_broken) = killed_by_command(Durability::None, &identity("a", "x"));
    assert!(trial.injections[0].same_life && trial.audit.verdict == Verdict::Broken, "{trial:?}");
    assert!(is_broken && found(&trial).contains(&LOCK.name), "{}", trial.audit);
    assert_eq!(trial.audit.promised, [DURABILITY.name]);
    // one that ends a life explains it, at a level that promises nothing of that
    let (trial, is_broken) = killed_by_command(Durability::None, &identity("b", "x"));
    assert!(trial.audit.verdict == Verdict::Broken && !is_broken, "{}", trial.audit);
    assert!(trial.audit.promised.is_empty());
}

/// Takes the run's mark away before its second trial.
struct Unmarking {
    store: &'static Teller,
    trials: u32,
}

impl Observer for Unmarking {
    fn begin(&mut self, _: &str) {
        self.trials += 1;
        *self.store.told.owner.lock().unwrap() = (self.trials == 2).then_some(Owner::Nobody);
    }
}

/// A mark that is missing on a server that went on shows that somebody has taken the namespace away, whatever is missing in the store
/// then. Where a server does not say whether it went on, a loss is in doubt.
#[test]
fn where_the_mark_is_missing_the_store_is_not_accused() {
    let run = |life: Option<Identity>| {
        let kind = StoreKind { name: "served", schemes: &["served"], hosting: Hosting::Program, ..KIND };
        let store = Teller::of(kind);
        store.serve(Faults::bug(Bug::DropWrite));
        *store.told.durability.lock().unwrap() = Some(Durability::Disk);
        *store.told.identity.lock().unwrap() = life;
        let (bench, targets) = (Bench::new(), vec![store.at("db.example")]);
        let mut observer = Unmarking { store, trials: 0 };
        let finished = bench.run(&plan(2), targets, None, &mut observer, &Interrupt::default());
        finished.unwrap().result.cells.remove(0)
    };
    let cell = run(Some(identity("a", "x")));
    assert_eq!((cell.trials.len(), cell.trials[0].audit.verdict), (1, Verdict::Broken), "{cell:?}");
    let said = cell.error.unwrap();
    assert!(said.contains("or its mark was removed by somebody else"), "{said}");
    let cell = run(None);
    assert_eq!((cell.trials.len(), &cell.error), (2, &None));
    let audit = &cell.trials[1].audit;
    assert_eq!(audit.verdict, Verdict::Unknown, "{audit}");
    assert!(audit.to_string().contains("the mark of the run's namespace is missing"), "{audit}");
}

/// A namespace that has lost its mark may be another run's: a policy of RabbitMQ drops marks. It is removed only where the lab knows
/// who made it.
#[test]
fn what_has_lost_its_mark_is_removed_only_where_it_was_noted() {
    let store = Teller::new("served");
    *store.told.owner.lock().unwrap() = Some(Owner::Empty);
    let target = store.at("db.example");
    let address = target.address.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for is_noted in [false, true] {
        let removed = runtime.block_on(remove_leftover(&target, &address, "acidtest", "run-1", is_noted));
        assert_eq!((removed.unwrap(), store.told.taken(Step::Remove)), (is_noted, u32::from(is_noted)));
    }
}
