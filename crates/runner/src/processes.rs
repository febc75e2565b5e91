//! The processes that drive the clients of a trial, as the one that judges it sees them.

use std::{
    io::{BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use acidtest_engine::{Instruction, Measurement, News, Trial};
use acidtest_protocol::{Error, Reader, Writer};
use acidtest_workloads::{Boundary, MessageCounts, WorkloadTrial, WrittenLedger};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Failure,
    description::TrialDescription,
    message::{FromWorker, PROTOCOL, ToWorker},
};

/// How long a worker may take to answer before it drives anything.
const READY: Duration = Duration::from_secs(30);

/// How often a worker's clock is asked for; the answer that came soonest counts.
const ASKED: u32 = 10;

/// How long a worker may take to note what happens to the server. Its clients' observations prove nothing across that
/// moment if it takes longer.
const NOTED: Duration = Duration::from_secs(1);

/// Bytes of a worker's last words that are kept.
const LAST_WORDS: usize = 2000;

type ToWorkers = Writer<Box<dyn Write + Send>>;

type FromWorkers = Reader<BufReader<Box<dyn Read + Send>>>;

/// One process that drives clients, and the streams to it.
pub struct Worker {
    to: ToWorkers,
    from: Option<FromWorkers>,
    process: Option<Arc<Process>>,
}

/// A process that this one started. Dropping it ends the process.
struct Process {
    child: Mutex<Child>,
    last_words: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl Process {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal, unless the process has ended.
    fn signal(&self, signal: Signal) {
        let mut child = self.child();
        if let (Ok(None), Some(pid)) =
            (child.try_wait(), i32::try_from(child.id()).ok().and_then(Pid::from_raw))
        {
            // it may end at this moment, which is found elsewhere
            let _ = kill_process(pid, signal);
        }
    }

    /// How it ended, in words that follow `a client process`, once its streams have.
    fn end(&self) -> String {
        let begun = Instant::now();
        let mut child = self.child();
        let how = loop {
            match child.try_wait() {
                Ok(Some(status)) => match (status.signal(), status.code()) {
                    (Some(signal), _) => break format!("was killed by signal {signal}"),
                    (None, code) => break format!("ended with exit code {}", code.unwrap_or_default()),
                },
                Ok(None) if begun.elapsed() < Duration::from_secs(5) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(None) => break "closed its streams".to_owned(),
                Err(error) => break format!("cannot be found: {error}"),
            }
        };
        // what it said last may still be on its way
        while !self.reader.is_finished() && begun.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
        }
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.trim().is_empty() { how } else { format!("{how}; it said: {}", words.trim()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // one that has ended already is only waited for
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Worker {
    /// A worker at the other end of these streams.
    pub fn over(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> Self {
        let from: Box<dyn Read + Send> = Box::new(from);
        Self { to: Writer::new(Box::new(to)), from: Some(Reader::new(BufReader::new(from))), process: None }
    }

    /// Starts a worker as a process of its own, in the folder if one is given.
    fn start(mut command: Command, folder: Option<&Path>) -> Result<Self, Failure> {
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        // an interrupt of the terminal is for the process that judges the trial
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |why: &dyn std::fmt::Display| {
            Failure::Other(format!("cannot start a process for clients: {why}"))
        };
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let (to, from, words) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(words)) = (to, from, words) else {
            return Err(failed(&"it has no standard streams"));
        };
        let last_words = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&last_words);
        let reader = thread::spawn(move || keep_last_words(words, &kept));
        let process = Arc::new(Process { child: Mutex::new(child), last_words, reader });
        Ok(Self { process: Some(process), ..Self::over(from, to) })
    }

    fn tell(&mut self, message: &ToWorker) -> Result<(), Failure> {
        self.to.send(message).map_err(|error| self.gone(&error))
    }

    /// How it ended, or else why it is thought to have: words that follow `a client process`.
    fn gone(&self, why: &dyn std::fmt::Display) -> Failure {
        let how = self.process.as_ref().map_or_else(|| why.to_string(), |process| process.end());
        Failure::Store(format!("a client process {how}"))
    }
}

fn keep_last_words(mut words: impl Read, kept: &Mutex<String>) {
    let mut bytes = [0; 512];
    while let Ok(read @ 1..) = words.read(&mut bytes) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_str(&String::from_utf8_lossy(&bytes[..read]));
        let from = kept.ceil_char_boundary(kept.len().saturating_sub(LAST_WORDS));
        kept.drain(..from);
    }
}

/// What workers told that is not for the engine.
#[derive(Default)]
struct Inbox {
    counts: Vec<MessageCounts>,
    /// The last number of what happened to the server that each has noted.
    noted: Vec<u64>,
    ledgers: Vec<Option<WrittenLedger>>,
}

/// The workers of one trial.
pub struct Processes {
    workers: Vec<Arc<Mutex<ToWorkers>>>,
    children: Vec<Option<Arc<Process>>>,
    /// Which of them are stopped by a signal.
    stalled: Vec<bool>,
    news: Option<Receiver<(usize, News)>>,
    inbox: Arc<Mutex<Inbox>>,
    readers: Vec<thread::JoinHandle<()>>,
    told: Vec<MessageCounts>,
    /// How many times they were told what happens to the server.
    crashes: u64,
    /// Which of them have noted each crash in time.
    know_crashes: Vec<bool>,
}

impl Processes {
    /// Starts so many workers, each by this command.
    ///
    /// # Errors
    /// One cannot be started.
    pub(crate) fn start(
        count: usize,
        command: &dyn Fn() -> Command,
        folder: Option<&Path>,
    ) -> Result<Vec<Worker>, Failure> {
        (0..count).map(|_| Worker::start(command(), folder)).collect()
    }

    /// Tells each of the workers what to drive. `origin` is the moment from which the trial's own times count.
    ///
    /// # Errors
    /// A worker does not answer, or not as one of this version does.
    pub fn describe(
        workers: Vec<Worker>,
        origin: Instant,
        description: impl Fn(usize) -> TrialDescription,
    ) -> Result<Self, Failure> {
        let (news, told) = mpsc::channel();
        let count = workers.len();
        let (counts, noted) = (vec![MessageCounts::default(); count], vec![0; count]);
        let inbox = Inbox { counts, noted, ledgers: (0..count).map(|_| None).collect() };
        let inbox = Arc::new(Mutex::new(inbox));
        let mut all = Self {
            told: vec![MessageCounts::default(); count],
            crashes: 0,
            know_crashes: vec![true; count],
            stalled: vec![false; count],
            workers: Vec::new(),
            children: Vec::new(),
            news: Some(told),
            inbox: Arc::clone(&inbox),
            readers: Vec::new(),
        };
        for (index, mut worker) in workers.into_iter().enumerate() {
            let (greetings, greeted) = mpsc::channel();
            let (answers, answered) = mpsc::channel();
            let (from, process) = (worker.from.take(), worker.process.clone());
            let (news, inbox) = (news.clone(), Arc::clone(&inbox));
            let listener = Listener { index, news, inbox, process, greetings, answers };
            let reading = move || {
                if let Some(from) = from {
                    listener.listen(from);
                }
            };
            let started = thread::Builder::new().name(format!("worker-{index}")).spawn(reading);
            all.readers
                .push(started.map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?);
            greet(&mut worker, &greeted)?;
            let mut described = description(index);
            described.origin = origin_of(&mut worker, &answered, origin)?;
            worker.tell(&ToWorker::Drive(Box::new(described)))?;
            all.children.push(worker.process.clone());
            all.workers.push(Arc::new(Mutex::new(worker.to)));
        }
        Ok(all)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().flatten().map(|process| process.child().id()).collect()
    }

    /// What brings together what the workers report; to be called once, on a thread of its own.
    pub(crate) fn gathering(&mut self) -> impl FnOnce(&Trial) -> Measurement + Send + 'static {
        let (news, workers) = (self.news.take(), self.workers.clone());
        move |trial| {
            let news = news.unwrap_or_else(|| mpsc::channel().1);
            trial.gather(workers.len(), &news, |instruction| tell(&workers, instruction))
        }
    }

    /// Lets the workers know how far the others have come, and the trial how far all have.
    pub(crate) fn exchange(&mut self, trial: &dyn WorkloadTrial) {
        let Some(consuming) = trial.consuming() else { return };
        let counts = self.inbox().counts.clone();
        let all = counts.iter().fold(MessageCounts::default(), |sum, each| MessageCounts {
            published: sum.published + each.published,
            delivered: sum.delivered + each.delivered,
        });
        consuming.note_elsewhere(all);
        for (index, own) in counts.iter().enumerate() {
            let others = MessageCounts {
                published: all.published - own.published,
                delivered: all.delivered - own.delivered,
            };
            // a pipe to a process that is stopped may be full
            if self.told[index] != others && !self.stalled[index] {
                self.told[index] = others;
                // one that is gone is found by its reader
                let _ = lock(&self.workers[index]).send(&ToWorker::Elsewhere(others));
            }
        }
    }

    /// Tells the workers what happens to the server. Before it is ended, waits until they have noted it.
    pub(crate) fn note_boundary(&mut self, boundary: Boundary) {
        self.crashes += 1;
        let number = self.crashes;
        for worker in &self.workers {
            // one that is gone is found by its reader
            let _ = lock(worker).send(&ToWorker::Boundary { number, boundary });
        }
        if boundary == Boundary::After {
            return;
        }
        let told = Instant::now();
        let waits = |index: usize, inbox: &Inbox| inbox.noted[index] < number;
        while told.elapsed() < NOTED
            && (0..self.count()).any(|index| !self.stalled[index] && waits(index, &self.inbox()))
        {
            thread::sleep(Duration::from_millis(1));
        }
        for index in 0..self.count() {
            // one that is stopped by a signal goes on in another life, and does not know it at once
            let late = self.stalled[index] || waits(index, &self.inbox());
            self.know_crashes[index] &= !late;
        }
    }

    /// Whether a process is stopped by a signal.
    pub(crate) fn is_stalled(&self, index: usize) -> bool {
        self.stalled[index]
    }

    /// Ends the processes, also those that are stopped by a signal.
    pub(crate) fn kill(&self) {
        self.children.iter().flatten().for_each(|process| process.signal(Signal::KILL));
    }

    /// Stops a process by a signal. Returns whether there is one.
    pub(crate) fn stall(&mut self, index: usize) -> bool {
        let process = self.children.get(index).and_then(Option::as_ref);
        if let Some(process) = process {
            process.signal(Signal::STOP);
            self.stalled[index] = true;
        }
        process.is_some()
    }

    /// Lets a process that was stopped go on.
    pub(crate) fn go_on(&mut self, index: usize) {
        if let Some(Some(process)) = self.children.get(index) {
            process.signal(Signal::CONT);
            self.stalled[index] = false;
        }
    }

    /// Lets every process that was stopped go on.
    pub(crate) fn go_on_all(&mut self) {
        (0..self.count())
            .filter(|index| self.stalled[*index])
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|index| self.go_on(index));
    }

    /// Takes the workers' ledgers into the trial's, once they are over.
    ///
    /// # Errors
    /// A worker has left none, or not one of this trial.
    pub(crate) fn merge(mut self, trial: &dyn WorkloadTrial) -> Result<(), Failure> {
        for reader in self.readers.drain(..) {
            // a reader that panicked has left no ledger
            let _ = reader.join();
        }
        let ledgers = std::mem::take(&mut self.inbox().ledgers);
        // their messages are in their ledgers
        if let Some(consuming) = trial.consuming() {
            consuming.note_elsewhere(MessageCounts::default());
        }
        for (ledger, knows_boundaries) in ledgers.into_iter().zip(&self.know_crashes) {
            let ledger =
                ledger.ok_or_else(|| Failure::Store("a client process left no ledger".to_owned()))?;
            trial
                .ledger()
                .merge(&ledger, *knows_boundaries)
                .map_err(|why| Failure::Other(format!("a client process's ledger: {why}")))?;
        }
        Ok(())
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }
}

impl Drop for Processes {
    /// Ends the processes, also those that were stopped by a signal.
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(workers: &[Arc<Mutex<ToWorkers>>], instruction: Instruction) {
    for worker in workers {
        // one that is gone is found by its reader
        let _ = lock(worker).send(&ToWorker::Instruction(instruction));
    }
}

/// The next answer of a worker that drives nothing yet.
fn answer(worker: &Worker, answered: &Receiver<FromWorker>) -> Result<FromWorker, Failure> {
    match awaited(worker, answered)? {
        FromWorker::Failed(why) => Err(Failure::Store(format!("a client process failed: {why}"))),
        answer => Ok(answer),
    }
}

/// What comes next of this kind from a worker that drives nothing yet.
fn awaited<T>(worker: &Worker, from: &Receiver<T>) -> Result<T, Failure> {
    match from.recv_timeout(READY) {
        Ok(said) => Ok(said),
        Err(RecvTimeoutError::Disconnected) => Err(worker.gone(&"closed its connection")),
        Err(RecvTimeoutError::Timeout) => {
            Err(Failure::Store(format!("a client process did not answer within {} s", READY.as_secs())))
        }
    }
}

fn greet(worker: &mut Worker, greeted: &Receiver<Result<(), Error>>) -> Result<(), Failure> {
    let sent = worker.to.greet(PROTOCOL);
    // one that has ended because it is of another version has said so before
    awaited(worker, greeted)?.and(sent).map_err(|error| {
        if error.is_mismatch() {
            Failure::Store(format!("a client process {error}"))
        } else {
            worker.gone(&error)
        }
    })
}

/// When the trial's own times begin, by the worker's clock: it is asked for a few times, and the answer counts that
/// took least, because half of what it took is how wrong it may be.
fn origin_of(worker: &mut Worker, answered: &Receiver<FromWorker>, origin: Instant) -> Result<i64, Failure> {
    let mut best: Option<(Duration, i64)> = None;
    for _ in 0..ASKED {
        let asked = Instant::now();
        worker.tell(&ToWorker::Time)?;
        let FromWorker::Time { nanoseconds } = answer(worker, answered)? else {
            return Err(Failure::Store(
                "a client process did not answer the request for its clock".to_owned(),
            ));
        };
        let took = asked.elapsed();
        let then = (asked + took / 2).saturating_duration_since(origin);
        let begun = nanoseconds.saturating_sub(i64::try_from(then.as_nanos()).unwrap_or(i64::MAX));
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, begun));
        }
    }
    Ok(best.map_or(0, |(_, begun)| begun))
}

