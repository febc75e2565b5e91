//! The data of a page's charts, reduced to the points that can be seen.

use acidtest_model::figure::four_digits;
use acidtest_results::{
    Capacity, CellResult, LatencyFigures, RateFigures, RunResult, Sweep, TrialResult, UnreadableHistogram,
    dimensions::{CLIENTS, Names},
    distinct, is_enough,
};
use serde::Serialize;

use crate::tables::{each, found, operations};

/// Lines that one chart can carry and still be read.
const LINES: usize = 8;

/// Most points of a line over time; longer trials are thinned to this number.
const POINTS: usize = 300;

/// A chart: its id on the page and the data that it shows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Chart {
    pub(super) id: String,
    #[serde(skip)]
    pub(super) title: String,
    kind: Kind,
    lines: Vec<Curve>,
    /// Moments that are marked across all lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<Mark>,
}

/// A moment that is marked: a fault that was brought about.
#[derive(Clone, Debug, Serialize)]
struct Mark {
    x: f64,
    text: String,
    /// The index of the colour of its trial's line.
    color: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Throughput over the number of clients, with intervals and the scalability law.
    Sweep,
    /// Response times over percentiles.
    Percentiles,
    /// Response times over the offered rate.
    Capacity,
    /// Throughput over seconds.
    Rate,
    /// Service times over seconds.
    Times,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Curve {
    label: String,
    x: Vec<f64>,
    y: Vec<f64>,
    /// Lower bounds of the points' intervals; `high` has the upper ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    low: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    high: Vec<Option<f64>>,
    /// Whether the line is drawn dashed, as a secondary one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dashed: bool,
    /// The index of the line's colour, from 0.
    color: usize,
}

/// Throughput over clients: the points with their intervals, and the law through them.
pub(super) fn sweeps(sweeps: &[Sweep<'_>], names: &Names, prefix: &str) -> Vec<Chart> {
    let names = names.without(CLIENTS);
    let of_some = |(place, some): (usize, &[Sweep<'_>])| {
        let mut lines = Vec::new();
        for (color, sweep) in some.iter().enumerate() {
            let points = sweep.points();
            let label = sweep.cells.values().next().map_or_else(String::new, |cell| names.cell(cell));
            let verdict = sweep.verdict();
            lines.push(Curve {
                label: format!("{label} ({verdict})"),
                x: points.iter().map(|(n, _)| f64::from(*n)).collect(),
                y: points.iter().map(|(_, mean)| four_digits(mean.estimate)).collect(),
                low: points.iter().map(|(_, mean)| mean.interval.map(|(low, _)| four_digits(low))).collect(),
                high: points
                    .iter()
                    .map(|(_, mean)| mean.interval.map(|(_, high)| four_digits(high)))
                    .collect(),
                color,
                ..Curve::default()
            });
            if let (Some(law), Some((first, _)), Some((last, _))) = (sweep.law, points.first(), points.last())
            {
                let (first, last) = (f64::from(*first), f64::from(*last));
                let x: Vec<f64> = (0..=40)
                    .map(|step| four_digits(first + (last - first) * f64::from(step) / 40.0))
                    .collect();
                let y = x.iter().map(|n| four_digits(law.at(*n))).collect();
                lines.push(Curve {
                    label: format!("{label}: law"),
                    x,
                    y,
                    dashed: true,
                    color,
                    ..Curve::default()
                });
            }
        }
        Chart {
            id: format!("{prefix}-sweep-{place}"),
            title: "throughput over clients".to_owned(),
            kind: Kind::Sweep,
            lines,
            marks: Vec::new(),
        }
    };
    // each sweep takes two lines: its points and its law
    sweeps.chunks(LINES / 2).enumerate().map(of_some).collect()
}

/// The 99th percentile of response times over the rate, one chart for each search.
pub(super) fn capacities(result: &RunResult, names: &Names, prefix: &str) -> Vec<Chart> {
    let of_search = |(place, (cell, found)): (usize, (&CellResult, &Capacity))| {
        let operations = distinct(found.curve.iter().flat_map(|figures| figures.times.keys()));
        let lines = operations.into_iter().enumerate().map(|(color, name)| {
            let point = |figures: &RateFigures| {
                let times = figures.times.get(name).filter(|times| times.is_enough(99.0))?;
                Some((figures.per_second, times.p99_ns?))
            };
            let (x, y) =
                found.curve.iter().filter_map(point).map(|(x, y)| (four_digits(x), four_digits(y))).unzip();
            Curve { label: format!("{name} p99"), x, y, color: color % LINES, ..Curve::default() }
        });
        let mark = |rate| Mark { x: four_digits(rate), text: "capacity".to_owned(), color: 0 };
        Chart {
            id: format!("{prefix}-capacity-{place}"),
            title: names.cell(cell),
            kind: Kind::Capacity,
            lines: lines.collect(),
            marks: found.carried.map(mark).into_iter().collect(),
        }
    };
    found(result).enumerate().map(of_search).collect()
}

/// Response times of acknowledged operations over percentiles, by operation and store.
pub(super) fn percentiles(
    result: &RunResult,
    names: &Names,
    prefix: &str,
) -> Result<Vec<Chart>, UnreadableHistogram> {
    let kinds: Vec<&str> = distinct(result.cells.iter().flat_map(operations));
    // few cells share one chart; many have a chart for each store
    let mut groups: Vec<(String, Vec<&CellResult>)> = Vec::new();
    for cell in &result.cells {
        let store = if result.cells.len() > LINES { names.store(cell) } else { String::new() };
        match groups.iter_mut().find(|(other, _)| *other == store) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((store, vec![cell])),
        }
    }
    let mut charts = Vec::new();
    for (kind, operation) in kinds.into_iter().enumerate() {
        for (group, (store, cells)) in groups.iter().enumerate() {
            let mut lines = Vec::new();
            for cell in cells {
                let times = LatencyFigures::merged(each(cell, operation).filter_map(|each| each.ok()))?;
                // without a point there is no line
                if let Some(times) = times.filter(|times| is_enough(times.count, 0.0)) {
                    let color = lines.len() % LINES;
                    let label = format!("{} ({})", names.cell(cell), cell.verdict());
                    lines.push(Curve { color, ..curve(label, &times)? });
                }
            }
            for (place, some) in lines.chunks(LINES).enumerate() {
                charts.push(Chart {
                    id: format!("{prefix}-p-{kind}-{group}-{place}"),
                    title: if store.is_empty() {
                        operation.to_owned()
                    } else {
                        format!("{operation} · {store}")
                    },
                    kind: Kind::Percentiles,
                    lines: some.to_vec(),
                    marks: Vec::new(),
                });
            }
        }
    }
    Ok(charts)
}

/// A distribution over 1 / (1 − p), at eight points a decade, as far as percentiles are shown.
fn curve(label: String, times: &LatencyFigures) -> Result<Curve, UnreadableHistogram> {
    let histogram = times.histogram()?;
    let places = (0..).map(|step| 10_f64.powf(f64::from(step) / 8.0));
    let x: Vec<f64> = places.take_while(|x| is_enough(times.count, 100.0 - 100.0 / x)).collect();
    let y = x.iter().map(|x| histogram.value_at_quantile(1.0 - 1.0 / x) as f64).collect();
    let x = x.into_iter().map(four_digits).collect();
    Ok(Curve { label, x, y, ..Curve::default() })
}

/// A cell's trials second by second: throughput, median and 99th percentile of the service time, and the gauge, where
/// the workload has one.
pub(super) fn seconds(cell: &CellResult, id: &str) -> Vec<Chart> {
    let (mut rates, mut times, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for (place, trial) in cell.trials.iter().enumerate() {
        let color = place % LINES;
        let done = trial.injections.iter().filter_map(|injected| Some((injected, injected.at_seconds?)));
        marks.extend(done.map(|(injected, at)| Mark {
            x: four_digits(at),
            text: injected.fault.clone(),
            color,
        }));
        let seconds = thinned(trial);
        let x: Vec<f64> = seconds.iter().map(|second| second.at).collect();
        let line = |label: String, y: Vec<f64>, dashed| Curve {
            label,
            x: x.clone(),
            y,
            dashed,
            color,
            ..Curve::default()
        };
        let label = trial.label();
        rates.push(line(format!("trial {label}"), seconds.iter().map(|second| second.ok).collect(), false));
        times.push(line(
            format!("trial {label} p99"),
            seconds.iter().map(|second| second.p99).collect(),
            false,
        ));
        times.push(line(
            format!("trial {label} p50"),
            seconds.iter().map(|second| second.p50).collect(),
            true,
        ));
    }
    let title = "acknowledged operations a second".to_owned();
    let rates =
        Chart { id: format!("{id}-rate"), title, kind: Kind::Rate, lines: rates, marks: marks.clone() };
    let title = "service time, p50 and p99".to_owned();
    let times = Chart { id: format!("{id}-times"), title, kind: Kind::Times, lines: times, marks };
    [rates, times].into_iter().chain(gauge(cell, id)).collect()
}

/// The gauge's value at each second, one line for each trial.
fn gauge(cell: &CellResult, id: &str) -> Option<Chart> {
    let seen = cell.trials.iter().filter_map(|trial| Some((trial.label(), trial.gauge.as_ref()?)));
    let lines: Vec<Curve> = seen
        .clone()
        .enumerate()
        .map(|(place, (label, gauge))| {
            let step = gauge.each_second.len().div_ceil(POINTS).max(1);
            let points = || gauge.each_second.iter().enumerate().step_by(step);
            Curve {
                label: format!("trial {label}"),
                x: points().map(|(second, _)| second as f64).collect(),
                y: points().map(|(_, value)| *value as f64).collect(),
                color: place % LINES,
                ..Curve::default()
            }
        })
        .collect();
    let title = seen.clone().next().map(|(_, gauge)| format!("{} over time", gauge.name))?;
    Some(Chart { id: format!("{id}-gauge"), title, kind: Kind::Rate, lines, marks: Vec::new() })
}

struct Second {
    at: f64,
    ok: f64,
    /// Times in nanoseconds; 0 where there were too few for them.
    p50: f64,
    p99: f64,
}

/// A trial's whole seconds; of a long trial, groups of them with their mean throughput and their worst times.
fn thinned(trial: &TrialResult) -> Vec<Second> {
    let whole = trial.series.iter().filter(|second| second.second as f64 + 1.0 <= trial.seconds + 1e-6);
    let whole: Vec<_> = whole.collect();
    let step = whole.len().div_ceil(POINTS).max(1);
    let ok = |second: &&acidtest_results::SecondFigures| second.ok_of(&trial.counted) as f64;
    let span = |some: &[&acidtest_results::SecondFigures]| Second {
        at: some.first().map_or(0.0, |second| second.second as f64),
        ok: four_digits(some.iter().map(ok).sum::<f64>() / some.len().max(1) as f64),
        p50: some.iter().filter_map(|second| second.percentiles().0).max().unwrap_or(0) as f64,
        p99: some.iter().filter_map(|second| second.percentiles().1).max().unwrap_or(0) as f64,
    };
    whole.chunks(step).map(span).collect()
}
