//! `acidtest anomalies` on real stores: what it finds is what docs/anomalies.md says. `GOLDEN=write` writes it there.

use std::{env, fs, path::Path};

use crate::common::{Bench, wanted};
use serde_json::Value;

/// The page is written by one test at a time.
static PAGE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Holds that this table stands under the store's name in the page.
fn stands_in_the_page(store: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/anomalies.md");
    let _turn = PAGE.lock();
    let text = fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {store}: made by crates/acidtest/tests/integration/anomalies.rs -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the page has no {store}"));
    let (stands, after) = rest.split_once("<!-- end -->").unwrap();
    let made = format!("\n{table}\n");
    if env::var_os("GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, format!("{before}{begin}{made}<!-- end -->{after}")).unwrap();
    } else {
        let differs = stands.lines().zip(made.lines()).find(|(stands, made)| stands != made);
        assert!(stands == made, "{store}: the page says the first, and found is the second: {differs:#?}");
    }
}

/// The rows of the Markdown's first table.
fn table(markdown: &str) -> String {
    let lines = markdown.lines().skip_while(|line| !line.starts_with('|'));
    lines.take_while(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n") + "\n"
}

/// Tries all levels of a store, and holds what was found against the page. None where its server is left out of the tests.
fn is_as_the_page_says(store: &str) -> Option<Value> {
    if !["sqlite", "fjall"].contains(&store) && !wanted(store) {
        return None;
    }
    let bench = Bench::new();
    let words = ["anomalies", "--store", store, "--repeat", "1", "--markdown"];
    let found = bench.run(&words).expect(0);
    stands_in_the_page(store, &table(&found.stdout));
    let result = bench.result();
    for mode in result["stores"][0]["modes"].as_array().unwrap() {
        for cell in mode["cells"].as_array().unwrap() {
            assert_ne!(cell["outcome"], "unknown", "{cell:#}");
        }
    }
    bench.assert_clean();
    Some(result)
}

fn cell<'a>(result: &'a Value, mode: &str, anomaly: &str) -> &'a Value {
    let modes = result["stores"][0]["modes"].as_array().unwrap();
    let mode = modes.iter().find(|each| each["name"] == mode).unwrap();
    mode["cells"].as_array().unwrap().iter().find(|cell| cell["anomaly"] == anomaly).unwrap()
}

#[test]
fn postgres_is_as_the_page_says() {
    let Some(result) = is_as_the_page_says("postgres") else { return };
    let skew = cell(&result, "repeatable read", "G2-item");
    assert_eq!(skew["outcome"], "occurs");
    assert!(skew["values"].as_str().unwrap().contains("T2 read (1, 10) (2, 20)"), "{skew:#}");
    assert_eq!(result["stores"][0]["modes"][2]["told"], "repeatable read");
    let update = cell(&result, "repeatable read", "P4");
    assert_eq!(update["promise"]["source"], "PostgreSQL 15 documentation, 13.2.2 Repeatable Read");
    let steps = update["transcript"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["came"] == "waits"), "{steps:#?}");
    assert!(steps.iter().any(|step| step["came"].as_str().unwrap().contains("(40001)")), "{steps:#?}");
}

#[test]
fn mariadb_is_as_the_page_says() {
    is_as_the_page_says("mariadb");
}

#[test]
fn mysql_is_as_the_page_says() {
    is_as_the_page_says("mysql");
}

#[test]
fn sqlite_is_as_the_page_says() {
    is_as_the_page_says("sqlite");
}

#[test]
fn fjall_is_as_the_page_says() {
    is_as_the_page_says("fjall");
}

#[test]
fn redis_and_tarantool_are_as_the_page_says() {
    is_as_the_page_says("redis");
    is_as_the_page_says("tarantool");
}

/// A script of the user's own, on a server of the user's own, of which nothing is left.
#[test]
fn a_script_of_ones_own_runs_on_ones_own_server() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let address = bench.run(&["lab", "up", "postgres"]).expect(0).stdout.trim().to_owned();
    // `final` is the first table's; the second has other columns
    let script = "anomaly  overdraft\n\
                  table accounts (id int primary key, owner text, balance int check (balance >= 0))\n\
                  row (1, 'ann', 100)\nrow (2, 'ann', 100)\n\
                  table log (line text)\n\
                  T1 begin\nT2 begin\n\
                  T1 select sum(balance) from accounts where owner = 'ann' -> one\n\
                  T2 select sum(balance) from accounts where owner = 'ann' -> other\n\
                  T1 update accounts set balance = balance - 100 where id = 1\n\
                  T2 update accounts set balance = balance - 100 where id = 2\n\
                  T1 insert into log values ('accounts')\n\
                  T1 commit\nT2 commit\n\
                  order T1 T2 T1 T1 T1 T1 T2 T2 T2\n\
                  occurs if T1 commits and T2 commits and one is (200) and other is (200) and final log is (accounts)\n";
    fs::write(bench.path("mine.txt"), script).unwrap();
    let levels = "read-committed,repeatable-read,serializable";
    let words = [
        "anomalies",
        "--store",
        &address,
        "--isolation",
        levels,
        "--script",
        "mine.txt",
        "--show",
        "overdraft",
    ];
    let shown = bench.run(&words).expect(0).stdout;
    let result = bench.result();
    assert_eq!(cell(&result, "repeatable read", "overdraft")["outcome"], "occurs");
    let refused = cell(&result, "serializable", "overdraft");
    assert_eq!((&refused["outcome"], &refused["promise"]), (&"prevented".into(), &Value::Null));
    assert!(shown.contains("T2 read (200), log is (accounts) in the end"), "{shown}");
    assert!(shown.contains("T2  commit") && shown.contains("refused: could not serialize access"), "{shown}");
    // the namespace is gone: another run makes it anew
    bench
        .run(&["anomalies", "--store", &address, "--anomaly", "G1a", "--isolation", "serializable"])
        .expect(0);
    bench.run(&["lab", "down"]).expect(0);
    bench.assert_clean();
}

