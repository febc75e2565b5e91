//! Scripts: an interleaving of transactions as text, and when it shows an anomaly.
//!
//! ```text
//! anomaly  G1a
//! title    aborted read
//! means    A transaction reads what another one wrote and then rolled back.
//!
//! table test (id int primary key, value int)
//! row   (1, 10)
//!
//! T1  begin
//! T2  begin
//! T1  update test set value = 101 where id = 1
//! T2  select * from test                          -> before
//! T1  rollback
//! T2  commit
//!
//! order all
//! occurs if T2 commits and before has (1, 101)
//! ```
//!
//! A step is a session and a statement, which a name may follow for the rows that it reads. The steps as they stand are the first
//! order. `order all` stands for all others but those in which the transactions run one after the other; `order T1 T2 …` names the
//! sessions of the steps, one after the other. Each line of `occurs if` is one way in which the anomaly shows.

use std::{collections::BTreeSet, fmt};

use acidtest_workloads::interactive::Table;

use crate::orders::{self, Order};

/// Most sessions of a script.
const SESSIONS: usize = 9;

/// Most steps of a script.
const STEPS: usize = 100;

/// An interleaving of transactions, and when it shows an anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The anomaly's short name, as in `G2-item`.
    pub name: String,
    /// Its name in words.
    pub title: String,
    /// What happens, in a sentence.
    pub means: String,
    /// The tables that its statements are about. The first is what `final` is read from.
    pub tables: Vec<Table>,
    /// Names of the sessions.
    pub sessions: Vec<String>,
    /// The steps, as they stand.
    pub steps: Vec<Step>,
    /// The orders in which the steps are run, the one in which they stand first.
    pub orders: Vec<Order>,
    /// The ways in which the anomaly shows.
    pub shows: Vec<Vec<Clue>>,
    /// Whether it is one of acidtest's own. Only to those others are held: nobody has promised anything of another one.
    pub is_built_in: bool,
}

/// A statement of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The session's index.
    pub session: usize,
    /// What it runs.
    pub statement: String,
    /// The name of the rows that it reads, if they have one.
    pub label: Option<String>,
}

/// What a step does to its session's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Begins it.
    Begin,
    /// Commits it.
    Commit,
    /// Rolls it back.
    Rollback,
}

impl Step {
    /// What it does to its session's transaction, by its first word; none if it is a statement of it.
    #[must_use]
    pub fn boundary(&self) -> Option<Boundary> {
        let mut words = self.statement.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
        let (first, second) = (words.next()?, words.next().unwrap_or_default());
        match (first.as_str(), second.as_str()) {
            ("rollback", "to") => None,
            ("begin", _) | ("start", "transaction") => Some(Boundary::Begin),
            ("commit" | "end", _) => Some(Boundary::Commit),
            ("rollback" | "abort", _) => Some(Boundary::Rollback),
            _ => None,
        }
    }
}

/// One thing that must be so for an anomaly to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clue {
    /// The session's transaction committed.
    Commits(usize),
    /// Rows that were read are so.
    Read {
        /// The name of the rows.
        label: String,
        /// What they must be.
        rows: Rows,
    },
    /// The rows of a table are so in the end.
    Final {
        /// The table's index.
        table: usize,
        /// What they must be.
        rows: Rows,
    },
}

/// What rows must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Exactly these, in any order.
    Are(Vec<Vec<String>>),
    /// This one is among them.
    Have(Vec<String>),
    /// This one is not among them.
    Lack(Vec<String>),
}

impl Rows {
    /// Whether these rows are so.
    #[must_use]
    pub fn are(&self, rows: &[Vec<String>]) -> bool {
        match self {
            Self::Are(expected) => sorted(expected) == sorted(rows),
            Self::Have(row) => rows.contains(row),
            Self::Lack(row) => !rows.contains(row),
        }
    }
}

fn sorted(rows: &[Vec<String>]) -> Vec<&Vec<String>> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort();
    rows
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScriptError {
    /// The line, from 1; none for what is missing.
    line: Option<usize>,
    said: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.said),
            None => f.write_str(&self.said),
        }
    }
}

