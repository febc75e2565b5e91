//! The search against stores in virtual time, and against nonsense.

use crate::model::{Noise, Queue, Store};
use acidtest_capacity::{Conclusion, Ended, Observation, Search, Settings, Step, Why};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A queue that saturates at this many operations a second, with an objective of so many service times.
fn queue(servers: usize, saturation: f64, tail: f64, objective: f64) -> Queue {
    let service = servers as f64 / saturation;
    Queue { servers, service, tail, objective: objective * service, hold: 10.0 }
}

fn search(settings: Settings) -> Search {
    Search::new(settings).unwrap_or_else(|error| panic!("{error}"))
}

/// Settings of a search for which a number of probes is the budget.
fn by_number(probes: usize) -> Settings {
    Settings { probes, seconds: 1e9, ..Settings::default() }
}

/// What a store takes whose speed varies by a fifth from probe to probe: the fewest probes that can tell are 66, as
/// the mean of so many speeds is known to 2.5 %, and outcomes tell less than speeds.
fn patient() -> Settings {
    Settings { tolerance: 0.02, ..by_number(240) }
}

fn run(store: &Store, seed: u64) -> Conclusion {
    store.drive(&mut search(by_number(80)), seed)
}

/// Searches with some seeds: 9 of 10 even odds have to lie within 5 % of the knee, and of ten fresh probes at each capacity that share
/// has to meet.
fn finds_the_knee(queue: Queue, noise: Noise, settings: &Settings, seeds: u64, share: f64) {
    let knee = queue.knee(41);
    let store = Store::new(queue, noise);
    let (mut near, mut capacities, mut met, mut mostly_failed, mut probes) = (0, 0, 0, 0, Vec::new());
    for seed in 0..seeds {
        let end = store.drive(&mut search(settings.clone()), seed);
        let Some(even_odds) = end.even_odds else { panic!("{end:?}") };
        near += usize::from((even_odds.rate / knee - 1.0).abs() <= 0.05);
        probes.push(end.probes);
        let Some(capacity) = end.capacity else { continue };
        assert!(capacity <= even_odds.rate && end.fresh.0 >= 10 && end.fresh.1 >= end.fresh.0, "{end:?}");
        capacities += 1;
        let fresh = (0..10).filter(|n| store.probe(capacity, seed, 10_000 + n).ended == Ended::Met).count();
        met += fresh;
        mostly_failed += usize::from(fresh < 5);
    }
    probes.sort_unstable();
    let told = format!(
        "{near} near, {capacities} capacities, {met} met there, {mostly_failed} mostly failed, {probes:?}"
    );
    println!("{queue:?} {noise:?}: {told}");
    let seeds = probes.len();
    assert!(10 * near >= 9 * seeds && 10 * capacities >= 7 * seeds && mostly_failed == 0, "{told}");
    assert!(met as f64 >= share * 10.0 * capacities as f64, "{told}");
}

#[test]
fn knee_of_one_server_is_found_though_latency_varies() {
    finds_the_knee(queue(1, 200.0, 0.5, 60.0), Noise::Latency(0.2), &by_number(80), 20, 0.95);
}

#[test]
fn knee_of_four_servers_is_found_though_latency_varies() {
    finds_the_knee(queue(4, 200.0, 0.8, 10.0), Noise::Latency(0.2), &by_number(80), 20, 0.95);
}

/// Its percentile is two thirds of what is allowed even where nobody waits, so that an unlucky probe misses at any rate.
#[test]
fn knee_of_sixteen_servers_with_a_heavy_tail_is_found_though_latency_varies() {
    finds_the_knee(queue(16, 200.0, 1.2, 12.0), Noise::Latency(0.2), &by_number(80), 20, 0.93);
}

#[test]
fn knee_of_one_server_is_found_though_speed_varies() {
    finds_the_knee(queue(1, 100.0, 0.5, 60.0), Noise::Speed(0.2), &patient(), 8, 0.95);
}

#[test]
fn knee_of_four_servers_is_found_though_speed_varies() {
    finds_the_knee(queue(4, 100.0, 0.8, 20.0), Noise::Speed(0.2), &patient(), 8, 0.95);
}

