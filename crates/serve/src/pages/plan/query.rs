//! The form of a plan that was run, so that it can be changed and run again.

use acidtest_results::{OPTIONS, Plan, PlanOption};
use serde_json::Value;
use url::form_urlencoded;

use super::{CHOSEN, LONGEST, PARAMETER, written_options};

/// The query of the form that describes a plan; none if the plan says what no form can.
pub(in crate::pages) fn query(plan: &Plan) -> Option<String> {
    let is_chosen =
        |option: &PlanOption| option.key == "stores" || CHOSEN.iter().any(|(key, ..)| *key == option.key);
    let is_written = |option: &PlanOption| written_options().any(|(written, ..)| written.key == option.key);
    // the form leaves out by itself what stores cannot do
    let is_of_form =
        |option: &PlanOption| is_chosen(option) || is_written(option) || option.key == "skip_unsupported";
    if !OPTIONS.iter().all(|option| is_of_form(option) || option.is_usual(plan)) {
        return None;
    }
    // a form without stores is one that nobody has filled in, and its objectives are what makes a search of it
    let is_said = |option: &PlanOption| match option.key {
        "stores" => true,
        "slo" => plan.capacity.is_some(),
        _ => option.is_said(plan),
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("workload", &plan.workload);
    for option in OPTIONS.iter().filter(|option| is_said(option)) {
        let words = option.typed(plan);
        if is_chosen(option) {
            query.extend_pairs(words.iter().map(|word| (option.long, word)));
        } else if option.key == "clients" {
            query.append_pair(option.long, &numbers(&plan.clients));
        } else if is_written(option) {
            query.append_pair(option.long, &words.join(","));
        }
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
