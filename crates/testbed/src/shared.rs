//! Servers that the tests of one program use one after the other, where none of them stops it or changes its settings: to
//! prepare a server and to start it takes seconds of all processors.

use std::{
    collections::BTreeMap,
    fmt::Display,
    os::unix::process::CommandExt,
    panic::resume_unwind,
    process::{Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};

use acidtest_model::{Address, Durability};

use crate::{Private, private::wanted};

/// A server, once a test has used it.
type Slot = Mutex<Option<Kept>>;

/// The servers of this program.
static SERVERS: Mutex<BTreeMap<(String, Durability), &'static Slot>> = Mutex::new(BTreeMap::new());

/// A test's turn on a server that others use before it and after it. The server ends with the program, or with a test that
/// fails, as that may have left anything behind.
#[derive(Debug)]
pub struct Shared {
    server: MutexGuard<'static, Option<Kept>>,
}

impl Shared {
    /// Waits for the turn on a store's server at this durability level, and starts the server where there is none; it is
    /// there when `answers` succeeds. None if the store is left out of the tests, see [`wanted`].
    #[must_use]
    pub fn wait<T, E: Display>(
        store: &str,
        durability: Durability,
        answers: impl AsyncFn(&Address) -> Result<T, E> + Send + 'static,
    ) -> Option<Self> {
        if !wanted(store) {
            return None;
        }
        let mut servers = lock(&SERVERS);
        let slot =
            *servers.entry((store.to_owned(), durability)).or_insert_with(|| Box::leak(Box::default()));
        drop(servers);
        let mut server = lock(slot);
        server.get_or_insert_with(|| Kept::start(store, durability, answers));
        Some(Self { server })
    }

    /// The address at which clients reach the server.
    ///
    /// # Panics
    /// Never: there is a server from the turn's start to its end.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.server.as_ref().expect("a turn begins with a server").address
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.server = None;
        }
    }
}

/// A server that a thread of its own keeps: it ends with the thread that started it, and a test's thread ends with
/// the test.
#[derive(Debug)]
struct Kept {
    address: Address,
    end: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    cleaner: Child,
}

impl Kept {
    fn start<T, E: Display>(
        store: &str,
        durability: Durability,
        answers: impl AsyncFn(&Address) -> Result<T, E> + Send + 'static,
    ) -> Self {
        let (started, private) = channel();
        let (end, ended) = channel();
        let store = store.to_owned();
        let keeper = thread::spawn(move || {
            let Some(mut private) = Private::start(&store, durability) else { return };
            let cleaner = cleans_up_after(&private);
            drop(private.open(answers));
            let _ = started.send((private.address().clone(), cleaner));
            let _ = ended.recv();
        });
        match private.recv() {
            Ok((address, cleaner)) => Self { address, end: Some(end), keeper: Some(keeper), cleaner },
            Err(_) => resume_unwind(keeper.join().expect_err("a server that has started is sent")),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        // nothing is left to clean
        let _ = self.cleaner.kill();
        let _ = self.cleaner.wait();
    }
}

/// A process that waits until this one has ended, and with it the server, and removes the server's files: nothing is
/// dropped when a program ends.
fn cleans_up_after(server: &Private) -> Child {
    // for a minute at most, as a server that nobody waits for may stay as a zombie
    const CLEAN: &str = r#"cat
for turn in $(seq 600); do
    if ! kill -0 "$1" 2>/dev/null; then rm -rf "$0" && exit; fi
    sleep 0.1
done
rm -rf "$0""#;
    Command::new("sh")
        .args(["-c", CLEAN])
        .arg(server.lab())
        .arg(server.pid().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in a terminal is for the tests alone
        .process_group(0)
        .spawn()
        .unwrap()
}

/// What a test that failed has left locked is as good as before.
fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