#[test]
fn knee_of_sixteen_servers_is_found_though_speed_varies() {
    finds_the_knee(queue(16, 100.0, 0.8, 9.0), Noise::Speed(0.2), &patient(), 8, 0.95);
}

#[test]
fn objective_that_stops_it_is_told() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Latency(0.05));
    let end = run(&store, 1);
    let Why::Objective { objective: 0, rate, ratio } = end.why else { panic!("{end:?}") };
    assert!(rate > end.capacity.unwrap() && rate < end.capacity.unwrap() * 1.2, "{end:?}");
    assert!(ratio > 1.0, "{end:?}");
    assert!(end.knee.is_some_and(|knee| knee.rate <= end.even_odds.unwrap().rate * 1.05), "{end:?}");
    assert!(end.curve.is_sorted_by(|a, b| a.rate < b.rate), "{end:?}");
}

#[test]
fn broken_rate_is_never_given() {
    let fine = queue(4, 400.0, 0.8, 20.0);
    for seed in 0..20 {
        // below the knee, amid its noise, and above it
        for breaks_from in [90.0, 240.0, 380.0, 410.0] {
            let store = Store { breaks_from: Some(breaks_from), ..Store::new(fine, Noise::Speed(0.1)) };
            let mut search = search(by_number(80));
            let end = store.drive(&mut search, seed);
            assert!(end.capacity.is_none_or(|capacity| capacity < breaks_from), "{end:?}");
            assert!(end.passed.is_none_or(|passed| passed < breaks_from), "{end:?}");
            if breaks_from < 300.0 {
                assert!(matches!(end.why, Why::Broke { .. }), "{end:?}");
                assert!(end.capacity.is_some_and(|capacity| capacity > 0.95 * breaks_from), "{end:?}");
            }
        }
    }
}

#[test]
fn store_that_breaks_at_every_rate_has_no_capacity() {
    let store = Store { breaks_from: Some(0.0), ..Store::new(queue(1, 400.0, 0.5, 60.0), Noise::None) };
    let end = run(&store, 0);
    assert_eq!((end.capacity, end.passed), (None, None));
    assert_eq!(end.why, Why::Broke { rate: 1.0 });
    assert!(end.probes <= 8, "{end:?}");
}

#[test]
fn rate_of_which_the_audit_cannot_tell_is_not_given() {
    let store = Store { unknown_from: Some(250.0), ..Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None) };
    let end = run(&store, 0);
    assert!(matches!(end.why, Why::Unknown { rate } if rate >= 250.0), "{end:?}");
    assert!(end.capacity.is_some_and(|capacity| (240.0..250.0).contains(&capacity)), "{end:?}");
}

#[test]
fn bench_that_is_the_limit_gives_no_capacity() {
    let store = Store { bench: Some(230.0), ..Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Latency(0.2)) };
    let end = run(&store, 0);
    assert!(matches!(end.why, Why::Bench { rate } if (230.0..240.0).contains(&rate)), "{end:?}");
    assert_eq!(end.capacity, None);
    assert!(
        end.passed.is_some_and(|passed| (220.0..=230.0).contains(&passed)),
        "what is known is kept: {end:?}"
    );
}

#[test]
fn demand_above_what_the_bench_can_offer_is_told() {
    let store = Store { bench: Some(40.0), ..Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None) };
    let settings = Settings { first: 5_000.0, floor: 5_000.0, ceiling: 5_000.0, ..by_number(80) };
    let end = store.drive(&mut search(settings), 0);
    assert_eq!((end.capacity, end.passed, end.why), (None, None, Why::Bench { rate: 5_000.0 }));
    assert_eq!(end.probes, 2);
}

#[test]
fn bench_above_the_knee_does_not_matter() {
    let store = Store { bench: Some(420.0), ..Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None) };
    let end = run(&store, 0);
    assert!(matches!(end.why, Why::Objective { .. }), "{end:?}");
    assert!(end.capacity.is_some(), "{end:?}");
}

