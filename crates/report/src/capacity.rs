//! What searches found, in sentences; and what is computed from it, with its assumptions.

use crate::tables::{days, found, ran_out};
use acidtest_model::figure::{bytes, offered, percent, rate, three_digits};
use acidtest_results::{
    Capacity, CellResult, Headroom, Limit, RateFigures, RunResult, SpaceForecast, dimensions::Names,
};

/// A sentence for each search, and below it what ran out there.
pub(crate) fn conclusion(result: &RunResult, names: &Names) -> String {
    let lines: Vec<String> =
        found(result).flat_map(|(cell, found)| of_search(result, cell, found, names)).collect();
    if lines.is_empty() { "No probe was made.".to_owned() } else { lines.join("\n") }
}

fn of_search(result: &RunResult, cell: &CellResult, found: &Capacity, names: &Names) -> Vec<String> {
    let name = names.cell(cell);
    let mut lines = vec![match found.carried {
        Some(capacity) => format!(
            "{name} carries {} ops/s: {} of {} fresh probes held at that rate, and 95 % or more are expected to{}. {}",
            offered(capacity),
            found.fresh_held,
            found.fresh,
            proved(found),
            above(&found.limit)
        ),
        None => format!("{name} has no known capacity: {}", none(found, cell.error.as_deref())),
    }];
    if let Some(odds) = found.even_odds.filter(|_| found.carried.is_some()) {
        lines.push(format!(
            "  Even odds, where half of the probes hold: {}/s, {} to {} with 95 % confidence.",
            rate(odds.per_second),
            rate(odds.low),
            rate(odds.high)
        ));
    }
    if let (Some((limit, _)), Limit::Objective { .. } | Limit::Budget) =
        (found.at_limit_and_half(), &found.limit)
    {
        lines.push(format!("  At {}/s {}.", offered(limit.per_second), ran_out(&limit.used, cell, result)));
    }
    if let Some(headroom) = &found.headroom {
        lines.push(format!("  {}", beside_demand(found, headroom)));
    }
    if let (None, Some(demand), Limit::Budget | Limit::Machine) =
        (found.carried, result.plan.demand, &found.limit)
    {
        lines.push(format!("  {}", beside_unconfirmed(found, demand.0)));
    }
    let grows = result.plan.capacity.as_ref().is_some_and(|plan| plan.growth.is_some());
    if let (None, Some(_), true) = (found.carried, result.plan.demand, grows) {
        lines.push("  When a growing demand reaches it cannot be computed without a capacity.".to_owned());
    }
    if let (Some(demand), Limit::Bench { at }) = (result.plan.demand, &found.limit)
        && demand.0 >= *at
    {
        lines.push(format!(
            "  The demand of {}/s is above what this bench can offer.",
            three_digits(demand.0)
        ));
    }
    lines
}

/// What is known of a demand where no rate was confirmed.
fn beside_unconfirmed(found: &Capacity, demand: f64) -> String {
    let asked = three_digits(demand);
    if let Some(expected) = found.expected {
        let side = match demand {
            _ if demand > expected.high => "above",
            _ if demand < expected.low => "below",
            _ => "within",
        };
        return format!(
            "The demand of {asked}/s lies {side} the interval of the rate that 95 % of probes hold."
        );
    }
    let seen = evidence(&found.curve, demand).map_or_else(
        || "no probe at or above it held, and none at or below it missed".to_owned(),
        |seen| format!("{seen}, which is too few to tell"),
    );
    format!("Whether it carries the demand of {asked}/s is not known: {seen}.")
}

