//! `acidtest workloads`.

use std::fmt::Write;

use acidtest_workloads::inventory::{OPERATIONS, Parameters};

use crate::{
    exit::{Failure, Status},
    output,
    registry::STORES,
};

/// Lists the workloads with their parameters.
pub(crate) fn workloads() -> Result<Status, Failure> {
    let mut text = String::from(
        "inventory   units captured from and released to stock, under contention\n  \
         the workload of the study \"Datastore testing for IMS\", with its values as defaults\n",
    );
    let able: Vec<&str> = STORES
        .iter()
        .filter(|store| store.kind.workload("inventory").is_yes())
        .map(|store| store.kind.name)
        .collect();
    // writing into a string cannot fail
    let _ = writeln!(text, "  operations  {}", OPERATIONS.join(", "));
    let _ = writeln!(text, "  stores      {}", able.join(", "));
    let _ = writeln!(
        text,
        "  audit       no unit is taken twice, lost or made up: the final stock must be the initial one\n              \
         less what was acknowledged as captured, plus what was released, within what is unknown"
    );
    let _ = writeln!(
        text,
        "  parameters  (--name on the command line, with dashes; name in a plan's [inventory])"
    );
    for parameter in Parameters::described() {
        let _ = writeln!(text, "    {:<14} {:<8} {}", parameter.name, parameter.default, parameter.meaning);
    }
    output::print_text(&text)?;
    Ok(Status::Held)
}
