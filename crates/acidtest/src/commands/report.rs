//! `acidtest report`.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use acidtest_anomalies::AnomaliesResult;
use acidtest_report::{NamedAnomalies, NamedResult, anomalies, csv, markdown, page};
use acidtest_results::RunResult;
use acidtest_runner::Failure;
use clap::Args;

use crate::{
    exit::Status,
    option_arguments::{OptionArguments, Room},
    output::{self, Loaded},
};

const EXAMPLES: &str = "\
Examples:
  acidtest report result.json
      one page, result.html, that opens in a browser without a network
  acidtest report before.json after.json --html both.html
      several results on one page
  acidtest report transactions.json anomalies.json --html isolation.html
      what levels cost and allow under load, beside what they allow step by step
  acidtest report result.json --markdown
      a table that pastes into a pull request
  acidtest report result.json --csv - | head
      one row for each trial and operation, with units in the header";

/// Turns results into a page, a table for a pull request, or CSV.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Report {
    /// Result files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write one HTML page [default: the first file's name with .html, if nothing else is asked for]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Write CSV to a file, or print it (-)
    #[arg(long, value_name = "FILE|-")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    room: OptionArguments<Room>,
}

pub(crate) fn report(report: &Report) -> Result<Status, Failure> {
    let printed = report.csv.as_deref() == Some(Path::new("-"));
    if printed && report.markdown {
        return Err(Failure::Usage(
            "both --markdown and --csv - would be printed: name a file for --csv".to_owned(),
        ));
    }
    let elsewhere = report.markdown || report.csv.is_some();
    let html = report.html.clone().or_else(|| (!elsewhere).then(|| report.files[0].with_extension("html")));
    for (option, target) in [("--html", &html), ("--csv", &report.csv)] {
        keep_results(option, target.as_deref(), &report.files)?;
    }
    if html.is_some() && html == report.csv {
        return Err(Failure::Usage("--html and --csv name the same file".to_owned()));
    }
    let (mut runs, mut of_anomalies) = (Vec::new(), Vec::new());
    for file in &report.files {
        // the folder is no concern of the page's readers
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match output::load_any(file)? {
            Loaded::Anomalies(result) => of_anomalies.push((name, result)),
            Loaded::Run(mut result) => {
                report.room.ask(&mut result)?;
                runs.push((name, *result));
            }
        }
    }
    if runs.is_empty() {
        check_without_runs(report)?;
    }
    if let Some(path) = html {
        write(&path, &whole_page(&runs, &of_anomalies)?)?;
    }
    if let Some(path) = &report.csv {
        let text = csv(runs.iter().map(|(_, result)| result)).map_err(|error| unreadable(&error))?;
        if printed { output::print_text(&text)? } else { write(path, &text)? }
    }
    if report.markdown {
        let runs = runs.iter().map(|(_, result)| markdown(result));
        let all = runs.chain(of_anomalies.iter().map(|(_, result)| anomalies::markdown(result)));
        output::print_text(&all.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Status::Held)
}

/// Refuses what is of runs alone.
fn check_without_runs(report: &Report) -> Result<(), Failure> {
    if report.csv.is_some() {
        return Err(Failure::Usage(
            "--csv has no effect here: a result of acidtest anomalies has no trials\n  remedy: --html or --markdown".to_owned(),
        ));
    }
    report.room.is_idle("it is held against tables of runs")
}

/// Refuses to write over what has the name of a result: `--html a.json b.json` was meant to show both.
fn keep_results(option: &str, target: Option<&Path>, files: &[PathBuf]) -> Result<(), Failure> {
    let is_result = |target: &&Path| {
        let same = |file: &PathBuf| {
            file == target
                || file
                    .canonicalize()
                    .is_ok_and(|file| target.canonicalize().is_ok_and(|target| file == target))
        };
        target.extension().is_some_and(|extension| extension == "json") || files.iter().any(same)
    };
    match target.filter(is_result) {
        Some(file) => Err(Failure::Usage(format!(
            "{option} {} would overwrite a result: it is the file to write\n  remedy: {option} FILE, with the results \
             before or after it",
            file.display()
        ))),
        None => Ok(()),
    }
}

/// The page of all results.
fn whole_page(
    runs: &[(String, RunResult)],
    of_anomalies: &[(String, AnomaliesResult)],
) -> Result<String, Failure> {
    let runs: Vec<_> = runs.iter().map(|(name, result)| NamedResult { name, result }).collect();
    let of_anomalies: Vec<_> =
        of_anomalies.iter().map(|(name, result)| NamedAnomalies { name, result }).collect();
    page(&runs, &of_anomalies).map_err(|error| unreadable(&error))
}

fn unreadable(error: &impl Error) -> Failure {
    Failure::Usage(error.to_string())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::Other(format!(
            "cannot write {}: {error}\n  remedy: name a file that can be written",
            path.display()
        ))
    })?;
    output::say(&format!("written: {}", path.display()));
    Ok(())
}
