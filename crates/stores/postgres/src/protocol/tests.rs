//! The protocol against a server that the tests play: what a real one does once in a year, and what none should do.

use std::{
    fs,
    sync::LazyLock,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability};
use acidtest_testbed::{Played, Private, login, until, wait};
use acidtest_transport::Pipelined as _;
use proptest::prelude::*;
use tokio::{io::AsyncWriteExt, net::TcpListener, time::timeout};

use super::*;
use crate::{ConnectOptions, Postgres, Value};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

pub(crate) fn row(fields: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = u16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
    for field in fields {
        let length = field.map_or(-1, |field| i32::try_from(field.len()).unwrap());
        body.extend(length.to_be_bytes());
        body.extend(field.unwrap_or_default());
    }
    message(b'D', &body)
}

pub(crate) fn complete(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

pub(crate) fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

pub(crate) fn error(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mthis went wrong\0\0").as_bytes())
}

fn notice() -> Vec<u8> {
    message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mby the way\0\0")
}

/// What a commit that has not waited for its replicas is answered besides.
pub(crate) fn wait_cancelled(code: &str) -> Vec<u8> {
    warning("WARNING", code, "SyncRepWaitForLSN")
}

/// A notice of this severity, in a translation, from one of the server's functions.
fn warning(severity: &str, code: &str, routine: &str) -> Vec<u8> {
    let body = format!("SWARNUNG\0V{severity}\0C{code}\0Mbreche Warten ab\0Fsyncrep.c\0R{routine}\0\0");
    message(b'N', body.as_bytes())
}

/// The same as [`changed`], on the leader alone: a statement is completed before it is committed.
pub(crate) fn changed_alone(code: &str) -> Vec<u8> {
    [message(b'2', b""), complete("UPDATE 1"), wait_cancelled(code), ready()].concat()
}

fn parameter() -> Vec<u8> {
    message(b'S', b"TimeZone\0UTC\0")
}

/// What ends a login without a password.
pub(crate) fn welcome() -> Vec<u8> {
    [message(b'R', &0_u32.to_be_bytes()), parameter(), message(b'K', &[0; 8]), ready()].concat()
}

/// The answer to the preparation of a statement with a number as its parameter, and as many columns as there are types.
fn prepared(columns: &[u32]) -> Vec<u8> {
    prepared_for(INT8, columns)
}

/// The same, with a parameter of this type.
pub(crate) fn prepared_for(parameter: u32, columns: &[u32]) -> Vec<u8> {
    let mut described = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for kind in columns {
        described.extend(b"name\0\0\0\0\0\0\0");
        described.extend(kind.to_be_bytes());
        described.extend([0; 8]);
    }
    let parameters = [&[0, 1][..], &parameter.to_be_bytes()].concat();
    let columns = if columns.is_empty() { message(b'n', b"") } else { message(b'T', &described) };
    [message(b'1', b""), message(b't', &parameters), columns, ready()].concat()
}

pub(crate) const INT8: u32 = 20;
pub(crate) const BYTEA: u32 = 17;
const TEXT: u32 = 25;

/// What a statement with a number and a text as its columns answers.
fn answered() -> Vec<u8> {
    let rows = [row(&[Some(&7_i64.to_be_bytes()), Some(b"seven")]), row(&[None, Some(b"")])];
    [message(b'2', b""), rows.concat(), complete("SELECT 2"), ready()].concat()
}

/// Nothing of an answer but that the statement has changed a row.
pub(crate) fn changed() -> Vec<u8> {
    [message(b'2', b""), complete("UPDATE 1"), ready()].concat()
}

/// Runs a test on a connection to a server that says these things.
fn with_server<T>(played: Played, test: impl AsyncFnOnce(Result<Connection, String>) -> T) -> T {
    played.during(async |address| {
        let address = format!("postgres://ann:secret@{address}/db");
        let options = ConnectOptions::new(&Address::parse(&address).unwrap()).unwrap();
        test(options.connect().await.map_err(|error| error.to_string())).await
    })
}

/// A server that lets its client in, prepares a statement with these columns, and says these things.
fn logged_in(columns: &[u32], sayings: &[Vec<u8>]) -> Played {
    Played::new(Vec::new(), [&[welcome(), prepared(columns)], sayings].concat())
}

/// The same, on a connection that is logged in and has prepared a statement with these columns.
fn with_statement<T>(
    columns: &[u32],
    sayings: &[Vec<u8>],
    test: impl AsyncFnOnce(Connection, Statement) -> T,
) -> T {
    with_server(logged_in(columns, sayings), async |connection| {
        let mut connection = connection.unwrap();
        let statement = connection.prepare("…").await.unwrap();
        test(connection, statement).await
    })
}

fn read(rows: Rows<'_>) -> Vec<(Option<i64>, String)> {
    rows.into_iter().map(|row| (row.get(0).unwrap(), row.get::<&str>(1).unwrap().to_owned())).collect()
}

static EXPECTED: LazyLock<Vec<(Option<i64>, String)>> =
    LazyLock::new(|| vec![(Some(7), "seven".to_owned()), (None, String::new())]);

pub(crate) const ONE: [Value<'static>; 1] = [Value::Number(1)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// However an answer is cut on its way, and whatever is said besides.
    #[test]
    fn rows_are_read_where_they_have_arrived(
        cuts in prop::collection::vec(any::<u8>(), 0..12),
        asides in prop::collection::vec((0_usize..7, any::<bool>()), 0..4),
    ) {
        let parts = [message(b'2', b""), row(&[Some(&7_i64.to_be_bytes()), Some(b"seven")]), row(&[None, Some(b"")]),
            complete("SELECT 2"), ready()];
        let mut said = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            for (_, notices) in asides.iter().filter(|(at, _)| *at == place) {
                said.extend(if *notices { notice() } else { parameter() });
            }
            said.extend(part);
        }
        let played = logged_in(&[INT8, TEXT], &[said.clone(), said]).in_parts(cuts);
        let found = with_server(played, async |connection| {
            let mut connection = connection.unwrap();
            let statement = connection.prepare("…").await.unwrap();
            let first = read(connection.run(statement, ONE).await.unwrap());
            let rows = connection.run(statement, ONE).await.unwrap();
            assert_eq!((rows.count(), rows.len()), (2, 2));
            assert_eq!(rows.first().unwrap().raw_from(0).map(<[u8]>::len).collect::<Vec<_>>(), [8, 5]);
            (first, read(rows))
        });
        prop_assert_eq!(found, (EXPECTED.clone(), EXPECTED.clone()));
    }

    /// Any bytes may be changed, or missing at the end: that is an error, or an answer, and never the end of the client.
    #[test]
    fn what_is_garbled_ends_in_an_error_or_an_answer(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let garble = |mut said: Vec<u8>| {
            for (place, byte) in &changes {
                let place = place.index(said.len());
                said[place] = *byte;
            }
            if is_cut {
                said.truncate(length.index(said.len()));
            }
            said
        };
        let sayings = |at: usize| {
            let mut sayings = vec![welcome(), prepared(&[INT8, TEXT]), answered()];
            sayings[at] = garble(sayings[at].clone());
            // whoever waits for more than was said is told by the connection's end
            sayings.truncate(at + 1);
            sayings
        };
        for at in 0..3 {
            with_server(Played::new(Vec::new(), sayings(at)), async |connection| {
                let Ok(mut connection) = connection else { return };
                let Ok(statement) = connection.prepare("…").await else { return };
                if let Ok(rows) = connection.run(statement, ONE).await {
                    for row in rows {
                        let _ = (row.get::<Option<i64>>(0), row.get::<Option<&str>>(1), row.raw_from(0).count());
                    }
                }
            });
        }
    }

    /// A login, too: the first thing that a server says may be anything.
    #[test]
    fn a_garbled_login_ends_in_an_error(
        tag in prop::sample::select(b"RENSKZv".to_vec()),
        kind in prop_oneof![0_u32..14, any::<u32>()],
        rest in prop::collection::vec(any::<u8>(), 0..40),
        claimed in prop::option::of(any::<u32>()),
    ) {
        let body = [&kind.to_be_bytes()[..], &rest].concat();
        let mut said = message(tag, &body);
        if let Some(claimed) = claimed {
            said[1..5].copy_from_slice(&claimed.to_be_bytes());
        }
        with_server(Played::new(Vec::new(), vec![said]), async |connection| assert!(connection.is_err()));
    }
}

