//! The findings that follow once the queue is empty and the store was read.

use std::time::Duration;

use acidtest_model::{StoreError, count};

use super::{Ledger, ledger::Totals};
use crate::{Audit, DURABILITY, Finding, guarantee::INTEGRITY};

/// What was found once the last client had left, and the store's table was read into the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredState {
    /// How many repeats were suppressed, where that is known.
    pub suppressed: Option<u64>,
    /// How long it took until everything was stored, counted from the first request and from the last acknowledgement;
    /// none if nothing was acknowledged.
    pub took: Option<(Duration, Duration)>,
    /// Why what is not stored may still come; none if it is lost.
    pub doubt: Option<&'static str>,
}

/// Compares what was acknowledged with what is stored.
///
/// Every acknowledged entry must be stored, once, as it was sent. No entry may be stored that was proved not to have been
/// taken, or that nobody sent. An entry that was given up proves nothing either way. While entries wait in the gateway's
/// queue, or where the table could not be read, nothing is called lost, and the verdict is unknown.
#[must_use]
pub fn audit(ledger: &Ledger, read: &Result<StoredState, StoreError>) -> Audit {
    let totals = ledger.totals();
    let doubt = doubt(&totals, read);
    let lost = if doubt.is_some() { 0 } else { totals.lost };
    let findings = vec![
        Finding::new("lost", lost, "entries", DURABILITY).or_loss(),
        Finding::new("duplicated", totals.duplicated, "entries", INTEGRITY),
        Finding::new("phantom", totals.phantom, "entries", INTEGRITY),
        Finding::new("foreign", totals.foreign, "entries", INTEGRITY),
        Finding::new("torn", totals.torn, "entries", INTEGRITY),
    ];
    let mut evidence = vec![
        ("sent", totals.offered),
        ("acknowledged", totals.acknowledged),
        ("refused", totals.refused),
        ("given_up", totals.given_up),
        ("not_sent", totals.failed),
        ("most_clients", totals.most_clients),
    ];
    if let Ok(StoredState { suppressed, took, .. }) = read {
        evidence.push(("saved", totals.saved));
        evidence.extend(suppressed.map(|repeats| ("suppressed", repeats)));
        evidence.push(("not_saved", totals.offered.saturating_sub(totals.saved)));
        if doubt.is_none() {
            evidence.push(("lost", totals.lost));
        }
        if let (Some((since_first, since_last)), None) = (took, &doubt) {
            let rate = totals.saved as f64 / since_first.as_secs_f64().max(1e-3);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate, far below the limit"
            )]
            evidence.extend([
                ("saved_per_second", rate.round() as u64),
                ("stored_after_ms", u64::try_from(since_last.as_millis()).unwrap_or(u64::MAX)),
            ]);
        }
    }
    Audit::of(findings, doubt, evidence)
}

