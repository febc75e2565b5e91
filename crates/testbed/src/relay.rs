//! A network between a store and its server that is slow or broken as a test needs it.

use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use acidtest_model::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

/// Bytes that are passed on at once, at most.
const PIECE: usize = 16 * 1024;
/// Pieces of [`PIECE`] bytes that are on their way in one direction of a connection, at most.
const ON_THE_WAY: usize = 256;

/// Latency and bandwidth of the connections through a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The time from one end to the other, in each direction.
    pub latency: Duration,
    /// Bytes per second in each direction of each connection; none is no limit.
    pub bytes_per_second: Option<u32>,
}

/// Passes on the bytes of connections to its own port. Dropping it ends all of them.
#[derive(Debug)]
pub struct Relay {
    address: Address,
    pace: Arc<Mutex<Pace>>,
    /// Whether the server learns that a client's end of a connection is gone.
    told: watch::Sender<bool>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay to the server at this address, from a free port of 127.0.0.1.
    #[must_use]
    pub fn to(server: &Address) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".to_owned(), port: Some(port), ..server.clone() };
        let (end, ended) = oneshot::channel();
        let (told, hears) = watch::channel(true);
        let pace = Arc::<Mutex<Pace>>::default();
        let way = RelayState { server: server.endpoint(0), pace: Arc::clone(&pace), told: hears };
        let thread = thread::spawn(move || {
            crate::wait(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = way.serve(listener) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, pace, told, end: Some(end), thread: Some(thread) }
    }

    /// The address at which clients reach the server through the relay.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sets the pace of the bytes that arrive from now on.
    pub fn pace(&self, pace: Pace) {
        *self.pace.lock().unwrap() = pace;
    }

    /// With `false` keeps the server's connections open when clients are gone, as if a machine or a cable between
    /// them had failed; with `true` closes them.
    pub fn tells_the_server(&self, told: bool) {
        self.told.send_replace(told);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // an error in the thread has failed its connections already
            let _ = thread.join();
        }
    }
}

/// The settings of a relay that all its connections share.
#[derive(Clone)]
struct RelayState {
    server: String,
    pace: Arc<Mutex<Pace>>,
    told: watch::Receiver<bool>,
}

impl RelayState {
    async fn serve(&self, listener: TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            let way = self.clone();
            // all of these tasks end with the runtime
            tokio::spawn(async move {
                // an error closes both connections, which either end sees
                let _ = way.connect(client).await;
            });
        }
    }

    async fn connect(mut self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(&self.server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let client_is_gone = tokio::select! {
            gone = self.pass(&mut from_client, &mut to_server) => gone == Gone::Sender,
            gone = self.pass(&mut from_server, &mut to_client) => gone == Gone::Receiver,
        };
        if client_is_gone {
            // an error means that the relay was dropped
            let _ = self.told.wait_for(|told| *told).await;
        }
        Ok(())
    }

    /// Passes bytes from one end to the other until one of them is gone; returns which.
    async fn pass(&self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> Gone {
        let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
        let read = async {
            let mut free = Instant::now();
            loop {
                let mut piece = vec![0; PIECE];
                let Ok(count @ 1..) = from.read(&mut piece).await else { break };
                piece.truncate(count);
                let Pace { latency, bytes_per_second } = *self.pace.lock().unwrap();
                free = free.max(Instant::now());
                if let Some(rate) = bytes_per_second {
                    free += Duration::from_secs(1) * u32::try_from(count).unwrap() / rate;
                }
                if sender.send((free + latency, piece)).await.is_err() {
                    break;
                }
            }
            drop(sender);
        };
        let write = async {
            while let Some((due, piece)) = pieces.recv().await {
                sleep_until(due).await;
                if to.write_all(&piece).await.is_err() {
                    return Gone::Receiver;
                }
            }
            // all bytes that it had sent have been passed on
            Gone::Sender
        };
        let mut write = pin!(write);
        tokio::select! {
            gone = &mut write => gone,
            () = read => write.await,
        }
    }
}

/// The end of a direction that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Sender,
    Receiver,
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// A relay and both ends of a connection through it: the client's and the server's.
    fn through() -> (Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Relay::to(&Address::loopback("tcp", None, port, ""));
        let client = TcpStream::connect(relay.address().endpoint(0)).unwrap();
        let (server, _) = listener.accept().unwrap();
        (relay, client, server)
    }

    #[test]
    fn all_that_is_said_arrives_and_takes_its_time() {
        let (relay, client, server) = through();
        let said: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        relay.pace(Pace { latency: Duration::from_millis(20), bytes_per_second: Some(1_000_000) });
        for (mut from, mut to) in [(&client, &server), (&server, &client)] {
            let begun = Instant::now();
            from.write_all(&said).unwrap();
            let mut heard = vec![0; said.len()];
            to.read_exact(&mut heard).unwrap();
            assert_eq!(heard, said);
            assert!(begun.elapsed() >= Duration::from_millis(120), "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn a_server_learns_that_its_client_is_gone_when_it_is_to() {
        let (relay, mut client, mut server) = through();
        relay.tells_the_server(false);
        client.write_all(b"last").unwrap();
        drop(client);
        let mut heard = [0; 4];
        server.read_exact(&mut heard).unwrap();
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert_eq!(server.read(&mut heard).unwrap_err().kind(), ErrorKind::WouldBlock);
        relay.tells_the_server(true);
        server.set_read_timeout(None).unwrap();
        assert_eq!(server.read(&mut heard).unwrap_or(0), 0);
    }

    #[test]
    fn a_client_learns_at_once_that_its_server_is_gone() {
        let (relay, mut client, server) = through();
        relay.tells_the_server(false);
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }
}
