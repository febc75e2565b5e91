//! The ids that were acknowledged lately, so that whoever sends one again with other content is told at once.
//!
//! Only the database knows all ids. What is sent again long after, or over another gateway, is found out when it is
//! stored: then it is kept with the refused entries.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    mem,
    sync::{Mutex, PoisonError},
};

use crate::entry::Entry;

/// Ids that are remembered at least; at most twice as many are.
const REMEMBERED: usize = 1 << 19;
const SHARDS: usize = 16;

/// Hashes of contents by hashes of ids: a hash of an id that is another's would refuse an entry wrongly, once in 10^13
/// at this number, and nobody can bring that about who does not know the keys.
#[derive(Debug)]
pub(crate) struct Recent {
    keys: RandomState,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    new: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { keys: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Whether this user's entry has the id of one that was acknowledged lately with other content.
    pub(crate) fn conflicts(&self, user: &str, entry: &Entry<'_>) -> bool {
        let (id, content) = self.hashes(user, entry);
        self.with(id, |shard| {
            shard.new.get(&id).or_else(|| shard.old.get(&id)).is_some_and(|known| *known != content)
        })
    }

    /// Notes an entry that was acknowledged.
    pub(crate) fn note(&self, user: &str, entry: &Entry<'_>) {
        let (id, content) = self.hashes(user, entry);
        self.with(id, |shard| {
            if shard.new.len() >= REMEMBERED / SHARDS {
                shard.old = mem::take(&mut shard.new);
            }
            shard.new.insert(id, content);
        });
    }

    fn with<T>(&self, id: u64, ask: impl FnOnce(&mut Shard) -> T) -> T {
        let place = usize::try_from(id % SHARDS as u64).unwrap_or(0);
        // the remainder is below the number of shards
        let shard = &self.shards[place];
        ask(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hashes(&self, user: &str, entry: &Entry<'_>) -> (u64, u64) {
        let mut id = self.keys.build_hasher();
        (user, &entry.id).hash(&mut id);
        let mut content = id.clone();
        let Entry { timestamp, level, application, message, attributes, .. } = entry;
        (timestamp, *level as u8, application, message, attributes).hash(&mut content);
        (id.finish(), content.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Level;

    fn entry<'a>(id: &'a str, message: &'a str) -> Entry<'a> {
        let (id, application, message) = (id.into(), "shop".into(), message.into());
        Entry { id, timestamp: 7, level: Level::Info, application, message, attributes: None }
    }

    #[test]
    fn an_id_conflicts_only_with_other_content_of_the_same_user() {
        let recent = Recent::new();
        assert!(!recent.conflicts("ann", &entry("1", "a")));
        recent.note("ann", &entry("1", "a"));
        assert!(recent.conflicts("ann", &entry("1", "b")));
        assert!(!recent.conflicts("ann", &entry("1", "a")));
        assert!(!recent.conflicts("bob", &entry("1", "b")));
        assert!(!recent.conflicts("ann", &entry("2", "b")));
        let other = Entry { level: Level::Warn, ..entry("1", "a") };
        assert!(recent.conflicts("ann", &other));
    }

    #[test]
    fn it_stays_bounded_and_keeps_the_latest() {
        let recent = Recent::new();
        for number in 0..3 * REMEMBERED {
            recent.note("ann", &entry(&number.to_string(), "a"));
        }
        let kept: usize = recent
            .shards
            .iter()
            .map(|shard| shard.lock().map(|shard| shard.new.len() + shard.old.len()).unwrap())
            .sum();
        assert!(kept <= 2 * REMEMBERED && kept > REMEMBERED / 2, "{kept}");
        assert!(recent.conflicts("ann", &entry(&(3 * REMEMBERED - 1).to_string(), "b")));
    }
}
