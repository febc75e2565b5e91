//! Which anomalies an isolation level allows, by interleaving: a script's steps are run on sessions of a store in one order after the
//! other, and what was read, refused and committed shows whether the anomaly occurred.
//!
//! Invariants: no store is known here, only the port [`InteractiveStore`](acidtest_workloads::interactive::InteractiveStore). An
//! anomaly is told by values, commits and errors, never by waiting; that a step waits, by the store's word, never by time alone.
//! What is in doubt is *unknown*.

#![warn(missing_docs)]

mod judge;
mod orders;
mod play;
mod published;
mod result;
mod script;
mod survey;

pub use judge::{How, Judgement, judge};
pub use orders::Order;
pub use play::{Ending, Event, Happened, Play};
pub use published::{Promise, Published, Says};
pub use result::{
    AnomaliesResult, Anomaly, AnomalyCell, FORMAT, KIND, ModeResult, Outcome, RefusedLevel, StoreResult,
    Transcript, TranscriptStep, read, schema,
};
pub use script::{Boundary, Clue, Rows, Script, ScriptError, Step, built_in, text_of};
pub use survey::Survey;
