//! `acidtest workloads`.

use std::fmt::Write;

use acidtest_workloads::{WORKLOADS, WorkloadKind};

use crate::{
    exit::{Failure, Status},
    output,
    registry::STORES,
};

/// Line break and indentation before the rest of a wrapped line.
const INDENT: &str = "\n              ";

/// Width of a line of text, in columns.
const WIDTH: usize = 96;

/// Lists the workloads with their parameters.
pub(crate) fn workloads() -> Result<Status, Failure> {
    let blocks: Vec<String> = WORKLOADS.iter().map(describe).collect();
    output::print_text(&blocks.join("\n"))?;
    Ok(Status::Held)
}

fn describe(kind: &WorkloadKind) -> String {
    let able = STORES.iter().filter(|store| store.kind.workload(kind.name).is_yes());
    let able: Vec<&str> = able.map(|store| store.kind.name).collect();
    let mut text = format!("{:<11} {}\n", kind.name, kind.summary.replace('\n', "\n  "));
    let rows = [
        ("operations", kind.operations.join(", ")),
        ("stores", able.join(", ")),
        ("audit", kind.audit.to_owned()),
        ("parameters", "--name on the command line, with dashes; name in a plan's [parameters]".to_owned()),
    ];
    for (label, said) in rows {
        // writing into a string cannot fail
        let _ = writeln!(text, "  {label:<11} {}", wrapped(&said, WIDTH - INDENT.len()));
    }
    for parameter in (kind.parameters)() {
        let meaning = wrapped(parameter.meaning, WIDTH - 28).replace(INDENT, &format!("\n{:28}", ""));
        let _ = writeln!(text, "    {:<14} {:<8} {meaning}", parameter.name, parameter.default);
    }
    text
}

/// The text wrapped between words into lines of at most so many columns.
fn wrapped(text: &str, columns: usize) -> String {
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
    lines.join(INDENT)
}
