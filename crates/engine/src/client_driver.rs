//! One client's place in a trial, and the loop that drives the client.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::{
    task::unconstrained,
    time::{Instant, Sleep},
};

use crate::{
    Attempt, Client, Extent, Fault, OnRefused, Outcome, Stop,
    alone::{BLOCKING, LEAST_TIME, blocking},
    clock::nanos,
    load::Phase,
    pacer::Pacer,
    recorder::{Recorder, RetryCost, Times},
    shared::Shared,
    sleeper::Sleeper,
};

/// Nanoseconds (100 ms) after which a waiting client checks again whether the trial is being stopped.
const TICK: u64 = 100_000_000;

/// Nanoseconds (100 µs) after which a client whose store answers without ever waiting lets the other clients of its
/// thread run.
const SLICE: u64 = 100_000;

/// The same (1 ms) for a client that has its thread for itself: the runtime then hears of what became of its connection.
const LONE_SLICE: u64 = 1_000_000;

/// Nanoseconds (1 ms) of rest that a client saves up, so that clients of a fast store do not wait for less than the
/// kernel's timers can tell.
const REST: f64 = 1e6;

/// Nanoseconds (1 s) after which a client that has not yet come checks again whether the trial is being stopped: there may
/// be many of them.
const ABSENT: u64 = 1_000_000_000;

/// Nanoseconds (50 ms) until a client that comes and goes tries again to open its connection.
const KNOCK: u64 = 50_000_000;

/// Nanoseconds (1 ms) until a client tries again to reach a server that was away, or that turned it away. The wait doubles with
/// each further try.
const RETURN: u64 = 1_000_000;
/// Nanoseconds (250 ms) that this wait never exceeds.
const RETURN_MOST: u64 = 250_000_000;

/// Back-off after the first conflict: up to this many nanoseconds (100 µs). The limit doubles with each further
/// conflict.
const BACKOFF: u64 = 100_000;
/// Nanoseconds (50 ms) that the limit of a back-off never exceeds.
const BACKOFF_MOST: u64 = 50_000_000;

/// The state that the drivers of one thread share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) pacer: Pacer,
    pub(crate) recorder: Recorder,
    pub(crate) phase: Option<Phase>,
}

impl Bench {
    /// Prepares pacer and recorder for a phase, when the first client of the thread enters it.
    fn enter(&mut self, phase: Phase, start: u64, end: u64) {
        if self.phase.replace(phase) == Some(phase) {
            return;
        }
        self.pacer.begin(start, end);
        if phase == Phase::Measured {
            self.recorder.begin(start, end);
        }
    }

    /// Reports the recorded operations, and counts as dropped those that were due before `until` and never started.
    pub(crate) fn finish(&mut self, until: u64) {
        if self.phase == Some(Phase::Measured) {
            self.recorder.dropped(self.pacer.dropped(until));
        }
        self.recorder.finish();
    }
}

/// What a client knows of the times when all connections were to be closed.
#[derive(Clone, Copy, Debug, Default)]
struct Disconnects {
    /// How many there had been when it last closed its own.
    seen: u32,
    /// Whether the last exchange was given up for that.
    is_cut: bool,
}

/// When a client returns to a server that answers and serves nobody.
///
/// Its connection is opened at once, and says nothing of whether it will serve. So the wait grows from one connection to the
/// next, until one has served for longer than any wait.
#[derive(Clone, Copy, Debug)]
struct Return {
    is_turned_away: bool,
    /// How long the client waits before it returns, in nanoseconds.
    wait: u64,
    /// When its connection was opened.
    opened: u64,
}

impl Return {
    fn new() -> Self {
        Self { is_turned_away: false, wait: RETURN, opened: 0 }
    }

    /// How long to wait for the next connection, after one that ended now; not at all if it was simply lost.
    fn wait(&mut self, now: u64) -> u64 {
        if now.saturating_sub(self.opened) > RETURN_MOST {
            self.wait = RETURN;
        }
        if !mem::take(&mut self.is_turned_away) {
            return 0;
        }
        let next = longer(self.wait);
        mem::replace(&mut self.wait, next)
    }
}

