//! The places that connections have.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// The places that connections have.
#[derive(Default)]
pub(crate) struct Places {
    open: AtomicUsize,
    idle: Mutex<Idle>,
    /// Told when a place becomes free, or may be given up.
    freed: Notify,
}

/// Connections that are idle, each with what tells it to leave, by the order in which they became so.
#[derive(Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// Whether there is a place for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vacancy {
    Free,
    /// The connection that has been idle for longest gives its place up: otherwise whoever opens connections and says
    /// nothing would keep others out.
    GivenUp,
    /// All have theirs, and none is idle.
    None,
}

impl Places {
    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Whether there is a place for another connection, if there may be so many.
    pub(crate) fn room(&self, most: usize) -> Vacancy {
        if self.open() < most {
            return Vacancy::Free;
        }
        let Some((_, leave)) = self.idle().waiting.pop_first() else { return Vacancy::None };
        leave.notify_one();
        Vacancy::GivenUp
    }

    /// Waits until there may be room: it is to be looked at again.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    pub(crate) fn take(self: &Arc<Self>) -> Held {
        self.open.fetch_add(1, Relaxed);
        Held { places: Arc::clone(self) }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as an idle connection does. None if it is to give its place up.
    pub(crate) async fn while_idle<T>(&self, waits: impl Future<Output = T>) -> Option<T> {
        let leave = Arc::new(Notify::new());
        let _waiting = Waiting::new(self, &leave);
        tokio::select! {
            biased;
            // a request that has come is answered
            came = waits => Some(came),
            () = leave.notified() => None,
        }
    }
}

/// A place among the connections, which ends with it.
pub(crate) struct Held {
    pub(crate) places: Arc<Places>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.places.open.fetch_sub(1, Relaxed);
        self.places.freed.notify_one();
    }
}

/// A place among those that are idle.
struct Waiting<'p> {
    places: &'p Places,
    number: u64,
}

impl<'p> Waiting<'p> {
    fn new(places: &'p Places, leave: &Arc<Notify>) -> Self {
        let mut idle = places.idle();
        let number = idle.next;
        idle.next += 1;
        idle.waiting.insert(number, Arc::clone(leave));
        drop(idle);
        places.freed.notify_one();
        Self { places, number }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.places.idle().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn whoever_was_idle_for_longest_gives_its_place_up() {
        let places = Arc::new(Places::default());
        let _open = [(); 3].map(|()| places.take());
        assert_eq!(places.room(4), Vacancy::Free);
        assert_eq!(places.room(3), Vacancy::None, "none of them is idle");
        let first = places.while_idle(std::future::pending::<()>());
        let second = places.while_idle(std::future::pending::<()>());
        tokio::pin!(first, second);
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        assert_eq!(places.room(3), Vacancy::GivenUp);
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(first.await, None);
        // what comes at that moment is served, and it is not idle any more
        assert_eq!(places.while_idle(std::future::ready(7)).await, Some(7));
        assert_eq!((places.room(3), places.room(3)), (Vacancy::GivenUp, Vacancy::None));
        assert_eq!(second.await, None);
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_of_it() {
        let places = Arc::new(Places::default());
        let held = places.take();
        let mut idle = Box::pin(places.while_idle(std::future::pending::<()>()));
        assert!(places.freed().now_or_never().is_none());
        assert!(idle.as_mut().now_or_never().is_none());
        assert!(places.freed().now_or_never().is_some(), "it has become idle");
        assert!(places.freed().now_or_never().is_none());
        drop((idle, held));
        assert!(places.freed().now_or_never().is_some(), "it has gone");
    }
}
