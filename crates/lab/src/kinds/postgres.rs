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

/// The superuser.
const USER: &str = "acidtest";

/// What a server needs besides where others follow it, or it follows another. All have the same, as each may come to lead.
/// What changes then is not here, as a command line could not be overruled: `synchronous_standby_names`, `synchronous_commit` and
/// `primary_conninfo`.
const IN_CLUSTER: [&str; 7] = [
    "hot_standby=on",
    // six replicas, and two for each that is just being copied
    "max_wal_senders=20",
    // what a replica has not had that was cut off for some seconds
    "wal_keep_size=512MB",
    // by default a replica tries to reach its leader again after 5 s, which a trial would not live to see
    "wal_retrieve_retry_interval=100ms",
    "wal_receiver_status_interval=1s",
    // by default a minute: so long either would take a link that is cut for one with nothing to say
    "wal_sender_timeout=5s",
    "wal_receiver_timeout=5s",
];

pub(super) static KIND: Kind = Kind {
    store: "postgres",
    program: "postgres",
    unlike: None,
    script: None,
    source: SOURCE,
    places,
    // SIGTERM would wait for the clients to disconnect
    stop: Stop::Interrupt,
    address: |port| Address::loopback("postgres", Some(USER), port, "postgres"),
    tls: Ok(()),
    init,
    run,
    copy: Some(copy),
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
    write_hba(site)?;
    let initdb = search::companion(&site.binary, "initdb", SOURCE)?;
    let settings = ["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"];
    Ok(Some(Invocation::new(&initdb).arg("-D").arg(&site.home).args(settings)))
}

/// A copy of the leader, which says to the copy where the leader is, and by what name it is to follow: the one by which the
/// leader's `synchronous_standby_names` knows it.
fn copy(site: &Site, leader: &Address) -> Result<Invocation, LabError> {
    write_hba(site)?;
    let tool = search::companion(&site.binary, "pg_basebackup", SOURCE)?;
    let user = leader.user.as_deref().unwrap_or(USER);
    let sslmode = if leader.tls.is_some() { "require" } else { "disable" };
    let mut reached = vec![
        format!("host={}", quoted(&leader.host)),
        format!("user={}", quoted(user)),
        format!("sslmode={sslmode}"),
        // a leader whom a cut keeps from answering is connected all the same
        format!("connect_timeout={}", leader.connect_timeout.as_secs().max(1)),
    ];
    reached.extend(leader.port.map(|port| format!("port={port}")));
    reached.extend(site.in_cluster.map(|name| format!("application_name={name}")));
    let settings = ["-R", "-X", "stream", "-c", "fast", "--no-sync"];
    Ok(Invocation::new(&tool).arg("-D").arg(&site.home).arg("-d").arg(reached.join(" ")).args(settings))
}

/// A value in a connection string.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Writes who may connect with TLS, instead of the file of initdb, which lets connections in without, too.
fn write_hba(site: &Site) -> Result<(), LabError> {
    let Some(tls) = &site.tls else { return Ok(()) };
    let file = hba(tls);
    // a server that is copied anew has one
    if file.exists() {
        return Ok(());
    }
    let mut lines = "hostssl all all 127.0.0.1/32 trust\n".to_owned();
    if site.in_cluster.is_some() {
        lines.push_str("hostssl replication all 127.0.0.1/32 trust\n");
    }
    write(&file, 0o644, &lines, site.user)
}

fn hba(tls: &ServerFiles) -> PathBuf {
    tls.folder.join("pg_hba.conf")
}

fn run(site: &Site) -> Invocation {
    // fsync=off is PostgreSQL's only setting that waits for the kernel and not for the disk
    let fsync = if site.durability == Durability::Process { "off" } else { "on" };
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={}", site.port),
        // no socket file: its path may not be longer than 107 bytes, and nobody would use it
        "unix_socket_directories=".to_owned(),
        format!("max_connections={}", site.size.connections(1_000)),
        "shared_buffers=128MB".to_owned(),
        format!("fsync={fsync}"),
    ];
    // otherwise it is on by default, and a leader can be set to more
    if site.durability == Durability::None {
        settings.push("synchronous_commit=off".to_owned());
    }
    if let Some(name) = site.in_cluster {
        settings.extend(IN_CLUSTER.map(str::to_owned));
        settings.push(format!("cluster_name={name}"));
    }
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
