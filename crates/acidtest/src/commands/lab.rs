//! `acidtest lab`: private servers, kept and cleared away.

use std::{fmt::Write, path::PathBuf};

use acidtest_lab::{Entry, Holder, Lab, Lifetime, MemberEntry, MemberSpec, NamespaceEntry};
use acidtest_model::{Address, Durability, Hosting, Role, StoreKind};
use acidtest_runner::{
    Failure, OpenOptions, PATIENCE, Target, address_of, first_answer, remove_leftover, within,
};
use acidtest_workloads::Store;
use tokio::task::LocalSet;

use crate::{
    args,
    exit::Status,
    interrupt,
    output::{self, quoted},
    registry::STORES,
    target,
};

pub(crate) async fn lab(lab: args::Lab) -> Result<Status, Failure> {
    match lab.command {
        args::LabCommand::Up { store, durability, port, tls } => {
            LocalSet::new().run_until(up(&store, durability, port, tls)).await
        }
        args::LabCommand::Down { store, forget } => down(&store, forget).await,
        args::LabCommand::List => list(),
    }
}

/// Starts a private server, waits for its first answer, and leaves it running.
async fn up(store: &str, durability: Durability, port: Option<u16>, tls: bool) -> Result<Status, Failure> {
    let target = target::parse(store)?;
    if target.address.is_some() || target.kind().hosting != Hosting::Program {
        return Err(Failure::Usage(format!("{} has no server to start", target.shown())));
    }
    let interrupt = interrupt::listen()?;
    let program = target.kind().program();
    let spec = MemberSpec { port, tls, ..MemberSpec::server(Role::Server, program, durability) };
    let mut deployment = Lab::open()?.deploy(program, &[spec], Lifetime::Kept)?;
    let Some(server) = deployment.member(Role::Server) else {
        return Err(Failure::Other(format!("{program} was not started: a defect of acidtest")));
    };
    let (address, folder) = (address_of(server, &target), server.folder().to_owned());
    let options = OpenOptions::default();
    match first_answer(&mut deployment, Role::Server.into(), &target, &address, options, &interrupt).await {
        Ok(_) if interrupt.is_set() => {
            deployment.stop()?;
            Ok(Status::Interrupted)
        }
        Ok(running) => {
            output::print_text(&format!("{address}\n"))?;
            output::say(&started(target.kind(), durability, &*running).await);
            output::say(&format!(
                "log and data in {}\nuse it with: acidtest run WORKLOAD --store {}\nstop it with: acidtest lab down",
                folder.display(),
                quoted(&address.to_string())
            ));
            Ok(Status::Held)
        }
        Err(failure) => {
            deployment.stop()?;
            Err(failure)
        }
    }
}

/// The durability level that a server reports after its start, and how to get another one.
async fn started(kind: &StoreKind, durability: Durability, store: &dyn Store) -> String {
    if kind.durability_of_data {
        return "started; each queue has its own durability".to_owned();
    }
    let settings = within(PATIENCE, "reading the settings", store.effective()).await;
    // a server that does not report it now is asked again by each run
    let (level, because) = settings.map_or_else(
        |_| (durability.to_string(), String::new()),
        |settings| (settings.durability.to_string(), format!(" ({})", settings.because)),
    );
    let others =
        Durability::ALL.into_iter().filter(|other| *other != durability && kind.durability(*other).is_yes());
    let others: Vec<&str> = others.map(Durability::name).collect();
    let another = if others.is_empty() {
        String::new()
    } else {
        format!(
            "; a server at another level: acidtest lab up {} --durability {}",
            kind.name,
            others.join("|")
        )
    };
    format!("started at durability {level}{because}{another}")
}

