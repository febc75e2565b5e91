//! The checks pass on a correct store and fail on a wrong one, each for its own reason: tried on the memory store,
//! with and without planted bugs.

#![allow(clippy::expect_used, reason = "a helper of a test may fail it")]

use std::{
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Durability, StoreError, StoreKind, Support, Task};
use acidtest_store_memory::{Bug, Faults, KIND, Memory};
use acidtest_testbed::{AfterRemoval, Check, Subject, inventory, join, queue, records, wait};
use acidtest_workloads::queue::NO_CONFLICTS;

/// A memory store with the bug of this index in [`Bug::INVENTORY`]; with an index beyond them, a correct one.
const fn memory<const BUG: usize>() -> Subject<Memory> {
    Subject { kind: KIND, open: |_, _| opened(Bug::INVENTORY.get(BUG)), gone: AfterRemoval::Error }
}

/// A memory store with the bug of this index in [`Bug::RECORDS`].
const fn of_records<const BUG: usize>() -> Subject<Memory> {
    Subject { open: |_, _| opened(Bug::RECORDS.get(BUG)), ..CORRECT }
}

fn opened(bug: Option<&Bug>) -> Task<'static, Result<Memory, StoreError>> {
    let faults = bug.map_or_else(Faults::default, |bug| Faults::bug(*bug));
    Box::pin(ready(Ok(Memory::with(faults))))
}

const CORRECT: Subject<Memory> = memory::<{ Bug::INVENTORY.len() }>();

/// The panic message of a check that must fail. Runs it again for up to two minutes, as a bug that strikes at random
/// may take longer to strike on a slow machine.
#[track_caller]
fn failure(check: impl Fn()) -> String {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(2) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(&check)) {
            return panic.downcast_ref::<String>().expect("the panic has a message").clone();
        }
    }
    panic!("the check passes");
}

/// Runs the check for all at once, each in a thread: checks wait most of their time.
fn for_each<T: Send>(all: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        for each in all {
            let check = &check;
            scope.spawn(move || check(each));
        }
    });
}

#[test]
fn a_correct_store_passes() {
    CORRECT.passes(&[inventory::contention, inventory::replay, inventory::large_stock]);
}

#[test]
fn correct_records_pass() {
    let checks: [Check<Memory>; 6] = [
        records::mixes,
        records::contention,
        records::blind,
        records::transactions,
        records::large,
        records::reusable,
    ];
    for_each(checks, |check| CORRECT.passes(&[check]));
}

#[test]
fn a_correct_join_passes() {
    CORRECT.passes(&[join::finds_its_rows, join::is_explained]);
}

#[test]
fn a_correct_queue_passes() {
    for_each(queue::all(), |check| CORRECT.passes(&[check]));
}

/// A memory store with the bug of this index in [`Bug::QUEUE`].
const fn of_queue<const BUG: usize>() -> Subject<Memory> {
    Subject { open: |_, _| opened(Bug::QUEUE.get(BUG)), ..CORRECT }
}

#[test]
fn every_bug_of_a_queue_fails_the_check_of_modes() {
    let bugs = [
        of_queue::<0>(),
        of_queue::<1>(),
        of_queue::<2>(),
        of_queue::<3>(),
        of_queue::<4>(),
        of_queue::<5>(),
        of_queue::<6>(),
        of_queue::<7>(),
        of_queue::<8>(),
        of_queue::<9>(),
        of_queue::<10>(),
    ];
    assert_eq!(bugs.len(), Bug::QUEUE.len());
    for_each(bugs.iter().zip(Bug::QUEUE), |(subject, bug)| {
        let told = failure(|| subject.passes(&[queue::both]));
        let caught = match bug {
            // the client sees the error before the effect that the audit would find
            Bug::LateApply => "planted: late",
            Bug::BelieveProxy => "planted: an error of a proxy",
            Bug::Unflag | Bug::LoseHeld => "planted: the consumer is lost",
            _ => "verdict: Broken",
        };
        assert!(told.contains(caught), "{bug:?}: {told}");
    });
}

/// The memory store with this bug; none for bugs that no test here uses alone.
fn queue_with(bug: Bug) -> Option<Subject<Memory>> {
    match bug {
        Bug::DropWrite => Some(of_queue::<0>()),
        Bug::ApplyTwice => Some(of_queue::<1>()),
        Bug::Unflag => Some(of_queue::<6>()),
        Bug::LoseHeld => Some(of_queue::<7>()),
        _ => None,
    }
}

#[test]
fn what_a_dead_consumer_held_must_come_again_and_be_flagged() {
    let cases: [(Bug, &[&str], Check<Memory>); 2] = [
        (Bug::Unflag, &["was not flagged"], queue::dying_consumers),
        // the check waits in vain for the lost messages, so that it is given less time; or it loses a consumer itself
        (Bug::LoseHeld, &["not all came again", "planted: the consumer is lost"], |subject, store| {
            queue::dying_consumers_within(Duration::from_secs(5), subject, store);
        }),
    ];
    for_each(cases, |(bug, caught, check)| {
        let subject = queue_with(bug).expect("it is a bug of a queue");
        let told = failure(|| subject.passes(&[check]));
        assert!(caught.iter().any(|words| told.contains(words)), "{bug:?}: {told}");
    });
}

#[test]
fn a_bug_fails_the_checks_of_what_only_one_side_does() {
    for_each([Bug::DropWrite, Bug::ApplyTwice], |bug| {
        let subject = queue_with(bug).expect("it is a bug of a queue");
        failure(|| subject.passes(&[queue::publishes]));
        // the check waits in vain for the lost messages, so that it is given less time
        failure(|| {
            subject.passes(&[|subject, store| {
                queue::consumes_unless_still(Duration::from_secs(3), subject, store);
            }]);
        });
    });
}

