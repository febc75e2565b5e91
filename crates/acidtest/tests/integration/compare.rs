//! `acidtest compare` and `acidtest report`, on results of real runs.

use std::{fs, path::Path};

use crate::common::{Bench, break_and_interrupt};
use serde_json::Value;

/// Two cells of two trials.
fn measured(bench: &Bench) -> String {
    let words = ["run", "inventory", "--lock", "soft,native", "--trials", "2", "--ops", "300"];
    let words =
        [&words[..], &["--warmup", "100ms", "--clients", "2", "--out", "result.json", "--quiet"]].concat();
    bench.run(&words).expect(0);
    quieten(&bench.path("result.json"));
    "result.json".to_owned()
}

/// Takes out of a result what other programs used of the machine meanwhile, beside which nothing is shown.
fn quieten(file: &Path) {
    let mut result: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    for cell in result["cells"].as_array_mut().unwrap() {
        for trial in cell["trials"].as_array_mut().unwrap() {
            trial["resources"]["machine"]["cpu_mean"] = Value::from(0.0);
        }
    }
    fs::write(file, result.to_string()).unwrap();
}

/// The same result as that of another run.
fn copied(bench: &Bench, file: &str, to: &str) {
    let mut again: Value = serde_json::from_str(&fs::read_to_string(bench.path(file)).unwrap()).unwrap();
    again["run"] = Value::from(to);
    fs::write(bench.path(to), again.to_string()).unwrap();
}

#[test]
fn a_gate_passes_fails_and_says_so_in_its_status() {
    let bench = Bench::new();
    let file = measured(&bench);
    let cells = ["compare", &file, "--a", "lock=soft", "--b", "lock=native"];
    let shown = bench.run(&cells).expect(0);
    for part in
        ["A sqlite soft (holds) → B sqlite native (holds)", "together", "capture", "p99.9", "client CPU/op"]
    {
        assert!(shown.stdout.contains(part), "{part}:\n{}", shown.stdout);
    }
    let gate = |condition: &str, code| {
        bench.run(&[&cells[..], &["--fail-if", condition, "--output", "json"]].concat()).expect(code)
    };
    gate("throughput<0.000000001", 0);
    let failed = gate("throughput>0.000000001", 6);
    let json = failed.json();
    assert_eq!((&json["outcome"], &json["judged"][0]["ruling"]), (&"failed".into(), &"shown".into()));
    // of an operation that no client tried nothing is known
    assert_eq!(gate("delete:p99>2", 7).json()["outcome"], "inconclusive");
}

#[test]
fn what_cannot_be_compared_is_bad_usage() {
    let bench = Bench::new();
    let file = measured(&bench);
    for (words, parts) in [
        (&["compare", &file][..], &["--a lock=", "--b lock="][..]),
        (&["compare", &file, "--a", "lokc=soft"], &["did you mean \"lock\"?"]),
        (&["compare", &file, "--a", "lock=hard"], &["no cell has lock=hard", "soft, native"]),
        (&["compare", &file, "--a", "lock"], &["NAME=VALUE"]),
        (&["compare", &file, "--fail-if", "speed<1"], &["unknown figure", "throughput"]),
        (&["compare", &file, "--between-runs", "3"], &["3.5%"]),
        (&["compare", "nowhere.json"], &["nowhere.json"]),
    ] {
        let ended = bench.run(words).expect(2);
        for part in parts {
            assert!(ended.stderr.contains(part), "{words:?} {part}:\n{}", ended.stderr);
        }
    }
}

#[test]
fn one_run_a_side_is_inconclusive_and_several_rule() {
    let bench = Bench::new();
    let file = measured(&bench);
    for folder in ["a", "b"] {
        fs::create_dir(bench.path(folder)).unwrap();
        for number in 1..4 {
            copied(&bench, &file, &format!("{folder}/{number}.json"));
        }
    }
    let gate = ["--fail-if", "throughput<0.99"];
    let single = bench.run(&[&["compare", "a/1.json", "b/1.json"][..], &gate].concat()).expect(7);
    for part in ["two runs of the same plan differ by more", "×1.00", "one run a side", "--run"] {
        assert!(single.stdout.contains(part), "{part}:\n{}", single.stdout);
    }
    let several = bench.run(&[&["compare", "a", "b"][..], &gate].concat()).expect(0);
    assert!(
        several.stdout.contains("3 and 3 runs") && several.stdout.contains("excluded"),
        "{}",
        several.stdout
    );
    let twice = bench.run(&["compare", "a", "a/1.json"]).expect(2);
    assert!(twice.stderr.contains("are the same run"), "{}", twice.stderr);
    let idle = bench.run(&["compare", "a", "b", "--between-runs", "3%"]).expect(2);
    assert!(idle.stderr.contains("only with one run a side"), "{}", idle.stderr);
    fs::create_dir(bench.path("empty")).unwrap();
    let empty = bench.run(&["compare", "empty", "b"]).expect(2);
    assert!(empty.stderr.contains("there is no result in empty"), "{}", empty.stderr);
}

/// Plans of the same cells but for the lock mode.
fn plans(bench: &Bench) {
    for (name, lock) in [("A.toml", "soft"), ("B.toml", "native")] {
        let words = ["run", "inventory", "--lock", lock, "--ops", "200", "--warmup", "0s", "--clients", "2"];
        bench.run(&[&words[..], &["--save-plan", name]].concat()).expect(0);
    }
}

const TURNS: [&str; 9] =
    ["compare", "--run", "A.toml", "B.toml", "--out", "turns", "--a", "lock=soft", "--b=lock=native"];

