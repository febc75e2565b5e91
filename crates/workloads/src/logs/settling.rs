//! Waiting, once the last client has left, until what was acknowledged is stored.

use std::time::{Duration, Instant};

use acidtest_model::StoreError;

use super::{GatewayState, Ledger, LogsStore, Rows, http::Gateway};

/// How it is waited.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// How often it is looked whether the gateway's queue is empty.
    look: Duration,
    /// How long a broker's queue has to be seen empty.
    fresh: Duration,
    /// How long an acknowledged entry is waited for that no broker shows any more, and nobody has stored.
    quiet: Duration,
    /// Time between two looks at the store, while such an entry is waited for.
    again: Duration,
}

/// A gateway asks once a second how much waits in a broker. `RabbitMQ` gives back after a minute and a half what a consumer
/// holds whose connection is dead, NATS after half a minute, and a consumer of NATS that hands out nothing is made anew after
/// 45 s.
const PATIENCE: Patience = Patience {
    look: Duration::from_millis(20),
    fresh: Duration::from_secs(3),
    quiet: Duration::from_mins(3),
    again: Duration::from_secs(5),
};

/// How long it may take until what no queue shows is stored, or known to be lost.
pub(super) const LONGEST: Duration = Duration::from_mins(6);

/// What was found in the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// How the services stand, if they say so.
    pub(super) state: Option<GatewayState>,
    /// When, by what they say, the last entry was stored; or when an entry was found that had not been there before.
    pub(super) moved: Instant,
    /// Whether it was the same start of the same gateway that said so, all the time.
    pub(super) is_one: bool,
    /// How many entries were found.
    pub(super) saved: u64,
}

/// Why what is not stored may still be in a queue, where the services stand so.
pub(super) fn doubt(state: Option<GatewayState>) -> Option<&'static str> {
    match state {
        None => Some(
            "the gateway does not show whether they wait: unless it is on this machine, its /metrics are only for users \
             added with --operator",
        ),
        Some(GatewayState { waiting: 1.., .. }) => {
            Some("they may wait in the gateway's queue, which is not empty")
        }
        Some(_) => None,
    }
}

/// A trial whose last client has left.
pub(super) struct Settling<'a> {
    /// The gateway and the collector, as far as there are any.
    services: Vec<&'a Gateway>,
    /// Whether entries may be on their way that no queue shows.
    has_hidden: bool,
    /// Whether the gateway is not the trial's own: it may have entries of others, and need not say what it has.
    has_others: bool,
    patience: Patience,
    /// How much was stored, and when that was last seen to change.
    moved: (u64, Instant),
    /// Which start of which gateway has said so, and whether it was another one before.
    instance: Option<u64>,
    is_one: bool,
}

impl<'a> Settling<'a> {
    pub(super) fn new(services: Vec<&'a Gateway>, has_hidden: bool, has_others: bool) -> Self {
        let (moved, instance) = ((0, Instant::now()), None);
        Self { services, has_hidden, has_others, patience: PATIENCE, moved, instance, is_one: true }
    }

    /// Waits until no queue holds anything, and reads what is stored into the ledger: over and over, as long as acknowledged
    /// entries are missing that may still come.
    ///
    /// # Errors
    /// The store's own.
    pub(super) async fn read(
        mut self,
        ledger: &Ledger,
        store: &dyn LogsStore,
        rows: &Rows,
    ) -> Result<Settled, StoreError> {
        let (mut saved, mut quiet) = (0, Instant::now());
        let mut is_again = false;
        loop {
            let state = self.drained().await;
            let read = Instant::now();
            if is_again {
                ledger.forget_found();
            }
            store.entries(rows, &mut |entry| ledger.found(entry)).await?;
            let totals = ledger.totals();
            if totals.saved > saved {
                (saved, quiet) = (totals.saved, read);
                if is_again {
                    self.moved.1 = self.moved.1.max(read);
                }
            }
            // no broker shows what a collector holds that was killed: it comes back
            if totals.lost == 0 || !self.has_hidden || quiet.elapsed() >= self.patience.quiet {
                return Ok(Settled { state, moved: self.moved.1, is_one: self.is_one, saved });
            }
            is_again = true;
            tokio::time::sleep(self.patience.again).await;
        }
    }

    /// Waits until the queue is seen to be empty. The services may be on their way back; how long they may take is for the
    /// runner to say. A gateway that has entries of others is not waited for.
    async fn drained(&mut self) -> Option<GatewayState> {
        let fresh = if self.has_hidden { self.patience.fresh } else { Duration::ZERO };
        let (begun, mut empty) = (Instant::now(), None);
        loop {
            let (state, now) = (self.state().await, Instant::now());
            match &state {
                Ok(state) => {
                    self.is_one &= *self.instance.get_or_insert(state.instance) == state.instance;
                    let stored = state.stored + state.repeated;
                    if self.moved.0 != stored {
                        self.moved = (stored, now);
                    }
                    if state.waiting > 0 {
                        empty = None;
                    } else if now.duration_since(*empty.get_or_insert(now)) >= fresh {
                        return Some(*state);
                    }
                }
                Err(_) => empty = None,
            }
            if self.has_others && begun.elapsed() >= fresh {
                return state.ok();
            }
            tokio::time::sleep(self.patience.look).await;
        }
    }

