//! The join workload against real servers, on every engine that keeps rows to join.

use acidtest_testbed::join;

use crate::common;

macro_rules! joins {
    ($($test:ident: $variant:ident,)*) => {
        $(
            #[test]
            fn $test() {
                common::$variant.passes(&[join::finds_its_rows, join::is_explained]);
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