/// The scripts that are built in, in the order of the table.
#[must_use]
pub fn built_in() -> Vec<Script> {
    // the tests read each of them
    let script = |text: &&str| Some(Script { is_built_in: true, ..Script::parse(text).ok()? });
    TEXTS.iter().filter_map(script).collect()
}

/// The text of a built-in script, by its anomaly's name; capitals do not matter.
#[must_use]
pub fn text_of(name: &str) -> Option<&'static str> {
    let is_it = |text: &str| Script::parse(text).is_ok_and(|script| script.name.eq_ignore_ascii_case(name));
    TEXTS.into_iter().find(|text| is_it(text))
}

const TEXTS: [&str; 17] = [
    include_str!("../scripts/g0.txt"),
    include_str!("../scripts/g1a.txt"),
    include_str!("../scripts/g1b.txt"),
    include_str!("../scripts/g1c.txt"),
    include_str!("../scripts/otv.txt"),
    include_str!("../scripts/pmp.txt"),
    include_str!("../scripts/pmp-write.txt"),
    include_str!("../scripts/p4.txt"),
    include_str!("../scripts/g-single.txt"),
    include_str!("../scripts/g-single-predicate.txt"),
    include_str!("../scripts/g-single-write.txt"),
    include_str!("../scripts/g2-item.txt"),
    include_str!("../scripts/g2.txt"),
    include_str!("../scripts/read-only.txt"),
    include_str!("../scripts/dirty-read.txt"),
    include_str!("../scripts/non-repeatable-read.txt"),
    include_str!("../scripts/phantom.txt"),
];

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut reading = Reading::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let number = index + 1;
                reading.line(number, line).map_err(|said| ScriptError { line: Some(number), said })?;
            }
        }
        reading.script()
    }

    /// The steps that a session has.
    pub(crate) fn steps_of(&self, session: usize) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(move |step| step.session == session)
    }

    /// The sessions of an order's steps, one after the other, as a script names them.
    #[must_use]
    pub fn order_in_words(&self, order: &[usize]) -> String {
        let names: Vec<&str> = order.iter().map(|session| self.sessions[*session].as_str()).collect();
        names.join(" ")
    }
}

/// A script as far as it was read. What names steps is looked at when all are known.
#[derive(Default)]
struct Reading {
    name: Option<String>,
    title: Option<String>,
    means: Option<String>,
    tables: Vec<Table>,
    sessions: Vec<String>,
    steps: Vec<Step>,
    /// The lines of orders and of clues, with their numbers.
    orders: Vec<(usize, String)>,
    shows: Vec<(usize, String)>,
}

