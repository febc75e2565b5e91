//! Messages of RabbitMQ for a profiler: `rabbitmq_queue ADDRESS PHASE WINDOW MESSAGES`.

use std::process::ExitCode;

use acidtest_store_rabbitmq::RabbitMq;

fn main() -> ExitCode {
    acidtest_bench::profile_queue(async |address| RabbitMq::open(address).await)
}
