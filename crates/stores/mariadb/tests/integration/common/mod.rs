//! The stores under test and direct access to their servers, shared by all tests.

use acidtest_model::Address;
use acidtest_store_mariadb::{MariaDb, Variant};
use acidtest_testbed::{AfterRemoval, Subject, World, wait};
use mysql_async::{Conn, OptsBuilder, prelude::Queryable};

macro_rules! subjects {
    ($($variant:ident)*) => {
        $(
            pub(crate) static $variant: Subject<MariaDb> = Subject {
                kind: Variant::$variant.kind,
                open: |address, _| Box::pin(Variant::$variant.open(address)),
                gone: AfterRemoval::Error,
            };
        )*
    };
}

subjects! {
    MARIADB
    MARIADB_MYISAM
    MARIADB_ARIA
    MARIADB_MEMORY
    MARIADB_CSV
    MARIADB_ARCHIVE
    MARIADB_BLACKHOLE
    MYSQL
    MYSQL_MYISAM
}

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
