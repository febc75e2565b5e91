//! PostgreSQL: one cluster whose superuser `acidtest` needs no password on loopback.

use std::{fs, path::PathBuf};

use acidtest_model::{Address, Durability};

use super::{Kind, Site};
use crate::{
    certificates::{ServerFiles, write},
    error::LabError,
    invocation::{Invocation, Stop},
    search,
    source::Source,
};

const SOURCE: Source = Source::Package("postgresql");

pub(super) static KIND: Kind = Kind {
    store: "postgres",
    program: "postgres",
    unlike: None,
    script: None,
    source: SOURCE,
    places,
    // SIGTERM would wait for the clients to disconnect
    stop: Stop::Interrupt,
    address: |port| Address::loopback("postgres", Some("acidtest"), port, "postgres"),
    tls: Ok(()),
    init,
    run,
    sweep: Some(sweep),
    damaged: &[
        "could not locate a valid checkpoint record",
        "The database cluster was initialized with PG_CONTROL_VERSION",
    ],
};

/// The folders of Debian's packages: each major version has its own, none is on `PATH`; newest first.
fn places() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    if let Some(tls) = &site.tls {
        // instead of that of initdb, which lets connections in without TLS, too
        write(&hba(tls), 0o644, "hostssl all all 127.0.0.1/32 trust\n", site.user)?;
    }
    let initdb = search::companion(&site.binary, "initdb", SOURCE)?;
    let settings = ["-U", "acidtest", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
    Ok(Some(Invocation::new(&initdb).arg("-D").arg(&site.home).args(settings)))
}

fn hba(tls: &ServerFiles) -> PathBuf {
    tls.folder.join("pg_hba.conf")
}

fn run(site: &Site) -> Invocation {
    // fsync=off is PostgreSQL's only setting that waits for the kernel and not for the disk
    let (fsync, synchronous_commit) = match site.durability {
        Durability::None => ("on", "off"),
        Durability::Process => ("off", "on"),
        Durability::Disk => ("on", "on"),
    };
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={}", site.port),
        // no socket file: its path may not be longer than 107 bytes, and nobody would use it
        "unix_socket_directories=".to_owned(),
        format!("max_connections={}", site.size.connections(1_000)),
        "shared_buffers=128MB".to_owned(),
        format!("fsync={fsync}"),
        format!("synchronous_commit={synchronous_commit}"),
    ];
    let command = Invocation::new(&site.program).arg("-D").arg(&site.home);
    let command = match &site.tls {
        None => command,
        Some(tls) => command
            .args(["-c", "ssl=on"])
            .arg("-c")
            .path("ssl_cert_file=", &tls.certificate)
            .arg("-c")
            .path("ssl_key_file=", &tls.key)
            .arg("-c")
            .path("hba_file=", &hba(tls)),
    };
    settings.into_iter().fold(command, |command, setting| command.arg("-c").arg(setting))
}

/// A killed server, or a killed step of initdb, leaves shared memory behind, which the next start on the same data
/// frees: this is such a start, which ends there. It finds the memory by the data folder. The lock file would only
/// keep it from starting, as long as nobody has taken the exit status of the process that is named there; under
/// another name the file says that there is something to free, should this start be killed in its turn.
fn sweep(site: &Site) -> Option<Invocation> {
    let killed = site.home.join("killed");
    let _ = fs::rename(site.home.join("postmaster.pid"), &killed);
    killed.exists().then(|| {
        Invocation::new(&site.program).arg("--check").arg("-D").arg(&site.home).args([
            "-c",
            "unix_socket_directories=",
            "-c",
            "listen_addresses=",
        ])
    })
}
