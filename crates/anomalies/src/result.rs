//! What was found, as it is written to a file and shown.

use std::collections::BTreeMap;

use acidtest_model::Isolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    How,
    play::{Event, Happened, Play, in_brackets, words},
    published::{Promise, Published, Says},
    script::Script,
};

/// What a result says that it is.
pub const KIND: &str = "anomalies";

/// The version of the format: raised when a reader of the last one would misread the next.
pub const FORMAT: u32 = 1;

/// Which anomalies the isolation levels of stores were seen to allow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnomaliesResult {
    /// [`KIND`], by which it is told from the result of a run.
    pub kind: String,
    /// [`FORMAT`].
    pub format: u32,
    /// The version of acidtest.
    pub acidtest: String,
    /// The id under which it was run.
    pub run: String,
    /// When it was begun, as RFC 3339 has it.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How often each order was run.
    pub repeat: u32,
    /// Whether it was interrupted before all was run.
    pub interrupted: bool,
    /// The anomalies, in the order of the table.
    pub anomalies: Vec<Anomaly>,
    /// The stores.
    pub stores: Vec<StoreResult>,
}

/// Reads a result; none if the text is that of something else.
///
/// # Errors
/// It is one of another format, or damaged.
#[must_use]
pub fn read(text: &str) -> Option<Result<AnomaliesResult, String>> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
        format: u32,
    }
    let Head { format, .. } = serde_json::from_str::<Head>(text).ok().filter(|head| head.kind == KIND)?;
    if format != FORMAT {
        return Some(Err(format!("it has format {format}, and this acidtest reads {FORMAT}")));
    }
    Some(serde_json::from_str(text).map_err(|error| error.to_string()))
}

/// The JSON Schema of [`AnomaliesResult`], made from its types.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(AnomaliesResult).to_value()
}

/// An anomaly that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Anomaly {
    /// Its short name.
    pub name: String,
    /// Its name in words.
    pub title: String,
    /// What happens, in a sentence.
    pub means: String,
    /// In how many orders its steps were run.
    pub orders: u32,
}

/// What was found on one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreResult {
    /// The store as it was named: its name, or its address without a password.
    pub store: String,
    /// Its product, as its makers write it.
    pub title: String,
    /// Its version, as it says; empty if it was not reached.
    pub version: String,
    /// The settings that were read back.
    pub settings: BTreeMap<String, String>,
    /// Its isolation levels, or what it has in their place.
    pub modes: Vec<ModeResult>,
    /// The levels that it lacks, each with the reason.
    pub refused: Vec<RefusedLevel>,
    /// Why it was not tried, or not to the end; none if it was.
    pub error: Option<String>,
}

/// A level that a store lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLevel {
    /// The level; none for all of them.
    pub level: Option<Isolation>,
    /// Why it lacks it.
    pub why: String,
}

/// What was found in one mode of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModeResult {
    /// The mode's name: a level, perhaps with what else is set.
    pub name: String,
    /// The isolation level; none where it is none.
    pub level: Option<Isolation>,
    /// The settings or commands that make it.
    pub how: String,
    /// The level as sessions read it back; empty where there is none.
    pub told: String,
    /// Whether a new session has it.
    pub is_default: bool,
    /// What was found of each anomaly, in their order.
    pub cells: Vec<AnomalyCell>,
}

/// Whether an anomaly occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It did in none of the orders.
    Prevented,
    /// It did at least once.
    Occurs,
    /// It could not be told.
    Unknown,
    /// The mode cannot run the script.
    NotApplicable,
}

/// What was found of an anomaly in a mode of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnomalyCell {
    /// The anomaly's short name.
    pub anomaly: String,
    /// Whether it occurs.
    pub outcome: Outcome,
    /// What prevented it in the order in which the script's steps stand.
    pub how: Option<How>,
    /// The values that show it, where it occurred first.
    pub values: Option<String>,
    /// How often a script was run.
    pub plays: u32,
    /// How often the anomaly occurred.
    pub occurred: u32,
    /// In how many of the orders it occurred at least once.
    pub orders_occurred: u32,
    /// How often it was prevented, by what prevented it.
    pub prevented: BTreeMap<How, u32>,
    /// How often it could not be told.
    pub unknown: u32,
    /// Why it could not be told, or the script cannot be run.
    pub why: Option<String>,
    /// What happened in the order in which it occurred first, or else in which the steps stand.
    pub transcript: Option<Transcript>,
    /// What others have published of it.
    pub published: Vec<Published>,
    /// The promise of the store's documentation that it does not occur, if there is one.
    pub promise: Option<Promise>,
}

impl AnomalyCell {
    /// Whether it occurs though the documentation promises that it does not.
    #[must_use]
    pub fn breaks_promise(&self) -> bool {
        self.outcome == Outcome::Occurs && self.promise.is_some()
    }

    /// Whether it cannot be told whether a promise holds.
    #[must_use]
    pub fn doubts_promise(&self) -> bool {
        self.outcome == Outcome::Unknown && self.promise.is_some()
    }

    /// The published words that it contradicts. That something is possible is contradicted by nothing.
    pub fn differing(&self) -> impl Iterator<Item = &Published> {
        self.published.iter().filter(|published| {
            matches!(
                (published.says, self.outcome),
                (Says::Prevented, Outcome::Occurs) | (Says::Occurs, Outcome::Prevented)
            )
        })
    }
}

/// What happened when a script was run in one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transcript {
    /// The sessions of the steps, as they came to their turn.
    pub order: String,
    /// What happened, one thing after the other.
    pub steps: Vec<TranscriptStep>,
    /// The rows of each table in the end.
    pub last: Vec<String>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TranscriptStep {
    /// The session's name.
    pub session: String,
    /// The statement, with the tables' names as the script has them.
    pub statement: String,
    /// What came of it.
    pub came: String,
    /// Whether it had waited before.
    pub waited: bool,
}

impl Transcript {
    /// What happened in a play.
    #[must_use]
    pub(crate) fn of(script: &Script, order: &[usize], play: &Play) -> Self {
        let step = |event: &Event| TranscriptStep {
            session: script.sessions[event.session].clone(),
            statement: event.statement.clone(),
            came: match &event.what {
                Happened::Replied(reply) => words(reply),
                Happened::Late(reply) => format!("{}, as is known now", words(reply)),
                Happened::Waits => "waits".to_owned(),
                Happened::Stuck(why) => format!("no answer: {why}"),
            },
            waited: event.waited,
        };
        let last = script.tables.iter().zip(&play.last).map(|(table, rows)| {
            let rows = if rows.is_empty() { "no rows".to_owned() } else { in_brackets(rows) };
            format!("{} {rows}", table.name)
        });
        Self {
            order: script.order_in_words(order),
            steps: play.events.iter().map(step).collect(),
            last: last.collect(),
        }
    }
}
