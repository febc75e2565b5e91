//! What limits the gateway at present, in words, with the figures that say so.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use acidtest_model::count;
use serde::Serialize;

use crate::{
    collector::SinkTrouble,
    depth::Depth,
    metrics::{Fate, Metrics, Passed, Stage},
};

/// Figures are those of so many seconds.
const WINDOW: usize = 5;
/// So many seconds are shown.
pub(crate) const SHOWN: usize = 180;
/// What is busy for this share of the time limits what comes through it.
const BUSY: f64 = 0.85;
/// Entries that wait for so long wait for the collectors.
const LATE: Duration = Duration::from_secs(1);

/// A database that has had a transaction for so long without an answer is told of.
const SILENT: Duration = Duration::from_secs(2);

/// What is looked at once a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub(crate) depth: Depth,
    /// How long all threads that serve requests were busy, since the start.
    pub(crate) threads_busy: Duration,
    pub(crate) connections: u64,
    pub(crate) sink_trouble: Option<SinkTrouble>,
    /// For how long the database has had a batch without an answer.
    pub(crate) unanswered: Option<Duration>,
    /// Why what waits cannot be read back.
    pub(crate) unread: Option<String>,
    /// Why entries are not taken.
    pub(crate) trouble: Option<String>,
}

/// How the gateway is set up, as far as it matters to what limits it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) is_direct: bool,
    /// Whether entries are only taken out of a broker.
    pub(crate) is_collector: bool,
    /// Whether one thread syncs the queue: in a broker it is others who do so.
    pub(crate) syncs: bool,
    pub(crate) threads: usize,
    /// Collectors, or connections to the sink.
    pub(crate) storing: usize,
}

/// The last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seconds {
    pub(crate) seconds: VecDeque<Second>,
}

/// What a page shows of a second: figures a second over the last few, and what is at its end.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Second {
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    /// Entries a second.
    pub(crate) received: f64,
    pub(crate) acknowledged: f64,
    pub(crate) stored: f64,
    pub(crate) repeated: f64,
    /// Entries that were not taken or not stored, a second.
    pub(crate) refused: f64,
    /// Entries that wait; with a broker, those in the hands of this process, and messages that wait there.
    pub(crate) waiting: u64,
    pub(crate) messages: Option<u64>,
    /// Bytes that wait.
    pub(crate) bytes: Option<u64>,
    pub(crate) most_bytes: u64,
    /// The age of the oldest in seconds; 0 if none waits.
    pub(crate) oldest: f64,
    /// Entries that were synced together, and that were stored in one transaction, on average.
    pub(crate) sync_entries: f64,
    pub(crate) batch_entries: f64,
    pub(crate) connections: u64,
    /// The share of the time for which the threads were busy.
    pub(crate) threads_busy: f64,
    pub(crate) stages: Vec<StageFigures>,
    /// What limits, in words.
    pub(crate) limit: String,
}

/// What a stage did in the last seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct StageFigures {
    pub(crate) name: &'static str,
    /// How often a second.
    pub(crate) rate: f64,
    /// How long on average, in milliseconds.
    pub(crate) millis: f64,
    /// The share of the time for which it was busy; none for one that only waits.
    pub(crate) busy: Option<f64>,
}

/// All counts at a moment.
#[derive(Clone, Debug)]
struct Counts {
    at: Instant,
    fates: [u64; 7],
    stages: [Passed; 7],
    groups: [(u64, u64); 2],
    threads_busy: Duration,
}

/// Looks at the counts once a second.
#[derive(Debug)]
pub(crate) struct Watch {
    setup: Setup,
    counts: VecDeque<Counts>,
    pub(crate) seconds: Seconds,
}

impl Watch {
    pub(crate) fn new(setup: Setup, metrics: &Metrics) -> Self {
        let mut counts = VecDeque::new();
        counts.push_back(Counts::of(metrics, Duration::ZERO));
        Self { setup, counts, seconds: Seconds::default() }
    }

    pub(crate) fn look(&mut self, metrics: &Metrics, look: &Look) {
        let now = Counts::of(metrics, look.threads_busy);
        let Some(then) = self.counts.front() else { return };
        let second = second(self.setup, then, &now, look);
        self.counts.push_back(now);
        if self.counts.len() > WINDOW {
            self.counts.pop_front();
        }
        self.seconds.seconds.push_back(second);
        if self.seconds.seconds.len() > SHOWN {
            self.seconds.seconds.pop_front();
        }
    }
}

