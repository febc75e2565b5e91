//! RabbitMQ over AMQP 0-9-1: for each client one connection with one channel, which the client's own task drives.
//!
#![doc = include_str!("../GUARANTEES.md")]

pub mod amqp;
mod dropped;
mod queue;
mod server;

use std::{collections::BTreeMap, fmt, sync::Mutex, time::Duration};

use acidtest_model::{
    Address, Durability, EffectiveSettings, NO_REFRESH, StoreError, StoreKind, Support, Task,
};
use acidtest_workloads::{
    Owner, Store,
    queue::{LOCKS_OF_QUEUES, QueueStore},
    time_opening,
};
use tokio::time::timeout;

use self::dropped::Dropped;
pub use self::server::ConnectOptions;
use crate::amqp::{Arguments, Connection, Envelope, Error, Value, ids};

/// The store's row of the matrix: its lock modes, durability levels and workloads.
pub const KIND: StoreKind = StoreKind {
    name: "rabbitmq",
    title: "RabbitMQ",
    schemes: &["amqp", "amqps"],
    address: "amqp://USER:PASSWORD@HOST:5672/VHOST",
    hosting: acidtest_model::Hosting::Program,
    default_port: 5672,
    locks: LOCKS_OF_QUEUES,
    durability: &[
        (Durability::None, Support::Yes("transient messages, or no acknowledgement")),
        (Durability::Process, Support::Yes("persistent messages in a durable classic queue, acknowledged")),
        (Durability::Disk, Support::Yes("persistent messages in a quorum queue, acknowledged")),
    ],
    isolation: &[],
    transactions: Support::No("its transactions are of messages: --ack transaction, --consume transaction"),
    refresh: NO_REFRESH,
    tls: acidtest_model::OWN_TLS,
    replication: &[],
    replica_reads: None,
    lock_service: false,
    processes: acidtest_model::EACH_CONNECTS,
    durability_of_data: true,
    in_memory: false,
    client_kib: 184,
    workloads: &[
        ("queue", Support::Yes("a classic or quorum queue, published to through the default exchange")),
        ("inventory", Support::No("it has queues of messages, not records to decide on")),
        ("records", Support::No("it has queues of messages, not records to decide on")),
        ("join", Support::No("it has queues of messages, not tables")),
        ("logs", acidtest_model::NO_SINK),
        ("parcels", Support::No("it has queues of messages, not rows to count")),
        ("transactions", Support::No("it has queues of messages, not records to read and write")),
    ],
    refuses: queue::refuses,
    idle: queue::idle,
};

/// How long publishing a message outside of a trial may take: a broker that blocks its publishers never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The beginning of the message that marks a namespace; the run's id follows.
const MARK: &str = "acidtest run ";

pub struct RabbitMq {
    server: ConnectOptions,
    version: String,
    /// What catches the messages that the broker drops itself, by the trial's queue.
    dropped: Mutex<BTreeMap<String, Dropped>>,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq").field("version", &self.version).finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// Opens the server: connects once, to check that it can be reached.
    ///
    /// # Errors
    /// If the server does not answer, or refuses this user and password.
    pub async fn open(address: &Address) -> Result<Self, StoreError> {
        let server = ConnectOptions::new(address, KIND.default_port)?;
        let connection = server.reach().await?;
        let about = |name| connection.about(name).unwrap_or("unknown").to_owned();
        let version = format!("{} {}", about("product"), about("version"));
        Ok(Self { server, version, dropped: Mutex::default() })
    }
}

/// The name of the queue that holds the namespace's mark: a message that says which run made it.
fn mark(namespace: &str) -> String {
    format!("{namespace}:mark")
}

/// The name of the queue whose messages are the names of the namespace's other queues.
fn names(namespace: &str) -> String {
    format!("{namespace}:names")
}

/// Asks about a queue that exists.
const PASSIVE: u8 = 1;
/// Declares a queue that outlives the broker's process.
const DURABLE: u8 = 2;
/// Declares a queue that only its connection can reach, and that goes with it.
const EXCLUSIVE: u8 = 4;

