//! Runs scripts in all their orders on all modes of a store, and counts what they show.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use acidtest_model::StoreError;
use acidtest_workloads::{
    Place,
    interactive::{InteractiveStore, Mode},
};
use futures_util::future::join_all;
use tokio::task::LocalSet;

use crate::{
    How, Judgement,
    judge::judge,
    play::{Play, SharedMonitor, Stage},
    published::{promise, published},
    result::{AnomalyCell, ModeResult, Outcome, Transcript},
    script::Script,
};

/// Time between two looks whether it is to be stopped.
const LOOK: Duration = Duration::from_millis(50);

/// After so many plays that prove nothing, a cell is given up.
const GIVEN_UP: u32 = 3;

/// What is run on a store.
pub struct Survey<'a> {
    /// The store.
    pub store: &'a dyn InteractiveStore,
    /// The name of its product in what is published: `postgres`, `mysql`, `mariadb`, ….
    pub product: &'a str,
    /// Its modes that are tried.
    pub modes: &'a [Mode],
    /// What is run in each of them.
    pub scripts: &'a [Script],
    /// How often each order is run.
    pub repeat: u32,
    /// The namespace in which tables are made.
    pub namespace: &'a str,
    /// How many scripts run at a time on a store on which they do not hinder each other. Each has up to four sessions.
    pub at_a_time: usize,
    /// Whether it is to be stopped, even in the middle of a script.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// One script in one mode: the next thing that is to be done, and what was found so far.
struct Cell<'a> {
    mode: &'a Mode,
    script: &'a Script,
    refused: Option<String>,
    /// The plays that were begun.
    begun: u32,
    /// What came of each order.
    shown: BTreeMap<usize, Shown>,
    unknown: u32,
    why: Option<String>,
    occurrence: Option<(usize, String, Play)>,
    first: Option<(How, Play)>,
    /// The first play that proves nothing, with its order.
    doubtful: Option<(usize, Play)>,
}

#[derive(Default)]
struct Shown {
    occurred: u32,
    prevented: BTreeMap<How, u32>,
}

impl Survey<'_> {
    /// The number of plays, as far as is known before.
    #[must_use]
    pub fn plays(&self) -> u64 {
        let mut plays = 0;
        for mode in self.modes {
            for script in self.scripts.iter().filter(|script| self.refuses(mode, script).is_none()) {
                plays += script.orders.len() as u64 * u64::from(self.repeat);
            }
        }
        plays
    }

    /// Runs all. `goes_on` is told after each play how many were made, and says whether to go on.
    ///
    /// # Errors
    /// The store cannot be used any more, with what was found until then.
    pub async fn run(&self, goes_on: impl Fn(u64) -> bool) -> (Vec<ModeResult>, Result<(), StoreError>) {
        let cells = self.modes.iter().flat_map(|mode| self.scripts.iter().map(move |script| (mode, script)));
        let cells: Vec<RefCell<Cell<'_>>> = cells
            .map(|(mode, script)| RefCell::new(Cell::new(mode, script, self.refuses(mode, script))))
            .collect();
        let work = Work {
            cells: &cells,
            told: RefCell::new(BTreeMap::new()),
            plays: std::cell::Cell::new(0),
            ended: std::cell::Cell::new(false),
            failure: RefCell::new(None),
        };
        match SharedMonitor::of(self.store).await {
            Err(error) => *work.failure.borrow_mut() = Some(error),
            Ok(monitor) => {
                // those of somebody's own may have something in common that is not in their tables
                let are_apart =
                    self.store.is_concurrent() && self.scripts.iter().all(|script| script.is_built_in);
                let lanes = if are_apart { self.at_a_time.max(1) } else { 1 };
                let lanes = join_all((0..lanes).map(|_| self.lane(&work, &monitor, &goes_on)));
                // sessions are driven by tasks of their own, which need not be sent to other threads
                LocalSet::new().run_until(lanes).await;
            }
        }
        let (told, failure) = (work.told.into_inner(), work.failure.into_inner());
        let mut modes = Vec::new();
        for (index, mode) in self.modes.iter().enumerate() {
            let of = cells.iter().skip(index * self.scripts.len()).take(self.scripts.len());
            let told = told.get(&mode.name).cloned().unwrap_or_default();
            modes.push(ModeResult {
                name: mode.name.clone(),
                level: mode.level,
                how: mode.how.to_owned(),
                cells: of.map(|cell| cell.borrow().found(self.product, &told)).collect(),
                told,
                is_default: mode.is_default,
            });
        }
        (modes, failure.map_or(Ok(()), Err))
    }

    /// Plays one script after the other, as long as there are any left to be played.
    async fn lane(&self, work: &Work<'_, '_>, monitor: &SharedMonitor, goes_on: &impl Fn(u64) -> bool) {
        let mut stage: Option<(&Mode, Stage<'_>)> = None;
        while let Some((index, play)) = work.next(self.repeat) {
            let cell = &work.cells[index];
            let (mode, script) = (cell.borrow().mode, cell.borrow().script);
            let number = work.plays.get() + 1;
            work.plays.set(number);
            let place = Place {
                namespace: self.namespace.to_owned(),
                trial: u32::try_from(number).unwrap_or(u32::MAX),
            };
            if stage.as_ref().is_none_or(|(of, _)| *of != mode) {
                stage = Some((mode, Stage::new(self.store, mode, monitor)));
            }
            let Some((_, stage)) = &mut stage else { return };
            let order = play as usize % script.orders.len();
            let played = tokio::select! {
                played = stage.play(script, &script.orders[order], &place) => played,
                () = self.interrupted() => return work.ended.set(true),
            };
            match played {
                Ok(played) => cell.borrow_mut().take(order, played),
                Err(error) => {
                    work.failure.borrow_mut().get_or_insert(error);
                    work.ended.set(true);
                }
            }
            if let Some(level) = stage.level() {
                work.told.borrow_mut().entry(mode.name.clone()).or_insert_with(|| level.to_owned());
            }
            if !goes_on(number) {
                work.ended.set(true);
            }
        }
    }

    async fn interrupted(&self) {
        while !(self.is_interrupted)() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Why a mode cannot run a script; none if it can.
    fn refuses(&self, mode: &Mode, script: &Script) -> Option<String> {
        script.steps.iter().find_map(|step| self.store.refuses(mode, &step.statement))
    }
}

/// What all lanes work on.
struct Work<'c, 'a> {
    cells: &'c [RefCell<Cell<'a>>],
    /// The level that sessions of each mode read back.
    told: RefCell<BTreeMap<String, String>>,
    plays: std::cell::Cell<u64>,
    ended: std::cell::Cell<bool>,
    failure: RefCell<Option<StoreError>>,
}

