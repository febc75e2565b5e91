//! Publishes to or consumes from a queue of its own by a client of others, and says how fast and at what cost.
//!
//! What is measured begins 500 ms after the clients have begun, as acidtest's does, and lasts as long as is asked for. Every
//! message must be confirmed, or the run fails. One line is printed, in JSON: messages a second, and the seconds of CPU that
//! this process has used for each.

mod amqprs;
mod async_nats;
mod lapin;

use std::{
    env,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tokio::{runtime, task::JoinSet};

const USAGE: &str =
    "usage: clients lapin|amqprs|async-nats publish|consume ADDRESS CONNECTIONS WINDOW SECONDS BYTES BACKLOG
  WINDOW   messages of a producer without confirmation, or ahead of a consumer
  BYTES    length of a message
  BACKLOG  messages in the queue before it is consumed from";
const WARM_UP: Duration = Duration::from_millis(500);
/// How long clients may take to end what is in flight.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the queue, or of the stream, its subject and its consumer.
const NAME: &str = "clients";
/// Messages of one producer without confirmation while a queue is filled.
const FILLING: usize = 1000;

pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What is asked for.
#[derive(Clone, Debug)]
struct Setup {
    connections: usize,
    window: usize,
    seconds: f64,
    bytes: usize,
    backlog: u64,
}

/// What the clients of a run share.
#[derive(Debug, Default)]
struct Progress {
    messages: AtomicU64,
    stops: AtomicBool,
    /// How many messages there are to be; 0 where time decides.
    most: u64,
}

impl Progress {
    fn up_to(most: u64) -> Arc<Self> {
        Arc::new(Self { most, ..Self::default() })
    }

    fn ended(&self, messages: u64) {
        self.messages.fetch_add(messages, Relaxed);
    }

    /// Whether a client that has begun so many is to begin no more.
    fn is_over(&self, begun: u64) -> bool {
        self.stops.load(Relaxed) || (self.most > 0 && begun >= self.most)
    }
}

/// A client library. Each of its tasks has a connection of its own.
trait Library: Clone + Send + Sync + 'static {
    /// Makes the queue.
    fn create(&self) -> impl Future<Output = Result<()>> + Send;
    /// Removes the queue.
    fn remove(&self) -> impl Future<Output = Result<()>> + Send;
    /// Publishes messages, at most `window` of them unconfirmed, until it is over and all are confirmed.
    fn publish(
        &self,
        window: usize,
        bytes: usize,
        progress: Arc<Progress>,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Takes messages, each with an acknowledgement, at most `window` of them ahead, until it is over.
    fn consume(&self, window: usize, progress: Arc<Progress>) -> impl Future<Output = Result<()>> + Send;
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok((rate, cpu)) => {
            println!("{{\"throughput\": {rate}, \"cpu_seconds\": {cpu}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("clients: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(f64, f64)> {
    let [library, operation, address, connections, window, seconds, bytes, backlog] = arguments else {
        return Err(USAGE.into());
    };
    let (_, endpoint) = address.split_once("://").ok_or("the address has no scheme")?;
    let endpoint = endpoint.rsplit('@').next().unwrap_or_default().trim_end_matches('/');
    let setup = Setup {
        connections: connections.parse()?,
        window: window.parse()?,
        seconds: seconds.parse()?,
        bytes: bytes.parse()?,
        backlog: backlog.parse()?,
    };
    let publishes = match operation.as_str() {
        "publish" => true,
        "consume" => false,
        _ => return Err(USAGE.into()),
    };
    match library.as_str() {
        "lapin" => whole(&lapin::Lapin::new(endpoint), &setup, publishes),
        "amqprs" => whole(&amqprs::Amqprs::new(endpoint)?, &setup, publishes),
        "async-nats" => whole(&async_nats::AsyncNats::new(endpoint), &setup, publishes),
        _ => Err(USAGE.into()),
    }
}

/// Drives a future by a runtime of this thread's own.
fn drive<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// A run with a queue of its own.
fn whole(library: &impl Library, setup: &Setup, publishes: bool) -> Result<(f64, f64)> {
    drive(library.create())?;
    let measured = measured(library, setup, publishes);
    let removed = drive(library.remove());
    measured.and_then(|measured| removed.map(|()| measured))
}

fn measured(library: &impl Library, setup: &Setup, publishes: bool) -> Result<(f64, f64)> {
    if !publishes {
        drive(library.publish(FILLING, setup.bytes, Progress::up_to(setup.backlog)))?;
    }
    let progress = Progress::up_to(0);
    let (threads, ended) = start(library, setup, publishes, &progress)?;
    let work_for = |time| match ended.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => Ok(()),
        Ok(Err(error)) => Err(error),
        _ => Err("a client has ended before its time was over".into()),
    };
    work_for(WARM_UP)?;
    let (messages, cpu, since) = (progress.messages.load(Relaxed), cpu_seconds(), Instant::now());
    work_for(Duration::from_secs_f64(setup.seconds))?;
    let (done, used) = (progress.messages.load(Relaxed) - messages, cpu_seconds() - cpu);
    let took = since.elapsed().as_secs_f64();
    if !publishes && progress.messages.load(Relaxed) >= setup.backlog {
        return Err("the queue was empty before its time was over: give more backlog".into());
    }
    progress.stops.store(true, Relaxed);
    for _ in 0..threads {
        ended.recv_timeout(PATIENCE).map_err(|_| "the clients do not end")??;
    }
    if done == 0 {
        return Err("no message was confirmed".into());
    }
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let done = done as f64;
    Ok((done / took, used / done))
}

/// Deals the clients to threads, one a core, each with a runtime of its own. A thread says how its clients have ended.
fn start(
    library: &impl Library,
    setup: &Setup,
    publishes: bool,
    progress: &Arc<Progress>,
) -> Result<(usize, Receiver<Result<()>>)> {
    let Setup { connections, window, bytes, .. } = *setup;
    let threads = thread::available_parallelism()?.get().min(connections);
    let (say, ended) = mpsc::channel();
    for number in 0..threads {
        let (library, progress, say) = (library.clone(), Arc::clone(progress), say.clone());
        thread::spawn(move || {
            let client = |_| {
                let (library, progress) = (library.clone(), Arc::clone(&progress));
                async move {
                    if publishes {
                        library.publish(window, bytes, progress).await
                    } else {
                        library.consume(window, progress).await
                    }
                }
            };
            let clients = (number..connections).step_by(threads).map(client);
            // nobody listens any more where a client of another thread has failed
            let _ = say.send(drive(all(clients)));
        });
    }
    Ok((threads, ended))
}

/// Drives clients to their end, or to the first that fails.
async fn all(clients: impl Iterator<Item = impl Future<Output = Result<()>> + Send + 'static>) -> Result<()> {
    let mut clients: JoinSet<_> = clients.collect();
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

/// The CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss)] // some minutes
    let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    seconds
}