#[test]
fn an_error_in_one_of_several_requests_is_its_own() {
    for place in 0..3 {
        let said: Vec<u8> = (0..3)
            .flat_map(|at| if at == place { [error("ERROR", "40001"), ready()].concat() } else { changed() })
            .collect();
        with_statement(&[], &[said, changed()], async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            for (at, answer) in answers.iter().enumerate() {
                let code =
                    answer.map(|rows| rows.count()).map_err(|error| error.answer().unwrap().code.clone());
                let expected = if at == place { Err("40001".to_owned()) } else { Ok(1) };
                assert_eq!(code.map_err(|code| code.code().to_owned()), expected, "{place}, {at}");
            }
            assert_eq!(connection.run(statement, ONE).await.map(|rows| rows.count()), Ok(1));
        });
    }
}

/// A warning stands before the end of a command, as of COMMIT, and behind that of a statement, and is that request's alone.
#[test]
fn a_commit_that_has_not_waited_for_its_replicas_is_no_success() {
    let before = [message(b'2', b""), wait_cancelled("01000"), complete("UPDATE 1"), ready()].concat();
    for alone in [before, changed_alone("01000"), changed_alone("57P01")] {
        let said = [changed(), alone.clone(), changed()].concat();
        with_statement(&[], &[said, alone, changed()], async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            let counts = [0, 2].map(|at| answers.get(at).map(|rows| rows.count()));
            assert_eq!(counts, [Ok(1), Ok(1)]);
            assert!(answers.get(1).unwrap_err().answer().unwrap().committed_alone);
            connection.add(statement, ONE);
            let mut added = Vec::new();
            connection.answered(|answer| added.push(answer)).await;
            assert!(
                matches!(&added[..], [Err(Error::Answered(answer))] if answer.committed_alone),
                "{added:?}"
            );
            assert_eq!(connection.run(statement, ONE).await.map(|rows| rows.count()), Ok(1));
        });
    }
}

