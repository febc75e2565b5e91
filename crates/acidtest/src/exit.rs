//! The end of a command: the documented exit codes, and the single format of error messages.

use std::process::ExitCode;

use acidtest_lab::LabError;
use acidtest_model::StoreError;

use crate::output;

/// The status of a command that did its work; each has an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// 0: every promised guarantee held.
    Held,
    /// 6: a comparison failed, or could not be judged.
    Worse,
    /// 5: a promised guarantee could be neither confirmed nor refuted.
    Unknown,
    /// 3: a store could not be reached or started.
    Unreached,
    /// 1: acidtest itself failed.
    Failed,
    /// 130: interrupted.
    Interrupted,
    /// 4: a promised guarantee was broken.
    Broken,
}

impl Status {
    fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Failed => 1,
            Self::Unreached => 3,
            Self::Broken => 4,
            Self::Unknown => 5,
            Self::Worse => 6,
            Self::Interrupted => 130,
        }
    }
}

/// The reason why a command could not do its work. The message says what failed, where, and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// 2: the arguments ask for something that does not exist or does not fit.
    #[error("{0}")]
    Usage(String),
    /// 3: a store could not be reached or started.
    #[error("{0}")]
    Store(String),
    /// 1: any other failure, such as a full disk.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// The same failure with the name of the file that it is about before the message.
    pub(crate) fn of(self, file: &str) -> Self {
        match self {
            Self::Usage(said) => Self::Usage(format!("{file}: {said}")),
            other => other,
        }
    }

    /// The status of a run that met this failure but has results.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Usage(_) | Self::Other(_) => Status::Failed,
            Self::Store(_) => Status::Unreached,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::Store(error.to_string())
    }
}

/// Prints clap's message; for a request for help, the exit code is 0.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // standard output may be a closed pipe, and then nobody can be told
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

pub(crate) fn report(done: Result<Status, Failure>) -> ExitCode {
    match done {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            output::say(&format!("error: {failure}"));
            ExitCode::from(match failure {
                Failure::Other(_) => 1,
                Failure::Usage(_) => 2,
                Failure::Store(_) => 3,
            })
        }
    }
}