/// Removes the namespaces that killed runs left on users' servers, which may be kept private ones, and then every
/// kept server and everything else that killed runs left behind.
async fn down(addresses: &[String], forget: bool) -> Result<Status, Failure> {
    let targets = addresses.iter().map(|text| target::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let lab = Lab::open()?;
    let mut text = String::new();
    let mut failed = false;
    for entry in lab.namespaces()? {
        let what = format!("namespace \"{}\" of run {} at {}", entry.namespace, entry.run, entry.address);
        if let Some(bench) = lab.bench_of(&entry.run)? {
            let _ = writeln!(text, "left {what}: the run is still running in process {bench}");
            continue;
        }
        // writing into a string cannot fail
        match remove(&entry, &targets).await {
            Ok(true) => {
                let _ = writeln!(text, "removed {what}");
                entry.clear()?;
            }
            Ok(false) if !forget => {
                failed = true;
                let _ = writeln!(
                    text,
                    "left {what}: it does not have that run's mark\n  remedy: drop it if it is yours to drop, then \
                     --forget it"
                );
            }
            Ok(false) | Err(_) if forget => {
                let _ = writeln!(text, "forgot {what}");
                entry.clear()?;
            }
            Ok(_) => {}
            Err(failure) => {
                failed = true;
                let cause = failure.to_string();
                let _ = writeln!(
                    text,
                    "left {what}: {}\n  remedy: give its address with the password by --store, or --forget it",
                    cause.lines().next().unwrap_or_default()
                );
            }
        }
    }
    let cleared = lab.down()?;
    let busy: Vec<PathBuf> = lab
        .list()?
        .into_iter()
        .filter(|entry| matches!(entry.holder, Holder::Bench { alive: true, .. }))
        .map(|entry| entry.folder)
        .collect();
    for entry in &cleared.removed {
        let _ = writeln!(text, "removed {}", describe(entry));
    }
    for leftover in &cleared.leftovers {
        // a run under way rightly keeps its own folders
        failed |= !busy.contains(&leftover.folder);
        let _ = writeln!(text, "left {}: {}", leftover.folder.display(), leftover.why);
    }
    if text.is_empty() {
        text.push_str("nothing to remove\n");
    }
    output::print_text(&text)?;
    Ok(if failed { Status::Unreached } else { Status::Held })
}

/// Removes a namespace with the login that was given for its address, or without any, and returns whether it is gone.
async fn remove(entry: &NamespaceEntry, targets: &[Target]) -> Result<bool, Failure> {
    let given = targets.iter().find(|target| target.shown() == entry.address);
    let target = match given {
        Some(target) => target.clone(),
        None => target::parse(&entry.address)?,
    };
    let address: Address = target
        .address
        .clone()
        .ok_or_else(|| Failure::Usage(format!("\"{}\" is not an address", entry.address)))?;
    remove_leftover(&target, &address, &entry.namespace, &entry.run, true).await
}

fn list() -> Result<Status, Failure> {
    let entries = Lab::open()?.list()?;
    let text = if entries.is_empty() {
        "no private servers\n".to_owned()
    } else {
        entries.iter().map(|entry| describe(entry) + "\n").collect()
    };
    output::print_text(&text)?;
    Ok(Status::Held)
}

/// A private folder in a line, with a line more for each server if there are several.
fn describe(entry: &Entry) -> String {
    let mut text = entry.store.clone();
    match &entry.members[..] {
        [] => {}
        [only] => text = server(only),
        several => {
            let _ = write!(text, " with {} servers", several.len());
        }
    }
    let _ = match entry.holder {
        Holder::Kept => write!(text, " · kept"),
        Holder::Bench { pid, alive: true } => write!(text, " · of the run in process {pid}"),
        Holder::Bench { alive: false, .. } => write!(text, " · left by a run that is gone"),
    };
    let _ = write!(text, " · {} s old, in {}", entry.age.as_secs(), entry.folder.display());
    if entry.members.len() > 1 {
        for member in &entry.members {
            let _ = write!(text, "\n  {}: {}", member.id, server(member));
        }
    }
    text
}

fn server(member: &MemberEntry) -> String {
    let mut text = format!("{} {}", member.store, member.address);
    let of_queue = STORES.iter().any(|each| each.kind.name == member.store && each.kind.durability_of_data);
    if !of_queue {
        let _ = write!(text, " · durability {}", member.durability);
    }
    let _ = match member.pid {
        Some(pid) => write!(text, " · process {pid}"),
        None => write!(text, " · not running"),
    };
    text
}
