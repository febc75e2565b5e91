//! `acidtest selftest`.

use acidtest_store_memory::selftest::{Case, run};
use acidtest_workloads::{Audit, Verdict};
use comfy_table::{Cell, CellAlignment, Table};

use crate::{
    args,
    exit::{Failure, Status},
    output,
};

/// Runs every case and shows which check caught what. A bug that goes uncaught, or an alarm about a
/// correct store, breaks what acidtest itself promises.
pub(crate) async fn selftest(arguments: &args::Selftest) -> Result<Status, Failure> {
    let mut rows: Vec<(Case, Audit)> = Vec::new();
    for case in Case::all() {
        let audit = run(&case, arguments.seed).await.map_err(|error| Failure::Other(error.to_string()))?;
        rows.push((case, audit));
    }
    let wrong = rows.iter().filter(|(case, audit)| !judged_right(case, audit)).count();
    let said = match wrong {
        0 => "every planted bug was caught, and no correct store raised an alarm".to_owned(),
        wrong => format!("{wrong} of {} cases were judged wrongly: do not trust this build", rows.len()),
    };
    for rows in rows.chunk_by(|(one, _), (next, _)| one.workload.name == next.workload.name) {
        output::print_text(&format!("{}\n", table(rows)))?;
    }
    output::print_text(&format!("{said}\n"))?;
    Ok(if wrong == 0 { Status::Held } else { Status::Broken })
}

fn judged_right(case: &Case, audit: &Audit) -> bool {
    audit.verdict == if case.is_broken() { Verdict::Broken } else { Verdict::Holds }
}

/// The cases of one workload: one row a case, one column a check, with what the check counted.
fn table(rows: &[(Case, Audit)]) -> Table {
    let workload = rows.first().map_or("", |(case, _)| case.workload.name);
    let checks: Vec<&str> = rows.first().map_or_else(Vec::new, |(_, audit)| {
        audit.findings.iter().map(|finding| finding.name.as_str()).collect()
    });
    let mut table = Table::new();
    table.load_style(acidtest_report::RULED);
    let mut header = vec![workload, "verdict", ""];
    header.extend(&checks);
    table.set_header(header);
    for (case, audit) in rows {
        let judged = match (judged_right(case, audit), case.is_broken()) {
            (true, true) => "caught",
            (true, false) => "no alarm",
            (false, true) => "NOT CAUGHT",
            (false, false) => "FALSE ALARM",
        };
        let mut row = vec![Cell::new(case.meaning()), Cell::new(audit.verdict), Cell::new(judged)];
        row.extend(checks.iter().map(|check| {
            let count = audit.count(check);
            let shown = if count == 0 { "·".to_owned() } else { acidtest_report::count(count) };
            Cell::new(shown).set_alignment(CellAlignment::Right)
        }));
        table.add_row(row);
    }
    table
}
