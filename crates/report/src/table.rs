//! Tables, for a terminal and for Markdown.
//!
//! On a terminal no line wraps. Where a table is wider than the terminal, long entries take a shorter form, and
//! columns are left out, the least important ones first; a note below the tables says how to see all.

use std::{cmp::Reverse, collections::BTreeSet, fmt::Write};

use acidtest_workloads::Verdict;
use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::UnicodeWidthStr;

/// The style of a result's text: colours and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours and weights: only where the terminal has them and the user wants them.
    pub color: bool,
    /// Width of the terminal in columns; none if not known, and then lines may have any length.
    pub width: Option<u16>,
}

impl Style {
    /// Width to fit tables into, in terminal columns; none where it is not known.
    fn room(self) -> Option<usize> {
        self.width.map(|width| usize::from(width.max(NARROWEST)))
    }
}

/// Width of the narrowest terminal that tables are made to fit, in terminal columns.
const NARROWEST: u16 = 60;

/// The importance of a column, which decides when it is left out on a narrow terminal: columns of the last variant
/// first, and of equals the rightmost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Never left out: without it a row could not be told from others, or would mislead.
    #[default]
    Needed,
    /// Left out after all others.
    High,
    /// Left out after the columns of low worth.
    Middle,
    /// Left out before those.
    Low,
    /// Left out first: it says the same in every row, or what another column says, too.
    Same,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) title: String,
    /// The importance of the column on a narrow terminal.
    pub(crate) worth: Priority,
}

/// A table: its columns and its rows, each with one entry for every column.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Entry>>,
}

/// One entry of a table, in one or several lengths.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) text: String,
    /// Shorter forms of the text, each shorter than the one before.
    shorter: Vec<String>,
    /// Whether the entry is set to the right, as figures are.
    pub(crate) right: bool,
    pub(crate) tone: Tone,
}

/// The colour of an entry. A colour only helps to find what the words say already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// No colour.
    Plain,
    /// Green.
    Good,
    /// Yellow.
    Doubtful,
    /// Red.
    Bad,
}

