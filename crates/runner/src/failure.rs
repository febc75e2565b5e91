//! Why something could not be done: the three kinds that a command tells apart.

use acidtest_lab::LabError;
use acidtest_model::StoreError;

/// The reason why a run, or another command, could not do its work. The message says what failed, where, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
    #[must_use]
    pub fn of(self, file: &str) -> Self {
        match self {
            Self::Usage(said) => Self::Usage(format!("{file}: {said}")),
            other => other,
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
