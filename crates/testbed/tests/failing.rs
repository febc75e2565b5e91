//! The checks fail where a store is wrong, each for its own reason, and pass where it is right: on the
//! memory store, with and without planted bugs.

#![allow(clippy::expect_used, reason = "a helper of a test may fail it")]

use std::{
    future::ready,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use acidtest_model::StoreError;
use acidtest_store_memory::{Bug, Faults, KIND, Memory};
use acidtest_testbed::{Gone, Subject, inventory};

/// A memory store with one of the bugs; with a number beyond them, a correct one.
const fn memory<const BUG: usize>() -> Subject<Memory> {
    Subject {
        kind: KIND,
        open: |_, _| {
            let faults = Bug::ALL.get(BUG).map_or_else(Faults::default, |bug| Faults::bug(*bug));
            Box::pin(ready(Ok::<_, StoreError>(Memory::with(faults))))
        },
        gone: Gone::Error,
    }
}

static CORRECT: Subject<Memory> = memory::<{ Bug::ALL.len() }>();

/// How a check fails that must fail.
#[track_caller]
fn failure(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("the check passes");
    panic.downcast_ref::<String>().expect("the panic has a message").clone()
}

#[test]
fn a_correct_store_passes() {
    inventory::contention(&CORRECT);
    inventory::replay(&CORRECT);
    inventory::large_stock(&CORRECT);
}

#[test]
fn every_bug_fails_the_check_of_contention() {
    let bugs = [memory::<0>(), memory::<1>(), memory::<2>(), memory::<3>(), memory::<4>(), memory::<5>()];
    assert_eq!(bugs.len(), Bug::ALL.len());
    thread::scope(|scope| {
        for (subject, bug) in bugs.iter().zip(Bug::ALL) {
            scope.spawn(move || {
                let told = failure(|| inventory::contention(subject));
                // a late operation is an error first, and its effect comes after
                let caught = if bug == Bug::LateApply { "planted: late" } else { "verdict: Broken" };
                assert!(told.contains(caught), "{bug:?}: {told}");
            });
        }
    });
}

#[test]
fn a_torn_operation_fails_the_check_of_replays() {
    let told = failure(|| inventory::replay(&memory::<3>()));
    assert!(told.contains("verdict: Broken") && told.contains("off_sequence"), "{told}");
}

#[test]
fn a_stock_that_outlives_its_trial_fails_the_check_of_contention() {
    let told = failure(|| inventory::contention(&Subject { gone: Gone::Empty, ..memory::<6>() }));
    assert!(told.contains("Error") && told.contains("Empty"), "{told}");
}

#[test]
fn a_namespace_that_is_made_twice_fails_the_check_of_occupied_ones() {
    let told = failure(|| inventory::occupied(&CORRECT));
    assert!(told.contains("unwrap_err"), "{told}");
}

/// The memory store removes all there is.
#[test]
fn a_neighbour_that_is_removed_too_fails_the_check_of_namespaces() {
    let told = failure(|| inventory::namespaces(&CORRECT, &inventory::NAMES));
    assert!(told.contains("it was never loaded"), "{told}");
}

#[test]
fn a_rung_that_was_not_asked_for_fails_the_check_of_rungs() {
    let told = failure(|| inventory::rungs(&CORRECT, |_, _| ()));
    assert!(told.contains("nothing is kept on disk"), "{told}");
}
