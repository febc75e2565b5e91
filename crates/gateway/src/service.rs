//! A gateway from its start to its end.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use acidtest_transport::{Acceptor, TlsError};
use acidtest_web::Listener;
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{Builder, Handle},
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    Architecture, CollectorConfig, Config, Error, Ids, Partial, QueueKind, Storage,
    collector::Collectors,
    depth::Depth,
    direct::Direct,
    http::{Keeper, Limits, Service},
    limit::{Look, Seconds, Setup, Watch},
    metrics::Metrics,
    queue::{BrokerQueue, DiskOptions, DiskQueue, MemoryQueue, Queue, Use},
    recent::Recent,
    sink::Sink,
    users::{Authenticator, Users},
};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// The least size of a queue on disk, in bytes.
const LEAST: u64 = 32 << 20;
/// The threads of a collector: it mostly waits for the database.
const COLLECTOR_THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// How long a request may wait for the disk of the queue. A slow disk takes less for all that may wait at once.
const DISK_PATIENCE: Duration = Duration::from_secs(10);
/// How long collectors may take to end that are to.
const ENDING: Duration = Duration::from_secs(5);
/// The bytes of a segment of a queue on disk, but for small queues.
const SEGMENT: u64 = 64 << 20;

#[derive(Debug)]
pub struct Running {
    /// Where it listens, if it does, such as `http://127.0.0.1:1731`.
    pub url: Option<String>,
    /// What it runs with, for people: names and words.
    pub about: Vec<(&'static str, String)>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Ended>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What has ended it, if nobody has: a defect of acidtest.
    pub defect: Option<String>,
    /// Entries that were acknowledged and not stored within the time for that.
    pub left: Left,
}

/// What was acknowledged and is not stored when a gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// So many entries, which are lost.
    Lost(u64),
    /// So many entries, which the next start stores.
    Kept(u64),
    /// Whatever is in the broker, for other collectors or the next start.
    InBroker,
}

/// Starts a gateway on threads of its own.
///
/// # Errors
/// If the configuration makes no sense, a database or a broker cannot be reached, or the address cannot be listened on.
pub async fn start(config: Config) -> Result<Running, Error> {
    let (threads, drain) = (config.threads, config.drain);
    launch(threads, drain, async move { Gateway::open(&config).await }).await
}

/// Starts a collector on threads of its own.
///
/// # Errors
/// As for a gateway; or if there is no such queue.
pub async fn start_collector(config: CollectorConfig) -> Result<Running, Error> {
    let drain = config.drain;
    launch(COLLECTOR_THREADS, drain, async move { Gateway::open_collector(&config).await }).await
}

async fn launch(
    threads: NonZeroUsize,
    drain: Duration,
    open: impl Future<Output = Result<Gateway, Error>> + Send + 'static,
) -> Result<Running, Error> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.get())
        .thread_name("gateway")
        .enable_all()
        .build()
        .map_err(|error| Error::Other(format!("cannot start threads: {error}")))?;
    let (ready, is_ready) = oneshot::channel();
    let (stop, stops) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    let main = move || {
        runtime.block_on(async {
            let gateway = match open.await {
                Ok(gateway) => gateway,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let Service { scheme, address, .. } = &*gateway.service;
            let url = gateway.listener.as_ref().map(|_| format!("{scheme}://{address}"));
            // whoever started it may have left: then it is stopped
            let _ = ready.send(Ok((url, gateway.service.about.clone())));
            let _ = end.send(gateway.serve(stops, drain).await);
        });
        // what still waits for a database is not waited for
        runtime.shutdown_timeout(Duration::from_millis(200));
    };
    let started = thread::Builder::new().name("gateway".to_owned()).spawn(main);
    started.map_err(|error| Error::Other(format!("cannot start a thread: {error}")))?;
    let gone = |_| Error::Other("the gateway ended at its start: a defect of acidtest".to_owned());
    let (url, about) = is_ready.await.map_err(gone)??;
    Ok(Running { url, about, stop, ended })
}

impl Running {
    /// Takes no more requests, ends those that have begun, stores what waits, and returns how that ended.
    pub async fn stop(&mut self) -> Ended {
        let _ = self.stop.send(true);
        self.ended().await
    }

    /// Waits until the gateway ends, which it does by itself only for a defect.
    pub async fn ended(&mut self) -> Ended {
        let gone = |_| Ended { defect: Some("its threads are gone".to_owned()), left: Left::Lost(0) };
        (&mut self.ended).await.unwrap_or_else(gone)
    }
}

struct Gateway {
    /// None for a collector that shows nothing.
    listener: Option<Listener>,
    service: Arc<Service>,
    watch: Watch,
    seconds: watch::Sender<Arc<Seconds>>,
    collectors: Vec<JoinHandle<()>>,
}

