//! `acidtest anomalies`.

use std::{
    cell::RefCell,
    fs::OpenOptions,
    io::IsTerminal,
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

use acidtest_anomalies::{
    AnomaliesResult, Anomaly, FORMAT, KIND, RefusedLevel, Script, StoreResult, Survey, built_in,
};
use acidtest_lab::{Lab, ServerSize};
use acidtest_model::{Address, Durability, Encryption, Isolation, Support, count};
use acidtest_report::{
    NamedAnomalies,
    anomalies::{markdown, terminal, transcripts},
    page,
};
use acidtest_runner::{Claim, Failure, Instance, Interrupt, Target, plan_check};
use acidtest_workloads::interactive::Mode;
use clap::Args;
use tokio::task::LocalSet;

use crate::{
    exit::Status,
    files, interrupt, order,
    output::{self, ResultFile},
    parameter_arguments::{Offering, store},
    run_arguments::Format,
    target,
};

const EXAMPLES: &str = "\
Examples:
  acidtest anomalies
      SQLite and fjall, which are built in
  acidtest anomalies --store postgres,mariadb,mysql,sqlite,fjall
      every level of these stores; takes a few minutes
  acidtest anomalies --store postgres --isolation repeatable-read,serializable --show G2-item
      what happened, step by step
  ACIDTEST_PASSWORD=... acidtest anomalies --store postgres://ann@db.example/shop
      your own server, in a schema of acidtest's own that is dropped at the end
  acidtest anomalies --store postgres,mysql --script transfer.txt
      an interleaving of your own
  acidtest anomalies --print-script P4 > mine.txt
      a script to begin with";

/// How many scripts run at a time on a private server. Most of the time, one that waits for others waits for the server to say so.
const AT_A_TIME: usize = 12;

/// The same on a server of the user's own, which may have no more connections to give.
const ON_USERS_SERVER: usize = 3;

/// Sessions that scripts open at most on one store: some for each script that runs at the same time.
const SESSIONS: u32 = 100;

/// Time between two lines of progress.
const INTERVAL: Duration = Duration::from_secs(5);

/// The longest script that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Runs interleavings of transactions at each isolation level, and tells which anomalies occur.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Anomalies {
    /// Stores to start privately, or addresses of your own servers
    #[arg(long, value_name = "STORE,...", value_delimiter = ',', default_value = "sqlite,fjall", value_parser = store(), hide_possible_values = true)]
    store: Vec<String>,
    /// Isolation levels (read-uncommitted, read-committed, repeatable-read, serializable), or all that each store has
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "all", value_parser = level(), hide_possible_values = true)]
    isolation: Vec<Levels>,
    /// Only these anomalies, as G1a,P4 [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    anomaly: Vec<String>,
    /// Run an interleaving of your own instead; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "anomaly")]
    script: Vec<PathBuf>,
    /// Print what happened in this anomaly, step by step, on each store at each level
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
    /// Print the script of an anomaly, and run nothing
    #[arg(long, value_name = "NAME", conflicts_with_all = ["script", "show", "anomaly"])]
    print_script: Option<String>,
    /// How often each order of the steps is run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Name of the schema, database or key prefix that it works in
    #[arg(long, default_value = "acidtest")]
    namespace: String,
    /// Replace the namespace if an earlier run of acidtest left it there
    #[arg(long)]
    replace: bool,
    /// Result file (*.json), or the folder for it
    #[arg(long, default_value = output::RESULTS)]
    out: PathBuf,
    /// Write one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown
    #[arg(long, conflicts_with_all = ["output", "show"])]
    markdown: bool,
    /// What is printed
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    /// Print neither progress nor table
    #[arg(short, long)]
    quiet: bool,
}

/// What `--isolation` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Levels {
    All,
    One(Isolation),
}

fn level() -> Offering<impl Fn(&str) -> Result<Levels, String> + Clone> {
    let read = |word: &str| match word {
        "all" => Ok(Levels::All),
        word => Isolation::from_str(word).map(Levels::One).map_err(|error| error.to_string()),
    };
    Offering::new(read, ["all"].into_iter().chain(Isolation::ALL.map(Isolation::name)))
}

