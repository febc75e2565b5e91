//! What a search is told before it starts.

use std::fmt;

/// Bounds and accuracy of a search. [`Settings::default`] searches from 100 operations a second upwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Rate of the first probe (operations a second), such as a tenth of what a closed loop reached.
    pub first: f64,
    /// Lowest rate that may be probed (operations a second). If it misses, no rate meets.
    pub floor: f64,
    /// Highest rate that may be probed (operations a second).
    pub ceiling: f64,
    /// Widest bracket at which bisection ends, as a share of the rate. Rates are tried in steps of half as much.
    pub resolution: f64,
    /// Half of the width that the 95 % interval of the even odds may have before a rate is confirmed, as a share of the rate.
    pub tolerance: f64,
    /// Seconds that all probes together may take.
    pub seconds: f64,
    /// Most probes that are made, whatever they take.
    pub probes: usize,
    /// Rate that is wanted (operations a second): the search ends sooner where it is clear whether the capacity is more or less.
    pub demand: Option<f64>,
    /// Fewest different rates of the curve, which a search that ended well fills up if it has too few.
    pub points: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            first: 100.0,
            floor: 1.0,
            ceiling: 10_000_000.0,
            resolution: 0.025,
            tolerance: 0.035,
            seconds: 600.0,
            probes: 1000,
            demand: None,
            points: 8,
        }
    }
}

/// Settings that no search can be made with. The message names the setting and what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsError {
    /// A rate is not a number, or not above 0.
    Rate,
    /// The floor lies above the ceiling, or the first rate outside of them.
    Order,
    /// The resolution is outside of 0.5 to 50 %, or the tolerance of 0.1 to 100 %.
    Accuracy,
    /// Fewer probes than [`Settings::LEAST_PROBES`], or no time.
    Budget,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate => f.write_str("rates must be above 0 operations a second"),
            Self::Order => f.write_str("the first rate must lie between the lowest and the highest one"),
            Self::Accuracy => f.write_str("resolution must be 0.5 to 50 %, tolerance 0.1 to 100 %"),
            Self::Budget => {
                write!(f, "a search needs {} probes or more, and time for them", Settings::LEAST_PROBES)
            }
        }
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Fewest probes that a search may be given.
    pub const LEAST_PROBES: usize = 8;

    /// Checks that a search can be made. Errors: the first of the settings that is out of its bounds.
    pub fn check(&self) -> Result<(), SettingsError> {
        let rates = [self.first, self.floor, self.ceiling];
        if !rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            Err(SettingsError::Rate)
        } else if self.floor > self.first || self.first > self.ceiling {
            Err(SettingsError::Order)
        } else if !(0.005..=0.5).contains(&self.resolution) || !(0.001..=1.0).contains(&self.tolerance) {
            Err(SettingsError::Accuracy)
        } else if self.probes < Self::LEAST_PROBES || self.seconds.is_nan() || self.seconds <= 0.0 {
            Err(SettingsError::Budget)
        } else {
            Ok(())
        }
    }

    /// Steps of the grid of rates from a rate to twice as much: two for the resolution.
    pub(crate) fn steps_per_octave(&self) -> i32 {
        #[allow(clippy::cast_possible_truncation)] // at most 278, as the resolution is at least 0.5 %
        let steps = (2.0_f64.ln() / self.resolution.ln_1p()).ceil() as i32;
        2 * steps.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_can_be_searched_with() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn bad_settings_are_refused() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check()
        };
        assert_eq!(with(|s| s.first = f64::NAN), Err(SettingsError::Rate));
        assert_eq!(with(|s| s.floor = 0.0), Err(SettingsError::Rate));
        assert_eq!(with(|s| s.ceiling = 50.0), Err(SettingsError::Order));
        assert_eq!(with(|s| s.resolution = 0.0), Err(SettingsError::Accuracy));
        assert_eq!(with(|s| s.tolerance = f64::NAN), Err(SettingsError::Accuracy));
        assert_eq!(with(|s| s.probes = 7), Err(SettingsError::Budget));
        assert_eq!(with(|s| s.seconds = 0.0), Err(SettingsError::Budget));
    }
}
