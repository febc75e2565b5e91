//! The join workload against real servers, on every engine that keeps rows to join.

mod common;

use acidtest_store_mariadb::MariaDb;
use acidtest_testbed::{Subject, join};

macro_rules! joins {
    ($($test:ident: $variant:ident,)*) => {
        $(
            #[test]
            fn $test() {
                let subject: Subject<MariaDb> = common::subject!($variant);
                subject.passes(&[join::finds_its_rows, join::is_explained]);
            }
        )*
    };
}

joins! {
    innodb_joins: MARIADB,
    myisam_joins: MARIADB_MYISAM,
    aria_joins: MARIADB_ARIA,
    memory_joins: MARIADB_MEMORY,
    csv_joins: MARIADB_CSV,
    archive_joins: MARIADB_ARCHIVE,
}
