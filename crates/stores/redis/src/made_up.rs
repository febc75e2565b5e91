//! A server that answers in RESP as a test defines it.

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

type Command = Vec<Vec<u8>>;
type Answer = dyn Fn(&Command) -> Vec<u8> + Send + Sync;

/// Answers each command with `answer`. Returns the server's address, and the commands that it receives.
pub(crate) fn server(
    answer: impl Fn(&Command) -> Vec<u8> + Send + Sync + 'static,
) -> (Address, Receiver<Command>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    let (sender, asked) = channel();
    let answer: Arc<Answer> = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, sender) = (Arc::clone(&answer), sender.clone());
            thread::spawn(move || serve(stream.unwrap(), &*answer, &sender));
        }
    });
    (address, asked)
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
