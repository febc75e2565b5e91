//! The body of a request: read within its limits of bytes and time, and of all bodies together.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::{BODIES, Service};

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    TooLarge,
    TooSlow,
    /// So many bodies are being read that there is no room for another.
    NoRoom,
    /// The client has left.
    Cut,
}

/// A body that was read, and the room that it takes.
pub(super) struct Held<'s> {
    pub(super) bytes: Bytes,
    /// Given back with it.
    _room: Room<'s>,
}

struct Room<'s> {
    service: &'s Service,
    bytes: usize,
}

impl Room<'_> {
    /// Takes room for what has come: a slow client takes no more than it has sent.
    fn grow(&mut self, bytes: usize) -> Result<(), Unread> {
        let before = self.service.bodies.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        if before + bytes > BODIES { Err(Unread::NoRoom) } else { Ok(()) }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.service.bodies.fetch_sub(self.bytes, Relaxed);
    }
}

pub(super) async fn read(service: &Service, body: Incoming) -> Result<Held<'_>, Unread> {
    let (most, time): (usize, Duration) = (service.limits.body, service.limits.body_time);
    if body.size_hint().lower() > most as u64 {
        return Err(Unread::TooLarge);
    }
    timeout(time, collect(service, body, most)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(service: &Service, mut body: Incoming, most: usize) -> Result<Held<'_>, Unread> {
    let mut room = Room { service, bytes: 0 };
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::Cut)?.into_data() else { continue };
        if room.bytes + data.len() > most {
            return Err(Unread::TooLarge);
        }
        room.grow(data.len())?;
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
    let bytes = if rest.is_empty() { first } else { rest.freeze() };
    Ok(Held { bytes, _room: room })
}
