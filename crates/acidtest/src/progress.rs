//! Progress while a run runs: a bar on a terminal, a line an interval elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use acidtest_engine::{Outcome, Progress as Measured};
use acidtest_report::{nanoseconds, rate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between lines, where there is no terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// Where progress goes.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    said: Instant,
    trials: u64,
    done: u64,
    trial: String,
}

impl Progress {
    pub(crate) fn new(quiet: bool, trials: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(trials * 1000), ProgressDrawTarget::stderr());
            // the template is a literal: a fault in it would show in every run
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {elapsed} (left: {eta}) {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, lines: !quiet && !terminal, said: Instant::now(), trials, done: 0, trial: String::new() }
    }

    /// Something that takes a while and has no measure.
    pub(crate) fn doing(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None if self.lines => eprintln!("{what}"),
            None => {}
        }
    }

    /// A trial begins.
    pub(crate) fn begin(&mut self, trial: &str) {
        self.said = Instant::now();
        self.trial = format!("trial {} of {}: {trial}", self.done + 1, self.trials);
        let what = self.trial.clone();
        self.doing(&what);
    }

    /// How far the trial is: `share` of its measured part, 0 to 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share times 1000
    pub(crate) fn measured(&mut self, measured: &Measured, share: f64) {
        if self.bar.is_none() && (!self.lines || self.said.elapsed() < INTERVAL) {
            return;
        }
        let message = format!("{} · {}", self.trial, figures(measured));
        if let Some(bar) = &self.bar {
            bar.set_position(self.done * 1000 + (share.clamp(0.0, 1.0) * 1000.0) as u64);
            bar.set_message(message);
        } else {
            self.said = Instant::now();
            eprintln!("{message}");
        }
    }

    /// A trial ended, with this verdict.
    pub(crate) fn end(&mut self, verdict: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.set_position(self.done * 1000),
            None if self.lines => eprintln!("{} · {verdict}", self.trial),
            None => {}
        }
    }

    pub(crate) fn finish(&self) {
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
