//! The command line that runs a plan.

use std::fmt::Display;

use acidtest_report::{CapacityPlan, Plan};
use serde_json::Value;

use crate::output::quoted;

/// The command line that runs this plan, as it would be typed into a shell. What has its default is left out.
pub(crate) fn command_line(plan: &Plan) -> String {
    let usual = Plan::of(&plan.workload);
    let search = plan.capacity.as_ref();
    let mut words = Words(vec![
        "acidtest".to_owned(),
        if search.is_some() { "capacity" } else { "run" }.to_owned(),
        quoted(&plan.workload),
    ]);
    words.list("store", &plan.stores, &usual.stores);
    words.list("lock", &plan.locks, &usual.locks);
    words.list("durability", &plan.durability, &usual.durability);
    words.list("tls", &plan.tls, &usual.tls);
    words.list("fault", &plan.faults, &usual.faults);
    words.list("clients", &plan.clients, &usual.clients);
    words.one("trials", &plan.trials, &usual.trials);
    match search {
        None => words.one("duration", &plan.duration, &usual.duration),
        Some(search) => words.some("hold", Some(&plan.duration).filter(|_| !search.adaptive)),
    }
    words.some("ops", plan.ops.as_ref());
    // a sequence begins at its beginning, and so without one
    let warmup = if plan.trace.is_some() { &usual.warmup } else { &plan.warmup };
    words.one("warmup", warmup, &usual.warmup);
    words.list("rate", &plan.rates, &usual.rates);
    words.one("arrivals", &plan.arrivals, &usual.arrivals);
    words.one("timeout", &plan.timeout, &usual.timeout);
    words.one("connect-timeout", &plan.connect_timeout, &usual.connect_timeout);
    words.one("max-retries", &plan.max_retries, &usual.max_retries);
    words.one("on-refused", &plan.on_refused, &usual.on_refused);
    words.one("duty", &plan.duty, &usual.duty);
    words.some("trace", plan.trace.as_ref());
    words.some("threads", plan.threads.as_ref());
    words.some("processes", plan.processes.as_ref());
    words.one("seed", &plan.seed, &usual.seed);
    words.one("namespace", &plan.namespace, &usual.namespace);
    words.flag("replace", plan.replace);
    words.flag("keep", plan.keep);
    words.flag("skip-unsupported", plan.skip_unsupported);
    words.one("lock-service", &plan.lock_service, &usual.lock_service);
    words.some("fits", plan.fits.as_ref());
    words.some("demand", plan.demand.as_ref());
    if let Some(search) = search {
        let usual = CapacityPlan::default();
        words.list("slo", &search.slo, &usual.slo);
        words.one("budget", &search.budget, &usual.budget);
        words.one("probes", &search.probes, &usual.probes);
        words.one("within", &search.within, &usual.within);
        words.some("growth", search.growth.as_ref());
        words.flag("shared-machine", search.shared_machine);
    }
    for (name, value) in &plan.parameters {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        words.list(&name.replace('_', "-"), &values.iter().map(word).collect::<Vec<_>>(), &[]);
    }
    words.0.join(" ")
}

/// A parameter's value as it is typed.
fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

struct Words(Vec<String>);

impl Words {
    fn some(&mut self, option: &str, value: Option<&impl Display>) {
        if let Some(value) = value {
            self.0.push(format!("--{option} {}", quoted(&value.to_string())));
        }
    }

    fn one<T: Display + PartialEq>(&mut self, option: &str, value: &T, usual: &T) {
        self.some(option, Some(value).filter(|value| *value != usual));
    }

    fn list<T: Display + PartialEq>(&mut self, option: &str, values: &[T], usual: &[T]) {
        if values != usual {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            self.some(option, Some(&values.join(",")));
        }
    }

    fn flag(&mut self, option: &str, is_set: bool) {
        if is_set {
            self.0.push(format!("--{option}"));
        }
    }
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
        let run = crate::args::Run { search, ..run };
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
