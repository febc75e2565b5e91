//! A consumer, which pulls messages in batches, so that it always has as many in hand or on their way as it may hold.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Fault};
use acidtest_workloads::queue::{
    AckAnswer, AckProgress, Consume, ReceivedMessage, Requirements, SentAcks, Subscriber,
};
use tokio::time::{sleep, timeout};

use crate::protocol::{Connection, Error, Message, Place};

/// How long a request waits at the server for messages that are not there yet. A consumer that stops must wait as
/// long for messages that may still come.
const EXPIRES: Duration = Duration::from_millis(500);
/// How long after a request has expired the server has certainly forgotten it.
const FORGOTTEN: Duration = Duration::from_millis(200);
/// How long the status that ends a request is awaited after the request must have expired.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of acknowledgements that are written at the latest, even if more messages are at hand.
const FULL: usize = 1 << 16;
/// The status that ends a request for which fewer messages came than were asked for.
const TIMED_OUT: u16 = 408;
const NOTHING: u16 = 404;
/// The header with the number of messages that were asked for and have not come.
const PENDING: &str = "Nats-Pending-Messages";
/// What a message is acknowledged with.
const ACK: &[u8] = b"+ACK";

/// A consumer's connection.
///
/// The server answers no acknowledgement, and reads what a connection sends in its order. So it is pinged behind
/// acknowledgements.
#[derive(Debug)]
pub struct Consumer {
    connection: Connection,
    /// The subject on which messages are asked for.
    subject: String,
    acknowledges: bool,
    prefetch: u32,
    /// The most messages that may be asked for and not have come: the server closes the connection of a reader that
    /// is too slow for the bytes on their way (`max_pending`, `write_deadline`).
    at_once: u32,
    /// Number of messages that were asked for and may still come.
    asked: u32,
    /// When messages were last asked for.
    asked_at: Instant,
    requests: u64,
    /// Number of messages that the client has and has not acknowledged.
    held: u32,
    /// The sequence number of the last message that a server that was restarted may have handed out before; 0 if it
    /// was not restarted.
    doubtful: u64,
    /// The subjects to which the messages in hand are acknowledged, one per line.
    replies: String,
    acks: SentAcks<Place>,
    /// The number of the ping behind acknowledgements whose answer is to come.
    ping: u64,
    /// Messages that came after the consumer had stopped, each with its redelivered flag.
    left: VecDeque<(Vec<u8>, bool)>,
    stopped: bool,
}

/// The meaning of a message to a consumer.
enum Arrival {
    /// A message that was asked for; true if it may have been handed out before.
    Delivery(bool),
    /// This number of messages that were asked for will not come.
    Short(u32),
    /// No information, such as a heartbeat.
    Nothing,
    /// The server hands out no messages, for this reason.
    Refusal(String),
}

impl Consumer {
    pub(super) fn new(
        connection: Connection,
        stream: &str,
        consumer: &str,
        doubtful: u64,
        wanted: &Requirements,
    ) -> Self {
        let prefetch = wanted.delivery.prefetch;
        Self {
            connection,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            acknowledges: wanted.delivery.consume != Consume::Auto,
            prefetch,
            at_once: wanted.at_once(prefetch),
            asked: 0,
            asked_at: Instant::now(),
            requests: 0,
            held: 0,
            doubtful,
            replies: String::new(),
            acks: SentAcks::new(),
            ping: 0,
            left: VecDeque::new(),
            stopped: false,
        }
    }

    /// Asks for more messages once no more than half of those allowed are in hand or on their way. Returns whether it
    /// did.
    fn ask(&mut self) -> Result<bool, Error> {
        let most = self.prefetch.min(self.held + self.at_once);
        let due = self.asked == 0 || self.asked + self.held <= most / 2;
        let room = most.saturating_sub(self.asked + self.held);
        if self.stopped || !due || room == 0 {
            return Ok(false);
        }
        let body = format!("{{\"batch\":{room},\"expires\":{}}}", EXPIRES.as_nanos());
        self.requests += 1;
        self.connection.publish(&self.subject, Some(self.requests), None, body.as_bytes())?;
        self.asked += room;
        self.asked_at = Instant::now();
        Ok(true)
    }

