//! Before and after a trial: filling the queue, and emptying it.

use std::time::{Duration, Instant};

use acidtest_engine::{Attempt, Ended, Fault};
use acidtest_model::StoreError;
use tokio::time::timeout;

use super::{
    Connector, Depth, Message, Published, Publisher, Received, Scenario, Subscriber, Wanted,
    message::{self, Id, LAID},
};
use crate::Loaded;

/// How long a message is waited for while the queue is emptied.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a queue that is not empty may hand out nothing before it is left as it is.
const STALLED: Duration = Duration::from_secs(10);

/// How long the store may take for an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Waits for an answer, but not for ever.
async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, Fault> {
    timeout(ANSWER, answer).await.map_err(|_| Fault::lost(format!("no answer within {ANSWER:?}")))
}

fn failed(doing: &str, cause: String) -> StoreError {
    StoreError::Server { doing: doing.to_owned(), address: "the store".to_owned(), cause }
}

/// Publishes the scenario's backlog on one connection.
pub(super) async fn fill<C: Connector>(
    connector: &C,
    wanted: &Wanted,
    scenario: &Scenario,
    loaded: &Loaded,
) -> Result<(), StoreError> {
    let broken = |cause: String| failed("filling the queue", cause);
    let mut publisher = connector.publisher().await.map_err(broken)?;
    let depth = u64::from(wanted.delivery.unanswered());
    let (mut message, mut ended) = (Message::default(), Vec::new());
    let (mut sent, mut done) = (0, 0);
    let backlog = scenario.ledger.backlog();
    while done < backlog {
        while sent < backlog && sent - done < depth {
            let id = Id { producer: LAID, sequence: sent };
            scenario.ledger.sending(id);
            message.write(id, scenario.now(), wanted.message_bytes as usize);
            publisher.send(&message).await.map_err(|fault| broken(fault.message))?;
            sent += 1;
        }
        let settled = in_time(publisher.settle(&mut ended)).await.flatten();
        settled.map_err(|fault| broken(publisher.limit().unwrap_or(fault.message)))?;
        let before = done;
        for Ended { number, attempt } in ended.drain(..) {
            if attempt != Attempt::Ok {
                return Err(broken(why(attempt)));
            }
            scenario.ledger.published(Id { producer: LAID, sequence: number }, Published::Ok);
            done += 1;
        }
        loaded.add(done - before);
    }
    Ok(())
}

fn why(attempt: Attempt) -> String {
    match attempt {
        Attempt::Failed(Fault { message, .. }) | Attempt::Unknown(Fault { message, .. }) => message,
        other => format!("a message was not taken: {other:?}"),
    }
}

/// Consumes on one connection until the queue is empty, or hands out nothing more.
pub(super) async fn drain<C: Connector>(
    connector: &C,
    wanted: &Wanted,
    scenario: &Scenario,
    depth: impl AsyncFn() -> Result<Depth, StoreError>,
) -> Result<Depth, StoreError> {
    let broken = |cause: String| failed("emptying the queue", cause);
    // of a queue that went with its server nothing is left to consume
    let unless_gone = async |cause: String| {
        let left = depth().await?;
        if left == Depth::default() { Ok(left) } else { Err(broken(cause)) }
    };
    let mut subscriber = match connector.subscriber().await {
        Ok(subscriber) => subscriber,
        Err(cause) => return unless_gone(cause).await,
    };
    let mut taken = false;
    let mut received = Received::default();
    let mut held: Vec<Id> = Vec::new();
    let mut moved = Instant::now();
    loop {
        let attempt =
            in_time(subscriber.take(PATIENCE, &mut received)).await.unwrap_or_else(Attempt::Unknown);
        match &attempt {
            Attempt::Ok => {
                taken = true;
                moved = Instant::now();
                match message::read(&received.body, wanted.message_bytes as usize) {
                    None => scenario.ledger.torn(),
                    Some((id, _)) => {
                        scenario.ledger.delivered(id, received.redelivered);
                        held.push(id);
                    }
                }
            }
            Attempt::Refused => {}
            _ if !taken => return unless_gone(why(attempt)).await,
            _ => return Err(broken(why(attempt))),
        }
        let nothing = attempt == Attempt::Refused;
        if nothing || held.len() >= wanted.delivery.batch as usize {
            let settled = in_time(subscriber.settle()).await.flatten();
            let settled = settled.map_err(|fault| broken(fault.message))?;
            scenario.ledger.acknowledged(held.drain(..), settled);
        }
        if nothing {
            let left = depth().await?;
            if left == Depth::default() || moved.elapsed() > STALLED {
                return Ok(left);
            }
        }
    }
}
