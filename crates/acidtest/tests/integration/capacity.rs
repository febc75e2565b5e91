//! Searches for a capacity end to end. How near they come is tested in virtual time, in the crate of the search.

use std::{fs, thread, time::Duration};

use crate::common::{Bench, signal, until, wait, wanted};
use serde_json::Value;

/// A search that is as short as one can be: what it finds is noise, how it ends is not. Nothing is synced, so that a probe has
/// operations enough to be judged by, however busy the machine is.
const SHORT: [&str; 12] = [
    "--shared-machine",
    "--durability",
    "process",
    "--hold",
    "200ms",
    "--warmup",
    "50ms",
    "--probes",
    "10",
    "--within",
    "50%",
    "--out",
];

fn short<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &SHORT, &["r.json"]].concat()
}

fn result(bench: &Bench) -> Value {
    serde_json::from_str(&fs::read_to_string(bench.path("r.json")).unwrap()).unwrap()
}

/// Objectives that every rate of a short search meets, as far as the store carries it at all.
const EASY: [&str; 2] = ["--slo", "p50<30s"];

/// The whole way: the estimate of its time, the search, what was found in every format, and that it is complete.
#[test]
fn a_search_says_what_it_found_in_every_format() {
    let bench = Bench::new();
    let words = [
        "capacity",
        "inventory",
        "--slo",
        "p90<100ms",
        "--slo",
        "errors<50%",
        "--demand",
        "1/s",
        "--growth",
        "3%/month",
    ];
    let ended = bench.run(&short(&words));
    assert!(
        ended.stderr.contains("1 search of 10m at most (--budget), with probes of 200ms after 50ms warm-up"),
        "{}",
        ended.stderr
    );
    let found = result(&bench)["cells"][0]["capacity"].clone();
    let has_one = found["carried"].is_f64();
    assert_eq!(ended.code, Some(if has_one { 0 } else { 7 }), "{}{}", ended.stdout, ended.stderr);
    let said = if has_one { "sqlite native carries" } else { "has no known capacity" };
    for word in
        [said, "stopped by", "capture p99", "errors", "client CPU", "capacity: the open-loop rate at which"]
    {
        assert!(ended.stdout.contains(word), "no \"{word}\" in {}", ended.stdout);
    }
    if has_one {
        assert!(found["headroom"]["times"].as_f64().unwrap() > 1.0, "{found}");
        assert!(ended.stdout.contains("days and dates: computed, not measured."), "{}", ended.stdout);
    }
    assert_eq!(found["finished"], true);
    let rates = found["curve"].as_array().unwrap();
    assert!(!rates.is_empty() && rates.iter().all(|rate| rate["times"]["capture"].is_object()), "{found}");
    let shown = bench.run(&["show", "r.json"]).expect(0);
    assert_eq!(shown.stdout, ended.stdout);
    assert!(bench.run(&["report", "r.json", "--markdown"]).expect(0).stdout.contains("| stopped by |"));
    bench.run(&["report", "r.json"]).expect(0);
    assert!(fs::read_to_string(bench.path("r.html")).unwrap().contains("Latency over rate"));
    assert!(bench.run(&["report", "r.json", "--csv", "-"]).expect(0).stdout.contains("offered_per_second"));
    let compared = bench.run(&["compare", "r.json", "r.json"]).expect(2).stderr;
    assert!(compared.contains("is a search for a capacity"), "{compared}");
    let again = bench.run(&["capacity", "--resume", "r.json"]);
    assert!(again.stderr.contains("the run is complete") && again.code == ended.code, "{}", again.stderr);
    bench.assert_clean();
}

#[test]
fn an_objective_that_no_rate_meets_tells_the_best_seen() {
    let bench = Bench::new();
    let words = [
        "capacity",
        "inventory",
        "--slo",
        "max<1ns",
        "--shared-machine",
        "--hold",
        "200ms",
        "--warmup",
        "50ms",
        "--out",
        "r.json",
    ];
    let ended = bench.run(&words).expect(6);
    assert!(ended.stdout.contains("no rate meets max<1ns; the best seen was"), "{}", ended.stdout);
    let found = &result(&bench)["cells"][0]["capacity"];
    assert_eq!((&found["carried"], &found["limit"]["what"]), (&Value::Null, &"no_rate".into()), "{found}");
    bench.assert_clean();
}

/// A search that was interrupted goes on with the probe that it was at, and keeps those that it had.
#[test]
fn a_search_that_was_interrupted_goes_on() {
    let bench = Bench::new();
    let child = bench.spawn(&short(&[&["capacity", "inventory"], &EASY[..]].concat()));
    let pid = child.id();
    until("the first probe is written", || bench.path("r.json").exists());
    signal("INT", pid);
    wait(child);
    let cut = result(&bench);
    let trials = |result: &Value| result["cells"][0]["trials"].as_array().unwrap().clone();
    // a quick machine may have ended it before
    if cut["interrupted"] == true {
        let gone_on = bench.run(&["capacity", "--resume", "r.json"]);
        assert!([Some(0), Some(7)].contains(&gone_on.code), "{}{}", gone_on.stdout, gone_on.stderr);
    }
    let done = result(&bench);
    let whole: Vec<Value> = trials(&cut).into_iter().filter(|trial| trial["stopped"].is_null()).collect();
    assert_eq!(trials(&done)[..whole.len()], whole[..], "what was measured is kept");
    let rounds: Vec<u64> = trials(&done).iter().map(|trial| trial["round"].as_u64().unwrap()).collect();
    assert!(rounds.is_sorted_by(|one, next| one < next) && rounds.len() > 5, "{rounds:?}");
    assert_eq!(
        (&done["interrupted"], &done["cells"][0]["capacity"]["finished"]),
        (&false.into(), &true.into())
    );
    bench.assert_clean();
}

