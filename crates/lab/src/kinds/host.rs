//! The hosts of embedded stores: acidtest itself, which keeps such a store in a process of its own, so that it can be
//! killed.

use acidtest_model::Address;

use super::{Kind, Site, no_init, ours};
use crate::invocation::Invocation;

pub(super) static SQLITE: Kind =
    ours("sqlite", |port| at("sqlite", port), no_init, |site| run("sqlite", site));
pub(super) static FJALL: Kind = ours("fjall", |port| at("fjall", port), no_init, |site| run("fjall", site));

fn at(store: &str, port: u16) -> Address {
    Address::loopback(store, None, port, "")
}

fn run(store: &str, site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .args(["host", store, "--durability", site.durability.name()])
        .args(["--port", &site.port.to_string()])
        .arg(site.home.join(super::HOSTED))
}
