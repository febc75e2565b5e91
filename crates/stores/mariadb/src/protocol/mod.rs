//! A client's connection by the servers' own protocol, with the messages of `mysql_common`.
//!
//! The client's own task writes and reads. Statements are prepared once, rows are read where they have arrived, and as many
//! requests are sent at once as an operation needs: the server works them off in their order. Of a request that has no answer
//! it is known whether it was sent.
//!
//! Checked against [`MariaDB`'s](https://mariadb.com/kb/en/clientserver-protocol/) and
//! [`MySQL`'s](https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html) descriptions, with `MariaDB` 10.11 and
//! `MySQL` 9.7. `MariaDB` from 10.6 on describes the columns of a prepared statement once only
//! (`MARIADB_CLIENT_CACHE_METADATA`). Compression and `LOCAL INFILE` are not asked for.

mod answer;
mod connection;
mod error;
mod login;
mod packet;
mod partial_answer;
#[cfg(test)]
pub(crate) mod tests;
mod value;

pub(crate) use answer::{Answers, Row, Rows};
pub(crate) use connection::{Connection, Pipeline, Statement};
pub(crate) use error::{Error, ServerError};
pub(crate) use login::{Login, OpenError};
pub(crate) use value::Value;
