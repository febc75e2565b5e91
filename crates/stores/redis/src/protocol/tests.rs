//! The protocol against a server that the tests play: what a real one does once in a year, and what none should do.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, Durability, Secret};
use acidtest_testbed::{Played, Private, changes, garble, wait};
use proptest::prelude::*;
use redis::{Cmd, Value, cmd, parse_redis_value, pipe};
use tokio::{net::TcpListener, time::timeout};

use super::{
    reply::{Arrival, Arriving},
    *,
};
use crate::{
    KIND, Redis,
    made_up::{array, bulk},
    server::{ConnectOptions, Request},
    session::{Script, Session},
};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_secs(20);

const CLOSED: &str = "the server closed the connection";
const NO_RESP: &str = "the server's answer is not RESP";

async fn connected(address: SocketAddr) -> Result<Connection, String> {
    let address = Address::parse(&format!("redis://{address}")).unwrap();
    let options = ConnectOptions::new(&address, KIND.default_port).unwrap();
    options.connect().await.map_err(|error| error.to_string())
}

/// A server that lets its client in, and says these things.
fn logged_in(sayings: &[&[u8]]) -> Played {
    let sayings = [&b"+PONG\r\n"[..]].into_iter().chain(sayings.iter().copied()).map(<[u8]>::to_vec);
    Played::new(Vec::new(), sayings.collect())
}

/// Runs a test on a connection to such a server.
fn with<T>(sayings: &[&[u8]], test: impl AsyncFnOnce(Connection) -> T) -> T {
    logged_in(sayings).during(async |address| test(connected(address).await.unwrap()).await)
}

fn get() -> Cmd {
    let mut get = cmd("GET");
    get.arg("a");
    get
}

/// What has become of three commands that were sent at once.
async fn three(connection: &mut Connection) -> Vec<Result<String, Error>> {
    let mut batch = connection.batch().unwrap();
    (0..3).for_each(|_| batch.push(&get()).unwrap());
    batch.answers().await.map(|answer| answer.and_then(Reply::string)).collect()
}

/// The driver's value of an answer.
fn value(reply: Reply<'_>) -> Value {
    match reply {
        Reply::Nil => Value::Nil,
        Reply::Integer(number) => Value::Int(number),
        Reply::Status(b"OK") => Value::Okay,
        Reply::Status(word) => Value::SimpleString(String::from_utf8(word.to_vec()).unwrap()),
        Reply::Text(text) => Value::BulkString(text.to_vec()),
        Reply::Error(words) => parse_redis_value(&[b"-", words, b"\r\n"].concat()).unwrap(),
        Reply::Array(values) => Value::Array(values.map(value).collect()),
    }
}

/// The answers in bytes that arrive in pieces of these lengths, used over and over, and whether all were well formed.
fn answers(bytes: &[u8], lengths: &[usize]) -> (Vec<Vec<u8>>, bool) {
    let (mut found, mut from, mut to, mut arriving) = (Vec::new(), 0, 0, Arriving::default());
    for length in lengths.iter().cycle() {
        loop {
            match arriving.take(&bytes[from..to]) {
                Ok(Arrival::Whole(length)) => {
                    found.push(bytes[from..from + length].to_vec());
                    from += length;
                }
                Ok(Arrival::Missing(missing)) => {
                    assert!(missing > 0);
                    break;
                }
                Err(_) => return (found, false),
            }
        }
        if to == bytes.len() {
            break;
        }
        to = bytes.len().min(to.saturating_add(*length));
    }
    (found, true)
}

fn said() -> impl Strategy<Value = Vec<u8>> {
    let line = |text: String| format!("{text}\r\n").into_bytes();
    let leaf = prop_oneof![
        "\\+[A-Z]{0,9}".prop_map(line),
        "-[A-Z]{1,9} [a-zé ]{0,20}".prop_map(line),
        any::<i64>().prop_map(move |number| line(format!(":{number}"))),
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|text| bulk(&text)),
        "[$*:\r\n0-9-]{0,20}".prop_map(|text| bulk(text.as_bytes())),
    ];
    leaf.prop_recursive(4, 40, 6, |each| prop::collection::vec(each, 0..6).prop_map(|each| array(&each)))
}

