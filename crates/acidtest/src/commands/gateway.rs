//! `acidtest gateway`: takes log entries over HTTP and stores them; and those who may send them. `acidtest collector`:
//! stores what gateways have put into a broker.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Write},
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    thread,
    time::Duration,
};

use acidtest_gateway::{
    Architecture, CollectorConfig, Config, Ended, Error, Ids, Left, Partial, QueueKind, Running, Storage,
    Users,
};
use acidtest_model::{Address, count};
use acidtest_runner::Failure;
use rustix::process::{Resource, getrlimit};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
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

/// The most connections where nothing else is asked for. Half of them are enough not to say that there are fewer.
const CONNECTIONS: usize = 20_000;
/// How long entries out of a broker may wait for others.
const LONGEST_LINGER: Duration = Duration::from_mins(10);

pub(crate) async fn gateway(asked: args::Gateway) -> Result<Status, Failure> {
    match asked.command {
        Some(GatewayCommand::User(user)) => users(user).await,
        None => LocalSet::new().run_until(serve(asked.serve)).await,
    }
}

async fn serve(asked: args::Serve) -> Result<Status, Failure> {
    log(asked.log);
    let _too_large = survive_too_large_files()?;
    let config = config(&asked)?;
    run_until_stopped(Box::pin(acidtest_gateway::start(config)), |running| {
        format!("the gateway takes entries at {}/logs", running.url.as_deref().unwrap_or_default())
    })
    .await
}

pub(crate) async fn collector(asked: args::Collector) -> Result<Status, Failure> {
    LocalSet::new().run_until(collect(asked)).await
}

async fn collect(asked: args::Collector) -> Result<Status, Failure> {
    log(asked.log);
    let _too_large = survive_too_large_files()?;
    refuse_long_linger(&asked.batches)?;
    let config = CollectorConfig {
        queue: target::address(&asked.queue.0)?,
        queue_name: asked.queue_name,
        storage: storage(target::address(&asked.sink)?, asked.table, asked.collectors, &asked.batches),
        listen: asked.listen,
        drain: asked.drain.0,
    };
    run_until_stopped(Box::pin(acidtest_gateway::start_collector(config)), |_| {
        "the collector stores what comes out of the queue".to_owned()
    })
    .await
}

/// Lets a write beyond the limit of a file's size (`ulimit -f`) fail, as on a full disk: unless its signal is taken, it ends
/// the process.
fn survive_too_large_files() -> Result<Signal, Failure> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    signal(kind).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))
}

/// Requests to stop, which from here on end what runs in order.
fn stops() -> Result<Vec<Signal>, Failure> {
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .map(|kind| {
            signal(kind).map_err(|error| Failure::Other(format!("cannot listen for signals: {error}")))
        })
        .collect()
}

/// Starts what is to run, says what it is, and waits until it is to stop.
async fn run_until_stopped(
    start: impl Future<Output = Result<Running, Error>>,
    what: impl FnOnce(&Running) -> String,
) -> Result<Status, Failure> {
    let mut stops = stops()?;
    let mut running = tokio::select! {
        running = start => running.map_err(failure)?,
        () = any(&mut stops) => return Ok(Status::Interrupted),
    };
    let mut text = format!("{}\n", what(&running));
    // writing into a string cannot fail, here as below
    let width = running.about.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, words) in &running.about {
        let _ = writeln!(text, "  {name:width$}  {words}");
    }
    if let Some(url) = &running.url {
        let _ = writeln!(text, "  {:width$}  {url}/", "page");
    }
    output::print_text(&text)?;
    let by_itself = tokio::select! {
        ended = running.ended() => Some(ended),
        () = any(&mut stops) => None,
    };
    let ended = if let Some(ended) = by_itself {
        ended
    } else {
        tracing::info!("stopping; entries that wait are being stored (again: stop at once)");
        tokio::select! {
            ended = running.stop() => ended,
            () = any(&mut stops) => return Ok(Status::Interrupted),
        }
    };
    match ended {
        Ended { defect: Some(what), left } => Err(Failure::Other(format!(
            "it ended by itself, which is a defect of acidtest: {what}; {}",
            match left {
                Left::Kept(left) => {
                    format!("{} acknowledged entries wait in the queue for the next start", count(left))
                }
                Left::Lost(left) => {
                    format!("{} acknowledged entries that were in memory may be lost", count(left))
                }
                Left::InBroker => "entries that are not stored wait in the broker".to_owned(),
            }
        ))),
        Ended { left: Left::Kept(0) | Left::Lost(0), .. } => {
            tracing::info!("stopped: all entries that were acknowledged are stored");
            Ok(Status::Held)
        }
        Ended { left: Left::Kept(left), .. } => {
            tracing::info!("stopped: {} entries wait in the queue for the next start", count(left));
            Ok(Status::Held)
        }
        Ended { left: Left::InBroker, .. } => {
            tracing::info!("stopped: entries that are not stored wait in the broker");
            Ok(Status::Held)
        }
        Ended { left: Left::Lost(left), .. } => Err(Failure::Other(format!(
            "{} acknowledged entries are lost: the database did not take them in time, and the queue was in memory\n  \
             remedy: --queue disk, or a longer --drain",
            count(left)
        ))),
    }
}

