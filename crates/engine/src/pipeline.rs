//! The loop of a client with several operations in flight.

use std::collections::VecDeque;

use crate::{Attempt, ClientDriver, Completion, Fault, Outcome, Pipeline, load::Phase, recorder::RetryCost};

struct InFlight<O> {
    operation: O,
    due: u64,
    start: u64,
}

/// The operations in flight on one connection, by number.
struct Flight<O> {
    /// The number of the first operation in `sent`.
    first: u64,
    /// An operation that has ended while an earlier one is still in flight is `None`.
    sent: VecDeque<Option<InFlight<O>>>,
    count: usize,
}

impl<O> Flight<O> {
    fn new() -> Self {
        Self { first: 0, sent: VecDeque::new(), count: 0 }
    }

    fn add(&mut self, sent: InFlight<O>) {
        self.sent.push_back(Some(sent));
        self.count += 1;
    }

    /// Takes out the operation with this number; `None` if no such operation is in flight.
    fn take(&mut self, number: u64) -> Option<InFlight<O>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let taken = self.sent.get_mut(index)?.take()?;
        self.count -= 1;
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first += 1;
        }
        Some(taken)
    }

    /// When the oldest operation in flight was sent, in nanoseconds of the trial's clock.
    fn oldest(&self) -> Option<u64> {
        self.sent.front()?.as_ref().map(|sent| sent.start)
    }

    /// Takes out all operations in flight; the next one is numbered 0 again.
    fn clear(&mut self) -> impl Iterator<Item = InFlight<O>> + use<O> {
        std::mem::replace(self, Self::new()).sent.into_iter().flatten()
    }
}

/// The next step of the loop.
enum Step {
    /// Send the operation that was due at this moment; the flag says whether it is late.
    Send(u64, bool),
    /// Wait for an operation to end, at most until this moment.
    Settle(u64),
    /// Wait for this moment: nothing is in flight.
    Sleep(u64),
    /// Nothing is left to do.
    End,
}

impl ClientDriver {
    /// Drives a client with several operations in flight through warm-up and measurement.
    pub async fn drive_pipeline<P: Pipeline>(mut self, mut client: P) {
        self.first(client.connect()).await;
        let mut flight = Flight::new();
        self.pipe(&mut client, &mut flight, Phase::WarmUp).await;
        self.pipe(&mut client, &mut flight, Phase::Measured).await;
        self.end_schedule();
        self.last_words(client.finish()).await;
        self.look(client.check()).await;
    }

