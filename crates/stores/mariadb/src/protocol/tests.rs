//! The protocol against a server that the tests play: what a real one does once in a year, and what none should do.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability};
use acidtest_testbed::{Played, Private, changes, garble, login, wait};
use acidtest_transport::Pipelined as _;
use mysql_common::constants::{CapabilityFlags, ColumnType};
use proptest::prelude::*;
use tokio::{net::TcpListener, time::timeout};

use super::*;
use crate::{
    ConnectOptions, MariaDb, Variant,
    columns::{Columns, number, text},
};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_secs(20);

fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
    let [first, second, third, ..] = payload.len().to_le_bytes();
    [&[first, second, third, number], payload].concat()
}

/// An answer to a request: its packets are numbered from 1 on.
fn answer(payloads: &[Vec<u8>]) -> Vec<u8> {
    (1..).zip(payloads).flat_map(|(number, payload)| packet(number, payload)).collect()
}

/// How a server describes columns and ends results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As versions before MySQL 5.7 and `MariaDB` 10.2.
    Old,
    /// A result ends by an OK.
    New,
    /// Besides, columns that are known are left out.
    Brief,
}

const MANNERS: [Manner; 3] = [Manner::Old, Manner::New, Manner::Brief];

impl Manner {
    fn greeting(self) -> Vec<u8> {
        let mut can = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH
            | CapabilityFlags::CLIENT_MULTI_RESULTS
            | CapabilityFlags::CLIENT_PS_MULTI_RESULTS;
        can.set(CapabilityFlags::CLIENT_DEPRECATE_EOF, self != Self::Old);
        let [first, second, third, fourth] = can.bits().to_le_bytes();
        let extended = if self == Self::Brief { 0x10_u32 } else { 0 };
        let fixed = [
            &[first, second][..],
            &[45],
            &2_u16.to_le_bytes(),
            &[third, fourth],
            &[21],
            &[0; 6],
            &extended.to_le_bytes(),
        ]
        .concat();
        let texts =
            [&b"\x0A11.8.0-MariaDB\0"[..], &[7, 0, 0, 0], b"saltsalt\0", &fixed, b"saltsaltsalt\0"].concat();
        packet(0, &[&texts[..], b"mysql_native_password\0"].concat())
    }

    fn eof(self) -> Option<Vec<u8>> {
        (self == Self::Old).then(|| vec![0xFE, 0, 0, 2, 0])
    }

    /// The end of a result.
    fn end(self, status: u16) -> Vec<u8> {
        let [low, high] = status.to_le_bytes();
        if self == Self::Old { vec![0xFE, 0, 0, low, high] } else { vec![0xFE, 0, 0, low, high, 0, 0] }
    }

    /// The description of a result's columns.
    fn columns(self, columns: &[Vec<u8>], are_described: bool) -> Vec<Vec<u8>> {
        let mut head = vec![u8::try_from(columns.len()).unwrap()];
        if self == Self::Brief {
            head.push(are_described.into());
        }
        let described = if are_described { columns } else { &[] };
        [vec![head], described.to_vec(), self.eof().into_iter().collect()].concat()
    }

    /// The answer to the preparation of a statement with one parameter.
    fn prepared(self, columns: &[Vec<u8>]) -> Vec<u8> {
        let count = u8::try_from(columns.len()).unwrap();
        let head = vec![0, 7, 0, 0, 0, count, 0, 1, 0, 0, 0, 0];
        let eof: Vec<Vec<u8>> = self.eof().into_iter().collect();
        let columns = if columns.is_empty() { Vec::new() } else { [columns.to_vec(), eof.clone()].concat() };
        answer(&[vec![head, column(ColumnType::MYSQL_TYPE_NULL, 0)], eof, columns].concat())
    }

    /// What a statement with a number and a text as its columns answers.
    fn answered(self, are_described: bool) -> Vec<u8> {
        answer(&[self.columns(&*COLUMNS, are_described), ROWS.to_vec(), vec![self.end(2)]].concat())
    }
}