pub(crate) async fn anomalies(arguments: Anomalies) -> Result<Status, Failure> {
    if let Some(name) = &arguments.print_script {
        let text = text_of(name)?;
        output::print_text(text)?;
        return Ok(Status::Held);
    }
    let scripts = arguments.scripts()?;
    plan_check::namespace(&arguments.namespace, "--namespace")?;
    let targets: Vec<Target> =
        arguments.store.iter().map(|store| target::parse(store)).collect::<Result<_, _>>()?;
    for target in &targets {
        arguments.check_levels(target)?;
    }
    let (id, started, begun) = (order::id(), jiff::Timestamp::now().to_string(), Instant::now());
    let file = ResultFile::new(&arguments.out, &id, KIND)?;
    if let Some(html) = &arguments.html {
        // known before minutes are spent
        OpenOptions::new().create(true).append(true).open(html).map_err(|error| {
            let remedy = "name a file that can be written with --html";
            Failure::Usage(format!("cannot write {}: {error}\n  remedy: {remedy}", html.display()))
        })?;
    }
    let result = LocalSet::new()
        .run_until(Box::pin(async {
            let interrupt = interrupt::listen()?;
            let lab = Lab::open()?;
            let mut result = AnomaliesResult {
                kind: KIND.to_owned(),
                format: FORMAT,
                acidtest: env!("CARGO_PKG_VERSION").to_owned(),
                run: id,
                started,
                seconds: 0.0,
                repeat: arguments.repeat,
                interrupted: false,
                anomalies: scripts.iter().map(about).collect(),
                stores: Vec::new(),
            };
            for (index, target) in targets.iter().enumerate() {
                if interrupt.is_set() {
                    break;
                }
                let trying =
                    Trying { arguments: &arguments, scripts: &scripts, lab: &lab, interrupt: &interrupt };
                let found = Box::pin(trying.on_store(target, &result.run, index + 1)).await?;
                result.stores.push(found);
                result.seconds = begun.elapsed().as_secs_f64();
                result.interrupted = interrupt.is_set();
                file.write(&result)?;
            }
            Ok::<_, Failure>(result)
        }))
        .await?;
    arguments.tell(&result, &file)?;
    Ok(status(&result))
}

fn about(script: &Script) -> Anomaly {
    Anomaly {
        name: script.name.clone(),
        title: script.title.clone(),
        means: script.means.clone(),
        orders: u32::try_from(script.orders.len()).unwrap_or(u32::MAX),
    }
}

/// The text of a built-in script.
fn text_of(name: &str) -> Result<&'static str, Failure> {
    let text = acidtest_anomalies::text_of(name);
    text.ok_or_else(|| unknown(name, built_in().iter().map(|script| script.name.as_str())))
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    Failure::Usage(format!("there is no anomaly \"{name}\": known are {}", known.join(", ")))
}

