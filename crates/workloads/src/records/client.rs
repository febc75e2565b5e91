//! The client: draws operations, sends them to the store, keeps the ledger.

use std::{mem, ops::Range, sync::Arc, time::Duration};

use acidtest_engine::{Attempt, Client, ClientTask, Fault, Outcome};
use acidtest_model::ReadPolicy;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::Instant;

use super::{
    Action, Answer, Connector, Fields, Layout, Ledger, Mix, Operations, Parameters, Reader, Request,
    content::put_key,
    keys::KeyChooser,
    ledger::{InsertState, WrittenVersion},
    readers::Readers,
    times::{ReadTimes, RecordRead, Session},
};
use crate::epochs::{Epoch, Seen};

/// Names of the operations, in the order of their kinds: the actions, and a transaction of several of them.
pub const OPERATIONS: &[&str] = &["read", "update", "insert", "scan", "rmw", "transaction"];

/// The kind of a transaction: its index in [`OPERATIONS`].
const TRANSACTION: usize = 5;

/// How many times a record that may not be there is replaced by another draw.
const REDRAWN: u32 = 8;

/// The state that all clients of one trial share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The ledger of acknowledged and unanswered operations.
    pub ledger: Arc<Ledger>,
    mix: Arc<Mix>,
    numbers: KeyChooser,
    layout: Layout,
    scan_max: u32,
    transaction: usize,
    seed: u64,
}

impl Scenario {
    /// How its clients read.
    fn policy(&self) -> ReadPolicy {
        self.ledger.reads().map_or_else(ReadPolicy::default, ReadTimes::policy)
    }

    /// A trial's scenario, over an empty ledger.
    #[must_use]
    pub fn new(parameters: &Parameters, ledger: Arc<Ledger>, seed: u64) -> Self {
        let layout = parameters.layout();
        Self {
            ledger,
            mix: Arc::new(parameters.mix.clone()),
            numbers: KeyChooser::new(parameters.choice(), layout.records),
            layout,
            scan_max: parameters.scan_max,
            transaction: parameters.transaction.max(1) as usize,
            seed,
        }
    }
}

/// The state that an operation must find, by what was acknowledged before it was sent.
#[derive(Clone, Copy, Debug, Default)]
struct ExpectedState {
    newest: WrittenVersion,
    is_there: bool,
    /// The epoch of the server before it was sent.
    epoch: Epoch,
}

impl ExpectedState {
    /// When that was seen which an operation has found that ends `now`.
    fn seen(&self, now: Epoch) -> Seen {
        Seen::of(self.epoch, now, self.newest.epoch() == now)
    }
}

/// One operation, or several in one transaction. Its memory is reused.
#[derive(Debug, Default)]
struct Operation {
    requests: Vec<Request>,
    known: Vec<ExpectedState>,
    /// When that was known; only where other members than the leader may answer.
    drawn: Option<Instant>,
}

impl Operation {
    /// Whether it may change something.
    fn changes(&self) -> bool {
        let is_read = |request: &Request| matches!(request.action, Action::Read | Action::Scan);
        !self.requests.iter().all(is_read)
    }

    /// Whether a refusal means that a record is missing: every record to be read or updated had to be there, and
    /// none was to be inserted. Scans do not matter here: a store never refuses one.
    fn must_find(&self) -> bool {
        let mut each = self.requests.iter().zip(&self.known);
        let may_not_find = |(request, known): (&Request, &ExpectedState)| match request.action {
            Action::Scan => false,
            Action::Insert => true,
            Action::Read | Action::Update | Action::Modify => !known.is_there,
        };
        !each.clone().any(may_not_find) && each.any(|(_, known)| known.is_there)
    }
}

/// The connection that an operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// That to the leader.
    Leader,
    /// One for operations that change nothing, to a member that led when it was opened, or did not.
    Reader { leads: bool },
}

impl On {
    /// Whether its member led when it was opened. What the leader acknowledges it shows.
    fn leads(self) -> bool {
        matches!(self, Self::Leader | Self::Reader { leads: true })
    }
}

