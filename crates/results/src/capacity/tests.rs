use acidtest_model::Lock;
use acidtest_workloads::{Finding, guarantee::LOCK};

use super::*;
use crate::{
    ArrivalFigures, StopFigures,
    sample::search::{at_rate, begun, closed_loop, found, interrupted, operation, plain, searched},
};

/// 20 ms are reached at 750/s.
#[test]
fn a_capacity_is_found_with_what_stopped_it() {
    let result = plain(&["p99<20ms", "errors<0.1%"]);
    let found = found(&result);
    let capacity = found.carried.unwrap();
    assert!((675.0..=750.0).contains(&capacity), "{found:?}");
    let Limit::Objective { objective, at, ratio } = &found.limit else { panic!("{found:?}") };
    assert!(objective == "p99<20ms" && (750.0..790.0).contains(at) && ratio.unwrap() > 1.0, "{found:?}");
    assert!(
        found.finished && found.curve.len() >= 8 && (found.fresh_held, found.fresh) == (20, 20),
        "{found:?}"
    );
    let (limit, half) = found.at_limit_and_half().unwrap();
    assert!(is_same(limit.per_second, *at) && (0.45..0.55).contains(&(half.per_second / at)), "{found:?}");
    assert_eq!(result.next_probe(&result.cells[0]).unwrap(), Next::Nothing);
    // what was written is read as it was
    let text = serde_json::to_string(&result).unwrap();
    let mut again: RunResult = serde_json::from_str(&text).unwrap();
    again.find_capacities().unwrap();
    let read = again.cells[0].capacity.as_ref().unwrap();
    assert!(is_same(read.carried.unwrap(), capacity) && read.curve.len() == found.curve.len(), "{read:?}");
    assert!(read.at_limit_and_half().is_some() && read.limit == found.limit, "{read:?}");
    assert_eq!(again.next_probe(&again.cells[0]).unwrap(), Next::Nothing);
}

#[test]
fn an_objective_of_one_operation_is_of_that_one() {
    // release takes half as long: 20 ms at 875/s
    let capacity = |slo: &[&str]| found(&plain(slo)).carried.unwrap();
    let (release, capture) =
        (capacity(&["release:p99<20ms"]), capacity(&["release:p99<20ms", "capture:p50<10ms"]));
    assert!((785.0..=875.0).contains(&release), "{release}");
    assert!((440.0..=501.0).contains(&capture), "{capture}");
}

/// No rate at which a promise broke is given, however well it met its objectives.
#[test]
fn a_rate_at_which_the_audit_broke_is_not_given() {
    let broken = |trial: &mut TrialResult| {
        trial.audit.findings = vec![Finding::new("oversold", 5, "units", LOCK)];
        trial.audit.verdict = Verdict::Broken;
    };
    let slo = ["p99<20ms"];
    let result = searched(begun(&[Lock::Native], &slo), |rate, _, trial| {
        if rate >= 600.0 {
            broken(trial);
        }
    });
    let found_there = found(&result);
    assert!(matches!(found_there.limit, Limit::Broke { at } if at >= 600.0), "{found_there:?}");
    assert!((570.0..600.0).contains(&found_there.carried.unwrap()), "{found_there:?}");
    assert_eq!(found_there.verdict(), Verdict::Holds);
    // one that broke in the closed loop is as much of a bound
    let mut result = begun(&[Lock::Native], &slo);
    broken(&mut result.cells[0].trials[0]);
    let like = result.cells[0].trials[0].clone();
    result.cells[0].trials[0] = closed_loop(&like);
    let Next::Probe { rate, .. } = result.next_probe(&result.cells[0]).unwrap() else {
        panic!("there is a rate below it")
    };
    assert!(rate < 900.0, "{rate}");
    // without a lock it is as expected, and has a capacity that a lock is priced against
    let result = searched(begun(&[Lock::None, Lock::Native], &slo), |_, cell, trial| {
        if cell.lock == Lock::None {
            broken(trial);
        }
    });
    assert_eq!(found(&result).verdict(), Verdict::Broken);
    assert!(found(&result).carried.is_some_and(|capacity| capacity > 670.0));
    let [price] = result.cells[1].prices.as_slice() else { panic!("{:?}", result.cells[1].prices) };
    assert!(price.guarantee == "lock" && price.against == "none", "{price:?}");
    assert!(
        (price.throughput.estimate - 1.0).abs() < 0.05 && price.throughput.interval.is_some(),
        "{price:?}"
    );
}