impl Counts {
    fn of(metrics: &Metrics, threads_busy: Duration) -> Self {
        use Fate::{Acknowledged, Conflicting, Invalid, Received, Refused, Repeated, Stored};
        Self {
            at: Instant::now(),
            fates: [Received, Acknowledged, Stored, Repeated, Refused, Invalid, Conflicting]
                .map(|fate| metrics.counted(fate)),
            stages: Stage::ALL.map(|stage| metrics.passed(stage)),
            groups: metrics.groups(),
            threads_busy,
        }
    }
}

fn second(setup: Setup, then: &Counts, now: &Counts, look: &Look) -> Second {
    let span = now.at.duration_since(then.at).as_secs_f64().max(1e-3);
    let share = |took: Duration, of: usize| took.as_secs_f64() / (span * of.max(1) as f64);
    let mut rates = [0.0; 7];
    for (rate, (now, then)) in rates.iter_mut().zip(now.fates.iter().zip(then.fates)) {
        *rate = now.saturating_sub(then) as f64 / span;
    }
    let [received, acknowledged, stored, repeated, refused, invalid, conflicting] = rates;
    let stages = Stage::ALL.map(|stage| {
        let (now, then) = (now.stages[stage as usize], then.stages[stage as usize]);
        let count = now.count.saturating_sub(then.count) as f64;
        let took = now.took.saturating_sub(then.took);
        let busy = match stage {
            Stage::Accept | Stage::Queue => None,
            // that of the direct architecture mostly waits for the database
            Stage::Authenticate if setup.is_direct => None,
            Stage::Authenticate | Stage::Validate => Some(share(took, setup.threads)),
            Stage::Sync => setup.syncs.then(|| share(took, 1)),
            Stage::Collect | Stage::Commit => (setup.storing > 0).then(|| share(took, setup.storing)),
        };
        let millis = if count > 0.0 { took.as_secs_f64() * 1e3 / count } else { 0.0 };
        StageFigures { name: stage.name(), rate: count / span, millis, busy }
    });
    let average = |group: usize| {
        let ((count, entries), (before, entries_before)) = (now.groups[group], then.groups[group]);
        if count > before { (entries - entries_before) as f64 / (count - before) as f64 } else { 0.0 }
    };
    let threads_busy = share(now.threads_busy.saturating_sub(then.threads_busy), setup.threads);
    let mut second = Second {
        at: crate::entry::now() / 1000,
        received,
        acknowledged,
        stored,
        repeated,
        refused: refused + invalid + conflicting,
        waiting: look.depth.entries,
        messages: look.depth.messages,
        bytes: look.depth.bytes,
        most_bytes: look.depth.most_bytes,
        oldest: look.depth.oldest.unwrap_or_default().as_secs_f64(),
        sync_entries: average(0),
        batch_entries: average(1),
        connections: look.connections,
        threads_busy,
        stages: stages.to_vec(),
        limit: String::new(),
    };
    second.limit = limit(setup, &second, look);
    second
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).min(100.0))
}

fn seconds(span: f64) -> String {
    if span < 10.0 { format!("{span:.1} s") } else { format!("{span:.0} s") }
}

/// The stage that limits now, and the figure that says so.
fn limit(setup: Setup, second: &Second, look: &Look) -> String {
    halted(setup, second, look).or_else(|| busy(setup, second)).unwrap_or_else(|| calm(setup, second))
}

/// What waits, in words.
fn waiting(second: &Second) -> String {
    let oldest = seconds(second.oldest);
    match second.messages {
        None => format!("{} entries wait, the oldest for {oldest}", count(second.waiting)),
        Some(messages) if second.waiting == 0 => format!("{} messages wait in the broker", count(messages)),
        Some(messages) => format!(
            "{} messages wait in the broker, and the oldest entry in hand for {oldest}",
            count(messages)
        ),
    }
}

/// What has come to a halt, if anything has.
fn halted(setup: Setup, second: &Second, look: &Look) -> Option<String> {
    let waiting = || waiting(second);
    if let Some(SinkTrouble { span, why, is_all: true }) = &look.sink_trouble {
        let span = seconds(span.as_secs_f64());
        return Some(format!(
            "Commit is the limit: nothing could be stored for {span} ({why}); {}.",
            waiting()
        ));
    }
    if let Some(why) = look.trouble.as_ref().filter(|_| !setup.is_collector) {
        // how much waits in a broker that is away, nobody knows
        return Some(if setup.is_direct || second.messages.is_some() {
            format!("No entries are accepted: {why}.")
        } else {
            format!("No entries are accepted: {why}; {}.", waiting())
        });
    }
    if let Some(why) = &look.unread {
        return Some(if second.messages.is_some() {
            format!("Collect is the limit: nothing comes out of the broker ({why}).")
        } else {
            format!("Collect is the limit: what waits cannot be read back ({why}); {}.", waiting())
        });
    }
    if let Some(SinkTrouble { span, why, is_all: false }) = &look.sink_trouble {
        let span = seconds(span.as_secs_f64());
        return Some(format!(
            "Commit is the limit: a collector could store nothing for {span} ({why}); {}.",
            waiting()
        ));
    }
    look.unanswered.filter(|unanswered| *unanswered >= SILENT).map(|unanswered| {
        let span = seconds(unanswered.as_secs_f64());
        format!(
            "Commit is the limit: the database has had a transaction for {span} without an answer; {}.",
            waiting()
        )
    })
}

