//! `acidtest selftest`.

use std::{
    io::IsTerminal,
    path::Path,
    time::{Duration, Instant},
};

use acidtest_report::{Entry, Priority, Table, Tone};
use acidtest_runner::Failure;
use acidtest_store_memory::selftest::{Case, DrivenTrial, run};
use acidtest_workloads::Verdict;

use crate::{args, exit::Status, fuzz, output};

/// Time between two lines of progress.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tests the auditor: on the known bugs one by one, on randomly drawn plans, or on a plan that was saved.
pub(crate) fn selftest(arguments: &args::Selftest) -> Result<Status, Failure> {
    match (&arguments.replay, arguments.plans) {
        (Some(case), _) => replay(case),
        (None, Some(plans)) => by_lot(plans, arguments.seed, &arguments.out),
        (None, None) => one_by_one(arguments.seed),
    }
}

/// Runs every case and shows which check caught which bug. An uncaught bug, or an alarm about a correct store, breaks
/// what acidtest itself promises.
fn one_by_one(seed: u64) -> Result<Status, Failure> {
    let mut rows: Vec<(Case, DrivenTrial)> = Vec::new();
    for case in Case::all() {
        let driven = run(&case, seed).map_err(|error| Failure::Other(error.to_string()))?;
        rows.push((case, driven));
    }
    let wrong = rows.iter().filter(|(case, driven)| !judged_right(case, driven)).count();
    let said = match wrong {
        0 => "every planted bug was caught, and no correct store raised an alarm".to_owned(),
        wrong => format!("{wrong} of {} cases were judged wrongly: do not trust this build", rows.len()),
    };
    for rows in rows.chunk_by(|(one, _), (next, _)| one.workload.name == next.workload.name) {
        output::print_text(&format!("{}\n", table(rows).terminal(output::style())))?;
    }
    output::print_text(&format!("{said}\n"))?;
    Ok(if wrong == 0 { Status::Held } else { Status::Broken })
}

/// Whether the verdict is the expected one, and the planted bug, if there is one, had an effect that an audit must
/// see; and the age of reads is told as the store knows it.
fn judged_right(case: &Case, driven: &DrivenTrial) -> bool {
    let expected = if case.is_broken() { Verdict::Broken } else { Verdict::Holds };
    let is_seen = (driven.shown > 0) == case.is_broken();
    driven.audited.audit.verdict == expected && is_seen && driven.misjudged_age().is_none()
}

/// A table of one workload's cases: a row each, with all counts of its audit.
fn table(rows: &[(Case, DrivenTrial)]) -> Table {
    let workload = rows.first().map_or("", |(case, _)| case.workload.name);
    let mut table = Table::new([
        (workload, Priority::Needed),
        ("verdict", Priority::Needed),
        ("", Priority::Needed),
        ("counted", Priority::High),
    ]);
    for (case, driven) in rows {
        let audit = &driven.audited.audit;
        let (judged, tone) = match (judged_right(case, driven), case.is_broken()) {
            (true, true) => ("caught", Tone::Good),
            (true, false) => ("no alarm", Tone::Good),
            (false, true) => ("NOT CAUGHT", Tone::Bad),
            (false, false) => ("FALSE ALARM", Tone::Bad),
        };
        let counted = audit.findings.iter().filter(|finding| finding.count > 0);
        let counted: Vec<String> = counted.map(ToString::to_string).collect();
        let gravest = match counted.as_slice() {
            [] => "nothing".to_owned(),
            [one] => one.clone(),
            [gravest, others @ ..] => format!("{gravest}, and {} more", others.len()),
        };
        let all = if counted.is_empty() { gravest.clone() } else { counted.join(", ") };
        table.push([
            Entry::left(case.meaning()),
            Entry::left(audit.verdict),
            Entry::toned(judged, tone),
            Entry::left(all).or(gravest),
        ]);
    }
    table
}

/// Drives randomly drawn plans, and shows how many trials were judged, and how.
fn by_lot(plans: u32, seed: u64, folder: &Path) -> Result<Status, Failure> {
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(Failure::Usage(format!("--out {folder} is not a folder: create it, or name another")));
    }
    output::say(&format!("seed {seed}"));
    let (begun, mut said) = (Instant::now(), Instant::now());
    let interval = if std::io::stderr().is_terminal() { INTERVAL / 5 } else { INTERVAL };
    let report = fuzz::run(plans, seed, |done| {
        if said.elapsed() >= interval {
            said = Instant::now();
            let left = begun.elapsed().as_secs_f64() / f64::from(done) * f64::from(plans - done);
            output::say(&format!("{done} of {plans} plans · {left:.0} s left"));
        }
    })?;
    for table in report.tally.tables() {
        output::print_text(&format!("{}\n", table.terminal(output::style())))?;
    }
    let refused = acidtest_model::count(report.tally.refused);
    output::print_text(&format!("{refused} more plans were drawn but refused by the check\n"))?;
    if let Some(broken) = &report.failure {
        let wrong = broken.save(folder)?;
        output::print_text(&format!("{wrong}\ndo not trust this build (seed {seed})\n"))?;
        return Ok(Status::Broken);
    }
    if let Some(little) = report.tally.too_little() {
        output::print_text(&format!(
            "{little}\ntoo little was judged to tell: drive more plans (seed {seed})\n"
        ))?;
        return Ok(Status::Unknown);
    }
    output::print_text("every planted bug was caught, and no correct store raised an alarm\n")?;
    Ok(Status::Held)
}

/// Drives a saved case again.
fn replay(file: &Path) -> Result<Status, Failure> {
    let case = fuzz::FuzzCase::load(file)?;
    let (done, wrong) = fuzz::examine(&case)?;
    for trial in &done.trials {
        output::print_text(&format!("{}: {}\n", trial.name, trial.driven.audited.audit))?;
    }
    match wrong {
        None => {
            output::print_text("judged as it should be\n")?;
            Ok(Status::Held)
        }
        Some(wrong) => {
            output::print_text(&format!("{wrong}\n"))?;
            Ok(Status::Broken)
        }
    }
}
