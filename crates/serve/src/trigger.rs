//! The trigger of the locks study: a request that starts so many threads against a store for so long, and counts what they
//! did. It is answered by the run of a plan.
//!
//! | what is asked | what is run |
//! | --- | --- |
//! | `READ` | records, mix `read`; of a broker, its consumers drain a backlog |
//! | `WRITE` | records, mix `write`, which inserts; of a broker, its producers publish |
//! | `MODIFY` | records, mix `modify`: a record is read, and then written with what follows from it |
//! | `MODIFY_LOCKED` | records, mix `modify-locked`: the same under a hard lock |
//! | `threads` | clients |
//! | `timeInMilis` | how long they are measured; there is no warm-up, as in the study |
//! | `load` | the share of the time in which each client works (`--duty`); 1 where nothing confirms what is published |
//! | `durable` | the highest durability level that the store has, or none; of a broker, whether messages are persistent |
//! | `transactional` | of a broker, a transaction for each message, or nothing that confirms it; of `MODIFY`, whether a change that another came before is refused and tried again (soft lock); `READ` and `WRITE` of one record are one statement either way |

use std::time::Duration;

use acidtest_model::{Durability, Lock, Span, hint};
use acidtest_results::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Refusal, StoreAbilities, Supported};

/// What the trigger is told.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Trigger {
    /// How many clients ask at once, at least 1.
    pub(crate) threads: u32,
    /// The share of the time in which each client works, above 0 to 1.
    pub(crate) load: f64,
    /// For how long, in milliseconds: 1 to 600,000.
    pub(crate) time_in_milis: u64,
    /// Whether what belongs together is a transaction.
    pub(crate) transactional: bool,
    /// Whether what was acknowledged is to survive.
    pub(crate) durable: bool,
    /// What the clients do.
    pub(crate) request_type: RequestType,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum RequestType {
    /// They read.
    Read,
    /// They write something new.
    Write,
    /// They read something, and write what follows from it.
    Modify,
    /// The same, and others are kept away meanwhile.
    ModifyLocked,
}

/// What the trigger answers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Triggered {
    /// The store, by its name in plans.
    pub(crate) store: String,
    /// What the clients did.
    pub(crate) request_type: RequestType,
    /// Operations that were acknowledged.
    pub(crate) operations: u64,
    /// For how long clients were measured, in milliseconds.
    pub(crate) elapsed_ms: f64,
    /// Operations that were acknowledged in time, a second. Void unless the verdict is `holds`.
    pub(crate) operations_per_second: f64,
    /// Times of acknowledged operations, in milliseconds; none where there were none.
    pub(crate) times_ms: Option<TimesMs>,
    /// The durability level, as read back from the store.
    pub(crate) durability: String,
    /// `holds`, `broken` or `unknown`.
    pub(crate) verdict: String,
    /// The verdict with what was found.
    pub(crate) said: String,
    /// Whether what was found breaks a promise; without a lock, updates are lost as expected.
    pub(crate) breaks_promise: bool,
    /// The path of the run, which has the rest.
    pub(crate) run: String,
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TimesMs {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// Longest time that a client is asked to wait for its answer.
const LONGEST: u64 = 600_000;

/// The store's name in plans, by its name in the study or by ours; an engine's name may have `_` for `/`.
fn name_of(store: &str) -> String {
    match store {
        "mysql" => "mysql/innodb".to_owned(),
        "mysql_nt" => "mysql/myisam".to_owned(),
        "rmq" => "rabbitmq".to_owned(),
        "es" => "elasticsearch".to_owned(),
        other => other.replace('_', "/"),
    }
}

/// Whether a store has the ability of this name.
fn has(abilities: &[Supported], name: &str) -> bool {
    abilities.iter().any(|each| each.name == name && each.supported)
}

impl Trigger {
    /// The plan that does what is asked of a store.
    pub(crate) fn plan(self, store: &str, stores: &[StoreAbilities]) -> Result<Plan, Refusal> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(Refusal::at(
                "load",
                format!(
                    "load is the share of the time that each client works, above 0 and at most 1, not {}",
                    self.load
                ),
            ));
        }
        if self.threads == 0 {
            return Err(Refusal::at("threads", "threads must be at least 1"));
        }
        if !(1..=LONGEST).contains(&self.time_in_milis) {
            return Err(Refusal::at(
                "timeInMilis",
                "timeInMilis must be 1 to 600000, because the answer comes only then; POST /api/runs has no such limit",
            ));
        }
        let name = name_of(store);
        let Some(about) = stores.iter().find(|about| about.name == name) else {
            let known: Vec<String> = stores.iter().map(|about| about.name.replace('/', "_")).collect();
            let near = known.iter().map(String::as_str).chain(["mysql_nt", "rmq", "es"]);
            return Err(Refusal::of(format!(
                "there is no store \"{}\"{}; known are {}, and the study's mysql, mysql_nt, rmq and es",
                store.chars().take(100).collect::<String>(),
                hint(store, near),
                known.join(", ")
            )));
        };
        let mut plan = Plan {
            stores: vec![name],
            duration: Span(Duration::from_millis(self.time_in_milis)),
            warmup: Span(Duration::ZERO),
            duty: self.load,
            ..Plan::of("records")
        };
        if has(&about.workloads, "records") {
            plan.clients = vec![self.threads];
            plan.durability = vec![self.level(about)];
            let mix = match self.request_type {
                RequestType::Read => "read",
                RequestType::Write => "write",
                RequestType::Modify => "modify",
                RequestType::ModifyLocked => "modify-locked",
            };
            plan.locks = match self.request_type {
                RequestType::Modify if self.transactional => vec![Lock::Soft],
                RequestType::Modify => vec![Lock::None],
                _ => plan.locks,
            };
            plan.parameters.insert("mix".to_owned(), json!(mix));
            return Ok(plan);
        }
        self.on_broker(plan)
    }

    /// The highest durability level that the store has, or none.
    fn level(self, about: &StoreAbilities) -> Durability {
        let has = |level: &Durability| has(&about.durability, level.name());
        let levels = [Durability::Disk, Durability::Process];
        if self.durable { levels.into_iter().find(has).unwrap_or(Durability::None) } else { Durability::None }
    }

    /// The plan on a store that has a queue, and nothing else.
    fn on_broker(self, plan: Plan) -> Result<Plan, Refusal> {
        let of = |name: &str, value: serde_json::Value| (name.to_owned(), value);
        let parameters = match self.request_type {
            RequestType::Read => [
                of("phase", json!("consume")),
                of("consumers", json!(self.threads)),
                of("consume", json!(if self.transactional { "transaction" } else { "auto" })),
                of("persistent", json!(self.durable)),
            ],
            RequestType::Write => [
                of("phase", json!("publish")),
                of("producers", json!(self.threads)),
                of("ack", json!(if self.transactional { "transaction" } else { "none" })),
                of("persistent", json!(self.durable)),
            ],
            RequestType::Modify | RequestType::ModifyLocked => {
                return Err(Refusal::at(
                    "requestType",
                    format!(
                        "a message in a queue of {} cannot be modified: use READ or WRITE",
                        plan.stores.first().map_or("a broker", String::as_str)
                    ),
                ));
            }
        };
        Ok(Plan { workload: "queue".to_owned(), parameters: parameters.into_iter().collect(), ..plan })
    }
}
