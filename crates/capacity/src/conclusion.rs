//! What a search found.

use crate::knee::Knee;

/// The end of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// The capacity (operations a second): the rate that 95 % of fresh probes are expected to meet, confirmed by fresh probes at that
    /// very rate. It lies below the even odds, and below every rate at which the audit broke or could not tell. `None` if the bench or
    /// the machine was the limit, no rate met, or the search ended before a rate was confirmed.
    pub capacity: Option<f64>,
    /// Highest rate that passed twice or more (operations a second), whether or not it is the capacity: what is known
    /// when a search ends early. Below every rate at which the audit broke or could not tell.
    pub passed: Option<f64>,
    /// Probes at the rate that passed in which every objective held, and all that told.
    pub passes: (usize, usize),
    /// Fresh probes at the capacity in which every objective held, and all that told: those that were made after it had been chosen.
    pub fresh: (usize, usize),
    /// The even odds, by the fit of all probes. `None` if none met or none missed, or if the ends of its interval are more than a
    /// factor of ten apart.
    pub even_odds: Option<Estimate>,
    /// Ends of the 95 % interval of the rate that 95 % of the probes meet (operations a second), by the same fit;
    /// likewise.
    pub expected: Option<(f64, f64)>,
    /// Why the search went no higher.
    pub why: Why,
    pub probes: usize,
    /// One point for each different rate, ascending.
    pub curve: Vec<Point>,
    /// Where the curve of latencies bends; `None` if it does not, or if no latencies were given.
    pub knee: Option<Knee>,
}

/// The even odds: the rate that the median machine holds, at which half of the probes meet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The rate (operations a second).
    pub rate: f64,
    /// Lower end of its 95 % interval (operations a second).
    pub low: f64,
    /// Upper end of its 95 % interval (operations a second).
    pub high: f64,
    /// Standard deviation between probes, as a share of the rate.
    pub spread: f64,
}

/// A rate of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The rate (operations a second).
    pub rate: f64,
    /// Probes in which every objective held.
    pub met: usize,
    /// Probes in which an objective was missed.
    pub missed: usize,
    /// Probes that told nothing of the objectives, or in which the audit broke.
    pub other: usize,
    /// Median of the worst margins (measured over allowed).
    pub margin: Option<f64>,
    /// Median of the latencies (seconds).
    pub latency: Option<f64>,
}

/// The probe that came nearest to meeting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// Its rate (operations a second).
    pub rate: f64,
    /// Index of the objective that was missed by most.
    pub objective: usize,
    /// By how much: measured over allowed.
    pub ratio: f64,
}

/// Why a search went no higher.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// An objective was missed.
    Objective {
        /// Its index: of the one that was missed most often near the rate.
        objective: usize,
        /// Lowest rate above the capacity at which most probes missed (operations a second).
        rate: f64,
        /// Median of measured over allowed at that rate.
        ratio: f64,
    },
    /// The bench could not offer this rate (operations a second). Gives no capacity.
    Bench {
        /// Lowest rate that it could not offer.
        rate: f64,
    },
    /// The audit found a broken promise.
    Broke {
        /// Lowest rate at which it did (operations a second).
        rate: f64,
    },
    /// The audit could not tell, twice.
    Unknown {
        /// Lowest rate at which it could not (operations a second).
        rate: f64,
    },
    /// The store died.
    Gone {
        /// Rate at which it did (operations a second).
        rate: f64,
    },
    /// An objective was missed down to the lowest rate allowed.
    NoRateMeets {
        /// The probe that came nearest.
        best: Best,
    },
    /// The budget was spent before a rate was confirmed.
    Budget,
    /// Other programs used so much of the machine, for so many probes, that nothing more could be said of the store.
    Machine,
    /// The highest rate allowed was met: the capacity is that or more.
    AtLimit {
        /// That rate (operations a second).
        rate: f64,
    },
}
