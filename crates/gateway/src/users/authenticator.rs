//! Tells by its token who sends a request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::timeout;

use super::{
    User, Users,
    token::{Hash, Token},
};
use crate::Error;

/// How long the database of users may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many users are remembered; then all are forgotten, and looked up again.
const MOST: usize = 20_000;

/// Why a request is not taken.
#[derive(Debug)]
pub(crate) enum Denied {
    /// The token is missing, or not good: HTTP's 401.
    Token(&'static str),
    /// The database of users does not answer: HTTP's 503.
    Away(Error),
}

/// Looks users up, and remembers them for a while.
#[derive(Debug)]
pub(crate) struct Authenticator {
    users: Users,
    /// How long a user is remembered. None: each request is looked up.
    remember: Option<Duration>,
    known: Mutex<Known>,
    /// Since when the database of users does not answer, and why.
    away: Mutex<Option<(Instant, String)>>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the hash of the token: the user, and until when that is believed.
    users: HashMap<Hash, (Arc<User>, Instant)>,
    /// The version of the database of users that this is of.
    version: i64,
    /// How often all was forgotten: what was looked up before is not remembered after.
    epoch: u64,
}

impl Authenticator {
    pub(crate) fn new(users: Users, remember: Option<Duration>) -> Self {
        Self { users, remember, known: Mutex::default(), away: Mutex::default() }
    }

    /// Why nobody can be told by their token at present, if it is so: users who are remembered can, for a while.
    pub(crate) fn trouble(&self) -> Option<String> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = away.as_ref()?;
        (since.elapsed() >= self.remember.unwrap_or_default())
            .then(|| format!("users cannot be looked up: {why}"))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user with the token that the header `Authorization` gives.
    pub(crate) async fn authenticate(&self, header: Option<&[u8]>) -> Result<Arc<User>, Denied> {
        let header =
            header.ok_or(Denied::Token("no token was given: send it as Authorization: Bearer TOKEN"))?;
        let token =
            Token::given(header).ok_or(Denied::Token("the header is not Authorization: Bearer TOKEN"))?;
        let hash = token.hash();
        let user = match self.remembered(&hash) {
            Some(user) => Some(user),
            None => self.look_up(&hash).await.map_err(Denied::Away)?,
        };
        let user = user.ok_or(Denied::Token("the token is unknown"))?;
        match user.state() {
            "active" => Ok(user),
            "expired" => Err(Denied::Token("the token has expired")),
            _ => Err(Denied::Token("the token was revoked")),
        }
    }

    fn remembered(&self, hash: &Hash) -> Option<Arc<User>> {
        self.remember?;
        let known = self.known();
        let (user, until) = known.users.get(hash)?;
        (*until > Instant::now()).then(|| Arc::clone(user))
    }

    async fn look_up(&self, hash: &Hash) -> Result<Option<Arc<User>>, Error> {
        // an answer is believed from when it was asked for
        let (asked, epoch) = (Instant::now(), self.known().epoch);
        let late = |_| Error::Unreached(format!("no answer within {} s", PATIENCE.as_secs()));
        let user = timeout(PATIENCE, self.users.find(hash)).await.map_err(late)??.map(Arc::new);
        if let (Some(remember), Some(user)) = (self.remember, &user) {
            let mut known = self.known();
            if known.users.len() >= MOST {
                known.users.clear();
            }
            if known.epoch == epoch {
                known.users.insert(*hash, (Arc::clone(user), asked + remember));
            }
        }
        Ok(user)
    }

    /// Forgets all users if one was added or revoked since the last call. If the database does not answer, users are
    /// forgotten as they expire.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let late = |_| Error::Unreached(format!("no answer within {} s", PATIENCE.as_secs()));
        let version = timeout(PATIENCE, self.users.version()).await.map_err(late).flatten();
        {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            match &version {
                Ok(_) => *away = None,
                Err(error) => {
                    away.get_or_insert_with(|| (Instant::now(), String::new())).1 = error.to_string();
                }
            }
        }
        let version = version?;
        let mut known = self.known();
        if known.version != version {
            known.users.clear();
            known.version = version;
            known.epoch += 1;
        }
        Ok(())
    }
}