/// The warning is told from others in any language, and from what only has its words.
#[test]
fn other_warnings_take_nothing_back() {
    for aside in [
        warning("NOTICE", "01000", "SyncRepWaitForLSN"),
        warning("WARNING", "01000", "exec_stmt_raise"),
        warning("WARNING", "57P01", ""),
        message(b'N', b"SWARNING\0VWARNING\0C01000\0MSyncRepWaitForLSN\0\0"),
    ] {
        let said = [message(b'2', b""), aside.clone(), complete("UPDATE 1"), aside, ready()].concat();
        with_statement(&[], &[said], async |mut connection, statement| {
            assert_eq!(connection.run(statement, ONE).await.map(|rows| rows.count()), Ok(1));
        });
    }
}

/// The server ends the connection while it answers the second of three requests, as on a shutdown or a kill.
#[test]
fn what_the_server_s_end_leaves_open_is_told_from_what_it_has_answered() {
    let ends = [
        ("57P01", [message(b'2', b""), error("FATAL", "57P01")].concat()),
        ("", message(b'2', b"")),
        ("", message(b'D', &[0, 2])[..6].to_vec()),
        ("", [message(b'2', b""), complete("UPDATE 1")].concat()),
    ];
    for (code, end) in ends {
        let said = [changed(), end].concat();
        with_statement(&[], &[said], async |mut connection, statement| {
            let mut pipeline = connection.pipeline().unwrap();
            (0..3).for_each(|_| pipeline.run(statement, ONE).unwrap());
            let answers = pipeline.answers().await;
            assert_eq!(answers.get(0).map(|rows| rows.count()), Ok(1));
            match (code, answers.get(1).unwrap_err()) {
                ("", Error::Lost(words)) => assert_eq!(words, "the server closed the connection"),
                (code, Error::Answered(answer)) => {
                    assert!(answer.ends_connection);
                    assert_eq!(answer.code.code(), code);
                }
                (_, other) => panic!("{other:?}"),
            }
            assert!(matches!(answers.get(2), Err(Error::Lost(words)) if !words.is_empty()));
            assert!(matches!(connection.run(statement, ONE).await, Err(Error::NotSent(_))));
        });
    }
}

