//! `acidtest runner`: makes a run for `acidtest serve`, which tells it which one, and is told what happens.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, stdin, stdout},
    path::Path,
    time::{Duration, Instant},
};

use acidtest_engine::Progress as Measured;
use acidtest_lab::{Lab, Turn};
use acidtest_model::MemberId;
use acidtest_protocol::{Error, Reader, Writer, answer_greeting};
use acidtest_results::{LatencyFigures, RunResult, SecondFigures, SoFar};
use acidtest_runner::{Failure, FaultStage, Finished, Interrupt, Observer, Order, SecondSeen, Target};
use acidtest_serve::{Ending, Event, FaultEvent, PROTOCOL, SecondEvent, SoFarEvent, VerdictEvent};
use tokio::{sync::oneshot, task::LocalSet};

use crate::{
    carry_out::carry_out,
    commands::serve::{AssignedRun, AssignedTarget},
    exit::{self, Status},
    interrupt,
    needs::Needs,
    order::{self, is_complete},
    output::{self, ResultFile},
    progress::Pace,
    quiet::{Machine, Others, is_quiet},
};

/// Time between two events of an activity that goes on.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time between two attempts to have the turn of a run.
const TURN: Duration = Duration::from_millis(200);

/// Makes the run that is asked for on standard input.
pub(crate) async fn runner() -> Result<Status, Failure> {
    let assigned = assigned().map_err(|error| match error {
        Error::AnotherVersion { .. } => Failure::Usage(format!("the server {error}")),
        error => Failure::Other(format!("cannot read what to run: the server {error}")),
    })?;
    let made = LocalSet::new().run_until(Box::pin(make(assigned))).await;
    tell(&made.unwrap_or_else(|failure| Event::Ended {
        // a store that cannot be reached is no failure of acidtest's
        how: if matches!(failure, Failure::Store(_)) { Ending::Incomplete } else { Ending::Failed },
        exit_status: exit::code_of(&failure),
        error: Some(failure.to_string()),
    }));
    // the server is told by the event
    Ok(Status::Held)
}

/// The run that the server asks for.
fn assigned() -> Result<AssignedRun, Error> {
    let mut from = Reader::new(stdin().lock());
    answer_greeting(&mut from, &mut Writer::new(stdout().lock()), PROTOCOL)?;
    from.receive()?.ok_or(Error::Ended)
}

/// Tells an event. If nobody reads it any more, the input has ended, too.
fn tell(event: &Event) {
    let _ = Writer::new(stdout().lock()).send(event);
}

/// Makes a run; returns its last event.
async fn make(assigned: AssignedRun) -> Result<Event, Failure> {
    let interrupt = interrupt::listen()?;
    end_with_input(&interrupt)?;
    let AssignedRun { id, plan, stores, lock_service, file, turn, quiet_machine } = assigned;
    // another process may be about to write the result that this one goes on with, or would be disturbed
    let Some(_turns) = take_turns(&turn, &interrupt).await? else { return Ok(interrupted()) };
    let targets = stores.into_iter().map(AssignedTarget::target).collect::<Result<Vec<Target>, Failure>>()?;
    let find = |_: &str| {
        let service = lock_service.clone().map(AssignedTarget::target);
        service.unwrap_or_else(|| Err(Failure::Usage("no lock service was assigned".to_owned())))
    };
    let mut order = order::of_plan(id, plan, targets.clone(), &find)?;
    order::settle(&mut order);
    if let Some(begun) = begun(&file, &order)? {
        if is_complete(&begun) {
            return Ok(Event::Ended {
                how: Ending::Complete,
                exit_status: exit::status(&begun).code(),
                error: None,
            });
        }
        order = order::going_on(begun, targets, &file, &find)?;
    }
    if let Some(how) = quiet_machine {
        let (begun, mut said) = (Instant::now(), String::new());
        let mut say = |line: &str| {
            line.clone_into(&mut said);
            tell(&Event::Doing { what: line.to_owned(), seconds: begun.elapsed().as_secs_f64() });
        };
        let quiet = tokio::select! {
            quiet = is_quiet(how, Others::look, &mut say) => quiet?,
            () = interrupt.until_set() => return Ok(interrupted()),
        };
        if !quiet {
            let exit_status = Status::NotQuiet.code();
            return Ok(Event::Ended { how: Ending::Failed, exit_status, error: Some(said) });
        }
    }
    let machine = Machine::now(&[(&order, Needs::of(&order))], quiet_machine).await;
    machine.told().into_iter().for_each(|said| tell(&Event::Note { said }));
    let file = ResultFile::prepare(file)?;
    let Finished { result, failure } =
        carry_out(order, &mut Teller::default(), &interrupt, None, &file).await?;
    let status = exit::status(&result);
    let how = match (&failure, result.interrupted) {
        (Some(Failure::Usage(_) | Failure::Refused { .. } | Failure::Other(_)), _) => Ending::Failed,
        (_, true) => Ending::Interrupted,
        (None, false) if is_complete(&result) => Ending::Complete,
        _ => Ending::Incomplete,
    };
    let of_cells = || result.cells.iter().find_map(|cell| cell.error.clone());
    let status = failure.as_ref().map_or(status, |failure| status.max(exit::status_after(failure)));
    let error = failure.map(|failure| failure.to_string()).or_else(of_cells);
    Ok(Event::Ended { how, exit_status: status.code(), error })
}

