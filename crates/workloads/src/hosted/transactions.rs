//! Transactions over a host.

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Reply, Served, not_here};
use crate::{
    LoadProgress, Place,
    transactions::{
        Answers, Connector, Layout, Operations, Promise, Requirements, Scenario, State, Step,
        TransactionsStore, task,
    },
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::transactions::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    super::serve(
        async move || connector.connect().await,
        async move |steps: Vec<Step>, connection: &mut C::Connection| {
            let mut answers = Answers::default();
            let attempt = connection.transaction(&steps, &mut answers).await;
            Reply::new(attempt, answers, std::time::Duration::ZERO)
        },
    )
}

impl Operations for HostedConnection {
    async fn transaction(&mut self, steps: &[Step], answers: &mut Answers) -> Attempt {
        let (attempt, found) = self.perform::<Answers>(&steps).await;
        *answers = found;
        attempt
    }
}

impl Connector for HostRoute {
    type Connection = HostedConnection;

    async fn connect(&self) -> Result<HostedConnection, String> {
        self.open().await
    }
}

impl TransactionsStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the lists, registers and accounts") })
    }

    fn client(&self, _: &Place, _: &Requirements, scenario: Scenario) -> ClientTask {
        task(self.route(Purpose::Client), scenario)
    }

    fn promise<'a>(&'a self, _: &'a Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async { not_here("looking up what is promised") })
    }

    fn state<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a mut State,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("reading the final lists, registers and accounts") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the lists, registers and accounts") })
    }
}
