//! Messages of NATS JetStream for a profiler: `nats_queue ADDRESS PHASE WINDOW MESSAGES`.

use std::process::ExitCode;

use acidtest_store_nats::Nats;

fn main() -> ExitCode {
    acidtest_bench::profile_queue(async |address| Nats::open(address).await)
}
