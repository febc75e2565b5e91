//! Errors of the store, and the outcomes of operations that they lead to.

use acidtest_workloads::{Attempt, Fault};

/// The reason why a step on the database failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", words(.0))]
    Fjall(#[from] fjall::Error),
    #[error("there is no keyspace \"{0}\"")]
    Missing(String),
    #[error("\"{0}\" is not a valid name for a keyspace: names have 1 to 255 bytes")]
    Name(String),
    #[error("the folder is not empty and holds no fjall database")]
    NoDatabase,
    #[error("{0}")]
    NoTable(String),
    #[error("there is an invalid tuple")]
    Value,
    #[error("all numbers up to {} have been given as ids", i64::MAX)]
    NoMoreIds,
    #[error("a keyspace is not flushed within {0} s")]
    NotFlushed(u64),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Fjall(error.into())
    }
}

/// The error in words. fjall's own errors print as the code that makes them, so that those that a user may meet are
/// put in words here.
pub(crate) fn words(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Locked => "another process has the database open".to_owned(),
        fjall::Error::Poisoned => {
            "the database takes no more writes since one could not be written or flushed".to_owned()
        }
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => error.to_string(),
        other => other.to_string(),
    }
}

/// The outcome of an operation, or the error that ended it before anything was committed.
pub(crate) type OperationResult = Result<Attempt, Error>;

/// The outcome of an operation whose error came before anything was committed: failed.
pub(crate) fn undone(error: &Error) -> Attempt {
    Attempt::Failed(Fault::answered(error.to_string()))
}

/// The outcome of an operation whose commit failed: unknown, as it may be in the journal or not; but failed if the
/// journal took no more writes before.
pub(crate) fn in_doubt(error: fjall::Error) -> Attempt {
    match error {
        fjall::Error::Poisoned => undone(&error.into()),
        _ => Attempt::Unknown(Fault::lost(words(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_s_error_is_in_doubt_unless_the_journal_was_closed_to_it() {
        let full = || fjall::Error::Io(std::io::Error::from_raw_os_error(28));
        let Attempt::Unknown(fault) = in_doubt(full()) else { panic!("not in doubt") };
        assert!(fault.message.contains("No space left on device") && fault.connection_lost, "{fault:?}");
        assert!(matches!(undone(&full().into()), Attempt::Failed(fault) if !fault.connection_lost));
        assert!(matches!(in_doubt(fjall::Error::Poisoned), Attempt::Failed(_)));
    }
}