/// A server that reads nothing more takes what the network holds, and cannot have seen what comes behind.
#[test]
fn what_was_not_sent_is_told_from_what_was() {
    wait(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address =
            Address::parse(&format!("postgres://ann@{}/db", listener.local_addr().unwrap())).unwrap();
        let played = tokio::spawn(logged_in(&[], &[]).on(listener));
        let mut connection = ConnectOptions::new(&address).unwrap().connect().await.unwrap();
        let statement = connection.prepare("…").await.unwrap();
        let stream = played.await.unwrap();
        let large = "x".repeat(64 << 20);
        let mut pipeline = connection.pipeline().unwrap();
        pipeline.command(&large).unwrap();
        pipeline.run(statement, ONE).unwrap();
        let closes = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(stream);
        };
        let (answers, ()) = tokio::join!(pipeline.answers(), closes);
        assert!(matches!(answers.get(0), Err(Error::Lost(_))), "{:?}", answers.get(0));
        assert!(matches!(answers.get(1), Err(Error::NotSent(_))), "{:?}", answers.get(1));
    });
}

#[test]
fn a_connection_that_has_ended_between_two_requests_sends_nothing() {
    for (last, words) in [
        (error("FATAL", "57P01"), "this went wrong (57P01)"),
        (Vec::new(), "the server closed the connection"),
        (changed(), "the server sent an unexpected answer (message 2)"),
    ] {
        // what it says last comes together with the answer to the statement's preparation
        let sayings = vec![welcome(), [prepared(&[]), last].concat()];
        with_server(Played::new(Vec::new(), sayings), async |connection| {
            let mut connection = connection.unwrap();
            let statement = connection.prepare("…").await.unwrap();
            let since = Instant::now();
            while connection.check().is_ok() && since.elapsed() < PATIENCE {
                tokio::task::yield_now().await;
            }
            let unsent = Error::NotSent(words.to_owned());
            assert_eq!(connection.run(statement, ONE).await.map(|_| ()), Err(unsent.clone()));
            assert_eq!(connection.pipeline().map(|_| ()), Err(unsent.clone()));
            connection.add(statement, ONE);
            let mut answers = Vec::new();
            connection.answered(|answer| answers.push(answer)).await;
            assert_eq!(answers, [Err(unsent)]);
        });
    }
}

/// What the server says before a request was sent does not answer it, whatever it is.
#[test]
fn what_was_added_and_not_sent_is_not_answered() {
    for (last, words) in [
        (error("FATAL", "57P01"), "this went wrong (57P01)"),
        (changed(), "the server sent an unexpected answer (message 2)"),
    ] {
        wait(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address =
                Address::parse(&format!("postgres://ann@{}/db", listener.local_addr().unwrap())).unwrap();
            let played = tokio::spawn(logged_in(&[], &[]).on(listener));
            let mut connection = ConnectOptions::new(&address).unwrap().connect().await.unwrap();
            let statement = connection.prepare("…").await.unwrap();
            let mut stream = played.await.unwrap();
            connection.add(statement, ONE);
            stream.write_all(&last).await.unwrap();
            while connection.check().is_ok() {
                tokio::task::yield_now().await;
            }
            let mut answers = Vec::new();
            connection.answered(|answer| answers.push(answer)).await;
            assert_eq!(answers, [Err(Error::NotSent(words.to_owned()))]);
        });
    }
}

#[test]
fn a_request_that_was_given_up_ends_the_connection() {
    with_statement(&[], &[Vec::new(), changed()], async |mut connection, statement| {
        let unanswered = timeout(Duration::from_millis(20), connection.run(statement, ONE)).await;
        assert!(unanswered.is_err());
        let unsent = Error::NotSent("an earlier request was given up".to_owned());
        assert_eq!(connection.run(statement, ONE).await.map(|_| ()), Err(unsent));
    });
}