/// A statement with a mistake in it proves nothing, and says so.
#[test]
fn a_statement_that_fails_is_no_refusal() {
    let bench = Bench::new();
    let script =
        "anomaly mistake\ntable test (id int)\nT1 begin\nT1 selekt 1\nT1 commit\noccurs if T1 commits\n";
    fs::write(bench.path("mine.txt"), script).unwrap();
    let words = ["anomalies", "--store", "sqlite", "--isolation", "serializable", "--script", "mine.txt"];
    let shown = bench.run(&words).expect(0).stdout;
    assert!(shown.contains("? unknown") && shown.contains("near \"selekt\": syntax error"), "{shown}");
}

#[test]
fn what_cannot_be_run_is_refused_with_a_reason() {
    let bench = Bench::new();
    fs::write(bench.path("bad.txt"), "anomaly x\ntable test (id int)\nT1 begin\nupdate test set id = 1\n")
        .unwrap();
    for (words, said) in [
        (
            vec!["--store", "sqlite", "--isolation", "read-committed"],
            "sqlite has no isolation level read-committed: every transaction is serializable",
        ),
        (
            vec!["--store", "redis", "--isolation", "serializable"],
            "redis has no isolation level serializable",
        ),
        (vec!["--script", "bad.txt"], "bad.txt: line 4: \"update\" is neither a session"),
        (vec!["--script", "none.txt"], "cannot read the script none.txt"),
        (vec!["--anomaly", "G9"], "there is no anomaly \"G9\": known are G0, G1a"),
        (vec!["--print-script", "G9"], "there is no anomaly \"G9\""),
        (vec!["--namespace", "a b"], "--namespace \"a b\" is invalid"),
    ] {
        let ended = bench.run(&[&["anomalies"], words.as_slice()].concat()).expect(2);
        let stderr = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stderr.contains(said), "{words:?}: {stderr}");
    }
    assert!(bench.results().is_empty());
    // one that has no transactions costs its part, and the others are tried
    let words = ["anomalies", "--store", "memory,sqlite", "--anomaly", "P4", "--repeat", "1"];
    let printed = bench.run(&["anomalies", "--print-script", "p4"]).expect(0).stdout;
    assert!(printed.starts_with("anomaly  P4\n"), "{printed}");
    bench.run(&words).expect(0);
}

/// A result is shown again, and made a page; what is only of runs refuses it.
#[test]
fn a_result_is_shown_as_it_was_and_as_a_page() {
    let bench = Bench::new();
    let words =
        ["anomalies", "--store", "sqlite", "--anomaly", "P4,G2-item", "--repeat", "1", "--html", "a.html"];
    let shown = bench.run(&words).expect(0).stdout;
    let file = bench.results().pop().unwrap().display().to_string();
    assert_eq!(bench.run(&["show", &file]).expect(0).stdout, shown);
    bench.run(&["report", &file, "--html", "b.html"]).expect(0);
    let page = fs::read_to_string(bench.path("b.html")).unwrap();
    assert_eq!(page, fs::read_to_string(bench.path("a.html")).unwrap());
    assert!(page.contains("SQLITE_BUSY") && page.contains("Beside what is published"), "{page}");
    let schema = bench.run(&["schema", "anomalies"]).expect(0).json();
    assert!(jsonschema::is_valid(&schema, &bench.result()));
    for words in [
        vec!["compare", &file, "--a", "lock=none", "--b", "lock=native"],
        vec!["report", &file, "--csv", "-"],
        vec!["run", "--resume", &file],
    ] {
        let ended = bench.run(&words).expect(2);
        assert!(ended.stderr.contains("acidtest anomalies"), "{words:?}: {}", ended.stderr);
    }
}

/// What a level costs and allows under load stands on one page with what it allows step by step.
#[test]
fn both_instruments_make_one_report() {
    let bench = Bench::new();
    let words =
        ["run", "transactions", "--duration", "300ms", "--warmup", "0s", "--trials", "1", "--clients", "4"];
    let ran = bench.run(&words).expect(0);
    let held = "No anomaly that serializable rules out was found in ";
    assert!(ran.stdout.contains(held), "{}", ran.stdout);
    bench.run(&["anomalies", "--store", "sqlite", "--anomaly", "P4", "--repeat", "1"]).expect(0);
    let files: Vec<String> = bench.results().iter().map(|file| file.display().to_string()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let [one, other] = [&files[0], &files[1]];
    bench.run(&["report", one, other, "--html", "both.html"]).expect(0);
    let page = fs::read_to_string(bench.path("both.html")).unwrap();
    for said in [
        held,
        "Anomalies of isolation",
        "Which anomalies isolation levels allow",
        "SQLITE_BUSY",
        "#a0",
        "#r0",
    ] {
        assert!(page.contains(said), "no {said}");
    }
    let text = bench.run(&["report", one, other, "--markdown"]).expect(0).stdout;
    assert!(text.contains(held) && text.contains("P4"), "{text}");
}
