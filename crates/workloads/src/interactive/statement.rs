//! The statements that a store without SQL understands: the little that the built-in scripts need, on a table of two integers, `id`
//! (the key) and `value`.

use std::fmt;

/// A statement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `begin`
    Begin,
    /// `commit`
    Commit,
    /// `rollback`
    Rollback,
    /// `select id, value from TABLE …`, also as `select *`
    Select(Select),
    /// `update TABLE set value = …`
    Update(Update),
    /// `insert into TABLE (id, value) values (ID, VALUE)`, also without the names
    Insert {
        /// The table's name.
        table: String,
        /// The new row's key.
        id: i64,
        /// Its value.
        value: i64,
    },
    /// `delete from TABLE …`
    Delete(Select),
}

/// Rows of a table that fulfil a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// The table's name.
    pub table: String,
    /// Which of its rows.
    pub rows: Condition,
}

/// A change of rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The table's name.
    pub table: String,
    /// The amount that is set, or added.
    pub amount: i64,
    /// Whether it is added to the value, as in `set value = value + 10`.
    pub adds: bool,
    /// Which of its rows.
    pub rows: Condition,
}

impl Update {
    /// The row's new value.
    #[must_use]
    pub fn of(&self, value: i64) -> i64 {
        if self.adds { value.wrapping_add(self.amount) } else { self.amount }
    }
}

/// Which rows of a table a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All of them.
    All,
    /// `where id = N`, `where id in (N, …)`
    Ids(Vec<i64>),
    /// `where value = N`, `where value % M = N`
    Value(Comparison),
}

/// A condition on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The value is divided by it first, and the remainder compared; none without `%`.
    pub divisor: Option<i64>,
    /// What it must be equal to.
    pub equals: i64,
}

impl Condition {
    /// Whether a row fulfils it.
    #[must_use]
    pub fn holds(&self, id: i64, value: i64) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.contains(&id),
            Self::Value(Comparison { divisor, equals }) => {
                divisor.map_or(Some(value), |divisor| value.checked_rem(divisor)) == Some(*equals)
            }
        }
    }

    /// The keys that it names; none where each row must be looked at.
    #[must_use]
    pub fn ids(&self) -> Option<&[i64]> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::All | Self::Value(_) => None,
        }
    }
}

/// A statement that is not understood, as far as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NotUnderstood {
    found: String,
    expected: &'static str,
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, expected } = self;
        if found.is_empty() {
            write!(f, "it ends before {expected}")
        } else {
            write!(f, "{found:?} is not {expected}")
        }
    }
}

impl Statement {
    /// Reads a statement; capitals do not matter, nor does a semicolon at the end.
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &str) -> Result<Self, NotUnderstood> {
        let mut words = Words::of(text);
        let first = words.next("a statement")?;
        let statement = match first.as_str() {
            "begin" => Self::Begin,
            "commit" => Self::Commit,
            "rollback" => Self::Rollback,
            "select" => {
                if !words.takes("*") {
                    words.all(&["id", ",", "value"], "\"id, value\" or \"*\"")?;
                }
                words.all(&["from"], "\"from\"")?;
                Self::Select(Select { table: words.name()?, rows: words.condition()? })
            }
            "update" => {
                let table = words.name()?;
                words.all(&["set", "value", "="], "\"set value =\"")?;
                let (amount, adds) = words.amount()?;
                Self::Update(Update { table, amount, adds, rows: words.condition()? })
            }
            "insert" => {
                words.all(&["into"], "\"into\"")?;
                let table = words.name()?;
                if words.takes("(") {
                    words.all(&["id", ",", "value", ")"], "\"(id, value)\"")?;
                }
                words.all(&["values", "("], "\"values (\"")?;
                let id = words.number()?;
                words.all(&[","], "\",\"")?;
                let value = words.number()?;
                words.all(&[")"], "\")\"")?;
                Self::Insert { table, id, value }
            }
            "delete" => {
                words.all(&["from"], "\"from\"")?;
                Self::Delete(Select { table: words.name()?, rows: words.condition()? })
            }
            _ => {
                let expected = "begin, commit, rollback, select, insert, update or delete";
                return Err(NotUnderstood { found: first, expected });
            }
        };
        words.end()?;
        Ok(statement)
    }
}

/// The words, numbers and signs of a statement.
struct Words {
    rest: std::iter::Peekable<std::vec::IntoIter<String>>,
}

impl Words {
    fn of(text: &str) -> Self {
        let mut words: Vec<String> = Vec::new();
        let mut is_open = false;
        for letter in text.trim().trim_end_matches(';').chars() {
            let is_part = letter.is_alphanumeric() || letter == '_';
            match words.last_mut() {
                Some(word) if is_part && is_open => word.extend(letter.to_lowercase()),
                _ if letter.is_whitespace() => {}
                _ => words.push(letter.to_lowercase().collect()),
            }
            is_open = is_part;
        }
        Self { rest: words.into_iter().peekable() }
    }

    fn next(&mut self, expected: &'static str) -> Result<String, NotUnderstood> {
        self.rest.next().ok_or(NotUnderstood { found: String::new(), expected })
    }

