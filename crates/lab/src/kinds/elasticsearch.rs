//! Elasticsearch: one node that is a cluster by itself, on loopback.
//!
//! What is acknowledged when is a setting of each index (`index.translog.durability`), which its maker
//! chooses: the server is the same for every rung.

use acidtest_model::Address;

use super::{Invocation, Kind, Site, Stop, kit, no_init};
use crate::installed::Source;

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
        // nobody calls it there: any free port will do
        .arg("transport.port=0")
        // else a disk that is 95 % full, however large, would make every index read-only
        .arg("cluster.routing.allocation.disk.threshold_enabled=false")
}
