//! A gateway and a store for tests, which say what they are told to.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use acidtest_model::{Address, StoreError, Task};

use super::{Entry, EntryVisitor, LogsStore, Rows, Sink, http::Gateway};
use crate::Place;

/// A gateway that gives this answer to each request, a status and a body.
pub(super) fn gateway(mut answer: impl FnMut(&[u8]) -> (u16, String) + Send + 'static) -> Gateway {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // it ends with the tests
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 2000];
            let read = stream.read(&mut request).unwrap_or_default();
            let (status, body) = answer(&request[..read]);
            let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
    });
    Gateway::new(&Address::loopback("http", None, port, ""), "token").unwrap()
}

/// A store that has these entries when it is looked at for the first, second or a later time.
pub(super) struct Store<F> {
    pub(super) looks: AtomicU64,
    entries: F,
}

impl<F> Store<F> {
    pub(super) fn new(entries: F) -> Self {
        Self { looks: AtomicU64::new(0), entries }
    }
}

impl<F> LogsStore for Store<F>
where
    F: Fn(u64, &Rows) -> Result<Vec<Entry>, StoreError> + Send + Sync,
{
    fn sink(&self, _: &Place) -> Option<Sink> {
        None
    }

    fn rows(&self, _: &Place) -> Rows {
        Rows::own(None, String::new())
    }

    fn entries<'a>(
        &'a self,
        rows: &'a Rows,
        visit: &'a mut EntryVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        let found = (self.entries)(self.looks.fetch_add(1, SeqCst) + 1, rows);
        let shown = found.map(|entries| entries.iter().for_each(|entry| visit(&entry.stored())));
        Box::pin(async { shown })
    }

    fn unload<'a>(&'a self, _: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        panic!("nothing is to be removed")
    }
}
