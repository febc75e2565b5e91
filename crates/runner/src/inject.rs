//! Carries out a timeline: kills, stops and pauses members of an instance at their moments, and brings them back.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use acidtest_engine::{Extent, SoFar};
use acidtest_lab::Member;
use acidtest_model::{Commands, Disruption, Injection, MemberId, Promotion, Role, Selector, Timeline};
use acidtest_results::InjectionFigures;
use acidtest_workloads::{Audit, queue::DOUBTFUL};

use crate::{
    Failure,
    answer::{AGAIN, READY, takes_connections},
    cluster::{FailingOver, NOTICING, Promoted},
    command::UserCommand,
    driver::Driver,
    instance::{Instance, LostMember},
    lives::AskedEnd,
    outages::{Event, Outage, Outages},
};

/// What was acknowledged so shortly before a fault was under way when it came.
const AT_WORK: Duration = Duration::from_millis(500);

/// How long after the answer of a member whatever needs it is at work again: a collector tries every 5 s to store.
const BACK_AT_WORK: Duration = Duration::from_secs(6);

/// How long a member may take to stop in order before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// An injection that was carried out. All times are from the beginning of the measured part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says a thing of its own of what happened")]
pub struct Injected {
    /// What was asked for.
    pub injection: Injection,
    /// The member that it was done to.
    pub member: MemberId,
    /// Whether that was the server that clients write to, and not a replica or a service.
    pub led: bool,
    /// What the operator of a cluster did about it, and when the new leader took writes; or why nobody could be promoted.
    pub promotion: Option<Result<(Promoted, Duration), String>>,
    /// When the signal was sent; none if the trial ended before.
    pub at: Option<Duration>,
    /// When the member was started again, or went on; none if it never was.
    pub back: Option<Duration>,
    /// When it first answered after that; none if it never did.
    pub answered: Option<Duration>,
    /// How many operations had been acknowledged before it.
    pub acknowledged: u64,
    /// How many of these the store had still to hand out; none where nothing is ever taken out again, or the store's own
    /// server was not ended.
    pub outstanding: Option<u64>,
    /// How many operations ended with their connection since it, up to the next injection.
    pub interrupted: u64,
    /// The longest time in which nobody was served since it, up to the next injection or restart, or that this fell into.
    pub unserved: Option<Outage>,
    /// Whether there was nothing to do it to: the member was down, or about to stop, already.
    pub missed: bool,
    /// Whether the next injection hit the member before it had answered again.
    pub overtaken: bool,
    /// Whether the member was killed because it had not stopped in order in time.
    pub forced: bool,
    /// Whether the member was in the same life afterwards, so that its processes had not ended.
    pub same_life: bool,
    /// Whether another server answered in the member's place afterwards.
    pub another_server: bool,
    /// The last acknowledgement before it; none if nothing was acknowledged since the injection before it.
    pub last_ok: Option<Duration>,
    /// The last acknowledgement of a change before it; none if no change was acknowledged since the member's processes
    /// were last ended.
    pub last_change: Option<Duration>,
    /// The first acknowledgement after it, as far as was looked.
    pub next_ok: Option<Duration>,
}

/// What there is to know of a member that is hit.
pub(crate) struct HitMember {
    /// Whether clients that are at work are sure to notice it at once.
    pub(crate) is_noticed: bool,
    /// Whether the durability level that is shown is that of what the member keeps.
    pub(crate) keeps: bool,
}

impl Injected {
    /// One on this member that has not been carried out yet.
    fn of(injection: &Injection, member: MemberId) -> Self {
        let injection = injection.clone();
        let (at, back, answered) = (None, None, None);
        let (last_ok, last_change, next_ok) = (None, None, None);
        let (acknowledged, outstanding, interrupted, unserved) = (0, None, 0, None);
        let (missed, overtaken, forced, same_life, another_server) = (false, false, false, false, false);
        let led = member.role == Role::Server;
        Self {
            injection,
            member,
            led,
            promotion: None,
            at,
            back,
            answered,
            acknowledged,
            outstanding,
            interrupted,
            unserved,
            missed,
            overtaken,
            forced,
            same_life,
            another_server,
            last_ok,
            last_change,
            next_ok,
        }
    }

    /// Whether it ended the processes of its member, as far as anybody knows.
    pub(crate) fn has_ended(&self) -> bool {
        self.injection.disruption.ends_processes() && self.at.is_some() && !self.missed && !self.same_life
    }

    /// Whether another member was promoted in the place of this one.
    pub(crate) fn has_promoted(&self) -> bool {
        matches!(self.promotion, Some(Ok(_)))
    }

