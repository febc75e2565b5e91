//! The findings that the ledger proves once the queue is empty.

use acidtest_model::{StoreError, count};

use super::{
    Depth,
    delivery::DELIVERY,
    ledger::{Ledger, PublishState, Totals},
};
use crate::{
    Audit, Finding,
    guarantee::{ATOMICITY, INTEGRITY, ORDER},
    moments::oldest_lost,
};

/// The name of the finding that a message which was acknowledged as published was never consumed.
pub(super) const LOST: &str = "lost";

/// The name of the evidence that says how many messages were lost at a crash that kept a later one of the same producer.
pub const HOLES: &str = "lost_before_kept";

/// The name of the evidence that says how many of the lost messages a consumer had been handed and had not acknowledged.
pub const IN_HAND: &str = "lost_in_hand";

/// The name of the evidence that says how many messages nobody knows to have been consumed: they never came again after an
/// acknowledgement that the store may have had or not.
pub const DOUBTFUL: &str = "doubtfully_consumed";

/// Compares the published with the consumed messages, once the queue is drained.
///
/// Every acknowledged message must have been consumed at least once: handed out, and acknowledged by a consumer if consumers
/// acknowledge. What a lost consumer held must come again; if the store may have its acknowledgement, it need not. No message may have been consumed that was
/// never sent, or that was proved not to have been published. No message's acknowledgement may have been answered
/// twice, and none may have come again without the store's flag that it may have been delivered before, where a
/// store has such a flag. An unanswered publish proves nothing either way. Messages that are still in the queue are
/// not lost: unless the queue is empty, lost messages are not counted and the verdict is unknown.
#[must_use]
pub fn audit(ledger: &Ledger, drained: Result<Depth, StoreError>) -> Audit {
    judge(ledger, |totals, left| doubt(totals, left, drained))
}

/// The same of a queue that is empty, and out of which the store itself has taken messages, as these words say: they are not told
/// from lost ones.
#[must_use]
pub(super) fn audit_with_dropped(ledger: &Ledger, dropped: &str) -> Audit {
    judge(ledger, |_, left| {
        let (lost, were) = (count(left.lost), if left.lost == 1 { "message was" } else { "messages were" });
        Some(format!("{lost} {were} never consumed, and {dropped}"))
    })
}

fn judge(ledger: &Ledger, doubt: impl FnOnce(&Totals, &MessageCounts) -> Option<String>) -> Audit {
    let totals = ledger.totals();
    let [duplicated, reordered] = ledger.within_epoch();
    let [duplicated_between, reordered_between] = ledger.between();
    let mut left = MessageCounts::default();
    for entry in ledger.entries() {
        left.lost += u64::from(entry.is_lost());
        left.in_hand += u64::from(entry.was_lost_in_hand());
        left.doubtful += u64::from(entry.is_doubtful());
        left.consumed += u64::from(entry.is_consumed());
        left.indeterminate += u64::from(entry.published() == PublishState::Sent && !entry.was_delivered());
        // never sent: told only by a process that did not know what the producers of others sent
        let not_published = matches!(entry.published(), PublishState::Failed | PublishState::Never);
        left.phantom += u64::from(not_published && entry.was_delivered());
    }
    let doubt = doubt(&totals, &left);
    let lost = if doubt.is_some() { 0 } else { left.lost };
    let findings = vec![
        Finding::new(LOST, lost, "messages", DELIVERY).or_loss(),
        Finding::new("duplicated", totals.duplicated, "deliveries", INTEGRITY)
            .or_loss()
            .within_epoch(duplicated)
            .between(duplicated_between),
        Finding::new("phantom", totals.foreign + left.phantom, "messages", INTEGRITY),
        Finding::new("torn", totals.torn, "messages", ATOMICITY),
        Finding::new("reordered", totals.reordered, "deliveries", ORDER)
            .or_loss()
            .within_epoch(reordered)
            .between(reordered_between),
    ];
    let evidence = [
        ("acknowledged_publishes", totals.published),
        ("unknown_publishes", totals.unknown),
        ("failed_publishes", totals.failed),
        ("indeterminate_messages", left.indeterminate),
        ("consumed_messages", totals.delivered),
        ("redelivered", totals.redelivered),
        ("not_consumed", left.lost),
    ];
    let in_hand = (lost > 0).then_some((IN_HAND, left.in_hand));
    let doubtful = (left.doubtful > 0).then_some((DOUBTFUL, left.doubtful));
    let (oldest, holes) = match lost {
        0 => (None, None),
        _ => (oldest_lost(ledger.oldest_lost()), ledger.holes().map(|holes| (HOLES, holes))),
    };
    Audit::of(findings, doubt, evidence.into_iter().chain(doubtful).chain(in_hand).chain(oldest).chain(holes))
}

