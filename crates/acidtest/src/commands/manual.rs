//! `acidtest completions` and `acidtest man`: the command line, as shells and `man` read it.

use std::{fmt::Write, io};

use acidtest_runner::Failure;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{args::Arguments, exit::Status, output};

pub(crate) fn completions(shell: Shell) -> Result<Status, Failure> {
    output::print_text(&script(shell))?;
    Ok(Status::Held)
}

pub(crate) fn man() -> Result<Status, Failure> {
    let page = page().map_err(|error| Failure::Other(format!("cannot write the manual page: {error}")))?;
    output::print_text(&page)?;
    Ok(Status::Held)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut typed(), "acidtest", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The command line that people type: the scripts of shells would offer hidden commands, too.
fn typed() -> Command {
    let whole = Arguments::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("acidtest").version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}

/// A single page: the program, and a section for each command.
fn page() -> io::Result<String> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let man = Man::new(program.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for command in program.get_subcommands() {
        add(command, &mut page)?;
    }
    let mut end = Vec::new();
    man.render_extra_section(&mut end)?;
    man.render_version_section(&mut end)?;
    page.push_str(&String::from_utf8_lossy(&end));
    Ok(page)
}

/// Adds a section for a command and one for each of its subcommands.
fn add(command: &Command, page: &mut String) -> io::Result<()> {
    // "acidtest lab up", as clap built it
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let man = Man::new(command.clone());
    let mut parts = Vec::new();
    man.render_synopsis_section(&mut parts)?;
    man.render_description_section(&mut parts)?;
    man.render_options_section(&mut parts)?;
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut parts)?;
    }
    // a section of the command's own page becomes a subsection here
    let parts = String::from_utf8_lossy(&parts).replace("\n.SH ", "\n.SS ");
    let parts = parts.strip_prefix(".SH ").map_or_else(|| parts.clone(), |rest| format!(".SS {rest}"));
    // writing into a string cannot fail
    let _ = write!(page, ".SH \"{}\"\n{parts}", name.to_uppercase());
    for inner in command.get_subcommands() {
        add(inner, page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::ValueEnum;

    use super::*;

    /// The words that bash offers to complete the last one of `words`.
    fn offered(words: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("acidtest.bash");
        std::fs::write(&file, script(Shell::Bash)).unwrap();
        let ask = r#"source "$1" && shift && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) &&
            _acidtest "$1" "${!#}" "${@: -2:1}" && echo "${COMPREPLY[*]}""#;
        let bash = Command::new("bash").args(["-euc", ask, "bash"]).arg(&file).args(words).output().unwrap();
        assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
        String::from_utf8(bash.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn bash_completes_commands_options_and_values() {
        assert_eq!(offered(&["acidtest", "sto"]), "stores");
        assert_eq!(offered(&["acidtest", "run", "--dur"]), "--durability --duration");
        assert_eq!(offered(&["acidtest", "lab", "do"]), "down");
        assert_eq!(offered(&["acidtest", "completions", "z"]), "zsh");
        assert_eq!(offered(&["acidtest", "run", "inv"]), "inventory");
        assert_eq!(offered(&["acidtest", "run", "inventory", "--store", "pos"]), "postgres");
        assert_eq!(offered(&["acidtest", "stores", "mem"]), "memory");
        for (option, begun, whole) in [
            ("--lock", "nat", "native"),
            ("--durability", "pro", "process"),
            ("--tls", "of", "off"),
            ("--lock-service", "po", "postgres"),
            ("--isolation", "ser", "serializable"),
            ("--ack", "con", "confirm"),
            ("--persistent", "fal", "false"),
            ("--arrivals", "po", "poisson"),
            // of a queue, and of logs
            ("--queue", "quo", "quorum"),
            ("--queue", "dis", "disk"),
        ] {
            assert_eq!(offered(&["acidtest", "run", "queue", option, begun]), whole, "{option}");
        }
        assert_eq!(offered(&["acidtest", "lab", "up", "redis", "--durability", "no"]), "none");
        assert_eq!(offered(&["acidtest", "work"]), "workloads");
    }

    #[test]
    fn every_shell_is_told_every_command() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in typed().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    /// Each command has one section, with each of its options except those that all commands share.
    #[test]
    fn the_page_has_a_section_for_every_command() {
        fn look(command: &clap::Command, within: &str, page: &str) -> usize {
            let name = format!("{within} {}", command.get_name());
            let heading = format!("\n.SH \"{}\"\n", name.to_uppercase());
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
            let (_, section) = page.split_once(&heading).unwrap();
            let section = section.split("\n.SH ").next().unwrap();
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for long in shown.filter_map(clap::Arg::get_long) {
                let long = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(section.contains(&long), "{name} {long}:\n{section}");
            }
            1 + command.get_subcommands().map(|inner| look(inner, &name, page)).sum::<usize>()
        }
        let page = page().unwrap();
        let program = Arguments::command();
        let sections: usize = program.get_subcommands().map(|command| look(command, "acidtest", &page)).sum();
        assert!(sections >= 14, "{sections}");
        for words in ["Exit status:", "acidtest run inventory"] {
            assert!(page.contains(words), "{words}");
        }
    }
}
