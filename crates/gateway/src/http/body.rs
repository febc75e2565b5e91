//! The body of a request: read within its limits, and those of all bodies together.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use acidtest_web::Unread;
use bytes::Bytes;
use hyper::body::Incoming;

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
    /// Takes room for a user's bytes, if there is any.
    fn take(&self, user: &str, bytes: usize) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = held.by_user.get(user).copied().unwrap_or(0);
        if held.all + bytes > BODIES || of_user + bytes > OF_ONE {
            return false;
        }
        held.all += bytes;
        match held.by_user.get_mut(user) {
            Some(of_user) => *of_user += bytes,
            None => drop(held.by_user.insert(user.to_owned(), bytes)),
        }
        true
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

/// A body that was read, and the room that it takes.
pub(super) struct Taken<'s> {
    pub(super) bytes: Bytes,
    /// Given back with it.
    _room: Allowance<'s>,
}

struct Allowance<'s> {
    bodies: &'s Bodies,
    user: &'s str,
    bytes: usize,
}

impl Drop for Allowance<'_> {
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
    let bodies = &service.bodies;
    let mut room = Allowance { bodies, user, bytes: 0 };
    let take_room = |bytes| {
        let is_taken = bodies.take(user, bytes);
        room.bytes += if is_taken { bytes } else { 0 };
        is_taken
    };
    let bytes = acidtest_web::read(body, service.limits.body, service.limits.body_time, take_room).await?;
    Ok(Taken { bytes, _room: room })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_takes_no_more_than_half_of_the_room() {
        let bodies = Bodies::default();
        let mut taken = 0;
        while bodies.take("greedy", 2 << 20) {
            taken += 2 << 20;
        }
        assert_eq!(taken, OF_ONE);
        assert!(!bodies.take("greedy", 1));
        assert!(bodies.take("other", OF_ONE));
        assert!(!bodies.take("third", 1), "together they take no more than there is");
        bodies.give_back("greedy", taken);
        assert!(bodies.take("third", 1));
        bodies.give_back("third", 1);
        bodies.give_back("other", OF_ONE);
        let held = bodies.0.lock().unwrap();
        assert_eq!((held.all, held.by_user.len()), (0, 0));
    }
}
