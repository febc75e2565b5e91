//! fjall as the store under test.

use std::future::ready;

use acidtest_store_fjall::{Fjall, KIND};
use acidtest_testbed::{AfterRemoval, Subject};

pub(crate) static FJALL: Subject<Fjall> = Subject {
    kind: KIND,
    open: |address, durability| Box::pin(ready(Fjall::open(address, Some(durability)))),
    gone: AfterRemoval::Error,
};
