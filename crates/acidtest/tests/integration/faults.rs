//! Faults that a run brings about on real servers: what is survived, what is lost, and that each of them ends cleanly.
//! A store that is not installed fails these tests, unless `ACIDTEST_TEST_WITHOUT` names it.

use std::{fs, path::PathBuf, thread, time::Duration};

use crate::common::{Bench, signal, until, wait, wanted};
use acidtest_testbed::with_more_time;
use serde_json::Value;

pub fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().unwrap()
}

pub fn trial(cell: &Value) -> &Value {
    &cell["trials"][0]
}

pub fn verdict(cell: &Value) -> &str {
    trial(cell)["audit"]["verdict"].as_str().unwrap_or("none")
}

/// What the audit found of a guarantee.
pub fn found(cell: &Value, guarantee: &str) -> u64 {
    let findings = trial(cell)["audit"]["findings"].as_array().unwrap();
    let of = findings.iter().filter(|finding| finding["guarantee"] == guarantee);
    of.map(|finding| finding["count"].as_u64().unwrap()).sum()
}

pub fn injections(cell: &Value) -> &Vec<Value> {
    trial(cell)["injections"].as_array().unwrap()
}

/// Whether something was acknowledged before each of the cell's faults, and each kill found something in flight, as a
/// slow machine may not have done.
fn all_count(cell: &Value) -> bool {
    let counts = |injected: &Value| {
        injected["last_ok_seconds"].is_number()
            && (injected["fault"] != "kill" || injected["interrupted"] != 0)
    };
    injections(cell).iter().all(counts)
}

/// Whether a fault of the cell ends a store that may have something to lose.
fn loses(cell: &Value, injected: &Value) -> bool {
    injected["fault"] == "kill" && cell["parameters"]["mix"] != "read"
}

/// What is acknowledged is there after a kill where that is promised; where it is not, what is lost is counted, and is
/// neither a failure nor the lock's.
#[test]
fn a_kill_is_survived_as_far_as_it_is_promised() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "inventory", "--store", "redis", "--durability", "none,disk", "--fault"];
    let (ended, result) = with_more_time(1000, |millis| {
        let fault = format!("none,kill@{millis}ms");
        let duration = format!("{}ms", millis + 1500);
        let ended = bench.run(&[&words[..], &[&fault, "--warmup", "0s", "--duration", &duration]].concat());
        let (ended, result) = (ended.expect(0), bench.result());
        let counts = cells(&result).iter().filter(|cell| cell["faults"].is_string()).all(all_count);
        if counts { Ok((ended, result)) } else { Err(ended.stdout) }
    });
    assert_eq!(cells(&result).len(), 4);
    for cell in cells(&result) {
        let durability = cell["effective"]["durability"].as_str().unwrap();
        let is_killed = cell["faults"].is_string();
        let is_lossy = is_killed && durability == "none";
        assert_eq!(verdict(cell), if is_lossy { "broken" } else { "holds" }, "{durability}: {cell:#}");
        assert_eq!((found(cell, "durability") > 0, found(cell, "lock")), (is_lossy, 0), "{durability}");
        assert_eq!(cell["without"] == serde_json::json!(["durability"]), is_lossy, "{durability}");
        assert_eq!(trial(cell)["injections"].is_array(), is_killed, "{durability}");
        if is_killed {
            let [kill] = &injections(cell)[..] else { panic!("{cell:#}") };
            let seconds = |name: &str| kill[name].as_f64().unwrap();
            assert!(seconds("at_seconds") >= seconds("due_seconds"), "{kill}");
            assert!(seconds("last_ok_seconds") <= seconds("next_ok_seconds"), "{kill}");
            assert!(seconds("answered_seconds") >= seconds("back_seconds"), "{kill}");
            assert!(trial(cell)["reconnects"].as_u64().unwrap() > 0);
            // nothing that came behind the end of the measured part is an outage of it
            let end = trial(cell)["seconds"].as_f64().unwrap();
            assert!(kill["unserved_until_seconds"].as_f64().is_none_or(|until| until <= end), "{kill}");
        }
    }
    let words =
        ["disk · 1 crash", "none · 1 crash", "served/s", "longest outage", "one crash, ", "no loss seen"];
    for words in words {
        assert!(ended.stdout.contains(words), "no {words:?} in: {}", ended.stdout);
    }
    bench.assert_clean();
}