/// Every third probe meets with a machine that others use, on which everything misses: none of them is the store's miss.
#[test]
fn machine_that_others_use_now_and_then_only_takes_longer() {
    let quiet = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Speed(0.05));
    let store = Store { disturbed: |probe| probe % 3 == 1, ..quiet };
    let (end, alone) = (run(&store, 2), run(&quiet, 2));
    let (capacity, undisturbed) = (end.capacity.unwrap(), alone.capacity.unwrap());
    assert!((capacity / undisturbed - 1.0).abs() < 0.1, "{capacity} for {undisturbed}: {end:?}");
    assert!(matches!(end.why, Why::Objective { .. }) && end.probes > alone.probes, "{end:?}");
}

#[test]
fn machine_that_others_use_all_the_time_says_nothing_of_the_store() {
    let quiet = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None);
    let end = run(&Store { disturbed: |_| true, ..quiet }, 0);
    assert_eq!((end.capacity, end.passed, end.even_odds, end.why), (None, None, None, Why::Machine));
    assert_eq!(end.probes, 10, "it is not tried for ever: {end:?}");
    // what was known before stays known
    let end = run(&Store { disturbed: |probe| probe >= 12, ..quiet }, 0);
    assert!(end.why == Why::Machine && end.capacity.is_none() && end.passed.is_some(), "{end:?}");
}

/// A demand that is clearly carried, or clearly not, needs no narrow interval.
#[test]
fn demand_that_is_clear_ends_the_search_sooner() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Speed(0.1));
    let all = run(&store, 1);
    for demand in [150.0, 900.0] {
        let settings = Settings { demand: Some(demand), ..by_number(80) };
        let end = store.drive(&mut search(settings), 1);
        assert!(end.probes < all.probes && end.fresh.0 >= 20, "{demand}: {end:?}");
        assert_eq!(end.capacity.unwrap() >= demand, demand < 200.0, "{end:?}");
    }
}

/// Probes take their time, and those that are left would not end within the budget.
#[test]
fn budget_of_time_is_kept() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Speed(0.1));
    for seconds in [120.0, 300.0, 600.0] {
        let mut search = search(Settings { seconds, ..Settings::default() });
        let end = store.drive(&mut search, 1);
        let spent: f64 = search.observations().iter().map(|o| o.seconds).sum();
        assert!(spent <= seconds && spent > seconds / 2.0, "{spent} of {seconds} s: {end:?}");
    }
}

#[test]
fn objective_that_no_rate_meets_tells_the_best_seen() {
    let store = Store::new(queue(4, 400.0, 0.8, 0.5), Noise::Latency(0.2));
    let end = run(&store, 0);
    let Why::NoRateMeets { best } = end.why else { panic!("{end:?}") };
    assert!(best.ratio > 1.0 && best.rate >= 1.0, "{end:?}");
    let least = end.curve.iter().filter_map(|point| point.margin).fold(f64::INFINITY, f64::min);
    assert!(best.ratio <= least, "{end:?}");
    assert_eq!((end.capacity, end.passed), (None, None));
}

#[test]
fn store_that_dies_leaves_what_is_known() {
    let fine = queue(4, 400.0, 0.8, 20.0);
    for dies_at in 0..24 {
        let store = Store { dies_at: Some(dies_at), ..Store::new(fine, Noise::Latency(0.2)) };
        let end = run(&store, 3);
        if usize::try_from(dies_at).unwrap() < end.probes {
            assert!(matches!(end.why, Why::Gone { .. }), "{end:?}");
            assert_eq!(end.probes as u64, dies_at + 1);
            assert_eq!(end.curve.iter().map(|p| p.met + p.missed).sum::<usize>() as u64, dies_at);
        }
    }
    // lost at the very rate that was being confirmed: it is not given
    let late = run(&Store { dies_at: Some(34), ..Store::new(fine, Noise::None) }, 3);
    assert!(
        matches!(late.why, Why::Gone { .. }) && late.capacity.is_none() && late.even_odds.is_some(),
        "{late:?}"
    );
}

#[test]
fn highest_rate_allowed_is_enough() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None);
    let end = store.drive(&mut search(Settings { ceiling: 300.0, ..by_number(80) }), 0);
    assert_eq!((end.capacity, end.why), (Some(300.0), Why::AtLimit { rate: 300.0 }));
    assert!(end.curve.len() >= 8, "{end:?}");
}

