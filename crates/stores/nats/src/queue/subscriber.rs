//! A consumer: pulls messages in batches, so that as many are on their way to it as it may hold.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Fault};
use acidtest_workloads::queue::Consume;
use acidtest_workloads::queue::{AckAnswer, ReceivedMessage, Requirements, Subscriber};
use tokio::time::{sleep, timeout};

use crate::protocol::{Connection, Error, Message};

/// How long a request for messages waits at the server for those that are not there yet: also how long a consumer
/// that stops waits for what may be on its way.
const EXPIRES: Duration = Duration::from_millis(500);
/// How much later the server has forgotten a request that has expired.
const FORGOTTEN: Duration = Duration::from_millis(200);
/// How long the end of a request is awaited after it must have expired.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of answers beyond which they are sent although more messages are at hand.
const FULL: usize = 1 << 16;
/// The status that ends a request of which less came than was asked for.
const TIMED_OUT: u16 = 408;
const NOTHING: u16 = 404;
/// Says how many of the messages asked for have not come.
const PENDING: &str = "Nats-Pending-Messages";

/// A consumer's connection.
#[derive(Debug)]
pub struct Consumer {
    connection: Connection,
    /// Where messages are asked for.
    subject: String,
    acknowledges: bool,
    prefetch: u32,
    /// Messages that may be asked for and not have come: the server closes the connection of a reader that is too
    /// slow for what is on its way (`max_pending`, `write_deadline`).
    at_once: u32,
    /// Messages that were asked for and may still come.
    asked: u32,
    /// When some were last asked for.
    asked_at: Instant,
    requests: u64,
    /// Messages in hand.
    held: u32,
    /// The number of the last message that may have been handed out without a trace.
    doubtful: u64,
    /// Where they are acknowledged, a line each.
    replies: String,
    /// What came after the consumer stopped asking.
    left: VecDeque<(Vec<u8>, bool)>,
    stopped: bool,
}

/// What a message is to a consumer.
enum Arrival {
    /// One that was asked for; whether it may have been handed out before.
    Delivery(bool),
    /// So many of those that were asked for do not come.
    Short(u32),
    /// What has nothing to say.
    Nothing,
    /// The server hands nothing out, and why.
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
            left: VecDeque::new(),
            stopped: false,
        }
    }

    /// Asks for messages once half of those that may be in hand or on their way have been dealt with. Whether it
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

    /// Takes the next message into `received`. Whether one has come.
    async fn next(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Result<bool, Error> {
        let deadline = Instant::now() + patience;
        loop {
            // most of the time it is here already, and no timer is needed
            let waits = self.ask()? || self.connection.unwritten() > FULL;
            let arrived = if waits { None } else { self.connection.arrived()? };
            let message = if let Some(message) = arrived {
                message
            } else {
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

    /// Keeps account of what was asked for. Whether it was a message.
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

    /// A request whose end never came, because the server has lost it, is not waited for for ever.
    fn nothing_came(&mut self) -> bool {
        if self.asked_at.elapsed() > EXPIRES + GRACE {
            self.asked = 0;
        }
        false
    }

    /// Waits for what was asked for, until nothing more can come.
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

    /// Answers every message in hand, for now in writing only.
    fn answer(&mut self, word: &[u8]) -> Result<(), Error> {
        for reply in self.replies.lines() {
            self.connection.publish(reply, None, None, word)?;
        }
        self.replies.clear();
        self.held = 0;
        Ok(())
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
            // what is not acknowledged comes again
            Err(error) if self.acknowledges => Attempt::Failed(Fault::lost(error.to_string())),
            // what was handed out has gone
            Err(error) => Attempt::Unknown(Fault::lost(error.to_string())),
        }
    }

    async fn settle(&mut self) -> Result<AckAnswer, Fault> {
        let settled = async {
            self.answer(b"+ACK")?;
            // the next messages are asked for in the same breath; while some are at hand, answers are sent several at
            // once
            if self.ask()? || self.connection.unread() == 0 {
                self.connection.flush().await?;
            }
            Ok(())
        };
        settled.await.map_err(|error: Error| Fault::lost(error.to_string()))?;
        Ok(AckAnswer::Sent)
    }

    /// Without acknowledgements what was handed out is kept to be taken; else it is given back at once, where a
    /// consumer that merely goes would keep it from the others until its time is up.
    async fn stop(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        self.stopped = true;
        let stopped = async {
            self.wait_for_the_rest().await?;
            if !self.replies.is_empty() {
                // Consumers that stop together have requests that expire together. What is given back while one
                // has expired and is not forgotten makes 2.9 hand out another message twice as a new one
                // (nats-server #4460).
                sleep((EXPIRES + FORGOTTEN).saturating_sub(begun.elapsed())).await;
            }
            self.answer(b"-NAK")?;
            self.connection.flush().await
        };
        stopped.await.map_err(|error: Error| Fault::lost(error.to_string()))
    }
}

fn look(message: &Message<'_>, doubtful: u64) -> Arrival {
    if let Some(delivered) = message.delivered() {
        return Arrival::Delivery(delivered.times > 1 || delivered.sequence <= doubtful);
    }
    match message.status() {
        Some((TIMED_OUT | NOTHING, _)) => {
            // servers older than 2.9 do not say; then none of this client's requests is known to be open
            Arrival::Short(message.header(PENDING).and_then(|number| number.parse().ok()).unwrap_or(u32::MAX))
        }
        // a heartbeat
        Some((100, _)) | None => Arrival::Nothing,
        Some((code, words)) => Arrival::Refusal(format!("{code} {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