impl Anomalies {
    /// The scripts that are run.
    fn scripts(&self) -> Result<Vec<Script>, Failure> {
        let scripts: Vec<Script> = if self.script.is_empty() {
            built_in()
        } else {
            self.script.iter().map(|file| read(file)).collect::<Result<_, _>>()?
        };
        for (index, script) in scripts.iter().enumerate() {
            if scripts[..index].iter().any(|other| other.name == script.name) {
                return Err(Failure::Usage(format!(
                    "two scripts are of the anomaly {}: give one another name",
                    script.name
                )));
            }
        }
        let names = || scripts.iter().map(|script| script.name.as_str());
        for name in self.anomaly.iter().chain(&self.show) {
            if !names().any(|known| known.eq_ignore_ascii_case(name)) {
                return Err(unknown(name, names()));
            }
        }
        if let Some(show) = &self.show
            && !self.anomaly.is_empty()
            && !self.anomaly.iter().any(|name| name.eq_ignore_ascii_case(show))
        {
            return Err(Failure::Usage(format!(
                "--show {show} would show nothing: --anomaly leaves it out\n  remedy: --show alone runs what it shows"
            )));
        }
        let wanted: Vec<&String> =
            if self.anomaly.is_empty() { self.show.iter().collect() } else { self.anomaly.iter().collect() };
        let is_wanted = |script: &Script| {
            wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(&script.name))
        };
        Ok(scripts.iter().filter(|script| is_wanted(script)).cloned().collect())
    }

    /// Whether every level is asked for that a store has, whatever they are called.
    fn wants_all(&self) -> bool {
        self.isolation.contains(&Levels::All)
    }

    /// Refuses a level by its name that a store lacks.
    fn check_levels(&self, target: &Target) -> Result<(), Failure> {
        let kind = target.kind();
        for level in &self.isolation {
            if let Levels::One(level) = level
                && let Support::No(why) = kind.isolation(*level)
            {
                return Err(Failure::Usage(format!(
                    "{} has no isolation level {}: {why}\n  remedy: leave the level or the store out, or take what each store \
                     has: --isolation all",
                    kind.name,
                    level.name()
                )));
            }
        }
        Ok(())
    }

    fn wants(&self, mode: &Mode) -> bool {
        self.wants_all() || mode.level.is_some_and(|level| self.isolation.contains(&Levels::One(level)))
    }

    /// Prints the result and says where it is.
    fn tell(&self, result: &AnomaliesResult, file: &ResultFile) -> Result<(), Failure> {
        match (self.output, &self.show) {
            (Format::Json, _) => print(result, Format::Json)?,
            _ if self.quiet => {}
            _ if self.markdown => output::print_text(&markdown(result))?,
            (Format::Table, Some(name)) => {
                let name = result.anomalies.iter().find(|anomaly| anomaly.name.eq_ignore_ascii_case(name));
                let name = name.map_or("", |anomaly| anomaly.name.as_str());
                output::print_text(&transcripts(result, name, output::style()))?;
            }
            (Format::Table, None) => print(result, Format::Table)?,
        }
        if let Some(html) = &self.html {
            let name = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
            let named = NamedAnomalies { name: &name, result };
            let page = page(&[], &[named]).map_err(|error| Failure::Other(error.to_string()))?;
            output::keep(html, &page)?;
        }
        if !self.quiet {
            output::say(&format!("result: {}", file.path().display()));
            if let Some(html) = &self.html {
                output::say(&format!("page: {}", html.display()));
            }
        }
        Ok(())
    }
}

/// Prints a result.
pub(crate) fn print(result: &AnomaliesResult, format: Format) -> Result<(), Failure> {
    output::print_text(&match format {
        Format::Table => terminal(result, output::style()),
        Format::Json => {
            serde_json::to_string_pretty(result).map_err(|error| Failure::Other(error.to_string()))? + "\n"
        }
    })
}

fn read(file: &Path) -> Result<Script, Failure> {
    let text = files::read(file, LONGEST)
        .map_err(|error| Failure::Usage(format!("cannot read the script {}: {error}", file.display())))?;
    Script::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

/// What is tried on each store.
struct Trying<'a> {
    arguments: &'a Anomalies,
    scripts: &'a [Script],
    lab: &'a Lab,
    interrupt: &'a Interrupt,
}