struct RecordsClient<C: Connector> {
    /// Among all of the trial.
    index: usize,
    scenario: Scenario,
    connector: C,
    connection: Option<C::Connection>,
    readers: Readers<C::Connection>,
    /// The connection that the last operation was on.
    on: On,
    /// The same as long as the operation has no answer, or if that has cost the connection.
    lost: Option<On>,
    session: Session,
    /// This client's own copy, because it changes with the number of records.
    numbers: KeyChooser,
    rng: Xoshiro256PlusPlus,
    /// Tags for this client's next writes; no other client uses them.
    tags: Range<u64>,
    answers: Vec<Answer>,
    spare: Option<Operation>,
}

impl<C: Connector> RecordsClient<C> {
    fn new(connector: C, scenario: Scenario, index: usize) -> Self {
        let client = index as u64 + 1;
        let seed = scenario.seed ^ client.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            index,
            numbers: scenario.numbers,
            answers: vec![Answer::default(); scenario.transaction],
            readers: Readers::new(scenario.policy(), index),
            scenario,
            connector,
            connection: None,
            on: On::Leader,
            lost: None,
            session: Session::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            tags: 0..0,
            spare: None,
        }
    }

    /// Draws the next request, reusing the memory of an old one.
    fn request(&mut self, request: &mut Request) -> ExpectedState {
        let Scenario { ledger, mix, layout, scan_max, .. } = &self.scenario;
        let epoch = ledger.epoch();
        request.action = mix.action(self.rng.random());
        request.number = match request.action {
            Action::Insert => ledger.draw_insert(),
            _ => draw_number(&mut self.numbers, ledger, &mut self.rng),
        };
        put_key(&mut request.key, request.number);
        match request.action {
            Action::Scan => request.length = self.rng.random_range(1..=*scan_max),
            Action::Update | Action::Insert | Action::Modify => {
                request.fields.fill(layout, next_tag(&mut self.tags, ledger));
            }
            Action::Read => {}
        }
        let is_there = match request.action {
            // a store that separates searching from writing may show an added record to searches at any later time
            Action::Scan => request.number < layout.records,
            _ => ledger.is_there(request.number),
        };
        ExpectedState { newest: ledger.newest(request.number), is_there, epoch }
    }

    fn note(
        &mut self,
        request: &Request,
        known: ExpectedState,
        answer: &Answer,
        drawn: Option<Instant>,
        outcome: Outcome,
    ) {
        let ledger = &self.scenario.ledger;
        let epoch = known.epoch.until(ledger.epoch());
        // a torn record counts however the operation that read it ended
        ledger.torn(answer.torn_records());
        if outcome == Outcome::Ok {
            ledger.acknowledged(self.index);
        }
        match (request.action, outcome) {
            (Action::Read | Action::Scan, Outcome::Ok) => self.look(request, known, answer, drawn),
            (Action::Update | Action::Modify, Outcome::Ok) => {
                ledger.updated(request.number, request.fields.tag(), answer.written(), known.newest, epoch);
                if request.action == Action::Modify {
                    self.look(request, known, answer, drawn);
                }
                self.wrote(request.number, answer.written(), epoch);
            }
            (Action::Update | Action::Modify, Outcome::Unknown) => ledger.update_unknown(request.number),
            (Action::Insert, Outcome::Ok) => {
                ledger.was_inserted(request.number, request.fields.tag(), epoch);
                self.wrote(request.number, Some(0), epoch);
            }
            (Action::Insert, Outcome::Unknown) => ledger.insert_ended(request.number, InsertState::Unknown),
            (Action::Insert, _) => ledger.insert_ended(request.number, InsertState::Undone),
            // its statement may still run
            (Action::Read | Action::Scan, Outcome::Unknown) => ledger.doubtful(),
            (_, Outcome::Refused | Outcome::Conflict | Outcome::Failed) => {}
        }
    }

    /// Remembers a version that was acknowledged to this client, where its reads may miss it.
    fn wrote(&mut self, number: u64, version: Option<u64>, epoch: Epoch) {
        if let (Some(_), Some(version), true) = (self.scenario.ledger.reads(), version, epoch.lasts(epoch)) {
            self.session.in_epoch(epoch).wrote(number, version);
        }
    }

    /// Looks at the records that were read, after the clock has stopped. A scan does not say which record is which,
    /// so versions are not checked there.
    fn look(&mut self, request: &Request, known: ExpectedState, answer: &Answer, drawn: Option<Instant>) {
        let Scenario { ledger, layout, .. } = &self.scenario;
        let seen = known.seen(ledger.epoch());
        let mut found = answer.torn_records();
        for (version, content) in answer.read_as(layout) {
            found += 1;
            match content {
                None => ledger.torn(1),
                Some(tag) if request.action != Action::Scan && known.newest.contradicts(version, tag) => {
                    ledger.mismatched(seen);
                }
                Some(_) => {}
            }
            if request.action == Action::Scan {
                continue;
            }
            match (ledger.reads(), self.on, drawn) {
                // between two epochs nobody knows which of two leaders' data it was
                (Some(_), ..) if seen == Seen::Between => {}
                (Some(reads), On::Reader { leads }, Some(begun)) => {
                    let newest = (seen == Seen::WithinEpoch).then_some(known.newest);
                    let found = Some((version, content));
                    let read = RecordRead { number: request.number, found, newest, begun, leads };
                    reads.read(self.session.in_epoch(known.epoch), read);
                }
                (Some(_), ..) => self.session.in_epoch(known.epoch).read_at_leader(request.number, version),
                (None, ..) => {}
            }
            if self.on.leads() && version < known.newest.version() {
                ledger.stale(seen);
            }
        }
        if found == 0 {
            self.miss(request, known, drawn);
        }
    }

    /// Notes that a record was not found. A replica may have one later that was inserted in this trial.
    fn miss(&mut self, request: &Request, known: ExpectedState, drawn: Option<Instant>) {
        let Scenario { ledger, layout, .. } = &self.scenario;
        let seen = known.seen(ledger.epoch());
        let is_inserted = request.action == Action::Read && request.number >= layout.records;
        match (ledger.reads(), self.on, drawn) {
            (Some(_), On::Reader { leads: false }, _) if is_inserted && seen == Seen::Between => {}
            (Some(reads), On::Reader { leads: leads @ false }, Some(begun)) if is_inserted => {
                let newest = (known.is_there && seen == Seen::WithinEpoch).then_some(known.newest);
                let read = RecordRead { number: request.number, found: None, newest, begun, leads };
                reads.read(self.session.in_epoch(known.epoch), read);
            }
            _ if known.is_there => ledger.missing(seen),
            _ => {}
        }
    }
}