#[test]
fn first_rate_far_from_the_knee_is_survived() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::None);
    let knee = store.queue.knee(21);
    for first in [1.0, 17.0, 390.0, 5_000.0] {
        let end = store.drive(&mut search(Settings { first, ..by_number(80) }), 0);
        assert!(
            end.capacity.is_some_and(|capacity| (0.85..1.0).contains(&(capacity / knee))),
            "{first}: {end:?}"
        );
    }
}

#[test]
fn spent_budget_says_so_with_the_interval() {
    let store = Store::new(queue(1, 400.0, 0.5, 60.0), Noise::Speed(0.2));
    let settings = Settings { tolerance: 0.02, ..by_number(16) };
    let end = store.drive(&mut search(settings), 1);
    assert_eq!((end.why, end.probes), (Why::Budget, 16));
    let estimate = end.even_odds.unwrap();
    assert!(estimate.high / estimate.low > 1.04, "{end:?}");
    assert!(end.capacity.is_none_or(|capacity| capacity <= estimate.rate), "{end:?}");
}

/// A search of few probes gives a rate near what it saw meet, or none: never one far below it.
#[test]
fn few_probes_give_no_rate_far_below_what_met() {
    for (probes, seed) in
        [12, 16, 20, 30, 40].into_iter().flat_map(|probes| (0..8).map(move |seed| (probes, seed)))
    {
        let store = Store::new(queue(4, 400.0, 0.5, 20.0), Noise::Speed(0.05));
        let end = store.drive(&mut search(by_number(probes)), seed);
        let met = end.curve.iter().filter(|point| point.met > 0).map(|point| point.rate).fold(0.0, f64::max);
        assert!(met > 0.0 && end.capacity.is_none_or(|capacity| capacity >= 0.45 * met), "{probes}: {end:?}");
        let intervals = [end.even_odds.map(|odds| (odds.low, odds.high)), end.expected];
        assert!(intervals.iter().flatten().all(|(low, high)| high / low <= 10.0), "{probes}: {end:?}");
    }
}

#[test]
fn resumed_search_ends_the_same() {
    let store = Store::new(queue(4, 400.0, 0.8, 20.0), Noise::Speed(0.1));
    let mut whole = search(by_number(80));
    let end = store.drive(&mut whole, 5);
    for kept in [0, 1, 7, 20, whole.observations().len()] {
        let mut resumed = search(by_number(80));
        for observation in &whole.observations()[..kept] {
            assert_eq!(resumed.next(), Step::Probe(observation.rate));
            resumed.told(observation.clone());
        }
        assert_eq!(store.drive(&mut resumed, 5), end);
    }
}

/// What no sequence of observations may bring about.
fn is_sound(search: &Search, end: &Conclusion) {
    let seen = search.observations();
    let broke = seen.iter().filter(|o| o.ended == Ended::Broke).map(|o| o.rate).fold(f64::INFINITY, f64::min);
    for rate in end.capacity.iter().chain(&end.passed) {
        assert!(*rate < broke, "{end:?}");
        let met = seen.iter().filter(|o| o.ended == Ended::Met && (o.rate / rate - 1.0).abs() < 1e-9).count();
        assert!(met >= 2, "{end:?}");
    }
    assert!(end.passed.is_none() || end.passes.0 >= 2, "{end:?}");
    // either enough fresh probes met at it, or half of them when the budget was spent
    assert!(end.capacity.is_none_or(|_| end.fresh.0 >= 10 + 14 * (end.fresh.1 - end.fresh.0)), "{end:?}");
    if let (Some(capacity), Some(estimate)) = (end.capacity, end.even_odds) {
        assert!(capacity <= estimate.rate * (1.0 + 1e-6), "{end:?}");
        assert!(estimate.low <= estimate.rate && estimate.rate <= estimate.high, "{end:?}");
    }
    let none = matches!(end.why, Why::Bench { .. } | Why::NoRateMeets { .. });
    assert!(!none || end.capacity.is_none(), "{end:?}");
    assert!(
        !matches!(end.why, Why::Objective { .. } | Why::AtLimit { .. }) || end.capacity.is_some(),
        "{end:?}"
    );
    assert_eq!(end.probes, seen.len());
}

