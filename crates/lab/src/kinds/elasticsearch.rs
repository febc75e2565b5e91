//! Elasticsearch: a cluster of a single node, on loopback.
//!
//! Whether an acknowledged write is on disk is a setting of each index (`index.translog.durability`), which the store
//! sets when it makes the index: the server is the same for every durability level.
//!
//! Its open jars speak no TLS, which is in Elastic's own security module. Where TLS is asked for, Debian's stunnel stands in
//! front of it, as its child: what it costs is counted with the server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use acidtest_model::Address;

use super::{Kind, Site, kit};
use crate::{
    certificates::{ServerFiles, write},
    error::LabError,
    invocation::{Invocation, Stop},
    port, search,
    source::Source,
};

pub(super) static KIND: Kind = Kind {
    store: "elasticsearch",
    program: "elasticsearch",
    unlike: None,
    script: None,
    source: Source::Tool("tools/get-elasticsearch"),
    places: || kit("elasticsearch"),
    stop: Stop::Terminate,
    address: |port| Address::loopback("elasticsearch", None, port, ""),
    tls: Ok(()),
    init,
    run,
    copy: None,
    sweep: None,
    damaged: &[],
};

/// How the proxy is told what to do, how this becomes the server, and the server's own port behind the proxy.
const SETTINGS: &str = "stunnel.conf";
const SCRIPT: &str = "elasticsearch.sh";
const PORT: &str = "port";

const PROXY: &str = "stunnel4";

fn proxy(site: &Site) -> Result<PathBuf, LabError> {
    search::companion(&site.binary, PROXY, Source::Package("stunnel4"))
}

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let Some(tls) = &site.tls else { return Ok(None) };
    proxy(site)?;
    let behind = port::choose(None)?;
    let settings = format!(
        "foreground = yes\npid =\ndebug = warning\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n\
         [elasticsearch]\naccept = 127.0.0.1:{}\nconnect = 127.0.0.1:{behind}\ncert = {}\nkey = {}\n",
        site.port,
        tls.certificate.display(),
        tls.key.display()
    );
    let files = [
        (SETTINGS, settings.as_str()),
        (SCRIPT, include_str!("elasticsearch.sh")),
        (PORT, &behind.to_string()),
    ];
    for (name, content) in files {
        write(&tls.folder.join(name), 0o644, content, site.user)?;
    }
    Ok(None)
}

fn run(site: &Site) -> Invocation {
    let (command, port) = match &site.tls {
        None => (Invocation::new(&site.program), site.port.to_string()),
        Some(tls) => behind_proxy(site, tls),
    };
    command
        .arg(&site.home)
        .args(["cluster.name=acidtest", "node.name=acidtest", "discovery.type=single-node"])
        .args(["network.host=127.0.0.1", &format!("http.port={port}")])
        // no other node connects to it, so any free port will do
        .arg("transport.port=0")
        // otherwise a disk that is 95 % full, however large, would make every index read-only
        .arg("cluster.routing.allocation.disk.threshold_enabled=false")
}

/// The beginning of its command with the proxy, and its own port.
fn behind_proxy(site: &Site, tls: &ServerFiles) -> (Invocation, String) {
    // if it cannot be read, the server says so itself
    let port = fs::read_to_string(tls.folder.join(PORT)).unwrap_or_default();
    let proxy = proxy(site).unwrap_or_else(|_| PROXY.into());
    let command = Invocation::new(Path::new("/bin/sh"))
        .arg(tls.folder.join(SCRIPT))
        .arg(proxy)
        .arg(tls.folder.join(SETTINGS))
        .arg(&site.program);
    (command, port)
}