impl Gateway {
    async fn open(config: &Config) -> Result<Self, Error> {
        // a port that is taken, or a certificate that cannot be used, shows before anything is made
        let socket = bind(config.listen)?;
        let acceptor = Acceptor::new(config.certificate.as_ref());
        let acceptor = acceptor
            .map_err(|TlsError { cause, remedy }| Error::Usage(format!("{cause}\n  remedy: {remedy}")))?;
        let users = Users::open(&config.users, config.users_schema.as_deref()).await?;
        if users.list().await?.is_empty() {
            tracing::warn!(
                "there are no users yet, so nobody can send entries: acidtest gateway user add NAME, with the same --data \
                 or --users"
            );
        }
        let is_direct = config.architecture == Architecture::Direct;
        let metrics = Arc::new(Metrics::new());
        let (architecture, queue_name) = config.named();
        metrics.set_up_as(architecture, queue_name);
        let mut about = Vec::new();
        let sink = match &config.storage {
            Some(storage) => Some(Arc::new(Sink::open(&storage.sink, &storage.table).await?)),
            None => None,
        };
        let (keeper, storing) = match (&config.storage, &sink) {
            (Some(_), Some(sink)) if is_direct => {
                let most = config.sink_connections.get();
                about.push((
                    "architecture",
                    format!(
                        "direct: each entry is stored in a transaction of its own, over at most {most} connections"
                    ),
                ));
                (Keeper::Direct(Direct::new(Arc::clone(sink), Arc::clone(&metrics), most)), most)
            }
            _ => {
                let storing = match (&config.storage, &sink) {
                    (Some(storage), Some(sink)) => collectors(storage, sink)?,
                    _ => 0,
                };
                about.push(("architecture", queued(config.storage.as_ref(), storing)));
                let (queue, words) = queue(config, &metrics).await?;
                about.push(("queue", words));
                let queue = Arc::new(queue);
                let shared = config
                    .storage
                    .as_ref()
                    .zip(sink.as_ref())
                    .map(|(storage, sink)| Arc::new(Collectors::new(&queue, sink, &metrics, storage)));
                (Keeper::Queued { queue, recent: Recent::new(), collectors: shared }, storing)
            }
        };
        about.extend(
            config.storage.as_ref().zip(sink.as_deref()).map(|(storage, sink)| stored(storage, sink)),
        );
        about.push(("users", config.users.to_string()));
        let listener = Listener { tcp: listen(socket, config.listen)?, acceptor };
        let limits = Limits {
            connections: config.connections,
            body: config.body,
            head_time: config.head_time,
            body_time: config.body_time,
            idle_time: config.idle_time,
            partial: config.partial,
            ids: config.ids,
        };
        // the direct architecture looks users up for each request, as the study's first version did
        let remember = (!is_direct && !config.remember.is_zero()).then_some(config.remember);
        let authenticator = Authenticator::new(users, remember);
        let setup = Setup {
            is_direct,
            is_collector: false,
            threads: config.threads.get(),
            storing,
            syncs: !matches!(config.queue, QueueKind::Broker(_)),
        };
        Ok(Self::put_together(Some(authenticator), metrics, keeper, setup, limits, Some(listener), about))
    }

    async fn open_collector(config: &CollectorConfig) -> Result<Self, Error> {
        if config.listen.is_some_and(|address| !address.ip().is_loopback()) {
            return Err(Error::Usage(
                "a collector knows no users, so that what it shows is for its own machine
  remedy: --listen 127.0.0.1:1732"
                    .to_owned(),
            ));
        }
        let socket = config.listen.map(bind).transpose()?;
        let metrics = Arc::new(Metrics::new());
        metrics.set_up_as("queued", broker_name(&config.queue));
        let sink = Arc::new(Sink::open(&config.storage.sink, &config.storage.table).await?);
        let storing = collectors(&config.storage, &sink)?;
        let (queue, words) =
            BrokerQueue::open(&config.queue, &config.queue_name, Use::Collector, Arc::clone(&metrics))
                .await?;
        let queue = Arc::new(Queue::Broker(queue));
        let collectors = Arc::new(Collectors::new(&queue, &sink, &metrics, &config.storage));
        let about = vec![
            ("architecture", queued(Some(&config.storage), storing)),
            ("queue", words),
            stored(&config.storage, &sink),
        ];
        let keeper = Keeper::Queued { queue, recent: Recent::new(), collectors: Some(collectors) };
        let listener = match (socket, config.listen) {
            (Some(socket), Some(address)) => {
                // it is for this machine only
                Some(Listener { tcp: listen(socket, address)?, acceptor: Acceptor::default() })
            }
            _ => None,
        };
        let threads = COLLECTOR_THREADS.get();
        let setup = Setup { is_direct: false, is_collector: true, threads, storing, syncs: false };
        // enough for whoever looks at what it shows
        let limits = Limits {
            connections: 100,
            body: 0,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            idle_time: Duration::from_mins(2),
            partial: Partial::default(),
            ids: Ids::default(),
        };
        Ok(Self::put_together(None, metrics, keeper, setup, limits, listener, about))
    }