/// The definition of a column of this type.
fn column(kind: ColumnType, flags: u16) -> Vec<u8> {
    let names = b"\x03def\x01d\x01t\x01t\x04name\x04name\x0C";
    let [low, high] = flags.to_le_bytes();
    [&names[..], &[45, 0, 0xFF, 0, 0, 0, kind as u8, low, high, 0, 0, 0]].concat()
}

fn row(nulls: u8, values: &[u8]) -> Vec<u8> {
    [&[0, nulls << 2][..], values].concat()
}

static COLUMNS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [column(ColumnType::MYSQL_TYPE_LONG, 0), column(ColumnType::MYSQL_TYPE_VAR_STRING, 0)]);

static ROWS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [row(0, b"\xF9\xFF\xFF\xFF\x05seven"), row(1, b"\x00")]);

fn ok(found: u8) -> Vec<u8> {
    vec![0, found, 0, 2, 0, 0, 0]
}

pub(crate) fn changed(found: u8) -> Vec<u8> {
    answer(&[ok(found)])
}

fn error(code: u16, state: &str) -> Vec<u8> {
    [&[0xFF][..], &code.to_le_bytes(), b"#", state.as_bytes(), b"this went wrong"].concat()
}

pub(crate) fn failed(code: u16, state: &str) -> Vec<u8> {
    answer(&[error(code, state)])
}

/// What a statement as text answers: these rows, of so many columns.
pub(crate) fn told(columns: usize, rows: &[&[&str]]) -> Vec<u8> {
    let columns = Manner::New.columns(&vec![column(ColumnType::MYSQL_TYPE_VAR_STRING, 0); columns], true);
    let value = |text: &&str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let rows = rows.iter().map(|row| row.iter().flat_map(value).collect()).collect();
    answer(&[columns, rows, vec![Manner::New.end(2)]].concat())
}

/// What lets a client in without a password.
fn welcome() -> Vec<u8> {
    packet(2, &ok(0))
}

/// Agrees that each statement is a transaction by itself.
fn agreed() -> Vec<u8> {
    changed(0)
}

/// Connects to a server that a test plays.
async fn connected(address: std::net::SocketAddr) -> Result<Connection, String> {
    let address = Address::parse(&format!("mariadb://ann:secret@{address}/db")).unwrap();
    ConnectOptions::new(&address).unwrap().connect().await.map_err(|error| error.to_string())
}

/// A server that lets its client in, prepares a statement with these columns, and says these things.
pub(crate) fn logged_in(manner: Manner, columns: &[Vec<u8>], sayings: &[Vec<u8>]) -> Played {
    Played::new(manner.greeting(), [&[welcome(), agreed(), manner.prepared(columns)], sayings].concat())
}

/// Runs a test on a connection to such a server.
fn with_statement<T>(played: Played, test: impl AsyncFnOnce(Connection, Statement) -> T) -> T {
    played.during(async |address| {
        let mut connection = connected(address).await.unwrap();
        let statement = connection.prepare("…").await.unwrap();
        test(connection, statement).await
    })
}

/// The same, with a statement that answers no rows.
fn with_write<T>(sayings: &[Vec<u8>], test: impl AsyncFnOnce(Connection, Statement) -> T) -> T {
    with_statement(logged_in(Manner::New, &[], sayings), test)
}

pub(crate) const ONE: [Value<'static>; 1] = [Value::Signed(1)];

/// Runs a prepared statement by itself.
async fn run(connection: &mut Connection, statement: Statement) -> Result<Rows<'_>, Error> {
    let mut pipeline = connection.pipeline()?;
    pipeline.run(statement, ONE)?;
    pipeline.answers().await.get(0).map_err(Clone::clone)
}

fn read(rows: Rows<'_>) -> Vec<(Option<i64>, String)> {
    rows.iter().map(|row| (number(&row, 0).ok(), text(&row, 1).to_owned())).collect()
}

