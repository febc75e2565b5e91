//! The collector of log entries: acidtest itself, which stores what gateways have put into a broker.

use acidtest_model::Address;

use super::{Kind, Site, no_init, ours};
use crate::invocation::Invocation;

pub(super) static KIND: Kind =
    ours("collector", |port| Address::loopback("http", None, port, ""), no_init, run);

fn run(site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .args(["collector", "--listen", &format!("127.0.0.1:{}", site.port)])
        .args(&site.arguments)
}
