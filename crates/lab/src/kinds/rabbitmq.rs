//! RabbitMQ: one node by itself, with its own port mapper, on loopback.
//!
//! Its settings are the server's own defaults, Erlang's flags among them, because those are what its users measure.
//! Whether a confirmed message is on disk depends on the message and its queue: the server is the same for every
//! durability level.
//!
//! An Erlang node is found by its name through a port mapper (`epmd`), without which RabbitMQ does not start. A
//! mapper that RabbitMQ started itself would go to the background, where nobody finds it: so `rabbitmq.sh` starts it,
//! as a child of the node that dies with it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use acidtest_model::Address;

use super::{Kind, Script, Site};
use crate::{
    certificates::ServerFiles,
    error::LabError,
    invocation::{Invocation, Stop},
    port, search,
    source::Source,
};

pub(super) static KIND: Kind = Kind {
    store: "rabbitmq",
    program: "rabbitmq-server",
    unlike: None,
    script: Some(&Script { process, version }),
    source: Source::Package("rabbitmq-server"),
    // the script on PATH insists on running as the user rabbitmq
    places: || vec![PathBuf::from("/usr/lib/rabbitmq/bin")],
    stop: Stop::Terminate,
    address: |port| Address::loopback("amqp", Some("guest"), port, ""),
    tls: Ok(()),
    init,
    run,
    copy: None,
    sweep: None,
    damaged: &[],
};

const SCRIPT: &str = "rabbitmq.sh";

/// The program of Erlang's virtual machine, if this is RabbitMQ's own script and not another one that calls it.
fn process(program: &Path) -> Option<PathBuf> {
    version(program).ok()?;
    let erl = search::on_path("erl")?.canonicalize().ok()?;
    let runtimes = fs::read_dir(erl.ancestors().nth(2)?).ok()?.flatten().filter_map(|entry| {
        let version = entry.file_name().to_str()?.strip_prefix("erts-")?.to_owned();
        let version: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
        Some((version, entry.path().join("bin/beam.smp")))
    });
    let (_, machine) = runtimes.filter(|(_, machine)| machine.exists()).max()?;
    machine.canonicalize().ok()
}

/// The version in the name of its main plugin: if asked for its version, the script would start a server.
fn version(program: &Path) -> Result<String, String> {
    let unknown = || "the folder plugins/rabbit-VERSION is missing in its installation".to_owned();
    let own = program.canonicalize().map_err(|error| error.to_string())?;
    let plugins = own.ancestors().nth(2).map(|base| base.join("plugins")).ok_or_else(unknown)?;
    let names = fs::read_dir(plugins).into_iter().flatten().flatten();
    let versions =
        names.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("rabbit-")?.to_owned()));
    let version = versions.max().ok_or_else(unknown)?;
    Ok(format!("RabbitMQ {}", version.trim_end_matches(".ez")))
}

fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let mapper = port::choose(None)?;
    let distribution = port::choose(None)?;
    let files = [
        (SCRIPT, include_str!("rabbitmq.sh").to_owned()),
        ("ports", format!("{mapper} {distribution}\n")),
        ("rabbitmq.conf", settings(site)),
    ];
    for (name, text) in files {
        let file = site.home.join(name);
        fs::write(&file, text).map_err(LabError::at("writing", &file))?;
        // the server's user must be able to read it, whatever our umask is
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))
            .map_err(LabError::at("opening to all", &file))?;
    }
    Ok(None)
}

fn settings(site: &Site) -> String {
    match &site.tls {
        None => "# the server's own defaults\n".to_owned(),
        Some(ServerFiles { issuer, certificate, key, .. }) => format!(
            "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {}\n\
             ssl_options.certfile = {}\nssl_options.keyfile = {}\nssl_options.verify = verify_none\n\
             ssl_options.fail_if_no_peer_cert = false\n",
            site.port,
            issuer.display(),
            certificate.display(),
            key.display()
        ),
    }
}

fn run(site: &Site) -> Invocation {
    let programs = site.binary.parent().unwrap_or(Path::new("/"));
    Invocation::new(Path::new("/bin/sh"))
        .arg(SCRIPT)
        .arg(&site.program)
        .arg(programs)
        .arg(site.port.to_string())
}
