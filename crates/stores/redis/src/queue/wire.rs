//! A producer's own socket, with many commands in flight, or without any reply.
//!
//! The driver keeps a place for the answer of each command, also where the server gives none, and drops commands
//! that it has not written yet when its connection is dropped.

use std::io::{self, Write as _};

use acidtest_transport::Stream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::server::{CONNECT, ConnectOptions};

/// Bytes of room that a read is given at least.
const READ_ROOM: usize = 16 * 1024;

/// Bytes of the longest line and the longest text that are accepted: ids of entries and errors are short.
const LONGEST: usize = 1 << 16;

/// One answer, as far as a producer looks at it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The command was carried out.
    Done,
    /// Nil: there is no such key.
    Nil,
    /// An error, in the server's words.
    Error(String),
}

/// A connection that speaks RESP2. Its futures may be dropped: nothing is written twice, and no answer is lost.
pub(super) struct Wire {
    stream: Stream,
    output: Vec<u8>,
    /// How many bytes of `output` have been written.
    written: usize,
    input: Vec<u8>,
    /// How many bytes of `input` have been parsed.
    taken: usize,
}

impl Wire {
    /// Connects and logs in. Without `answers`, the server is told to send no replies.
    pub(super) async fn open(server: &ConnectOptions, answers: bool) -> Result<Self, String> {
        let opened = timeout(CONNECT, Self::greet(server, answers)).await;
        opened.unwrap_or_else(|_| Err(format!("no answer within {CONNECT:?}")))
    }

    async fn greet(server: &ConnectOptions, answers: bool) -> Result<Self, String> {
        let words = |error: io::Error| error.to_string();
        let stream = server.transport().connect().await.map_err(words)?;
        let mut wire = Self { stream, output: Vec::new(), written: 0, input: Vec::new(), taken: 0 };
        let mut asked = 1;
        let login = server.login();
        if let Some(password) = login.password() {
            let user = login.username().unwrap_or("default");
            wire.push(&[b"AUTH", user.as_bytes(), password.as_bytes()]);
            asked += 1;
        }
        if server.database() != 0 {
            wire.push(&[b"SELECT", server.database().to_string().as_bytes()]);
            asked += 1;
        }
        wire.push(&[b"PING"]);
        wire.flush().await.map_err(words)?;
        while asked > 0 {
            match wire.reply().map_err(words)? {
                Some(Reply::Error(refusal)) => return Err(refusal),
                Some(Reply::Done | Reply::Nil) => asked -= 1,
                None => wire.read().await.map_err(words)?,
            }
        }
        if !answers {
            wire.push(&[b"CLIENT", b"REPLY", b"OFF"]);
        }
        Ok(wire)
    }

    /// Adds a command to the bytes to be written.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        length(&mut self.output, b'*', parts.len());
        for part in parts {
            length(&mut self.output, b'$', part.len());
            self.output.extend_from_slice(part);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// How many bytes have not been written yet.
    pub(super) fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes all bytes that have not been written yet.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        self.stream.flush().await?;
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Makes the server reply again, which it does once it has handled all commands written before.
    pub(super) async fn end_silence(&mut self) -> io::Result<()> {
        self.push(&[b"CLIENT", b"REPLY", b"ON"]);
        self.flush().await?;
        while self.reply()?.is_none() {
            self.read().await?;
        }
        Ok(())
    }

    /// Waits for more of the server's answers.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        self.input.drain(..self.taken);
        self.taken = 0;
        self.input.reserve(READ_ROOM);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            _ => Ok(()),
        }
    }

    /// The next answer that has arrived in full.
    pub(super) fn reply(&mut self) -> io::Result<Option<Reply>> {
        let parsed = parse(self.input.get(self.taken..).unwrap_or_default())?;
        Ok(parsed.map(|(reply, length)| {
            self.taken += length;
            reply
        }))
    }
}

fn length(output: &mut Vec<u8>, of: u8, length: usize) {
    // writing to a vector cannot fail
    let _ = write!(output, "{}{length}\r\n", char::from(of));
}

