//! The stores under test and direct access to their servers, shared by all tests.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it")]
#![allow(dead_code, reason = "not every test uses all of it")]

use acidtest_model::Address;
use acidtest_testbed::{World, wait};
use mysql_async::{Conn, OptsBuilder, prelude::Queryable};

/// A variant in the form that the common checks take.
macro_rules! subject {
    ($variant:ident) => {
        acidtest_testbed::Subject {
            kind: acidtest_store_mariadb::Variant::$variant.kind,
            open: |address, _| Box::pin(acidtest_store_mariadb::Variant::$variant.open(address)),
            gone: acidtest_testbed::AfterRemoval::Error,
        }
    };
}
pub(crate) use subject;

/// The address of a private server by its Unix socket.
pub(crate) fn by_socket<S>(world: &World<S>) -> Address {
    let (private, over_tcp) = (world.private(), world.address());
    let socket = private.folder().join("data/db/sock").display().to_string();
    Address { host: "localhost".to_owned(), port: None, socket: Some(socket), ..over_tcp.clone() }
}

/// Executes SQL as the server's superuser, bypassing the store.
pub(crate) fn execute(address: &Address, sql: &str) {
    wait(async {
        let options = OptsBuilder::default()
            .ip_or_hostname(&address.host)
            .tcp_port(address.port.unwrap())
            .user(address.user.as_ref())
            .prefer_socket(false);
        let mut conn = Conn::new(options).await.unwrap();
        conn.query_drop(sql).await.unwrap();
        conn.disconnect().await.unwrap();
    });
}