fn stage(second: &Second, wanted: Stage) -> StageFigures {
    second.stages.get(wanted as usize).cloned().unwrap_or_default()
}

/// What is busy for most of the time, if anything is.
fn busy(setup: Setup, second: &Second) -> Option<String> {
    let commit = stage(second, Stage::Commit);
    let commit_busy = commit.busy.unwrap_or(0.0);
    if setup.is_direct {
        let queue = stage(second, Stage::Queue);
        if commit_busy >= BUSY {
            return Some(format!(
                "Commit is the limit: the {} connections to the database are in use for {} of the time; a transaction \
                 takes {:.1} ms, and an entry waits {:.1} ms for a connection.",
                setup.storing,
                percent(commit_busy),
                commit.millis,
                queue.millis
            ));
        }
    } else if commit_busy >= BUSY && second.oldest >= LATE.as_secs_f64() {
        return Some(format!(
            "Commit is the limit: the collectors were storing for {} of the time, {:.0} entries in {:.0} ms; {}.",
            percent(commit_busy),
            second.batch_entries,
            commit.millis,
            waiting(second)
        ));
    }
    if second.threads_busy < BUSY {
        return None;
    }
    let share = |wanted| percent(stage(second, wanted).busy.unwrap_or(0.0) / second.threads_busy);
    Some(format!(
        "The threads that serve requests are the limit: they were busy for {} of the time, {} of that with validating and \
         {} with authenticating.",
        percent(second.threads_busy),
        share(Stage::Validate),
        share(Stage::Authenticate)
    ))
}