impl Work<'_, '_> {
    /// The cell that is to be played next, and which of its plays it is, from 0. All orders are played once before the first is
    /// played again.
    fn next(&self, repeat: u32) -> Option<(usize, u32)> {
        if self.ended.get() {
            return None;
        }
        self.cells.iter().enumerate().find_map(|(index, cell)| {
            let mut cell = cell.borrow_mut();
            let all = u32::try_from(cell.script.orders.len()).ok()?.checked_mul(repeat)?;
            if cell.refused.is_some() || cell.unknown >= GIVEN_UP || cell.begun >= all {
                return None;
            }
            cell.begun += 1;
            Some((index, cell.begun - 1))
        })
    }
}

impl<'a> Cell<'a> {
    fn new(mode: &'a Mode, script: &'a Script, refused: Option<String>) -> Self {
        Self {
            mode,
            script,
            refused,
            begun: 0,
            shown: BTreeMap::new(),
            unknown: 0,
            why: None,
            occurrence: None,
            first: None,
            doubtful: None,
        }
    }

    /// Takes in what a play of an order shows.
    fn take(&mut self, order: usize, play: Play) {
        let shown = self.shown.entry(order).or_default();
        let judgement = judge(self.script, &play);
        match judgement {
            Judgement::Occurs(values) => {
                shown.occurred += 1;
                // the order in which the steps stand is the one that readers know
                if self.occurrence.as_ref().is_none_or(|(other, ..)| order < *other) {
                    self.occurrence = Some((order, values, play));
                }
            }
            Judgement::Prevented(how) => {
                *shown.prevented.entry(how).or_default() += 1;
                if order == 0 && self.first.is_none() {
                    self.first = Some((how, play));
                }
            }
            Judgement::Unknown(why) => {
                self.unknown += 1;
                self.why.get_or_insert(why);
                self.doubtful.get_or_insert((order, play));
            }
        }
    }

    fn found(&self, product: &str, told: &str) -> AnomalyCell {
        let occurred: u32 = self.shown.values().map(|shown| shown.occurred).sum();
        let mut prevented = BTreeMap::new();
        for (how, times) in self.shown.values().flat_map(|shown| &shown.prevented) {
            *prevented.entry(*how).or_default() += *times;
        }
        let is_whole = self.shown.len() == self.script.orders.len();
        let outcome = if self.refused.is_some() {
            Outcome::NotApplicable
        } else if occurred > 0 {
            Outcome::Occurs
        } else if self.unknown > 0 || !is_whole {
            Outcome::Unknown
        } else {
            Outcome::Prevented
        };
        let why = match outcome {
            Outcome::NotApplicable => self.refused.clone(),
            Outcome::Unknown => {
                Some(self.why.clone().unwrap_or_else(|| "not all orders were run".to_owned()))
            }
            Outcome::Occurs | Outcome::Prevented => None,
        };
        let shown = match (&self.occurrence, &self.doubtful, &self.first) {
            (Some((order, _, play)), ..) | (None, Some((order, play)), _) => Some((*order, play)),
            (None, None, Some((_, play))) => Some((0, play)),
            (None, None, None) => None,
        };
        let transcript =
            shown.map(|(order, play)| Transcript::of(self.script, &self.script.orders[order], play));
        // nobody has promised or published anything of a script of somebody's own, whatever it is called
        let is_built_in = self.script.is_built_in;
        let level = self.mode.level.filter(|_| is_built_in);
        let promise = || promise(product, &self.mode.name, told, &self.script.name);
        AnomalyCell {
            anomaly: self.script.name.clone(),
            outcome,
            how: self.first.as_ref().map(|(how, _)| *how).filter(|_| outcome == Outcome::Prevented),
            values: self.occurrence.as_ref().map(|(_, values, _)| values.clone()),
            plays: self.begun,
            occurred,
            orders_occurred: u32::try_from(self.shown.values().filter(|shown| shown.occurred > 0).count())
                .unwrap_or(u32::MAX),
            prevented,
            unknown: self.unknown,
            why,
            transcript,
            published: published(product, level, &self.script.name),
            promise: is_built_in.then(promise).flatten(),
        }
    }
}
