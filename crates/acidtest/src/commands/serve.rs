//! `acidtest serve`.

use std::{path::PathBuf, process::Command};

use acidtest_lab::Lab;
use acidtest_model::{
    Address, Consistency, Durability, Hosting, Isolation, Lock, Replication, StoreKind, Support,
};
use acidtest_results::{Plan, RunResult};
use acidtest_runner::{Failure, Footprint, Grid, Order, Target, WrittenAddress};
use acidtest_serve::{
    Assignment, CheckedPlan, Config, Error, Program, Refusal, StoreAbilities, Supported, Token,
    WorkloadAbout, WorkloadParameter,
};
use acidtest_workloads::WORKLOADS;
use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::{self, Arguments},
    carry_out,
    command_line::command_line,
    exit::{self, Status},
    files,
    needs::Needs,
    order, output,
    registry::{self, STORES},
    run_arguments::{QuietMachine, Run},
    serve_arguments::Serve,
    target,
};

/// Length of the longest token, in bytes.
const TOKEN: u64 = 4096;

/// Serves until it is told to end.
pub(crate) async fn serve(serve: Serve) -> Result<Status, Failure> {
    let Serve { listen, certificate, token_file, allow_host, allow_store, out, quiet_machine } = serve;
    let token = token_file.as_deref().map(read_token).transpose()?;
    let allowed = allow_store.iter().map(|text| allowed(text)).collect::<Result<Vec<Target>, Failure>>()?;
    let certificate = certificate.files();
    let config = Config { listen, certificate, token, hosts: allow_host, results: out.clone() };
    let server = acidtest_serve::start(config, Bench { allowed, quiet_machine: quiet_machine.quiet_machine })
        .await
        .map_err(|error| match error {
            Error::Usage(said) => Failure::Usage(said),
            Error::Other(said) => Failure::Other(said),
        })?;
    output::say(&format!(
        "listening on {0}; results in {1}\n  open it in a browser; API for scripts: {0}/api/openapi.json",
        server.url,
        out.display()
    ));
    told_to_end().await?;
    output::say("stopping: the current run is stopped and can be resumed (again: stop at once)");
    tokio::select! {
        () = server.stop() => {}
        again = told_to_end() => {
            again?;
            output::say("stopped at once: the run notices that and ends by itself");
        }
    }
    Ok(Status::Held)
}

async fn told_to_end() -> Result<(), Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = listen(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

fn read_token(file: &std::path::Path) -> Result<Token, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--token-file {}: {why}", file.display()));
    let text = files::read(file, TOKEN).map_err(|error| wrong(error.to_string()))?;
    Token::new(&text).map_err(wrong)
}

fn allowed(text: &str) -> Result<Target, Failure> {
    let target = target::parse(text).map_err(|failure| match failure {
        Failure::Usage(said) => Failure::Usage(format!("--allow-store {said}")),
        other => other,
    })?;
    if target.address.is_none() {
        return Err(Failure::Usage(format!(
            "--allow-store {text}: private stores are allowed already; name the address of a server of your own"
        )));
    }
    Ok(target)
}

/// This program, as its server needs it.
struct Bench {
    /// Servers of the user's own that plans may name, with their passwords.
    allowed: Vec<Target>,
    /// What is done where other programs use the machine before a run.
    quiet_machine: Option<QuietMachine>,
}

/// A run as its process is told of it, over its standard input and nowhere else.
#[derive(Serialize, Deserialize)]
pub(crate) struct AssignedRun {
    pub(crate) id: String,
    pub(crate) plan: Plan,
    pub(crate) stores: Vec<AssignedTarget>,
    pub(crate) lock_service: Option<AssignedTarget>,
    pub(crate) file: PathBuf,
    pub(crate) turn: PathBuf,
    pub(crate) quiet_machine: Option<QuietMachine>,
}

/// A store of a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AssignedTarget {
    store: String,
    address: Option<WrittenAddress>,
}

impl From<&Target> for AssignedTarget {
    fn from(target: &Target) -> Self {
        Self { store: target.kind().name.to_owned(), address: target.address.as_ref().map(Into::into) }
    }
}

impl AssignedTarget {
    pub(crate) fn target(self) -> Result<Target, Failure> {
        Ok(Target { address: self.address.map(Into::into), ..target::parse(&self.store)? })
    }
}

impl Bench {
    /// A store by its name, or the address of one that was allowed.
    fn find(&self, text: &str) -> Result<Target, Failure> {
        let is_address = text.contains([':', '@']);
        if !is_address {
            return target::parse(text);
        }
        let refused = |why: &str| Err(Failure::Usage(why.to_owned()));
        match Address::parse(text) {
            Ok(address) if address.password.is_some() => refused(
                "give the address without its password: the server has it from --allow-store or ACIDTEST_PASSWORD",
            ),
            Ok(address) => {
                let shown = address.to_string();
                let Some(target) = self.allowed.iter().find(|target| target.shown() == shown) else {
                    return refused(&format!(
                        "{shown} is not among the addresses that this server allows; start it with --allow-store {shown}"
                    ));
                };
                Ok(target.clone())
            }
            Err(error) => refused(&error.to_string()),
        }
    }