/// A fault that comes while the server is down, or about to stop, has nothing to hit, and the server comes back as if
/// it had not come.
#[test]
fn a_fault_upon_a_server_that_is_down_changes_nothing() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let faults = "kill@500ms:1s+pause@700ms:300ms+kill@800ms+restart@900ms+pause@2s:2s+kill@2200ms";
    let words = ["run", "inventory", "--store", "redis", "--durability", "process", "--fault", faults];
    let ended = bench.run(&[&words[..], &["--warmup", "0s", "--duration", "4s"]].concat()).expect(0);
    let result = bench.result();
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    let answered: Vec<bool> =
        injections(cell).iter().map(|injected| injected["answered_seconds"].is_number()).collect();
    // the kill upon the paused server is what it comes back from
    assert_eq!(answered, [true, false, false, false, false, true], "{cell:#}");
    let down = |injected: &Value| {
        injected["back_seconds"].as_f64().unwrap() - injected["at_seconds"].as_f64().unwrap()
    };
    assert!((0.9..1.9).contains(&down(&injections(cell)[0])), "{cell:#}");
    bench.assert_clean();
}

/// A lock service that is killed comes back with its tokens, and no lock breaks.
#[test]
fn a_lock_service_that_is_killed_still_fences() {
    if !wanted("elasticsearch") || !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "records", "--mix", "read:1+rmw:1", "--records", "50", "--store", "elasticsearch"];
    let faults = ["--lock", "hard", "--fault", "kill:locks@2s:300ms", "--warmup", "0s", "--duration", "6s"];
    let ended = bench.run(&[&words[..], &faults].concat()).expect(0);
    let result = bench.result();
    let [cell] = &cells(&result)[..] else { panic!("{result:#}") };
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    let [kill] = &injections(cell)[..] else { panic!("{cell:#}") };
    assert_eq!((&kill["member"], &kill["fault"]), (&"locks".into(), &"kill".into()));
    assert!(kill["answered_seconds"].is_number(), "{kill}");
    assert!(ended.stdout.contains("kill of locks at "), "{}", ended.stdout);
    bench.assert_clean();
}

/// The files that Redis reads when it starts, once the run's server is there.
fn manifest(bench: &Bench) -> Option<PathBuf> {
    let folder = bench.leftovers().into_iter().find(|path| path.join("lab.json").exists())?;
    let files = fs::read_dir(folder.join("server/data/appendonlydir")).ok()?;
    files
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "manifest"))
}

/// A server that cannot start again costs its trial, with the last lines of its log; the other cells go on. If it says that its
/// data is damaged, what it acknowledged is lost.
#[test]
fn a_server_that_does_not_come_back_costs_its_trial() {
    if !wanted("redis") {
        return;
    }
    let unreadable = |manifest: PathBuf| fs::write(manifest, "no manifest").unwrap();
    does_not_come_back(unreadable, 4, "broken: unreadable 1 store");
    let forbidden =
        |manifest| fs::set_permissions(manifest, std::os::unix::fs::PermissionsExt::from_mode(0o000));
    does_not_come_back(|manifest| forbidden(manifest).unwrap(), 5, "unknown");
}

