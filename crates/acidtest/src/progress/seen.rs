//! What has been seen of a run, in a line: a chart of the trial's seconds, its last fault, and the verdict so far.

use std::time::Duration;

use acidtest_engine::Outcome;
use acidtest_model::figure::rate;
use acidtest_results::SoFar;
use acidtest_runner::SecondSeen;

/// Seconds that the chart has at most.
const SECONDS: usize = 60;

/// The bars of a chart, from nothing to the most.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How much of a second may be missing, as the time that has passed was read a moment before.
const SHORT: f64 = 0.3;

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Acknowledged operations of the trial's last seconds, the last one at the end.
    seconds: Vec<u64>,
    /// The last fault of the trial.
    fault: Option<String>,
    so_far: SoFar,
}

impl Seen {
    pub(super) fn begin(&mut self) {
        self.seconds.clear();
        self.fault = None;
    }

    /// Seconds of the trial have become complete. What ended after the last whole one says nothing of a second.
    pub(super) fn add(&mut self, seen: &SecondSeen<'_>, passed: Duration) {
        let whole =
            seen.seconds.iter().filter(|each| (each.second + 1) as f64 <= passed.as_secs_f64() + SHORT);
        let ok =
            whole.map(|second| second.counts.iter().map(|counts| counts[Outcome::Ok.index()]).sum::<u64>());
        self.seconds.extend(ok);
        self.seconds.drain(..self.seconds.len().saturating_sub(SECONDS));
    }

    /// The trial is hit by a fault.
    pub(super) fn hit(&mut self, fault: String) {
        self.fault = Some(fault);
    }

    /// A trial has ended.
    pub(super) fn judge(&mut self, so_far: SoFar) {
        self.so_far = so_far;
    }

    /// All of it, in so many columns.
    pub(super) fn line(&self, columns: usize) -> String {
        let most = self.seconds.iter().max().copied().unwrap_or(0);
        let fault = self.fault.as_ref().map_or_else(String::new, |fault| format!(" · {fault}"));
        let verdict = format!("verdict so far: {}", self.so_far);
        if self.seconds.is_empty() {
            return cut(&format!("{verdict}{fault}"), columns);
        }
        let words = format!(" each second, at most {}/s{fault} · {verdict}", rate(most as f64));
        let room = columns.saturating_sub(words.chars().count() + 1);
        let shown = &self.seconds[self.seconds.len().saturating_sub(room)..];
        cut(&format!("{}{words}", shown.iter().map(|count| bar(*count, most)).collect::<String>()), columns)
    }
}

/// The bar of a value; nothing only where there is nothing.
fn bar(value: u64, most: u64) -> char {
    let steps = BARS.len() as u64 - 1;
    let step = if most == 0 { 0 } else { (u128::from(value) * u128::from(steps)).div_ceil(u128::from(most)) };
    // at most the number of steps
    usize::try_from(step).ok().and_then(|step| BARS.get(step)).copied().unwrap_or('█')
}

/// A line that is no wider than the terminal: one that went on in the next would not be taken back.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use acidtest_engine::Second;

    use super::*;

    fn second(second: u64, ok: u64) -> Second {
        let mut counts = [0; Outcome::ALL.len()];
        counts[Outcome::Ok.index()] = ok;
        Second { second, counts: vec![counts], p50: 0, p99: 0, max: 0 }
    }

    fn add(seen_so_far: &mut Seen, seconds: &[Second], passed: f64) {
        let seen = SecondSeen { operations: &["capture"], seconds, used: &[], gauge: None };
        seen_so_far.add(&seen, Duration::from_secs_f64(passed));
    }

    #[test]
    fn the_line_has_a_bar_for_each_whole_second_and_fits() {
        let mut so_far = Seen::default();
        assert_eq!(so_far.line(80), "verdict so far: none yet");
        add(&mut so_far, &[second(0, 800), second(1, 1), second(2, 0), second(3, 400)], 3.9);
        // what ended after the last whole second
        add(&mut so_far, &[second(4, 3)], 4.0);
        assert_eq!(so_far.line(80), "█▁ ▄ each second, at most 800/s · verdict so far: none yet");
        so_far.hit("kill server at 3.0 s".to_owned());
        assert!(so_far.line(80).contains("/s · kill server at 3.0 s · verdict"));
        for at in 4..200 {
            add(&mut so_far, &[second(at, 800)], 200.0);
        }
        for columns in [10, 80, 100, 300] {
            assert!(so_far.line(columns).chars().count() < columns, "{columns}");
        }
        assert_eq!(so_far.line(300).matches('█').count(), SECONDS);
        so_far.begin();
        assert_eq!(so_far.line(80), "verdict so far: none yet");
    }
}
