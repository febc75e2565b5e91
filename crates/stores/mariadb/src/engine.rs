//! The storage engines of the server products, and the lock modes, durability levels and workloads that each engine supports.

use acidtest_model::{CellRequest, Durability, Hosting, Isolation, Lock, NO_REFRESH, StoreKind, Support};
use acidtest_workloads::{
    parcels::beyond_a_table,
    queue::{Delivery, idle_on_tables},
};

use crate::{parcels, product::Product, queue};

pub(crate) const DEFAULT_PORT: u16 = 3306;

/// The storage engine that keeps a trial's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `InnoDB`: transactions, locks on rows, a log.
    InnoDb,
    /// `MyISAM`: locks on tables, no log.
    MyIsam,
    /// Aria: locks on tables, a log to recover from crashes.
    Aria,
    /// MEMORY: locks on tables, nothing on disk.
    Memory,
    /// CSV: a text file, without an index.
    Csv,
    /// ARCHIVE: a compressed file to which rows are only appended.
    Archive,
    /// BLACKHOLE: discards every row.
    Blackhole,
}

impl Engine {
    /// The engine's name in SQL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InnoDb => "InnoDB",
            Self::MyIsam => "MyISAM",
            Self::Aria => "Aria",
            Self::Memory => "MEMORY",
            Self::Csv => "CSV",
            Self::Archive => "ARCHIVE",
            Self::Blackhole => "BLACKHOLE",
        }
    }

    /// Whether the engine has transactions, and with them locks on rows and a rollback of statements that fail.
    pub(crate) fn is_transactional(self) -> bool {
        self == Self::InnoDb
    }

    /// Whether a column can be the primary key.
    pub(crate) fn is_indexed(self) -> bool {
        !matches!(self, Self::Csv | Self::Archive)
    }

    /// Whether rows can be updated once they are inserted.
    pub(crate) fn is_updated(self) -> bool {
        !matches!(self, Self::Archive | Self::Blackhole)
    }

    /// Whether the engine gives rows their ids, and finds by an index the scans of a parcel that are to be counted.
    pub(crate) fn counts_scans(self) -> bool {
        self.is_indexed() && self.is_updated()
    }

    /// A hint on how to make the engine available on a server that lacks it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Archive => "INSTALL SONAME 'ha_archive', or name an engine that SHOW ENGINES lists",
            Self::Blackhole => "INSTALL SONAME 'ha_blackhole', or name an engine that SHOW ENGINES lists",
            _ => "name an engine that SHOW ENGINES lists, or have the server started with this one",
        }
    }
}

/// A product with one of its engines, which is a store of its own.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The store's entry in the list of stores: its names, and the lock modes, durability levels and workloads it supports.
    pub kind: StoreKind,
    /// The product that a server must be for this store.
    pub product: Product,
    /// The engine in which the store's tables are created.
    pub engine: Engine,
}

/// The names by which a variant is shown, listed and addressed.
struct Names {
    name: &'static str,
    title: &'static str,
    schemes: &'static [&'static str],
    address: &'static str,
}

macro_rules! names {
    ($title:literal, $scheme:literal, $name:literal) => {
        &Names {
            name: $name,
            title: $title,
            schemes: &[$scheme],
            address: concat!($scheme, "://USER:PASSWORD@HOST:3306"),
        }
    };
}

