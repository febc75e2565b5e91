//! Messages that the broker takes out of a trial's queue itself, because a policy of its administrator has it do so: it expires
//! them, or drops the oldest of too many. AMQP does not tell which policies a queue has. But it has a word for what becomes of
//! such messages: they are *dead-lettered*. A trial's queue hands its dead letters to a queue of acidtest's own, from which one is
//! taken while the trial goes on. The queue's own arguments go before a policy's, so that none comes into the user's dead letters.

use std::time::Duration;

use acidtest_model::StoreError;
use acidtest_workloads::Place;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    EXCLUSIVE, PATIENCE,
    amqp::{Arguments, Connection, Error, Event, Value, ids},
    declaration,
    queue::{prefetch, subscription},
    server::ConnectOptions,
};

/// What a dead letter shows, and the remedy.
pub(crate) const BY_POLICY: &str = "the broker took messages out of the queue itself, as a policy tells it to \
                                    (message-ttl, max-length, max-length-bytes, delivery-limit); remedy: a virtual host, \
                                    or a --namespace, to whose queues none applies";

/// What it shows that the queue is gone while the connection beside it goes on, and the remedy.
pub(crate) const GONE: &str = "the queue was removed while the broker kept running, as a policy with expires does; remedy: \
                               a virtual host, or a --namespace, to whose queues none applies";

/// How long a dead letter may be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The reply code for a queue that another connection has declared for itself.
const LOCKED: u16 = 405;

/// The name of the queue of the dead letters of a trial.
pub(crate) fn name(place: &Place) -> String {
    format!("{}:{}", place.namespace, place.object("dropped"))
}

/// The properties of a queue whose dead letters come into the queue of this name.
pub(crate) fn dead_letters(queue: &str) -> [(&str, Value<'_>); 2] {
    [("x-dead-letter-exchange", Value::Text("")), ("x-dead-letter-routing-key", Value::Text(queue))]
}

/// A connection with the queue of a trial's dead letters, which goes with it.
pub(crate) struct Dropped {
    connection: Connection,
}

impl Dropped {
    /// Declares the queue and subscribes to it. The broker sends one message, which is never acknowledged and so does not expire;
    /// of the others the queue keeps one, so that they take no memory.
    pub(crate) async fn catch(server: &ConnectOptions, place: &Place) -> Result<Self, StoreError> {
        let queue = name(place);
        let properties = [
            ("x-queue-type", Value::Text("classic")),
            ("x-max-length", Value::Number(1)),
            ("x-overflow", Value::Text("reject-publish")),
        ];
        // what expires here would come here again, which the broker does not do
        let declaring = declaration(&queue, EXCLUSIVE, &[&properties[..], &dead_letters(&queue)].concat());
        let begun = Instant::now();
        loop {
            let mut connection = server.reach().await?;
            match subscribed(&mut connection, &declaring, &queue).await {
                Ok(()) => return Ok(Self { connection }),
                // an earlier one, which has ended, and the broker has not noticed yet
                Err(error) if error.code() == Some(LOCKED) && begun.elapsed() < PATIENCE => {
                    sleep(Duration::from_millis(10)).await;
                }
                Err(error) => return Err(server.failed("catching what the broker drops")(error)),
            }
        }
    }

    /// Whether the broker has dropped any message; none if the connection has ended, as with a broker that was killed.
    pub(crate) async fn has_any(&mut self) -> Option<bool> {
        match timeout(ON_ITS_WAY, self.connection.event()).await {
            Ok(event) => Some(matches!(event.ok()?, Event::Delivered { .. })),
            Err(_) => Some(false),
        }
    }

    /// Removes the queue with its connection.
    pub(crate) async fn end(mut self) {
        let _ = timeout(PATIENCE, self.connection.close()).await;
    }
}

async fn subscribed(connection: &mut Connection, declaring: &Arguments, queue: &str) -> Result<(), Error> {
    connection.ask(ids::DECLARE, declaring, ids::DECLARE_OK).await?;
    connection.ask(ids::QOS, &prefetch(1), ids::QOS_OK).await?;
    connection.ask(ids::CONSUME, &subscription(queue, 0), ids::CONSUME_OK).await.map(drop)
}