/// The last event of a run that was told to stop before its first trial.
fn interrupted() -> Event {
    Event::Ended { how: Ending::Interrupted, exit_status: Status::Interrupted.code(), error: None }
}

/// The result that the run goes on with, if there is one. What a file says is not run: its plan must be the one that was
/// checked.
fn begun(file: &Path, order: &Order) -> Result<Option<RunResult>, Failure> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(about) if about.is_file() => {}
        Ok(_) => return Err(Failure::Other(format!("{} is not a file", file.display()))),
        Err(error) => return Err(Failure::Other(format!("cannot read {}: {error}", file.display()))),
    }
    let begun = output::load(file)?;
    if begun.run != order.id || begun.plan != order.plan {
        return Err(Failure::Usage(format!(
            "cannot resume {}: it is the result of another run, or of another plan",
            file.display()
        )));
    }
    Ok(Some(begun))
}

/// Has the run end tidily when the server says so, or is gone: then the input ends.
fn end_with_input(interrupt: &Interrupt) -> Result<(), Failure> {
    let (told, is_told) = oneshot::channel();
    let read = move || {
        let mut rest = Vec::new();
        let _ = stdin().lock().read_to_end(&mut rest);
        let _ = told.send(());
    };
    // it ends with the process
    let spawned = std::thread::Builder::new().name("input".to_owned()).spawn(read);
    spawned.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    let interrupt = interrupt.clone();
    tokio::task::spawn_local(async move {
        let _ = is_told.await;
        interrupt.set();
    });
    Ok(())
}

/// What others wait for as long as a run is made: others that have the same folder of results, and the same lab.
type Turns = (File, Turn);

/// Waits until no other process makes a run for the same folder, as that of an earlier server may still do, and none on this
/// lab, for a server of another folder. None if it was interrupted.
async fn take_turns(path: &Path, interrupt: &Interrupt) -> Result<Option<Turns>, Failure> {
    let cannot =
        |error: &dyn std::fmt::Display| Failure::Other(format!("cannot use {}: {error}", path.display()));
    // nothing is written to it
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| cannot(&error))?;
    let of_folder = || match file.try_lock() {
        Ok(()) => Ok(Some(())),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(cannot(&error)),
    };
    if wait_for("an earlier server", of_folder, interrupt).await?.is_none() {
        return Ok(None);
    }
    let lab = Lab::open().map_err(|error| Failure::Other(error.to_string()))?;
    let of_lab = || lab.turn().map_err(|error| Failure::Other(error.to_string()));
    Ok(wait_for("another server", of_lab, interrupt).await?.map(|turn| (file, turn)))
}

/// Tries until there is a turn, and tells whose run is waited for. None if it was interrupted.
async fn wait_for<T>(
    whose: &str,
    take: impl Fn() -> Result<Option<T>, Failure>,
    interrupt: &Interrupt,
) -> Result<Option<T>, Failure> {
    let begun = Instant::now();
    let mut told = None::<Instant>;
    loop {
        let taken = take()?;
        if taken.is_some() || interrupt.is_set() {
            return Ok(taken);
        }
        if told.is_none_or(|told| told.elapsed() >= INTERVAL) {
            told = Some(Instant::now());
            let what = format!("waiting for the run of {whose} to end");
            tell(&Event::Doing { what, seconds: begun.elapsed().as_secs_f64() });
        }
        tokio::time::sleep(TURN).await;
    }
}

