//! The form of a plan that was run, so that it can be changed and run again.

use acidtest_report::{CapacityPlan, Plan};
use serde_json::Value;
use url::form_urlencoded;

use super::{LONGEST, PARAMETER};

/// The query of the form that describes a plan; none if the plan says what no form can.
pub(in crate::pages) fn query(plan: &Plan) -> Option<String> {
    let usual = Plan::of(&plan.workload);
    let search = plan.capacity.as_ref().map(|search| CapacityPlan {
        slo: search.slo.clone(),
        adaptive: search.adaptive,
        ..CapacityPlan::default()
    });
    let of_form = Plan {
        stores: plan.stores.clone(),
        locks: plan.locks.clone(),
        durability: plan.durability.clone(),
        tls: plan.tls.clone(),
        faults: plan.faults.clone(),
        clients: plan.clients.clone(),
        trials: plan.trials,
        duration: plan.duration,
        warmup: plan.warmup,
        rates: plan.rates.clone(),
        capacity: search,
        parameters: plan.parameters.clone(),
        skip_unsupported: plan.skip_unsupported,
        ..usual.clone()
    };
    if of_form != *plan {
        return None;
    }
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("workload", &plan.workload);
    let stores = plan.stores.iter().map(|store| ("store", store.as_str()));
    let locks = plan.locks.iter().map(|lock| ("lock", lock.name()));
    let levels = plan.durability.iter().map(|level| ("durability", level.name()));
    let tls = plan.tls.iter().filter(|_| plan.tls != usual.tls).map(|tls| ("tls", tls.name()));
    query.extend_pairs(stores.chain(locks).chain(levels).chain(tls));
    let list = |texts: Vec<String>| texts.join(",");
    let is_usual_length =
        plan.capacity.as_ref().map_or(plan.duration == usual.duration, |search| search.adaptive);
    let written = [
        ("clients", numbers(&plan.clients), plan.clients == usual.clients),
        ("trials", plan.trials.to_string(), plan.trials == usual.trials),
        ("duration", plan.duration.to_string(), is_usual_length),
        ("warmup", plan.warmup.to_string(), plan.warmup == usual.warmup),
        ("rate", list(plan.rates.iter().map(f64::to_string).collect()), plan.rates.is_empty()),
        ("fault", list(plan.faults.iter().map(ToString::to_string).collect()), plan.faults.is_empty()),
    ];
    for (name, value, is_usual) in written {
        if !is_usual {
            query.append_pair(name, &value);
        }
    }
    if let Some(search) = &plan.capacity {
        query.append_pair("slo", &list(search.slo.iter().map(ToString::to_string).collect()));
    }
    for (name, value) in &plan.parameters {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words = value.as_array().map_or_else(|| vec![word(value)], |all| all.iter().map(word).collect());
        // one that is written takes a list, as well as one of a few words takes each
        query.append_pair(&format!("{PARAMETER}{name}"), &words.join(","));
    }
    let query = query.finish();
    let is_short = form_urlencoded::parse(query.as_bytes()).all(|(_, value)| value.len() <= LONGEST);
    Some(query).filter(|_| is_short)
}

/// Numbers as they are written: as a range, where they are one.
fn numbers(numbers: &[u32]) -> String {
    if let [first, second, .., last] = numbers
        && second > first
        && numbers.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(second - first))
    {
        return format!("{first}..{last}:{}", second - first);
    }
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
