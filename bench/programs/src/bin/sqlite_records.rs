//! Operations on records of `SQLite` for a profiler: `sqlite_records ADDRESS MIX LOCK OPERATIONS`.

use std::process::ExitCode;

use acidtest_model::Durability;
use acidtest_store_sqlite::Sqlite;

fn main() -> ExitCode {
    acidtest_bench::profile_records(1, async |address| Sqlite::open(address, Some(Durability::None)))
}
