//! Links between the members of a deployment, which can be cut as a network's are, without any privilege.
//!
//! A link is a port on loopback at which one member reaches another. All that comes there is passed on by one thread, for all
//! links: so a cut takes hold of all links of a member at the same moment, seven servers need one thread and not 42, and
//! whoever is told that a cut is made knows that nothing passes any more.

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use acidtest_model::{Address, MemberId};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with},
};

/// Bytes that are passed on at once, at most.
const PIECE: usize = 64 * 1024;
/// How long to wait before the next attempt to take connections that the system refuses, as where too many files are open.
const PATIENCE: Duration = Duration::from_millis(10);

/// Connections between members that can be cut. Dropping it ends all of them.
#[derive(Debug)]
pub struct Links {
    network: Arc<Mutex<Network>>,
    known: Vec<Known>,
    new: Sender<Link>,
    /// Wakes the thread, and ends it when it is dropped.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// What is done to what passes between members: that of one member may be cut.
#[derive(Debug, Default)]
struct Network {
    cut: BTreeSet<MemberId>,
}

impl Network {
    /// Whether nothing passes on a link at this moment.
    fn holds(&self, ends: Ends) -> bool {
        self.cut.contains(&ends.from) || self.cut.contains(&ends.to)
    }
}

fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The members that a link joins: the one that opens connections, and the one that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    from: MemberId,
    to: MemberId,
}

/// A link that there is: its port, and where it leads.
#[derive(Clone, Copy, Debug)]
struct Known {
    ends: Ends,
    port: u16,
    target: SocketAddr,
}

impl Links {
    /// No links yet, and the thread for them.
    ///
    /// # Errors
    /// The system gives no thread or no socket to wake it by.
    pub fn new() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let network = Arc::<Mutex<Network>>::default();
        let (new, links) = mpsc::channel();
        let relay = Relay { links: Vec::new(), new: links, woken, network: Arc::clone(&network) };
        let thread = thread::Builder::new().name("links".to_owned()).spawn(|| relay.serve())?;
        Ok(Self { network, known: Vec::new(), new, wake: Some(wake), thread: Some(thread) })
    }

    /// The address at which one member reaches another, which listens at `of`: the same each time, but for what `of` says besides
    /// host and port.
    ///
    /// # Errors
    /// `of` is no host and port, or another one than before; or no port is free.
    pub fn address(&mut self, from: MemberId, to: MemberId, of: &Address) -> io::Result<Address> {
        let ends = Ends { from, to };
        let target = of.endpoint(0).to_socket_addrs()?.next();
        let target = target.filter(|_| of.port.is_some() && of.socket.is_none()).ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, format!("{of} names no host and port to link to"))
        })?;
        let port = match self.known.iter().find(|known| known.ends == ends) {
            Some(known) if known.target == target => known.port,
            Some(known) => {
                let said = format!("the link from {from} to {to} leads to {}, not {target}", known.target);
                return Err(io::Error::new(ErrorKind::InvalidInput, said));
            }
            None => self.lay(ends, target)?,
        };
        Ok(Address { host: Ipv4Addr::LOCALHOST.to_string(), port: Some(port), ..of.clone() })
    }

    /// Lets nothing pass between a member and any other from now on. Connections stay open and silent; new ones are accepted
    /// by the system, and nothing comes on them.
    pub fn cut(&self, member: MemberId) {
        lock(&self.network).cut.insert(member);
    }

    /// Lets pass what passes between a member and those others that are not cut themselves, and what was held back first.
    pub fn heal(&self, member: MemberId) {
        lock(&self.network).cut.remove(&member);
        self.rouse();
    }

    fn lay(&mut self, ends: Ends, target: SocketAddr) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let link = Link { ends, listener, target, connections: Vec::new() };
        self.new.send(link).map_err(|_| io::Error::other("the thread of the links has ended"))?;
        self.rouse();
        self.known.push(Known { ends, port, target });
        Ok(port)
    }

    fn rouse(&self) {
        // it is about to wake if there is no room for a byte more
        let _ = self.wake.as_ref().map(|mut wake| wake.write(&[0]));
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // an error in the thread has ended its connections already
            let _ = thread.join();
        }
    }
}