    /// Whether the member went on as a leader, while another was promoted in its place.
    pub(crate) fn has_split(&self) -> bool {
        self.has_promoted() && matches!(self.injection.disruption, Disruption::Cut { .. })
    }

    /// Whether it was done to a server that only follows another.
    pub(crate) fn is_of_replica(&self) -> bool {
        self.member.role == Role::Server && !self.led
    }

    /// Whether what clients saw before it proves nothing of what they saw afterwards.
    pub(crate) fn has_begun_epoch(&self) -> bool {
        self.led && (self.has_ended() || self.has_promoted())
    }

    /// Notes that the member has served so far: one that is asked to stop still does, for a while.
    fn goes_on(&mut self, so_far: &SoFar) {
        self.last_ok = self.last_ok.and(so_far.last_acknowledged);
        self.last_change = self.last_change.and(so_far.last_changed);
    }

    /// All that were carried out as a result keeps them.
    ///
    /// Messages of which the audit does not know whether they were consumed are none that the store had to keep.
    pub(crate) fn all_figures(
        all: &[Self],
        audit: &Audit,
        hit: impl Fn(MemberId, &Disruption) -> HitMember,
    ) -> Vec<InjectionFigures> {
        let doubtful = audit.evidence.get(DOUBTFUL).map_or(0, |messages| messages.unsigned_abs());
        let settled = |before: &[Self], at: Option<Duration>| {
            let is_back =
                |each: &Self| each.answered.zip(at).is_some_and(|(back, at)| back + BACK_AT_WORK <= at);
            before.iter().all(|each| each.missed || each.at.is_none() || is_back(each))
        };
        let each = all.iter().enumerate();
        each.map(|(index, one)| {
            let HitMember { is_noticed, keeps } = hit(one.member, &one.injection.disruption);
            let outstanding = one.outstanding.map(|outstanding| outstanding.saturating_sub(doubtful));
            let one = Self { outstanding, ..one.clone() };
            // what is lost in a trial with a promotion is held against replication
            let keeps = keeps && !all.iter().any(Self::has_promoted);
            one.figures(is_noticed || !settled(&all[..index], one.at), keeps)
        })
        .collect()
    }

    /// The same as a result keeps it; `is_told` is whether it counts only if it interrupts somebody, `keeps` whether the
    /// durability level that is shown is that of what the member keeps.
    fn figures(&self, is_told: bool, keeps: bool) -> InjectionFigures {
        let Self { injection, at, back, answered, acknowledged, interrupted, unserved, .. } = self;
        let Self { missed, overtaken, forced, same_life, another_server, last_ok, next_ok, .. } = self;
        // what was acknowledged a moment before was on its way through the member
        let was_at_work = at.zip(*last_ok).is_some_and(|(at, last)| at.saturating_sub(last) < AT_WORK);
        let is_told = is_told || !was_at_work;
        let seconds = |time: &Option<Duration>| time.map(|time| time.as_secs_f64());
        let interrupted = at.and(Some(*interrupted).filter(|count| *count > 0 || is_told));
        let is_killed = *forced || matches!(injection.disruption, Disruption::Kill { .. });
        // an empty queue has nothing left that could be lost
        let may_lose = self.last_change.is_some() && self.outstanding != Some(0);
        let tests =
            keeps && !self.is_of_replica() && is_killed && !missed && may_lose && interrupted != Some(0);
        InjectionFigures {
            fault: injection.disruption.name().to_owned(),
            member: self.member.to_string(),
            due_seconds: injection.at.as_secs_f64(),
            at_seconds: seconds(at),
            back_seconds: seconds(back),
            answered_seconds: seconds(answered),
            acknowledged: at.map(|_| *acknowledged),
            outstanding: self.outstanding,
            interrupted,
            crash: at.is_some() && tests && !same_life && !another_server,
            same_life: *same_life,
            another_server: *another_server,
            unserved_from_seconds: unserved.map(|outage| outage.from.as_secs_f64()),
            unserved_until_seconds: unserved.and_then(|outage| Some(outage.until?.as_secs_f64())),
            missed: *missed,
            overtaken: *overtaken,
            forced: *forced,
            last_ok_seconds: seconds(last_ok),
            next_ok_seconds: seconds(next_ok),
            promotion: self.promotion.as_ref().and_then(|promotion| {
                let (promoted, at) = promotion.as_ref().ok()?;
                Some(promoted.figures(*at))
            }),
            not_promoted: self.promotion.as_ref().and_then(|promotion| promotion.as_ref().err().cloned()),
        }
    }
}

/// Starts a member again. If that fails, it has ended, and is found to be lost.
fn start_again(member: &mut Member) {
    let _ = member.restart();
}

/// An injection whose member has not yet answered again.
struct OpenInjection {
    index: usize,
    member: MemberId,
    state: State,
}

