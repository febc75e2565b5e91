//! Plan files: TOML, with errors that name file, line and what was meant.

use std::{fs, path::Path};

use acidtest_report::Plan;

use crate::{exit::Failure, nearest};

/// Reads a plan.
pub(crate) fn load(path: &Path) -> Result<Plan, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read the plan {}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| Failure::Usage(explain(path, &text, &error)))
}

/// Writes a plan. A plan holds no password: addresses show none.
pub(crate) fn save(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let fail = |cause: &dyn std::fmt::Display| {
        Failure::Other(format!("cannot write the plan {}: {cause}", path.display()))
    };
    let text = toml::to_string(plan).map_err(|error| fail(&error))?;
    let head = "# A plan of acidtest: run it with `acidtest run FILE`. Passwords of addresses are taken from\n\
                # the environment variable ACIDTEST_PASSWORD.\n";
    fs::write(path, format!("{head}{text}")).map_err(|error| fail(&error))
}

/// `plan.toml:3: unknown key "duraton"; did you mean "duration"?`
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let at = format!("{}:{line}", path.display());
    let message = error.message();
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        None => format!("{at}: {message}"),
        Some((word, expected)) => {
            let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            format!(
                "{at}: unknown key \"{word}\"{}\n  known are {}",
                nearest::hint(word, known.iter().copied()),
                known.join(", ")
            )
        }
    }
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
        let plan = Plan { rate: Some(250.0), ..Plan::of("inventory") };
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
        let error = error_of("workload = \"inventory\"\n[inventory]\nitem = 5\n");
        assert!(error.starts_with("/plan.toml:3: unknown key \"item\"; did you mean \"items\"?"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_found() {
        let error = error_of("workload = \"inventory\"\nduration = \"soon\"\n");
        assert!(error.starts_with("/plan.toml:2: \"soon\" is no length of time"), "{error}");
        let error = error_of("workload = \"inventory\"\nlocks = [\"sofft\"]\n");
        assert!(error.starts_with("/plan.toml:2: unknown variant `sofft`, expected one of"), "{error}");
        let error = error_of("workload = \n");
        assert!(error.starts_with("/plan.toml:1: "), "{error}");
    }
}
