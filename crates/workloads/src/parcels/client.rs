//! The client: draws operations, sends them to the store, keeps the ledger.

use std::{collections::HashSet, sync::Arc, time::Duration};

use acidtest_engine::{Attempt, Client, ClientTask, Fault, Outcome};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    ledger::{InsertState, Ledger, count_bit},
    parameters::{Action, Mix, Parameters},
    port::{Connector, Found, Inserted, Operations},
    scan::{Parcel, Scan, ScanNumber, StoredScan},
    stream::Ids,
};
use crate::epochs::Epoch;

/// Names of the operations, in the order of their kinds.
pub const OPERATIONS: &[&str] = &["insert", "hash", "id"];

/// How many times a scan that may not be there is replaced by another draw.
const REDRAWN: u32 = 8;

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The ledger of acknowledged and unanswered operations.
    pub(super) ledger: Arc<Ledger>,
    mix: Arc<Mix>,
    batch: usize,
    eighths: f64,
    ids: Ids,
    seed: u64,
}

impl Scenario {
    pub(super) fn new(parameters: &Parameters, ledger: Arc<Ledger>, seed: u64) -> Self {
        Self {
            ledger,
            mix: Arc::new(parameters.mix.clone()),
            batch: parameters.insert_batch as usize,
            eighths: parameters.eighths,
            ids: Ids::Counted,
            seed,
        }
    }

    /// The same on a store with these ids.
    pub(super) fn with(self, ids: Ids) -> Self {
        Self { ids, ..self }
    }
}

/// One operation, ready to be sent.
#[derive(Debug)]
enum Operation {
    Insert(Vec<Scan>),
    /// Reads the scans of a parcel, among which those with these counts must be, which have a bit each.
    ByHash(Parcel, u8),
    /// Reads the scan with this id, which must be there as expected, if that is known.
    ById(u64, Option<StoredScan>),
}

struct ParcelsClient<C: Connector> {
    /// Among all of the trial.
    index: usize,
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    rng: Xoshiro256PlusPlus,
    /// Scans that were drawn while another one of their parcel was in the batch: they are in the next one.
    held_over: Vec<Scan>,
    /// The parcels of the scans in the batch.
    in_batch: HashSet<u64>,
    inserted: Inserted,
    found: Found,
    /// An empty list, whose memory is reused.
    spare: Vec<Scan>,
    /// The epoch of the server when the operation was drawn.
    begun: Epoch,
}

