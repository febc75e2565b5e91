//! `acidtest workloads`.

use std::fmt::Write;

use acidtest_runner::Failure;
use acidtest_workloads::{WORKLOADS, WorkloadKind};

use crate::{
    exit::Status,
    output::{self, wrapped},
    registry,
};

/// Columns before what is said of a workload.
const OF_WORKLOAD: usize = 14;

/// Columns before what is said of a parameter.
const OF_PARAMETER: usize = 28;

/// Lists the workloads with their parameters.
pub(crate) fn workloads() -> Result<Status, Failure> {
    let blocks: Vec<String> = WORKLOADS.iter().map(describe).collect();
    output::print_text(&blocks.join("\n"))?;
    Ok(Status::Held)
}

fn describe(kind: &WorkloadKind) -> String {
    let able: Vec<&str> = registry::able(kind.name).collect();
    let mut text = format!("{:<11} {}\n", kind.name, kind.summary.replace('\n', "\n  "));
    let usual = (kind.with)(&serde_json::Map::new()).ok();
    let rates = usual.and_then(|workload| workload.spec().rates_count.clone()).map(|said| ("rates", said));
    let rows = [
        ("operations", kind.operations.join(", ")),
        ("stores", able.join(", ")),
        ("audit", kind.audit.to_owned()),
        ("parameters", "--name on the command line, with dashes; name in a plan's [parameters]".to_owned()),
    ];
    let (operations, others) = rows.split_at(1);
    for (label, said) in operations.iter().chain(&rates).chain(others) {
        // writing into a string cannot fail
        let _ = writeln!(text, "  {label:<11} {}", wrapped(said, OF_WORKLOAD));
    }
    for parameter in (kind.parameters)() {
        let (name, default) = (parameter.name, parameter.default);
        let meaning = wrapped(parameter.meaning, OF_PARAMETER);
        // a default that reaches into the meaning's columns has a line of its own
        let gap =
            if default.chars().count() > 8 { format!("\n{:OF_PARAMETER$}", "") } else { " ".to_owned() };
        let _ = writeln!(text, "    {name:<14} {default:<8}{gap}{meaning}");
    }
    text
}