/// The thread's side: every link with its connections.
struct Relay {
    links: Vec<Link>,
    new: Receiver<Link>,
    woken: UnixStream,
    network: Arc<Mutex<Network>>,
}

/// What is waited for, by its place in [`Relay::links`].
#[derive(Clone, Copy)]
enum Awaited {
    /// Something has changed, or the links are dropped.
    Order,
    /// A member opens a connection.
    Client { link: usize },
    /// An end of a connection has something to say, or takes what it did not take before.
    End { link: usize, connection: usize, end: End },
}

impl Relay {
    /// Passes bytes on until [`Links`] is dropped.
    fn serve(mut self) {
        // one for all: a connection keeps only what its receiver does not take
        let mut piece = vec![0; PIECE];
        loop {
            self.links.extend(self.new.try_iter());
            let ready = self.wait();
            // nothing is cut meanwhile
            let network = lock(&self.network);
            let mut refused = false;
            for (awaited, events) in ready {
                match awaited {
                    Awaited::Order => match self.woken.read(&mut piece) {
                        Ok(0) => return,
                        // whatever has changed is looked at next
                        Ok(_) => {}
                        Err(error) if is_for_now(&error) => {}
                        Err(_) => return,
                    },
                    Awaited::Client { link } => {
                        let link = &mut self.links[link];
                        refused |= !network.holds(link.ends) && link.accept().is_err();
                    }
                    Awaited::End { link, connection, end } => {
                        let link = &mut self.links[link];
                        if !network.holds(link.ends) {
                            link.connections[connection].advance(end, events, &mut piece);
                        }
                    }
                }
            }
            drop(network);
            self.links.iter_mut().for_each(|link| link.connections.retain(Connection::lasts));
            if refused {
                thread::sleep(PATIENCE);
            }
        }
    }

    /// Waits for whatever can be done on links that are not cut. What is cut is not looked at, not even whether its ends are
    /// there: that does not pass a cut either.
    fn wait(&self) -> Vec<(Awaited, PollFlags)> {
        let mut awaited = vec![Awaited::Order];
        let mut polled = vec![PollFd::new(&self.woken, PollFlags::IN)];
        {
            let network = lock(&self.network);
            let open = self.links.iter().enumerate().filter(|(_, link)| !network.holds(link.ends));
            for (link, Link { listener, connections, .. }) in open {
                awaited.push(Awaited::Client { link });
                polled.push(PollFd::new(listener, PollFlags::IN));
                for (connection, each) in connections.iter().enumerate() {
                    for end in [End::Near, End::Far] {
                        let wanted = each.wants(end);
                        if !wanted.is_empty() {
                            awaited.push(Awaited::End { link, connection, end });
                            polled.push(PollFd::new(each.socket(end), wanted));
                        }
                    }
                }
            }
        }
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Vec::new(),
            Err(_) => {
                // the system is short of memory
                thread::sleep(PATIENCE);
                return Vec::new();
            }
        }
        let events = polled.iter().map(PollFd::revents);
        awaited.into_iter().zip(events).filter(|(_, events)| !events.is_empty()).collect()
    }
}

/// One member's way to another.
#[derive(Debug)]
struct Link {
    ends: Ends,
    listener: TcpListener,
    target: SocketAddr,
    connections: Vec<Connection>,
}

impl Link {
    /// Takes the connections that wait.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let near = match self.listener.accept() {
                Ok((near, _)) => near,
                Err(error) if is_for_now(&error) => return Ok(()),
                // it was given up before it was taken
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // where nobody listens, the client loses its connection
            self.connections.extend(Connection::open(near, self.target).ok());
        }
    }
}

/// An end of a connection, as the relay sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The member that has opened it.
    Near,
    /// The member that is reached.
    Far,
}

/// A connection between two members.
#[derive(Debug)]
struct Connection {
    near: TcpStream,
    far: TcpStream,
    state: State,
    there: Direction,
    back: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The far end has not answered yet.
    Opening,
    Open,
    Over,
}

