//! The client against malformed answers: servers that the tests make up, and the decoders by themselves.

use std::time::Duration;

use acidtest_model::Address;
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

const OK: &[u8] = &[0x82, 0x00, 0x00, 0x01, 0x01];
const DATA_OF_ONE_TRUE: &[u8] = &[0x81, 0x30, 0x91, 0xc3];

/// Bytes that the buffers of a connection may take when nothing is to be kept in them.
const ROOM: usize = 4 * 1024 * 1024;

/// How to reach a server of a test.
fn transport(listener: &TcpListener) -> Transport {
    let address = format!("tarantool://{}", listener.local_addr().unwrap());
    Transport::new(&Address::parse(&address).unwrap(), 3301).unwrap()
}

fn greeting() -> Vec<u8> {
    let salt = BASE64.encode([7; 32]);
    format!("{:<63}\n{salt:<63}\n", "Tarantool 2.6.0 (Binary) 7170b4a6").into_bytes()
}

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut frame = vec![0xce];
    frame.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    frame.extend(content);
    frame
}

/// Calls a server that sends `greeting`, answers the first request with `answer`, and closes.
async fn call(greeting: Vec<u8>, answer: Vec<u8>) -> (Result<bool, Error>, Option<Connection>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(&listener);
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        if greeting.len() < GREETING_LEN {
            return;
        }
        let mut request = [0; 1024];
        if stream.read(&mut request).await.unwrap_or(0) > 0 {
            // in two parts, so that frames arrive in pieces
            let (head, tail) = answer.split_at(answer.len() / 2);
            stream.write_all(head).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = stream.write_all(tail).await;
        }
    };
    let client = async {
        let mut connection = match Connection::connect(&transport, None).await {
            Ok(connection) => connection,
            Err(error) => return (Err(error), None),
        };
        let result = connection
            .call("f", |args| {
                args.array(0);
            })
            .await
            .and_then(|mut reply| {
                reply.tuple(1)?;
                reply.bool()
            });
        (result, Some(connection))
    };
    tokio::join!(client, server).0
}

#[tokio::test]
async fn an_answer_is_read_in_whatever_form_its_length_has() {
    let content = [OK, DATA_OF_ONE_TRUE].concat();
    let length = u8::try_from(content.len()).unwrap();
    for prefix in [
        vec![length],
        vec![0xcc, length],
        vec![0xcd, 0, length],
        vec![0xce, 0, 0, 0, length],
        vec![0xcf, 0, 0, 0, 0, 0, 0, 0, length],
    ] {
        let (result, connection) = call(greeting(), [prefix, content.clone()].concat()).await;
        assert!(result.unwrap());
        assert!(connection.unwrap().is_usable());
    }
}

