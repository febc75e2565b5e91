//! `acidtest host`: keeps an embedded store in a process of its own, so that it can be killed.

use acidtest_runner::{Failure, Host, Opener};
use tokio::signal::unix::{SignalKind, signal};

use crate::{args, exit::Status, registry::STORES};

/// Serves the clients of another process until it is told to end.
pub(crate) async fn host(asked: args::Host) -> Result<Status, Failure> {
    let args::Host { store, durability, port, path } = asked;
    let opener = STORES
        .iter()
        .find(|registered| registered.kind.name == store)
        .map(|registered| registered as &'static dyn Opener)
        .ok_or_else(|| Failure::Usage(format!("{store} is not in this build")))?;
    let mut told = signal(SignalKind::terminate())
        .map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))?;
    let host = Host::new(opener, &path.to_string_lossy(), durability);
    let listens = host.clone();
    let listening = tokio::task::spawn_blocking(move || listens.listen(port));
    tokio::select! {
        ended = listening => ended.unwrap_or_else(|error| Err(Failure::Other(error.to_string())))?,
        _ = told.recv() => {
            host.stop();
            // the thread that listens would be waited for
            std::process::exit(0);
        }
    }
    Ok(Status::Held)
}