    fn takes(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| next == word).is_some()
    }

    fn all(&mut self, words: &[&str], expected: &'static str) -> Result<(), NotUnderstood> {
        for word in words {
            let found = self.next(expected)?;
            if found != *word {
                return Err(NotUnderstood { found, expected });
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Result<String, NotUnderstood> {
        let found = self.next("a table's name")?;
        let is_name = found.starts_with(|first: char| first.is_alphabetic() || first == '_');
        if is_name { Ok(found) } else { Err(NotUnderstood { found, expected: "a table's name" }) }
    }

    fn number(&mut self) -> Result<i64, NotUnderstood> {
        const EXPECTED: &str = "a whole number";
        let is_negative = self.takes("-");
        let found = self.next(EXPECTED)?;
        let number: Option<i64> = found.parse().ok();
        let number = number.ok_or(NotUnderstood { found, expected: EXPECTED })?;
        Ok(if is_negative { -number } else { number })
    }

    /// What a value is set to, and whether it is added: `11`, `value + 10`, `value - 10`.
    fn amount(&mut self) -> Result<(i64, bool), NotUnderstood> {
        if !self.takes("value") {
            return Ok((self.number()?, false));
        }
        if self.takes("-") {
            return Ok((-self.number()?, true));
        }
        self.all(&["+"], "\"+\" or \"-\"")?;
        Ok((self.number()?, true))
    }

    fn condition(&mut self) -> Result<Condition, NotUnderstood> {
        if !self.takes("where") {
            return Ok(Condition::All);
        }
        if self.takes("value") {
            let divisor = if self.takes("%") { Some(self.number()?) } else { None };
            self.all(&["="], "\"=\"")?;
            return Ok(Condition::Value(Comparison { divisor, equals: self.number()? }));
        }
        self.all(&["id"], "\"id\" or \"value\"")?;
        if self.takes("=") {
            return Ok(Condition::Ids(vec![self.number()?]));
        }
        self.all(&["in", "("], "\"=\" or \"in (\"")?;
        let mut ids = vec![self.number()?];
        while self.takes(",") {
            ids.push(self.number()?);
        }
        self.all(&[")"], "\",\" or \")\"")?;
        Ok(Condition::Ids(ids))
    }

    fn end(&mut self) -> Result<(), NotUnderstood> {
        match self.rest.next() {
            None => Ok(()),
            Some(found) => Err(NotUnderstood { found, expected: "the end of the statement" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_of_the_scripts_are_understood() {
        let table = || "test".to_owned();
        let value = |divisor, equals| Condition::Value(Comparison { divisor, equals });
        for (text, expected) in [
            ("begin", Statement::Begin),
            ("COMMIT;", Statement::Commit),
            ("select * from test", Statement::Select(Select { table: table(), rows: Condition::All })),
            (
                "SELECT id, value FROM test WHERE id IN (1, 2)",
                Statement::Select(Select { table: table(), rows: Condition::Ids(vec![1, 2]) }),
            ),
            (
                "select * from test where value % 3 = 0",
                Statement::Select(Select { table: table(), rows: value(Some(3), 0) }),
            ),
            (
                "update test set value = value+10",
                Statement::Update(Update { table: table(), amount: 10, adds: true, rows: Condition::All }),
            ),
            (
                "update test set value = -1 where id = 2",
                Statement::Update(Update {
                    table: table(),
                    amount: -1,
                    adds: false,
                    rows: Condition::Ids(vec![2]),
                }),
            ),
            (
                "insert into test (id, value) values (3, 30)",
                Statement::Insert { table: table(), id: 3, value: 30 },
            ),
            ("insert into test values (3,30)", Statement::Insert { table: table(), id: 3, value: 30 }),
            (
                "delete from test where value = 20",
                Statement::Delete(Select { table: table(), rows: value(None, 20) }),
            ),
        ] {
            assert_eq!(Statement::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, why) in [
            ("", "it ends before a statement"),
            ("lock table test", "\"lock\" is not begin, commit"),
            ("select count(*) from test", "\"count\" is not \"id, value\" or \"*\""),
            ("select * from test where id > 1", "\">\" is not \"=\" or \"in (\""),
            ("select * from test for update", "\"for\" is not the end of the statement"),
            ("update test set value = x", "\"x\" is not a whole number"),
            ("select * from", "it ends before a table's name"),
            ("update test set value = 99999999999999999999", "is not a whole number"),
        ] {
            let said = Statement::parse(text).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn rows_fulfil_a_condition_or_not() {
        let holds = |text: &str, id, value| match Statement::parse(&format!("select * from test {text}")) {
            Ok(Statement::Select(select)) => select.rows.holds(id, value),
            other => panic!("{other:?}"),
        };
        assert!(holds("", 1, 1) && holds("where id = 1", 1, 7) && !holds("where id = 1", 2, 7));
        assert!(holds("where value % 3 = 0", 1, 30) && !holds("where value % 3 = 0", 1, 20));
        assert!(!holds("where value % 0 = 0", 1, 20), "no value has a remainder then");
    }
}
