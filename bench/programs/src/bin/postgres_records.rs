//! Operations on records of PostgreSQL for a profiler: `postgres_records ADDRESS MIX LOCK OPERATIONS`.

use std::process::ExitCode;

use acidtest_store_postgres::Postgres;

fn main() -> ExitCode {
    acidtest_bench::profile_records(8, async |address| Postgres::open(address).await)
}