    /// The order of a plan that may be asked for from elsewhere, and what it needs.
    fn order(&self, id: &str, plan: &Plan) -> Result<(Order, Needs), Refusal> {
        let here_only = |key: &str, what: &str| {
            Refusal::at(key, format!("{what} on the command line only: acidtest run"))
        };
        if !plan.commands.is_empty() {
            return Err(here_only("commands", "commands that cause faults are given"));
        }
        if plan.replace {
            return Err(here_only("replace", "an existing namespace is replaced"));
        }
        if plan.parameters.contains_key("gateway") {
            return Err(here_only("parameters/gateway", "a running gateway is named"));
        }
        let found = |key: &str, failure: &Failure| Refusal::at(key, failure.to_string());
        let targets = plan.stores.iter().map(|text| self.find(text));
        let targets: Vec<Target> =
            targets.collect::<Result<_, _>>().map_err(|failure| found("stores", &failure))?;
        let fits = |mut order: Order| {
            order::settle(&mut order);
            let needs = Needs::of(&order);
            needs.check("acidtest run --insist").map(|()| (order, needs))
        };
        let order = order::of_plan(id.to_owned(), plan.clone(), targets, &|text| self.find(text));
        order.and_then(fits).map_err(|failure| match failure {
            Failure::Refused { pointer, said } => Refusal { pointer, detail: said },
            failure => Refusal::of(failure.to_string()),
        })
    }
}

impl Program for Bench {
    fn check(&self, plan: &Plan) -> Result<CheckedPlan, Refusal> {
        let (order, Needs { seconds, footprint, .. }) = self.order("", plan)?;
        let Order { plan, grid, .. } = order;
        let command = command_line(&plan);
        let Grid { cells, left_out, .. } = grid;
        let Footprint { memory_bytes, disk_bytes } = footprint;
        Ok(CheckedPlan { plan, cells: cells.len(), seconds, memory_bytes, disk_bytes, command, left_out })
    }

    fn typed(&self, workload: &str, search: bool, options: &[(&str, String)]) -> Result<Plan, String> {
        let command = if search { "capacity" } else { "run" };
        let options = options.iter().map(|(name, value)| format!("--{name}={value}"));
        let words = ["acidtest", command, workload].map(str::to_owned).into_iter().chain(options);
        let run = match Arguments::try_parse_from(words).map(|read| read.command) {
            Ok(args::Command::Run(run)) => *run,
            Ok(args::Command::Capacity(capacity)) => Run { search: Some(capacity.search), ..capacity.run },
            Ok(_) => return Err(format!("{workload} is not a workload")),
            Err(error) => return Err(first_words(&error)),
        };
        let mut plan = Plan::of(workload);
        run.apply_to(&mut plan);
        Ok(plan)
    }

    fn new_id(&self) -> String {
        order::id()
    }

    fn exit_status(&self, result: &RunResult) -> u8 {
        exit::status(result).code()
    }

    fn addresses(&self) -> Vec<(String, String)> {
        let of = |target: &Target| (target.shown(), target.kind().name.to_owned());
        self.allowed.iter().map(of).collect()
    }

    fn stores(&self) -> Vec<StoreAbilities> {
        STORES.iter().map(|store| abilities(&store.kind)).collect()
    }

    fn here(&self, store: &str) -> (bool, String) {
        let kind = STORES.iter().map(|store| &store.kind).find(|kind| kind.name == store);
        kind.map_or_else(|| (false, "not in this build".to_owned()), here)
    }

    fn workloads(&self) -> Vec<WorkloadAbout> {
        WORKLOADS.iter().map(about_workload).collect()
    }

    fn runner(&self) -> Command {
        let mut runner = carry_out::this_program("runner");
        runner.env_remove("ACIDTEST_PASSWORD").env_remove("ACIDTEST_TOKEN");
        runner
    }

    fn assign(&self, assignment: &Assignment<'_>) -> Result<Box<RawValue>, Refusal> {
        let Assignment { id, plan, file, turn } = *assignment;
        let (order, _) = self.order(id, plan)?;
        let assigned = AssignedRun {
            id: id.to_owned(),
            stores: order.targets.iter().map(Into::into).collect(),
            lock_service: order.lock_service.as_ref().map(Into::into),
            plan: plan.clone(),
            file: file.to_owned(),
            turn: turn.to_owned(),
            quiet_machine: self.quiet_machine,
        };
        to_raw_value(&assigned).map_err(|error| Refusal::of(error.to_string()))
    }
}

