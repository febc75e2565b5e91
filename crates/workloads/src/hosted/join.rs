//! The join over a host.

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{HostLine, HostWay, Hosted, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place,
    join::{Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder, task},
    records::Layout,
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::join::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.connect().await) else { return };
            let mut joined = JoinAnswer::default();
            while let Some(order) = line.request::<TableOrder>() {
                joined.clear();
                let attempt = connection.join(order, &mut joined).await;
                if !line.answer(&(attempt, &joined)) {
                    break;
                }
            }
        })
    })
}

impl Operations for HostLine {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        match self.ask::<_, (Attempt, JoinAnswer)>(&order).await {
            Ok((attempt, answer)) => {
                *joined = answer;
                attempt
            }
            Err(fault) => Attempt::Unknown(fault),
        }
    }
}

struct HostedConnector(HostWay);

impl Connector for HostedConnector {
    type Connection = HostLine;

    async fn connect(&self) -> Result<HostLine, String> {
        self.0.open().await
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
        task(HostedConnector(self.way(Purpose::Client)), scenario)
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the tables") })
    }
}