fn next_tag(tags: &mut Range<u64>, ledger: &Ledger) -> u64 {
    loop {
        match tags.next() {
            Some(tag) => return tag,
            None => *tags = ledger.deal_tags(),
        }
    }
}

/// A record that should be there: one that may not be there is replaced by another draw, [`REDRAWN`] times at most.
fn draw_number(numbers: &mut KeyChooser, ledger: &Ledger, rng: &mut Xoshiro256PlusPlus) -> u64 {
    let mut draw = || ledger.number(numbers.draw(ledger.drawable(), rng));
    let mut number = draw();
    for _ in 0..REDRAWN {
        if ledger.is_there(number) {
            break;
        }
        number = draw();
    }
    number
}

impl Default for Request {
    fn default() -> Self {
        Self { action: Action::Read, number: 0, key: String::new(), length: 0, fields: Fields::default() }
    }
}

impl<C: Connector> Client for RecordsClient<C> {
    type Operation = Operation;

    fn draw(&mut self) -> Option<Operation> {
        let mut operation = self.spare.take().unwrap_or_default();
        operation.requests.resize_with(self.scenario.transaction, Request::default);
        operation.known.clear();
        for request in &mut operation.requests {
            let known = self.request(request);
            operation.known.push(known);
        }
        operation.drawn = self.scenario.ledger.reads().map(|_| Instant::now());
        Some(operation)
    }

