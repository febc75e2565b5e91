//! Finds the servers' programs on this machine.

use std::{
    env, fmt, fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{error::LabError, kinds::Kind};

/// A server program that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The program.
    pub program: PathBuf,
    /// What it says to `--version`, first line.
    pub version: String,
}

/// A program that is not there, and what brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The program's name.
    pub name: &'static str,
    /// Where it was looked for.
    pub looked: Vec<PathBuf>,
    /// The Debian package that brings it.
    pub package: &'static str,
    /// The environment variable that may name it, where there is one.
    pub variable: Option<String>,
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looked: Vec<String> = self.looked.iter().map(|place| place.display().to_string()).collect();
        write!(f, "{} is not installed: looked for {}", self.name, looked.join(", "))?;
        write!(f, "\n  remedy: install it with: apt-get install {}", self.package)?;
        self.variable.as_ref().map_or(Ok(()), |variable| write!(f, "; or name its program in {variable}"))
    }
}

/// The program of a kind and its version.
pub(crate) fn locate(kind: &Kind) -> Result<Installation, LabError> {
    let program = program(kind)?;
    let version = version(&program).map_err(|why| LabError::Unusable {
        program: program.clone(),
        why,
        variable: kind.variable(),
    })?;
    Ok(Installation { program, version })
}

/// The program of a kind: as the environment names it, or the first one found.
pub(crate) fn program(kind: &Kind) -> Result<PathBuf, LabError> {
    let variable = kind.variable();
    if let Some(named) = env::var_os(&variable).filter(|value| !value.is_empty()) {
        return named_program(kind, PathBuf::from(named), variable);
    }
    let places = search_path().chain((kind.places)());
    let looked: Vec<PathBuf> = places.map(|place| place.join(kind.program)).collect();
    // a script that stands for the server would hide the server from the search for its processes
    looked.iter().find(|file| is_program(file) && !is_script(file)).cloned().ok_or_else(|| {
        Missing { name: kind.program, looked, package: kind.package, variable: Some(variable) }.into()
    })
}

fn named_program(kind: &Kind, program: PathBuf, variable: String) -> Result<PathBuf, LabError> {
    if !program.exists() {
        return Err(Missing {
            name: kind.program,
            looked: vec![program],
            package: kind.package,
            variable: Some(variable),
        }
        .into());
    }
    let why = match () {
        () if !program.is_absolute() => "its path is not absolute",
        () if !is_program(&program) => "it is not a program",
        () if is_script(&program) => "it is a script",
        () => return Ok(program),
    };
    Err(LabError::Unusable { program, why: why.to_owned(), variable })
}

/// A program that belongs to a server: beside it, in its installation, or on the path.
pub(crate) fn companion(
    server: &Path,
    name: &'static str,
    package: &'static str,
) -> Result<PathBuf, LabError> {
    let beside = server.parent().map(Path::to_owned);
    let base = server.ancestors().nth(2);
    let within = base.into_iter().flat_map(|base| ["bin", "scripts"].map(|folder| base.join(folder)));
    let places = beside.into_iter().chain(within).chain(search_path());
    let looked: Vec<PathBuf> = places.map(|place| place.join(name)).collect();
    looked
        .iter()
        .find(|file| is_program(file))
        .cloned()
        .ok_or_else(|| Missing { name, looked, package, variable: None }.into())
}

/// The folders of `PATH`, and those that an ordinary user's `PATH` leaves out.
fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    for folder in ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.into_iter()
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

fn version(program: &Path) -> Result<String, String> {
    let answer = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("it does not start: {error}"))?;
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
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = Missing {
            name: "mariadbd",
            looked: vec!["/usr/sbin/mariadbd".into()],
            package: "mariadb-server",
            variable: Some("ACIDTEST_MARIADB".to_owned()),
        };
        let text = missing.to_string();
        assert!(text.contains("looked for /usr/sbin/mariadbd"), "{text}");
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
}
