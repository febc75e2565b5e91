//! The operations of producers and consumers over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
use acidtest_model::{EffectiveSettings, StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Served, not_here, serve, unasked};
use crate::{
    LoadProgress, Place,
    queue::{
        AckAnswer, Connector, Consumed, Depth, Message, Published, Publisher, PublisherOperation, QueueStore,
        ReceivedMessage, Requirements, Scenario, Subscriber, SubscriberOperation, task,
    },
};

/// Serves a producer, with a connection that the connector opens.
pub(crate) fn serve_publisher<C: Connector>(connector: C) -> Served {
    serve(async move || connector.publisher().await, PublisherOperation::perform)
}

/// Serves a consumer, with a connection that the connector opens.
pub(crate) fn serve_subscriber<C: Connector>(connector: C) -> Served {
    serve(async move || connector.subscriber().await, SubscriberOperation::perform)
}

/// Whether the connection is still there.
fn done(attempt: Attempt) -> Result<(), Fault> {
    match attempt {
        Attempt::Ok => Ok(()),
        Attempt::Failed(fault) | Attempt::Unknown(fault) => Err(fault),
        Attempt::Refused | Attempt::Conflict => Err(unasked()),
    }
}

struct HostedPublisher {
    connection: HostedConnection,
    limit: Option<String>,
    /// Whether the answer to a settle is still to come, because nobody waited for it any longer.
    settling: bool,
}

impl HostedPublisher {
    fn note(&mut self, (attempt, published): (Attempt, Published)) -> (Result<(), Fault>, Vec<Completion>) {
        self.limit = published.limit.or(self.limit.take());
        (done(attempt), published.ended)
    }
}

impl Publisher for HostedPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let said = self.connection.perform(&PublisherOperation::Send(message.clone())).await;
        self.note(said).0
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        if !self.settling {
            self.connection.line.send(&PublisherOperation::Settle).await?;
            self.settling = true;
        }
        let said = self.connection.reply().await;
        self.settling = false;
        let (settled, more) = self.note(said);
        ended.extend(more);
        settled
    }

    async fn close(&mut self) {
        // nothing is in flight, and what it says changes nothing
        let _: (_, Published) = self.connection.perform(&PublisherOperation::Close).await;
    }

    fn limit(&mut self) -> Option<String> {
        self.limit.take()
    }
}

impl Subscriber for HostedConnection {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        match self.perform(&SubscriberOperation::Take { patience_ns }).await {
            (Attempt::Ok, Consumed { message: Some(message), .. }) => {
                *received = message;
                Attempt::Ok
            }
            (Attempt::Ok, _) => Attempt::Unknown(unasked()),
            (attempt, _) => attempt,
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        match self.perform(&SubscriberOperation::Settle).await {
            (Attempt::Ok, Consumed { acknowledged, .. }) => {
                acknowledged.ok_or_else(|| Attempt::Unknown(unasked()))
            }
            (attempt, _) => Err(attempt),
        }
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        done(self.perform::<Consumed>(&SubscriberOperation::Stop).await.0)
    }

    async fn close(&mut self) {
        // the connection is given up in any case
        let _: (_, Consumed) = self.perform(&SubscriberOperation::Close).await;
    }
}

struct HostedConnector {
    publisher: HostRoute,
    subscriber: HostRoute,
}

impl Connector for HostedConnector {
    type Publisher = HostedPublisher;
    type Subscriber = HostedConnection;

    async fn publisher(&self) -> Result<HostedPublisher, String> {
        Ok(HostedPublisher { connection: self.publisher.open().await?, limit: None, settling: false })
    }

    async fn subscriber(&self) -> Result<HostedConnection, String> {
        self.subscriber.open().await
    }
}