/// What tells most of a demand: rates from it on up at which all probes held, or else from it on down at which all missed; or else
/// how many held from it on up to the last rate at which any did; or else the rate below it that missed most often.
fn evidence(curve: &[RateFigures], demand: f64) -> Option<String> {
    let judged = || curve.iter().filter(|rate| rate.met + rate.missed > 0);
    let probes = |rate: &RateFigures| rate.met + rate.missed;
    let at = |rate: &RateFigures, number: usize, how: &str| {
        format!("{number} of {} probes at {}/s {how}", probes(rate), offered(rate.per_second))
    };
    // in the order of their rates
    let all = |rates: &[&RateFigures], how: &str| match rates {
        [] => None,
        [one] => Some(at(one, probes(one), how)),
        [low, .., high] => {
            let number: usize = rates.iter().map(|rate| probes(rate)).sum();
            let (low, high) = (offered(low.per_second), offered(high.per_second));
            Some(format!("all {number} probes from {low}/s to {high}/s {how}"))
        }
    };
    let above: Vec<&RateFigures> = judged().filter(|rate| rate.per_second >= demand).collect();
    let below = || judged().filter(|rate| rate.per_second <= demand);
    let held: Vec<&RateFigures> = above.iter().copied().take_while(|rate| rate.missed == 0).collect();
    let some_held = || {
        let last = above.iter().rposition(|rate| rate.met > 0)?;
        let met: usize = above[..=last].iter().map(|rate| rate.met).sum();
        let number: usize = above[..=last].iter().map(|rate| probes(rate)).sum();
        let (low, high) = (offered(above[0].per_second), offered(above[last].per_second));
        let over = if last == 0 { format!("at {low}/s") } else { format!("from {low}/s to {high}/s") };
        Some(format!("{met} of {number} probes {over} held"))
    };
    let mut missed: Vec<&RateFigures> = below().rev().take_while(|rate| rate.met == 0).collect();
    missed.reverse();
    let share = |rate: &RateFigures| rate.missed as f64 / probes(rate) as f64;
    let worst = || {
        let some = below().filter(|rate| rate.missed > 0);
        some.max_by(|one, other| share(one).total_cmp(&share(other)))
            .map(|rate| at(rate, rate.missed, "missed"))
    };
    all(&held, "held").or_else(|| all(&missed, "missed")).or_else(some_held).or_else(worst)
}

/// What the fresh probes alone prove, however the rate was chosen.
fn proved(found: &Capacity) -> String {
    if found.fresh_held < found.fresh || found.fresh == 0 {
        return String::new();
    }
    // so many would hold in a row in one of twenty searches if no more than this share did
    let least = 0.05_f64.powf(1.0 / found.fresh as f64);
    format!(" (the fresh ones alone prove {} with 95 % confidence)", percent(least))
}

/// Why the capacity is no higher.
fn above(limit: &Limit) -> String {
    match limit {
        Limit::Objective { objective, at, ratio } => {
            let by = ratio.map_or_else(
                || "too many operations were not served".to_owned(),
                |ratio| format!("{} times what is allowed was measured", three_digits(ratio)),
            );
            format!("Above it {objective} was missed: at {}/s {by}.", offered(*at))
        }
        Limit::Broke { at } => format!("At {}/s the audit found a broken promise.", offered(*at)),
        Limit::Unknown { at } => format!(
            "At {}/s a probe was inconclusive: the audit was, or there were too few operations for an objective (a longer \
             --hold).",
            offered(*at)
        ),
        Limit::Gone { at: Some(at) } => format!("At {}/s the store was lost.", offered(*at)),
        Limit::Gone { at: None } => "The store was lost.".to_owned(),
        Limit::Budget => {
            "The budget ran out before all of its fresh probes were made (--budget, --probes): it is less certain than it \
             could be."
                .to_owned()
        }
        Limit::Machine => "The search stopped: other programs used a quarter of the machine or more during too many \
                           probes.".to_owned(),
        Limit::Highest => {
            "It is the highest rate that can be requested: the capacity may be higher.".to_owned()
        }
        // these give none
        Limit::Bench { .. } | Limit::NoRate { .. } | Limit::Unfinished => String::new(),
    }
}

