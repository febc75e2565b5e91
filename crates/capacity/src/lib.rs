//! Searches for a capacity: the open-loop rate at which 95 % of fresh probes meet every objective, and the audit holds.
//!
//! [`Search`] is a function of what its probes answered: it opens no store, keeps no time and draws no random number. A run,
//! a run that is resumed, a report that reads a result again, and a simulation (in the tests) all use it in the same way.
//!
//! Invariants: the same observations in the same order give the same next step; a search ends after at most
//! [`Settings::probes`] observations; no rate at or above one at which the audit broke is ever asked for again or given.

mod conclusion;
mod fit;
mod knee;
mod search;
mod settings;

pub use conclusion::{Best, Conclusion, Estimate, Point, Why};
pub use knee::{Knee, knee};
pub use search::{Ended, Observation, Search, Step};
pub use settings::{Settings, SettingsError};
