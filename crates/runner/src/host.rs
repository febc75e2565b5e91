//! A host: a process that keeps an embedded store open for the clients of another process, so that it can be killed.

use std::{
    collections::HashMap,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use acidtest_model::{Address, Durability};
use acidtest_workloads::{
    ServedLine, Side, Store, WorkloadTrial,
    hosted::{HostedTrial, Pong, Purpose, loopback},
};

use crate::{Failure, OpenOptions, Opener};

/// How long clients may take to be gone before the store is closed under them.
const LEAVING: Duration = Duration::from_secs(5);

/// A host of one store. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    opener: &'static dyn Opener,
    address: Address,
    durability: Durability,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The store, while it is open.
    store: Option<Arc<dyn Store>>,
    /// Trials by their description.
    trials: HashMap<String, Arc<dyn WorkloadTrial>>,
    /// Connections of clients, by number.
    clients: HashMap<u64, TcpStream>,
    next: u64,
    /// Whether it takes no clients any more.
    is_over: bool,
}

impl Host {
    /// A host for the store's file or folder; it is opened when the first client comes.
    #[must_use]
    pub fn new(opener: &'static dyn Opener, path: &str, durability: Durability) -> Self {
        let address = Address::file(opener.kind().name, path);
        Self { opener, address, durability, state: Arc::default() }
    }

    /// Takes clients on the port, each on a thread of its own. Returns when the port cannot be listened on.
    ///
    /// # Errors
    /// Always: the port's own.
    pub fn listen(&self, port: u16) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::Other(format!("cannot listen on port {port}: {error}"));
        let listener = TcpListener::bind(loopback(port)).map_err(failed)?;
        for stream in listener.incoming() {
            let host = self.clone();
            // a client that cannot be taken finds its connection closed, and comes again
            let Ok(stream) = stream else { continue };
            let _ = thread::Builder::new().name("client".to_owned()).spawn(move || host.take(stream));
        }
        Ok(())
    }

    /// Lets every client go after what it is doing, and closes the store.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_over = true;
        for client in state.clients.values() {
            // it is answered what it has asked; one that is gone already needs not be told
            let _ = client.shutdown(Shutdown::Read);
        }
        drop(state);
        let _ = self.close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection to its end.
    fn take(&self, stream: TcpStream) {
        let Ok(kept) = stream.try_clone() else { return };
        let Ok((line, purpose)) = ServedLine::accept(stream) else { return };
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        match purpose {
            Purpose::Ping(trial) => self.ping(&runtime, line, trial.as_ref()),
            Purpose::Close => self.told_to_close(line),
            Purpose::Client(trial) => self.serve(&runtime, kept, line, &trial, Side::Client),
            Purpose::Publisher(trial) => self.serve(&runtime, kept, line, &trial, Side::Publisher),
            Purpose::Subscriber(trial) => self.serve(&runtime, kept, line, &trial, Side::Subscriber),
        }
    }

    /// The open store, which the first who asks for it opens.
    fn store(&self, runtime: &tokio::runtime::Runtime) -> Result<Arc<dyn Store>, String> {
        let mut state = self.state();
        if state.is_over {
            return Err("it is about to end".to_owned());
        }
        if let Some(store) = &state.store {
            return Ok(Arc::clone(store));
        }
        let options = OpenOptions { durability: Some(self.durability), locks: None, peers: &[] };
        let opened = runtime.block_on(self.opener.open(&self.address, options));
        let store: Arc<dyn Store> = Arc::from(opened.map_err(|error| error.to_string())?);
        state.store = Some(Arc::clone(&store));
        Ok(store)
    }

    fn trial(&self, described: &HostedTrial) -> Result<Arc<dyn WorkloadTrial>, String> {
        let key = serde_json::to_string(described).map_err(|error| error.to_string())?;
        if let Some(trial) = self.state().trials.get(&key) {
            return Ok(Arc::clone(trial));
        }
        let kind = acidtest_workloads::workload(&described.workload)
            .ok_or_else(|| format!("there is no workload \"{}\"", described.workload))?;
        let trial: Arc<dyn WorkloadTrial> =
            Arc::from((kind.with)(&described.parameters)?.trial(described.setup()));
        self.state().trials.insert(key, Arc::clone(&trial));
        Ok(trial)
    }

    fn ping(&self, runtime: &tokio::runtime::Runtime, mut line: ServedLine, trial: Option<&HostedTrial>) {
        let found = self.store(runtime).and_then(|store| {
            trial.map_or(Ok(false), |described| {
                let trial = self.trial(described)?;
                Ok(trial.consuming().is_some_and(|consuming| consuming.is_ordered(&*store)))
            })
        });
        let (ordered, failed) = found.map_or_else(|why| (false, Some(why)), |ordered| (ordered, None));
        let pong = Pong { ordered, failed };
        while line.request::<()>().is_some() && line.answer(&pong) {}
    }

    fn serve(
        &self,
        runtime: &tokio::runtime::Runtime,
        stream: TcpStream,
        mut line: ServedLine,
        described: &HostedTrial,
        side: Side,
    ) {
        // before it has the store, so that the store is not closed meanwhile
        let number = {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            state.clients.insert(number, stream);
            number
        };
        let served = self.store(runtime).and_then(|store| {
            let served = self.trial(described)?.serve(&*store, &described.place, side);
            served.map_err(|error| error.to_string())
        });
        match served {
            Ok(served) => runtime.block_on(served(line)),
            // the client may be gone
            Err(why) => _ = line.answer(&Err::<(), _>(why)),
        }
        self.state().clients.remove(&number);
    }

    fn told_to_close(&self, mut line: ServedLine) {
        if line.request::<()>().is_some() {
            // nobody may be there to hear it
            line.answer(&self.close());
        }
    }

    /// Closes the store once no client uses it.
    fn close(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let mut state = self.state();
            if state.clients.is_empty() {
                state.trials.clear();
                // the last one: those who asked for it have gone
                state.store = None;
                return Ok(());
            }
            if begun.elapsed() > LEAVING {
                return Err(format!("{} clients are still connected", state.clients.len()));
            }
            drop(state);
            thread::sleep(Duration::from_millis(5));
        }
    }
}