impl Tone {
    fn ansi(self) -> Ansi {
        let color = match self {
            Self::Plain => return Ansi::new(),
            Self::Good => AnsiColor::Green,
            Self::Doubtful => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        color.on_default()
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
    /// Text, set to the left.
    #[allow(clippy::needless_pass_by_value)] // so that a method is enough of a closure
    pub fn left(text: impl ToString) -> Self {
        Self { text: text.to_string(), shorter: Vec::new(), right: false, tone: Tone::Plain }
    }

    /// A figure, set to the right.
    pub fn right(text: impl ToString) -> Self {
        Self { right: true, ..Self::left(text) }
    }

    /// A verdict as its word, in the verdict's colour.
    pub fn verdict(text: impl ToString, verdict: Verdict) -> Self {
        Self::toned(text, verdict.into())
    }

    /// Text in a colour.
    pub fn toned(text: impl ToString, tone: Tone) -> Self {
        Self { tone, ..Self::left(text) }
    }

    /// Adds a shorter form for narrow terminals; each call must give a shorter one than the last.
    #[must_use]
    pub fn or(mut self, shorter: impl Into<String>) -> Self {
        self.shorter.push(shorter.into());
        self
    }

    /// The entry's text in its shortest form.
    pub(crate) fn shortest(&self) -> &str {
        self.shorter.last().unwrap_or(&self.text)
    }

    /// The entry's text in one of its lengths: 0 is the longest.
    fn at(&self, length: usize) -> &str {
        let longer = std::iter::once(&self.text).chain(&self.shorter);
        longer.take(length + 1).last().map_or("", String::as_str)
    }
}

/// Letters of a word up to which it counts as short: such words (`unknown`, `service`) are cut only where nothing
/// else helps.
const SHORT: usize = 8;

/// Fewest letters that are kept of a word that is cut.
const BEGINNING: usize = 4;

/// Blanks between two columns where nothing else helps.
const NARROW: usize = 1;

/// The part of a table that a terminal shows: the indexes of its columns, and the length of the entries to use.
struct Fit {
    columns: Vec<usize>,
    length: usize,
    /// Width of each of the columns, in terminal columns.
    widths: Vec<usize>,
    /// Number of blanks between two columns.
    gap: usize,
}

impl Fit {
    /// Width of a line in terminal columns, with the blank that every line begins with.
    fn width(&self) -> usize {
        1 + self.widths.iter().sum::<usize>() + self.gap * self.widths.len().saturating_sub(1)
    }
}

impl Table {
    /// An empty table whose columns are all needed.
    #[must_use]
    pub fn of(titles: &[&str]) -> Self {
        Self::new(titles.iter().map(|title| (*title, Priority::Needed)))
    }

    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Priority)>) -> Self {
        let column = |(title, worth): (&str, Priority)| Column { title: title.to_owned(), worth };
        Self { columns: columns.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row, with one entry for each column.
    pub fn push(&mut self, row: impl IntoIterator<Item = Entry>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Lets those of the first columns go first where they say the same in all rows, and have one of these titles.
    pub(crate) fn demote_same(&mut self, titles: &[&str]) {
        for (place, column) in self.columns.iter_mut().enumerate() {
            let mut texts = self.rows.iter().filter_map(|row| row.get(place)).map(|entry| &entry.text);
            let first = texts.next();
            if titles.contains(&&*column.title) && texts.all(|text| Some(text) == first) {
                column.worth = Priority::Same;
            }
        }
    }

    /// Whether a terminal of this style is too narrow for all columns.
    #[must_use]
    pub fn is_cut(&self, style: Style) -> bool {
        let fit = self.fit(style.room());
        fit.columns.len() < self.columns.len()
            || fit.widths != self.fitted(fit.columns.clone(), fit.length).widths
    }

    /// The table's text for a terminal: a rule under the header and one at the end, none between rows, as rows are
    /// short.
    #[must_use]
    pub fn terminal(&self, style: Style) -> String {
        let fit = self.fit(style.room());
        let mut text = String::new();
        let rule = "─".repeat(fit.width());
        let bold = if style.color { Ansi::new().bold() } else { Ansi::new() };
        let titles = fit.columns.iter().map(|place| (self.columns[*place].title.as_str(), false, bold));
        line(&mut text, titles, &fit);
        let _ = writeln!(text, "{rule}");
        for row in &self.rows {
            let entries = fit.columns.iter().filter_map(|place| row.get(*place));
            let shown = entries.map(|entry| {
                let ansi = if style.color { entry.tone.ansi() } else { Ansi::new() };
                (entry.at(fit.length), entry.right, ansi)
            });
            line(&mut text, shown, &fit);
        }
        let _ = writeln!(text, "{rule}");
        let left_out = self.columns.iter().enumerate().filter(|(place, _)| !fit.columns.contains(place));
        let left_out: Vec<&str> = left_out.map(|(_, column)| column.title.as_str()).collect();
        if !left_out.is_empty() {
            let said = format!("columns that do not fit: {}", left_out.join(", "));
            let _ = writeln!(text, "{}", wrapped(&said, style));
        }
        text
    }

    /// Fits the table into a width. Longest entries and all columns where there is room; else entries of the next
    /// length; then without the columns that matter least; then entries of the shortest length, and needed columns
    /// only; at last text is cut.
    fn fit(&self, room: Option<usize>) -> Fit {
        let lengths = self.rows.iter().flatten().map(|entry| entry.shorter.len()).max().unwrap_or(0);
        let all = self.fitted((0..self.columns.len()).collect(), 0);
        let Some(room) = room else { return all };
        if all.width() <= room {
            return all;
        }
        let mut columns = all.columns;
        // entries take their shortest form only after the columns that matter least are gone
        for worth in [Priority::Same, Priority::Low, Priority::Middle, Priority::High, Priority::Needed] {
            let most = if worth < Priority::Middle { lengths } else { lengths.min(1) };
            loop {
                for length in 0..=most {
                    let fit = self.fitted(columns.clone(), length);
                    if fit.width() <= room {
                        return fit;
                    }
                }
                match columns.iter().rposition(|place| self.columns[*place].worth == worth) {
                    Some(least) if worth != Priority::Needed => drop(columns.remove(least)),
                    _ => break,
                }
            }
        }
        let mut fit = self.fitted(columns, lengths);
        self.cut(&mut fit, room, SHORT);
        if fit.width() > room {
            fit.gap = NARROW;
            self.cut(&mut fit, room, BEGINNING);
        }
        fit
    }

    /// Whether the terminal has room for the table, with text cut where it must be.
    pub(crate) fn has_room(&self, style: Style) -> bool {
        style.room().is_none_or(|room| self.fit(Some(room)).width() <= room)
    }

    /// Whether the terminal has room for the table without cutting short words or words that are much alike.
    pub(crate) fn fits(&self, style: Style) -> bool {
        style.room().is_none_or(|room| {
            let fit = self.fit(Some(room));
            fit.gap > NARROW && fit.width() <= room
        })
    }

    /// Narrows columns of text, the widest first, but no column whose words have at most `short` letters.
    fn cut(&self, fit: &mut Fit, room: usize, short: usize) {
        let least = |at: usize| self.least(fit.columns[at], fit.length, short);
        let least: Vec<usize> = (0..fit.columns.len()).map(least).collect();
        while fit.width() > room {
            let widest = (0..least.len()).filter(|at| fit.widths[*at] > least[*at]);
            let Some(widest) = widest.max_by_key(|at| (fit.widths[*at], Reverse(*at))) else { break };
            fit.widths[widest] -= 1;
        }
    }

    /// These columns, each as wide as its longest entry.
    fn fitted(&self, columns: Vec<usize>, length: usize) -> Fit {
        let width = |place: &usize| {
            let entries = self.rows.iter().filter_map(|row| row.get(*place));
            let widest = entries.map(|entry| entry.at(length).width()).max().unwrap_or(0);
            widest.max(self.columns[*place].title.width())
        };
        let widths = columns.iter().map(width).collect();
        Fit { columns, length, widths, gap: 2 }
    }

    /// The fewest terminal columns that a column can do with: its figures and short words whole, and of longer text so
    /// much of the beginning that no two different entries look alike.
    fn least(&self, place: usize, length: usize, short: usize) -> usize {
        let texts: BTreeSet<&str> =
            self.rows.iter().filter_map(|row| row.get(place)).map(|entry| entry.at(length)).collect();
        // of texts in order those that are most alike are neighbours
        let alike = texts.iter().zip(texts.iter().skip(1)).map(|(one, next)| {
            let same = one.chars().zip(next.chars()).take_while(|(one, next)| one == next);
            // the first letter that differs, and the mark of what was cut
            same.map(|(letter, _)| letter.to_string().width()).sum::<usize>() + 2
        });
        let entries = self.rows.iter().filter_map(|row| row.get(place));
        let whole = entries.filter(|entry| entry.right || entry.at(length).width() <= short);
        let whole = whole.map(|entry| entry.at(length).width());
        whole.chain(alike).max().unwrap_or(0).max(BEGINNING)
    }

    /// The table as Markdown, which pastes into a pull request.
    pub(crate) fn markdown(&self) -> String {
        let line = |entries: &mut dyn Iterator<Item = String>| {
            format!("| {} |\n", entries.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut self.columns.iter().map(|column| escaped(&column.title)));
        let rule =
            (0..self.columns.len()).map(|at| if self.is_right(at) { "---:" } else { "---" }.to_owned());
        text += &line(&mut rule.into_iter());
        for row in &self.rows {
            text += &line(&mut row.iter().map(|entry| {
                let shown = escaped(&entry.text);
                if entry.tone == Tone::Bad { format!("**{shown}**") } else { shown }
            }));
        }
        text
    }

    /// Whether a column has figures, which are set to the right.
    pub(crate) fn is_right(&self, place: usize) -> bool {
        self.rows.iter().any(|row| row.get(place).is_some_and(|entry| entry.right))
    }
}

/// Appends one line of entries, each with its alignment (true for right) and its colour.
fn line<'a>(text: &mut String, entries: impl Iterator<Item = (&'a str, bool, Ansi)>, fit: &Fit) {
    let begin = text.len();
    for (place, ((entry, right, ansi), width)) in entries.zip(&fit.widths).enumerate() {
        let shown = cut(entry, *width);
        let blanks = " ".repeat(width.saturating_sub(shown.width()));
        let (before, after) = if right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
        let gap = " ".repeat(if place == 0 { 1 } else { fit.gap });
        let _ = write!(text, "{gap}{before}{ansi}{shown}{ansi:#}{after}");
    }
    text.truncate(begin.max(text.trim_end_matches(' ').len()));
    text.push('\n');
}

/// A text cut to at most so many terminal columns; `…` stands for the part that is cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    for letter in text.chars() {
        let longer = shown.width() + letter.to_string().width();
        if longer + 1 > width {
            break;
        }
        shown.push(letter);
    }
    shown + "…"
}