/// How far away a limit is, and what clients wait for.
fn calm(setup: Setup, second: &Second) -> String {
    let commit_busy = percent(stage(second, Stage::Commit).busy.unwrap_or(0.0));
    if setup.is_collector {
        return format!("No limit here: collectors are busy for {commit_busy}; {}.", waiting(second));
    }
    if second.received == 0.0 {
        return if second.waiting + second.messages.unwrap_or_default() == 0 {
            "Nothing is sent at present.".to_owned()
        } else {
            format!("Nothing is sent at present; {}.", waiting(second))
        };
    }
    // the way to an acknowledgement, of a request
    let way: &[Stage] = if setup.is_direct {
        &[Stage::Authenticate, Stage::Validate, Stage::Queue, Stage::Commit]
    } else {
        &[Stage::Authenticate, Stage::Validate, Stage::Queue, Stage::Sync]
    };
    let times: Vec<StageFigures> = way.iter().map(|each| stage(second, *each)).collect();
    let all: f64 = times.iter().map(|stage| stage.millis).sum();
    let longest = times.iter().max_by(|a, b| a.millis.total_cmp(&b.millis)).cloned().unwrap_or_default();
    let storing = match setup.storing {
        0 => String::new(),
        _ if setup.is_direct => format!(", and connections to the database for {commit_busy}"),
        _ => format!(", and collectors for {commit_busy}"),
    };
    format!(
        "No limit here: the threads are busy for {}{storing}. Clients wait longest for {}, {:.2} of {:.2} ms.",
        percent(second.threads_busy),
        longest.name,
        longest.millis,
        all
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUED: Setup =
        Setup { is_direct: false, is_collector: false, syncs: true, threads: 2, storing: 2 };

    fn said(setup: Setup, change: impl FnOnce(&mut Second, &mut Look)) -> String {
        let stages = Stage::ALL.map(|stage| StageFigures {
            name: stage.name(),
            rate: 100.0,
            millis: 0.1,
            busy: Some(0.1),
        });
        let mut second =
            Second { stages: stages.to_vec(), received: 100.0, threads_busy: 0.2, ..Second::default() };
        let mut look = Look::default();
        change(&mut second, &mut look);
        limit(setup, &second, &look)
    }

    #[test]
    fn the_stage_that_limits_is_named_with_its_figure() {
        let nothing = said(QUEUED, |second, _| second.stages[Stage::Sync as usize].millis = 0.6);
        assert!(
            nothing.starts_with("No limit here") && nothing.contains("sync, 0.60 of 0.90 ms"),
            "{nothing}"
        );
        let commit = said(QUEUED, |second, _| {
            second.stages[Stage::Commit as usize].busy = Some(0.97);
            (second.oldest, second.waiting) = (4.2, 12_300);
        });
        assert!(commit.starts_with("Commit is the limit: the collectors were storing for 97 %"), "{commit}");
        assert!(commit.ends_with("12,300 entries wait, the oldest for 4.2 s."), "{commit}");
        let busy = said(QUEUED, |second, _| second.threads_busy = 0.96);
        assert!(
            busy.starts_with("The threads that serve requests are the limit: they were busy for 96 %"),
            "{busy}"
        );
        let trouble =
            |is_all| Some(SinkTrouble { span: Duration::from_secs(12), why: "refused".into(), is_all });
        let away = said(QUEUED, |_, look| look.sink_trouble = trouble(true));
        assert!(
            away.starts_with("Commit is the limit: nothing could be stored for 12 s (refused)"),
            "{away}"
        );
        let one = said(QUEUED, |_, look| look.sink_trouble = trouble(false));
        assert!(
            one.starts_with("Commit is the limit: a collector could store nothing for 12 s (refused)"),
            "{one}"
        );
        let locked = said(QUEUED, |_, look| look.unanswered = Some(Duration::from_secs(25)));
        assert!(
            locked.starts_with(
                "Commit is the limit: the database has had a transaction for 25 s without an answer"
            ),
            "{locked}"
        );
        let unread = said(QUEUED, |_, look| look.unread = Some("no file is left".into()));
        assert!(
            unread.starts_with("Collect is the limit: what waits cannot be read back (no file"),
            "{unread}"
        );
        let full = said(QUEUED, |_, look| look.trouble = Some("the queue is full".into()));
        assert!(full.starts_with("No entries are accepted: the queue is full; 0 entries wait"), "{full}");
        let direct = said(Setup { is_direct: true, storing: 8, ..QUEUED }, |second, _| {
            second.stages[Stage::Commit as usize].busy = Some(1.0);
            second.stages[Stage::Queue as usize].millis = 40.0;
        });
        assert!(
            direct.starts_with("Commit is the limit: the 8 connections") && direct.contains("40.0 ms"),
            "{direct}"
        );
        let elsewhere = said(Setup { syncs: false, storing: 0, ..QUEUED }, |_, _| {});
        assert!(elsewhere.contains("threads are busy for 20 %. Clients wait longest for"), "{elsewhere}");
        let collector = Setup { is_collector: true, syncs: false, ..QUEUED };
        let collects = said(collector, |second, _| {
            (second.messages, second.waiting, second.oldest) = (Some(7), 3, 1.5);
        });
        assert_eq!(
            collects,
            "No limit here: collectors are busy for 10 %; 7 messages wait in the broker, and the oldest entry in hand for \
             1.5 s."
        );
        let gone = said(collector, |second, look| {
            second.messages = Some(7);
            look.trouble = Some("refused".into());
            look.unread = Some("refused".into());
        });
        assert_eq!(gone, "Collect is the limit: nothing comes out of the broker (refused).");
        let idle = said(QUEUED, |second, _| second.received = 0.0);
        assert_eq!(idle, "Nothing is sent at present.");
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let metrics = Metrics::new();
        let mut watch = Watch::new(QUEUED, &metrics);
        if let Some(counts) = watch.counts.front_mut() {
            counts.at -= Duration::from_secs(2);
        }
        metrics.count(Fate::Received, 500);
        metrics.count(Fate::Stored, 300);
        metrics.count(Fate::Invalid, 20);
        metrics.stage(Stage::Commit, Duration::from_millis(400));
        metrics.batch(300);
        watch.look(&metrics, &Look { threads_busy: Duration::from_secs(1), ..Look::default() });
        let second = watch.seconds.seconds.back().unwrap();
        let near =
            |figure: f64, wanted: f64| assert!((figure / wanted - 1.0).abs() < 0.05, "{figure} for {wanted}");
        near(second.received, 250.0);
        near(second.stored, 150.0);
        near(second.refused, 10.0);
        near(second.batch_entries, 300.0);
        near(second.threads_busy, 0.25);
        let commit = &second.stages[Stage::Commit as usize];
        near(commit.millis, 400.0);
        near(commit.busy.unwrap(), 0.1);
    }
}
