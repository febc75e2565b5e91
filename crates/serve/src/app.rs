//! What can be asked of the server, whoever asks: the interface over HTTP and the pages say it in their own ways.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use acidtest_report::{
    NamedResult,
    compare::{Choice, Comparison, Selector, Side, compare, selectors},
    findings,
};
use acidtest_results::{Plan, RunResult};
use axum::http::StatusCode;
use maud::Markup;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::{
    Program, StoreAbilities,
    http::{Guard, Metrics, Problem},
    results::{self, Unreadable},
    runs::{NotResumed, Other, Record, Runs, State},
};

/// Results that may be read or drawn at once, and plans that may be checked.
const HEAVY: usize = 2;

/// How many times as long as it took, what was drawn of a run under way is shown again.
const SELDOM: u32 = 50;

/// Results of which is kept what was drawn.
const DRAWN: usize = 16;

/// For how long what was found of the stores here is told again.
const FRESH: Duration = Duration::from_mins(1);

/// What every answer may need.
#[derive(Clone)]
pub(crate) struct App {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) runs: Arc<Runs>,
    pub(crate) program: Arc<dyn Program>,
    pub(crate) guard: Guard,
    pub(crate) metrics: Arc<Metrics>,
    stores: Looked,
    drawn: Drawn,
    /// Results that are read or drawn at once: each may need some hundred megabytes.
    heavy: Arc<Semaphore>,
    /// Plans that are checked at once.
    checks: Arc<Semaphore>,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

/// Which runs, or cells of one, are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compared {
    pub(crate) a: String,
    pub(crate) b: Option<String>,
    pub(crate) a_cells: Option<String>,
    pub(crate) b_cells: Option<String>,
}

/// A store, and whether it is here.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoreAbout {
    #[serde(flatten)]
    pub(crate) abilities: StoreAbilities,
    /// Whether a private instance can be started here.
    pub(crate) available: bool,
    /// Its version, or how to get it.
    pub(crate) here: String,
}

impl App {
    pub(crate) fn new(runs: Arc<Runs>, program: Arc<dyn Program>, guard: Guard) -> Self {
        let (metrics, stores, heavy) = (Arc::default(), Looked::default(), Arc::new(Semaphore::new(HEAVY)));
        let checks = Arc::new(Semaphore::new(HEAVY));
        let drawn = Drawn::default();
        Self { inner: Arc::new(Inner { runs, program, guard, metrics, stores, drawn, heavy, checks }) }
    }

    /// The run with this id: one of the server's, or one whose result lies in the folder.
    pub(crate) async fn find(&self, id: &str) -> Result<Record, Problem> {
        if let Some(record) = self.runs.get(id) {
            return Ok(record);
        }
        let (runs, named) = (Arc::clone(&self.runs), id.to_owned());
        match self.heavy(move || Ok(runs.other(&named))).await? {
            Ok(record) => Ok(record),
            Err(Unreadable::Missing) => Err(Problem::no_run(id)),
            Err(Unreadable::Other(why)) => {
                Err(Problem::internal(format!("cannot read the result of run {id}: {why}")))
            }
        }
    }

    /// Results in the folder that no run of the server has, the latest first.
    pub(crate) async fn others(&self) -> Result<Vec<Other>, Problem> {
        let runs = Arc::clone(&self.runs);
        self.heavy(move || Ok(runs.others())).await
    }

    /// Checks a plan, and takes the run, which waits for its turn.
    pub(crate) async fn submit(&self, plan: Plan) -> Result<Record, Problem> {
        let (program, runs) = (Arc::clone(&self.program), Arc::clone(&self.runs));
        let checked = self.check(move || Ok(program.check(&plan)?)).await?;
        Ok(to_its_end(async move { runs.submit(checked).await }).await??)
    }

    pub(crate) async fn stop(&self, id: &str) -> Result<Record, Problem> {
        let (runs, named) = (Arc::clone(&self.runs), id.to_owned());
        match to_its_end(async move { runs.stop(&named).await }).await? {
            Some(record) => Ok(record),
            None => Err(self.not_made_here(id).await),
        }
    }

