//! Why a history cannot be read or checked.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a history cannot be read or checked.
#[derive(Debug, Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no history, or of another version.
    #[error("{path} is not a history of version {version}", path = path.display(), version = crate::file::VERSION)]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// A record makes no sense, or the checksum at the end is wrong.
    #[error("{path} is damaged {place}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        place: String,
    },
    /// A value was written twice, so that it does not tell its transaction.
    #[error("value {0} was written by two operations: values must be unique")]
    Repeated(u64),
    /// The transactions of a session did not start in the order of their numbers.
    #[error("session {session}: transaction {sequence} started after one with a number that is not smaller")]
    Sequence {
        /// The session.
        session: u32,
        /// The number.
        sequence: u32,
    },
    /// There are more transactions than the checker has numbers for.
    #[error("a history may have {0} transactions at most")]
    TooLong(u32),
}
