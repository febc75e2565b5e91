//! A result on a terminal.

use std::fmt::Write;

use acidtest_results::{RunResult, UnreadableHistogram, dimensions::Names};

use crate::{
    Style,
    conclusion::conclusion,
    headline::headline,
    histories::examples,
    notes::notes,
    table::{numbered, wrapped},
    tables::{
        Columns, MANY, anomalies, capacities, capacity_prices, cells, curves, limits, prices, resources,
        scalability, sizes, staleness, times,
    },
    waiting::waiting,
};

/// Formats the result as text: headline and conclusion, a table of cells, a table of times and further tables, and
/// the notes.
///
/// # Errors
/// A histogram that cannot be read.
pub fn render(result: &RunResult, style: Style) -> Result<String, UnreadableHistogram> {
    let names = Names::of(&result.cells);
    let columns = Columns::of(result, &names);
    let many = result.cells.len() > MANY;
    let made = |by: &Columns<'_>| {
        if result.plan.capacity.is_some() {
            let mut tables = vec![
                capacities(result, by),
                capacity_prices(result, by),
                curves(result, by),
                limits(result, by),
                staleness(result, by),
            ];
            tables.retain(|table| !table.rows.is_empty());
            return Ok(tables);
        }
        let mut tables = vec![
            cells(result, by),
            staleness(result, by),
            anomalies(result, by),
            prices(result, by),
            sizes(result, by),
            scalability(result, &columns),
            times(result, by, !many)?,
        ];
        tables.extend((!many).then(|| resources(result, by)));
        // a table without rows is left out: nothing of it was run
        tables.retain(|table| !table.rows.is_empty());
        Ok(tables)
    };
    let mut tables = made(&columns)?;
    let by_number = !tables.iter().all(|table| table.has_room(style));
    if by_number {
        tables = made(&columns.numbered())?;
    }
    let narrow = tables.iter().any(|table| table.is_cut(style));
    let mut sections =
        vec![wrapped(&headline(result, &names), style), wrapped(&conclusion(result, &names), style)];
    sections.extend(waiting(result, &names).map(|waiting| wrapped(&waiting, style)));
    sections.extend(by_number.then(|| numbered(result.cells.iter().map(|cell| names.cell(cell)), style)));
    sections.extend(tables.iter().map(|table| table.terminal(style)));
    sections.extend(examples(result, &names).into_iter().map(|example| wrapped(&example, style)));
    let mut below = notes(result, &names, false);
    below.extend(narrow.then(|| {
        "some columns or cells do not fit: use `acidtest show FILE | less -S`, or a wider terminal."
            .to_owned()
    }));
    sections.push(wrapped(&below.join("\n"), style));
    let mut text = String::new();
    for section in sections {
        let _ = writeln!(text, "{}\n", section.trim_end());
    }
    Ok(text.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Durability, Lock};
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::golden::golden;
    use acidtest_results::sample::Grid;

    const PLAIN: Style = Style { color: false, width: None };

    fn shown(grid: &Grid) -> String {
        render(&grid.result(), PLAIN).unwrap()
    }

    #[test]
    fn the_table_is_the_golden_one() {
        let grid = Grid {
            durability: &[Durability::None, Durability::Disk],
            transactions: &[1, 10],
            ..Grid::default()
        };
        golden("table.txt", &shown(&grid));
    }

    /// The study's grid at widths that terminals have: no line is wider, and words stay whole.
    #[test]
    fn the_table_fits_the_terminal() {
        let stores = ["sqlite", "postgres", "mariadb/innodb", "redis", "elasticsearch"];
        let mut result = Grid { stores: &stores, locks: &Lock::ALL, ..Grid::default() }.result();
        for cell in result.cells.iter_mut().filter(|cell| cell.store == "postgres") {
            cell.address = Some("postgres://ann@db.internal.example.com:5432/warehouse".to_owned());
        }
        for width in [60, 80, 100, 160] {
            let text = render(&result, Style { width: Some(width), ..PLAIN }).unwrap();
            golden(&format!("inventory-{width}.txt"), &text);
        }
        for width in (60..200).step_by(7) {
            let text = render(&result, Style { width: Some(width), ..PLAIN }).unwrap();
            let widest = text.lines().max_by_key(|line| line.width()).unwrap_or_default();
            assert!(widest.width() <= usize::from(width), "{width}: {widest}");
        }
    }

    /// A grid of many dimensions, several durability levels and a sweep, on the narrowest terminal.
    #[test]
    fn a_grid_of_many_dimensions_fits_the_narrowest_terminal() {
        let sweep = Grid {
            stores: &["postgres"],
            locks: &[Lock::Soft, Lock::Native],
            clients: &[1, 2, 4, 8, 16, 32],
            ..Grid::LARGE
        };
        for result in [sweep.result(), acidtest_results::sample::queue([("confirm", true, 900.0); 6])] {
            for width in [60, 80, 100, 160] {
                let text = render(&result, Style { width: Some(width), ..PLAIN }).unwrap();
                let widest = text.lines().max_by_key(|line| line.width()).unwrap_or_default();
                assert!(widest.width() <= usize::from(width), "{width}: {widest}\n{text}");
            }
        }
    }

    /// Where the columns that name a cell leave no room for figures, its number stands for them.
    #[test]
    fn a_grid_of_too_many_dimensions_has_numbered_cells() {
        let mut result = Grid { clients: &[4, 8], ..Grid::default() }.result();
        for (place, cell) in result.cells.iter_mut().enumerate() {
            for parameter in 1..=12 {
                cell.parameters.insert(format!("parameter_{parameter}"), (1000 + place).into());
            }
        }
        for width in [60, 80] {
            let text = render(&result, Style { width: Some(width), ..PLAIN }).unwrap();
            let widest = text.lines().max_by_key(|line| line.width()).unwrap_or_default();
            assert!(widest.width() <= usize::from(width), "{width}: {widest}\n{text}");
            let named = text.lines().find(|line| line.starts_with("2: ")).unwrap();
            assert!(named.starts_with("2: sqlite native, 4 clients, "), "{named}");
            assert!(text.contains("\n cell  "), "{text}");
        }
        let wide = render(&result, PLAIN).unwrap();
        assert!(!wide.contains("\n cell  ") && wide.contains("parameter_12"), "{wide}");
    }

    /// What reads at replicas missed has columns, and they fit the terminals that people have.
    #[test]
    fn reads_at_replicas_are_shown_with_what_they_missed() {
        let mut result = acidtest_results::sample::reads_at_replicas();
        for width in [60, 80, 100, 160] {
            let text = render(&result, Style { width: Some(width), ..PLAIN }).unwrap();
            let widest = text.lines().max_by_key(|line| line.width()).unwrap_or_default();
            assert!(widest.width() <= usize::from(width), "{width}: {widest}\n{text}");
            if width == 100 {
                golden("reads-100.txt", &text);
            }
        }
        result.cells.truncate(1);
        let text = render(&result, PLAIN).unwrap();
        assert!(!text.contains("stale") && !text.contains("replicas"), "{text}");
    }

    /// The four write cases of the locks study, with publisher confirms among them, at the study's rates.
    #[test]
    fn a_queue_s_table_is_the_golden_one() {
        let result = acidtest_results::sample::queue([
            ("none", false, 31_922.0),
            ("confirm", false, 10_000.0),
            ("transaction", false, 1_794.0),
            ("none", true, 15_518.0),
            ("confirm", true, 5_000.0),
            ("transaction", true, 37.0),
        ]);
        golden("queue.txt", &render(&result, PLAIN).unwrap());
    }

    /// Only dimensions that vary have a column.
    #[test]
    fn a_grid_over_any_parameter_says_what_varies() {
        let header = |grid: &Grid| shown(grid).lines().find(|line| line.contains("ok/s")).unwrap().to_owned();
        let plain = header(&Grid::default());
        assert!(
            !plain.contains("clients") && !plain.contains("transaction") && !plain.contains("items"),
            "{plain}"
        );
        let swept = header(&Grid { clients: &[1, 8], transactions: &[1, 10], ..Grid::default() });
        assert!(
            swept.contains("clients") && swept.contains("transaction") && !swept.contains("items"),
            "{swept}"
        );
    }

    #[test]
    fn one_trial_has_no_interval() {
        let text = shown(&Grid { trials: 1, ..Grid::default() });
        assert!(!text.contains("CV") && text.contains("(1 pair)") && text.contains("--trials"), "{text}");
    }

    /// A grid of 480 trials.
    #[test]
    fn a_large_grid_stays_readable() {
        let text = shown(&Grid::LARGE);
        let lines = text.lines().count();
        let notes = text.rsplit("\n\n").next().unwrap().lines().count();
        assert!(lines < 600 && notes < 40, "{lines} lines, {notes} of notes:\n{text}");
        let tables = text.lines().filter(|line| line.starts_with(' '));
        let widest = tables.map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 185, "{widest}");
    }
}
