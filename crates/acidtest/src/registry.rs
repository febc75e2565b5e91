//! The list of all stores, and which of them are built in.

#[cfg(feature = "elasticsearch")]
use std::sync::Arc;

#[cfg(feature = "elasticsearch")]
use acidtest_locks::LockService;
use acidtest_model::{Address, StoreError, StoreKind, Task};
use acidtest_runner::{Failure, OpenOptions, Opener};
#[cfg(feature = "elasticsearch")]
use acidtest_store_elasticsearch::Elasticsearch;
#[cfg(feature = "fjall")]
use acidtest_store_fjall::Fjall;
#[cfg(feature = "mariadb")]
use acidtest_store_mariadb::Variant;
use acidtest_store_memory::Memory;
#[cfg(feature = "nats")]
use acidtest_store_nats::Nats;
#[cfg(feature = "postgres")]
use acidtest_store_postgres::Postgres;
#[cfg(feature = "rabbitmq")]
use acidtest_store_rabbitmq::RabbitMq;
#[cfg(feature = "redis")]
use acidtest_store_redis::Redis;
#[cfg(feature = "sqlite")]
use acidtest_store_sqlite::Sqlite;
#[cfg(feature = "tarantool")]
use acidtest_store_tarantool::Tarantool;
use acidtest_workloads::Store;

type Opened = Result<Box<dyn Store>, StoreError>;

/// A store that acidtest can drive.
pub(crate) struct Registered {
    /// The store's name, its properties and the workloads that it supports.
    pub(crate) kind: StoreKind,
    open: for<'a> fn(&'a Address, OpenOptions<'a>) -> Task<'a, Opened>,
}

impl Opener for Registered {
    fn kind(&self) -> &StoreKind {
        &self.kind
    }

    fn open<'a>(&'a self, address: &'a Address, options: OpenOptions<'a>) -> Task<'a, Opened> {
        (self.open)(address, options)
    }
}

#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis", feature = "tarantool"))]
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

#[cfg(feature = "mariadb")]
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

/// Every store that is built in, in the order in which they are listed.
pub(crate) static STORES: &[Registered] = &[
    #[cfg(feature = "sqlite")]
    Registered {
        kind: acidtest_store_sqlite::KIND,
        open: |address, options| {
            Box::pin(
                async move { Ok(Box::new(Sqlite::open(address, options.durability)?) as Box<dyn Store>) },
            )
        },
    },
    #[cfg(feature = "fjall")]
    Registered {
        kind: acidtest_store_fjall::KIND,
        open: |address, options| {
            Box::pin(async move { Ok(Box::new(Fjall::open(address, options.durability)?) as Box<dyn Store>) })
        },
    },
    #[cfg(feature = "postgres")]
    Registered {
        kind: acidtest_store_postgres::KIND,
        open: |address, options| {
            Box::pin(async move {
                Ok(Box::new(Postgres::open_among(address, options.peers).await?) as Box<dyn Store>)
            })
        },
    },
    #[cfg(feature = "mariadb")]
    engine!(MARIADB),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_INNODB),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_MYISAM),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_ARIA),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_MEMORY),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_CSV),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_ARCHIVE),
    #[cfg(feature = "mariadb")]
    engine!(MARIADB_BLACKHOLE),
    #[cfg(feature = "mariadb")]
    engine!(MYSQL),
    #[cfg(feature = "mariadb")]
    engine!(MYSQL_INNODB),
    #[cfg(feature = "mariadb")]
    engine!(MYSQL_MYISAM),
    #[cfg(feature = "redis")]
    server!(acidtest_store_redis, Redis),
    #[cfg(feature = "tarantool")]
    server!(acidtest_store_tarantool, Tarantool),
    #[cfg(feature = "elasticsearch")]
    Registered {
        kind: acidtest_store_elasticsearch::KIND,
        open: |address, options| {
            Box::pin(async move {
                let locks = match options.locks {
                    Some(address) => Some(open_locks(address).await?),
                    None => None,
                };
                let opened = Elasticsearch::open(address, options.durability, locks).await?;
                Ok(Box::new(opened) as Box<dyn Store>)
            })
        },
    },
    #[cfg(feature = "rabbitmq")]
    server!(acidtest_store_rabbitmq, RabbitMq),
    #[cfg(feature = "nats")]
    server!(acidtest_store_nats, Nats),
    Registered {
        kind: acidtest_store_memory::KIND,
        open: |_, _| Box::pin(async { Ok(Box::new(Memory::default()) as Box<dyn Store>) }),
    },
];

/// Opens the service that keeps the locks of a store without locks of its own.
///
/// # Errors
/// [`StoreError::Unreachable`] where nobody answers, the login fails, or no store that is built in and has the address'
/// scheme keeps locks.
#[cfg(feature = "elasticsearch")]
#[cfg_attr(not(any(feature = "redis", feature = "postgres")), allow(clippy::unused_async))]
async fn open_locks(address: &Address) -> Result<Arc<dyn LockService>, StoreError> {
    #[cfg(feature = "redis")]
    if acidtest_store_redis::KIND.schemes.contains(&&*address.scheme) {
        return Ok(Arc::new(Redis::open(address).await?));
    }
    #[cfg(feature = "postgres")]
    if acidtest_store_postgres::KIND.schemes.contains(&&*address.scheme) {
        return Ok(Arc::new(Postgres::open(address).await?));
    }
    Err(StoreError::Unreachable {
        address: address.to_string(),
        cause: "locks are kept on Redis or PostgreSQL".to_owned(),
        remedy: "name one: redis://HOST:PORT or postgres://USER@HOST:PORT/DATABASE".to_owned(),
    })
}

