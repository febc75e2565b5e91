//! The parameters of workloads as arguments of the command line: each is an option of its own.

use acidtest_results::{LONGEST_RANGE, no_group, number_range};
use acidtest_workloads::{Parameter, WORKLOADS, WorkloadKind};
use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};
use serde_json::Value;

/// A word of the command line as the value of a parameter: a boolean, a whole number, another number, or the word
/// itself.
fn value(text: &str) -> Value {
    if let Ok(truth) = text.parse::<bool>() {
        return truth.into();
    }
    let digits = text.replace('_', "");
    if let Ok(number) = digits.parse::<i64>() {
        return number.into();
    }
    // words such as "inf" are not read as numbers
    let numeric = digits.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '.');
    match digits.parse::<f64>() {
        #[allow(clippy::cast_possible_truncation)] // whole, and far below the limit
        Ok(number) if numeric && number.fract() == 0.0 && number.abs() < 1e15 => (number as i64).into(),
        Ok(number) if numeric && number.is_finite() => number.into(),
        _ => text.into(),
    }
}

/// Checks a word of the command line: a range must make numbers. Any other word but a group of digits is accepted.
fn word(text: &str) -> Result<String, String> {
    no_group(text)?;
    number_range(text).transpose().map(|_| text.to_owned())
}

/// Lists of the command line that may have been meant for one number with a comma in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadAsLists(Vec<(String, [String; 2])>);

impl ReadAsLists {
    /// A line for each of them.
    pub(crate) fn told(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(option, [one, other])| {
            format!("note: --{option} {one},{other} is a list of {one} and {other}; for a single number, leave the comma \
                     out: --{option} {one}{other}")
        })
    }
}

/// Whether the values that were typed together look like one number, of thousands: 8,500 or 16,128, or a rate such as 8,500/s. Most
/// lists do not: they have more values, or both have as many digits, or both have a unit.
fn as_one_number(typed: &[&str]) -> Option<[String; 2]> {
    let [one, rest] = typed else { return None };
    let other = rest.split_once('/').map_or(*rest, |(number, _)| number);
    let has_digits = |text: &str, fewest, most| {
        (fewest..=most).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_digit())
    };
    (has_digits(one, 1, 2) && has_digits(other, 3, 3)).then(|| [*one, *rest].map(str::to_owned))
}

impl Args for ReadAsLists {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for ReadAsLists {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of_option = |id: &clap::Id| {
            let typed = matches.try_get_raw_occurrences(id.as_str()).ok().flatten()?;
            let as_one = typed.filter_map(|together| {
                as_one_number(&together.map(|value| value.to_str()).collect::<Option<Vec<_>>>()?)
            });
            let option = id.as_str().replace('_', "-");
            Some(as_one.map(move |values| (option.clone(), values)).collect::<Vec<_>>())
        };
        Ok(Self(matches.ids().filter_map(of_option).flatten().collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The mix that was meant by several of one operation each. The share of an only operation means nothing: whoever gives one
/// other than 1 or 100 has written a mix with commas.
fn torn_mix(mixes: &[String]) -> Option<String> {
    let share = |mix: &String| mix.split_once(':')?.1.parse::<f64>().ok();
    let shares: Vec<f64> = mixes.iter().map(share).collect::<Option<_>>()?;
    let is_part = |share: &f64| ![1.0, 100.0].contains(share);
    (shares.len() > 1 && shares.iter().any(is_part)).then(|| mixes.join("+"))
}

/// The parameters of workloads that were given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParameterArguments(Vec<(&'static str, Vec<String>)>);

impl ParameterArguments {
    /// Each parameter with its value, or with the list of its values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.iter().map(|(name, texts)| {
            let one = |text: &String| match number_range(text) {
                Some(Ok(numbers)) => numbers.into_iter().map(Value::from).collect(),
                _ => vec![value(text)],
            };
            let mut values: Vec<Value> = texts.iter().flat_map(one).collect();
            (*name, if values.len() == 1 { values.remove(0) } else { Value::Array(values) })
        })
    }
}

/// A parser, with words that a shell offers to complete what it reads. It need not read these alone, and its errors are its own.
#[derive(Clone)]
pub(crate) struct Offering<P> {
    parser: P,
    words: Vec<&'static str>,
}

impl<P: TypedValueParser> Offering<P> {
    pub(crate) fn new(parser: P, words: impl IntoIterator<Item = &'static str>) -> Self {
        Self { parser, words: words.into_iter().collect() }
    }
}

/// A store by its name, or any other word.
pub(crate) fn store() -> Offering<StringValueParser> {
    Offering::new(StringValueParser::new(), crate::registry::names())
}

/// A workload by its name, or any other word.
pub(crate) fn workload() -> Offering<StringValueParser> {
    Offering::new(StringValueParser::new(), WORKLOADS.iter().map(|kind| kind.name))
}

impl<P: TypedValueParser> TypedValueParser for Offering<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<P::Value, clap::Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}

fn told(parameter: &Parameter) -> String {
    format!("{} [default: {}]", parameter.meaning, parameter.default)
}

/// The heading of a workload's parameters.
fn heading(kind: &WorkloadKind) -> String {
    format!("Parameters of {}", kind.name)
}

/// A parameter as the options have it: its name, its heading, what is said of it, and its values where they are a few words.
type Named = (&'static str, String, String, Vec<&'static str>);

