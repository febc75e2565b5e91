//! What was received, made into what the server said: however the bytes are cut that arrive.

use super::{
    Error, Event,
    wire::{self, CHANNEL_CLOSE, CLOSE, Frame, Id, Reader},
};

/// Bytes that there is room for at least, each time that more are to be received.
const READ: usize = 1 << 16;
/// The largest body that is taken: the limit of a message is 512 MiB at most.
const BODY: u64 = 1 << 29;

/// What the server said.
#[derive(Debug)]
pub(super) enum ServerMessage {
    /// Something that somebody waits for.
    Event(Event),
    /// Why it takes no messages.
    Blocked(String),
    /// Whether it takes any, which is to be answered with the same.
    Flow(u8),
    /// Its last words: it closed the connection, or the channel.
    Closed { connection: bool, code: u16, text: String },
}

/// Content that has begun to arrive.
#[derive(Debug)]
struct Content {
    kind: Kind,
    /// None until its header is there.
    size: Option<usize>,
    /// It grows as it arrives: a size alone takes no memory.
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
    /// Asked for by `basic.get`.
    Got,
}

/// What a method is.
enum Method {
    /// The beginning of content.
    Begun(Kind),
    ServerMessage(ServerMessage),
    Nothing,
}

/// Bytes that were received, and how far they were understood.
#[derive(Debug)]
pub(super) struct Decoder {
    input: Vec<u8>,
    /// How much of `input` was understood.
    understood: usize,
    frame_max: usize,
    content: Option<Content>,
}

impl Decoder {
    /// Nothing was received, and frames are no larger than this.
    pub(super) fn new(frame_max: usize) -> Self {
        Self { input: Vec::new(), understood: 0, frame_max, content: None }
    }

    /// Frames are no larger than this from now on.
    pub(super) fn agree(&mut self, frame_max: usize) {
        self.frame_max = frame_max;
    }

    /// The largest frame, in bytes.
    pub(super) fn frame_max(&self) -> usize {
        self.frame_max
    }

    /// Where what is received next belongs: behind what is there. Call [`next`](Self::next) until it has nothing
    /// more to give before more is received.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.input.drain(..self.understood);
        self.understood = 0;
        self.input.reserve(READ);
        &mut self.input
    }

    /// The next thing that the server said; none before more is received.
    ///
    /// # Errors
    /// What no server says: nothing can be understood any more.
    pub(super) fn next(&mut self) -> Result<Option<ServerMessage>, Error> {
        loop {
            let rest = self.input.get(self.understood..).unwrap_or_default();
            let Some((frame, used)) = wire::first(rest, self.frame_max).map_err(Error::Protocol)? else {
                return Ok(None);
            };
            self.understood += used;
            if let Some(said) = take(&mut self.content, &frame)? {
                return Ok(Some(said));
            }
        }
    }
}

/// Takes one frame to the content that has begun, or as what it is by itself.
fn take(content: &mut Option<Content>, frame: &Frame<'_>) -> Result<Option<ServerMessage>, Error> {
    match *frame {
        Frame::Heartbeat => return Ok(None),
        Frame::Method(id, arguments) => {
            // what is said of the connection, or ends it, can come at any time
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

/// None where the arguments end too early.
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

    /// The least that can be agreed on would make every content one frame.
    const FRAME_MAX: usize = 64;

    /// Something that a server says.
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

        /// What it is to be understood as.
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

    /// All that is said by bytes that arrive in pieces, and why nothing more is understood, if so.
    fn said<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Option<Error>) {
        let mut decoder = Decoder::new(FRAME_MAX);
        let (mut all, mut received) = (Vec::new(), 0);
        for piece in pieces {
            decoder.room().extend_from_slice(piece);
            received += piece.len();
            loop {
                match decoder.next() {
                    Ok(Some(said)) => all.push(format!("{said:?}")),
                    Ok(None) => break,
                    Err(error) => return (all, Some(error)),
                }
            }
            assert!(decoder.input.len() - decoder.understood < FRAME_MAX, "no more is kept than a frame");
            let body = decoder.content.as_ref().map_or(0, |content| content.body.capacity());
            assert!(body <= 2 * received, "a body of {body} bytes of {received}");
        }
        (all, None)
    }

    /// The bytes in pieces of these lengths, over and over.
    fn pieces<'a>(mut bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
        lengths.iter().cycle().map_while(move |length| {
            let (piece, rest) = bytes.split_at(bytes.len().min(*length));
            bytes = rest;
            (!piece.is_empty()).then_some(piece)
        })
    }

    proptest! {
        /// However the bytes are cut, the server said the same.
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

        /// Bytes that a fault on the way has changed do no harm either, and mean the same however they are cut.
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

    /// It is no message that nobody sent: it is an answer that makes no sense.
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
        // the server's last words are heard wherever they stand
        for connection in [true, false] {
            let mut cut = [begun, &header[..]].concat();
            AnyServerMessage::Closed(connection, 320, "it stops".to_owned()).write(&mut cut);
            let (all, error) = said([&cut[..]]);
            assert!(all[0].contains("it stops") && error.is_none(), "{all:?} {error:?}");
        }
    }
}
