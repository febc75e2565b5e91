//! The description of a store under test, and the store as it was started.

use acidtest_engine::Measurement;
use acidtest_model::{Address, CellRequest, Durability, Hosting, Secret, StoreError, StoreKind, Task};
use acidtest_workloads::Store;
use tempfile::TempDir;

use crate::{NAMESPACE, Private, Shared, wait};

/// Opens a store. An embedded store is opened at the durability level; a server was started at it already.
pub(crate) type OpenStore<S> = for<'a> fn(&'a Address, Durability) -> Task<'a, Result<S, StoreError>>;

/// A check that needs a namespace of its own and does not restart the store's server.
pub type Check<S> = fn(&Subject<S>, &S);

/// A store under test, with the facts that the checks need.
#[derive(Debug)]
pub struct Subject<S> {
    /// The store's row of the matrix.
    pub kind: StoreKind,
    /// Opens the store at an address; an embedded store at that durability level.
    pub open: OpenStore<S>,
    /// The store's answer when data are read back that were removed.
    pub gone: AfterRemoval,
}

/// A store's answer when data are read back that were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRemoval {
    /// An error, such as that there is no such table.
    Error,
    /// No data, without an error.
    Empty,
}

/// A store that was opened on a private server or on a file of its own. Dropping it ends the server, unless other tests
/// share it, and removes all files.
#[derive(Debug)]
pub struct World<S> {
    /// The store, opened at [`address`](Self::address).
    pub store: S,
    pub(crate) home: Home,
}

#[derive(Debug)]
pub(crate) enum Home {
    Server(Box<Private>),
    Shared(Shared),
    File { address: Address, _folder: TempDir },
}

impl<S: Store> Subject<S> {
    /// Opens the store at this durability level, or at the weakest that it offers if it lacks this one; on a server of
    /// its own if it needs one. None if the store is left out of the tests.
    #[must_use]
    pub fn start(&self, durability: Durability) -> Option<World<S>> {
        let durability = self.durability(durability);
        if self.kind.hosting == Hosting::Program {
            let mut private = Private::start(self.kind.program(), durability)?;
            let store = opened(&mut private, durability, self.open);
            return Some(World { store, home: Home::Server(Box::new(private)) });
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        let address = Address::file(self.kind.schemes.first().unwrap_or(&""), file.to_str().unwrap());
        let store = wait((self.open)(&address, durability)).unwrap();
        Some(World { store, home: Home::File { address, _folder: folder } })
    }

    /// Opens the store at its weakest durability level on a server that the tests of this program share, one at a time;
    /// an embedded store on a file of its own. For tests that neither end the server nor change its settings, and remove
    /// what they made. None if the store is left out of the tests.
    #[must_use]
    pub fn share(&self) -> Option<World<S>> {
        if self.kind.hosting != Hosting::Program {
            return self.start(Durability::None);
        }
        let (open, durability) = (self.open, self.durability(Durability::None));
        let server = Shared::wait(self.kind.program(), durability, async move |address| {
            open(address, durability).await
        })?;
        let store = wait(open(server.address(), durability)).unwrap();
        Some(World { store, home: Home::Shared(server) })
    }

    /// Runs checks on the store, one after the other, at its weakest durability level, on a server that other tests share.
    /// Returns early if the store is left out of the tests.
    pub fn passes(&self, checks: &[Check<S>]) {
        let Some(world) = self.share() else { return };
        for check in checks {
            wait(world.store.create(NAMESPACE, "run 1")).unwrap();
            check(self, &world.store);
            wait(world.store.remove(NAMESPACE)).unwrap();
        }
    }

    /// Whether the store's row of the matrix offers everything that a cell asks for.
    #[must_use]
    pub fn offers(&self, request: &CellRequest<'_>) -> bool {
        let kind = &self.kind;
        kind.workload(request.workload).is_yes()
            && kind.lock(request.lock).is_yes()
            && (request.transaction == 1 || kind.transactions.is_yes())
            && request.isolation.is_none_or(|level| kind.isolation(level).is_yes())
            && (kind.refuses)(request).is_none()
    }

    /// Asserts that no operation conflicted if the store's row of the matrix says that none ever does.
    #[track_caller]
    pub(crate) fn conflicts_as_it_says(&self, request: &CellRequest<'_>, measured: &Measurement) {
        let conflicts: u64 = measured.operations.iter().map(|operation| operation.conflicts).sum();
        let says_none = (self.kind.idle)(request).iter().any(|idle| idle.name == "max_retries");
        assert!(conflicts == 0 || !says_none, "{conflicts} conflicts where there are none: {request:?}");
    }

    /// This durability level if the store offers it, else the weakest that it offers.
    fn durability(&self, wanted: Durability) -> Durability {
        let mut levels = [wanted].into_iter().chain(Durability::ALL);
        levels.find(|durability| self.kind.durability(*durability).is_yes()).unwrap_or(wanted)
    }

    /// Asserts that the store cannot be opened at an address, and that the error has the address, these words and a
    /// remedy, but not the password.
    #[track_caller]
    pub fn refuses(&self, address: &Address, words: &[&str]) {
        let weakest = self.durability(Durability::None);
        let Err(error) = wait((self.open)(address, weakest)) else { panic!("{address} was opened") };
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let shown = error.to_string();
        let place = address.to_string();
        let expected = words.iter().copied().chain([place.as_str(), "remedy: "]);
        for word in expected {
            assert!(shown.contains(word), "no {word:?} in: {shown}");
        }
        if let Some(password) = &address.password {
            let shown = format!("{shown} {error:?}");
            assert!(!shown.contains(password.reveal()), "{shown}");
        }
    }
}

impl Home {
    fn address(&self) -> &Address {
        match self {
            Self::Server(private) => private.address(),
            Self::Shared(server) => server.address(),
            Self::File { address, .. } => address,
        }
    }
}

impl<S> World<S> {
    /// The address of the store: of its server, or of its file.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.home.address()
    }

    /// The store's private server.
    ///
    /// # Panics
    /// If the store is embedded and so has none, or shares one.
    #[must_use]
    pub fn private(&self) -> &Private {
        match &self.home {
            Home::Server(private) => private,
            Home::Shared(_) | Home::File { .. } => panic!("{} is no server of its own", self.address()),
        }
    }
}

/// Opens a store on a server, waiting until the server answers.
pub(crate) fn opened<S>(private: &mut Private, durability: Durability, open: OpenStore<S>) -> S {
    private.open(async |address| open(address, durability).await)
}

/// The address with this user and password; without one, any password in it is left out.
#[must_use]
pub fn login(address: &Address, user: &str, password: Option<&str>) -> Address {
    Address { user: Some(user.to_owned()), password: password.map(Secret::new), ..address.clone() }
}
