//! How connections are opened: a client's, and the driver's, on which everything is done that is not timed.

use std::sync::Arc;

use acidtest_model::{Address, StoreError};
use acidtest_transport::Transport;

use crate::{
    DEFAULT_PORT,
    driver::{Connector, Driver},
    fault::{ConnectError, client_words},
    leader::Servers,
    protocol::{self, Login},
};

/// Address and login of the server, or of several of which one takes writes. Connections are opened alike for clients and for work that
/// is not timed.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    servers: Servers<Server>,
    /// The settings of a session in which nobody has set any, as they were read when the store was opened.
    usual: Option<Arc<str>>,
}

/// Address and login of one server.
#[derive(Clone, Debug)]
struct Server {
    transport: Transport,
    login: Login,
    driver: Connector,
}

impl Server {
    fn new(address: &Address) -> Result<Self, StoreError> {
        let (transport, login) = (Transport::new(address, DEFAULT_PORT)?, Login::of(address)?);
        let driver = Connector::of(transport.clone(), &login, APPLICATION);
        Ok(Self { transport, login, driver })
    }

    async fn open(&self, must_write: bool) -> Result<protocol::Connection, ConnectError> {
        let mut connection = protocol::Connection::open(&self.transport, &self.login).await?;
        if must_write {
            connection.writes().await?.check()?;
        }
        Ok(connection)
    }
}

impl ConnectOptions {
    /// For the server at an address.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`]: a certificate that it names cannot be used, or it names no user and the system does not
    /// tell who runs this.
    pub fn new(address: &Address) -> Result<Self, StoreError> {
        Self::among(address, &[])
    }

    /// For whichever of the servers at these addresses takes writes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn among(address: &Address, peers: &[Address]) -> Result<Self, StoreError> {
        let others: Result<_, _> = peers.iter().map(Server::new).collect();
        Ok(Self { servers: Servers::new(Server::new(address)?, others?), usual: None })
    }

    /// Has clients expect these settings of a session that they are given.
    pub(crate) fn expect(&mut self, usual: String) {
        self.usual = Some(usual.into());
    }

    pub(crate) fn usual(&self) -> Option<&str> {
        self.usual.as_deref()
    }

    /// The server's address; of several, that of the one that took writes last.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.servers.leader().transport.address()
    }

    /// Connects and logs in, for a client.
    pub(crate) async fn connect(&self) -> Result<protocol::Connection, ConnectError> {
        let must_write = !self.servers.is_one();
        self.reach(async |server| {
            let opened = server.transport.in_time(server.open(must_write)).await;
            opened.map_err(ConnectError::Late)?
        })
        .await
    }

    /// Connects and logs in by the driver, for work that is not timed.
    pub(crate) async fn connect_driver(&self) -> Result<Driver, ConnectError> {
        let must_write = !self.servers.is_one();
        self.reach(async |server| Driver::open(&server.driver, must_write).await).await
    }

    /// How many servers there are.
    pub(crate) fn servers(&self) -> usize {
        self.servers.count()
    }

    /// Connects and logs in, for a client, to the server at this place among the addresses. Says whether that takes writes, as it may or
    /// may not: where clients look for the one that does is left as it is.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) async fn connect_to(&self, place: usize) -> Result<(protocol::Connection, bool), String> {
        let none = || format!("there is no server {place}: the store was opened with {}", self.servers());
        let server = self.servers.at(place).ok_or_else(none)?;
        let opened = server.transport.in_time(async {
            let mut connection = server.open(false).await?;
            let takes_writes = connection.writes().await?.check().is_ok();
            Ok((connection, takes_writes))
        });
        let opened = opened.await.unwrap_or_else(|late| Err(ConnectError::Late(late)));
        opened.map_err(|error| client_words(&error))
    }

    async fn reach<T>(
        &self,
        open: impl AsyncFn(&Server) -> Result<T, ConnectError>,
    ) -> Result<T, ConnectError> {
        let time = self.address().connect_timeout;
        self.servers.reach(time, |server| server.transport.endpoint().to_owned(), open).await
    }
}