    /// Takes the next message into `received`. Returns whether one came within `patience`.
    async fn next(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Result<bool, Error> {
        let deadline = Instant::now() + patience;
        loop {
            // most of the time a message has arrived already, and no timer is needed
            let waits = self.ask()? || self.connection.unwritten() > FULL;
            let arrived = if waits { None } else { self.connection.arrived()? };
            let message = if let Some(message) = arrived {
                message
            } else {
                // asked about before it waits, where acknowledgements are collected while messages are at hand
                self.look_for_acks();
                self.connection.still_reaches()?;
                let left = deadline.saturating_duration_since(Instant::now());
                match timeout(left, self.connection.next()).await {
                    Ok(message) => message?,
                    Err(_) => return Ok(self.nothing_came()),
                }
            };
            let came = look(&message, self.doubtful);
            if let Arrival::Delivery(redelivered) = came {
                received.body.clear();
                received.body.extend_from_slice(message.payload);
                received.redelivered = Some(redelivered);
                if self.acknowledges {
                    self.replies.push_str(message.reply.unwrap_or_default());
                    self.replies.push('\n');
                    self.held += 1;
                }
            }
            if self.counted(came)? {
                return Ok(true);
            }
        }
    }

    /// Updates the number of messages that were asked for. Returns whether this was a message.
    fn counted(&mut self, came: Arrival) -> Result<bool, Error> {
        match came {
            Arrival::Delivery(_) => {
                self.asked = self.asked.saturating_sub(1);
                return Ok(true);
            }
            Arrival::Short(missing) => self.asked = self.asked.saturating_sub(missing),
            Arrival::Nothing => {}
            Arrival::Refusal(words) => return Err(Error::Closed(words)),
        }
        Ok(false)
    }

    /// Forgets a request whose end has not come in time, as the server has lost it. Returns false, for no message.
    fn nothing_came(&mut self) -> bool {
        if self.asked_at.elapsed() > EXPIRES + GRACE {
            self.asked = 0;
        }
        false
    }

    /// Waits for all messages that were asked for, until no more can come.
    async fn wait_for_the_rest(&mut self) -> Result<(), Error> {
        let mut deadline = self.asked_at + EXPIRES + GRACE;
        while self.asked > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(message) = timeout(left, self.connection.next()).await else { break };
            let message = message?;
            deadline = deadline.max(Instant::now() + GRACE);
            let came = look(&message, self.doubtful);
            if let Arrival::Delivery(redelivered) = came {
                if self.acknowledges {
                    self.replies.push_str(message.reply.unwrap_or_default());
                    self.replies.push('\n');
                } else {
                    self.left.push_back((message.payload.to_vec(), redelivered));
                }
            }
            self.counted(came)?;
        }
        Ok(())
    }

    /// Answers every message in hand with this word; the answers are written later.
    fn answer(&mut self, word: &[u8]) -> Result<(), Error> {
        for reply in self.replies.lines() {
            let place = self.connection.publish(reply, None, None, word)?;
            if word == ACK {
                self.acks.begin(1, place);
            }
        }
        self.replies.clear();
        self.held = 0;
        Ok(())
    }

    /// Notes whether the server has read acknowledgements, and pings it behind those of which that is not known, unless the
    /// answer to such a ping is on its way.
    fn look_for_acks(&mut self) {
        if self.connection.answered() >= self.ping {
            self.acks.answered();
        }
        if self.acks.ask() {
            self.ping = self.connection.say_ping();
        }
    }
}

impl Subscriber for Consumer {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        if let Some((body, redelivered)) = self.left.pop_front() {
            received.body = body;
            received.redelivered = Some(redelivered);
            return Attempt::Ok;
        }
        match self.next(patience, received).await {
            Ok(true) => Attempt::Ok,
            Ok(false) => Attempt::Refused,
            // an unacknowledged message is delivered again
            Err(error) if self.acknowledges => Attempt::Failed(Fault::lost(error.to_string())),
            // without acknowledgements a message that was handed out is gone
            Err(error) => Attempt::Unknown(Fault::lost(error.to_string())),
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        let settled = async {
            self.answer(ACK)?;
            // a request for more messages is written together with the acknowledgements; while messages are at hand,
            // acknowledgements are collected and written several at once
            if self.ask()? || self.connection.unread() == 0 {
                self.look_for_acks();
                self.connection.still_reaches()?;
                self.connection.flush().await?;
            }
            Ok(AckAnswer::Sent)
        };
        settled.await.map_err(|error: Error| Attempt::Unknown(Fault::lost(error.to_string())))
    }

    fn progress(&mut self) -> AckProgress {
        if self.connection.answered() >= self.ping {
            self.acks.answered();
        }
        let connection = &self.connection;
        self.acks.progress(|place| connection.reached(place))
    }

    /// Without acknowledgements messages that were handed out are kept for the client to take. With them they are
    /// given back at once; if the consumer just left, the others would get them only after `ACK_WAIT`.
    async fn stop(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        self.stopped = true;
        let stopped = async {
            self.wait_for_the_rest().await?;
            if !self.replies.is_empty() {
                // Consumers that stop together have requests that expire together. A message that is given back while
                // a request has expired and is not forgotten makes 2.9 hand out another message twice as a new one
                // (nats-server #4460).
                sleep((EXPIRES + FORGOTTEN).saturating_sub(begun.elapsed())).await;
            }
            self.answer(b"-NAK")?;
            self.connection.flush().await
        };
        stopped.await.map_err(|error: Error| Fault::lost(error.to_string()))
    }

    /// Waits until the server has read the acknowledgements: what it has not read is lost if a connection just ends.
    async fn close(&mut self) {
        if self.acknowledges && self.connection.ping().await.is_ok() {
            self.acks.all_read();
        }
    }
}