impl Trying<'_> {
    /// Opens a store, and tries its modes. A store that fails costs its part of the table, not the others.
    async fn on_store(&self, target: &Target, run: &str, number: usize) -> Result<StoreResult, Failure> {
        let kind = target.kind();
        let mut found = StoreResult {
            store: target.shown(),
            title: kind.title.to_owned(),
            version: String::new(),
            settings: std::collections::BTreeMap::new(),
            modes: Vec::new(),
            refused: Vec::new(),
            error: None,
        };
        if self.arguments.wants_all() {
            found.refused = lacking(target);
        }
        self.say(&format!("opening {}", target.shown()));
        let claim = Claim {
            locks: None,
            namespace: &self.arguments.namespace,
            run,
            number,
            replace: self.arguments.replace,
            cluster: None,
            connect_timeout: Address::CONNECT_TIMEOUT,
            size: ServerSize { clients: SESSIONS, ..ServerSize::default() },
            host: None,
        };
        // isolation does not depend on it, but on SQLite's journal, which is the usual one from this level on
        let levels = [Durability::Process, Durability::Disk, Durability::None];
        let durability = levels.into_iter().find(|level| kind.durability(*level).is_yes());
        let durability = durability.unwrap_or(Durability::None);
        let opened = Instance::open(self.lab, target, durability, Encryption::Off, &claim, self.interrupt);
        let instance = match Box::pin(opened).await {
            Ok(instance) => instance,
            Err(Failure::Store(said)) => {
                found.error = Some(said);
                return Ok(found);
            }
            Err(failure) => return Err(failure),
        };
        found.version.clone_from(&instance.effective.version);
        found.settings.clone_from(&instance.effective.settings);
        if let Err(said) = self.on_instance(&instance, &mut found, target).await {
            found.error = Some(said);
        }
        if let Err(failure) = instance.close(false).await {
            found.error.get_or_insert_with(|| failure.to_string());
        }
        Ok(found)
    }

    async fn on_instance(
        &self,
        instance: &Instance,
        found: &mut StoreResult,
        target: &Target,
    ) -> Result<(), String> {
        let Some(store) = instance.store().interactive() else {
            return Err("it has no transactions whose steps can be interleaved".to_owned());
        };
        let modes = store.modes().await.map_err(|error| error.to_string())?;
        let modes: Vec<Mode> = modes.into_iter().filter(|mode| self.arguments.wants(mode)).collect();
        let survey = Survey {
            store,
            // nothing is known of what else speaks its protocol
            product: if instance.effective.are_of_another() { "" } else { target.kind().program() },
            modes: &modes,
            scripts: self.scripts,
            repeat: self.arguments.repeat,
            namespace: instance.namespace(),
            at_a_time: if target.address.is_some() { ON_USERS_SERVER } else { AT_A_TIME },
            is_interrupted: &|| self.interrupt.is_set(),
        };
        let all = survey.plays();
        let (begun, said) = (Instant::now(), RefCell::new(Instant::now()));
        let interval = if std::io::stderr().is_terminal() { INTERVAL / 5 } else { INTERVAL };
        let goes_on = |done: u64| {
            if said.borrow().elapsed() >= interval {
                *said.borrow_mut() = Instant::now();
                let left = begun.elapsed().as_secs_f64() / done as f64 * all.saturating_sub(done) as f64;
                self.say(&format!(
                    "{}: {} of {} interleavings · {left:.0} s left",
                    target.shown(),
                    count(done),
                    count(all)
                ));
            }
            !self.interrupt.is_set()
        };
        let (modes, done) = survey.run(goes_on).await;
        found.modes = modes;
        done.map_err(|error| error.to_string())
    }

    fn say(&self, what: &str) {
        if !self.arguments.quiet {
            output::say(what);
        }
    }
}

/// The levels that a store lacks; one line where it lacks all of them for the same reason.
fn lacking(target: &Target) -> Vec<RefusedLevel> {
    let kind = target.kind();
    let lacking: Vec<(Isolation, &str)> = Isolation::ALL
        .into_iter()
        .filter_map(|level| match kind.isolation(level) {
            Support::No(why) => Some((level, why)),
            Support::Yes(_) => None,
        })
        .collect();
    if let [(_, why), others @ ..] = lacking.as_slice()
        && lacking.len() == Isolation::ALL.len()
        && others.iter().all(|(_, other)| other == why)
    {
        return vec![RefusedLevel { level: None, why: (*why).to_owned() }];
    }
    lacking.into_iter().map(|(level, why)| RefusedLevel { level: Some(level), why: why.to_owned() }).collect()
}

/// The worst that was found.
pub(crate) fn status(result: &AnomaliesResult) -> Status {
    let cells = || result.stores.iter().flat_map(|store| store.modes.iter().flat_map(|mode| &mode.cells));
    let found = if cells().any(acidtest_anomalies::AnomalyCell::breaks_promise) {
        Status::Broken
    } else if result.stores.iter().any(|store| store.error.is_some()) {
        Status::Unreached
    } else if cells().any(acidtest_anomalies::AnomalyCell::doubts_promise) {
        Status::Unknown
    } else {
        Status::Held
    };
    if result.interrupted { found.max(Status::Interrupted) } else { found }
}