    fn kind(operation: &Operation) -> usize {
        match operation.requests.as_slice() {
            [request] => request.action as usize,
            _ => TRANSACTION,
        }
    }

    fn changes(&self, operation: &Operation) -> bool {
        operation.changes()
    }

    async fn attempt(&mut self, operation: &Operation) -> Attempt {
        // forget the answers of the operation before
        self.answers.iter_mut().for_each(Answer::clear);
        if self.readers.look(&self.connector).await {
            self.session.doubt();
        }
        let reader = if operation.changes() { None } else { self.readers.next() };
        let (on, connection) = match reader {
            Some(Reader { connection, leads }) => (On::Reader { leads: *leads }, Some(connection)),
            None => (On::Leader, self.connection.as_mut()),
        };
        (self.on, self.lost) = (on, Some(on));
        let Some(connection) = connection else {
            return Attempt::Failed(Fault::lost("no connection"));
        };
        let attempt = match (operation.requests.as_slice(), self.answers.as_mut_slice()) {
            ([request], [answer]) => connection.single(request, answer).await,
            (requests, answers) => connection.several(requests, answers).await,
        };
        if !attempt.has_lost_connection() {
            self.lost = None;
        }
        attempt
    }

    fn account(&mut self, operation: Operation, outcome: Outcome) {
        let drawn = operation.drawn;
        let answers = mem::take(&mut self.answers);
        for ((request, known), answer) in operation.requests.iter().zip(&operation.known).zip(&answers) {
            self.note(request, *known, answer, drawn, outcome);
        }
        self.answers = answers;
        // an insert is refused because its record exists; in a transaction with one, or with a record that may not
        // be there, nobody knows what the refusal was for
        if let (Outcome::Refused, [request], [known]) = (outcome, &*operation.requests, &*operation.known)
            && request.action == Action::Read
        {
            self.miss(request, *known, drawn);
        } else if outcome == Outcome::Refused && operation.must_find() {
            let ledger = &self.scenario.ledger;
            let had_to_be_there = operation.known.iter().filter(|known| known.is_there);
            // they were begun together
            let seen = had_to_be_there.map(|known| known.seen(ledger.epoch()));
            ledger.missing(seen.max().unwrap_or(Seen::WithinEpoch));
        }
        self.spare = Some(operation);
    }

    fn lock_wait(&mut self) -> Duration {
        self.connection.as_mut().map_or(Duration::ZERO, Operations::lock_wait)
    }

    async fn connect(&mut self) -> Result<(), String> {
        // drop the old connection before asking for a new one: that of the last operation, or all of them if there was none
        match self.lost {
            Some(On::Leader) => self.connection = None,
            Some(On::Reader { .. }) => self.readers.close_last(),
            None => {
                self.connection = None;
                self.readers.close();
            }
        }
        if self.connection.is_none() {
            self.connection = Some(self.connector.connect().await?);
        }
        if self.readers.are_missing() && self.readers.connect(&self.connector).await? {
            self.session.doubt();
        }
        self.lost = None;
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        for connection in self.connection.iter_mut().chain(self.readers.connections()) {
            connection.check().await?;
        }
        Ok(())
    }
}

/// Wraps one client for the engine. To be called by each store's crate, so that the client's loop is compiled
/// there, with static dispatch of every call in it.
pub fn task<C>(connector: C, scenario: Scenario) -> ClientTask
where
    C: Connector + Send + 'static,
{
    Box::new(move |driver| {
        let client = RecordsClient::new(connector, scenario, driver.index());
        Box::pin(driver.drive(client))
    })
}

#[cfg(test)]
mod tests {
    use acidtest_model::{Consistency, Reads, Route};

    use super::*;
    use crate::{
        AuditResult, ReusableData, Verdict, at_once,
        records::{Choice, Final, Lookup, audit, key_name},
    };

