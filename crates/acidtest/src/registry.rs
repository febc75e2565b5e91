//! The list of stores: one line each.

use acidtest_model::{Address, Durability, StoreError, StoreKind, Task};
use acidtest_store_mariadb::MariaDb;
use acidtest_store_memory::Memory;
use acidtest_store_postgres::Postgres;
use acidtest_store_redis::Redis;
use acidtest_store_sqlite::Sqlite;
use acidtest_store_tarantool::Tarantool;
use acidtest_workloads::Store;

type Opened = Result<Box<dyn Store>, StoreError>;

/// A store that acidtest can drive.
pub(crate) struct Registered {
    /// What it is and has.
    pub(crate) kind: StoreKind,
    /// Opens it at an address; the rung is given only for a private instance of an embedded store,
    /// which has no server to set it.
    pub(crate) open: fn(&Address, Option<Durability>) -> Task<'_, Opened>,
}

macro_rules! server {
    ($crate_name:ident, $store:ident) => {
        Registered {
            kind: $crate_name::KIND,
            open: |address, _| {
                Box::pin(async { Ok(Box::new($store::open(address).await?) as Box<dyn Store>) })
            },
        }
    };
}

/// Every store, in the order in which they are listed.
pub(crate) static STORES: &[Registered] = &[
    Registered {
        kind: acidtest_store_sqlite::KIND,
        open: |address, rung| {
            Box::pin(async move { Ok(Box::new(Sqlite::open(address, rung)?) as Box<dyn Store>) })
        },
    },
    server!(acidtest_store_postgres, Postgres),
    server!(acidtest_store_mariadb, MariaDb),
    server!(acidtest_store_redis, Redis),
    server!(acidtest_store_tarantool, Tarantool),
    Registered {
        kind: acidtest_store_memory::KIND,
        open: |_, _| Box::pin(async { Ok(Box::new(Memory::default()) as Box<dyn Store>) }),
    },
];

/// Names of all stores.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    STORES.iter().map(|store| store.kind.name)
}
