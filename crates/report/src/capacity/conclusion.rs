//! What searches found, in sentences; and what is computed from it, with its assumptions.

use crate::{
    Capacity, CellResult, Headroom, Limit, Room, RunResult,
    dimensions::Names,
    figure::{bytes, offered, rate, three_digits},
    tables::{days, found, percent, ran_out},
};

/// A sentence for each search, and below it what ran out there.
pub(crate) fn conclusion(result: &RunResult, names: &Names) -> String {
    let lines: Vec<String> =
        found(result).flat_map(|(cell, found)| of_search(result, cell, found, names)).collect();
    if lines.is_empty() { "No probe was made.".to_owned() } else { lines.join("\n") }
}

fn of_search(result: &RunResult, cell: &CellResult, found: &Capacity, names: &Names) -> Vec<String> {
    let name = names.cell(cell);
    let mut lines = vec![match found.per_second {
        Some(capacity) => format!(
            "{name} carries {} ops/s: the highest rate at which every objective and the audit held ({} of {} probes \
             there{}). {}",
            offered(capacity),
            found.passes,
            found.told,
            found.estimate.map_or_else(String::new, |estimate| format!(
                "; half of all probes hold at {}/s, {} to {} with 95 % confidence",
                rate(estimate.per_second),
                rate(estimate.low),
                rate(estimate.high)
            )),
            above(&found.limit)
        ),
        None => format!("{name} has no capacity to tell: {}", none(found)),
    }];
    if let (Some((limit, _)), Limit::Objective { .. } | Limit::Probes) =
        (found.at_limit_and_half(), &found.limit)
    {
        lines.push(format!("  At {}/s {}.", offered(limit.per_second), ran_out(&limit.used, cell, result)));
    }
    if let Some(headroom) = &found.headroom {
        lines.push(format!("  {}", beside_demand(headroom)));
    }
    if let (None, Some(demand), Some(estimate), Limit::Probes) =
        (found.per_second, result.plan.demand, found.estimate, &found.limit)
    {
        let side = if demand.0 > estimate.high {
            "above"
        } else if demand.0 < estimate.low {
            "below"
        } else {
            "within"
        };
        lines.push(format!(
            "  The demand of {}/s lies {side} the interval of the estimate.",
            three_digits(demand.0)
        ));
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
        Limit::Unknown { at } => format!("At {}/s the audit could not tell.", offered(*at)),
        Limit::Gone { at: Some(at) } => format!("At {}/s the store was lost.", offered(*at)),
        Limit::Gone { at: None } => "The store was lost.".to_owned(),
        Limit::Probes => {
            "The probes ran out before it was as near as was asked for, so that it may be too high or too low (--probes, --within, a longer --hold)."
            .to_owned()
        }
        Limit::Highest => {
            "It is the highest rate that can be asked for: the capacity may be more.".to_owned()
        }
        // these give none
        Limit::Bench { .. } | Limit::NoRate { .. } | Limit::Unfinished => String::new(),
    }
}

/// Why there is no capacity, and what is known all the same.
fn none(found: &Capacity) -> String {
    let why = match &found.limit {
        Limit::Bench { at } => format!(
            "the bench was the limit, not the store: at {}/s its clients used all the cores that they can use; more cores, more \
             clients (each has one thread at most), or clients on another machine, offer more.",
            offered(*at)
        ),
        Limit::NoRate { objective, at, ratio } => {
            let best = ratio.map_or_else(
                || "where too many operations were not served".to_owned(),
                |ratio| format!("with {} times what is allowed", three_digits(ratio)),
            );
            format!("no rate meets {objective}; the best seen was {}/s, {best}.", offered(*at))
        }
        Limit::Unfinished => "the search did not come to its end; --resume goes on with it.".to_owned(),
        Limit::Objective { objective, at, .. } => format!("{objective} was missed at {}/s.", offered(*at)),
        Limit::Probes => {
            let estimate = found.estimate.map_or_else(String::new, |estimate| {
                format!(
                    " at or below the estimate of {}/s ({} to {} with 95 % confidence)",
                    rate(estimate.per_second),
                    rate(estimate.low),
                    rate(estimate.high)
                )
            });
            format!(
                "its {} probes ran out before a rate{estimate} had held often enough; a search with more --probes or a longer \
                 --hold tells more.",
                found.probes
            )
        }
        other => {
            let said = above(other);
            let mut letters = said.chars();
            letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
        }
    };
    match found.passed {
        Some(passed) => {
            format!(
                "{why} Everything held at {}/s ({} of {} probes).",
                offered(passed),
                found.passes,
                found.told
            )
        }
        None => why,
    }
}