/// A probe, or the closed loop before them, that broke a promise and was interrupted then: the search that goes on knows of it.
#[test]
fn a_rate_at_which_an_interrupted_trial_broke_a_promise_is_not_given() {
    let broken = |mut trial: TrialResult| {
        trial.audit.findings = vec![Finding::new("oversold", 5, "units", LOCK)];
        trial.audit.verdict = Verdict::Broken;
        interrupted(trial)
    };
    let search = || {
        let mut result = begun(&[Lock::Native], &["p99<20ms"]);
        let like = result.cells[0].trials.remove(0);
        (result, like)
    };
    let to_its_end = |mut result: RunResult, like: &TrialResult| {
        while let next @ (Next::ClosedLoop | Next::Probe { .. }) =
            result.next_probe(&result.cells[0]).unwrap()
        {
            let round = u32::try_from(result.cells[0].trials.len()).unwrap() + 1;
            let trial = match next {
                Next::Probe { rate, .. } => at_rate(like, rate, round),
                _ => closed_loop(like),
            };
            result.cells[0].trials.push(trial);
        }
        result.find_capacities().unwrap();
        result
    };
    let (mut result, like) = search();
    let mut slow = at_rate(&like, 450.0, 3);
    slow.operations[0] = operation(&like.operations[0], "capture", &[("ok", 900.0, 1000)]);
    result.cells[0].trials = vec![closed_loop(&like), at_rate(&like, 450.0, 2), broken(slow)];
    let result = to_its_end(result, &like);
    let found_there = found(&result);
    assert_eq!(found_there.limit, Limit::Broke { at: 450.0 });
    assert!((400.0..450.0).contains(&found_there.carried.unwrap()), "{found_there:?}");
    let at_it = found_there.curve.iter().find(|figures| is_same(figures.per_second, 450.0)).unwrap();
    assert_eq!((at_it.met, at_it.other, at_it.verdict), (1, 1, Verdict::Broken));
    // what it measured before it was interrupted is in no median
    let alone = at_one_rate(&[&{
        let probe = Probe::of(&result.cells[0].trials[1], &result.cells[0], &result).unwrap();
        let observation = probe.observation(450.0, &[]);
        (probe, observation)
    }]);
    assert_eq!((&at_it.times, at_it.used), (&alone.times, alone.used));
    // of the closed loop: the rate that it had reached, or that of the one made in its place where nothing had ended yet
    for (completed, at) in [(4_000, 400.0), (0, 900.0), (90_000, 900.0)] {
        let (mut result, like) = search();
        let mut first = broken(closed_loop(&like));
        first.arrived.completed = completed;
        result.cells[0].trials = vec![first];
        assert_eq!(result.next_probe(&result.cells[0]).unwrap(), Next::ClosedLoop);
        result.cells[0].trials.push(closed_loop(&like));
        let result = to_its_end(result, &like);
        let carried = found(&result).carried.unwrap();
        assert!(carried < at && carried > 0.8 * at.min(790.0), "{completed}: {:?}", found(&result));
    }
    // one that broke nothing tells nothing
    let (mut result, like) = search();
    result.cells[0].trials = vec![closed_loop(&like), interrupted(at_rate(&like, 450.0, 2))];
    assert!(found(&to_its_end(result, &like)).carried.is_some_and(|carried| carried > 670.0));
}

