//! A client's connections for operations that change nothing, where other members than the leader may answer them.

use std::time::Duration;

use acidtest_model::{ReadPolicy, Reads, Route};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout};

use super::{Connector, Reader};

/// How long a member is waited for before the next is asked as well, where one is enough; and how long a read waits for members that are
/// asked again, at most.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the other members have to answer, once one has, where each is to be read.
const OTHERS: Duration = Duration::from_secs(2);

/// The time between two looks whether a member that was lost is back.
const LOOK: Duration = Duration::from_secs(1);

/// The connections of one client to the members that may answer its reads.
#[derive(Debug)]
pub(super) struct Readers<C> {
    policy: ReadPolicy,
    /// What tells the client from others, so that they do not all read from the same member.
    client: usize,
    /// By server; none that does not answer, may not be read, or is not asked as another one is enough.
    open: Vec<Option<Reader<C>>>,
    /// The server that is not read because it leads.
    leader: Option<usize>,
    /// The server that was read last.
    last: usize,
    /// When members that do not answer were asked last.
    looked: Instant,
    /// Whether there was a connection before.
    is_used: bool,
}

/// What one member has said.
type Answer<C> = (usize, Result<Reader<C>, String>);

impl<C> Readers<C> {
    pub(super) fn new(policy: ReadPolicy, client: usize) -> Self {
        Self {
            policy,
            client,
            open: Vec::new(),
            leader: None,
            last: client,
            looked: Instant::now(),
            is_used: false,
        }
    }

    /// Whether there is nothing to read from although there should be.
    pub(super) fn are_missing(&self) -> bool {
        !self.policy.is_leader() && self.open.iter().all(Option::is_none)
    }

    /// The connection for the next read; none where the leader's is for everything.
    pub(super) fn next(&mut self) -> Option<&mut Reader<C>> {
        let servers = self.open.len();
        let others = (1..=servers).map(|step| (self.last + step) % servers);
        self.last = others.into_iter().find(|server| self.open[*server].is_some())?;
        self.open[self.last].as_mut()
    }

    /// Closes the connection of the last read.
    pub(super) fn close_last(&mut self) {
        if let Some(reader) = self.open.get_mut(self.last) {
            *reader = None;
        }
    }

    pub(super) fn close(&mut self) {
        self.open.clear();
    }

    pub(super) fn connections(&mut self) -> impl Iterator<Item = &mut C> {
        self.open.iter_mut().flatten().map(|reader| &mut reader.connection)
    }

    /// Opens what is needed. Returns whether that is in the place of a connection that there was before, so that it may be to another
    /// member, or to one that has restarted.
    ///
    /// # Errors
    /// What each member has said, if none may be read.
    pub(super) async fn connect(
        &mut self,
        connector: &impl Connector<Connection = C>,
    ) -> Result<bool, String> {
        self.open = (0..connector.servers()).map(|_| None).collect();
        self.leader = None;
        let failed = match self.policy.route {
            Route::Pinned => self.ask_until_one(connector).await,
            Route::Spread => self.ask_all(connector).await,
        };
        if self.are_missing() {
            return Err(format!("no member may be read from: {}", failed.join("; ")));
        }
        self.looked = Instant::now();
        Ok(std::mem::replace(&mut self.is_used, true))
    }

    /// Looks now and then whether members that are to be read, and were not there, are back. Returns whether one is.
    pub(super) async fn look(&mut self, connector: &impl Connector<Connection = C>) -> bool {
        let is_missing = |server: &usize| self.open[*server].is_none() && self.leader != Some(*server);
        let missing: Vec<usize> = match self.policy.route {
            Route::Pinned => return false,
            Route::Spread => (0..self.open.len()).filter(is_missing).collect(),
        };
        if missing.is_empty() || self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let asked = async |server: usize| (server, connector.reader(server).await);
        let mut asking: FuturesUnordered<_> = missing.into_iter().map(asked).collect();
        let until = self.looked + PATIENCE;
        let mut is_back = false;
        while let Ok(Some(answer)) = tokio::time::timeout_at(until, asking.next()).await {
            is_back |= self.take(answer).is_none();
        }
        is_back
    }

