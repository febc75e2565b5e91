//! Tables before anybody has decided how they look.

use acidtest_workloads::Verdict;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};

use crate::Style;

/// How every table on a terminal is ruled: one line under the header and one at the end, as rows are short.
pub const RULED: TableStyle = {
    let line = LineStyle::none().fill('─').junction('─');
    TableStyle::new().header_separator(line).bottom_border(line)
};

/// A table: its header and its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<Entry>>,
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) text: String,
    /// Whether it is set to the right, as figures are.
    pub(crate) right: bool,
    pub(crate) tone: Tone,
}

/// A colour only helps to find what the words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Doubtful,
    Bad,
}

impl Tone {
    fn color(self) -> Option<Color> {
        match self {
            Self::Plain => None,
            Self::Good => Some(Color::Green),
            Self::Doubtful => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
        }
    }
}

impl From<Verdict> for Tone {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Holds => Self::Good,
            Verdict::Unknown => Self::Doubtful,
            Verdict::Broken => Self::Bad,
        }
    }
}

impl Entry {
    #[allow(clippy::needless_pass_by_value)] // so that a method is enough of a closure
    pub(crate) fn left(text: impl ToString) -> Self {
        Self { text: text.to_string(), right: false, tone: Tone::Plain }
    }

    pub(crate) fn right(text: impl ToString) -> Self {
        Self { right: true, ..Self::left(text) }
    }

    /// A verdict is never without its word.
    pub(crate) fn verdict(text: impl ToString, verdict: Verdict) -> Self {
        Self { tone: verdict.into(), ..Self::left(text) }
    }

    pub(crate) fn toned(text: impl ToString, tone: Tone) -> Self {
        Self { tone, ..Self::left(text) }
    }
}

impl Sheet {
    pub(crate) fn of(header: &[&str]) -> Self {
        Self { header: header.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = Entry>) {
        self.rows.push(row.into_iter().collect());
    }

    /// As a terminal shows it.
    pub(crate) fn terminal(&self, style: Style) -> String {
        let mut table = Table::new();
        table.load_style(RULED).set_header(self.header.iter().map(|title| {
            let cell = Cell::new(title);
            if style.color { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
        if style.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if let Some(width) = style.width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(60));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|entry| {
                let cell = Cell::new(&entry.text);
                let cell = if entry.right { cell.set_alignment(CellAlignment::Right) } else { cell };
                match entry.tone.color().filter(|_| style.color) {
                    Some(color) => cell.fg(color),
                    None => cell,
                }
            }));
        }
        table.to_string()
    }

    /// As Markdown: a table that pastes into a pull request.
    pub(crate) fn markdown(&self) -> String {
        let line = |entries: &mut dyn Iterator<Item = String>| {
            format!("| {} |\n", entries.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut self.header.iter().map(|title| escaped(title)));
        let aligned =
            |place: usize| self.rows.iter().any(|row| row.get(place).is_some_and(|entry| entry.right));
        let rule = (0..self.header.len()).map(|place| if aligned(place) { "---:" } else { "---" }.to_owned());
        text += &line(&mut rule.into_iter());
        for row in &self.rows {
            text += &line(&mut row.iter().map(|entry| {
                let shown = escaped(&entry.text);
                if entry.tone == Tone::Bad { format!("**{shown}**") } else { shown }
            }));
        }
        text
    }
}

/// Text that Markdown takes as it is: neither markup nor HTML, and in one line.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' | '@' => safe.extend(['\\', letter]),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\n' | '\r' => safe.push(' '),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_not_broken_by_what_it_shows() {
        let mut sheet = Sheet::of(&["store", "ok/s"]);
        sheet.push([Entry::verdict("a|b <script>\n*c*", Verdict::Broken), Entry::right("1")]);
        assert_eq!(
            sheet.markdown(),
            "| store | ok/s |\n| --- | ---: |\n| **a\\|b &lt;script&gt; \\*c\\*** | 1 |\n"
        );
    }
}