/// The wait after this one.
fn longer(wait: u64) -> u64 {
    (wait * 2).min(RETURN_MOST)
}

/// The timer that wakes a client which waits.
#[derive(Debug)]
struct WakeTimer {
    sleep: Pin<Box<Sleep>>,
    /// Whether the client's task will be woken by it.
    wakes: bool,
}

impl WakeTimer {
    fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::from_nanos(TICK))), wakes: false }
    }

    fn set(&mut self, due: Instant) {
        self.sleep.as_mut().reset(due);
        self.wakes = false;
    }

    /// Makes it due no later than this.
    fn set_before(&mut self, due: Instant) {
        if self.sleep.deadline() > due {
            self.set(due);
        }
    }

    /// Whether it is due. Always to be called by the client's own task, which it wakes then: it asks the runtime only where that
    /// can have changed something, because whoever waits for an answer calls it each time.
    ///
    /// A future that always finds something to do yields only when Tokio's task budget is used up, and then Tokio would not
    /// let the timer report that it is due either: it is therefore polled outside the budget ([`unconstrained`]).
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.wakes && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let due = pin!(unconstrained(self.sleep.as_mut())).poll(context);
        self.wakes = due.is_pending();
        due
    }
}

/// One client's place in a trial. Handed to its [`ClientTask`](crate::ClientTask), which calls
/// [`drive`](ClientDriver::drive) with the client.
#[derive(Debug)]
pub struct ClientDriver {
    shared: Arc<Shared>,
    bench: Rc<RefCell<Bench>>,
    sleeper: Sleeper,
    tick: WakeTimer,
    rng: Xoshiro256PlusPlus,
    index: usize,
    /// Whether the client is on the schedule; otherwise its next operation is due when the last one has ended.
    scheduled: bool,
    /// Whether the last attempt had to wait for its answer.
    waited: bool,
    /// The phase that the client is in: faults and reconnects of the warm-up are not counted.
    phase: Phase,
    /// When the phase ends, in nanoseconds of the trial's clock.
    end: u64,
    cuts: Disconnects,
    /// How long the client rests for each nanosecond of work: not at all at full duty, nor if it is not on the schedule and
    /// so waits for those who are.
    rest_for_work: f64,
    /// Nanoseconds of rest that the client has not yet taken.
    owed: f64,
    /// Whether the connection opened last can still be used. Once a connection is given up, no answer on it counts
    /// any more.
    connected: bool,
    returns: Return,
}

impl ClientDriver {
    pub(crate) fn new(shared: Arc<Shared>, bench: Rc<RefCell<Bench>>, index: usize) -> Self {
        let scheduled = index < shared.scheduled;
        // of the least shares a rest is longer than any trial
        let rest_for_work = if scheduled { (1.0 / shared.load.duty - 1.0).min(1e15) } else { 0.0 };
        let seed = shared.load.seed.wrapping_add(index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            tick: WakeTimer::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            sleeper: if shared.clock.is_simulated() { Sleeper::coarse() } else { Sleeper::default() },
            scheduled,
            shared,
            bench,
            index,
            waited: false,
            phase: Phase::WarmUp,
            end: 0,
            cuts: Disconnects::default(),
            rest_for_work,
            owed: 0.0,
            connected: false,
            returns: Return::new(),
        }
    }

    /// The client's index in the trial, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Drives the client through warm-up and measurement.
    pub async fn drive<C: Client>(mut self, mut client: C) {
        if let Some(ramp) = self.shared.load.ramp {
            return self.visit(client, nanos(ramp)).await;
        }
        self.first(client.connect()).await;
        self.run(&mut client, Phase::WarmUp).await;
        if self.last_words(client.pause()).await.is_none() {
            self.reconnect(async || client.connect().await).await;
        }
        self.run(&mut client, Phase::Measured).await;
        self.end_schedule();
        self.last_words(client.finish()).await;
        self.look(client.check()).await;
    }

