//! The store under test with its lock service, shared by the tests of all workloads.

use std::{cell::RefCell, sync::Arc};

use acidtest_locks::LockService;
use acidtest_model::{Address, Durability, StoreError};
use acidtest_store_elasticsearch::Elasticsearch;
use acidtest_store_redis::Redis;
use acidtest_testbed::Private;

thread_local! {
    /// The lock service of the test that runs in this thread.
    static LOCKS: RefCell<Option<Address>> = const { RefCell::new(None) };
}

/// Opens the store as the common checks do, with the test's lock service if there is one.
pub(crate) async fn open(address: &Address, durability: Durability) -> Result<Elasticsearch, StoreError> {
    let locks = match LOCKS.with_borrow(Clone::clone) {
        Some(address) => Some(Arc::new(Redis::open(&address).await?) as Arc<dyn LockService>),
        None => None,
    };
    Elasticsearch::open(address, Some(durability), locks).await
}

/// Whether the test has a lock service.
pub(crate) fn has_locks() -> bool {
    LOCKS.with_borrow(Option::is_some)
}

/// A lock service of the test's own; `None` if its server is left out.
pub(crate) fn lock_service() -> Option<Private> {
    let mut server = Private::start("redis", Durability::Process)?;
    server.open(Redis::open);
    LOCKS.set(Some(server.address().clone()));
    Some(server)
}

/// Runs a check with every lock mode that the test's servers support.
pub(crate) fn with_locks(check: impl FnOnce()) {
    let _service = lock_service();
    check();
}
