//! Records under load: YCSB's core workloads, with locks, transactions and an audit.
//!
//! A table of records, each with a key and ten fields of 100 bytes as in YCSB ("Benchmarking Cloud Serving
//! Systems with YCSB", `SoCC` 2010), and a *version* beside them, which every update raises by one. Every
//! write puts a *tag* of its own into all fields, so that a record whose fields disagree was torn.
//!
//! # Audit
//!
//! In constant work per operation, and sixteen bytes a record: how many updates of it were acknowledged, how
//! many were never answered, and the newest version that was acknowledged, with a mark of what was written
//! then; of each insert one byte, how it ended. At the end every record is read back. A trial that takes over
//! what an earlier one left has eight bytes a record more: the version that was read back, with the mark of its
//! fields. No two writes of trials that share records have the same tag. The counts of a broken verdict:
//!
//! | count | unit | proves |
//! | --- | --- | --- |
//! | `lost_updates` | updates | a final version is lower than the first one and the acknowledged updates make it |
//! | `overwritten` | updates | an update wrote a version that was acknowledged before it was sent: it had not seen what it wrote over |
//! | `lost` | records | laid in, acknowledged as inserted, or updated, and not there at the end |
//! | `duplicated` | records | there more than once at the end |
//! | `phantom` | records | there at the end, and never inserted, or with an insert that is proved to have had no effect, or with a key that is none |
//! | `unasked` | updates | a final version is higher than all updates make it that may have happened (failed but applied, applied twice) |
//! | `torn` | records | read, or found at the end, with fields of several writers, or that nobody wrote, or with a version that is none |
//! | `mismatched` | records | read, or found at the end, with the version of an acknowledged write, of loading, or of what was taken over, and other fields than were written with it |
//! | `missing` | reads | nothing was found where a record had been laid in, or acknowledged as inserted, before the operation was sent |
//! | `stale` | reads | a version lower than one that was acknowledged before the operation was sent |
//!
//! What is in doubt proves nothing. An update or modify without an answer may raise the final version by one;
//! an insert without one may be there or not, unless its record was updated since. A transaction without
//! an answer is in doubt with all its operations.
//!
//! What is not looked for:
//!
//! - Where a store does not say which version an update wrote, only `lost_updates`, `unasked` and what was
//!   laid in or inserted stand against it: neither `overwritten` nor `stale`, and `mismatched` only of
//!   records that were not updated.
//! - A scan's records must be whole, and there must be some where its first record was laid in: what was
//!   inserted may be shown to scans later, where a store separates searching from writing. Which records it
//!   found, in which order and how many, is not held against anything.
//! - A refusal of several operations in one transaction counts as `missing`, once, where every record that they
//!   read or update had to be there and none was to be inserted. A scan is never refused.
//! - An insert that is refused, for a number that nobody else draws, had no effect as far as the store says:
//!   if the record is there at the end it is a `phantom`, of an earlier attempt that was said to have
//!   changed nothing.
//! - Reads of several records are not held against each other: which anomalies of isolation a level allows
//!   is not tested, only that no update of any record is lost.
//! - Keys are hashes of numbers, as YCSB's are. Two numbers with one hash, of which there is one pair in some
//!   billions of records, would be found `lost` and refused.

mod audit;
mod client;
mod content;
mod keys;
mod ledger;
mod parameters;
mod port;
mod workload;

pub use audit::{Final, audit};
pub use client::{OPERATIONS, Scenario, task};
pub use content::{Batches, Fields, Layout, key_name, tag_of};
pub use keys::Choice;
pub use ledger::Ledger;
pub(crate) use ledger::WrittenVersion;
pub use parameters::{Mix, Parameters, Refresh};
pub use port::{
    Action, Answer, Connector, Lookup, Operations, RecordVisitor, RecordsStore, Request, Requirements,
};
pub use workload::{KIND, Records};
