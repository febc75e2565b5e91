//! Sleeping until a moment, exact to the microsecond.

use std::{cell::OnceCell, time::Duration};

use rustix::{
    fd::{AsRawFd, OwnedFd},
    process::{Resource, getrlimit},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel. The runtime's timers wake on whole milliseconds, which would add up to one millisecond to
/// every response time of an open loop; this timer is limited by the scheduler only.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    /// Created when first needed, so that a client that never sleeps costs no file descriptor.
    timer: OnceCell<Option<AsyncFd<OwnedFd>>>,
}

impl Sleeper {
    /// A sleeper that uses the runtime's clock, which may be paused. It sleeps in whole milliseconds, and costs no file
    /// descriptor.
    pub(crate) fn coarse() -> Self {
        Self { timer: OnceCell::from(None) }
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        let Some(timer) = self.timer.get_or_init(timer).as_ref().filter(|_| !duration.is_zero()) else {
            return tokio::time::sleep(duration).await;
        };
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: duration.subsec_nanos().into(),
            },
        };
        if timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec).is_err() {
            return tokio::time::sleep(duration).await;
        }
        let mut expirations = [0_u8; 8];
        while let Ok(mut ready) = timer.readable().await {
            // a wake-up left over from an earlier, abandoned sleep reads as "would block"
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            if matches!(read, Ok(Ok(_))) {
                return;
            }
        }
    }
}

/// Creates the timer, on the runtime of the thread that will sleep. Where the kernel gives no timer, sleeping falls
/// back to whole milliseconds; so it does where half of the files that can be open are: the others are for connections.
fn timer() -> Option<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
    // the kernel gives the lowest number that is free
    let number = u64::try_from(timer.as_raw_fd()).unwrap_or(u64::MAX);
    if getrlimit(Resource::Nofile).current.is_some_and(|most| number > most / 2) {
        return None;
    }
    // deprecated because some types could change the descriptor they show; an OwnedFd cannot, and the replacement
    // is unsafe code
    #[allow(deprecated)]
    AsyncFd::new(timer).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_short_sleep_is_no_whole_millisecond() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sleeper = Sleeper::default();
            let (begun, mut taken) = (Instant::now(), Vec::new());
            // a busy machine wakes it late, but not each time; the runtime's own timers could not do it in less
            // than a millisecond
            while taken.iter().filter(|taken| **taken < Duration::from_millis(1)).count() < 5 {
                assert!(begun.elapsed() < Duration::from_mins(1), "{taken:?}");
                let start = Instant::now();
                sleeper.sleep(Duration::from_micros(200)).await;
                taken.push(start.elapsed());
            }
            assert!(taken.iter().all(|taken| *taken >= Duration::from_micros(200)), "{taken:?}");
        });
    }

    #[test]
    fn an_abandoned_sleep_does_not_cut_the_next_one_short() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sleeper = Sleeper::default();
            let brief = Duration::from_millis(1);
            let _ = tokio::time::timeout(brief, sleeper.sleep(Duration::from_millis(2))).await;
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            sleeper.sleep(Duration::from_millis(20)).await;
            assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
        });
    }
}
