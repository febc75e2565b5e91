//! The join over a host.

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place,
    join::{Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder, task},
    records::Layout,
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::join::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    super::serve(async move || connector.connect().await, TableOrder::perform)
}

impl Operations for HostedConnection {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        let (attempt, found) = self.perform(&order).await;
        *joined = found;
        attempt
    }
}

impl Connector for HostRoute {
    type Connection = HostedConnection;

    async fn connect(&self) -> Result<HostedConnection, String> {
        self.open().await
    }
}

impl JoinStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a [Ext],
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the tables") })
    }

    fn explain<'a>(&'a self, _: &'a Place, _: TableOrder, _: u8) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async { not_here("explaining the join") })
    }

    fn first<'a>(
        &'a self,
        _: &'a Place,
        _: TableOrder,
        _: u8,
        _: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("joining once") })
    }

    fn client(&self, _: &Place, _: u8, scenario: Scenario) -> ClientTask {
        task(self.route(Purpose::Client), scenario)
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the tables") })
    }
}
