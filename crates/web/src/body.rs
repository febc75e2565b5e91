//! Bodies of requests, within their limits.

use std::{fmt::Display, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::timeout;

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is longer than it may be.
    TooLarge,
    /// It did not come in time.
    TooSlow,
    /// So many bodies are being read that there is no room for another.
    NoRoom,
    /// It ended before its end, and how.
    Cut(String),
}

/// Reads a body of at most so many bytes, all of which must come within this time. `take_room` is asked whether there is room for
/// what has come, a part at a time: a slow client takes no more than it has sent.
///
/// # Errors
/// Why it was not read.
pub async fn read<B: Body<Data = Bytes, Error: Display> + Unpin>(
    body: B,
    most: usize,
    within: Duration,
    take_room: impl FnMut(usize) -> bool,
) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > most as u64 {
        return Err(Unread::TooLarge);
    }
    timeout(within, collect(body, most, take_room)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect<B: Body<Data = Bytes, Error: Display> + Unpin>(
    mut body: B,
    most: usize,
    mut take_room: impl FnMut(usize) -> bool,
) -> Result<Bytes, Unread> {
    let mut length = 0;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| Unread::Cut(error.to_string()))?.into_data() else { continue };
        length += data.len();
        if length > most {
            return Err(Unread::TooLarge);
        }
        if !take_room(data.len()) {
            return Err(Unread::NoRoom);
        }
        // most bodies come in one piece, and are not copied
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body of these parts, which then ends, is cut, or says nothing more.
    fn body(
        parts: &[&'static str],
        end: Option<Result<(), &'static str>>,
    ) -> impl Body<Data = Bytes, Error = &'static str> + Unpin {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
        let rest = match end {
            Some(Ok(())) => stream::empty().boxed(),
            Some(Err(why)) => stream::iter([Err(why)]).boxed(),
            None => stream::pending().boxed(),
        };
        StreamBody::new(stream::iter(parts).chain(rest).boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_within_its_limits() {
        let whole = body(&["abc", "de", "f"], Some(Ok(())));
        assert_eq!(read(whole, 6, SECOND, |_| true).await.unwrap(), "abcdef");
        let long = body(&["abc", "de", "f"], Some(Ok(())));
        assert_eq!(read(long, 5, SECOND, |_| true).await, Err(Unread::TooLarge));
        let slow = body(&["abc"], None);
        assert_eq!(read(slow, 5, SECOND, |_| true).await, Err(Unread::TooSlow));
        let cut = body(&["abc"], Some(Err("gone")));
        assert_eq!(read(cut, 5, SECOND, |_| true).await, Err(Unread::Cut("gone".to_owned())));
    }

    /// And of a body that says its length, none where that is too much.
    #[tokio::test]
    async fn room_is_taken_for_what_has_come_alone() {
        let mut taken = Vec::new();
        let unread = read(body(&["abc", "de", "f"], Some(Ok(()))), 6, SECOND, |bytes| {
            taken.push(bytes);
            taken.len() < 2
        });
        assert_eq!(unread.await, Err(Unread::NoRoom));
        assert_eq!(taken, [3, 2]);
        let told = Full::new(Bytes::from_static(b"abcdef"));
        assert_eq!(read(told, 5, SECOND, |_| panic!("nothing is read")).await, Err(Unread::TooLarge));
    }
}