/// A capacity and even odds, which lie above it by what probes differ by, are never held against each other.
#[test]
fn prices_of_capacities_compare_like_with_like() {
    let mut result = searched(begun(&[Lock::None, Lock::Native], &["p99<20ms"]), |_, _, _| {});
    let (carried, odds) = (700.0, RateEstimate { per_second: 900.0, low: 880.0, high: 920.0, spread: 0.1 });
    for found in result.cells.iter_mut().filter_map(|cell| cell.capacity.as_mut()) {
        (found.carried, found.even_odds) = (Some(carried), Some(odds));
    }
    let objective = found(&result).limit.clone();
    let mut priced = |odds: [Option<RateEstimate>; 2], limits: [&Limit; 2]| {
        for (cell, (odds, limit)) in result.cells.iter_mut().zip(odds.into_iter().zip(limits)) {
            let found = cell.capacity.as_mut().unwrap();
            (found.even_odds, found.limit) = (odds, limit.clone());
        }
        result.price_capacities();
        let price = &result.cells[1].prices[0].throughput;
        (price.estimate, price.interval.is_some())
    };
    let twice = RateEstimate { per_second: 1800.0, low: 1760.0, high: 1840.0, spread: 0.1 };
    let (ratio, has_interval) = priced([Some(odds), Some(twice)], [&objective, &Limit::Budget]);
    assert!((ratio - 2.0).abs() < 1e-9 && has_interval, "{ratio}");
    for limit in [Limit::Broke { at: 710.0 }, Limit::Unknown { at: 710.0 }] {
        for limits in [[&objective, &limit], [&limit, &objective]] {
            let (ratio, has_interval) = priced([Some(odds), Some(twice)], limits);
            assert!((ratio - 1.0).abs() < 1e-9 && !has_interval, "{ratio}");
        }
    }
    let (ratio, has_interval) = priced([Some(odds), None], [&objective, &Limit::Highest]);
    assert!((ratio - 1.0).abs() < 1e-9 && !has_interval, "{ratio}");
    // a promise broke below the even odds, though an objective was missed first
    let both = [Some(odds), Some(twice)];
    result.cells[1].trials[1].rate = Some(1800.0);
    result.cells[1].trials[1].audit.findings = vec![Finding::new("oversold", 5, "units", LOCK)];
    let mut priced = |rate: f64| {
        for (cell, odds) in result.cells.iter_mut().zip(both) {
            let found = cell.capacity.as_mut().unwrap();
            (found.even_odds, found.limit) = (odds, objective.clone());
        }
        result.cells[1].trials[1].rate = Some(rate);
        result.price_capacities();
        result.cells[1].prices[0].throughput.estimate
    };
    let (beyond, below) = (priced(1801.0), priced(1800.0));
    assert!((beyond - 2.0).abs() < 1e-9 && (below - 1.0).abs() < 1e-9, "{beyond} {below}");
    // so it does in a closed loop, which has no rate but the one that it reached
    result.cells[1].trials[1].rate = None;
    result.price_capacities();
    assert!(
        (result.cells[1].prices[0].throughput.estimate - 1.0).abs() < 1e-9,
        "{:?}",
        result.cells[1].prices
    );
    // even odds are known before a capacity is confirmed, but not where the bench gave up first
    result.cells[1].trials[1].audit.findings.clear();
    for cell in &mut result.cells {
        cell.capacity.as_mut().unwrap().carried = None;
    }
    result.price_capacities();
    assert!(
        (result.cells[1].prices[0].throughput.estimate - 2.0).abs() < 1e-9,
        "{:?}",
        result.cells[1].prices
    );
    result.cells[0].capacity.as_mut().unwrap().limit = Limit::Bench { at: 950.0 };
    result.price_capacities();
    assert_eq!(result.cells[1].prices, []);
}

