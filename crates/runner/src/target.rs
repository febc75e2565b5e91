//! One store of a run: started privately, or a server or file of the user's own.

use std::fmt;

use acidtest_model::{Address, StoreKind};

use crate::Opener;

/// One store of a run.
#[derive(Clone)]
pub struct Target {
    pub opener: &'static dyn Opener,
    /// The address of a user's own server or file; none for a private one.
    pub address: Option<Address>,
}

impl Target {
    /// The store's row of the matrix.
    #[must_use]
    pub fn kind(&self) -> &'static StoreKind {
        self.opener.kind()
    }

    /// Whether the durability level cannot be chosen: a user's own server keeps its settings, and some stores have a
    /// durability level for each queue.
    #[must_use]
    pub fn keeps_durability(&self) -> bool {
        self.address.is_some() || self.kind().durability_of_data
    }

    /// The target as plans and results name it: never with a password.
    #[must_use]
    pub fn shown(&self) -> String {
        self.address.as_ref().map_or_else(|| self.kind().name.to_owned(), ToString::to_string)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.shown()).finish()
    }
}