/// Waits for any of these signals.
async fn any(signals: &mut [Signal]) {
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
fn connections(asked: Option<NonZeroUsize>, others: usize) -> usize {
    let limit = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let most = limit.saturating_sub(others + 100).max(1);
    let (asked, least) = asked.map_or((CONNECTIONS, CONNECTIONS / 2), |asked| (asked.get(), asked.get()));
    if most < least {
        tracing::warn!(
            limit,
            "at most {most} connections are accepted instead of {asked}, because no more than {limit} files can be open at \
             once: raise that (ulimit -Hn), or lower --max-connections"
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
        Architecture::Direct => {
            let partial =
                queued.partial.map(|_| ("--partial", "each entry is stored in a transaction of its own"));
            queued.given().map(|option| (option, "there is no queue")).or(partial)
        }
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
    let queue = match queued.queue.clone().unwrap_or(args::Queue::Disk) {
        args::Queue::Disk => QueueKind::Disk,
        args::Queue::Memory => QueueKind::Memory,
        args::Queue::Broker(broker) => QueueKind::Broker(target::address(&broker.0)?),
    };
    let is_elsewhere = queued.collectors == Some(0);
    refuse_without_effect(asked, &queue, is_elsewhere)?;
    let data = &asked.database.data;
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let sink_connections = direct.sink_connections.unwrap_or(SINK_CONNECTIONS);
    let storing = match architecture {
        Architecture::Direct => sink_connections.get(),
        // two are the most where nothing is asked for
        Architecture::Queued => queued.collectors.unwrap_or(2),
    };
    let storage = if is_elsewhere {
        None
    } else {
        let sink = address(asked.sink.as_deref(), data, "logs.sqlite")?;
        let table = asked.table.clone().unwrap_or_else(|| args::TABLE.to_owned());
        let collectors = queued.collectors.and_then(NonZeroUsize::new);
        Some(storage(sink, table, collectors, &queued.batches))
    };
    Ok(Config {
        listen: asked.listen,
        certificate: asked.certificate.clone().files(),
        architecture,
        queue,
        queue_folder: data.join("queue"),
        queue_name: queued.queue_name.clone().unwrap_or_else(|| args::QUEUE_NAME.to_owned()),
        queue_size: queued.queue_size.unwrap_or(1 << 30),
        users: users_address(&asked.database)?,
        users_schema: asked.database.users_schema.clone(),
        storage,
        sink_connections,
        remember: queued.remember.map_or(Duration::from_secs(30), |span| span.0),
        threads: asked.threads.unwrap_or(cores),
        connections: connections(asked.max_connections, storing),
        body: usize::try_from(asked.max_body).unwrap_or(usize::MAX),
        ids: match asked.ids {
            args::Ids::Random => Ids::Random,
            args::Ids::Content => Ids::Content,
        },
        partial: match queued.partial {
            Some(args::Partial::Reject) => Partial::Reject,
            Some(args::Partial::Accept) | None => Partial::Accept,
        },
        head_time: asked.head_timeout.0,
        body_time: asked.body_timeout.0,
        idle_time: asked.idle_timeout.0,
        drain: queued.drain.map_or(Duration::from_secs(30), |span| span.0),
    })
}

/// Refuses what makes no sense with this queue, or where collectors are elsewhere.
fn refuse_without_effect(asked: &args::Serve, queue: &QueueKind, is_elsewhere: bool) -> Result<(), Failure> {
    let queued = &asked.queued;
    let is_in_broker = matches!(queue, QueueKind::Broker(_));
    let refused = |words: String| Err(Failure::Usage(words));
    if is_elsewhere && !is_in_broker {
        return refused(
            "with --collectors 0 nobody would store what is in this queue\n  remedy: --collectors 1 or more, or a queue in a \
             broker, which `acidtest collector` empties"
                .to_owned(),
        );
    }
    if is_in_broker {
        refuse_long_linger(&queued.batches)?;
        // two databases would share what `acidtest collector` and this gateway store
        if !is_elsewhere && asked.sink.is_none() {
            return refused(
                "with a queue in a broker, say where entries are stored\n  remedy: --sink ADDRESS, or --collectors 0, which \
                 leaves that to `acidtest collector`"
                    .to_owned(),
            );
        }
    }
    if queued.queue_name.is_some() && !is_in_broker {
        return refused(
            "--queue-name has no effect: only a queue in a broker has a name\n  remedy: leave it out"
                .to_owned(),
        );
    }
    let stores = [
        ("--sink", asked.sink.is_some()),
        ("--table", asked.table.is_some()),
        ("--batch", queued.batches.batch.is_some()),
        ("--linger", queued.batches.linger.is_some()),
        ("--drain", queued.drain.is_some()),
    ];
    match stores.into_iter().find(|(_, is_given)| is_elsewhere && *is_given) {
        Some((option, _)) => refused(format!(
            "{option} has no effect with --collectors 0: entries are stored elsewhere\n  remedy: give it to `acidtest \
             collector`"
        )),
        None => Ok(()),
    }
}

/// Refuses batches that a broker would take back before they are stored: RabbitMQ gives a consumer half an hour.
fn refuse_long_linger(batches: &args::Batches) -> Result<(), Failure> {
    match batches.linger {
        Some(linger) if linger.0 > LONGEST_LINGER => Err(Failure::Usage(
            "--linger is too long for a queue in a broker, which may take back after half an hour what is not stored\n  \
             remedy: --linger 10m or less"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

fn storage(
    sink: Address,
    table: String,
    collectors: Option<NonZeroUsize>,
    batches: &args::Batches,
) -> Storage {
    Storage {
        sink,
        table,
        collectors,
        batch: batches.batch.unwrap_or(BATCH),
        linger: batches.linger.map_or(Duration::from_millis(100), |span| span.0),
    }
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
    let schema = asked.database.users_schema.as_deref();
    let users = Users::open(&users_address(&asked.database)?, schema).await.map_err(failure)?;
    match asked.command {
        UserCommand::Add { name, operator, expires, token_file } => {
            // before the user is added: otherwise nobody would ever know the token
            let file = token_file.map(|path| Ok::<_, Failure>((token_file_at(&path)?, path))).transpose()?;
            let token = users.add(&name, operator, expires).await.map_err(failure)?;
            let text = format!("{}\n", token.reveal());
            if let Some((mut file, path)) = file {
                file.write_all(text.as_bytes()).map_err(|error| unwritten(&path, &error))?;
                output::say(&format!("{name} may send entries with the token in {}", path.display()));
                return Ok(Status::Held);
            }
            output::print_text(&text)?;
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

/// A new file that nobody else can read.
fn token_file_at(path: &Path) -> Result<File, Failure> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("the token cannot be written to {}: {error}", path.display()))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Usage(words) => Failure::Usage(words),
        Error::Unreached(words) => Failure::Store(words),
        Error::Other(words) => Failure::Other(words),
    }
}