/// A feature of this crate that builds a store or a service in.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    built_in: bool,
    /// The first words of its stores' names and addresses, or its commands: if they are not built in, nothing else is known of
    /// them.
    words: &'static [&'static str],
}

macro_rules! feature {
    ($name:literal, $($word:literal),+) => {
        Feature { name: $name, built_in: cfg!(feature = $name), words: &[$($word),+] }
    };
}

/// Every feature that is a store, in the order in which they are listed.
static FEATURES: &[Feature] = &[
    feature!("sqlite", "sqlite"),
    feature!("fjall", "fjall"),
    feature!("postgres", "postgres", "postgresql"),
    feature!("mariadb", "mariadb", "mysql"),
    feature!("redis", "redis", "rediss", "unix"),
    feature!("tarantool", "tarantool"),
    feature!("elasticsearch", "elasticsearch", "es", "http", "https"),
    feature!("rabbitmq", "rabbitmq", "amqp", "amqps"),
    feature!("nats", "nats", "tls"),
];

/// Every feature that is a service, with its commands.
static SERVICES: &[Feature] = &[feature!("gateway", "gateway", "collector"), feature!("serve", "serve")];

/// How to build with a command that is not built in; none if it is, or no feature is known for it.
pub(crate) fn missing_command(word: &str) -> Option<String> {
    let feature = SERVICES.iter().find(|feature| !feature.built_in && feature.words.contains(&word))?;
    Some(format!("{word} is {}", feature.remedy()))
}

/// The stores' features that are not built in.
pub(crate) fn left_out() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|feature| !feature.built_in)
}

impl Feature {
    /// The feature to build with for a store, by its name or address.
    fn of(text: &str) -> Option<&'static Self> {
        let word = text.split([':', '/', '+']).next().unwrap_or(text);
        FEATURES.iter().find(|feature| feature.words.contains(&word))
    }

    /// A hint how to build with this feature.
    pub(crate) fn remedy(&self) -> String {
        format!("not in this build: build with --features {}", self.name)
    }
}

/// The error for the name or address of a store that is not built in; none if no feature is known for it.
pub(crate) fn missing(text: &str) -> Option<Failure> {
    let feature = Feature::of(text).filter(|feature| !feature.built_in)?;
    let word = text.split(':').next().unwrap_or(text);
    let here: Vec<&str> = names().collect();
    Some(Failure::Usage(format!("{word} is {}\n  it has {}", feature.remedy(), here.join(", "))))
}

/// Names of all stores that are built in.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    STORES.iter().map(|store| store.kind.name)
}

/// Names of the stores that can carry a workload.
pub(crate) fn able(workload: &str) -> impl Iterator<Item = &'static str> {
    STORES.iter().filter(move |store| store.kind.workload(workload).is_yes()).map(|store| store.kind.name)
}

#[cfg(test)]
mod tests {
    #[cfg(all(feature = "elasticsearch", feature = "postgres", feature = "redis"))]
    use acidtest_testbed::wait;
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    /// The words fit the stores that are built in; a store that is left out is known by these words alone.
    #[test]
    fn every_store_is_known_by_its_feature() {
        for Registered { kind, .. } in STORES.iter().filter(|store| store.kind.name != "memory") {
            for text in [kind.name].iter().chain(kind.schemes) {
                let feature = Feature::of(text);
                assert!(feature.is_some_and(|feature| feature.built_in), "{text} is registered");
                assert!(missing(text).is_none(), "{text}");
            }
        }
        for feature in FEATURES {
            let registered = STORES.iter().any(|store| store.kind.name == feature.name);
            assert_eq!(registered, feature.built_in, "{}", feature.name);
        }
    }

    /// A command is there, or it is told how to have it.
    #[test]
    fn every_service_is_known_by_its_feature() {
        let command = Arguments::command();
        for (feature, word) in
            SERVICES.iter().flat_map(|each| each.words.iter().map(move |word| (each, word)))
        {
            assert_eq!(command.find_subcommand(word).is_some(), feature.built_in, "{word}");
            let remedy = format!("{word} is not in this build: build with --features {}", feature.name);
            assert_eq!(missing_command(word), (!feature.built_in).then_some(remedy), "{word}");
        }
        assert_eq!(missing_command("inventory"), None);
    }

    #[test]
    fn what_is_left_out_says_how_to_have_it() {
        for feature in left_out() {
            for word in feature.words {
                for text in
                    [(*word).to_owned(), format!("{word}://ann@db.example/shop"), format!("{word}/engine")]
                {
                    let said = missing(&text).unwrap().to_string();
                    assert!(said.contains(&format!("build with --features {}", feature.name)), "{said}");
                    assert!(!said.contains("ann@"), "{said}");
                }
            }
        }
    }

    #[cfg(all(feature = "elasticsearch", feature = "postgres", feature = "redis"))]
    #[test]
    fn an_address_that_keeps_no_locks_is_told_with_a_remedy() {
        for (address, words) in [
            ("mysql://ann:hunter2@127.0.0.1:1/a", "locks are kept on Redis or PostgreSQL"),
            ("redis://ann:hunter2@127.0.0.1:1", "start the server"),
            ("postgres://ann:hunter2@127.0.0.1:1/a", "start the server"),
        ] {
            let error = wait(open_locks(&Address::parse(address).unwrap())).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(words) && shown.contains("remedy: "), "{shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