proptest! {
    /// However the bytes are cut, the answers are the same, and they are what the driver reads.
    #[test]
    fn answers_do_not_depend_on_how_they_arrive(
        said in prop::collection::vec(said(), 0..9),
        changes in changes(0..4),
        lengths in prop::collection::vec(1_usize..40, 1..6),
    ) {
        let mut bytes = said.concat();
        garble(&mut bytes, &changes);
        let (found, are_well_formed) = answers(&bytes, &[usize::MAX]);
        if changes.is_empty() {
            prop_assert_eq!((&found, are_well_formed), (&said, true));
        }
        for answer in &found {
            let (reply, _) = Reply::first(answer).unwrap();
            // the driver reads words that are no UTF-8 as none
            if let Ok(expected) = parse_redis_value(answer) {
                prop_assert_eq!(value(reply), expected);
            }
        }
        prop_assert_eq!(&answers(&bytes, &lengths), &(found.clone(), are_well_formed));
        prop_assert_eq!(answers(&bytes, &[1]), (found, are_well_formed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Any bytes may be changed, or missing at the end, also at the login: that is an error, or an answer.
    #[test]
    fn what_is_garbled_ends_in_an_error_or_an_answer(
        said in said(),
        changes in changes(0..4),
        cuts in prop::collection::vec(any::<u8>(), 0..6),
        at in 0_usize..2,
    ) {
        let mut sayings = vec![b"+PONG\r\n".to_vec(), said];
        garble(&mut sayings[at], &changes);
        // whoever waits for more than was said is told by the connection's end
        sayings.truncate(at + 1);
        Played::new(Vec::new(), sayings).in_parts(cuts).during(async |address| {
            let Ok(mut connection) = connected(address).await else { return };
            if let Ok(Reply::Array(values)) = connection.ask(&get()).await {
                values.for_each(drop);
            }
        });
    }
}

#[test]
fn what_is_no_answer_is_refused_without_waiting_for_more() {
    let longest = [&b"+"[..], &b"x".repeat(64 * 1024), b"\r\n"].concat();
    for garbled in [
        &b"\r\n"[..],
        b"x\r\n",
        b"$x\r\n",
        b"$-2\r\n",
        b"$536870913\r\n",
        b"$18446744073709551615\r\n",
        b"*2\r\n*18446744073709551615\r\n",
        b":\r\n",
        b":9223372036854775808\r\n",
        b":000000000000000000000000",
        b"$2\r\nabcd",
        b"+OK\rx",
        &longest,
        &longest[..=64 * 1024],
    ] {
        assert_eq!(answers(garbled, &[1_000]), (Vec::new(), false), "{}", String::from_utf8_lossy(garbled));
    }
    let lowest = format!(":{}\r\n", i64::MIN);
    assert_eq!(Reply::whole(lowest.as_bytes()), Reply::Integer(i64::MIN));
}

/// However deep arrays are in each other, and however many values are promised, no more is kept than has come.
#[test]
fn arrays_in_arrays_do_not_exhaust_the_client() {
    let deep = [&b"*1\r\n".repeat(1_000_000)[..], b":7\r\n"].concat();
    assert_eq!(answers(&deep, &[65_536]), (vec![deep.clone()], true));
    assert_eq!(
        Reply::whole(&deep).array().unwrap().map(|each| each.array().is_ok()).collect::<Vec<_>>(),
        [true]
    );
    with(&[b"*9223372036854775807\r\n:1\r\n"], async |mut connection| {
        assert_eq!(connection.ask(&get()).await, Err(Error::Lost(CLOSED.to_owned())));
    });
}

#[test]
fn an_error_in_one_of_several_commands_is_its_own() {
    for place in 0..3 {
        let said: Vec<&[u8]> =
            (0..3).map(|at| if at == place { &b"-OOM no\r\n"[..] } else { b"$1\r\nb\r\n" }).collect();
        with(&[&said.concat(), b"$1\r\nc\r\n"], async |mut connection| {
            for (at, answer) in three(&mut connection).await.into_iter().enumerate() {
                let expected = if at == place { Err("OOM".to_owned()) } else { Ok("b".to_owned()) };
                let answer = answer.map_err(|error| error.answer().unwrap().code().to_owned());
                assert_eq!(answer, expected, "{place}, {at}");
            }
            assert_eq!(connection.ask(&get()).await, Ok(Reply::Text(b"c")));
        });
    }
}

/// The server ends the connection while it answers the second of three commands, as on a shutdown or a kill.
#[test]
fn what_the_server_s_end_leaves_open_is_told_from_what_it_has_answered() {
    for (end, words) in [(&b""[..], CLOSED), (b"$1", CLOSED), (b"$3\r\nbc", CLOSED), (b"$1\r\nbcd", NO_RESP)]
    {
        with(&[&[b"$1\r\nb\r\n", end].concat()], async |mut connection| {
            let lost = || Err(Error::Lost(words.to_owned()));
            assert_eq!(three(&mut connection).await, [Ok("b".to_owned()), lost(), lost()]);
            assert_eq!(connection.ask(&get()).await, Err(Error::NotSent(words.to_owned())));
        });
    }
}

/// A server that reads nothing more takes what the network holds, and cannot have seen what comes behind.
#[test]
fn what_was_not_sent_is_told_from_what_was() {
    wait(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let played = tokio::spawn(logged_in(&[]).on(listener));
        let mut connection = connected(address).await.unwrap();
        let stream = played.await.unwrap();
        let mut large = cmd("SET");
        large.arg("a").arg("x".repeat(64 << 20));
        let mut batch = connection.batch().unwrap();
        batch.push(&large).unwrap();
        batch.push(&get()).unwrap();
        let closes = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(stream);
        };
        let (mut answers, ()) = tokio::join!(batch.answers(), closes);
        assert!(matches!(answers.next(), Some(Err(Error::Lost(_)))));
        assert!(matches!(answers.next(), Some(Err(Error::NotSent(_)))));
    });
}

#[test]
fn a_connection_that_has_ended_between_two_commands_sends_nothing() {
    for (last, words) in [
        (&b"-ERR go away\r\n"[..], "ERR go away"),
        (b"", CLOSED),
        (b"+OK\r\n", "the server sent an unexpected answer"),
        (b"?", NO_RESP),
    ] {
        // what it says last comes together with the answer to an earlier command
        with(&[&[b"$1\r\nb\r\n", last].concat()], async |mut connection| {
            assert_eq!(connection.ask(&get()).await, Ok(Reply::Text(b"b")));
            let since = Instant::now();
            while connection.batch().is_ok() && since.elapsed() < PATIENCE {
                tokio::task::yield_now().await;
            }
            assert_eq!(connection.ask(&get()).await, Err(Error::NotSent(words.to_owned())));
            assert_eq!(connection.push(&get()), Err(Error::NotSent(words.to_owned())));
        });
    }
}

#[test]
fn nothing_is_answered_by_what_was_said_before_it_was_sent() {
    let welcome = vec![b"+PONG\r\n$1\r\nb\r\n".to_vec(), Vec::new()];
    Played::new(Vec::new(), welcome).during(async |address| {
        let mut connection = connected(address).await.unwrap();
        let unsent = Error::NotSent("the server sent an unexpected answer".to_owned());
        assert_eq!(connection.ask(&get()).await, Err(unsent));
    });
}

#[test]
fn an_answer_of_another_shape_makes_no_sense() {
    fn read<'a, T>(bytes: &'a [u8], read: impl FnOnce(Reply<'a>) -> Result<T, Error>) -> Option<T> {
        match read(Reply::whole(bytes)) {
            Ok(value) => Some(value),
            Err(error) => {
                assert_eq!(error, nonsense());
                None
            }
        }
    }
    let number = |number: i64| format!(":{number}\r\n").into_bytes();
    let (nil, status, text) = (&b"$-1\r\n"[..], b"+OK\r\n", bulk(b"7"));
    let two = array(&[number(0), number(1)]);
    let three = array(&[number(0), bulk(b"x"), number(2)]);
    let by_twos = |reply: Reply<'_>| pairs(reply).map(Iterator::count);
    assert_eq!([read(&two, by_twos), read(&three, by_twos), read(nil, by_twos)], [Some(1), None, None]);
    let exactly = |reply: Reply<'_>| reply.exactly::<2>().map(|each| each.len());
    assert_eq!([read(&two, exactly), read(&three, exactly), read(&text, exactly)], [Some(2), None, None]);
    assert_eq!([0, 1, 2].map(|flag| read(&number(flag), Reply::flag)), [Some(false), Some(true), None]);
    assert_eq!([nil, status].map(|other| read(other, Reply::flag)), [None, None]);
    assert_eq!([255, 256, -1].map(|each| read(&number(each), Reply::integer)), [Some(255_u8), None, None]);
    assert_eq!([nil, status, &text].map(|other| read(other, Reply::integer::<u8>)), [None; 3]);
    assert_eq!([nil, &number(7)].map(|each| read(each, Reply::optional)), [Some(None), Some(Some(7_u8))]);
    assert_eq!(read(&text, Reply::optional::<u8>), None);
    assert_eq!([&text, &bulk(b"\xFF")].map(|each| read(each, Reply::string)), [Some("7".to_owned()), None]);
    assert_eq!([nil, status].map(|other| read(other, Reply::string)), [None, None]);
}

#[test]
fn a_command_that_was_given_up_ends_the_connection() {
    with(&[b"$", b""], async |mut connection| {
        timeout(Duration::from_millis(20), connection.ask(&get())).await.unwrap_err();
        let unsent = Error::NotSent("an earlier request was given up".to_owned());
        assert_eq!(connection.ask(&get()).await, Err(unsent));
    });
}

/// A producer waits for some of its answers, gives that up, sends more, and hears of each command once.
#[test]
fn answers_to_what_is_under_way_are_told_once_each() {
    let sayings = [&b"$1\r\na\r\n$1\r\nb\r\n$"[..], b"1\r\nc\r\n-OOM no\r\n$1\r"];
    with(&sayings, async |mut connection| {
        let told =
            |answers: Answers<'_>| answers.map(|each| each.and_then(Reply::string)).collect::<Vec<_>>();
        let text = |text: &str| Ok(text.to_owned());
        assert_eq!(told(connection.some_answers().await), [], "nothing was asked");
        (0..3).for_each(|_| connection.push(&get()).unwrap());
        assert_eq!(told(connection.some_answers().await), [text("a"), text("b")]);
        timeout(Duration::from_millis(20), connection.some_answers()).await.unwrap_err();
        (0..2).for_each(|_| connection.push(&get()).unwrap());
        let refused = Err(Error::Answered(ServerError::new(b"OOM no")));
        assert_eq!(told(connection.some_answers().await), [text("c"), refused]);
        assert_eq!(told(connection.some_answers().await), [Err(Error::Lost(CLOSED.to_owned()))]);
        assert_eq!(told(connection.some_answers().await), []);
        assert_eq!(connection.flush().await, Err(Error::NotSent(CLOSED.to_owned())));
    });
}

/// What is known of a transaction's two commands, by what the server has said of `MULTI`, of them, and of `EXEC`.
#[test]
fn a_transaction_is_unknown_unless_it_was_refused_whole() {
    let failed = |words: &str| Attempt::Failed(Fault::answered(words));
    let unknown = |words: &str| Attempt::Unknown(Fault::lost(words));
    let nonsense = "the server's answer is invalid";
    let begun = "+OK\r\n+QUEUED\r\n+QUEUED\r\n";
    let cases = [
        (format!("{begun}*2\r\n:1\r\n$-1\r\n"), Ok(Some(2))),
        (format!("{begun}*-1\r\n"), Ok(None)),
        (format!("{begun}*2\r\n:1\r\n-WRONGTYPE it is\r\n"), Err(unknown("WRONGTYPE it is"))),
        (format!("{begun}*1\r\n:1\r\n"), Err(unknown(nonsense))),
        (format!("{begun}+OK\r\n"), Err(unknown(nonsense))),
        (format!("{begun}-EXECABORT no\r\n"), Err(failed("EXECABORT no"))),
        ("+OK\r\n-OOM full\r\n+QUEUED\r\n-EXECABORT no\r\n".to_owned(), Err(failed("OOM full"))),
        (
            "+OK\r\n-OOM full\r\n-OOM full\r\n-EXECABORT no\r\n".to_owned(),
            Err(failed("OOM full (and 1 more commands were refused)")),
        ),
        (format!("{begun}-ERR never\r\n"), Err(unknown("ERR never"))),
        // what follows was carried out, one by one
        ("-NOPERM no\r\n:1\r\n:1\r\n-ERR EXEC without MULTI\r\n".to_owned(), Err(unknown("NOPERM no"))),
        (begun.to_owned(), Err(unknown(CLOSED))),
        ("+OK\r\n".to_owned(), Err(unknown(CLOSED))),
    ];
    for (said, expected) in cases {
        for effect in [Request::Change, Request::Harmless] {
            let expected = match (expected.clone(), effect) {
                // where nothing can have changed, an error that was answered costs no connection
                (Err(Attempt::Unknown(fault)), Request::Harmless) => {
                    let connection_lost = [CLOSED, nonsense].contains(&&*fault.message);
                    Err(Attempt::Failed(Fault { connection_lost, ..fault }))
                }
                (expected, _) => expected,
            };
            with(&[said.as_bytes()], async |connection| {
                let mut both = pipe();
                both.cmd("INCR").arg("a").cmd("GET").arg("b");
                let mut session = Session::new(connection);
                let done = session.exec(&both, effect).await;
                assert_eq!(done.map(|done| done.map(|values| values.len())), expected, "{said} {effect:?}");
            });
        }
    }
    with(&[b"$", b""], async |mut connection| {
        timeout(Duration::from_millis(20), connection.ask(&get())).await.unwrap_err();
        let mut one = pipe();
        one.cmd("INCR").arg("a");
        let done = Session::new(connection).exec(&one, Request::Change).await.map(|_| ());
        assert_eq!(done, Err(Attempt::Failed(Fault::lost("an earlier request was given up"))));
    });
}

#[test]
fn a_script_that_is_not_kept_is_sent_whole_and_what_becomes_of_that_is_its_outcome() {
    let script = Script::new("return 7");
    let missing = &b"-NOSCRIPT no\r\n"[..];
    for (said, expected) in [
        (&[&b":7\r\n"[..]][..], Ok(7)),
        (&[missing, b":7\r\n"], Ok(7)),
        (&[missing, b"-OOM no\r\n"], Err(Error::Answered(ServerError::new(b"OOM no")))),
        (&[missing, b""], Err(Error::Lost(CLOSED.to_owned()))),
        (&[b""], Err(Error::Lost(CLOSED.to_owned()))),
        (
            &[&[missing, b"+OK\r\n"].concat()],
            Err(Error::NotSent("the server sent an unexpected answer".to_owned())),
        ),
    ] {
        with(said, async |connection| {
            let mut session = Session::new(connection);
            let run = session.run(&script, |call| {
                call.arg(0);
            });
            assert_eq!(run.await.and_then(Reply::integer::<i64>), expected, "{said:?}");
        });
    }
}

/// Keys are watched once, and those of a transaction that was never carried out are let go first.
#[test]
fn what_was_watched_in_vain_is_let_go() {
    let answers = &b"+OK\r\n$1\r\nb\r\n"[..];
    let again = [b"+OK\r\n", answers].concat();
    with(&[answers, &again, b"+OK\r\n*0\r\n", answers], async |connection| {
        let mut session = Session::new(connection);
        let watched = async |session: &mut Session| {
            let mut reads = session.watch("a").unwrap();
            reads.push(&get()).unwrap();
            reads.answers().await.unwrap().map(|each| each.and_then(Reply::string)).collect::<Vec<_>>()
        };
        assert_eq!(watched(&mut session).await, [Ok("b".to_owned())]);
        assert_eq!(watched(&mut session).await, [Ok("b".to_owned())]);
        assert!(session.exec(&pipe(), Request::Change).await.unwrap().is_some());
        assert_eq!(watched(&mut session).await, [Ok("b".to_owned())]);
    });
    // an error of WATCH is one of the reading, too
    with(&[b"-OOM no\r\n$1\r\nb\r\n"], async |connection| {
        let mut session = Session::new(connection);
        let mut reads = session.watch("a").unwrap();
        reads.push(&get()).unwrap();
        let refused = reads.answers().await.map(|_| ()).unwrap_err();
        assert_eq!(refused.answer().map(ServerError::code), Some("OOM"));
    });
}

#[test]
fn long_answers_and_many_are_read_whole() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    wait(async {
        let mut session = redis.session().await.unwrap();
        let large: Vec<u8> = (0..100_000_000_u32).map(|place| place.to_le_bytes()[1]).collect();
        session.ask(cmd("SET").arg("large").arg(&large)).await.unwrap();
        assert!(session.ask(cmd("GET").arg("large")).await == Ok(Reply::Text(&large)));
        let mut count = cmd("EVAL");
        count.arg("local t = {} for i = 1, 1000000 do t[i] = i end return t").arg(0);
        let many = session.ask(&count).await.unwrap().array().unwrap();
        assert_eq!(many.len(), 1_000_000);
        assert!(many.zip(1..).all(|(each, number)| each == Reply::Integer(number)));
        let mut batch = session.batch().unwrap();
        (0..100_000).for_each(|_| batch.push(cmd("INCR").arg("number")).unwrap());
        assert!(batch.answers().await.zip(1..).all(|(each, number)| each == Ok(Reply::Integer(number))));
    });
}

#[test]
fn every_login_is_spoken() {
    let Some(mut private) = Private::start("redis", Durability::None) else { return };
    let redis = private.open(Redis::open);
    let mut setting = pipe();
    setting.cmd("SET").arg("here").arg(0);
    setting.cmd("SELECT").arg(3).cmd("SET").arg("here").arg(3);
    setting.cmd("ACL").arg(&["SETUSER", "ann", "on", ">hunter2", "~*", "+@all"]);
    setting.cmd("CONFIG").arg(&["SET", "requirepass", "hunter1"]);
    wait(async { redis.session().await.unwrap().ask_all(&setting).await.map(drop) }).unwrap();
    for (user, password, database) in
        [(None, "hunter1", ""), (Some("default"), "hunter1", "0"), (Some("ann"), "hunter2", "3")]
    {
        let address = Address {
            user: user.map(str::to_owned),
            password: Some(Secret::new(password)),
            path: database.to_owned(),
            ..private.address().clone()
        };
        let here = wait(async {
            let mut session = Redis::open(&address).await.unwrap().session().await.unwrap();
            session.ask(cmd("GET").arg("here")).await.unwrap().string().unwrap()
        });
        assert_eq!(here, if database.is_empty() { "0" } else { database });
    }
}
