//! MySQL, Oracle's own: an empty server whose `root` needs no password, on loopback.

use std::{fs, os::unix::fs::PermissionsExt};

use acidtest_model::{Address, Durability};

use super::{Kind, Site, kit, mariadb::with_tls};
use crate::{
    error::LabError,
    invocation::{Invocation, Stop},
    source::Source,
};

pub(super) static KIND: Kind = Kind {
    store: "mysql",
    program: "mysqld",
    // Debian installs MariaDB under the name of MySQL's program
    unlike: Some("MariaDB"),
    script: None,
    source: Source::Tool("tools/get-mysql"),
    places: || kit("mysql"),
    stop: Stop::Terminate,
    address: |port| Address::loopback("mysql", Some("root"), port, ""),
    tls: Ok(()),
    init,
    run,
    copy: None,
    sweep: None,
    damaged: &[
        "Invalid redo log header checksum",
        "Database page corruption on disk or a failed file read",
        "could not be found in the doublewrite buffer",
        "Could not find any file associated with the tablespace ID",
    ],
};

/// By default `root` may log in through the socket file alone, which no client here uses.
const ROOT: &str = "CREATE USER root@127.0.0.1 IDENTIFIED BY '';\n\
                    GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;\n";

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let script = site.home.join("init.sql");
    fs::write(&script, ROOT).map_err(LabError::at("writing", &script))?;
    // the server's user must read it, whatever our umask
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644))
        .map_err(LabError::at("opening to all", &script))?;
    Ok(Some(common(site).arg("--initialize-insecure").path("--init-file=", &script)))
}

fn run(site: &Site) -> Invocation {
    let (flush, recover) = match site.durability {
        Durability::None => (0, "OFF"),
        Durability::Process => (2, "BACKUP"),
        Durability::Disk => (1, "BACKUP"),
    };
    with_tls(common(site), site)
        // relative to the data: an absolute path may not be longer than 107 bytes
        .args(["--socket=sock", "--pid-file=pid", "--mysqlx=OFF"])
        .args(["--bind-address=127.0.0.1", "--skip-log-bin"])
        .arg(format!("--max-connections={}", site.size.connections(2_000)))
        // off, as MariaDB has it by default: for so many connections it would take several hundred megabytes
        .arg("--performance-schema=OFF")
        .arg("--innodb-buffer-pool-size=128M")
        .arg(format!("--port={}", site.port))
        .arg(format!("--innodb-flush-log-at-trx-commit={flush}"))
        // for tables of MyISAM
        .arg(format!("--myisam-recover-options={recover}"))
}

/// The options that the preparation and the server must agree on. No file of the system's settings is read.
fn common(site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .arg("--no-defaults")
        .path("--datadir=", &site.home.join("db"))
        .path("--tmpdir=", &site.home)
        // the package's folder, which the server would insist on, does not exist here
        .args(["--secure-file-priv=NULL", "--skip-name-resolve", "--innodb-redo-log-capacity=192M"])
}
