//! The command line that runs a plan.

use acidtest_results::{OPTIONS, Plan};
use serde_json::Value;

use crate::output::quoted;

/// The command line that runs this plan, as it would be typed into a shell. What has its default is left out.
pub(crate) fn command_line(plan: &Plan) -> String {
    let searches = plan.capacity.is_some();
    let command = if searches { "capacity" } else { "run" };
    let mut line = format!("acidtest {command} {}", quoted(&plan.workload));
    let mut add = |name: &str, words: &[String]| {
        line.extend([" --", name]);
        if !words.is_empty() {
            line.extend([" ", &*quoted(&words.join(","))]);
        }
    };
    for option in OPTIONS.iter().filter(|option| option.is_said(plan)) {
        add(option.name(searches), &option.typed(plan));
    }
    for (name, value) in &plan.parameters {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        add(&name.replace('_', "-"), &values.iter().map(word).collect::<Vec<_>>());
    }
    line
}

/// A parameter's value as it is typed.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;
    use rand::SeedableRng;

    use super::*;
    use crate::{
        args::{Arguments, Command},
        fuzz,
    };

    /// The plan that a command line describes, before it is checked.
    fn typed(line: &str) -> Plan {
        let words = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' {line}")])
            .output()
            .unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        let (run, search) = match Arguments::try_parse_from(words.lines()).unwrap().command {
            Command::Run(run) => (*run, None),
            Command::Capacity(capacity) => (capacity.run, Some(capacity.search)),
            other => panic!("{other:?}"),
        };
        let run = crate::run_arguments::Run { search, ..run };
        let mut plan = Plan::of(run.what.as_deref().unwrap());
        run.apply_to(&mut plan);
        plan
    }

    /// The parameters of a plan as the command line reads them: 0.0 is 0.
    fn as_typed(plan: &Plan) -> BTreeMap<String, Value> {
        fn whole(value: &Value) -> Value {
            match value {
                Value::Array(values) => values.iter().map(whole).collect(),
                Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
                    number
                        .to_string()
                        .trim_end_matches(".0")
                        .parse::<i64>()
                        .map_or_else(|_| value.clone(), Value::from)
                }
                other => other.clone(),
            }
        }
        plan.parameters.iter().map(|(name, value)| (name.clone(), whole(value))).collect()
    }

    #[test]
    fn a_plan_is_typed_and_read_back() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
        let drawn = (0..60).map(|_| fuzz::any_plan(&mut rng));
        let more = [
            "acidtest run inventory",
            "acidtest run records --store sqlite,postgres://ann@db.example/shop --fault 'kill@3s+pause@6s:1s,none' --mix 'read:95+update:5'",
            "acidtest capacity parcels --slo 'p99<5ms,insert:p99<4ms' --demand 4051/s --growth 3%/month --probes 24 --hold '1m 30s'",
            "acidtest run queue --ack none,confirm --persistent false --replace --keep --rate 250.5,3000 --arrivals constant --connect-timeout 30s",
            "acidtest run inventory --on-kill 'systemctl kill x' --on-start y --threads 3 --processes 2 --seed 9 --timeout 3s --lock-service postgres",
            "acidtest capacity inventory --budget 3m --within 5% --shared-machine --tls on --lock soft --durability process --max-retries 3",
            "acidtest run inventory --trace 500 --duty 0.25 --skip-unsupported --namespace mine --fits 30.7GB",
        ];
        for plan in drawn.chain(more.iter().map(|line| typed(line))) {
            let line = command_line(&plan);
            let warmup = if plan.trace.is_some() { Plan::of(&plan.workload).warmup } else { plan.warmup };
            let plan = Plan { warmup, parameters: as_typed(&plan), ..plan };
            assert_eq!(typed(&line), plan, "{line}");
        }
    }

    #[test]
    fn a_word_stays_one_word_in_a_shell() {
        for word in ["", "a b", "$(reboot)", "a'b", "`x`", "p99<20ms", "*", "a\\b", "~"] {
            let typed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output();
            assert_eq!(String::from_utf8(typed.unwrap().stdout).unwrap(), word);
        }
    }
}