/// What was waited for by somebody else must not pass for an answer to them: an earlier answer least of all.
#[test]
fn requests_that_were_added_have_answers_of_their_own() {
    let sayings = [[changed(), changed()].concat(), changed(), [error("ERROR", "23505"), ready()].concat()];
    with_statement(&[], &sayings, async |mut connection, statement| {
        let mut answers = Vec::new();
        connection.answered(|answer| answers.push(answer)).await;
        assert_eq!(answers, []);
        connection.add(statement, ONE);
        connection.add(statement, ONE);
        while answers.len() < 2 {
            connection.answered(|answer| answers.push(answer)).await;
        }
        assert_eq!(answers, [Ok(1), Ok(1)]);
        // one that is waited for by itself, and then one more
        assert!(connection.run(statement, ONE).await.is_ok());
        connection.add(statement, ONE);
        answers.clear();
        connection.answered(|answer| answers.push(answer)).await;
        assert!(matches!(&answers[..], [Err(Error::Answered(answer))] if answer.code.code() == "23505"));
    });
}

/// What waits for answers may be dropped, and goes on later.
#[test]
fn waiting_for_requests_that_were_added_may_be_given_up() {
    let sayings = [Vec::new(), [changed(), changed()].concat()];
    with_statement(&[], &sayings, async |mut connection, statement| {
        connection.add(statement, ONE);
        let waited = timeout(Duration::from_millis(20), connection.answered(|_| ())).await;
        assert!(waited.is_err());
        connection.add(statement, ONE);
        let mut answers = Vec::new();
        while answers.len() < 2 {
            connection.answered(|answer| answers.push(answer)).await;
        }
        assert_eq!(answers, [Ok(1), Ok(1)]);
    });
}

#[test]
fn values_that_do_not_fit_are_not_sent() {
    with_statement(&[], &[changed()], async |mut connection, statement| {
        for (values, words) in [
            (&[Value::Text("7")][..], "Text(\"7\") for a parameter of the type int8"),
            (&[Value::Number(1), Value::Number(2)][..], "there are more values than parameters"),
        ] {
            let error = connection.run(statement, values.iter().copied()).await.map(|_| ());
            assert_eq!(error, Err(Error::NotSent(words.to_owned())));
        }
        // nothing of them was left behind
        assert_eq!(connection.run(statement, ONE).await.map(|rows| rows.count()), Ok(1));
    });
}

/// What only looks like a row must not pass for one, least of all for one that was stored torn.
#[test]
fn a_row_that_is_none_is_no_answer() {
    let number = 7_i64.to_be_bytes();
    let mut long = row(&[Some(&number), Some(b"seven")]);
    long[4] += 1;
    long.push(0);
    let mut beyond = row(&[Some(&number), Some(b"seven")]);
    *beyond.iter_mut().rfind(|byte| **byte == 5).unwrap() = 6;
    let mut negative = row(&[Some(&number), None]);
    let last = negative.len() - 1;
    negative[last] = 0xFE;
    for none in [row(&[Some(&number)]), row(&[None; 3]), long, beyond, negative, message(b'D', b"")] {
        let said = [message(b'2', b""), none, complete("SELECT 1"), ready()].concat();
        with_statement(&[INT8, TEXT], &[said], async |mut connection, statement| {
            let answer = connection.run(statement, ONE).await.map(|rows| rows.len());
            assert_eq!(answer, Err(Error::Lost("the server sent an invalid row".to_owned())));
        });
    }
}

