//! Whether the connections to a server have sessions of their own there, or share them behind a pooler.
//!
//! A pooler that hands a server's sessions on with every transaction, or that sends a connection's statements to several
//! servers, cannot be seen on one idle connection. It shows on several: two that are open at once are answered by the same
//! session, or one of them by two. Both are proofs, because a session that a server has for one connection is neither left nor
//! shared while that is open. Only reads are sent, so that whoever is given the session next finds nothing changed.

use std::{collections::BTreeMap, time::Duration};

use acidtest_model::{Address, StoreError};
use tokio::time::timeout;

/// How many connections are open at once when sharing is looked for.
const PROBES: usize = 3;

/// How long they may take to be answered.
const ANSWERED: Duration = Duration::from_secs(3);

/// How often each connection is asked: whoever else uses a pool changes what is given out next.
const ROUNDS: usize = 4;

/// A connection that can tell which session of the server answers.
pub trait Probe {
    /// A name of the session that no other has, of whatever server, while it is there.
    fn session(&mut self) -> impl Future<Output = Result<String, StoreError>>;

    /// Begins a transaction, which stays open, and tells the session in it.
    fn hold(&mut self) -> impl Future<Output = Result<String, StoreError>>;

    /// Ends the transaction.
    fn let_go(&mut self) -> impl Future<Output = Result<(), StoreError>>;
}

/// How connections were seen to be without sessions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Two that were open at once were answered by the same session.
    OneForTwo,
    /// One was answered by several sessions.
    TwoForOne,
}

impl Sharing {
    /// The same in words, as what is wrong with an address.
    fn words(self) -> &'static str {
        match self {
            Self::OneForTwo => {
                "its connections share the server's sessions: two that were open at once were answered by the same one"
            }
            Self::TwoForOne => {
                "its connections have no sessions of their own: one connection was answered by several of the server's"
            }
        }
    }
}

/// Which connection each session has answered on, and which session answers on each connection.
#[derive(Debug, Default)]
struct Seen {
    connections: BTreeMap<String, usize>,
    sessions: BTreeMap<usize, String>,
}

impl Seen {
    /// Notes that a session has answered on a connection; what that proves, if it is not what was seen before.
    fn note(&mut self, connection: usize, session: &str) -> Option<Sharing> {
        let owner = *self.connections.entry(session.to_owned()).or_insert(connection);
        if owner != connection {
            return Some(Sharing::OneForTwo);
        }
        let known = self.sessions.entry(connection).or_insert_with(|| session.to_owned());
        (known != session).then_some(Sharing::TwoForOne)
    }
}

/// What is said of an address whose connections share sessions.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The address that is refused.
    pub address: &'a Address,
    /// Who does so, for those who know the store.
    pub known: &'a str,
    /// The remedy, in words for the user.
    pub remedy: &'a str,
}

/// Refuses an address whose connections share sessions. `open` opens another connection beside the first. Where they are not
/// all answered, as by a pool of few sessions in session mode, nothing is proved.
///
/// # Errors
/// They share sessions; one cannot be opened, or does not answer.
pub async fn refuse_sharing<P: Probe>(
    first: P,
    open: impl AsyncFn() -> Result<P, StoreError>,
    refusal: Refusal<'_>,
) -> Result<(), StoreError> {
    let mut probes = vec![first];
    while probes.len() < PROBES {
        probes.push(open().await?);
    }
    // who is not answered in time has proved nothing
    let Some(shared) = timeout(ANSWERED, sharing(&mut probes)).await.unwrap_or(Ok(None))? else {
        return Ok(());
    };
    Err(StoreError::Unreachable {
        address: refusal.address.to_string(),
        cause: format!("{}; {}", shared.words(), refusal.known),
        remedy: refusal.remedy.to_owned(),
    })
}

/// Looks how connections that are open at once share sessions; none if no sharing was seen.
///
/// # Errors
/// One does not answer.
async fn sharing<P: Probe>(probes: &mut [P]) -> Result<Option<Sharing>, StoreError> {
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        for (connection, probe) in probes.iter_mut().enumerate() {
            // twice in a row: whoever hands sessions out in turn gives it another one
            for _ in 0..2 {
                if let shared @ Some(_) = seen.note(connection, &probe.session().await?) {
                    return Ok(shared);
                }
            }
        }
        if let shared @ Some(_) = while_held(probes, round, &mut seen).await? {
            return Ok(shared);
        }
    }
    Ok(None)
}

