//! The bytes of AMQP 0-9-1: writes frames to be sent, and parses received ones.
//!
//! Numbers of classes and methods are those of the specification (`amqp0-9-1.extended.xml`), with RabbitMQ's own
//! methods `confirm.*`, `basic.nack` and `connection.blocked`.

use bytes::BufMut;

/// The first bytes that a client sends.
pub(crate) const GREETING: &[u8] = b"AMQP\0\0\x09\x01";
/// The last byte of every frame.
const END: u8 = 0xCE;
/// Length of a frame without its payload, in bytes.
pub(crate) const AROUND: usize = 8;

const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// The class of methods that publish and deliver messages.
const BASIC: u16 = 60;
/// The flag in a message's header that says that it has a delivery mode.
const DELIVERY_MODE: u16 = 1 << 12;
/// The only channel of a connection. [`CONNECTION`] is the channel number of the connection itself.
pub(crate) const CHANNEL: u16 = 1;
pub(crate) const CONNECTION: u16 = 0;

/// The numbers of a method's class and of the method in it.
pub type Id = (u16, u16);

pub(crate) const START: Id = (10, 10);
pub(crate) const START_OK: Id = (10, 11);
pub(crate) const TUNE: Id = (10, 30);
pub(crate) const TUNE_OK: Id = (10, 31);
pub(crate) const OPEN: Id = (10, 40);
pub(crate) const OPEN_OK: Id = (10, 41);
pub(crate) const CLOSE: Id = (10, 50);
pub(crate) const CLOSE_OK: Id = (10, 51);
pub(crate) const BLOCKED: Id = (10, 60);
pub(crate) const UNBLOCKED: Id = (10, 61);
pub(crate) const CHANNEL_OPEN: Id = (20, 10);
pub(crate) const CHANNEL_OPEN_OK: Id = (20, 11);
pub(crate) const FLOW: Id = (20, 20);
pub(crate) const FLOW_OK: Id = (20, 21);
pub(crate) const CHANNEL_CLOSE: Id = (20, 40);
pub(crate) const CHANNEL_CLOSE_OK: Id = (20, 41);
/// `queue.declare`.
pub const DECLARE: Id = (50, 10);
/// `queue.declare-ok`.
pub const DECLARE_OK: Id = (50, 11);
/// `queue.delete`.
pub const DELETE: Id = (50, 40);
/// `queue.delete-ok`.
pub const DELETE_OK: Id = (50, 41);
/// `basic.qos`.
pub const QOS: Id = (BASIC, 10);
/// `basic.qos-ok`.
pub const QOS_OK: Id = (BASIC, 11);
/// `basic.consume`.
pub const CONSUME: Id = (BASIC, 20);
/// `basic.consume-ok`.
pub const CONSUME_OK: Id = (BASIC, 21);
/// `basic.cancel`.
pub const CANCEL: Id = (BASIC, 30);
/// `basic.cancel-ok`.
pub const CANCEL_OK: Id = (BASIC, 31);
pub(crate) const PUBLISH: Id = (BASIC, 40);
pub(crate) const RETURN: Id = (BASIC, 50);
pub(crate) const DELIVER: Id = (BASIC, 60);
pub(crate) const GET: Id = (BASIC, 70);
pub(crate) const GET_OK: Id = (BASIC, 71);
pub(crate) const GET_EMPTY: Id = (BASIC, 72);
/// `basic.ack`.
pub const ACK: Id = (BASIC, 80);
pub(crate) const NACK: Id = (BASIC, 120);
/// `confirm.select`.
pub const CONFIRM: Id = (85, 10);
/// `confirm.select-ok`.
pub const CONFIRM_OK: Id = (85, 11);
/// `tx.select`.
pub const TX: Id = (90, 10);
/// `tx.select-ok`.
pub const TX_OK: Id = (90, 11);
/// `tx.commit`.
pub const COMMIT: Id = (90, 20);
/// `tx.commit-ok`.
pub const COMMIT_OK: Id = (90, 21);

/// A value in a table that is sent.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Text(&'a str),
    True,
    Number(i64),
    Table(&'a [(&'a str, Value<'a>)]),
}

/// The arguments of a method, written one after the other.
#[derive(Clone, Debug, Default)]
pub struct Arguments(pub(crate) Vec<u8>);