/// Does this to the files of a server that was killed, so that it does not start again, and looks at how the run ends and what
/// is said of the trial.
fn does_not_come_back(hinder: impl Fn(PathBuf), code: i32, says: &str) {
    let bench = Bench::new();
    let words = ["run", "inventory", "--store", "redis", "--fault", "none,kill@1500ms:1500ms"];
    let more = ["--trials", "2", "--warmup", "0s", "--duration", "5s", "--seed", "3"];
    let child = bench.spawn(&[&words[..], &more].concat());
    let server = || {
        let listed = bench.run(&["lab", "list"]).stdout;
        listed.lines().find(|line| line.starts_with("redis")).map(str::to_owned)
    };
    until("the server is there", || server().is_some_and(|line| line.contains(" · process ")));
    // the trial with the fault may be the second one
    until("the server is killed", || server().is_some_and(|line| line.contains("not running")));
    hinder(manifest(&bench).unwrap());
    let ended = wait(child).expect(code);
    assert!(ended.stdout.contains(says), "{}", ended.stdout);
    let result = bench.result();
    for cell in cells(&result) {
        let is_hit = cell["faults"].is_string();
        assert_eq!(cell["trials"].as_array().unwrap().len(), 2, "the run goes on: {}", ended.stdout);
        let expected = says.split(':').next().unwrap();
        assert_eq!(verdict(cell), if is_hit { expected } else { "holds" }, "{}", ended.stdout);
        if is_hit {
            let stopped = &trial(cell)["stopped"];
            assert_eq!(stopped["reason"], "server gone", "{stopped}");
            let log = trial(cell)["server_log"].as_array().unwrap();
            assert!(!log.is_empty() && ended.stdout.contains("the log of the server that was lost ends:"));
        }
    }
    assert_eq!(cells(&result).len(), 2);
    bench.assert_clean();
}

/// A run that is interrupted while a server is paused, or down, ends at once and leaves nothing; and goes on later.
#[test]
fn an_interrupted_fault_ends_cleanly() {
    if !wanted("postgres") {
        return;
    }
    let bench = Bench::new();
    for fault in ["pause@500ms:20s", "kill@500ms:20s"] {
        let words = ["run", "inventory", "--store", "postgres", "--fault", fault, "--warmup", "0s"];
        let child = bench.spawn(&[&words[..], &["--duration", "21s"]].concat());
        until("the server is there", || bench.run(&["lab", "list"]).stdout.contains(" · process "));
        thread::sleep(Duration::from_secs(4));
        signal("INT", child.id());
        wait(child).expect(130);
        bench.assert_clean();
    }
    let words = ["run", "inventory", "--store", "memory", "--durability", "none", "--fault", "kill@1s"];
    let unfit = bench.run(&words).expect(2);
    assert!(unfit.stderr.contains("memory has no process of its own"), "{}", unfit.stderr);
}

/// An embedded store is killed in a process of its own: what the clients were told survives where that is promised,
/// and where it is not, what is lost is found. The same store without a fault is there, too, and so is a restart.
#[test]
fn an_embedded_store_is_killed_in_a_process_of_its_own() {
    let bench = Bench::new();
    let run = |words: &str, faults: &str, millis: u64| {
        let fault = faults.replace('@', &format!("@{millis}ms"));
        let duration = format!("{}ms", millis + 1500);
        let words = ["run"].into_iter().chain(words.split(' '));
        let timing = ["--fault", &fault, "--warmup", "0s", "--duration", &duration];
        let ended = bench.run(&words.chain(timing).collect::<Vec<_>>()).expect(0);
        let result = bench.result();
        // a slow machine may have acknowledged nothing but reads by then
        let counts = |cell: &Value| {
            all_count(cell) && injections(cell).iter().all(|one| one["crash"] == true || !loses(cell, one))
        };
        let counts = cells(&result).iter().filter(|cell| cell["faults"].is_string()).all(counts);
        if counts { Ok((ended, result)) } else { Err(ended.stdout) }
    };
    for (words, faults) in [
        ("inventory --store sqlite,fjall --durability process", "none,kill@"),
        ("records --mix d,read --records 500 --store sqlite,fjall", "kill@"),
        ("parcels --parcels 500 --scans 2000 --store sqlite,fjall", "kill@"),
        ("transactions --store sqlite,fjall", "kill@"),
        ("queue --store sqlite --durability process", "kill@,restart@"),
    ] {
        let (ended, result) = with_more_time(500, |millis| run(words, faults, millis));
        for cell in cells(&result) {
            assert_eq!(verdict(cell), "holds", "{words}: {cell:#}");
            assert!(cell["host_round_trip_ns"].as_f64().unwrap() > 0.0, "{cell:#}");
            if cell["faults"].is_string() {
                let injected = &injections(cell)[0];
                assert!(injected["answered_seconds"].is_number(), "{injected}");
                // neither a stop in order is a crash, nor what had nothing to lose
                assert_eq!(injected["crash"] == true, loses(cell, injected), "{injected}");
                assert!(trial(cell)["reconnects"].as_u64().unwrap() > 0, "{cell:#}");
            }
        }
        assert!(ended.stdout.contains("ran in a process of its own, so that it could be killed"));
    }
    // commits that stay in the process until the journal's buffer is full
    with_more_time(300, |millis| {
        let (_, result) = run("inventory --store fjall --durability none", "kill@", millis)?;
        let killed = &cells(&result)[0];
        assert_eq!(found(killed, "lock"), 0, "{killed:#}");
        if found(killed, "durability") > 0 { Ok(()) } else { Err(format!("nothing was lost: {killed:#}")) }
    });
    bench.assert_clean();
}

