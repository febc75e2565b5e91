//! The gateway for log entries: acidtest itself, in front of a store.

use acidtest_model::Address;

use super::{Kind, Site, TOKEN, ours};
use crate::{error::LabError, invocation::Invocation};

pub(super) static KIND: Kind =
    Kind { tls: Ok(()), ..ours("gateway", |port| Address::loopback("http", None, port, ""), init, run) };

/// The options of the gateway that say where its users are.
const OF_USERS: [&str; 2] = ["--users", "--users-schema"];

/// Adds the user that the trial's clients send as. It is called like the trial's table, if it has one here: no other trial
/// has a user of this name.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a recipe's step that may fail")]
fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let options = || site.arguments.chunks_exact(2);
    let table = options().find(|option| option[0] == "--table").map_or("acidtest", |table| &table[1]);
    let users = options().filter(|option| OF_USERS.contains(&option[0].as_str())).flatten();
    let add = Invocation::new(&site.program)
        .args(["gateway", "user", "add", table, "--data"])
        .arg(&site.home)
        .args(users);
    Ok(Some(add.arg("--token-file").arg(site.home.join(TOKEN))))
}

fn run(site: &Site) -> Invocation {
    let command = Invocation::new(&site.program)
        .args(["gateway", "--data"])
        .arg(&site.home)
        .args(["--listen", &format!("127.0.0.1:{}", site.port)])
        .args(&site.arguments);
    match &site.tls {
        Some(tls) => command.arg("--tls-cert").arg(&tls.certificate).arg("--tls-key").arg(&tls.key),
        None => command,
    }
}