    /// Drives a client that comes at its moment of the ramp, does its share of the operations, and leaves.
    async fn visit<C: Client>(mut self, mut client: C, ramp: u64) {
        let mut came = false;
        // as many clients as there are wait for their moments: the kernel's timers would take the files that their
        // connections need
        self.sleeper = Sleeper::coarse();
        self.enter(Phase::Measured).await;
        let start = self.shared.gate.measured().unwrap_or_default();
        let comes = start.saturating_add(self.shared.comes_after(ramp, self.index));
        self.sleep_unless(comes, ABSENT, |_| false).await;
        let mut slice = self.now();
        for _ in 0..self.shared.share_of(self.index) {
            if self.stopping() {
                break;
            }
            let Some(operation) = client.draw() else {
                self.done(Phase::Measured);
                break;
            };
            self.started(Phase::Measured, false);
            let begun = self.now();
            let (outcome, effort, lost) = if self.reach(&mut client, begun, &mut came).await {
                self.perform(&mut client, &operation, begun).await
            } else {
                (Outcome::Failed, RetryCost::default(), false)
            };
            let ended = self.now();
            self.account(&mut client, operation, outcome, begun, (begun, ended), effort);
            if lost {
                self.interrupted(1);
                self.connected = false;
            }
            slice = self.give_way(slice, ended).await;
        }
        self.last_words(client.finish()).await;
        self.look(client.check()).await;
        self.end_schedule();
    }

    /// Opens the connection of an operation that has begun, if there is none, until the operation's time is up.
    /// `came` is whether it had one before.
    async fn reach<C: Client>(&mut self, client: &mut C, begun: u64, came: &mut bool) -> bool {
        let deadline = begun.saturating_add(self.shared.timeout);
        while !self.connected {
            // what was closed on purpose before is not this one
            self.cuts.seen = self.shared.control.disconnects();
            let fault = match self.guard(client.connect(), deadline).await {
                Some(Ok(())) => {
                    self.connected = true;
                    if std::mem::replace(came, true) {
                        self.shared.totals.reconnected();
                    }
                    break;
                }
                Some(Err(cause)) => Fault::lost(cause),
                None => Fault::lost(self.no_answer(deadline)),
            };
            self.note(&fault);
            if self.out_of_time(deadline, KNOCK) {
                return false;
            }
            self.sleep_until(self.now() + KNOCK).await;
        }
        true
    }

    /// Has the client account for an operation that has ended, and records it in the measured part.
    fn account<C: Client>(
        &self,
        client: &mut C,
        operation: C::Operation,
        outcome: Outcome,
        due: u64,
        times: (u64, u64),
        mut effort: RetryCost,
    ) {
        let kind = C::kind(&operation);
        let changed = outcome == Outcome::Ok && client.changes(&operation);
        client.account(operation, outcome);
        effort.lock_time = nanos(client.lock_wait());
        if self.phase == Phase::Measured {
            self.record(kind, outcome, due, times, effort);
            if changed {
                self.changed(times.1);
            }
            if let Some((span, nanoseconds)) = client.span() {
                self.bench.borrow_mut().recorder.span(span, nanoseconds);
            }
        }
    }

    /// Runs a client's last exchange with its store at the end of a phase, if it still has a connection. `None` if
    /// it has none, or if the store did not answer within the timeout.
    pub(crate) async fn last_words<T>(&mut self, words: impl Future<Output = T>) -> Option<T> {
        if !self.connected {
            return None;
        }
        let deadline = self.now().saturating_add(self.timeout());
        self.guard(words, deadline).await
    }

