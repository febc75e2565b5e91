//! Tables that grow while many threads use them.

use std::sync::OnceLock;

/// Entries of one piece.
const CHUNK: usize = 1 << 14;
/// Most pieces that a table can have: with [`CHUNK`] entries each, 2^30 entries.
const CHUNKS: usize = 1 << 16;

/// A table in pieces, each of which is allocated when it is first needed.
#[derive(Debug)]
pub(crate) struct Pieces<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Default> Pieces<T> {
    pub(crate) fn new() -> Self {
        Self((0..CHUNKS).map(|_| OnceLock::new()).collect())
    }

    /// The entry, whose piece is allocated if need be; `None` for an index beyond 2^30, which no trial reaches.
    pub(crate) fn at(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok()?;
        let piece = self.0.get(index / CHUNK)?;
        let piece = piece.get_or_init(|| (0..CHUNK).map(|_| T::default()).collect());
        piece.get(index % CHUNK)
    }

    /// The entry, if its piece has been allocated.
    pub(crate) fn made(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok()?;
        self.0.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }
}
