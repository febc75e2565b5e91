//! Helpers for the adapters of stores that answer one request after the other and have to be asked for messages.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Completion, Fault};

use super::{Ack, AckProgress, Delivery, Requirements};

/// How long a consumer waits before it asks again, if a store had no message for it and does not announce new ones.
pub const POLL: Duration = Duration::from_millis(2);

/// Bytes of messages that are sent or fetched at once at most, unless a single message is larger.
const ROOM: u32 = 8 << 20;

/// Messages that are loaded in one transaction.
const FILLING: u32 = 1000;

/// Messages that may be on their way to a consumer that reads the whole queue.
const BULK: u32 = 1000;

impl Requirements {
    /// The number of messages that may be sent or fetched at once: `messages`, or fewer where they are large.
    #[must_use]
    pub fn at_once(&self, messages: u32) -> u32 {
        messages.min(ROOM / self.message_bytes.max(1)).max(1)
    }

    /// The same requirements for a consumer that reads the whole queue: as many messages on their way at once as
    /// arrive without waiting, and as a store keeps for a slow reader.
    #[must_use]
    pub fn in_bulk(&self) -> Self {
        let prefetch = self.at_once(BULK);
        let batch = (prefetch / 2).max(1);
        Self { delivery: Delivery { batch, prefetch, ..self.delivery }, ..*self }
    }

    /// The same requirements with large transactions, for loading a backlog where a transaction is one request.
    #[must_use]
    pub fn in_transactions(&self) -> Self {
        let batch = self.at_once(FILLING);
        Self { delivery: Delivery { ack: Ack::Transaction, batch, in_flight: 1, ..self.delivery }, ..*self }
    }
}

/// Numbers the messages of a producer's connection as they end, in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageNumbers {
    next: u64,
}

impl MessageNumbers {
    /// Adds the next `messages` messages to `ended`, all with the same outcome, unless that is unknown.
    ///
    /// # Errors
    /// The outcome is unknown, or the attempt cost the connection.
    pub fn end(
        &mut self,
        messages: usize,
        attempt: Attempt,
        ended: &mut Vec<Completion>,
    ) -> Result<(), Fault> {
        let numbers = self.next..self.next + messages as u64;
        self.next = numbers.end;
        if let Attempt::Unknown(fault) = attempt {
            return Err(fault);
        }
        ended.extend(numbers.map(|number| Completion { number, attempt: attempt.clone() }));
        match attempt {
            Attempt::Failed(fault) if fault.connection_lost => Err(fault),
            _ => Ok(()),
        }
    }
}

/// The acknowledgements of a consumer's connection to a store that answers none of them. The store is asked something else
/// behind them: it reads in their order what it is sent, so that the answer shows that it has read them. One question is under
/// way at a time.
///
/// `P` is a place among all that is to be sent on the connection.
#[derive(Debug)]
pub struct SentAcks<P> {
    /// How many messages were acknowledged, in the order in which they were taken.
    acknowledged: u64,
    /// Acknowledgements that may not have been handed to the network: how many messages come before, and where each begins.
    unhanded: VecDeque<(u64, P)>,
    /// How many had been acknowledged when the question was asked whose answer is to come.
    asked: Option<u64>,
    read: u64,
}

impl<P: Copy> SentAcks<P> {
    /// A connection's, which has sent none.
    #[must_use]
    pub fn new() -> Self {
        Self { acknowledged: 0, unhanded: VecDeque::new(), asked: None, read: 0 }
    }

    /// Notes that an acknowledgement of the next `messages` messages begins here.
    pub fn begin(&mut self, messages: u64, place: P) {
        self.unhanded.push_back((self.acknowledged, place));
        self.acknowledged += messages;
    }

    /// Whether the store is to be asked now. To be sent behind all acknowledgements until then.
    pub fn ask(&mut self) -> bool {
        let asks = self.asked.is_none() && self.read < self.acknowledged;
        if asks {
            self.asked = Some(self.acknowledged);
        }
        asks
    }

    /// Notes that the store has answered.
    pub fn answered(&mut self) {
        self.read = self.asked.take().unwrap_or(self.read);
    }

    /// Notes that the store has answered something that was sent behind all acknowledgements.
    pub fn all_read(&mut self) {
        self.read = self.acknowledged;
    }

