//! Witnesses compare the answers that a reference store gave with the data that it has, and so know when an audit
//! must see a planted bug.
//!
//! A witness keeps no bounds. It makes no claim about anything that an operation without an answer touched. Where
//! clients run on several threads it makes none about single answers either, as it cannot know what the clients knew
//! of each other. The claims that remain are beyond doubt: if one of them is violated, the audit's verdict must not
//! be *holds*.

mod inventory;
mod parcels;
mod queue;
mod records;
pub(crate) mod transactions;

pub(crate) use inventory::Inventory;
pub(crate) use parcels::{Known, Parcels};
pub(crate) use queue::{Delivered, Queue};
pub use records::KnownStaleness;
pub(crate) use records::{Asked, RecordVersion, Records, Request, Stage};
