//! Programs that are not installed, and how to install them.

use std::{fmt, path::PathBuf};

/// A program that is not installed, and how to install it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProgram {
    pub name: &'static str,
    /// The paths at which it was searched for.
    pub looked: Vec<PathBuf>,
    /// Programs of that name that are something else, each with the version that it prints.
    pub others: Vec<(PathBuf, String)>,
    /// The package or tool that installs it.
    pub source: Source,
    /// The environment variable that can name the program, where there is one.
    pub variable: Option<String>,
}

/// How a program is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By a package of Debian.
    Package(&'static str),
    /// By a tool in acidtest's own sources.
    Tool(&'static str),
    /// It is acidtest, which keeps an embedded store in a process of its own.
    Acidtest,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Package(package) => write!(f, "install it with: apt-get install {package}"),
            Self::Acidtest => f.write_str("it is acidtest itself"),
            Self::Tool(tool) => write!(f, "get it with the tool in acidtest's sources: {tool}"),
        }
    }
}

impl std::error::Error for MissingProgram {}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looked: Vec<String> = self.looked.iter().map(|place| place.display().to_string()).collect();
        write!(f, "{} is not installed: looked for {}", self.name, looked.join(", "))?;
        for (program, what) in &self.others {
            write!(f, "\n  {} is something else: {what}", program.display())?;
        }
        write!(f, "\n  remedy: {}", self.source)?;
        self.variable.as_ref().map_or(Ok(()), |variable| write!(f, "; or name its program in {variable}"))
    }
}