/// What is wrong with a command line, without how to get help on it.
fn first_words(error: &clap::Error) -> String {
    let said = error.render().to_string();
    let said = said.split("\n\n").next().unwrap_or_default();
    said.trim_start_matches("error: ").to_owned()
}

fn supported(name: &str, support: Support) -> Supported {
    let (Support::Yes(why) | Support::No(why)) = support;
    Supported { name: name.to_owned(), supported: support.is_yes(), why: why.to_owned() }
}

/// Whether a store can be started here, and its version or how to get it.
fn here(kind: &StoreKind) -> (bool, String) {
    match kind.hosting {
        Hosting::Embedded | Hosting::InMemory => (true, "built in: nothing to install".to_owned()),
        Hosting::Program => match Lab::locate(kind.program()) {
            Ok(found) => (true, found.version),
            Err(error) => (false, error.to_string()),
        },
    }
}

fn abilities(kind: &StoreKind) -> StoreAbilities {
    let isolation = Isolation::ALL.iter().map(|level| supported(level.name(), kind.isolation(*level)));
    let durability = Durability::ALL.iter().map(|level| supported(level.name(), kind.durability(*level)));
    let of_clusters = Replication::ALL.into_iter().filter(|level| !level.is_none());
    let replication = of_clusters.map(|level| supported(level.name(), kind.replication(level)));
    let consistency = kind.replica_reads.map_or_else(Vec::new, |reads| {
        let strong = match reads.strong {
            Ok((_, setting)) => Support::Yes(setting),
            Err(why) => Support::No(why),
        };
        let levels = [
            (Consistency::Eventual, Support::Yes("replicas answer with what they have")),
            (Consistency::Strong, strong),
        ];
        levels.map(|(level, support)| supported(level.name(), support)).to_vec()
    });
    StoreAbilities {
        name: kind.name.to_owned(),
        title: kind.title.to_owned(),
        address: kind.address.to_owned(),
        workloads: WORKLOADS.iter().map(|each| supported(each.name, kind.workload(each.name))).collect(),
        locks: Lock::ALL.iter().map(|lock| supported(lock.name(), kind.lock(*lock))).collect(),
        durability: durability.collect(),
        isolation: isolation.collect(),
        tls: supported("tls", kind.tls),
        replication: replication.collect(),
        consistency,
    }
}

fn about_workload(kind: &acidtest_workloads::WorkloadKind) -> WorkloadAbout {
    let parameter = |each: acidtest_workloads::Parameter| WorkloadParameter {
        name: each.name.to_owned(),
        default: each.default,
        meaning: each.meaning.to_owned(),
        choices: each.choices.into_iter().map(str::to_owned).collect(),
    };
    WorkloadAbout {
        name: kind.name.to_owned(),
        summary: kind.summary.to_owned(),
        operations: kind.operations.iter().map(|&operation| operation.to_owned()).collect(),
        audit: kind.audit.to_owned(),
        stores: registry::able(kind.name).map(str::to_owned).collect(),
        // a gateway that runs already is for the command line only
        parameters: (kind.parameters)()
            .into_iter()
            .filter(|each| !["gateway", "table"].contains(&each.name))
            .map(parameter)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_points_at_the_key_that_is_at_fault() {
        let bench = Bench { allowed: Vec::new(), quiet_machine: None };
        let longer = json!({"faults": ["kill@30s"]});
        for (changed, place, said) in [
            (json!({"capacity": {"slo": []}}), "/capacity/slo", "slo must be at least one objective"),
            (json!({"capacity": {"growth": "3%/month"}}), "/capacity/growth", "growth has no effect here"),
            (json!({"clients": [3, 3]}), "/clients", "3 is given twice"),
            (longer, "/faults", "faults kill@30s comes after the end"),
            (json!({"parameters": {"items": 0}}), "/parameters/items", "items = 0"),
            (json!({"parameters": {"items": [5, 5]}}), "/parameters/items", "5 is given twice"),
            (json!({"parameters": {"itms": 5}}), "/parameters/itms", "inventory has no parameter \"itms\""),
            (json!({"on_refused": "retry"}), "/on_refused", "on_refused retry has no effect here"),
            (json!({"workload": "x"}), "/workload", "unknown workload \"x\""),
            (json!({"namespace": "1x"}), "/namespace", "namespace \"1x\" is invalid"),
            (json!({"trials": 10_000, "clients": (1..=100_000).collect::<Vec<u32>>()}), "", "its lists make"),
        ] {
            let mut plan = json!({"workload": "inventory", "stores": ["sqlite"]});
            plan.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
            let plan: Plan = serde_json::from_value(plan).unwrap();
            let Refusal { pointer, detail } = bench.check(&plan).unwrap_err();
            assert_eq!(pointer, place, "{detail}");
            assert!(detail.contains(said), "{detail}");
        }
    }
}
