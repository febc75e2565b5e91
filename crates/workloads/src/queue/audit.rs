//! What the ledger proves once the queue is empty.

use std::collections::BTreeMap;

use acidtest_model::StoreError;

use super::{
    Depth,
    ledger::{Ledger, Published, Totals},
};
use crate::{Audit, Finding, Verdict};

/// Holds what was published against what was consumed, once the queue is drained.
///
/// Every acknowledged message was consumed at least once; none that was never sent, or was proved not to have
/// been published, was; of none was the acknowledgement answered twice, and none came again without the store's
/// word that it may have been delivered before, where a store gives that word. An unanswered publish proves
/// nothing either way. What is still in the queue is not lost: unless the queue is empty, lost messages are
/// not counted and the verdict is unknown.
///
/// `promised` says whether losing a message breaks a promise: without acknowledgements, on either side, it
/// breaks none.
#[must_use]
pub fn audit(ledger: &Ledger, drained: Result<Depth, StoreError>, promised: bool) -> Audit {
    let totals = ledger.totals();
    let doubt = doubt(&totals, drained);
    let mut left = Left::default();
    for entry in ledger.entries() {
        left.lost += u64::from(entry.published() == Published::Ok && !entry.was_delivered());
        left.indeterminate += u64::from(entry.published() == Published::Sent && !entry.was_delivered());
        left.phantom += u64::from(entry.published() == Published::Failed && entry.was_delivered());
    }
    let lost = if doubt.is_some() { 0 } else { left.lost };
    let lost = if promised {
        Finding::new("lost", lost, "messages")
    } else {
        Finding::unlocked("lost", lost, "messages")
    };
    let findings = vec![
        lost,
        Finding::new("duplicated", totals.duplicated, "deliveries"),
        Finding::new("phantom", totals.foreign + left.phantom, "messages"),
        Finding::new("torn", totals.torn, "messages"),
        Finding::new("reordered", totals.reordered, "deliveries"),
    ];
    let is_broken = findings.iter().any(|finding| finding.count > 0);
    let verdict = match (is_broken, &doubt) {
        (true, _) => Verdict::Broken,
        (false, Some(_)) => Verdict::Unknown,
        (false, None) => Verdict::Holds,
    };
    let evidence = [
        ("acknowledged_publishes", totals.published),
        ("unknown_publishes", totals.unknown),
        ("failed_publishes", totals.failed),
        ("indeterminate_messages", left.indeterminate),
        ("consumed_messages", totals.delivered),
        ("redelivered", totals.redelivered),
        ("not_consumed", left.lost),
    ];
    let evidence: BTreeMap<String, i64> = evidence
        .into_iter()
        .map(|(name, count)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX)))
        .collect();
    Audit { verdict, reason: doubt, findings, evidence }
}

/// Why lost messages cannot be told from those that are still on their way.
fn doubt(totals: &Totals, drained: Result<Depth, StoreError>) -> Option<String> {
    match drained {
        Err(error) => Some(error.to_string()),
        Ok(left @ Depth { ready, unacknowledged }) if left != Depth::default() => Some(format!(
            "the queue is not known to be empty: {ready} messages are ready, {unacknowledged} unacknowledged or in the \
             hands of so many consumers"
        )),
        Ok(_) if totals.published == 0 => Some("no publish was acknowledged".to_owned()),
        Ok(_) => None,
    }
}

#[derive(Default)]
struct Left {
    lost: u64,
    indeterminate: u64,
    phantom: u64,
}