/// Why lost entries cannot be told from those still on their way; none if they can.
fn doubt(totals: &Totals, read: &Result<StoredState, StoreError>) -> Option<String> {
    match read {
        Err(error) => Some(error.to_string()),
        Ok(_) if totals.acknowledged == 0 => Some("no entry was acknowledged".to_owned()),
        // all of them are stored, whatever else waits
        Ok(_) if totals.lost == 0 => None,
        Ok(StoredState { doubt: Some(why), .. }) => {
            Some(format!("{} acknowledged entries are not stored: {why}", count(totals.lost)))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Verdict,
        logs::{
            Entry, Id, StoredEntry,
            ledger::Ending::{self, Acknowledged, Failed, GivenUp, Refused},
        },
        trial::TrialLedger,
    };

    /// What may become of an entry: how it ended, how often it is stored, whether it is changed, and the finding.
    const FATES: [(Option<Ending>, u32, bool, &str); 13] = [
        (Some(Acknowledged), 1, false, ""),
        (Some(GivenUp), 0, false, ""),
        (Some(GivenUp), 1, false, ""),
        (Some(Refused), 0, false, ""),
        (Some(Failed), 0, false, ""),
        (Some(Acknowledged), 0, false, "lost"),
        (Some(Acknowledged), 2, false, "duplicated"),
        (Some(GivenUp), 2, false, "duplicated"),
        (Some(Refused), 1, false, "phantom"),
        (Some(Failed), 1, false, "phantom"),
        (None, 1, false, "foreign"),
        (Some(Acknowledged), 1, true, "torn"),
        (Some(GivenUp), 1, true, "torn"),
    ];

    const DRAINED: Result<StoredState, StoreError> = Ok(StoredState {
        suppressed: Some(0),
        took: Some((Duration::from_secs(2), Duration::from_millis(30))),
        doubt: None,
    });

    fn one(client: u32, sequence: u64) -> impl Iterator<Item = Id> {
        std::iter::once(Id { client, sequence })
    }

    fn happen(ledger: &Ledger, client: u32, sequence: u64, fate: usize) -> &'static str {
        let (ending, stored, is_changed, finding) = FATES[fate];
        if let Some(ending) = ending {
            ledger.sending(one(client, sequence));
            ledger.ended(one(client, sequence), ending);
        }
        let entry = Entry::new("", Id { client, sequence }, 7, 100);
        let timestamp = if is_changed { 8 } else { 7 };
        for _ in 0..stored {
            ledger.found(&StoredEntry { timestamp, ..entry.stored() });
        }
        finding
    }

    proptest! {
        /// Every kind of damage is counted, by its own finding, and nothing else is.
        #[test]
        fn each_fate_has_its_finding(
            fates in proptest::collection::vec((0_u32..5, 0_usize..FATES.len()), 1..60), is_spread: bool,
        ) {
            let ledgers = [Ledger::new(5, Instant::now()), Ledger::new(5, Instant::now())];
            let mut expected = std::collections::BTreeMap::from([("", 0)]);
            // an entry without which nothing was acknowledged
            happen(&ledgers[0], 0, 0, 0);
            for (place, (client, fate)) in fates.iter().enumerate() {
                // what is stored is found by the one that judges
                let ledger = &ledgers[0];
                *expected.entry(happen(ledger, *client, place as u64 + 1, *fate)).or_default() += 1;
            }
            if is_spread {
                let written = ledgers[1].written().unwrap();
                ledgers[0].merge(&written, true).unwrap();
            }
            let audit = audit(&ledgers[0], &DRAINED);
            for finding in &audit.findings {
                let count = expected.get(finding.name.as_str()).copied().unwrap_or(0);
                prop_assert_eq!(finding.count, count, "{}: {}", finding.name, audit);
            }
            let is_sound = expected.len() == 1;
            prop_assert_eq!(audit.verdict, if is_sound { Verdict::Holds } else { Verdict::Broken });
        }

        /// What other processes have sent is held against what is stored as if this one had sent it.
        #[test]
        fn ledgers_of_processes_add_up(fates in proptest::collection::vec(0_usize..FATES.len(), 2..40)) {
            let origin = Instant::now();
            let (alone, parts) = (Ledger::new(2, origin), [0, 1].map(|_| Ledger::new(2, origin)));
            let judge = Ledger::new(2, origin);
            let send = |ledger: &Ledger, id: Id, fate: usize| {
                if let (Some(ending), ..) = FATES[fate] {
                    ledger.sending(std::iter::once(id));
                    ledger.ended(std::iter::once(id), ending);
                }
            };
            for (place, fate) in fates.iter().enumerate() {
                let id = Id { client: u32::try_from(place % 2).unwrap(), sequence: place as u64 / 2 };
                send(&alone, id, *fate);
                send(&parts[place % 2], id, *fate);
            }
            for part in &parts {
                judge.merge(&part.written().unwrap(), true).unwrap();
            }
            for (place, fate) in fates.iter().enumerate() {
                let entry = Entry::new("", Id { client: u32::try_from(place % 2).unwrap(), sequence: place as u64 / 2 }, 7, 90);
                for _ in 0..FATES[*fate].1 {
                    alone.found(&entry.stored());
                    judge.found(&entry.stored());
                }
            }
            prop_assert_eq!(judge.totals(), alone.totals());
        }
    }

    #[test]
    fn while_entries_wait_nothing_is_lost() {
        let ledger = Ledger::new(1, Instant::now());
        happen(&ledger, 0, 0, 5);
        let waits = Ok(StoredState { doubt: Some("they wait"), ..StoredState::default() });
        let judged = audit(&ledger, &waits);
        assert_eq!((judged.verdict, judged.count("lost")), (Verdict::Unknown, 0));
        assert!(!judged.evidence.contains_key("lost"), "{judged}");
        let error = StoreError::Server {
            doing: "reading".to_owned(),
            address: "x".to_owned(),
            cause: "gone".to_owned(),
        };
        assert_eq!(audit(&ledger, &Err(error)).verdict, Verdict::Unknown);
        assert_eq!(audit(&ledger, &DRAINED).count("lost"), 1);
    }

    /// A broker may have taken what it refuses.
    #[test]
    fn a_doubtful_refusal_proves_nothing() {
        let ledger = Ledger::new(1, Instant::now()).with_doubtful_refusals();
        happen(&ledger, 0, 0, 0);
        for (sequence, stored) in [(1, 0), (2, 1)] {
            ledger.sending(one(0, sequence));
            ledger.ended(one(0, sequence), Refused);
            for _ in 0..stored {
                ledger.found(&Entry::new("", Id { client: 0, sequence }, 7, 100).stored());
            }
        }
        let judged = audit(&ledger, &DRAINED);
        assert_eq!((judged.verdict, judged.evidence["refused"]), (Verdict::Holds, 2), "{judged}");
    }

    /// Entries of others may wait in the queue of a gateway that is not the trial's own.
    #[test]
    fn what_is_stored_does_not_wait() {
        let ledger = Ledger::new(1, Instant::now());
        happen(&ledger, 0, 0, 0);
        let waits = Ok(StoredState { doubt: Some("they wait"), ..StoredState::default() });
        assert_eq!(audit(&ledger, &waits).verdict, Verdict::Holds);
    }

    #[test]
    fn silence_is_no_success() {
        let ledger = Ledger::new(1, Instant::now());
        assert_eq!(audit(&ledger, &DRAINED).verdict, Verdict::Unknown);
        happen(&ledger, 0, 0, 1);
        assert_eq!(audit(&ledger, &DRAINED).verdict, Verdict::Unknown);
    }

    #[test]
    fn most_clients_are_those_at_once() {
        let ledger = Ledger::new(3, Instant::now());
        ledger.come();
        ledger.come();
        ledger.leave();
        ledger.come();
        assert_eq!(ledger.totals().most_clients, 2);
    }
}
