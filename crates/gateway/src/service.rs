//! A gateway from its start to its end.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    Architecture, Config, Error, QueueKind,
    collector::Collectors,
    direct::Direct,
    http::{self, Keeper, Limits, Service},
    limit::{Look, Seconds, Setup, Watch},
    metrics::Metrics,
    queue::{Depth, DiskOptions, DiskQueue, MemoryQueue, Queue},
    recent::Recent,
    sink::Sink,
    users::{Authenticator, Users},
};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// The least size of a queue on disk, in bytes.
const LEAST: u64 = 32 << 20;
/// The bytes of a segment of a queue on disk, but for small queues.
const SEGMENT: u64 = 64 << 20;

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it runs with, for people: names and words.
    pub about: Vec<(&'static str, String)>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Ended>,
}

/// How a gateway ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What has ended it, if nobody has: a defect of acidtest.
    pub defect: Option<String>,
    /// Entries that were acknowledged and not stored within the time for that.
    pub left: u64,
    /// Whether they are kept for the next start: otherwise they are lost.
    pub are_kept: bool,
}

/// Starts a gateway on threads of its own.
///
/// # Errors
/// If the configuration makes no sense, a database cannot be reached, or the address cannot be listened on.
pub async fn start(config: Config) -> Result<Running, Error> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(config.threads.get())
        .thread_name("gateway")
        .enable_all()
        .build()
        .map_err(|error| Error::Other(format!("cannot start threads: {error}")))?;
    let (ready, is_ready) = oneshot::channel();
    let (stop, stops) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    let main = move || {
        runtime.block_on(async {
            let gateway = match Gateway::open(&config).await {
                Ok(gateway) => gateway,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let told = (gateway.service.address, gateway.service.about.clone());
            // whoever started it may have left: then it is stopped
            let _ = ready.send(Ok(told));
            let _ = end.send(gateway.serve(stops, config.drain).await);
        });
        // what still waits for a database is not waited for
        runtime.shutdown_timeout(Duration::from_millis(200));
    };
    let started = thread::Builder::new().name("gateway".to_owned()).spawn(main);
    started.map_err(|error| Error::Other(format!("cannot start a thread: {error}")))?;
    let gone = |_| Error::Other("the gateway ended at its start: a defect of acidtest".to_owned());
    let (address, about) = is_ready.await.map_err(gone)??;
    Ok(Running { address, about, stop, ended })
}

impl Running {
    /// Takes no more requests, ends those that have begun, stores what waits, and returns how that ended.
    pub async fn stop(&mut self) -> Ended {
        let _ = self.stop.send(true);
        self.ended().await
    }

    /// Waits until the gateway ends, which it does by itself only for a defect.
    pub async fn ended(&mut self) -> Ended {
        let gone = |_| Ended { defect: Some("its threads are gone".to_owned()), left: 0, are_kept: false };
        (&mut self.ended).await.unwrap_or_else(gone)
    }
}

struct Gateway {
    listener: TcpListener,
    service: Arc<Service>,
    watch: Watch,
    seconds: watch::Sender<Arc<Seconds>>,
    collectors: Vec<JoinHandle<()>>,
}

impl Gateway {
    async fn open(config: &Config) -> Result<Self, Error> {
        let users = Users::open(&config.users).await?;
        let sink = Arc::new(Sink::open(&config.sink, &config.table).await?);
        let metrics = Arc::new(Metrics::new());
        let is_direct = config.architecture == Architecture::Direct;
        let (keeper, storing) = if is_direct {
            let most = config.sink_connections.get();
            (Keeper::Direct(Direct::new(Arc::clone(&sink), Arc::clone(&metrics), most)), most)
        } else {
            let collectors = collectors(config, &sink)?;
            let queue = Arc::new(queue(config, &metrics)?);
            let shared = Collectors::new(
                Arc::clone(&queue),
                Arc::clone(&sink),
                Arc::clone(&metrics),
                config.batch.get(),
                config.linger,
            );
            (Keeper::Queued { queue, recent: Recent::new(), collectors: Arc::new(shared) }, collectors)
        };
        let about = about(config, &sink, storing);
        let listener = listen(config.listen)?;
        let address = listener.local_addr().unwrap_or(config.listen);
        let setup = Setup { is_direct, threads: config.threads.get(), storing };
        let watch = Watch::new(setup, &metrics);
        let (seconds, seen) = watch::channel(Arc::default());
        let limits = Limits {
            connections: config.connections,
            body: config.body,
            head_time: config.head_time,
            body_time: config.body_time,
            idle_time: config.idle_time,
        };
        // the direct architecture looks users up for each request, as the study's first version did
        let remember = (!is_direct && !config.remember.is_zero()).then_some(config.remember);
        let authenticator = Authenticator::new(users, remember);
        let collecting = match &keeper {
            Keeper::Direct(_) => Vec::new(),
            Keeper::Queued { collectors, .. } => {
                (0..storing).map(|number| tokio::spawn(Arc::clone(collectors).collect(number))).collect()
            }
        };
        let service = Service::new(authenticator, metrics, keeper, seen, limits, address, about);
        Ok(Self { listener, service: Arc::new(service), watch, seconds, collectors: collecting })
    }

