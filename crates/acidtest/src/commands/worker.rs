//! `acidtest worker`: drives some of the clients of a trial that another process judges.

use std::io::{BufReader, stdin, stdout};

use acidtest_runner::{Failure, Opener, work};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::{exit::Status, registry::STORES};

/// Drives what it is told on standard input.
pub(crate) async fn worker() -> Result<Status, Failure> {
    // one that is stopped by a signal when its parent dies would never see the end of its input
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let find = |name: &str| {
        STORES.iter().find(|store| store.kind.name == name).map(|store| store as &'static dyn Opener)
    };
    work(BufReader::new(stdin()), stdout(), find).await?;
    Ok(Status::Held)
}
