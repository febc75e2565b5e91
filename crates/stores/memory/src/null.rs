//! A store that does nothing: what it takes to drive it is what the bench itself costs.

use acidtest_workloads::{
    Attempt, ClientTask,
    inventory::{self, Capture, Connector, Line, Operations, Release, Scenario},
};

struct Null;

impl Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Operations for Null {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Line>) -> Attempt {
        taken.clear();
        taken.push(capture.line(1, capture.units));
        Attempt::Ok
    }

    async fn release(&mut self, _: &Release) -> Attempt {
        Attempt::Ok
    }
}

/// A client whose every operation is acknowledged at once and changes nothing. Its audit is void.
#[must_use]
pub fn null_client(scenario: Scenario) -> ClientTask {
    inventory::task(Null, scenario)
}
