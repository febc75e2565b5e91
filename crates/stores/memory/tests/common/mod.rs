//! What the tests of planted bugs share.

use acidtest_store_memory::selftest::{Case, run};
use acidtest_workloads::{Audit, Verdict};

/// The verdict on a case.
pub(crate) fn judged(case: &Case, seed: u64) -> Audit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(case, seed)).unwrap()
}

/// Sees that a case holds.
#[track_caller]
pub(crate) fn holds(case: &Case, seed: u64) {
    let audit = judged(case, seed);
    assert_eq!(audit.verdict, Verdict::Holds, "{}: {audit} {:?}", case.meaning(), audit.evidence);
}

/// Sees that a case is broken, by all of these checks.
#[track_caller]
pub(crate) fn caught_as(case: &Case, seed: u64, counts: &[&str]) {
    let audit = judged(case, seed);
    assert_eq!(audit.verdict, Verdict::Broken, "{}, lock {}: {audit}", case.meaning(), case.lock);
    for count in counts {
        assert!(audit.count(count) > 0, "{} shows no {count}: {audit}", case.meaning());
    }
}