/// A budget that was too small is raised, and what was probed counts.
#[test]
fn a_search_goes_on_with_more_probes() {
    let bench = Bench::new();
    let few = bench.run(&short(&[&["capacity", "inventory"], &EASY[..]].concat())).expect(7);
    assert!(few.stderr.contains("the budget allows 10 probes"), "{}", few.stderr);
    assert!(few.stdout.contains("--resume with a larger --budget continues it"), "{}", few.stdout);
    let before = result(&bench);
    let less = bench.run(&["capacity", "--resume", "r.json", "--budget", "9m"]).expect(2).stderr;
    assert!(less.contains("may be given a larger --budget or more --probes"), "{less}");
    bench.run(&["capacity", "--resume", "r.json", "--probes", "13"]).expect(7);
    let after = result(&bench);
    let trials = |result: &Value| result["cells"][0]["trials"].as_array().unwrap().clone();
    // the first one has no rate, and is no probe
    assert_eq!((trials(&before).len(), trials(&after).len()), (11, 14));
    assert_eq!(trials(&after)[..11], trials(&before)[..]);
    assert_eq!(after["plan"]["capacity"]["probes"], 13);
    bench.assert_clean();
}

/// A store that dies half way through: the probes before that are kept and shown.
#[test]
fn of_a_store_that_dies_half_way_what_is_known_is_kept() {
    if !wanted("redis") {
        return;
    }
    let (theirs, bench) = (Bench::new(), Bench::new());
    let address = theirs.run(&["lab", "up", "redis"]).expect(0).stdout.trim().to_owned();
    let words = [
        "capacity",
        "inventory",
        "--store",
        &address,
        "--hold",
        "500ms",
        "--warmup",
        "50ms",
        "--out",
        "r.json",
    ];
    let child = bench.spawn(&[&words[..], &EASY].concat());
    until("the first probe is written", || bench.path("r.json").exists());
    thread::sleep(Duration::from_secs(2));
    theirs.run(&["lab", "down"]).expect(0);
    let ended = wait(child);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let found = result(&bench)["cells"][0]["capacity"].clone();
    assert!(found["probes"].as_u64().unwrap() >= 1 && found["limit"]["what"] == "gone", "{found}");
    // it died during a probe, or between two
    let said = ["the store was lost", "could not be made: "];
    assert!(said.iter().any(|words| ended.stdout.contains(words)), "{}", ended.stdout);
    bench.run(&["lab", "down", "--forget"]);
    theirs.assert_clean();
}

#[test]
fn bad_objectives_and_options_without_effect_are_refused() {
    let bench = Bench::new();
    let cases: [(&[&str], &[&str]); 15] = [
        (&["--slo", "p99<20mz"], &["\"mz\" is not its unit", "p99<20mz\n", "^^", "remedy: it is a time"]),
        (&["--slo", "eror<1%"], &["did you mean \"errors\"?"]),
        (&["--slo", "captur:p99<1s"], &["did you mean \"capture\"?", "capture, release"]),
        (&["--slo", "p99<1s,p99<1s"], &["p99<1s is given twice"]),
        (&["--growth", "3%/month"], &["--growth has no effect here", "--demand"]),
        (&["--demand", "350M"], &["is not a rate"]),
        (&["--demand", "900G/s"], &["more than this bench can offer", "remedy"]),
        (&["--rate", "100"], &["--rate has no effect here", "chooses its rates"]),
        (&["--trials", "3"], &["--trials has no effect here"]),
        (&["--ops", "100"], &["--ops has no effect here"]),
        (&["--trace"], &["has no effect here"]),
        (&["--fault", "kill@3s"], &["--fault has no effect here"]),
        (&["--probes", "3"], &["--probes must be between 8 and 1,000"]),
        (&["--budget", "0s"], &["--budget must be between 1s and 7 days"]),
        (&["--hold", "0s"], &["--hold must not be empty or zero"]),
    ];
    for (more, expected) in cases {
        let said = bench.run(&[&["capacity", "inventory"], more].concat()).expect(2).stderr;
        for word in expected {
            assert!(said.contains(word), "{more:?}: no \"{word}\" in {said}");
        }
    }
    let logs = bench.run(&["capacity", "logs"]).expect(2).stderr;
    assert!(logs.contains("`capacity` does not support logs"), "{logs}");
    let consume = bench
        .run(&["capacity", "queue", "--store", "sqlite", "--phase", "consume", "--backlog", "9"])
        .expect(2);
    assert!(consume.stderr.contains("--phase consume"), "{}", consume.stderr);
    assert!(bench.results().is_empty());
    bench.assert_clean();
}

/// A plan file has what is searched for, and `run` takes it, too.
#[test]
fn a_plan_file_keeps_a_search() {
    let bench = Bench::new();
    bench
        .run(&[
            "capacity",
            "inventory",
            "--slo",
            "max<1ns",
            "--hold",
            "100ms",
            "--warmup",
            "0s",
            "--shared-machine",
            "--save-plan",
            "p.toml",
        ])
        .expect(0);
    let text = fs::read_to_string(bench.path("p.toml")).unwrap();
    assert!(text.contains("[capacity]") && text.contains("slo = [\"max<1ns\"]"), "{text}");
    let ended = bench.run(&["run", "p.toml"]).expect(6);
    assert!(ended.stdout.contains("no rate meets max<1ns"), "{}", ended.stdout);
    bench.assert_clean();
}
