//! Elasticsearch: a cluster of a single node, on loopback.
//!
//! Whether an acknowledged write is on disk is a setting of each index (`index.translog.durability`), which the store
//! sets when it makes the index: the server is the same for every durability level.

use acidtest_model::Address;

use super::{Kind, Site, kit, no_init};
use crate::{
    invocation::{Invocation, Stop},
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
    init: no_init,
    run,
    sweep: None,
};

fn run(site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .arg(&site.home)
        .args(["cluster.name=acidtest", "node.name=acidtest", "discovery.type=single-node"])
        .args(["network.host=127.0.0.1", &format!("http.port={}", site.port)])
        // no other node connects to it, so any free port will do
        .arg("transport.port=0")
        // otherwise a disk that is 95 % full, however large, would make every index read-only
        .arg("cluster.routing.allocation.disk.threshold_enabled=false")
}
