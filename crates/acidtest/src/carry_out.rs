//! Carries out an order, with this program's own processes and lab.

use std::process::Command;

use acidtest_lab::Lab;
use acidtest_model::Secret;
use acidtest_runner::{Environment, Failure, Finished, Interrupt, Observer, Order, Watcher};
use acidtest_store_memory::Null;

use crate::output::ResultFile;

/// Carries out an order to its end, or until it is interrupted, and writes its result as it grows. `token` is that of the
/// clients of a gateway that runs already. To be called on a [`LocalSet`](tokio::task::LocalSet), on the thread that is to
/// keep the private servers.
pub(crate) async fn carry_out(
    order: Order,
    observer: &mut impl Observer,
    interrupt: &Interrupt,
    token: Option<Secret>,
    file: &ResultFile,
) -> Result<Finished, Failure> {
    let host = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("cannot find acidtest's own program: {error}")))?;
    let environment = Environment {
        lab: Lab::open()?,
        null: &Null,
        watcher: Watcher { observer, interrupt },
        worker: &|| this_program("worker"),
        host: &host,
        token,
        write: &|result| file.write(result),
    };
    acidtest_runner::run(order, environment).await
}

/// A command of this program: the same program, even if its file is replaced meanwhile.
pub(crate) fn this_program(command: &str) -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg(command);
    program
}