#[test]
fn a_bench_that_could_not_offer_the_rate_gives_no_capacity() {
    let at_most = |busy: f64, embedded: bool, own: f64, threads| {
        let mut result = begun(&[Lock::Native], &["p99<20ms"]);
        result.harness.nanoseconds_per_operation = own;
        (result.cells[0].embedded, result.cells[0].threads) = (embedded, threads);
        let result = searched(result, |rate, _, trial| {
            if rate >= 600.0 {
                trial.operations[0] = operation(&trial.operations[0], "capture", &[("ok", 900.0, 1000)]);
                trial.resources.client.cpu_mean = busy;
            }
            trial.throughput = rate;
        });
        found(&result).clone()
    };
    let limited = at_most(15.0, false, 250.0, None);
    assert!(matches!(limited.limit, Limit::Bench { at } if (600.0..620.0).contains(&at)), "{limited:?}");
    assert!(limited.carried.is_none() && limited.passed.is_some_and(|passed| passed < 600.0), "{limited:?}");
    // so did clients whose threads were busy, however many cores there are
    let on_threads = |threads| at_most(3.5, false, 250.0, threads).limit;
    assert!(matches!(on_threads(Some(4)), Limit::Bench { .. }));
    assert!(matches!(on_threads(Some(5)), Limit::Objective { .. }));
    // idle clients did not set the limit, and of an embedded store the CPU time is its own
    for found in [at_most(4.0, false, 250.0, None), at_most(7.9, true, 250.0, None)] {
        assert!(matches!(found.limit, Limit::Objective { .. }) && found.carried.is_some(), "{found:?}");
    }
    // unless the bench itself needs most of it
    assert!(matches!(at_most(7.9, true, 8e6, None).limit, Limit::Bench { .. }));
}

#[test]
fn an_objective_that_no_rate_meets_tells_the_best_seen() {
    let result = plain(&["p99<1ms"]);
    let Limit::NoRate { objective, at, ratio } = &found(&result).limit else {
        panic!("{:?}", found(&result))
    };
    // at the lowest rate, which takes the least time: with fewer operations in 10 s a p99 of half of them could not be judged
    assert!(
        objective == "p99<1ms" && (*at - 300.0).abs() < 1e-9 && (7.1..7.2).contains(&ratio.unwrap()),
        "{at} {ratio:?}"
    );
}

#[test]
fn of_a_store_that_is_lost_what_is_known_is_kept() {
    let result = searched(begun(&[Lock::Native], &["p99<20ms"]), |_, cell, trial| {
        if cell.trials.len() == 20 {
            trial.stopped = Some(StopFigures { reason: "server gone".to_owned(), detail: String::new() });
        }
    });
    let lost = found(&result);
    assert!(
        matches!(lost.limit, Limit::Gone { at: Some(_) }) && lost.probes == 20 && lost.finished,
        "{lost:?}"
    );
    assert!(lost.passed.is_some() && lost.curve.iter().any(|figures| figures.met > 0), "{lost:?}");
    // one that cannot be reached for another probe
    let mut result = begun(&[Lock::Native], &["p99<20ms"]);
    let like = result.cells[0].trials.remove(0);
    result.cells[0].trials = vec![closed_loop(&like), at_rate(&like, 450.0, 2)];
    result.cells[0].error = Some("it is gone".to_owned());
    result.find_capacities().unwrap();
    assert_eq!((found(&result).probes, &found(&result).limit), (1, &Limit::Gone { at: Some(900.0) }));
    assert_eq!(result.next_probe(&result.cells[0]).unwrap(), Next::Nothing);
    result.cells[0].error = None;
    // a trial that was interrupted is none
    result.cells[0].trials.push(interrupted(at_rate(&like, 900.0, 3)));
    result.find_capacities().unwrap();
    assert_eq!(found(&result).probes, 1);
    assert_eq!(found(&result).limit, Limit::Unfinished);
    assert!(matches!(result.next_probe(&result.cells[0]).unwrap(), Next::Probe { .. }));
}

