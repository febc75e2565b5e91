//! Checks of the effects and answers of single requests of the records workload, for the unit tests of adapters,
//! which can reach their own connections.

use acidtest_engine::Attempt;
use acidtest_model::Lock;
use acidtest_workloads::{
    LoadProgress, Place, Store,
    records::{
        Action, Answer, Connector, Fields, Layout, Operations, RecordsStore, Refresh, Request, Requirements,
        key_name,
    },
};

use crate::{NAMESPACE, records::RecordRow};

/// Three records, each with its number as its tag.
const LAYOUT: Layout = Layout { records: 3, fields: 2, field_bytes: 20, scans: true };

/// An expected record: number, version and tag.
type Record = (u64, u64, u64);

const LAID_IN: [Record; 3] = [(0, 0, 0), (1, 0, 1), (2, 0, 2)];

/// A function that makes the adapter's connector for a trial.
pub trait Connect<C>: Fn(&Place, Requirements) -> C {}
impl<C, F: Fn(&Place, Requirements) -> C> Connect<C> for F {}

fn request(action: Action, number: u64, tag: u64) -> Request {
    let mut fields = Fields::default();
    fields.fill(&LAYOUT, tag);
    Request { action, number, key: key_name(number), length: 10, fields }
}

/// The expected answer: the version written and the records read. As text, because an answer shows its contents only
/// by its `Debug`.
fn answer(written: Option<u64>, read: &[Record]) -> String {
    answer_beside(written, read, 0)
}

/// The expected answer with this number of torn records besides.
fn answer_beside(written: Option<u64>, read: &[Record], torn: usize) -> String {
    let mut answer = Answer::default();
    (0..torn).for_each(|_| answer.torn());
    for &(number, version, tag) in read {
        let of = request(Action::Read, number, tag);
        answer.record(version, of.fields.iter().map(str::as_bytes));
    }
    if let Some(version) = written {
        answer.wrote(version);
    }
    format!("{answer:?}")
}

/// Sorts the records by key.
fn in_order<const N: usize>(mut records: [Record; N]) -> [Record; N] {
    records.sort_unstable_by_key(|record| key_name(record.0));
    records
}

async fn single(connection: &mut impl Operations, request: &Request) -> (Attempt, String) {
    let mut answer = Answer::default();
    let done = connection.single(request, &mut answer).await;
    (done, format!("{answer:?}"))
}

async fn several(connection: &mut impl Operations, requests: &[Request]) -> (Attempt, Vec<String>) {
    let mut answers = vec![Answer::default(); requests.len()];
    let done = connection.several(requests, &mut answers).await;
    (done, answers.iter().map(|answer| format!("{answer:?}")).collect())
}

/// A trial that was loaded with three records.
struct Trial<'a> {
    port: &'a dyn RecordsStore,
    place: Place,
    wanted: Requirements,
}

impl<'a> Trial<'a> {
    /// Loads a trial whose number is made from the number of the check and the lock mode, so that no two share data.
    async fn loaded(store: &'a impl Store, check: u32, lock: Lock, transaction: u32) -> Self {
        let trial = lock as u32 + 10 * check;
        let place = Place { namespace: NAMESPACE.to_owned(), trial };
        let port = store.records().unwrap();
        port.load(&place, &LAYOUT, &LoadProgress::default()).await.unwrap();
        let wanted = Requirements {
            lock,
            decides: true,
            isolation: None,
            transaction,
            refresh: Refresh::No,
            layout: LAYOUT,
        };
        Self { port, place, wanted }
    }

    #[track_caller]
    fn connector<C>(&self, connect: impl Connect<C>) -> C {
        connect(&self.place, self.wanted)
    }

    async fn holds(&self, records: &[Record]) {
        self.holds_beside(records, None).await;
    }

    /// Asserts that these records are read back, and the record of number `torn`, if given, as torn.
    async fn holds_beside(&self, records: &[Record], torn: Option<u64>) {
        let mut seen: Vec<RecordRow> = Vec::new();
        // the version of a torn record is not compared
        let mut each = |key: &str, version, tag: Option<u64>| {
            seen.push((key.to_owned(), if tag.is_some() { version } else { 0 }, tag));
        };
        self.port.state(&self.place, &LAYOUT, &mut each).await.unwrap();
        seen.sort_unstable();
        let of = |&(number, version, tag): &Record| (key_name(number), version, Some(tag));
        let torn = torn.map(|number| (key_name(number), 0, None));
        let mut expected: Vec<RecordRow> = records.iter().map(of).chain(torn).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{:?}", self.wanted);
    }
}

