//! The operations on parcels over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place, TableSize,
    parcels::{
        Connector, Found, Inserted, Loading, Operation, Operations, Parcel, ParcelsStore, Requirements, Scan,
        ScanVisitor, Scenario, task,
    },
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::parcels::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    super::serve(async move || connector.connect().await, Operation::perform)
}

impl HostedConnection {
    async fn find(&mut self, operation: Operation, found: &mut Found) -> Attempt {
        let (attempt, (_, was_found)) = self.perform::<(Inserted, Found)>(&operation).await;
        *found = was_found;
        attempt
    }
}

impl Operations for HostedConnection {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        let operation = Operation::Insert(scans.to_vec());
        let (attempt, (was_inserted, _)) = self.perform::<(Inserted, Found)>(&operation).await;
        *inserted = was_inserted;
        attempt
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.find(Operation::ByHash(parcel.number), found).await
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        self.find(Operation::ById(id), found).await
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

impl ParcelsStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Requirements,
        _: &'a Loading,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the scans") })
    }

    fn client(&self, _: &Place, _: &Requirements, scenario: Scenario) -> ClientTask {
        task(self.route(Purpose::Client), scenario)
    }

    fn state<'a>(&'a self, _: &'a Place, _: &'a mut ScanVisitor<'_>) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("reading the final scans") })
    }

    fn size<'a>(&'a self, _: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async { not_here("measuring the table") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the scans") })
    }
}