impl Variant {
    /// `MariaDB` with its default engine, `InnoDB`.
    pub const MARIADB: Self =
        Self::new(Product::MariaDb, Engine::InnoDb, names!("MariaDB", "mariadb", "mariadb"));
    /// `MariaDB` with `InnoDB`, under the engine's name.
    pub const MARIADB_INNODB: Self = Self::new(
        Product::MariaDb,
        Engine::InnoDb,
        names!("MariaDB, InnoDB", "mariadb+innodb", "mariadb/innodb"),
    );
    /// `MariaDB` with `MyISAM`: locks on tables, no log.
    pub const MARIADB_MYISAM: Self = Self::new(
        Product::MariaDb,
        Engine::MyIsam,
        names!("MariaDB, MyISAM", "mariadb+myisam", "mariadb/myisam"),
    );
    /// `MariaDB` with Aria: locks on tables, a log to recover from crashes.
    pub const MARIADB_ARIA: Self =
        Self::new(Product::MariaDb, Engine::Aria, names!("MariaDB, Aria", "mariadb+aria", "mariadb/aria"));
    /// `MariaDB` with MEMORY: locks on tables, nothing on disk.
    pub const MARIADB_MEMORY: Self = Self::new(
        Product::MariaDb,
        Engine::Memory,
        names!("MariaDB, MEMORY", "mariadb+memory", "mariadb/memory"),
    );
    /// `MariaDB` with CSV: a text file, without an index.
    pub const MARIADB_CSV: Self =
        Self::new(Product::MariaDb, Engine::Csv, names!("MariaDB, CSV", "mariadb+csv", "mariadb/csv"));
    /// `MariaDB` with ARCHIVE: a compressed file to which rows are only appended.
    pub const MARIADB_ARCHIVE: Self = Self::new(
        Product::MariaDb,
        Engine::Archive,
        names!("MariaDB, ARCHIVE", "mariadb+archive", "mariadb/archive"),
    );
    /// `MariaDB` with BLACKHOLE: discards every row.
    pub const MARIADB_BLACKHOLE: Self = Self::new(
        Product::MariaDb,
        Engine::Blackhole,
        names!("MariaDB, BLACKHOLE", "mariadb+blackhole", "mariadb/blackhole"),
    );
    /// `MySQL` with its default engine, `InnoDB`.
    pub const MYSQL: Self = Self::new(Product::MySql, Engine::InnoDb, names!("MySQL", "mysql", "mysql"));
    /// `MySQL` with `InnoDB`, under the engine's name.
    pub const MYSQL_INNODB: Self =
        Self::new(Product::MySql, Engine::InnoDb, names!("MySQL, InnoDB", "mysql+innodb", "mysql/innodb"));
    /// `MySQL` with `MyISAM`: locks on tables, no log.
    pub const MYSQL_MYISAM: Self =
        Self::new(Product::MySql, Engine::MyIsam, names!("MySQL, MyISAM", "mysql+myisam", "mysql/myisam"));

    const fn new(product: Product, engine: Engine, names: &Names) -> Self {
        let &Names { name, title, schemes, address } = names;
        let row = Row::of(engine);
        let kind = StoreKind {
            name,
            title,
            schemes,
            address,
            hosting: Hosting::Program,
            default_port: DEFAULT_PORT,
            locks: row.locks,
            durability: row.durability,
            isolation: row.isolation,
            transactions: row.transactions,
            refresh: NO_REFRESH,
            tls: acidtest_model::OWN_TLS,
            replication: &[],
            replica_reads: None,
            lock_service: false,
            processes: acidtest_model::EACH_CONNECTS,
            durability_of_data: false,
            in_memory: matches!(engine, Engine::Memory),
            client_kib: match product {
                Product::MariaDb => 339,
                Product::MySql => 422,
            },
            workloads: row.workloads,
            refuses: row.refuses,
            idle: idle_on_tables,
        };
        Self { kind, product, engine }
    }
}

/// The part of a store's entry in the list of stores that depends on the engine alone, whichever product has it.
struct Row {
    locks: &'static [(Lock, Support)],
    durability: &'static [(Durability, Support)],
    isolation: &'static [(Isolation, Support)],
    transactions: Support,
    workloads: &'static [(&'static str, Support)],
    refuses: fn(&CellRequest<'_>) -> Option<&'static str>,
}

impl Row {
    const fn of(engine: Engine) -> Self {
        match engine {
            Engine::InnoDb => INNODB,
            Engine::MyIsam => Self { durability: MYISAM_DURABILITY, ..TABLE_LOCKED },
            Engine::Aria => Self { durability: ARIA_DURABILITY, ..TABLE_LOCKED },
            Engine::Memory => Self { durability: MEMORY_DURABILITY, ..TABLE_LOCKED },
            Engine::Csv => Self { durability: CSV_DURABILITY, workloads: SCANNED, ..TABLE_LOCKED },
            Engine::Archive => ARCHIVE,
            Engine::Blackhole => BLACKHOLE,
        }
    }
}

const INNODB: Row = Row {
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version column in the UPDATE's WHERE")),
        (Lock::Hard, Support::Yes("SELECT … FOR UPDATE, UPDATE, COMMIT")),
        (Lock::Native, Support::Yes("one UPDATE, or a stored procedure in one CALL")),
    ],
    durability: &[
        (Durability::None, Support::Yes("innodb_flush_log_at_trx_commit=0")),
        (Durability::Process, Support::Yes("innodb_flush_log_at_trx_commit=2")),
        (Durability::Disk, Support::Yes("innodb_flush_log_at_trx_commit=1, sync_binlog=1 if log_bin")),
    ],
    isolation: &[
        (Isolation::ReadUncommitted, LEVEL),
        (Isolation::ReadCommitted, LEVEL),
        (Isolation::RepeatableRead, LEVEL),
        (Isolation::Serializable, LEVEL),
    ],
    transactions: Support::Yes("START TRANSACTION … COMMIT"),
    workloads: &[
        ("inventory", Support::Yes("capture and release")),
        ("records", Support::Yes("all operations")),
        ("join", Support::Yes("both orders")),
        ("queue", Support::Yes("a table: INSERT, SELECT … FOR UPDATE SKIP LOCKED, DELETE")),
        ("logs", Support::Yes("a gateway in front of it: LOAD DATA LOCAL or INSERT of many rows")),
        ("parcels", SCANS),
        (
            "transactions",
            Support::Yes("START TRANSACTION, a statement for each step, COMMIT; lists are text"),
        ),
    ],
    refuses: |request| beyond_a_table(request).or_else(|| queue::refuses(&Delivery::of(request)?)),
};

