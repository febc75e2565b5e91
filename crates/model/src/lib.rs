//! The vocabulary of acidtest: the meaning that all crates give to lock modes, durability levels, addresses,
//! effective settings and errors of stores.
//!
//! Invariant: this crate does no I/O and knows no particular store.

#![warn(missing_docs)]

/// What serde needs of a type that is kept in files as it is written (`try_from = "String", into = "String"`): it is read by
/// `FromStr` and written by `Display`.
#[macro_export]
macro_rules! written {
    ($kind:ty) => {
        impl TryFrom<String> for $kind {
            type Error = <$kind as std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    };
}

mod address;
mod commands;
mod error;
pub mod figure;
mod guarantee;
mod kind;
mod member;
mod nearest;
mod objective;
mod quantity;
mod span;
mod timeline;
pub mod tls;
mod unix_socket;
mod wording;

pub use address::{Address, AddressError, Secret};
pub use commands::Commands;
pub use error::{StoreError, no_connection_within, no_tls_within, took_too_long, with_remedy};
pub use figure::count;
pub use guarantee::{
    Consistency, Durability, EffectiveDurability, EffectiveReplication, EffectiveSettings, Encryption,
    Isolation, Lock, Promotion, ReadPolicy, Reads, Replication, Route, UnknownWord,
};
pub use kind::{
    CellRequest, EACH_CONNECTS, Hosting, IdleOption, NO_NETWORK, NO_REFRESH, NO_SINK, OWN_TLS, ReplicaReads,
    StoreKind, Support, TLS_HOW, all_has_effect, never,
};
pub use member::{MemberId, Role, Selector};
pub use nearest::{hint, nearest};
pub use objective::{Growth, Measure, Objective, Share};
pub use quantity::{Bytes, PerSecond};
pub use span::Span;
pub use timeline::{Disruption, Fault, Faults, Injection, Moment, Timeline};
pub use tls::{CertificateCheck, NegotiatedTls, OwnCertificate, Tls};
pub use wording::{UnknownName, expected};

use std::{future::Future, pin::Pin};

/// A boxed future for the untimed steps of a trial (opening, loading, reading back), where the store is chosen at
/// run time.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
