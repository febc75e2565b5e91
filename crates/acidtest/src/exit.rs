//! How acidtest ends: the documented exit codes and the one way a failure is printed.

use std::process::ExitCode;

use acidtest_lab::LabError;
use acidtest_model::StoreError;

use crate::output;

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// 0: every promised guarantee held.
    Held,
    /// 6: a comparison failed.
    Worse,
    /// 5: whether a promised guarantee held could not be told.
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

/// Why a command could not do its work. The message says what, where and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// 2: asked for what does not exist or does not fit.
    #[error("{0}")]
    Usage(String),
    /// 3: a store could not be reached or started.
    #[error("{0}")]
    Store(String),
    /// 1: anything else, a full disk among it.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// The same, with the file that it is about.
    pub(crate) fn of(self, file: &str) -> Self {
        match self {
            Self::Usage(said) => Self::Usage(format!("{file}: {said}")),
            other => other,
        }
    }

    /// What a run comes to that met it.
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

/// Prints what clap has to say; its help is no error.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // a closed pipe leaves nobody to tell
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