static EXPECTED: LazyLock<Vec<(Option<i64>, String)>> =
    LazyLock::new(|| vec![(Some(-7), "seven".to_owned()), (None, String::new())]);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// However an answer is cut on its way.
    #[test]
    fn rows_are_read_where_they_have_arrived(
        cuts in prop::collection::vec(any::<u8>(), 0..12),
        manner in prop::sample::select(MANNERS.to_vec()),
    ) {
        let again = manner.answered(manner != Manner::Brief);
        let played = logged_in(manner, &*COLUMNS, &[manner.answered(true), again]).in_parts(cuts);
        let found = with_statement(played, async |mut connection, statement| {
            let first = read(run(&mut connection, statement).await.unwrap());
            let rows = run(&mut connection, statement).await.unwrap();
            assert_eq!(rows.len(), 2);
            assert_eq!(rows.first().unwrap().bytes_from(0).map(<[u8]>::len).collect::<Vec<_>>(), [0, 5]);
            (first, read(rows))
        });
        prop_assert_eq!(found, (EXPECTED.clone(), EXPECTED.clone()));
    }

    /// Any bytes may be changed, or missing at the end: that is an error, or an answer, and never the end of the client.
    #[test]
    fn what_is_garbled_ends_in_an_error_or_an_answer(
        changes in changes(0..4),
        manner in prop::sample::select(MANNERS.to_vec()),
        at in 0_usize..5,
    ) {
        let mut said =
            vec![manner.greeting(), welcome(), agreed(), manner.prepared(&*COLUMNS), manner.answered(true)];
        garble(&mut said[at], &changes);
        // whoever waits for more than was said is told by the connection's end
        said.truncate(at + 1);
        let greeting = said.remove(0);
        Played::new(greeting, said).during(async |address| {
            let Ok(mut connection) = connected(address).await else { return };
            let Ok(statement) = connection.prepare("…").await else { return };
            if let Ok(rows) = run(&mut connection, statement).await {
                for row in rows.iter() {
                    let _ = (row.whole(0), row.bytes(1), row.bytes_from(0).count());
                }
            }
        });
    }

    /// A login, too: what a server says first, and what it asks for, may be anything.
    #[test]
    fn a_garbled_login_ends_in_an_error(
        first in prop::option::of(prop::collection::vec(any::<u8>(), 0..80)),
        asked in prop::collection::vec((1_u8..0xFF, prop::collection::vec(any::<u8>(), 0..40)), 0..4),
    ) {
        let greeting = first.map_or_else(|| Manner::New.greeting(), |first| packet(0, &first));
        let asked = (1..).zip(&asked).map(|(at, (head, rest))| packet(2 * at, &[&[*head][..], rest].concat()));
        Played::new(greeting, asked.collect()).during(async |address| assert!(connected(address).await.is_err()));
    }
}

#[test]
fn rows_of_text_and_several_results_are_one_answer() {
    for manner in MANNERS {
        let texts = |status| {
            let rows = vec![b"\x02-7\x05seven".to_vec(), b"\xFB\x00".to_vec()];
            [manner.columns(&*COLUMNS, true), rows, vec![manner.end(status)]].concat()
        };
        // status 8: more results follow
        let said = answer(&[texts(8), texts(8), vec![vec![0, 3, 9, 2, 0, 0, 0]]].concat());
        with_statement(logged_in(manner, &[], &[said]), async |mut connection, _| {
            let rows = connection.query("…").await.unwrap();
            assert_eq!(read(rows), [EXPECTED.clone(), EXPECTED.clone()].concat());
            assert_eq!((rows.count(), rows.last_insert_id()), (3, Some(9)));
        });
    }
}