#[tokio::test]
async fn garbage_is_an_unknown_outcome_and_breaks_the_connection() {
    let other_sync: &[u8] = &[0x82, 0x00, 0x00, 0x01, 0x02];
    let unknown_code: &[u8] = &[0x82, 0x00, 0x07, 0x01, 0x01];
    for answer in [
        framed(&[other_sync, DATA_OF_ONE_TRUE]),
        framed(&[unknown_code, DATA_OF_ONE_TRUE]),
        framed(&[&[0x81, 0x00, 0x00], DATA_OF_ONE_TRUE]),
        framed(&[&[0xdf, 0xff, 0xff, 0xff, 0xff]]),
        framed(&[]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(3),
        vec![0xff; 64],
        vec![0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0],
        vec![0xce, 0xff, 0xff, 0xff, 0xff, 0],
    ] {
        let (result, connection) = call(greeting(), answer.clone()).await;
        let error = result.unwrap_err();
        assert_eq!(error.fate(), Fate::Unknown, "{answer:x?}: {error}");
        assert!(matches!(error, Error::Protocol(_)), "{answer:x?}: {error}");
        assert!(!connection.unwrap().is_usable());
    }
}

#[tokio::test]
async fn a_truncated_answer_is_lost() {
    let whole = framed(&[OK, DATA_OF_ONE_TRUE]);
    for len in 0..whole.len() {
        let (result, connection) = call(greeting(), whole[..len].to_vec()).await;
        assert!(matches!(result, Err(Error::Lost { sent: true, .. })), "{len}: {result:?}");
        assert!(!connection.unwrap().is_usable());
    }
    // a long answer that never comes costs no memory
    let (result, connection) = call(greeting(), vec![0xce, 0x3f, 0xff, 0xff, 0xff, 0]).await;
    assert!(matches!(result, Err(Error::Lost { sent: true, .. })), "{result:?}");
    assert!(connection.unwrap().wire.room() <= ROOM);
}

/// Data that `box.session.push()` sends ahead of an answer is skipped, however much it is.
#[tokio::test]
async fn what_is_pushed_ahead_of_an_answer_takes_no_memory() {
    let header = &[0x82, 0x00, 0xcc, 0x80, 0x01, 0x01, 0x81, 0x30, 0xc6, 0, 1, 0, 0][..];
    let pushed = framed(&[header, &vec![7; 65_536]]);
    let answer = [pushed.repeat(128), framed(&[OK, DATA_OF_ONE_TRUE])].concat();
    let (result, connection) = call(greeting(), answer).await;
    assert!(result.unwrap());
    let connection = connection.unwrap();
    assert!(connection.is_usable());
    assert!(connection.wire.room() <= ROOM, "{}", connection.wire.room());
}

#[tokio::test]
async fn an_answer_without_the_expected_data_leaves_the_connection_usable() {
    for body in [&[][..], &[0x80], &[0x81, 0x31, 0x90], &[0x81, 0x30, 0x90], &[0x81, 0x30, 0x91, 0x01]] {
        let (result, connection) = call(greeting(), framed(&[OK, body])).await;
        let error = result.unwrap_err();
        assert_eq!(error.fate(), Fate::Unknown, "{body:x?}: {error}");
        assert!(connection.unwrap().is_usable());
    }
}

#[tokio::test]
async fn more_than_the_answer_breaks_the_connection_before_the_next_request() {
    let answer = framed(&[OK, DATA_OF_ONE_TRUE]);
    // with two answers the second comes later by itself; with three the second begins in the same read
    for answers in [2, 3] {
        let (result, connection) = call(greeting(), answer.repeat(answers)).await;
        assert!(result.unwrap());
        let mut connection = connection.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let error = connection.ping().await.unwrap_err();
        assert!(matches!(error, Error::Lost { sent: false, .. }), "{error:?}");
        assert!(!connection.is_usable());
    }
}

/// A connection that is made, and the server's side of it.
pub(crate) async fn connected() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport(&listener);
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&greeting()).await.unwrap();
        stream
    };
    let (connection, server) = tokio::join!(Connection::connect(&transport, None), server);
    (connection.unwrap(), server)
}

/// The server's answer to a request of this number.
pub(crate) fn done(number: u8) -> Vec<u8> {
    framed(&[&[0x82, 0x00, 0x00, 0x01, number], DATA_OF_ONE_TRUE])
}

/// Waits until the request arrives, and gives it up.
async fn abandon(connection: &mut Connection, server: &mut TcpStream) {
    let mut bytes = [0; 1024];
    tokio::select! {
        answer = connection.ping() => panic!("{answer:?}"),
        read = server.read(&mut bytes) => assert!(read.unwrap() > 0),
    }
}

