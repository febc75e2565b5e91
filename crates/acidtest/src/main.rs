//! acidtest: which data store should carry this workload, what does each of its guarantees cost
//! there, does the guarantee really hold, and what runs out first?
//!
//! This crate is the command line: arguments, plan files, progress and exit codes. It holds the only list of stores
//! ([`registry`]).

mod args;
mod carry_out;
#[cfg(any(feature = "gateway", feature = "serve"))]
mod certificate_arguments;
#[cfg(feature = "serve")]
mod command_line;
mod commands;
mod compare_arguments;
mod exit;
mod files;
mod fuzz;
#[cfg(feature = "gateway")]
mod gateway_arguments;
mod help;
mod interrupt;
mod needs;
mod option_arguments;
mod order;
mod output;
#[cfg(test)]
mod pages;
mod parameter_arguments;
mod plan_file;
mod progress;
mod quiet;
mod registry;
mod run_arguments;
mod secrets;
#[cfg(feature = "serve")]
mod serve_arguments;
mod target;

use std::process::ExitCode;

use acidtest_runner::Failure;
use clap::Parser;

use crate::{
    args::{Arguments, Command},
    run_arguments::{Capacity, Run},
};

fn main() -> ExitCode {
    let words = secrets::take_arguments();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(said) => return exit::usage(help::about_what_is_named(said, &words)),
    };
    raise_file_limit();
    // a single thread for everything that is not timed: private servers end with the thread that starts them
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(arguments.command)),
        Err(error) => Err(Failure::Other(format!("cannot start: {error}"))),
    };
    exit::report(done)
}

async fn dispatch(command: Command) -> Result<exit::Status, Failure> {
    match command {
        Command::Run(run) => Box::pin(commands::run::run(*run)).await,
        Command::Capacity(capacity) => {
            let Capacity { run, search } = *capacity;
            Box::pin(commands::run::run(Run { search: Some(search), ..run })).await
        }
        Command::Anomalies(anomalies) => Box::pin(commands::anomalies::anomalies(*anomalies)).await,
        #[cfg(feature = "gateway")]
        Command::Gateway(gateway) => Box::pin(commands::gateway::gateway(*gateway)).await,
        #[cfg(feature = "gateway")]
        Command::Collector(collector) => Box::pin(commands::gateway::collector(*collector)).await,
        #[cfg(feature = "serve")]
        Command::Serve(serve) => commands::serve::serve(serve).await,
        #[cfg(feature = "serve")]
        Command::Runner => commands::runner::runner().await,
        Command::Stores(which) => commands::stores::stores(which.store.as_deref()),
        Command::Workloads => commands::workloads::workloads(),
        Command::Lab(lab) => commands::lab::lab(lab).await,
        Command::Selftest(selftest) => commands::selftest::selftest(&selftest),
        Command::Show(show) => commands::show::show(&show),
        Command::Compare(compare) => Box::pin(commands::compare::compare(*compare)).await,
        Command::Report(report) => commands::report::report(&report),
        Command::Schema(schema) => commands::show::schema(&schema),
        Command::Completions(completions) => commands::manual::completions(completions.shell),
        Command::Host(host) => commands::host::host(host).await,
        Command::Worker => commands::worker::worker().await,
        Command::Man => commands::manual::man(),
    }
}

/// Raises the limit of open files, because each client needs a file descriptor or two and the usual soft limit is
/// 1,024. If it cannot be raised, the error comes when a connection is opened.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