/// Takes what one worker tells, to its end.
struct Listener {
    index: usize,
    news: Sender<(usize, News)>,
    inbox: Arc<Mutex<Inbox>>,
    process: Option<Arc<Process>>,
    greetings: Sender<Result<(), Error>>,
    answers: Sender<FromWorker>,
}

impl Listener {
    fn listen(self, mut from: FromWorkers) {
        let greeted = from.expect_greeting(PROTOCOL);
        let is_greeted = greeted.is_ok();
        // whoever waits for it may have given up
        let _ = self.greetings.send(greeted);
        if !is_greeted {
            return;
        }
        let gone = loop {
            match from.receive() {
                Ok(Some(FromWorker::Report(report))) => {
                    _ = self.news.send((self.index, News::Report(report)));
                }
                Ok(Some(FromWorker::Counts(counts))) => lock(&self.inbox).counts[self.index] = counts,
                Ok(Some(FromWorker::Noted { number })) => lock(&self.inbox).noted[self.index] = number,
                Ok(Some(FromWorker::Ledger(ledger))) => {
                    lock(&self.inbox).ledgers[self.index] = Some(ledger);
                    return;
                }
                Ok(Some(FromWorker::Failed(why))) => {
                    let _ = self.answers.send(FromWorker::Failed(why.clone()));
                    break format!("failed: {why}");
                }
                // whoever waits for it may have given up
                Ok(Some(answer)) => _ = self.answers.send(answer),
                Ok(None) => break self.ended("closed its connection"),
                Err(error) => break self.ended(&error.to_string()),
            }
        };
        // after the end of a trial nobody waits for it
        let _ = self.news.send((self.index, News::Gone(gone)));
    }

