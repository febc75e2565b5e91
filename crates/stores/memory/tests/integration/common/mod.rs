//! Checks that the tests of planted bugs share.

use acidtest_model::Lock;
use acidtest_store_memory::selftest::{Case, DrivenTrial, run};
use acidtest_workloads::{Audit, Verdict};

/// Drives a case, and returns its results and its audit.
pub(crate) fn judged(case: &Case, seed: u64) -> (DrivenTrial, Audit) {
    let driven = run(case, seed).unwrap();
    let audit = driven.audited.audit.clone();
    (driven, audit)
}

/// Asserts that a case is found to hold, and that the store's own witness knows of no violation. Returns its results.
#[track_caller]
pub(crate) fn holds(case: &Case, seed: u64) -> DrivenTrial {
    let (driven, audit) = judged(case, seed);
    let shown = format!("{}, lock {}, seed {seed}: {audit} {:?}", case.meaning(), case.lock, audit.evidence);
    assert_eq!(audit.verdict, Verdict::Holds, "{shown}");
    assert_eq!(driven.shown, 0, "the store's own witness disagrees: {shown}");
    driven
}

/// Asserts that a case is found broken, with findings in all of these counts. Returns its results and its audit.
#[track_caller]
pub(crate) fn caught_as(case: &Case, seed: u64, counts: &[&str]) -> (DrivenTrial, Audit) {
    let (driven, audit) = judged(case, seed);
    let DrivenTrial { struck, shown, .. } = &driven;
    let told = format!(
        "{}, lock {}, seed {seed}: struck {struck} times, {shown} to be seen: {audit}",
        case.meaning(),
        case.lock
    );
    assert!(*shown > 0, "{told}");
    assert_eq!(audit.verdict, Verdict::Broken, "{told}");
    for count in counts {
        assert!(audit.count(count) > 0, "no {count}: {told}");
    }
    (driven, audit)
}

/// Operations on records that read, change and insert.
pub(crate) const MIX: &str = "read:1+update:1+insert:1+rmw:1";

/// Every workload that takes locks, in every lock mode that promises something, with and without transactions.
pub(crate) fn under_locks() -> Vec<Case> {
    let locks = [Lock::Soft, Lock::Hard, Lock::Native];
    let mut cases: Vec<Case> = locks.map(|lock| Case::inventory().under(lock)).into();
    cases.extend(locks.map(|lock| Case::records(MIX, 1).under(lock)));
    cases.extend(locks.map(|lock| Case::records(MIX, 4).under(lock)));
    cases.extend(locks.map(|lock| Case::parcels(1).under(lock)));
    cases
}