#[test]
fn rows_of_several_requests_are_told_apart() {
    for manner in MANNERS {
        let again = manner.answered(manner != Manner::Brief);
        let said = [manner.answered(true), failed(1213, "40001"), again].concat();
        with_statement(logged_in(manner, &*COLUMNS, &[said]), async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            for place in [0, 2] {
                assert_eq!(read(answers.get(place).unwrap()), *EXPECTED, "{place}");
            }
        });
    }
}

#[test]
fn numbers_have_their_sizes_and_signs() {
    let unsigned = 32;
    let columns = [
        column(ColumnType::MYSQL_TYPE_TINY, 0),
        column(ColumnType::MYSQL_TYPE_TINY, unsigned),
        column(ColumnType::MYSQL_TYPE_SHORT, 0),
        column(ColumnType::MYSQL_TYPE_INT24, 0),
        column(ColumnType::MYSQL_TYPE_LONGLONG, 0),
        column(ColumnType::MYSQL_TYPE_LONGLONG, unsigned),
        column(ColumnType::MYSQL_TYPE_NEWDECIMAL, 0),
        column(ColumnType::MYSQL_TYPE_DOUBLE, 0),
        column(ColumnType::MYSQL_TYPE_DATETIME, 0),
    ];
    let least = i64::MIN.to_le_bytes();
    let values = [
        &[0x80, 0x80, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF][..],
        &least,
        &[0xFF; 8],
        b"\x0219",
        &[0; 8],
        b"\x04\xE8\x07\x01\x02",
    ];
    let row = [&[0, 0, 0][..], &values.concat()].concat();
    let said = answer(&[Manner::New.columns(&columns, true), vec![row, Manner::New.end(2)]].concat());
    with_statement(logged_in(Manner::New, &columns, &[said]), async |mut connection, statement| {
        let row = run(&mut connection, statement).await.unwrap().first().unwrap();
        let found: Vec<_> = (0..10).map(|column| row.whole(column)).collect();
        let (least, most) = (Some(i64::MIN.into()), Some(u64::MAX.into()));
        let expected = [Some(-128), Some(128), Some(-2), Some(-1), least, most, Some(19), None, None, None];
        assert_eq!(found, expected);
        assert!(number::<i64>(&row, 5).is_err() && number::<u8>(&row, 0).is_err());
    });
}

#[test]
fn an_error_in_one_of_several_requests_is_its_own() {
    for place in 0..3 {
        let said: Vec<u8> =
            (0..3).flat_map(|at| if at == place { failed(1213, "40001") } else { changed(1) }).collect();
        with_write(&[said, changed(1)], async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            for at in 0..3 {
                let code =
                    answers.get(at).map(|rows| rows.count()).map_err(|error| error.answer().unwrap().code);
                assert_eq!(code, if at == place { Err(1213) } else { Ok(1) }, "{place}, {at}");
            }
            assert!(answers.get(3).is_err());
            assert_eq!(run(&mut connection, statement).await.map(|rows| rows.count()), Ok(1));
        });
    }
}

/// An error may come when rows have been sent already, and then they are no answer.
#[test]
fn an_error_behind_rows_is_the_answer() {
    for manner in MANNERS {
        let said =
            answer(&[manner.columns(&*COLUMNS, true), vec![ROWS[0].clone(), error(1317, "70100")]].concat());
        let sayings = [said, manner.answered(manner != Manner::Brief)];
        with_statement(logged_in(manner, &*COLUMNS, &sayings), async |mut connection, statement| {
            let code =
                run(&mut connection, statement).await.map(read).map_err(|error| error.answer().unwrap().code);
            assert_eq!(code, Err(1317));
            assert_eq!(read(run(&mut connection, statement).await.unwrap()), *EXPECTED);
        });
    }
}

