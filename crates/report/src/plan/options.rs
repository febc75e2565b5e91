//! The options of a plan. Each has one entry here: its key, its type, its default, and its names. Whatever goes through
//! options takes them from here.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use acidtest_model::{
    Address, Bytes, Commands, Durability, Encryption, Faults, Growth, Lock, Objective, PerSecond, Share, Span,
};

use super::{ArrivalKind, Plan, RefusedKind, typed::Typed};

/// An option of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOption {
    /// Its key in a plan.
    pub key: &'static str,
    /// The table of the plan in which the key stands (`[capacity]`); none for the plan itself.
    pub table: Option<&'static str>,
    /// Its name on the command line of a run, without the dashes.
    pub long: &'static str,
    /// What it is about.
    pub group: Group,
    value: &'static dyn Value,
}

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The cells of the grid.
    Grid,
    /// How each cell is driven.
    Driving,
    /// Where data goes.
    Data,
    /// What the rows of a table are to fit into.
    Room,
    /// What a search for a capacity looks for.
    Search,
}

impl PlanOption {
    /// Its key, and that of the table in which it stands.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        [Some(self.key), self.table].into_iter().flatten()
    }

    /// Its name on the command line, without the dashes, where the plan is of a search for a capacity or not.
    #[must_use]
    pub fn name(&self, searches: bool) -> &'static str {
        if searches && self.key == "duration" { "hold" } else { self.long }
    }

    /// Whether it has its default in a plan.
    #[must_use]
    pub fn is_usual(&self, plan: &Plan) -> bool {
        self.value.is_usual(plan)
    }

    /// Whether it is to be typed to get this plan.
    #[must_use]
    pub fn is_said(&self, plan: &Plan) -> bool {
        match (self.key, &plan.capacity) {
            // an adaptive search is one that does not say it, and its default is another
            ("duration", Some(search)) => !search.adaptive,
            // a sequence begins at its beginning, and so without one
            ("warmup", _) if plan.trace.is_some() => false,
            _ => !self.is_usual(plan),
        }
    }

    /// Its value in a plan as it is typed: the words of a list, or one; none of a flag, and none where there is no value.
    #[must_use]
    pub fn typed(&self, plan: &Plan) -> Vec<String> {
        self.value.typed(plan)
    }
}

/// The option with this key in a plan; none for another word.
#[must_use]
pub fn option_of(key: &str) -> Option<&'static PlanOption> {
    OPTIONS.iter().find(|option| option.key == key)
}

/// The value of an option in a plan, whatever its type is.
trait Value: Debug + Sync {
    fn is_usual(&self, plan: &Plan) -> bool;
    fn typed(&self, plan: &Plan) -> Vec<String>;
}

/// Where a value of this type is in a plan.
#[derive(Debug)]
struct Place<T> {
    get: fn(&Plan) -> Option<&T>,
    is_usual: fn(&T) -> bool,
}

impl<T: Debug + Typed> Value for Place<T> {
    fn is_usual(&self, plan: &Plan) -> bool {
        (self.get)(plan).is_none_or(self.is_usual)
    }

    fn typed(&self, plan: &Plan) -> Vec<String> {
        (self.get)(plan).map_or_else(Vec::new, Typed::typed)
    }
}

/// `KEY: TYPE = DEFAULT => GROUP, "NAME ON THE COMMAND LINE";` of each option, and `[TABLE]` with those that stand in a table
/// of the plan.
macro_rules! options {
    ($(
        $($key:ident: $type:ty = $usual:expr => $group:ident, $long:literal;)*
        [$table:ident] $plan:ident => $get:expr, {
            $($inner:ident: $of:ty = $default:expr => $about:ident, $name:literal;)*
        }
    )*) => {
        /// The default of each option.
        pub(super) mod usual {
            use super::*;
            $($(pub(crate) fn $key() -> $type { $usual })* $(pub(crate) fn $inner() -> $of { $default })*)*
        }

        /// Whether a value is an option's default.
        #[allow(clippy::float_cmp, clippy::ptr_arg, clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
        pub(super) mod is_usual {
            use super::*;
            $($(pub(crate) fn $key(value: &$type) -> bool { *value == usual::$key() })*
              $(pub(crate) fn $inner(value: &$of) -> bool { *value == usual::$inner() })*)*
        }

        /// The options of a plan, in the order of the help.
        pub static OPTIONS: &[PlanOption] = &[$(
            $(PlanOption {
                key: stringify!($key), table: None, long: $long, group: Group::$group,
                value: &Place::<$type> { get: |plan| Some(&plan.$key), is_usual: is_usual::$key },
            },)*
            $(PlanOption {
                key: stringify!($inner), table: Some(stringify!($table)), long: $name, group: Group::$about,
                value: &Place::<$of> { get: |$plan| $get.map(|table| &table.$inner), is_usual: is_usual::$inner },
            },)*
        )*];

        impl Plan {
            /// The plan of a workload with every key at its default.
            #[must_use]
            pub fn of(workload: &str) -> Self {
                Self {
                    workload: workload.to_owned(),
                    commands: Commands::default(),
                    capacity: None,
                    parameters: BTreeMap::new(),
                    $($($key: usual::$key(),)*)*
                }
            }
        }
    };
}

