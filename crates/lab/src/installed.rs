//! Finds the servers' programs on this machine.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{
    error::LabError,
    invocation::Invocation,
    kinds::Kind,
    launch,
    search::{is_program, is_script, search_path},
    source::MissingProgram,
};

/// The suffix of a link beside a start script: it is named after the script, and leads to the program that the script
/// turns into.
const PROCESS: &str = ".process";

/// A server program that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub program: PathBuf,
    /// The first line that it prints for `--version`.
    pub version: String,
}

pub(crate) fn locate(kind: &Kind) -> Result<Installation, LabError> {
    let program = program(kind)?;
    let version = version(kind, &program).map_err(|why| unusable(kind, &program, why))?;
    Ok(Installation { program, version })
}

/// The program of a kind: the one that the environment variable names, or the first one found.
pub(crate) fn program(kind: &Kind) -> Result<PathBuf, LabError> {
    if let Some(named) = env::var_os(kind.variable()).filter(|value| !value.is_empty()) {
        return named_program(kind, PathBuf::from(named));
    }
    let places = search_path().chain((kind.places)());
    let looked: Vec<PathBuf> = places.map(|place| place.join(kind.program)).collect();
    let mut others = Vec::new();
    // a script that stands for the server would hide the server's processes from the search for them
    for program in looked.iter().filter(|file| is_program(file) && process_of(kind, file).is_some()) {
        match namesake(kind, program) {
            None => return Ok(program.clone()),
            Some(other) => others.push((program.clone(), other)),
        }
    }
    Err(missing(kind, looked, others))
}

/// Checks the program that the environment variable names, by its path or by the folder that it is in.
fn named_program(kind: &Kind, named: PathBuf) -> Result<PathBuf, LabError> {
    let program = if named.is_dir() { named.join(kind.program) } else { named };
    if !program.exists() {
        return Err(missing(kind, vec![program], Vec::new()));
    }
    let why = match () {
        () if !program.is_absolute() => "its path is not absolute".to_owned(),
        () if !is_program(&program) => "it is not a program".to_owned(),
        () if process_of(kind, &program).is_none() => match kind.script {
            None => format!("it is a script, with no link to the program that it turns into: {PROCESS}"),
            Some(_) => "it is not the server's own start script".to_owned(),
        },
        () => match namesake(kind, &program) {
            None => return Ok(program),
            Some(other) => format!("it is something else: {other}"),
        },
    };
    Err(unusable(kind, &program, why))
}

/// The version of a program that only shares the name of the one that is wanted; none if it is the right one.
fn namesake(kind: &Kind, program: &Path) -> Option<String> {
    let not = kind.unlike?;
    version(kind, program).ok().filter(|version| version.contains(not))
}

fn missing(kind: &Kind, looked: Vec<PathBuf>, others: Vec<(PathBuf, String)>) -> LabError {
    let variable = Some(kind.variable());
    MissingProgram { name: kind.program, looked, others, source: kind.source, variable }.into()
}

fn unusable(kind: &Kind, program: &Path, why: String) -> LabError {
    LabError::Unusable { program: program.to_owned(), why, variable: kind.variable() }
}

/// The program that the kernel reports for a process of this program: the program itself, with every link resolved;
/// for a start script, the program that its kind knows or that the link beside it names. `None` for any other script.
pub(crate) fn process_of(kind: &Kind, program: &Path) -> Option<PathBuf> {
    kind.script.map_or_else(|| linked(program), |script| (script.process)(program))
}

fn linked(program: &Path) -> Option<PathBuf> {
    if !is_script(program) {
        return Some(program.canonicalize().unwrap_or_else(|_| program.to_owned()));
    }
    let mut link = program.canonicalize().ok()?.into_os_string();
    link.push(PROCESS);
    PathBuf::from(link).canonicalize().ok()
}

fn version(kind: &Kind, program: &Path) -> Result<String, String> {
    kind.script.map_or_else(|| answer(program), |script| (script.version)(program))
}

fn answer(program: &Path) -> Result<String, String> {
    let asked = Invocation::new(program).arg("--version");
    let answer = launch::output(&asked).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let line = text.lines().next().map(str::trim).unwrap_or_default();
    if answer.status.success() && !line.is_empty() {
        Ok(line.to_owned())
    } else {
        Err("it does not answer --version".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::source::Source;

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = MissingProgram {
            name: "mariadbd",
            looked: vec!["/usr/sbin/mariadbd".into()],
            others: vec![("/usr/sbin/mariadbd".into(), "a teapot".to_owned())],
            source: Source::Package("mariadb-server"),
            variable: Some("ACIDTEST_MARIADB".to_owned()),
        };
        let text = missing.to_string();
        assert!(text.contains("looked for /usr/sbin/mariadbd"), "{text}");
        assert!(text.contains("\n  /usr/sbin/mariadbd is something else: a teapot\n"), "{text}");
        assert!(text.contains("apt-get install mariadb-server; or name its program in ACIDTEST_MARIADB"));
    }

    #[test]
    fn a_script_is_told_from_a_binary() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("redis-server");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(is_script(&script) && !is_program(&script));
        assert!(!is_script(&env::current_exe().unwrap()));
    }

    #[test]
    fn a_start_script_is_known_by_what_it_turns_into() {
        let folder = tempfile::tempdir().unwrap();
        let me = env::current_exe().unwrap().canonicalize().unwrap();
        let script = folder.path().join("mysqld");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(linked(&script), None);
        symlink(&me, folder.path().join("mysqld.process")).unwrap();
        assert_eq!(linked(&script), Some(me.clone()));
        let called = folder.path().join("called");
        symlink(&script, &called).unwrap();
        assert_eq!(linked(&called), Some(me.clone()), "the link is beside the script itself");
        assert_eq!(linked(&me), Some(me));
    }
}