/// 10 of 1,000 operations that ended were not served, and of 1,250 that were offered 250 were never started.
#[test]
fn what_was_not_served_is_slower_than_anything_and_an_error() {
    let mut result = begun(&[Lock::Native], &["errors<1%"]);
    let like = result.cells[0].trials.remove(0);
    let ended = [
        ("ok", 1.0, 890),
        ("refused", 1.0, 100),
        ("failed", 1.0, 4),
        ("unknown", 9.0, 3),
        ("conflict", 1.0, 3),
    ];
    let mut trial = at_rate(&like, 100.0, 1);
    trial.operations = vec![operation(&like.operations[0], "capture", &ended)];
    trial.arrived = ArrivalFigures { offered: 1250, started: 1000, completed: 1000, late: 0, dropped: 250 };
    let probe = Probe::of(&trial, &result.cells[0], &result).unwrap();
    assert!((probe.errors - 260.0 / 1250.0).abs() < 1e-9, "{}", probe.errors);
    let missed = |slo: &str| probe.observation(100.0, &[slo.parse().unwrap()]).ended;
    // of 890 acknowledged and 260 not served, 77 % are fast
    assert_eq!(missed("p77<20ms"), Ended::Met);
    assert_eq!(missed("p78<20ms"), Ended::Missed { objective: 0, ratio: f64::INFINITY });
    assert_eq!(missed("max<1s"), Ended::Missed { objective: 0, ratio: f64::INFINITY });
    assert_eq!(missed("errors<20.9%"), Ended::Met);
    assert!(matches!(missed("errors<20.7%"), Ended::Missed { .. }));
    assert!(matches!(missed("capture:errors<20.7%"), Ended::Missed { .. }));
    // what was not tried may be among what was never started
    assert_eq!(missed("drain:p99<1s"), Ended::Missed { objective: 0, ratio: f64::INFINITY });
    assert_eq!(missed("drain:p50<1s"), Ended::Met);
    // a store that hung for the whole probe has served nothing
    let hung = TrialResult {
        operations: Vec::new(),
        arrived: ArrivalFigures { offered: 1000, started: 0, completed: 0, late: 0, dropped: 1000 },
        ..trial.clone()
    };
    let hung = Probe::of(&hung, &result.cells[0], &result).unwrap();
    for slo in ["p99<1s", "errors<50%", "capture:p50<1s", "capture:errors<50%"] {
        assert!(
            matches!(hung.observation(100.0, &[slo.parse().unwrap()]).ended, Ended::Missed { .. }),
            "{slo}"
        );
    }
    // and one whose worker died says nothing of its store
    let stopped = StopFigures { reason: "client process gone".to_owned(), detail: String::new() };
    let cut = TrialResult { stopped: Some(stopped), ..trial.clone() };
    let cut = Probe::of(&cut, &result.cells[0], &result).unwrap();
    assert_eq!(cut.observation(100.0, &["p77<20ms".parse().unwrap()]).ended, Ended::Unknown);
    trial.audit.verdict = Verdict::Unknown;
    let doubtful = Probe::of(&trial, &result.cells[0], &result).unwrap();
    assert_eq!(doubtful.observation(100.0, &["p50<20ms".parse().unwrap()]).ended, Ended::Unknown);
    // a rate that misses its objectives is not given, whatever the audit says
    assert!(matches!(doubtful.observation(100.0, &["p50<1us".parse().unwrap()]).ended, Ended::Missed { .. }));
}

#[test]
fn headroom_is_computed_from_a_demand_that_compounds() {
    let with = |demand: f64, growth: Option<&str>| {
        let mut result = begun(&[Lock::Native], &["p99<20ms"]);
        result.plan.demand = Some(PerSecond(demand));
        result.plan.capacity.as_mut().unwrap().growth = growth.map(|growth| growth.parse().unwrap());
        found(&searched(result, |_, _, _| {})).clone()
    };
    let carried = with(300.0, None);
    let (capacity, headroom) = (carried.carried.unwrap(), carried.headroom.as_ref().unwrap());
    assert!(is_same(headroom.times, capacity / 300.0) && headroom.days.is_none(), "{headroom:?}");
    assert!(headroom.times > 2.0, "{headroom:?}");
    let growing = with(300.0, Some("100%/year"));
    let headroom = growing.headroom.as_ref().unwrap();
    // it doubles in a year
    assert!((headroom.days.unwrap() / 365.2425 - headroom.times.log2()).abs() < 1e-6, "{headroom:?}");
    assert!(headroom.date.as_deref().is_some_and(|date| date.starts_with("202")), "{headroom:?}");
    let too_much = with(3_000.0, Some("100%/year"));
    let headroom = too_much.headroom.as_ref().unwrap();
    assert!(headroom.times < 0.3 && headroom.days == Some(0.0), "{headroom:?}");
    // either is clear long before the interval is narrow
    let probes = with(740.0, None).probes;
    assert!(
        carried.probes < probes && too_much.probes < probes,
        "{} {} {probes}",
        carried.probes,
        too_much.probes
    );
    assert_eq!(date("nonsense", 3.0), None);
    assert_eq!(date("2026-11-22T00:00:00Z", 1e12), None);
}

