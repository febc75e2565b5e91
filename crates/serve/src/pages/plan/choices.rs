//! What can be chosen, and why the rest cannot.

use std::collections::BTreeMap;

use acidtest_model::{Durability, Lock};
use acidtest_results::{Plan, PlanOption, distinct};
use serde_json::Value;

use super::{Asked, PARAMETER};
use crate::{Program, StoreAbilities, Supported, WorkloadAbout, WorkloadParameter, app::StoreAbout};

/// A value that can be chosen, or not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) value: String,
    /// What it is called, where that is not the value.
    pub(super) label: Option<String>,
    pub(super) chosen: bool,
    /// Why it cannot be chosen; none if it can.
    pub(super) refused: Option<String>,
    /// What part of the chosen stores cannot do it, with the reasons.
    pub(super) except: Vec<String>,
}

/// Values of which several can be chosen: an axis of the grid.
pub(super) struct Axis {
    /// The name of its fields.
    pub(super) name: String,
    pub(super) label: String,
    pub(super) meaning: String,
    pub(super) choices: Vec<Choice>,
}

impl Axis {
    pub(super) fn new(name: &str, label: &str, meaning: &str, choices: Vec<Choice>) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), meaning: meaning.to_owned(), choices }
    }

    pub(super) fn chosen(&self) -> Vec<&str> {
        self.choices.iter().filter(|choice| choice.chosen).map(|choice| choice.value.as_str()).collect()
    }
}

/// The stores: those that can carry the workload, and are here.
pub(super) fn store_choices(
    program: &dyn Program,
    stores: &[StoreAbout],
    workload: &WorkloadAbout,
    asked: &Asked,
) -> Vec<Choice> {
    let refused = |store: &StoreAbout, is_theirs: bool| {
        let carries = store.abilities.workloads.iter().find(|each| each.name == workload.name);
        match carries {
            Some(Supported { supported: false, why, .. }) => Some(why.clone()),
            _ if !store.available && !is_theirs => Some(store.here.clone()),
            _ => None,
        }
    };
    let own = stores.iter().map(|store| Choice {
        value: store.abilities.name.clone(),
        label: label(&store.abilities),
        chosen: false,
        refused: refused(store, false),
        except: Vec::new(),
    });
    let addresses = program.addresses();
    let theirs = addresses.into_iter().filter_map(|(address, name)| {
        let store = stores.iter().find(|store| store.abilities.name == name)?;
        let label = Some(format!("your own {}", store.abilities.title));
        Some(Choice {
            value: address,
            label,
            chosen: false,
            refused: refused(store, true),
            except: Vec::new(),
        })
    });
    let mut choices: Vec<Choice> = own.chain(theirs).collect();
    let stores: Vec<&str> = asked.all("store").collect();
    // whoever has filled the form in and chosen none is told so
    if stores.is_empty() && !asked.one("workload").is_empty() {
        return choices;
    }
    choose(&mut choices, &stores, &[]);
    choices
}

/// What a store is called, where its name does not say it.
fn label(store: &StoreAbilities) -> Option<String> {
    let is_said = store.title.eq_ignore_ascii_case(&store.name) || store.title.starts_with(&store.name);
    (!is_said).then(|| store.title.clone())
}

/// Chooses what was asked for and can be; if nothing is left, the first of these that can, or else the first at all.
fn choose(choices: &mut [Choice], asked: &[&str], rather: &[&str]) {
    for choice in choices.iter_mut() {
        choice.chosen = choice.refused.is_none() && asked.contains(&choice.value.as_str());
    }
    if choices.iter().any(|choice| choice.chosen) {
        return;
    }
    let can = |choice: &Choice| choice.refused.is_none();
    let named =
        rather.iter().find_map(|name| choices.iter().position(|each| can(each) && each.value == *name));
    if let Some(place) = named.or_else(|| choices.iter().position(can)) {
        choices[place].chosen = true;
    }
}

/// A store that is chosen: what the plan calls it, and what it can do.
struct Chosen {
    named: String,
    abilities: StoreAbilities,
}

