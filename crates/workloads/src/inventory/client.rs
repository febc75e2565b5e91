//! The client: draws operations, sends them to the store, keeps the ledger.

use std::{sync::Arc, time::Duration};

use acidtest_engine::{Attempt, Client, ClientTask, Outcome, Part};
use rand::{Rng, RngExt, SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Capture, Connector, Ledger, Operations, Parameters, Release, Sequence, Stock, Withdrawal};
use crate::keys::Ranks;

/// Names of the operations, in the order of their kinds.
pub const OPERATIONS: &[&str] = &["capture", "release"];

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The stock that the trial began with.
    pub stock: Arc<Stock>,
    /// The ledger of acknowledged and unanswered operations.
    pub ledger: Arc<Ledger>,
    /// The sequence to replay; `None` where operations are drawn at random.
    pub sequence: Option<Arc<Sequence>>,
    draw: Arc<Draw>,
    seed: u64,
}

impl Scenario {
    /// A trial's scenario, with an empty ledger: it replays the sequence or, without one, draws random operations.
    #[must_use]
    pub fn new(
        parameters: &Parameters,
        stock: Arc<Stock>,
        sequence: Option<Arc<Sequence>>,
        seed: u64,
    ) -> Self {
        Self::of(Part::WHOLE, parameters, stock, sequence, seed)
    }

    /// The same for the clients of one process.
    pub(crate) fn of(
        part: Part,
        parameters: &Parameters,
        stock: Arc<Stock>,
        sequence: Option<Arc<Sequence>>,
        seed: u64,
    ) -> Self {
        Self {
            ledger: Arc::new(Ledger::of(part, &stock)),
            draw: Arc::new(Draw::new(parameters, &stock, seed)),
            stock,
            sequence,
            seed,
        }
    }
}

/// One operation, by indices into the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StockOperation {
    /// Takes units from a group.
    Capture {
        /// Index of the group.
        group: u32,
        /// Units to take.
        units: u32,
    },
    /// Puts units back on a tuple.
    Release {
        /// Index of the tuple.
        item: u32,
        /// Units to put back.
        units: u32,
    },
}

/// Draws operations at random, according to the parameters.
#[derive(Debug)]
pub(crate) struct Draw {
    ranks: Ranks,
    /// The tuple of each rank: hot tuples are spread over the whole stock.
    item_of_rank: Vec<u32>,
    units_max: u32,
    capture_share: f64,
}

impl Draw {
    #[allow(clippy::cast_possible_truncation)] // the number of items is a u32
    pub(crate) fn new(parameters: &Parameters, stock: &Stock, seed: u64) -> Self {
        let mut item_of_rank: Vec<u32> = (0..stock.items.len() as u32).collect();
        item_of_rank.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        Self {
            ranks: Ranks::new(parameters.skew, item_of_rank.len() as u64),
            item_of_rank,
            units_max: parameters.units_max,
            capture_share: parameters.capture_share,
        }
    }

    pub(crate) fn operation(&self, stock: &Stock, rng: &mut impl Rng) -> StockOperation {
        if rng.random::<f64>() < self.capture_share { self.capture(stock, rng) } else { self.release(rng) }
    }

    pub(crate) fn capture(&self, stock: &Stock, rng: &mut impl Rng) -> StockOperation {
        let group = stock.group_of[self.item(rng) as usize];
        StockOperation::Capture { group, units: rng.random_range(1..=self.units_max) }
    }

    pub(crate) fn release(&self, rng: &mut impl Rng) -> StockOperation {
        StockOperation::Release { item: self.item(rng), units: rng.random_range(1..=self.units_max) }
    }

    #[allow(clippy::cast_possible_truncation)] // a rank is below the number of items
    fn item(&self, rng: &mut impl Rng) -> u32 {
        self.item_of_rank[self.ranks.draw(rng) as usize]
    }
}

/// An operation as it is sent to the store, with its index for the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Capture { group: u32, request: Capture },
    Release { item: u32, request: Release },
}

struct InventoryClient<C: Connector> {
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    rng: Xoshiro256PlusPlus,
    taken: Vec<Withdrawal>,
}

impl<C: Connector> InventoryClient<C> {
    fn operation(&self, drawn: StockOperation) -> Operation {
        let stock = &self.scenario.stock;
        match drawn {
            StockOperation::Capture { group, units } => {
                let head = &stock.items[stock.groups[group as usize].first as usize];
                let request =
                    Capture { sku: head.sku, condition: head.condition, source: head.source, units };
                Operation::Capture { group, request }
            }
            StockOperation::Release { item, units } => {
                let tuple = &stock.items[item as usize];
                let request = Release {
                    sku: tuple.sku,
                    warehouse: tuple.warehouse,
                    condition: tuple.condition,
                    source: tuple.source,
                    units,
                };
                Operation::Release { item, request }
            }
        }
    }
}

impl<C: Connector> Client for InventoryClient<C> {
    type Operation = Operation;

    fn draw(&mut self) -> Option<Operation> {
        let drawn = match &self.scenario.sequence {
            Some(sequence) => sequence.take()?,
            None => self.scenario.draw.operation(&self.scenario.stock, &mut self.rng),
        };
        if let StockOperation::Release { item, units } = drawn {
            self.scenario.ledger.release_invoked(item, units);
        }
        Some(self.operation(drawn))
    }

    fn kind(operation: &Operation) -> usize {
        match operation {
            Operation::Capture { .. } => 0,
            Operation::Release { .. } => 1,
        }
    }

    fn changes(&self, _: &Operation) -> bool {
        true
    }

    async fn attempt(&mut self, operation: &Operation) -> Attempt {
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(crate::Fault::lost("no connection"));
        };
        match operation {
            Operation::Capture { request, .. } => connection.capture(request, &mut self.taken).await,
            Operation::Release { request, .. } => connection.release(request).await,
        }
    }

    fn account(&mut self, operation: Operation, outcome: Outcome) {
        let Scenario { stock, ledger, .. } = &self.scenario;
        match (operation, outcome) {
            (Operation::Capture { group, request }, Outcome::Ok) => {
                ledger.captured(stock, group, request.units, &self.taken);
            }
            (Operation::Capture { group, request }, Outcome::Unknown) => {
                ledger.capture_unknown(group, request.units);
            }
            (Operation::Capture { .. }, Outcome::Refused | Outcome::Conflict | Outcome::Failed) => {
                ledger.capture_without_effect();
            }
            // counted when it was drawn
            (Operation::Release { .. }, Outcome::Ok) => {}
            (Operation::Release { item, request }, Outcome::Unknown) => {
                ledger.release_unknown(item, request.units);
            }
            (
                Operation::Release { item, request },
                Outcome::Refused | Outcome::Conflict | Outcome::Failed,
            ) => {
                ledger.release_without_effect(item, request.units);
            }
        }
    }

    fn lock_wait(&mut self) -> Duration {
        self.connection.as_mut().map_or(Duration::ZERO, Operations::lock_wait)
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
        let seed = scenario.seed ^ (driver.index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Box::pin(driver.drive(InventoryClient {
            scenario,
            connector,
            connection: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            taken: Vec::new(),
        }))
    })
}