    /// Why the server neither stops nor resumes a run that it did not start.
    async fn not_made_here(&self, id: &str) -> Problem {
        match self.find(id).await {
            Ok(_) => Problem::new(
                StatusCode::CONFLICT,
                "state",
                "The run is not this server's",
                "it was started on the command line: stop it there, or resume it there with acidtest run --resume",
            ),
            Err(problem) => problem,
        }
    }

    /// Has a run go on that ended before its last trial.
    pub(crate) async fn resume(&self, id: &str) -> Result<Record, Problem> {
        let (runs, named) = (Arc::clone(&self.runs), id.to_owned());
        let resumed = to_its_end(async move { runs.resume(&named).await }).await?;
        match resumed {
            None => Err(self.not_made_here(id).await),
            Some(Ok(record)) => Ok(record),
            Some(Err(NotResumed::NotTaken(not))) => Err(not.into()),
            Some(Err(NotResumed::Is(state))) => Err(Problem::new(
                StatusCode::CONFLICT,
                "state",
                "The run cannot be resumed",
                match state {
                    State::Done => "it is done: every trial of its plan is in its result".to_owned(),
                    state => format!("it is {} already", state.words()),
                },
            )),
        }
    }

    pub(crate) async fn result(&self, record: &Record) -> Result<RunResult, Problem> {
        let (runs, record) = (Arc::clone(&self.runs), record.clone());
        self.heavy(move || read(&runs, &record)).await
    }

    /// The cells of a run's result by their names, each with the choices that select it alone.
    pub(crate) async fn cells(&self, id: &str) -> Result<Vec<(String, String)>, Problem> {
        let record = self.find(id).await?;
        let runs = Arc::clone(&self.runs);
        self.heavy(move || Ok(selectors(&read(&runs, &record)?))).await
    }

    /// What the result of a run says, as a piece of a page: the same for all who ask. While the run is made it is drawn anew
    /// so seldom that drawing takes a small share of the machine that measures.
    pub(crate) async fn findings(&self, record: &Record) -> Result<Markup, Problem> {
        let place = self.drawn.of(&record.id);
        // whoever asks meanwhile gets what the first one has drawn
        let mut drawn = place.lock().await;
        let is_under_way = record.is_under_way();
        let file = results::version(&self.runs.file(record));
        let is_current = |drawn: &&Findings| {
            let is_recent = drawn.at.elapsed() < drawn.cost * SELDOM;
            is_under_way == drawn.is_under_way && (file == drawn.file || is_under_way && is_recent)
        };
        if let Some(drawn) = drawn.as_ref().filter(is_current) {
            return Ok(drawn.markup.clone());
        }
        let (begun, result) = (Instant::now(), self.result(record).await?);
        let draw =
            move || findings(result, is_under_way).map_err(|error| Problem::internal(error.to_string()));
        let markup = self.heavy(draw).await?;
        let new = Findings {
            file,
            is_under_way,
            markup: markup.clone(),
            cost: begun.elapsed(),
            at: Instant::now(),
        };
        *drawn = Some(new);
        Ok(markup)
    }

    /// Two runs, or cells of one, compared.
    pub(crate) async fn compare(&self, compared: Compared) -> Result<Comparison, Problem> {
        let Compared { a, b, a_cells, b_cells } = compared;
        let a = self.find(&a).await?;
        let b = match b {
            Some(b) => Some(self.find(&b).await?),
            None => None,
        };
        let runs = Arc::clone(&self.runs);
        self.heavy(move || {
            let (a_cells, b_cells) =
                (selector("a_cells", a_cells.as_deref())?, selector("b_cells", b_cells.as_deref())?);
            let a_result = read(&runs, &a)?;
            let b_result = b.as_ref().map(|b| read(&runs, b)).transpose()?;
            let (a_name, b_name) = (a.file_name(), b.as_ref().unwrap_or(&a).file_name());
            let run_a = [NamedResult { name: &a_name, result: &a_result }];
            let run_b = [NamedResult { name: &b_name, result: b_result.as_ref().unwrap_or(&a_result) }];
            let compared = compare(
                Side { runs: &run_a, name: &a_name, choose: "a_cells=", selector: &a_cells },
                Side { runs: &run_b, name: &b_name, choose: "b_cells=", selector: &b_cells },
                &[],
                None,
            );
            compared.map_err(|error| Problem::uncompared(error.to_string()))
        })
        .await
    }