    /// How all of them stand together.
    async fn state(&self) -> Result<GatewayState, StoreError> {
        let mut all = GatewayState::default();
        for service in &self.services {
            all = all.and(service.state().await?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::{
        Place, Verdict,
        logs::{Entry, Id, StoredState, audit, double, ledger::Ending},
    };

    /// A gateway that says how many messages wait, over and over; none where it does not say.
    fn gateway(waiting: impl Fn(u32) -> Option<u64> + Send + 'static) -> Gateway {
        let mut asked = 0;
        double::gateway(move |_| {
            let said = waiting(asked).map(|waiting| {
                format!(
                    "acidtest_gateway_queue_messages {waiting}\nacidtest_gateway_entries_stored_total {asked}\n\
                     acidtest_gateway_entries_acknowledged_total 2\n\
                     acidtest_gateway_entries_repeated_total 0\n"
                )
            });
            asked += 1;
            said.map_or_else(|| (403, String::new()), |said| (200, said))
        })
    }

    /// The verdict, what is lost, and how often the store was looked at, of two acknowledged entries of which the second
    /// comes late; none if it is waited for without end.
    fn judged(
        gateway: &Gateway,
        has_hidden: bool,
        has_others: bool,
        comes_at: u64,
    ) -> Option<(Verdict, u64, u64)> {
        let ledger = Ledger::new(1, Instant::now());
        for sequence in 0..2 {
            let id = || std::iter::once(Id { client: 0, sequence });
            ledger.sending(id());
            ledger.ended(id(), Ending::Acknowledged);
        }
        let millis = Duration::from_millis;
        let patience = Patience { look: millis(1), fresh: millis(10), quiet: millis(300), again: millis(10) };
        let settling = Settling { patience, ..Settling::new(vec![gateway], has_hidden, has_others) };
        let store = double::Store::new(|look, _: &Rows| {
            let has_come = comes_at > 0 && look >= comes_at;
            let stored = 0..if has_come { 2 } else { 1 };
            Ok(stored.map(|sequence| Entry::new("", Id { client: 0, sequence }, 7, 50)).collect())
        });
        let rows = store.rows(&Place { namespace: "x".to_owned(), trial: 1 });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let Settled { state, .. } = runtime.block_on(async {
            let read = settling.read(&ledger, &store, &rows);
            Some(tokio::time::timeout(Duration::from_secs(1), read).await.ok()?.unwrap())
        })?;
        let audit = audit(&ledger, &Ok(StoredState { doubt: doubt(state), ..StoredState::default() }));
        Some((audit.verdict, audit.count("lost"), store.looks.load(SeqCst)))
    }

    /// What comes back from a killed collector is waited for, and nothing is found twice because the store is read again.
    #[test]
    fn what_comes_late_out_of_a_broker_is_not_lost() {
        assert_eq!(judged(&gateway(|_| Some(0)), true, false, 4), Some((Verdict::Holds, 0, 4)));
    }

    #[test]
    fn what_never_comes_is_lost() {
        let (verdict, lost, looks) = judged(&gateway(|_| Some(0)), true, false, 0).unwrap();
        assert_eq!((verdict, lost), (Verdict::Broken, 1));
        assert!(looks > 2, "{looks}");
        // a queue of the gateway's own says by itself when it is empty
        assert_eq!(judged(&gateway(|_| Some(0)), false, false, 0), Some((Verdict::Broken, 1, 1)));
    }

    /// A broker's queue that was seen empty for a moment is not taken for empty, and one that is not is waited for.
    #[test]
    fn a_queue_that_is_not_empty_is_waited_for() {
        let in_between = |asked: u32| Some(u64::from(asked < 40 && asked != 5));
        assert_eq!(judged(&gateway(in_between), true, false, 1), Some((Verdict::Holds, 0, 1)));
        for never in [|_| Some(1), |_| None] as [fn(u32) -> Option<u64>; 2] {
            for has_hidden in [true, false] {
                assert_eq!(judged(&gateway(never), has_hidden, false, 0), None);
            }
        }
    }

    /// A gateway that runs already may have entries of others in its queue, or not say what it has: what is stored is known
    /// all the same, and what is not is not called lost.
    #[test]
    fn a_gateway_with_others_is_not_waited_for() {
        for says in [|_| Some(7), |_| None] as [fn(u32) -> Option<u64>; 2] {
            assert_eq!(judged(&gateway(says), true, true, 3), Some((Verdict::Holds, 0, 3)));
            let (verdict, lost, _) = judged(&gateway(says), true, true, 0).unwrap();
            assert_eq!((verdict, lost), (Verdict::Unknown, 0));
        }
    }
}