/// Why there is no capacity, and what is known nevertheless. `failed` says why a probe could not be made.
fn none(found: &Capacity, failed: Option<&str>) -> String {
    let why = match &found.limit {
        Limit::Gone { at } if failed.is_some() => {
            let which = at.map_or_else(
                || "the trial in a closed loop".to_owned(),
                |at| format!("a probe at {}/s", offered(at)),
            );
            let why = failed.and_then(|said| said.lines().next()).unwrap_or_default();
            format!("{which} could not be made: {why}. --resume continues the search.")
        }
        Limit::Bench { at } => format!(
            "the bench was the limit, not the store: at {}/s its clients used all the cores that they can use; for higher \
             rates, use more cores, more clients (each has one thread at most), or clients on another machine.",
            offered(*at)
        ),
        Limit::NoRate { objective, at, ratio } => {
            let best = ratio.map_or_else(
                || "where too many operations were not served".to_owned(),
                |ratio| format!("with {} times what is allowed", three_digits(ratio)),
            );
            format!("no rate meets {objective}; the best seen was {}/s, {best}.", offered(*at))
        }
        Limit::Unfinished => "the search did not finish; --resume continues it.".to_owned(),
        Limit::Objective { objective, at, .. } => format!("{objective} was missed at {}/s.", offered(*at)),
        Limit::Budget => {
            let expected = found.expected.map_or_else(String::new, |expected| {
                format!(
                    "; the rate that 95 % of probes hold lies between {} and {}/s, with 95 % confidence",
                    rate(expected.low),
                    rate(expected.high)
                )
            });
            format!(
                "its budget ran out after {} probes, before fresh probes had confirmed a rate{expected}. --resume with a \
                 larger --budget continues it.",
                found.probes
            )
        }
        Limit::Machine => format!(
            "machine-limited: other programs used a quarter of the machine or more during too many of its {} probes, which \
             say nothing about the store. Search again on a quiet machine, or with --shared-machine beside those programs.",
            found.probes
        ),
        other => {
            let said = above(other);
            let mut letters = said.chars();
            letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
        }
    };
    match found.passed {
        Some(passed) => {
            let at = offered(passed);
            let held = match (found.passes, found.told) {
                (1, 1) => format!("The one probe at {at}/s held."),
                (met, all) if met == all => format!("All {all} probes at {at}/s held."),
                (met, all) => format!("{met} of {all} probes at {at}/s held."),
            };
            format!("{why} {held}")
        }
        None => why,
    }
}

fn beside_demand(found: &Capacity, headroom: &Headroom) -> String {
    let Headroom { demand, times, .. } = headroom;
    let enough = match found.carries(*demand) {
        Some(true) => "",
        Some(false) => ": it does not carry it",
        None => ": whether it carries it is not known",
    };
    let reached = match (headroom.days, &headroom.date) {
        (Some(0.0) | None, _) => String::new(),
        (Some(in_days), Some(date)) => {
            format!(" Computed: the demand reaches it in {}, on {date}.", days(in_days))
        }
        (Some(in_days), None) => format!(" Computed: the demand reaches it in {}.", days(in_days)),
    };
    let room =
        headroom.room.as_ref().map_or_else(String::new, |SpaceForecast { days: in_days, date, .. }| {
            let date = date.as_ref().map_or_else(String::new, |date| format!(", on {date}"));
            format!(" Computed: its space is full in {}{date}.", days(*in_days))
        });
    format!(
        "That is {} times the demand of {}/s{enough}.{reached}{room}",
        three_digits(*times),
        three_digits(*demand)
    )
}