/// Tells the server what happens.
#[derive(Default)]
struct Teller {
    pace: Pace,
    /// The name of the trial's cell.
    cell: String,
    /// Whether the trial is in the result.
    is_kept: bool,
    /// When something was last told that goes on.
    told: Option<Instant>,
    share: f64,
    passed: Duration,
    /// What the trials show that the run begins with.
    so_far: SoFarEvent,
}

impl Teller {
    /// The number of the trial that is made.
    fn trial(&self) -> u64 {
        self.pace.done + 1
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= INTERVAL);
        if is_due {
            self.told = Some(Instant::now());
        }
        is_due
    }

    fn tell_doing(what: &str, passed: Duration) {
        tell(&Event::Doing { what: what.to_owned(), seconds: passed.as_secs_f64() });
    }
}

impl Observer for Teller {
    fn go_on(&mut self, begun: &RunResult) {
        self.so_far = SoFar::of(begun).into();
    }

    fn start(&mut self, least: u64, most: u64, each: Option<Duration>) {
        self.pace.start(least, most, each);
        tell(&Event::Begun { least, most, so_far: self.so_far.clone() });
    }

    fn doing(&mut self, what: &str) {
        Self::tell_doing(what, Duration::ZERO);
    }

    fn going_on(&mut self, what: &str, passed: Duration) {
        if passed.is_zero() || self.is_due() {
            Self::tell_doing(what, passed);
        }
    }

    fn begin(&mut self, cell: &str) {
        cell.clone_into(&mut self.cell);
        self.is_kept = false;
        tell(&Event::Trial { number: self.trial(), cell: cell.to_owned() });
    }

    fn loading(&mut self, rows: u64, all: u64, passed: Duration) {
        if self.is_due() {
            tell(&Event::Loading { rows, all, seconds: passed.as_secs_f64() });
        }
    }

    fn measured(&mut self, progress: &Measured, share: f64) {
        self.share = share.clamp(0.0, 1.0);
        match progress.measured {
            Some(passed) => self.passed = passed,
            None if self.is_due() => Self::tell_doing("warming up", Duration::ZERO),
            None => {}
        }
    }

    fn second(&mut self, seen: &SecondSeen<'_>) {
        tell(&Event::Second(SecondEvent {
            trial: self.trial(),
            passed_seconds: self.passed.as_secs_f64(),
            share: self.share,
            left_seconds: self.pace.left(self.share),
            seconds: seen.seconds.iter().map(|second| SecondFigures::of(second, seen.operations)).collect(),
            used: seen.used.to_vec(),
            gauge: seen.gauge.map(|(name, level)| (name.to_owned(), level)),
        }));
    }

    fn fault(&mut self, name: &str, member: MemberId, stage: FaultStage, at: Duration) {
        let stage = match stage {
            FaultStage::Begun => "begun",
            FaultStage::Back => "back",
            FaultStage::Answers => "answers",
            FaultStage::Missed => "missed",
        };
        tell(&Event::Fault(FaultEvent {
            trial: self.trial(),
            fault: name.to_owned(),
            member: member.to_string(),
            stage: stage.to_owned(),
            at_seconds: at.as_secs_f64(),
        }));
    }

    fn kept(&mut self, result: &RunResult, cell: usize) {
        self.is_kept = true;
        let Some((of, trial)) = result.cells.get(cell).and_then(|of| Some((of, of.trials.last()?))) else {
            return;
        };
        let times = trial.times().ok().flatten();
        tell(&Event::Verdict(VerdictEvent {
            trial: self.trial(),
            cell,
            name: self.cell.clone(),
            round: trial.round,
            verdict: trial.audit.verdict.to_string(),
            said: trial.audit.to_string(),
            breaks_promise: trial.audit.breaks_promise(&of.without),
            per_second: trial.throughput,
            p50_ns: times.as_ref().and_then(LatencyFigures::p50),
            p99_ns: times.as_ref().and_then(LatencyFigures::p99),
            so_far: SoFar::of(result).into(),
        }));
    }

    fn skip(&mut self) {
        self.pace.skip();
    }

    fn end(&mut self, verdict: &str) {
        if !self.is_kept {
            tell(&Event::NotRun { cell: self.cell.clone(), why: verdict.to_owned() });
        }
        self.pace.done += 1;
    }
}