/// The server ends the connection while it answers the second of three requests, as on a shutdown or a kill.
#[test]
fn what_the_server_s_end_leaves_open_is_told_from_what_it_has_answered() {
    let closed = "the server closed the connection";
    for (end, words) in [
        (Vec::new(), closed),
        (changed(1)[..6].to_vec(), closed),
        // not numbered as an answer to the request
        (packet(0, &error(1927, "70100")), "this went wrong (1927)"),
        (packet(3, &ok(1)), "the server's packets are out of order"),
    ] {
        with_write(&[[changed(1), end].concat()], async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            assert_eq!(answers.get(0).map(|rows| rows.count()), Ok(1));
            for place in 1..3 {
                assert_eq!(answers.get(place).map(|_| ()), Err(&Error::Lost(words.to_owned())));
            }
            assert_eq!(connection.check(), Err(Error::NotSent(words.to_owned())));
        });
    }
}

/// A server that reads nothing more takes what the network holds, and cannot have seen what comes behind.
#[test]
fn what_was_not_sent_is_told_from_what_was() {
    wait(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let played = tokio::spawn(logged_in(Manner::New, &[], &[]).on(listener));
        let mut connection = connected(address).await.unwrap();
        let statement = connection.prepare("…").await.unwrap();
        let stream = played.await.unwrap();
        let large = "x".repeat(64 << 20);
        let mut pipeline = connection.pipeline().unwrap();
        pipeline.query(&large).unwrap();
        pipeline.run(statement, ONE).unwrap();
        let closes = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(stream);
        };
        let (answers, ()) = tokio::join!(pipeline.answers(), closes);
        assert!(matches!(answers.get(0), Err(Error::Lost(_))), "{:?}", answers.get(0).map(|_| ()));
        assert!(matches!(answers.get(1), Err(Error::NotSent(_))), "{:?}", answers.get(1).map(|_| ()));
    });
}

#[test]
fn a_connection_that_has_ended_between_two_requests_sends_nothing() {
    for (last, words) in [
        (packet(0, &error(4031, "HY000")), "this went wrong (4031)"),
        (Vec::new(), "the server closed the connection"),
        (changed(1), "the server sent an unexpected answer"),
    ] {
        // what it says last comes together with the answer to the statement's preparation
        let sayings = vec![welcome(), agreed(), [Manner::New.prepared(&[]), last].concat()];
        with_statement(Played::new(Manner::New.greeting(), sayings), async |mut connection, statement| {
            let since = Instant::now();
            while connection.check().is_ok() && since.elapsed() < PATIENCE {
                tokio::task::yield_now().await;
            }
            let unsent = Error::NotSent(words.to_owned());
            assert_eq!(connection.query("…").await.map(|_| ()), Err(unsent.clone()));
            assert_eq!(run(&mut connection, statement).await.map(|_| ()), Err(unsent));
        });
    }
}

#[test]
fn a_request_that_was_given_up_ends_the_connection() {
    with_write(&[Vec::new(), changed(1)], async |mut connection, statement| {
        let unanswered = timeout(Duration::from_millis(20), connection.query("…")).await;
        assert!(unanswered.is_err());
        let unsent = Error::NotSent("an earlier request was given up".to_owned());
        assert_eq!(run(&mut connection, statement).await.map(|_| ()), Err(unsent));
    });
}

#[test]
fn values_that_do_not_fit_are_not_sent() {
    with_write(&[changed(1)], async |mut connection, statement| {
        for values in [&[][..], &[Value::Signed(1), Value::Unsigned(2)]] {
            let mut pipeline = connection.pipeline().unwrap();
            let error = pipeline.run(statement, values.iter().copied());
            assert_eq!(error, Err(Error::NotSent("values and parameters differ in number".to_owned())));
        }
        // nothing of them was left behind
        assert_eq!(run(&mut connection, statement).await.map(|rows| rows.count()), Ok(1));
    });
}