/// The first answer and its length in bytes; `None` if it has not arrived in full.
fn parse(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "the server's answer makes no sense");
    let looked_at = &bytes[..bytes.len().min(LONGEST)];
    let Some(end) = looked_at.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LONGEST { Ok(None) } else { Err(nonsense()) };
    };
    let (kind, line) = bytes[..end].split_first().ok_or_else(nonsense)?;
    let line = String::from_utf8_lossy(line);
    let length = end + 2;
    match kind {
        b'+' | b':' => Ok(Some((Reply::Done, length))),
        b'-' => Ok(Some((Reply::Error(line.into_owned()), length))),
        b'$' if line == "-1" => Ok(Some((Reply::Nil, length))),
        b'$' => {
            let size = line.parse::<usize>().ok().filter(|size| *size <= LONGEST).ok_or_else(nonsense)?;
            let length = length + size + 2;
            Ok((bytes.len() >= length).then_some((Reply::Done, length)))
        }
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{changes, garble};
    use proptest::prelude::*;

    use super::*;

    /// The answers in bytes that arrive in pieces of these lengths, used over and over, and whether all were well
    /// formed.
    fn answers(bytes: &[u8], lengths: &[usize]) -> (Vec<Reply>, bool) {
        let (mut replies, mut from, mut to) = (Vec::new(), 0, 0);
        for length in lengths.iter().cycle() {
            loop {
                match parse(&bytes[from..to]) {
                    Ok(Some((reply, length))) => {
                        replies.push(reply);
                        from += length;
                        assert!(from <= to);
                    }
                    Ok(None) => break,
                    Err(_) => return (replies, false),
                }
            }
            if to == bytes.len() {
                break;
            }
            to = bytes.len().min(to + length);
        }
        (replies, true)
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let whole = b"$15\r\n1700000000000-0\r\n$-1\r\n-OOM no\r\n+PONG\r\n:7\r\n";
        let refused = Reply::Error("OOM no".to_owned());
        let replies = vec![Reply::Done, Reply::Nil, refused, Reply::Done, Reply::Done];
        assert_eq!(answers(whole, &[1]), (replies, true));
        let longest = [&b"+"[..], &b"x".repeat(LONGEST), b"\r\n"].concat();
        for nonsense in [&b"*1\r\n"[..], b"$x\r\n", b"\r\n", b"$65537\r\n", &longest, &longest[..LONGEST]] {
            assert_eq!(answers(nonsense, &[1000]), (Vec::new(), false));
        }
        for size in [usize::MAX, usize::MAX - 1, 1 << 62] {
            assert_eq!(answers(format!("${size}\r\n").as_bytes(), &[1]), (Vec::new(), false));
        }
    }

    proptest! {
        /// However the bytes are cut, the answers are the same, and nothing panics.
        #[test]
        fn answers_do_not_depend_on_how_they_arrive(
            said in prop::collection::vec(
                prop_oneof![
                    "\\+[A-Z]{0,9}", ":-?[0-9]{1,9}", "-ERR [a-zé ]{0,20}", Just("$-1".to_owned()),
                    "[a-z\r\n]{0,20}".prop_map(|text| format!("${}\r\n{text}", text.len())),
                ],
                0..9,
            ),
            changes in changes(0..4),
            lengths in prop::collection::vec(1_usize..40, 1..6),
        ) {
            let count = said.len();
            let mut bytes: Vec<u8> = said.iter().flat_map(|each| [each.as_bytes(), b"\r\n"].concat()).collect();
            let is_valid = changes.is_empty();
            garble(&mut bytes, &changes);
            let whole = answers(&bytes, &[usize::MAX >> 1]);
            prop_assert!(!is_valid || (whole.0.len(), whole.1) == (count, true), "{:?}", whole);
            prop_assert_eq!(&answers(&bytes, &lengths), &whole);
            prop_assert_eq!(&answers(&bytes, &[1]), &whole);
        }
    }
}