    /// The stores, and whether they are here.
    pub(crate) async fn stores(&self) -> Result<Vec<StoreAbout>, Problem> {
        let app = self.clone();
        self.heavy(move || Ok(app.stores.look(&*app.program, app.runs.is_busy()))).await
    }

    /// Does what may take seconds and megabytes on a thread of its own; few at once, also where those who asked are gone.
    pub(crate) async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        turned(&self.heavy, work).await
    }

    /// Checks plans on a thread of its own, few at once.
    pub(crate) async fn check<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        turned(&self.checks, work).await
    }
}

/// Does work on a thread of its own, as many at once as there are turns.
async fn turned<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let internal = |error: &dyn std::fmt::Display| Problem::internal(error.to_string());
    let turn = Arc::clone(turns).acquire_owned().await.map_err(|error| internal(&error))?;
    let work = move || {
        let done = work();
        drop(turn);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?
}

/// Does what must not be left half done when whoever asked for it is gone.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, Problem> {
    tokio::spawn(work).await.map_err(|error| Problem::internal(error.to_string()))
}

fn read(runs: &Runs, record: &Record) -> Result<RunResult, Problem> {
    results::result(&runs.file(record)).map_err(|why| unreadable(record, why))
}

/// Why the result of a run cannot be shown.
pub(crate) fn unreadable(record: &Record, why: Unreadable) -> Problem {
    match why {
        Unreadable::Missing if record.state == State::Done => Problem::new(
            StatusCode::NOT_FOUND,
            "result-gone",
            "The result is gone",
            format!(
                "the file of the result, {}, has been removed from the folder of results",
                record.file_name()
            ),
        ),
        Unreadable::Missing => Problem::new(
            StatusCode::NOT_FOUND,
            "no-result",
            "There is no result",
            if record.state.has_ended() {
                "no trial was made, or the file of its result has been removed"
            } else {
                "no trial has been written yet; ask again later"
            },
        ),
        Unreadable::Other(why) => {
            Problem::internal(format!("cannot read the result {}: {why}", record.file_name()))
        }
    }
}

/// Which cells are compared, as `lock=none,clients=16`.
fn selector(name: &str, text: Option<&str>) -> Result<Selector, Problem> {
    let choices = text.unwrap_or_default().split(',').filter(|each| !each.is_empty());
    let choices: Result<Vec<Choice>, String> =
        choices.map(|each| each.parse().map_err(|error| format!("{name}: {error}"))).collect();
    choices.map(Selector::from_iter).map_err(Problem::uncompared)
}

/// What was drawn of a result.
struct Findings {
    /// The file that it was drawn of.
    file: Option<results::Version>,
    is_under_way: bool,
    markup: Markup,
    /// How long it took.
    cost: Duration,
    at: Instant,
}

/// What was drawn of the results that were asked for lately, by the ids of their runs, the last one at the end.
#[derive(Default)]
struct Drawn(Mutex<Vec<(String, Place)>>);

type Place = Arc<tokio::sync::Mutex<Option<Findings>>>;

impl Drawn {
    fn of(&self, id: &str) -> Place {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|(of, _)| of == id).map(|place| all.remove(place));
        let (id, place) = found.unwrap_or_else(|| (id.to_owned(), Place::default()));
        all.push((id, Arc::clone(&place)));
        let excess = all.len().saturating_sub(DRAWN);
        all.drain(..excess);
        place
    }
}

/// The stores as they were last looked for: that starts programs, and whoever asks often is not to start many.
#[derive(Default)]
struct Looked(Mutex<Option<(Instant, Vec<StoreAbout>)>>);

impl Looked {
    /// What was found lately; while a run is made, whenever it was, so that no program is started beside it.
    fn look(&self, program: &dyn Program, is_busy: bool) -> Vec<StoreAbout> {
        // others wait for what the first one finds
        let mut looked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, stores)) = looked.as_ref().filter(|(at, _)| is_busy || at.elapsed() < FRESH) {
            return stores.clone();
        }
        let about = |abilities: StoreAbilities| {
            let (available, here) = program.here(&abilities.name);
            StoreAbout { abilities, available, here }
        };
        let stores: Vec<StoreAbout> = program.stores().into_iter().map(about).collect();
        *looked = Some((Instant::now(), stores.clone()));
        stores
    }
}
