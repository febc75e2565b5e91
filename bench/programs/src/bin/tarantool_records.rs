//! Operations on records of Tarantool for a profiler: `tarantool_records ADDRESS MIX LOCK OPERATIONS`.

use std::process::ExitCode;

use acidtest_store_tarantool::Tarantool;

fn main() -> ExitCode {
    acidtest_bench::profile_records(8, async |address| Tarantool::open(address).await)
}
