//! The trigger of the locks study, as it was published.

use acidtest_testbed::{wanted, with_more_time};
use serde_json::{Value, json};

use super::server::Server;
use crate::common::Bench;

/// What was published, with other values in place of some.
fn published(changed: &Value) -> Value {
    let mut body = json!({
        "threads": 5, "load": 1, "timeInMilis": 1000, "transactional": false, "durable": true, "requestType": "READ"
    });
    for (key, value) in changed.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// `load` is the share of the time in which each client works: with a tenth of it, far less is done.
#[test]
fn load_is_the_share_of_time_in_which_clients_work() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let done = |load: f64, millis: u64| {
        let changed = json!({
            "load": load, "timeInMilis": millis, "threads": 1, "durable": false, "requestType": "MODIFY"
        });
        let answer = server.post("/test/gen-load/sqlite", &published(&changed)).expect(200).json();
        answer["operations"].as_f64().unwrap()
    };
    // what else the machine does may fall on one of the two
    with_more_time(1000, |millis| {
        let (whole, tenth) = (done(1.0, millis), done(0.1, millis));
        if tenth < whole * 0.4 { Ok(()) } else { Err(format!("{tenth} of {whole}")) }
    });
}

#[test]
fn what_the_trigger_cannot_do_is_refused_by_name() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let sentence = "load is the share of the time that each client works, above 0 and at most 1";
    for (store, changed, status, pointer, said) in [
        ("sqlite", json!({"load": 0}), 422, "/load", sentence),
        ("sqlite", json!({"load": 1.5}), 422, "/load", sentence),
        ("sqlite", json!({"load": -1}), 422, "/load", sentence),
        ("sqlite", json!({"load": "x"}), 422, "/load", "load must be a number"),
        ("sqlite", json!({"laod": 1}), 422, "/laod", "unknown key \"laod\"; did you mean \"load\"?"),
        (
            "sqlite",
            json!({"requestType": "DELETE"}),
            422,
            "/requestType",
            "known are READ, WRITE, MODIFY, MODIFY_LOCKED",
        ),
        ("sqlite", json!({"timeInMilis": 0}), 422, "/timeInMilis", "1 to 600000"),
        ("sqlite", json!({"threads": 0}), 422, "/threads", "threads must be at least 1"),
        ("sqlite", json!({"threads": -5}), 422, "/threads", "threads must be a whole number"),
        ("sqlit", json!({}), 422, "", "did you mean \"sqlite\"?"),
        ("rmqq", json!({}), 422, "", "did you mean \"rmq\"?"),
        ("rmq", json!({"requestType": "WRITE", "load": 0.5}), 422, "", "unconfirmed messages"),
        ("rmq", json!({"requestType": "MODIFY"}), 422, "/requestType", "cannot be modified"),
        ("..%2F..%2Fetc%2Fpasswd", json!({}), 422, "", "there is no store"),
    ] {
        let problem =
            server.post(&format!("/test/gen-load/{store}"), &published(&changed)).expect(status).json();
        assert!(problem["detail"].as_str().unwrap().contains(said), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"].as_str().unwrap_or(""), pointer, "{problem}");
    }
    let missing = server.post("/test/gen-load/sqlite", &json!({"threads": 5})).expect(422).json();
    assert!(missing["detail"].as_str().unwrap().contains("missing field `load`"), "{missing}");
    assert_eq!(server.get("/api/runs").json()["runs"], json!([]), "nothing was run");
}

/// What the published trigger sends, what it is answered, and which server that needs.
struct Published {
    path: &'static str,
    needs: Option<&'static str>,
    store: &'static str,
    changed: Value,
    durability: &'static str,
}

#[test]
fn the_published_trigger_works_as_it_stands() {
    let sqlite =
        |changed, durability| Published { path: "sqlite", needs: None, store: "sqlite", changed, durability };
    are_answered([
        sqlite(json!({}), "disk"),
        sqlite(json!({"requestType": "MODIFY_LOCKED", "durable": false}), "none"),
    ]);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use serde_json::{Value, json};

    use super::{Published, are_answered};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn the_published_trigger_works_on_every_server() {
        let on = |needs: &'static str, path, store, changed: Value, durability| Published {
            path,
            needs: Some(needs),
            store,
            changed,
            durability,
        };
        let transactional = |kind: &str| json!({"requestType": kind, "transactional": true});
        are_answered([
            on("mysql", "mysql", "mysql/innodb", json!({}), "disk"),
            on("mysql", "mysql_nt", "mysql/myisam", json!({"requestType": "WRITE"}), "process"),
            on("mysql", "mysql", "mysql/innodb", transactional("MODIFY"), "disk"),
            on("rabbitmq", "rmq", "rabbitmq", transactional("WRITE"), "process"),
            on("rabbitmq", "rmq", "rabbitmq", json!({"durable": false}), "none"),
            on("elasticsearch", "es", "elasticsearch", json!({}), "disk"),
        ]);
    }
}

fn are_answered(all: impl IntoIterator<Item = Published>) {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    for Published { path, needs, store, changed, durability } in all {
        if needs.is_some_and(|needs| !wanted(needs)) {
            continue;
        }
        let answer = server.post(&format!("/test/gen-load/{path}"), &published(&changed)).expect(200).json();
        assert_eq!(answer["store"], store, "{answer}");
        assert_eq!(
            (&answer["durability"], &answer["verdict"]),
            (&json!(durability), &json!("holds")),
            "{answer}"
        );
        let number = |key: &str| answer[key].as_f64().unwrap();
        assert!(number("operations") > 0.0 && number("operationsPerSecond") > 0.0, "{answer}");
        assert!(number("elapsedMs") >= 1.0, "{answer}");
        let times = &answer["timesMs"];
        let time = |key: &str| times[key].as_f64().unwrap();
        assert!(time("p50") <= time("p99") && time("p99") <= time("max") && time("max") > 0.0, "{answer}");
        let plan = server.get(answer["run"].as_str().unwrap()).expect(200).json()["plan"].clone();
        assert_eq!(plan["duration"], "1s", "{plan}");
    }
    bench.assert_clean();
}