impl OpenInjection {
    /// Whether this member can be copied from the one that leads meanwhile: nothing is being done to either, and nobody is cut
    /// off.
    fn lets_copy(&self, member: MemberId, leader: MemberId) -> bool {
        self.state.cut().is_none() && self.member != member && self.member != leader
    }

    /// Goes on to the next state, once that is there.
    fn note(&mut self, next: Poll<State>) {
        if let Poll::Ready(next) = next {
            self.state = next;
        }
    }
}

enum State {
    /// A member of a cluster that was lost or cut off at this moment, and nobody has noticed yet. A cut ends by itself.
    Gone(Instant, Option<Instant>),
    /// The operator does what there is to do about that; the cut ends, if it is one.
    Operating(FailingOver, Option<Instant>),
    /// He has done that, with this result.
    Operated(Result<Option<Promoted>, String>, Option<Instant>),
    /// Cut off from the other members until this moment.
    Cut(Instant),
    /// A leader that was cut off, and ended when that was over: it is copied anew when the clients are done.
    Fenced,
    /// Asked to stop at this moment.
    Stopping(Instant),
    /// Down until this moment.
    Down(Instant),
    /// Stopped by a signal until this moment.
    Paused(Instant),
    /// The user's own command runs that ends or stops it, until which there is nothing to wait for, or that brings it
    /// back; it is away for so long in between.
    Ending(UserCommand, Duration),
    Returning(UserCommand),
    /// The process of clients with this index, stopped by a signal until this moment.
    Stalled(usize, Instant),
    /// Back, and asked until it answers.
    Starting(Pin<Box<dyn Future<Output = ()>>>),
    Answers,
}

impl State {
    /// When a member that is cut off is so no more; none of one that is not.
    fn cut(&self) -> Option<Instant> {
        match self {
            Self::Cut(until) => Some(*until),
            Self::Gone(_, until) | Self::Operating(_, until) | Self::Operated(_, until) => *until,
            _ => None,
        }
    }

    /// Whether it is for the operator of a cluster to go on with the member.
    fn is_operated(&self) -> bool {
        use State::{Cut, Fenced, Gone, Operated, Operating};
        matches!(self, Gone(..) | Operating(..) | Operated(..) | Cut(_) | Fenced)
    }

    /// Lets nobody stay down, paused or cut off after this moment.
    fn end_by(&mut self, moment: Instant) {
        if let Self::Down(until)
        | Self::Paused(until)
        | Self::Stalled(_, until)
        | Self::Cut(until)
        | Self::Gone(_, Some(until))
        | Self::Operating(_, Some(until))
        | Self::Operated(_, Some(until)) = self
        {
            *until = moment.min(*until);
        }
    }
}

/// Carries out the timeline of one trial.
pub(crate) struct Injector<'a> {
    /// For servers of the user's own.
    commands: &'a Commands,
    /// How the operator of a cluster chooses a new leader.
    rule: Promotion,
    /// Whether the clients are done.
    is_over: bool,
    /// Members that do not follow a new leader, and are to be copied anew.
    left_behind: Vec<MemberId>,
    /// The member in whose place nobody could be promoted, and why.
    stranded: Option<(MemberId, String)>,
    due: VecDeque<&'a Injection>,
    open: Vec<OpenInjection>,
    done: Vec<Injected>,
    /// How many of these there were when it was last found out what became of the end of a member.
    settled: BTreeMap<MemberId, usize>,
    /// When the measured part began.
    begun: Instant,
    /// How many operations had ended with their connection when the last injection began.
    interrupted_before: u64,
    /// For how long nobody was served since each injection, and since clients lost connections without one.
    pub(crate) outages: Outages,
}