impl<C: Connector> ParcelsClient<C> {
    fn new(connector: C, scenario: Scenario, index: usize) -> Self {
        let client = index as u64 + 1;
        let seed = scenario.seed ^ client.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            index,
            scenario,
            connector,
            connection: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            held_over: Vec::new(),
            begun: Epoch::FIRST,
            in_batch: HashSet::new(),
            inserted: Inserted::default(),
            found: Found::default(),
            spare: Vec::new(),
        }
    }

    /// Draws an insert.
    fn insert(&mut self) -> Operation {
        let scans = self.scans();
        for scan in &scans {
            self.scenario.ledger.sends(scan);
        }
        Operation::Insert(scans)
    }

    /// Draws scans of different parcels, an eighth scan among them where one is to be.
    fn scans(&mut self) -> Vec<Scan> {
        let Self { scenario: Scenario { ledger, batch, eighths, .. }, held_over, in_batch, rng, .. } = self;
        let mut scans = std::mem::take(&mut self.spare);
        scans.clear();
        in_batch.clear();
        if *eighths > 0.0
            && rng.random::<f64>() < *eighths
            && let Some(eighth) = ledger.draw_eighth()
        {
            in_batch.insert(eighth.parcel());
            scans.push(eighth);
        }
        let mut place = 0;
        while place < held_over.len() && scans.len() < *batch {
            if in_batch.insert(held_over[place].parcel()) {
                scans.push(held_over.swap_remove(place));
            } else {
                place += 1;
            }
        }
        while scans.len() < *batch {
            let scan = ledger.draw();
            if in_batch.insert(scan.parcel()) {
                scans.push(scan);
            } else {
                held_over.push(scan);
            }
        }
        scans
    }

    /// Draws a scan that was loaded or drawn.
    fn number(&mut self) -> Option<u64> {
        let ledger = &self.scenario.ledger;
        let readable = ledger.readable();
        (readable > 0).then(|| ledger.number(self.rng.random_range(0..readable)))
    }

    fn by_hash(&mut self) -> Operation {
        let number = self.number();
        let ledger = &self.scenario.ledger;
        let parcel = number.map_or(0, |number| ledger.stream().parcel(ScanNumber::Regular(number)));
        Operation::ByHash(Parcel::of(parcel), ledger.taken(parcel))
    }

    fn by_id(&mut self) -> Operation {
        for _ in 0..REDRAWN {
            let Some(number) = self.number() else { break };
            if let Some((id, expected)) = self.expected(number) {
                return Operation::ById(id, Some(expected));
            }
        }
        // the first one that was loaded; there is none if none was acknowledged either
        let first = (self.scenario.ledger.loading.scans > 0).then(|| self.expected(0)).flatten();
        match first {
            Some((id, expected)) => Operation::ById(id, Some(expected)),
            None => Operation::ById(0, None),
        }
    }

    /// A scan that must be there: its id, and the row.
    fn expected(&self, number: u64) -> Option<(u64, StoredScan)> {
        let Scenario { ledger, ids, .. } = &self.scenario;
        if number < ledger.loading.scans {
            let loaded = ledger.stream().loaded(number);
            let id = ids.of(&loaded);
            return Some((id, StoredScan::with(&loaded.scan, id, loaded.count.into())));
        }
        let number = ScanNumber::Regular(number);
        match ledger.state(number) {
            // a count that is none is not known
            InsertState::Inserted { id, count } if count > 0 => {
                Some((id, StoredScan::with(&ledger.stream().scan(number), id, count.into())))
            }
            _ => None,
        }
    }

    fn note_insert(&self, scans: &[Scan], outcome: Outcome) {
        let ledger = &self.scenario.ledger;
        match outcome {
            Outcome::Ok => ledger.acknowledged(self.index),
            Outcome::Unknown => ledger.doubtful(),
            _ => {}
        }
        for (place, scan) in scans.iter().enumerate() {
            let how = match (outcome, self.inserted.each().get(place)) {
                (Outcome::Ok, Some(Some((id, count)))) => InsertState::Inserted { id: *id, count: *count },
                (Outcome::Ok | Outcome::Refused, _) => InsertState::Refused,
                (Outcome::Unknown, _) => InsertState::Unknown,
                (Outcome::Conflict | Outcome::Failed, _) => InsertState::Undone,
            };
            ledger.ended(scan, how);
            if how == InsertState::Refused {
                ledger.refused(scan, self.begun);
            }
        }
    }

    /// Checks the scans of a parcel that were read, after the clock has stopped.
    fn look_at_parcel(&self, parcel: &Parcel, taken: u8) {
        let Scenario { ledger, ids, .. } = &self.scenario;
        let seen = ledger.seen(self.begun);
        let mut numbers = [None; 16];
        let mut counts = 0;
        for stored in self.found.each() {
            let number = stored.number();
            let is_again = number.is_some() && numbers.contains(&number);
            let is_right = number.is_some_and(|number| {
                let scan = ledger.stream().scan(number);
                let (Some(id), Some(count)) = (stored.id, stored.count) else { return false };
                let is_whole = stored.is(&scan) && stored.is_dated && scan.parcel() == parcel.number;
                is_whole && ledger.may_be(number, id, count, *ids)
            });
            if !is_right || is_again {
                ledger.misread(seen);
                continue;
            }
            if let Some(free) = numbers.iter_mut().find(|number| number.is_none()) {
                *free = number;
            }
            counts |= count_bit(stored.count.unwrap_or_default());
        }
        if counts & taken != taken {
            ledger.missing(seen);
        }
    }

    /// Checks the scan that was read by its id.
    fn look_at_scan(&self, expected: Option<&StoredScan>) {
        let ledger = &self.scenario.ledger;
        let Some(expected) = expected else { return };
        let seen = ledger.seen(self.begun);
        match self.found.each() {
            [] => ledger.missing(seen),
            [found] if found == expected => {}
            // where ids are made of parcel and count, both scans were given these
            [found] if self.scenario.ids == Ids::Made && self.is_in_its_place(found, expected) => {
                ledger.replaced(seen);
            }
            _ => ledger.misread(seen),
        }
    }

    /// Whether it is a whole scan of the same parcel, with the same id and count.
    fn is_in_its_place(&self, found: &StoredScan, expected: &StoredScan) -> bool {
        let stream = self.scenario.ledger.stream();
        let scan = |stored: &StoredScan| stored.number().map(|number| stream.scan(number));
        let (Some(found_scan), Some(expected_scan)) = (scan(found), scan(expected)) else { return false };
        let is_same = (found.id, found.count, found_scan.parcel())
            == (expected.id, expected.count, expected_scan.parcel());
        is_same && found.is_dated && found.is(&found_scan)
    }
}