impl Reading {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "anomaly" => once(&mut self.name, word, rest),
            "title" => once(&mut self.title, word, rest),
            "means" => once(&mut self.means, word, rest),
            "table" => self.table(rest),
            "row" => self.row(rest),
            "order" => {
                self.orders.push((number, rest.to_owned()));
                Ok(())
            }
            "occurs" => {
                let rest = rest.strip_prefix("if ").ok_or("write: occurs if T1 commits and …")?;
                self.shows.push((number, rest.trim().to_owned()));
                Ok(())
            }
            session if session.starts_with(|first: char| first.is_ascii_uppercase()) => {
                self.step(session, rest)
            }
            _ => Err(format!(
                "\"{word}\" is neither a session nor one of anomaly, title, means, table, row, order, occurs: a step begins \
                 with its session, which begins with a capital, as in: T1  update test set value = 11 where id = 1"
            )),
        }
    }

    fn table(&mut self, rest: &str) -> Result<(), String> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (name, columns) = rest.split_at(end);
        let columns = columns.trim().strip_prefix('(').and_then(|columns| columns.strip_suffix(')'));
        match columns {
            Some(columns) if !name.is_empty() => {
                if self.tables.iter().any(|table| table.name == name) {
                    return Err(format!("the table {name} is there already"));
                }
                let columns = columns.trim().to_owned();
                self.tables.push(Table { name: name.to_owned(), columns, rows: Vec::new() });
                Ok(())
            }
            _ => Err("write: table NAME (COLUMN TYPE, …)".to_owned()),
        }
    }

    fn row(&mut self, rest: &str) -> Result<(), String> {
        let table = self.tables.last_mut().ok_or("a row stands below its table")?;
        let mut rows = rows_in(rest)?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => table.rows.push(row),
            _ => return Err("write one row, as in: row (1, 10)".to_owned()),
        }
        Ok(())
    }

    fn step(&mut self, session: &str, rest: &str) -> Result<(), String> {
        // an operator of JSON has no blanks around it, or more than a name behind it
        let (statement, label) = match rest.rsplit_once(" -> ") {
            Some((statement, label)) if !label.trim().contains(char::is_whitespace) => {
                (statement.trim(), Some(label.trim().to_owned()))
            }
            _ => (rest, None),
        };
        if statements(statement) > 1 {
            return Err("a step is one statement: write each in a line of its own".to_owned());
        }
        if statement.is_empty() {
            return Err(format!("{session} has no statement: write one behind it"));
        }
        if let Some(label) = &label {
            let is_name =
                !label.is_empty() && label.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
            if !is_name || label == "final" {
                return Err(format!(
                    "{label:?} is no name for rows: use letters and digits, and not \"final\""
                ));
            }
            if self.steps.iter().any(|step| step.label.as_ref() == Some(label)) {
                return Err(format!("{label} names the rows of another step already"));
            }
        }
        let index = self.sessions.iter().position(|each| each == session).unwrap_or_else(|| {
            self.sessions.push(session.to_owned());
            self.sessions.len() - 1
        });
        if self.sessions.len() > SESSIONS {
            return Err(format!("a script has at most {SESSIONS} sessions"));
        }
        self.steps.push(Step { session: index, statement: statement.to_owned(), label });
        if self.steps.len() > STEPS { Err(format!("a script has at most {STEPS} steps")) } else { Ok(()) }
    }

    fn script(self) -> Result<Script, ScriptError> {
        let missing = |what: &str| ScriptError { line: None, said: format!("the script has no {what}") };
        let name = self.name.clone().ok_or_else(|| missing("name: write a line like: anomaly  G1a"))?;
        if self.tables.is_empty() {
            return Err(missing("table: write a line like: table test (id int primary key, value int)"));
        }
        if self.steps.is_empty() {
            return Err(missing("steps: write lines like: T1  update test set value = 11 where id = 1"));
        }
        if self.shows.is_empty() {
            return Err(missing("condition: write a line like: occurs if T1 commits and before has (1, 10)"));
        }
        let at = |line: usize| move |said: String| ScriptError { line: Some(line), said };
        let as_it_stands: Order = self.steps.iter().map(|step| step.session).collect();
        let mut orders = vec![as_it_stands];
        for (line, order) in &self.orders {
            for order in self.orders_of(order).map_err(at(*line))? {
                if !orders.contains(&order) {
                    orders.push(order);
                }
            }
        }
        let shows: Result<Vec<Vec<Clue>>, ScriptError> =
            self.shows.iter().map(|(line, clues)| self.clues(clues).map_err(at(*line))).collect();
        let shows = shows?;
        for clue in shows.iter().flatten() {
            if let Clue::Commits(session) = clue
                && !self
                    .steps
                    .iter()
                    .any(|step| step.session == *session && step.boundary() == Some(Boundary::Commit))
            {
                let name = &self.sessions[*session];
                return Err(missing(&format!(
                    "commit of {name}, which is asked for: write a line like: {name}  commit"
                )));
            }
        }
        Ok(Script {
            title: self.title.unwrap_or_else(|| name.clone()),
            means: self.means.unwrap_or_default(),
            name,
            shows,
            is_built_in: false,
            tables: self.tables,
            sessions: self.sessions,
            steps: self.steps,
            orders,
        })
    }

    fn orders_of(&self, order: &str) -> Result<Vec<Order>, String> {
        if order == "all" {
            return orders::all(&self.steps);
        }
        let order: Order =
            order.split_whitespace().map(|name| self.session(name)).collect::<Result<_, _>>()?;
        for (session, name) in self.sessions.iter().enumerate() {
            let has = self.steps.iter().filter(|step| step.session == session).count();
            let takes = order.iter().filter(|each| **each == session).count();
            if has != takes {
                return Err(format!("the order takes {takes} steps of {name}, which has {has}"));
            }
        }
        Ok(vec![order])
    }

    fn session(&self, name: &str) -> Result<usize, String> {
        self.sessions.iter().position(|each| each == name).ok_or_else(|| {
            format!("there is no session {name}: those with steps are {}", self.sessions.join(", "))
        })
    }

    fn clues(&self, text: &str) -> Result<Vec<Clue>, String> {
        text.split(" and ").map(|clue| self.clue(clue.trim())).collect()
    }

    fn clue(&self, text: &str) -> Result<Clue, String> {
        let unclear = || {
            format!(
                "\"{text}\" is no condition: write \"T1 commits\", or \"NAME is (1, 10) (2, 20)\", \"NAME is empty\", \"NAME has \
                 (1, 10)\" or \"NAME lacks (1, 10)\", where NAME is that of a step's rows, or final, or final and a table"
            )
        };
        let (subject, rest) = text.split_once(' ').ok_or_else(unclear)?;
        if rest == "commits" {
            return Ok(Clue::Commits(self.session(subject)?));
        }
        let (table, rest) = match rest.split_once(' ') {
            Some((name, rest)) if subject == "final" && !["is", "has", "lacks"].contains(&name) => {
                let table = self.tables.iter().position(|table| table.name == name);
                (table.ok_or_else(|| format!("there is no table {name}"))?, rest)
            }
            _ => (0, rest),
        };
        let (verb, rows) = rest.split_once(' ').ok_or_else(unclear)?;
        let rows_in = |rows: &str| Ok::<_, String>(unquoted(rows_in(rows)?));
        let one = || match rows_in(rows)?.as_slice() {
            [one] => Ok(one.clone()),
            _ => Err(format!("\"{verb}\" takes one row, as in: {subject} {verb} (1, 10)")),
        };
        let rows = match verb {
            "is" if rows == "empty" => Rows::Are(Vec::new()),
            "is" => Rows::Are(rows_in(rows)?),
            "has" => Rows::Have(one()?),
            "lacks" => Rows::Lack(one()?),
            _ => return Err(unclear()),
        };
        if subject == "final" {
            return Ok(Clue::Final { table, rows });
        }
        let labels: BTreeSet<&str> = self.steps.iter().filter_map(|step| step.label.as_deref()).collect();
        if !labels.contains(subject) {
            let known: Vec<&str> = labels.into_iter().collect();
            return Err(format!("no step's rows are named {subject}; names are: {}", known.join(", ")));
        }
        Ok(Clue::Read { label: subject.to_owned(), rows })
    }
}