fn beside_demand(headroom: &Headroom) -> String {
    let Headroom { demand, times, .. } = headroom;
    let enough = if *times >= 1.0 { "" } else { ": it does not carry it" };
    let reached = match (headroom.days, &headroom.date) {
        (Some(0.0) | None, _) => String::new(),
        (Some(in_days), Some(date)) => {
            format!(" Computed: the demand reaches it in {}, on {date}.", days(in_days))
        }
        (Some(in_days), None) => format!(" Computed: the demand reaches it in {}.", days(in_days)),
    };
    let room = headroom.room.as_ref().map_or_else(String::new, |Room { days: in_days, date, .. }| {
        let date = date.as_ref().map_or_else(String::new, |date| format!(", on {date}"));
        format!(" Computed: its room is full in {}{date}.", days(*in_days))
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
    let mut notes = vec![
        format!(
            "capacity: the highest open-loop rate at which {} and the audit held for {} in two probes or more, at or below the \
             rate that half of all probes hold, and below every rate at which a promise was broken. It is that of this machine, with \
             clients and store as they are here; an operation is what a client starts: a transaction or a batch is one.",
            objectives.join(", "),
            result.plan.duration
        ),
        "times: response times of acknowledged operations, from when each was due; those that failed, stayed unknown or were never \
         started count as slower than any other. errors: those, over all that were offered; a refusal is an answer. \
         Of several probes at a rate the median is shown; not served: more were not than the percentile leaves out."
            .to_owned(),
        "knee: where the curve of the slowest operation's p99 over the rate bends (Kneedle, on the logarithm of the time). \
         closed loop: what the clients reached with no rate set, before the search."
            .to_owned(),
    ];
    if result.cells.iter().any(|cell| !cell.prices.is_empty()) {
        notes.push(
            "price: the ratio of the estimates, against the search with the least of the guarantee that is otherwise the same; its \
             interval is made of theirs; ≈ marks one inside the noise."
                .to_owned(),
        );
    }
    let headroom = found(result).find_map(|(_, found)| found.headroom.as_ref());
    if let (Some(headroom), Some(growth)) = (headroom, plan.growth) {
        notes.push(format!(
            "days and dates: computed, not run. Assumed: the demand is {}/s on the run's day, {}, and grows by {growth}, compounding; \
             the capacity stays what it is: the same machine, data, mix and settings; no part of a day is busier than another.",
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
            "room of {} in {fits}: computed, not run. Assumed: an empty table at the run's day; {} for every row and {} rows for \
             every operation, as measured at the capacity; nothing else needs room{}.",
            cell.store,
            bytes(room.bytes_a_row),
            three_digits(room.rows_an_operation),
            plan.growth.map_or_else(String::new, |growth| format!("; a demand that grows by {growth}"))
        ));
    }
    let widest = found(result).filter_map(|(_, found)| found.estimate).map(|estimate| estimate.spread);
    if let Some(spread) = widest.reduce(f64::max).filter(|spread| *spread > 0.1) {
        notes.push(format!(
            "what single probes hold varies by up to {} from one to the next: a quiet machine, a longer --hold or more --probes \
             would tell more.",
            percent(spread)
        ));
    }
    notes
}
