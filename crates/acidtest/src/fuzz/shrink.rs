//! Shrinks a case to a smaller one with the same failure.

use std::time::Duration;

use acidtest_model::{ReadPolicy, Replication, Span};
use acidtest_results::{OPTIONS, Plan, PlanOption};
use acidtest_store_memory::Faults;
use serde_json::Value;

use super::{FuzzCase, judge::Misjudgement};

/// Most cases that are tried.
const TRIES: u32 = 400;

/// Makes a case smaller as long as its verdict is wrong in the same way.
pub(crate) fn shrink(
    case: FuzzCase,
    wrong: Misjudgement,
    examine: impl Fn(&FuzzCase) -> Option<Misjudgement>,
) -> (FuzzCase, Misjudgement) {
    let (mut case, mut wrong, mut tries) = (case, wrong, 0);
    'smaller: loop {
        for candidate in candidates(&case) {
            tries += 1;
            if tries > TRIES {
                return (case, wrong);
            }
            if let Some(again) = examine(&candidate).filter(|again| again.kind == wrong.kind) {
                (case, wrong) = (candidate, again);
                continue 'smaller;
            }
        }
        return (case, wrong);
    }
}

/// Cases that are each a little smaller than this one.
fn candidates(case: &FuzzCase) -> Vec<FuzzCase> {
    let plans = plans(&case.plan).into_iter().map(|plan| FuzzCase { plan, ..case.clone() });
    let stores = stores(case.store).into_iter().map(|store| FuzzCase { store, ..case.clone() });
    let sound = (case.sound > 0).then(|| FuzzCase { sound: case.sound - 1, ..case.clone() });
    let halt = FuzzCase { halt: None, ..case.clone() };
    let at_leader = FuzzCase {
        reads: ReadPolicy::default(),
        store: Faults { replicas: None, ..case.store },
        ..case.clone()
    };
    plans.chain(stores).chain(sound).chain([halt, at_leader]).filter(|candidate| candidate != case).collect()
}

fn stores(store: Faults) -> Vec<Faults> {
    vec![
        Faults { unanswered: 0.0, ..store },
        Faults { cuts: 0.0, ..store },
        Faults { failures: 0.0, ..store },
        Faults { full: None, ..store },
        Faults { swapped: 0.0, ..store },
        Faults { conflicts: 0.0, ..store },
        Faults { delays: 0.0, ..store },
        Faults { redeliveries: 0.0, ..store },
        Faults { outages: false, replication: Replication::None, ..store },
        Faults { replication: Replication::None, ..store },
        Faults { unasked: false, ..store },
        Faults { fails_over: false, ..store },
        Faults { pooled: false, ..store },
        Faults { unflagged: false, ..store },
        Faults { unconfirmed: false, ..store },
        Faults { to_the_end: false, ..store },
    ]
}

/// Options with whose default a case takes longer, or is another one.
const STEPPED: [&str; 6] = ["duration", "ops", "trace", "warmup", "timeout", "seed"];

fn plans(plan: &Plan) -> Vec<Plan> {
    let usual = Plan::of(&plan.workload);
    let by_default = |option: &PlanOption| {
        let mut smaller = plan.clone();
        option.copy(&usual, &mut smaller);
        smaller
    };
    let others = OPTIONS.iter().filter(|option| !option.is_axis() && !STEPPED.contains(&option.key));
    let mut plans: Vec<Plan> = others.map(by_default).collect();
    plans.extend([
        Plan { trials: plan.trials.div_ceil(2), ..plan.clone() },
        Plan { warmup: Span(Duration::ZERO), ..plan.clone() },
        Plan { rates: Vec::new(), arrivals: usual.arrivals, ..plan.clone() },
        Plan { ops: plan.ops.map(|ops| ops.div_ceil(2)), ..plan.clone() },
        Plan { trace: plan.trace.map(|length| length.div_ceil(2)), ..plan.clone() },
    ]);
    if plan.ops.is_none() && plan.trace.is_none() {
        let half = plan.duration.0.div_f64(2.0).max(Duration::from_millis(1));
        plans.push(Plan { duration: Span(half), ..plan.clone() });
    }
    for option in OPTIONS.iter().filter(|option| option.is_axis()) {
        let words = option.typed(plan);
        plans.extend((0..words.len()).filter_map(|at| {
            let mut fewer = plan.clone();
            option.read(&but(&words, at), &mut fewer).ok()?;
            Some(fewer)
        }));
    }
    let fewer = plan.clients.iter().map(|clients| clients.div_ceil(2)).collect();
    plans.push(Plan { clients: fewer, ..plan.clone() });
    for (name, value) in &plan.parameters {
        let mut without = plan.clone();
        without.parameters.remove(name);
        plans.push(without);
        let smaller: Vec<Value> = match value {
            Value::Array(values) => (0..values.len()).map(|at| Value::Array(but(values, at))).collect(),
            Value::Number(number) => {
                number.as_u64().map(|number| number.div_ceil(2).into()).into_iter().collect()
            }
            _ => Vec::new(),
        };
        plans.extend(smaller.into_iter().map(|smaller| {
            let mut changed = plan.clone();
            changed.parameters.insert(name.clone(), smaller);
            changed
        }));
    }
    plans
}

/// The list without the value at this index; a list of one value stays as it is.
fn but<T: Clone>(list: &[T], index: usize) -> Vec<T> {
    let but = |(at, each): (usize, &T)| (at != index || list.len() == 1).then(|| each.clone());
    list.iter().enumerate().filter_map(but).collect()
}
