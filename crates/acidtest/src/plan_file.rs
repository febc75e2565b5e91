//! Reads and writes plan files: TOML, with errors that name the file, the line and the key that was probably meant.

use std::{fmt::Display, fs, path::Path};

use acidtest_model::{UnknownName, expected};
use acidtest_results::{Plan, option_of};
use acidtest_runner::Failure;
use acidtest_workloads::WORKLOADS;

use crate::files;

/// Length of the longest plan that is read, in bytes.
const LONGEST: u64 = 1 << 20;

pub(crate) fn load(path: &Path) -> Result<Plan, Failure> {
    let unreadable =
        |why: &dyn Display| Failure::Usage(format!("cannot read the plan {}: {why}", path.display()));
    let text = files::read(path, LONGEST).map_err(|error| unreadable(&error))?;
    toml::from_str(&text).map_err(|error| Failure::Usage(explain(path, &text, &error)))
}

/// Writes a plan. It holds no password, because addresses are written without one.
pub(crate) fn save(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let fail =
        |cause: &dyn Display| Failure::Other(format!("cannot write the plan {}: {cause}", path.display()));
    let text = toml::to_string(plan).map_err(|error| fail(&error))?;
    let head = "# A plan of acidtest: run it with `acidtest run FILE`. Passwords of addresses are taken from\n\
                # the environment variable ACIDTEST_PASSWORD.\n";
    fs::write(path, format!("{head}{text}")).map_err(|error| fail(&error))
}

/// An error's message, such as `plan.toml:3: unknown key "duraton"; did you mean "duration"?`
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(before).filter(|byte| *byte == b'\n').count() + 1;
    let at = format!("{}:{line}", path.display());
    let message = error.message();
    if let Some(unknown) = UnknownName::of(message) {
        let name = &unknown.name;
        let is_parameter = |kind: &acidtest_workloads::WorkloadKind| {
            (kind.parameters)().iter().any(|each| each.name == name)
        };
        let hint = if unknown.is_key && WORKLOADS.iter().any(is_parameter) {
            "; it belongs below a line [parameters]".to_owned()
        } else {
            unknown.hint()
        };
        let sort = if unknown.is_key { "key" } else { "word" };
        return format!("{at}: unknown {sort} \"{name}\"{hint}\n  known are {}", unknown.known.join(", "));
    }
    let key = error.span().and_then(|span| key_at(text, span.end));
    match (key, expected(message)) {
        (Some((key, example)), Some(must)) => format!("{at}: {key} must be {must}, as in {key} = {example}"),
        (None, Some(must)) => format!("{at}: it must be {must}"),
        (_, None) => format!("{at}: {message}"),
    }
}

/// The key whose value ends at this place in the text, and an example of a valid value.
fn key_at(text: &str, end: usize) -> Option<(String, String)> {
    let known = toml::Value::try_from(Plan::example()).ok()?;
    // a list may extend over several lines
    let key = text.get(..end)?.lines().rev().find_map(|line| Some(line.split_once('=')?.0.trim()))?;
    let of_table = || known.get(option_of(key)?.table?)?.get(key);
    Some((key.to_owned(), known.get(key).or_else(of_table)?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        fs::write(&path, text).unwrap();
        let error = load(&path).unwrap_err().to_string();
        error.replace(&folder.path().display().to_string(), "")
    }

    #[test]
    fn a_saved_plan_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let plan = Plan { rates: vec![250.0], ..Plan::of("inventory") };
        save(&plan, &path).unwrap();
        assert_eq!(load(&path).unwrap(), plan);
    }

    #[test]
    fn a_wrong_key_is_found_and_what_was_meant_is_said() {
        let error = error_of("workload = \"inventory\"\n\nduraton = \"10s\"\n");
        assert!(
            error.starts_with("/plan.toml:3: unknown key \"duraton\"; did you mean \"duration\"?"),
            "{error}"
        );
    }

    #[test]
    fn a_parameter_in_the_wrong_place_is_told_its_own() {
        let error = error_of("workload = \"inventory\"\nitems = 5\n");
        assert!(
            error.starts_with("/plan.toml:2: unknown key \"items\"; it belongs below a line [parameters]"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_is_found() {
        let error = error_of("workload = \"inventory\"\nduration = \"soon\"\n");
        assert!(error.starts_with("/plan.toml:2: \"soon\" is not a length of time"), "{error}");
        let error = error_of("workload = \"inventory\"\nlocks = [\"sofft\"]\n");
        assert!(error.starts_with("/plan.toml:2: unknown word \"sofft\"; did you mean \"soft\"?"), "{error}");
        for (line, said) in [
            ("clients = \"5..3\"", "/plan.toml:2: clients must be a list, as in clients = [16]"),
            ("clients = [\n\"5..3\"]", "clients must be a whole number, as in clients = [16]"),
            (
                "clients = [-1]",
                "clients must be a whole number from 0 to 4,294,967,295, as in clients = [16]",
            ),
            ("rates = [\"fast\"]", "/plan.toml:2: rates must be a number, as in rates = [2000.0]"),
            ("keep = 1", "/plan.toml:2: keep must be true or false, as in keep = false"),
            ("warmup = 2", "/plan.toml:2: warmup must be a word, as in warmup = \"2s\""),
            ("processes = \"x\"", "/plan.toml:2: processes must be a whole number, as in processes = 2"),
            ("tls = 3", "/plan.toml:2: tls must be a list, as in tls = [\"on\"]"),
            ("[capacity]\nprobes = 0.5", "/plan.toml:3: probes must be a whole number, as in probes = 1000"),
            ("ops = -1", "/plan.toml:2: ops must be a whole number, 0 or above, as in ops = 100000"),
        ] {
            let error = error_of(&format!("workload = \"inventory\"\n{line}\n"));
            assert!(error.contains(said), "{error}");
        }
        let error = error_of("workload = \n");
        assert!(error.starts_with("/plan.toml:1: "), "{error}");
    }
}
