//! Messages of Redis for a profiler: `redis_queue ADDRESS PHASE WINDOW MESSAGES`.

use std::process::ExitCode;

use acidtest_store_redis::Redis;

fn main() -> ExitCode {
    acidtest_bench::profile_queue(async |address| Redis::open(address).await)
}
