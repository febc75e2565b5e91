//! The delivery guarantees that a run asks of a queue.

use acidtest_model::CellRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NAME, OPERATIONS, Parameters};
use crate::{Guarantee, Levels, workload::read};

/// Every acknowledged message is consumed: the guarantee that the settings of publishers and consumers give
/// together.
pub(super) const DELIVERY: Guarantee = Guarantee {
    without: "without acknowledgements (ack none, consume auto) a lost message breaks no promise: it is reported but does \
              not fail the run.",
    ..Guarantee::option(
        "delivery",
        Levels::Together(&["ack", "consume", "persistent", "queue", "replicas", "deduplicate"]),
    )
    .paid_by(OPERATIONS[0])
};

/// When a published message counts as published.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Once it is written to the connection: nobody says whether it arrived.
    None,
    /// Once the store has answered that it has it.
    #[default]
    Confirm,
    /// Once the transaction that it belongs to is committed.
    Transaction,
}

/// When a consumed message is gone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Consume {
    /// Once it is handed out: a consumer that dies loses it.
    Auto,
    /// Once its consumer has acknowledged it.
    #[default]
    Ack,
    /// Once the transaction in which it was acknowledged is committed.
    Transaction,
}

/// The kind of queue, where a store has several.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// The store's only kind, or `classic` on RabbitMQ.
    #[default]
    Default,
    /// RabbitMQ's queue on one node.
    Classic,
    /// RabbitMQ's replicated queue, a Raft log.
    Quorum,
}

impl Ack {
    /// Every mode, weakest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Confirm, Self::Transaction];

    /// The word that names the mode on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Confirm => "confirm",
            Self::Transaction => "transaction",
        }
    }
}

impl Consume {
    /// Every mode, weakest first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Ack, Self::Transaction];

    /// The word that names the mode on the command line, in plans and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ack => "ack",
            Self::Transaction => "transaction",
        }
    }
}

/// The delivery that one cell asks of a store's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When a published message counts as published.
    pub ack: Ack,
    /// When a consumed message is gone.
    pub consume: Consume,
    /// Whether messages are to survive the end of the server's process: a persistent message in a durable queue, a
    /// stream in files.
    pub persistent: bool,
    /// The kind of queue, where a store has several.
    pub queue: QueueKind,
    /// Copies of the queue, on different servers.
    pub replicas: u32,
    /// Whether the store is to drop a message whose id it has seen.
    pub deduplicate: bool,
    /// Messages in a transaction; also how many messages a consumer acknowledges at once.
    pub batch: u32,
    /// Publishes that a producer may have unanswered at a time.
    pub in_flight: u32,
    /// Messages that a consumer may hold unacknowledged.
    pub prefetch: u32,
    /// Clients that publish; 0 if none does.
    pub producers: u32,
    /// Clients that consume; 0 if none does.
    pub consumers: u32,
}

impl Delivery {
    /// The delivery that a cell asks for; `None` if its workload is another one.
    #[must_use]
    pub fn of(request: &CellRequest<'_>) -> Option<Self> {
        let parameters = (request.workload == NAME).then(|| read::<Parameters>(&request.parameters))?;
        Some(parameters.ok()?.delivery())
    }

    /// Whether every acknowledged message is promised to be consumed: no client publishes or consumes without
    /// acknowledgement.
    #[must_use]
    pub fn promises(&self) -> bool {
        let publishes = self.producers == 0 || self.ack != Ack::None;
        publishes && (self.consumers == 0 || self.consume != Consume::Auto)
    }

    /// Publishes that a producer may have unanswered at a time: all of a transaction, which are answered together,
    /// or those in flight.
    #[must_use]
    pub fn unanswered(&self) -> u32 {
        if self.ack == Ack::Transaction { self.batch } else { self.in_flight }
    }

    /// Why a queue that is a table cannot deliver like this. A table has one way to keep messages, in one place,
    /// and answers every statement.
    #[must_use]
    pub fn beyond_a_table(&self) -> Option<&'static str> {
        let publishes = self.producers > 0;
        let refused = [
            (
                publishes && self.ack == Ack::None,
                "--ack none is unavailable, as every statement is answered: choose confirm or transaction",
            ),
            (
                !self.persistent,
                "--persistent false is unavailable, as a row is as durable as its server: choose --durability none",
            ),
            (self.queue != QueueKind::Default, "its only kind of queue is a table: leave --queue at default"),
            (self.replicas > 1, "its tables have no copies of their own: leave --replicas at 1"),
            (
                self.deduplicate,
                "rows are numbered by the server, so it drops no duplicate: leave --deduplicate false",
            ),
        ];
        refused.into_iter().find_map(|(is, why)| is.then_some(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_why_it_cannot() {
        let plain = Parameters::default().delivery();
        assert_eq!(plain.beyond_a_table(), None);
        assert_eq!(Delivery { ack: Ack::None, producers: 0, ..plain }.beyond_a_table(), None);
        for beyond in [
            Delivery { ack: Ack::None, ..plain },
            Delivery { persistent: false, ..plain },
            Delivery { queue: QueueKind::Quorum, ..plain },
            Delivery { replicas: 3, ..plain },
            Delivery { deduplicate: true, ..plain },
        ] {
            assert!(beyond.beyond_a_table().is_some(), "{beyond:?}");
        }
    }
}