    /// One record, as a store holds it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Row {
        version: u64,
        tag: u64,
    }

    /// Answers every request with the given outcome and answer.
    #[derive(Clone)]
    struct FixedAnswer(Attempt, Answer);

    impl Connector for FixedAnswer {
        type Connection = Self;

        async fn connect(&self) -> Result<Self, String> {
            Ok(self.clone())
        }
    }

    impl Operations for FixedAnswer {
        async fn single(&mut self, _: &Request, answer: &mut Answer) -> Attempt {
            answer.clone_from(&self.1);
            self.0.clone()
        }
    }

    const LAYOUT: Layout = Layout { records: 1, fields: 2, field_bytes: 20, scans: false };

    /// A trial of one operation on one record, over the record that an earlier trial left. The store answers as
    /// given, and then holds the record that `after` makes of the tag that was to be written.
    fn trial(
        mix: &str,
        reusable: ReusableData,
        answer: Answer,
        after: impl Fn(u64) -> Row,
    ) -> (AuditResult, Row) {
        trial_of(mix, reusable, FixedAnswer(Attempt::Ok, answer), after)
    }

    /// The same, whatever the operation's outcome. A further operation is drawn and finds no connection.
    fn trial_of(
        mix: &str,
        reusable: ReusableData,
        told: FixedAnswer,
        after: impl Fn(u64) -> Row,
    ) -> (AuditResult, Row) {
        let parameters = Parameters {
            mix: mix.parse().unwrap(),
            keys: Choice::Uniform,
            records: LAYOUT.records,
            fields: LAYOUT.fields,
            field_bytes: LAYOUT.field_bytes,
            ..Parameters::default()
        };
        let ledger = Arc::new(Ledger::new(parameters.layout(), reusable));
        // all trials of a round have the same seed
        let scenario = Scenario::new(&parameters, Arc::clone(&ledger), 7);
        let mut client = RecordsClient::new(told, scenario, 0);
        at_once(client.connect()).unwrap();
        let operation = client.draw().unwrap();
        let row = after(operation.requests[0].fields.tag());
        let ended = at_once(client.attempt(&operation));
        client.account(operation, outcome(&ended));
        client.connection = None;
        let next = client.draw().unwrap();
        assert!(matches!(at_once(client.attempt(&next)), Attempt::Failed(_)));
        client.account(next, Outcome::Failed);
        let mut state = Final::of(&ledger);
        state.take(&key_name(0), row.version, Some(row.tag));
        (audit(&ledger, Ok(state)), row)
    }

    fn outcome(attempt: &Attempt) -> Outcome {
        match attempt {
            Attempt::Ok => Outcome::Ok,
            Attempt::Refused => Outcome::Refused,
            Attempt::Failed(_) => Outcome::Failed,
            other => panic!("{other:?}"),
        }
    }

    fn wrote(version: u64) -> Answer {
        let mut answer = Answer::default();
        answer.wrote(version);
        answer
    }

    /// A record at this version whose fields have the tags of two writers.
    fn read(version: u64, tags: [u64; 2]) -> Answer {
        let (mut answer, mut one, mut other) = (Answer::default(), Fields::default(), Fields::default());
        one.fill(&LAYOUT, tags[0]);
        other.fill(&LAYOUT, tags[1]);
        answer.record(version, one.iter().take(1).chain(other.iter().skip(1)).map(str::as_bytes));
        answer
    }

    /// A trial in which the first client made one update, its first write: the data and the record that it left.
    fn updated() -> (ReusableData, Row) {
        let (audited, row) =
            trial("update:1", ReusableData::default(), wrote(1), |tag| Row { version: 1, tag });
        assert_eq!(audited.audit.verdict, Verdict::Holds, "{}", audited.audit);
        (audited.reusable.unwrap(), row)
    }

    /// A client's first write in a trial has another tag than its first write in the trial before.
    #[test]
    fn fields_that_were_not_stored_are_found_over_what_an_earlier_trial_left() {
        let (reusable, first) = updated();
        let kept = |_| Row { version: 2, ..first };
        let (broken, _) = trial("update:1", reusable.clone(), wrote(2), kept);
        assert_eq!(broken.audit.to_string(), "broken: mismatched 1 record");
        let (sound, second) = trial("update:1", reusable, wrote(2), |tag| Row { version: 2, tag });
        assert_eq!(sound.audit.verdict, Verdict::Holds, "{}", sound.audit);
        assert_ne!(first.tag, second.tag);
    }

    /// A record taken over from an earlier trial is known with its fields, even if it had been updated there.
    #[test]
    fn fields_that_changed_without_a_version_are_found_over_what_an_earlier_trial_left() {
        let (reusable, row) = updated();
        let answer = read(1, [row.tag; 2]);
        let (sound, _) = trial("read:1", reusable.clone(), answer.clone(), |_| row);
        assert_eq!(sound.audit.verdict, Verdict::Holds, "{}", sound.audit);
        let (broken, _) = trial("read:1", reusable, answer, |_| Row { tag: row.tag + 1, ..row });
        assert_eq!(broken.audit.to_string(), "broken: mismatched 1 record");
    }

    /// One wrong answer is found and counted once, even if the operation that read it failed and the next one got
    /// no answer.
    #[test]
    fn a_wrong_answer_is_counted_once() {
        let (reusable, Row { tag, .. }) = updated();
        let mut torn = Answer::default();
        torn.torn();
        let mut modified = read(0, [tag; 2]);
        modified.wrote(2);
        let nothing = Answer::default;
        let no_record = Lookup::Torn.above().unwrap_err();
        for (mix, attempt, answer, found) in [
            ("read:1", Attempt::Refused, nothing(), "missing 1 read"),
            ("read:1", Attempt::Ok, nothing(), "missing 1 read"),
            ("update:1", Attempt::Refused, nothing(), "missing 1 read"),
            ("scan:1", Attempt::Ok, nothing(), "missing 1 read"),
            ("read:1", Attempt::Ok, read(1, [tag, 0]), "torn 1 record"),
            ("scan:1", Attempt::Ok, read(1, [tag, 0]), "torn 1 record"),
            ("read:1", Attempt::Ok, torn.clone(), "torn 1 record"),
            ("update:1", no_record, torn, "torn 1 record"),
            ("read:1", Attempt::Ok, read(1, [0; 2]), "mismatched 1 record"),
            ("read:1", Attempt::Ok, read(0, [tag; 2]), "stale 1 read"),
            ("rmw:1", Attempt::Ok, modified, "stale 1 read"),
            ("update:1", Attempt::Ok, wrote(1), "overwritten 1 update"),
        ] {
            let writes = attempt == Attempt::Ok && ["update:1", "rmw:1"].contains(&mix);
            let after = |new| if writes { Row { version: 2, tag: new } } else { Row { version: 1, tag } };
            let told = format!("{mix}, {attempt:?}, {answer:?}");
            let (audited, _) = trial_of(mix, reusable.clone(), FixedAnswer(attempt, answer), after);
            assert_eq!(audited.audit.to_string(), format!("broken: {found}"), "{told}");
        }
        // a scan does not say which record is which
        for version in [0, 1] {
            let found = read(version, [7; 2]);
            let (scanned, _) = trial("scan:1", reusable.clone(), found, |_| Row { version: 1, tag });
            assert_eq!(scanned.audit.verdict, Verdict::Holds, "{}", scanned.audit);
        }
    }

    /// A record that had to be there is counted as missing even if the transaction also has a scan, which is never
    /// refused, that begins at a record which searches may not show yet.
    #[test]
    fn a_refusal_is_a_missing_record_where_nothing_else_can_be_refused() {
        use Action::{Insert, Modify, Read, Scan, Update};
        for (asked, must_find) in [
            (&[(Read, true)][..], true),
            (&[(Read, false)], false),
            (&[(Read, true), (Modify, true), (Update, true)], true),
            (&[(Read, true), (Update, false)], false),
            (&[(Read, true), (Insert, false)], false),
            (&[(Insert, false)], false),
            (&[(Read, true), (Scan, false)], true),
            (&[(Scan, false), (Update, true)], true),
            (&[(Scan, true), (Update, false)], false),
            (&[(Scan, false)], false),
            (&[(Scan, true), (Scan, false)], true),
        ] {
            let mut operation = Operation::default();
            for &(action, is_there) in asked {
                operation.requests.push(Request { action, ..Request::default() });
                operation.known.push(ExpectedState { is_there, ..ExpectedState::default() });
            }
            assert_eq!(operation.must_find(), must_find, "{asked:?}");
        }
    }

    /// A leader, which acknowledges every write, and a replica, which answers every read in this way.
    #[derive(Clone)]
    struct WithReplica(FixedAnswer);

    impl Connector for WithReplica {
        type Connection = FixedAnswer;

        async fn connect(&self) -> Result<FixedAnswer, String> {
            Ok(FixedAnswer(Attempt::Ok, wrote(2)))
        }

        async fn reader(&self, _: usize) -> Result<Reader<FixedAnswer>, String> {
            Ok(Reader { connection: self.0.clone(), leads: false })
        }
    }

    /// A client that reads at a replica, over the record that an earlier trial left.
    fn reading(
        consistency: Consistency,
        reusable: ReusableData,
        at_replica: FixedAnswer,
    ) -> RecordsClient<WithReplica> {
        let policy = ReadPolicy { from: Reads::Replica, route: Route::Pinned, consistency };
        let parameters = Parameters { records: LAYOUT.records, ..Parameters::default() };
        let ledger = Arc::new(Ledger::new(LAYOUT, reusable).reading(policy));
        let scenario = Scenario { layout: LAYOUT, ..Scenario::new(&parameters, ledger, 7) };
        let mut client = RecordsClient::new(WithReplica(at_replica), scenario, 0);
        at_once(client.connect()).unwrap();
        client
    }

    /// Has the client do this to the record of this number.
    fn does(client: &mut RecordsClient<WithReplica>, action: Action, number: u64) {
        let mut request = Request { action, number, ..Request::default() };
        put_key(&mut request.key, number);
        request.fields.fill(&LAYOUT, next_tag(&mut client.tags, &client.scenario.ledger));
        let ledger = &client.scenario.ledger;
        let known = ExpectedState {
            newest: ledger.newest(number),
            is_there: ledger.is_there(number),
            epoch: ledger.epoch(),
        };
        let drawn = Some(Instant::now());
        let operation = Operation { requests: vec![request], known: vec![known], drawn };
        let ended = at_once(client.attempt(&operation));
        client.account(operation, outcome(&ended));
    }

    /// The audit of a trial that ends with this record.
    fn told(client: &RecordsClient<WithReplica>, Row { version, tag }: Row) -> AuditResult {
        let mut state = Final::of(&client.scenario.ledger);
        state.take(&key_name(0), version, Some(tag));
        for number in 1..client.scenario.ledger.known() {
            state.take(&key_name(number), 0, Some(number));
        }
        audit(&client.scenario.ledger, Ok(state))
    }

    #[test]
    fn what_a_replica_misses_breaks_a_promise_only_where_it_must_not() {
        let (reusable, row) = updated();
        let says = |version, tag| FixedAnswer(Attempt::Ok, read(version, [tag; 2]));
        for (consistency, version, verdict, stale) in [
            (Consistency::Eventual, 1, "holds", 0),
            (Consistency::Strong, 1, "holds", 0),
            (Consistency::Eventual, 0, "holds", 1),
            (Consistency::Strong, 0, "broken: 1 read at a replica was stale", 1),
        ] {
            let tag = if version == 1 { row.tag } else { 0 };
            let mut client = reading(consistency, reusable.clone(), says(version, tag));
            does(&mut client, Action::Read, 0);
            let audited = told(&client, row);
            assert_eq!(audited.audit.to_string(), verdict);
            let staleness = audited.staleness.unwrap();
            assert_eq!((staleness.reads, staleness.at_leader, staleness.stale), (1, 0, stale));
        }
        // the leader has acknowledged version 2 to the same client
        let mut client = reading(Consistency::Strong, reusable.clone(), says(1, row.tag));
        does(&mut client, Action::Read, 0);
        does(&mut client, Action::Update, 0);
        does(&mut client, Action::Read, 0);
        let tag = client.tags.start - 2;
        let audited = told(&client, Row { version: 2, tag });
        let both = "broken: 1 read at a replica was stale, 1 read missed a write of its own client";
        assert_eq!(audited.audit.to_string(), both);
        // a version that nobody has in the end
        let mut client = reading(Consistency::Eventual, reusable, says(5, row.tag));
        does(&mut client, Action::Read, 0);
        assert_eq!(
            told(&client, row).audit.to_string(),
            "broken: 1 record was read in a version that is gone"
        );
    }

    /// A replica that has restarted unasked may show less until it has caught up.
    #[test]
    fn promises_of_a_replica_whose_connection_was_lost_are_in_doubt() {
        let (reusable, row) = updated();
        let gone = FixedAnswer(Attempt::Failed(Fault::lost("it is gone")), Answer::default());
        let mut client = reading(Consistency::Strong, reusable, gone);
        does(&mut client, Action::Read, 0);
        client.connector = WithReplica(FixedAnswer(Attempt::Ok, read(0, [0; 2])));
        at_once(client.connect()).unwrap();
        does(&mut client, Action::Read, 0);
        let mut audited = told(&client, row);
        audited.audit.doubt_reads(&["consistency"]);
        assert_eq!(audited.audit.to_string(), "holds", "nothing was promised");
        audited.audit.doubt_reads(&[] as &[&str]);
        let told = "unknown: 1 read at replicas missed something after its client had lost a connection";
        assert!(audited.audit.to_string().starts_with(told), "{}", audited.audit);
        assert!(!audited.audit.breaks_promise(&[] as &[&str]));
    }

    #[test]
    fn a_replica_may_have_an_insert_later_but_must_have_what_was_loaded() {
        let nothing = FixedAnswer(Attempt::Refused, Answer::default());
        let mut client = reading(Consistency::Eventual, ReusableData::default(), nothing);
        let inserted = client.scenario.ledger.draw_insert();
        does(&mut client, Action::Read, inserted);
        assert_eq!(
            told(&client, Row { version: 0, tag: 0 }).staleness.unwrap().reads,
            0,
            "it need not be there"
        );
        does(&mut client, Action::Insert, inserted);
        does(&mut client, Action::Read, inserted);
        let staleness = client.scenario.ledger.reads().unwrap().staleness();
        assert_eq!((staleness.reads, staleness.stale, staleness.own_writes_missed), (1, 1, 1));
        assert_eq!(client.scenario.ledger.proved().missing, [0; 3]);
        does(&mut client, Action::Read, 0);
        assert_eq!(client.scenario.ledger.proved().missing, [1, 1, 0]);
    }

    #[test]
    fn only_the_connection_that_was_lost_is_replaced() {
        let gone = FixedAnswer(Attempt::Failed(Fault::lost("it is gone")), Answer::default());
        let mut client = reading(Consistency::Eventual, ReusableData::default(), gone);
        does(&mut client, Action::Update, 0);
        assert!(client.connection.is_some() && !client.readers.are_missing());
        does(&mut client, Action::Read, 0);
        client.connector = WithReplica(FixedAnswer(Attempt::Ok, read(0, [0; 2])));
        at_once(client.connect()).unwrap();
        does(&mut client, Action::Read, 0);
        assert_eq!(client.scenario.ledger.reads().unwrap().staleness().reads, 1);
        // all are closed where none was in use
        client.connector = WithReplica(FixedAnswer(Attempt::Ok, read(1, [0; 2])));
        at_once(client.connect()).unwrap();
        let reader = client.readers.next().unwrap();
        assert_eq!(reader.connection.1.read().next(), Some((1, Some(0))));
    }

    #[test]
    fn no_two_clients_are_dealt_the_same_tags() {
        let ledger = Ledger::new(
            Layout { records: 1, fields: 1, field_bytes: 16, scans: false },
            ReusableData::default(),
        );
        let (mut one, mut other) = (0..0, 0..0);
        let mut drawn: Vec<u64> =
            (0..20_000).flat_map(|_| [next_tag(&mut one, &ledger), next_tag(&mut other, &ledger)]).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 40_000);
        assert!(drawn.last() < Some(&ledger.next_tag()));
    }
}