    /// Serves until it is told to stop, and then stores what waits, within this time.
    async fn serve(self, stop: watch::Receiver<bool>, drain: Duration) -> Ended {
        let Self { listener, service, watch, seconds, collectors } = self;
        let watching = tokio::spawn(keep_watch(Arc::clone(&service), watch, seconds));
        let refreshing = tokio::spawn(keep_users_fresh(Arc::clone(&service)));
        let looking = tokio::spawn(look_for_database(Arc::clone(&service)));
        let defect = tokio::select! {
            () = http::accept(listener, Arc::clone(&service), stop) => None,
            what = defect(&service.keeper, &collectors) => Some(what),
        };
        if let Some(what) = &defect {
            tracing::error!("{what}: the gateway ends, so that whoever keeps it running starts it anew");
        }
        refreshing.abort();
        looking.abort();
        let ended = service.keeper.end(collectors, drain).await;
        watching.abort();
        Ended { defect, ..ended }
    }
}

/// Waits until something has ended that does not end by itself.
async fn defect(keeper: &Keeper, collectors: &[JoinHandle<()>]) -> String {
    loop {
        sleep(Duration::from_secs(1)).await;
        if collectors.iter().any(JoinHandle::is_finished) {
            return "a collector has ended".to_owned();
        }
        if let Keeper::Queued { queue, .. } = keeper
            && queue.has_ended()
        {
            return "the thread that writes the queue has ended".to_owned();
        }
    }
}

impl Keeper {
    /// What waits to be stored.
    pub(crate) fn depth(&self) -> Depth {
        match self {
            Self::Direct(_) => Depth::default(),
            Self::Queued { queue, .. } => queue.depth(),
        }
    }

    /// Why entries are not kept at present, if they are not.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Direct(direct) => direct.trouble(),
            Self::Queued { queue, .. } => queue.trouble(),
        }
    }

    /// Waits until all is stored, within this time.
    async fn end(&self, collecting: Vec<JoinHandle<()>>, drain: Duration) -> Ended {
        let Self::Queued { queue, .. } = self else {
            if let Self::Direct(direct) = self {
                direct.close();
            }
            return Ended { defect: None, left: 0, are_kept: true };
        };
        queue.close();
        let until = Instant::now() + drain;
        while collecting.iter().any(|collector| !collector.is_finished()) && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        for collector in &collecting {
            collector.abort();
        }
        for collector in collecting {
            // aborted, or ended by itself
            let _ = collector.await;
        }
        queue.finish();
        Ended { defect: None, left: queue.depth().entries, are_kept: matches!(**queue, Queue::Disk(_)) }
    }
}

fn collectors(config: &Config, sink: &Sink) -> Result<usize, Error> {
    match config.collectors.map(NonZeroUsize::get) {
        Some(2..) if sink.has_one_writer() => Err(Error::Usage(
            "SQLite takes one transaction at a time: several collectors would wait for each other\n  remedy: leave out \
             --collectors"
                .to_owned(),
        )),
        Some(collectors) => Ok(collectors),
        None if sink.has_one_writer() => Ok(1),
        None => Ok(2),
    }
}

fn queue(config: &Config, metrics: &Arc<Metrics>) -> Result<Queue, Error> {
    if config.queue_size < LEAST {
        return Err(Error::Usage(format!(
            "a queue of {} bytes is too small for some requests\n  remedy: --queue-size 32MiB or more",
            config.queue_size
        )));
    }
    match config.queue {
        QueueKind::Memory => Ok(Queue::Memory(MemoryQueue::new(config.queue_size))),
        QueueKind::Disk => {
            let options = DiskOptions {
                folder: config.queue_folder.clone(),
                most_bytes: config.queue_size,
                segment: SEGMENT.min(config.queue_size / 4),
                #[cfg(test)]
                broken: Arc::default(),
                #[cfg(test)]
                panics: Arc::default(),
            };
            let queue = DiskQueue::open(options, Arc::clone(metrics)).map_err(|error| {
                Error::Other(format!("cannot use the queue in {}: {error}", config.queue_folder.display()))
            })?;
            Ok(Queue::Disk(queue))
        }
    }
}