impl Arguments {
    /// Adds a byte: a number, or up to eight flags.
    #[must_use]
    pub fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Adds a number of two bytes.
    #[must_use]
    pub fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a number of four bytes.
    #[must_use]
    pub fn long(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a number of eight bytes.
    #[must_use]
    pub fn longlong(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Adds a name. A name of more than 255 bytes is cut at the end of a character.
    #[must_use]
    pub fn name(mut self, text: &str) -> Self {
        let end = (0..=text.len().min(255)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        // at most 255
        self.0.push(u8::try_from(end).unwrap_or(0));
        self.0.extend_from_slice(&text.as_bytes()[..end]);
        self
    }

    /// Adds a text of any length.
    #[must_use]
    pub fn text(self, bytes: &[u8]) -> Self {
        let mut whole = self.long(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        whole.0.extend_from_slice(bytes);
        whole
    }

    #[must_use]
    pub fn table(self, entries: &[(&str, Value<'_>)]) -> Self {
        let inner = entries.iter().fold(Self::default(), |inner, (name, value)| {
            let inner = inner.name(name);
            match value {
                Value::Text(text) => inner.byte(b'S').text(text.as_bytes()),
                Value::True => inner.byte(b't').byte(1),
                Value::Number(number) => inner.byte(b'l').longlong(number.cast_unsigned()),
                Value::Table(entries) => inner.byte(b'F').table(entries),
            }
        });
        self.text(&inner.0)
    }
}

pub(super) fn frame(out: &mut impl BufMut, kind: u8, channel: u16, parts: &[&[u8]]) {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    out.put_u8(kind);
    out.put_u16(channel);
    // frames are no longer than the agreed limit, which is far below `u32::MAX`
    out.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    for part in parts {
        out.put_slice(part);
    }
    out.put_u8(END);
}

/// Writes a frame with a method and its arguments.
pub(crate) fn method(out: &mut impl BufMut, channel: u16, (class, number): Id, arguments: &Arguments) {
    frame(out, METHOD, channel, &[&class.to_be_bytes(), &number.to_be_bytes(), &arguments.0]);
}

/// Writes messages for the queue of this name, which the server returns if there is no such queue.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The frame of `basic.publish`, which is the same for every message.
    publish: Vec<u8>,
    /// Whether messages have the delivery mode persistent.
    persistent: bool,
}

impl Envelope {
    /// For messages to this queue, which outlive the broker's process if they are `persistent`.
    #[must_use]
    pub fn new(queue: &str, persistent: bool) -> Self {
        const MANDATORY: u8 = 1;
        let arguments = Arguments::default().short(0).name("").name(queue).byte(MANDATORY);
        let mut publish = Vec::new();
        method(&mut publish, CHANNEL, PUBLISH, &arguments);
        Self { publish, persistent }
    }

    /// Writes a message. `frame_max` is the largest frame in bytes, with all that is around its payload.
    pub(crate) fn write(&self, out: &mut impl BufMut, body: &[u8], frame_max: usize) {
        out.put_slice(&self.publish);
        let size = (body.len() as u64).to_be_bytes();
        let mode = if self.persistent { 2 } else { 1 };
        let parts: [&[u8]; 5] = [&BASIC.to_be_bytes(), &[0, 0], &size, &DELIVERY_MODE.to_be_bytes(), &[mode]];
        frame(out, HEADER, CHANNEL, &parts);
        for piece in body.chunks(frame_max.saturating_sub(AROUND).max(1)) {
            frame(out, BODY, CHANNEL, &[piece]);
        }
    }
}

/// A frame that the server sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Method(Id, &'a [u8]),
    /// The size of the body that follows.
    Header(u64),
    Body(&'a [u8]),
    Heartbeat,
}

/// Parses the first frame of the received bytes, and returns it with its length in bytes; none if it is not whole
/// yet.
///
/// # Errors
/// If the bytes are none that a server sends, or the frame is larger than was agreed.
pub(crate) fn first(input: &[u8], frame_max: usize) -> Result<Option<(Frame<'_>, usize)>, String> {
    // a server that speaks another version answers with the version's greeting
    if !input.is_empty() && input.starts_with(&b"AMQP"[..input.len().min(4)]) {
        return match input.get(4..8) {
            Some(version) => Err(format!("it speaks another version of AMQP {version:?}")),
            None => Ok(None),
        };
    }
    let Some((head, rest)) = input.split_at_checked(7) else {
        // a server of another protocol is recognized by its first byte
        return match input.first() {
            Some(kind) if ![METHOD, HEADER, BODY, HEARTBEAT].contains(kind) => Err(NO_AMQP.to_owned()),
            _ => Ok(None),
        };
    };
    let [kind, _, _, a, b, c, d] = *head else { return Ok(None) };
    if ![METHOD, HEADER, BODY, HEARTBEAT].contains(&kind) {
        return Err(NO_AMQP.to_owned());
    }
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    if size > frame_max.saturating_sub(AROUND) {
        return Err(format!("a frame of {size} bytes is larger than was agreed ({frame_max})"));
    }
    let Some((payload, rest)) = rest.split_at_checked(size) else { return Ok(None) };
    match rest.first() {
        None => return Ok(None),
        Some(&END) => {}
        Some(_) => return Err("a frame does not end where it should".to_owned()),
    }
    let frame = match kind {
        METHOD => {
            let mut reader = Reader(payload);
            let id = reader.short().and_then(|class| Some((class, reader.short()?)));
            Frame::Method(id.ok_or("a method without a number")?, reader.0)
        }
        HEADER => {
            let mut reader = Reader(payload);
            let size = reader.short().and_then(|_| reader.short()).and_then(|_| reader.longlong());
            Frame::Header(size.ok_or("a content's header without a size")?)
        }
        BODY => Frame::Body(payload),
        _ => Frame::Heartbeat,
    };
    Ok(Some((frame, size + AROUND)))
}

const NO_AMQP: &str = "it does not speak AMQP";

/// Reads the arguments of a method one after the other; each read returns none if they end too early.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn longlong(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn name(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.bytes(length.into()).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// The texts of a table, by name. Other values are left out.
    pub(crate) fn texts(&mut self) -> Option<Vec<(String, String)>> {
        let size = self.long()?;
        let mut table = Reader(self.bytes(size as usize)?);
        let mut texts = Vec::new();
        while !table.0.is_empty() {
            let name = table.name()?;
            if let TableValue::Text(text) = table.value()? {
                texts.push((name, text));
            }
        }
        Some(texts)
    }

    fn value(&mut self) -> Option<TableValue> {
        let size = match self.byte()? {
            b'S' | b'x' => {
                let size = self.long()?;
                let text = self.bytes(size as usize)?;
                return Some(TableValue::Text(String::from_utf8_lossy(text).into_owned()));
            }
            b'F' | b'A' => self.long()? as usize,
            b't' | b'b' | b'B' => 1,
            b's' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'l' | b'L' | b'd' | b'T' => 8,
            b'D' => 5,
            b'V' => 0,
            _ => return None,
        };
        self.bytes(size)?;
        Some(TableValue::Other)
    }
}

/// A value of a table that was received.
enum TableValue {
    Text(String),
    Other,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 4096;

    #[test]
    fn what_is_written_reads_back() {
        let mut out = Vec::new();
        let arguments = Arguments::default().short(7).name("naïve").long(9).longlong(11);
        method(&mut out, CHANNEL, DECLARE_OK, &arguments);
        let (frame, used) = first(&out, MOST).unwrap().unwrap();
        assert_eq!(used, out.len());
        let Frame::Method(DECLARE_OK, arguments) = frame else { panic!("{frame:?}") };
        let mut reader = Reader(arguments);
        assert_eq!((reader.short(), reader.name().as_deref()), (Some(7), Some("naïve")));
        assert_eq!((reader.long(), reader.longlong(), reader.byte()), (Some(9), Some(11), None));
    }

    #[test]
    fn a_message_is_cut_into_frames_of_the_size_agreed() {
        let mut out = Vec::new();
        Envelope::new("queue", true).write(&mut out, &[5; 1000], 300);
        let mut frames = Vec::new();
        let mut rest = &out[..];
        while let Some((frame, used)) = first(rest, 300).unwrap() {
            frames.push(frame);
            rest = &rest[used..];
        }
        assert!(rest.is_empty());
        assert!(matches!(frames[..2], [Frame::Method(PUBLISH, _), Frame::Header(1000)]));
        let sizes: Vec<usize> = frames[2..]
            .iter()
            .map(|frame| if let Frame::Body(body) = frame { body.len() } else { panic!("{frame:?}") })
            .collect();
        assert_eq!(sizes, [292, 292, 292, 124]);
    }

    #[test]
    fn a_table_of_the_server_s_is_read() {
        let capabilities: [(&str, Value<'_>); 1] = [("basic.nack", Value::True)];
        let table = [
            ("product", Value::Text("RabbitMQ")),
            ("capabilities", Value::Table(&capabilities)),
            ("version", Value::Text("3.10.8")),
        ];
        let written = Arguments::default().table(&table).0;
        let texts = Reader(&written).texts().unwrap();
        assert_eq!(texts, [("product".into(), "RabbitMQ".into()), ("version".into(), "3.10.8".into())]);
    }

    #[test]
    fn what_is_no_amqp_is_told_apart() {
        assert!(first(b"HTTP/1.1 400", MOST).unwrap_err().contains("does not speak AMQP"));
        assert!(first(b"-", MOST).unwrap_err().contains("does not speak AMQP"));
        let other = b"AMQP\0\0\x09\x01";
        assert!(first(other, MOST).unwrap_err().contains("another version of AMQP [0, 0, 9, 1]"));
        assert!((0..other.len()).all(|end| first(&other[..end], MOST) == Ok(None)));
        assert!(first(&[METHOD, 0, 1, 0, 1, 0, 0, 0], MOST).unwrap_err().contains("larger"));
        assert!(first(&[METHOD, 0, 1, 0, 0, 0, 4, 0, 1, 0, 1, 7], MOST).unwrap_err().contains("end"));
        assert_eq!(first(&[METHOD, 0], MOST), Ok(None));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(input: Vec<u8>, kind in 0..9_u8) {
            let mut input = input;
            let _ = first(&input, MOST);
            // the bytes behind a valid head, so that its payload is parsed too
            let size = u32::try_from(input.len()).unwrap();
            let mut whole = vec![kind, 0, 1];
            whole.extend_from_slice(&size.to_be_bytes());
            whole.append(&mut input);
            whole.push(END);
            if let Ok(Some((Frame::Method(_, arguments), _))) = first(&whole, MOST) {
                let mut reader = Reader(arguments);
                let _ = (reader.name(), reader.texts(), reader.longlong());
            }
        }
    }
}
