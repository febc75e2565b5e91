//! The end of a command: the documented exit codes, and the single format of error messages.

use std::{io, process::ExitCode};

use acidtest_results::{CellResult, Limit, RunResult};
use acidtest_runner::Failure;
use acidtest_workloads::{Verdict, WORKLOADS};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::{output, registry};

/// The status of a command that did its work; each has an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// 0: every promised guarantee held.
    Held,
    /// 7: a comparison told neither that something is worse nor that it is not; a search could not tell the capacity, or whether it
    /// carries the demand.
    Inconclusive,
    /// 6: a comparison failed; a search found no rate that meets the objectives, or that the demand is not carried.
    Worse,
    /// 5: a promised guarantee could be neither confirmed nor refuted.
    Unknown,
    /// 3: a store could not be reached or started.
    Unreached,
    /// 1: acidtest itself failed.
    Failed,
    /// 8: nothing was run, because other programs used the machine.
    NotQuiet,
    /// 130: interrupted.
    Interrupted,
    /// 4: a promised guarantee was broken.
    Broken,
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Failed => 1,
            Self::Unreached => 3,
            Self::Broken => 4,
            Self::Unknown => 5,
            Self::Worse => 6,
            Self::Inconclusive => 7,
            Self::NotQuiet => 8,
            Self::Interrupted => 130,
        }
    }
}

/// The status of a finished run: the worst outcome among its promises.
pub(crate) fn status(result: &RunResult) -> Status {
    let of = |cell: &CellResult| match cell.verdict() {
        Verdict::Broken if cell.breaks_promise() => Status::Broken,
        _ if cell.error.is_some() => Status::Unreached,
        // what could not be told of a rate that is not given is no doubt of the capacity
        _ if result.plan.capacity.is_some() => of_search(cell, result.plan.demand.map(|demand| demand.0)),
        Verdict::Unknown if cell.is_promised() => Status::Unknown,
        _ => Status::Held,
    };
    let worst = result.cells.iter().map(of).max().unwrap_or(Status::Held);
    if result.interrupted { worst.max(Status::Interrupted) } else { worst }
}

/// The status of a search: whether it found a capacity or, where a demand was named, whether the store carries that.
fn of_search(cell: &CellResult, demand: Option<f64>) -> Status {
    let Some(found) = &cell.capacity else { return Status::Inconclusive };
    match (&found.limit, demand.map(|demand| found.carries(demand))) {
        (Limit::Gone { .. }, _) => Status::Unreached,
        (Limit::NoRate { .. } | Limit::Broke { .. }, _) if found.carried.is_none() => Status::Worse,
        (_, Some(Some(true))) => Status::Held,
        (_, Some(Some(false))) => Status::Worse,
        (_, None) if found.carried.is_some() => Status::Held,
        (_, None | Some(None)) => Status::Inconclusive,
    }
}

/// The status of a run that met this failure but has results.
pub(crate) fn status_after(failure: &Failure) -> Status {
    match failure {
        Failure::Usage(_) | Failure::Refused { .. } | Failure::Other(_) => Status::Failed,
        Failure::Store(_) => Status::Unreached,
    }
}

/// The exit code of a command that could not do its work.
pub(crate) fn code_of(failure: &Failure) -> u8 {
    match failure {
        Failure::Other(_) => 1,
        Failure::Usage(_) | Failure::Refused { .. } => 2,
        Failure::Store(_) => 3,
    }
}

/// Prints clap's message; for a request for help, the exit code is 0.
pub(crate) fn usage(mut error: clap::Error) -> ExitCode {
    let tip = tip(&error);
    if tip.is_some() {
        // what is nearest by its letters is not what was meant
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let style = output::style_of(&io::stderr());
    // help has columns of its own
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !is_help && style.width.is_some() {
        let said = error.render();
        let said = if style.color { said.ansi().to_string() } else { said.to_string() };
        output::say(&said);
    } else {
        // standard output may be a closed pipe, and then nobody can be told
        let _ = error.print();
    }
    if let Some(tip) = tip {
        output::say(&format!("\n  tip: {tip}"));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// What was probably meant, where the library that reads arguments cannot know it.
fn tip(error: &clap::Error) -> Option<String> {
    let names = || WORKLOADS.iter().map(|kind| kind.name);
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(said)) => Some(said.clone()),
        Some(ContextValue::Strings(said)) => said.first().cloned(),
        _ => None,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let of = |command: &str| usage.contains(&format!("acidtest {command}"));
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = said(ContextKind::InvalidSubcommand)?;
            if let Some(missing) = registry::missing_command(&word) {
                return Some(missing);
            }
            let workload = names().find(|name| *name == word)?;
            Some(format!("{workload} is a workload; run it with: acidtest run {workload}"))
        }
        ErrorKind::UnknownArgument => {
            let word = said(ContextKind::InvalidArg)?;
            match word.as_str() {
                "--duration" if of("capacity") => Some(
                    "--hold sets how long every objective must hold at a rate, --budget the longest time of a search, as \
                     in: acidtest capacity inventory --hold 10s --budget 5m"
                        .to_owned(),
                ),
                "--port" | "--host" if of("serve") => Some(
                    "give address and port together, as in: acidtest serve --listen 127.0.0.1:1730".to_owned(),
                ),
                "--products" => Some("the number of products in the inventory is --items, as in: --items 500".to_owned()),
                word if of("workloads") => {
                    let workload = names().find(|name| *name == word)?;
                    Some(format!(
                        "acidtest workloads lists all; for those of {workload}, see: acidtest run {workload} --help"
                    ))
                }
                _ => None,
            }
        }
        ErrorKind::MissingRequiredArgument => {
            said(ContextKind::InvalidArg).filter(|argument| argument.contains("WHAT"))?;
            let known: Vec<&str> = names().collect();
            let command = if of("capacity") { "capacity" } else { "run" };
            Some(format!(
                "name a workload ({}) or a plan file (*.toml), as in: acidtest {command} inventory",
                known.join(", ")
            ))
        }
        _ => None,
    }
}

pub(crate) fn report(done: Result<Status, Failure>) -> ExitCode {
    match done {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            output::say(&format!("error: {failure}"));
            ExitCode::from(code_of(&failure))
        }
    }
}