/// A capacity lies below the middle of the interval that it comes from, so that a demand just above it may well be carried.
#[test]
fn a_demand_above_the_capacity_is_not_carried_only_where_that_is_known() {
    let searched = searched(begun(&[Lock::Native], &["p99<20ms"]), |_, _, _| {});
    let limited = |limit: &Limit, carried| Capacity {
        carried,
        expected: Some(RateInterval { low: 900.0, high: 1_150.0 }),
        limit: limit.clone(),
        ..found(&searched).clone()
    };
    let missed = Limit::Objective { objective: "p99<20ms".to_owned(), at: 1_200.0, ratio: None };
    let none = Limit::NoRate { objective: "p99<20ms".to_owned(), at: 1.0, ratio: None };
    let some = Some(940.0);
    for (limit, carried, demand, carries) in [
        (&missed, some, 940.0, Some(true)),
        (&missed, some, 1_000.0, None),
        (&missed, some, 1_151.0, Some(false)),
        (&Limit::Budget, None, 1_000.0, None),
        (&Limit::Budget, None, 1_151.0, Some(false)),
        (&Limit::Broke { at: 1_000.0 }, some, 990.0, None),
        (&Limit::Broke { at: 1_000.0 }, some, 1_000.0, Some(false)),
        (&Limit::Unknown { at: 1_000.0 }, some, 2_000.0, None),
        (&Limit::Bench { at: 1_000.0 }, None, 2_000.0, None),
        (&none, None, 1.0, Some(false)),
    ] {
        let found = limited(limit, carried);
        assert_eq!(found.carries(demand), carries, "{limit:?}: {demand}");
    }
}

/// 1,000 rows for 2,000 operations and as much again in the warm-up of a fifth: 100 bytes a row.
#[test]
fn room_is_full_when_the_rows_of_the_demand_have_come() {
    let mut result = begun(&[Lock::Native], &["p99<20ms"]);
    result.plan.demand = Some(PerSecond(200.0));
    result.plan.fits = Some("8.64GB".parse().unwrap());
    let mut result = searched(result, |_, _, trial| {
        trial.size = Some(acidtest_workloads::TableSize {
            rows: trial.data.rows + 1_200,
            data_bytes: Some((trial.data.rows + 1_200) * 60),
            index_bytes: Some((trial.data.rows + 1_200) * 40),
            medium: acidtest_workloads::Medium::Disk,
            source: "made up".to_owned(),
        });
    });
    let room = found(&result).headroom.clone().unwrap().room.unwrap();
    assert!(
        (room.bytes_a_row - 100.0).abs() < 1e-9 && (room.rows_an_operation - 0.5).abs() < 1e-9,
        "{room:?}"
    );
    // 86.4 million rows at 100 a second
    assert_eq!((room.days.round(), room.date.as_deref()), (10.0, Some("2026-12-02")));
    result.plan.capacity.as_mut().unwrap().growth = Some("1000%/year".parse().unwrap());
    result.find_capacities().unwrap();
    let sooner = found(&result).headroom.clone().unwrap().room.unwrap();
    assert!((9.0..10.0).contains(&sooner.days), "{sooner:?}");
}