    async fn pipe<P: Pipeline>(&mut self, client: &mut P, flight: &mut Flight<P::Operation>, phase: Phase) {
        self.enter(phase).await;
        let mut ended = Vec::new();
        // the operation that is claimed and not yet sent, and whether it was late already: there was no room when
        // it was due
        let mut due: Option<(u64, bool)> = None;
        let mut over = false;
        let mut is_drawn_out = false;
        // since when something has been in flight
        let mut busy_since = None;
        let mut now = self.now();
        let mut slice = now;
        loop {
            over |= self.stopping() || self.is_spent();
            let is_tired = self.is_tired(busy_since.map_or(0, |since| now.saturating_sub(since)));
            if is_tired && flight.count == 0 && !over {
                self.rest().await;
                now = self.now();
                continue;
            }
            // a batch that is begun becomes as large as it is to be
            let pauses = is_tired && client.settles_early();
            if !over && !pauses && due.is_none() && flight.count < client.depth() {
                due = self.claim(now).map(|due| (due, due < now));
                over = due.is_none();
            }
            let room = flight.count < client.depth();
            let step = match due {
                Some((due, late)) if !over && room && due <= now => Step::Send(due, late),
                Some((due, _)) if !over && room && flight.count == 0 => Step::Sleep(due),
                Some((due, _)) if !over && room && client.settles_early() => Step::Settle(due),
                Some((due, _)) if !over && room => Step::Sleep(due),
                _ if flight.count > 0 => Step::Settle(u64::MAX),
                _ => Step::End,
            };
            let done = match step {
                Step::Send(moment, late) => {
                    due = None;
                    if !self.take_turn() {
                        over = true;
                        continue;
                    }
                    let Some(operation) = client.draw() else {
                        self.done(phase);
                        (over, is_drawn_out) = (true, true);
                        continue;
                    };
                    let start = self.now();
                    let deadline = start.saturating_add(self.timeout());
                    self.started(phase, late);
                    let sent = self.guard(client.send(&operation), deadline).await;
                    if flight.count == 0 {
                        busy_since = Some(start);
                    }
                    flight.add(InFlight { operation, due: moment, start });
                    sent.unwrap_or_else(|| Err(Fault::lost(self.no_answer(deadline))))
                }
                Step::Settle(until) => {
                    // an operation that waits for the rest of its batch is not on its way until the batch is
                    // settled
                    let since = if client.settles_early() { flight.oldest().unwrap_or(now) } else { now };
                    let deadline = since.saturating_add(self.timeout());
                    let settled = self.guard_until(client.settle(&mut ended), until, deadline).await;
                    settled.unwrap_or_else(|| {
                        if self.now() >= deadline || self.abandoned() || self.is_cut() {
                            Err(Fault::lost(self.no_answer(deadline)))
                        } else {
                            Ok(())
                        }
                    })
                }
                Step::Sleep(moment) => {
                    self.wait_for_turn(moment).await;
                    Ok(())
                }
                Step::End if is_drawn_out => break,
                Step::End => {
                    self.sit_out().await;
                    break;
                }
            };
            let end = self.now();
            for Completion { number, attempt } in ended.drain(..) {
                let outcome = self.outcome(attempt);
                if let Some(sent) = flight.take(number) {
                    self.settled(client, sent, outcome, end, phase);
                }
            }
            if let Err(fault) = done {
                self.note(&fault);
                self.interrupted(flight.count);
                for sent in flight.clear() {
                    self.settled(client, sent, Outcome::Unknown, end, phase);
                }
                self.reconnect(async || client.connect().await).await;
            }
            if flight.count == 0
                && let Some(since) = busy_since.take()
            {
                self.worked(end.saturating_sub(since));
            }
            slice = self.give_way(slice, end).await;
            // reading the clock is a large part of the cost of a message, so the last reading is used again
            now = end.max(slice);
        }
    }

    fn outcome(&mut self, attempt: Attempt) -> Outcome {
        match attempt {
            Attempt::Ok => Outcome::Ok,
            Attempt::Refused => Outcome::Refused,
            Attempt::Conflict => Outcome::Conflict,
            Attempt::Failed(fault) => {
                self.note(&fault);
                Outcome::Failed
            }
            Attempt::Unknown(fault) => {
                self.note(&fault);
                Outcome::Unknown
            }
        }
    }

    fn settled<P: Pipeline>(
        &mut self,
        client: &mut P,
        sent: InFlight<P::Operation>,
        outcome: Outcome,
        end: u64,
        phase: Phase,
    ) {
        let InFlight { operation, due, start } = sent;
        let kind = P::kind(&operation);
        client.account(operation, outcome);
        if phase == Phase::Measured {
            self.record(kind, outcome, due, (start, end), RetryCost::default());
            if outcome == Outcome::Ok {
                self.changed(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(operation: u32) -> InFlight<u32> {
        InFlight { operation, due: 0, start: u64::from(operation) }
    }

    #[test]
    fn what_ends_out_of_order_is_found_by_its_number() {
        let mut flight = Flight::new();
        (0..4).for_each(|operation| flight.add(sent(operation)));
        assert_eq!(flight.take(1).map(|sent| sent.operation), Some(1));
        assert_eq!((flight.count, flight.oldest()), (3, Some(0)));
        assert_eq!(flight.take(0).map(|sent| sent.operation), Some(0));
        assert_eq!((flight.count, flight.oldest()), (2, Some(2)));
        // never sent, or ended already
        assert!(flight.take(0).is_none() && flight.take(1).is_none() && flight.take(4).is_none());
        flight.add(sent(4));
        assert_eq!(flight.take(4).map(|sent| sent.operation), Some(4));
        assert_eq!(flight.clear().map(|sent| sent.operation).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((flight.count, flight.first), (0, 0));
    }
}
