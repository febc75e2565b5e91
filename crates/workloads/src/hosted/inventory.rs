//! The inventory's operations over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{Lock, StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{HostLine, HostWay, Hosted, Purpose, Served, not_here};
use crate::{
    Place,
    inventory::{
        Capture, Connector, InventoryStore, Operations, Release, Scenario, Stock, StockRow, Withdrawal, task,
    },
};

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Capture(Capture),
    Release(Release),
}

/// How the operation ended, what it took, and how long it waited for locks.
type Answer = (Attempt, Vec<Withdrawal>, Duration);

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::inventory::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.connect().await) else { return };
            let mut taken = Vec::new();
            while let Some(request) = line.request() {
                taken.clear();
                let attempt = match request {
                    Request::Capture(capture) => connection.capture(&capture, &mut taken).await,
                    Request::Release(release) => connection.release(&release).await,
                };
                if !line.answer(&(attempt, &taken, connection.lock_wait())) {
                    break;
                }
            }
        })
    })
}

struct HostedStock {
    line: HostLine,
    lock_wait: Duration,
}

impl HostedStock {
    async fn ask(&mut self, request: &Request) -> (Attempt, Vec<Withdrawal>) {
        match self.line.ask::<_, Answer>(request).await {
            Ok((attempt, taken, lock_wait)) => {
                self.lock_wait += lock_wait;
                (attempt, taken)
            }
            Err(fault) => (Attempt::Unknown(fault), Vec::new()),
        }
    }
}

impl Operations for HostedStock {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        let (attempt, took) = self.ask(&Request::Capture(*capture)).await;
        taken.clear();
        taken.extend(took);
        attempt
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        self.ask(&Request::Release(*release)).await.0
    }

    fn lock_wait(&mut self) -> Duration {
        std::mem::take(&mut self.lock_wait)
    }
}

struct HostedConnector(HostWay);

impl Connector for HostedConnector {
    type Connection = HostedStock;

    async fn connect(&self) -> Result<HostedStock, String> {
        Ok(HostedStock { line: self.0.open().await?, lock_wait: Duration::ZERO })
    }
}

impl InventoryStore for Hosted {
    fn load<'a>(&'a self, _: &'a Place, _: Lock, _: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the stock") })
    }

    fn client(&self, _: &Place, _: Lock, scenario: Scenario) -> ClientTask {
        task(HostedConnector(self.way(Purpose::Client)), scenario)
    }

    fn stock<'a>(&'a self, _: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async { not_here("reading the final stock") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the stock") })
    }
}
