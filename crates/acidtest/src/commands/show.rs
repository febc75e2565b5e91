//! `acidtest show` and `acidtest schema`.

use acidtest_runner::Failure;

use crate::{
    args::{Schema, SchemaOf, Show},
    commands::anomalies,
    exit::Status,
    output::{self, Loaded},
};

/// Prints the table of a result file again.
pub(crate) fn show(show: &Show) -> Result<Status, Failure> {
    match output::load_any(&show.file)? {
        Loaded::Run(mut result) => {
            show.room.ask(&mut result)?;
            output::print(&result, show.output)?;
        }
        Loaded::Anomalies(result) => {
            show.room.is_idle("it is held against tables of runs")?;
            anomalies::print(&result, show.output)?;
        }
    }
    Ok(Status::Held)
}

/// Prints the JSON Schema of result files.
pub(crate) fn schema(schema: &Schema) -> Result<Status, Failure> {
    let schema = match schema.of {
        SchemaOf::Run => acidtest_results::schema(),
        SchemaOf::Anomalies => acidtest_anomalies::schema(),
    };
    output::print_text(&format!("{schema:#}\n"))?;
    Ok(Status::Held)
}
