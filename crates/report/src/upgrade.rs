//! Reads result files of this format and of earlier ones.
//!
//! A result of an earlier format is turned into one of the next, step by step, before it is read. `tests/results`
//! keeps files as earlier programs wrote them.

use acidtest_workloads::inventory;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{FORMAT, RunResult, UnreadableHistogram};

/// A result as read from a file, with the file's own format.
#[derive(Clone, Debug)]
pub struct StoredResult {
    /// The version of the format that the file has.
    pub format: u32,
    /// The result, upgraded to [`FORMAT`].
    pub result: RunResult,
}

/// The reason why a file cannot be read as a result.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableResult {
    /// The text is not JSON.
    #[error("it is no JSON: {0}")]
    NoJson(serde_json::Error),
    /// The JSON has no version of a result format.
    #[error("it is no result of acidtest: it names no format")]
    NoFormat,
    /// The result is of an unknown format, that of a later program.
    #[error("its format is {0} and this acidtest reads 1 to {FORMAT}; use the acidtest that wrote it")]
    UnknownFormat(u64),
    /// A member is missing or has a value of another type.
    #[error("it is no result of acidtest: {0}")]
    NoResult(#[from] serde_json::Error),
    /// A histogram cannot be read.
    #[error("it is no result of acidtest: {0}")]
    NoHistogram(UnreadableHistogram),
}

/// Reads a result of this format or an earlier one.
///
/// # Errors
/// A text that is no result, or a result of a later format.
pub fn read(text: &str) -> Result<StoredResult, UnreadableResult> {
    /// The member that every result has, whatever its format.
    #[derive(Deserialize)]
    struct Head {
        format: Value,
    }
    let format = match serde_json::from_str::<Head>(text) {
        Err(error) if !error.is_data() => return Err(UnreadableResult::NoJson(error)),
        head => head.ok().and_then(|Head { format }| format.as_u64()).ok_or(UnreadableResult::NoFormat)?,
    };
    let format = known(format)?;
    let mut result: RunResult = if format == FORMAT {
        serde_json::from_str(text)?
    } else {
        serde_json::from_value(upgraded(serde_json::from_str(text)?)?)?
    };
    result.restore_rates().map_err(UnreadableResult::NoHistogram)?;
    result.restore_prices_of_capacities();
    Ok(StoredResult { format, result })
}

fn known(format: u64) -> Result<u32, UnreadableResult> {
    let ours = u32::try_from(format).ok().filter(|format| (1..=FORMAT).contains(format));
    ours.ok_or(UnreadableResult::UnknownFormat(format))
}

/// Upgrades a result of an earlier format to [`FORMAT`]. Members of the wrong form stay as they are: reading the
/// result afterwards reports them.
///
/// # Errors
/// A format that is not known, or a plan that cannot be read.
pub(crate) fn upgraded(mut result: Value) -> Result<Value, UnreadableResult> {
    let format = result.get("format").and_then(Value::as_u64).ok_or(UnreadableResult::NoFormat)?;
    let format = known(format)?;
    for (_, step) in (1..).zip(STEPS).filter(|(from, _)| *from >= format) {
        step(&mut result)?;
    }
    if let Some(written) = result.get_mut("format") {
        *written = json!(FORMAT);
    }
    Ok(result)
}

/// Turns a result of one format into one of the next.
type Step = fn(&mut Value) -> Result<(), serde_json::Error>;

/// The steps from the formats 1, 2 and so on, up to the one before [`FORMAT`].
const STEPS: [Step; FORMAT as usize - 1] = [from_1, from_2];