/// Other programs use a quarter of the machine, and the store answers late: in some of the probes, or in all.
#[test]
fn a_probe_on_a_machine_that_others_use_is_never_the_store_s_miss() {
    let disturbed = |which: fn(u32) -> bool| {
        let result = searched(begun(&[Lock::Native], &["p99<20ms"]), |_, _, trial| {
            if which(trial.round) {
                trial.operations[0] = operation(&trial.operations[0], "capture", &[("ok", 900.0, 1000)]);
                trial.resources.machine.cpu_mean += 4.0;
            }
        });
        found(&result).clone()
    };
    let (quiet, some) = (disturbed(|_| false), disturbed(|round| round % 3 == 0));
    assert!((some.carried.unwrap() / quiet.carried.unwrap() - 1.0).abs() < 0.05, "{some:?}");
    assert!(some.probes > quiet.probes && some.curve.iter().any(|figures| figures.other > 0), "{some:?}");
    let all = disturbed(|_| true);
    assert_eq!((all.carried, all.passed, &all.limit), (None, None, &Limit::Machine));
    // where they are always there, it is judged: at none of the rates was anything in time
    let mut shared = begun(&[Lock::Native], &["p99<20ms"]);
    shared.plan.capacity.as_mut().unwrap().shared_machine = true;
    let late = searched(shared, |_, _, trial| {
        trial.operations[0] = operation(&trial.operations[0], "capture", &[("ok", 900.0, 1000)]);
        trial.resources.machine.cpu_mean += 4.0;
    });
    assert_ne!(found(&late).limit, Limit::Machine);
    assert!(found(&late).curve.iter().any(|figures| figures.missed > 0), "{:?}", found(&late));
    // a promise that was broken meanwhile was broken
    let result = searched(begun(&[Lock::Native], &["p99<20ms"]), |_, _, trial| {
        trial.resources.machine.cpu_mean += 4.0;
        trial.audit.findings = vec![Finding::new("oversold", 5, "units", LOCK)];
        trial.audit.verdict = Verdict::Broken;
    });
    assert!(matches!(found(&result).limit, Limit::Broke { .. }), "{:?}", found(&result));
}

/// Probes are as long as their objectives need, and no percentile is judged by fewer than 10 operations beyond it.
#[test]
fn a_probe_is_as_long_as_its_objectives_need() {
    let lengths = |slo: &[&str], adaptive| {
        let mut result = begun(&[Lock::Native], slo);
        result.plan.duration = CapacityPlan::HOLD;
        let plan = CapacityPlan { adaptive, ..result.plan.capacity.clone().unwrap() };
        Lengths::of(&result, &plan, &closed_loop(&result.cells[0].trials[0]))
    };
    let seconds = |lengths: Lengths, rate| lengths.at(rate).as_secs_f64();
    // captures and releases are half each: 15 of 3,000 operations are beyond one's p99
    let p99 = lengths(&["p99<20ms"], true);
    assert!((seconds(p99, 300.0) - 10.0).abs() < 0.1, "{p99:?}");
    assert_eq!((seconds(p99, 1e6), seconds(p99, 10.0)), (5.0, 30.0));
    assert!((p99.lowest_rate() - 100.0).abs() < 1.0, "{p99:?}");
    // one of 10,000 may fail
    assert!((seconds(lengths(&["errors<0.01%"], true), 1000.0) - 10.0).abs() < 1e-6);
    assert!((seconds(lengths(&["p99<20ms"], false), 1e6) - 30.0).abs() < 1e-9);
    let mut few = begun(&[Lock::Native], &["p99<20ms"]);
    let like = few.cells[0].trials.remove(0);
    let ended = |count: u64, slo: &str| {
        let mut trial = at_rate(&like, 100.0, 2);
        trial.operations = vec![operation(&like.operations[0], "capture", &[("ok", 1.0, count)])];
        let probe = Probe::of(&trial, &few.cells[0], &few).unwrap();
        probe.observation(100.0, &[slo.parse().unwrap()]).ended
    };
    assert_eq!((ended(999, "p99<20ms"), ended(1000, "p99<20ms")), (Ended::Unknown, Ended::Met));
    assert_eq!((ended(999, "capture:p99<20ms"), ended(20, "p50<20ms")), (Ended::Unknown, Ended::Met));
}

/// An operation that was due 20 ms before the end or later, and had not begun, was not yet late.
#[test]
fn what_waits_at_the_end_is_no_error_before_it_is_late() {
    let mut result = begun(&[Lock::Native], &["p99<20ms", "errors<0.1%"]);
    let like = result.cells[0].trials.remove(0);
    let errors = |dropped| {
        let mut trial = at_rate(&like, 1000.0, 2);
        trial.arrived.dropped = dropped;
        Probe::of(&trial, &result.cells[0], &result).unwrap().errors
    };
    assert_eq!((errors(0), errors(20)), (0.0, 0.0));
    assert!((errors(120) - 100.0 / 1980.0).abs() < 1e-9, "{}", errors(120));
}
