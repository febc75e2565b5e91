//! `acidtest gateway`: takes log entries over HTTP and stores them; and those who may send them.

use std::{
    fmt::Write as _,
    io::{self, Write},
    num::NonZeroUsize,
    path::Path,
    thread,
    time::Duration,
};

use acidtest_gateway::{Architecture, Config, Ended, Error, QueueKind, Users};
use acidtest_model::{Address, count};
use acidtest_report::Span;
use acidtest_runner::Failure;
use rustix::process::{Resource, getrlimit};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};

use crate::{
    exit::Status,
    gateway_arguments::{self as args, GatewayCommand, LogFormat, UserCommand},
    output, target,
};

/// The most entries of a transaction, and the most connections of the direct architecture, where nothing else is asked
/// for. Both are more than none.
const BATCH: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
const SINK_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(50).unwrap();

pub(crate) async fn gateway(asked: args::Gateway) -> Result<Status, Failure> {
    match asked.command {
        Some(GatewayCommand::User(user)) => users(user).await,
        None => LocalSet::new().run_until(serve(asked.serve)).await,
    }
}

async fn serve(asked: args::Serve) -> Result<Status, Failure> {
    log(asked.log);
    let config = config(&asked)?;
    // from here on a request to stop ends the gateway in order
    let mut stops = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let stop =
            signal(kind).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))?;
        stops.push(stop);
    }
    let mut running = acidtest_gateway::start(config).await.map_err(failure)?;
    let mut text = format!("the gateway takes entries at http://{}/logs\n", running.address);
    // writing into a string cannot fail, here as below
    let width = running.about.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, words) in &running.about {
        let _ = writeln!(text, "  {name:width$}  {words}");
    }
    let _ = writeln!(text, "  {:width$}  http://{}/", "page", running.address);
    output::print_text(&text)?;
    let by_itself = tokio::select! {
        ended = running.ended() => Some(ended),
        () = any(&mut stops) => None,
    };
    let ended = if let Some(ended) = by_itself {
        ended
    } else {
        tracing::info!("stopping; what waits is being stored (again: stop at once)");
        tokio::select! {
            ended = running.stop() => ended,
            () = any(&mut stops) => return Ok(Status::Interrupted),
        }
    };
    match ended {
        Ended { defect: Some(what), left, are_kept } => Err(Failure::Other(format!(
            "the gateway ended by itself, which is a defect of acidtest: {what}; {} acknowledged entries {}",
            count(left),
            if are_kept { "wait in the queue for the next start" } else { "that were in memory may be lost" }
        ))),
        Ended { left: 0, .. } => {
            tracing::info!("stopped: all entries that were acknowledged are stored");
            Ok(Status::Held)
        }
        Ended { left, are_kept: true, .. } => {
            tracing::info!("stopped: {} entries wait in the queue for the next start", count(left));
            Ok(Status::Held)
        }
        Ended { left, are_kept: false, .. } => Err(Failure::Other(format!(
            "{} acknowledged entries are lost: the database did not take them in time, and the queue was in memory\n  \
             remedy: --queue disk, or a longer --drain",
            count(left)
        ))),
    }
}

