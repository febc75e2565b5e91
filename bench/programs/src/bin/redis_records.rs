//! Operations on records of Redis for a profiler: `redis_records ADDRESS MIX LOCK OPERATIONS`.

use std::process::ExitCode;

use acidtest_store_redis::Redis;

fn main() -> ExitCode {
    acidtest_bench::profile_records(8, async |address| Redis::open(address).await)
}