/// Finds out what of each axis the chosen stores can do, given what is chosen of the axes before.
pub(super) struct Finder<'a> {
    program: &'a dyn Program,
    stores: Vec<Chosen>,
    plan: Plan,
}

impl<'a> Finder<'a> {
    /// Of the stores that are chosen, and what is written of the plan.
    pub(super) fn new(program: &'a dyn Program, stores: &[StoreAbout], chosen: &Axis, plan: Plan) -> Self {
        let addresses: BTreeMap<String, String> = program.addresses().into_iter().collect();
        let find = |value: &&str| {
            let name = addresses.get(*value).map_or(*value, String::as_str);
            let store = stores.iter().find(|store| store.abilities.name == name)?;
            Some(Chosen { named: (*value).to_owned(), abilities: store.abilities.clone() })
        };
        let stores = chosen.chosen().iter().filter_map(find).collect();
        let mut finder = Self { program, stores, plan };
        if finder.stores.iter().all(|store| finder.refusal(store, &|_| ()).is_some()) {
            // what is wrong is written, and is said of the plan: what can be chosen does not depend on it
            finder.plan = Plan::of(&finder.plan.workload);
        }
        finder
    }

    /// Why what is written for this option would have no effect on any store, as what is `tried` has none; none if it has one.
    pub(super) fn idle(&self, option: &PlanOption, tried: Option<&str>) -> Option<String> {
        let change = |plan: &mut Plan| {
            if let Some(word) = tried {
                // which is the option's own
                let _ = option.read(&[word.to_owned()], plan);
            }
        };
        let why: Option<Vec<String>> = self.stores.iter().map(|store| self.refusal(store, &change)).collect();
        let why = why?.into_iter().next()?;
        let (_, why) = why.split_once(" has no effect here: ")?;
        Some(format!("no effect here: {why}"))
    }

    pub(super) fn chosen(self) -> Plan {
        self.plan
    }

