//! `acidtest show` and `acidtest schema`.

use acidtest_runner::Failure;

use crate::{args::Show, exit::Status, output};

/// Prints the table of a result file again.
pub(crate) fn show(show: &Show) -> Result<Status, Failure> {
    let mut result = output::load(&show.file)?;
    show.room.ask(&mut result)?;
    output::print(&result, show.output)?;
    Ok(Status::Held)
}

/// Prints the JSON Schema of result files.
pub(crate) fn schema() -> Result<Status, Failure> {
    output::print_text(&format!("{:#}\n", acidtest_results::schema()))?;
    Ok(Status::Held)
}