impl Connection {
    fn open(near: TcpStream, target: SocketAddr) -> io::Result<Self> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let far = TcpStream::from(socket_with(family, SocketType::STREAM, flags, None)?);
        let state = match connect(&far, &target) {
            Ok(()) => State::Open,
            Err(Errno::INPROGRESS) => State::Opening,
            Err(error) => return Err(error.into()),
        };
        near.set_nonblocking(true)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok(Self { near, far, state, there: Direction::default(), back: Direction::default() })
    }

    fn lasts(&self) -> bool {
        let all_is_said = self.there == Direction::ended() && self.back == Direction::ended();
        self.state != State::Over && !all_is_said
    }

    fn socket(&self, end: End) -> &TcpStream {
        match end {
            End::Near => &self.near,
            End::Far => &self.far,
        }
    }

    /// What to wait for at an end.
    fn wants(&self, end: End) -> PollFlags {
        let (out, into) = match end {
            End::Near => (&self.there, &self.back),
            End::Far => (&self.back, &self.there),
        };
        match (self.state, end) {
            (State::Opening, End::Far) => PollFlags::OUT,
            (State::Opening, End::Near) | (State::Over, _) => PollFlags::empty(),
            (State::Open, _) => {
                let mut wanted = PollFlags::empty();
                wanted.set(PollFlags::IN, out.takes());
                wanted.set(PollFlags::OUT, into.holds());
                wanted
            }
        }
    }

    /// Does what can be done now at an end. A connection that fails is over, as one is for both ends that a member resets.
    fn advance(&mut self, end: End, events: PollFlags, piece: &mut [u8]) {
        if self.state == State::Opening {
            // an event at the far end, which has answered or refused
            let refused = self.far.take_error().is_ok_and(|error| error.is_some());
            self.state = if refused { State::Over } else { State::Open };
            return;
        }
        let gone = PollFlags::HUP | PollFlags::ERR;
        let Self { near, far, there, back, .. } = self;
        let (out, into, here, other) = match end {
            End::Near => (there, back, near, far),
            End::Far => (back, there, far, near),
        };
        let mut passed = Ok(());
        if events.intersects(PollFlags::OUT | gone) {
            passed = into.pass_on(here);
        }
        if passed.is_ok() && events.intersects(PollFlags::IN | gone) {
            passed = out.pass(here, other, piece);
        }
        if passed.is_err() {
            self.state = State::Over;
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Direction {
    /// What the receiver has not taken yet; nothing more is read meanwhile, so that the sender has to wait, too.
    held: Vec<u8>,
    /// Whether the sender has said its last.
    ended: bool,
}

impl Direction {
    fn ended() -> Self {
        Self { held: Vec::new(), ended: true }
    }

    fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    fn takes(&self) -> bool {
        !self.ended && !self.holds()
    }

    /// Passes on what the sender has said.
    fn pass(&mut self, mut from: &TcpStream, to: &TcpStream, piece: &mut [u8]) -> io::Result<()> {
        if !self.takes() {
            return Ok(());
        }
        match from.read(piece) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                let taken = take(to, &piece[..count])?;
                self.held.extend_from_slice(&piece[taken..count]);
            }
            Err(error) if is_for_now(&error) => {}
            Err(error) => return Err(error),
        }
        self.end(to)
    }

    /// Passes on what was held back.
    fn pass_on(&mut self, to: &TcpStream) -> io::Result<()> {
        if self.holds() {
            let taken = take(to, &self.held)?;
            self.held.drain(..taken);
            return self.end(to);
        }
        Ok(())
    }

    /// Tells the receiver that the sender has said its last, once it has been passed on.
    fn end(&self, to: &TcpStream) -> io::Result<()> {
        if self.ended && !self.holds() { to.shutdown(Shutdown::Write) } else { Ok(()) }
    }
}

/// Writes as many bytes as the socket takes now.
fn take(mut to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < bytes.len() {
        match to.write(&bytes[taken..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => taken += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// Whether the same is worth another attempt later.
fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
