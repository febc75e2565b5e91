//! The operations of producers and consumers over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask, Completion, Fault};
use acidtest_model::{EffectiveSettings, StoreError, Task};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{HostLine, HostWay, Hosted, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place,
    queue::{
        AckAnswer, Connector, Depth, Message, Publisher, QueueStore, ReceivedMessage, Requirements, Scenario,
        Subscriber, task,
    },
};

#[derive(Debug, Serialize, Deserialize)]
enum PublisherRequest {
    /// The message, in base64.
    Send(String),
    Settle,
    Close,
}

/// Whether the connection is still there, what has ended, and the limit that was set.
type PublisherAnswer = (Result<(), Fault>, Vec<Completion>, Option<String>);

#[derive(Debug, Serialize, Deserialize)]
enum SubscriberRequest {
    Take(Duration),
    Settle,
    Stop,
    Close,
}

#[derive(Debug, Serialize, Deserialize)]
enum SubscriberAnswer {
    /// The message is in base64.
    Taken(Attempt, String, Option<bool>),
    Settled(Result<AckAnswer, Attempt>),
    Done(Result<(), Fault>),
}

/// Serves a producer, with a connection that the connector opens.
pub(crate) fn serve_publisher<C: Connector>(connector: C) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.publisher().await) else { return };
            let mut ended = Vec::new();
            while let Some(request) = line.request() {
                ended.clear();
                let done = match request {
                    PublisherRequest::Send(body) => match STANDARD.decode(body) {
                        Ok(body) => connection.send(&Message { body }).await,
                        Err(error) => Err(Fault::lost(error.to_string())),
                    },
                    PublisherRequest::Settle => connection.settle(&mut ended).await,
                    PublisherRequest::Close => {
                        connection.close().await;
                        Ok(())
                    }
                };
                if !line.answer(&(done, &ended, connection.limit())) {
                    break;
                }
            }
        })
    })
}

/// Serves a consumer, with a connection that the connector opens.
pub(crate) fn serve_subscriber<C: Connector>(connector: C) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.subscriber().await) else { return };
            let mut received = ReceivedMessage::default();
            while let Some(request) = line.request() {
                let answer = match request {
                    SubscriberRequest::Take(patience) => {
                        let attempt = connection.take(patience, &mut received).await;
                        let body = match attempt {
                            Attempt::Ok => STANDARD.encode(&received.body),
                            _ => String::new(),
                        };
                        SubscriberAnswer::Taken(attempt, body, received.redelivered)
                    }
                    SubscriberRequest::Settle => SubscriberAnswer::Settled(connection.settle().await),
                    SubscriberRequest::Stop => SubscriberAnswer::Done(connection.stop().await),
                    SubscriberRequest::Close => {
                        connection.close().await;
                        SubscriberAnswer::Done(Ok(()))
                    }
                };
                if !line.answer(&answer) {
                    break;
                }
            }
        })
    })
}

struct HostedPublisher {
    line: HostLine,
    limit: Option<String>,
    /// Whether the answer to a settle is still to come, because nobody waited for it any longer.
    settling: bool,
}

impl HostedPublisher {
    async fn answer(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let (done, more, limit) = self.line.receive::<PublisherAnswer>().await?;
        ended.extend(more);
        self.limit = limit.or(self.limit.take());
        done
    }
}

impl Publisher for HostedPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.line.send(&PublisherRequest::Send(STANDARD.encode(&message.body))).await?;
        self.answer(&mut Vec::new()).await
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        if !self.settling {
            self.line.send(&PublisherRequest::Settle).await?;
            self.settling = true;
        }
        let settled = self.answer(ended).await;
        self.settling = false;
        settled
    }

    async fn close(&mut self) {
        if self.line.send(&PublisherRequest::Close).await.is_ok() {
            // nothing is in flight, and what it says changes nothing
            let _ = self.answer(&mut Vec::new()).await;
        }
    }

    fn limit(&mut self) -> Option<String> {
        self.limit.take()
    }
}

struct HostedSubscriber(HostLine);

impl HostedSubscriber {
    async fn ask(&mut self, request: &SubscriberRequest) -> Result<SubscriberAnswer, Fault> {
        self.0.ask(request).await
    }
}

fn unasked<T>() -> Result<T, Fault> {
    Err(Fault::lost("the store's host answered another question"))
}

impl Subscriber for HostedSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        match self.ask(&SubscriberRequest::Take(patience)).await {
            Ok(SubscriberAnswer::Taken(attempt, body, redelivered)) => match STANDARD.decode(body) {
                Ok(body) => {
                    *received = ReceivedMessage { body, redelivered };
                    attempt
                }
                Err(error) => Attempt::Unknown(Fault::lost(error.to_string())),
            },
            Ok(_) => unasked::<()>().map_or_else(Attempt::Unknown, |()| Attempt::Refused),
            Err(fault) => Attempt::Unknown(fault),
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        match self.ask(&SubscriberRequest::Settle).await.map_err(Attempt::Unknown)? {
            SubscriberAnswer::Settled(settled) => settled,
            _ => unasked().map_err(Attempt::Unknown),
        }
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        match self.ask(&SubscriberRequest::Stop).await? {
            SubscriberAnswer::Done(done) => done,
            _ => unasked(),
        }
    }

    async fn close(&mut self) {
        // the connection is given up in any case
        let _ = self.ask(&SubscriberRequest::Close).await;
    }
}

struct HostedConnector {
    publisher: HostWay,
    subscriber: HostWay,
}

impl Connector for HostedConnector {
    type Publisher = HostedPublisher;
    type Subscriber = HostedSubscriber;

    async fn publisher(&self) -> Result<HostedPublisher, String> {
        Ok(HostedPublisher { line: self.publisher.open().await?, limit: None, settling: false })
    }

    async fn subscriber(&self) -> Result<HostedSubscriber, String> {
        Ok(HostedSubscriber(self.subscriber.open().await?))
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
