//! Frames of the protocol: a length, a header and a body, each encoded as `MessagePack`.

use std::ops::Range;

use super::{Encoder, Error, Reader};

pub(super) mod request {
    pub(in crate::iproto) const SELECT: u8 = 0x01;
    pub(in crate::iproto) const INSERT: u8 = 0x02;
    pub(in crate::iproto) const REPLACE: u8 = 0x03;
    pub(in crate::iproto) const UPDATE: u8 = 0x04;
    pub(in crate::iproto) const DELETE: u8 = 0x05;
    pub(in crate::iproto) const AUTH: u8 = 0x07;
    pub(in crate::iproto) const EVAL: u8 = 0x08;
    /// The code of a call. Not 0x06, the call of Tarantool 1.6, which wraps each returned value in a tuple.
    pub(in crate::iproto) const CALL: u8 = 0x0a;
    pub(in crate::iproto) const PING: u8 = 0x40;
}

pub(super) mod request_key {
    pub(in crate::iproto) const SPACE: u64 = 0x10;
    pub(in crate::iproto) const INDEX: u64 = 0x11;
    pub(in crate::iproto) const LIMIT: u64 = 0x12;
    pub(in crate::iproto) const OFFSET: u64 = 0x13;
    pub(in crate::iproto) const ITERATOR: u64 = 0x14;
    pub(in crate::iproto) const KEY: u64 = 0x20;
    pub(in crate::iproto) const TUPLE: u64 = 0x21;
    pub(in crate::iproto) const FUNCTION_NAME: u64 = 0x22;
    pub(in crate::iproto) const USER: u64 = 0x23;
    pub(in crate::iproto) const EXPRESSION: u64 = 0x27;
}

const HEADER_CODE: u64 = 0x00;
const HEADER_SYNC: u64 = 0x01;
const BODY_DATA: u64 = 0x30;
const BODY_ERROR: u64 = 0x31;

const CODE_OK: u64 = 0x00;
const CODE_CHUNK: u64 = 0x80;
const CODE_ERROR: u64 = 0x8000;

const LENGTH_MARKER: u8 = 0xce;
const LENGTH_LEN: usize = 5;
/// Tarantool's own limit of a packet, in bytes: 2 GiB.
const REQUEST_MAX: usize = 2 * 1024 * 1024 * 1024;
/// Bytes of the longest answer: 1 GiB, more than any that the bench asks for. A greater length is taken to be
/// garbage.
const REPLY_MAX: usize = 1024 * 1024 * 1024;

/// Encodes one request into `output`, which is emptied first.
pub(super) fn encode(
    output: &mut Encoder,
    kind: u8,
    sync: u64,
    body: impl FnOnce(&mut Encoder),
) -> Result<(), Error> {
    output.clear();
    // the length has a form of fixed size, so that it can be filled in once it is known
    output.bytes_mut().extend_from_slice(&[LENGTH_MARKER, 0, 0, 0, 0]);
    output.map(2).u64(HEADER_CODE).u64(kind.into()).u64(HEADER_SYNC).u64(sync);
    let body_start = output.as_slice().len();
    body(output);
    let length = output.as_slice().len() - LENGTH_LEN;
    let prefix =
        u32::try_from(length).ok().filter(|_| length <= REQUEST_MAX).ok_or(Error::TooLong(length))?;
    debug_assert!(
        {
            let mut body = Reader::new(output.as_slice().get(body_start..).unwrap_or_default());
            body.skip().is_ok() && body.is_empty()
        },
        "the closures of a request must write whole values, as many as their headers say"
    );
    if let Some(place) = output.bytes_mut().get_mut(1..LENGTH_LEN) {
        place.copy_from_slice(&prefix.to_be_bytes());
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The range of the frame's header and body in the bytes.
    Whole(Range<usize>),
    /// At least this many bytes have yet to arrive.
    Missing(usize),
}

/// Finds the first frame in the bytes that have arrived.
pub(super) fn split(bytes: &[u8]) -> Result<Frame, Error> {
    let Some(&marker) = bytes.first() else { return Ok(Frame::Missing(LENGTH_LEN)) };
    // the server uses only the long form of a length, but the protocol allows any
    let prefix = match marker {
        0..=0x7f => 1,
        0xcc => 2,
        0xcd => 3,
        LENGTH_MARKER => 5,
        0xcf => 9,
        _ => return Err(Error::Protocol(format!("a frame begins with {marker:#04x}, not with its length"))),
    };
    let Some(mut length) = bytes.get(..prefix).map(Reader::new) else {
        return Ok(Frame::Missing(prefix - bytes.len()));
    };
    let length = length.u64()?;
    let end = usize::try_from(length)
        .ok()
        .filter(|length| *length <= REPLY_MAX)
        .map(|length| prefix + length)
        .ok_or_else(|| Error::Protocol(format!("a frame of {length} bytes")))?;
    Ok(match end.checked_sub(bytes.len()) {
        None | Some(0) => Frame::Whole(prefix..end),
        Some(missing) => Frame::Missing(missing),
    })
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The range of the body in the frame.
    Ok(Range<usize>),
    Refused {
        code: u32,
        message: String,
    },
    Pushed,
}

/// Parses a frame: the number (sync) of the request that it answers, and the answer.
pub(super) fn parse(frame: &[u8]) -> Result<(u64, Answer), Error> {
    let mut reader = Reader::new(frame);
    let (mut code, mut sync) = (None, None);
    for _ in 0..reader.map_len()? {
        match reader.u64()? {
            HEADER_CODE => code = Some(reader.u64()?),
            HEADER_SYNC => sync = Some(reader.u64()?),
            _ => reader.skip()?,
        }
    }
    let (Some(code), Some(sync)) = (code, sync) else {
        return Err(Error::Protocol("a header without code or sync".into()));
    };
    let answer = match code {
        CODE_OK => Answer::Ok(frame.len() - reader.rest().len()..frame.len()),
        CODE_CHUNK => Answer::Pushed,
        _ if code & CODE_ERROR != 0 => Answer::Refused {
            code: u32::try_from(code & (CODE_ERROR - 1)).unwrap_or(u32::MAX),
            message: find(reader, BODY_ERROR)?.str()?.to_owned(),
        },
        _ => return Err(Error::Protocol(format!("an answer of the unknown kind {code:#x}"))),
    };
    Ok((sync, answer))
}

/// A reader of the data in a successful answer's body.
pub(super) fn data(body: &[u8]) -> Result<Reader<'_>, Error> {
    find(Reader::new(body), BODY_DATA)
}

/// A reader of the value that a body has under `key`, and of nothing else.
fn find(mut body: Reader<'_>, key: u64) -> Result<Reader<'_>, Error> {
    for _ in 0..body.map_len()? {
        let found = body.u64()? == key;
        let value = body.value()?;
        if found {
            return Ok(value);
        }
    }
    Err(Error::Protocol(format!("a body without key {key:#x}")))
}