impl QueueStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Requirements,
        _: &'a Scenario,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the queue") })
    }

    fn settings<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Requirements,
        _: &'a EffectiveSettings,
    ) -> Task<'a, Result<EffectiveSettings, StoreError>> {
        Box::pin(async { not_here("reading the queue's settings") })
    }

    fn client(&self, _: &Place, wanted: &Requirements, scenario: Scenario) -> ClientTask {
        let connector = HostedConnector {
            publisher: self.route(Purpose::Publisher),
            subscriber: self.route(Purpose::Subscriber),
        };
        task(connector, scenario, *wanted, self.ordered)
    }

    fn is_ordered(&self, _: &Requirements) -> bool {
        self.ordered
    }

    fn drain<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Requirements,
        _: &'a Scenario,
    ) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async { not_here("emptying the queue") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the queue") })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use super::*;
    use crate::hosted::{
        ServedLine,
        line::tests::{block_on, listening, trial},
    };

    const BODY: &[u8] = &[0, b'\n', 0xFF, b'"'];

    /// A connector, and both connections that it opens. They do what is told here and no more.
    #[derive(Clone, Default)]
    struct Told {
        /// Whether a settle waits.
        waits: Arc<AtomicBool>,
        settled: u64,
        taken: u64,
    }

    fn full() -> Attempt {
        Attempt::Failed(Fault::answered("full"))
    }

    impl Publisher for Told {
        async fn send(&mut self, message: &Message) -> Result<(), Fault> {
            if message.body == BODY { Ok(()) } else { Err(Fault::turned_away("another message")) }
        }

        /// Fails at the third call, with one more message that has ended.
        async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
            ended.push(Completion { number: self.settled, attempt: full() });
            self.settled += 1;
            while self.waits.load(SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.settled < 3 { Ok(()) } else { Err(Fault::lost("it closed")) }
        }

        fn limit(&mut self) -> Option<String> {
            (self.settled == 1).then(|| "memory alarm".to_owned())
        }
    }

    impl Subscriber for Told {
        async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
            assert_eq!(patience, Duration::from_micros(1500));
            self.taken += 1;
            match self.taken {
                1 => {
                    *received = ReceivedMessage { body: BODY.to_vec(), redelivered: Some(true) };
                    Attempt::Ok
                }
                2 => Attempt::Refused,
                _ => full(),
            }
        }

        async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
            if self.taken == 1 { Ok(AckAnswer::Read) } else { Err(Attempt::Conflict) }
        }

        async fn stop(&mut self) -> Result<(), Fault> {
            if self.taken == 1 { Ok(()) } else { Err(Fault::lost("it closed")) }
        }
    }

    impl Connector for Told {
        type Publisher = Self;
        type Subscriber = Self;

        async fn publisher(&self) -> Result<Self, String> {
            Ok(self.clone())
        }

        async fn subscriber(&self) -> Result<Self, String> {
            Ok(self.clone())
        }
    }

    /// What comes of a client's work on a host that serves it so.
    fn over_a_host<T>(served: Served, work: impl AsyncFnOnce(HostedConnector) -> T) -> T {
        let (address, host) = listening(move |stream| {
            let (line, _) = ServedLine::accept(stream).unwrap();
            block_on(served(line));
        });
        let hosted = Hosted { address, trial: Some(trial()), ordered: false };
        let publisher = hosted.route(Purpose::Publisher);
        let connector = HostedConnector { publisher, subscriber: hosted.route(Purpose::Subscriber) };
        let done = block_on(work(connector));
        host.join().unwrap();
        done
    }

    /// An answer that nobody waited for any longer is not lost, and none is taken for that to another question.
    #[test]
    fn a_producer_is_told_what_its_connection_tells() {
        let told = Told::default();
        let waits = Arc::clone(&told.waits);
        over_a_host(serve_publisher(told), async |connector| {
            let mut producer = connector.publisher().await.unwrap();
            assert_eq!(producer.send(&Message { body: BODY.to_vec() }).await, Ok(()));
            assert_eq!(producer.send(&Message::default()).await, Err(Fault::turned_away("another message")));
            let mut ended = Vec::new();
            waits.store(true, SeqCst);
            let waited = tokio::time::timeout(Duration::from_millis(1), producer.settle(&mut ended)).await;
            assert!(waited.is_err() && ended.is_empty() && producer.limit().is_none());
            waits.store(false, SeqCst);
            let completion = |number| Completion { number, attempt: full() };
            assert_eq!(producer.settle(&mut ended).await, Ok(()));
            assert_eq!(
                (&ended[..], producer.limit().as_deref()),
                (&[completion(0)][..], Some("memory alarm"))
            );
            assert_eq!(producer.settle(&mut ended).await, Ok(()));
            assert_eq!(producer.settle(&mut ended).await, Err(Fault::lost("it closed")));
            assert_eq!((ended, producer.limit()), ([0, 1, 2].map(completion).to_vec(), None));
            producer.close().await;
        });
    }

    #[test]
    fn a_consumer_is_told_what_its_connection_tells() {
        let served = serve_subscriber(Told::default());
        over_a_host(served, async |connector| {
            let mut consumer = connector.subscriber().await.unwrap();
            let (patience, mut received) = (Duration::from_micros(1500), ReceivedMessage::default());
            assert_eq!(consumer.take(patience, &mut received).await, Attempt::Ok);
            assert_eq!((&received.body[..], received.redelivered), (BODY, Some(true)));
            assert_eq!(Subscriber::settle(&mut consumer).await, Ok(AckAnswer::Read));
            assert_eq!(consumer.stop().await, Ok(()));
            assert_eq!(consumer.take(patience, &mut received).await, Attempt::Refused);
            assert_eq!(Subscriber::settle(&mut consumer).await, Err(Attempt::Conflict));
            assert_eq!(consumer.stop().await, Err(Fault::lost("it closed")));
            assert_eq!(consumer.take(patience, &mut received).await, full());
            consumer.close().await;
        });
    }
}