/// A Redis server of the user's own, which the user's commands kill, stop and start. Dropping it ends it.
struct OwnRedis {
    folder: tempfile::TempDir,
    port: u16,
}

impl OwnRedis {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("acidtest-own-").tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let own = Self { folder, port };
        Self::shell(&own.starting());
        own
    }

    fn shell(command: &str) -> bool {
        std::process::Command::new("sh").args(["-c", command]).status().unwrap().success()
    }

    fn starting(&self) -> String {
        let (folder, port) = (self.folder.path().display(), self.port);
        format!(
            "redis-server --dir {folder} --port {port} --bind 127.0.0.1 --save '' --appendonly yes --appendfsync always \
             --daemonize yes --pidfile {folder}/pid --logfile {folder}/log"
        )
    }

    fn signalling(&self, signal: &str) -> String {
        format!("kill -{signal} $(cat {}/pid)", self.folder.path().display())
    }

    /// Ends when the server has: until then a client reaches it, and waits.
    fn ending(&self, signal: &str) -> String {
        let asked = format!("redis-cli -p {} ping >/dev/null 2>&1", self.port);
        format!("{}; while {asked}; do sleep 0.02; done", self.signalling(signal))
    }

    fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        Self::shell(&self.signalling("KILL"));
    }
}

/// On a server of the user's own, the user's commands do what acidtest does to its own servers.
#[test]
fn a_server_of_one_s_own_is_killed_by_one_s_own_commands() {
    if !wanted("redis") {
        return;
    }
    let (bench, own) = (Bench::new(), OwnRedis::start());
    let (address, kill, pause, resume) =
        (own.address(), own.signalling("KILL"), own.signalling("STOP"), own.signalling("CONT"));
    let (stop, start) = (own.ending("TERM"), own.starting());
    let words = ["run", "inventory", "--store", &address, "--clients", "8", "--warmup", "0s", "--replace"];
    let commands = ["--on-kill", &kill, "--on-stop", &stop, "--on-start", &start];
    let pauses = ["--on-pause", &pause, "--on-resume", &resume];
    let faults = ["--fault", "kill@600ms:300ms+restart@2s+pause@3s:400ms", "--duration", "4s"];
    let answers = || bench.run(&[&words[..], &["--duration", "100ms"]].concat()).code == Some(0);
    until("the server answers", answers);
    let ended = bench.run(&[&words[..], &commands, &pauses, &faults].concat()).expect(0);
    let result = bench.result();
    let cell = &cells(&result)[0];
    assert_eq!(verdict(cell), "holds", "{}", ended.stdout);
    let away: Vec<f64> = injections(cell)
        .iter()
        .map(|injected| injected["back_seconds"].as_f64().unwrap() - injected["at_seconds"].as_f64().unwrap())
        .collect();
    assert!(away.len() == 3 && away[0] >= 0.3 && away[2] >= 0.4, "{away:?}");
    // a stop in order is no crash
    assert!(ended.stdout.contains("· 1 crash"), "{}", ended.stdout);
    // one that refuses all writes once it is back has kept what it had, and nobody is served to the end
    let refusing = format!("{start} --min-replicas-to-write 1");
    let refuses = ["--on-kill", &kill, "--on-start", &refusing, "--fault", "kill@1s"];
    let ended = bench.run(&[&words[..], &refuses, &["--duration", "2s"]].concat()).expect(3);
    let result = bench.result();
    assert_eq!(verdict(&cells(&result)[0]), "holds", "{}", ended.stdout);
    assert!(ended.stdout.contains("nobody was served again within the run"), "{}", ended.stdout);
    let trial = trial(&cells(&result)[0]);
    let (served, all) = (trial["served_seconds"].as_f64().unwrap(), trial["seconds"].as_f64().unwrap());
    assert!(served < all - 0.5, "{served} of {all}");
    assert!(ended.stderr.contains("removing the namespace failed"), "{}", ended.stderr);
    OwnRedis::shell(&stop);
    OwnRedis::shell(&start);
    until("the server answers", answers);
    // what a command says is shown if it fails, and the run's other trials are not lost
    let failing =
        ["--on-kill", "echo no such unit; exit 5", "--on-start", "true", "--fault", "none,kill@100ms"];
    let ended = bench.run(&[&words[..], &failing, &["--duration", "500ms"]].concat());
    assert!(ended.stdout.contains("ended with exit code 5, and said:"), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("no such unit"), "{}", ended.stdout);
    assert_eq!(verdict(&cells(&bench.result())[0]), "holds");
    // a fault without its command is refused, and no command of a result is run
    let ended = bench.run(&[&words[..], &["--fault", "kill@100ms", "--on-kill", "true"]].concat()).expect(2);
    assert!(ended.stderr.contains("give --on-start COMMAND"), "{}", ended.stderr);
    let file = bench.results().pop().unwrap().display().to_string();
    let ended = bench.run(&["run", "--resume", &file]).expect(2);
    assert!(ended.stderr.contains("taken from the command line only"), "{}", ended.stderr);
}