/// What the words and figures of searches mean, and what is assumed where something is computed.
pub(crate) fn notes(result: &RunResult) -> Vec<String> {
    let Some(plan) = &result.plan.capacity else { return Vec::new() };
    let objectives: Vec<String> = plan.slo.iter().map(ToString::to_string).collect();
    let length = plan.measured(&result.plan);
    let mut notes = vec![
        format!(
            "capacity: the open-loop rate at which {} and the audit are expected to hold in 95 % of probes of {length}, \
             confirmed by fresh probes at that very rate, and below every rate at which a promise was broken. even odds: \
             the rate at which half of the probes hold, fitted to all of them. Both intervals allow for a machine that \
             drifts. Both figures are for this machine, with clients and store as they are here. An operation is what a \
             client starts: a transaction or a batch counts as one.",
            objectives.join(", ")
        ),
        "times: response times of acknowledged operations, from when each was due; those that failed, stayed unknown or \
         were never started count as slower than any other. errors: the share of these in all operations offered; a \
         refusal is an answer. With several probes at a rate, the median is shown. not served: more operations were not \
         served than the percentile leaves out."
            .to_owned(),
        "knee: where the curve of the slowest operation's p99 over the rate bends (Kneedle, on the logarithm of the time). \
         closed loop: what the clients reached with no rate set, before the search."
            .to_owned(),
    ];
    notes.extend(prices(result));
    let headroom = found(result).find_map(|(_, found)| found.headroom.as_ref());
    if let (Some(headroom), Some(growth)) = (headroom, plan.growth) {
        notes.push(format!(
            "days and dates: computed, not measured. Assumed: the demand is {}/s on the run's day, {}, and grows by \
             {growth}, compounding; the capacity stays the same, as do machine, data, mix and settings; the load is even \
             over the day.",
            three_digits(headroom.demand),
            result.started.split('T').next().unwrap_or_default()
        ));
    }
    for (cell, found) in found(result) {
        let (Some(room), Some(fits)) =
            (found.headroom.as_ref().and_then(|each| each.room.as_ref()), result.plan.fits)
        else {
            continue;
        };
        notes.push(format!(
            "space for {} in {fits}: computed, not measured. Assumed: an empty table on the day of the run; {} per row and \
             {} rows per operation, as measured at the capacity; nothing else takes space{}.",
            cell.store,
            bytes(room.bytes_a_row),
            three_digits(room.rows_an_operation),
            plan.growth.map_or_else(String::new, |growth| format!("; a demand that grows by {growth}"))
        ));
    }
    let widest = found(result).filter_map(|(_, found)| found.even_odds).map(|odds| odds.spread);
    if let Some(spread) = widest.reduce(f64::max).filter(|spread| *spread > 0.1) {
        notes.push(format!(
            "the rate that single probes hold varies by up to {} from one to the next: a quiet machine, a longer --hold or \
             a larger --budget would give a more precise capacity.",
            percent(spread)
        ));
    }
    notes
}