    /// Keeps what may be read; of what may not, returns why.
    fn take(&mut self, (server, answer): Answer<C>) -> Option<String> {
        match answer {
            Ok(reader) if reader.leads && self.policy.from == Reads::Replica => {
                self.leader = Some(server);
                Some(format!("server {}: it leads", server + 1))
            }
            Ok(reader) => {
                self.open[server] = Some(reader);
                None
            }
            Err(why) => Some(format!("server {}: {why}", server + 1)),
        }
    }

    /// Asks all members at once.
    async fn ask_all(&mut self, connector: &impl Connector<Connection = C>) -> Vec<String> {
        let asked = async |server: usize| (server, connector.reader(server).await);
        let mut asking: FuturesUnordered<_> = (0..connector.servers()).map(asked).collect();
        let mut failed = Vec::new();
        loop {
            let wait = if self.are_missing() { Duration::MAX } else { OTHERS };
            // nobody else answers in time, or there is nobody else
            let Ok(Some(answer)) = timeout(wait, asking.next()).await else { return failed };
            failed.extend(self.take(answer));
        }
    }

    /// Asks the client's own member, and the next one when it has failed or takes long, until there is one.
    async fn ask_until_one(&mut self, connector: &impl Connector<Connection = C>) -> Vec<String> {
        let asked = async |server: usize| (server, connector.reader(server).await);
        let mut order = self.order(connector.servers()).into_iter();
        let (mut asking, mut failed) = (FuturesUnordered::new(), Vec::new());
        while self.are_missing() {
            let next = order.next();
            let wait = if next.is_some() { PATIENCE } else { Duration::MAX };
            asking.extend(next.map(asked));
            match timeout(wait, asking.next()).await {
                Ok(Some(answer)) => failed.extend(self.take(answer)),
                Ok(None) => break,
                // one more is asked
                Err(_) => {}
            }
        }
        failed
    }

