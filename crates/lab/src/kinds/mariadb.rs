//! MariaDB: an empty server whose `root` needs no password, on loopback.

use std::path::{Path, PathBuf};

use acidtest_model::{Address, Durability};

use super::{Kind, Site, nowhere_else};
use crate::{
    certificates::ServerFiles,
    error::LabError,
    invocation::{Invocation, Stop},
    search,
    source::Source,
};

const SOURCE: Source = Source::Package("mariadb-server");

pub(super) static KIND: Kind = Kind {
    store: "mariadb",
    program: "mariadbd",
    unlike: None,
    script: None,
    source: SOURCE,
    places: nowhere_else,
    stop: Stop::Terminate,
    address: |port| Address::loopback("mariadb", Some("root"), port, ""),
    tls: Ok(()),
    init,
    run,
    copy: None,
    sweep: None,
    damaged: &["Invalid log header checksum", "Unable to apply log to corrupted page"],
};

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let program = search::companion(&site.binary, "mariadb-install-db", SOURCE)?;
    let command = common(&program, site).args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--innodb-log-file-size=96M",
    ]);
    Ok(Some(command))
}

fn run(site: &Site) -> Invocation {
    let (flush, group, recover) = match site.durability {
        Durability::None => (0, "soft", "OFF"),
        Durability::Process => (2, "soft", "BACKUP"),
        Durability::Disk => (1, "none", "BACKUP"),
    };
    with_tls(common(&site.program, site), site)
        // relative to the data: an absolute path may not be longer than 107 bytes
        .args(["--socket=sock", "--pid-file=pid"])
        .args(["--bind-address=127.0.0.1", "--skip-log-bin"])
        .arg(format!("--max-connections={}", site.size.connections(2_000)))
        .args(["--innodb-buffer-pool-size=128M", "--innodb-log-file-size=96M"])
        .arg(format!("--port={}", site.port))
        .arg(format!("--innodb-flush-log-at-trx-commit={flush}"))
        // for tables of MyISAM
        .arg(format!("--myisam-recover-options={recover}"))
        // for tables of Aria; in microseconds, how long a commit that does not wait for the log's sync leaves it
        // unsynced
        .arg(format!("--aria-group-commit={group}"))
        .arg("--aria-group-commit-interval=1000000")
        // engines that Debian packages as plugins
        .args(["--plugin-maturity=experimental", "--plugin-load-add=ha_archive"])
        .arg("--plugin-load-add=ha_blackhole")
}

/// The same, taking connections with TLS alone where that is asked for.
pub(super) fn with_tls(command: Invocation, site: &Site) -> Invocation {
    match &site.tls {
        None => command,
        Some(ServerFiles { issuer, certificate, key, .. }) => command
            .path("--ssl-ca=", issuer)
            .path("--ssl-cert=", certificate)
            .path("--ssl-key=", key)
            .arg("--require-secure-transport=ON"),
    }
}

/// The options that the preparation and the server must agree on. No file of the system's settings is read.
fn common(program: &Path, site: &Site) -> Invocation {
    Invocation::new(program)
        .arg("--no-defaults")
        .path("--basedir=", &base(&site.binary))
        .path("--datadir=", &site.home.join("db"))
        // in a shared folder, a preparation would remove the temporary tables of another server
        .path("--tmpdir=", &site.home)
        .arg("--skip-name-resolve")
}

/// The installation that `sbin/mariadbd` or `bin/mariadbd` belongs to.
fn base(binary: &Path) -> PathBuf {
    binary.ancestors().nth(2).unwrap_or(Path::new("/usr")).to_owned()
}
