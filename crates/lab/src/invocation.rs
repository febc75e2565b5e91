//! The commands that the lab runs, and the signals that end them.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use acidtest_model::Secret;
use rustix::process::Signal;

/// A program with its arguments.
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Passwords for its environment, where others cannot read them.
    pub(crate) secrets: Vec<(&'static str, Secret)>,
}

impl Invocation {
    pub(crate) fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), arguments: Vec::new(), secrets: Vec::new() }
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn secrets(mut self, secrets: &[(&'static str, Secret)]) -> Self {
        self.secrets.extend_from_slice(secrets);
        self
    }

    /// Adds an option such as `--datadir=PATH`, whatever bytes the path is made of.
    pub(crate) fn path(self, option: &str, path: &Path) -> Self {
        let mut argument = OsString::from(option);
        argument.push(path);
        self.arg(argument)
    }
}

/// A signal by which a server stops: in order by all but the last.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    Interrupt,
    Terminate,
    Kill,
}

impl Stop {
    pub(crate) fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
            Self::Kill => Signal::KILL,
        }
    }

    /// The signal's name, as `setpriv` wants it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Terminate => "TERM",
            Self::Kill => "KILL",
        }
    }
}
