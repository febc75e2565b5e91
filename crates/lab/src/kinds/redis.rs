//! Redis: no snapshots; the append-only file as the durability level requires.

use acidtest_model::{Address, Durability};

use super::{Kind, Site, no_init, nowhere_else};
use crate::{
    certificates::ServerFiles,
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
    tls: Ok(()),
    init: no_init,
    run,
    copy: None,
    sweep: None,
    damaged: &[
        "Bad file format reading the append only file",
        "Unable to obtain the AOF file",
        "FATAL AOF MANIFEST FILE ERROR",
    ],
};

fn run(site: &Site) -> Invocation {
    let (appendonly, appendfsync) = match site.durability {
        Durability::None => ("no", "no"),
        Durability::Process => ("yes", "no"),
        Durability::Disk => ("yes", "always"),
    };
    let port = site.port.to_string();
    let command = Invocation::new(&site.program).arg("--dir").arg(&site.home).args(["--bind", "127.0.0.1"]);
    let command = match &site.tls {
        None => command.args(["--port", &port]),
        Some(ServerFiles { issuer, certificate, key, .. }) => command
            .args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"])
            .arg("--tls-cert-file")
            .arg(certificate)
            .arg("--tls-key-file")
            .arg(key)
            .arg("--tls-ca-cert-file")
            .arg(issuer),
    };
    // without it as many as there are by default
    let clients = site.size.connections(10_000).to_string();
    command.args(["--daemonize", "no", "--save", "", "--maxclients", &clients]).args([
        "--appendonly",
        appendonly,
        "--appendfsync",
        appendfsync,
    ])
}
