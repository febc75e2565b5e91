//! Version and settings as the server reports them, and the durability level that they amount to.

use std::collections::BTreeMap;

use acidtest_model::{Durability, EffectiveDurability, EffectiveSettings};
use acidtest_workloads::Identity;
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
pub(crate) fn durability(translog: &str) -> (EffectiveDurability, String) {
    let (durability, because) = match translog {
        "request" => (EffectiveDurability::Disk, "the translog is synced before the answer"),
        "async" => (
            EffectiveDurability::None,
            "the translog is kept in the server's own memory, and written and synced every 5 s \
             (index.translog.sync_interval)",
        ),
        _ => (EffectiveDurability::Unknown, "which says nothing here"),
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
    let Version { number, .. } = &greeting.version;
    let read =
        EffectiveSettings { version: number.clone(), durability, because, settings, tls: connection.tls() };
    Ok(match other(&greeting) {
        None => read,
        Some(server) => read.of_another(&server, "Elasticsearch"),
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

#[derive(Deserialize)]
struct Lives {
    nodes: BTreeMap<String, LivingNode>,
}

#[derive(Deserialize)]
struct LivingNode {
    jvm: Started,
}

#[derive(Deserialize)]
struct Started {
    pid: u64,
    start_time_in_millis: u64,
}

/// The node that answers: its process, and its id, which is kept with its data. None where there are several: which of them has the
/// data, that does not say.
pub(crate) async fn identity(connection: &mut Connection) -> Result<Option<Identity>, Error> {
    let path = "/_nodes/jvm?filter_path=nodes.*.jvm.pid,nodes.*.jvm.start_time_in_millis";
    let lives: Lives = connection.get(path).await?.read()?;
    let identity = |(id, LivingNode { jvm: Started { pid, start_time_in_millis } })| Identity {
        life: format!("{id} {start_time_in_millis} {pid}"),
        data: Some(id),
        is_exact: true,
    };
    let mut nodes = lives.nodes.into_iter().map(identity);
    let first = nodes.next();
    Ok(first.filter(|_| nodes.next().is_none()))
}

/// What a server is, by name and version, if it does not say that it is an Elasticsearch of Elastic's that one installs:
/// its descendants name themselves, and others are told by what they leave out.
fn other(greeting: &Greeting) -> Option<String> {
    let Version { number, distribution, build_hash, build_flavor, .. } = &greeting.version;
    let is_hash = |hash: &str| hash.len() >= 7 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    let own = greeting.tagline == "You Know, for Search" && is_hash(build_hash);
    match (distribution, build_flavor.as_deref()) {
        (Some(name), _) => Some(format!("{name} {number}")),
        // a server that is run from its jars does not know its edition
        (None, Some(flavor)) if !matches!(flavor, "default" | "oss" | "unknown") => {
            Some(format!("Elasticsearch {flavor} {number}"))
        }
        (None, _) if !own => Some(format!("{number} of something that is not said to be Elasticsearch")),
        (None, _) => None,
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
            assert_eq!(durability(other).0, EffectiveDurability::Unknown, "{other}");
        }
    }

    fn greeting(tagline: &str, version: &str) -> Greeting {
        let hash = r#""build_hash":"774e3bfa4d52e2834e4d9d8d669d77e4e5c1017f","lucene_version":"8.11.3""#;
        let text = format!(r#"{{"tagline":"{tagline}","version":{{{hash},{version}}}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_elasticsearch_is_taken_for_it() {
        let own = |version: &str| other(&greeting("You Know, for Search", version));
        for version in [
            r#""number":"7.17.29","build_flavor":"default""#,
            r#""number":"7.10.2","build_flavor":"oss""#,
            r#""number":"7.17.29","build_flavor":"unknown""#,
            r#""number":"6.2.4""#,
        ] {
            assert_eq!(own(version), None, "{version}");
        }
        let opensearch = greeting(
            "The OpenSearch Project: https://opensearch.org/",
            r#""distribution":"opensearch","number":"2.11.0""#,
        );
        assert_eq!(other(&opensearch).as_deref(), Some("opensearch 2.11.0"));
        assert_eq!(
            own(r#""number":"8.11.0","build_flavor":"serverless""#).as_deref(),
            Some("Elasticsearch serverless 8.11.0")
        );
        let silent: Greeting =
            serde_json::from_str(r#"{"version":{"number":"7.10.2","lucene_version":"N/A"}}"#).unwrap();
        assert!(other(&silent).unwrap().starts_with("7.10.2 of something"));
        assert!(other(&greeting("Search!", r#""number":"7.10.2""#)).is_some());
    }
}
