//! A worker: a process that drives some of a trial's clients, and is told which by another process.

use std::{
    io::{BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Report, Stop, Trial};
use acidtest_protocol::{Error, Reader, Writer, answer_greeting};
use acidtest_workloads::{Consuming, MessageCounts, Store, WorkloadTrial, hosted::Hosted};

use crate::{
    Failure, Opener, Target,
    answer::{is_hosted, open},
    description::TrialDescription,
    message::{FromWorker, PROTOCOL, ToWorker},
};

/// How often it tells how far it has come.
const BEAT: Duration = Duration::from_millis(5);

/// Drives what it is told on `input`, and tells on `output` what its clients did. `find` finds a store by its name.
/// It ends when nobody talks to it any more, which is when its clients have ended and their ledger was read.
///
/// # Errors
/// What it was told makes no sense, or cannot be done; the other side has been told, if it is still there.
pub async fn work(
    input: impl BufRead + Send + 'static,
    output: impl Write,
    find: impl Fn(&str) -> Option<&'static dyn Opener>,
) -> Result<(), Failure> {
    let clock = Instant::now();
    let (mut input, mut output) = (Reader::new(input), Writer::new(output));
    match answer_greeting(&mut input, &mut output, PROTOCOL) {
        Ok(()) => {}
        Err(Error::Ended) => return Ok(()),
        Err(error @ Error::AnotherVersion { .. }) => {
            return Err(Failure::Usage(format!("the process that judges the trial {error}")));
        }
        Err(error) => return Err(broken(&error)),
    }
    let Some(description) = introduced(&mut input, &mut output, clock)? else { return Ok(()) };
    let done = drive(&description, clock, input, &mut output, find).await;
    if let Err(failure) = &done {
        // it may be gone, and this failure with it
        let _ = output.send(&FromWorker::Failed(failure.to_string()));
    }
    done
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("a message between processes is broken: {error}"))
}

/// Answers until it is told what to drive; none if the other side ends before.
fn introduced(
    input: &mut Reader<impl BufRead>,
    output: &mut Writer<impl Write>,
    clock: Instant,
) -> Result<Option<TrialDescription>, Failure> {
    loop {
        let answer = match input.receive().map_err(|error| broken(&error))? {
            None => return Ok(None),
            Some(ToWorker::Time) => FromWorker::Time {
                nanoseconds: i64::try_from(clock.elapsed().as_nanos()).unwrap_or(i64::MAX),
            },
            Some(ToWorker::Drive(description)) => return Ok(Some(*description)),
            // nothing has begun that they could be about
            Some(ToWorker::Instruction(_) | ToWorker::Elsewhere(_) | ToWorker::Boundary { .. }) => continue,
        };
        output.send(&answer).map_err(|error| broken(&error))?;
    }
}

/// Opens the store and drives the clients to their end.
async fn drive(
    description: &TrialDescription,
    clock: Instant,
    input: Reader<impl BufRead + Send + 'static>,
    output: &mut Writer<impl Write>,
    find: impl Fn(&str) -> Option<&'static dyn Opener>,
) -> Result<(), Failure> {
    let opener = find(&description.store)
        .ok_or_else(|| Failure::Usage(format!("{} is not in this build", description.store)))?;
    let workload = description.workload().map_err(Failure::Usage)?;
    let mut setup = description.setup.clone();
    let back = Duration::from_nanos(description.origin.unsigned_abs());
    let origin = if description.origin < 0 { clock.checked_sub(back) } else { clock.checked_add(back) };
    setup.origin = origin.ok_or_else(|| Failure::Usage("the trial's clock is out of range".to_owned()))?;
    let (address, locks) = description.addresses();
    let target = Target { opener, address: Some(address.clone()) };
    let store = if is_hosted(&target, &address) {
        let hosted = Hosted::open(&address, Some(description.hosted())).await?;
        Box::new(hosted) as Box<dyn Store>
    } else {
        open(&target, &address, description.options(locks.as_ref())).await?
    };
    let (clients, part) = (setup.clients as usize, setup.part);
    let trial: Arc<dyn WorkloadTrial> = Arc::from(workload.trial(setup));
    let tasks = description.tasks(&*trial, &*store)?;
    let (told, reports) = mpsc::channel();
    let engine = Trial::part(description.load(workload.spec()), clients, part, told);
    let (answers, answered) = mpsc::channel();
    let listens = listen(input, engine.clone(), Arc::clone(&trial), answers)?;
    let runs = engine.clone();
    let running = thread::Builder::new().name("trial".to_owned()).spawn(move || runs.run(tasks));
    let running = running.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    let is_over = tell(&engine, &*trial, (&reports, &answered), &listens, output).await?;
    if !is_over {
        // nobody listens: what was done is lost, and the process ends with what is still in flight
        return Ok(());
    }
    match running.join() {
        Ok(ran) => ran.map_err(|error| Failure::Other(error.to_string()))?,
        Err(_) => return Err(Failure::Other("the engine panicked: a defect of acidtest".to_owned())),
    };
    let ledger = trial.ledger().written().map_err(Failure::Other)?;
    output.send(&FromWorker::Ledger(ledger)).map_err(|error| broken(&error))?;
    // a ledger may name files that are open here and have no name any more
    while listens.load(Relaxed) {
        tokio::time::sleep(BEAT).await;
    }
    Ok(())
}

