//! A result as Markdown, to paste into a pull request.

use std::fmt::Write;

use crate::{
    RunResult,
    notes::notes,
    sheet::escaped,
    table::{Columns, cells, headline, prices, scalability},
    waiting::waiting,
};

/// What was run, its cells with their verdicts, prices and scalability, and, folded away, what to know about them.
#[must_use]
pub fn markdown(result: &RunResult) -> String {
    let columns = Columns::of(result);
    let mut headline = headline(result).lines().map(escaped).collect::<Vec<_>>().into_iter();
    let mut text = format!("### {}\n\n", headline.next().unwrap_or_default());
    text += &headline.collect::<Vec<_>>().join("  \n");
    text += "\n\n";
    if let Some(waiting) = waiting(result) {
        let _ = writeln!(text, "{}\n", escaped(&waiting));
    }
    for sheet in [cells(result, &columns), prices(result, &columns), scalability(result, &columns)] {
        if !sheet.rows.is_empty() {
            text += &sheet.markdown();
            text.push('\n');
        }
    }
    text += "<details><summary>What to know about these figures</summary>\n\n";
    for note in notes(result, false) {
        let _ = writeln!(text, "- {}", escaped(&note));
    }
    text += "\n</details>\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Grid, golden};

    #[test]
    fn the_markdown_is_the_golden_one() {
        golden("report.md", &markdown(&Grid { clients: &[1, 2, 4, 8], ..Grid::default() }.result()));
    }
}
