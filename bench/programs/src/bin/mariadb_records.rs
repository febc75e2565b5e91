//! Operations on records of MariaDB for a profiler: `mariadb_records ADDRESS MIX LOCK OPERATIONS`.

use std::process::ExitCode;

use acidtest_store_mariadb::Variant;

fn main() -> ExitCode {
    acidtest_bench::profile_records(8, async |address| Variant::MARIADB.open(address).await)
}