/// An option for every parameter. One that several workloads have is listed with the first of them, and says what it means
/// to the others where they have another default.
fn options() -> Vec<(&'static str, Arg)> {
    let mut named: Vec<Named> = Vec::new();
    for kind in WORKLOADS {
        for parameter in (kind.parameters)() {
            let default = format!("[default: {}]", parameter.default);
            let help = told(&parameter);
            match named.iter_mut().find(|(name, ..)| *name == parameter.name) {
                None => named.push((parameter.name, heading(kind), help, parameter.choices)),
                Some((_, _, said, choices)) => {
                    for choice in parameter.choices {
                        if !choices.contains(&choice) {
                            choices.push(choice);
                        }
                    }
                    if !said.contains(&default) {
                        *said = format!("{said}; for {}: {help}", kind.name);
                    }
                }
            }
        }
    }
    let option = |(name, heading, help, choices): Named| {
        let arg = Arg::new(name)
            .long(name.replace('_', "-"))
            .value_name("VALUE,...")
            .value_delimiter(',')
            .action(clap::ArgAction::Append)
            .help_heading(heading)
            .help(help);
        // what a parameter takes stands in its help
        let arg = if choices.is_empty() {
            arg.value_parser(word)
        } else {
            arg.value_parser(Offering::new(word, choices)).hide_possible_values(true)
        };
        (name, arg)
    };
    named.into_iter().map(option).collect()
}

/// The same command, whose help shows the parameters of this workload alone, and what they are to it.
pub(crate) fn of_workload(command: Command, kind: &WorkloadKind) -> Command {
    let own = (kind.parameters)();
    options().into_iter().fold(command, |command, (name, _)| {
        let parameter = own.iter().find(|parameter| parameter.name == name);
        command.mut_arg(name, |arg| match parameter {
            Some(parameter) => arg.help(told(parameter)).help_heading(heading(kind)),
            None => arg.hide(true),
        })
    })
}

impl Args for ParameterArguments {
    fn augment_args(command: Command) -> Command {
        command.args(options().into_iter().map(|(_, arg)| arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ParameterArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = options().into_iter().filter_map(|(name, _)| {
            let texts = matches.get_many::<String>(name)?;
            Some((name, texts.cloned().collect::<Vec<String>>()))
        });
        let given: Vec<_> = given.collect();
        for (name, texts) in &given {
            let stands_for =
                |text: &String| number_range(text).and_then(Result::ok).map_or(1, |numbers| numbers.len());
            if texts.iter().map(stands_for).sum::<usize>() > LONGEST_RANGE {
                let name = name.replace('_', "-");
                return Err(clap::Error::raw(
                    clap::error::ErrorKind::InvalidValue,
                    format!("--{name} has more than {LONGEST_RANGE} values\n"),
                ));
            }
        }
        for (_, mixes) in given.iter().filter(|(name, _)| *name == "mix") {
            if let Some(meant) = torn_mix(mixes) {
                return Err(clap::Error::raw(
                    clap::error::ErrorKind::InvalidValue,
                    format!("a comma separates mixes: write one mix of all these as --mix {meant}\n"),
                ));
            }
        }
        Ok(Self(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_looks_like_one_number_is_told_and_no_other() {
        use clap::Parser;
        let told = |line: &str| -> Vec<String> {
            let words = ["acidtest", "run", "inventory"].into_iter().chain(line.split(' '));
            match crate::args::Arguments::try_parse_from(words).unwrap().command {
                crate::args::Command::Run(run) => run.as_lists.told().collect(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            told("--rate 8,500"),
            [
                "note: --rate 8,500 is a list of 8 and 500; for a single number, leave the comma out: --rate 8500"
            ]
        );
        assert!(told("--rate 8,500/s")[0].contains("--rate 8500/s"));
        assert!(told("--clients 1,100")[0].contains("--clients 1100"));
        assert!(told("--initial-max=10,250")[0].contains("--initial-max 10250"));
        for list in [
            "--rate 8 --rate 500",
            "--rate 8/s,500/s",
            "--clients 1,10,100",
            "--clients 8,16",
            "--clients 100,200",
            "--rate 500,1000",
            "--store redis,postgres",
            "--clients 1..16,128",
        ] {
            assert_eq!(told(list), [""; 0], "{list}");
        }
    }

    /// No axis of numbers takes what stands behind the comma of 1,000 or 2,050 for a value.
    #[test]
    fn the_rest_of_a_number_with_a_comma_is_no_value() {
        use clap::Parser;
        for line in ["--clients 1,000", "--clients 2,050", "--rate 8,000", "--rate 8,050", "--items 70,000"] {
            let words = ["acidtest", "run", "inventory"].into_iter().chain(line.split(' '));
            let said = crate::args::Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(
                said.contains("a comma separates values") && said.contains("write 8,000 as 8000"),
                "{line}: {said}"
            );
        }
    }

    #[test]
    fn a_mix_written_with_commas_is_told_from_several() {
        let torn = |text: &str| torn_mix(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(torn("insert:80,scan:15,update:5").as_deref(), Some("insert:80+scan:15+update:5"));
        assert_eq!(torn("read:50,update:50").as_deref(), Some("read:50+update:50"));
        for several in ["a,b", "read:1,update:1", "insert:100,scan:100", "read:95+update:5,scan:3", "scan:15"]
        {
            assert_eq!(torn(several), None, "{several}");
        }
    }

    #[test]
    fn a_word_is_a_number_where_it_looks_like_one() {
        let shown = ["5", "5_000_000", "1e6", "0.5", "inf", "nan", "a", "read:95+update:5", "-3", "false"];
        let read = shown.map(|text| value(text).to_string());
        assert_eq!(
            read,
            [
                "5",
                "5000000",
                "1000000",
                "0.5",
                "\"inf\"",
                "\"nan\"",
                "\"a\"",
                "\"read:95+update:5\"",
                "-3",
                "false"
            ]
        );
    }
}
