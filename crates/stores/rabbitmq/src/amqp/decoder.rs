//! Parses received bytes into the server's messages, however the bytes are cut on their way.

use super::{
    Error, Event,
    wire::{self, CHANNEL_CLOSE, CLOSE, Frame, Id, Reader},
};

/// The largest body that is accepted, in bytes: brokers allow messages of 512 MiB at most.
const BODY: u64 = 1 << 29;

#[derive(Debug)]
pub(super) enum ServerMessage {
    /// An event that a caller may wait for.
    Event(Event),
    /// The server blocks publishers, for this reason.
    Blocked(String),
    /// The server stops (0) or starts (1) taking messages on the channel, which is to be answered with the same
    /// value.
    Flow(u8),
    /// The server closed the connection or the channel.
    Closed { connection: bool, code: u16, text: String },
}

/// A message whose header or body is still arriving.
#[derive(Debug)]
struct Content {
    kind: Kind,
    /// The body's size in bytes; none until the header has arrived.
    size: Option<usize>,
    /// The part of the body that has arrived. Grows as it arrives, so that a large claimed size alone takes no
    /// memory.
    body: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    Delivered {
        tag: u64,
        redelivered: bool,
    },
    Returned {
        text: String,
    },
    /// The answer to `basic.get`.
    Got,
}

/// The meaning of a method.
enum Method {
    /// The beginning of a message, whose header and body follow.
    Begun(Kind),
    ServerMessage(ServerMessage),
    Nothing,
}

/// The state of parsing what was received.
#[derive(Debug)]
pub(super) struct Decoder {
    frame_max: usize,
    content: Option<Content>,
}

impl Decoder {
    /// A decoder that has received nothing. Frames are at most this large, in bytes.
    pub(super) fn new(frame_max: usize) -> Self {
        Self { frame_max, content: None }
    }

    /// Sets the largest frame from now on, in bytes.
    pub(super) fn agree(&mut self, frame_max: usize) {
        self.frame_max = frame_max;
    }

    /// The largest frame, in bytes.
    pub(super) fn frame_max(&self) -> usize {
        self.frame_max
    }

    /// Parses received bytes up to the server's next message. Returns how many were parsed, and are not to be given again, and
    /// the message; none until more bytes are received. After an error nothing can be parsed any more: the bytes are none
    /// that a server sends.
    pub(super) fn next(&mut self, unread: &[u8]) -> (usize, Result<Option<ServerMessage>, Error>) {
        let mut parsed = 0;
        loop {
            let rest = unread.get(parsed..).unwrap_or_default();
            let said = match wire::first(rest, self.frame_max).map_err(Error::Protocol) {
                Ok(None) => return (parsed, Ok(None)),
                Ok(Some((frame, used))) => {
                    parsed += used;
                    take(&mut self.content, &frame)
                }
                Err(error) => Err(error),
            };
            if !matches!(said, Ok(None)) {
                return (parsed, said);
            }
        }
    }
}

/// Adds a frame to the message that is arriving, or parses it by itself. Returns a message of the server once it is
/// whole.
fn take(content: &mut Option<Content>, frame: &Frame<'_>) -> Result<Option<ServerMessage>, Error> {
    match *frame {
        Frame::Heartbeat => return Ok(None),
        Frame::Method(id, arguments) => {
            // methods of the connection, and the end of the channel, may come in the middle of a message
            if content.is_some() && id.0 != CLOSE.0 && id != CHANNEL_CLOSE {
                return Err(Error::Protocol(format!("method {id:?} before the end of a message")));
            }
            match method(id, arguments).ok_or_else(|| short(id))? {
                Method::Begun(kind) => *content = Some(Content { kind, size: None, body: Vec::new() }),
                Method::ServerMessage(said) => return Ok(Some(said)),
                Method::Nothing => {}
            }
            return Ok(None);
        }
        Frame::Header(size) => {
            let begun = content.as_mut().filter(|content| content.size.is_none()).ok_or_else(stray)?;
            let fits = usize::try_from(size).ok().filter(|_| size <= BODY);
            let size = fits.ok_or_else(|| Error::Protocol(format!("a message of {size} bytes")))?;
            begun.size = Some(size);
        }
        Frame::Body(piece) => {
            let Some(Content { size: Some(size), body, .. }) = content else { return Err(stray()) };
            if piece.len() > size.saturating_sub(body.len()) {
                return Err(Error::Protocol(format!("a message is longer than its {size} bytes")));
            }
            body.extend_from_slice(piece);
        }
    }
    let whole = content.take_if(|content| content.size == Some(content.body.len()));
    Ok(whole.map(|Content { kind, body, .. }| {
        ServerMessage::Event(match kind {
            Kind::Delivered { tag, redelivered } => Event::Delivered { tag, redelivered, body },
            Kind::Returned { text } => Event::Returned { text, body },
            Kind::Got => Event::Answer(wire::GET_OK, body),
        })
    }))
}

