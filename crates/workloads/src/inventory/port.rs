//! The port: the operations that a store must offer to run the inventory.

#![warn(missing_docs)]

use std::{future::Future, time::Duration};

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{Scenario, Stock};
use crate::{Place, Reply, Served};

/// Take units of (sku, condition, source) from whatever warehouses have them: all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The sku that is wanted, from 1.
    pub sku: u32,
    /// The condition that is wanted, from 1.
    pub condition: u8,
    /// The source that is wanted, from 1.
    pub source: u8,
    /// How many units are wanted.
    pub units: u32,
}

/// Put units back on one tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The sku of the tuple, from 1.
    pub sku: u32,
    /// The warehouse of the tuple, from 1.
    pub warehouse: u8,
    /// The condition of the tuple, from 1.
    pub condition: u8,
    /// The source of the tuple, from 1.
    pub source: u8,
    /// How many units are put back.
    pub units: u32,
}

impl Release {
    /// The tuple and units that it puts back, as a withdrawal.
    #[must_use]
    pub fn withdrawal(&self) -> Withdrawal {
        let Self { sku, warehouse, condition, source, units } = *self;
        Withdrawal { sku, warehouse, condition, source, count: units }
    }
}

/// The units that an acknowledged capture took from one warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// The sku, as in the capture.
    pub sku: u32,
    /// The warehouse that they were taken from.
    pub warehouse: u8,
    /// The condition, as in the capture.
    pub condition: u8,
    /// The source, as in the capture.
    pub source: u8,
    /// How many units were taken.
    pub count: u32,
}

impl Capture {
    /// The withdrawal that takes `count` units from `warehouse`.
    #[must_use]
    pub fn withdrawal(&self, warehouse: u8, count: u32) -> Withdrawal {
        Withdrawal { sku: self.sku, warehouse, condition: self.condition, source: self.source, count }
    }
}

/// Decides from which warehouses to take, in the order of `held` (warehouse, units), which every store gives
/// ascending by warehouse. Fills `taken` and returns whether there were enough units; if not, `taken` is empty.
pub fn plan_capture(
    capture: &Capture,
    held: impl IntoIterator<Item = (u8, i64)>,
    taken: &mut Vec<Withdrawal>,
) -> bool {
    taken.clear();
    let mut wanted = capture.units;
    for (warehouse, units) in held {
        if wanted == 0 {
            break;
        }
        let count = u32::try_from(units.max(0)).unwrap_or(u32::MAX).min(wanted);
        if count > 0 {
            taken.push(capture.withdrawal(warehouse, count));
            wanted -= count;
        }
    }
    if wanted > 0 {
        taken.clear();
    }
    wanted == 0
}

/// One client's connection: the timed operations.
///
/// Both operations are tried again on [`Attempt::Conflict`], which must be proved to have changed nothing.
pub trait Operations {
    /// Takes units, all or nothing, from warehouses in ascending order; on [`Attempt::Ok`] `taken` holds the units
    /// by warehouse. [`Attempt::Refused`] if there are too few.
    fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> impl Future<Output = Attempt>;

    /// Puts units back. One atomic addition in every lock mode, because there is nothing to decide; a store that has
    /// none compares and sets, and may answer [`Attempt::Conflict`]. Where captures are protected by a lock that the
    /// store does not know of, the addition takes that lock too.
    fn release(&mut self, release: &Release) -> impl Future<Output = Attempt>;

    /// How long operations have waited for locks that other clients held, since this was last called. Only for
    /// locks that are kept outside the store's own transactions, so that the client asks for them again and again:
    /// a wait inside the server is not seen.
    fn lock_wait(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Looks whether the server still answers on the session that was opened, at the settings that were made then: not so
    /// behind a pooler that hands sessions on. Called at the end of a trial, after the last operation.
    ///
    /// # Errors
    /// What has changed, in words. A connection that does not answer proves nothing.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// An operation as data, for a store in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// [`Operations::capture`].
    Capture(Capture),
    /// [`Operations::release`].
    Release(Release),
}

impl Operation {
    /// Does it on this connection. The reply has what a capture took.
    pub(crate) async fn perform(self, connection: &mut impl Operations) -> Reply<Vec<Withdrawal>> {
        let mut taken = Vec::new();
        let attempt = match self {
            Self::Capture(capture) => connection.capture(&capture, &mut taken).await,
            Self::Release(release) => connection.release(&release).await,
        };
        Reply::new(attempt, taken, connection.lock_wait())
    }
}

/// Opens connections for one client.
pub trait Connector {
    /// One client's connection, whose operations follow each other.
    type Connection: Operations;

    /// Opens a connection and makes ready what its operations need: statements that are prepared, places in a file.
    ///
    /// # Errors
    /// Why the connection could not be opened, in the store's words.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>>;
}

/// One tuple of the final stock, as read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockRow {
    /// (sku, condition, source, warehouse).
    pub key: (u32, u8, u8, u8),
    /// Units in stock; below 0 if more were taken than there were.
    pub count: i64,
}

impl StockRow {
    /// An entry among the tuples that is none of them, and whose key or count cannot be read. Its key is all zeros,
    /// which no tuple has: skus, conditions, sources and warehouses are numbered from 1.
    #[must_use]
    pub fn foreign() -> Self {
        Self { key: (0, 0, 0, 0), count: 0 }
    }
}

/// The untimed steps before and after a trial.
pub trait InventoryStore: Send + Sync {
    /// Loads the initial stock under the trial's own names, ready for the lock mode.
    fn load<'a>(&'a self, place: &'a Place, lock: Lock, stock: &'a Stock)
    -> Task<'a, Result<(), StoreError>>;

    /// A task for the engine that runs one client of the trial.
    fn client(&self, place: &Place, lock: Lock, scenario: Scenario) -> ClientTask;

    /// Serves one client of the trial in a process of the store's own, by [`serve`](super::serve); none for a store that is a server
    /// by itself.
    fn serve(&self, _place: &Place, _lock: Lock) -> Option<Served> {
        None
    }

    /// Reads the final stock.
    fn stock<'a>(&'a self, place: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>>;

    /// Removes the trial's tables or keys.
    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Capture = Capture { sku: 7, condition: 1, source: 2, units: 3 };

    #[test]
    fn takes_from_warehouses_in_order_and_no_more_than_wanted() {
        let mut taken = Vec::new();
        assert!(plan_capture(&WANTED, [(1, 2), (2, 0), (3, 5)], &mut taken));
        assert_eq!(taken, [WANTED.withdrawal(1, 2), WANTED.withdrawal(3, 1)]);
    }

    #[test]
    fn takes_all_or_nothing() {
        let mut taken = Vec::new();
        assert!(!plan_capture(&WANTED, [(1, 2), (2, -4)], &mut taken));
        assert!(taken.is_empty());
        assert!(!plan_capture(&WANTED, [], &mut taken));
    }
}