/// The memory store fails this check without a bug, as it removes all namespaces at once.
#[test]
fn a_neighbour_s_queue_that_is_removed_too_fails_the_check_of_namespaces() {
    let told = failure(|| queue::namespaces(&CORRECT, &queue::NAMES));
    assert!(told.contains("Holds"), "{told}");
}

#[test]
fn every_bug_of_records_fails_the_check_of_transactions() {
    let bugs = [
        of_records::<0>(),
        of_records::<1>(),
        of_records::<2>(),
        of_records::<3>(),
        of_records::<4>(),
        of_records::<5>(),
        of_records::<6>(),
        of_records::<7>(),
        of_records::<8>(),
        of_records::<9>(),
        of_records::<10>(),
        of_records::<11>(),
        of_records::<12>(),
        of_records::<13>(),
        of_records::<14>(),
    ];
    assert_eq!(bugs.len(), Bug::RECORDS.len());
    for_each(bugs.iter().zip(Bug::RECORDS), |(subject, bug)| {
        let told = failure(|| subject.passes(&[records::transactions]));
        let caught = match bug {
            // the client sees the error before the effect that the audit would find
            Bug::LateApply => "planted: late",
            Bug::BelieveProxy => "planted: an error of a proxy",
            Bug::KeepInsert => "planted: kept",
            _ => "verdict: Broken",
        };
        assert!(told.contains(caught), "{bug:?}: {told}");
    });
}

#[test]
fn a_bug_fails_the_checks_of_mixes_and_of_what_is_left() {
    let lost = of_records::<0>();
    for check in [records::mixes, records::reusable] {
        let told = failure(|| lost.passes(&[check]));
        assert!(told.contains("verdict: Broken"), "{told}");
    }
}

#[test]
fn a_wrong_row_fails_the_check_of_joins() {
    let told = failure(|| {
        Subject { open: |_, _| opened(Some(&Bug::DoubleRow)), ..CORRECT }.passes(&[join::finds_its_rows]);
    });
    assert!(told.contains("verdict: Broken") && told.contains("wrong"), "{told}");
}

#[test]
fn every_bug_fails_the_check_of_contention() {
    let bugs = [
        memory::<0>(),
        memory::<1>(),
        memory::<2>(),
        memory::<3>(),
        memory::<4>(),
        memory::<5>(),
        memory::<6>(),
    ];
    assert_eq!(bugs.len(), Bug::INVENTORY.len());
    for_each(bugs.iter().zip(Bug::INVENTORY), |(subject, bug)| {
        let told = failure(|| subject.passes(&[inventory::contention]));
        // the client sees the error of a late operation before its effect
        let caught = match bug {
            Bug::LateApply => "planted: late",
            Bug::BelieveProxy => "planted: an error of a proxy",
            _ => "verdict: Broken",
        };
        assert!(told.contains(caught), "{bug:?}: {told}");
    });
}

#[test]
fn a_torn_operation_fails_the_check_of_replays() {
    let told = failure(|| memory::<3>().passes(&[inventory::replay]));
    assert!(told.contains("verdict: Broken") && told.contains("off_sequence"), "{told}");
}

#[test]
fn a_conflict_where_the_matrix_says_that_there_is_none_fails_the_checks() {
    let conflicting = Subject {
        kind: StoreKind { idle: |_| &[NO_CONFLICTS], ..KIND },
        open: |_, _| {
            let faults = Faults { conflicts: 0.2, ..Faults::default() };
            Box::pin(ready(Ok(Memory::with(faults))))
        },
        ..CORRECT
    };
    let checks: [Check<Memory>; 3] = [inventory::contention, records::mixes, queue::both];
    for check in checks {
        let told = failure(|| conflicting.passes(&[check]));
        assert!(told.contains("conflicts where there are none"), "{told}");
    }
}

#[test]
fn a_stock_that_outlives_its_trial_fails_the_check_of_contention() {
    let told = failure(|| Subject { gone: AfterRemoval::Empty, ..CORRECT }.passes(&[inventory::contention]));
    assert!(told.contains("Error") && told.contains("Empty"), "{told}");
}

#[test]
fn a_stock_that_is_read_back_as_loaded_fails_the_check_of_what_is_garbled() {
    let said = failure(|| wait(inventory::garbled(&Memory::default(), async |_, _| {})));
    assert!(said.contains("key: (0, 0, 0, 0)"), "{said}");
}

#[test]
fn a_namespace_that_is_made_twice_fails_the_check_of_occupied_ones() {
    let told = failure(|| inventory::occupied(&CORRECT));
    assert!(told.contains("unwrap_err"), "{told}");
}

/// The memory store fails this check without a bug, as it removes all namespaces at once.
#[test]
fn a_neighbour_that_is_removed_too_fails_the_check_of_namespaces() {
    let told = failure(|| inventory::namespaces(&CORRECT, &inventory::NAMES));
    assert!(told.contains("it was never loaded"), "{told}");
}

#[test]
fn a_durability_that_was_not_asked_for_fails_the_check_of_durability_levels() {
    let boasting =
        StoreKind { durability: &[(Durability::Disk, Support::Yes("it says so"))], ..CORRECT.kind };
    let told = failure(|| inventory::levels(&Subject { kind: boasting, ..CORRECT }, |_, _| ()));
    assert!(told.contains("nothing is kept on disk"), "{told}");
}
