//! A pooler of PostgreSQL's sessions in transaction mode that rewrites the names of statements, as `PgBouncer` does from 1.21 on:
//! clients that prepare statements run through it without an error, each transaction in whatever session is idle.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use acidtest_model::Address;

/// Shares sessions among its clients. Its threads end with the test's process.
#[derive(Debug)]
pub struct RewritingPool {
    address: Address,
    state: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    server: String,
    sessions: usize,
    idle: Mutex<Idle>,
    freed: Condvar,
    /// How many requests are passed on before sessions are shared; until then each client has one of its own.
    apart: AtomicU64,
}

#[derive(Debug, Default)]
struct Idle {
    sessions: Vec<ServerSession>,
    opened: usize,
}

/// A session of the server's, with the statements that are prepared in it.
#[derive(Debug)]
struct ServerSession {
    stream: TcpStream,
    prepared: BTreeSet<String>,
}

impl RewritingPool {
    /// One in front of the server at this address, with so many sessions for all clients.
    #[must_use]
    pub fn before(server: &Address, sessions: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Pool {
            server: server.endpoint(0),
            sessions,
            idle: Mutex::default(),
            freed: Condvar::new(),
            apart: AtomicU64::new(0),
        });
        let pool = Arc::clone(&state);
        thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                let pool = Arc::clone(&pool);
                // an error ends the client's connection, which it sees
                thread::spawn(move || PoolClient::new(number, client).and_then(|client| client.serve(&pool)));
            }
        });
        Self { address: Address { host: "127.0.0.1".to_owned(), port: Some(port), ..server.clone() }, state }
    }

    /// The address at which clients reach the server through it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Has each client keep a session of its own for so many requests of all clients together, as a pool does that is not busy.
    pub fn keep_apart(&self, requests: u64) {
        self.state.apart.store(requests, SeqCst);
    }
}

impl Pool {
    /// An idle session, a new one if there may be another, or else one that is waited for.
    fn take(&self, startup: &[u8]) -> io::Result<ServerSession> {
        let mut idle = self.idle.lock().unwrap();
        loop {
            if let Some(session) = idle.sessions.pop() {
                return Ok(session);
            }
            if idle.opened < self.sessions {
                idle.opened += 1;
                return ServerSession::open(&self.server, startup);
            }
            idle = self.freed.wait(idle).unwrap();
        }
    }

    fn give_back(&self, session: ServerSession) {
        self.idle.lock().unwrap().sessions.push(session);
        self.freed.notify_one();
    }

    /// Counts a request. Whether sessions are kept apart for it.
    fn is_apart(&self) -> bool {
        self.apart.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

impl ServerSession {
    fn open(server: &str, startup: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.write_all(startup)?;
        while read_message(&mut stream)?.0 != b'Z' {}
        Ok(Self { stream, prepared: BTreeSet::new() })
    }

    /// Sends requests up to a Sync, and returns all that is answered; and whether a transaction is open then.
    fn exchange(&mut self, requests: &[u8]) -> io::Result<(Vec<u8>, bool)> {
        self.stream.write_all(requests)?;
        let mut answers = Vec::new();
        loop {
            let (tag, message) = read_message(&mut self.stream)?;
            let is_open = message.last() != Some(&b'I');
            answers.extend(message);
            if tag == b'Z' {
                return Ok((answers, is_open));
            }
        }
    }
}

struct PoolClient {
    number: usize,
    stream: TcpStream,
    startup: Vec<u8>,
    /// Its statements: the message that prepares each, by its rewritten name.
    statements: BTreeMap<String, Vec<u8>>,
}

impl PoolClient {
    fn new(number: usize, mut stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut startup = vec![0; 4];
        stream.read_exact(&mut startup)?;
        let length = u32::from_be_bytes([startup[0], startup[1], startup[2], startup[3]]) as usize;
        startup.resize(length, 0);
        stream.read_exact(&mut startup[4..])?;
        // all is well; a process that there is not; ready
        stream.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0C\x7F\xFF\xFF\xFF\0\0\0\0Z\0\0\0\x05I")?;
        Ok(Self { number, stream, startup, statements: BTreeMap::new() })
    }

    fn serve(mut self, pool: &Pool) -> io::Result<()> {
        // that which it keeps, and that of an open transaction
        let (mut own, mut held): (Option<ServerSession>, Option<ServerSession>) = (None, None);
        let mut is_apart = true;
        loop {
            let (requests, names) = self.requests()?;
            if held.is_none() {
                is_apart = pool.is_apart();
            }
            let mut session = match held.take().or_else(|| own.take().filter(|_| is_apart)) {
                Some(session) => session,
                None if is_apart => ServerSession::open(&pool.server, &self.startup)?,
                None => pool.take(&self.startup)?,
            };
            for name in names {
                if session.prepared.insert(name.clone())
                    && let Some(parse) = self.statements.get(&name)
                    && !requests.starts_with(parse)
                {
                    session.exchange(&[&parse[..], b"S\0\0\0\x04"].concat())?;
                }
            }
            let (answers, is_open) = session.exchange(&requests)?;
            match (is_open, is_apart) {
                (true, _) => held = Some(session),
                (false, true) => own = Some(session),
                (false, false) => pool.give_back(session),
            }
            self.stream.write_all(&answers)?;
        }
    }

    /// Its next requests, up to a Sync or a simple query, with the names of statements rewritten; and these names.
    fn requests(&mut self) -> io::Result<(Vec<u8>, Vec<String>)> {
        let (mut requests, mut names) = (Vec::new(), Vec::new());
        loop {
            let (tag, message) = read_message(&mut self.stream)?;
            let body = &message[5..];
            // where the statement's name stands: behind the portal's, or behind the letter that says what is meant
            let start = match tag {
                b'P' => Some(0),
                b'B' => Some(text(body).len() + 1),
                b'D' | b'C' if body.first() == Some(&b'S') => Some(1),
                b'X' => return Err(io::ErrorKind::ConnectionAborted.into()),
                _ => None,
            };
            let Some(start) = start else {
                requests.extend(&message);
                if matches!(tag, b'S' | b'Q') {
                    return Ok((requests, names));
                }
                continue;
            };
            let name = text(&body[start..]);
            let renamed = format!("c{}_{}", self.number, String::from_utf8_lossy(name));
            let body = [&body[..start], renamed.as_bytes(), &body[start + name.len()..]].concat();
            let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
            let message = [&[tag][..], &length, &body].concat();
            if tag == b'P' {
                self.statements.insert(renamed.clone(), message.clone());
            }
            requests.extend(message);
            names.push(renamed);
        }
    }
}

/// The bytes up to the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Reads a message: its tag, and all of it.
fn read_message(from: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize;
    message.resize(length + 1, 0);
    from.read_exact(&mut message[5..])?;
    Ok((message[0], message))
}
