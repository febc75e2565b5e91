//! The connection between a client and a host.

use std::{
    future::Future,
    io::BufReader,
    net::{SocketAddr, TcpStream as HostStream},
    pin::Pin,
};

use acidtest_engine::Fault;
use acidtest_model::Address;
use acidtest_protocol::{AsyncReader, AsyncWriter, Error, Reader, Writer, answer_greeting};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::BufReader as AsyncBufReader,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{PROTOCOL, Purpose, Reply};

/// The client's end.
#[derive(Debug)]
pub(super) struct HostLine {
    from: AsyncReader<AsyncBufReader<OwnedReadHalf>>,
    to: AsyncWriter<OwnedWriteHalf>,
}

fn lost(error: &Error) -> Fault {
    Fault::lost(match error {
        Error::Connection(error) => format!("the store's host is gone: {error}"),
        error => format!("the store's host {error}"),
    })
}

impl HostLine {
    pub(super) async fn open(address: &Address, purpose: &Purpose) -> Result<Self, Error> {
        let opened = TcpStream::connect(address.endpoint(0)).await;
        let stream = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let (from, to) = stream?.into_split();
        let (from, to) = (AsyncReader::new(AsyncBufReader::new(from)), AsyncWriter::new(to));
        let mut line = Self { from, to };
        line.to.greet(PROTOCOL).await?;
        // not after the host's greeting, which would be waited for: a host of another version reads no further
        line.to.send(purpose).await?;
        line.from.expect_greeting(PROTOCOL).await?;
        Ok(line)
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn ask<A: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<A, Fault> {
        self.send(request).await?;
        self.receive().await
    }

    pub(super) async fn send(&mut self, request: &impl Serialize) -> Result<(), Fault> {
        self.to.send(request).await.map_err(|error| lost(&error))
    }

    /// The next answer. What was read of it is kept if the future is dropped.
    pub(super) async fn receive<A: DeserializeOwned>(&mut self) -> Result<A, Fault> {
        let answer = self.from.receive().await.map_err(|error| lost(&error))?;
        answer.ok_or_else(|| Fault::lost("the store's host is gone: it closed the connection"))
    }
}

/// Serves one client's connection to its end.
pub type Served = Box<dyn FnOnce(ServedLine) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The host's end. It blocks its thread, as the operations of the store do.
#[derive(Debug)]
pub struct ServedLine {
    from: Reader<BufReader<HostStream>>,
    to: Writer<HostStream>,
}

impl ServedLine {
    /// A client's connection, and its purpose.
    ///
    /// # Errors
    /// It is closed, says nothing that a client would say, or is of another version, which it is told.
    pub fn accept(stream: HostStream) -> Result<(Self, Purpose), Error> {
        stream.set_nodelay(true)?;
        let from = Reader::new(BufReader::new(stream.try_clone()?));
        let mut line = Self { from, to: Writer::new(stream) };
        answer_greeting(&mut line.from, &mut line.to, PROTOCOL)?;
        let purpose = line.from.receive()?.ok_or(Error::Ended)?;
        Ok((line, purpose))
    }

    /// The next request; none at the end.
    pub fn request<R: DeserializeOwned>(&mut self) -> Option<R> {
        self.from.receive().ok().flatten()
    }

    /// Answers it. Returns whether the client is still there.
    pub fn answer(&mut self, answer: &impl Serialize) -> bool {
        self.to.send(answer).is_ok()
    }
}

/// Serves one client of a host: opens its connection to the store and says whether it is open, and then does on it what
/// each operation asks for.
pub(crate) fn serve<C: 'static, O: DeserializeOwned, T: Serialize>(
    connect: impl AsyncFnOnce() -> Result<C, String> + Send + 'static,
    perform: impl AsyncFn(O, &mut C) -> Reply<T> + Send + 'static,
) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let mut connection = match connect().await {
                Ok(connection) if line.answer(&Ok::<(), String>(())) => connection,
                Ok(_) => return,
                // the client may be gone
                Err(why) => {
                    line.answer(&Err::<(), _>(why));
                    return;
                }
            };
            while let Some(operation) = line.request() {
                if !line.answer(&perform(operation, &mut connection).await) {
                    break;
                }
            }
        })
    })
}

