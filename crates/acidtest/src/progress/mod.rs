//! Shows the progress of a run: live on a terminal that is wide enough, otherwise a line at intervals.

mod pace;
mod seen;

use std::{
    io,
    time::{Duration, Instant},
};

use acidtest_engine::{Outcome, Progress as Measured};
use acidtest_model::{
    MemberId, count,
    figure::{nanoseconds, rate},
};
use acidtest_results::{RunResult, SoFar, is_enough};
use acidtest_runner::{FaultStage, Observer, SecondSeen};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) use self::pace::Pace;
use self::seen::Seen;
use crate::output;

/// Columns of the narrowest terminal on which a run is shown live.
const WIDE: u16 = 80;

/// Time between two lines, where a run is not shown live.
const INTERVAL: Duration = Duration::from_secs(5);

/// Shows progress live, as lines, or not at all.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    said: Instant,
    pace: Pace,
    trial: String,
    seen: Seen,
    /// How long the measured part of the trial has lasted.
    passed: Duration,
}

impl Progress {
    /// Shows nothing if it is to be `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let is_live = !quiet && columns().is_some_and(|columns| columns >= WIDE);
        let bar = is_live.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            // the template is a literal, so a mistake in it would show in every run
            if let Ok(style) = ProgressStyle::with_template("{bar:10} {elapsed_precise} {wide_msg}\n{prefix}")
            {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            lines: !quiet && !is_live,
            said: Instant::now(),
            pace: Pace::default(),
            trial: String::new(),
            seen: Seen::default(),
            passed: Duration::ZERO,
        }
    }

    /// Whether there is a bar, or a line is due.
    fn is_due(&self) -> bool {
        self.bar.is_some() || self.lines && self.said.elapsed() >= INTERVAL
    }

    /// Shows how something goes on, on the bar or as a line.
    fn show(&mut self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        } else {
            self.said = Instant::now();
            output::say(&message);
        }
    }

    /// Shows what has been seen so far, below the bar.
    fn show_seen(&self) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.seen.line(columns().unwrap_or(WIDE).into()));
        }
    }

    /// The time left, in words.
    fn left(&self, share: f64) -> String {
        match self.pace.left(share) {
            None => String::new(),
            Some((least, most)) if most >= 99.5 && least < most => {
                format!(" · {:.0} to {:.0} min left", least / 60.0, most / 60.0)
            }
            Some((_, left)) if left < 99.5 => format!(" · {left:.0} s left"),
            Some((_, left)) => format!(" · {:.0} min left", left / 60.0),
        }
    }

    /// How many trials there are in all, in words.
    fn all(&self) -> String {
        match self.pace.trials {
            (least, most) if self.pace.done < least && least < most => format!("{least} to {most}"),
            (_, most) => most.to_string(),
        }
    }
}

impl Observer for Progress {
    fn go_on(&mut self, begun: &RunResult) {
        self.seen.judge(SoFar::of(begun));
    }

    fn start(&mut self, least: u64, most: u64, each: Option<Duration>) {
        self.pace.start(least, most, each);
        if let Some(bar) = &self.bar {
            bar.set_length(most * 1000);
        }
    }

    fn doing(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None if self.lines => output::say(what),
            None => {}
        }
    }

    fn going_on(&mut self, what: &str, passed: Duration) {
        // what is soon done has no line
        if self.is_due() && (self.bar.is_some() || passed >= INTERVAL) {
            self.show(format!("{} · {what} · {} s", self.trial, passed.as_secs()));
        }
    }

    fn begin(&mut self, trial: &str) {
        self.said = Instant::now();
        self.trial = format!("trial {} of {}: {trial}", self.pace.done + 1, self.all());
        self.seen.begin();
        self.show_seen();
        let what = self.trial.clone();
        self.doing(&what);
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share times 1000
    fn measured(&mut self, measured: &Measured, share: f64) {
        self.passed = measured.measured.unwrap_or_default();
        if !self.is_due() {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.pace.done * 1000 + (share.clamp(0.0, 1.0) * 1000.0) as u64);
        }
        self.show(format!("{} · {}{}", self.trial, figures(measured), self.left(share)));
    }

    fn loading(&mut self, rows: u64, all: u64, passed: Duration) {
        if !self.is_due() {
            return;
        }
        let per_second = rows as f64 / passed.as_secs_f64().max(1e-9);
        let left = match all.checked_sub(rows) {
            Some(missing) if rows > 0 => format!(", {:.0} s left", missing as f64 / per_second.max(1e-9)),
            _ => String::new(),
        };
        self.show(format!(
            "{} · loaded {} of {} rows, {}/s{left}",
            self.trial,
            count(rows),
            count(all),
            rate(per_second)
        ));
    }

    fn second(&mut self, seen: &SecondSeen<'_>) {
        self.seen.add(seen, self.passed);
        self.show_seen();
    }

    fn fault(&mut self, name: &str, member: MemberId, stage: FaultStage, at: Duration) {
        if stage == FaultStage::Begun {
            self.seen.hit(format!("{name} {member} at {:.1} s", at.as_secs_f64()));
            self.show_seen();
        }
    }

    fn kept(&mut self, result: &RunResult, _: usize) {
        self.seen.judge(SoFar::of(result));
        self.show_seen();
    }

    fn skip(&mut self) {
        self.pace.skip();
    }

    fn end(&mut self, verdict: &str) {
        self.pace.done += 1;
        match &self.bar {
            Some(bar) => bar.set_position(self.pace.done * 1000),
            None if self.lines => output::say(&format!("{} · {verdict}", self.trial)),
            None => {}
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The columns of the terminal that progress is shown on; none if it is shown on no terminal, or its size is not known.
fn columns() -> Option<u16> {
    if output::is_dumb() { None } else { output::style_of(&io::stderr()).width }
}

fn figures(measured: &Measured) -> String {
    let Some(passed) = measured.measured else { return "warming up".to_owned() };
    let Some(last) = &measured.last else { return format!("{:.0} s", passed.as_secs_f64()) };
    let ok: u64 = last.counts.iter().map(|counts| counts[Outcome::Ok.index()]).sum();
    let times = [(99.0, "p99", last.p99), (50.0, "p50", last.p50)];
    let time = times.into_iter().find(|(percent, ..)| is_enough(ok, *percent));
    let time =
        time.map_or_else(String::new, |(_, name, time)| format!(", {name} {}", nanoseconds(time as f64)));
    format!("{:.0} s, {} ok/s{time}", passed.as_secs_f64(), rate(ok as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_few_operations_has_no_p99() {
        let last = |ok| acidtest_engine::Second {
            second: 3,
            counts: vec![[ok, 0, 0, 0, 0]],
            p50: 1_000_000,
            p99: 2_000_000,
            max: 3_000_000,
        };
        let said = |ok| {
            figures(&Measured {
                measured: Some(Duration::from_secs(4)),
                completed: ok,
                last: Some(last(ok)),
                reconnects: 0,
            })
        };
        assert_eq!(said(1_000), "4 s, 1,000 ok/s, p99 2.00 ms");
        assert_eq!(said(40), "4 s, 40.0 ok/s, p50 1.00 ms");
        assert_eq!(said(3), "4 s, 3.00 ok/s");
    }
}