    /// The values of an option that takes a few words, or several of them as an axis. Where nothing was chosen, it is the
    /// first of `rather` that can be.
    pub(super) fn option(&mut self, option: &PlanOption, rather: &[&str], asked: &Asked) -> Vec<Choice> {
        let words: Vec<(&str, &str)> = (option.words)().into_iter().map(|(word, _)| (word, word)).collect();
        let set = |plan: &mut Plan, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            // which are the option's own
            let _ = option.read(&words, plan);
        };
        let (choices, mut chosen) =
            self.axis(&asked.all(option.long).collect::<Vec<_>>(), &words, rather, &|plan, word| {
                set(plan, &[word]);
            });
        if chosen.is_empty() && option.key == "durability" {
            // the plan's check is to say what is wrong besides the level
            let has = |level: &&str| {
                let tables = self.stores.iter().map(|store| &store.abilities.durability);
                tables.flatten().any(|row| row.name == *level && row.supported)
            };
            chosen = words.iter().map(|(word, _)| *word).rfind(has).into_iter().collect();
            // of a broker, none
            set(&mut self.plan, &chosen);
        } else if !chosen.is_empty() {
            set(&mut self.plan, &chosen);
        }
        choices
    }

    pub(super) fn parameter(&mut self, parameter: &WorkloadParameter, asked: &Asked) -> Axis {
        let WorkloadParameter { name, default, meaning, choices } = parameter;
        let field = format!("{PARAMETER}{name}");
        let value = |word: &str| word.parse::<bool>().map_or_else(|_| Value::from(word), Value::from);
        let words: Vec<(&str, &str)> = choices.iter().map(|word| (word.as_str(), word.as_str())).collect();
        let set = |plan: &mut Plan, word: &str| {
            // the default is not asked for, as it may have no effect
            if word == default {
                plan.parameters.remove(name);
            } else {
                plan.parameters.insert(name.clone(), value(word));
            }
        };
        let asked: Vec<&str> = asked.all(&field).flat_map(|values| values.split(',')).collect();
        let (choices, chosen) = self.axis(&asked, &words, &[default], &set);
        match &*chosen {
            // nothing can be: the plan's check says why
            [] => {}
            [one] => set(&mut self.plan, one),
            several => {
                let values = several.iter().map(|word| value(word)).collect();
                self.plan.parameters.insert(name.clone(), Value::Array(values));
            }
        }
        Axis::new(&field, &name.replace('_', " "), meaning, choices)
    }

    /// The values of an axis: which the chosen stores can do, and which of them are chosen.
    fn axis<T: Clone>(
        &self,
        asked: &[&str],
        values: &[(&str, T)],
        rather: &[&str],
        set: &dyn Fn(&mut Plan, T),
    ) -> (Vec<Choice>, Vec<T>) {
        // a store that cannot do what is chosen already says nothing of this axis
        let can = |store: &&Chosen| self.refusal(store, &|_| ()).is_none();
        let mut stores: Vec<&Chosen> = self.stores.iter().filter(can).collect();
        if stores.is_empty() {
            stores = self.stores.iter().collect();
        }
        let mut choices: Vec<Choice> = values
            .iter()
            .map(|(name, value)| {
                let refused = stores.iter().filter_map(|store| {
                    let why = self.refusal(store, &|plan| set(plan, value.clone()))?;
                    Some((store.named.as_str(), why))
                });
                let why: Vec<(&str, String)> = refused.collect();
                let cannot = !stores.is_empty() && why.len() == stores.len();
                let why = reasons(why, stores.len());
                let refused = cannot.then(|| why.join("; "));
                let except = if cannot { Vec::new() } else { why };
                Choice { value: (*name).to_owned(), label: None, chosen: false, refused, except }
            })
            .collect();
        choose(&mut choices, asked, rather);
        let chosen = choices.iter().zip(values).filter(|(choice, _)| choice.chosen);
        let chosen = chosen.map(|(_, (_, value))| value.clone()).collect();
        (choices, chosen)
    }

    /// Why a store cannot do the plan with this change; none if there is a lock mode and a durability level with which it
    /// can.
    fn refusal(&self, store: &Chosen, change: &dyn Fn(&mut Plan)) -> Option<String> {
        let with = |lock: Lock, durability: Durability| {
            let mut plan = self.plan.clone();
            plan.stores = vec![store.named.clone()];
            (plan.locks, plan.durability) = (vec![lock], vec![durability]);
            // one of each is enough to tell
            plan.clients.truncate(1);
            plan.rates.truncate(1);
            plan.faults.truncate(1);
            for value in plan.parameters.values_mut() {
                if let Value::Array(values) = value {
                    values.truncate(1);
                }
            }
            change(&mut plan);
            self.program.check(&plan).err().map(|refusal| reason(&refusal.detail))
        };
        let usual = Plan::of("");
        let locks = distinct([&*self.plan.locks, &usual.locks, &Lock::ALL].concat());
        let levels = distinct([&*self.plan.durability, &usual.durability, &Durability::ALL].concat());
        let mut all = levels.iter().flat_map(|level| locks.iter().map(move |lock| (*lock, *level)));
        // the first reason is that of what is chosen
        let first = all.next().and_then(|(lock, level)| with(lock, level))?;
        all.all(|(lock, level)| with(lock, level).is_some()).then_some(first)
    }
}

/// Reasons of stores: one that all of them have is said once, others with the store that they are of.
fn reasons(why: Vec<(&str, String)>, stores: usize) -> Vec<String> {
    let is_one = why.len() == stores && why.iter().all(|(_, reason)| *reason == why[0].1);
    let of = |(store, reason): (&str, String)| {
        if is_one || reason.starts_with(store) { reason } else { format!("{store}: {reason}") }
    };
    let mut said: Vec<String> = why.into_iter().map(of).collect();
    said.dedup();
    said
}

/// What is wrong, without what was tried besides: the first line, and no remedy.
fn reason(detail: &str) -> String {
    let mut lines = detail.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    if first.ends_with(':') { lines.next().unwrap_or(first).to_owned() } else { first.to_owned() }
}
