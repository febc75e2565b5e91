//! The command line end to end on real servers, started privately. A store that is not installed fails
//! these tests, unless `ACIDTEST_TEST_WITHOUT` names it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::Duration,
};

use crate::common::{Bench, servers, signal, until, wait, wanted};
use acidtest_testbed::with_more_time;
use serde_json::Value;

fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().unwrap()
}

fn verdict(cell: &Value) -> &str {
    cell["trials"][0]["audit"]["verdict"].as_str().unwrap_or("none")
}

/// The process of a run's private server, once the clients of a trial are connected to it.
fn at_work(bench: &Bench, store: &str) -> Option<u32> {
    let list = bench.run(&["lab", "list"]).expect(0).stdout;
    let line = list.lines().find(|line| line.starts_with(store))?;
    let address = line.split("127.0.0.1:").nth(1)?.split(['/', ' ']).next()?;
    let is_at_work = connections(&format!("127.0.0.1:{address}")) >= CLIENTS;
    line.split(" · process ").nth(1)?.split(' ').next()?.parse().ok().filter(|_| is_at_work)
}

/// Number of clients of a trial, unless it says otherwise.
const CLIENTS: usize = 16;

/// Number of connections to the server at an address: as many as there are clients once its trial's data is loaded.
fn connections(address: &str) -> usize {
    let port: u16 = address.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    let server = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = table.lines().map(|line| line.split_whitespace().skip(2).take(2).collect::<Vec<_>>());
    ends.filter(|ends| *ends == [&*server, "01"]).count()
}

/// Starts a private server that is kept and plays the user's own; returns its address.
fn up(bench: &Bench, store: &str) -> String {
    bench.run(&["lab", "up", store]).expect(0).stdout.trim().to_owned()
}