/// Parses a method; none if its arguments end too early.
fn method(id: Id, arguments: &[u8]) -> Option<Method> {
    let mut reader = Reader(arguments);
    let said = match id {
        wire::DELIVER => {
            reader.name()?;
            let (tag, redelivered) = (reader.longlong()?, reader.byte()? != 0);
            return Some(Method::Begun(Kind::Delivered { tag, redelivered }));
        }
        wire::RETURN => {
            let (code, text) = (reader.short()?, reader.name()?);
            return Some(Method::Begun(Kind::Returned { text: format!("{code} {text}") }));
        }
        wire::GET_OK => return Some(Method::Begun(Kind::Got)),
        wire::UNBLOCKED => return Some(Method::Nothing),
        wire::ACK => {
            let (tag, multiple) = (reader.longlong()?, reader.byte()? != 0);
            ServerMessage::Event(Event::Confirmed { tag, multiple })
        }
        wire::NACK => {
            let (tag, multiple) = (reader.longlong()?, reader.byte()? & 1 != 0);
            ServerMessage::Event(Event::Refused { tag, multiple })
        }
        wire::CANCEL => ServerMessage::Event(Event::Cancelled),
        wire::BLOCKED => ServerMessage::Blocked(reader.name()?),
        wire::FLOW => ServerMessage::Flow(reader.byte()?),
        CLOSE | CHANNEL_CLOSE => {
            ServerMessage::Closed { connection: id == CLOSE, code: reader.short()?, text: reader.name()? }
        }
        other => ServerMessage::Event(Event::Answer(other, arguments.to_vec())),
    };
    Some(Method::ServerMessage(said))
}

pub(super) fn short(id: Id) -> Error {
    Error::Protocol(format!("the arguments of method {id:?} end too early"))
}

