//! Requests to stop the run, by Ctrl-C or a signal.

use std::{
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use acidtest_runner::{Failure, Interrupt};
use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, interval, sleep},
};

use crate::{exit::Status, output::say};

/// How often the run's thread shows that it is not held up.
const BEAT: Duration = Duration::from_millis(200);

/// How long it may be held up once it is to stop. What holds it up may be a step that would take minutes and more memory than
/// there is.
const HELD_UP: Duration = Duration::from_secs(10);

/// Listens from now on: Ctrl-C, or a request to terminate, sets what is returned. A thread of its own does, so that it is heard
/// whatever the run is at. To be called on a [`LocalSet`](tokio::task::LocalSet), on the thread of the run.
pub(crate) fn listen() -> Result<Interrupt, Failure> {
    let cannot =
        |error: &dyn std::fmt::Display| Failure::Other(format!("cannot listen for signals: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| cannot(&error))?;
    let signals = {
        let _entered = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        kinds.into_iter().map(signal).collect::<Result<Vec<Signal>, _>>().map_err(|error| cannot(&error))?
    };
    let (interrupt, pulse) = (Interrupt::default(), Pulse::default());
    tokio::task::spawn_local(pulse.clone().beat());
    let asked = interrupt.clone();
    let listen = move || {
        runtime.block_on(async {
            for each in signals {
                tokio::task::spawn(heed(each, asked.clone()));
            }
            held_up(&asked, &pulse).await;
            end(&format!("stopped at once: the run did not react for {} s", HELD_UP.as_secs()));
        });
    };
    let thread = thread::Builder::new().name("signals".to_owned()).spawn(listen);
    thread.map_err(|error| cannot(&error))?;
    Ok(interrupt)
}

/// The first signal asks for the end, and the next one ends the process at once; its private servers end with it.
async fn heed(mut signals: Signal, interrupt: Interrupt) {
    while signals.recv().await.is_some() {
        if interrupt.is_set() {
            end("stopped at once");
        }
        interrupt.set();
        say("\nstopping; servers and data of this run are being removed (again: stop at once)");
    }
}

/// Waits until the run is to stop and its thread has not come to itself for too long.
async fn held_up(interrupt: &Interrupt, pulse: &Pulse) {
    let mut asked = None;
    loop {
        sleep(BEAT).await;
        if interrupt.is_set() {
            let asked: &Instant = asked.get_or_insert_with(Instant::now);
            if asked.elapsed() >= HELD_UP && pulse.silence() >= HELD_UP {
                return;
            }
        }
    }
}

fn end(why: &str) -> ! {
    say(&format!("{why}; remove what is left with: acidtest lab down"));
    exit(Status::Interrupted.code().into())
}

/// When the run's thread was last seen at work, by a clock that all threads share.
#[derive(Clone)]
struct Pulse {
    begun: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { begun: Instant::now(), last_ms: Arc::default() }
    }
}

impl Pulse {
    async fn beat(self) {
        let mut beats = interval(BEAT);
        loop {
            beats.tick().await;
            let passed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.last_ms.store(passed, Relaxed);
        }
    }

    /// How long ago that was.
    fn silence(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    async fn is_held_up(interrupt: &Interrupt, pulse: &Pulse) -> bool {
        timeout(LONG, held_up(interrupt, pulse)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_run_that_is_to_stop_and_does_not_react_is_held_up() {
        let (interrupt, silent, alive) = (Interrupt::default(), Pulse::default(), Pulse::default());
        let beating = tokio::spawn(alive.clone().beat());
        assert!(!is_held_up(&interrupt, &silent).await, "nobody asked it to stop");
        interrupt.set();
        assert!(!is_held_up(&interrupt, &alive).await, "it takes its time to end tidily");
        let begun = Instant::now();
        assert!(is_held_up(&interrupt, &silent).await && begun.elapsed() < 2 * HELD_UP);
        // a step that never ends, after others
        beating.abort();
        assert!(is_held_up(&interrupt, &alive).await);
    }
}