/// From format 1, which knew the inventory alone: its parameters, and the rate, were the plan's and not each cell's;
/// a cell had one price, that of its lock; every trial loaded its data, and nobody measured how long that took; and
/// findings did not say whether a lock is there to prevent them.
fn from_1(result: &mut Value) -> Result<(), serde_json::Error> {
    let Some(plan) = result.get_mut("plan").and_then(Value::as_object_mut) else { return Ok(()) };
    let rate: Option<f64> = serde_json::from_value(plan.remove("rate").unwrap_or_default())?;
    let parameters = plan.remove("inventory").unwrap_or_else(|| json!({}));
    let parameters: inventory::Parameters = serde_json::from_value(parameters)?;
    let values = serde_json::to_value(&parameters)?;
    plan.insert("rates".to_owned(), rate.into_iter().collect());
    plan.insert("parameters".to_owned(), values.clone());
    let headline = format!(
        "{} items, {:.0} % captures, 1–{} units, {}",
        parameters.items,
        parameters.capture_share * 100.0,
        parameters.units_max,
        parameters.skew
    );
    for cell in each(result.get_mut("cells")) {
        cell.insert("rate".to_owned(), json!(rate));
        cell.insert("parameters".to_owned(), values.clone());
        cell.insert("headline".to_owned(), json!(headline));
        let price: Option<PriceOf1> = serde_json::from_value(cell.remove("price").unwrap_or_default())?;
        cell.insert("prices".to_owned(), price.map(|price| price.of(cell.get("lock"))).into_iter().collect());
        for trial in each(cell.get_mut("trials")) {
            trial.insert("data".to_owned(), json!({"rows": parameters.items, "load_seconds": null}));
            let audit = trial.get_mut("audit").and_then(Value::as_object_mut);
            for finding in each(audit.and_then(|audit| audit.get_mut("findings"))) {
                let torn = ["torn", "misplaced"].map(Value::from);
                let lock = finding.get("name").is_some_and(|name| !torn.contains(name));
                finding.insert("lock".to_owned(), json!(lock));
            }
        }
    }
    Ok(())
}

/// From format 2, in which a finding said whether a lock prevents it, and a cell whether everything was promised of
/// it. In a queue's result `lock` meant its acknowledgements.
#[expect(clippy::unnecessary_wraps, reason = "it is a step like the others")]
fn from_2(result: &mut Value) -> Result<(), serde_json::Error> {
    let of_queue = result.pointer("/plan/workload") == Some(&json!("queue"));
    let optional = if of_queue { "delivery" } else { "lock" };
    for cell in each(result.get_mut("cells")) {
        if cell.remove("promised") == Some(json!(false)) {
            cell.insert("without".to_owned(), json!([optional]));
        }
        for trial in each(cell.get_mut("trials")) {
            let audit = trial.get_mut("audit").and_then(Value::as_object_mut);
            for finding in each(audit.and_then(|audit| audit.get_mut("findings"))) {
                let is_optional = finding.remove("lock") == Some(json!(true));
                let name = finding.get("name").and_then(Value::as_str);
                let guarantee = match name {
                    _ if is_optional => optional,
                    Some("torn") => "atomicity",
                    Some("reordered") => "order",
                    Some("lost") if of_queue => "delivery",
                    Some("lost") => "durability",
                    _ => "integrity",
                };
                finding.insert("guarantee".to_owned(), json!(guarantee));
            }
        }
    }
    Ok(())
}

/// A price of format 1: always that of a lock.
#[derive(Deserialize)]
struct PriceOf1 {
    throughput: RatioOf1,
    p99: Option<RatioOf1>,
}

/// A ratio of format 1: always over pairs of trials and with Student's interval.
#[derive(Deserialize)]
struct RatioOf1 {
    estimate: f64,
    interval: Option<(f64, f64)>,
    pairs: usize,
}

impl PriceOf1 {
    fn of(self, lock: Option<&Value>) -> Value {
        let ratio = |RatioOf1 { estimate, interval, pairs }| {
            let method = interval.map(|_| "student");
            json!({
                "estimate": estimate, "interval": interval, "method": method, "paired": true, "trials": pairs,
            })
        };
        json!({
            "guarantee": "lock", "of": lock, "against": "none",
            "throughput": ratio(self.throughput), "p99": self.p99.map(ratio),
        })
    }
}