fn stray() -> Error {
    Error::Protocol("content without a method before it".to_owned())
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{changes, garble};
    use proptest::prelude::*;

    use super::*;
    use crate::amqp::wire::{Arguments, CHANNEL, CONNECTION, Envelope};

    /// Smaller than a server would agree on, so that messages of a test have bodies of several frames.
    const FRAME_MAX: usize = 64;

    #[derive(Clone, Debug)]
    enum AnyServerMessage {
        Delivered(u64, bool, Vec<u8>),
        Returned(u16, String, Vec<u8>),
        Got(Vec<u8>),
        Confirmed(u64, bool),
        Refused(u64, bool),
        Cancelled,
        Blocked(String),
        Unblocked,
        Flow(u8),
        Heartbeat,
        Answer(Vec<u8>),
        Closed(bool, u16, String),
    }

    impl AnyServerMessage {
        fn write(&self, out: &mut Vec<u8>) {
            let (id, arguments, body) = match self {
                Self::Delivered(tag, redelivered, body) => {
                    let arguments =
                        Arguments::default().name("tag").longlong(*tag).byte((*redelivered).into());
                    (wire::DELIVER, arguments.name("").name("queue"), Some(body))
                }
                Self::Returned(code, text, body) => {
                    let arguments = Arguments::default().short(*code).name(text).name("").name("queue");
                    (wire::RETURN, arguments, Some(body))
                }
                Self::Got(body) => (wire::GET_OK, Arguments::default().longlong(1), Some(body)),
                Self::Confirmed(tag, multiple) => {
                    (wire::ACK, Arguments::default().longlong(*tag).byte((*multiple).into()), None)
                }
                Self::Refused(tag, multiple) => {
                    (wire::NACK, Arguments::default().longlong(*tag).byte((*multiple).into()), None)
                }
                Self::Cancelled => (wire::CANCEL, Arguments::default().name("tag").byte(0), None),
                Self::Blocked(why) => (wire::BLOCKED, Arguments::default().name(why), None),
                Self::Unblocked => (wire::UNBLOCKED, Arguments::default(), None),
                Self::Flow(active) => (wire::FLOW, Arguments::default().byte(*active), None),
                Self::Heartbeat => return out.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0xCE]),
                Self::Answer(arguments) => (wire::DECLARE_OK, Arguments(arguments.clone()), None),
                Self::Closed(connection, code, text) => {
                    let id = if *connection { CLOSE } else { CHANNEL_CLOSE };
                    (id, Arguments::default().short(*code).name(text).short(0).short(0), None)
                }
            };
            let channel = if id.0 == CLOSE.0 { CONNECTION } else { CHANNEL };
            wire::method(out, channel, id, &arguments);
            if let Some(body) = body {
                let mut published = Vec::new();
                Envelope::new("", false).write(&mut published, body, FRAME_MAX);
                let (_, publish) = wire::first(&published, FRAME_MAX).unwrap().unwrap();
                out.extend_from_slice(&published[publish..]);
            }
        }

        /// The expected result of parsing it, as text.
        fn shown(&self) -> Option<String> {
            let event = |event: Event| Some(format!("{:?}", ServerMessage::Event(event)));
            match self.clone() {
                Self::Delivered(tag, redelivered, body) => event(Event::Delivered { tag, redelivered, body }),
                Self::Returned(code, text, body) => {
                    event(Event::Returned { text: format!("{code} {text}"), body })
                }
                Self::Got(body) => event(Event::Answer(wire::GET_OK, body)),
                Self::Confirmed(tag, multiple) => event(Event::Confirmed { tag, multiple }),
                Self::Refused(tag, multiple) => event(Event::Refused { tag, multiple }),
                Self::Cancelled => event(Event::Cancelled),
                Self::Blocked(why) => Some(format!("{:?}", ServerMessage::Blocked(why))),
                Self::Flow(active) => Some(format!("{:?}", ServerMessage::Flow(active))),
                Self::Unblocked | Self::Heartbeat => None,
                Self::Answer(arguments) => event(Event::Answer(wire::DECLARE_OK, arguments)),
                Self::Closed(connection, code, text) => {
                    Some(format!("{:?}", ServerMessage::Closed { connection, code, text }))
                }
            }
        }
    }

    fn saying() -> impl Strategy<Value = AnyServerMessage> {
        let body = || prop::collection::vec(any::<u8>(), 0..200);
        let text = || "[a-zé]{0,9}";
        prop_oneof![
            (any::<u64>(), any::<bool>(), body())
                .prop_map(|(tag, again, body)| AnyServerMessage::Delivered(tag, again, body)),
            (any::<u16>(), text(), body())
                .prop_map(|(code, text, body)| AnyServerMessage::Returned(code, text, body)),
            body().prop_map(AnyServerMessage::Got),
            (any::<u64>(), any::<bool>())
                .prop_map(|(tag, multiple)| AnyServerMessage::Confirmed(tag, multiple)),
            (any::<u64>(), any::<bool>())
                .prop_map(|(tag, multiple)| AnyServerMessage::Refused(tag, multiple)),
            Just(AnyServerMessage::Cancelled),
            text().prop_map(AnyServerMessage::Blocked),
            Just(AnyServerMessage::Unblocked),
            any::<u8>().prop_map(AnyServerMessage::Flow),
            Just(AnyServerMessage::Heartbeat),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(AnyServerMessage::Answer),
            (any::<bool>(), any::<u16>(), text())
                .prop_map(|(all, code, text)| AnyServerMessage::Closed(all, code, text)),
        ]
    }

    fn written(sayings: &[AnyServerMessage]) -> Vec<u8> {
        let mut out = Vec::new();
        for saying in sayings {
            saying.write(&mut out);
        }
        out
    }

    /// All messages parsed from bytes that arrive in pieces, and the error that ended the parsing, if any.
    fn said<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<Error>) {
        let mut decoder = Decoder::new(FRAME_MAX);
        let (mut all, mut received, mut unread) = (Vec::new(), 0, Vec::new());
        for piece in pieces {
            unread.extend_from_slice(piece);
            received += piece.len();
            loop {
                let (parsed, said) = decoder.next(&unread);
                unread.drain(..parsed);
                match said {
                    Ok(Some(said)) => all.push(format!("{said:?}")),
                    Ok(None) => break,
                    Err(error) => return (all, Some(error)),
                }
            }
            assert!(unread.len() < FRAME_MAX, "no more is kept than a frame");
            let body = decoder.content.as_ref().map_or(0, |content| content.body.capacity());
            assert!(body <= 2 * received, "a body of {body} bytes of {received}");
        }
        (all, None)
    }

    /// Cuts the bytes into pieces of these lengths, repeated.
    fn pieces<'a>(mut bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        lengths.iter().cycle().map_while(move |length| {
            let (piece, rest) = bytes.split_at(bytes.len().min(*length));
            bytes = rest;
            (!piece.is_empty()).then_some(piece)
        })
    }

    proptest! {
        /// The same messages are parsed however the bytes are cut.
        #[test]
        fn what_is_said_does_not_depend_on_how_it_arrives(
            sayings in prop::collection::vec(saying(), 0..9),
            lengths in prop::collection::vec(1_usize..90, 1..6),
        ) {
            let bytes = written(&sayings);
            let shown = (sayings.iter().filter_map(AnyServerMessage::shown).collect::<Vec<_>>(), None);
            prop_assert_eq!(&said([&bytes[..]]), &shown);
            prop_assert_eq!(&said(pieces(&bytes, &lengths)), &shown);
            prop_assert_eq!(&said(bytes.chunks(1)), &shown);
        }

        /// Bytes that a fault on the way has changed make no panic, and are parsed alike however they are cut.
        #[test]
        fn what_was_garbled_does_no_harm(
            sayings in prop::collection::vec(saying(), 1..9),
            changes in changes(1..5),
            lengths in prop::collection::vec(1_usize..90, 1..6),
        ) {
            let mut bytes = written(&sayings);
            garble(&mut bytes, &changes);
            let whole = said([&bytes[..]]);
            prop_assert_eq!(&said(pieces(&bytes, &lengths)), &whole);
            prop_assert_eq!(&said(bytes.chunks(1)), &whole);
        }
    }

    /// Frames of a message: its method, its header with the size, and pieces of its body.
    fn message(method: Id, size: u64, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        wire::method(&mut out, CHANNEL, method, &Arguments::default().name("").longlong(1).byte(0));
        out.extend(header(size));
        for piece in pieces {
            wire::frame(&mut out, wire::BODY, CHANNEL, &[piece]);
        }
        out
    }

    fn header(size: u64) -> Vec<u8> {
        let mut out = Vec::new();
        wire::frame(&mut out, wire::HEADER, CHANNEL, &[&[0, 60, 0, 0], &size.to_be_bytes(), &[0, 0]]);
        out
    }

    #[track_caller]
    fn makes_no_sense(bytes: &[u8], why: &str) {
        let (all, error) = said([bytes]);
        assert!(all.is_empty(), "{all:?}");
        assert!(matches!(&error, Some(Error::Protocol(said)) if said.contains(why)), "{error:?}");
    }

    /// A body of the wrong length is a protocol error. It must not be taken for a message that nobody published.
    #[test]
    fn a_body_is_as_long_as_its_header_says() {
        let whole = said([&message(wire::DELIVER, 3, &[b"ab", b"", b"c"])[..]]);
        assert!(whole.0[0].contains("body: [97, 98, 99]") && whole.1.is_none(), "{whole:?}");
        let empty = said([&message(wire::DELIVER, 0, &[])[..]]);
        assert!(empty.0[0].contains("body: []") && empty.1.is_none(), "{empty:?}");
        makes_no_sense(&message(wire::DELIVER, 3, &[b"ab", b"cd"]), "longer than its 3 bytes");
        let mut more = message(wire::DELIVER, 0, &[]);
        more.extend_from_slice(&message(wire::DELIVER, 0, &[b"x"])[..]);
        let (all, error) = said([&more[..]]);
        assert!(all.len() == 2 && error == Some(stray()), "{all:?} {error:?}");
    }

    #[test]
    fn a_message_s_frames_come_in_their_order() {
        let whole = message(wire::DELIVER, 3, &[b"abc"]);
        let (_, method) = wire::first(&whole, FRAME_MAX).unwrap().unwrap();
        let (begun, header) = (&whole[..method], header(3));
        let body = &whole[method + header.len()..];
        makes_no_sense(&[begun, body].concat(), "without a method");
        makes_no_sense(&[begun, &header, &header].concat(), "without a method");
        makes_no_sense(&[&header[..], body].concat(), "without a method");
        makes_no_sense(&[begun, begun].concat(), "before the end of a message");
        makes_no_sense(&message(wire::DELIVER, BODY + 1, &[]), "a message of");
        makes_no_sense(&message(wire::DELIVER, u64::MAX, &[]), "a message of");
        // the end of the channel or of the connection is noticed in the middle of a message, too
        for connection in [true, false] {
            let mut cut = [begun, &header[..]].concat();
            AnyServerMessage::Closed(connection, 320, "it stops".to_owned()).write(&mut cut);
            let (all, error) = said([&cut[..]]);
            assert!(all[0].contains("it stops") && error.is_none(), "{all:?} {error:?}");
        }
    }
}