    fn put_together(
        authenticator: Option<Authenticator>,
        metrics: Arc<Metrics>,
        keeper: Keeper,
        setup: Setup,
        limits: Limits,
        listener: Option<Listener>,
        about: Vec<(&'static str, String)>,
    ) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let scheme = listener.as_ref().map_or("http", |listener| listener.acceptor.scheme());
        let bound = listener.as_ref().and_then(|listener| listener.tcp.local_addr().ok());
        let address = (scheme, bound.unwrap_or(nowhere));
        let watch = Watch::new(setup, &metrics);
        let (seconds, seen) = watch::channel(Arc::default());
        let collecting = match &keeper {
            Keeper::Queued { collectors: Some(collectors), .. } => (0..setup.storing)
                .map(|number| tokio::spawn(Arc::clone(collectors).collect(number)))
                .collect(),
            _ => Vec::new(),
        };
        let service = Service::new(authenticator, metrics, keeper, seen, limits, address, about);
        Self { listener, service: Arc::new(service), watch, seconds, collectors: collecting }
    }

    /// Serves until it is told to stop, and then stores what waits, within this time.
    async fn serve(self, mut stop: watch::Receiver<bool>, drain: Duration) -> Ended {
        let Self { listener, service, watch, seconds, collectors } = self;
        let watching = tokio::spawn(keep_watch(Arc::clone(&service), watch, seconds));
        let refreshing = tokio::spawn(keep_users_fresh(Arc::clone(&service)));
        let looking = tokio::spawn(look_for_database(Arc::clone(&service)));
        let serving = async {
            match listener {
                Some(listener) => {
                    let limits = service.limits.into();
                    acidtest_web::serve(listener, Arc::clone(&service), limits, stop).await;
                }
                None => drop(stop.wait_for(|stop| *stop).await),
            }
        };
        let defect = tokio::select! {
            () = serving => None,
            what = defect(&service.keeper, &collectors) => Some(what),
        };
        if let Some(what) = &defect {
            tracing::error!("{what}: it ends, so that its supervisor can restart it");
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
            return "what writes or reads the queue has ended".to_owned();
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
            return Ended { defect: None, left: Left::Kept(0) };
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
            // aborted, or ended by itself; one that waits for a disk which hangs does neither
            let _ = timeout(ENDING, collector).await;
        }
        queue.finish().await;
        let entries = queue.depth().entries;
        let left = match **queue {
            Queue::Disk(_) => Left::Kept(entries),
            Queue::Memory(_) => Left::Lost(entries),
            Queue::Broker(_) => Left::InBroker,
        };
        Ended { defect: None, left }
    }
}

fn collectors(storage: &Storage, sink: &Sink) -> Result<usize, Error> {
    match storage.collectors.map(NonZeroUsize::get) {
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

/// Opens the queue, and returns what it is, in words.
async fn queue(config: &Config, metrics: &Arc<Metrics>) -> Result<(Queue, String), Error> {
    if config.queue_size < LEAST {
        return Err(Error::Usage(format!(
            "a queue of {} bytes is too small for some requests\n  remedy: --queue-size 32MiB or more",
            config.queue_size
        )));
    }
    Ok(match &config.queue {
        QueueKind::Memory => (
            Queue::Memory(MemoryQueue::new(config.queue_size)),
            "memory: acknowledged entries that wait are lost with the gateway".to_owned(),
        ),
        QueueKind::Disk => {
            let options = DiskOptions {
                folder: config.queue_folder.clone(),
                most_bytes: config.queue_size,
                segment: SEGMENT.min(config.queue_size / 4),
                patience: DISK_PATIENCE,
                #[cfg(test)]
                hangs: Arc::default(),
                #[cfg(test)]
                broken: Arc::default(),
                #[cfg(test)]
                panics: Arc::default(),
            };
            let folder = config.queue_folder.display();
            let queue = DiskQueue::open(options, Arc::clone(metrics))
                .map_err(|error| Error::Other(format!("cannot use the queue in {folder}: {error}")))?;
            let words =
                format!("disk, in {folder}: an acknowledged entry is as safe as a sync of the disk makes it");
            (Queue::Disk(queue), words)
        }
        QueueKind::Broker(address) => {
            let for_what = Use::Gateway { most_bytes: config.queue_size, collects: config.storage.is_some() };
            let opened = BrokerQueue::open(address, &config.queue_name, for_what, Arc::clone(metrics)).await;
            let (queue, words) = opened?;
            (Queue::Broker(queue), words)
        }
    })
}

/// What the queued architecture is here, in words.
fn queued(storage: Option<&Storage>, storing: usize) -> String {
    match storage {
        None => "queued: collectors elsewhere store what is in the queue".to_owned(),
        Some(storage) => {
            let collectors =
                if storing == 1 { "1 collector".to_owned() } else { format!("{storing} collectors") };
            format!("queued: {collectors}, at most {} entries in a transaction", storage.batch)
        }
    }
}

/// Where entries are stored, in words.
fn stored(storage: &Storage, sink: &Sink) -> (&'static str, String) {
    ("sink", format!("{}, table {}; {}", storage.sink, storage.table, sink.about))
}

fn broker_name(address: &acidtest_model::Address) -> &'static str {
    if address.scheme == "nats" { "nats" } else { "rabbitmq" }
}

impl Config {
    /// Its architecture and its queue in a word each.
    fn named(&self) -> (&'static str, &'static str) {
        match (self.architecture, &self.queue) {
            (Architecture::Direct, _) => ("direct", "none"),
            (Architecture::Queued, QueueKind::Disk) => ("queued", "disk"),
            (Architecture::Queued, QueueKind::Memory) => ("queued", "memory"),
            (Architecture::Queued, QueueKind::Broker(broker)) => ("queued", broker_name(broker)),
        }
    }
}

/// Takes an address, at which nobody can connect yet.
fn bind(address: SocketAddr) -> Result<TcpSocket, Error> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // a gateway that is started again takes its port over from connections that have ended
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    open().map_err(|error| cannot_listen(address, &error))
}

