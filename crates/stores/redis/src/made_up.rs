//! A server that answers in RESP as a test defines it, or as another server does but for what the test changes.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use acidtest_model::Address;

pub(crate) type Command = Vec<Vec<u8>>;
type Answer = dyn Fn(&Command) -> Vec<u8> + Send + Sync;

/// Answers each command with `answer`. Returns the server's address, and the commands that it receives.
pub(crate) fn server(
    answer: impl Fn(&Command) -> Vec<u8> + Send + Sync + 'static,
) -> (Address, Receiver<Command>) {
    let (sender, asked) = channel();
    let answer: Arc<Answer> = Arc::new(answer);
    let address = listen(move |stream| {
        let (answer, sender) = (Arc::clone(&answer), sender.clone());
        thread::spawn(move || serve(stream, &*answer, &sender));
    });
    (address, asked)
}

/// Passes every command on to the server, and its answer back; but where `swap` has an answer of its own, that one. Returns
/// the address at which it is reached.
pub(crate) fn proxy(
    server: &Address,
    swap: impl Fn(&Command) -> Option<&'static [u8]> + Send + Sync + 'static,
) -> Address {
    let (endpoint, swap) = (server.endpoint(0), Arc::new(swap));
    listen(move |stream| {
        let (endpoint, swap) = (endpoint.clone(), Arc::clone(&swap));
        thread::spawn(move || {
            let server = TcpStream::connect(endpoint).ok()?;
            // either end closes both
            pass(stream, server, &*swap)
        });
    })
}

fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    swap: &dyn Fn(&Command) -> Option<&'static [u8]>,
) -> Option<()> {
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let mut commands = BufReader::new(client.try_clone().ok()?);
    let mut answers = BufReader::new(server.try_clone().ok()?);
    loop {
        let command = command(&mut commands)?;
        let words: Vec<_> = command.iter().map(|word| bulk(word)).collect();
        server.write_all(&array(&words)).ok()?;
        let answer = answer(&mut answers)?;
        client.write_all(swap(&command).unwrap_or(&answer)).ok()?;
    }
}

/// The next answer, whole; `None` once the server has closed the connection.
fn answer(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    from.read_until(b'\n', &mut whole).ok()?;
    let number = |line: &[u8]| str::from_utf8(&line[1..]).ok()?.trim_end().parse::<i64>().ok();
    match whole.first()? {
        b'$' => {
            if let Ok(length) = usize::try_from(number(&whole)?) {
                let begun = whole.len();
                whole.resize(begun + length + 2, 0);
                from.read_exact(&mut whole[begun..]).ok()?;
            }
        }
        b'*' => {
            for _ in 0..number(&whole)? {
                whole.extend(answer(from)?);
            }
        }
        _ => {}
    }
    Some(whole)
}

/// Hands each connection to `serve`. Returns the address at which it is made.
fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    address
}

fn serve(mut stream: TcpStream, answer: &Answer, asked: &Sender<Command>) {
    let mut commands = BufReader::new(stream.try_clone().unwrap());
    while let Some(command) = command(&mut commands) {
        // the test may have dropped the receiver
        let _ = asked.send(command.clone());
        if stream.write_all(&answer(&command)).is_err() {
            return;
        }
    }
}

/// The next command; `None` once the client has closed the connection.
fn command(from: &mut impl BufRead) -> Option<Command> {
    let count = number(from, '*')?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(from, '$')?];
            from.read_exact(&mut word).ok()?;
            from.read_exact(&mut [0; 2]).ok()?;
            Some(word)
        })
        .collect()
}

fn number(from: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.strip_prefix(kind)?.trim_end().parse().ok()
}

/// An array of these answers, encoded.
pub(crate) fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", items.len()).as_bytes(), &items.concat()].concat()
}

/// A text, encoded as a bulk string.
pub(crate) fn bulk(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}