    /// The servers in the order in which they are asked for one connection. The first of all leads at the beginning, so that whoever reads from
    /// replicas asks it last.
    fn order(&self, servers: usize) -> Vec<usize> {
        let first = usize::from(self.policy.from == Reads::Replica && servers > 1);
        let mut order: Vec<usize> = (first..servers).collect();
        let own = self.client.checked_rem(order.len()).unwrap_or_default();
        order.rotate_left(own);
        order.extend(0..first);
        order
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use acidtest_model::Consistency;

    use super::*;
    use crate::{
        Attempt, at_once,
        records::{Answer, Operations, Request},
    };

    /// A connection to the server of this number.
    #[derive(Debug, PartialEq, Eq)]
    struct To(usize);

    impl Operations for To {
        async fn single(&mut self, _: &Request, _: &mut Answer) -> Attempt {
            Attempt::Ok
        }
    }

    /// Servers, of which each leads, follows, or does not answer; and those that were asked.
    struct Servers(RefCell<Vec<Option<bool>>>, RefCell<Vec<usize>>);

    impl Servers {
        fn new(servers: &[Option<bool>]) -> Self {
            Self(RefCell::new(servers.to_vec()), RefCell::default())
        }
    }

    impl Connector for Servers {
        type Connection = To;

        async fn connect(&self) -> Result<To, String> {
            Err("nobody asked for it".to_owned())
        }

        fn servers(&self) -> usize {
            self.0.borrow().len()
        }

        async fn reader(&self, server: usize) -> Result<Reader<To>, String> {
            self.1.borrow_mut().push(server);
            let leads = self.0.borrow()[server].ok_or("it is down")?;
            Ok(Reader { connection: To(server), leads })
        }
    }

    fn policy(from: Reads, route: Route) -> ReadPolicy {
        ReadPolicy { from, route, consistency: Consistency::Eventual }
    }

    fn next(readers: &mut Readers<To>) -> [usize; 4] {
        [(); 4].map(|()| readers.next().unwrap().connection.0)
    }

    /// The servers that four reads of a client go to.
    fn read(servers: &[Option<bool>], policy: ReadPolicy, client: usize) -> [usize; 4] {
        let mut readers = Readers::new(policy, client);
        at_once(readers.connect(&Servers::new(servers))).unwrap();
        next(&mut readers)
    }

    const THREE: [Option<bool>; 3] = [Some(true), Some(false), Some(false)];

    #[test]
    fn a_pinned_client_reads_from_one_member_and_a_spread_one_from_each_in_turn() {
        use Reads::{Any, Replica};
        let of_clients = |from, route| [0, 1, 2].map(|client| read(&THREE, policy(from, route), client));
        assert_eq!(of_clients(Replica, Route::Pinned), [[1; 4], [2; 4], [1; 4]]);
        assert_eq!(of_clients(Any, Route::Pinned), [[0; 4], [1; 4], [2; 4]]);
        assert_eq!(of_clients(Replica, Route::Spread), [[1, 2, 1, 2], [2, 1, 2, 1], [1, 2, 1, 2]]);
        assert_eq!(of_clients(Any, Route::Spread), [[1, 2, 0, 1], [2, 0, 1, 2], [0, 1, 2, 0]]);
    }

    #[test]
    fn a_pinned_client_asks_its_own_member_alone_and_comes_back_to_it() {
        let servers = Servers::new(&THREE);
        let mut readers = Readers::new(policy(Reads::Replica, Route::Pinned), 1);
        assert!(!at_once(readers.connect(&servers)).unwrap(), "it is its first connection");
        assert_eq!(*servers.1.borrow(), [2]);
        readers.next();
        readers.close_last();
        assert!(readers.are_missing());
        servers.0.borrow_mut()[2] = None;
        assert!(at_once(readers.connect(&servers)).unwrap());
        assert_eq!((next(&mut readers), &servers.1.borrow()[1..]), ([1; 4], &[2, 1][..]));
        servers.0.borrow_mut()[2] = Some(false);
        readers.close_last();
        assert!(at_once(readers.connect(&servers)).unwrap());
        assert_eq!(next(&mut readers), [2; 4]);
    }

    #[test]
    fn who_does_not_answer_is_left_out_and_who_leads_is_no_replica() {
        let maimed = &[None, Some(true), Some(false)];
        assert_eq!(read(maimed, policy(Reads::Replica, Route::Spread), 0), [2; 4]);
        assert_eq!(read(maimed, policy(Reads::Any, Route::Spread), 0), [1, 2, 1, 2]);
        assert_eq!(read(maimed, policy(Reads::Replica, Route::Pinned), 0), [2; 4]);
        let mut readers = Readers::new(policy(Reads::Replica, Route::Pinned), 0);
        let error = at_once(readers.connect(&Servers::new(&[None, Some(true)]))).unwrap_err();
        assert_eq!(error, "no member may be read from: server 2: it leads; server 1: it is down");
        assert!(readers.are_missing() && readers.next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_is_not_asked_again_and_again() {
        let servers = Servers::new(&THREE);
        let mut readers = Readers::new(policy(Reads::Replica, Route::Spread), 0);
        readers.connect(&servers).await.unwrap();
        tokio::time::advance(LOOK).await;
        assert!(!readers.look(&servers).await);
        assert_eq!(*servers.1.borrow(), [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_replaced_alone_once_its_member_is_back() {
        let servers = Servers::new(&THREE);
        let mut readers = Readers::new(policy(Reads::Any, Route::Spread), 0);
        readers.connect(&servers).await.unwrap();
        assert_eq!(readers.next().unwrap().connection.0, 1);
        readers.close_last();
        servers.0.borrow_mut()[1] = None;
        assert_eq!(next(&mut readers), [2, 0, 2, 0]);
        assert!(!readers.look(&servers).await, "it has just been asked");
        tokio::time::advance(LOOK).await;
        assert!(!readers.look(&servers).await, "it is down");
        servers.0.borrow_mut()[1] = Some(false);
        tokio::time::advance(LOOK).await;
        assert!(readers.look(&servers).await);
        assert_eq!(next(&mut readers), [1, 2, 0, 1]);
        assert_eq!(servers.1.borrow()[3..], [1, 1], "the others were left as they were");
        let leader = Readers::<To>::new(ReadPolicy::default(), 0);
        assert!(!leader.are_missing());
    }
}
