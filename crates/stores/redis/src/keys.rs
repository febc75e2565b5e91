//! Names of keys, and finding keys by their prefix.

use redis::cmd;

use crate::protocol::{Connection, Error, Reply, nonsense};

/// Keys that one SCAN looks at: enough to pass over a large database of the user's quickly, and done in a
/// millisecond or so.
const SCANNED: u32 = 1000;

#[must_use]
pub(crate) fn prefix(namespace: &str) -> String {
    format!("{namespace}:")
}

/// The name of the key that says which run made the namespace.
pub(crate) fn marker(namespace: &str) -> String {
    format!("{namespace}:marker")
}

/// The pattern that matches exactly the keys with this prefix.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('*');
    pattern
}

/// The value read from a key; `None` if the key is of another type, which acidtest has not written.
pub(crate) fn held(read: Result<Reply<'_>, Error>) -> Result<Option<Reply<'_>>, Error> {
    match read {
        Err(Error::Answered(error)) if error.code() == "WRONGTYPE" => Ok(None),
        read => read.map(Some),
    }
}

/// Walks over the keys with a prefix. A key that exists all the while is returned at least once, and may be
/// returned more often.
pub(crate) struct Scan {
    prefix: String,
    pattern: String,
    /// The cursor at which SCAN goes on; `None` at the end.
    cursor: Option<u64>,
}

impl Scan {
    pub(crate) fn of(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), pattern: pattern(prefix), cursor: Some(0) }
    }

    /// The next few keys, which may be none; `None` at the end. Each has the prefix, even if the server ignores
    /// the pattern: the keys are read, and removed, as acidtest's own.
    pub(crate) async fn next(&mut self, connection: &mut Connection) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(SCANNED);
        let [next, keys] = connection.ask(&scan).await?.exactly()?;
        let next: u64 = next.string()?.parse().map_err(|_| nonsense())?;
        let mut found = Vec::new();
        for key in keys.array()? {
            let key = key.text()?;
            if key.starts_with(self.prefix.as_bytes()) {
                found.push(key.to_vec());
            }
        }
        self.cursor = (next != 0).then_some(next);
        Ok(Some(found))
    }
}

/// Whether any key has the prefix.
pub(crate) async fn any(connection: &mut Connection, prefix: &str) -> Result<bool, Error> {
    let mut scan = Scan::of(prefix);
    while let Some(keys) = scan.next(connection).await? {
        if !keys.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes every key with the prefix, except one to keep.
pub(crate) async fn remove(
    connection: &mut Connection,
    prefix: &str,
    keep: Option<&str>,
) -> Result<(), Error> {
    let mut scan = Scan::of(prefix);
    while let Some(mut keys) = scan.next(connection).await? {
        keys.retain(|key| keep.is_none_or(|keep| key != keep.as_bytes()));
        if keys.is_empty() {
            continue;
        }
        // one by one: a cluster refuses keys of several slots in one command
        let mut removing = connection.batch()?;
        for key in keys {
            removing.push(cmd("UNLINK").arg(key))?;
        }
        for answer in removing.answers().await {
            answer?;
        }
    }
    Ok(())
}

/// Removes every key of the namespace. The mark goes last, so that the rest of an interrupted removal is still known as
/// acidtest's.
pub(crate) async fn remove_namespace(connection: &mut Connection, namespace: &str) -> Result<(), Error> {
    let marker = marker(namespace);
    remove(connection, &prefix(namespace), Some(&marker)).await?;
    connection.ask(cmd("UNLINK").arg(marker)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_prefix_letter_by_letter() {
        assert_eq!(pattern("acidtest:"), "acidtest:*");
        assert_eq!(pattern(r"a*b?[c]\:"), r"a\*b\?\[c\]\\:*");
    }
}
