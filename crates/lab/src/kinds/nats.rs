//! NATS with JetStream, on loopback, without its monitoring port. Whether a message survives a crash is a setting of
//! its stream (file or memory), not of the server.

use acidtest_model::Address;

use super::{Kind, Site, no_init, nowhere_else};
use crate::{
    certificates::ServerFiles,
    invocation::{Invocation, Stop},
    source::Source,
};

const SOURCE: Source = Source::Package("nats-server");

pub(super) static KIND: Kind = Kind {
    store: "nats",
    program: "nats-server",
    unlike: None,
    script: None,
    source: SOURCE,
    places: nowhere_else,
    // the server stops on SIGTERM too, but 2.9 then exits with status 1
    stop: Stop::Interrupt,
    address: |port| Address::loopback("nats", None, port, ""),
    tls: Ok(()),
    init: no_init,
    run,
    copy: None,
    sweep: None,
    damaged: &[],
};

fn run(site: &Site) -> Invocation {
    let command = Invocation::new(&site.program)
        .args(["--addr", "127.0.0.1", "--port", &site.port.to_string()])
        .args(["--name", "acidtest", "--jetstream", "--store_dir"])
        .arg(site.home.join("jetstream"));
    match &site.tls {
        None => command,
        Some(ServerFiles { certificate, key, .. }) => {
            command.arg("--tls").arg("--tlscert").arg(certificate).arg("--tlskey").arg(key)
        }
    }
}
