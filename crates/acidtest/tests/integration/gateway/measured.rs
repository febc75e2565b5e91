//! A run of the workload logs against a gateway that runs already.

use std::process::Stdio;

use serde_json::Value;

use super::{
    LINES,
    database::{count, entries, order},
    running::{Gateway, Sink, entry},
};
use crate::common::{Bench, CommandResult, wait};

/// Runs it against this gateway, which stores in this database.
fn measure(bench: &Bench, gateway: &Gateway, sink: &Sink, words: &[&str]) -> (CommandResult, Value) {
    let (store, url) = (sink.text(), format!("http://{}", gateway.address));
    // the private PostgreSQL has a user of the usual namespace's name, whose schema it would be
    let load = ["--clients", "20", "--entries", "10", "--ramp", "500ms", "--namespace", "measured"];
    let mut command = bench.command(&["run", "logs", "--store", &store, "--gateway", &url]);
    command.args(load).args(words).env("ACIDTEST_TOKEN", &gateway.token);
    let ended = wait(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let result = bench.result();
    (ended, result)
}

fn audit(result: &Value, trial: usize) -> &Value {
    &result["cells"][0]["trials"][trial]["audit"]
}

#[test]
fn a_run_uses_a_gateway_that_runs_already() {
    is_used(["sqlite", "postgres"]);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::is_used;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn a_run_uses_a_gateway_to_every_database() {
        is_used(["mariadb", "mysql"]);
    }
}

/// What a run sends is stored beside what others have sent, is audited, and is removed at the end; what others have stays.
/// A second trial and a second run are not taken for repeats of the first.
fn is_used(sinks: impl IntoIterator<Item = &'static str>) {
    for sink in sinks.into_iter().filter_map(Sink::share) {
        let name = sink.name;
        let gateway = Gateway::start(&["--sink", &sink.text()]);
        let mut http = gateway.http();
        // what looks like an entry of a run, and is none of this one
        for id in ["ours", "0-0", "20261124T000000Z-1-1-0-0"] {
            http.post(&gateway.token, LINES, &entry(id, "ours")).unwrap().expect(202);
        }
        let bench = Bench::new();
        for words in [&["--trials", "2"][..], &["--processes", "2"]] {
            let (ended, result) = measure(&bench, &gateway, &sink, words);
            ended.expect(0);
            for trial in 0..result["cells"][0]["trials"].as_array().unwrap().len() {
                let audit = audit(&result, trial);
                assert_eq!(audit["verdict"], "holds", "{name}: {audit:#}");
                assert_eq!(audit["evidence"]["saved"], 200, "{name}: {audit:#}");
                assert!(audit["evidence"].get("suppressed").is_none(), "{name}: {audit:#}");
            }
            assert_eq!(result["cells"][0]["effective"]["durability"], "disk", "{name}");
        }
        let mut left: Vec<String> = entries(&sink.address()).into_iter().map(|row| row.id).collect();
        left.sort();
        assert_eq!(left, ["0-0", "20261124T000000Z-1-1-0-0", "ours"], "{name}");
        bench.assert_clean();
    }
}

/// A gateway that keeps entries in its memory says so, and what its database does to entries is found.
#[test]
fn a_gateway_that_runs_already_is_judged_by_what_it_is() {
    let sink = Sink::start("sqlite");
    let gateway = Gateway::start(&["--sink", &sink.text(), "--queue", "memory"]);
    let bench = Bench::new();
    let (ended, result) = measure(&bench, &gateway, &sink, &[]);
    ended.expect(0);
    assert_eq!(result["cells"][0]["effective"]["durability"], "none", "{result:#}");
    order(
        &sink.address(),
        "CREATE TRIGGER planted AFTER INSERT ON acidtest_logs WHEN new.id LIKE '%-3'
         BEGIN UPDATE acidtest_logs SET logged_at = logged_at + 1 WHERE id = new.id; END",
    );
    let (ended, result) = measure(&bench, &gateway, &sink, &[]);
    ended.expect(4);
    let torn = audit(&result, 0)["findings"].as_array().unwrap().iter().find(|each| each["name"] == "torn");
    assert_eq!(torn.unwrap()["count"], 20, "{result:#}");
    bench.assert_clean();
}

/// Before the clients come it is seen that they are let in, and that the gateway stores where the audit looks.
#[test]
fn a_wrong_token_or_table_is_found_before_the_clients_come() {
    let sink = Sink::start("sqlite");
    let gateway = Gateway::start(&["--sink", &sink.text()]);
    let bench = Bench::new();
    let run = |token: &str, table: &str| {
        let (store, url) = (sink.text(), format!("http://{}", gateway.address));
        let words = ["run", "logs", "--store", &store, "--gateway", &url, "--table", table, "--ramp", "1h"];
        let mut command = bench.command(&words);
        command.env("ACIDTEST_TOKEN", token).stdout(Stdio::piped()).stderr(Stdio::piped());
        wait(command.spawn().unwrap()).expect(3).stderr
    };
    let denied = run("nobody", "acidtest_logs");
    assert!(
        denied.contains("HTTP 401: the token is invalid") && denied.contains("ACIDTEST_TOKEN"),
        "{denied}"
    );
    let missing = run(&gateway.token, "others");
    assert!(
        missing.contains("no such table: others") && missing.contains("--store and --table"),
        "{missing}"
    );
    // nothing was sent
    assert_eq!(count(&sink.address()), 0);
    bench.assert_clean();
}

#[test]
fn what_a_running_gateway_needs_is_said() {
    let bench = Bench::new();
    let url = "http://127.0.0.1:1731";
    let theirs = ["--gateway", url, "--store", "sqlite:a", "--table"];
    let in_namespace = [&theirs[..], &["acidtest_logs_2026"]].concat();
    let in_schema = [&theirs[..], &["other.logs"]].concat();
    let with_password = ["--gateway", "http://ann:secret@a", "--store", "sqlite:a"];
    let cases: [(&[&str], &str); 10] = [
        (&in_namespace, "in the run's namespace acidtest"),
        (&in_schema, "sqlite has no schemas"),
        (&with_password, "http://HOST:PORT"),
        (&["--gateway", url], "stores in a database of your own"),
        (&["--gateway", url, "--store", "sqlite:a"], "ACIDTEST_TOKEN"),
        (
            &["--gateway", url, "--store", "sqlite:a", "--queue", "memory"],
            "has the settings that it was started with",
        ),
        (
            &["--gateway", url, "--store", "sqlite:a", "--fault", "kill:gateway@1s"],
            "unless --gateway names another",
        ),
        (&["--gateway", "https://a/logs", "--store", "sqlite:a"], "https://HOST:PORT"),
        (&["--gateway", "https://a", "--store", "sqlite:a", "--tls", "on"], "--tls has no effect"),
        (&["--table", "a"], "a gateway that the run starts has its own table"),
    ];
    for (words, said) in cases {
        let mut command = bench.command(&[&["run", "logs"], words].concat());
        command.env_remove("ACIDTEST_TOKEN").stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = wait(command.spawn().unwrap()).expect(2);
        assert!(ended.stderr.contains(said), "{words:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    }
}
