//! The hosts of embedded stores: acidtest itself, which keeps such a store in a process of its own, so that it can be
//! killed.

use acidtest_model::Address;

use super::{Kind, Site, no_init, nowhere_else};
use crate::{
    invocation::{Invocation, Stop},
    source::Source,
};

pub(super) static SQLITE: Kind = host("sqlite", |site| run("sqlite", site), |port| at("sqlite", port));
pub(super) static FJALL: Kind = host("fjall", |site| run("fjall", site), |port| at("fjall", port));

const fn host(store: &'static str, run: fn(&Site) -> Invocation, address: fn(u16) -> Address) -> Kind {
    Kind {
        store,
        program: "acidtest",
        unlike: None,
        script: None,
        source: Source::Acidtest,
        places: nowhere_else,
        stop: Stop::Terminate,
        address,
        init: no_init,
        run,
        sweep: None,
    }
}

fn at(store: &str, port: u16) -> Address {
    Address::loopback(store, None, port, "")
}

fn run(store: &str, site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .args(["host", store, "--durability", site.durability.name()])
        .args(["--port", &site.port.to_string()])
        .arg(site.home.join(super::HOSTED))
}