fn listen(socket: TcpSocket, address: SocketAddr) -> Result<TcpListener, Error> {
    socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Error {
    Error::Other(format!(
        "cannot listen on {address}: {error}\n  remedy: another address or port by --listen"
    ))
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
            let collectors = collectors.as_ref();
            let trouble = collectors.and_then(|collectors| collectors.trouble());
            (trouble, collectors.and_then(|collectors| collectors.unanswered()), queue.unread())
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
    while let Some(authenticator) = &service.authenticator {
        let refreshed = authenticator.refresh().await;
        match refreshed {
            Err(error) if !was_away => {
                was_away = true;
                tracing::warn!(%error, "users cannot be looked up: remembered users are accepted until they expire");
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

    use super::*;
    use crate::{
        entry::{self, Entry, Level},
        queue::Record,
    };

    /// A database in a folder, a queue in memory, and collectors between the two.
    async fn collectors() -> (TempDir, Arc<Queue>, Arc<Collectors>) {
        let folder = TempDir::new().unwrap();
        let file = Address::file("sqlite", &folder.path().join("logs.sqlite").to_string_lossy());
        let sink = Arc::new(Sink::open(&file, "logs").await.unwrap());
        let queue = Arc::new(Queue::Memory(MemoryQueue::new(1 << 20)));
        let storage = Storage {
            sink: file,
            table: "logs".to_owned(),
            collectors: None,
            batch: NonZeroUsize::MIN,
            linger: Duration::ZERO,
        };
        let collectors = Collectors::new(&queue, &sink, &Arc::new(Metrics::new()), &storage);
        (folder, queue, Arc::new(collectors))
    }

    #[tokio::test]
    async fn a_collector_that_has_ended_is_seen() {
        let (_folder, queue, collectors) = collectors().await;
        let keeper = Keeper::Queued { queue, recent: Recent::new(), collectors: Some(collectors) };
        let waits = tokio::spawn(std::future::pending());
        let long = Duration::from_secs(3);
        assert!(timeout(long, defect(&keeper, &[waits])).await.is_err());
        let waits = tokio::spawn(std::future::pending());
        let panics = tokio::spawn(async { panic!("planted") });
        assert!(timeout(long, defect(&keeper, &[waits, panics])).await.unwrap().contains("collector"));
    }

    /// Where the one that has something to store cannot store it, nothing can be stored: the others only wait.
    #[tokio::test]
    async fn collectors_that_wait_for_entries_do_not_hide_that_nothing_can_be_stored() {
        let (folder, queue, collectors) = collectors().await;
        drop(folder);
        for number in 0..2 {
            tokio::spawn(Arc::clone(&collectors).collect(number));
        }
        let entry = Entry {
            id: "1".into(),
            timestamp: 7,
            level: Level::Info,
            application: "a".into(),
            message: "m".into(),
            attributes: None,
        };
        let bytes = entry::encode("ann", 7, [entry].iter()).into();
        queue.put(Record { entries: 1, bytes }).await.unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !collectors.trouble().is_some_and(|trouble| trouble.is_all) {
            assert!(Instant::now() < end, "{:?}", collectors.trouble());
            sleep(Duration::from_millis(10)).await;
        }
    }
}
