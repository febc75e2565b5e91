//! What clients of a queue were told.

use std::collections::BTreeMap;

use acidtest_workloads::Attempt;

/// A message as a consumer was handed it.
#[derive(Debug)]
pub(crate) struct Delivered<'a> {
    /// Its body.
    pub(crate) body: &'a [u8],
    /// The store's word on whether it was delivered before.
    pub(crate) redelivered: Option<bool>,
    /// Which of the store's connections took it; none where that of the audit did, which looks at no order.
    pub(crate) by: Option<u64>,
}

#[derive(Debug, Default)]
struct Account {
    /// The producer's connection, and its place on it.
    sent: (u64, u64),
    published: Option<bool>,
    deliveries: u64,
    /// Deliveries with the word that it had not been before.
    fresh: u64,
    /// Answers to acknowledgements of it.
    answers: u64,
}

/// What clients were told of one trial's messages.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    accounts: BTreeMap<Vec<u8>, Account>,
    /// Of each consumer's connection and each producer's: the last place that it has seen.
    last: BTreeMap<(u64, u64), u64>,
    /// Deliveries of what nobody sent, or in pieces, and those out of order.
    seen: u64,
    /// Deliveries out of order of which the store does not say that they are the first.
    late: u64,
    consumer_lost: bool,
    consumer_done: bool,
    exact: bool,
}

impl Queue {
    /// A trial. `exact`: clients run one after the other.
    pub(crate) fn new(exact: bool) -> Self {
        Self { exact, ..Self::default() }
    }

    /// A message was sent, in this place of a producer's connection.
    pub(crate) fn sent(&mut self, body: &[u8], connection: u64, place: u64) {
        self.accounts.insert(body.to_vec(), Account { sent: (connection, place), ..Account::default() });
    }

    /// How its publishing ended, where that is known.
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

    /// The acknowledgement of a message was answered.
    pub(crate) fn answered(&mut self, body: &[u8]) {
        if let Some(account) = self.accounts.get_mut(body) {
            account.answers += 1;
        }
    }

    pub(crate) fn consumer_lost(&mut self) {
        self.consumer_lost = true;
    }

    /// A consumer asks for nothing more: what it has not taken is for the others, late.
    pub(crate) fn consumer_done(&mut self) {
        self.consumer_done = true;
    }

    /// How much an audit must see, once the queue is empty.
    pub(crate) fn shown(&self) -> u64 {
        let wrong = |account: &&Account| {
            let lost = account.published == Some(true) && account.deliveries == 0;
            let made_up = account.published == Some(false) && account.deliveries > 0;
            lost || made_up || account.fresh > 1 || account.answers > 1
        };
        let late = if self.consumer_lost { 0 } else { self.late };
        self.seen + late + self.accounts.values().filter(wrong).count() as u64
    }
}