/// Why lost messages cannot be told from those still on their way; `None` if they can.
fn doubt(totals: &Totals, left: &MessageCounts, drained: Result<Depth, StoreError>) -> Option<String> {
    match drained {
        Err(error) => Some(error.to_string()),
        Ok(left @ Depth { ready, unacknowledged }) if left != Depth::default() => Some(format!(
            "the queue may not be empty: {ready} messages are ready, {unacknowledged} unacknowledged or with that many \
             consumers"
        )),
        Ok(_) if totals.published == 0 => Some("no publish was acknowledged".to_owned()),
        Ok(_) if left.doubtful > 0 && left.consumed + left.lost == 0 => Some(
            "for no message is it known whether the store received its consumer's acknowledgement".to_owned(),
        ),
        Ok(_) => None,
    }
}

#[derive(Default)]
struct MessageCounts {
    lost: u64,
    in_hand: u64,
    doubtful: u64,
    consumed: u64,
    indeterminate: u64,
    phantom: u64,
}

#[cfg(test)]
mod tests {
    use acidtest_engine::Part;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Boundary, Verdict,
        queue::{
            AckAnswer,
            message::{Id, LOADED},
        },
    };

    /// The possible fates of a message, and the findings that each must lead to.
    const FATES: [(&str, &str); 31] = [
        ("sent ok fresh settled", ""),
        ("sent ok fresh acked", ""),
        ("sent ok fresh flagged acked", ""),
        ("sent ok fresh handed", ""),
        ("sent ok fresh handed flagged", ""),
        ("sent ok fresh handed flagged settled", ""),
        ("sent ok unflagged settled unflagged handed", ""),
        ("sent ok unflagged handed unflagged acked", ""),
        ("sent ok unflagged acked unflagged", ""),
        ("sent unknown fresh", ""),
        ("sent ok fresh", "lost"),
        ("sent ok fresh flagged", "lost"),
        ("sent ok unflagged unflagged", "lost"),
        ("sent fresh settled ok", ""),
        ("sent ok fresh flagged settled", ""),
        ("sent ok unflagged settled unflagged", ""),
        ("sent unknown", ""),
        ("sent unknown fresh settled", ""),
        ("sent flagged unknown flagged", ""),
        ("sent failed", ""),
        ("sent ok", "lost"),
        ("sent ok torn", "lost torn"),
        ("sent unknown torn", "torn"),
        ("sent ok fresh settled flagged settled", "duplicated"),
        ("sent ok fresh fresh settled settled", "duplicated"),
        ("sent unknown unflagged settled unflagged settled", "duplicated"),
        ("sent ok flagged fresh fresh settled", "duplicated"),
        ("sent failed fresh settled", "phantom"),
        ("sent fresh fresh failed", "phantom duplicated"),
        ("fresh settled", "phantom"),
        ("sent ok fresh late settled", "reordered"),
    ];

    fn tell(ledger: &Ledger, id: Id, event: &str) {
        match event {
            "sent" => ledger.sending(id),
            "ok" => ledger.published(id, PublishState::Ok),
            "unknown" => ledger.published(id, PublishState::Sent),
            "failed" => ledger.published(id, PublishState::Failed),
            "fresh" => _ = ledger.delivered(id, Some(false)),
            "flagged" => _ = ledger.delivered(id, Some(true)),
            "unflagged" => _ = ledger.delivered(id, None),
            "settled" => ledger.acknowledged([id], AckAnswer::Answered),
            "acked" => ledger.acknowledged([id], AckAnswer::Read),
            "handed" => ledger.acknowledged([id], AckAnswer::Sent),
            "torn" => ledger.torn(),
            "late" => ledger.reordered(id, Some(false)),
            other => panic!("{other}"),
        }
    }

    /// A ledger of messages with these fates, each of the given producer. Their events alternate.
    fn ledger(messages: &[(u32, &str)]) -> Ledger {
        let ledger = Ledger::new(3, messages.len() as u64);
        for step in 0..6 {
            for (sequence, (producer, fate)) in (0..).zip(messages) {
                let id = Id { producer: *producer, sequence };
                fate.split(' ').skip(step).take(1).for_each(|event| tell(&ledger, id, event));
            }
        }
        ledger
    }

    fn gone() -> StoreError {
        StoreError::Server { doing: "emptying".into(), address: "x".into(), cause: "gone".into() }
    }

    proptest! {
        /// Each kind of damage is found as often as it was done; correct and unanswered messages add nothing to it.
        #[test]
        fn damage_is_found_with_its_count(
            messages in prop::collection::vec(
                (prop::sample::select(vec![0, 2, LOADED]), prop::sample::select(&FATES[..])),
                1..30,
            ),
        ) {
            let fates: Vec<_> = messages.iter().map(|(producer, (fate, _))| (*producer, *fate)).collect();
            let ledger = ledger(&fates);
            let judged = audit(&ledger, Ok(Depth::default()));
            // where the queue cannot be drained, every finding but the lost messages stands
            let undrained = audit(&ledger, Err(gone()));
            let mut broken = false;
            for Finding { name, count, .. } in &judged.findings {
                let names = messages.iter().flat_map(|(_, (_, names))| names.split(' '));
                prop_assert_eq!(names.filter(|each| each == name).count() as u64, *count, "{}", name);
                prop_assert_eq!(undrained.count(name), if name == "lost" { 0 } else { *count });
                broken |= *count > 0;
            }
            let is_ok = |fate: &&&str| fate.split(' ').any(|event| event == "ok");
            let is_known = |fate: &&&str| fate.contains("settled") || fate.contains("acked");
            let (known, others): (Vec<&&str>, Vec<&&str>) =
                fates.iter().map(|(_, fate)| fate).filter(is_ok).partition(is_known);
            let doubtful = i64::try_from(others.iter().filter(|fate| fate.contains("handed")).count()).unwrap();
            prop_assert_eq!(judged.evidence.get(DOUBTFUL).copied().unwrap_or(0), doubtful);
            let verdict = match (broken, ledger.totals().published) {
                (true, _) => Verdict::Broken,
                (false, 0) => Verdict::Unknown,
                (false, _) if known.is_empty() => Verdict::Unknown,
                (false, _) => Verdict::Holds,
            };
            prop_assert_eq!(judged.verdict, verdict);
        }

        /// Clients of two processes find together what those of one find, whichever of them has which part in a
        /// message's fate.
        #[test]
        fn damage_is_found_by_clients_of_several_processes(
            messages in prop::collection::vec(
                (
                    prop::sample::select(vec![0, 1, 2, LOADED]),
                    prop::sample::select(&FATES[..]),
                    prop::array::uniform3(0..2_usize),
                ),
                1..30,
            ),
        ) {
            let parts = Part::deal(5, 2, 2);
            let whole = Ledger::new(3, messages.len() as u64);
            let apart: Vec<Ledger> =
                parts.iter().map(|part| Ledger::of(*part, 3, messages.len() as u64)).collect();
            for (sequence, (producer, (fate, _), consumers)) in (0..).zip(&messages) {
                let id = Id { producer: *producer, sequence };
                let (mut delivered, mut settled) = (consumers.iter(), consumers.iter());
                for event in fate.split(' ') {
                    let process = match event {
                        "sent" | "ok" | "unknown" | "failed" if id.producer == LOADED => &whole,
                        "sent" | "ok" | "unknown" | "failed" => {
                            &apart[parts.iter().position(|part| part.has(id.producer as usize)).unwrap()]
                        }
                        "settled" | "acked" | "handed" => &apart[*settled.next().unwrap()],
                        "torn" | "late" => &apart[0],
                        _ => &apart[*delivered.next().unwrap()],
                    };
                    tell(process, id, event);
                }
            }
            for ledger in &apart {
                let written = serde_json::to_string(&ledger.written()).unwrap();
                whole.merge(&serde_json::from_str(&written).unwrap(), true).unwrap();
            }
            let judged = audit(&whole, Ok(Depth::default()));
            for Finding { name, count, .. } in &judged.findings {
                let names = messages.iter().flat_map(|(_, (_, names), _)| names.split(' '));
                prop_assert_eq!(names.filter(|each| each == name).count() as u64, *count, "{}", name);
            }
            let one = ledger(&messages.iter().map(|(producer, (fate, _), _)| (*producer, *fate)).collect::<Vec<_>>());
            prop_assert_eq!(one.totals().published, whole.totals().published);
        }

        /// Messages still in the queue are not lost, and where it is not known whether there are any the verdict is
        /// unknown.
        #[test]
        fn a_queue_that_is_not_empty_proves_no_loss(
            ready in prop::sample::select(vec![0, 1, 2, u64::MAX]),
            unacknowledged in prop::sample::select(vec![0, 1, 2, u64::MAX]),
        ) {
            let judged = audit(&ledger(&[(0, "sent ok"); 10]), Ok(Depth { ready, unacknowledged }));
            let empty = (ready, unacknowledged) == (0, 0);
            prop_assert_eq!(judged.count("lost"), if empty { 10 } else { 0 });
            prop_assert_eq!(judged.verdict, if empty { Verdict::Broken } else { Verdict::Unknown });
            prop_assert_eq!(judged.evidence["not_consumed"], 10);
            // without acknowledgements a lost message is counted, and breaks no promise
            prop_assert_eq!(judged.breaks_promise(&[DELIVERY.name]), false);
            prop_assert_eq!(judged.breaks_promise(&[] as &[&str]), empty);
        }
    }

    /// What was lost at a crash is the end of what each producer published, or has holes. What was consumed before the
    /// crash says nothing of what it kept.
    #[test]
    fn holes_are_told_from_a_lost_end() {
        let consume = |ledger: &Ledger, id: Id| {
            ledger.delivered(id, Some(false));
            ledger.acknowledged([id], AckAnswer::Answered);
        };
        // each message: its producer, and whether it is consumed before the crash, after it, or never
        let told = |before: &[(u32, &'static str)], after: &[(u32, &'static str)], is_over: bool| {
            let ledger = Ledger::new(3, 10);
            let mut next = [0; 4];
            let mut publish = |messages: &[(u32, &'static str)], when: &str| {
                let ids = messages.iter().map(|(producer, fate)| {
                    let next = &mut next[usize::try_from(*producer).unwrap_or(3).min(3)];
                    *next += 1;
                    (Id { producer: *producer, sequence: *next - 1 }, *fate)
                });
                let ids: Vec<(Id, &'static str)> = ids.collect();
                for (id, _) in &ids {
                    ledger.sending(*id);
                    ledger.published(*id, PublishState::Ok);
                }
                let consumed = ids.iter().filter(|(_, fate)| *fate == when);
                consumed.for_each(|(id, _)| consume(&ledger, *id));
                ids
            };
            (0..3).for_each(|producer| ledger.connecting(Id { producer, sequence: 0 }));
            let early = publish(before, "before");
            let boundaries =
                if is_over { &[Boundary::Before, Boundary::During, Boundary::After][..] } else { &[] };
            for boundary in boundaries {
                ledger.note_boundary(*boundary);
            }
            for producer in 0..3 {
                let sent = before.iter().filter(|(each, _)| *each == producer).count();
                ledger.connecting(Id { producer, sequence: sent as u64 });
            }
            publish(after, "after");
            let kept = early.iter().filter(|(_, fate)| *fate == "after");
            kept.for_each(|(id, _)| consume(&ledger, *id));
            audit(&ledger, Ok(Depth::default())).evidence.get(HOLES).copied()
        };
        let (gone, kept, lost) = ("before", "after", "never");
        assert_eq!(told(&[(0, kept), (0, gone), (0, lost), (0, lost)], &[(0, kept)], true), Some(0));
        assert_eq!(
            told(&[(0, lost), (0, gone), (1, gone)], &[(0, kept)], true),
            Some(0),
            "it was consumed before"
        );
        assert_eq!(
            told(&[(0, lost), (0, kept), (0, lost), (0, lost), (0, kept), (0, lost)], &[], true),
            Some(3)
        );
        // another producer's messages say nothing
        assert_eq!(told(&[(0, lost), (2, kept), (LOADED, lost), (1, kept)], &[], true), Some(0));
        assert_eq!(told(&[(LOADED, lost), (0, kept), (LOADED, kept)], &[], true), Some(1));
        // nothing is lost, or nothing at a crash, or not only at the first one
        assert_eq!(told(&[(0, kept)], &[], true), None);
        assert_eq!(told(&[(0, lost), (0, kept)], &[], false), None);
        assert_eq!(told(&[(0, lost), (0, kept)], &[(0, lost)], true), None);
    }

    #[test]
    fn a_queue_that_cannot_be_drained_is_unknown_unless_the_ledger_proves_a_break() {
        let judged = audit(&ledger(&[(0, "sent ok")]), Err(gone()));
        assert_eq!((judged.verdict, judged.count("lost")), (Verdict::Unknown, 0));
        let proved = audit(&ledger(&[(0, "sent ok torn")]), Err(gone()));
        assert_eq!(proved.to_string(), "broken: torn 1 message");
        assert!(proved.reason.is_some());
    }

    /// What the store has taken out of the queue itself, as it was told to, is not told from what it lost; all else stands.
    #[test]
    fn where_the_store_drops_messages_nothing_is_known_to_be_lost() {
        let dropped =
            |messages: &[(u32, &str)]| audit_with_dropped(&ledger(messages), "a policy expires them");
        let judged = dropped(&[(0, "sent ok"), (0, "sent ok"), (0, "sent ok fresh settled")]);
        assert_eq!(judged.to_string(), "unknown: 2 messages were never consumed, and a policy expires them");
        assert!(!judged.breaks_promise(&[] as &[&str]) && judged.evidence["not_consumed"] == 2);
        let torn = dropped(&[(0, "sent ok torn")]);
        assert_eq!(torn.to_string(), "broken: torn 1 message");
    }

    /// Where the store may have had the acknowledgement of each message or not, nothing is known to have been kept.
    #[test]
    fn where_all_is_doubtful_nothing_holds() {
        let judged = audit(&ledger(&[(0, "sent ok fresh handed"); 3]), Ok(Depth::default()));
        assert_eq!((judged.verdict, judged.evidence[DOUBTFUL]), (Verdict::Unknown, 3));
        let some =
            audit(&ledger(&[(0, "sent ok fresh handed"), (0, "sent ok fresh acked")]), Ok(Depth::default()));
        assert_eq!((some.verdict, some.evidence[DOUBTFUL]), (Verdict::Holds, 1));
        let lost = audit(&ledger(&[(0, "sent ok fresh handed"), (0, "sent ok fresh")]), Ok(Depth::default()));
        assert_eq!((lost.verdict, lost.count("lost")), (Verdict::Broken, 1));
    }

    #[test]
    fn nothing_acknowledged_is_unknown_not_holds() {
        let judged = audit(&ledger(&[(0, "sent unknown"), (1, "sent failed")]), Ok(Depth::default()));
        assert_eq!(judged.to_string(), "unknown: no publish was acknowledged");
    }
}