const fn seconds(count: u64) -> Span {
    Span(Duration::from_secs(count))
}

options! {
    stores: Vec<String> = vec!["sqlite".to_owned()] => Grid, "store";
    locks: Vec<Lock> = vec![Lock::Native] => Grid, "lock";
    durability: Vec<Durability> = vec![Durability::Disk] => Grid, "durability";
    tls: Vec<Encryption> = vec![Encryption::Off] => Grid, "tls";
    faults: Vec<Faults> = Vec::new() => Grid, "fault";

    [commands] plan => Some(&plan.commands), {
        kill: Option<String> = None => Grid, "on-kill";
        stop: Option<String> = None => Grid, "on-stop";
        start: Option<String> = None => Grid, "on-start";
        pause: Option<String> = None => Grid, "on-pause";
        resume: Option<String> = None => Grid, "on-resume";
    }

    // the number of clients of the inventory study
    clients: Vec<u32> = vec![16] => Grid, "clients";
    trials: u32 = 1 => Grid, "trials";
    skip_unsupported: bool = false => Grid, "skip-unsupported";
    lock_service: String = "redis".to_owned() => Grid, "lock-service";

    duration: Span = seconds(10) => Driving, "duration";
    ops: Option<u64> = None => Driving, "ops";
    warmup: Span = seconds(2) => Driving, "warmup";
    rates: Vec<f64> = Vec::new() => Driving, "rate";
    arrivals: ArrivalKind = ArrivalKind::Poisson => Driving, "arrivals";
    timeout: Span = seconds(10) => Driving, "timeout";
    connect_timeout: Span = Span(Address::CONNECT_TIMEOUT) => Driving, "connect-timeout";
    max_retries: u32 = 100 => Driving, "max-retries";
    on_refused: RefusedKind = RefusedKind::Count => Driving, "on-refused";
    duty: f64 = 1.0 => Driving, "duty";
    trace: Option<u64> = None => Driving, "trace";
    threads: Option<u32> = None => Driving, "threads";
    processes: Option<u32> = None => Driving, "processes";
    seed: u64 = 42 => Driving, "seed";

    namespace: String = "acidtest".to_owned() => Data, "namespace";
    replace: bool = false => Data, "replace";
    keep: bool = false => Data, "keep";

    fits: Option<Bytes> = None => Room, "fits";
    demand: Option<PerSecond> = None => Room, "demand";

    [capacity] plan => plan.capacity.as_ref(), {
        slo: Vec<Objective> = ["p99<20ms", "errors<0.1%"].iter().filter_map(|text| text.parse().ok()).collect()
            => Search, "slo";
        growth: Option<Growth> = None => Search, "growth";
        budget: Span = Span(Duration::from_mins(10)) => Search, "budget";
        probes: u32 = 1000 => Search, "probes";
        within: Share = Share(0.035) => Search, "within";
        shared_machine: bool = false => Search, "shared-machine";
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What no entry here makes an option.
    const OTHERS: [&str; 5] = ["workload", "commands", "capacity", "adaptive", "parameters"];

    #[test]
    fn every_key_of_a_plan_is_an_option() {
        let schema = serde_json::to_value(schemars::schema_for!(Plan)).unwrap();
        for (table, keys) in [
            (None, &schema["properties"]),
            (Some("capacity"), &schema["$defs"]["CapacityPlan"]["properties"]),
            (Some("commands"), &schema["$defs"]["Commands"]["properties"]),
        ] {
            let keys: BTreeSet<&str> = keys.as_object().unwrap().keys().map(String::as_str).collect();
            let of_table = OPTIONS.iter().filter(|option| option.table == table);
            let options: BTreeSet<&str> = of_table.map(|option| option.key).collect();
            let others: Vec<&&str> = keys.difference(&options).collect();
            assert!(others.iter().all(|key| OTHERS.contains(key)), "{table:?}: {others:?}");
            assert!(options.is_subset(&keys), "{table:?}");
        }
        let names: BTreeSet<&str> = OPTIONS.iter().map(|option| option.long).collect();
        assert_eq!(names.len(), OPTIONS.len());
    }
}
