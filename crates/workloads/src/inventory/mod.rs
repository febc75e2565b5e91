//! Inventory under contention: capture units of an item, put units back, never sell what is not
//! there.
//!
//! The workload of the study "Datastore testing for IMS" (sg-datastore-test): tuples (sku, warehouse,
//! condition, source, price, count), unique by the first four. A *capture* takes N units of (sku,
//! condition, source) across warehouses, all or nothing, and says from where; a *release* puts N
//! units back on one tuple. Half and half, 1 to 3 units; the study's values are the defaults.
//!
//! # Audit
//!
//! The audit needs constant work per operation, and memory that does not grow with their number. The findings of a
//! broken verdict:
//!
//! | finding | unit | proves |
//! | --- | --- | --- |
//! | `oversold` | units | more was acknowledged as taken than ever existed, seen while it happened |
//! | `surplus` | units | in the final stock although an acknowledged capture took them (lost capture, release applied twice) |
//! | `deficit` | units | missing from the final stock although nothing acknowledged took them (lost release, capture applied twice, failed capture applied) |
//! | `negative` | tuples | a final count below zero |
//! | `torn` | operations | an acknowledged capture whose withdrawals do not add up to what was asked |
//! | `misplaced` | tuples | missing from, doubled in, or foreign to the final stock |
//! | `off_sequence` | units | difference from the final state of a replayed sequence |

/// What findings of an inventory mean in a shop, for one and for several: by name, and with the count before it.
pub(crate) const IN_WORDS: [(&str, &str, &str); 5] = [
    ("surplus", "sold unit is still on the shelf", "sold units are still on the shelf"),
    ("deficit", "unit is gone that nobody bought", "units are gone that nobody bought"),
    ("negative", "shelf holds less than nothing", "shelves hold less than nothing"),
    (
        "misplaced",
        "shelf is missing, there twice, or unknown",
        "shelves are missing, there twice, or unknown",
    ),
    (
        "off_sequence",
        "unit differs from what the sequence leaves",
        "units differ from what the sequence leaves",
    ),
];

mod audit;
mod client;
mod ledger;
mod parameters;
mod port;
mod sequence;
mod sql;
mod stock;
mod workload;

pub use crate::hosted::inventory::serve;
pub use audit::{Replay, audit};
pub use client::{OPERATIONS, Scenario, task};
pub use ledger::Ledger;
pub use parameters::{InvalidParameters, Parameters};
pub use port::{
    Capture, Connector, InventoryStore, Operation, Operations, Release, StockRow, Withdrawal, plan_capture,
};
pub use sequence::Sequence;
pub use sql::{Reading, SqlCapture, SqlConnection, SqlSession, Step, StockLevel};
pub use stock::{Group, Item, Stock};
pub use workload::{Inventory, KIND};
