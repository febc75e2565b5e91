//! The words of acidtest: what every other crate means by a lock, a durability rung, a store's
//! address, its effective settings and its errors.
//!
//! Invariant: this crate does no I/O and knows no particular store.

mod address;
mod error;
mod figure;
mod guarantee;
mod kind;
mod nearest;

pub use address::{Address, AddressError, Secret};
pub use error::StoreError;
pub use figure::count;
pub use guarantee::{Durability, Effective, Isolation, Lock, UnknownWord};
pub use kind::{CellRequest, Hosting, Idle, NO_REFRESH, StoreKind, Support, all_has_effect, never};
pub use nearest::{hint, nearest};

use std::{future::Future, pin::Pin};

/// A boxed future for the untimed edge of a trial (opening, loading, reading back), where a store
/// is chosen at run time.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
