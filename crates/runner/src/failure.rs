//! Why something could not be done: the three kinds that a command tells apart.

use acidtest_lab::LabError;
use acidtest_model::{StoreError, count, took_too_long, with_remedy};
use acidtest_results::option_of;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// The reason why a run, or another command, could not do its work. The message says what failed, where, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 2: the arguments ask for something that does not exist or does not fit.
    #[error("{0}")]
    Usage(String),
    /// 2: the same, and it is this key of the plan that asks for it.
    #[error("{said}")]
    Refused {
        /// The key as a JSON Pointer.
        pointer: String,
        /// What is wrong, and the remedy.
        said: String,
    },
    /// 3: a store could not be reached or started.
    #[error("{0}")]
    Store(String),
    /// 1: any other failure, such as a full disk.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// The refusal of what this key of the plan asks for.
    pub(crate) fn refused(key: &str, said: impl Into<String>) -> Self {
        Self::Refused { pointer: pointer(key), said: said.into() }
    }

    /// The same failure with the name of the file that it is about before the message.
    #[must_use]
    pub fn of(self, file: &str) -> Self {
        match self {
            Self::Usage(said) => Self::Usage(format!("{file}: {said}")),
            Self::Refused { pointer, said } => Self::Refused { pointer, said: format!("{file}: {said}") },
            other => other,
        }
    }
}

/// Where a key of a plan, or a parameter of its workload, stands in the plan, as a JSON Pointer.
fn pointer(key: &str) -> String {
    match (key, option_of(key)) {
        (_, Some(option)) => option.pointer(),
        ("workload" | "commands" | "on_refused", None) => format!("/{key}"),
        (parameter, None) => format!("/parameters/{parameter}"),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            // its own remedy is for a server that cannot be reached
            StoreError::Unreachable { address, cause, .. } if is_short_of_files(&cause) => {
                let remedy = more_files();
                Self::Store(StoreError::Unreachable { address, cause, remedy }.to_string())
            }
            StoreError::Unreachable { address, cause, remedy } if took_too_long(&cause) => {
                let remedy = format!("{remedy}; {MORE_TIME}");
                Self::Store(StoreError::Unreachable { address, cause, remedy }.to_string())
            }
            error => Self::store(&error.to_string()),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::store(&error.to_string())
    }
}

impl Failure {
    /// A store's failure in these words; with the remedy if it is that this process can open no more files, or that opening a
    /// connection took longer than it may.
    pub(crate) fn store(said: &str) -> Self {
        let remedy = if said.contains("remedy: ") {
            None
        } else if is_short_of_files(said) {
            Some(more_files())
        } else {
            let is_late = took_too_long(said);
            is_late.then(|| format!("check that the server is not stopped or overloaded; {MORE_TIME}"))
        };
        Self::Store(with_remedy(&said, remedy.as_deref()))
    }
}

/// Whether an error is that this process, or all of them together, have too many files open: drivers hand on no more than
/// the system's words, which end with the number of the error.
fn is_short_of_files(said: &str) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|error| said.contains(&format!("(os error {})", error.raw_os_error())))
}

/// What a server is given that takes its time.
pub(crate) const MORE_TIME: &str =
    "if it is slow to accept clients, give it more time with --connect-timeout";

/// The remedy where too many files are open.
fn more_files() -> String {
    let limit = getrlimit(Resource::Nofile).current.map_or_else(|| "no".to_owned(), count);
    format!(
        "each client needs at least one open file, and a process can have {limit}: raise that (ulimit -n), use fewer \
         --clients, or spread them with --processes"
    )
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use acidtest_model::{no_connection_within, no_tls_within};

    use super::*;

    #[test]
    fn a_server_that_takes_its_time_can_be_given_more_of_it() {
        let time = Duration::from_millis(2500);
        for late in [no_connection_within(time), no_tls_within(time), "no connection within 2.5s".to_owned()]
        {
            let client = Failure::store(&format!("a client could not connect: {late}")).to_string();
            let remedy = "start the server, or check host and port".to_owned();
            let address = "redis://h".to_owned();
            let store = StoreError::Unreachable { address, cause: late, remedy: remedy.clone() };
            let store = Failure::from(store).to_string();
            assert!(store.contains(&format!("remedy: {remedy}; ")), "{store}");
            for said in [client, store] {
                assert!(
                    said.contains("within 2") && said.matches("--connect-timeout").count() == 1,
                    "{said}"
                );
            }
        }
        let slow = Failure::store("no answer within 10 s").to_string();
        assert!(!slow.contains("remedy"), "{slow}");
    }

    #[test]
    fn too_many_open_files_have_their_own_remedy() {
        let words = |error: Errno| io::Error::from(error).to_string();
        let unreachable = |cause: String| {
            let remedy = "start the server".to_owned();
            Failure::from(StoreError::Unreachable { address: "redis://h".to_owned(), cause, remedy })
                .to_string()
        };
        let lab = |error: Errno| {
            let (doing, path) = ("opening", "server.log".into());
            Failure::from(LabError::Io { doing, path, cause: error.into() }).to_string()
        };
        for error in [Errno::MFILE, Errno::NFILE] {
            for said in [unreachable(words(error)), lab(error), Failure::store(&words(error)).to_string()] {
                assert!(said.contains("ulimit -n") && said.matches("remedy: ").count() == 1, "{said}");
            }
        }
        assert!(unreachable(words(Errno::CONNREFUSED)).ends_with("remedy: start the server"));
        assert!(!lab(Errno::ACCESS).contains("remedy"));
    }
}
