//! The body of a request: read within its limits of bytes and time, and of all bodies together.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::Service;

/// Bytes of bodies that may be read at once, of all users together, and of one of them: nobody can keep others out.
const BODIES: usize = 128 << 20;
const OF_ONE: usize = BODIES / 2;

/// Bytes of bodies that are being read.
#[derive(Debug, Default)]
pub(super) struct Bodies(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_user: HashMap<String, usize>,
}

impl Bodies {
    fn take(&self, user: &str, bytes: usize) -> Result<(), Unread> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = held.by_user.get(user).copied().unwrap_or(0);
        if held.all + bytes > BODIES || of_user + bytes > OF_ONE {
            return Err(Unread::NoRoom);
        }
        held.all += bytes;
        match held.by_user.get_mut(user) {
            Some(of_user) => *of_user += bytes,
            None => drop(held.by_user.insert(user.to_owned(), bytes)),
        }
        Ok(())
    }

    fn give_back(&self, user: &str, bytes: usize) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= bytes;
        if let Some(of_user) = held.by_user.get_mut(user) {
            *of_user -= bytes;
            if *of_user == 0 {
                held.by_user.remove(user);
            }
        }
    }
}

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
pub(super) struct Taken<'s> {
    pub(super) bytes: Bytes,
    /// Given back with it.
    _room: Room<'s>,
}

struct Room<'s> {
    bodies: &'s Bodies,
    user: &'s str,
    bytes: usize,
}

impl Room<'_> {
    /// Takes room for what has come: a slow client takes no more than it has sent.
    fn grow(&mut self, bytes: usize) -> Result<(), Unread> {
        self.bodies.take(self.user, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.bodies.give_back(self.user, self.bytes);
    }
}

/// Reads the body of a user's request.
pub(super) async fn read<'s>(
    service: &'s Service,
    user: &'s str,
    body: Incoming,
) -> Result<Taken<'s>, Unread> {
    let (most, time): (usize, Duration) = (service.limits.body, service.limits.body_time);
    if body.size_hint().lower() > most as u64 {
        return Err(Unread::TooLarge);
    }
    let room = Room { bodies: &service.bodies, user, bytes: 0 };
    timeout(time, collect(room, body, most)).await.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(mut room: Room<'_>, mut body: Incoming, most: usize) -> Result<Taken<'_>, Unread> {
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
    Ok(Taken { bytes, _room: room })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_no_more_than_half_of_the_room() {
        let bodies = Bodies::default();
        let mut taken = 0;
        while bodies.take("greedy", 2 << 20).is_ok() {
            taken += 2 << 20;
        }
        assert_eq!(taken, OF_ONE);
        assert_eq!(bodies.take("greedy", 1), Err(Unread::NoRoom));
        assert_eq!(bodies.take("other", OF_ONE), Ok(()));
        assert_eq!(bodies.take("third", 1), Err(Unread::NoRoom), "together they take no more than there is");
        bodies.give_back("greedy", taken);
        assert_eq!(bodies.take("third", 1), Ok(()));
        bodies.give_back("third", 1);
        bodies.give_back("other", OF_ONE);
        let held = bodies.0.lock().unwrap();
        assert_eq!((held.all, held.by_user.len()), (0, 0));
    }
}
