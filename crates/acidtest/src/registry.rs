//! The list of stores: one line each.

use acidtest_locks::LockService;
use acidtest_model::{Address, Durability, StoreError, StoreKind, Task};
use acidtest_store_elasticsearch::Elasticsearch;
use acidtest_store_fjall::Fjall;
use acidtest_store_mariadb::Variant;
use acidtest_store_memory::Memory;
use acidtest_store_nats::Nats;
use acidtest_store_postgres::Postgres;
use acidtest_store_rabbitmq::RabbitMq;
use acidtest_store_redis::Redis;
use acidtest_store_sqlite::Sqlite;
use acidtest_store_tarantool::Tarantool;
use acidtest_workloads::Store;

type Opened = Result<Box<dyn Store>, StoreError>;

/// A store that acidtest can drive.
pub(crate) struct Registered {
    /// What it is and has.
    pub(crate) kind: StoreKind,
    /// Opens it at an address.
    pub(crate) open: for<'a> fn(&'a Address, Opening<'a>) -> Task<'a, Opened>,
}

/// What a store may have to know when it is opened, besides its address.
#[derive(Clone, Copy, Default)]
pub(crate) struct Opening<'a> {
    /// The rung of a private instance, for stores that have no server to set it.
    pub(crate) rung: Option<Durability>,
    /// Where its hard locks are kept, for stores that have none of their own.
    pub(crate) locks: Option<&'a Address>,
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

macro_rules! engine {
    ($variant:ident) => {
        Registered {
            kind: Variant::$variant.kind,
            open: |address, _| {
                Box::pin(async { Ok(Box::new(Variant::$variant.open(address).await?) as Box<dyn Store>) })
            },
        }
    };
}

/// Every store, in the order in which they are listed.
pub(crate) static STORES: &[Registered] = &[
    Registered {
        kind: acidtest_store_sqlite::KIND,
        open: |address, opening| {
            Box::pin(async move { Ok(Box::new(Sqlite::open(address, opening.rung)?) as Box<dyn Store>) })
        },
    },
    Registered {
        kind: acidtest_store_fjall::KIND,
        open: |address, opening| {
            Box::pin(async move { Ok(Box::new(Fjall::open(address, opening.rung)?) as Box<dyn Store>) })
        },
    },
    server!(acidtest_store_postgres, Postgres),
    engine!(MARIADB),
    engine!(MARIADB_INNODB),
    engine!(MARIADB_MYISAM),
    engine!(MARIADB_ARIA),
    engine!(MARIADB_MEMORY),
    engine!(MARIADB_CSV),
    engine!(MARIADB_ARCHIVE),
    engine!(MARIADB_BLACKHOLE),
    engine!(MYSQL),
    engine!(MYSQL_INNODB),
    engine!(MYSQL_MYISAM),
    server!(acidtest_store_redis, Redis),
    server!(acidtest_store_tarantool, Tarantool),
    Registered {
        kind: acidtest_store_elasticsearch::KIND,
        open: |address, opening| {
            Box::pin(async move {
                let locks = match opening.locks {
                    Some(address) => Some(LockService::open(address).await?),
                    None => None,
                };
                let opened = Elasticsearch::open(address, opening.rung, locks).await?;
                Ok(Box::new(opened) as Box<dyn Store>)
            })
        },
    },
    server!(acidtest_store_rabbitmq, RabbitMq),
    server!(acidtest_store_nats, Nats),
    Registered {
        kind: acidtest_store_memory::KIND,
        open: |_, _| Box::pin(async { Ok(Box::new(Memory::default()) as Box<dyn Store>) }),
    },
];

/// Names of all stores.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    STORES.iter().map(|store| store.kind.name)
}
