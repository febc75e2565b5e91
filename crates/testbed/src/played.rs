//! A server that a test plays: it does what a real one does once in a year, and what none should do.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Longer than any test waits for what comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server says to its only client.
#[derive(Clone, Debug, Default)]
pub struct Played {
    greeting: Vec<u8>,
    sayings: Vec<Vec<u8>>,
    cuts: Vec<u8>,
}

impl Played {
    /// It greets, where its protocol has it do so, and says the next thing whenever it has heard something.
    #[must_use]
    pub fn new(greeting: Vec<u8>, sayings: Vec<Vec<u8>>) -> Self {
        Self { greeting, sayings, cuts: Vec::new() }
    }

    /// Cuts everything that it says at these places one after the other, which are taken as parts of 256 of what is left.
    #[must_use]
    pub fn in_parts(self, cuts: Vec<u8>) -> Self {
        Self { cuts, ..self }
    }

    /// Serves the first client. Whoever drops the connection that it returns closes it.
    pub async fn on(self, listener: TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut room = vec![0; 1 << 16];
        self.say(&self.greeting, &mut stream).await;
        for saying in &self.sayings {
            if stream.read(&mut room).await.unwrap_or(0) == 0 {
                break;
            }
            self.say(saying, &mut stream).await;
        }
        stream
    }

    async fn say(&self, saying: &[u8], stream: &mut TcpStream) {
        let mut rest = saying;
        for cut in &self.cuts {
            let (part, behind) = rest.split_at(rest.len() * usize::from(*cut) / 256);
            // whoever has enough of it may have gone, here and below
            let _ = stream.write_all(part).await;
            tokio::task::yield_now().await;
            rest = behind;
        }
        let _ = stream.write_all(rest).await;
    }

    /// Runs a test while it serves at an address. The connection ends when it has said all.
    pub fn during<T>(self, test: impl AsyncFnOnce(SocketAddr) -> T) -> T {
        crate::wait(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let served = tokio::spawn(async { drop(self.on(listener).await) });
            let done = timeout(PATIENCE, test(address)).await;
            served.abort();
            done.expect("it does not end")
        })
    }
}
