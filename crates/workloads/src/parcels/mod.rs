//! Scans of parcels on their way: a table that grows fast, with a count in each parcel that must be right.
//!
//! The table SCANS of the study "`MemSQL` for `MemEx`": `SCAN_ID` (the primary key, given by the store), `SCAN_HASH`
//! (11 characters, the parcel), `SCAN_TYPE` (3), `SCAN_COUNT`, `MACHINE_TYPE` (10), `SEQUENCE_CODE` (5) and
//! `LOAD_DATE` (given by the store). A parcel has one hash and up to seven scans, which are shuffled among those of
//! other parcels. `SCAN_COUNT` is the parcel's next: the store counts the parcel's scans and inserts, and the lock mode
//! protects that nobody else inserts one in between. An eighth scan is refused.
//!
//! A scan's `MACHINE_TYPE` is its number in the stream of scans, and its `SEQUENCE_CODE` a checksum over it, its type
//! and its parcel. So a row says which scan it is, and whether it is whole.
//!
//! # Audit
//!
//! The audit needs constant work for each operation, eight bytes for each scan that was sent (how its insert ended, the
//! id and the count that were acknowledged) and one for each parcel. At the end every row is read back. The findings of a
//! broken verdict:
//!
//! | finding | unit | proves |
//! | --- | --- | --- |
//! | `lost` | scans | a scan was loaded or acknowledged, and is not there at the end, whoever has its id by then |
//! | `repeated` | counts | two scans of a parcel have the same count at the end |
//! | `overwritten` | scans | an acknowledged scan is not there at the end, and another one has its id: both were given the same count, where ids are made of it |
//! | `skipped` | counts | a parcel has a scan with a count at the end, and none with a lower one, which no acknowledged scan had that is gone |
//! | `beyond` | counts | a scan has a count above 7 |
//! | `duplicated` | scans | a scan is there more than once at the end |
//! | `phantom` | scans | a scan is there at the end that was never sent, was refused, or whose insert is proved to have had no effect |
//! | `torn` | scans | a row has not the texts that were sent, no id, no count or no date |
//! | `mismatched` | scans | a row has another id or count than was acknowledged or loaded |
//! | `duplicate_ids` | ids | two rows have the same id |
//! | `wrongly_refused` | scans | a scan was refused, and its parcel has fewer than seven at the end, or could not have had seven others when it was |
//! | `missing` | reads | a read did not find a scan that was acknowledged before it was sent |
//! | `misread` | reads | a read found a row that is not whole, is of another parcel, is there twice, differs from what was acknowledged, or is of an insert that was never sent or had no effect |
//! | `replaced` | reads | where ids are made of parcel and count, a read by id found another scan with both |
//!
//! Unknown outcomes prove nothing: such a scan may be there or not, and if it is not, it may still fill a gap. Rows are
//! not deleted, so that a refusal is right only if the parcel has seven scans at the end, and if as many others had been
//! sent by then.
//!
//! Limits of the audit:
//!
//! - A batch is no transaction: each of its scans is inserted or refused by itself, and acknowledged by the answer to all.
//! - The value of `LOAD_DATE` is not looked at, but for its being there: the store's clock is its own.
//! - A read of a parcel must find each count that was acknowledged before it was sent, and not each scan: where two scans
//!   were given one count, `repeated` or `overwritten` says so.
//! - After a crash, what a read within a later epoch of the server has missed is ascribed to the loss, if there is one.

mod audit;
mod batch;
mod client;
mod kind;
mod ledger;
mod parameters;
mod port;
mod scan;
mod stream;
mod workload;

pub use crate::hosted::parcels::serve;
pub use batch::Batch;
pub use client::{OPERATIONS, Scenario, task};
pub use kind::{beyond_a_table, lacks_index};
pub use parameters::{Action, Index, Mix, Parameters};
pub use port::{Connector, Found, Inserted, Operation, Operations, ParcelsStore, Requirements, ScanVisitor};
pub use scan::{MOST, Parcel, Scan, ScanNumber, StoredScan};
pub use stream::{Batches, Ids, LoadMethod, LoadedScan, LoadedScans, Loading, Stream};
pub use workload::{KIND, Parcels};
