//! The answers that clients of the queue had.

use std::collections::BTreeMap;

use acidtest_workloads::Attempt;

/// A message as it was delivered to a consumer.
#[derive(Debug)]
pub(crate) struct Delivered<'a> {
    /// The message's body, as it came.
    pub(crate) body: &'a [u8],
    /// Whether the store flagged it as delivered before; none if the store does not tell.
    pub(crate) redelivered: Option<bool>,
    /// The number of the connection that took it; none for the audit's own, which does not check the order.
    pub(crate) by: Option<u64>,
}

#[derive(Debug, Default)]
struct Account {
    /// The number of the producer's connection, and the message's place among those sent on it.
    sent: (u64, u64),
    published: Option<bool>,
    deliveries: u64,
    /// Whether an acknowledgement of it was handed to the network, or it was taken where none is asked for.
    consumed: bool,
    /// Deliveries that the store flagged as the first.
    fresh: u64,
    /// Acknowledgements of this message that the store confirmed.
    answers: u64,
}

/// The answers that clients had about one trial's messages.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    accounts: BTreeMap<Vec<u8>, Account>,
    /// The last place of each producer's connection that each consumer's connection has had; in the key, the
    /// consumer's connection comes first.
    last: BTreeMap<(u64, u64), u64>,
    /// Deliveries of bodies that nobody sent, which includes torn ones, and deliveries out of order.
    seen: u64,
    /// Deliveries out of order where the store does not flag redeliveries; they count only if no consumer was lost.
    late: u64,
    consumer_lost: bool,
    consumer_done: bool,
    exact: bool,
}

impl Queue {
    /// A witness of a trial. `exact`: clients run one after the other.
    pub(crate) fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// Notes that a message was sent, at this place on a producer's connection.
    pub(crate) fn sent(&mut self, body: &[u8], connection: u64, place: u64) {
        self.accounts.insert(body.to_vec(), Account { sent: (connection, place), ..Account::default() });
    }

    /// Notes the outcome of publishing a message.
    pub(crate) fn published(&mut self, body: &[u8], attempt: &Attempt) {
        let Some(account) = self.accounts.get_mut(body) else { return };
        account.published = match attempt {
            Attempt::Ok => Some(true),
            Attempt::Unknown(_) => None,
            Attempt::Refused | Attempt::Conflict | Attempt::Failed(_) => Some(false),
        };
    }

    pub(crate) fn delivered(&mut self, Delivered { body, redelivered, by }: &Delivered<'_>) {
        let Some(account) = self.accounts.get_mut(*body) else {
            self.seen += 1;
            return;
        };
        account.deliveries += 1;
        account.fresh += u64::from(*redelivered == Some(false));
        let (connection, place) = account.sent;
        if let Some(by) = by.filter(|_| self.exact && account.deliveries == 1 && *redelivered != Some(true)) {
            let last = self.last.entry((by, connection)).or_insert(place);
            if place < *last {
                *if redelivered.is_some() { &mut self.seen } else { &mut self.late } +=
                    u64::from(redelivered.is_some() || !self.consumer_done);
            }
            *last = place.max(*last);
        }
    }

    /// Notes that acknowledgements of messages are about to be handed to the network, or need not be.
    pub(crate) fn acknowledging(&mut self, taken: &[Vec<u8>]) {
        for body in taken {
            if let Some(account) = self.accounts.get_mut(body) {
                account.consumed = true;
            }
        }
    }

    /// Notes that the store confirmed the acknowledgement of a message.
    pub(crate) fn answered(&mut self, body: &[u8]) {
        if let Some(account) = self.accounts.get_mut(body) {
            account.answers += 1;
        }
    }

    pub(crate) fn consumer_lost(&mut self) {
        self.consumer_lost = true;
    }

    /// Notes that a consumer has stopped: messages that were handed out to it and not taken go to others, out of
    /// order.
    pub(crate) fn consumer_done(&mut self) {
        self.consumer_done = true;
    }

    /// The number of violations that an audit must see; only meaningful once the queue is empty.
    pub(crate) fn shown(&self) -> u64 {
        let wrong = |account: &&Account| {
            let lost = account.published == Some(true) && !account.consumed;
            let made_up = account.published == Some(false) && account.deliveries > 0;
            lost || made_up || account.fresh > 1 || account.answers > 1
        };
        let late = if self.consumer_lost { 0 } else { self.late };
        self.seen + late + self.accounts.values().filter(wrong).count() as u64
    }
}
