//! A producer: messages in flight on one connection, whose answers come to the connection's inbox with their numbers.

use std::collections::VecDeque;

use acidtest_engine::{Attempt, Completion, Fault};
use acidtest_workloads::{
    queue::{Ack, Delivery},
    queue::{Message, Publisher},
};
use serde::Deserialize;

use crate::protocol::{self, ApiError, Connection, Error, Place};

/// The header with a message's id, by which a stream drops duplicates.
const ID: &str = "Nats-Msg-Id";
/// Bytes that may wait until they are written.
const UNWRITTEN_MAX: usize = 256 * 1024;

/// A producer's connection.
#[derive(Debug)]
pub struct Producer {
    connection: Connection,
    subject: String,
    /// Whether the server is asked to acknowledge messages.
    confirms: bool,
    deduplicates: bool,
    /// The number of the next message.
    next: u64,
    /// Messages that may not have been handed to the network yet, with their numbers.
    unwritten: VecDeque<(u64, Place)>,
    /// Messages that failed without being sent, and that the caller does not know of yet.
    unsent: Vec<Completion>,
}

impl Producer {
    pub(super) fn new(connection: Connection, subject: String, delivery: &Delivery) -> Self {
        Self {
            connection,
            subject,
            confirms: delivery.ack != Ack::None,
            deduplicates: delivery.deduplicate,
            next: 0,
            unwritten: VecDeque::new(),
            unsent: Vec::new(),
        }
    }

    /// Decides on the messages in flight when the connection has ended: those that were not handed to the network
    /// have failed; the outcome of the others stays unknown.
    fn lost(&mut self, error: &Error, ended: &mut Vec<Completion>) -> Fault {
        let fault = Fault::lost(error.to_string());
        for (number, place) in self.unwritten.drain(..) {
            if !self.connection.reached(place) {
                ended.push(Completion { number, attempt: Attempt::Failed(fault.clone()) });
            }
        }
        fault
    }

    /// Waits for at least one answer, and takes all that have arrived.
    async fn answers(&mut self, ended: &mut Vec<Completion>) -> Result<(), Error> {
        let before = ended.len();
        while ended.len() == before {
            ended.extend(answer(&self.connection.next().await?));
        }
        while let Some(message) = self.connection.arrived()? {
            ended.extend(answer(&message));
        }
        Ok(())
    }

    /// Writes all messages. Without acknowledgements they are ok as soon as they are written.
    async fn written(&mut self, ended: &mut Vec<Completion>) -> Result<(), Error> {
        self.connection.flush().await?;
        ended.extend(self.unwritten.drain(..).map(|(number, _)| Completion { number, attempt: Attempt::Ok }));
        // what was read meanwhile may be a ping, on whose answer the server insists
        while self.connection.arrived()?.is_some() {}
        Ok(())
    }
}

impl Publisher for Producer {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let number = self.next;
        self.next += 1;
        let id = self.deduplicates.then(|| message.name());
        let header = id.as_deref().map(|id| (ID, id));
        let token = self.confirms.then_some(number);
        match self.connection.publish(&self.subject, token, header, &message.body) {
            Ok(place) => self.unwritten.push_back((number, place)),
            // the message was certainly not sent; the next `settle` reports it
            Err(error) => {
                let message = error.to_string();
                let fault = match error {
                    Error::TooLong { .. } => Fault::answered(message),
                    _ => Fault::lost(message),
                };
                let attempt = Attempt::Failed(fault);
                self.unsent.push(Completion { number, attempt });
            }
        }
        if self.connection.unwritten() > UNWRITTEN_MAX {
            // if the connection has ended, the next `settle` reports the outcome of each message
            let _ = self.connection.flush().await;
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let unsent = !self.unsent.is_empty();
        ended.append(&mut self.unsent);
        let settled = match (self.confirms, unsent) {
            // the next call waits for answers
            (true, true) => self.connection.flush().await,
            (true, false) => self.answers(ended).await,
            (false, _) => self.written(ended).await,
        };
        if let Err(error) = settled {
            // what arrived before the end counts
            while let Ok(Some(message)) = self.connection.arrived() {
                ended.extend(answer(&message));
            }
            return Err(self.lost(&error, ended));
        }
        if self.connection.unwritten() == 0 {
            self.unwritten.clear();
        }
        Ok(())
    }

    /// Waits for the answer to a ping, because the server may not have read all unacknowledged messages yet.
    async fn close(&mut self) {
        // there is no caller left to report an error to
        let _ = self.connection.ping().await;
    }
}

/// `JetStream`'s answer to a published message.
#[derive(Deserialize)]
struct PubAck {
    /// The message's sequence number in the stream; 0 with an error.
    #[serde(default)]
    seq: u64,
    error: Option<ApiError>,
}

