//! The help of a command that runs a workload: where one is named, it is about that workload.

use std::ffi::OsString;

use acidtest_workloads::{Workload, WorkloadKind, WorkloadSpec, workload};
use clap::{Command, CommandFactory, error::ErrorKind};

use crate::{args::Arguments, parameter_arguments};

/// What is printed for these words of the command line, which were not carried out. Where help was asked for behind the name of
/// a workload, it is about that workload alone.
pub(crate) fn about_what_is_named(said: clap::Error, words: &[OsString]) -> clap::Error {
    if said.kind() != ErrorKind::DisplayHelp {
        return said;
    }
    let Some((command, kind)) = named(words) else { return said };
    let about = |command: Command| about(command, kind);
    Arguments::command().mut_subcommand(command, about).try_get_matches_from(words).err().unwrap_or(said)
}

/// The command and the workload that are named before help is asked for.
fn named(words: &[OsString]) -> Option<(String, &'static WorkloadKind)> {
    // reading ends at the request for help, as at any word that is not known
    let reader = Arguments::command().disable_help_flag(true).ignore_errors(true);
    let matches = reader.try_get_matches_from(words).ok()?;
    let (command, matches) = matches.subcommand()?;
    let what = matches.try_get_one::<String>("what").ok()??;
    Some((command.to_owned(), workload(what)?))
}

/// The command as its help is about a workload: with its parameters, and without what it does not take.
fn about(command: Command, kind: &WorkloadKind) -> Command {
    let name = command.get_name().to_owned();
    let is_about = format!("acidtest {name} {} ", kind.name);
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = examples_of(&examples, &is_about);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let command = parameter_arguments::of_workload(command, kind)
        .about(format!("{about}\n\n{}: {}", kind.name, kind.summary))
        .override_usage(format!("acidtest {name} {} [OPTIONS]", kind.name))
        .after_help(examples);
    without_effect(kind)
        .into_iter()
        .fold(command, |command, option| command.mut_arg(option, |arg| arg.hide(true)))
}

/// The arguments of a run that have no effect on this workload, whatever its parameters are; and its name, which stands in the
/// line of usage.
fn without_effect(kind: &WorkloadKind) -> Vec<&'static str> {
    let usual = (kind.with)(&serde_json::Map::new()).ok();
    let is_so = |of: fn(&WorkloadSpec) -> bool| usual.as_deref().map(Workload::spec).is_some_and(of);
    let replays = is_so(|spec| spec.replays);
    let has_clients = is_so(|spec| spec.clients.is_some());
    let rows =
        [("what", true), ("trace", !replays), ("clients", has_clients), ("fits", kind.demand.is_none())];
    rows.into_iter().filter_map(|(option, is_idle)| is_idle.then_some(option)).collect()
}

/// Those examples, under their heading, whose command begins so; nothing where there are none.
fn examples_of(all: &str, command: &str) -> String {
    let mut is_kept = false;
    let kept = all.lines().skip(1).filter(|line| {
        if line.starts_with("  ") && !line.starts_with("   ") {
            is_kept = format!("{line} ").contains(command);
        }
        is_kept
    });
    let kept: Vec<&str> = kept.collect();
    if kept.is_empty() { String::new() } else { format!("Examples:\n{}", kept.join("\n")) }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::WORKLOADS;
    use clap::Parser;

    use super::*;

    fn asked(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let said = Arguments::try_parse_from(&words).unwrap_err();
        about_what_is_named(said, &words).to_string()
    }

    #[test]
    fn the_help_of_a_workload_has_its_parameters_and_no_other() {
        for kind in WORKLOADS {
            for command in ["run", "capacity"] {
                let help = asked(&format!("acidtest {command} {} --store redis --help", kind.name));
                let usage = format!("Usage: acidtest {command} {} [OPTIONS]\n", kind.name);
                assert!(help.contains(&usage) && !help.contains("[WHAT]"), "{help}");
                assert_eq!(help.matches("Parameters of ").count(), 1, "{help}");
                let of = |option: &str| help.contains(&format!(" {option} <"));
                let own: Vec<&str> =
                    (kind.parameters)().into_iter().map(|parameter| parameter.name).collect();
                for parameter in WORKLOADS.iter().flat_map(|kind| (kind.parameters)()) {
                    let option = format!("--{}", parameter.name.replace('_', "-"));
                    assert_eq!(of(&option), own.contains(&parameter.name), "{} {option}", kind.name);
                }
                for other in WORKLOADS.iter().filter(|other| other.name != kind.name) {
                    let example = format!("acidtest {command} {}", other.name);
                    assert!(!help.contains(&example), "{example}: {help}");
                }
            }
            assert!(asked(&format!("acidtest run {} -h", kind.name)).contains("Examples:"), "{}", kind.name);
        }
        assert!(asked("acidtest run parcels -h").contains("[default: 9450+8000]"));
        assert!(!asked("acidtest run records -h").contains("9450+8000"));
    }

    #[test]
    fn an_option_that_a_workload_does_not_take_is_not_in_its_help() {
        for (line, option, is_there) in [
            ("run inventory", "--trace", true),
            ("run records", "--trace", false),
            ("run queue", "--clients", false),
            ("run parcels", "--fits", true),
            ("run join", "--fits", false),
            ("capacity inventory", "--demand", true),
        ] {
            let help = asked(&format!("acidtest {line} --help"));
            assert_eq!(help.contains(&format!("\n      {option} ")), is_there, "{line} {option}: {help}");
        }
    }

    #[test]
    fn without_a_workload_the_help_is_about_all() {
        for line in
            ["run --help", "run plan.toml --help", "capacity -h", "run --store inventory --help", "help run"]
        {
            let help = asked(&format!("acidtest {line}"));
            assert_eq!(help.matches("Parameters of ").count(), WORKLOADS.len(), "{line}: {help}");
        }
        assert!(!asked("acidtest compare --help").contains("Parameters of "));
        let refused = asked("acidtest run inventory --helo");
        assert!(refused.contains("--help") && !refused.contains("Parameters of "), "{refused}");
    }
}