/// Any outcome, in shares that differ from case to case.
fn anything(random: &mut Xoshiro256PlusPlus, rate: f64, shares: &[f64; 7]) -> Observation {
    let mut left = random.random::<f64>() * shares.iter().sum::<f64>();
    let kind = shares.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    let mut margin = (random.random::<f64>() * 4.0 - 2.0).exp();
    let ended = match kind {
        Some(0) => Ended::Missed { objective: random.random_range(0..3), ratio: margin.max(1.01) },
        Some(1) => Ended::Broke,
        Some(2) => Ended::Unknown,
        Some(3) => Ended::BenchLimited,
        Some(4) => Ended::Gone,
        Some(5) => Ended::MachineLimited,
        _ => Ended::Met,
    };
    // now and then a figure that makes no sense
    if random.random_bool(0.05) {
        margin = [f64::NAN, f64::INFINITY, 0.0, -1.0][random.random_range(0..4)];
    }
    let margins = if random.random_bool(0.1) { Vec::new() } else { vec![margin, margin / 2.0] };
    let latency = random.random_bool(0.9).then_some(margin * 0.01);
    Observation { rate, ended, margins, latency, seconds: 7.5 }
}

#[test]
fn whatever_is_observed_it_ends_and_stays_sound() {
    for case in 0..3_000_u64 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(case);
        let mut shares = [0.0; 7].map(|_: f64| random.random::<f64>().powi(6));
        shares[4] *= 0.05;
        let first = 10.0_f64.powf(random.random::<f64>() * 6.0);
        let settings = Settings {
            first,
            floor: first / 10.0_f64.powf(random.random::<f64>() * 3.0),
            ceiling: first * 10.0_f64.powf(random.random::<f64>() * 3.0),
            resolution: [0.025, 0.1, 0.5][random.random_range(0..3)],
            tolerance: [0.035, 0.1][random.random_range(0..2)],
            probes: random.random_range(8..64),
            seconds: [1e9, 300.0][random.random_range(0..2)],
            demand: random.random_bool(0.3).then_some(first * 2.0),
            points: 8,
        };
        let mut search = search(settings.clone());
        let mut broke = f64::INFINITY;
        // most stores have a limit, too
        let limit = first * (random.random::<f64>() * 6.0 - 3.0).exp();
        let limited = random.random_bool(0.7);
        let end = loop {
            let rate = match search.next() {
                Step::Done(end) => break end,
                Step::Probe(rate) => rate,
            };
            assert!(rate < broke, "case {case}: {rate} is not below {broke}");
            assert!((settings.floor..=settings.ceiling).contains(&rate), "case {case}: {rate}");
            let mut observation = anything(&mut random, rate, &shares);
            if limited && random.random_bool(0.8) {
                let ratio = rate / limit;
                observation.margins = vec![ratio];
                observation.ended =
                    if ratio <= 1.0 { Ended::Met } else { Ended::Missed { objective: 0, ratio } };
            }
            if random.random_bool(0.02) {
                observation.rate *= random.random::<f64>() * 2.0;
            }
            if observation.ended == Ended::Broke {
                broke = broke.min(observation.rate);
            }
            search.told(observation);
            assert!(search.observations().len() <= settings.probes, "case {case}: no end");
        };
        is_sound(&search, &end);
        let mut again = self::search(settings);
        for observation in search.observations() {
            again.told(observation.clone());
        }
        assert_eq!(again.next(), search.next(), "case {case}");
    }
}

#[test]
fn a_rate_that_is_none_stops_nothing_but_the_giving() {
    for rate in [f64::NAN, f64::INFINITY, 0.0, -5.0] {
        let mut search = search(by_number(80));
        search.told(Observation {
            rate,
            ended: Ended::Met,
            margins: vec![0.5],
            latency: Some(0.1),
            seconds: 7.5,
        });
        assert_eq!(search.next(), Step::Probe(100.0));
        search.told(Observation { rate, ended: Ended::Broke, margins: vec![], latency: None, seconds: 7.5 });
        let Step::Done(end) = search.next() else {
            // one at infinity breaks nothing that can be offered
            assert!(rate.is_infinite());
            continue;
        };
        assert_eq!(end.capacity, None);
    }
}