const LEVEL: Support = Support::Yes("SET SESSION TRANSACTION ISOLATION LEVEL");

const NO_LEVEL: Support = Support::No("levels are for transactions, which only InnoDB has");

/// The entries shared by engines that lock whole tables.
const TABLE_LOCKED: Row = Row {
    locks: &[
        (Lock::None, Support::Yes("SELECT, then UPDATE to the computed value")),
        (Lock::Soft, Support::Yes("version column in the UPDATE's WHERE")),
        (Lock::Hard, Support::Yes("LOCK TABLES … WRITE, SELECT, UPDATE, UNLOCK TABLES")),
        (
            Lock::Native,
            Support::Yes("one UPDATE, which locks the table; rmw: one that notes what it overwrites"),
        ),
    ],
    durability: &[],
    isolation: &[
        (Isolation::ReadUncommitted, NO_LEVEL),
        (Isolation::ReadCommitted, NO_LEVEL),
        (Isolation::RepeatableRead, NO_LEVEL),
        (Isolation::Serializable, NO_LEVEL),
    ],
    transactions: Support::No(
        "only InnoDB has them: elsewhere START TRANSACTION is accepted and does nothing",
    ),
    workloads: &[
        ("inventory", NO_CAPTURE),
        ("records", Support::Yes("all operations")),
        ("join", Support::Yes("both orders")),
        ("queue", NO_QUEUE),
        ("logs", NO_LOGS),
        ("parcels", SCANS),
        ("transactions", NO_TRANSACTIONS),
    ],
    refuses: parcels::refuses_on_locked_tables,
};

const NO_TRANSACTIONS: Support = Support::No("only InnoDB has transactions");

const SCANS: Support = Support::Yes("the table SCANS");

const NO_CAPTURE: Support =
    Support::No("a capture from several tuples is one transaction, which only InnoDB has");

const NO_LOGS: Support = Support::No("a gateway stores in InnoDB");
const NO_QUEUE: Support = Support::No(
    "a consumer locks what it takes, and gives it back if it dies: only InnoDB locks rows and rolls back",
);

const SCANNED: &[(&str, Support)] = &[
    ("inventory", NO_CAPTURE),
    ("records", Support::Yes("all operations, each a scan of the file, as nothing is indexed")),
    ("join", Support::Yes("both orders, without an index")),
    ("queue", NO_QUEUE),
    ("logs", NO_LOGS),
    ("parcels", Support::No("CSV has no index, and no column that gives a row its id")),
    ("transactions", NO_TRANSACTIONS),
];

const MYISAM_DURABILITY: &[(Durability, Support)] = &[
    (Durability::None, Support::Yes("myisam_recover_options=OFF")),
    (Durability::Process, Support::Yes("myisam_recover_options=BACKUP")),
    (
        Durability::Disk,
        Support::No(
            "flush=ON syncs each statement, but rows are overwritten in place and without a log: \
             power lost in a later write takes what was there",
        ),
    ),
];

const ARIA_DURABILITY: &[(Durability, Support)] = &[
    (Durability::None, Support::No("the log is written before the answer, whatever is set")),
    (Durability::Process, Support::Yes("aria_group_commit=soft")),
    (
        Durability::Disk,
        Support::No(
            "aria_group_commit=none syncs the log, but Aria has no copy of a page that a loss of power leaves half \
             written",
        ),
    ),
];

const MEMORY_DURABILITY: &[(Durability, Support)] = &[
    (Durability::None, Support::Yes("always: nothing is kept on disk")),
    (Durability::Process, Support::No("nothing is kept on disk")),
    (Durability::Disk, Support::No("nothing is kept on disk")),
];

const CSV_DURABILITY: &[(Durability, Support)] = &[
    (Durability::None, Support::No("every row is written to the file before the answer, whatever is set")),
    (Durability::Process, Support::Yes("always: rows are written to the file before the answer")),
    (Durability::Disk, Support::No("an inserted row is never synced")),
];