/// The number of the message that is answered, and its outcome; none if this is not an answer.
fn answer(message: &protocol::Message<'_>) -> Option<Completion> {
    let number = message.token()?;
    let attempt = match message.status() {
        Some((503, _)) => Attempt::Failed(Fault::answered("no stream takes the message (503 No Responders)")),
        Some((code, words)) => Attempt::Unknown(Fault::answered(format!("{code} {words}"))),
        None => match serde_json::from_slice(message.payload) {
            Ok(PubAck { error: Some(error), .. }) if error.proves_no_effect() => {
                Attempt::Failed(Fault::answered(error.to_string()))
            }
            Ok(PubAck { error: Some(error), .. }) => Attempt::Unknown(Fault::answered(error.to_string())),
            Ok(PubAck { seq: 0, .. }) => Attempt::Unknown(Fault::answered("an answer without a number")),
            Ok(PubAck { .. }) => Attempt::Ok,
            Err(error) => Attempt::Unknown(Fault::answered(format!("malformed answer: {error}"))),
        },
    };
    Some(Completion { number, attempt })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use acidtest_workloads::queue::Parameters;

    use super::*;
    use crate::protocol::tests::{Peer, connected, run};

    async fn producer(ack: Ack) -> (Producer, Peer) {
        let (connection, peer) = connected().await;
        let delivery = Parameters { ack, ..Parameters::default() }.delivery();
        (Producer::new(connection, "subject".to_owned(), &delivery), peer)
    }

    async fn send(producer: &mut Producer, body: &str) {
        producer.send(&Message { body: body.into() }).await.unwrap();
    }

    /// What the server acknowledged before its end counts, also where the end is seen before the acknowledgements are looked at.
    #[test]
    fn what_was_acknowledged_before_the_end_is_published() {
        run(async {
            let (mut producer, mut peer) = producer(Ack::Confirm).await;
            for body in ["zero", "one", "two"] {
                send(&mut producer, body).await;
            }
            producer.connection.flush().await.unwrap();
            peer.hears("two").await;
            for number in 0..2 {
                let said = br#"{"stream":"s","seq":7}"#;
                let said = std::str::from_utf8(said).unwrap();
                let inbox = producer.connection.inbox().to_owned();
                peer.say(&format!("MSG {inbox}{number} 1 {}\r\n{said}\r\n", said.len())).await;
            }
            drop(peer);
            let mut ended = Vec::new();
            // the end is seen by one of these
            while producer.unsent.is_empty() {
                send(&mut producer, "late").await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let last = producer.next - 1;
            assert!(producer.settle(&mut ended).await.unwrap_err().connection_lost);
            let published = |number| Completion { number, attempt: Attempt::Ok };
            assert!(ended.contains(&published(0)) && ended.contains(&published(1)), "{ended:?}");
            let failed: Vec<_> = ended.iter().filter(|ended| ended.attempt != Attempt::Ok).collect();
            assert!(
                failed.iter().all(|ended| matches!(ended.attempt, Attempt::Failed(_)) && ended.number > 2),
                "{ended:?}"
            );
            assert!(failed.iter().any(|ended| ended.number == last), "{ended:?}");
        });
    }

    /// A server ends the connection of a client that does not answer its pings.
    #[test]
    fn a_producer_without_acknowledgements_answers_pings() {
        run(async {
            let (mut producer, mut peer) = producer(Ack::None).await;
            let pinged = async {
                peer.say("PING\r\n").await;
                peer.hears("PONG\r\n").await;
            };
            let publishes = async {
                loop {
                    send(&mut producer, "body").await;
                    producer.settle(&mut Vec::new()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = pinged => {}
                () = publishes => {}
            }
        });
    }

    fn answered(headers: &[u8], payload: &[u8]) -> Attempt {
        let message = protocol::Message::sample("_INBOX.a.", "_INBOX.a.5", headers, payload);
        let ended = answer(&message).unwrap();
        assert_eq!(ended.number, 5);
        ended.attempt
    }

    #[test]
    fn only_an_answer_with_a_number_is_an_acknowledgement() {
        assert_eq!(answered(b"", br#"{"stream":"s", "seq":9}"#), Attempt::Ok);
        assert_eq!(answered(b"", br#"{"stream":"s", "seq":9,"duplicate": true}"#), Attempt::Ok);
        let failed = |attempt| matches!(attempt, Attempt::Failed(fault) if !fault.connection_lost);
        assert!(failed(answered(b"NATS/1.0 503\r\n\r\n", b"")));
        let full =
            br#"{"error":{"code":500,"err_code":10023,"description":"insufficient resources"},"seq":0}"#;
        assert!(failed(answered(b"", full)));
        let io =
            br#"{"error":{"code":503,"err_code":10077,"description":"no space left on device"},"seq":0}"#;
        for (headers, payload) in [
            (&b""[..], &io[..]),
            (b"", b"{}"),
            (b"", b"[1"),
            (b"", b"\xff"),
            (b"NATS/1.0 409 x\r\n\r\n", b""),
        ] {
            assert!(matches!(answered(headers, payload), Attempt::Unknown(_)), "{payload:?}");
        }
        let other = protocol::Message::sample("_INBOX.a.", "_INBOX.b.5", b"", b"");
        assert_eq!(answer(&other), None);
    }
}