/// The late answer to a request that was given up is not taken for that to the next one.
#[tokio::test]
async fn a_request_that_is_given_up_ends_the_connection() {
    let (mut connection, mut server) = connected().await;
    abandon(&mut connection, &mut server).await;
    server.write_all(&framed(&[OK, &[0x80]])).await.unwrap();
    let error = connection.ping().await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_has_closed() {
    let (mut connection, server) = connected().await;
    drop(server);
    // until it is seen here
    tokio::time::sleep(Duration::from_millis(20)).await;
    let error = connection.ping().await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    assert!(error.to_string().contains("the server closed the connection"), "{error}");
    assert!(!connection.is_usable());
}

/// An answer counts that has come whole before the server's end, also where the end comes with it; the next request is not
/// sent.
#[tokio::test]
async fn an_answer_before_the_end_counts() {
    let (mut connection, mut server) = connected().await;
    let answer = async {
        assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
        server.write_all(&framed(&[OK, &[0x80]])).await.unwrap();
        drop(server);
    };
    let (answered, ()) = tokio::join!(connection.ping(), answer);
    answered.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(connection.ping().await.unwrap_err().fate(), Fate::NotSent);
}

#[tokio::test]
async fn an_answer_of_100_mb_is_read_and_takes_no_memory_afterwards() {
    const BYTES: u32 = 100 * 1024 * 1024;
    let text = vec![b'x'; BYTES as usize];
    let head = [&[0x81, 0x30, 0x91, 0xdb][..], &BYTES.to_be_bytes()].concat();
    let (mut connection, mut server) = connected().await;
    let answer = async {
        assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
        server.write_all(&framed(&[OK, &head, &text])).await.unwrap();
        assert!(server.read(&mut [0; 1024]).await.unwrap() > 0);
        server.write_all(&framed(&[&[0x82, 0x00, 0x00, 0x01, 0x02], &[0x80]])).await.unwrap();
    };
    let asked = async {
        let mut reply = connection
            .eval("", |args| {
                args.array(0);
            })
            .await
            .unwrap();
        reply.tuple(1).unwrap();
        assert!(reply.bytes().unwrap() == text);
        connection.ping().await.unwrap();
    };
    tokio::join!(asked, answer);
    assert!(connection.wire.room() <= ROOM, "{}", connection.wire.room());
}

/// Answers in another order than the requests, one of them pushed, one an error; and what is known of requests when the
/// connection ends: those that were not handed to the network are told from the others.
#[tokio::test]
async fn a_pipeline_knows_what_was_answered_and_what_was_sent() {
    let (connection, mut server) = connected().await;
    let mut pipeline = Pipeline::new(connection);
    let call = |pipeline: &mut Pipeline, bytes: usize| {
        pipeline.call("f", |args| {
            args.array(1).raw_str(&vec![b'x'; bytes]);
        })
    };
    let asked: Vec<_> = (0..3).map(|_| call(&mut pipeline, 10).unwrap()).collect();
    assert!(asked.iter().all(|(_, place)| !pipeline.reached(*place)));
    pipeline.flush().await.unwrap();
    assert!(asked.iter().all(|(_, place)| pipeline.reached(*place)));
    let header = |code: &[u8], number: u8| [&[0x82, 0x00][..], code, &[0x01, number]].concat();
    server.write_all(&framed(&[&header(&[0x00], 3), &[0x80]])).await.unwrap();
    server.write_all(&framed(&[&header(&[0xcc, 0x80], 1), &[0x80]])).await.unwrap();
    server.write_all(&framed(&[&header(&[0xcd, 0x80, 0x03], 1), &[0x81, 0x31, 0xa1, b'x']])).await.unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        pipeline.read().await.unwrap();
        while let Some((number, error)) = pipeline.arrived().unwrap() {
            answers.push((number, error.and_then(|error| error.code())));
        }
    }
    assert_eq!(answers, [(3, None), (1, Some(3))]);
    // what is pushed takes no memory, however much it is
    let answer = async {
        for _ in 0..128 {
            let header = header(&[0xcc, 0x80], 2);
            server
                .write_all(&framed(&[&header, &[0x81, 0x30, 0xc6, 0, 1, 0, 0], &vec![7; 65_536]]))
                .await
                .unwrap();
        }
        server.write_all(&framed(&[&header(&[0x00], 2), &[0x80]])).await.unwrap();
    };
    let heard = async {
        loop {
            pipeline.read().await.unwrap();
            if let Some(answer) = pipeline.arrived().unwrap() {
                break answer;
            }
        }
    };
    assert!(matches!(tokio::join!(heard, answer).0, (2, None)));
    assert!(pipeline.connection.wire.room() <= ROOM, "{}", pipeline.connection.wire.room());

    // the server reads no more, until no byte of the last request is on its way
    let last = loop {
        let (_, place) = call(&mut pipeline, 1_000_000).unwrap();
        let flushed = tokio::time::timeout(Duration::from_millis(100), pipeline.flush()).await;
        if flushed.is_err() && !pipeline.reached(place) {
            break place;
        }
    };
    drop(server);
    let error = pipeline.flush().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!pipeline.reached(last) && pipeline.reached(asked[1].1));
}

