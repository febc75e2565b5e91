//! A sampler's figures for processes whose use is known.

use std::{
    fmt::Debug,
    fs,
    io::{Seek, Write},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::running::{Running, alone, wait_until};
use acidtest_observe::{MachineUse, MemoryKind, ProcessUse, Resources, Sampler, machine, writes_to_disks};

const MIB: u64 = 1 << 20;
const EVERY: Duration = Duration::from_millis(100);

/// Held by each test that keeps a core busy or waits for another process: run at once, such tests would starve each
/// other.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Samples again, for longer each time, until the expected figures are seen. A busy machine may stop a sampler
/// between its reading of the clock and its reading of a process, and so hide them.
fn again_until<T: Debug>(span: Duration, sampled: impl Fn(Duration) -> T, is_seen: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    for times in 1.. {
        let seen = sampled(span * times);
        if is_seen(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_mins(2), "{seen:?}");
    }
    unreachable!("there are enough times")
}

/// The processes of the group led by `leader`.
fn group(leader: u32) -> impl Iterator<Item = procfs::process::Stat> {
    let all = procfs::process::all_processes().unwrap().flatten().filter_map(|process| process.stat().ok());
    all.filter(move |stat| u32::try_from(stat.pgrp) == Ok(leader))
}

/// CPU seconds that the process group led by `leader` ever used, to compare a sampler's figures with: a busy
/// machine may give a busy loop far less than a core.
fn truth(leader: u32) -> f64 {
    let ticks: i64 = group(leader)
        .map(|stat| i64::try_from(stat.utime + stat.stime).unwrap() + stat.cutime + stat.cstime)
        .sum();
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// Samples the processes that run `script`, `processes` of which keep a core busy, for `span` at least and until
/// they have used enough, and compares their CPU time with [`truth`].
fn observed_truly(script: &str, processes: usize, span: Duration) -> Resources {
    let _turn = turn();
    let server = Running::sh(script);
    let sampler = Sampler::start(Some(server.pid()), &[], EVERY);
    let before = truth(server.pid());
    thread::sleep(span);
    wait_until("they have used enough", || {
        group(server.pid()).count() >= processes && truth(server.pid()) - before > 0.3
    });
    let after = truth(server.pid());
    let resources = sampler.stop();
    let (seen, least, most) =
        (resources.server.as_ref().unwrap().cpu_seconds, after - before, truth(server.pid()));
    // the figures of each process and sample are rounded to a tick
    assert!((least - 0.1..most + 0.1).contains(&seen), "{seen} is not within {least} and {most}");
    resources
}

fn server(resources: &Resources) -> &ProcessUse {
    resources.server.as_ref().unwrap()
}

fn scratch() -> tempfile::TempDir {
    // on a disk, because a directory for temporary files may be in memory
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_busy_loop_is_one_core() {
    let sampled = |span| observed_truly("while :; do :; done", 1, span);
    let resources = again_until(Duration::from_secs(1), sampled, |resources| {
        let (used, machine) = (server(resources), &resources.machine);
        resources.samples > 3
            && used.cpu_mean < 1.1
            && used.cpu_max < 1.5
            && machine.cpu_mean > 0.5 * used.cpu_mean
            && machine.cpu_mean <= 1.1 * machine.cores as f64
    });
    let used = server(&resources);
    assert!(resources.seconds >= 0.95, "{resources:?}");
    assert!(used.cpu_max >= used.cpu_mean, "{used:?}");
    assert_eq!(used.processes, 1);
}

#[test]
fn a_tree_is_counted_whole() {
    let burn = "while :; do :; done";
    let script = format!("({burn}) & ({burn}) & wait");
    let sampled = |span| observed_truly(&script, 3, span);
    let resources =
        again_until(Duration::from_millis(2500), sampled, |resources| server(resources).cpu_mean < 2.2);
    assert_eq!(server(&resources).processes, 3, "{resources:?}");
}

#[test]
fn children_too_short_lived_to_be_seen_are_counted() {
    let burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let script = format!("while :; do ({burn}); done");
    let sampled = |span| observed_truly(&script, 1, span);
    again_until(Duration::from_secs(2), sampled, |resources| server(resources).cpu_mean < 1.1);
}

#[test]
fn all_that_a_process_born_within_the_span_used_is_counted() {
    // the span is too short for a search for new processes before its end
    let script = "sleep 0.1; (while :; do :; done) & wait";
    observed_truly(script, 2, Duration::from_millis(800));
}

#[test]
fn what_a_process_used_before_the_span_is_not_counted() {
    let _turn = turn();
    let server = Running::sh("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exec sleep 60");
    let name = format!("/proc/{}/comm", server.pid());
    wait_until("it burns no more", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
    let sampler = Sampler::start(Some(server.pid()), &[], EVERY);
    thread::sleep(Duration::from_millis(300));
    let resources = sampler.stop();
    assert!(resources.server.unwrap().cpu_seconds < 0.1);
}

#[test]
fn memory_of_a_child_is_counted() {
    // a shell variable of 32 MiB
    let allocate = "x=$(head -c 33554432 /dev/zero | tr '\\0' x); sleep 60; echo $x";
    let _turn = turn();
    let running = Running::sh(&format!("({allocate}) & wait"));
    let sampler = Sampler::start(Some(running.pid()), &[], EVERY);
    wait_until("the child has it", || group(running.pid()).any(|stat| stat.comm == "sleep"));
    let resources = sampler.stop();
    let used = server(&resources);
    assert!((32 * MIB..400 * MIB).contains(&used.memory_max_bytes), "{used:?}");
    assert!((1..=used.memory_max_bytes).contains(&used.memory_mean_bytes), "{used:?}");
    assert!(resources.client.memory_mean_bytes > 0);
}

/// Samples a server whose child writes 8 MiB, syncs them and ends. The server is killed before the last sample if
/// `killed`. `None` where there is no disk to write to.
fn writing(killed: bool) -> Option<Resources> {
    let _turn = turn();
    let directory = scratch();
    if machine(directory.path()).filesystem == "tmpfs" {
        eprintln!("skipped: no disk below {}", directory.path().display());
        return None;
    }
    let path = directory.path().display();
    let write = format!("dd if=/dev/zero of='{path}/file' bs=1M count=8 conv=fsync 2>/dev/null");
    // the child that wrote lives until it was seen; then its parent, waiting for it, inherits
    let script = format!("sleep 0.3; ({write}; sleep 2; true); mkdir '{path}/done'; sleep 60");
    let mut server = Running::sh(&script);
    let sampler = Sampler::start(Some(server.pid()), &[], EVERY);
    wait_until("it has written", || directory.path().join("done").exists());
    if killed {
        server.end();
    }
    Some(sampler.stop())
}

#[test]
fn bytes_written_by_a_child_are_counted_once() {
    let Some(resources) = writing(false) else { return };
    let written = server(&resources).written_bytes.unwrap();
    assert!((8 * MIB..12 * MIB).contains(&written), "{written}");
}

#[test]
fn a_server_that_dies_keeps_what_was_seen() {
    let _turn = turn();
    let sampled = |span| {
        let mut server = Running::sh("while :; do :; done");
        let sampler = Sampler::start(Some(server.pid()), &[], EVERY);
        thread::sleep(span);
        server.end();
        thread::sleep(span / 2);
        sampler.stop()
    };
    let resources =
        again_until(Duration::from_millis(800), sampled, |resources| server(resources).cpu_seconds > 0.02);
    let (used, seconds) = (server(&resources), resources.seconds);
    assert!(used.cpu_seconds < seconds + 0.1, "{used:?} in {seconds} s");
    assert!(used.memory_mean_bytes > 0 && used.processes == 1, "{used:?}");
    assert!(used.cpu_max >= used.cpu_mean, "{used:?}");
}

#[test]
fn a_span_shorter_than_an_interval_has_two_samples() {
    let _turn = turn();
    let burning = Running::sh("while :; do :; done");
    let sampled = |span| {
        let sampler = Sampler::start(Some(burning.pid()), &[], Duration::from_hours(1));
        thread::sleep(span);
        sampler.stop()
    };
    let seen = |resources: &Resources| (0.0..1.5).contains(&server(resources).cpu_max);
    let resources = again_until(Duration::from_millis(150), sampled, seen);
    assert_eq!(resources.samples, 2);
    assert!(server(&resources).memory_max_bytes > 0, "{resources:?}");
    let none = Sampler::start(None, &[], Duration::ZERO).stop();
    assert!(none.seconds >= 0.0 && none.client.cpu_max.is_finite() && none.machine.cpu_max.is_finite());
}

/// Servers that run side by side are told apart, and neither counts as the other or as the client.
#[test]
fn each_server_has_its_own_figures() {
    let _turn = turn();
    let (idle, burning) = (Running::sh("sleep 60"), Running::sh("while :; do :; done"));
    let sampled = |span| {
        let sampler = Sampler::start(Some(idle.pid()), &[("other", burning.pid())], EVERY);
        thread::sleep(span);
        sampler.stop()
    };
    let used = |resources: &Resources| (server(resources).cpu_seconds, resources.others["other"].cpu_seconds);
    let seen = |resources: &Resources| used(resources).1 > 0.1;
    let resources = again_until(Duration::from_millis(300), sampled, seen);
    let (idle, burning) = used(&resources);
    assert!(idle < 0.05 && burning > 0.1 && resources.client.cpu_seconds < burning, "{resources:?}");
    let gone = Sampler::start(None, &[("gone", u32::MAX)], EVERY).stop();
    assert!(gone.others.is_empty());
}

/// A server that was started again is the same server: the use of both its processes counts.
#[test]
fn a_server_that_was_started_again_is_followed() {
    let _turn = turn();
    let burn = |name: &str| {
        let mut first = Running::sh("while :; do :; done");
        let other = (name == "other").then_some(name);
        let others: Vec<(&str, u32)> = other.map(|name| (name, first.pid())).into_iter().collect();
        let own = if other.is_some() { None } else { Some(first.pid()) };
        let sampler = Sampler::start(own, &others, EVERY);
        wait_until("it has used enough", || truth(first.pid()) > 0.3);
        thread::sleep(EVERY * 2);
        first.end();
        let second = Running::sh("while :; do :; done");
        sampler.follow(other, second.pid());
        sampler.follow(other, second.pid());
        wait_until("it has used enough, too", || truth(second.pid()) > 0.3);
        let most = truth(second.pid()) + 60.0;
        let resources = sampler.stop();
        let used = other.map_or_else(|| server(&resources).clone(), |name| resources.others[name].clone());
        assert!((0.5..most).contains(&used.cpu_seconds), "{name}: {resources:?}");
        assert_eq!(used.processes, 1, "{name}");
    };
    burn("server");
    burn("other");
}

#[test]
fn without_a_process_of_its_own_there_is_no_server() {
    let mut gone = Running::sh("exit 0");
    let pid = gone.pid();
    gone.end();
    for server in [None, Some(std::process::id()), Some(pid), Some(u32::MAX)] {
        let resources = Sampler::start(server, &[], EVERY).stop();
        assert_eq!(resources.server, None, "{server:?}");
        assert_eq!(resources.client.processes, 1);
    }
}

#[test]
fn what_may_not_be_read_is_not_made_up() {
    let used = Sampler::start(Some(1), &[], EVERY).stop().server;
    let refused = |file| fs::read(file).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    let Some(used) = used.filter(|_| refused("/proc/1/smaps_rollup")) else { return };
    assert_eq!((used.memory_kind, used.read_bytes), (MemoryKind::Resident, None));
    assert!(used.memory_max_bytes > 0);
}

#[test]
fn the_machine_is_described() {
    let machine = machine(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(!machine.cpu.is_empty() && machine.cores > 0);
    assert!(machine.memory_bytes > 64 * MIB);
    assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
    assert_ne!(machine.filesystem, "unknown");
    let text = serde_json::to_string(&machine).unwrap();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!text.contains("hostname") && serde_json::from_str::<serde_json::Value>(&text).is_ok());
    assert_ne!(machine.cpu, name.trim());
}

#[test]
fn resources_survive_json() {
    let used = ProcessUse {
        processes: 3,
        cpu_seconds: 1.5,
        cpu_mean: 0.75,
        cpu_max: 1.25,
        memory_mean_bytes: 10,
        memory_max_bytes: 20,
        memory_kind: MemoryKind::Proportional,
        read_bytes: Some(0),
        written_bytes: None,
    };
    let machine = MachineUse {
        cpu_mean: 1.0,
        cpu_max: 2.0,
        cores: 4,
        steal_mean: Some(0.5),
        pressure_cpu_some: Some(12.5),
        pressure_io_some: None,
        pressure_io_full: None,
        pressure_memory_some: None,
        pressure_memory_full: None,
        written_bytes: Some(7),
    };
    for server in [None, Some(used.clone())] {
        let resources = Resources {
            seconds: 2.0,
            samples: 9,
            client: used.clone(),
            server,
            others: [].into(),
            machine: machine.clone(),
        };
        let mut limited = resources.clone();
        limited.limit_written();
        assert_eq!(limited, resources, "what is not known stays so");
        let text = serde_json::to_string(&resources).unwrap();
        assert!(text.contains(r#""memory_kind":"proportional""#), "{text}");
        assert_eq!(serde_json::from_str::<Resources>(&text).unwrap(), resources);
    }
}

/// Small writes into a large file, each of them synced: kernels with large folios count a whole one each time.
#[test]
fn no_process_has_written_more_than_the_machine() {
    let _turn = turn();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if !writes_to_disks(&machine(folder).filesystem) {
        return;
    }
    let mut file = tempfile::tempfile_in(folder).unwrap();
    file.write_all(&vec![1; 8 << 20]).unwrap();
    file.sync_data().unwrap();
    file.rewind().unwrap();
    let sampler = Sampler::start(None, &[], EVERY);
    for _ in 0..50 {
        file.write_all(&[2; 100]).unwrap();
        file.sync_data().unwrap();
    }
    let mut resources = sampler.stop();
    let counted = resources.client.written_bytes.unwrap();
    let most = resources.machine.written_bytes.unwrap();
    assert!(most >= 50 * 512, "a disk takes a sector at least: {most}");
    resources.limit_written();
    assert_eq!(resources.client.written_bytes, Some(counted.min(most)));
}

/// The client waits for its server, so the kernel adds the bytes that the server wrote to the client's counters.
/// The test needs a process of its own, because others of these tests wait for children too.
#[test]
fn a_dead_server_is_not_counted_to_the_client() {
    alone("sampling::waits_for_a_server_that_wrote");
}

#[test]
#[ignore = "run by a_dead_server_is_not_counted_to_the_client, alone in its process"]
fn waits_for_a_server_that_wrote() {
    let Some(resources) = writing(true) else { return };
    assert!(server(&resources).written_bytes.unwrap() >= 8 * MIB, "{resources:?}");
    assert!(resources.client.written_bytes.unwrap() < MIB, "{resources:?}");
}
