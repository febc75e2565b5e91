//! The bytes of NATS' protocol: lines of text, some of which give the number of bytes that follow.

use std::{ops::Range, str};

use bytes::{BufMut, BytesMut};

use super::Error;

/// The longest line that is accepted, in bytes. The longest that a server sends is INFO, which lists the servers of a
/// cluster.
const LINE_MAX: usize = 256 * 1024;
/// The longest message that is accepted, in bytes: more than any server allows (`max_payload`).
const MESSAGE_MAX: usize = 64 * 1024 * 1024 + LINE_MAX;
const NEWLINE: &[u8] = b"\r\n";
/// The beginning of every block of headers.
const VERSION: &str = "NATS/1.0";

/// One command of the server. Ranges count bytes from its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The server's description of itself, in JSON.
    Info(Range<usize>),
    Message(Places),
    Ping,
    Pong,
    /// A command was accepted. Servers send this only if the client asks for it (`verbose`).
    Ok,
    /// An error, in words.
    Error(Range<usize>),
}

/// The parts of a message, as ranges of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) subject: Range<usize>,
    pub(super) reply: Option<Range<usize>>,
    pub(super) headers: Range<usize>,
    pub(super) payload: Range<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The command, and its length in bytes.
    Whole(Op, usize),
    /// The command is not whole yet: at least this number of bytes is missing.
    Missing(usize),
}

/// Parses the first command in the bytes that have arrived.
pub(super) fn split(bytes: &[u8]) -> Result<Parsed, Error> {
    let Some(newline) = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE_MAX {
            Ok(Parsed::Missing(1))
        } else {
            Err(Error::Protocol(format!("a line of more than {LINE_MAX} bytes")))
        };
    };
    let whole = bytes.get(..newline).unwrap_or_default();
    let line = str::from_utf8(whole.strip_suffix(b"\r").unwrap_or(whole))
        .map_err(|_| Error::Protocol("a line that is not text".to_owned()))?;
    let after = newline + 1;
    let mut words = words(line);
    let verb = words.next().unwrap_or(0..0);
    let rest = verb.end..line.trim_end().len();
    let garbage = || Error::Protocol(format!("{line:?} is not of the NATS protocol"));
    let op = match line.get(verb).unwrap_or_default() {
        "MSG" => return message(bytes, line, words, after, false),
        "HMSG" => return message(bytes, line, words, after, true),
        "PING" => Op::Ping,
        "PONG" => Op::Pong,
        "+OK" => Op::Ok,
        "INFO" => Op::Info(rest),
        "-ERR" => Op::Error(rest),
        _ => return Err(garbage()),
    };
    Ok(Parsed::Whole(op, after))
}

/// Parses `MSG subject sid [reply] size` or `HMSG subject sid [reply] headers size`, with the bytes and the line's
/// end that follow.
fn message(
    bytes: &[u8],
    line: &str,
    mut words: impl Iterator<Item = Range<usize>>,
    start: usize,
    headers: bool,
) -> Result<Parsed, Error> {
    let garbage = || Error::Protocol(format!("{line:?} is not the head of a message"));
    let mut next = || words.next();
    let (subject, _subscription) = (next().ok_or_else(garbage)?, next().ok_or_else(garbage)?);
    let mut tail = [next(), next(), next()].into_iter().flatten();
    let (first, second, third) = (tail.next(), tail.next(), tail.next());
    let (reply, head, size) = match (headers, first, second, third) {
        (false, Some(size), None, None) => (None, None, size),
        (false, Some(reply), Some(size), None) => (Some(reply), None, size),
        (true, Some(head), Some(size), None) => (None, Some(head), size),
        (true, Some(reply), Some(head), Some(size)) => (Some(reply), Some(head), size),
        _ => return Err(garbage()),
    };
    let number = |place: Range<usize>| {
        let value: usize = line.get(place)?.parse().ok()?;
        (value <= MESSAGE_MAX).then_some(value)
    };
    let size = number(size).ok_or_else(garbage)?;
    let head = head.map_or(Some(0), number).filter(|head| *head <= size).ok_or_else(garbage)?;
    let end = start + size;
    let whole = end + NEWLINE.len();
    if let Some(missing) = whole.checked_sub(bytes.len()).filter(|missing| *missing > 0) {
        return Ok(Parsed::Missing(missing));
    }
    if bytes.get(end..whole) != Some(NEWLINE) {
        return Err(Error::Protocol(format!("a message that does not end where {line:?} says")));
    }
    let places = Places { subject, reply, headers: start..start + head, payload: start + head..end };
    Ok(Parsed::Whole(Op::Message(places), whole))
}