#[tokio::test]
async fn only_a_binary_port_is_spoken_to() {
    let console =
        format!("{:<63}\n{:<63}\n", "Tarantool 2.6.0 (Lua console)", "type 'help' for interactive help");
    let salt_is_no_base64 = format!("{:<63}\n{:<63}\n", "Tarantool 2.6.0 (Binary) x", "*".repeat(44));
    for bytes in [console.into_bytes(), salt_is_no_base64.into_bytes(), vec![0xff; 128]] {
        let error = call(bytes, Vec::new()).await.0.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    }
    let error = call(greeting()[..100].to_vec(), Vec::new()).await.0.unwrap_err();
    assert!(matches!(error, Error::Lost { sent: false, .. }), "{error:?}");
}

#[test]
fn the_scramble_is_what_the_server_computes() {
    // sha1(scramble xor sha1(password)) must be the hash that the server stores: the server undoes the mask with
    // sha1(salt, stored) and hashes once more
    let salt = [9; SCRAMBLE_LEN];
    let stored = Sha1::digest(Sha1::digest("secret"));
    let mask = Sha1::new().chain_update(salt).chain_update(stored).finalize();
    let undone: Vec<u8> = scramble("secret", &salt).iter().zip(mask).map(|(a, b)| a ^ b).collect();
    assert_eq!(Sha1::digest(undone), stored);
}

#[test]
fn nesting_does_not_use_the_stack() {
    let mut deep = vec![0x91; 4 * 1024 * 1024];
    assert!(Reader::new(&deep).skip().is_err());
    deep.push(0xc0);
    Reader::new(&deep).skip().unwrap();
}

#[test]
fn a_refused_value_is_not_consumed() {
    let mut reader = Reader::new(&[0x93, 0xa1, b'x', 0xca, 0x3f, 0x80, 0x00, 0x00, 0xc4, 0x01, 0xff]);
    assert!(reader.tuple(4).is_err());
    assert_eq!(reader.tuple(2).unwrap(), 1);
    assert!(reader.u64().is_err() && reader.nil().is_err() && reader.bool().is_err());
    assert_eq!(reader.bytes().unwrap(), b"x");
    assert!((reader.f64().unwrap() - 1.0).abs() < f64::EPSILON);
    assert!(reader.str().is_err());
    assert_eq!(reader.bytes().unwrap(), [0xff]);
    assert!(reader.skip().is_err());
}

/// Calls every method of the reader on every suffix of the bytes.
fn read_all(bytes: &[u8]) {
    for start in 0..=bytes.len() {
        let reader = Reader::new(&bytes[start..]);
        let _ = { reader }.array_len().map(|len| assert!(len <= bytes.len()));
        let _ = { reader }.map_len().map(|len| assert!(len <= bytes.len()));
        let _ = ({ reader }.u64(), { reader }.i64(), { reader }.f64(), { reader }.bool());
        let _ = ({ reader }.str(), { reader }.bytes(), { reader }.nil(), { reader }.take_nil());
        let _ = ({ reader }.tuple(2), { reader }.skip());
    }
}

fn decode(bytes: &[u8]) {
    if let Ok(Frame::Whole(place)) = frame::split(bytes) {
        let _ = frame::parse(&bytes[place]);
    }
    if let Ok((_, Answer::Ok(body))) = frame::parse(bytes) {
        let _ = frame::data(&bytes[body]);
    }
    let _ = frame::data(bytes);
    read_all(bytes);
}

