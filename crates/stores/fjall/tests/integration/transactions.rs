//! Transactions at random in folders of the tests' own.

use acidtest_testbed::at_random;

use crate::common::FJALL;

#[test]
fn no_anomaly_is_let_through() {
    FJALL.passes(&[|subject, store| at_random::every_level(subject, store, |_| None)]);
}