    fn ended(&self, how: &str) -> String {
        self.process.as_ref().map_or_else(|| how.to_owned(), |process| process.end())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use acidtest_engine::{Extent, Load, Part};
    use acidtest_model::{Address, Durability, Lock};
    use acidtest_protocol::{Protocol, answer_greeting};
    use acidtest_workloads::{Place, TrialSetup, Values};

    use super::*;

    /// Answers as a worker of this protocol does, but for crashes only if it `notes` them.
    fn worker_of(protocol: Protocol, notes: bool) -> Worker {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut from = Reader::new(BufReader::new(theirs.try_clone().unwrap()));
            let mut to = Writer::new(&theirs);
            if answer_greeting(&mut from, &mut to, protocol).is_err() {
                return;
            }
            while let Ok(Some(message)) = from.receive() {
                let answer = match message {
                    ToWorker::Time => FromWorker::Time { nanoseconds: 0 },
                    ToWorker::Boundary { number, .. } if notes => FromWorker::Noted { number },
                    _ => continue,
                };
                to.send(&answer).unwrap();
            }
        });
        Worker::over(ours.try_clone().unwrap(), ours)
    }

    fn worker(notes: bool) -> Worker {
        worker_of(PROTOCOL, notes)
    }

    fn described(index: usize) -> TrialDescription {
        TrialDescription {
            workload: "inventory".to_owned(),
            parameters: Values::new(),
            setup: TrialSetup { part: Part::deal(2, 2, 2)[index], ..TrialSetup::new(Lock::Native, 1, 2) },
            origin: 0,
            store: "none".to_owned(),
            address: (&Address::file("none", "x")).into(),
            durability: Some(Durability::None),
            locks: None,
            place: Place { namespace: "x".to_owned(), trial: 1 },
            gateway: None,
            load: Load::closed(&["capture"], Extent::Operations(1)),
        }
    }

    #[test]
    fn a_worker_of_another_version_is_refused() {
        let other = worker_of(Protocol { version: PROTOCOL.version + 1, ..PROTOCOL }, true);
        let refused = Processes::describe(vec![worker(true), other], Instant::now(), described);
        let said = format!(
            "a client process speaks version {} of the worker protocol, and this acidtest version {} of the worker \
             protocol: use the same version of acidtest for both",
            PROTOCOL.version + 1,
            PROTOCOL.version
        );
        assert_eq!(refused.err().unwrap().to_string(), said);
    }

    /// What a process saw that did not know of a crash in time is no proof, and one that says nothing holds up nobody for
    /// long.
    #[test]
    fn who_notes_a_crash_in_time_is_told_from_who_does_not() {
        let mut all =
            Processes::describe(vec![worker(true), worker(false)], Instant::now(), described).unwrap();
        assert_eq!(all.know_crashes, [true, true]);
        let begun = Instant::now();
        all.note_boundary(Boundary::After);
        assert!(begun.elapsed() < NOTED, "there is nothing to wait for");
        all.note_boundary(Boundary::Before);
        assert_eq!(all.know_crashes, [true, false]);
        // one that stands still is not waited for, and does not know
        all.stalled = vec![true, false];
        all.know_crashes = vec![true, true];
        all.note_boundary(Boundary::During);
        assert_eq!(all.know_crashes, [false, false]);
    }
}