fn about(config: &Config, sink: &Sink, storing: usize) -> Vec<(&'static str, String)> {
    let mut about = Vec::new();
    if config.architecture == Architecture::Direct {
        about.push((
            "architecture",
            format!(
                "direct: each entry is stored in a transaction of its own, over at most {storing} connections"
            ),
        ));
    } else {
        let collectors =
            if storing == 1 { "1 collector".to_owned() } else { format!("{storing} collectors") };
        about.push((
            "architecture",
            format!("queued: {collectors}, at most {} entries in a transaction", config.batch),
        ));
        about.push((
            "queue",
            match config.queue {
                QueueKind::Disk => format!(
                    "disk, in {}: an acknowledged entry survives what the disk's sync does",
                    config.queue_folder.display()
                ),
                QueueKind::Memory => {
                    "memory: acknowledged entries that wait are lost with the gateway".to_owned()
                }
            },
        ));
    }
    about.push(("sink", format!("{}, table {}; {}", config.sink, config.table, sink.about)));
    about.push(("users", config.users.to_string()));
    about
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // a gateway that is started again takes its port over from connections that have ended
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|error: std::io::Error| {
        Error::Other(format!(
            "cannot listen on {address}: {error}\n  remedy: another address or port by --listen"
        ))
    })
}

/// Looks once a second at what is done, for the page.
async fn keep_watch(service: Arc<Service>, mut watch: Watch, seconds: watch::Sender<Arc<Seconds>>) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        watch.look(&service.metrics, &look(&service));
        // the service holds a receiver
        let _ = seconds.send(Arc::new(watch.seconds.clone()));
    }
}

fn look(service: &Service) -> Look {
    let runtime = Handle::current().metrics();
    let threads_busy =
        (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
    let (sink_trouble, unanswered, unread) = match &service.keeper {
        Keeper::Queued { collectors, queue, .. } => {
            (collectors.trouble(), collectors.unanswered(), queue.unread())
        }
        Keeper::Direct(_) => (None, None, None),
    };
    Look {
        depth: service.keeper.depth(),
        threads_busy,
        connections: u64::try_from(service.metrics.connections.get()).unwrap_or(0),
        sink_trouble,
        unanswered,
        unread,
        trouble: service.trouble(),
    }
}

/// Tries once a second whether a database that took nothing can be reached again.
async fn look_for_database(service: Arc<Service>) {
    while let Keeper::Direct(direct) = &service.keeper {
        sleep(Duration::from_secs(1)).await;
        direct.look_for_database().await;
    }
}

/// Asks once a second whether users were added or revoked.
async fn keep_users_fresh(service: Arc<Service>) {
    let mut was_away = false;
    loop {
        let refreshed = service.authenticator.refresh().await;
        match refreshed {
            Err(error) if !was_away => {
                was_away = true;
                tracing::warn!(%error, "users cannot be looked up: those that are remembered are, until they expire");
            }
            Ok(()) if was_away => {
                was_away = false;
                tracing::info!("users are looked up again");
            }
            _ => {}
        }
        sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Address;
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_collector_that_has_ended_is_seen() {
        let folder = TempDir::new().unwrap();
        let file = Address::file("sqlite", &folder.path().join("logs.sqlite").to_string_lossy());
        let sink = Arc::new(Sink::open(&file, "logs").await.unwrap());
        let queue = Arc::new(Queue::Memory(MemoryQueue::new(1 << 20)));
        let metrics = Arc::new(Metrics::new());
        let collectors = Collectors::new(Arc::clone(&queue), sink, metrics, 10, Duration::ZERO);
        let keeper = Keeper::Queued { queue, recent: Recent::new(), collectors: Arc::new(collectors) };
        let waits = tokio::spawn(std::future::pending());
        let long = Duration::from_secs(3);
        assert!(timeout(long, defect(&keeper, &[waits])).await.is_err());
        let waits = tokio::spawn(std::future::pending());
        let panics = tokio::spawn(async { panic!("planted") });
        assert!(timeout(long, defect(&keeper, &[waits, panics])).await.unwrap().contains("collector"));
    }
}
