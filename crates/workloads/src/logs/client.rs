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

    /// Notes that a request was acknowledged, but for those of its entries that were not taken.
    fn acknowledged(&self, batch: &Batch) {
        let refused = self.connection.as_ref().map_or(&[][..], Operations::refused);
        let ledger = &self.scenario.ledger;
        if refused.is_empty() {
            return ledger.ended(self.ids(batch), Ending::Acknowledged);
        }
        let (without, with): (Vec<_>, Vec<_>) =
            self.ids(batch).enumerate().partition(|(place, _)| refused.binary_search(place).is_ok());
        ledger.ended(without.into_iter().map(|(_, id)| id), Ending::Failed);
        ledger.ended(with.into_iter().map(|(_, id)| id), Ending::Acknowledged);
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
            Outcome::Ok => return self.acknowledged(&batch),
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
    Box::new(move |driver| {
        let client = u32::try_from(driver.index()).unwrap_or(u32::MAX);
        Box::pin(driver.drive(LogsClient {
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A connection to a gateway that has refused the second and the third entry of the last request.
    struct Partly;

    impl Operations for Partly {
        async fn send(&mut self, _: &Request) -> Attempt {
            Attempt::Ok
        }

        fn refused(&self) -> &[usize] {
            &[1, 2]
        }
    }

    impl Connector for Partly {
        type Connection = Self;

        async fn connect(&self) -> Result<Self, String> {
            Ok(Self)
        }
    }

    #[test]
    fn only_what_was_taken_of_a_request_counts_as_acknowledged() {
        let ledger = Arc::new(Ledger::new(1, Instant::now()));
        let scenario = Scenario { ledger: Arc::clone(&ledger), together: 4, message_bytes: 100 };
        let mut client = LogsClient {
            scenario,
            connector: Partly,
            connection: Some(Partly),
            client: 0,
            next: 0,
            request: Request::default(),
            came: false,
        };
        let batch = client.draw().unwrap();
        let sent = client.request.entries.clone();
        client.account(batch, Outcome::Ok);
        // the first is not stored, though it was acknowledged, and the second is, though it was not
        for entry in &sent[1..] {
            if entry.stored().id("") != Some(Id { client: 0, sequence: 2 }) {
                ledger.found(&entry.stored());
            }
        }
        let totals = ledger.totals();
        assert_eq!((totals.offered, totals.acknowledged, totals.failed), (4, 2, 2));
        assert_eq!((totals.lost, totals.phantom, totals.saved), (1, 1, 2));
    }
}
