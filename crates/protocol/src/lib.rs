//! How acidtest's processes talk to each other: each message is a line of JSON, and the first one of each side is its
//! greeting. docs/protocol.md describes the protocols.

mod asynchronous;
mod blocking;

use std::{fmt, io};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use asynchronous::{AsyncReader, AsyncWriter};
pub use blocking::{Reader, Writer, answer_greeting};

/// What two processes talk about, and in which version. Two processes work together only if both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: &'static str,
    /// The version: another one after each change of a message.
    pub version: u32,
}

impl Protocol {
    fn greeting(self) -> Greeting {
        Greeting { protocol: self.name.to_owned(), version: self.version }
    }

    /// The one rule of versions.
    fn check(self, theirs: Greeting) -> Result<(), Error> {
        let ours = self.greeting();
        if theirs == ours { Ok(()) } else { Err(Error::AnotherVersion { theirs, ours }) }
    }
}

/// The first message of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The name of the protocol.
    pub protocol: String,
    pub version: u32,
}

impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} of the {} protocol", self.version, self.protocol)
    }
}

/// Why there is no message, in words that follow the name of the other process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("lost the connection: {0}")]
    Connection(#[from] io::Error),
    /// The line is no message of this protocol.
    #[error("said what is no message: {0}")]
    NoMessage(#[from] serde_json::Error),
    /// The line is longer than the reader takes.
    #[error("said a line of more than {0} bytes")]
    TooLong(usize),
    /// It ended before it said what was waited for.
    #[error("ended too early")]
    Ended,
    /// Its first line is no greeting.
    #[error("does not greet as acidtest does: {0}")]
    NoGreeting(serde_json::Error),
    /// It has greeted with another version, or for another protocol.
    #[error("speaks {theirs}, and this acidtest {ours}: use the same version of acidtest for both")]
    AnotherVersion { theirs: Greeting, ours: Greeting },
}

impl Error {
    /// Whether it shows that the other process is none that this one can work with.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::NoGreeting(_) | Self::AnotherVersion { .. })
    }
}

/// The message of a line; none if the line does not end, because the stream has ended.
fn decode<M: DeserializeOwned>(line: &[u8], longest: usize) -> Result<Option<M>, Error> {
    match line {
        [text @ .., b'\n'] => Ok(Some(serde_json::from_slice(text)?)),
        line if line.len() >= longest => Err(Error::TooLong(longest)),
        _ => Ok(None),
    }
}

/// Writes the message and the end of its line in the place of what is in `line`.
fn encode(message: &impl Serialize, line: &mut Vec<u8>) -> Result<(), Error> {
    line.clear();
    serde_json::to_writer(&mut *line, message)?;
    line.push(b'\n');
    Ok(())
}

/// The greeting among what could be received.
fn greeting(received: Result<Option<Greeting>, Error>) -> Result<Greeting, Error> {
    match received {
        Ok(Some(greeting)) => Ok(greeting),
        Ok(None) => Err(Error::Ended),
        Err(Error::NoMessage(why)) => Err(Error::NoGreeting(why)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Protocol = Protocol { name: "test", version: 7 };

    fn said(line: &[u8]) -> Reader<&[u8]> {
        Reader::new(line)
    }

    /// The line is what a process in another language sends.
    #[test]
    fn a_greeting_is_a_line_with_the_protocol_and_its_version() {
        let mut written = Vec::new();
        Writer::new(&mut written).greet(OURS).unwrap();
        assert_eq!(written, b"{\"protocol\":\"test\",\"version\":7}\n");
        said(&written).expect_greeting(OURS).unwrap();
        // what a later version adds to a greeting does not hide its version
        said(b"{\"version\":7,\"protocol\":\"test\",\"more\":1}\n").expect_greeting(OURS).unwrap();
    }

    #[test]
    fn another_version_is_refused_with_both_versions_and_the_remedy() {
        let refusal = |line: &str| {
            let error = said(line.as_bytes()).expect_greeting(OURS).unwrap_err();
            assert!(error.is_mismatch(), "{error}");
            error.to_string()
        };
        for (line, theirs) in [
            ("{\"protocol\":\"test\",\"version\":8}\n", "version 8 of the test protocol"),
            ("{\"protocol\":\"test\",\"version\":6}\n", "version 6 of the test protocol"),
            ("{\"protocol\":\"other\",\"version\":7}\n", "version 7 of the other protocol"),
        ] {
            let expected = format!(
                "speaks {theirs}, and this acidtest version 7 of the test protocol: use the same version of acidtest for both"
            );
            assert_eq!(refusal(line), expected);
        }
        assert!(refusal("\"hello\"\n").starts_with("does not greet"));
        for silent in ["", "{\"protocol\":\"test\""] {
            assert!(matches!(said(silent.as_bytes()).expect_greeting(OURS), Err(Error::Ended)));
        }
    }

    /// Who is greeted greets in any case: the other side, too, can then say which versions do not fit.
    #[test]
    fn a_greeting_of_another_version_is_answered_and_refused() {
        let (theirs, mut answered) = (Protocol { version: 8, ..OURS }, Vec::new());
        let mut line = Vec::new();
        Writer::new(&mut line).greet(theirs).unwrap();
        let refused = answer_greeting(&mut said(&line), &mut Writer::new(&mut answered), OURS);
        assert!(matches!(refused, Err(Error::AnotherVersion { .. })));
        said(&answered).expect_greeting(OURS).unwrap();
    }

    /// A process that is killed while it writes has not said what stands there.
    #[test]
    fn a_line_without_its_end_is_no_message() {
        let mut from = said(b"1\n23\n4");
        assert_eq!(from.receive::<u32>().unwrap(), Some(1));
        assert_eq!(from.receive::<u32>().unwrap(), Some(23));
        assert_eq!(from.receive::<u32>().unwrap(), None);
        assert_eq!(from.receive::<u32>().unwrap(), None);
    }

    #[test]
    fn what_follows_on_a_line_that_is_no_message_can_be_read() {
        let mut from = said(b"nonsense\n1234567\n2\n").at_most(5);
        assert!(matches!(from.receive::<u32>(), Err(Error::TooLong(5))));
        assert!(matches!(from.receive::<u32>(), Err(Error::NoMessage(_))), "the rest of the line");
        assert!(matches!(from.receive::<u32>(), Err(Error::TooLong(5))));
        assert_eq!(from.receive::<u32>().unwrap(), Some(67));
        assert_eq!(from.receive::<u32>().unwrap(), Some(2));
    }

    /// What has arrived of a message is kept when nobody waits for the rest for a while.
    #[test]
    fn a_message_comes_whole_however_often_the_wait_for_it_is_given_up() {
        use tokio::io::AsyncWriteExt;

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut to, from) = tokio::io::duplex(64);
            let mut from = AsyncReader::new(tokio::io::BufReader::new(from));
            for part in [&b"12"[..], b"3", b"4\n5\n"] {
                to.write_all(part).await.unwrap();
                let waited = tokio::select! {
                    biased;
                    received = from.receive::<u32>() => received.unwrap(),
                    () = tokio::task::yield_now() => None,
                };
                assert_eq!(waited, part.ends_with(b"\n").then_some(1234));
            }
            assert_eq!(from.receive::<u32>().await.unwrap(), Some(5));
            AsyncWriter::new(&mut to).send(&vec!["a\nb"]).await.unwrap();
            assert_eq!(from.receive::<Vec<String>>().await.unwrap(), Some(vec!["a\nb".to_owned()]));
            drop(to);
            assert_eq!(from.receive::<u32>().await.unwrap(), None);
        });
    }
}