/// One whole value of any type: random bytes by themselves seldom get past the first byte.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let written = |write: &dyn Fn(&mut Encoder) -> &mut Encoder| {
        let mut encoder = Encoder::new();
        write(&mut encoder);
        encoder.as_slice().to_vec()
    };
    let leaf = prop_oneof![
        any::<u64>().prop_map(move |v| written(&|e| e.u64(v))),
        any::<i64>().prop_map(move |v| written(&|e| e.i64(v))),
        any::<f64>().prop_map(move |v| written(&|e| e.f64(v))),
        any::<String>().prop_map(move |v| written(&|e| e.str(&v))),
        any::<Vec<u8>>().prop_map(move |v| written(&|e| e.bin(&v))),
        any::<bool>().prop_map(move |v| written(&|e| e.bool(v))),
        Just(vec![0xc0]),
        // extensions, such as Tarantool's decimals and UUIDs
        (any::<u8>(), any::<Vec<u8>>())
            .prop_map(|(kind, v)| { [&[0xc7, u8::try_from(v.len()).unwrap(), kind][..], &v].concat() }),
        (any::<[u8; 17]>()).prop_map(|v| [&[0xd8][..], &v].concat()),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(move |values| {
                let len = u32::try_from(values.len()).unwrap();
                [written(&|e| e.array(len)), values.concat()].concat()
            }),
            prop::collection::vec((inner.clone(), inner), 0..20).prop_map(move |pairs| {
                let len = u32::try_from(pairs.len()).unwrap();
                let pairs: Vec<u8> =
                    pairs.into_iter().flat_map(|(key, value)| [key, value].concat()).collect();
                [written(&|e| e.map(len)), pairs].concat()
            }),
        ]
    })
}

proptest! {
    // few cases, as each reads every suffix
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        decode(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(value in value(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = framed(&[OK, &[0x81, 0x30], &value]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() + 1));
        decode(&bytes);
    }

    /// However the bytes of a frame arrive, the frame is not there before its last byte, no more is reported
    /// missing than is still to come, and an error stays an error with every further byte.
    #[test]
    fn a_frame_does_not_depend_on_how_it_arrives(
        value in value(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        rest: Vec<u8>,
    ) {
        let mut bytes = framed(&[OK, &[0x81, 0x30], &value]);
        let is_valid = changes.is_empty();
        for (at, byte) in changes {
            let at = at.index(bytes.len().min(16));
            bytes[at] = byte;
        }
        let length = bytes.len();
        bytes.extend(rest);
        let whole = frame::split(&bytes);
        prop_assert!(!is_valid || matches!(&whole, Ok(Frame::Whole(place)) if place.end == length));
        for cut in 0..bytes.len() {
            match (frame::split(&bytes[..cut]), &whole) {
                (Ok(Frame::Missing(missing)), Ok(Frame::Whole(place))) => {
                    // the length of a frame that has not begun is not known
                    prop_assert!(missing > 0 && cut < place.end && (cut == 0 || missing <= place.end - cut));
                }
                (Ok(Frame::Missing(missing)), _) => prop_assert!(missing > 0),
                (Ok(frame), Ok(whole)) => prop_assert_eq!(&frame, whole),
                (Err(error), Err(same)) => prop_assert_eq!(error.to_string(), same.to_string()),
                (part, whole) => prop_assert!(false, "{:?} of {:?}", part, whole),
            }
        }
    }

    #[test]
    fn skip_takes_one_whole_value(value in value(), rest: Vec<u8>) {
        let bytes = [value.clone(), rest.clone()].concat();
        let mut reader = Reader::new(&bytes);
        let alone = { reader }.value().unwrap();
        reader.skip().unwrap();
        prop_assert_eq!((alone.rest(), reader.rest()), (&value[..], &rest[..]));
        for cut in 0..value.len() {
            prop_assert!(Reader::new(&value[..cut]).skip().is_err());
        }
    }

    #[test]
    fn integers_are_read_where_they_fit(value: i64, unsigned: u64) {
        let mut encoder = Encoder::new();
        encoder.i64(value).u64(unsigned);
        let mut reader = Reader::new(encoder.as_slice());
        prop_assert_eq!({ reader }.u64().ok(), u64::try_from(value).ok());
        prop_assert_eq!(reader.i64().unwrap(), value);
        prop_assert_eq!({ reader }.i64().ok(), i64::try_from(unsigned).ok());
        prop_assert_eq!(reader.u64().unwrap(), unsigned);
    }
}
