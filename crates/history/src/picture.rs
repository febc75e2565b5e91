//! Examples as pictures: a box for each transaction from top to bottom, an arrow to the next, and one back to the first.

use std::fmt::Write;

use crate::{Arrow, Example};

const LINE: usize = 17;
/// Width of a letter of the font, and how many fit beside each other.
const LETTER: usize = 8;
const COLUMNS: usize = 88;
const LEFT: usize = 48;
const PADDING: usize = 10;

pub(crate) fn draw(example: &Example) -> String {
    let mut picture = Picture { body: String::new(), y: 8, letters: 24 };
    picture.lines(8, &example.title, "font-weight:bold");
    picture.y += 8;
    let mut tops = Vec::new();
    for (at, shown) in example.transactions.iter().enumerate() {
        let mut lines = wrapped(&format!("{}: {}", shown.name, shown.about));
        lines.extend(shown.operations.iter().flat_map(|operation| wrapped(&format!("  {operation}"))));
        tops.push(picture.boxed(&lines));
        if at + 1 < example.transactions.len() {
            match example.arrows.iter().find(|arrow| arrow.from == at && arrow.to == at + 1) {
                Some(arrow) => picture.arrow_down(arrow),
                None => picture.y += 12,
            }
        }
    }
    let last = example.transactions.len().saturating_sub(1);
    let back = example.arrows.iter().find(|arrow| last > 0 && arrow.from == last && arrow.to == 0);
    if let Some(arrow) = back {
        picture.arrow_back(arrow, tops[0]);
    }
    picture.y += 8;
    picture.lines(8, &example.conclusion, "");
    if let Some(legend) = example.legend() {
        picture.lines(8, &legend, "");
    }
    let (width, height) = (LEFT + picture.letters * LETTER + 2 * PADDING, picture.y + 8);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         style=\"max-width:100%;height:auto\" role=\"img\" font-family=\"ui-monospace,monospace\" font-size=\"13\" \
         fill=\"currentColor\"><title>{}</title>{}</svg>",
        escaped(&example.title),
        picture.body
    )
}

struct Picture {
    body: String,
    y: usize,
    /// Letters of the longest line.
    letters: usize,
}

// writing to a string cannot fail
impl Picture {
    fn line(&mut self, x: usize, text: &str, style: &str) {
        self.y += LINE;
        self.letters = self.letters.max(text.chars().count());
        let style = if style.is_empty() { String::new() } else { format!(" style=\"{style}\"") };
        let _ = write!(
            self.body,
            "<text x=\"{x}\" y=\"{}\" xml:space=\"preserve\"{style}>{}</text>",
            self.y - 4,
            escaped(text)
        );
    }

    fn lines(&mut self, x: usize, text: &str, style: &str) {
        for line in wrapped(text) {
            self.line(x, &line, style);
        }
    }

    /// Draws a box around the lines, and says where its middle is.
    fn boxed(&mut self, lines: &[String]) -> usize {
        let top = self.y;
        let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        self.y += PADDING / 2;
        for (at, line) in lines.iter().enumerate() {
            self.line(LEFT + PADDING, line, if at == 0 { "font-weight:bold" } else { "" });
        }
        self.y += PADDING;
        let (width, height) = (letters * LETTER + 2 * PADDING, self.y - top);
        let _ = write!(
            self.body,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"none\" stroke=\"currentColor\"/>"
        );
        top + height / 2
    }

    fn arrow_down(&mut self, arrow: &Arrow) {
        let (x, from) = (LEFT + 16, self.y);
        self.y += 4;
        self.lines(x + 16, &format!("{}: {}", arrow.kind, arrow.reason), "font-style:italic");
        self.y += 8;
        let to = self.y;
        let _ = write!(
            self.body,
            "<path d=\"M{x} {from}V{to}m-4 -8l4 8l4 -8\" fill=\"none\" stroke=\"currentColor\"/>"
        );
    }

    fn arrow_back(&mut self, arrow: &Arrow, to: usize) {
        let from = self.y;
        self.y += 4;
        self.lines(LEFT + 32, &format!("{}: {}", arrow.kind, arrow.reason), "font-style:italic");
        let (x, turn, low) = (LEFT + 16, LEFT / 2, self.y + 6);
        self.y = low;
        let _ = write!(
            self.body,
            "<path d=\"M{x} {from}V{low}H{turn}V{to}H{LEFT}m-8 -4l8 4l-8 4\" fill=\"none\" stroke=\"currentColor\"/>"
        );
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let indent: String = text.chars().take_while(|&letter| letter == ' ').collect();
    let mut lines = vec![indent.clone()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > indent.len() && used + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}  {word}"));
        } else {
            if used > indent.len() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shown;

    #[test]
    fn a_picture_stands_alone_and_escapes_what_it_shows() {
        let shown = |name: &str| Shown {
            name: name.to_owned(),
            about: "session <1> & \"2\"".to_owned(),
            operations: vec!["read list 7: [1 2]".to_owned()],
        };
        let arrow = |from, to| Arrow { from, to, kind: "rw".to_owned(), reason: "<script>".to_owned() };
        let example = Example {
            title: "G2-item".to_owned(),
            transactions: vec![shown("T1"), shown("T2")],
            arrows: vec![arrow(0, 1), arrow(1, 0)],
            conclusion: "word ".repeat(60),
        };
        let picture = example.picture();
        assert!(picture.starts_with("<svg xmlns="), "{picture}");
        assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;"), "{picture}");
        assert!(picture.contains("session &lt;1&gt; &amp; &quot;2&quot;"), "{picture}");
        assert!(picture.contains("rw: read what the other then replaced."), "{picture}");
        assert_eq!(picture.matches("<rect").count(), 2);
        assert_eq!(picture.matches("<path").count(), 2);
        assert!(wrapped(&example.conclusion).iter().all(|line| line.chars().count() <= COLUMNS));
    }
}
