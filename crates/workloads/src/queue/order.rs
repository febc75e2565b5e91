//! The order in which a consumer receives each producer's messages.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ledger, message::Id};

/// The order in which one consumer has seen the messages of each producer's connections. No store promises an order
/// between connections: messages on their way when a connection was given up may come after those sent on the next.
#[derive(Debug, Default)]
pub(super) struct ArrivalOrder {
    /// The first message of each connection, as the ledger had them when it was last asked.
    connections: BTreeSet<Id>,
    /// How many connections there were then.
    known: u64,
    /// By first message of a connection: the lowest sequence that is not out of order.
    next: BTreeMap<Id, u64>,
}

impl ArrivalOrder {
    /// Whether the message comes after one that was sent later on the same connection.
    pub(super) fn is_late(&mut self, id: Id, ledger: &Ledger) -> bool {
        if self.known != ledger.count_connections() {
            (self.connections, self.known) = ledger.connections();
        }
        let first = self.connections.range(Id { sequence: 0, ..id }..=id).next_back();
        // the backlog was sent on one connection
        let connection = first.copied().unwrap_or(Id { sequence: 0, ..id });
        let next = self.next.entry(connection).or_default();
        let is_late = id.sequence < *next;
        *next = (*next).max(id.sequence + 1);
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> Id {
        Id { producer: 0, sequence }
    }

    /// While one consumer still holds a message, another may have been handed it again, and have recorded that
    /// first.
    #[test]
    fn a_delivery_that_is_noted_late_is_the_first_by_the_store_s_word() {
        let ledger = Ledger::new(1, 0);
        ledger.sending(id(0));
        assert!(!ledger.delivered(id(0), Some(true)));
        assert!(ledger.delivered(id(0), Some(false)));
        assert!(!ledger.delivered(id(0), Some(false)), "it is a duplicate");
        assert!(!ledger.delivered(id(0), None));
    }

    #[test]
    fn each_connection_has_an_order_of_its_own() {
        let ledger = Ledger::new(1, 0);
        let mut order = ArrivalOrder::default();
        let mut late = |sequence| order.is_late(id(sequence), &ledger);
        ledger.connecting(id(0));
        assert_eq!([0, 2].map(&mut late), [false, false]);
        // given up after it had sent message 3, which is on its way
        ledger.connecting(id(4));
        assert_eq!([4, 6, 3].map(&mut late), [false, false, false]);
        // late on the connection that was given up, and on the one that followed it
        assert_eq!([1, 5, 7].map(&mut late), [true, true, false]);
    }
}