/// The ranges of a line's words.
fn words(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = line.get(from..)?;
        let start = from + rest.find(|letter: char| !letter.is_ascii_whitespace())?;
        let rest = line.get(start..)?;
        let end = start + rest.find(|letter: char| letter.is_ascii_whitespace()).unwrap_or(rest.len());
        from = end;
        Some(start..end)
    })
}

/// The status in a block of headers, such as `NATS/1.0 408 Request Timeout`: its code and its words.
pub(super) fn status(headers: &[u8]) -> Option<(u16, &str)> {
    let line = lines(headers).next()?.strip_prefix(VERSION)?.trim();
    let (code, words) = line.split_once(' ').unwrap_or((line, ""));
    Some((code.parse().ok()?, words.trim()))
}

/// The value of the first header of that name in a block of headers.
pub(super) fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    let mut pairs = lines(headers).skip(1).filter_map(|line| line.split_once(':'));
    pairs.find(|(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn lines(headers: &[u8]) -> impl Iterator<Item = &str> {
    str::from_utf8(headers).unwrap_or_default().split("\r\n")
}

/// Writes the command that publishes a message, `PUB` or, with a header, `HPUB`.
pub(super) fn publish(
    output: &mut BytesMut,
    subject: &str,
    reply: Option<(&str, u64)>,
    header: Option<(&str, &str)>,
    payload: &[u8],
) {
    let frame = |name: &str, value: &str| VERSION.len() + name.len() + value.len() + b"\r\n: \r\n\r\n".len();
    let head = header.map_or(0, |(name, value)| frame(name, value));
    output.extend_from_slice(if header.is_some() { b"HPUB " } else { b"PUB " });
    output.extend_from_slice(subject.as_bytes());
    output.put_u8(b' ');
    if let Some((inbox, token)) = reply {
        output.extend_from_slice(inbox.as_bytes());
        number(output, token);
        output.put_u8(b' ');
    }
    if header.is_some() {
        number(output, head as u64);
        output.put_u8(b' ');
    }
    number(output, (head + payload.len()) as u64);
    output.extend_from_slice(NEWLINE);
    if let Some((name, value)) = header {
        for part in [VERSION, "\r\n", name, ": ", value, "\r\n\r\n"] {
            output.extend_from_slice(part.as_bytes());
        }
    }
    output.extend_from_slice(payload);
    output.extend_from_slice(NEWLINE);
}

/// Writes a decimal number, without `format!` because up to three are written for each message.
fn number(output: &mut BytesMut, value: u64) {
    output.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{changes, garble};
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> (Op, usize) {
        match split(bytes).unwrap() {
            Parsed::Whole(op, length) => (op, length),
            Parsed::Missing(missing) => panic!("{missing} bytes are missing"),
        }
    }

    #[test]
    fn every_kind_of_line_is_told_apart() {
        let line = b"INFO {\"version\":\"2.9.10\"} \r\nPING\r\n";
        let (op, length) = whole(line);
        let Op::Info(place) = op else { panic!("{op:?}") };
        assert_eq!(&line[place], b" {\"version\":\"2.9.10\"}");
        assert_eq!(whole(&line[length..]), (Op::Ping, 6));
        assert_eq!(whole(b"PONG\r\n").0, Op::Pong);
        assert_eq!(whole(b"+OK\r\n").0, Op::Ok);
        let line = b"-ERR 'Authorization Violation'\r\n";
        let (Op::Error(place), _) = whole(line) else { panic!() };
        assert_eq!(&line[place], b" 'Authorization Violation'");
    }

    #[test]
    fn a_message_is_taken_apart_whatever_it_has() {
        for (text, reply, headers, payload) in [
            ("MSG a.b 1 5\r\nhello\r\n", None, "", "hello"),
            // 2.9 writes two blanks where a reply could stand
            ("MSG a.b 1  0\r\n\r\n", None, "", ""),
            ("MSG a.b 1 $JS.ACK.s.c 2\r\n\r\n\r\n", Some("$JS.ACK.s.c"), "", "\r\n"),
            ("HMSG a.b 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", None, "NATS/1.0 503\r\n\r\n", ""),
            ("HMSG a.b 1 r 12 14\r\nNATS/1.0\r\n\r\nok\r\n", Some("r"), "NATS/1.0\r\n\r\n", "ok"),
        ] {
            let bytes = text.as_bytes();
            let (Op::Message(places), length) = whole(bytes) else { panic!("{text}") };
            let part = |place: Range<usize>| &text[place];
            assert_eq!((part(places.subject), length), ("a.b", text.len()));
            assert_eq!(places.reply.map(part), reply);
            assert_eq!((part(places.headers), part(places.payload)), (headers, payload));
            for cut in 0..bytes.len() {
                let Ok(Parsed::Missing(missing)) = split(&bytes[..cut]) else {
                    panic!("{text} cut at {cut}")
                };
                assert!(missing > 0 && cut + missing <= bytes.len());
            }
        }
    }

    #[test]
    fn garbage_is_an_error() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            "MSG\r\n",
            "MSG a 1\r\n",
            "MSG a 1 x\r\n",
            "MSG a 1 -1\r\n",
            "MSG a 1 b c 3\r\n",
            "MSG a 1 99999999999\r\n",
            "MSG a 1 18446744073709551615\r\n",
            "HMSG a 1 3\r\nabc\r\n",
            "HMSG a 1 4 3\r\nabc\r\n",
            "MSG a 1 3\r\nabcde\r\n",
        ] {
            assert!(matches!(split(text.as_bytes()), Err(Error::Protocol(_))), "{text:?}");
        }
        assert!(split(b"\xff\xfe\r\n").is_err());
        assert!(split(&vec![b'x'; LINE_MAX]).is_err());
        assert_eq!(split(&vec![b'x'; LINE_MAX - 1]), Ok(Parsed::Missing(1)));
    }

    #[test]
    fn a_status_and_headers_are_found_in_their_block() {
        let block = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n";
        assert_eq!(status(block), Some((408, "Request Timeout")));
        assert_eq!(header(block, "nats-pending-messages"), Some("3"));
        assert_eq!(header(block, "Nats-Msg-Id"), None);
        assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some((503, "")));
        assert_eq!(status(b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"), None);
        assert_eq!(status(b""), None);
        assert_eq!(status(b"\xff\xff"), None);
    }

    #[test]
    fn what_is_published_says_how_long_it_is() {
        let written = |reply, header, payload: &[u8]| {
            let mut output = BytesMut::new();
            publish(&mut output, "a.b", reply, header, payload);
            String::from_utf8(output.to_vec()).unwrap()
        };
        assert_eq!(written(None, None, b"hello"), "PUB a.b 5\r\nhello\r\n");
        assert_eq!(written(Some(("_INBOX.x.", 120)), None, b""), "PUB a.b _INBOX.x.120 0\r\n\r\n");
        assert_eq!(
            written(Some(("_INBOX.x.", 0)), Some(("Nats-Msg-Id", "7")), b"hi"),
            "HPUB a.b _INBOX.x.0 28 30\r\nNATS/1.0\r\nNats-Msg-Id: 7\r\n\r\nhi\r\n"
        );
    }

    /// All commands parsed from bytes that arrive in pieces of these lengths, repeated, and the error that ended the
    /// parsing, if any.
    fn said(bytes: &[u8], lengths: &[usize]) -> (Vec<String>, Option<Error>) {
        let (mut all, mut from, mut to) = (Vec::new(), 0, 0);
        for length in lengths.iter().cycle() {
            loop {
                match split(&bytes[from..to]) {
                    Ok(Parsed::Whole(op, length)) => {
                        all.push(format!("{op:?} of {length}"));
                        from += length;
                        assert!(from <= to);
                    }
                    Ok(Parsed::Missing(_)) => break,
                    Err(error) => return (all, Some(error)),
                }
            }
            if to == bytes.len() {
                break;
            }
            to = bytes.len().min(to + length);
        }
        (all, None)
    }

    /// Draws one whole command of a server.
    fn saying() -> impl Strategy<Value = Vec<u8>> {
        let message =
            (any::<bool>(), "[a-z$.]{1,5}", prop::option::of("[a-z]{1,4}"), "[a-z: ]{0,9}", any::<Vec<u8>>());
        prop_oneof![
            Just(b"PING\r\n".to_vec()),
            Just(b"PONG\r\n".to_vec()),
            Just(b"+OK\r\n".to_vec()),
            "[a-z é]{0,9}".prop_map(|words| format!("-ERR '{words}'\r\n").into_bytes()),
            "[a-z\":{}]{0,9}".prop_map(|json| format!("INFO {json}\r\n").into_bytes()),
            message.prop_map(|(headed, subject, reply, header, payload)| {
                let head = if headed { format!("NATS/1.0\r\n{header}\r\n\r\n") } else { String::new() };
                let verb = if headed { "HMSG" } else { "MSG" };
                let lengths = if headed { format!("{} ", head.len()) } else { String::new() };
                let reply = reply.map_or_else(String::new, |reply| format!("{reply} "));
                let size = head.len() + payload.len();
                let line = format!("{verb} {subject} 1 {reply}{lengths}{size}\r\n{head}");
                [line.as_bytes(), &payload, b"\r\n"].concat()
            }),
        ]
    }

    proptest! {
        /// The same commands are parsed however the bytes are cut, even if a fault on the way has changed some.
        #[test]
        fn what_is_said_does_not_depend_on_how_it_arrives(
            sayings in prop::collection::vec(saying(), 0..9),
            changes in changes(0..4),
            lengths in prop::collection::vec(1_usize..60, 1..6),
        ) {
            let mut bytes = sayings.concat();
            let is_valid = changes.is_empty();
            garble(&mut bytes, &changes);
            let whole = said(&bytes, &[bytes.len() + 1]);
            if is_valid {
                prop_assert_eq!((whole.0.len(), &whole.1), (sayings.len(), &None));
            }
            prop_assert_eq!(&said(&bytes, &lengths), &whole);
            prop_assert_eq!(&said(&bytes, &[1]), &whole);
        }

        #[test]
        fn no_bytes_make_it_panic_or_read_past_them(bytes: Vec<u8>) {
            if let Ok(Parsed::Whole(_, length)) = split(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            let _ = (status(&bytes), header(&bytes, "x"));
        }

        #[test]
        fn nor_does_anything_like_a_message(
            line in "H?MSG [a-z$.]{0,4} ?[0-9a-z]{0,3} {0,2}[0-9a-z]{0,4} ?[0-9]{0,20}\r\n",
            rest: Vec<u8>,
        ) {
            let bytes = [line.as_bytes(), &rest].concat();
            match split(&bytes) {
                Ok(Parsed::Whole(Op::Message(places), length)) => {
                    prop_assert!(length <= bytes.len());
                    prop_assert!(places.payload.end <= length && places.headers.end <= places.payload.start);
                }
                Ok(Parsed::Missing(missing)) => prop_assert!(missing > 0),
                Ok(other) => prop_assert!(false, "{other:?}"),
                Err(_) => {}
            }
        }
    }
}
