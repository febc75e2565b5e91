//! Who may send entries: names, and hashes of their tokens, in a database of their own.

mod authenticator;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;
mod token;

use std::time::Duration;

use acidtest_model::Address;

pub(crate) use self::authenticator::{Authenticator, Denied};
use self::token::Hash;
pub use self::token::Token;
use crate::{
    Error,
    entry::{Moment, now},
};

/// The most bytes of a user's name.
const NAME: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Letters, digits and `._-`.
    pub name: String,
    /// Whether the user may look at the gateway's page and metrics where these need a token.
    pub is_operator: bool,
    /// When the user was added: microseconds since 1970, as all moments here.
    pub added: i64,
    /// From when on the token is not taken any more.
    pub expires: Option<i64>,
    /// When the token was revoked.
    pub revoked: Option<i64>,
}

impl User {
    /// What the token is good for at present: `active`, `expired` or `revoked`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.revoked, self.expires) {
            (Some(_), _) => "revoked",
            (None, Some(end)) if end <= now() => "expired",
            (None, _) => "active",
        }
    }

    /// When the user was added, and from when on the token is not taken, as RFC 3339.
    #[must_use]
    pub fn moments(&self) -> (String, Option<String>) {
        (Moment(self.added).to_string(), self.expires.map(|end| Moment(end).to_string()))
    }
}

/// The database of users.
#[derive(Debug)]
pub struct Users(Kind);

#[derive(Debug)]
enum Kind {
    Sqlite(sqlite::SqliteUsers),
    #[cfg(feature = "postgres")]
    Postgres(postgres::PostgresUsers),
}

/// Does the same on whichever database it is.
macro_rules! on {
    ($users:expr, $database:ident => $done:expr) => {
        match &$users.0 {
            Kind::Sqlite($database) => $done,
            #[cfg(feature = "postgres")]
            Kind::Postgres($database) => $done,
        }
    };
}

impl Users {
    /// Opens the database at an address of SQLite or PostgreSQL, and makes its tables where there are none: in PostgreSQL in
    /// this schema, which is there, or in the first one of the search path.
    ///
    /// # Errors
    /// If it cannot be reached, is a database of another kind, or has no schemas.
    #[cfg_attr(not(feature = "postgres"), allow(clippy::unused_async, reason = "others need it"))]
    pub async fn open(address: &Address, schema: Option<&str>) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if let Some(odd) = schema.filter(|schema| schema.is_empty() || !schema.bytes().all(is_plain)) {
            return Err(Error::Usage(format!(
                "\"{odd}\" is not a valid name for a schema: use lower-case letters, digits and _"
            )));
        }
        match address.scheme.as_str() {
            "sqlite" if schema.is_some() => Err(Error::Usage(
                "users in SQLite have no schema\n  remedy: leave --users-schema out".to_owned(),
            )),
            "sqlite" => Ok(Self(Kind::Sqlite(sqlite::SqliteUsers::open(&address.path)?))),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                Ok(Self(Kind::Postgres(postgres::PostgresUsers::open(address, schema).await?)))
            }
            other => Err(Error::Usage(format!(
                "users are kept in SQLite or PostgreSQL, not at an address that begins with {other}:\n  remedy: \
                 --users sqlite:FILE or --users postgres://USER@HOST/DATABASE"
            ))),
        }
    }

    /// Adds a user, and makes a token, which is not kept: only its hash is. A user whose token was revoked gets a new
    /// one.
    ///
    /// # Errors
    /// If the name is not good, there is an active user of that name, or the database fails.
    pub async fn add(
        &self,
        name: &str,
        is_operator: bool,
        expires: Option<Duration>,
    ) -> Result<Token, Error> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME || !name.bytes().all(is_good) {
            return Err(Error::Usage(format!("a user's name has 1 to {NAME} letters, digits or ._-")));
        }
        let token = Token::new();
        let in_time =
            |span: Duration| now().saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX));
        let user = User {
            name: name.to_owned(),
            is_operator,
            added: now(),
            expires: expires.map(in_time),
            revoked: None,
        };
        if on!(self, database => database.add(&user, &token.hash()).await?) {
            Ok(token)
        } else {
            Err(Error::Usage(format!(
                "there is a user {name} already\n  remedy: acidtest gateway user revoke {name}, and add it again for \
                 a new token"
            )))
        }
    }

    /// All users, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn list(&self) -> Result<Vec<User>, Error> {
        Ok(on!(self, database => database.list().await?))
    }

    /// Revokes a user's token.
    ///
    /// # Errors
    /// If there is no such user, or the database fails.
    pub async fn revoke(&self, name: &str) -> Result<(), Error> {
        if on!(self, database => database.revoke(name, now()).await?) {
            return Ok(());
        }
        let users = self.list().await?;
        if users.iter().any(|user| user.name == name) {
            return Err(Error::Usage(format!("the token of {name} is revoked already")));
        }
        let hint = acidtest_model::hint(name, users.iter().map(|user| user.name.as_str()));
        Err(Error::Usage(format!("there is no user {name} whose token could be revoked{hint}")))
    }

    /// The user whose token has this hash.
    async fn find(&self, hash: &Hash) -> Result<Option<User>, Error> {
        Ok(on!(self, database => database.find(hash).await?))
    }

    /// A number that grows with every change.
    async fn version(&self) -> Result<i64, Error> {
        Ok(on!(self, database => database.version().await?))
    }
}
