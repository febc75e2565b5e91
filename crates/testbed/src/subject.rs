//! A store under test.

use acidtest_engine::Measurement;
use acidtest_model::{Address, CellRequest, Durability, Hosting, Secret, StoreError, StoreKind, Task};
use acidtest_workloads::Store;
use tempfile::TempDir;

use crate::{NAMESPACE, Private, wait};

/// Opens a store at the durability level, where that is not its server's to set.
type OpenStore<S> = for<'a> fn(&'a Address, Durability) -> Task<'a, Result<S, StoreError>>;

/// A check of a store that leaves its server as it is. It has a namespace to itself.
pub type Check<S> = fn(&Subject<S>, &S);

/// A store under test: what the checks must know of it.
#[derive(Debug)]
pub struct Subject<S> {
    /// Its row of the matrix.
    pub kind: StoreKind,
    /// How it is opened.
    pub open: OpenStore<S>,
    /// What it says of a stock that is not there.
    pub gone: Gone,
}

/// What a store says when the stock is read that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// That there is no such table.
    Error,
    /// That it holds nothing.
    Empty,
}

/// A store opened on a private server, or on a file of its own. Ends, with all its files, when dropped.
#[derive(Debug)]
pub struct World<S> {
    /// The store.
    pub store: S,
    pub(crate) home: Home,
}

#[derive(Debug)]
pub(crate) enum Home {
    Server(Box<Private>),
    File { address: Address, _folder: TempDir },
}

impl<S: Store> Subject<S> {
    /// Opens the store, on a server of its own if it needs one; none if it is left out.
    #[must_use]
    pub fn start(&self, durability: Durability) -> Option<World<S>> {
        let mut home = if self.kind.server == Hosting::Program {
            Home::Server(Box::new(Private::start(self.kind.program(), durability)?))
        } else {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("store");
            Home::File {
                address: Address::file(self.kind.schemes.first().unwrap_or(&""), file.to_str().unwrap()),
                _folder: folder,
            }
        };
        let store = match &mut home {
            Home::Server(private) => self.answer(private, durability),
            Home::File { address, .. } => wait((self.open)(address, durability)).unwrap(),
        };
        Some(World { store, home })
    }

    /// Sees that the store passes checks, one after the other on one server, at its weakest durability level. Returns early
    /// where the store is left out.
    pub fn passes(&self, checks: &[Check<S>]) {
        let Some(world) = self.start(self.durability(Durability::None)) else { return };
        for check in checks {
            wait(world.store.create(NAMESPACE, "run 1")).unwrap();
            check(self, &world.store);
            wait(world.store.remove(NAMESPACE)).unwrap();
        }
    }

    /// Whether the store's row of the matrix has all that a cell asks for.
    #[must_use]
    pub fn offers(&self, wish: &CellRequest<'_>) -> bool {
        let kind = &self.kind;
        kind.workload(wish.workload).is_yes()
            && kind.lock(wish.lock).is_yes()
            && (wish.transaction == 1 || kind.transactions.is_yes())
            && wish.isolation.is_none_or(|level| kind.isolation(level).is_yes())
            && (kind.refuses)(wish).is_none()
    }

    /// Sees that no operation conflicted where the store's row of the matrix says that none does.
    #[track_caller]
    pub(crate) fn conflicts_as_it_says(&self, wish: &CellRequest<'_>, measured: &Measurement) {
        let conflicts: u64 = measured.operations.iter().map(|operation| operation.conflicts).sum();
        let says_none = (self.kind.idle)(wish).iter().any(|idle| idle.name == "max_retries");
        assert!(conflicts == 0 || !says_none, "{conflicts} conflicts where there are none: {wish:?}");
    }

    /// This durability level, or the weakest that the store has.
    pub(crate) fn durability(&self, wanted: Durability) -> Durability {
        let mut levels = [wanted].into_iter().chain(Durability::ALL);
        levels.find(|durability| self.kind.durability(*durability).is_yes()).unwrap_or(wanted)
    }

    /// The store on a server, as soon as that answers.
    pub(crate) fn answer(&self, private: &mut Private, durability: Durability) -> S {
        private.open(async |address| (self.open)(address, durability).await)
    }

    /// Sees that the store cannot be opened at an address, and that the error says where, why and the
    /// remedy, and not the password.
    #[track_caller]
    pub fn refuses(&self, address: &Address, words: &[&str]) {
        let Err(error) = wait((self.open)(address, Durability::None)) else { panic!("{address} was opened") };
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

impl<S> World<S> {
    /// Where the store is.
    #[must_use]
    pub fn address(&self) -> &Address {
        match &self.home {
            Home::Server(private) => private.address(),
            Home::File { address, .. } => address,
        }
    }

    /// The store's server.
    #[must_use]
    pub fn private(&self) -> &Private {
        match &self.home {
            Home::Server(private) => private,
            Home::File { address, .. } => panic!("{address} has no server"),
        }
    }
}

/// The address with a user and perhaps a password, which must not be part of it otherwise.
#[must_use]
pub fn login(address: &Address, user: &str, password: Option<&str>) -> Address {
    Address { user: Some(user.to_owned()), password: password.map(Secret::new), ..address.clone() }
}
