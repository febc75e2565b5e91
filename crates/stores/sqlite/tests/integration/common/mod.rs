//! SQLite as the common checks open it, on files of the tests' own.

use std::future::ready;

use acidtest_store_sqlite::{KIND, Sqlite};
use acidtest_testbed::{AfterRemoval, Subject};

pub(crate) static SQLITE: Subject<Sqlite> = Subject {
    kind: KIND,
    open: |address, durability| Box::pin(ready(Sqlite::open(address, Some(durability)))),
    gone: AfterRemoval::Error,
};
