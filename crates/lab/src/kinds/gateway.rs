//! The gateway for log entries: acidtest itself, in front of a store.

use acidtest_model::Address;

use super::{Kind, Site, TOKEN, ours};
use crate::{error::LabError, invocation::Invocation};

pub(super) static KIND: Kind = ours("gateway", |port| Address::loopback("http", None, port, ""), init, run);

/// Adds the user that the trial's clients send as.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a recipe's step that may fail")]
fn init(site: &Site) -> Result<Option<Invocation>, LabError> {
    let add =
        Invocation::new(&site.program).args(["gateway", "user", "add", "acidtest", "--data"]).arg(&site.home);
    Ok(Some(add.arg("--token-file").arg(site.home.join(TOKEN))))
}

fn run(site: &Site) -> Invocation {
    Invocation::new(&site.program)
        .args(["gateway", "--data"])
        .arg(&site.home)
        .args(["--listen", &format!("127.0.0.1:{}", site.port)])
        .args(&site.arguments)
}