/// A request for a record that does not exist, and an insert of one that does, are refused and change nothing. Every
/// other request answers the records that it read and the version that it wrote.
pub async fn singles<C: Connector>(store: &impl Store, locks: &[Lock], connect: impl Connect<C>) {
    for &lock in locks {
        let trial = Trial::loaded(store, 1, lock, 1).await;
        let mut connection = trial.connector(&connect).connect().await.unwrap();
        for action in [Action::Read, Action::Update, Action::Modify] {
            let refused = single(&mut connection, &request(action, 7, 70)).await;
            assert_eq!(refused, (Attempt::Refused, answer(None, &[])), "{lock}: {action:?}");
        }
        let (refused, _) = single(&mut connection, &request(Action::Insert, 1, 10)).await;
        assert_eq!(refused, Attempt::Refused, "{lock}");
        trial.holds(&LAID_IN).await;

        let steps = [
            (request(Action::Insert, 7, 70), answer(None, &[])),
            (request(Action::Update, 7, 71), answer(Some(1), &[])),
            (request(Action::Modify, 7, 72), answer(Some(2), &[(7, 1, 71)])),
            (request(Action::Read, 7, 0), answer(None, &[(7, 2, 72)])),
        ];
        for (request, answer) in steps {
            assert_eq!(single(&mut connection, &request).await, (Attempt::Ok, answer), "{lock}: {request:?}");
        }
        // a scan begins at its own key and ends after the number of records asked for
        let [_, second, third, _] = in_order([(0, 0, 0), (1, 0, 1), (2, 0, 2), (7, 2, 72)]);
        let scan = Request { length: 2, ..request(Action::Scan, second.0, 0) };
        let scanned = single(&mut connection, &scan).await;
        assert_eq!(scanned, (Attempt::Ok, answer(None, &[second, third])), "{lock}");
    }
}

/// The requests of a transaction are performed in their order, each seeing the writes of those before it, or none
/// of them has an effect.
pub async fn transactions<C: Connector>(store: &impl Store, locks: &[Lock], connect: impl Connect<C>) {
    let first = in_order([(0, 0, 0), (1, 0, 0), (2, 0, 0), (7, 0, 0)])[0].0;
    let scanned = in_order([(0, 2, 101), (1, 0, 1), (2, 0, 2), (7, 1, 71)]);
    let steps = [
        (request(Action::Update, 0, 100), answer(Some(1), &[])),
        (request(Action::Read, 0, 0), answer(None, &[(0, 1, 100)])),
        (request(Action::Modify, 0, 101), answer(Some(2), &[(0, 1, 100)])),
        (request(Action::Insert, 7, 70), answer(None, &[])),
        (request(Action::Modify, 7, 71), answer(Some(1), &[(7, 0, 70)])),
        (request(Action::Scan, first, 0), answer(None, &scanned)),
        (request(Action::Update, 0, 102), answer(Some(3), &[])),
        (request(Action::Read, 1, 0), answer(None, &[(1, 0, 1)])),
    ];
    let requests: Vec<Request> = steps.iter().map(|(request, _)| request.clone()).collect();
    let answers: Vec<String> = steps.into_iter().map(|(_, answer)| answer).collect();
    for &lock in locks {
        let trial = Trial::loaded(store, 2, lock, 2).await;
        let mut connection = trial.connector(&connect).connect().await.unwrap();
        for fatal in [request(Action::Read, 9, 0), request(Action::Insert, 7, 0)] {
            let doomed: Vec<_> = requests.iter().cloned().chain([fatal]).collect();
            assert_eq!(several(&mut connection, &doomed).await.0, Attempt::Refused, "{lock}");
            trial.holds(&LAID_IN).await;
        }
        let done = several(&mut connection, &requests).await;
        assert_eq!(done, (Attempt::Ok, answers.clone()), "{lock}");
        let records = in_order([(0, 3, 102), (1, 0, 1), (2, 0, 2), (7, 1, 71)]);
        trial.holds(&records).await;

        // a transaction that only reads
        let reads = [request(Action::Read, 0, 0), request(Action::Scan, first, 0)];
        let read = vec![answer(None, &[(0, 3, 102)]), answer(None, &records)];
        assert_eq!(several(&mut connection, &reads).await, (Attempt::Ok, read), "{lock}");
        let missing = [request(Action::Read, 0, 0), request(Action::Read, 9, 0)];
        assert_eq!(several(&mut connection, &missing).await.0, Attempt::Refused, "{lock}");
    }
}

/// A value that is no record is answered as torn: a read succeeds with it, a write that must read it first fails, and
/// the final state shows it beside the other records. `spoil` turns the record with a key into such a value.
pub async fn garbled<C: Connector>(
    store: &impl Store,
    locks: &[Lock],
    connect: impl Connect<C>,
    spoil: impl AsyncFn(&Place, &str),
) {
    let torn = answer_beside(None, &[], 1);
    let first = in_order(LAID_IN)[0].0;
    for &lock in locks {
        let trial = Trial::loaded(store, 3, lock, 1).await;
        let mut connection = trial.connector(&connect).connect().await.unwrap();
        spoil(&trial.place, &key_name(1)).await;
        // twice: an operation that met a torn record must have released its locks
        for _ in 0..2 {
            let read = single(&mut connection, &request(Action::Read, 1, 0)).await;
            assert_eq!(read, (Attempt::Ok, torn.clone()), "{lock}");
            // under the native lock a write is one statement, which may not read the old value
            let writes = if lock == Lock::Native { &[][..] } else { &[Action::Update, Action::Modify] };
            for action in writes {
                let (done, found) = single(&mut connection, &request(*action, 1, 10)).await;
                let failed = matches!(&done, Attempt::Failed(fault) if !fault.connection_lost);
                assert!(failed && found == torn, "{lock}: {action:?}: {done:?} {found}");
            }
        }
        let (done, _) = single(&mut connection, &request(Action::Update, 2, 20)).await;
        assert_eq!(done, Attempt::Ok, "{lock}");
        let others = in_order([(0, 0, 0), (2, 1, 20)]);
        let scanned = single(&mut connection, &request(Action::Scan, first, 0)).await;
        assert_eq!(scanned, (Attempt::Ok, answer_beside(None, &others, 1)), "{lock}");
        trial.holds_beside(&others, Some(1)).await;
    }
}