const ARCHIVE: Row = Row {
    locks: &[
        (Lock::None, Support::Yes("nothing to protect: rows are inserted and never changed")),
        (Lock::Soft, Support::No("nothing is updated that could be stale")),
        (Lock::Hard, Support::No("nothing is updated that could be locked")),
        (Lock::Native, Support::Yes("one INSERT")),
    ],
    durability: &[
        (Durability::None, Support::Yes("always: rows wait in the server's memory to be compressed")),
        (
            Durability::Process,
            Support::No("a row is written when the table is next read, not before the answer"),
        ),
        (
            Durability::Disk,
            Support::No("a row is written when the table is next read, not before the answer"),
        ),
    ],
    workloads: &[
        ("inventory", NO_CAPTURE),
        ("records", Support::Yes("insert, and read and scan through the whole file")),
        ("join", Support::Yes("both orders, without an index")),
        ("queue", NO_QUEUE),
        ("logs", NO_LOGS),
        ("parcels", Support::No("ARCHIVE has no index on SCAN_HASH, and unpacks the whole file to count")),
        ("transactions", NO_TRANSACTIONS),
    ],
    refuses: |request| {
        request.does(&["update", "rmw"]).then_some("ARCHIVE inserts and selects: it has no UPDATE")
    },
    ..TABLE_LOCKED
};

const BLACKHOLE: Row = Row {
    locks: ARCHIVE.locks,
    durability: &[
        (Durability::None, Support::Yes("always: nothing is kept")),
        (Durability::Process, Support::No("nothing is kept")),
        (Durability::Disk, Support::No("nothing is kept")),
    ],
    workloads: &[
        ("inventory", NO_CAPTURE),
        ("records", Support::Yes("insert; the audit then finds every record lost")),
        ("join", Support::No("BLACKHOLE keeps nothing that could be joined")),
        ("queue", NO_QUEUE),
        ("logs", NO_LOGS),
        ("parcels", Support::No("BLACKHOLE keeps nothing that could be counted")),
        ("transactions", NO_TRANSACTIONS),
    ],
    refuses: |request| {
        request
            .does(&["read", "update", "scan", "rmw"])
            .then_some("BLACKHOLE keeps nothing: there is no record to find; it takes inserts (mix write)")
    },
    ..TABLE_LOCKED
};

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Variant; 11] = [
        Variant::MARIADB,
        Variant::MARIADB_INNODB,
        Variant::MARIADB_MYISAM,
        Variant::MARIADB_ARIA,
        Variant::MARIADB_MEMORY,
        Variant::MARIADB_CSV,
        Variant::MARIADB_ARCHIVE,
        Variant::MARIADB_BLACKHOLE,
        Variant::MYSQL,
        Variant::MYSQL_INNODB,
        Variant::MYSQL_MYISAM,
    ];

    #[test]
    fn every_variant_is_run_by_its_product_s_server() {
        for Variant { kind, product, engine } in ALL {
            assert_eq!(kind.program(), product.scheme());
            let suffix = kind.name.split_once('/').map(|(_, suffix)| suffix);
            assert_eq!(suffix.unwrap_or("innodb"), engine.name().to_lowercase());
            let scheme = kind.name.replace('/', "+");
            assert_eq!(kind.schemes, [&scheme]);
            assert!(kind.address.starts_with(&format!("{scheme}://")));
        }
    }

    #[test]
    fn every_variant_says_something_of_all_that_can_be_asked() {
        for Variant { kind, .. } in ALL {
            assert_eq!(kind.locks.iter().map(|(lock, _)| *lock).collect::<Vec<_>>(), Lock::ALL);
            assert_eq!(
                kind.durability.iter().map(|(durability, _)| *durability).collect::<Vec<_>>(),
                Durability::ALL
            );
            assert_eq!(kind.isolation.iter().map(|(level, _)| *level).collect::<Vec<_>>(), Isolation::ALL);
            assert_eq!(kind.workloads.len(), 7);
        }
    }

    #[test]
    fn what_cannot_be_changed_or_found_is_refused_with_the_reason() {
        let request = |operations: &[&'static str]| CellRequest {
            workload: "records",
            operations: operations.to_vec(),
            lock: Lock::None,
            isolation: None,
            transaction: 1,
            parameters: acidtest_workloads::Values::new(),
        };
        let refuses = |variant: Variant, operations| (variant.kind.refuses)(&request(operations)).is_some();
        assert!(!refuses(Variant::MARIADB_ARCHIVE, &["read", "insert", "scan"]));
        assert!(refuses(Variant::MARIADB_ARCHIVE, &["read", "update"]));
        assert!(!refuses(Variant::MARIADB_BLACKHOLE, &["insert"]));
        assert!(refuses(Variant::MARIADB_BLACKHOLE, &["read", "insert"]));
        assert!(!refuses(Variant::MARIADB_CSV, &["read", "update", "insert", "scan", "rmw"]));
    }
}