/// What a server has handed out and loses in a crash is lost, however much of what was outstanding that is: here the end of its
/// append-only file, back to the last acknowledgement of a consumer.
#[test]
fn a_queue_that_loses_what_it_had_handed_out_is_broken() {
    if !wanted("redis") {
        return;
    }
    let (bench, own) = (Bench::new(), OwnRedis::start());
    let (address, start) = (own.address(), own.starting());
    let path = own.folder.path().display();
    let cut = format!(
        "for file in $(grep -la XACK {path}/appendonly.aof {path}/appendonlydir/*.incr.aof); do \
         truncate -s $(grep -abo XACK $file | tail -1 | cut -d: -f1) $file; done"
    );
    let kill = format!("{}; {cut}", own.ending("KILL"));
    let words =
        ["run", "queue", "--store", &address, "--producers", "2", "--consumers", "8", "--batch", "100"];
    let commands = ["--on-kill", &kill, "--on-start", &start, "--warmup", "0s", "--replace"];
    with_more_time(500, |millis| {
        let (fault, duration) = (format!("kill@{millis}ms"), format!("{}ms", millis + 1500));
        let ended =
            bench.run(&[&words[..], &commands, &["--fault", &fault, "--duration", &duration]].concat());
        let result = bench.result();
        let in_hand = trial(&cells(&result)[0])["audit"]["evidence"]["lost_in_hand"].as_u64();
        let is_caught = ended.code == Some(4) && in_hand > Some(0);
        if is_caught { Ok(()) } else { Err(ended.stdout) }
    });
}

