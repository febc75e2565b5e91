//! The CPU time that sampling costs.

use std::{thread, time::Duration};

use crate::running::{Running, alone, wait_until};
use acidtest_observe::Sampler;
use rustix::time::{ClockId, clock_gettime};

fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// In a process of its own, so that no other CPU time is counted.
#[test]
fn sampling_costs_little() {
    alone("cost::costs_little");
}

#[test]
#[ignore = "run by sampling_costs_little, alone in its process"]
fn costs_little() {
    let server =
        Running::sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do sleep 60 & done; wait");
    wait_until("all sleep", || {
        let all = procfs::process::all_processes().unwrap().flatten();
        let stats = all.filter_map(|process| process.stat().ok());
        let sleep = |stat: &procfs::process::Stat| {
            u32::try_from(stat.pgrp) == Ok(server.pid()) && stat.comm == "sleep"
        };
        stats.filter(sleep).count() == 19
    });
    let before = cpu();
    let sampler = Sampler::start(Some(server.pid()), &[], Sampler::EVERY);
    thread::sleep(Duration::from_secs(3));
    let resources = sampler.stop();
    let cost = cpu().saturating_sub(before);
    let share = cost.as_secs_f64() / resources.seconds;
    println!(
        "{cost:?} of CPU in {:.2} s, {} samples of 20 processes: {:.3} % of a core",
        resources.seconds,
        resources.samples,
        100.0 * share
    );
    assert_eq!(resources.server.unwrap().processes, 20);
    assert!(share < 0.05, "{share}");
}
