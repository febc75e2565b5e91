//! Shows the progress of a run: a bar on a terminal, otherwise a line at intervals.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use acidtest_engine::{Outcome, Progress as Measured};
use acidtest_report::{count, nanoseconds, rate};
use acidtest_runner::Observer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Time between two lines, where there is no terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// Shows progress on a terminal, as lines, or not at all.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    said: Instant,
    pace: Pace,
    trial: String,
}

/// How fast trials are made, and how many are left.
pub(crate) struct Pace {
    begun: Instant,
    /// The time that a trial should take, where the plan says it.
    expected: Option<Duration>,
    /// At least and at most so many trials are made.
    pub(crate) trials: (u64, u64),
    pub(crate) done: u64,
    skipped: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: Instant::now(), expected: None, trials: (0, 0), done: 0, skipped: 0 }
    }
}

impl Pace {
    pub(crate) fn start(&mut self, least: u64, most: u64, each: Option<Duration>) {
        *self = Self { trials: (least, most), expected: each, ..Self::default() };
    }

    pub(crate) fn skip(&mut self) {
        self.done += 1;
        self.skipped += 1;
    }

    /// The seconds left, at least and at most, when this share of a trial is over; estimated from the trials so far, or
    /// else from the plan.
    pub(crate) fn left(&self, share: f64) -> Option<(f64, f64)> {
        // trials that were skipped took no time
        let each = match self.done - self.skipped {
            0 => self.expected.map(|expected| expected.as_secs_f64()),
            done => Some(self.begun.elapsed().as_secs_f64() / (done as f64 + share)),
        };
        let left = |trials: u64| {
            let trials = (trials - self.done.min(trials)) as f64 - share;
            each.map(|each| each * trials.max(0.0))
        };
        let (least, most) = self.trials;
        left(least).zip(left(most))
    }
}

impl Progress {
    /// Shows nothing if it is to be `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            // the template is a literal, so a mistake in it would show in every run
            if let Ok(style) = ProgressStyle::with_template("{bar:10} {elapsed_precise} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            lines: !quiet && !terminal,
            said: Instant::now(),
            pace: Pace::default(),
            trial: String::new(),
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
        let what = self.trial.clone();
        self.doing(&what);
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share times 1000
    fn measured(&mut self, measured: &Measured, share: f64) {
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

fn figures(measured: &Measured) -> String {
    let Some(passed) = measured.measured else { return "warming up".to_owned() };
    let Some(last) = &measured.last else { return format!("{:.0} s", passed.as_secs_f64()) };
    let ok: u64 = last.counts.iter().map(|counts| counts[Outcome::Ok.index()]).sum();
    format!("{:.0} s, {} ok/s, p99 {}", passed.as_secs_f64(), rate(ok as f64), nanoseconds(last.p99 as f64))
}