/// An answer whose end is missing, or that goes on behind its end, acknowledges nothing.
#[test]
fn an_answer_out_of_order_acknowledges_nothing() {
    for (said, words) in [
        ([message(b'2', b""), ready()].concat(), "the server's answer lacks its end"),
        (
            [message(b'2', b""), complete("UPDATE 1"), complete("UPDATE 1"), ready()].concat(),
            "the server's answer is unexpected here (message C)",
        ),
        (
            [message(b'2', b""), complete("SELECT 1"), row(&[]), ready()].concat(),
            "the server's answer is unexpected here (message D)",
        ),
        (
            [error("ERROR", "40001"), complete("UPDATE 1"), ready()].concat(),
            "the server continues after an error (message C)",
        ),
        (message(b'G', &[0, 0, 0]), "the server's answer is unexpected here (message G)"),
        (message(b's', b""), "the server's answer is unexpected here (message s)"),
    ] {
        with_statement(&[], &[said], async |mut connection, statement| {
            let answer = connection.run(statement, ONE).await.map(|rows| rows.count());
            let is_error = matches!(&answer, Err(Error::Answered(answer)) if answer.code.code() == "40001");
            assert!(is_error || answer == Err(Error::Lost(words.to_owned())), "{words}: {answer:?}");
            assert_eq!(connection.check(), Err(Error::NotSent(words.to_owned())));
        });
    }
}

/// Memory is not taken because a length is claimed, but only for what has come.
#[test]
fn a_claimed_length_takes_no_memory() {
    let claims = [&b"D\x7f\xff\xff\xff"[..], b"\0\0"].concat();
    with_statement(&[INT8], &[claims], async |mut connection, statement| {
        let lost = Error::Lost("the server closed the connection".to_owned());
        assert_eq!(connection.run(statement, ONE).await.map(|_| ()), Err(lost));
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
    });
}

/// A private server, and a connection to it.
fn on_real_server<T>(test: impl AsyncFnOnce(&Postgres, Connection) -> T) -> Option<T> {
    let mut private = Private::start("postgres", Durability::None)?;
    let store = private.open(Postgres::open);
    Some(wait(async {
        let connection = store.connection().await.unwrap();
        test(&store, connection).await
    }))
}

#[test]
fn every_way_to_log_in_is_known() {
    let Some(mut private) = Private::start("postgres", Durability::None) else { return };
    let store = private.open(Postgres::open);
    let hba = private.folder().join("data/pg_hba.conf");
    let rules = fs::read_to_string(&hba).unwrap();
    let ways = [
        ("scram", "scram-sha-256"),
        ("md5", "md5"),
        ("clear", "password"),
        ("trusted", "trust"),
        ("shut", "reject"),
    ];
    let ours = ways.map(|(user, way)| format!("host all {user} 127.0.0.1/32 {way}\n")).concat();
    fs::write(&hba, ours + &rules).unwrap();
    let make = "SET password_encryption = 'md5'; CREATE ROLE md5 LOGIN PASSWORD 'right';
                SET password_encryption = 'scram-sha-256'; CREATE ROLE scram LOGIN PASSWORD 'right';
                CREATE ROLE clear LOGIN PASSWORD 'right'; CREATE ROLE trusted LOGIN; CREATE ROLE shut LOGIN;
                SELECT pg_reload_conf()";
    wait(store.on_server("making users", async |client| client.batch_execute(make).await)).unwrap();
    let connect = |user: &str, password: Option<&str>| {
        let address = login(store.address(), user, password);
        wait(async {
            let mut connection =
                ConnectOptions::new(&address).unwrap().connect().await.map_err(|error| error.to_string())?;
            let name = connection.prepare("SELECT current_user::text").await.unwrap();
            Ok(connection.run(name, []).await.unwrap().first().unwrap().get::<&str>(0).unwrap().to_owned())
        })
    };
    until("the server refuses a user", Duration::from_mins(2), || connect("shut", None).is_err());
    for user in ["scram", "md5", "clear"] {
        assert_eq!(connect(user, Some("right")), Ok(user.to_owned()));
        let wrong: Result<_, String> = connect(user, Some("wrong"));
        assert_eq!(wrong, Err(format!("password authentication failed for user \"{user}\" (28P01)")));
        assert_eq!(connect(user, None), Err("password missing".to_owned()));
    }
    for password in [None, Some("any")] {
        assert_eq!(connect("trusted", password), Ok("trusted".to_owned()));
    }
    assert!(connect("shut", None).unwrap_err().contains("pg_hba.conf rejects connection"));
    assert!(connect("nobody", None).unwrap_err().contains("does not exist"));
}

