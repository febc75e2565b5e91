//! How well searches do, over many stores in virtual time: what fresh probes say of the capacities that were found, how often the
//! intervals hold the truth, and what it took.

use crate::model::{Curve, Noise};
use acidtest_capacity::{Conclusion, Search, Settings};

/// What is told of many searches.
#[derive(Debug, Default)]
struct Told {
    searches: usize,
    found: usize,
    /// Mean share of fresh probes that held at the capacities.
    held: f64,
    /// Capacities at which fewer than half of the fresh probes held.
    mostly_failed: usize,
    /// Searches that gave an interval of the even odds, and those of it that held the truth.
    given: usize,
    covered: usize,
    /// The same of the rate that 95 % of all probes meet.
    given_most: usize,
    covered_most: usize,
    /// Mean of capacity over the rate that 95 % of all probes meet.
    share: f64,
    probes: Vec<usize>,
    minutes: Vec<f64>,
}

fn evaluate(noise: Noise, searches: u64, demand: Option<f64>) -> Told {
    let mut told = Told::default();
    for seed in 0..searches {
        let store = Curve { knee: 8_000.0, noise };
        // a closed loop reaches more or less
        let first = 4_000.0 * (1.0 + 0.37 * (seed % 11) as f64 / 11.0);
        let settings = Settings { first, demand, ..Settings::default() };
        let mut search = Search::new(settings).unwrap_or_else(|error| panic!("{error}"));
        let end: Conclusion = store.drive(&mut search, seed);
        told.searches += 1;
        told.probes.push(end.probes);
        told.minutes.push(search.observations().iter().map(|o| o.seconds).sum::<f64>() / 60.0);
        let truth = store.knee;
        if let Some(odds) = end.even_odds {
            told.given += 1;
            told.covered += usize::from((odds.low..=odds.high).contains(&truth));
        }
        let most = store.held_by(0.95);
        if let Some((low, high)) = end.expected {
            told.given_most += 1;
            told.covered_most += usize::from((low..=high).contains(&most));
        }
        let Some(capacity) = end.capacity else {
            continue;
        };
        told.found += 1;
        let held = store.share_held(capacity);
        told.held += held;
        told.mostly_failed += usize::from(held < 0.5);
        told.share += capacity / most;
    }
    told.held /= told.found.max(1) as f64;
    told.share /= told.found.max(1) as f64;
    told.probes.sort_unstable();
    told.minutes.sort_by(f64::total_cmp);
    told
}

/// Drift is what makes intervals too narrow if it is not allowed for.
#[test]
fn capacities_hold_and_intervals_cover_though_the_speed_drifts() {
    for noise in [Noise::Drift(0.05, 0.9), Noise::Speed(0.05)] {
        let told = evaluate(noise, 40, None);
        assert!(told.found >= 38 && told.held >= 0.95 && told.mostly_failed == 0, "{told:?}");
        assert!(told.covered >= 38 && told.covered_most >= 38, "{told:?}");
        assert!(told.minutes.last().is_some_and(|most| *most <= 10.0), "{told:?}");
    }
}

#[test]
#[ignore = "a minute of it, whose figures stand in bench/results/capacity.md"]
fn figures() {
    let rows = [
        ("nothing", Noise::None, None),
        ("latency by 20 %", Noise::Latency(0.2), None),
        ("speed by 5 %", Noise::Speed(0.05), None),
        ("speed by 5 %, drifting", Noise::Drift(0.05, 0.9), None),
        ("speed by 10 %", Noise::Speed(0.1), None),
        ("speed by 10 %, drifting", Noise::Drift(0.1, 0.9), None),
        ("speed by 20 %", Noise::Speed(0.2), None),
        ("speed by 5 %, demand at half of the knee", Noise::Speed(0.05), Some(4_000.0)),
    ];
    for (name, noise, demand) in rows {
        let told = evaluate(noise, 200, demand);
        let middle = told.searches / 2;
        println!(
            "| {name} | {} | {:.1} % | {} | {:.1} % | {:.1} % | {:.2} | {} | {:.1} |",
            told.found,
            told.held * 100.0,
            told.mostly_failed,
            told.covered as f64 * 100.0 / told.given as f64,
            told.covered_most as f64 * 100.0 / told.given_most as f64,
            told.share,
            told.probes[middle],
            told.minutes[middle],
        );
    }
}
