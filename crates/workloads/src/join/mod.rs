//! A join of a small table with a large one: the plan that the store makes for it, and its time cold and warm.
//!
//! The join of the study "Highly scalable `NewSQL` database system `CockroachDB`": a table `ext` of 100 rows (a
//! key of `usertable`, and a value 0 to 9, here the key's last digit), joined to `usertable` on the key,
//! `WHERE value = 4`; written once with `ext` first and once with `usertable` first. The first execution of each
//! order, on a connection of its own and right after the data was loaded for it, is *cold*: the server's caches
//! hold only what loading left in them. The trial's own executions are *warm*. The plan (EXPLAIN) of each order is
//! kept.
//!
//! # Audit
//!
//! | finding | unit | proves |
//! | --- | --- | --- |
//! | `wrong` | joins | the rows of an acknowledged join are not those that were loaded |

mod client;
mod parameters;
mod port;
mod workload;

pub use crate::hosted::join::serve;
pub use client::{OPERATIONS, Scenario, task};
pub use parameters::{Ext, Parameters};
pub use port::{Connector, JoinAnswer, JoinStore, Operations, TableOrder};
pub use workload::{Join, KIND};
