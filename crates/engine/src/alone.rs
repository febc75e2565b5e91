//! Waiting in a system call, where each client has a thread for itself.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    time::{Duration, Instant},
};

/// How long one wait may take (10 ms; a kernel that counts coarsely makes up to 30 of it). What has not come by then is waited
/// for by the runtime, which keeps the time.
const BLOCK: Duration = Duration::from_millis(10);

/// For how long after its beginning an attempt may wait so (50 ms). With the last wait it is below 100 ms: so soon does a client
/// see that the trial is being stopped.
pub(crate) const BLOCKING: Duration = Duration::from_millis(50);

/// The least time that an attempt must have until its deadline to wait so (100 ms): it then keeps to the deadline.
pub(crate) const LEAST_TIME: Duration = Duration::from_millis(100);

thread_local! {
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// For how long whoever is polled may wait in a system call in place of returning [`Pending`](std::task::Poll::Pending), because
/// the client of this attempt is all that there is to do on the thread; `None` if it may not.
///
/// A client that is woken in the system call in which it waits costs less than one that the runtime wakes: an event need not
/// be waited for and read by two calls, and the operation finds its code and data in the core's cache.
#[must_use]
pub fn may_block() -> Option<Duration> {
    let until = UNTIL.get()?;
    (Instant::now() < until).then_some(BLOCK)
}

/// Runs the future, which [may block](may_block) until this moment while it is polled for the first time.
pub(crate) async fn blocking<F: Future>(mut until: Option<Instant>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        UNTIL.set(until.take());
        let _over = Over;
        future.as_mut().poll(context)
    })
    .await
}

/// Ends the leave to block, also where a client panics.
struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        UNTIL.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Whether a future may block in each of two polls, if it may until this moment.
    fn may(until: Option<Instant>) -> [bool; 2] {
        let mut context = Context::from_waker(Waker::noop());
        let asked = Cell::new(false);
        let mut polled = pin!(blocking(
            until,
            poll_fn(|_| {
                asked.set(may_block().is_some());
                Poll::<()>::Pending
            })
        ));
        [(); 2].map(|()| {
            assert!(polled.as_mut().poll(&mut context).is_pending());
            assert_eq!(may_block(), None, "nobody may block who is not polled");
            asked.get()
        })
    }

    #[test]
    fn only_the_first_poll_may_block_and_not_for_ever() {
        let now = Instant::now();
        assert_eq!(may(Some(now + Duration::from_hours(1))), [true, false]);
        assert_eq!(may(Some(now)), [false, false]);
        assert_eq!(may(None), [false, false]);
    }

    #[test]
    fn a_client_that_panics_leaves_nobody_the_leave_to_block() {
        let panics = || {
            let mut context = Context::from_waker(Waker::noop());
            let until = Instant::now() + Duration::from_hours(1);
            let mut polled = pin!(blocking(Some(until), async { panic!("planted") }));
            polled.as_mut().poll(&mut context).map(|()| ())
        };
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(may_block(), None);
    }
}
