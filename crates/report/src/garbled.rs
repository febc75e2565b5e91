//! Results that somebody may have changed by hand: whatever a file says, showing it must end, in figures or in an
//! error.

use std::sync::LazyLock;

use acidtest_model::{Lock, PerSecond};
use acidtest_results::{CapacityPlan, RunResult, sample};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    NamedResult, Style,
    compare::{Choice, Condition, Selector, Side, compare},
    csv, markdown, page, render,
};

/// A grid, a sweep of clients, trials enough for a bootstrap, a queue's result and a search's.
static RESULTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let few = sample::Grid { trials: 2, seconds: 2, ..sample::Grid::default() };
    let sweep = sample::Grid { locks: &[Lock::Native], clients: &[1, 4, 8], trials: 1, seconds: 1, ..few };
    let many = sample::Grid { trials: 6, seconds: 1, ..few };
    let mut queue = sample::queue([("none", true, 9.0); 6]);
    queue.cells.truncate(2);
    queue.cells.iter_mut().for_each(|cell| cell.trials.truncate(2));
    let mut search = few.result();
    search.plan.capacity = Some(CapacityPlan::default());
    search.plan.demand = Some(PerSecond(3.0));
    for cell in &mut search.cells {
        cell.trials[1].rate = Some(5.0);
        for operation in &mut cell.trials[1].operations {
            operation.response = operation.service.clone();
        }
    }
    search.find_capacities().unwrap();
    let mut reads = sample::reads_at_replicas();
    reads.cells.iter_mut().for_each(|cell| cell.trials.truncate(2));
    let written = [few.result(), reads, sweep.result(), many.result(), queue, search];
    written.into_iter().map(|result| serde_json::to_value(result).unwrap()).collect()
});

/// Shows a result in every way that the crate has.
fn show(value: Value) {
    let Ok(mut result) = serde_json::from_value::<RunResult>(value) else { return };
    // what a search found is shown as the file says, and as its trials say
    let _ = if result.plan.capacity.is_some() { result.clone().find_capacities() } else { result.price() };
    let _ = result.cells.iter().map(|cell| result.next_probe(cell)).collect::<Vec<_>>();
    let _ = render(&result, Style { color: true, width: Some(80) });
    let _ = markdown(&result);
    let _ = csv([&result]);
    let _ = page(
        &[NamedResult { name: "one", result: &result }, NamedResult { name: "two", result: &result }],
        &[],
    );
    let conditions = ["throughput<0.95", "p99>1.2"].map(|text| text.parse::<Condition>().unwrap());
    let sides = [vec![], vec!["lock=none".parse::<Choice>().unwrap()]].map(Selector::from_iter);
    for (one, two) in [(&sides[0], &sides[0]), (&sides[1], &sides[0])] {
        let runs = [NamedResult { name: "result", result: &result }];
        let side = |selector| Side { runs: &runs, name: "result", choose: "--a ", selector };
        if let Ok(comparison) = compare(side(one), side(two), &conditions, None) {
            let _ = comparison.render(Style { color: false, width: None });
            let _ = serde_json::to_string(&comparison);
        }
    }
}

/// Collects the JSON pointers of all values within a value.
fn places(value: &Value, place: &str, all: &mut Vec<String>) {
    all.push(place.to_owned());
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{place}/{index}"), all);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(member, &format!("{place}/{name}"), all);
            }
        }
        _ => {}
    }
}

/// One change to a result: the value that it changes, and the value that it puts there.
#[derive(Clone, Debug)]
struct Change {
    which: Index,
    how: usize,
    byte: u8,
    at: Index,
}

fn change() -> impl Strategy<Value = Change> {
    (any::<Index>(), 0..16_usize, any::<u8>(), any::<Index>()).prop_map(|(which, how, byte, at)| Change {
        which,
        how,
        byte,
        at,
    })
}

/// Sets every whole number in a value to `whole`, and every other number to an extreme one.
fn set_each(value: &mut Value, whole: u64) {
    let parts = [0.0, -1.0, 1e300, -1e300, 5e-324, 1e15];
    match value {
        Value::Number(number) if number.is_f64() => {
            *value = json!(parts[whole.count_ones() as usize % parts.len()]);
        }
        Value::Number(_) => *value = json!(whole),
        Value::Array(items) => items.iter_mut().for_each(|item| set_each(item, whole)),
        Value::Object(members) => members.values_mut().for_each(|member| set_each(member, whole)),
        _ => {}
    }
}

impl Change {
    fn whole(&self) -> u64 {
        let whole = [0, 1, 3, 7, u64::from(u32::MAX), i64::MAX.unsigned_abs(), u64::MAX];
        whole[self.at.index(whole.len())]
    }

    fn apply(&self, value: &mut Value) {
        let texts = [String::new(), "é\u{0}<b>|`\u{1b}[2J".repeat(20), "x".repeat(1000), "NaN".to_owned()];
        match value {
            Value::Number(_) => set_each(value, self.whole()),
            // long strings include the histograms
            Value::String(text) if text.len() > 40 => {
                let mut bytes = std::mem::take(text).into_bytes();
                let at = self.at.index(bytes.len());
                match self.how % 4 {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, b"A/+9="[usize::from(self.byte) % 5]),
                    _ => bytes[at] = b"A/+9zQ"[usize::from(self.byte) % 6],
                }
                *text = String::from_utf8_lossy(&bytes).into_owned();
            }
            Value::String(text) => *text = texts[self.how % texts.len()].clone(),
            Value::Bool(truth) => *truth = !*truth,
            Value::Array(_) | Value::Object(_) if self.how < 8 => set_each(value, self.whole()),
            Value::Array(items) => match self.how % 3 {
                0 => items.clear(),
                1 => items.truncate(1),
                _ => items.extend(items.clone()),
            },
            Value::Object(members) => {
                let at = self.at.index(members.len().max(1));
                let name = members.keys().nth(at).cloned();
                if let Some(name) = name {
                    members.remove(&name);
                }
            }
            Value::Null => *value = json!(self.byte),
        }
    }
}

proptest! {
    // few cases, as each one shows a result in every way
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_result_that_was_changed_is_shown_or_refused(
        kind in any::<Index>(),
        changes in prop::collection::vec(change(), 1..5),
    ) {
        let mut value = RESULTS[kind.index(RESULTS.len())].clone();
        for change in changes {
            let mut all = Vec::new();
            places(&value, "", &mut all);
            let place = &all[change.which.index(all.len())];
            if let Some(found) = value.pointer_mut(place) {
                change.apply(found);
            }
        }
        show(value);
    }
}

/// Sets every number in one member of all trials to the largest there is, one member after the other.
#[test]
fn counts_are_shown_up_to_what_can_be() {
    let mut sound = RESULTS[3].clone();
    for trial in trials(&mut sound) {
        trial["faults"] = json!({"a": 1, "b": 1});
    }
    let members: Vec<String> = sound["cells"][0]["trials"][0].as_object().unwrap().keys().cloned().collect();
    for member in members {
        for whole in [u64::MAX, u64::from(u32::MAX)] {
            let mut value = sound.clone();
            trials(&mut value).for_each(|trial| set_each(&mut trial[&member], whole));
            show(value);
        }
    }
}

fn trials(result: &mut Value) -> impl Iterator<Item = &mut Value> {
    let cells = result["cells"].as_array_mut().unwrap().iter_mut();
    cells.flat_map(|cell| cell["trials"].as_array_mut().unwrap())
}
