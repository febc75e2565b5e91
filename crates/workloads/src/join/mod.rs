//! A join of a small table with a large one: what the planner makes of it, and what it costs cold and
//! warm.
//!
//! The join of the study "Highly scalable `NewSQL` database system `CockroachDB`": a table `ext` of 100 rows (a
//! key of `usertable`, and a value 0 to 9, here the key's last digit), joined to `usertable` on the key,
//! `WHERE value = 4`; written once with `ext` first and once with `usertable` first. The first execution
//! of each after a loading of its own, on a connection of its own, is *cold*: the server's caches hold what loading left in
//! them. The trial's own executions are *warm*. The plan (EXPLAIN) of each order is kept.
//!
//! # Audit
//!
//! | count | unit | proves |
//! | --- | --- | --- |
//! | `wrong` | joins | an acknowledged join whose rows are not those that were laid in |

mod client;
mod parameters;
mod port;
mod workload;

pub use client::{OPERATIONS, Scenario, task};
pub use parameters::{Ext, Parameters};
pub use port::{Connector, JoinStore, Joined, Operations, TableOrder};
pub use workload::{Join, KIND};