/// What only looks like a row must not pass for one, least of all for one that was stored torn.
#[test]
fn a_row_that_is_none_is_no_answer() {
    for none in [
        row(0, b"\x07\0\0\0\x06seven"),
        row(0, b"\x07\0\0\0\x04seven"),
        row(0, b"\x07\0\0\0"),
        row(0, b"\x07\0\0\0\xFBseven"),
        row(0, b"\x07\0\0\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFseven"),
        row(0, b""),
        vec![0],
        vec![1, 0, 7, 0, 0, 0, 0],
    ] {
        let manner = Manner::New;
        let said = answer(&[manner.columns(&*COLUMNS, true), vec![none.clone(), manner.end(2)]].concat());
        with_statement(logged_in(manner, &*COLUMNS, &[said]), async |mut connection, statement| {
            let answer = run(&mut connection, statement).await.map(|rows| rows.len());
            assert_eq!(answer, Err(Error::Lost("the server sent an invalid row".to_owned())), "{none:?}");
        });
    }
}

/// An answer whose packets are not those of an answer acknowledges nothing.
#[test]
fn an_answer_out_of_order_acknowledges_nothing() {
    let brief = |payloads: &[Vec<u8>]| (Manner::Brief, answer(payloads));
    for ((manner, said), words) in [
        ((Manner::New, answer(&[Vec::new()])), "the server's answer is not a result"),
        ((Manner::New, answer(&[vec![0, 1]])), "the end of the server's answer cannot be read"),
        ((Manner::New, answer(&[vec![0xFB, b'f']])), "the server asks for a file"),
        ((Manner::New, answer(&[vec![0xFF, 1]])), "the server's error cannot be read"),
        ((Manner::New, answer(&[vec![0xFC, 0, 0]])), "the server's answer is not a result"),
        ((Manner::New, answer(&[vec![2, 0]])), "the server's answer is not a result"),
        ((Manner::New, answer(&[vec![1], vec![3, 1]])), "the server described an invalid column"),
        (
            (Manner::Old, answer(&[vec![1], COLUMNS[0].clone(), ok(1)])),
            "the end of the server's answer cannot be read",
        ),
        (brief(&[vec![2]]), "the server's answer is not a result"),
        (brief(&[vec![3, 0]]), "the server leaves out columns that are not known"),
        ((Manner::New, packet(2, &ok(1))), "the server's packets are out of order"),
    ] {
        with_statement(logged_in(manner, &*COLUMNS, &[said]), async |mut connection, statement| {
            let answer = run(&mut connection, statement).await.map(|rows| rows.count());
            assert_eq!(answer, Err(Error::Lost(words.to_owned())));
            assert_eq!(connection.check(), Err(Error::NotSent(words.to_owned())));
        });
    }
}

/// Memory is not taken because a length is claimed, but only for what has come.
#[test]
fn a_claimed_length_takes_no_memory() {
    let claims = b"\xFF\xFF\xFF\x01\0".to_vec();
    with_write(&[claims], async |mut connection, statement| {
        let lost = Error::Lost("the server closed the connection".to_owned());
        assert_eq!(run(&mut connection, statement).await.map(|_| ()), Err(lost));
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
    });
}

/// A private server, and a connection to it.
fn on_real_server<T>(
    name: &str,
    variant: Variant,
    test: impl AsyncFnOnce(&MariaDb, Connection) -> T,
) -> Option<T> {
    let mut private = Private::start(name, Durability::None)?;
    let store = private.open(async |address| variant.open(address).await);
    Some(wait(async {
        let connection = store.connection().await.unwrap();
        test(&store, connection).await
    }))
}

const SERVERS: [(&str, Variant); 2] = [("mariadb", Variant::MARIADB), ("mysql", Variant::MYSQL)];

/// Connects as this user, and asks who that is.
async fn who(store: &MariaDb, user: &str, password: Option<&str>) -> Result<String, String> {
    let address = login(store.server.address(), user, password);
    let connected = ConnectOptions::new(&address).unwrap().connect().await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let rows = connection.query("SELECT CURRENT_USER()").await.map_err(|error| error.to_string())?;
    Ok(text(&rows.first().unwrap(), 0).to_owned())
}