/// Which figures the prices are ratios of: only those of the even odds have an interval.
fn prices(result: &RunResult) -> Option<String> {
    let prices = || result.cells.iter().flat_map(|cell| &cell.prices);
    let (some, all) = (
        prices().any(|price| price.throughput.interval.is_some()),
        prices().all(|price| price.throughput.interval.is_some()),
    );
    let against = "against the otherwise identical search with the least of the guarantee";
    let odds = format!(
        "price: the ratio of the even odds, {against}; its interval is computed from theirs; ≈ marks a price inside the \
         noise."
    );
    let why = "in one of the two searches the even odds are unknown, or lie at or above a rate at which a promise was \
               broken or a probe was inconclusive";
    match (some, all) {
        (true, true) => Some(odds),
        (true, false) => Some(format!(
            "{odds} A price (of the capacities) is their ratio instead, and has no interval: {why}."
        )),
        (false, true) => None,
        (false, false) => {
            Some(format!("price: the ratio of the capacities, {against}; it has no interval: {why}."))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use acidtest_model::{Lock, PerSecond};
    use acidtest_results::{
        RateEstimate, Used,
        sample::search::{at_rate, begun, closed_loop, found, operation, plain, searched},
    };
    use acidtest_workloads::Verdict;

    use super::*;
    use crate::{NamedResult, Style, golden::golden, markdown, page, render};

    #[test]
    fn what_tells_most_of_a_demand_is_named() {
        let rate = |(per_second, met, missed): (f64, usize, usize)| RateFigures {
            per_second,
            met,
            missed,
            other: 0,
            verdict: Verdict::Holds,
            errors: 0.0,
            times: BTreeMap::new(),
            used: Used::default(),
        };
        let seen = |rates: &[(f64, usize, usize)]| {
            evidence(&rates.iter().copied().map(rate).collect::<Vec<_>>(), 1000.0)
        };
        for (rates, said) in [
            (&[(700.0, 16, 1), (800.0, 0, 1), (900.0, 0, 3)][..], "all 4 probes from 800/s to 900/s missed"),
            (&[(700.0, 16, 1), (900.0, 0, 2)], "2 of 2 probes at 900/s missed"),
            (&[(700.0, 16, 1), (800.0, 1, 1), (900.0, 2, 0)], "1 of 2 probes at 800/s missed"),
            (&[(700.0, 0, 1), (1000.0, 1, 0), (1200.0, 2, 0)], "all 3 probes from 1,000/s to 1,200/s held"),
            (&[(1100.0, 1, 0), (1200.0, 1, 1)], "1 of 1 probes at 1,100/s held"),
            (
                &[(1100.0, 4, 1), (1200.0, 6, 0), (1300.0, 0, 1)],
                "10 of 11 probes from 1,100/s to 1,200/s held",
            ),
            (&[(800.0, 3, 0), (1100.0, 4, 1), (1300.0, 0, 1)], "4 of 5 probes at 1,100/s held"),
        ] {
            assert_eq!(seen(rates).as_deref(), Some(said), "{rates:?}");
        }
        for nothing in [&[][..], &[(900.0, 2, 0)], &[(1100.0, 0, 1)], &[(900.0, 0, 0)]] {
            assert_eq!(seen(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn what_is_shown_is_the_golden_one() {
        let mut result = begun(&[Lock::Native], &["p99<20ms", "errors<0.1%"]);
        result.plan.demand = Some("200/s".parse().unwrap());
        result.plan.capacity.as_mut().unwrap().growth = Some("3%/month".parse().unwrap());
        let result = searched(result, |_, _, _| {});
        golden("capacity.txt", &render(&result, Style { color: false, width: Some(100) }).unwrap());
        golden("capacity.md", &markdown(&result));
        for width in 60..140 {
            let text = render(&result, Style { color: false, width: Some(width) }).unwrap();
            let widest = text.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap_or(0);
            assert!(widest <= usize::from(width), "{width}: {text}");
        }
        let page = page(&[NamedResult { name: "a.json", result: &result }], &[]).unwrap();
        assert!(page.contains("Latency over rate") && page.contains("\"kind\":\"capacity\""));
    }

    /// The p99 of a rate at which little was done is about the maximum.
    #[test]
    fn a_rate_of_few_operations_has_no_p99_in_the_curve() {
        let mut result = plain(&["p99<20ms", "errors<0.1%"]);
        let mut shown = |operations| {
            let curve = &mut result.cells[0].capacity.as_mut().unwrap().curve;
            for times in curve.iter_mut().flat_map(|figures| figures.times.values_mut()) {
                assert!(times.operations > 0);
                (times.operations, times.p99_ns) = (operations, Some(7.77e6));
            }
            markdown(&result).contains("7.77 ms")
        };
        assert!(shown(1_000) && !shown(999));
    }

    #[test]
    fn where_the_probes_ran_out_the_estimate_and_the_demand_are_told() {
        let mut result = begun(&[Lock::Native], &["p99<20ms"]);
        result.plan.demand = Some(PerSecond(900_000.0));
        result.plan.capacity.as_mut().unwrap().probes = 8;
        // the last probes meet a machine that is busy with something else
        let result = searched(result, |_, _, trial| {
            if trial.round >= 8 {
                trial.operations[0] = operation(&trial.operations[0], "capture", &[("ok", 90.0, 1000)]);
            }
        });
        assert!(
            found(&result).carried.is_none() && found(&result).limit == Limit::Budget,
            "{:?}",
            found(&result)
        );
        let shown = markdown(&result);
        for part in [
            "its budget ran out after 8 probes, before fresh probes had confirmed a rate",
            "demand of 900,000/s lies above the interval of the rate that 95 % of probes hold",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn cores_that_others_used_are_not_told_as_the_store_s() {
        let result = plain(&["p99<20ms"]);
        let all = result.machine.cores as f64;
        let used = |client_cores, server_cores| Used {
            client_cores,
            server_cores,
            machine_cores: all,
            ..Used::default()
        };
        let mut cell = CellResult { embedded: false, ..result.cells[0].clone() };
        let said = |used, cell: &CellResult| ran_out(&used, cell, &result);
        let others = said(used(all * 0.4, Some(all * 0.2)), &cell);
        assert!(others.contains("everything else") && others.contains("with nothing else to do"), "{others}");
        let clients = said(used(all * 0.7, Some(all * 0.3)), &cell);
        assert!(clients.contains("cores of their own for the clients"), "{clients}");
        // the rest may be the server's
        let unseen = said(used(all * 0.4, None), &cell);
        assert!(unseen.ends_with("everything else 9.60)"), "{unseen}");
        // it runs where the clients do
        cell.embedded = true;
        let embedded = said(used(all, None), &cell);
        assert!(embedded.ends_with("everything else 0.00)"), "{embedded}");
    }

    fn shown(result: &RunResult) -> String {
        render(result, Style { color: false, width: None }).unwrap()
    }

    /// A capacity and even odds, which lie above it by what probes differ by.
    #[test]
    fn a_price_says_of_which_rates_it_is_the_ratio() {
        let mut result = searched(begun(&[Lock::None, Lock::Native], &["p99<20ms"]), |_, _, _| {});
        let odds = |per_second: f64| {
            Some(RateEstimate { per_second, low: per_second * 0.98, high: per_second * 1.02, spread: 0.1 })
        };
        let objective = found(&result).limit.clone();
        let mut said = |limits: [&Limit; 2]| {
            for (cell, (limit, odds)) in
                result.cells.iter_mut().zip(limits.into_iter().zip([odds(900.0), odds(1800.0)]))
            {
                let found = cell.capacity.as_mut().unwrap();
                (found.carried, found.even_odds, found.limit) = (Some(700.0), odds, limit.clone());
            }
            result.price_capacities();
            markdown(&result)
        };
        let of_odds = "price: the ratio of the even odds, against";
        let of_capacities = "price: the ratio of the capacities, against";
        let text = said([&objective, &Limit::Budget]);
        assert!(text.contains(of_odds), "{text}");
        let text = said([&objective, &Limit::Broke { at: 710.0 }]);
        assert!(text.contains(of_capacities) && !text.contains(of_odds), "{text}");
        assert!(text.contains("×1.00 (of the capacities)"), "{text}");
    }

    #[test]
    fn why_a_search_went_no_higher_is_said() {
        let text = shown(&plain(&["p99<1ms"]));
        assert!(text.contains("no rate meets p99<1ms; the best seen was"), "{text}");
        let busy = searched(begun(&[Lock::Native], &["p99<20ms"]), |_, _, trial| {
            trial.operations[0] = operation(&trial.operations[0], "capture", &[("ok", 900.0, 1000)]);
            trial.resources.machine.cpu_mean += 4.0;
        });
        let text = shown(&busy);
        assert!(text.contains("machine-limited: other programs used a quarter of the machine"), "{text}");
        // a store that cannot be reached for another probe
        let mut result = begun(&[Lock::Native], &["p99<20ms"]);
        let like = result.cells[0].trials.remove(0);
        result.cells[0].trials = vec![closed_loop(&like), at_rate(&like, 450.0, 2)];
        result.cells[0].error = Some("it is gone".to_owned());
        result.find_capacities().unwrap();
        let text = shown(&result);
        for said in ["a probe at 900/s could not be made: it is gone.", "a probe that could not be made"] {
            assert!(text.contains(said), "no {said:?} in {text}");
        }
        assert!(!text.contains("the store was lost"), "{text}");
    }
}