#[test]
fn two_plans_are_run_in_turn_and_gone_on_with() {
    let bench = Bench::new();
    plans(&bench);
    let rounds = |count: &str| bench.run(&[&TURNS[..], &["--rounds", count]].concat());
    // other programs may disturb them, and they may differ: they are not judged here
    let made = rounds("2").expect(0);
    assert!(made.stderr.contains("4 runs") && made.stderr.contains("round 2 of 2, B"), "{}", made.stderr);
    assert!(made.stdout.contains("2 pairs of runs that took turns"), "{}", made.stdout);
    let run = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(bench.path(file)).unwrap()).unwrap()
    };
    let started = |file: &str| run(file)["started"].as_str().unwrap().to_owned();
    let order =
        ["turns/a/round-1.json", "turns/b/round-1.json", "turns/b/round-2.json", "turns/a/round-2.json"];
    assert!(order.map(started).is_sorted(), "{:?}", order.map(started));
    let kept = order.map(run);
    // as if it had been interrupted in the second round
    fs::remove_file(bench.path("turns/a/round-2.json")).unwrap();
    let rest = rounds("2").expect(0);
    assert!(rest.stderr.starts_with("1 run\n") && !rest.stderr.contains("round 1"), "{}", rest.stderr);
    assert_eq!(order[..3].iter().map(|file| run(file)).collect::<Vec<_>>(), kept[..3]);
    // a run that broke a promise before it was interrupted has broken it, whatever the rest of it proves
    let file = bench.path("turns/b/round-2.json");
    let mut cut = run("turns/b/round-2.json");
    break_and_interrupt(&mut cut);
    fs::write(&file, cut.to_string()).unwrap();
    for left in ["1 run\n", "0 runs"] {
        let broken = rounds("2").expect(6);
        assert!(broken.stderr.starts_with(left), "{}", broken.stderr);
        assert!(broken.stdout.contains("B's verdict is broken"), "{}", broken.stdout);
    }
    fs::write(&file, kept[2].to_string()).unwrap();
    // a gate on such results, as if the second round had been like the first: whatever disturbed one of them blurs no ratio
    for side in ["turns/a", "turns/b"] {
        let [first, second] = [1, 2].map(|round| format!("{side}/round-{round}.json"));
        quieten(&bench.path(&first));
        copied(&bench, &first, &second);
    }
    let again = ["compare", "turns/a", "turns/b", "--a", "lock=soft", "--b", "lock=native"];
    bench.run(&[&again[..], &["--fail-if", "throughput<0.000000001"]].concat()).expect(0);
    bench.run(&[&again[..], &["--fail-if", "throughput>0.000000001"]].concat()).expect(6);
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
}

#[test]
fn what_cannot_be_run_in_turn_is_refused_before_it_is_run() {
    let bench = Bench::new();
    plans(&bench);
    fs::create_dir_all(bench.path("turns/b")).unwrap();
    let file = measured(&bench);
    fs::copy(bench.path(&file), bench.path("turns/b/round-2.json")).unwrap();
    let other = bench.run(&TURNS).expect(2);
    assert!(other.stderr.contains("another plan than B.toml"), "{}", other.stderr);
    let results = bench.run(&["compare", "--run", &file, "B.toml"]).expect(2);
    assert!(results.stderr.contains("takes two plan files"), "{}", results.stderr);
    bench.run(&["compare", "--run", "A.toml"]).expect(2);
    for (word, store, said) in
        [("inventory", "redis", "no store is in both"), ("join", "sqlite", "nothing to compare")]
    {
        bench.run(&["run", word, "--store", store, "--ops", "200", "--save-plan", "C.toml"]).expect(0);
        let unlike = bench.run(&["compare", "--run", "A.toml", "C.toml", "--out", "turns/c"]).expect(2);
        assert!(unlike.stderr.contains(said) && !bench.path("turns/c").exists(), "{}", unlike.stderr);
    }
    bench.run(&["compare", "--rounds", "3", &file]).expect(2);
    assert!(!bench.path("turns/a").exists());
}

#[test]
fn a_report_is_a_page_markdown_or_csv() {
    let bench = Bench::new();
    let file = measured(&bench);
    bench.run(&["report", &file]).expect(0);
    let page = fs::read_to_string(bench.path("result.html")).unwrap();
    assert!(
        page.starts_with("<!DOCTYPE html>")
            && page.contains("inventory on SQLite")
            && page.contains("result.json")
    );
    assert!(!page.contains(&bench.path("").display().to_string()), "a folder of this machine is on the page");
    let markdown = bench.run(&["report", &file, "--markdown"]).expect(0).stdout;
    assert!(markdown.starts_with("### inventory") && markdown.contains("| sqlite | soft |"), "{markdown}");
    let csv = bench.run(&["report", &file, "--csv", "-"]).expect(0).stdout;
    // a header; two cells of two trials: each as a whole, capture and release
    assert_eq!(csv.lines().count(), 1 + 2 * 2 * 3, "{csv}");
    bench.run(&["report", &file, "--csv", "out.csv"]).expect(0);
    assert_eq!(fs::read_to_string(bench.path("out.csv")).unwrap(), csv);
    bench.run(&["report", &file, "--csv", "-", "--markdown"]).expect(2);
    bench.run(&["report", "nowhere.json"]).expect(2);
    bench.run(&["report", &file, "--html", "no/such/folder.html"]).expect(1);
    // a result that was meant to be shown is not written over
    let before = fs::read(bench.path(&file)).unwrap();
    let ended = bench.run(&["report", "--html", &file, &file]).expect(2);
    assert!(ended.stderr.contains("would overwrite a result"), "{}", ended.stderr);
    fs::copy(bench.path(&file), bench.path("plain")).unwrap();
    bench.run(&["report", "plain", "--csv", "./plain"]).expect(2);
    for file in [&file, "plain"] {
        assert_eq!(fs::read(bench.path(file)).unwrap(), before);
    }
}
