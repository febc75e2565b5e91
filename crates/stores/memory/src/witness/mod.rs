//! What a reference store's clients were told, held against what it has: when an audit must see a planted bug.
//!
//! A witness keeps no bounds. Whatever an operation without an answer touched it leaves out, and so do its claims
//! about single answers where clients run on several threads, as it cannot know then what they knew of each other. What
//! is left is beyond doubt, and what does not add up there the audit must not call *holds*.

mod inventory;
mod queue;
mod records;

pub(crate) use inventory::Inventory;
pub(crate) use queue::{Delivered, Queue};
pub(crate) use records::{RecordVersion, Records, Request};