impl<C: Connector> Client for ParcelsClient<C> {
    type Operation = Operation;

    fn draw(&mut self) -> Option<Operation> {
        self.begun = self.scenario.ledger.epoch();
        Some(match self.scenario.mix.kind(self.rng.random()) {
            Action::Insert => self.insert(),
            Action::ByHash => self.by_hash(),
            Action::ById => self.by_id(),
        })
    }

    fn kind(operation: &Operation) -> usize {
        match operation {
            Operation::Insert(_) => Action::Insert as usize,
            Operation::ByHash(..) => Action::ByHash as usize,
            Operation::ById(..) => Action::ById as usize,
        }
    }

    fn changes(&self, operation: &Operation) -> bool {
        matches!(operation, Operation::Insert(_))
    }

    async fn attempt(&mut self, operation: &Operation) -> Attempt {
        // forget the answers of the operation before
        self.inserted.clear();
        self.found.clear();
        let Some(connection) = &mut self.connection else {
            return Attempt::Failed(Fault::lost("no connection"));
        };
        match operation {
            Operation::Insert(scans) => match connection.insert(scans, &mut self.inserted).await {
                Attempt::Ok if self.inserted.each().len() != scans.len() => {
                    Attempt::Unknown(Fault::lost("the answer is not of the scans that were sent"))
                }
                Attempt::Ok if self.inserted.each().iter().all(Option::is_none) => Attempt::Refused,
                ended => ended,
            },
            Operation::ByHash(parcel, _) => connection.by_hash(parcel, &mut self.found).await,
            Operation::ById(id, _) => connection.by_id(*id, &mut self.found).await,
        }
    }

    fn account(&mut self, operation: Operation, outcome: Outcome) {
        let ledger = &self.scenario.ledger;
        match (operation, outcome) {
            (Operation::Insert(scans), _) => {
                self.note_insert(&scans, outcome);
                self.spare = scans;
            }
            (Operation::ByHash(parcel, taken), Outcome::Ok) => {
                ledger.acknowledged(self.index);
                self.look_at_parcel(&parcel, taken);
            }
            (Operation::ById(_, expected), Outcome::Ok) => {
                ledger.acknowledged(self.index);
                self.look_at_scan(expected.as_ref());
            }
            // there is none of this id
            (Operation::ById(_, Some(_)), Outcome::Refused) => ledger.missing(ledger.seen(self.begun)),
            // its statement may still run
            (_, Outcome::Unknown) => ledger.doubtful(),
            (_, Outcome::Refused | Outcome::Conflict | Outcome::Failed) => {}
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

/// A task for the engine that runs one client of a trial. To be called in the store's crate, so that the loop is
/// compiled against its connections.
pub fn task<C>(connector: C, scenario: Scenario) -> ClientTask
where
    C: Connector + Send + 'static,
{
    Box::new(move |driver| {
        let client = ParcelsClient::new(connector, scenario, driver.index());
        Box::pin(driver.drive(client))
    })
}
