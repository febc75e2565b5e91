//! Version and settings as the server reports them, and the durability level that they amount to.

use std::collections::BTreeMap;

use acidtest_model::{Durability, EffectiveSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    fault::Error,
    http::{Answer, Connection},
    server::{Greeting, Version},
};

/// Settings of the cluster and its nodes that bear on a guarantee or on speed.
const CLUSTER: [&str; 8] = [
    "action.auto_create_index",
    "cluster.routing.allocation.disk.threshold_enabled",
    "indexing_pressure.memory.limit",
    "indices.breaker.total.limit",
    "indices.memory.index_buffer_size",
    "node.processors",
    "script.max_compilations_rate",
    "thread_pool.write.queue_size",
];

/// `index.translog.durability` for a durability level: whether writes are answered before the translog is synced (`async`) or
/// after (`request`).
pub(crate) fn translog(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "async",
        Durability::Process | Durability::Disk => "request",
    }
}

/// The durability level that `index.translog.durability` amounts to, and the reason in words.
pub(crate) fn durability(translog: &str) -> (Durability, String) {
    let (durability, because) = match translog {
        "request" => (Durability::Disk, "the translog is synced before the answer"),
        "async" => (
            Durability::None,
            "the translog is kept in the server's own memory, and written and synced every 5 s \
             (index.translog.sync_interval)",
        ),
        _ => (Durability::None, "which says nothing here"),
    };
    (durability, format!("acidtest makes its indices with index.translog.durability={translog}: {because}"))
}

#[derive(Deserialize)]
struct Nodes {
    nodes: BTreeMap<String, Node>,
}

#[derive(Deserialize)]
struct Node {
    jvm: Jvm,
}

#[derive(Deserialize)]
struct Jvm {
    version: String,
    mem: Memory,
}

#[derive(Deserialize)]
struct Memory {
    heap_max_in_bytes: u64,
}

#[derive(Deserialize)]
struct Cluster {
    persistent: Map<String, Value>,
    transient: Map<String, Value>,
    defaults: Map<String, Value>,
}

#[derive(Deserialize)]
struct Health {
    number_of_data_nodes: u64,
}

pub(crate) async fn read(
    connection: &mut Connection,
    wanted: &str,
    languages: Option<&[String]>,
) -> Result<EffectiveSettings, Error> {
    let greeting: Greeting = connection.get("/").await?.read()?;
    let mut settings = BTreeMap::from([
        ("index.translog.durability".to_owned(), wanted.to_owned()),
        ("index.number_of_shards".to_owned(), "1".to_owned()),
        ("index.number_of_replicas".to_owned(), "0".to_owned()),
        ("lucene_version".to_owned(), greeting.version.lucene.clone()),
    ]);
    let languages = languages.map_or("unknown".to_owned(), |names| names.join(" "));
    settings.insert(
        "script_languages".to_owned(),
        if languages.is_empty() { "none".to_owned() } else { languages },
    );
    let (durability, mut because) = durability(wanted);
    let more = [cluster(connection).await, node(connection).await];
    for read in more {
        match read {
            Ok(read) => settings.extend(read),
            // a user may have rights on indices alone; the durability level does not depend on these settings
            Err(Error::Refused(refusal)) if refusal.status == 403 => {
                because.push_str("; the user may not read the cluster's settings");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(EffectiveSettings {
        version: version(&greeting.version),
        durability,
        because,
        settings,
        tls: connection.tls(),
    })
}

async fn cluster(connection: &mut Connection) -> Result<BTreeMap<String, String>, Error> {
    let path = "/_cluster/settings?include_defaults=true&flat_settings=true";
    let cluster: Cluster = connection.get(path).await?.read()?;
    let of = |name: &str| {
        let value = [&cluster.transient, &cluster.persistent, &cluster.defaults]
            .into_iter()
            .find_map(|settings| settings.get(name))?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    Ok(CLUSTER.into_iter().filter_map(|name| Some((name.to_owned(), of(name)?))).collect())
}

async fn node(connection: &mut Connection) -> Result<BTreeMap<String, String>, Error> {
    let health: Health = connection.get("/_cluster/health").await.and_then(Answer::read)?;
    let path = "/_nodes/_local/jvm?filter_path=nodes.*.jvm.version,nodes.*.jvm.mem.heap_max_in_bytes";
    let nodes: Nodes = connection.get(path).await?.read()?;
    let mut settings = BTreeMap::from([("data_nodes".to_owned(), health.number_of_data_nodes.to_string())]);
    if let Some(Node { jvm }) = nodes.nodes.into_values().next() {
        settings.insert("jvm.version".to_owned(), jvm.version);
        settings.insert("jvm.heap_max_bytes".to_owned(), jvm.mem.heap_max_in_bytes.to_string());
    }
    Ok(settings)
}

/// The version, such as `7.17.29`; for a descendant of Elasticsearch its name and its own version.
fn version(version: &Version) -> String {
    match &version.distribution {
        Some(name) => format!("{name} {}", version.number),
        None => version.number.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_is_never_better_than_the_settings() {
        for level in [Durability::None, Durability::Disk] {
            assert_eq!(durability(translog(level)).0, level);
        }
        for other in ["", "sync", "REQUEST"] {
            assert_eq!(durability(other).0, Durability::None, "{other}");
        }
    }
}
