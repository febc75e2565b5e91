//! The stores of a run, as trait objects: whoever calls the runner has the list of them.

use acidtest_model::{Address, Durability, StoreError, StoreKind, Task};
use acidtest_workloads::Store;

/// Opens one kind of store.
pub trait Opener: Send + Sync {
    /// The store's row of the matrix: its name, its properties and the workloads that it supports.
    fn kind(&self) -> &StoreKind;

    fn open<'a>(
        &'a self,
        address: &'a Address,
        options: OpenOptions<'a>,
    ) -> Task<'a, Result<Box<dyn Store>, StoreError>>;
}

/// Facts that a store may need when it is opened, besides its address.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions<'a> {
    /// The durability level of a private instance, for stores that have no server to set it.
    pub durability: Option<Durability>,
    /// Where its hard locks are kept, for stores that have none of their own.
    pub locks: Option<&'a Address>,
    /// Where the other members of its cluster are, one of which may come to lead; empty for a store of one server.
    pub peers: &'a [Address],
}
