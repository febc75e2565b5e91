//! The parcels workload against real servers.

use crate::common::{has_locks, open, with_locks};
use acidtest_model::{CellRequest, Lock, StoreKind};
use acidtest_store_elasticsearch::{Elasticsearch, KIND};
use acidtest_testbed::{
    AfterRemoval, Subject,
    parcels::{self, ParcelsRun},
};
use acidtest_workloads::parcels::{Index, Parameters};

static ELASTICSEARCH: Subject<Elasticsearch> = Subject {
    kind: StoreKind { refuses: missing_here, ..KIND },
    open: |address, durability| Box::pin(open(address, durability)),
    gone: AfterRemoval::Error,
};

/// The reason why the store, or the test's server, cannot run a cell.
fn missing_here(request: &CellRequest<'_>) -> Option<&'static str> {
    let without = request.lock == Lock::Hard && !has_locks();
    (KIND.refuses)(request).or(without.then_some("there is no lock service"))
}

#[test]
fn everything_goes_through_in_every_lock_mode() {
    with_locks(|| ELASTICSEARCH.passes(&[parcels::modes, parcels::eighths, parcels::large]));
}

#[test]
fn each_lock_mode_keeps_its_promise_under_contention() {
    with_locks(|| ELASTICSEARCH.passes(&[parcels::contention, parcels::batches]));
}

#[test]
fn a_namespace_may_have_an_odd_name() {
    with_locks(|| parcels::namespaces(&ELASTICSEARCH, &parcels::NAMES));
}

#[test]
fn what_it_cannot_do_is_refused_with_the_reason() {
    let said = |lock, index| {
        let parameters = Parameters { index, ..parcels::few("insert") };
        (KIND.refuses)(&ParcelsRun::new(lock, 0, parameters).request()).unwrap_or_default()
    };
    assert!(said(Lock::Native, Index::Hash).contains("no step that counts and inserts"));
    for lock in [Lock::None, Lock::Soft, Lock::Hard] {
        assert_eq!(said(lock, Index::Hash), "", "{lock}");
        assert!(said(lock, Index::None).contains("no index to leave out"), "{lock}");
    }
    let records = acidtest_testbed::records::RecordsRun::of(Lock::Native, 0, "a");
    assert_eq!((KIND.refuses)(&records.request()), None);
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::{ELASTICSEARCH, parcels, with_locks};

    #[test]
    #[ignore = "slow: ./check --all"]
    fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
        with_locks(|| parcels::kills(&ELASTICSEARCH));
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn what_is_kept_nowhere_is_found_missing() {
        parcels::nothing_kept(&ELASTICSEARCH);
    }
}
