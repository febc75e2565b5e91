//! Carries out a timeline: kills, stops and pauses members of an instance at their moments, and brings them back.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use acidtest_engine::SoFar;
use acidtest_lab::Member;
use acidtest_model::{Commands, Disruption, Injection, Role, Timeline};
use acidtest_report::InjectionFigures;

use crate::{
    Failure, OpenOptions,
    answer::{AGAIN, READY, open},
    command::UserCommand,
    driver::Driver,
    instance::{Instance, LostMember, Way},
};

/// How long a member may take to stop in order before it is killed.
const STOPPING: Duration = Duration::from_secs(10);

/// An injection that was carried out. All times are from the beginning of the measured part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// What was asked for.
    pub injection: Injection,
    /// When the signal was sent; none if the trial ended before.
    pub at: Option<Duration>,
    /// When the member was started again, or went on; none if it never was.
    pub back: Option<Duration>,
    /// When it first answered after that; none if it never did.
    pub answered: Option<Duration>,
    /// How many operations had been acknowledged before it.
    pub acknowledged: u64,
    /// How many operations it left without an answer, up to the next injection.
    pub unknown: u64,
    /// The last acknowledgement before it; none if nothing was acknowledged since the injection before it.
    pub last_ok: Option<Duration>,
    /// The first acknowledgement after it, as far as was looked.
    pub next_ok: Option<Duration>,
}

impl Injected {
    /// One that has not been carried out yet.
    fn of(injection: &Injection) -> Self {
        let injection = injection.clone();
        let (at, back, answered, last_ok, next_ok) = (None, None, None, None, None);
        Self { injection, at, back, answered, acknowledged: 0, unknown: 0, last_ok, next_ok }
    }

