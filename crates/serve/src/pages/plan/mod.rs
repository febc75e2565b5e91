//! Choosing what to run. The form is answered while it is filled in: with what can be combined, why the rest cannot, the
//! command line that runs the same, and how long it takes. What can be combined is asked of the check that plans go
//! through, a value at a time, so that a form never knows better than a run.

mod choices;
mod markup;
mod query;

use std::sync::Arc;

use acidtest_results::{OPTIONS, Plan, PlanOption, option_of};
use axum::{
    extract::State as Of,
    http::{StatusCode, Uri},
    response::Redirect,
};

pub(super) use self::query::query;
use self::{
    choices::{Axis, Choice, Finder, store_choices},
    markup::page,
};
use super::{Asked, Page, Sent, Wrong, to_run};
use crate::{
    CheckedPlan, Program, Refusal, WorkloadAbout, WorkloadParameter,
    app::{App, StoreAbout},
};

/// The workload of a form that names none.
const FIRST: &str = "inventory";

/// The options of which the form offers each value, in the order in which it finds out what can be chosen: the key, its
/// name on the form, what it is about, and what is chosen rather than another where nothing was.
const CHOSEN: [(&str, &str, &str, &[&str]); 3] = [
    ("durability", "Durability", "what an acknowledged write survives", &["disk", "process"]),
    ("locks", "Lock", "what protects read, decide and write", &["native", "hard", "soft"]),
    ("tls", "TLS", "whether connections to private servers are encrypted", &["off"]),
];

/// How the workload is driven: the key, its name on the form, what to write, and what is tried in its place to see whether it
/// has an effect.
const DRIVING: [(&str, &str, &str, Option<&str>); 11] = [
    ("clients", "Clients", "at once; a list such as 1,4,16 or 3..66:9 runs each", Some("7")),
    ("trials", "Trials of each cell", "several give intervals", None),
    ("duration", "Measured for", "in each trial, such as 10s or 1m 30s", Some("7s")),
    ("warmup", "Warm-up", "before it, not recorded", Some("7s")),
    ("rates", "Offered rate", "operations a second; empty: as fast as the clients can", Some("7")),
    ("nodes", "Nodes", "of each store; 3 is a cluster, 1,3 runs both", Some("3")),
    (
        "replication",
        "Replication",
        "what clusters acknowledge: async, semi, quorum, all; async,quorum runs both",
        Some("quorum"),
    ),
    ("reads", "Reads", "which members of clusters answer them: leader, replica, any", Some("replica")),
    (
        "route",
        "Route of reads",
        "at replicas or any: pinned to one member, or spread over all",
        Some("spread"),
    ),
    (
        "consistency",
        "Consistency of reads",
        "at replicas or any: eventual, or strong: all that was acknowledged before",
        Some("strong"),
    ),
    (
        "faults",
        "Faults",
        "such as kill@3s; none,kill@3s runs both; also restart, pause, disconnect, stall; of clusters lose, cut",
        None,
    ),
];

/// What makes a search of a run: its objectives.
const OBJECTIVES: (&str, &str, &str, Option<&str>) = (
    "slo",
    "Search for the capacity under",
    "objectives, such as p99<20ms,errors<0.1%; empty: no search",
    None,
);

/// The options that are written.
fn written_options()
-> impl Iterator<Item = (&'static PlanOption, &'static str, &'static str, Option<&'static str>)> {
    let all = DRIVING.iter().chain([&OBJECTIVES]);
    all.filter_map(|(key, label, meaning, tried)| Some((option_of(key)?, *label, *meaning, *tried)))
}

/// Letters of the longest value that is written.
const LONGEST: usize = 1_000;

/// What stands before a parameter's name, apart from the options that all workloads have.
const PARAMETER: &str = "p-";

pub(super) async fn show(Of(app): Of<App>, uri: Uri) -> Result<Page, Wrong> {
    let asked = Asked::read(uri.query().unwrap_or_default().as_bytes());
    let form = fill(&app, asked).await?;
    Ok(Page::ok(page(&form, None)))
}

/// Starts the run that the form describes, and leads to its page. What is not on the form, or cannot be chosen, is not left
/// out in silence: then the form is shown again.
pub(super) async fn start(Of(app): Of<App>, Sent(asked): Sent) -> Result<Result<Redirect, Page>, Wrong> {
    let form = fill(&app, asked).await?;
    let plan = match &form.plan {
        Ok(checked) if form.dropped.is_empty() => checked.plan.clone(),
        Ok(_) => {
            return Ok(Err(refused(
                &form,
                "some of what was asked for is not on the form (see “Not chosen”); start again to run without it",
            )));
        }
        Err(wrong) => return Ok(Err(refused(&form, &wrong.detail))),
    };
    match app.submit(plan).await {
        Ok(record) => Ok(Ok(to_run(&record))),
        Err(problem) => Ok(Err(refused(&form, problem.detail()))),
    }
}

