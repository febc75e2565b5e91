//! Requests to stop the run, by Ctrl-C or a signal.

use acidtest_runner::{Failure, Interrupt};
use tokio::signal::unix::{SignalKind, signal};

use crate::output;

/// Listens on the current runtime from now on: Ctrl-C, or a request to terminate, sets what is returned.
pub(crate) fn listen() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals =
            signal(kind).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))?;
        let interrupt = interrupt.clone();
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() {
                if interrupt.is_set() {
                    output::say("stopped at once; what is left is removed by: acidtest lab down");
                    // the second request ends the process at once, and private servers end with it
                    std::process::exit(130);
                }
                interrupt.set();
                output::say(
                    "\nstopping; servers and data of this run are being removed (again: stop at once)",
                );
            }
        });
    }
    Ok(interrupt)
}
