//! Messages of Tarantool for a profiler: `tarantool_queue ADDRESS PHASE WINDOW MESSAGES`.

use std::process::ExitCode;

use acidtest_store_tarantool::Tarantool;

fn main() -> ExitCode {
    acidtest_bench::profile_queue(async |address| Tarantool::open(address).await)
}
