//! The words of acidtest: what every other crate means by a lock, a durability rung, a store's
//! address, its effective settings and its errors.
//!
//! Invariant: this crate does no I/O and knows no particular store.

mod address;
mod delivery;
mod error;
mod guarantee;
mod kind;
mod nearest;

pub use address::{Address, AddressError, Secret};
pub use delivery::{Ack, Consume, Delivery, QueueKind};
pub use error::StoreError;
pub use guarantee::{Durability, Effective, Isolation, Lock, UnknownWord};
pub use kind::{
    Idle, LOCKS_OF_QUEUES, NO_CONFLICTS, NO_REFRESH, Server, StoreKind, Support, Wish, all_has_effect,
    idle_on_tables, never,
};
pub use nearest::{hint, nearest};

use std::{future::Future, pin::Pin};

/// A boxed future for the untimed edge of a trial (opening, loading, reading back), where a store
/// is chosen at run time.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