#[test]
fn every_way_to_log_in_is_known() {
    for (name, variant) in SERVERS {
        on_real_server(name, variant, async |store, mut connection| {
            let long = "x".repeat(200);
            let (plugin, right) = if name == "mysql" {
                ("caching_sha2_password", long.as_str())
            } else {
                ("mysql_native_password", "right")
            };
            let by = if name == "mysql" {
                format!("{plugin} BY '{right}'")
            } else {
                format!("{plugin} USING PASSWORD('{right}')")
            };
            for sql in [
                format!("CREATE USER ann IDENTIFIED WITH {by}"),
                "CREATE USER open IDENTIFIED BY ''".to_owned(),
            ] {
                connection.query(&sql).await.unwrap();
            }
            // the first time the server does not know the password yet, the second time it does
            for _ in 0..2 {
                assert_eq!(who(store, "ann", Some(right)).await, Ok("ann@%".to_owned()), "{name}");
            }
            for wrong in [Some("wrong"), None] {
                let error = who(store, "ann", wrong).await.unwrap_err();
                assert!(
                    error.starts_with("Access denied for user 'ann'") && error.ends_with("(1045)"),
                    "{error}"
                );
            }
            assert_eq!(who(store, "open", None).await, Ok("open@%".to_owned()), "{name}");
            // along a Unix socket, where the server asks for a password that it does not know as it is
            connection.query(&format!("CREATE USER eve IDENTIFIED WITH {by}")).await.unwrap();
            let file = connection.query("SELECT CONCAT(@@datadir, @@socket)").await.unwrap().first().unwrap();
            let socket = Some(text(&file, 0).to_owned());
            let eve = Address { socket, ..login(store.server.address(), "eve", Some(right)) };
            for _ in 0..2 {
                ConnectOptions::new(&eve).unwrap().connect().await.unwrap();
            }
            let within = Address { path: "information_schema".to_owned(), ..store.server.address().clone() };
            let mut connection = ConnectOptions::new(&within).unwrap().connect().await.unwrap();
            let database = connection.query("SELECT DATABASE()").await.unwrap().first().unwrap();
            assert_eq!(text(&database, 0), "information_schema", "{name}");
            let error = who(store, "nobody", None).await.unwrap_err();
            // MySQL asks users that it does not have for a login by one of its ways, which is not always the same
            assert!(error.ends_with("(1045)") || error.contains("by sha256_password"), "{name}: {error}");
        });
    }
}

/// A server may give clients another default, and does so after their login.
#[test]
fn each_statement_is_a_transaction_whatever_the_server_s_default() {
    for (name, variant) in SERVERS {
        on_real_server(name, variant, async |store, mut connection| {
            connection.query("CREATE USER ann IDENTIFIED BY ''").await.unwrap();
            connection.query("SET GLOBAL init_connect = 'SET autocommit=0'").await.unwrap();
            let ann = login(store.server.address(), "ann", None);
            let mut connection = ConnectOptions::new(&ann).unwrap().connect().await.unwrap();
            let row = connection.query("SELECT @@autocommit").await.unwrap().first().unwrap();
            assert_eq!(row.whole(0), Some(1), "{name}");
        });
    }
}

/// What the client does not know is refused, with the name of what the server asks for.
#[test]
fn a_way_to_log_in_that_is_not_known_is_named() {
    on_real_server("mariadb", Variant::MARIADB, async |store, mut connection| {
        connection.query("INSTALL SONAME 'auth_ed25519'").await.unwrap();
        connection.query("CREATE USER eve IDENTIFIED VIA ed25519 USING PASSWORD('right')").await.unwrap();
        let refused = "the server asks for a login by client_ed25519, which is not supported";
        assert_eq!(who(store, "eve", Some("right")).await, Err(refused.to_owned()));
        // before the driver, which would end the program
        let eve = login(store.server.address(), "eve", Some("right"));
        let error = Variant::MARIADB.open(&eve).await.unwrap_err().to_string();
        assert!(error.contains(refused) && error.contains("log in by mysql_native_password"), "{error}");
    });
    // no server here asks for a password in clear text
    let asks = packet(2, b"\xFEmysql_clear_password\0");
    Played::new(Manner::New.greeting(), vec![asks, welcome()]).during(async |address| {
        let refused = "the server asks for a login by mysql_clear_password, which is not supported";
        assert_eq!(connected(address).await.map(|_| ()), Err(refused.to_owned()));
    });
}