/// How many statements a text has: a semicolon in quotes ends none.
fn statements(text: &str) -> usize {
    let mut quote = None;
    let mut count = 1;
    for letter in text.trim().trim_end_matches(';').chars() {
        match (quote, letter) {
            (None, '\'' | '"' | '`') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, ';') => count += 1,
            _ => {}
        }
    }
    count
}

fn once(place: &mut Option<String>, word: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{word} has no text behind it"));
    }
    if place.replace(value.to_owned()).is_some() { Err(format!("{word} is there twice")) } else { Ok(()) }
}

/// Rows as they are read, which have no quotes around their texts.
fn unquoted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for value in rows.iter_mut().flatten() {
        if let Some(text) = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')) {
            *value = text.replace("''", "'");
        }
    }
    rows
}

/// Rows in brackets: `(1, 10) (2, 20)`.
fn rows_in(text: &str) -> Result<Vec<Vec<String>>, String> {
    let wrong = || format!("\"{text}\" are no rows: write them like (1, 10) (2, 20)");
    let mut rows = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (row, behind) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(wrong)?;
        rows.push(row.split(',').map(|value| value.trim().to_owned()).collect());
        rest = behind.trim_start();
    }
    if rows.is_empty() { Err(wrong()) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_built_in_script_is_read() {
        for text in TEXTS {
            let script = Script::parse(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
            assert!(!script.means.is_empty() && script.orders.len() >= 4, "{}", script.name);
            assert!(
                script.steps.iter().all(|step| {
                    acidtest_workloads::interactive::Statement::parse(&step.statement).is_ok()
                })
            );
        }
        let names: BTreeSet<String> = built_in().into_iter().map(|script| script.name).collect();
        assert_eq!(names.len(), TEXTS.len());
    }

    const SHORT: &str = "anomaly x\ntable test (id int)\nrow (1)\nT1 select * from test -> a\nT2 commit\noccurs if a has (1)\n";

    #[test]
    fn bad_scripts_are_refused_with_their_line() {
        assert!(Script::parse(SHORT).is_ok());
        for (from, to, said) in [
            ("T2 commit", "commit", "line 5: \"commit\" is neither a session"),
            ("T2 commit", "T2", "line 5: T2 has no statement"),
            ("T2 commit", "T2 select 1 -> a", "line 5: a names the rows of another step"),
            ("T2 commit", "T2 select 1 -> final", "line 5: \"final\" is no name"),
            ("row (1)", "row 1", "line 3: \"1\" are no rows"),
            ("table test (id int)", "table (id int)", "line 2: write: table NAME"),
            ("T2 commit", "T2 commit; begin", "line 5: a step is one statement"),
            ("a has (1)", "T1 commits", "the script has no commit of T1"),
            ("occurs if a", "occurs if b", "line 6: no step's rows are named b; names are: a"),
            ("a has (1)", "T3 commits", "line 6: there is no session T3: those with steps are T1, T2"),
            ("a has (1)", "a has (1) (2)", "line 6: \"has\" takes one row"),
            ("a has (1)", "a holds (1)", "line 6: \"a holds (1)\" is no condition"),
            ("a has (1)", "final other has (1)", "line 6: there is no table other"),
            ("occurs if", "order T1 T3\noccurs if", "line 6: there is no session T3"),
            ("occurs if", "order T1 T1\noccurs if", "line 6: the order takes 2 steps of T1, which has 1"),
            ("anomaly x", "", "the script has no name"),
            ("anomaly x", "anomaly x\nanomaly y", "line 2: anomaly is there twice"),
            ("occurs if a has (1)", "", "the script has no condition"),
        ] {
            let error = Script::parse(&SHORT.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(said), "{to}: {error}");
        }
    }

    #[test]
    fn a_step_is_known_by_what_it_does_to_its_transaction() {
        let boundary = |statement: &str| {
            let step = Step { session: 0, statement: statement.to_owned(), label: None };
            step.boundary()
        };
        for commit in ["commit", "COMMIT;", "commit work", "end", "commit and chain"] {
            assert_eq!(boundary(commit), Some(Boundary::Commit), "{commit}");
        }
        assert_eq!(boundary("start transaction read only"), Some(Boundary::Begin));
        assert_eq!(boundary("begin immediate"), Some(Boundary::Begin));
        assert_eq!(boundary("abort"), Some(Boundary::Rollback));
        for other in ["rollback to savepoint a", "update commits set a = 1", "select 1"] {
            assert_eq!(boundary(other), None, "{other}");
        }
    }

    #[test]
    fn operators_and_texts_are_read_as_they_are_meant() {
        let text = SHORT
            .replace("T1 select * from test -> a", "T1 select d->a from test where v ->> 'x' = ';' -> a");
        let script = Script::parse(&text.replace("(1)\n", "('ann')\n")).unwrap();
        assert_eq!(script.steps[0].statement, "select d->a from test where v ->> 'x' = ';'");
        assert_eq!(script.tables[0].rows, [["'ann'"]]);
        let read = Rows::Have(vec!["ann".to_owned()]);
        assert_eq!(script.shows, [[Clue::Read { label: "a".to_owned(), rows: read }]]);
    }

    #[test]
    fn rows_are_compared_whatever_their_order() {
        let rows = |text: &str| rows_in(text).unwrap();
        assert!(Rows::Are(rows("(1, 10) (2, 20)")).are(&rows("(2, 20) (1, 10)")));
        assert!(!Rows::Are(rows("(1, 10)")).are(&rows("(1, 10) (1, 10)")));
        assert!(
            Rows::Are(Vec::new()).are(&[]) && Rows::Lack(rows("(1, 10)").remove(0)).are(&rows("(1, 11)"))
        );
    }
}
