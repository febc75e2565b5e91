//! Tarantool: one instance whose guest may do everything, on loopback.

use std::{fs, os::unix::fs::PermissionsExt};

use acidtest_model::{Address, Durability};

use super::{Kind, Site, nowhere_else};
use crate::{
    error::LabError,
    invocation::{Invocation, Stop},
    source::Source,
};

const SOURCE: Source = Source::Package("tarantool");

pub(super) static KIND: Kind = Kind {
    store: "tarantool",
    program: "tarantool",
    unlike: None,
    script: None,
    source: SOURCE,
    places: nowhere_else,
    stop: Stop::Terminate,
    address: |port| Address::loopback("tarantool", None, port, ""),
    tls: Err("only Tarantool Enterprise speaks TLS; the open server and its clients do not"),
    init,
    run,
    copy: None,
    sweep: None,
    damaged: &["XlogError"],
};

const SCRIPT: &str = "init.lua";

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let script = site.home.join(SCRIPT);
    fs::write(&script, include_str!("tarantool.lua")).map_err(LabError::at("writing", &script))?;
    // the server's user must be able to read it, whatever our umask is
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644))
        .map_err(LabError::at("opening to all", &script))?;
    Ok(None)
}

fn run(site: &Site) -> Invocation {
    let wal_mode = match site.durability {
        Durability::None => "none",
        Durability::Process => "write",
        Durability::Disk => "fsync",
    };
    // a bound, taken only as it is used: at least enough for a million records of 1 KB
    let memory = site.size.data_bytes.saturating_mul(2).max(2 << 30);
    Invocation::new(&site.program)
        .arg(site.home.join(SCRIPT))
        .arg(site.port.to_string())
        .arg(wal_mode)
        .arg(memory.to_string())
}