/// The objects in a list.
fn each(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The results in `tests/results`, as earlier programs wrote them: names of files and their texts.
#[cfg(test)]
pub(crate) fn kept() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results");
    let mut kept: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    kept.sort();
    kept
}

#[cfg(test)]
mod tests {
    use acidtest_model::Lock;
    use acidtest_workloads::Verdict;

    use super::*;
    use crate::{CellResult, Style, price, rate, render};

    fn result(name: &str) -> RunResult {
        let (_, text) = kept().into_iter().find(|(kept, _)| kept == name).unwrap();
        read(&text).unwrap().result
    }

    /// A finding that broke a promise in format 2 still does so after the upgrade, and no other one does.
    #[test]
    fn promises_stay_as_they_were() {
        let files = kept().into_iter().filter(|(name, _)| name.starts_with("format-2"));
        for (name, text) in files {
            let file: Value = serde_json::from_str(&text).unwrap();
            let cells = file["cells"].as_array().unwrap();
            for (cell, of_file) in read(&text).unwrap().result.cells.iter().zip(cells) {
                let promised = of_file["promised"] == json!(true);
                let audits = of_file["trials"].as_array().unwrap().iter().map(|trial| &trial["audit"]);
                let breaks = |finding: &Value| {
                    finding["count"] != json!(0) && (promised || finding["lock"] != json!(true))
                };
                let mut findings = audits.flat_map(|audit| audit["findings"].as_array().unwrap());
                assert_eq!(cell.is_promised(), promised, "{name}");
                assert_eq!(cell.breaks_promise(), findings.any(breaks), "{name}");
                let known = |name: &String| {
                    price::guarantees(&read(&text).unwrap().result).iter().any(|each| each.name == name)
                };
                let named = cell.trials.iter().flat_map(|trial| &trial.audit.findings);
                assert!(named.map(|finding| &finding.guarantee).all(known), "{name}");
            }
        }
    }

    /// Every kept result is read and shown with the figures that its file has, whichever program wrote it.
    #[test]
    fn every_kept_result_is_read_and_shown_as_it_is() {
        let mut formats = Vec::new();
        for (name, text) in kept() {
            let file: Value = serde_json::from_str(&text).unwrap();
            let StoredResult { format, result } =
                read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(name.starts_with(&format!("format-{format}")), "{name}: {format}");
            formats.push(format);
            assert_eq!((result.format, json!(result.run)), (FORMAT, file["run"].clone()), "{name}");
            let shown = render(&result, Style { color: false, width: None }).unwrap();
            assert!(shown.contains(&result.cells[0].headline), "{name}:\n{shown}");
            let cells = file["cells"].as_array().unwrap();
            assert_eq!(cells.len(), result.cells.len(), "{name}");
            for (cell, of_file) in result.cells.iter().zip(cells) {
                let trials = of_file["trials"].as_array().unwrap();
                assert_eq!(cell.trials.len(), trials.len(), "{name}");
                for (trial, of_file) in cell.trials.iter().zip(trials) {
                    assert_eq!(json!(trial.throughput), of_file["throughput"], "{name}");
                    let audit = &of_file["audit"];
                    assert_eq!(json!(trial.audit.verdict), audit["verdict"], "{name}");
                    assert_eq!(json!(trial.audit.evidence), audit["evidence"], "{name}");
                    let counts = audit["findings"].as_array().unwrap().iter().map(|each| &each["count"]);
                    let found = trial.audit.findings.iter().map(|each| json!(each.count));
                    assert!(found.eq(counts.cloned()), "{name}");
                }
                let line = shown.lines().find(|line| line.contains(&rate(cell.throughput()))).unwrap();
                assert!(line.contains(&cell.verdict().to_string()), "{name}: {line}");
            }
            let again = serde_json::to_string(&result).unwrap();
            assert_eq!(read(&again).unwrap().result, result, "{name}");
        }
        let missing: Vec<u32> = (1..FORMAT).filter(|format| !formats.contains(format)).collect();
        assert!(missing.is_empty(), "no result is kept of the formats {missing:?}");
    }