/// Follows what comes in, on a thread of its own. The flag says whether anybody still talks.
fn listen(
    mut input: Reader<impl BufRead + Send + 'static>,
    engine: Trial,
    trial: Arc<dyn WorkloadTrial>,
    answers: Sender<u64>,
) -> Result<Arc<AtomicBool>, Failure> {
    let talks = Arc::new(AtomicBool::new(true));
    let hears = Arc::clone(&talks);
    let listening = move || {
        loop {
            match input.receive() {
                Ok(Some(ToWorker::Instruction(instruction))) => engine.follow(instruction),
                Ok(Some(ToWorker::Elsewhere(counts))) => {
                    if let Some(consuming) = trial.consuming() {
                        consuming.note_elsewhere(counts);
                    }
                }
                Ok(Some(ToWorker::Boundary { number, boundary })) => {
                    trial.ledger().note_boundary(boundary);
                    // at the very end nobody tells it any more
                    let _ = answers.send(number);
                }
                Ok(Some(ToWorker::Time | ToWorker::Drive(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        engine.stop(Stop::Interrupted);
        engine.give_up();
        hears.store(false, Relaxed);
    };
    let listens = thread::Builder::new().name("listen".to_owned()).spawn(listening);
    listens.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    Ok(talks)
}

/// Tells what the clients report, until they are over. Returns whether anybody was there to listen.
async fn tell(
    engine: &Trial,
    trial: &dyn WorkloadTrial,
    (reports, answers): (&Receiver<Report>, &Receiver<u64>),
    listens: &AtomicBool,
    output: &mut Writer<impl Write>,
) -> Result<bool, Failure> {
    let (mut counted, mut beaten, mut stopped) = (MessageCounts::default(), None, false);
    loop {
        let mut is_over = false;
        for report in reports.try_iter() {
            is_over |= matches!(report, Report::Over { .. });
            if output.send(&FromWorker::Report(report)).is_err() {
                return Ok(false);
            }
        }
        if is_over {
            return Ok(true);
        }
        let mut news: Vec<_> = answers.try_iter().map(|number| FromWorker::Noted { number }).collect();
        if let Some(reason) = engine.stopped().filter(|_| !stopped) {
            stopped = true;
            news.push(FromWorker::Report(Report::Stopped(reason)));
        }
        let beat = engine.beat();
        let shown = format!("{beat:?}");
        if beaten.as_ref() != Some(&shown) {
            beaten = Some(shown);
            news.push(FromWorker::Report(beat));
        }
        if let Some(counts) = trial.consuming().map(Consuming::counts).filter(|counts| *counts != counted) {
            counted = counts;
            news.push(FromWorker::Counts(counts));
        }
        for message in &news {
            if output.send(message).is_err() {
                return Ok(false);
            }
        }
        if !listens.load(Relaxed) {
            return Ok(false);
        }
        // drivers may have tasks of their own on this thread
        tokio::time::sleep(BEAT).await;
    }
}

#[cfg(test)]
mod tests {
    use acidtest_protocol::Protocol;

    use super::*;

    /// It is answered, so that the other side can say the same.
    #[test]
    fn what_is_told_in_another_version_is_not_done() {
        let (mut told, mut answered) = (Vec::new(), Vec::new());
        let mut judge = Writer::new(&mut told);
        judge.greet(Protocol { version: PROTOCOL.version + 1, ..PROTOCOL }).unwrap();
        judge.send(&ToWorker::Time).unwrap();
        let told: &'static [u8] = told.leak();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let refused = runtime.block_on(work(told, &mut answered, |_| None)).unwrap_err();
        assert!(matches!(refused, Failure::Usage(_)));
        assert!(refused.to_string().ends_with("use the same version of acidtest for both"), "{refused}");
        let mut answered = Reader::new(&*answered);
        answered.expect_greeting(PROTOCOL).unwrap();
        assert!(answered.receive::<FromWorker>().unwrap().is_none());
    }
}