fn refused(form: &Form, why: &str) -> Page {
    Page { status: StatusCode::UNPROCESSABLE_ENTITY, markup: page(form, Some(why)) }
}

/// Fills the form in, on a thread of its own.
async fn fill(app: &App, asked: Asked) -> Result<Form, Wrong> {
    let stores = app.stores().await?;
    let program = Arc::clone(&app.program);
    Ok(app.check(move || Ok(Form::of(&*program, &stores, &asked))).await?)
}

/// A value that is written.
struct Text {
    name: String,
    label: String,
    meaning: String,
    default: String,
    written: String,
    /// Why it would have no effect; none if it has one.
    idle: Option<String>,
    wrong: Option<String>,
}

impl Text {
    /// The option of the command line.
    fn option(&self) -> String {
        self.name.strip_prefix(PARAMETER).unwrap_or(&self.name).replace('_', "-")
    }

    /// The option of the plan that it is; none for a parameter of the workload.
    fn plan_option(&self) -> Option<&'static PlanOption> {
        OPTIONS.iter().find(|option| option.long == self.name)
    }

    /// Where it is in a plan, as a JSON Pointer.
    fn pointer(&self) -> String {
        match self.name.strip_prefix(PARAMETER) {
            Some(parameter) => format!("/parameters/{parameter}"),
            None => self.plan_option().map_or_else(String::new, PlanOption::pointer),
        }
    }
}

/// The form as it is answered.
struct Form {
    workloads: Vec<WorkloadAbout>,
    /// The index of the one that is chosen.
    workload: usize,
    stores: Axis,
    guarantees: Vec<Axis>,
    driving: Vec<Text>,
    parameters: Vec<Text>,
    /// What was asked for and is not on the form, or cannot be chosen.
    dropped: Vec<String>,
    /// The plan that follows, or what is wrong.
    plan: Result<CheckedPlan, Refusal>,
}

impl Form {
    fn of(program: &dyn Program, stores: &[StoreAbout], asked: &Asked) -> Self {
        let workloads = program.workloads();
        let named = |name: &str| workloads.iter().position(|each| each.name == name);
        let workload = named(asked.one("workload")).or_else(|| named(FIRST)).unwrap_or_default();
        let text = |name: String, label: &str, meaning: &str, default: &str| Text {
            written: asked.one(&name).to_owned(),
            label: label.to_owned(),
            meaning: meaning.to_owned(),
            default: default.to_owned(),
            idle: None,
            wrong: None,
            name,
        };
        let usual = Plan::of("");
        let driving = written_options()
            .map(|(option, label, meaning, _)| {
                text(option.long.to_owned(), label, meaning, &option.default(&usual))
            })
            .collect();
        let mut form = Self {
            stores: Axis {
                name: "store".to_owned(),
                label: "Stores".to_owned(),
                meaning: "started here for the run, one at a time, and removed after it".to_owned(),
                choices: Vec::new(),
            },
            guarantees: Vec::new(),
            driving,
            parameters: Vec::new(),
            dropped: Vec::new(),
            plan: Err(Refusal::of("there is no workload in this build")),
            workload,
            workloads,
        };
        let Some(about) = form.workloads.get(workload) else { return form };
        let (words, texts): (Vec<_>, Vec<_>) =
            about.parameters.iter().partition(|parameter| !parameter.choices.is_empty());
        form.parameters = texts
            .into_iter()
            .map(|WorkloadParameter { name, default, meaning, .. }| {
                text(format!("{PARAMETER}{name}"), name, meaning, default)
            })
            .collect();
        form.stores.choices = store_choices(program, stores, about, asked);
        let written = typed(program, &form).unwrap_or_else(|_| Plan::of(&about.name));
        let mut finder = Finder::new(program, stores, &form.stores, written);
        for (key, label, meaning, rather) in CHOSEN {
            let Some(option) = option_of(key) else { continue };
            let choices = finder.option(option, rather, asked);
            form.guarantees.push(Axis::new(option.long, label, meaning, choices));
        }
        form.guarantees.extend(words.into_iter().map(|parameter| finder.parameter(parameter, asked)));
        form.guarantees.swap(0, 1);
        for (text, (option, _, _, tried)) in form.driving.iter_mut().zip(written_options()) {
            text.idle = finder.idle(option, tried);
        }
        form.dropped = form.dropped(asked);
        form.driving.iter_mut().filter(|text| text.idle.is_some()).for_each(|text| text.written.clear());
        let chosen = finder.chosen();
        form.plan = typed(program, &form).map_err(Refusal::of).and_then(|written| {
            let mut plan = written;
            CHOSEN
                .iter()
                .filter_map(|(key, ..)| option_of(key))
                .for_each(|option| option.copy(&chosen, &mut plan));
            plan.parameters.extend(chosen.parameters);
            plan.stores = form.stores.chosen().into_iter().map(str::to_owned).collect();
            check(program, plan)
        });
        form.place_error();
        form
    }

