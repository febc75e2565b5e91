//! The client: joins in both orders, in turn, and checks the rows.

use std::{collections::BTreeSet, sync::Arc};

use acidtest_engine::{Attempt, Client, ClientTask, Fault, Outcome};
use serde_json::value::RawValue;

use super::{Connector, JoinAnswer, Operations, TableOrder};
use crate::{
    epochs::{Boundary, Damage, Epoch, Epochs, Seen},
    shared_count::SharedCount,
    trial::{TrialLedger, WrittenLedger, read_ledger, written_ledger},
};

/// Names of the operations, in the order of their kinds.
pub const OPERATIONS: &[&str] = &["ext_first", "usertable_first"];

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    expected: Arc<BTreeSet<String>>,
    found: Arc<JoinCounts>,
}

#[derive(Debug, Default)]
struct JoinCounts {
    acknowledged: SharedCount,
    wrong: Damage,
    epochs: Epochs,
}

impl Scenario {
    /// A scenario in which every join must find these keys.
    #[must_use]
    pub fn new(expected: BTreeSet<String>) -> Self {
        Self { expected: Arc::new(expected), found: Arc::default() }
    }

    /// The number of joins that were acknowledged, and how many of them returned other rows than were loaded.
    #[must_use]
    pub fn found(&self) -> (u64, u64) {
        (self.found.acknowledged.sum(), self.found.wrong.all())
    }

    /// How many of those returned other rows before the server was ended for the first time.
    pub(crate) fn wrong_at_first(&self) -> u64 {
        self.found.wrong.within_epoch()
    }
}

impl TrialLedger for Scenario {
    fn written(&self) -> Result<WrittenLedger, String> {
        written_ledger(&(self.found.acknowledged.sum(), self.found.wrong.counts()))
    }

    fn merge(&self, written: &RawValue, knows_boundaries: bool) -> Result<(), String> {
        let (acknowledged, wrong) = read_ledger(written)?;
        self.found.acknowledged.add(acknowledged);
        self.found.wrong.merge(wrong, knows_boundaries);
        Ok(())
    }

    fn note_boundary(&self, boundary: Boundary) {
        self.found.epochs.note(boundary);
    }
}

struct JoinClient<C: Connector> {
    /// Among all of the trial.
    index: usize,
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    joined: JoinAnswer,
    turn: usize,
}

impl<C: Connector> Client for JoinClient<C> {
    type Operation = TableOrder;

    fn draw(&mut self) -> Option<TableOrder> {
        self.turn += 1;
        Some(TableOrder::ALL[self.turn % TableOrder::ALL.len()])
    }

    fn kind(operation: &TableOrder) -> usize {
        *operation as usize
    }

    fn changes(&self, _: &TableOrder) -> bool {
        false
    }

    async fn attempt(&mut self, operation: &TableOrder) -> Attempt {
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(Fault::lost("no connection"));
        };
        self.joined.clear();
        connection.join(*operation, &mut self.joined).await
    }

    fn account(&mut self, _: TableOrder, outcome: Outcome) {
        if outcome == Outcome::Ok {
            let Scenario { expected, found } = &self.scenario;
            found.acknowledged.add_one(self.index);
            if !self.joined.is(expected) {
                // rows were loaded in the first epoch, and a crash may have lost them since
                let is_first = found.epochs.now() == Epoch::FIRST;
                found.wrong.add(if is_first { Seen::WithinEpoch } else { Seen::Across });
            }
        }
    }

    async fn connect(&mut self) -> Result<(), String> {
        // drop the old connection before asking for a new one
        self.connection = None;
        self.connection = Some(self.connector.connect().await?);
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => connection.check().await,
            None => Ok(()),
        }
    }
}

/// Wraps one client for the engine. To be called by each store's crate, so that the client's loop is compiled
/// there, with static dispatch of every call in it.
pub fn task<C>(connector: C, scenario: Scenario) -> ClientTask
where
    C: Connector + Send + 'static,
{
    Box::new(move |driver| {
        let index = driver.index();
        Box::pin(driver.drive(JoinClient {
            index,
            scenario,
            connector,
            connection: None,
            joined: JoinAnswer::default(),
            turn: index,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at_once;

    /// Finds the row `a`, and once, when `usertable` comes first, also a row that should not be there.
    struct Fake {
        planted: bool,
    }

    impl Connector for Fake {
        type Connection = Self;

        async fn connect(&self) -> Result<Self, String> {
            Ok(Self { planted: true })
        }
    }

    impl Operations for Fake {
        async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
            joined.row("a");
            if order == TableOrder::UsertableFirst && std::mem::take(&mut self.planted) {
                joined.row("b");
            }
            Attempt::Ok
        }
    }

    #[test]
    fn a_planted_row_is_found_and_both_orders_are_asked_in_turn() {
        let scenario = Scenario::new(BTreeSet::from(["a".to_owned()]));
        let mut client = JoinClient {
            index: 0,
            scenario: scenario.clone(),
            connector: Fake { planted: true },
            connection: None,
            joined: JoinAnswer::default(),
            turn: 0,
        };
        at_once(client.connect()).unwrap();
        let mut kinds = [0; 2];
        for _ in 0..6 {
            let order = client.draw().unwrap();
            kinds[JoinClient::<Fake>::kind(&order)] += 1;
            assert_eq!(at_once(client.attempt(&order)), Attempt::Ok);
            client.account(order, Outcome::Ok);
        }
        assert_eq!((kinds, scenario.found()), ([3, 3], (6, 1)));
        client.account(TableOrder::ExtFirst, Outcome::Failed);
        assert_eq!(scenario.found(), (6, 1), "what was not acknowledged is not looked at");
    }
}
