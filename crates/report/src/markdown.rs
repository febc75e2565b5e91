//! A result as Markdown, to paste into a pull request.

use std::fmt::Write;

use acidtest_results::{RunResult, dimensions::Names};

use crate::{
    conclusion::conclusion,
    headline::headline,
    notes::notes,
    table::escaped,
    tables::{
        Columns, anomalies, capacities, capacity_prices, cells, curves, limits, prices, scalability, sizes,
        staleness,
    },
    waiting::waiting,
};

/// The run's conditions, the cells with their verdicts, prices and scalability, and the notes in a folded section.
#[must_use]
pub fn markdown(result: &RunResult) -> String {
    let names = Names::of(&result.cells);
    let columns = Columns::of(result, &names);
    let headline = headline(result, &names);
    let mut headline = headline.lines().map(escaped).collect::<Vec<_>>().into_iter();
    let mut text = format!("### {}\n\n", headline.next().unwrap_or_default());
    text += &headline.collect::<Vec<_>>().join("  \n");
    text += "\n\n";
    for line in conclusion(result, &names).lines() {
        let _ = writeln!(text, "{}\n", escaped(line));
    }
    if let Some(waiting) = waiting(result, &names) {
        let _ = writeln!(text, "{}\n", escaped(&waiting));
    }
    let of = if result.plan.capacity.is_some() {
        &[capacities, capacity_prices, curves, limits, staleness][..]
    } else {
        &[cells, staleness, anomalies, prices, sizes, scalability]
    };
    for table in of.iter().map(|table| table(result, &columns)) {
        if !table.rows.is_empty() {
            text += &table.markdown();
            text.push('\n');
        }
    }
    text += "<details><summary>What to know about these figures</summary>\n\n";
    for note in notes(result, &names, false) {
        let _ = writeln!(text, "- {}", escaped(&note));
    }
    text += "\n</details>\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::golden;
    use acidtest_results::sample::Grid;

    #[test]
    fn the_markdown_is_the_golden_one() {
        golden("report.md", &markdown(&Grid { clients: &[1, 2, 4, 8, 16, 32], ..Grid::default() }.result()));
    }
}