    /// Runs a client's last look at its connection, and notes what it found.
    pub(crate) async fn look(&mut self, looking: impl Future<Output = Result<(), String>>) {
        if let Some(Err(doubt)) = self.last_words(looking).await {
            self.shared.totals.doubt(&doubt);
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.shared.clock.now()
    }

    pub(crate) fn timeout(&self) -> u64 {
        self.shared.timeout
    }

    pub(crate) fn stopping(&self) -> bool {
        self.shared.control.stopping()
    }

    pub(crate) fn abandoned(&self) -> bool {
        self.shared.control.abandoned()
    }

    /// Counts the client as one that has nothing left to draw.
    pub(crate) fn done(&self, phase: Phase) {
        self.shared.done(phase);
    }

    /// Notes that the client has ended the measured part.
    pub(crate) fn end_schedule(&self) {
        if self.scheduled {
            self.shared.schedule_ended();
        }
    }

    pub(crate) fn started(&self, phase: Phase, late: bool) {
        if phase == Phase::Measured && self.scheduled {
            self.bench.borrow_mut().recorder.started(late);
        }
    }

    /// Records an operation that ran from `start` to `end` and was due at `due`.
    pub(crate) fn record(
        &self,
        kind: usize,
        outcome: Outcome,
        due: u64,
        (start, end): (u64, u64),
        effort: RetryCost,
    ) {
        let due = (self.scheduled && !self.shared.closed).then_some(due);
        let recorder = &mut self.bench.borrow_mut().recorder;
        recorder.record(kind, outcome, Times { due, start, end }, effort);
        if self.scheduled {
            recorder.completed(kind, end);
        }
    }

    /// Notes that an operation that changed something was acknowledged at `end`.
    pub(crate) fn changed(&self, end: u64) {
        self.bench.borrow_mut().recorder.changed(end);
    }

    /// Lets the other clients of the thread run if this one has not waited for anything since `slice`. Returns when
    /// its next slice begins.
    pub(crate) async fn give_way(&mut self, slice: u64, now: u64) -> u64 {
        let waited = std::mem::take(&mut self.waited);
        if self.shared.clock.is_simulated() {
            if now == slice {
                // otherwise no simulated time would ever pass
                self.sleeper.sleep(Duration::from_millis(1)).await;
            }
            return self.now();
        }
        if waited {
            return now;
        }
        let length = if self.shared.are_alone { LONE_SLICE } else { SLICE };
        if now.saturating_sub(slice) <= length {
            return slice;
        }
        tokio::task::yield_now().await;
        self.now()
    }

    /// Waits at the gate until every client has arrived, and begins the phase.
    pub(crate) async fn enter(&mut self, phase: Phase) {
        let shared = Arc::clone(&self.shared);
        // the wait is given up only when the trial is, and then no client starts anything any more
        self.guard(shared.gate.wait(phase), u64::MAX).await;
        let start = shared.gate.enter(phase, shared.clock.now());
        let end = match (phase, shared.load.extent) {
            (Phase::WarmUp, _) => start.saturating_add(nanos(shared.load.warmup)),
            (Phase::Measured, Extent::Time(duration)) => start.saturating_add(nanos(duration)),
            (Phase::Measured, Extent::Operations(_)) => u64::MAX,
        };
        self.bench.borrow_mut().enter(phase, start, end);
        self.owed = 0.0;
        self.phase = phase;
        self.end = end;
    }

    async fn run<C: Client>(&mut self, client: &mut C, phase: Phase) {
        self.enter(phase).await;
        let mut now = self.shared.clock.now();
        let mut slice = now;
        while !self.shared.control.stopping() {
            let Some(due) = self.claim(now) else {
                self.sit_out().await;
                break;
            };
            // late: no client was free to wait for it when it was due
            let late = due < now;
            if due > now {
                self.wait_for_turn(due).await;
                if self.shared.control.stopping() {
                    break;
                }
            }
            if !self.take_turn() {
                break;
            }
            let Some(operation) = client.draw() else {
                self.done(phase);
                break;
            };
            self.started(phase, late);
            let begun = self.shared.clock.now();
            let (outcome, effort, lost) = self.perform(client, &operation, begun).await;
            let ended = self.shared.clock.now();
            self.account(client, operation, outcome, due, (begun, ended), effort);
            now = ended;
            if lost {
                self.interrupted(1);
                self.reconnect(async || client.connect().await).await;
                now = self.shared.clock.now();
            }
            if !self.scheduled && outcome != Outcome::Ok && self.shared.is_schedule_over() {
                break;
            }
            self.worked(ended - begun);
            if self.is_tired(0) {
                self.rest().await;
                now = self.now();
            }
            slice = self.give_way(slice, now).await;
            now = now.max(slice);
        }
    }

    /// Counts work that is done.
    pub(crate) fn worked(&mut self, worked: u64) {
        self.owed += worked as f64 * self.rest_for_work;
    }

    /// Whether the client is to rest, after what was counted and after this work that is under way.
    pub(crate) fn is_tired(&self, working: u64) -> bool {
        self.owed + working as f64 * self.rest_for_work >= REST
    }

    /// Rests after the work that was counted, at most until the phase ends.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // above 0; a longer one is cut by the phase's end
    pub(crate) async fn rest(&mut self) {
        let begun = self.now();
        self.sleep_until(begun.saturating_add(self.owed as u64).min(self.end)).await;
        let now = self.now();
        // a rest that was longer than it should have been shortens the next one; with the phase every rest is over
        self.owed = if now < self.end { self.owed - (now - begun) as f64 } else { 0.0 };
    }

    /// When this client's next operation is due. [`take_turn`](Self::take_turn) decides at that moment whether it
    /// is started: an operation of another thread may be due earlier and be the last of the number asked for.
    pub(crate) fn claim(&self, now: u64) -> Option<u64> {
        if !self.scheduled {
            return (now < self.end).then_some(now);
        }
        if self.is_spent() {
            return None;
        }
        self.bench.borrow_mut().pacer.claim(now)
    }

    /// Whether the operation that is due now is still within the number of operations asked for.
    pub(crate) fn take_turn(&self) -> bool {
        !self.scheduled || self.phase == Phase::WarmUp || self.shared.budget_left()
    }

    /// Whether as many operations as asked for have been started.
    pub(crate) fn is_spent(&self) -> bool {
        self.scheduled && self.phase == Phase::Measured && self.shared.is_spent()
    }

    /// Tries the operation until it ends. The flag says whether that cost the connection.
    async fn perform<C: Client>(
        &mut self,
        client: &mut C,
        operation: &C::Operation,
        begun: u64,
    ) -> (Outcome, RetryCost, bool) {
        let deadline = begun.saturating_add(self.shared.timeout);
        let mut effort = RetryCost::default();
        let mut since = begun;
        loop {
            let attempt = blocking(self.blocks_until(since, deadline), client.attempt(operation));
            let (wait, refused) = match self.guard(attempt, deadline).await {
                Some(Attempt::Ok) => return (Outcome::Ok, effort, false),
                Some(Attempt::Refused) => {
                    effort.refusals += 1;
                    match self.shared.load.on_refused {
                        OnRefused::Count => return (Outcome::Refused, effort, false),
                        OnRefused::Retry(wait) => {
                            if self.out_of_time(deadline, nanos(wait)) {
                                return (Outcome::Refused, effort, false);
                            }
                            (nanos(wait), true)
                        }
                    }
                }
                Some(Attempt::Conflict) => {
                    effort.conflicts += 1;
                    let wait = self.backoff(effort.conflicts);
                    if effort.conflicts > self.shared.load.max_retries || self.out_of_time(deadline, wait) {
                        return (Outcome::Conflict, effort, false);
                    }
                    (wait, false)
                }
                Some(Attempt::Failed(fault)) => {
                    return (Outcome::Failed, effort, self.note(&fault));
                }
                Some(Attempt::Unknown(fault)) => {
                    self.note(&fault);
                    return (Outcome::Unknown, effort, true);
                }
                None => {
                    self.note(&Fault::lost(self.no_answer(deadline)));
                    return (Outcome::Unknown, effort, true);
                }
            };
            effort.retries += 1;
            self.waited = true;
            self.sleeper.sleep(Duration::from_nanos(wait)).await;
            let now = self.now();
            let passed = now - std::mem::replace(&mut since, now);
            *if refused { &mut effort.refusal_time } else { &mut effort.conflict_time } += passed;
            // discards the lock wait of that attempt, which is part of the time just counted
            client.lock_wait();
        }
    }

    /// Until when an attempt that begins now may [block](crate::may_block) the thread; `None` where others run there, where
    /// it could miss its deadline, and where its connection is to be closed, which happens while it waits.
    fn blocks_until(&self, now: u64, deadline: u64) -> Option<std::time::Instant> {
        let keeps_deadline = deadline.saturating_sub(now) >= nanos(LEAST_TIME);
        let is_to_close = self.shared.control.disconnects() != self.cuts.seen;
        let may = self.shared.are_alone && keeps_deadline && !is_to_close;
        may.then(|| self.shared.clock.system_instant(now.saturating_add(nanos(BLOCKING))))
    }

    /// Counts operations of the measured part that ended with their connection.
    pub(crate) fn interrupted(&self, operations: usize) {
        if self.phase == Phase::Measured {
            self.shared.totals.interrupted(operations as u64);
        }
    }

    /// Counts a fault. Whether it cost the connection.
    pub(crate) fn note(&mut self, fault: &Fault) -> bool {
        self.returns.is_turned_away = fault.turned_away;
        if self.phase == Phase::Measured {
            self.shared.totals.fault(&fault.message);
        }
        fault.connection_lost
    }

    /// Why the last exchange was given up.
    pub(crate) fn no_answer(&self, deadline: u64) -> String {
        if self.cuts.is_cut {
            "closed on purpose by the fault disconnect".to_owned()
        } else if self.shared.clock.now() >= deadline {
            format!("no answer within {:?}", self.shared.load.timeout)
        } else {
            "given up unanswered when the trial was stopped".to_owned()
        }
    }

    /// Whether another attempt after `wait` would come too late: after the operation's timeout, or after the end of
    /// the phase, which waits for no retries.
    fn out_of_time(&self, deadline: u64, wait: u64) -> bool {
        let then = self.shared.clock.now().saturating_add(wait);
        then >= deadline || then >= self.end || self.shared.control.stopping()
    }

    /// Nanoseconds to wait after a conflict, with full jitter: a random time up to a limit that doubles with each
    /// conflict.
    fn backoff(&mut self, conflicts: u32) -> u64 {
        let limit = (BACKOFF << (conflicts - 1).min(16)).min(BACKOFF_MOST);
        self.rng.random_range(1..=limit)
    }

    /// Whether all connections were to be closed, and the last exchange was given up for that.
    pub(crate) fn is_cut(&self) -> bool {
        self.cuts.is_cut
    }

    /// Polls the future until it ends. `None` if its deadline passes or the trial is abandoned first, or if all
    /// connections are to be closed: then it is dropped once it waits, so that it was sent and not answered.
    ///
    /// A future that is ready at once never touches the timer.
    pub(crate) async fn guard<F: Future>(&mut self, future: F, deadline: u64) -> Option<F::Output> {
        let mut future = pin!(future);
        let Self { shared, tick, waited, cuts, .. } = self;
        cuts.is_cut = false;
        let mut first = true;
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            *waited = true;
            if shared.control.disconnects() != cuts.seen {
                *cuts = Disconnects { seen: shared.control.disconnects(), is_cut: true };
                return Poll::Ready(None);
            }
            if first {
                first = false;
                tick.set_before(shared.clock.instant(deadline.min(u64::MAX / 4)));
            }
            while tick.poll(context).is_ready() {
                let now = shared.clock.now();
                if now >= deadline || shared.control.abandoned() {
                    return Poll::Ready(None);
                }
                tick.set(shared.clock.instant(now.saturating_add(TICK).min(deadline)));
            }
            Poll::Pending
        })
        .await
    }

    /// Like [`guard`](Self::guard), but also returns `None` at `moment`, or after [`TICK`] if that is sooner.
    pub(crate) async fn guard_until<F: Future>(
        &mut self,
        future: F,
        moment: u64,
        deadline: u64,
    ) -> Option<F::Output> {
        if moment >= deadline {
            return self.guard(future, deadline).await;
        }
        let wait = moment.saturating_sub(self.now()).min(TICK);
        let sleeper = std::mem::take(&mut self.sleeper);
        let ended = {
            let mut future = pin!(future);
            let mut moment = pin!(unconstrained(sleeper.sleep(Duration::from_nanos(wait))));
            let either = poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => moment.as_mut().poll(context).map(|()| None),
            });
            self.guard(either, deadline).await
        };
        self.sleeper = sleeper;
        ended.flatten()
    }

    /// Waits for the end of a phase in which no more is due: it lasts as long as was asked for, however low the rate. A number of
    /// operations has no such end.
    pub(crate) async fn sit_out(&mut self) {
        if self.end < u64::MAX {
            self.sleep_until(self.end).await;
        }
    }

    /// Sleeps until the operation is due, or until as many as asked for have been started.
    pub(crate) async fn wait_for_turn(&mut self, due: u64) {
        self.sleep_unless(due, TICK, Self::is_spent).await;
    }

    /// Sleeps until the moment, or until the trial is being stopped.
    pub(crate) async fn sleep_until(&mut self, moment: u64) {
        self.sleep_unless(moment, TICK, |_| false).await;
    }

    /// Sleeps until the moment, until the trial is being stopped or until `is_off` says so; both are checked every
    /// `tick` nanoseconds.
    async fn sleep_unless(&mut self, moment: u64, tick: u64, is_off: impl Fn(&Self) -> bool) {
        loop {
            let now = self.shared.clock.now();
            if now >= moment || self.shared.control.stopping() || is_off(self) {
                return;
            }
            self.waited = true;
            self.sleeper.sleep(Duration::from_nanos((moment - now).min(tick))).await;
        }
    }

    /// Opens the client's first connection; without it the trial is stopped.
    pub(crate) async fn first(&mut self, connecting: impl Future<Output = Result<(), String>>) {
        if let Err(cause) = self.connect(connecting).await {
            self.shared.control.stop(Stop::NoConnection(cause));
        }
    }

    /// Connects once it is this client's turn, from when its time counts. Thousands at once would all be too late for a server that
    /// greets them one after the other.
    async fn connect(&mut self, connecting: impl Future<Output = Result<(), String>>) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        // none if the trial is abandoned meanwhile, or all connections are to be closed, which ends the attempt, too
        let _turn = self.guard(shared.connecting.acquire(), u64::MAX).await;
        let time = shared.load.connect_timeout;
        let deadline = self.shared.clock.now().saturating_add(nanos(time));
        let answer = self.guard(connecting, deadline).await;
        let opened = answer.unwrap_or_else(|| Err(format!("no connection within {time:?}")));
        self.connected = opened.is_ok();
        self.returns.opened = self.shared.clock.now();
        opened
    }

    /// Tries to reach the server again; once [`Load::patience`](crate::Load::patience) is over, the trial ends.
    pub(crate) async fn reconnect(&mut self, mut connect: impl AsyncFnMut() -> Result<(), String>) {
        let lost = self.shared.clock.now();
        self.connected = false;
        match self.returns.wait(lost) {
            0 => {}
            wait => self.sleep_until(lost + wait).await,
        }
        let mut wait = RETURN;
        while !self.shared.control.stopping() {
            match self.connect(connect()).await {
                Ok(()) if self.phase == Phase::Measured => return self.shared.totals.reconnected(),
                Ok(()) => return,
                Err(cause) => {
                    if self.shared.clock.now() - lost > nanos(self.shared.load.patience) {
                        return self.shared.control.stop(Stop::ServerGone(cause));
                    }
                }
            }
            self.sleep_until(self.shared.clock.now() + wait).await;
            wait = longer(wait);
        }
    }
}
