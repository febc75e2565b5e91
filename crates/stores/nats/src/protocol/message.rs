//! Messages that have arrived.

use super::wire;

/// A message. It borrows from its connection's buffer, until the connection is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The subject that it was published to.
    pub subject: &'a str,
    /// The subject to which an answer is to be published.
    pub reply: Option<&'a str>,
    /// The block of headers, which may begin with a status; empty if there is none.
    pub(super) headers: &'a [u8],
    pub payload: &'a [u8],
    pub(super) inbox: &'a str,
}

impl<'a> Message<'a> {
    /// The token of the request that this message answers, if it came to the connection's inbox.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.subject.strip_prefix(self.inbox)?.parse().ok()
    }

    /// The status that the server sends in place of a body, such as 408 and `Request Timeout`.
    #[must_use]
    pub fn status(&self) -> Option<(u16, &'a str)> {
        if self.headers.is_empty() { None } else { wire::status(self.headers) }
    }

    /// The value of the header of this name, in any case of letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        wire::header(self.headers, name)
    }

    /// A message without a reply subject, for tests.
    #[cfg(test)]
    pub(crate) fn sample(inbox: &'a str, subject: &'a str, headers: &'a [u8], payload: &'a [u8]) -> Self {
        Self { subject, reply: None, headers, payload, inbox }
    }

    /// The counts that come with a message that a consumer hands out; none for any other message.
    #[must_use]
    pub fn delivered(&self) -> Option<DeliveredMessage> {
        DeliveredMessage::read(self.reply?)
    }
}

/// The counts of a delivered message, from the subject to which its acknowledgement is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// How often the message has been handed out, this time included.
    pub times: u64,
    /// The message's sequence number in the stream.
    pub sequence: u64,
    /// Messages after it that the consumer has not handed out yet.
    pub pending: u64,
}

impl DeliveredMessage {
    /// Parses `$JS.ACK.stream.consumer.times.sequence.consumer sequence.time.pending`, or, as a server with domains
    /// writes it, `$JS.ACK.domain.account.stream. … .pending.token`.
    fn read(reply: &str) -> Option<Self> {
        let tokens = reply.strip_prefix("$JS.ACK.")?;
        let skipped = match tokens.split('.').count() {
            7 => 2,
            9.. => 4,
            _ => return None,
        };
        let mut numbers = tokens.split('.').skip(skipped);
        let mut next = || numbers.next()?.parse().ok();
        let (times, sequence, _consumer, _time, pending) = (next()?, next()?, next()?, next()?, next()?);
        Some(Self { times, sequence, pending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_says_how_often_and_what_is_behind_it() {
        let read = |subject| DeliveredMessage::read(subject).map(|it| (it.times, it.sequence, it.pending));
        assert_eq!(read("$JS.ACK.foo.c.2.1.3.1795319998776811800.9"), Some((2, 1, 9)));
        assert_eq!(read("$JS.ACK.hub.ACCHASH.foo.c.1.5.6.1795319998776811800.0.Xy7"), Some((1, 5, 0)));
        assert_eq!(read("$JS.ACK.hub.ACCHASH.foo.c.1.5.6.1795319998776811800.0"), Some((1, 5, 0)));
        for other in ["_INBOX.a.1", "$JS.ACK.", "$JS.ACK.foo.c.x.1.3.1.9", "$JS.ACK.foo.c.1", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_names_its_request() {
        let to = |subject| {
            Message { subject, reply: None, headers: b"", payload: b"", inbox: "_INBOX.a." }.token()
        };
        assert_eq!((to("_INBOX.a.17"), to("_INBOX.b.17"), to("_INBOX.a.x")), (Some(17), None, None));
    }
}