/// The name by which the server lists its connections.
pub(crate) const APPLICATION: &str = "acidtest";

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use acidtest_testbed::{Played, wait};
    use tokio::net::TcpListener;
    use tokio_postgres::error::SqlState;

    use super::*;
    use crate::protocol::tests::{complete, error, message, ready, row, welcome};

    /// A server before 14, which says nothing at the login.
    fn asked(is_standby: &str, is_read_only: &str) -> Played {
        let column = |name: &str| [name.as_bytes(), &[0; 7], &25_u32.to_be_bytes(), &[0; 8]].concat();
        let columns = message(b'T', &[&[0, 2][..], &column("a"), &column("b")].concat());
        let row = row(&[Some(is_standby.as_bytes()), Some(is_read_only.as_bytes())]);
        Played::new(Vec::new(), vec![welcome(), [columns, row, complete("SELECT 1"), ready()].concat()])
    }

    /// One from 14 on, which is asked nothing.
    fn telling(is_standby: &str, is_read_only: &str) -> Played {
        let told = [("in_hot_standby", is_standby), ("default_transaction_read_only", is_read_only)];
        let told = told.map(|(name, value)| message(b'S', format!("{name}\0{value}\0").as_bytes())).concat();
        let let_in = message(b'R', &0_u32.to_be_bytes());
        Played::new(Vec::new(), vec![[let_in, told, message(b'K', &[0; 8]), ready()].concat()])
    }

    /// Has these servers played while something is done with their addresses.
    async fn among<T>(servers: &[fn() -> Played], work: impl AsyncFnOnce(&[Address]) -> T) -> T {
        let (mut addresses, mut under_way) = (Vec::new(), Vec::new());
        for played in servers {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("postgres://ann@{}/db", listener.local_addr().unwrap());
            addresses.push(Address::parse(&address).unwrap());
            under_way.push(tokio::spawn(played().on(listener)));
        }
        let done = work(&addresses).await;
        under_way.iter().for_each(tokio::task::JoinHandle::abort);
        done
    }

    /// Which of these servers a client is connected to, and which the driver, or why neither.
    fn found(servers: &[fn() -> Played]) -> [Result<usize, ConnectError>; 2] {
        [true, false].map(|is_client| {
            wait(among(servers, async |addresses| {
                let options = ConnectOptions::among(&addresses[0], &addresses[1..]).unwrap();
                let opened = if is_client {
                    options.connect().await.map(|_| ())
                } else {
                    options.connect_driver().await.map(|_| ())
                };
                let leader = addresses.iter().position(|address| address == options.address());
                opened.map(|()| leader.unwrap())
            }))
        })
    }

    #[test]
    fn the_server_that_takes_writes_is_found_by_clients_and_by_the_driver() {
        let asked: [fn() -> Played; 3] = [|| asked("t", "off"), || asked("f", "on"), || asked("f", "off")];
        let telling: [fn() -> Played; 3] =
            [|| telling("on", "off"), || telling("off", "on"), || telling("off", "off")];
        for servers in [asked, telling] {
            for (order, leader) in [([0, 1, 2], 2), ([2, 0, 1], 0), ([0, 2, 1], 1)] {
                let found = found(&order.map(|at| servers[at]));
                assert!(
                    found.iter().all(|found| matches!(found, Ok(index) if *index == leader)),
                    "{found:?}"
                );
            }
            for none in found(&[servers[0], servers[1]]) {
                let said = none.unwrap_err().to_string();
                assert!(said.starts_with("none of 2 servers takes writes: 127.0.0.1:"), "{said}");
                assert!(said.contains(": it takes no writes: it is a replica; "), "{said}");
                assert!(said.ends_with("it is read-only (default_transaction_read_only=on)"), "{said}");
            }
            // one alone is used whatever it says, and is not asked
            assert!(found(&[servers[0]]).iter().all(Result::is_ok));
        }
    }

    /// Clients go on looking where they have found the leader last.
    #[test]
    fn one_that_is_read_says_whether_it_takes_writes_and_is_not_taken_for_the_leader() {
        let servers: [fn() -> Played; 4] =
            [|| asked("t", "off"), || asked("f", "off"), || telling("on", "off"), || telling("off", "off")];
        for (place, takes_writes) in [false, true, false, true].into_iter().enumerate() {
            wait(among(&servers, async |addresses| {
                let options = ConnectOptions::among(&addresses[0], &addresses[1..]).unwrap();
                assert_eq!(options.servers(), servers.len());
                let (_, said) = options.connect_to(place).await.unwrap();
                assert_eq!(said, takes_writes, "{place}");
                assert_eq!(options.address(), &addresses[0]);
            }));
        }
    }

    #[test]
    fn a_server_that_hangs_or_refuses_is_passed_over() {
        let silent: fn() -> Played = || Played::new(Vec::new(), vec![Vec::new(), Vec::new()]);
        let starting: fn() -> Played = || Played::new(Vec::new(), vec![error("FATAL", "57P03")]);
        let leading: fn() -> Played = || telling("off", "off");
        for first in [silent, starting] {
            let found = found(&[first, leading]);
            assert!(found.iter().all(|found| matches!(found, Ok(1))), "{found:?}");
        }
        let following: fn() -> Played = || telling("on", "off");
        for none in found(&[following, starting]) {
            let none = none.unwrap_err();
            assert_eq!(none.code(), Some(&SqlState::CANNOT_CONNECT_NOW), "{none}");
        }
    }

    /// Whoever gives up is not kept by those that are still asked.
    #[test]
    fn looking_for_a_leader_ends_in_time() {
        wait(async {
            let silent = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (one, two) = (silent().await, silent().await);
            let time = Duration::from_millis(300);
            let address = |listener: &TcpListener| {
                let address = format!("postgres://ann@{}/db", listener.local_addr().unwrap());
                Address { connect_timeout: time, ..Address::parse(&address).unwrap() }
            };
            let options = ConnectOptions::among(&address(&one), &[address(&two)]).unwrap();
            let connecting = pin!(options.connect());
            let late = tokio::time::timeout(Duration::from_secs(20), connecting).await.unwrap();
            let said = late.unwrap_err().to_string();
            assert_eq!(said.matches("no connection within 300ms").count(), 2, "{said}");
        });
    }
}