/// The same while one of them keeps a session to itself: the others must still be answered by theirs.
async fn while_held<P: Probe>(
    probes: &mut [P],
    round: usize,
    seen: &mut Seen,
) -> Result<Option<Sharing>, StoreError> {
    let holder = round % probes.len().max(1);
    let Some((before, [held, after @ ..])) = probes.split_at_mut_checked(holder) else { return Ok(None) };
    let mut shared = seen.note(holder, &held.hold().await?);
    let others = before.iter_mut().enumerate().chain((holder + 1..).zip(after));
    for (connection, probe) in others {
        if shared.is_none() {
            shared = seen.note(connection, &probe.session().await?);
        }
    }
    held.let_go().await?;
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, rc::Rc};

    use super::*;

    /// How a pool chooses among its idle sessions.
    #[derive(Clone, Copy, Debug)]
    enum Choice {
        /// Each connection has its own, for good.
        Own,
        /// The one that was given back last.
        Last,
        /// One after the other.
        InTurn,
        /// For each connection the one that it had before, if it is idle.
        Sticky,
        /// Reads outside of transactions go elsewhere.
        Split,
    }

    /// A connection to a pool, with the session that it keeps in a transaction.
    struct Pooled {
        name: usize,
        idle: Rc<RefCell<VecDeque<usize>>>,
        choice: Choice,
        had: Option<usize>,
        held: Option<usize>,
    }

    impl Pooled {
        fn take(&mut self) -> usize {
            let mut idle = self.idle.borrow_mut();
            let taken = match self.choice {
                Choice::Own | Choice::Split => Some(self.name),
                Choice::Last => idle.pop_back(),
                Choice::InTurn => idle.pop_front(),
                Choice::Sticky => {
                    let place = idle.iter().position(|session| Some(*session) == self.had);
                    idle.remove(place.unwrap_or(0))
                }
            };
            let taken = taken.expect("the pool is large enough");
            self.had = Some(taken);
            taken
        }

        fn give_back(&mut self, session: usize) {
            if !matches!(self.choice, Choice::Own | Choice::Split) {
                self.idle.borrow_mut().push_back(session);
            }
        }
    }

    impl Probe for Pooled {
        async fn session(&mut self) -> Result<String, StoreError> {
            if let Some(held) = self.held {
                return Ok(held.to_string());
            }
            let session = self.take();
            self.give_back(session);
            let is_elsewhere = matches!(self.choice, Choice::Split);
            Ok(if is_elsewhere { format!("{session} elsewhere") } else { session.to_string() })
        }

        async fn hold(&mut self) -> Result<String, StoreError> {
            self.held = Some(self.take());
            self.session().await
        }

        async fn let_go(&mut self) -> Result<(), StoreError> {
            if let Some(held) = self.held.take() {
                self.give_back(held);
            }
            Ok(())
        }
    }

    fn seen(choice: Choice, sessions: usize) -> Option<Sharing> {
        let idle = Rc::new(RefCell::new((0..sessions).collect()));
        let pooled = |name| Pooled { name, idle: Rc::clone(&idle), choice, had: None, held: None };
        let mut probes = [0, 1, 2].map(pooled);
        let mut looking = std::pin::pin!(sharing(&mut probes));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match looking.as_mut().poll(&mut context) {
            std::task::Poll::Ready(seen) => seen.unwrap(),
            std::task::Poll::Pending => panic!("nothing here waits"),
        }
    }

    #[test]
    fn whoever_shares_sessions_is_seen() {
        for sessions in [1, 2, 3, 4, 7, 20] {
            for choice in [Choice::Last, Choice::InTurn] {
                assert!(seen(choice, sessions).is_some(), "{choice:?} among {sessions}");
            }
        }
        for sessions in [1, 2] {
            assert!(seen(Choice::Sticky, sessions).is_some(), "among {sessions}");
        }
        assert_eq!(seen(Choice::Split, 0), Some(Sharing::TwoForOne));
    }

    #[test]
    fn connections_with_sessions_of_their_own_share_nothing() {
        assert_eq!(seen(Choice::Own, 0), None);
        let mut none: [Pooled; 0] = [];
        let mut looking = std::pin::pin!(sharing(&mut none));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(matches!(looking.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(None))));
    }
}