/// A value for `--store`: these stores that need no server, and all servers under test.
fn servers_and(embedded: &[&'static str]) -> String {
    [embedded, &servers()].concat().join(",")
}

/// The address with a password in it, although a private server asks for none.
fn with_password(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap();
    let (user, host) = rest.split_once('@').unwrap_or(("", rest));
    format!("{scheme}://{user}:s3cr3tword@{host}")
}

#[test]
fn the_grid_holds_where_it_promises_and_breaks_where_it_does_not() {
    let bench = Bench::new();
    let stores = servers_and(&["sqlite"]);
    let words = [
        "run",
        "inventory",
        "--store",
        &stores,
        "--lock",
        "none,soft,hard,native",
        "--clients",
        "16",
        "--items",
        "5",
        "--warmup",
        "200ms",
    ];
    let oversold = |cell: &Value| {
        let findings = cell["trials"][0]["audit"]["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["name"] == "oversold").unwrap();
        found["count"].as_u64().unwrap()
    };
    // without a lock units are oversold, sooner or later; at first stock may only be lost
    let ended = with_more_time(400, |millis| {
        let ended = bench.run(&[&words[..], &["--duration", &format!("{millis}ms")]].concat());
        let result = bench.result();
        // nor has a lock a price, where chance has refused more in one of two cells
        let later = |cell: &Value| match (verdict(cell), cell["lock"].as_str()) {
            ("unknown", _) | ("holds", Some("none")) => true,
            ("broken", Some("none")) => oversold(cell) == 0,
            ("holds", _) => cell["prices"] == serde_json::json!([]),
            _ => false,
        };
        if cells(&result).iter().any(later) { Err(ended.stdout) } else { Ok(ended.expect(0)) }
    });
    let result = bench.result();
    let cores = std::thread::available_parallelism().unwrap().get();
    let half = cores.div_ceil(2);
    let beside_a_server = if half <= 4 { half } else { cores.min(16) };
    for cell in cells(&result) {
        let (store, lock) = (cell["store"].as_str().unwrap(), cell["lock"].as_str().unwrap());
        assert_eq!(cell["error"], Value::Null, "{store} {lock}");
        assert_eq!(cell["threads"], if store == "sqlite" { 16 } else { beside_a_server }, "{store} {lock}");
        assert_eq!(cell["effective"]["durability"], "disk", "{store}");
        if lock == "none" {
            assert_eq!(verdict(cell), "broken", "{store} without a lock under contention");
            assert!(oversold(cell) > 0, "{store}: {}", cell["trials"][0]["audit"]);
            assert_eq!(cell["prices"], serde_json::json!([]));
        } else {
            assert_eq!(verdict(cell), "holds", "{store} {lock}: {}", cell["trials"][0]["audit"]);
            assert!(cell["prices"][0]["throughput"]["estimate"].as_f64().unwrap() > 0.0, "{store} {lock}");
        }
        let server = &cell["trials"][0]["resources"]["server"];
        assert_eq!(server.is_null(), store == "sqlite", "{store} {server}");
        let connecting = cell["trials"][0]["connect_ns"].as_f64();
        assert_eq!(
            connecting.is_some_and(|took| took > 10_000.0),
            store != "sqlite",
            "{store} {connecting:?}"
        );
    }
    assert!(ended.stdout.contains("broken: oversold"), "{}", ended.stdout);
    bench.assert_clean();
}

#[test]
fn a_replayed_sequence_ends_as_it_says_itself_on_every_store() {
    if servers().is_empty() {
        return;
    }
    let bench = Bench::new();
    for clients in ["1", "8"] {
        let words = [
            "run",
            "inventory",
            "--store",
            &servers().join(","),
            "--lock",
            "soft,hard,native",
            "--trace",
            "1500",
            "--timeout",
            "5m",
            "--skus",
            "40",
            "--items",
            "300",
            "--clients",
            clients,
            "--durability",
            "process",
        ];
        bench.run(&words).expect(0);
        for cell in cells(&bench.result()) {
            assert_eq!(
                verdict(cell),
                "holds",
                "{} {} {clients}: {}",
                cell["store"],
                cell["lock"],
                cell["trials"]
            );
            assert_eq!(cell["trials"][0]["arrived"]["completed"], 1500);
        }
    }
    bench.assert_clean();
}

#[test]
fn every_durability_is_set_and_read_back() {
    if servers().is_empty() {
        return;
    }
    let bench = Bench::new();
    let words = [
        "run",
        "inventory",
        "--store",
        &servers().join(","),
        "--durability",
        "none,process,disk",
        "--ops",
        "200",
        "--warmup",
        "0s",
        "--clients",
        "4",
    ];
    bench.run(&words).expect(0);
    let result = bench.result();
    assert_eq!(cells(&result).len(), servers().len() * 3);
    for cell in cells(&result) {
        assert_eq!(cell["effective"]["durability"], cell["durability_asked"], "{}", cell["effective"]);
        assert!(!cell["effective"]["version"].as_str().unwrap().is_empty());
    }
    bench.assert_clean();
}

#[test]
fn a_user_s_server_is_used_in_a_namespace_of_its_own_and_no_password_shows() {
    for store in servers() {
        let bench = Bench::new();
        let address = up(&bench, store);
        // a private PostgreSQL takes any password; the others refuse a password that they did not ask for
        let given = if store == "postgres" { with_password(&address) } else { address.clone() };
        let words = ["run", "inventory", "--store", &given, "--ops", "200", "--warmup", "0s"];
        let ended = bench.run(&[&words[..], &["--keep"]].concat()).expect(0);
        let text = fs::read_to_string(bench.results().pop().unwrap()).unwrap();
        for text in [&ended.stdout, &ended.stderr, &text] {
            assert!(!text.contains("s3cr3t"), "{store}: {text}");
        }
        assert_eq!(
            cells(&bench.result())[0]["durability_asked"],
            Value::Null,
            "its settings are read, not set"
        );
        let refused = bench.run(&words).expect(3);
        assert!(
            refused.stderr.contains("exists already") && refused.stderr.contains("--replace"),
            "{}",
            refused.stderr
        );
        bench.run(&[&words[..], &["--replace"]].concat()).expect(0);
        bench.run(&words).expect(0);
        bench.run(&["lab", "down"]).expect(0);
        bench.assert_clean();
    }
}

#[test]
fn a_killed_run_leaves_nothing_that_lab_down_does_not_remove() {
    for store in servers() {
        let bench = Bench::new();
        let address = up(&bench, store);
        let kept = bench.leftovers().len();
        let both = format!("{store},{address}");
        let words = ["run", "inventory", "--store", &both, "--duration", "60s", "--seed", "3"];
        // the bench is killed while a server starts, and while trials run
        for moment in [150, 2500] {
            let mut child = bench.spawn(&words);
            thread::sleep(Duration::from_millis(moment));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // a private server ends with its bench, before anything is removed
        until("private servers end", || {
            let list = bench.run(&["lab", "list"]).expect(0).stdout;
            list.lines().filter(|line| line.contains(" · process ")).count() <= 1
        });
        let down = bench.run(&["lab", "down"]).expect(0);
        assert!(kept == 1 && down.stdout.contains("removed"), "{}", down.stdout);
        bench.assert_clean();
    }
}

#[test]
fn a_namespace_left_on_a_user_s_server_is_removed_by_lab_down() {
    for store in servers() {
        let (theirs, bench) = (Bench::new(), Bench::new());
        let address = up(&theirs, store);
        let words = ["run", "inventory", "--store", &address, "--duration", "60s"];
        let mut child = bench.spawn(&words);
        until("its clients are at work", || connections(&address) >= CLIENTS);
        child.kill().unwrap();
        child.wait().unwrap();
        let refused = bench.run(&["run", "inventory", "--store", &address, "--ops", "200"]).expect(3);
        assert!(refused.stderr.contains("exists already"), "{store}: {}", refused.stderr);
        let down = bench.run(&["lab", "down"]).expect(0);
        assert!(down.stdout.contains("removed namespace \"acidtest\""), "{store}: {}", down.stdout);
        bench.assert_clean();
        bench.run(&["run", "inventory", "--store", &address, "--ops", "200", "--warmup", "0s"]).expect(0);
        theirs.run(&["lab", "down"]).expect(0);
        theirs.assert_clean();
    }
}

#[test]
fn a_trial_that_fails_leaves_no_namespace() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    let address = up(&bench, "postgres");
    // the server's limit is 1,000
    too_many_are_told(&bench, &address, "1500", &["a client could not connect", "53300", "max_connections"]);
}

/// So many clients are more than the kept server at the address takes: that is told in these words, with one remedy, and leaves
/// nothing that the next run would meet.
#[track_caller]
fn too_many_are_told(bench: &Bench, address: &str, clients: &str, said: &[&str]) {
    let words = ["run", "inventory", "--store", address, "--ops", "200", "--warmup", "0s", "--clients"];
    let ended = bench.run(&[&words[..], &[clients]].concat()).expect(3);
    assert!(said.iter().all(|word| ended.stderr.contains(word)), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("remedy: ask for fewer clients").count(), 1, "{}", ended.stderr);
    bench.run(&[&words[..], &["4"]].concat()).expect(0);
    bench.run(&["lab", "down"]).expect(0);
    bench.assert_clean();
}

/// So many clients, each with a connection of its own to a private server that is sized for them, and two operations for each.
fn many_clients_hold(store: &str, clients: u64) {
    if !wanted(store) {
        return;
    }
    let bench = Bench::new();
    let (number, operations) = (clients.to_string(), (2 * clients).to_string());
    let words = ["run", "records", "--store", store, "--records", "1000", "--warmup", "0s"];
    bench.run(&[&words[..], &["--clients", &number, "--ops", &operations]].concat()).expect(0);
    let result = bench.result();
    let cell = &cells(&result)[0];
    assert_eq!((cell["clients"].as_u64(), verdict(cell)), (Some(clients), "holds"), "{cell}");
    bench.assert_clean();
}

#[test]
fn ten_thousand_clients_of_redis_hold() {
    many_clients_hold("redis", 10_000);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::many_clients_hold;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn two_thousand_clients_of_mariadb_hold() {
        many_clients_hold("mariadb", 2_000);
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn ten_thousand_clients_of_tarantool_hold() {
        many_clients_hold("tarantool", 10_000);
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn two_thousand_clients_of_postgres_hold() {
        many_clients_hold("postgres", 2_000);
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn two_thousand_clients_of_mysql_hold() {
        many_clients_hold("mysql", 2_000);
    }
}

#[test]
fn more_clients_than_a_users_redis_takes_are_told_with_the_remedy() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let address = up(&bench, "redis");
    let host = address.strip_prefix("redis://").unwrap().split('/').next().unwrap();
    let mut server = TcpStream::connect(host).unwrap();
    server.write_all(b"CONFIG SET maxclients 20\r\n").unwrap();
    let mut answer = [0; 5];
    server.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    too_many_are_told(&bench, &address, "50", &["max number of clients reached"]);
}

/// Has the Redis at this address do something.
fn tell_redis(address: &str, words: &[&str]) {
    let port = address.rsplit(':').next().unwrap().split('/').next().unwrap();
    assert!(Command::new("redis-cli").args(["-p", port]).args(words).status().unwrap().success());
}

/// A server that drops keys because its administrator has it do so is accused of nothing. One that has such a policy and has dropped
/// nothing is accused of what is missing: here, of what somebody has deleted.
#[test]
fn what_a_users_redis_evicts_accuses_it_of_nothing_and_what_else_is_missing_does() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let address = up(&bench, "redis");
    tell_redis(&address, &["CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "6mb"]);
    let run = ["run", "records", "--store", &address, "--mix", "a", "--warmup", "0s"];

    let many = ["--records", "8000", "--ops", "2000", "--trials", "2"];
    let ended = bench.run(&[&run[..], &many].concat()).expect(5);
    for trial in cells(&bench.result())[0]["trials"].as_array().unwrap() {
        assert_eq!(trial["audit"]["verdict"], "unknown", "{trial}");
        let reason = trial["audit"]["reason"].as_str().unwrap();
        for words in ["the server evicted ", "maxmemory-policy allkeys-random", "noeviction", "lost "] {
            assert!(reason.contains(words), "no {words:?} in: {reason}");
        }
    }
    assert!(ended.stdout.contains("the server evicted"), "{}", ended.stdout);

    let few = ["--records", "100"];
    bench.run(&[&run[..], &few, &["--ops", "2000"]].concat()).expect(0);
    assert_eq!(verdict(&cells(&bench.result())[0]), "holds");

    let mut running = bench.spawn(&[&run[..], &few, &["--duration", "3s"]].concat());
    until("its clients are at work", || connections(&address) >= CLIENTS);
    let delete = "for _, key in ipairs(redis.call('KEYS', 'acidtest:*')) do \
                  if key ~= 'acidtest:marker' then redis.call('DEL', key) end end";
    tell_redis(&address, &["EVAL", delete, "0"]);
    assert_eq!(running.wait().unwrap().code(), Some(4));
    assert_eq!(verdict(&cells(&bench.result())[0]), "broken");
    bench.run(&["lab", "down"]).expect(0);
    bench.assert_clean();
}

#[test]
fn more_clients_than_a_users_mariadb_takes_are_told_with_the_remedy() {
    if !wanted("mariadb") {
        return;
    }
    let bench = Bench::new();
    let address = up(&bench, "mariadb");
    // the server's limit is 2,000
    too_many_are_told(&bench, &address, "2200", &["1040"]);
}

#[test]
fn a_namespace_on_a_server_that_is_gone_can_be_forgotten() {
    if !wanted("redis") {
        return;
    }
    let (theirs, bench) = (Bench::new(), Bench::new());
    let address = up(&theirs, "redis");
    let mut child = bench.spawn(&["run", "inventory", "--store", &address, "--duration", "60s"]);
    until("its clients are at work", || connections(&address) >= CLIENTS);
    child.kill().unwrap();
    child.wait().unwrap();
    theirs.run(&["lab", "down"]).expect(0);
    let left = bench.run(&["lab", "down"]).expect(3);
    assert!(left.stdout.contains("left namespace") && left.stdout.contains("--forget"), "{}", left.stdout);
    let forgot = bench.run(&["lab", "down", "--forget"]).expect(0);
    assert!(forgot.stdout.contains("forgot namespace"), "{}", forgot.stdout);
    bench.assert_clean();
}

#[test]
fn a_server_that_dies_costs_its_trial_and_not_the_run() {
    if servers().is_empty() {
        return;
    }
    let bench = Bench::new();
    let stores = servers_and(&["sqlite"]);
    let words = ["run", "inventory", "--store", &stores, "--warmup", "0s", "--trials", "2", "--seed", "5"];
    // on a slow machine a trial may end before its server is killed
    let (ended, result) = with_more_time(2000, |millis| {
        let mut child = bench.spawn(&[&words[..], &["--duration", &format!("{millis}ms")]].concat());
        let mut alive = servers();
        while !alive.is_empty() {
            let mut begun = None;
            until("the clients of a server are at work", || {
                begun = alive.iter().find_map(|store| at_work(&bench, store).map(|pid| (*store, pid)));
                begun.is_some() || child.try_wait().unwrap().is_some()
            });
            let Some((store, pid)) = begun else { break };
            alive.retain(|other| *other != store);
            // well within the first trial of this store
            thread::sleep(Duration::from_secs(1));
            signal("KILL", pid);
        }
        let (ended, result) = (wait(child), bench.result());
        let first = |cell: &Value| {
            let expected = if cell["store"] == "sqlite" { "holds" } else { "unknown" };
            let completed = cell["trials"][0]["arrived"]["completed"].as_u64();
            verdict(cell) == expected && completed.is_some_and(|completed| completed > 0)
        };
        if cells(&result).iter().all(first) { Ok((ended.expect(5), result)) } else { Err(ended.stdout) }
    });
    for cell in cells(&result) {
        let (store, trials) = (&cell["store"], cell["trials"].as_array().unwrap());
        assert_eq!(trials.len(), 2, "{store}: {}", cell["error"]);
        assert_eq!(trials[1]["audit"]["verdict"], "holds", "{store}: {trials:?}");
        let stopped = &trials[0]["stopped"];
        if store == "sqlite" {
            assert_eq!(stopped, &Value::Null);
        } else {
            let how = (&stopped["reason"], &stopped["detail"]);
            assert_eq!(how, (&"server gone".into(), &"it was killed by signal 9".into()), "{store}");
        }
        assert!(trials[0]["arrived"]["completed"].as_u64().unwrap() > 0, "what was measured is kept");
    }
    assert!(ended.stdout.contains("server gone: it was killed by signal 9"), "{}", ended.stdout);
    bench.assert_clean();
}

#[test]
fn an_interrupted_run_stops_its_servers() {
    if servers().is_empty() {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "inventory", "--store", &servers().join(","), "--duration", "60s", "--warmup", "0s"];
    for moment in [0, 4000] {
        let child = bench.spawn(&words);
        // before that, the process does not listen to signals
        until("the first server is prepared", || !bench.leftovers().is_empty());
        thread::sleep(Duration::from_millis(moment));
        signal("INT", child.id());
        wait(child).expect(130);
        bench.assert_clean();
    }
}

#[test]
fn a_kept_server_lives_until_lab_down() {
    for store in servers() {
        let bench = Bench::new();
        let ended = bench.run(&["lab", "up", store]).expect(0);
        assert!(ended.stdout.contains("://") && ended.stdout.contains("127.0.0.1:"), "{}", ended.stdout);
        assert_eq!(ended.stdout.lines().count(), 1, "the address alone: {}", ended.stdout);
        let another = format!("; a server at another level: acidtest lab up {store} --durability ");
        for word in ["started at durability disk (", &another, "stop it with: acidtest lab down"] {
            assert!(ended.stderr.contains(word), "{store}: no \"{word}\" in: {}", ended.stderr);
        }
        let list = bench.run(&["lab", "list"]).expect(0).stdout;
        assert!(list.contains(store) && list.contains("kept"), "{list}");
        bench.run(&["lab", "down"]).expect(0);
        bench.assert_clean();
    }
}

/// A server that `lab up` started has its row of resources where it is used by its address; to a bench with another
/// lab the same server is the user's own.
#[test]
fn a_kept_server_is_sampled_where_it_is_used_by_its_address() {
    for store in servers() {
        let (bench, stranger) = (Bench::new(), Bench::new());
        let address = up(&bench, store);
        let by_name = address.replace("127.0.0.1", "localhost");
        for (bench, address, is_kept) in
            [(&bench, &address, true), (&bench, &by_name, true), (&stranger, &address, false)]
        {
            let words = ["run", "inventory", "--store", address, "--ops", "200", "--warmup", "0s"];
            bench.run(&words).expect(0);
            let result = bench.result();
            let server = &cells(&result)[0]["trials"][0]["resources"]["server"];
            assert_eq!(
                server["processes"].as_u64().is_some_and(|all| all > 0),
                is_kept,
                "{address}: {server}"
            );
        }
        bench.run(&["lab", "down"]).expect(0);
        bench.assert_clean();
    }
}

#[test]
fn what_cannot_start_or_be_reached_is_one_message() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for store in servers() {
        let ended = bench.run(&["lab", "up", store, "--port", &port]).expect(3);
        assert!(ended.stderr.contains(&format!("port {port} is taken")), "{store}: {}", ended.stderr);
        let variable = format!("ACIDTEST_{}", store.to_uppercase());
        let words = ["run", "inventory", "--store", store];
        let missing = bench.command(&words).env(&variable, "/nowhere/server").output().unwrap();
        assert_eq!(missing.status.code(), Some(3));
        let said = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert!(said.contains("/nowhere/server"), "{store}: {said}");
        // nobody listens on port 1
        let address = format!("{store}://127.0.0.1:1");
        let ended = bench.run(&["run", "inventory", "--store", &address]).expect(3);
        for word in ["cannot reach", "127.0.0.1:1", "refused", "remedy:"] {
            assert!(ended.stderr.contains(word), "{store}: no \"{word}\" in:\n{}", ended.stderr);
        }
        for text in [&ended.stdout, &ended.stderr, &said] {
            assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
        }
    }
    bench.assert_clean();
}

#[test]
fn an_open_loop_on_a_server_shows_both_times() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words =
        ["run", "inventory", "--store", "redis", "--rate", "300", "--duration", "2s", "--warmup", "200ms"];
    let ended = bench.run(&words).expect(0);
    assert!(ended.stdout.contains("response") && ended.stdout.contains("service"), "{}", ended.stdout);
    let result = bench.result();
    let trial = &cells(&result)[0]["trials"][0];
    assert!((450..750).contains(&trial["arrived"]["offered"].as_u64().unwrap()), "{}", trial["arrived"]);
    bench.assert_clean();
}

/// A sweep of mixes over stores: promises hold, an update without protection is lost, and a trial that takes over an
/// earlier one's data says so.
#[test]
fn a_sweep_of_records_holds_where_it_promises() {
    let bench = Bench::new();
    let stores = servers_and(&["sqlite", "fjall"]);
    let words = [
        "run",
        "records",
        "--store",
        &stores,
        "--mix",
        "d,f",
        "--lock",
        "none,soft",
        "--records",
        "40",
        "--keys",
        "uniform",
        "--clients",
        "12",
        "--trials",
        "2",
        "--warmup",
        "100ms",
        "--durability",
        "process",
        "--skip-unsupported",
        "--quiet",
    ];
    // Tarantool loses nothing
    let loses = |cell: &Value, name: &str| {
        let mut trials = cell["trials"].as_array().unwrap().iter();
        name == "tarantool"
            || (cell["store"] == name && trials.any(|trial| trial["audit"]["verdict"] == "broken"))
    };
    with_more_time(200, |millis| {
        let ended = bench.run(&[&words[..], &["--duration", &format!("{millis}ms")]].concat());
        let result = bench.result();
        let all = servers().into_iter().all(|name| cells(&result).iter().any(|cell| loses(cell, name)));
        let known = result.to_string().matches(r#""verdict":"unknown""#).count() == 0;
        if all && known { Ok(ended.expect(0)) } else { Err(ended.stdout + &ended.stderr) }
    });
    let result = bench.result();
    let mut lost = Vec::new();
    for cell in cells(&result) {
        let name = format!("{} {} {}", cell["store"], cell["lock"], cell["parameters"]["mix"]);
        let trials = cell["trials"].as_array().unwrap();
        assert_eq!((trials.len(), &cell["error"]), (2, &Value::Null), "{name}");
        for trial in trials {
            let (audit, data) = (&trial["audit"], &trial["data"]);
            if cell["lock"] == "soft" || cell["parameters"]["mix"] == "d" {
                assert_eq!(audit["verdict"], "holds", "{name}: {audit}");
            } else if audit["verdict"] == "broken" {
                lost.push(cell["store"].as_str().unwrap().to_owned());
            }
            assert_eq!(data["load_seconds"].is_null(), data["left_by"].is_number(), "{name}: {data}");
            if cell["parameters"]["mix"] == "d" {
                assert!(data["load_seconds"].is_number(), "{name}: inserts are in the next trial's way");
            }
        }
    }
    for store in servers() {
        assert!(
            lost.iter().any(|name| name == store) || store == "tarantool",
            "{store} lost nothing: {lost:?}"
        );
    }
    assert!(
        cells(&result).iter().any(|cell| cell["trials"][1]["data"]["left_by"].is_number()),
        "no trial took over what another had left"
    );
    bench.assert_clean();
}

/// The join's rows are right on every SQL store, its first execution is timed, and its query plans are kept.
#[test]
fn a_join_is_timed_cold_and_warm_and_its_plans_are_kept() {
    let bench = Bench::new();
    let sql = ["postgres", "mariadb"].into_iter().filter(|store| wanted(store));
    let stores = ["sqlite"].into_iter().chain(sql).collect::<Vec<_>>().join(",");
    let words = [
        "run",
        "join",
        "--store",
        &stores,
        "--records",
        "2000",
        "--clients",
        "2",
        "--trials",
        "2",
        "--ops",
        "200",
        "--warmup",
        "0s",
        "--durability",
        "none",
        "--quiet",
    ];
    bench.run(&words).expect(0);
    for cell in cells(&bench.result()) {
        let trials = cell["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["audit"]["verdict"] == "holds"), "{}", cell["store"]);
        let remarks = &trials[0]["remarks"];
        for order in ["ext_first", "usertable_first"] {
            assert!(remarks["first_ns"][order].as_u64().unwrap() > 0, "{}", cell["store"]);
            assert!(!remarks["plans"][order].as_str().unwrap().is_empty(), "{}", cell["store"]);
        }
        assert!(trials[1]["remarks"].is_null(), "what was found out once is not said twice");
    }
    bench.assert_clean();
}

/// Everything that a store cannot do is refused before anything is started; or, on request, it is left out, and the
/// result says so.
#[test]
fn what_a_store_cannot_do_is_refused_or_left_out() {
    let bench = Bench::new();
    let words = ["run", "records", "--store", "sqlite,mariadb/archive", "--mix", "a,write", "--ops", "200"];
    let refused = bench.run(&words).expect(2);
    assert!(
        refused.stderr.contains("mariadb/archive") && refused.stderr.contains("--skip-unsupported"),
        "{}",
        refused.stderr
    );
    assert!(bench.results().is_empty());

    let words =
        ["run", "records", "--store", "sqlite,redis", "--isolation", "default,serializable", "--mix", "c"];
    let brief = ["--skip-unsupported", "--ops", "200", "--warmup", "0s", "--save-plan", "plan.toml"];
    bench.run(&[&words[..], &brief].concat()).expect(0);
    if !wanted("redis") {
        return;
    }
    bench.run(&["run", "plan.toml", "--quiet"]).expect(0);
    let result = bench.result();
    assert_eq!(cells(&result).len(), 3, "all but redis at a level that it has not");
    assert!(result["left_out"][0].as_str().unwrap().contains("redis"), "{}", result["left_out"]);
    bench.assert_clean();
}

/// A store that runs full while data is loaded fails its own cells, with its own words as the reason; the results of
/// the others are kept.
#[test]
fn a_store_that_runs_out_of_memory_while_loading_costs_only_its_cells() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let address = up(&bench, "redis");
    tell_redis(&address, &["CONFIG", "SET", "maxmemory", "3mb"]);
    let words =
        ["run", "records", "--store", &format!("sqlite,{address}"), "--mix", "c", "--records", "5000"];
    let brief = ["--ops", "200", "--warmup", "0s", "--out", "r.json"];
    let ended = bench.run(&[&words[..], &brief].concat()).expect(3);
    assert!(ended.stdout.contains("maxmemory"), "{}", ended.stdout);
    let result: Value = serde_json::from_str(&fs::read_to_string(bench.path("r.json")).unwrap()).unwrap();
    assert_eq!(verdict(&cells(&result)[0]), "holds");
    let error = cells(&result)[1]["error"].as_str().unwrap();
    assert!(error.contains("OOM") && cells(&result)[1]["trials"].as_array().unwrap().is_empty(), "{error}");
    bench.run(&["lab", "down"]).expect(0);
    bench.assert_clean();
}

/// The write cases of the locks study, with their prices.
#[test]
fn a_broker_s_guarantees_are_judged_and_priced() {
    if !wanted("rabbitmq") {
        return;
    }
    let bench = Bench::new();
    let words = [
        "run",
        "queue",
        "--store",
        "rabbitmq",
        "--ack",
        "none,confirm,transaction",
        "--persistent",
        "false,true",
        "--ops",
        "200",
        "--warmup",
        "100ms",
    ];
    let ended = bench.run(&words).expect(0);
    for word in ["all of ack transaction, persistent true", "ack none, persistent false", "survives kill -9"]
    {
        assert!(ended.stdout.contains(word), "no \"{word}\" in:\n{}", ended.stdout);
    }
    let result = bench.result();
    assert_eq!(cells(&result).len(), 6);
    for cell in cells(&result) {
        let (ack, persistent) = (&cell["parameters"]["ack"], &cell["parameters"]["persistent"]);
        let durability = if *ack != "none" && *persistent == true { "process" } else { "none" };
        assert_eq!(cell["effective"]["durability"], durability, "{ack} {persistent}");
        assert_eq!(cell["without"] == serde_json::json!(["delivery"]), *ack == "none", "{ack} {persistent}");
        if *ack != "none" {
            assert_eq!(verdict(cell), "holds", "{ack} {persistent}");
        }
    }
    bench.assert_clean();
}
