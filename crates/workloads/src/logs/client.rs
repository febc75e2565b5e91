//! The client: sends its entries one request after the other, and keeps the ledger.

use std::sync::Arc;

use acidtest_engine::{Attempt, Client, ClientTask, Fault, Outcome};

use super::{Connector, Id, Ledger, Operations, Request, ledger::Ending};

/// Names of the operations, in the order of their kinds.
pub const OPERATIONS: &[&str] = &["send"];

/// What all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(super) ledger: Arc<Ledger>,
    /// How many entries a client sends together.
    pub(super) together: u64,
    /// The length of a message in bytes.
    pub(super) message_bytes: usize,
}

/// Places among a client's entries.
type Batch = std::ops::Range<u64>;

struct LogsClient<C: Connector> {
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    client: u32,
    next: u64,
    request: Request,
    came: bool,
}

impl<C: Connector> LogsClient<C> {
    fn ids(&self, batch: &Batch) -> impl Iterator<Item = Id> + use<C> {
        let client = self.client;
        batch.clone().map(move |sequence| Id { client, sequence })
    }
}

impl<C: Connector> Client for LogsClient<C> {
    type Operation = Batch;

    fn draw(&mut self) -> Option<Batch> {
        let batch = self.next..self.next + self.scenario.together;
        self.next = batch.end;
        let ids = self.ids(&batch);
        let prefix = self.scenario.ledger.prefix();
        self.request.fill(prefix, ids, jiff::Timestamp::now().as_microsecond(), self.scenario.message_bytes);
        self.scenario.ledger.sending(self.ids(&batch));
        Some(batch)
    }

    fn kind(_: &Batch) -> usize {
        0
    }

    fn changes(&self, _: &Batch) -> bool {
        true
    }

    async fn attempt(&mut self, _: &Batch) -> Attempt {
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(Fault::lost("no connection"));
        };
        connection.send(&self.request).await
    }

    fn account(&mut self, batch: Batch, outcome: Outcome) {
        let how = match outcome {
            Outcome::Ok => Ending::Acknowledged,
            Outcome::Refused => Ending::Refused,
            Outcome::Unknown => Ending::GivenUp,
            Outcome::Failed | Outcome::Conflict => Ending::Failed,
        };
        self.scenario.ledger.ended(self.ids(&batch), how);
    }

    async fn connect(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.came, true) {
            self.scenario.ledger.come();
        }
        // drop the old connection before asking for a new one
        self.connection = None;
        self.connection = Some(self.connector.connect().await?);
        Ok(())
    }
}

impl<C: Connector> Drop for LogsClient<C> {
    fn drop(&mut self) {
        if self.came {
            self.scenario.ledger.leave();
        }
    }
}

/// Wraps one client for the engine.
pub fn task<C>(connector: C, scenario: Scenario) -> ClientTask
where
    C: Connector + Send + 'static,
{
    Box::new(move |seat| {
        let client = u32::try_from(seat.index()).unwrap_or(u32::MAX);
        Box::pin(seat.drive(LogsClient {
            scenario,
            connector,
            connection: None,
            client,
            next: 0,
            request: Request::default(),
            came: false,
        }))
    })
}
