//! Redis: no snapshots; the append-only file as the durability level requires.

use acidtest_model::{Address, Durability};

use super::{Kind, Site, no_init, nowhere_else};
use crate::{
    invocation::{Invocation, Stop},
    source::Source,
};

const SOURCE: Source = Source::Package("redis-server");

pub(super) static KIND: Kind = Kind {
    store: "redis",
    program: "redis-server",
    unlike: None,
    script: None,
    source: SOURCE,
    places: nowhere_else,
    stop: Stop::Terminate,
    address: |port| Address::loopback("redis", None, port, ""),
    init: no_init,
    run,
    sweep: None,
};

fn run(site: &Site) -> Invocation {
    let (appendonly, appendfsync) = match site.durability {
        Durability::None => ("no", "no"),
        Durability::Process => ("yes", "no"),
        Durability::Disk => ("yes", "always"),
    };
    Invocation::new(&site.program)
        .arg("--dir")
        .arg(&site.home)
        .args(["--bind", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--daemonize", "no", "--save", ""])
        .args(["--appendonly", appendonly, "--appendfsync", appendfsync])
}