/// The terminal columns that a word takes. A sequence that sets a colour takes none.
fn columns(word: &str) -> usize {
    let mut pieces = word.split('\u{1b}');
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once('m').map_or(piece, |(_, shown)| shown));
    std::iter::once(first).chain(rest).map(UnicodeWidthStr::width).sum()
}

/// A text broken at its blanks into lines that fit the terminal, where its width is known; lines after the first are
/// indented by two.
#[must_use]
pub fn wrapped(text: &str, style: Style) -> String {
    let Some(width) = style.room() else { return text.to_owned() };
    let mut lines = Vec::new();
    for given in text.lines() {
        let inset = given.len() - given.trim_start().len();
        let mut line = given[..inset].to_owned();
        let mut is_empty = true;
        for word in given.split_whitespace() {
            if !is_empty && columns(&line) + 1 + columns(word) > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(inset + 2)));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// Names with the numbers that stand for them in a table, from 1, each on a line of its own.
pub(crate) fn numbered(names: impl IntoIterator<Item = String>, style: Style) -> String {
    let listed = names.into_iter().enumerate().map(|(place, name)| format!("{}: {name}", place + 1));
    wrapped(&listed.collect::<Vec<_>>().join("\n"), style)
}

/// Text escaped for Markdown: it is neither markup nor HTML, and stays in one line.
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

    const PLAIN: Style = Style { color: false, width: None };

    fn at(width: u16) -> Style {
        Style { width: Some(width), ..PLAIN }
    }

    /// A table of two needed columns, one of high worth and one of low: 87 terminal columns wide.
    fn table() -> Table {
        let mut table = Table::new([
            ("store", Priority::Needed),
            ("verdict", Priority::Needed),
            ("price", Priority::High),
            ("retries", Priority::Low),
        ]);
        let verdict = Entry::verdict("broken: lost 41 updates (3 of 3 trials)", Verdict::Broken);
        let verdict = verdict.or("broken: lost 41 updates").or("broken");
        table.push([
            Entry::left("elasticsearch"),
            verdict,
            Entry::right("×0.80 (0.70–0.90)"),
            Entry::right("1,234"),
        ]);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
    }

    #[test]
    fn what_fits_is_whole() {
        let whole = table().terminal(PLAIN);
        assert_eq!(widest(&whole), 83);
        assert_eq!(table().terminal(at(83)), whole);
        assert!(whole.contains("(3 of 3 trials)") && !whole.contains("do not fit"), "{whole}");
    }

    #[test]
    fn long_entries_are_said_shorter_before_a_column_is_left_out() {
        let text = table().terminal(at(82));
        assert!(text.contains("broken: lost 41 updates ") && text.contains("1,234"), "{text}");
        assert!(!text.contains("trials") && !text.contains("do not fit"), "{text}");
    }

    #[test]
    fn the_column_that_matters_least_goes_first_and_is_named() {
        let text = table().terminal(at(63));
        assert!(text.contains("lost 41 updates") && text.contains("×0.80 (0.70–0.90)"), "{text}");
        assert!(text.ends_with("columns that do not fit: retries\n"), "{text}");
    }

    /// However long the words and however narrow the terminal, no line is wider than it, and no figure is cut.
    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let mut table = table();
        table.columns.push(Column { title: "a title of its own".to_owned(), worth: Priority::Needed });
        table.rows[0].push(Entry::right("1,234,567"));
        table.rows[0][0] =
            Entry::left("postgres://ann@a.very.long.name.of.a.host.example.com:5432/shop?a=é中");
        for width in 10..200 {
            let text = table.terminal(at(width));
            let most = usize::from(width.max(NARROWEST));
            assert!(widest(&text) <= most, "{width}: {}\n{text}", widest(&text));
            assert!(text.contains("1,234,567"), "{text}");
        }
    }

    #[test]
    fn a_colour_takes_no_room() {
        let plain = table().terminal(PLAIN);
        let colored = table().terminal(Style { color: true, ..PLAIN });
        assert!(colored.contains("\u{1b}[31mbroken"), "{colored:?}");
        let mut bare = String::new();
        let mut letters = colored.chars();
        while let Some(letter) = letters.next() {
            if letter == '\u{1b}' {
                letters.by_ref().find(|letter| *letter == 'm');
            } else {
                bare.push(letter);
            }
        }
        let ends = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(ends(&bare), ends(&plain));
    }

    #[test]
    fn sentences_are_broken_at_blanks() {
        let text =
            "one two three four five six seven eight nine ten eleven twelve thirteen\n  | a plan of a store";
        let broken = wrapped(text, at(60));
        assert_eq!(
            broken,
            "one two three four five six seven eight nine ten eleven\n  twelve thirteen\n  | a plan of a store"
        );
        assert_eq!(wrapped(text, PLAIN), text);
        // what sets a colour takes no room
        let colored = text.replace("one", "\u{1b}[1m\u{1b}[31mone\u{1b}[0m");
        assert_eq!(wrapped(&colored, at(60)).replace("\u{1b}[1m\u{1b}[31mone\u{1b}[0m", "one"), broken);
    }

    #[test]
    fn markdown_is_not_broken_by_what_it_shows() {
        let mut table = Table::of(&["store", "ok/s"]);
        table.push([Entry::verdict("a|b <script>\n*c*", Verdict::Broken), Entry::right("1")]);
        assert_eq!(
            table.markdown(),
            "| store | ok/s |\n| --- | ---: |\n| **a\\|b &lt;script&gt; \\*c\\*** | 1 |\n"
        );
    }
}