fn look(message: &Message<'_>, doubtful: u64) -> Arrival {
    if let Some(delivered) = message.delivered() {
        return Arrival::Delivery(delivered.times > 1 || delivered.sequence <= doubtful);
    }
    match message.status() {
        Some((TIMED_OUT | NOTHING, _)) => {
            // servers older than 2.9 do not say how many; then all requests of this client are taken to have ended
            Arrival::Short(message.header(PENDING).and_then(|number| number.parse().ok()).unwrap_or(u32::MAX))
        }
        // a heartbeat
        Some((100, _)) | None => Arrival::Nothing,
        Some((code, words)) => Arrival::Refusal(format!("{code} {words}")),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::queue::Parameters;

    use super::*;
    use crate::protocol::tests::{Peer, connected, run};

    /// A consumer that acknowledges, and the server's side of its connection, which has handed it the first message.
    async fn consumer() -> (Consumer, Peer) {
        let (connection, mut peer) = connected().await;
        let parameters = Parameters::default();
        let wanted =
            Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
        let mut consumer = Consumer::new(connection, "s", "c", 0, &wanted);
        peer.say(&delivered(&consumer, 1)).await;
        assert_eq!(take(&mut consumer).await, Attempt::Ok);
        (consumer, peer)
    }

    fn delivered(consumer: &Consumer, sequence: u64) -> String {
        let inbox = consumer.connection.inbox();
        format!("MSG {inbox}1 1 $JS.ACK.s.c.1.{sequence}.1.9.0 4\r\nbody\r\n")
    }

    async fn take(consumer: &mut Consumer) -> Attempt {
        consumer.take(Duration::from_secs(20), &mut ReceivedMessage::default()).await
    }

    /// The server answers a ping once it has read what came before it.
    #[test]
    fn acknowledgements_are_read_once_a_ping_behind_them_is_answered() {
        run(async {
            let (mut consumer, mut peer) = consumer().await;
            assert_eq!(consumer.settle().await, Ok(AckAnswer::Sent));
            assert_eq!(consumer.progress(), AckProgress { handed: 1, read: 0 });
            // the first ping is that of the login
            peer.hears("+ACK\r\nPING\r\n").await;
            peer.say(&delivered(&consumer, 2)).await;
            assert_eq!(take(&mut consumer).await, Attempt::Ok);
            assert_eq!(consumer.settle().await, Ok(AckAnswer::Sent));
            // the second was acknowledged behind the first ping
            for read in [1, 2] {
                peer.say("PONG\r\n").await;
                while consumer.progress().read < read {
                    assert_eq!(
                        consumer.take(Duration::from_millis(1), &mut ReceivedMessage::default()).await,
                        Attempt::Refused
                    );
                }
                assert_eq!(consumer.progress(), AckProgress { handed: 2, read });
            }
        });
    }

    /// What had been fetched from a server that is gone is acknowledged to nobody, although writing it would not fail.
    #[test]
    fn what_is_acknowledged_to_a_server_that_is_gone_was_not_sent() {
        run(async {
            let (mut consumer, mut peer) = consumer().await;
            peer.hears("MSG.NEXT").await;
            peer.say(&delivered(&consumer, 2)).await;
            drop(peer);
            while !consumer.connection.is_closed() {
                sleep(Duration::from_millis(1)).await;
            }
            let settled = consumer.settle().await;
            assert!(matches!(settled, Err(Attempt::Unknown(fault)) if fault.connection_lost));
            assert_eq!(consumer.progress(), AckProgress { handed: 0, read: 0 });
        });
    }

    fn seen(headers: &[u8], reply: Option<&str>) -> Arrival {
        let mut message = Message::sample("_INBOX.a.", "_INBOX.a.5", headers, b"");
        message.reply = reply;
        look(&message, 5)
    }

    #[test]
    fn a_message_is_told_from_the_end_of_a_request() {
        assert!(matches!(seen(b"", Some("$JS.ACK.s.c.1.6.1.9.0")), Arrival::Delivery(false)));
        assert!(
            matches!(seen(b"", Some("$JS.ACK.s.c.1.5.1.9.0")), Arrival::Delivery(true)),
            "it may have been"
        );
        assert!(matches!(seen(b"", Some("$JS.ACK.s.c.2.6.1.9.0")), Arrival::Delivery(true)));
        let short =
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 0\r\n\r\n";
        assert!(matches!(seen(short, None), Arrival::Short(7)));
        assert!(matches!(seen(b"NATS/1.0 404 No Messages\r\n\r\n", None), Arrival::Short(u32::MAX)));
        assert!(matches!(seen(b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", None), Arrival::Nothing));
        let refused = seen(b"NATS/1.0 409 Consumer Deleted\r\n\r\n", None);
        assert!(matches!(refused, Arrival::Refusal(words) if words == "409 Consumer Deleted"));
    }
}