/// The address of a host's port on loopback.
#[must_use]
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::{BufRead, Write},
        net::TcpListener,
        thread::{self, JoinHandle},
        time::Duration,
    };

    use acidtest_engine::Attempt;
    use acidtest_model::{Lock, StoreError};
    use acidtest_protocol::Protocol;
    use serde_json::json;

    use super::*;
    use crate::{
        Place,
        hosted::{Hosted, HostedTrial},
        inventory::{self, Capture, Connector, Operations, Release, Withdrawal},
    };

    const ANOTHER: Protocol = Protocol { version: PROTOCOL.version + 1, ..PROTOCOL };

    pub(in crate::hosted) fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// The exchange of the document: each line, and whether it is the client's.
    fn documented() -> impl Iterator<Item = (bool, &'static str)> {
        let document = include_str!("../../../../docs/protocol.md");
        let exchange = document.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
        exchange.lines().map(|line| match line.split_once(' ').unwrap() {
            (">", said) => (true, said),
            ("<", said) => (false, said),
            _ => panic!("{line}"),
        })
    }

    /// The trial of the document.
    pub(in crate::hosted) fn trial() -> HostedTrial {
        HostedTrial {
            workload: "inventory".to_owned(),
            parameters: json!({ "items": 20 }).as_object().unwrap().clone(),
            lock: Lock::Native,
            place: Place { namespace: "acidtest".to_owned(), trial: 1 },
        }
    }

    const WANTED: Capture = Capture { sku: 7, condition: 1, source: 2, units: 3 };
    const RETURNED: Release = Release { sku: 7, warehouse: 3, condition: 1, source: 2, units: 1 };

    fn failed() -> Attempt {
        Attempt::Unknown(Fault::lost("disk I/O error"))
    }

    /// A store that does what the document tells: it has three units, in two warehouses, and its disk fails at the end.
    struct Documented {
        captures: u32,
    }

    impl Connector for Documented {
        type Connection = Self;

        async fn connect(&self) -> Result<Self, String> {
            Ok(Self { captures: 0 })
        }
    }

    impl Operations for Documented {
        async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
            assert_eq!(*capture, WANTED);
            self.captures += 1;
            match self.captures {
                1 => {
                    taken.extend([WANTED.withdrawal(1, 2), WANTED.withdrawal(3, 1)]);
                    Attempt::Ok
                }
                2 => Attempt::Refused,
                _ => failed(),
            }
        }

        async fn release(&mut self, release: &Release) -> Attempt {
            assert_eq!(*release, RETURNED);
            Attempt::Ok
        }

        fn lock_wait(&mut self) -> Duration {
            Duration::from_nanos(if self.captures == 2 { 1500 } else { 0 })
        }
    }

    /// Has one connection taken on a thread of its own.
    pub(in crate::hosted) fn listening<T: Send + 'static>(
        take: impl FnOnce(HostStream) -> T + Send + 'static,
    ) -> (Address, JoinHandle<T>) {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let taking = thread::spawn(move || take(listener.accept().unwrap().0));
        (Address::loopback("sqlite", None, port, ""), taking)
    }

    #[test]
    fn a_host_answers_as_documented() {
        let (address, host) = listening(|stream| {
            let (line, purpose) = ServedLine::accept(stream).unwrap();
            let Purpose::Client(asked) = purpose else { panic!("{purpose:?}") };
            assert_eq!(asked, trial());
            block_on(inventory::serve(Documented { captures: 0 })(line));
        });
        let mut to = HostStream::connect(loopback(address.port.unwrap())).unwrap();
        let mut from = BufReader::new(to.try_clone().unwrap()).lines();
        for (is_client, said) in documented() {
            if is_client {
                writeln!(to, "{said}").unwrap();
            } else {
                assert_eq!(from.next().unwrap().unwrap(), said);
            }
        }
        to.shutdown(std::net::Shutdown::Write).unwrap();
        host.join().unwrap();
        assert!(from.next().is_none());
    }

    /// It asks in the words of the document, and takes the answers for what they are; what is not answered is unknown.
    #[test]
    fn a_client_asks_as_documented() {
        let (address, host) = listening(|mut stream| {
            let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
            for (is_client, said) in documented() {
                if is_client {
                    assert_eq!(asked.next().unwrap().unwrap(), said);
                } else {
                    writeln!(stream, "{said}").unwrap();
                }
            }
            // it ends after the next question, unanswered
            assert!(asked.next().unwrap().unwrap().starts_with("{\"release\":"));
        });
        let hosted = Hosted { address, trial: Some(trial()), ordered: false };
        block_on(async {
            let mut connection = hosted.route(Purpose::Client).connect().await.unwrap();
            let mut taken = Vec::new();
            assert_eq!(connection.capture(&WANTED, &mut taken).await, Attempt::Ok);
            assert_eq!(taken, [WANTED.withdrawal(1, 2), WANTED.withdrawal(3, 1)]);
            assert_eq!(connection.release(&RETURNED).await, Attempt::Ok);
            assert_eq!(connection.capture(&WANTED, &mut taken).await, Attempt::Refused);
            assert!(taken.is_empty());
            assert_eq!(Operations::lock_wait(&mut connection), Duration::from_nanos(1500));
            assert_eq!(Operations::lock_wait(&mut connection), Duration::ZERO);
            assert_eq!(connection.capture(&WANTED, &mut taken).await, failed());
            let unanswered = connection.release(&RETURNED).await;
            assert!(
                matches!(&unanswered, Attempt::Unknown(fault) if fault.connection_lost),
                "{unanswered:?}"
            );
        });
        host.join().unwrap();
    }

    #[test]
    fn a_host_of_another_version_is_refused() {
        let (address, host) = listening(|stream| {
            let mut from = Reader::new(BufReader::new(stream.try_clone().unwrap()));
            answer_greeting(&mut from, &mut Writer::new(stream), ANOTHER).unwrap_err()
        });
        let refused = block_on(Hosted::open(&address, Some(trial()))).unwrap_err();
        host.join().unwrap();
        let said = format!(
            "it speaks version {} of the host protocol, and this acidtest version {} of the host protocol: use the same \
             version of acidtest for both",
            ANOTHER.version, PROTOCOL.version
        );
        assert!(matches!(&refused, StoreError::Server { cause, .. } if *cause == said), "{refused}");
    }

    /// It is told the host's version, and nothing that it asks for is done.
    #[test]
    fn a_client_of_another_version_is_refused() {
        let (address, host) = listening(|stream| ServedLine::accept(stream).unwrap_err());
        let to = HostStream::connect(loopback(address.port.unwrap())).unwrap();
        let mut from = Reader::new(BufReader::new(to.try_clone().unwrap()));
        let mut to = Writer::new(to);
        to.greet(ANOTHER).unwrap();
        to.send(&Purpose::Client(trial())).unwrap();
        assert!(matches!(from.expect_greeting(ANOTHER), Err(Error::AnotherVersion { .. })));
        assert!(matches!(host.join().unwrap(), Error::AnotherVersion { .. }));
    }
}
