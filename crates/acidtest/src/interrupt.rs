//! Requests to stop the run, by Ctrl-C or a signal.

use std::{cell::Cell, rc::Rc};

use tokio::signal::unix::{SignalKind, signal};

use crate::{exit::Failure, output};

/// Set by Ctrl-C, or by a request to terminate: the run then ends tidily.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    told: Rc<Cell<u32>>,
}

impl Interrupt {
    /// Listens for them on the current runtime from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let interrupt = Self::default();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut signals = signal(kind)
                .map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))?;
            let told = Rc::clone(&interrupt.told);
            tokio::task::spawn_local(async move {
                while signals.recv().await.is_some() {
                    told.set(told.get() + 1);
                    if told.get() > 1 {
                        output::say("stopped at once; what is left is removed by: acidtest lab down");
                        // the second request ends the process at once, and private servers end with it
                        std::process::exit(130);
                    }
                    output::say(
                        "\nstopping; servers and data of this run are being removed (again: stop at once)",
                    );
                }
            });
        }
        Ok(interrupt)
    }

    /// Whether the run was told to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.told.get() > 0
    }
}
