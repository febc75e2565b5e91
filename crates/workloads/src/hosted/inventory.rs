//! The inventory's operations over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Served, not_here};
use crate::{
    Place,
    inventory::{
        Capture, Connector, InventoryStore, Operation, Operations, Release, Scenario, Stock, StockRow,
        Withdrawal, task,
    },
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::inventory::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    super::serve(async move || connector.connect().await, Operation::perform)
}

impl Operations for HostedConnection {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let (attempt, found) = self.perform(&Operation::Capture(*capture)).await;
        *taken = found;
        attempt
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        self.perform::<Vec<Withdrawal>>(&Operation::Release(*release)).await.0
    }

    fn lock_wait(&mut self) -> Duration {
        self.take_lock_wait()
    }
}

impl Connector for HostRoute {
    type Connection = HostedConnection;

    async fn connect(&self) -> Result<HostedConnection, String> {
        self.open().await
    }
}

impl InventoryStore for Hosted {
    fn load<'a>(&'a self, _: &'a Place, _: Lock, _: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the stock") })
    }

    fn client(&self, _: &Place, _: Lock, scenario: Scenario) -> ClientTask {
        task(self.route(Purpose::Client), scenario)
    }

    fn stock<'a>(&'a self, _: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async { not_here("reading the final stock") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the stock") })
    }
}