/// Long requests and answers are split and put together again, and take no memory for good.
#[test]
fn requests_and_answers_of_a_hundred_megabytes_are_passed() {
    on_real_server("mariadb", Variant::MARIADB, async |store, mut connection| {
        connection.query("SET GLOBAL max_allowed_packet = 1 << 30").await.unwrap();
        // one that was opened before has the old limit
        let mut connection = store.connection().await.unwrap();
        connection.query("USE mysql").await.unwrap();
        let echo = connection.prepare("SELECT ?").await.unwrap();
        // of the first three a request fills a packet, or lacks a byte or has one more; of the next an answer does
        let full = 0xFF_FFFF;
        for length in [full - 19, full - 18, full - 17, full - 7, full - 6, full - 5, 100_000_000, 1] {
            let long: Vec<u8> = (b' '..b'~').cycle().take(length).collect();
            let mut pipeline = connection.pipeline().unwrap();
            pipeline.run(echo, [Value::Bytes(&long)]).unwrap();
            let row = pipeline.answers().await.get(0).unwrap().first().unwrap();
            assert!(row.bytes(0) == long, "{length}");
        }
        let many = "SELECT seq, REPEAT('y', 80) FROM seq_1_to_1000000";
        let rows = connection.query(many).await.unwrap();
        assert_eq!(rows.len(), 1_000_000);
        for (row, place) in rows.iter().zip(1_i64..) {
            assert_eq!((number(&row, 0), text(&row, 1).len()), (Ok(place), 80));
        }
        assert_eq!(connection.query("SELECT 1").await.unwrap().len(), 1);
        connection.query("DO 0").await.unwrap();
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
    });
}

/// A call answers its results one by one, and each may have other columns; what a statement has answered before says nothing
/// of the next time.
#[test]
fn calls_answer_all_their_results() {
    for (name, variant) in SERVERS {
        on_real_server(name, variant, async |_, mut connection| {
            for sql in [
                "CREATE DATABASE calls",
                "USE calls",
                "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(9))",
                "CREATE PROCEDURE p (IN wanted INT) BEGIN
                   SELECT wanted; SELECT 'two', wanted + 1; INSERT INTO t (word) VALUES ('x'), ('y');
                 END",
            ] {
                connection.query(sql).await.unwrap();
            }
            let call = connection.prepare("CALL p(?)").await.unwrap();
            let star = connection.prepare("SELECT * FROM t WHERE id > ?").await.unwrap();
            for _ in 0..3 {
                let rows = run(&mut connection, call).await.unwrap();
                let found: Vec<_> = rows.iter().map(|row| (row.whole(0), row.whole(1))).collect();
                assert_eq!(found, [(Some(1), None), (None, Some(2))], "{name}");
            }
            let columns = async |connection: &mut Connection| {
                run(connection, star).await.unwrap().first().unwrap().bytes_from(0).count()
            };
            assert_eq!(columns(&mut connection).await, 2, "{name}");
            connection.query("ALTER TABLE t ADD other INT DEFAULT 5").await.unwrap();
            // another connection's change of the table is seen, too
            for _ in 0..2 {
                assert_eq!(columns(&mut connection).await, 3, "{name}");
            }
            let inserted = connection.query("INSERT INTO t (word) VALUES ('x'), ('y')").await.unwrap();
            assert_eq!((inserted.count(), inserted.last_insert_id()), (2, Some(7)), "{name}");
        });
    }
}