/// Waits for any of these signals.
async fn any(signals: &mut [tokio::signal::unix::Signal]) {
    std::future::poll_fn(|context| {
        if signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Has what the gateway tells written to standard error.
fn log(format: LogFormat) {
    let lines = tracing_subscriber::fmt().with_writer(|| Stderr).with_target(false);
    // it is set once
    let _ = match format {
        LogFormat::Text => tracing::subscriber::set_global_default(lines.with_ansi(false).finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
    };
}

/// Standard error. What cannot be written is dropped: a full disk under the log, or a reader of it that has left, is no
/// reason for a gateway to end.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many connections can be open at once: as many as asked for, unless so many files cannot be open at once. Some are
/// kept for the queue and the databases: without them, nothing could be stored.
fn connections(asked: usize, others: usize) -> usize {
    let limit = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let most = limit.saturating_sub(others + 100).max(1);
    if most < asked {
        tracing::warn!(
            limit,
            "at most {most} connections are taken instead of {asked}, because no more than {limit} files can be open \
             at once: raise that (ulimit -Hn), or lower --max-connections"
        );
    }
    asked.min(most)
}

fn config(asked: &args::Serve) -> Result<Config, Failure> {
    let args::Serve { queued, direct, .. } = asked;
    let architecture = match asked.architecture {
        args::Architecture::Direct => Architecture::Direct,
        args::Architecture::Queued => Architecture::Queued,
    };
    let idle = match architecture {
        Architecture::Direct => queued.given().map(|option| (option, "there is no queue")),
        Architecture::Queued => direct.sink_connections.map(|_| {
            (
                "--sink-connections",
                "each collector has a connection, and --collectors says how many there are",
            )
        }),
    };
    if let Some((option, why)) = idle {
        return Err(Failure::Usage(format!(
            "{option} has no effect with --architecture {}: {why}\n  remedy: leave it out",
            if architecture == Architecture::Direct { "direct" } else { "queued" }
        )));
    }
    let data = &asked.database.data;
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let sink_connections = direct.sink_connections.unwrap_or(SINK_CONNECTIONS);
    let storing = match architecture {
        Architecture::Direct => sink_connections.get(),
        // two are the most where nothing is asked for
        Architecture::Queued => queued.collectors.map_or(2, NonZeroUsize::get),
    };
    let time = |given: Option<Span>, default: Duration| given.map_or(default, |span| span.0);
    Ok(Config {
        listen: asked.listen,
        architecture,
        queue: match queued.queue.unwrap_or(args::Queue::Disk) {
            args::Queue::Disk => QueueKind::Disk,
            args::Queue::Memory => QueueKind::Memory,
        },
        queue_folder: data.join("queue"),
        queue_size: queued.queue_size.unwrap_or(1 << 30),
        users: users_address(&asked.database)?,
        sink: address(asked.sink.as_deref(), data, "logs.sqlite")?,
        table: asked.table.clone(),
        sink_connections,
        collectors: queued.collectors,
        batch: queued.batch.unwrap_or(BATCH),
        linger: time(queued.linger, Duration::from_millis(100)),
        remember: time(queued.remember, Duration::from_secs(30)),
        threads: asked.threads.unwrap_or(cores),
        connections: connections(asked.max_connections.get(), storing),
        body: usize::try_from(asked.max_body).unwrap_or(usize::MAX),
        head_time: asked.head_timeout.0,
        body_time: asked.body_timeout.0,
        idle_time: asked.idle_timeout.0,
        drain: time(queued.drain, Duration::from_secs(30)),
    })
}

fn users_address(database: &args::UsersDatabase) -> Result<Address, Failure> {
    address(database.users.as_deref(), &database.data, "users.sqlite")
}

/// The address that was given, or that of a file in the folder for data.
fn address(given: Option<&str>, data: &Path, file: &str) -> Result<Address, Failure> {
    match given {
        Some(text) => target::address(text),
        None => target::address(&format!("sqlite:{}", data.join(file).display())),
    }
}

async fn users(asked: args::User) -> Result<Status, Failure> {
    let users = Users::open(&users_address(&asked.database)?).await.map_err(failure)?;
    match asked.command {
        UserCommand::Add { name, operator, expires } => {
            let token = users.add(&name, operator, expires).await.map_err(failure)?;
            output::print_text(&format!("{}\n", token.reveal()))?;
            output::say(&format!(
                "{name} may send entries with this token, which is not shown again:\n  curl -H \"Authorization: Bearer \
                 TOKEN\" --json '{{...}}' http://HOST:PORT/logs"
            ));
        }
        UserCommand::List => {
            let listed = users.list().await.map_err(failure)?;
            if listed.is_empty() {
                output::say("there are no users yet\n  remedy: acidtest gateway user add NAME");
                return Ok(Status::Held);
            }
            let mut text =
                format!("{:<24} {:<8} {:<9} {:<28} {}\n", "user", "state", "operator", "added", "expires");
            for user in listed {
                let (added, expires) = user.moments();
                let _ = writeln!(
                    text,
                    "{:<24} {:<8} {:<9} {added:<28} {}",
                    user.name,
                    user.state(),
                    if user.is_operator { "yes" } else { "no" },
                    expires.as_deref().unwrap_or("never")
                );
            }
            output::print_text(&text)?;
        }
        UserCommand::Revoke { name } => {
            users.revoke(&name).await.map_err(failure)?;
            output::say(&format!("the token of {name} is revoked"));
        }
    }
    Ok(Status::Held)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Usage(words) => Failure::Usage(words),
        Error::Unreached(words) => Failure::Store(words),
        Error::Other(words) => Failure::Other(words),
    }
}