impl<'a> Injector<'a> {
    pub(crate) fn new(
        timeline: &'a Timeline,
        (commands, rule): (&'a Commands, Promotion),
        extent: Extent,
    ) -> Self {
        let due = timeline.injections().iter().collect();
        Self {
            commands,
            rule,
            is_over: false,
            left_behind: Vec::new(),
            stranded: None,
            due,
            open: Vec::new(),
            done: Vec::new(),
            settled: BTreeMap::new(),
            begun: Instant::now(),
            interrupted_before: 0,
            outages: Outages::new(match extent {
                Extent::Time(length) => Some(length),
                Extent::Operations(_) => None,
            }),
        }
    }

    /// Waits for this long, and meanwhile for the answers of members that are back.
    pub(crate) async fn wait(&mut self, time: Duration) {
        let answers = poll_fn(|context| {
            for open in &mut self.open {
                match &mut open.state {
                    State::Starting(answer) => {
                        let answers = answer.as_mut().poll(context).map(|()| State::Answers);
                        open.note(answers);
                    }
                    State::Operating(operating, until) => {
                        let until = *until;
                        let operated = operating.as_mut().poll(context);
                        open.note(operated.map(|done| State::Operated(done, until)));
                    }
                    _ => {}
                }
            }
            Poll::<()>::Pending
        });
        // it never ends by itself
        let _ = tokio::time::timeout(time, answers).await;
    }

    /// Begins the injections that are due, the measured part having lasted this long, and goes on with those begun.
    /// Once the measured part `is_over`, none begins, and every member is brought back at once.
    pub(crate) fn go_on(
        &mut self,
        measured: Duration,
        is_over: bool,
        so_far: impl Fn() -> SoFar,
        instance: &mut Instance,
        driver: &mut Driver,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        self.begun = now.checked_sub(measured).unwrap_or(now);
        self.look(measured, so_far().last_acknowledged);
        if is_over {
            // clients may be waiting for a server that is not there: the trial would not end
            self.hurry();
            self.wake(driver);
            return self.advance(so_far, instance);
        }
        while let Some(next) = self.due.pop_front_if(|next| next.at <= measured) {
            self.count(so_far().interrupted);
            let hit = instance.selected(next.target);
            if hit.is_empty() {
                let member = next.target.role().into();
                let at = Some(self.begun.elapsed());
                self.done.push(Injected { at, missed: true, ..Injected::of(next, member) });
            }
            for member in hit {
                self.begin(next, member, instance, driver)?;
                self.note_before(measured, &so_far());
            }
        }
        self.wake(driver);
        self.advance(so_far, instance)
    }

    /// Notes what the injection that has just begun came after. What was acknowledged until now was so before the signal had its
    /// effect; what was so before the member's processes were last ended, has been tested by that.
    fn note_before(&mut self, measured: Duration, so_far: &SoFar) {
        let Some((begun, earlier)) = self.done.split_last_mut() else { return };
        if begun.missed {
            return;
        }
        let ended = |done: &&Injected| {
            done.member == begun.member && done.injection.disruption.begins_epoch() && !done.missed
        };
        let before = earlier.iter().rev().find(ended).and_then(|done| done.at).unwrap_or_default();
        begun.last_ok = so_far.last_acknowledged.filter(|last| *last > before);
        begun.last_change = so_far.last_changed.filter(|last| *last > before);
        begun.acknowledged = so_far.acknowledged;
        let at = begun.at.unwrap_or(measured);
        self.outages.begin(Event::Injection(self.done.len() - 1), at);
    }

    /// Lets processes of clients go on that were stopped for long enough.
    fn wake(&mut self, driver: &mut Driver) {
        let (now, passed) = (Instant::now(), self.begun.elapsed());
        for open in &mut self.open {
            if let State::Stalled(process, until) = open.state
                && now >= until
            {
                driver.go_on(process);
                let injected = &mut self.done[open.index];
                (injected.back, injected.answered) = (Some(passed), Some(passed));
                open.state = State::Answers;
            }
        }
    }

    /// Notes the acknowledgements after injections, given the last acknowledgement of all at this moment. What comes behind the
    /// measured part is none of its.
    fn look(&mut self, now: Duration, last: Option<Duration>) {
        let Some(last) = last.filter(|last| self.outages.is_measured(*last)) else { return };
        self.outages.look(now, last);
        for (index, injected) in self.done.iter_mut().enumerate() {
            // a server that is asked to stop still serves for a while, and so does one that a command is to end
            let is_stopping = |open: &OpenInjection| {
                open.index == index && matches!(open.state, State::Stopping(_) | State::Ending(..))
            };
            if injected.next_ok.is_some() || self.open.iter().any(is_stopping) {
                continue;
            }
            let is_later = injected.at.max(injected.last_ok).is_some_and(|before| last > before);
            injected.next_ok = Some(last).filter(|_| is_later);
        }
    }

    /// Whether an injection is due with which an epoch of the store's own server begins.
    pub(crate) fn begins_epoch(&self, measured: Duration, instance: &Instance) -> bool {
        let hits_leader = |target| instance.selected(target).contains(&instance.leader());
        let begins = |next: &Injection| next.disruption.begins_epoch() && hits_leader(next.target);
        self.due.iter().take_while(|next| next.at <= measured).any(|next| begins(next))
    }

    /// Notes for the injection with which an epoch of the store's own server has just begun what was then still to be handed out.
    pub(crate) fn note_outstanding(&mut self, outstanding: Option<u64>) {
        let ended = |done: &&mut Injected| done.led && done.injection.disruption.begins_epoch();
        if let Some(last) = self.done.iter_mut().rfind(ended).filter(|last| !last.missed) {
            last.outstanding = outstanding;
        }
    }

    /// Whether the store's own server, which is being ended, has ended for sure. Of a server of the user's own nobody
    /// knows.
    pub(crate) fn has_ended(&self, instance: &mut Instance) -> bool {
        // one that is cut off still answers its clients
        let serves = |open: &OpenInjection| {
            matches!(open.state, State::Stopping(_) | State::Ending(..)) || open.state.cut().is_some()
        };
        !self.open.iter().any(|open| self.done[open.index].led && serves(open))
            && instance.member(instance.leader()).is_some()
    }

    /// The member that has ended unasked, or in whose place nobody could be promoted, if the trial cannot do without it.
    pub(crate) fn lost(&mut self, instance: &mut Instance) -> Option<LostMember> {
        let lost = instance.lost(|member| self.has_down(member));
        lost.or_else(|| {
            let (member, why) = self.stranded.take()?;
            Some(instance.lost_member(member, &format!("was lost, and nobody was promoted: {why}")))
        })
    }

    /// Whether this member is being ended, or has been and has not answered yet.
    pub(crate) fn is_ending(&self, member: MemberId) -> bool {
        let ends = |open: &OpenInjection| self.done[open.index].injection.disruption.ends_processes();
        self.open.iter().any(|open| open.member == member && ends(open))
    }

    /// Notes what became of this member, which was to be ended, perhaps several times since that was last
    /// known.
    pub(crate) fn note_end(&mut self, member: MemberId, end: AskedEnd) {
        let settled = self.settled.insert(member, self.done.len()).unwrap_or(0);
        for done in self.done.iter_mut().skip(settled) {
            if done.member == member && done.has_ended() {
                done.same_life = end == AskedEnd::SameLife;
                done.another_server = end == AskedEnd::Elsewhere;
            }
        }
    }

    /// What was done to the members so far.
    pub(crate) fn done(&self) -> &[Injected] {
        &self.done
    }

    /// Whether something was done to a member, and all of them are back and answer.
    pub(crate) fn has_all_back(&self) -> bool {
        self.open.is_empty() && !self.done.is_empty()
    }

    /// Whether the member is not there because of an injection.
    pub(crate) fn has_down(&self, member: MemberId) -> bool {
        let is_down = |state: &State| {
            let is_ended = matches!(
                state,
                State::Stopping(_) | State::Down(_) | State::Ending(..) | State::Returning(_)
            );
            is_ended || (state.is_operated() && !matches!(state, State::Cut(_)))
        };
        self.open.iter().any(|open| open.member == member && is_down(&open.state))
    }

    /// Brings every member back at once, and waits until it answers. Returns the member that does not.
    pub(crate) async fn end(
        &mut self,
        window: Duration,
        so_far: impl Fn() -> SoFar,
        instance: &mut Instance,
    ) -> Result<Option<LostMember>, Failure> {
        let (now, passed) = (Instant::now(), self.begun.elapsed());
        let acknowledged = so_far().last_acknowledged;
        self.look(window, acknowledged);
        self.outages.end(window, acknowledged);
        self.is_over = true;
        self.hurry();
        // the processes of clients have ended by now
        for open in self.open.extract_if(.., |open| matches!(open.state, State::Stalled(..))) {
            self.done[open.index].back = Some(passed);
        }
        let mut lost = None;
        while !(self.open.is_empty() && self.left_behind.is_empty()) && lost.is_none() {
            self.advance(&so_far, instance)?;
            lost = self.lost(instance);
            if lost.is_none() && now.elapsed() > READY + STOPPING {
                lost = self.open.first().map(|open| instance.silent(open.member));
                self.left_behind.clear();
            }
            self.wait(AGAIN).await;
        }
        self.count(so_far().interrupted);
        Ok(lost)
    }

    /// What was done to the members, and what there was no time left for.
    pub(crate) fn into_done(self) -> Vec<Injected> {
        let done = self
            .done
            .into_iter()
            .enumerate()
            .map(|(index, done)| Injected { unserved: self.outages.since(Event::Injection(index)), ..done });
        let never = |injection: &Injection| {
            let member = match injection.target {
                Selector::Member(member) => member,
                selector => selector.role().into(),
            };
            Injected::of(injection, member)
        };
        done.chain(self.due.into_iter().map(never)).collect()
    }

    /// Counts for the last injection what ended with its connection since it, of so many in all.
    fn count(&mut self, interrupted: u64) {
        if let Some(last) = self.done.iter_mut().rfind(|done| !done.missed) {
            last.interrupted += interrupted.saturating_sub(self.interrupted_before);
        }
        self.interrupted_before = interrupted;
    }

    /// Lets nobody stay down or paused any longer.
    fn hurry(&mut self) {
        let now = Instant::now();
        for open in &mut self.open {
            open.state.end_by(now);
        }
    }

    fn begin(
        &mut self,
        injection: &Injection,
        hit: MemberId,
        instance: &mut Instance,
        driver: &mut Driver,
    ) -> Result<(), Failure> {
        if injection.disruption.hits_clients() {
            self.begin_on_clients(injection, driver);
            return Ok(());
        }
        let led = hit == instance.leader();
        let mut injected = Injected { at: Some(self.begun.elapsed()), led, ..Injected::of(injection, hit) };
        if self.is_out_of_reach(injection, hit) {
            injected.missed = true;
            self.done.push(injected);
            return Ok(());
        }
        let Some(member) = instance.member(hit) else {
            let Some((name, command)) = self.command_of(injection.disruption, 0) else {
                return Err(Failure::Usage(format!(
                    "there is no private {hit} to {}, and no command for it",
                    injection.disruption.name()
                )));
            };
            let away = match injection.disruption {
                Disruption::Kill { down } => down,
                Disruption::Pause { lasting } => lasting,
                _ => Duration::ZERO,
            };
            let state = State::Ending(UserCommand::start(name, command)?, away);
            self.overtake(hit);
            self.open.push(OpenInjection { index: self.done.len(), member: hit, state });
            self.done.push(injected);
            return Ok(());
        };
        let state = match injection.disruption {
            Disruption::Kill { down } => {
                member.kill()?;
                State::Down(Instant::now() + down)
            }
            Disruption::Restart => {
                member.ask_to_stop()?;
                State::Stopping(Instant::now())
            }
            Disruption::Pause { lasting } => {
                member.pause()?;
                State::Paused(Instant::now() + lasting)
            }
            Disruption::Lose => {
                member.kill()?;
                State::Gone(Instant::now(), None)
            }
            Disruption::Cut { lasting } => {
                instance.cluster().iter().for_each(|cluster| cluster.cut(hit));
                let (now, until) = (Instant::now(), Instant::now() + lasting);
                if led { State::Gone(now, Some(until)) } else { State::Cut(until) }
            }
            Disruption::Disconnect | Disruption::Stall { .. } => return Ok(()),
        };
        // the signals take their time
        injected.at = Some(self.begun.elapsed());
        let state = match (state, self.open.iter().find(|open| open.member == hit).map(|open| &open.state)) {
            // it stands still already, for longer than it is asked to now
            (State::Paused(until), Some(State::Paused(longer))) => State::Paused(until.max(*longer)),
            (state, _) => state,
        };
        self.overtake(hit);
        self.open.push(OpenInjection { index: self.done.len(), member: hit, state });
        self.done.push(injected);
        Ok(())
    }

    /// A member that was on its way back has been hit again.
    fn overtake(&mut self, member: MemberId) {
        for open in self.open.extract_if(.., |open| open.member == member) {
            self.done[open.index].overtaken = true;
        }
    }

    /// The user's own command that begins a disruption (0) or ends it (1), with its name.
    fn command_of(&self, disruption: Disruption, which: usize) -> Option<(&'static str, &'a str)> {
        let name = Commands::wanted(disruption)?[which];
        Some((name, self.commands.get(name)?))
    }

    fn begin_on_clients(&mut self, injection: &Injection, driver: &mut Driver) {
        let at = self.begun.elapsed();
        let clients = MemberId::from(Role::Clients);
        let mut injected = Injected { at: Some(at), ..Injected::of(injection, clients) };
        if let Disruption::Stall { lasting } = injection.disruption {
            if let Some(process) = driver.stall() {
                let state = State::Stalled(process, Instant::now() + lasting);
                self.open.push(OpenInjection { index: self.done.len(), member: clients, state });
            } else {
                injected.missed = true;
            }
        } else {
            driver.trial.disconnect();
            // clients connect again by themselves
            (injected.back, injected.answered) = (Some(at), Some(at));
        }
        self.done.push(injected);
    }

    /// Whether there is nothing to do the injection to: the member is down, or already about to stop.
    fn is_out_of_reach(&self, injection: &Injection, hit: MemberId) -> bool {
        let open = self.open.iter().find(|open| open.member == hit);
        match open.map(|open| &open.state) {
            Some(State::Paused(_)) => matches!(injection.disruption, Disruption::Cut { .. }),
            Some(State::Down(_) | State::Ending(..) | State::Returning(_)) => true,
            // while it is cut off, nothing else is done to it, so that the cut has an end
            Some(state) if state.is_operated() => true,
            Some(State::Stopping(_)) => !matches!(injection.disruption, Disruption::Kill { .. }),
            _ => false,
        }
    }

    fn advance(&mut self, so_far: impl Fn() -> SoFar, instance: &mut Instance) -> Result<(), Failure> {
        for index in 0..self.open.len() {
            let member = self.open[index].member;
            let is_back = if self.open[index].state.is_operated() {
                self.advance_in_cluster(index, instance)?
            } else {
                match instance.member(member) {
                    Some(member) => self.advance_member(index, member, &so_far)?,
                    None => self.advance_by_command(index, &so_far)?,
                }
            };
            if !is_back {
                continue;
            }
            let begun = &mut self.open[index];
            self.done[begun.index].back.get_or_insert(self.begun.elapsed());
            if let Some(way) = instance.reopening_of(member) {
                begun.state = State::Starting(Box::pin(async move {
                    while way.open().await.is_err() {
                        tokio::time::sleep(AGAIN).await;
                    }
                }));
            } else if let Some(address) = instance.service_address(member) {
                begun.state = State::Starting(Box::pin(async move {
                    while !takes_connections(&address).await {
                        tokio::time::sleep(AGAIN).await;
                    }
                }));
            } else {
                // it is no member any more
                begun.state = State::Answers;
            }
        }
        if let Some(member) = self
            .left_behind
            .pop_if(|member| self.open.iter().all(|open| open.lets_copy(*member, instance.leader())))
        {
            instance.copy_anew(member);
        }
        let passed = self.begun.elapsed();
        self.open.retain(|open| {
            let answers = matches!(open.state, State::Answers);
            if answers {
                instance.services.has_reached(open.member);
                let injected = &mut self.done[open.index];
                injected.answered = injected.back.map(|_| passed);
            }
            !answers
        });
        Ok(())
    }

    /// Whether nothing is being done to the server that leads.
    fn leader_is_there(&self, instance: &Instance) -> bool {
        self.open.iter().all(|open| open.member != instance.leader())
    }

    /// Goes on with a member of a cluster that was lost or cut off. Returns whether it has just been brought back.
    fn advance_in_cluster(&mut self, index: usize, instance: &mut Instance) -> Result<bool, Failure> {
        let OpenInjection { index: done, member, .. } = self.open[index];
        let (now, passed) = (Instant::now(), self.begun.elapsed());
        let Some(cluster) = instance.cluster() else { return Ok(false) };
        match std::mem::replace(&mut self.open[index].state, State::Answers) {
            // over before anybody noticed
            State::Gone(_, Some(until)) if now >= until => {
                cluster.heal(member);
                return Ok(true);
            }
            State::Gone(since, until) if now.duration_since(since) >= NOTICING => {
                let operating = if self.done[done].led {
                    cluster.fail_over(self.rule)
                } else {
                    cluster.do_without(member)
                };
                self.open[index].state = State::Operating(operating, until);
            }
            State::Operated(Ok(promoted), until) => {
                instance.lose(member);
                if let Some(promoted) = promoted {
                    instance.follow(promoted.leader);
                    self.left_behind.clone_from(&promoted.left_behind);
                    self.done[done].promotion = Some(Ok((promoted, passed)));
                }
                // a member that was lost never comes back: there is nothing more to wait for
                self.open[index].state = until.map_or(State::Answers, State::Cut);
            }
            State::Operated(Err(why), _) => {
                self.done[done].promotion = Some(Err(why.clone()));
                self.stranded = Some((member, why));
            }
            State::Cut(until) if now >= until && self.done[done].has_promoted() => {
                // what it has acknowledged since is no part of the cluster's data
                if let Some(member) = instance.member(member) {
                    member.kill()?;
                }
                instance.cluster().iter().for_each(|cluster| cluster.heal(member));
                self.done[done].back = Some(passed);
                self.open[index].state = State::Fenced;
            }
            State::Cut(until) if now >= until => {
                cluster.heal(member);
                return Ok(true);
            }
            State::Fenced if self.is_over && self.leader_is_there(instance) => {
                instance.copy_anew(member);
                return Ok(true);
            }
            other => self.open[index].state = other,
        }
        Ok(false)
    }

    /// Goes on with a private member. Returns whether it has just been brought back.
    fn advance_member(
        &mut self,
        index: usize,
        member: &mut Member,
        so_far: impl Fn() -> SoFar,
    ) -> Result<bool, Failure> {
        let (begun, now) = (&self.open[index], Instant::now());
        match begun.state {
            State::Stopping(since) if member.ended().is_some() || since.elapsed() > STOPPING => {
                let injected = &mut self.done[begun.index];
                injected.goes_on(&so_far());
                injected.forced = member.ended().is_none();
                // what does not stop in order in time is not asked a second time
                let _ = member.kill();
                start_again(member);
            }
            State::Down(until) if now >= until => start_again(member),
            State::Paused(until) if now >= until => member.resume()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Goes on with a server of the user's own. Returns whether it has just been brought back.
    fn advance_by_command(&mut self, index: usize, so_far: impl Fn() -> SoFar) -> Result<bool, Failure> {
        let disruption = self.done[self.open[index].index].injection.disruption;
        let command = self.command_of(disruption, 1);
        let (state, now) = (&mut self.open[index].state, Instant::now());
        match std::mem::replace(state, State::Answers) {
            State::Ending(running, away) if running.has_ended() => {
                running.end()?;
                *state = State::Down(now + away);
                let injected = &mut self.done[self.open[index].index];
                injected.goes_on(&so_far());
            }
            State::Returning(running) if running.has_ended() => {
                running.end()?;
                return Ok(true);
            }
            State::Down(until) if now >= until => {
                if let Some((name, command)) = command {
                    *state = State::Returning(UserCommand::start(name, command)?);
                }
            }
            other => *state = other,
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: MemberId = MemberId::numbered(Role::Server, 1);

    /// A crash kills the member whose level is shown, and there is something that it may have lost.
    #[test]
    fn only_what_may_lose_a_change_tests_durability() {
        let kill = Disruption::Kill { down: Duration::ZERO };
        let second = |number| Some(Duration::from_secs(number));
        let injected = |disruption| Injected {
            at: second(3),
            last_ok: second(2),
            last_change: second(2),
            interrupted: 5,
            ..Injected::of(
                &Injection { at: Duration::from_secs(3), target: Role::Server.into(), disruption },
                SERVER,
            )
        };
        let is_crash = |injected: &Injected, keeps| {
            let figures =
                Injected::all_figures(std::slice::from_ref(injected), &Audit::unknown("gone"), |_, _| {
                    HitMember { is_noticed: true, keeps }
                });
            figures[0].crash
        };
        let killed = injected(kill);
        assert!(is_crash(&killed, true));
        assert!(is_crash(&Injected { outstanding: Some(1), ..killed.clone() }, true));
        let mut audit = Audit::unknown("gone");
        audit.evidence.insert(DOUBTFUL.to_owned(), 4);
        let doubted = |outstanding| Injected { outstanding: Some(outstanding), ..killed.clone() };
        let is_left = |one: Injected| {
            let hit = |_: MemberId, _: &Disruption| HitMember { is_noticed: true, keeps: true };
            Injected::all_figures(&[one], &audit, hit)[0].crash
        };
        assert!(
            is_left(doubted(5)) && !is_left(doubted(4)),
            "all that was outstanding may have been consumed"
        );
        assert!(!is_crash(&killed, false), "it keeps nothing of that level");
        let others = [
            injected(Disruption::Restart),
            injected(Disruption::Pause { lasting: Duration::from_secs(1) }),
            // nothing but reads
            Injected { last_change: None, ..killed.clone() },
            Injected { interrupted: 0, ..killed.clone() },
            // a queue that had nothing left to hand out
            Injected { outstanding: Some(0), ..killed.clone() },
            Injected { missed: true, ..killed.clone() },
            // a command that killed nothing, and one after which another server answered
            Injected { same_life: true, ..killed.clone() },
            Injected { another_server: true, ..killed.clone() },
            Injected { at: None, ..killed },
        ];
        for other in &others {
            assert!(!is_crash(other, true), "{other:?}");
        }
        let forced = Injected { forced: true, ..injected(Disruption::Restart) };
        assert!(is_crash(&forced, true), "it was killed because it had not stopped in time");
    }

    /// Of several kills after which a member is in the same life, none has ended it; what was known before stays.
    #[test]
    fn kills_that_end_nothing_are_told_from_those_that_do() {
        let (timeline, commands) = (Timeline::default(), Commands::default());
        let mut injector = Injector::new(&timeline, (&commands, Promotion::default()), Extent::Operations(1));
        let at = |second| Injected {
            at: Some(Duration::from_secs(second)),
            ..Injected::of(
                &Injection {
                    at: Duration::from_secs(second),
                    target: Role::Server.into(),
                    disruption: Disruption::Kill { down: Duration::ZERO },
                },
                SERVER,
            )
        };
        injector.done.push(at(1));
        injector.note_end(SERVER, AskedEnd::Again);
        injector.done.extend([at(2), at(3)]);
        injector.note_end(SERVER, AskedEnd::SameLife);
        injector.done.push(at(4));
        injector.note_end(SERVER, AskedEnd::Elsewhere);
        let ended: Vec<bool> = injector.done.iter().map(Injected::has_ended).collect();
        assert_eq!(ended, [true, false, false, true]);
        let elsewhere: Vec<bool> = injector.done.iter().map(|done| done.another_server).collect();
        assert_eq!(elsewhere, [false, false, false, true]);
    }
}
