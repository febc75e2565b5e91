//! What a consumer has in hand: the messages that it has taken on a connection, until it is known what has become of their
//! acknowledgements.

use std::collections::VecDeque;

use super::{AckAnswer, AckProgress, Ledger, message::Id};

/// The messages that were taken on one connection, each with its number on it, in their order.
#[derive(Debug, Default)]
pub(super) struct InHand {
    /// How many messages were taken on the connection, whole or torn.
    taken: u64,
    /// Those that no acknowledgement was asked for: with the connection they go back to the store.
    held: VecDeque<(u64, Id)>,
    /// Those whose acknowledgement was handed to the connection, and is not known to have been read.
    sent: VecDeque<(u64, Id)>,
}

impl InHand {
    /// A message was taken: this one, if it is whole and is to be acknowledged.
    pub(super) fn take(&mut self, held: Option<Id>) {
        self.held.extend(held.map(|id| (self.taken, id)));
        self.taken += 1;
    }

    /// How many messages are to be acknowledged.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Records that all of them were acknowledged, and how.
    pub(super) fn acknowledge(&mut self, how: AckAnswer, ledger: &Ledger) {
        if how == AckAnswer::Sent {
            ledger.acknowledging(self.held.len());
            self.sent.append(&mut self.held);
        } else {
            ledger.acknowledged(self.held.drain(..).map(|(_, id)| id), how);
        }
    }

    /// Whether there are acknowledgements that are not known to have been read.
    pub(super) fn waits(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Records which acknowledgements are known to have been read.
    pub(super) fn look(&mut self, progress: AckProgress, ledger: &Ledger) {
        self.end(progress.read, Some(AckAnswer::Read), ledger);
    }

    /// Records how far the acknowledgements have come, and lets go of everything: the connection has ended.
    pub(super) fn let_go(&mut self, progress: AckProgress, ledger: &Ledger) {
        self.look(progress, ledger);
        self.end(progress.handed, Some(AckAnswer::Sent), ledger);
        self.end(u64::MAX, None, ledger);
        *self = Self::default();
    }

    /// Records how the acknowledgements of the messages before this number ended; none if the store cannot have them.
    fn end(&mut self, before: u64, how: Option<AckAnswer>, ledger: &Ledger) {
        let ended = self.sent.partition_point(|(number, _)| *number < before);
        let ended = self.sent.drain(..ended).map(|(_, id)| id);
        ledger.acknowledging_ended(ended.len());
        if let Some(how) = how {
            ledger.acknowledged(ended, how);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::ledger::{Entry, PublishState};

    /// Of messages in hand when a connection ends, those are the store's to hand out again whose acknowledgement it cannot have.
    /// What it may have proves neither.
    #[test]
    fn what_the_store_cannot_have_heard_of_must_come_again() {
        let (ledger, mut hand) = (Ledger::new(1, 0), InHand::default());
        for sequence in 0..10 {
            let id = Id { producer: 0, sequence };
            ledger.sending(id);
            ledger.published(id, PublishState::Ok);
            ledger.delivered(id, Some(false));
            // one of them is torn: it has a number on the connection, too
            hand.take((sequence != 1).then_some(id));
            if sequence == 7 {
                hand.acknowledge(AckAnswer::Sent, &ledger);
                assert_eq!((hand.held(), hand.waits()), (0, true));
                assert_eq!(ledger.outstanding(), 1, "what is under way may have arrived");
            }
        }
        hand.look(AckProgress { handed: 4, read: 3 }, &ledger);
        let fates = |ledger: &Ledger| {
            let is = |what: fn(Entry) -> bool| ledger.entries().filter(|entry| what(*entry)).count();
            (is(Entry::is_lost), is(Entry::is_doubtful))
        };
        assert_eq!((fates(&ledger), hand.held()), ((8, 0), 2));
        hand.let_go(AckProgress { handed: 5, read: 4 }, &ledger);
        // 1, and from 5 on; only 4 may have arrived
        assert_eq!((fates(&ledger), hand.held(), hand.waits()), ((6, 1), 0, false));
        assert_eq!(ledger.outstanding(), 6);
        hand.take(Some(Id { producer: 0, sequence: 5 }));
        hand.acknowledge(AckAnswer::Sent, &ledger);
        // a store that answers each acknowledgement, and has not answered this one, says no more than that
        hand.let_go(AckProgress::default(), &ledger);
        assert_eq!(fates(&ledger), (5, 2));
    }
}
