//! Records under load: YCSB's core workloads, with locks, transactions and an audit.
//!
//! A table of records, each with a key and ten fields of 100 bytes as in YCSB ("Benchmarking Cloud Serving
//! Systems with YCSB", `SoCC` 2010), and a *version* beside them, which every update raises by one. Every
//! write puts a *tag* of its own into all fields, so that a record whose fields disagree was torn.
//!
//! # Audit
//!
//! The audit needs constant work per operation, and sixteen bytes for each record: how many of its updates were
//! acknowledged, how many were never answered, and the newest version that was acknowledged, with a mark of the
//! fields written with it. For each insert it needs one byte: how the insert ended. At the end every record is read
//! back. A trial that takes over the records of an earlier one needs eight bytes more for each: the version that
//! was read back, with the mark of its fields. No two writes of trials that share records have the same tag. The
//! findings of a broken verdict:
//!
//! | finding | unit | proves |
//! | --- | --- | --- |
//! | `lost_updates` | updates | a final version is lower than the first version plus the acknowledged updates |
//! | `overwritten` | updates | an update wrote a version that was acknowledged before the update was sent: it had not seen the write that it replaced |
//! | `lost` | records | a record was loaded, acknowledged as inserted, or updated, and is not there at the end |
//! | `duplicated` | records | a record is there more than once at the end |
//! | `phantom` | records | a record is there at the end that was never inserted, whose insert is proved to have had no effect, or whose key is not one of ours |
//! | `unasked` | updates | a final version is higher than the first version plus all updates that may have happened (failed but applied, applied twice) |
//! | `torn` | records | a record was read, or found at the end, with fields of several writers, with fields that nobody wrote, or with an unreadable version |
//! | `mismatched` | records | a record was read, or found at the end, with the version of an acknowledged write, of loading, or of a record taken over, and other fields than were written with it |
//! | `missing` | reads | nothing was found where a record had been loaded, or acknowledged as inserted, before the operation was sent |
//! | `stale` | reads | a read returned a lower version than one acknowledged before it was sent |
//! | `stale_at_replica` | reads | the same of reads that replicas answer, where they are promised to see that (consistency *strong*); an acknowledged insert that was not found counts, too |
//! | `own_writes_missed` | reads | of these, what the same client had written |
//! | `went_back` | reads | a read returned a lower version than the same client had read before, all of whose reads go to one member (route *pinned*) |
//! | `vanished` | records | a version was read at a replica, or at any member, that is higher than the final one |
//!
//! Where other members than the leader answer reads, the ledger needs eight bytes for each acknowledged write: when it was acknowledged. From
//! that follows how old each read was ([`Staleness`](crate::Staleness)). A client's session is that of an epoch of the leader, whatever
//! connections it has, and has 131,072 records at most: what it misses of others is not told. Once a client has lost a connection to a replica, what its reads miss is in doubt: the replica may have restarted, and show what it
//! had before, until it has caught up.
//!
//! Unknown outcomes prove nothing. An update or modify without an answer may raise the final version by one; the
//! record of an insert without an answer may be there or not, unless it was updated since. If a transaction is not
//! answered, all its operations are unknown.
//!
//! Limits of the audit:
//!
//! - Where a store does not report the version that an update wrote, only `lost_updates`, `unasked` and the fields
//!   of loaded or inserted records are checked: neither `overwritten` nor `stale`, and `mismatched` only for
//!   records that were not updated.
//! - A scan's records must be whole, and there must be some if its first record was loaded before the trial: an
//!   inserted record may be shown to scans later, where a store separates searching from writing. Which records a
//!   scan found, in which order and how many, is not checked.
//! - A refusal of several operations in one transaction counts as `missing`, once, if every record that they read
//!   or update had to be there and none was to be inserted. A scan is never refused.
//! - A refused insert, of a number that no other client draws, had no effect as far as the store says. If its
//!   record is there at the end it is a `phantom`, from an earlier attempt of which the store had said that it
//!   changed nothing.
//! - Of reads that began in one epoch of the leader and ended in another, or of records that were last written in an
//!   earlier one, nobody knows how old they were: they are not counted. Nor are scans.
//! - Reads of several records are not compared with each other: the audit does not test which anomalies an
//!   isolation level allows, only that no update of any record is lost.
//! - Keys are hashes of numbers, as YCSB's are. Two numbers with the same hash, of which there is one pair in some
//!   billions of records, would be found `lost` and refused.

mod audit;
mod client;
mod content;
mod keys;
mod ledger;
mod parameters;
mod port;
mod readers;
mod times;
mod workload;

pub use crate::hosted::records::serve;
pub use audit::{Final, audit};
pub use client::{OPERATIONS, Scenario, task};
pub use content::{Batches, Fields, Layout, key_name, tag_of};
pub use keys::Choice;
pub use ledger::Ledger;
pub(crate) use ledger::WrittenVersion;
pub use parameters::{Level, Mix, Parameters, Refresh};
pub use port::{
    Action, Answer, Connector, Lookup, Operation, Operations, Reader, RecordVisitor, RecordsStore, Request,
    Requirements,
};
pub use workload::{KIND, Records};