    /// How far they have come. `reached` says whether anything from a place on was handed to the network.
    pub fn progress(&mut self, reached: impl Fn(P) -> bool) -> AckProgress {
        while self.unhanded.front().is_some_and(|(_, place)| reached(*place)) {
            self.unhanded.pop_front();
        }
        let handed = self.unhanded.front().map_or(self.acknowledged, |(before, _)| *before);
        AckProgress { handed, read: self.read }
    }
}

impl<P: Copy> Default for SentAcks<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks for a message every [`POLL`], until the answer is anything but [`Attempt::Refused`] (there is no message)
/// or `patience` is over.
pub async fn poll(patience: Duration, mut ask: impl AsyncFnMut() -> Attempt) -> Attempt {
    let mut until = None;
    loop {
        let answer = ask().await;
        if answer != Attempt::Refused {
            return answer;
        }
        let now = Instant::now();
        if now + POLL > *until.get_or_insert(now + patience) {
            return answer;
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Parameters;

    #[test]
    fn messages_end_in_their_order() {
        let (mut numbers, mut ended) = (MessageNumbers::default(), Vec::new());
        let failed = Attempt::Failed(Fault::answered("full"));
        assert_eq!(numbers.end(2, Attempt::Ok, &mut ended), Ok(()));
        assert_eq!(numbers.end(1, failed.clone(), &mut ended), Ok(()));
        let expected = [(0, Attempt::Ok), (1, Attempt::Ok), (2, failed)];
        assert_eq!(ended, expected.map(|(number, attempt)| Completion { number, attempt }));
    }

    #[test]
    fn what_cost_the_connection_ends_the_messages_only_if_it_proves_something() {
        let fault = Fault::lost("gone");
        let (mut numbers, mut ended) = (MessageNumbers::default(), Vec::new());
        assert_eq!(numbers.end(1, Attempt::Unknown(fault.clone()), &mut ended), Err(fault.clone()));
        assert!(ended.is_empty());
        assert_eq!(numbers.end(1, Attempt::Failed(fault.clone()), &mut ended), Err(fault));
        assert_eq!(ended.len(), 1);
    }

    /// An answer speaks for what was acknowledged when its question was sent, and for nothing that came later.
    #[test]
    fn what_was_read_is_told_from_what_may_have_been_and_from_what_was_not_sent() {
        let mut acks = SentAcks::new();
        assert!(!acks.ask(), "there is nothing to ask about");
        acks.begin(2, 10);
        assert!(acks.ask() && !acks.ask());
        acks.begin(1, 20);
        acks.begin(4, 30);
        assert_eq!(acks.progress(|place| place < 25), AckProgress { handed: 3, read: 0 });
        acks.answered();
        assert_eq!(acks.progress(|_| false), AckProgress { handed: 3, read: 2 }, "what was handed stays so");
        acks.answered();
        assert_eq!(acks.progress(|_| true), AckProgress { handed: 7, read: 2 });
        assert!(acks.ask());
        acks.all_read();
        assert_eq!(acks.progress(|_| true), AckProgress { handed: 7, read: 7 });
    }

    #[test]
    fn large_messages_come_one_by_one() {
        let of = |message_bytes| Requirements { delivery: Parameters::default().delivery(), message_bytes };
        assert_eq!(of(128).at_once(500), 500);
        assert_eq!(of(1 << 20).at_once(500), 8);
        assert_eq!(of(1 << 28).at_once(500), 1);
        let filling = of(1 << 20).in_transactions();
        assert_eq!((filling.delivery.ack, filling.delivery.batch), (Ack::Transaction, 8));
        let in_bulk = |message_bytes| {
            let Delivery { batch, prefetch, .. } = of(message_bytes).in_bulk().delivery;
            (prefetch, batch)
        };
        assert_eq!([in_bulk(128), in_bulk(1 << 20), in_bulk(1 << 28)], [(1000, 500), (8, 4), (1, 1)]);
    }

    #[test]
    fn what_is_not_there_is_asked_for_again_until_patience_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let asked = |patience, there_at: u32| {
            let mut asked = 0;
            let ask = async || {
                asked += 1;
                if asked == there_at { Attempt::Ok } else { Attempt::Refused }
            };
            (runtime.block_on(poll(patience, ask)), asked)
        };
        assert_eq!(asked(Duration::ZERO, 2), (Attempt::Refused, 1));
        assert_eq!(asked(Duration::from_secs(5), 3), (Attempt::Ok, 3));
    }
}