    #[test]
    fn of_format_1_each_cell_has_what_the_plan_had() {
        let mut result = result("format-1");
        assert_eq!(result.plan.rates, [0.0; 0]);
        let items = |cell: &CellResult| cell.parameters["items"].clone();
        assert!(result.cells.iter().all(|cell| items(cell) == 3 && cell.rate.is_none() && cell.decides));
        assert!(
            result.cells.iter().all(|cell| cell.headline == "3 items, 50 % captures, 1–3 units, uniform")
        );
        assert_eq!(result.plan.combinations(), [result.cells[0].parameters.clone()]);
        let data = &result.cells[0].trials[0].data;
        assert_eq!((data.rows, data.load_seconds, data.left_by), (3, None, None));

        let [none, native] = result.cells.as_slice() else { panic!("two cells") };
        assert_eq!((none.lock, none.verdict()), (Lock::None, Verdict::Broken));
        assert!(!none.is_promised() && !none.breaks_promise(), "it is there to break");
        assert_eq!((native.lock, native.verdict()), (Lock::Native, Verdict::Holds));
        // the price that the run computed then is the one that is computed today, but for refusals, which did not count then
        let [then] = native.prices.as_slice() else { panic!("{:?}", native.prices) };
        let then = then.clone();
        assert_eq!((then.guarantee.as_str(), then.against.as_str()), ("lock", "none"));
        let trials = result.cells.iter_mut().flat_map(|cell| &mut cell.trials);
        for operation in trials.flat_map(|trial| &mut trial.operations) {
            operation.service.remove("refused");
        }
        result.price().unwrap();
        let [now] = result.cells[1].prices.as_slice() else { panic!("{:?}", result.cells[1].prices) };
        assert_eq!((now.of.clone(), now.throughput.method), (then.of.clone(), then.throughput.method));
        for (then, now) in [(then.throughput, now.throughput), (then.p99.unwrap(), now.p99.unwrap())] {
            let ends = |ratio: crate::Ratio| ratio.interval.map(<[f64; 2]>::from).unwrap();
            let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-6;
            assert!(near(then.estimate, now.estimate), "{then:?} {now:?}");
            assert!(ends(then).into_iter().zip(ends(now)).all(|(one, other)| near(one, other)));
            assert_eq!((then.trials, then.paired), (now.trials, now.paired));
        }
    }

    /// A finding that no lock is there to prevent breaks the promise of a cell without a lock, too.
    #[test]
    fn of_format_1_a_torn_operation_breaks_every_promise() {
        let mut value: Value = serde_json::from_str(&kept()[0].1).unwrap();
        assert_eq!(value["cells"][0]["lock"], "none");
        let findings = &mut value["cells"][0]["trials"][0]["audit"]["findings"];
        let torn = findings.as_array_mut().unwrap().iter_mut().find(|each| each["name"] == "torn").unwrap();
        torn["count"] = json!(1);
        assert!(read(&value.to_string()).unwrap().result.cells[0].breaks_promise());
    }

    #[test]
    fn of_format_1_an_open_loop_has_its_rate() {
        let result = result("format-1-open-loop");
        assert_eq!((result.plan.rates.as_slice(), result.cells[0].rate), ([500.0].as_slice(), Some(500.0)));
        assert_eq!(result.cells[0].headline, "30 items, 50 % captures, 1–3 units, zipf:0.5");
        assert!(result.cells[0].prices.is_empty());
    }

    #[test]
    fn what_is_no_result_is_refused_with_the_reason() {
        let later = FORMAT + 1;
        for (text, said) in [
            ("{\"format\": 1", "it is no JSON: "),
            ("[]", "it names no format"),
            ("{\"format\": 0}", "its format is 0 and this acidtest reads 1 to "),
            (&format!("{{\"format\": {later}}}"), "use the acidtest that wrote it"),
            ("{\"format\": 1}", "it is no result of acidtest: missing field"),
            ("{\"format\": 1, \"plan\": {\"rate\": \"x\"}}", "it is no result of acidtest: invalid type"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
