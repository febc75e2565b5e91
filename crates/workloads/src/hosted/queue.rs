//! The operations of producers and consumers over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
use acidtest_model::{EffectiveSettings, StoreError, Task};

use super::{HostWay, Hosted, HostedConnection, Purpose, Served, not_here, serve, unasked};
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
    publisher: HostWay,
    subscriber: HostWay,
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
            publisher: self.way(Purpose::Publisher),
            subscriber: self.way(Purpose::Subscriber),
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