/// A Redis server of the user's own that a supervisor starts again whenever it ends. Dropping it ends both.
struct Supervised {
    supervisor: std::process::Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Supervised {
    fn start(persistence: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("acidtest-own-").tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let path = folder.path().display();
        let server =
            format!("redis-server --dir {path} --port {port} --bind 127.0.0.1 --save '' {persistence}");
        let again = format!("while :; do {server} >>{path}/log & echo $! >{path}/pid; wait $!; done");
        let supervisor = std::process::Command::new("sh").args(["-c", &again]).spawn().unwrap();
        let own = Self { supervisor, folder, port };
        until("the server answers", || own.clients().is_some());
        own
    }

    fn kill(&self) -> String {
        format!("kill -KILL $(cat {}/pid)", self.folder.path().display())
    }

    fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many are connected; none if nobody answers.
    fn clients(&self) -> Option<usize> {
        let asked = ["-p", &self.port.to_string(), "client", "list"].map(str::to_owned);
        let answer = std::process::Command::new("redis-cli").args(asked).output().unwrap();
        let listed =
            String::from_utf8_lossy(&answer.stdout).lines().filter(|line| line.starts_with("id=")).count();
        (listed > 0).then_some(listed)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = (self.supervisor.kill(), self.supervisor.wait());
        OwnRedis::shell(&self.kill());
    }
}

/// A server of one's own that somebody else starts again is not accused of what it may lose then, nor is its lock; and what
/// keeps everything over that loses nothing. Either way it is told.
#[test]
fn a_server_that_restarts_unasked_is_not_accused() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "inventory", "--clients", "8", "--warmup", "0s", "--replace", "--store"];
    let told = "the server restarted, or another one took its place, found at ";
    // without a fault, it is killed behind acidtest's back
    let own = Supervised::start("--appendonly no");
    with_more_time(500, |millis| {
        let duration = format!("{}ms", millis + 2000);
        let run = bench.spawn(&[&words[..], &[&own.address(), "--duration", &duration]].concat());
        until("the clients are at work", || own.clients().is_some_and(|clients| clients > 8));
        thread::sleep(Duration::from_millis(millis));
        OwnRedis::shell(&own.kill());
        let ended = wait(run).expect(0);
        let result = bench.result();
        let cell = &cells(&result)[0];
        assert_eq!(found(cell, "lock"), 0, "{cell:#}");
        let restart = &trial(cell)["restarts"][0];
        assert_eq!(restart["member"], "server", "{cell:#}");
        assert!(restart["unserved_from_seconds"].is_number(), "{restart:#}");
        assert!(!ended.stdout.contains("despite a promise"), "{}", ended.stdout);
        let is_lost = found(cell, "durability") > 0 && ended.stdout.contains(told);
        if is_lost { Ok(()) } else { Err(ended.stdout) }
    });
    // what is to make it stand still ends it
    let own = Supervised::start("--appendonly yes --appendfsync always");
    let (address, kill) = (own.address(), own.kill());
    let pause = ["--fault", "pause@700ms:100ms", "--on-pause", &kill, "--on-resume", "true", "--trials", "2"];
    let ended = bench.run(&[&words[..], &[&address, "--duration", "2s"], &pause].concat()).expect(0);
    let result = bench.result();
    for trial in cells(&result)[0]["trials"].as_array().unwrap() {
        assert_eq!(trial["audit"]["verdict"], "holds", "{trial:#}");
        assert_eq!(trial["restarts"].as_array().map(Vec::len), Some(1), "{trial:#}");
    }
    assert!(ended.stdout.contains(told) && !ended.stdout.contains(" · 1 crash"), "{}", ended.stdout);
    bench.assert_clean();
}

