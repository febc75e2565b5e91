//! RabbitMQ's own tool, for tests that set limits of a private broker.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use acidtest_lab::Lab;

use crate::Private;

/// The exit code of the broker's tool if it cannot reach the broker.
const UNAVAILABLE: i32 = 69;
/// How long the broker may take to be reached, on a busy machine.
const SOON: Duration = Duration::from_mins(2);

/// Runs a command of the broker's own tool, `rabbitmqctl`.
///
/// # Panics
/// If it fails.
pub fn control(private: &Private, words: &[&str]) {
    let program = Lab::locate("rabbitmq").unwrap().program.with_file_name("rabbitmqctl");
    let home = private.folder().join("data");
    let ports = fs::read_to_string(home.join("ports")).unwrap();
    let mut tool = Command::new(program);
    tool.args(["-n", "acidtest@localhost"]).args(words);
    tool.env("HOME", &home).env("ERL_EPMD_PORT", ports.split(' ').next().unwrap());
    tool.env("RABBITMQ_CONF_ENV_FILE", home.join("none"));
    let begun = Instant::now();
    loop {
        let done = tool.output().unwrap();
        // the tool itself waits for a broker only some seconds
        if done.status.code() != Some(UNAVAILABLE) || begun.elapsed() > SOON {
            assert!(done.status.success(), "{words:?}: {done:?}");
            return;
        }
    }
}
