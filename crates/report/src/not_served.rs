//! Why a rate is void, in words.

use acidtest_model::figure::percent;
use acidtest_results::{CellResult, NotServed};

/// What is said of a cell whose rate is void because too little was served: `12 % errors`; none where it stands.
pub(crate) fn not_served(cell: &CellResult) -> Option<String> {
    let NotServed { errors, dropped, silent_from } = cell.not_served()?;
    let said = [
        errors.map(|errors| format!("{} errors", percent(errors))),
        dropped.map(|dropped| format!("{} of the arrivals dropped", percent(dropped))),
        silent_from.map(|from| format!("no answer from {from} s on")),
    ];
    Some(said.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use acidtest_results::{
        LatencyFigures, RunResult,
        dimensions::Names,
        sample::{Grid, series},
    };

    use super::*;
    use crate::{conclusion::conclusion, notes::notes};

    /// Has each trial end so many operations in errors for 1,000 others, of which some were given up when it was over.
    fn with_errors(errors: u64) -> RunResult {
        let mut result = Grid::default().result();
        for trial in &mut result.cells[1].trials {
            let operation = &mut trial.operations[0];
            let mut ok = operation.service["ok"].clone();
            ok.count = 900;
            let ended = |count| LatencyFigures { count, ..ok.clone() };
            let (failed, given_up) = (ended(errors), ended(100));
            let ended = [("ok", ok), ("unknown", failed), ("conflict", given_up)];
            operation.service = ended.map(|(outcome, times)| (outcome.to_owned(), times)).into();
            trial.operations.truncate(1);
        }
        result.price().unwrap();
        result
    }

    #[test]
    fn a_cell_of_errors_has_no_rate_that_is_said() {
        let serving = with_errors(10);
        assert!(serving.cells[1].is_serving() && !serving.cells[1].prices.is_empty());
        let failing = with_errors(12);
        let cell = &failing.cells[1];
        assert_eq!(not_served(cell).as_deref(), Some("1.2 % errors"));
        assert!(!cell.is_serving() && cell.prices.is_empty());
        let said = |result: &RunResult| conclusion(result, &Names::of(&result.cells));
        let void = "Void, because too little was served: sqlite native, 1.2 % errors.";
        assert!(
            said(&failing).starts_with("1 of 2 cells hold, and the rate of 1 is void."),
            "{}",
            said(&failing)
        );
        assert!(said(&failing).contains(void) && !said(&serving).contains("Void"), "{}", said(&failing));
        assert!(said(&serving).contains(" ok/s") && !said(&failing).contains(" ok/s"), "{}", said(&failing));
    }

    #[test]
    fn a_store_that_fills_up_has_no_rate_that_is_said() {
        let mut result = Grid { seconds: 12, ..Grid::default() }.result();
        let ok = [("ok", 900); 4];
        let filled = |outcome| series(&[&ok[..], &[(outcome, 2); 8]].concat());
        for trial in &mut result.cells[1].trials {
            trial.series = filled("failed");
        }
        let said = |result: &RunResult| {
            let names = Names::of(&result.cells);
            (conclusion(result, &names), notes(result, &names, true).join("\n"))
        };
        let (told, noted) = said(&result);
        assert!(
            told.contains(
                "Void, because too little was served: sqlite native, 67 % errors, no answer from 4 s on."
            ),
            "{told}"
        );
        assert!(!told.contains("ok/s"), "{told}");
        assert!(
            noted.contains("nothing was acknowledged from 4 s on, to the end at 12.0 s: 16 failed"),
            "{noted}"
        );
        // what is refused is answered, so that the rate stands; but that is told, too
        for trial in &mut result.cells[1].trials {
            trial.series = filled("refused");
        }
        let (told, noted) = said(&result);
        assert!(
            told.contains("ok/s") && noted.contains("to the end at 12.0 s: 16 refused"),
            "{told}\n{noted}"
        );
    }
}
