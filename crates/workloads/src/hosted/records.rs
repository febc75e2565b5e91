//! The operations on records over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};

use super::{HostRoute, Hosted, HostedConnection, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place,
    records::{
        Answer, Connector, Layout, Operation, Operations, RecordVisitor, RecordsStore, Request, Requirements,
        Scenario, task,
    },
};

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::records::task).
pub fn serve<C: Connector + Send + 'static>(connector: C, layout: Layout) -> Served {
    super::serve(
        async move || connector.connect().await,
        async move |operations, connection: &mut C::Connection| {
            Operation::perform(operations, &layout, connection).await
        },
    )
}

impl Operations for HostedConnection {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.several(std::slice::from_ref(request), std::slice::from_mut(answer)).await
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let operations: Vec<Operation> = requests.iter().map(Operation::from).collect();
        let (attempt, found) = self.perform::<Vec<Answer>>(&operations).await;
        for (answer, found) in answers.iter_mut().zip(found) {
            *answer = found;
        }
        attempt
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

impl RecordsStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the records") })
    }

    fn client(&self, _: &Place, _: &Requirements, scenario: Scenario) -> ClientTask {
        task(self.route(Purpose::Client), scenario)
    }

    fn state<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("reading the final records") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the records") })
    }
}