/// Long answers come whole, and take no memory for good.
#[test]
fn answers_of_a_hundred_megabytes_are_read() {
    on_real_server(async |_, mut connection| {
        const LONG: i64 = 100_000_000;
        let one = connection.prepare("SELECT repeat('x', $1::int), 1::bigint").await.unwrap();
        let rows = connection.run(one, [Value::Number(LONG)]).await.unwrap();
        let row = rows.first().unwrap();
        let text: &[u8] = row.raw_from(0).next().unwrap();
        assert_eq!((text.len(), row.get::<i64>(1)), (100_000_000, Ok(1)));
        assert!(text.iter().all(|letter| *letter == b'x'));

        let many = connection
            .prepare("SELECT n, repeat('y', 80) FROM generate_series(1::bigint, $1) AS n")
            .await
            .unwrap();
        let rows = connection.run(many, [Value::Number(1_000_000)]).await.unwrap();
        assert_eq!(rows.len(), 1_000_000);
        for (row, number) in rows.into_iter().zip(1_i64..) {
            assert_eq!((row.get(0), row.get::<&str>(1).map(str::len)), (Ok(number), Ok(80)));
        }
        let small = connection.run(many, [Value::Number(1)]).await.unwrap();
        assert_eq!(small.len(), 1);
        assert!(connection.wire.room() < 4 << 20, "{}", connection.wire.room());
        assert!(connection.fields.capacity() < 1 << 20, "{}", connection.fields.capacity());
    });
}

#[test]
fn a_transaction_that_failed_is_not_committed_though_its_commit_is_answered() {
    on_real_server(async |_, mut connection| {
        let divide = connection.prepare("SELECT 1 / $1::bigint").await.unwrap();
        for (divisor, is_committed) in [(1, true), (0, false)] {
            let mut pipeline = connection.pipeline().unwrap();
            pipeline.command("BEGIN").unwrap();
            pipeline.run(divide, [Value::Number(divisor)]).unwrap();
            pipeline.run(divide, [Value::Number(1)]).unwrap();
            pipeline.command("COMMIT").unwrap();
            let answers = pipeline.answers().await;
            let codes: Vec<_> = answers
                .iter()
                .map(|answer| answer.err().map(|error| error.answer().unwrap().code.code().to_owned()))
                .collect();
            let failed = [None, Some("22012".to_owned()), Some("25P02".to_owned()), None];
            assert_eq!(codes, if is_committed { [const { None }; 4] } else { failed });
            let ended = if is_committed { Ended::Committed } else { Ended::RolledBack };
            assert_eq!(answers.get(3).map(|rows| rows.ended()), Ok(ended));
            // a session says so, whoever looks at nothing else
            assert_eq!(crate::session::committed(answers.get(3)).is_ok(), is_committed);
        }
    });
}

#[test]
fn what_a_server_says_besides_is_no_answer() {
    on_real_server(async |_, mut connection| {
        connection.command("LISTEN something").await.unwrap();
        let sql =
            "DO $$ BEGIN RAISE NOTICE 'by the way'; END $$; SET TimeZone = 'Asia/Tokyo'; NOTIFY something";
        connection.command(sql).await.unwrap();
        let loud = "CREATE FUNCTION pg_temp.loud() RETURNS bigint LANGUAGE plpgsql AS
                    $$ BEGIN RAISE WARNING 'loud'; PERFORM set_config('TimeZone', 'UTC', false); RETURN 5; END $$";
        connection.command(loud).await.unwrap();
        let loud = connection.prepare("SELECT pg_temp.loud() FROM generate_series(1, 3)").await.unwrap();
        let rows = connection.run(loud, []).await.unwrap();
        assert_eq!(rows.into_iter().map(|row| row.get(0)).collect::<Vec<_>>(), [const { Ok(5_i64) }; 3]);
        assert_eq!(rows.first().unwrap().get::<i32>(0), Err("column 0 is of the type int8".to_owned()));
        assert_eq!(rows.first().unwrap().get::<i64>(1), Err("there is no column 1".to_owned()));
    });
}