/// What each store may lose below its highest durability level, and is known to: tried until it does, because nothing
/// says that it must. It is no failure, and not the lock's.
#[test]
fn what_may_be_lost_is_found_to_be_lost() {
    let bench = Bench::new();
    for (store, words) in [
        // synchronous_commit=off
        ("postgres", "inventory --store postgres --durability none"),
        ("mariadb", "records --mix a --records 500 --store mariadb/memory --durability none"),
        ("tarantool", "inventory --store tarantool --durability none"),
        // written to a connection, which says nothing
        ("rabbitmq", "queue --store rabbitmq --ack none --in-flight 50"),
    ] {
        if !wanted(store) {
            continue;
        }
        with_more_time(300, |millis| {
            let (fault, duration) = (format!("kill@{millis}ms"), format!("{}ms", millis + 2000));
            let words = ["run"].into_iter().chain(words.split(' '));
            let timing = ["--fault", &fault, "--warmup", "0s", "--duration", &duration, "--timeout", "1s"];
            let ended = bench.run(&words.chain(timing).collect::<Vec<_>>()).expect(0);
            let result = bench.result();
            let killed = &cells(&result)[0];
            assert_eq!(found(killed, "lock"), 0, "{store}: {killed:#}");
            let lost = found(killed, "durability") + found(killed, "delivery");
            if lost > 0 { Ok(()) } else { Err(format!("{store} lost nothing: {}", ended.stdout)) }
        });
    }
    bench.assert_clean();
}

/// A server that is killed while its final state is read back leaves a verdict of unknown, and nothing else.
#[test]
fn a_server_that_dies_during_the_audit_leaves_it_unknown() {
    if !wanted("redis") {
        return;
    }
    let bench = Bench::new();
    let words = ["run", "records", "--mix", "a", "--fields", "2", "--store", "redis"];
    let timing = ["--warmup", "0s", "--duration", "500ms"];
    // so many that their audit lasts 5 s, after which it is told of
    let mut records = 200_000;
    with_more_time(1, |_| {
        records *= 2;
        let many = records.to_string();
        let mut run = bench.spawn(&[&words[..], &timing, &["--records", &many]].concat());
        let told = std::io::BufReader::new(run.stderr.take().unwrap());
        let reading = thread::spawn(move || {
            std::io::BufRead::lines(told).map_while(Result::ok).find(|line| line.contains("auditing"))
        });
        let is_auditing = reading.join().unwrap().is_some();
        let listed = bench.run(&["lab", "list"]).stdout;
        let pid =
            listed.split(" · process ").nth(1).and_then(|rest| rest.split([' ', '\n']).next()?.parse().ok());
        if let (true, Some(pid)) = (is_auditing, pid) {
            signal("KILL", pid);
        }
        let ended = wait(run);
        bench.assert_clean();
        // the audit may have been over by then
        let result = bench.results().pop().map(|_| bench.result());
        match result.as_ref().map(|result| verdict(&cells(result)[0])) {
            Some("unknown") => {
                assert_eq!(ended.code, Some(5), "{}", ended.stdout);
                Ok(())
            }
            other => Err(format!("{other:?}: {}", ended.stdout)),
        }
    });
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{Bench, cells, injections, verdict, wanted};

    /// A second kill while the server recovers from the first, a stop in order, and a pause: all in one trial, over
    /// several stores.
    #[test]
    #[ignore = "slow: ./check --all"]
    fn one_fault_upon_another_ends_cleanly() {
        let stores: Vec<&str> =
            ["postgres", "mariadb", "tarantool"].into_iter().filter(|store| wanted(store)).collect();
        if stores.is_empty() {
            return;
        }
        let bench = Bench::new();
        let faults = "kill@1s+kill@1100ms+restart@3s+pause@5s:400ms";
        let words = ["run", "inventory", "--store", &stores.join(","), "--fault", faults, "--warmup", "0s"];
        let ended = bench.run(&[&words[..], &["--duration", "7s", "--clients", "4"]].concat()).expect(0);
        let result = bench.result();
        for cell in cells(&result) {
            let store = &cell["store"];
            assert_eq!(verdict(cell), "holds", "{store}: {}", ended.stdout);
            let begun: Vec<&str> =
                injections(cell).iter().map(|injected| injected["fault"].as_str().unwrap()).collect();
            assert_eq!(begun, ["kill", "kill", "restart", "pause"], "{store}");
            assert!(injections(cell).last().unwrap()["answered_seconds"].is_number(), "{store}: {cell:#}");
        }
        bench.assert_clean();
    }
}