    /// What was asked for and is not on the form, or cannot be chosen.
    fn dropped(&self, fields: &Asked) -> Vec<String> {
        let axes = || self.guarantees.iter().chain([&self.stores]);
        let texts = || self.driving.iter().chain(&self.parameters);
        let of = |name: &str, value: &str| {
            if name == "workload" {
                let is_it = self.workloads[self.workload].name == value;
                return (!is_it).then(|| format!("there is no workload {value}"));
            }
            if let Some(axis) = axes().find(|axis| axis.name == name) {
                // one of a few words may be a list, as in a query that a run's page makes
                let values = value.split(if name.starts_with(PARAMETER) { ',' } else { '\n' });
                return values.into_iter().find_map(|value| {
                    match axis.choices.iter().find(|choice| choice.value == value) {
                        Some(choice) if choice.chosen => None,
                        Some(Choice { refused: Some(why), .. }) => {
                            Some(format!("{} {value}: {why}", axis.label))
                        }
                        _ => Some(format!("{} has no {value}", axis.label)),
                    }
                });
            }
            match texts().find(|text| text.name == name) {
                None => Some(format!("the form has no field {name}")),
                Some(text) if fields.all(name).count() > 1 => Some(format!("{} is there twice", text.label)),
                Some(Text { idle: Some(why), label, .. }) => Some(format!("{label}: {why}")),
                Some(_) => None,
            }
        };
        // an empty field asks for nothing
        let asked = fields.0.iter().filter(|(name, value)| name == "workload" || !value.trim().is_empty());
        let mut dropped: Vec<String> = asked.filter_map(|(name, value)| of(name, value)).collect();
        dropped.dedup();
        dropped
    }

    /// Says what is wrong with the plan beside the field that it is about.
    fn place_error(&mut self) {
        let Err(Refusal { detail, pointer }) = &self.plan else { return };
        let is_about = |text: &&mut Text| {
            let option = text.option();
            // the command line names the option, the plan's check the key
            detail.contains(&format!("'--{option} "))
                || detail.starts_with(&format!("--{option} "))
                || *pointer == text.pointer()
        };
        let mut texts = self.driving.iter_mut().chain(&mut self.parameters);
        if let Some(text) = texts.find(is_about) {
            text.wrong = Some(detail.clone());
        }
    }
}

/// Checks the plan. Where stores cannot do a part of it, that is left out.
fn check(program: &dyn Program, plan: Plan) -> Result<CheckedPlan, Refusal> {
    if plan.stores.is_empty() {
        return Err(Refusal::at("stores", "choose a store"));
    }
    program.check(&plan).or_else(|refused| {
        let plan = Plan { skip_unsupported: true, ..plan };
        program.check(&plan).map_err(|_| refused)
    })
}

/// The plan as far as it is written.
fn typed(program: &dyn Program, form: &Form) -> Result<Plan, String> {
    let is_written = |text: &&Text| !text.written.is_empty();
    let search = form.driving.iter().any(|text| text.name == OBJECTIVES.0 && !text.written.is_empty());
    let texts = || form.driving.iter().chain(&form.parameters).filter(is_written);
    if let Some(long) = texts().find(|text| text.written.len() > LONGEST) {
        return Err(format!("--{} has more than {LONGEST} letters", long.option()));
    }
    let names: Vec<(String, String)> = texts()
        .map(|text| {
            let name =
                text.plan_option().map_or_else(|| text.option(), |option| option.name(search).to_owned());
            (name, text.written.clone())
        })
        .collect();
    let options: Vec<(&str, String)> =
        names.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    program.typed(&form.workloads[form.workload].name, search, &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that is none, or a word that is not read, would be left out in silence.
    #[test]
    fn what_the_form_offers_is_an_option_of_a_plan() {
        assert!(CHOSEN.iter().all(|(key, ..)| option_of(key).is_some()));
        assert_eq!(written_options().count(), DRIVING.len() + 1);
        for (option, _, _, tried) in written_options() {
            if let Some(word) = tried {
                let mut plan = Plan::of("inventory");
                option.read(&[word.to_owned()], &mut plan).unwrap();
                assert!(!option.is_usual(&plan), "--{} {word}", option.long);
            }
        }
    }
}