/// The arguments that declare a queue with these properties, or ask about one.
fn declaration(name: &str, bits: u8, properties: &[(&str, Value<'_>)]) -> Arguments {
    Arguments::default().short(0).name(name).byte(bits).table(properties)
}

/// Numbers of a queue's ready messages and of its consumers; none if there is no such queue. The broker closes the
/// channel then, as it does for a queue that exists and cannot be reached.
async fn look(connection: &mut Connection, name: &str) -> Result<Option<(u32, u32)>, Error> {
    let arguments = declaration(name, PASSIVE, &[]);
    match connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK).await {
        Ok(answer) => amqp::declared(&answer)
            .map(Some)
            .ok_or_else(|| Error::Protocol("the answer to a declaration ends too early".to_owned())),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn delete(connection: &mut Connection, name: &str) -> Result<(), Error> {
    let arguments = Arguments::default().short(0).name(name).byte(0);
    connection.ask(ids::DELETE, &arguments, ids::DELETE_OK).await.map(drop)
}

/// Declares a durable queue and publishes a persistent message to it in a transaction, so that it is certainly there.
async fn leave(connection: &mut Connection, queue: &str, message: &str) -> Result<(), Error> {
    // a quorum queue, which a virtual host may have by default, drops what was looked at too often
    let arguments = declaration(queue, DURABLE, &[("x-queue-type", Value::Text("classic"))]);
    connection.ask(ids::DECLARE, &arguments, ids::DECLARE_OK).await?;
    connection.ask(ids::TX, &Arguments::default(), ids::TX_OK).await?;
    connection.publish(&Envelope::new(queue, true), message.as_bytes()).await?;
    let nothing = Arguments::default();
    let committed = timeout(PATIENCE, connection.ask(ids::COMMIT, &nothing, ids::COMMIT_OK)).await;
    let unanswered = |connection: &mut Connection| {
        let blocked = connection.take_blocked();
        Error::Network(blocked.unwrap_or_else(|| format!("no answer within {PATIENCE:?}")))
    };
    committed.unwrap_or_else(|_| Err(unanswered(connection))).map(drop)
}

/// Whether a broker that names this product in its properties is RabbitMQ: others speak AMQP 0-9-1, too.
fn is_own(product: Option<&str>) -> bool {
    product == Some("RabbitMQ")
}

// It has no identity. Nothing that it tells its clients is another in each life, and no marker would do: a transient queue also expires
// by a policy, is there in a cluster though the node has restarted that has the trial's queues, and is refused from 4.3 on
// (`transient_nonexcl_queues`); a transient exchange outlives any node of a cluster.
impl Store for RabbitMq {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            let connection = self.server.reach().await?;
            let settings = ["platform", "cluster_name"]
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), connection.about(name)?.to_owned())))
                .chain([("frame_max".to_owned(), connection.frame_max().to_string())]);
            let read = EffectiveSettings {
                version: self.version.clone(),
                durability: Durability::Disk.into(),
                because: "each queue has its own durability level".to_owned(),
                settings: settings.collect::<BTreeMap<_, _>>(),
                tls: connection.tls(),
            };
            Ok(if is_own(connection.about("product")) {
                read
            } else {
                read.of_another(&self.version, "RabbitMQ")
            })
        })
    }

    fn connecting(&self) -> Task<'_, Result<Option<Duration>, StoreError>> {
        Box::pin(time_opening(self.server.reach()))
    }

    fn owner<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("looking for the namespace");
            let mark = mark(namespace);
            let Some(_) = look(&mut self.server.reach().await?, &mark).await.map_err(&failed)? else {
                let names =
                    look(&mut self.server.reach().await?, &names(namespace)).await.map_err(&failed)?;
                return Ok(if names.is_some() { Owner::Stranger } else { Owner::Nobody });
            };
            // not acknowledged, so that the mark stays in its queue
            let mut connection = self.server.reach().await?;
            let message = connection.get(&mark, false).await.map_err(&failed)?;
            // closed in order, so that the mark is ready again when somebody looks next
            connection.close().await;
            let Some(message) = message else { return Ok(Owner::Empty) };
            let text = String::from_utf8_lossy(&message);
            Ok(text.strip_prefix(MARK).map_or(Owner::Stranger, |run| Owner::Run(run.to_owned())))
        })
    }

    fn create<'a>(&'a self, namespace: &'a str, run: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("making the namespace");
            let mut connection = self.server.reach().await?;
            leave(&mut connection, &mark(namespace), &format!("{MARK}{run}")).await.map_err(failed)
        })
    }

    fn remove<'a>(&'a self, namespace: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let failed = self.server.failed("removing the namespace");
            let (names, mark) = (names(namespace), mark(namespace));
            let there = look(&mut self.server.reach().await?, &names).await.map_err(&failed)?;
            let mut connection = self.server.reach().await?;
            // not acknowledged, so that an interrupted removal does not lose the names of queues that still exist
            while there.is_some()
                && let Some(queue) = connection.get(&names, false).await.map_err(&failed)?
            {
                let queue = String::from_utf8_lossy(&queue);
                // anyone who may publish can put any name there
                let ours = queue.strip_prefix(namespace).is_some_and(|object| object.starts_with(':'));
                if ours && queue != names && queue != mark {
                    delete(&mut connection, &queue).await.map_err(&failed)?;
                }
            }
            // the mark goes last, so that the rest of an interrupted removal is still known to be acidtest's
            for queue in [names, mark] {
                delete(&mut connection, &queue).await.map_err(&failed)?;
            }
            Ok(())
        })
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }
}
