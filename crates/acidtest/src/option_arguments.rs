//! The options of a plan as arguments of the command line, made from the table of options.

use std::marker::PhantomData;

use acidtest_results::{Group, InSearch, OPTIONS, Plan, PlanOption, Takes};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValue, PossibleValuesParser},
    error::ErrorKind,
};

use crate::{parameter_arguments::Offering, registry};

/// The options of a group, as arguments, and those of them that were given.
#[derive(Clone, Debug)]
pub(crate) struct OptionArguments<G> {
    pub(crate) given: GivenValues,
    group: PhantomData<G>,
}

/// A group of options, as a type.
pub(crate) trait OfGroup {
    const GROUP: Group;
}

macro_rules! groups {
    ($($group:ident),*) => {$(
        #[derive(Clone, Debug)]
        pub(crate) struct $group;

        impl OfGroup for $group {
            const GROUP: Group = Group::$group;
        }
    )*};
}

groups!(Grid, Driving, Data, Room, Search);

#[derive(Clone, Debug)]
pub(crate) struct GivenValues {
    options: Vec<&'static PlanOption>,
    /// A plan of no workload that has the values.
    pub(crate) plan: Plan,
}

impl GivenValues {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().flat_map(|option| option.keys())
    }

    pub(crate) fn apply_to(&self, plan: &mut Plan) {
        self.options.iter().for_each(|option| option.copy(&self.plan, plan));
    }
}

fn of_group(group: Group) -> impl Iterator<Item = &'static PlanOption> {
    OPTIONS.iter().filter(move |option| option.group == group)
}

fn id(option: &PlanOption) -> String {
    option.long.replace('-', "_")
}

fn argument(option: &'static PlanOption) -> Arg {
    let arg = Arg::new(id(option)).long(option.long).help(option.help(false));
    if option.takes == Takes::Nothing {
        return arg.action(ArgAction::SetTrue);
    }
    let name = Some(option.value_name).filter(|name| !name.is_empty());
    let arg = arg.value_name(name.map_or_else(|| id(option).to_uppercase(), str::to_owned));
    let arg = arg.allow_hyphen_values(option.takes_hyphens);
    let arg =
        if option.takes == Takes::List { arg.value_delimiter(',').action(ArgAction::Append) } else { arg };
    let arg = match option.if_bare {
        Some(word) => arg.num_args(0..=1).default_missing_value(word),
        None => arg,
    };
    let read = |word: &str| {
        let word = word.to_owned();
        option.read(std::slice::from_ref(&word), &mut Plan::of("")).map(|()| word)
    };
    let words = (option.words)();
    if words.iter().any(|(_, meaning)| !meaning.is_empty()) {
        let words = words.into_iter().map(|(word, meaning)| PossibleValue::new(word).help(meaning));
        return arg.value_parser(PossibleValuesParser::new(words));
    }
    let offered: Vec<&str> = match option.key {
        "stores" => registry::names().collect(),
        _ => words.into_iter().map(|(word, _)| word).collect(),
    };
    if offered.is_empty() {
        return arg.value_parser(read);
    }
    // the help speaks of them
    arg.value_parser(Offering::new(read, offered)).hide_possible_values(true)
}

/// An argument of a run as a search for a capacity has it.
pub(crate) fn in_search(arg: Arg) -> Arg {
    match OPTIONS.iter().find(|option| id(option) == arg.get_id().as_str()) {
        Some(PlanOption { in_search: InSearch::Idle(_), .. }) => arg.hide(true),
        Some(option) => arg.long(option.name(true)).help(option.help(true)),
        None => arg,
    }
}

impl<G: OfGroup> Args for OptionArguments<G> {
    fn augment_args(command: Command) -> Command {
        command.args(of_group(G::GROUP).map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: OfGroup> FromArgMatches for OptionArguments<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = GivenValues { options: Vec::new(), plan: Plan::of("") };
        for option in of_group(G::GROUP) {
            let words: Vec<String> = match option.takes {
                Takes::Nothing if matches.get_flag(&id(option)) => Vec::new(),
                Takes::Nothing => continue,
                Takes::Word | Takes::List => match matches.get_many::<String>(&id(option)) {
                    Some(words) => words.cloned().collect(),
                    None => continue,
                },
            };
            option.read(&words, &mut given.plan).map_err(|why| {
                clap::Error::raw(ErrorKind::InvalidValue, format!("--{}: {why}\n", option.long))
            })?;
            given.options.push(option);
        }
        Ok(Self { given, group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use acidtest_results::CapacityPlan;
    use acidtest_runner::plan_check::{self, GivenOptions};
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn what_has_no_effect_in_a_search_is_neither_in_its_help_nor_accepted() {
        let command = Arguments::command();
        let capacity = command.find_subcommand("capacity").unwrap();
        let plan = Plan {
            capacity: Some(CapacityPlan::default()),
            demand: "9/s".parse().ok(),
            duration: CapacityPlan::HOLD,
            ..Plan::of("inventory")
        };
        for option in OPTIONS {
            let arg = capacity.get_arguments().find(|arg| arg.get_id().as_str() == id(option)).unwrap();
            let checked = plan_check::check(&plan, &GivenOptions::with(&plan, None, [option.key]));
            let said = checked.err().map_or_else(String::new, |failure| failure.to_string());
            match option.in_search {
                InSearch::Idle(why) => {
                    let refused = format!("--{} has no effect here: {why}", option.long);
                    assert!(arg.is_hide_set() && said.starts_with(&refused), "{refused}: {said}");
                }
                InSearch::Same | InSearch::As(..) => {
                    assert_eq!(arg.get_long(), Some(option.name(true)));
                    assert!(!arg.is_hide_set() && !said.contains("a search"), "--{}: {said}", option.long);
                }
            }
        }
    }
}
