//! Writes, prints and reads results.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use acidtest_anomalies::AnomaliesResult;
use acidtest_model::count;
use acidtest_report::{Style, render};
use acidtest_results::{CELLS, RunResult, TRIALS};
use acidtest_runner::Failure;
use serde::Serialize;

use crate::{files, run_arguments::Format};

/// The folder for results if no other one is named.
pub(crate) const RESULTS: &str = "results";

/// The file that a run's result is written to. It is made at the start, so that a folder that cannot be written or a
/// full disk is known before hours are spent.
pub(crate) struct ResultFile {
    path: PathBuf,
}

impl ResultFile {
    /// Prepares the file with the given name, which may not be there yet, or one named after the run in the given
    /// folder.
    pub(crate) fn new(out: &Path, run: &str, workload: &str) -> Result<Self, Failure> {
        let is_json = out.extension().is_some_and(|extension| extension == "json");
        let refused = |why: &str| {
            let remedy = "name another file (*.json), or a folder";
            Err(Failure::Usage(format!("--out {} {why}\n  remedy: {remedy}", out.display())))
        };
        match fs::metadata(out) {
            Ok(there) if is_json && there.is_file() => refused("exists already and would be overwritten"),
            Ok(there) if !is_json && !there.is_dir() => {
                refused("is not a folder, and its name does not end in .json")
            }
            _ if is_json => Self::prepare(out.to_owned()),
            _ => Self::prepare(out.join(format!("{run}-{workload}.json"))),
        }
    }

    /// Prepares a file, which a result may be in already.
    pub(crate) fn prepare(path: PathBuf) -> Result<Self, Failure> {
        let file = Self { path };
        if let Some(folder) = file.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| file.fail(&error))?;
        }
        let probe = file.partial();
        fs::write(&probe, b"{}").map_err(|error| file.fail(&error))?;
        fs::remove_file(&probe).map_err(|error| file.fail(&error))?;
        Ok(file)
    }

    /// Writes the result as a whole: a reader sees the previous one or this one, never a part.
    pub(crate) fn write(&self, result: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(result).map_err(|error| self.fail(&error.into()))?;
        fs::write(self.partial(), text).map_err(|error| self.fail(&error))?;
        fs::rename(self.partial(), &self.path).map_err(|error| self.fail(&error))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn partial(&self) -> PathBuf {
        self.path.with_extension("json.partial")
    }

    fn fail(&self, error: &io::Error) -> Failure {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => "free some space, or name another folder with --out",
            _ => "name a folder or file that can be written with --out",
        };
        let _ = fs::remove_file(self.partial());
        Failure::Other(format!(
            "cannot write the result {}: {error}\n  remedy: {remedy}",
            self.path.display()
        ))
    }
}

pub(crate) fn print(result: &RunResult, format: Format) -> Result<(), Failure> {
    let text = match format {
        Format::Table => render(result, style()).map_err(|error| Failure::Usage(error.to_string()))?,
        Format::Json => {
            serde_json::to_string_pretty(result).map_err(|error| Failure::Other(error.to_string()))? + "\n"
        }
    };
    print_text(&text)
}

/// Prints to standard output; if its reader has closed it, the rest is dropped without an error.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Other(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

/// The style for standard output.
pub(crate) fn style() -> Style {
    style_of(&io::stdout())
}

/// The style for a stream: as wide as the terminal; in colour if it is one that has them and `NO_COLOR` (no-color.org) is not set.
pub(crate) fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    if !stream.is_terminal() {
        return Style { color: false, width: None };
    }
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let width = rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col);
    Style { color: !is_plain && !is_dumb(), width: width.filter(|width| *width > 0) }
}

/// Whether the terminal takes nothing back, and has no colours.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Columns that a line of text has at least and at most.
const COLUMNS: (usize, usize) = (60, 120);

/// Columns of a line of text that goes to no terminal.
const USUAL: usize = 100;

/// The text broken between words into lines that fit standard output behind an indentation of so many columns, which
/// all lines but the first get.
pub(crate) fn wrapped(text: &str, indentation: usize) -> String {
    let (least, most) = COLUMNS;
    let columns = style().width.map_or(USUAL, usize::from).clamp(least, most).saturating_sub(indentation);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{:indentation$}", ""))
}

/// Writes a file as a whole.
pub(crate) fn keep(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::Other(format!("cannot write {}: {error}", path.display())))
}

/// Prints a message for people to standard error, broken between words where that is a terminal. If nobody reads it any more,
/// the run goes on.
pub(crate) fn say(text: &str) {
    say_as_it_is(&acidtest_report::wrapped(text, style_of(&io::stderr())));
}

/// The same of a text that ends with a command to copy: a shell would take each of its lines for a command.
pub(crate) fn say_as_it_is(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Length of the longest result that is read, in bytes.
const LONGEST: u64 = 1 << 30;

/// A result file: of a run, or of what isolation levels allow.
pub(crate) enum Loaded {
    Run(Box<RunResult>),
    Anomalies(AnomaliesResult),
}

/// Reads a result of either kind.
pub(crate) fn load_any(path: &Path) -> Result<Loaded, Failure> {
    let unusable = |why: String| unusable(path, &why);
    let text = files::read(path, LONGEST).map_err(|error| unusable(error.to_string()))?;
    let result = match acidtest_results::read(&text) {
        Ok(result) => result,
        // a long result of a run is not read twice to learn that it is one
        Err(error) => {
            return match acidtest_anomalies::read(&text) {
                Some(read) => Ok(Loaded::Anomalies(read.map_err(unusable)?)),
                None => Err(unusable(error.to_string())),
            };
        }
    };
    let trials = result.cells.iter().map(|cell| cell.trials.len()).max().unwrap_or(0);
    if result.cells.len() > CELLS || trials > TRIALS as usize {
        return Err(unusable(format!(
            "it has {} cells, one of {} trials, and no run has more than {} of each",
            count(result.cells.len() as u64),
            count(trials as u64),
            count(CELLS as u64),
        )));
    }
    Ok(Loaded::Run(Box::new(result)))
}

/// Reads the result of a run.
pub(crate) fn load(path: &Path) -> Result<RunResult, Failure> {
    match load_any(path)? {
        Loaded::Run(result) => Ok(*result),
        Loaded::Anomalies(_) => Err(unusable(
            path,
            "it says which anomalies isolation levels allow (acidtest anomalies), and is no result of a run; acidtest show and \
             acidtest report take it",
        )),
    }
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("cannot read the result {}: {why}", path.display()))
}

/// A word as a shell takes it for one.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:,=@+%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
