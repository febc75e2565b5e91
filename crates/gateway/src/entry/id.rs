//! Ids of entries that come without one.

use std::collections::HashMap;

use rand::RngExt;
use sha2::{Digest, Sha256};

use crate::Ids;

/// How ids are made for the entries of one request.
#[derive(Debug)]
pub(crate) enum Made {
    /// Another one each time.
    Random,
    /// From what an entry says, and how many before it in the request say the same. So entries that are alike are told from
    /// each other, and a request that comes again has the same ids.
    Content(HashMap<Hash, u32>),
    /// From the hash of the request's key, and an entry's place in it.
    Key(Hash),
}

/// A hash of what an entry says.
type Hash = [u8; 32];

/// What an entry says, as it was written but for its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    /// Microseconds since 1970.
    pub(super) moment: i64,
    /// With all its digits.
    pub(super) timestamp: &'a str,
    pub(super) level: &'a str,
    pub(super) application: &'a str,
    pub(super) message: &'a str,
    pub(super) attributes: Option<&'a str>,
}

impl From<Ids> for Made {
    fn from(ids: Ids) -> Self {
        match ids {
            Ids::Random => Self::Random,
            Ids::Content => Self::Content(HashMap::new()),
        }
    }
}

impl Made {
    /// By the key of a request, so that one that comes again with it has the same ids.
    pub(crate) fn by_key(key: &str) -> Self {
        Self::Key(hashed([key.as_bytes()]))
    }

    /// The id of the next entry of the request, at this place in it.
    pub(super) fn next(&mut self, place: usize, said: Said<'_>) -> String {
        match self {
            Self::Random => id(jiff::Timestamp::now().as_millisecond(), 7, rand::rng().random()),
            Self::Content(alike) => {
                let hash = said.hash();
                let before = alike.entry(hash).or_insert(0);
                let hash = hashed([&hash, &before.to_le_bytes()]);
                *before += 1;
                id(said.moment / 1000, 8, first_half(hash))
            }
            // whatever the entry says: otherwise a key that is used again for something else would not be found out
            Self::Key(key) => {
                let hash = first_half(hashed([key, &(place as u64).to_le_bytes()]));
                id(i64::try_from(hash >> 80).unwrap_or(0), 8, hash)
            }
        }
    }

    /// Whether the same id may be made again, for what is sent again.
    pub(crate) fn repeats(&self) -> bool {
        !matches!(self, Self::Random)
    }
}

impl Said<'_> {
    fn hash(&self) -> Hash {
        let Self { timestamp, level, application, message, attributes, .. } = self;
        hashed([timestamp, level, application, message, attributes.unwrap_or_default()].map(str::as_bytes))
    }
}

/// A hash of several pieces, which do not run into each other.
fn hashed<const N: usize>(pieces: [&[u8]; N]) -> Hash {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    hash.finalize().into()
}

fn first_half(hash: Hash) -> u128 {
    hash.first_chunk().copied().map(u128::from_le_bytes).unwrap_or_default()
}

/// A UUID (RFC 9562) of version 7, at random, or 8, by a rule of our own: 48 bits of a moment in milliseconds since 1970, so
/// that later ids come later in an index, and 74 others.
fn id(millis: i64, version: u8, others: u128) -> String {
    let millis = u64::try_from(millis).unwrap_or(0) & ((1 << 48) - 1);
    let id = (u128::from(millis) << 80)
        | (u128::from(version) << 76)
        | ((others >> 52) & 0xfff) << 64
        | (0b10 << 62)
        | (others & 0x3fff_ffff_ffff_ffff);
    let hex = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Said<'_> = Said {
        moment: 1_795_428_900_123_456,
        timestamp: "2026-11-23T10:15:00.123456789Z",
        level: "info",
        application: "shop",
        message: "low",
        attributes: None,
    };

    #[test]
    fn an_id_at_random_is_new_and_one_by_content_is_the_same_for_the_same() {
        let ids = |made: &mut Made| [made.next(0, SAID), made.next(1, SAID)];
        let [first, second] = ids(&mut Made::Random);
        assert!(first != second && &first[14..15] == "7", "{first} {second}");
        let by_content = ids(&mut Ids::Content.into());
        assert_ne!(by_content[0], by_content[1], "they are two of one request");
        assert_eq!(by_content, ids(&mut Ids::Content.into()), "the request comes again");
        let millis = format!("{:012x}", SAID.moment / 1000);
        for id in by_content {
            assert!(id.len() == 36 && &id[14..15] == "8" && "89ab".contains(&id[19..20]), "{id}");
            assert!(id.replace('-', "").starts_with(&millis), "{id}");
        }
    }

    #[test]
    fn whatever_differs_makes_another_id() {
        let of = |said| Made::from(Ids::Content).next(0, said);
        let others = [
            Said { timestamp: "2026-11-23T10:15:00.123456788Z", ..SAID },
            Said { level: "warn", ..SAID },
            Said { application: "shopl", message: "ow", ..SAID },
            Said { message: "low ", ..SAID },
            Said { attributes: Some("{}"), ..SAID },
        ];
        for other in others {
            assert_ne!(of(other), of(SAID), "{other:?}");
        }
    }

    #[test]
    fn an_id_by_key_is_that_of_the_place_whatever_stands_there() {
        let of = |key, place, said| Made::by_key(key).next(place, said);
        let other = Said { message: "other", moment: 7, ..SAID };
        assert_eq!(of("a", 3, SAID), of("a", 3, other));
        assert_ne!(of("a", 3, SAID), of("a", 4, SAID));
        assert_ne!(of("a", 3, SAID), of("b", 3, SAID));
    }
}