    /// The same as a result keeps it.
    pub(crate) fn figures(&self) -> InjectionFigures {
        let Self { injection, at, back, answered, acknowledged, unknown, last_ok, next_ok } = self;
        let seconds = |time: &Option<Duration>| time.map(|time| time.as_secs_f64());
        InjectionFigures {
            fault: injection.disruption.name().to_owned(),
            member: injection.member.to_string(),
            due_seconds: injection.at.as_secs_f64(),
            at_seconds: seconds(at),
            back_seconds: seconds(back),
            answered_seconds: seconds(answered),
            acknowledged: at.map(|_| *acknowledged),
            unknown: at.map(|_| *unknown),
            last_ok_seconds: seconds(last_ok),
            next_ok_seconds: seconds(next_ok),
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
    member: Role,
    state: State,
}

enum State {
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

/// Carries out the timeline of one trial.
pub(crate) struct Injector<'a> {
    /// For servers of the user's own.
    commands: &'a Commands,
    due: VecDeque<&'a Injection>,
    open: Vec<OpenInjection>,
    done: Vec<Injected>,
    /// When the measured part began.
    begun: Instant,
    /// How many operations had no answer when the last injection began.
    unknown_before: u64,
}

impl<'a> Injector<'a> {
    pub(crate) fn new(timeline: &'a Timeline, commands: &'a Commands) -> Self {
        let due = timeline.injections().iter().collect();
        Self { commands, due, open: Vec::new(), done: Vec::new(), begun: Instant::now(), unknown_before: 0 }
    }

    /// Waits for this long, and meanwhile for the answers of members that are back.
    pub(crate) async fn wait(&mut self, time: Duration) {
        let answers = poll_fn(|context| {
            for open in &mut self.open {
                if let State::Starting(answer) = &mut open.state
                    && answer.as_mut().poll(context).is_ready()
                {
                    open.state = State::Answers;
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
        self.look(so_far().last_acknowledged);
        if is_over {
            // clients may be waiting for a server that is not there: the trial would not end
            self.hurry();
            self.wake(driver);
            return self.advance(so_far, instance);
        }
        while let Some(next) = self.due.pop_front_if(|next| next.at <= measured) {
            let SoFar { acknowledged, unknown, .. } = so_far();
            self.count(unknown);
            self.begin(next, instance, driver)?;
            // what was acknowledged until now was so before the signal had its effect
            let before = self.done.iter().rev().nth(1).and_then(|before| before.at).unwrap_or_default();
            if let Some(begun) = self.done.last_mut() {
                begun.last_ok = so_far().last_acknowledged.filter(|last| *last > before);
                begun.acknowledged = acknowledged;
            }
        }
        self.wake(driver);
        self.advance(so_far, instance)
    }

    /// Lets processes of clients go on that were stopped for long enough.
    fn wake(&mut self, driver: &mut Driver) {
        let (now, passed) = (Instant::now(), self.passed());
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

    /// Notes the acknowledgements after injections, given the last acknowledgement of all.
    pub(crate) fn look(&mut self, last: Option<Duration>) {
        let Some(last) = last else { return };
        for (index, injected) in self.done.iter_mut().enumerate() {
            // a server that is asked to stop still serves for a while, and so does one that a command is to end
            let is_stopping = |open: &OpenInjection| {
                open.index == index && matches!(open.state, State::Stopping(_) | State::Ending(..))
            };
            if injected.next_ok.is_some() || self.open.iter().any(is_stopping) {
                continue;
            }
            let is_later = injected.last_ok.or(injected.at).is_some_and(|before| last > before);
            injected.next_ok = Some(last).filter(|_| is_later);
        }
    }

    /// Whether an injection that ends the processes of the store's own server is due.
    pub(crate) fn ends_server(&self, measured: Duration) -> bool {
        let ends = |next: &Injection| next.member == Role::Server && next.disruption.ends_processes();
        self.due.iter().take_while(|next| next.at <= measured).any(|next| ends(next))
    }

    /// Whether something was done to a member, and all of them are back and answer.
    pub(crate) fn has_all_back(&self) -> bool {
        self.open.is_empty() && !self.done.is_empty()
    }

    /// Whether the member is not there because of an injection.
    pub(crate) fn has_down(&self, role: Role) -> bool {
        let is_down = |state: &State| {
            matches!(state, State::Stopping(_) | State::Down(_) | State::Ending(..) | State::Returning(_))
        };
        self.open.iter().any(|open| open.member == role && is_down(&open.state))
    }

    /// Brings every member back at once, and waits until it answers. Returns the member that does not.
    pub(crate) async fn end(
        mut self,
        so_far: impl Fn() -> SoFar,
        instance: &mut Instance,
    ) -> Result<(Vec<Injected>, Option<LostMember>), Failure> {
        let (now, passed) = (Instant::now(), self.passed());
        self.hurry();
        // the processes of clients have ended by now
        for open in self.open.extract_if(.., |open| matches!(open.state, State::Stalled(..))) {
            self.done[open.index].back = Some(passed);
        }
        let mut lost = None;
        while !self.open.is_empty() && lost.is_none() {
            self.advance(&so_far, instance)?;
            lost = instance.lost(|role| self.has_down(role));
            if lost.is_none() && now.elapsed() > READY + STOPPING {
                lost = self.open.first().map(|open| instance.silent(open.member));
            }
            self.wait(AGAIN).await;
        }
        self.count(so_far().unknown);
        let missed = self.due.into_iter().map(Injected::of);
        self.done.extend(missed);
        Ok((self.done, lost))
    }

    /// Counts for the last injection what has had no answer since it, of so many in all.
    fn count(&mut self, unknown: u64) {
        if let Some(last) = self.done.last_mut() {
            last.unknown = unknown.saturating_sub(self.unknown_before);
        }
        self.unknown_before = unknown;
    }

    /// Lets nobody stay down or paused any longer.
    fn hurry(&mut self) {
        let now = Instant::now();
        for open in &mut self.open {
            if let State::Down(until) | State::Paused(until) | State::Stalled(_, until) = &mut open.state {
                *until = now.min(*until);
            }
        }
    }

    fn passed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn begin(
        &mut self,
        injection: &Injection,
        instance: &mut Instance,
        driver: &mut Driver,
    ) -> Result<(), Failure> {
        let role = injection.member;
        if injection.disruption.hits_clients() {
            self.begin_on_clients(injection, driver);
            return Ok(());
        }
        let injected = Injected { at: Some(self.passed()), ..Injected::of(injection) };
        if self.is_out_of_reach(injection) {
            self.done.push(injected);
            return Ok(());
        }
        let Some(member) = instance.member(role) else {
            let Some((name, command)) = self.command_of(injection.disruption, 0) else {
                return Err(Failure::Usage(format!(
                    "there is no private {role} to {}, and no command that does it",
                    injection.disruption.name()
                )));
            };
            let away = match injection.disruption {
                Disruption::Kill { down } => down,
                Disruption::Pause { lasting } => lasting,
                _ => Duration::ZERO,
            };
            let state = State::Ending(UserCommand::start(name, command)?, away);
            self.open.retain(|open| open.member != role);
            self.open.push(OpenInjection { index: self.done.len(), member: role, state });
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
            Disruption::Disconnect | Disruption::Stall { .. } => return Ok(()),
        };
        // a member that was on its way back has been hit again
        self.open.retain(|open| open.member != role);
        self.open.push(OpenInjection { index: self.done.len(), member: role, state });
        self.done.push(injected);
        Ok(())
    }

    /// The user's own command that begins a disruption (0) or ends it (1), with its name.
    fn command_of(&self, disruption: Disruption, which: usize) -> Option<(&'static str, &'a str)> {
        let name = Commands::wanted(disruption)?[which];
        Some((name, self.commands.get(name)?))
    }

    fn begin_on_clients(&mut self, injection: &Injection, driver: &mut Driver) {
        let at = self.passed();
        let mut injected = Injected { at: Some(at), ..Injected::of(injection) };
        if let Disruption::Stall { lasting } = injection.disruption {
            if let Some(process) = driver.stall() {
                let state = State::Stalled(process, Instant::now() + lasting);
                self.open.push(OpenInjection { index: self.done.len(), member: Role::Clients, state });
            }
        } else {
            driver.trial.disconnect();
            // clients connect again by themselves
            (injected.back, injected.answered) = (Some(at), Some(at));
        }
        self.done.push(injected);
    }

    /// Whether there is nothing to do the injection to: the member is down, or already about to stop.
    fn is_out_of_reach(&self, injection: &Injection) -> bool {
        let open = self.open.iter().find(|open| open.member == injection.member);
        match open.map(|open| &open.state) {
            Some(State::Down(_) | State::Ending(..) | State::Returning(_)) => true,
            Some(State::Stopping(_)) => !matches!(injection.disruption, Disruption::Kill { .. }),
            _ => false,
        }
    }

    fn advance(&mut self, so_far: impl Fn() -> SoFar, instance: &mut Instance) -> Result<(), Failure> {
        for index in 0..self.open.len() {
            let role = self.open[index].member;
            let is_back = match instance.member(role) {
                Some(member) => self.advance_member(index, member, &so_far)?,
                None => self.advance_by_command(index, &so_far)?,
            };
            if !is_back {
                continue;
            }
            let begun = &mut self.open[index];
            self.done[begun.index].back = Some(self.begun.elapsed());
            if let Some(Way { target, address, locks, .. }) = instance.way_to(role) {
                begun.state = State::Starting(Box::pin(async move {
                    let options = OpenOptions { durability: None, locks: locks.as_ref() };
                    while open(&target, &address, options).await.is_err() {
                        tokio::time::sleep(AGAIN).await;
                    }
                }));
            }
        }
        let passed = self.begun.elapsed();
        self.open.retain(|open| {
            let answers = matches!(open.state, State::Answers);
            if answers {
                self.done[open.index].answered = Some(passed);
            }
            !answers
        });
        Ok(())
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
                injected.last_ok = injected.last_ok.and(so_far().last_acknowledged);
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
                injected.last_ok = injected.last_ok.and(so_far().last_acknowledged);
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
