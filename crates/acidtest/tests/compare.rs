//! `acidtest compare` and `acidtest report`, on results of real runs.

#![allow(clippy::unwrap_used)] // a test's own set-up may panic

mod common;

use std::{fs, path::Path};

use common::Bench;
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
    for part in ["two runs of the same differ by more", "×1.00", "one run a side", "--between-runs"] {
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
    assert!(idle.stderr.contains("only where there is one run a side"), "{}", idle.stderr);
    fs::create_dir(bench.path("empty")).unwrap();
    let empty = bench.run(&["compare", "empty", "b"]).expect(2);
    assert!(empty.stderr.contains("there is no result in empty"), "{}", empty.stderr);
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
    assert!(ended.stderr.contains("would write over a result"), "{}", ended.stderr);
    fs::copy(bench.path(&file), bench.path("plain")).unwrap();
    bench.run(&["report", "plain", "--csv", "./plain"]).expect(2);
    for file in [&file, "plain"] {
        assert_eq!(fs::read(bench.path(file)).unwrap(), before);
    }
}
