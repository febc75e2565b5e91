//! Tables that grow while many threads use them.

use std::sync::OnceLock;

/// Entries of one piece.
const CHUNK: usize = 1 << 14;
/// Pieces that there can be.
const CHUNKS: usize = 1 << 16;

/// A table in pieces that are made when they are first needed.
#[derive(Debug)]
pub(crate) struct Pieces<T>(Box<[OnceLock<Box<[T]>>]>);

impl<T: Default> Pieces<T> {
    pub(crate) fn new() -> Self {
        Self((0..CHUNKS).map(|_| OnceLock::new()).collect())
    }

    /// The entry, made if it is not there yet; none far beyond what a trial can come to.
    pub(crate) fn at(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok()?;
        let piece = self.0.get(index / CHUNK)?;
        let piece = piece.get_or_init(|| (0..CHUNK).map(|_| T::default()).collect());
        piece.get(index % CHUNK)
    }

    /// The entry, if its piece was made.
    pub(crate) fn made(&self, index: u64) -> Option<&T> {
        let index = usize::try_from(index).ok()?;
        self.0.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }
}
