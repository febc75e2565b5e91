//! A store that is open for a run: on a private server, in a private file, or at the user's own address.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Folder, Lab, Lifetime, Member, MemberSpec, Note};
use acidtest_model::{self as model, Address, Durability, EffectiveSettings, Role, StoreError};
use acidtest_workloads::{Owner, Place, ReusableData, Store};

use crate::{exit::Failure, interrupt::Interrupt, registry::Opening, target::Target};

/// How long opening a store may take.
const OPENING: Duration = Duration::from_secs(10);

/// How long a private server may take until its first answer.
const READY: Duration = Duration::from_mins(1);

/// How long an untimed answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for an answer of a store that is not timed, but at most this long, so that no run waits for ever.
pub(crate) async fn within<T>(
    most: Duration,
    doing: &str,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(most, answer).await.unwrap_or_else(|_| {
        Err(StoreError::Server {
            doing: doing.to_owned(),
            address: "the store".to_owned(),
            cause: format!("no answer within {} s", most.as_secs()),
        })
    })
}

/// Opens a store; an error if nobody answers in time.
async fn open(
    target: &Target,
    address: &Address,
    opening: Opening<'_>,
) -> Result<Box<dyn Store>, StoreError> {
    let opened = tokio::time::timeout(OPENING, (target.store.open)(address, opening)).await;
    opened.unwrap_or_else(|_| {
        Err(StoreError::Unreachable {
            address: address.to_string(),
            cause: format!(
                "something accepts connections there and does not answer within {} s",
                OPENING.as_secs()
            ),
            remedy: "check host and port, and that the server is not stopped or overloaded".to_owned(),
        })
    })
}

/// An open store, and everything that must be removed when the run is done with it.
pub(crate) struct Instance {
    pub(crate) store: Box<dyn Store>,
    pub(crate) effective: EffectiveSettings,
    deployment: Option<Deployment>,
    /// The root of the process tree of a server that `lab up` started and that is used by its address.
    kept_server: Option<u32>,
    /// The server that keeps its hard locks, if it does not keep them itself.
    locks: Option<Box<Instance>>,
    /// The address of the store.
    address: Address,
    /// Held only to be dropped at the end, which removes the private data.
    folder: Option<Folder>,
    note: Option<Note>,
    /// Data that trials left behind for later ones, by a key that says what they are.
    pub(crate) kept: BTreeMap<String, Kept>,
}

/// Data that a trial left behind for later ones.
pub(crate) struct Kept {
    pub(crate) place: Place,
    pub(crate) reusable: ReusableData,
    /// The number of that trial in the run, from 1.
    pub(crate) by: u32,
}

/// The purpose that a store is opened for: its namespace, its run, and its locks.
pub(crate) struct Claim<'a> {
    /// The server that is to keep its hard locks, if it needs one.
    pub(crate) locks: Option<&'a Target>,
    pub(crate) namespace: &'a str,
    pub(crate) run: &'a str,
    pub(crate) replace: bool,
}

impl Instance {
    /// Starts or reaches the store and makes the run's namespace in it.
    pub(crate) async fn open(
        lab: &Lab,
        target: &Target,
        durability: Durability,
        claim: &Claim<'_>,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let Some(service) = claim.locks else {
            return Self::claimed(lab, target, durability, claim, None, interrupt).await;
        };
        let namespace = acidtest_locks::namespace(claim.namespace);
        let theirs = Claim { locks: None, namespace: &namespace, ..*claim };
        // a lock service that forgets its tokens when it is killed fences nothing
        let at_least = durability.max(Durability::Process);
        let locks = Self::claimed(lab, service, at_least, &theirs, None, interrupt).await?;
        let address = locks.address.clone();
        match Self::claimed(lab, target, durability, claim, Some(&address), interrupt).await {
            Ok(instance) => Ok(Self { locks: Some(Box::new(locks)), ..instance }),
            Err(failure) => {
                // the first error is the one that is reported
                let _ = locks.close(&namespace, false).await;
                Err(failure)
            }
        }
    }

    /// Starts or reaches a single server and makes the namespace in it.
    async fn claimed(
        lab: &Lab,
        target: &Target,
        durability: Durability,
        claim: &Claim<'_>,
        locks: Option<&Address>,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let opening = Opening { durability: None, locks };
        let mut instance = match &target.address {
            Some(address) => {
                let bare = Self::bare(open(target, address, opening).await?, address);
                let port = address.port.unwrap_or(target.kind().default_port);
                Self { kept_server: lab.serving(&address.host, port)?, ..bare }
            }
            None => Self::private(lab, target, durability, opening, interrupt).await?,
        };
        instance.effective = within(PATIENCE, "reading the settings", instance.store.effective()).await?;
        free_namespace(&*instance.store, &target.shown(), claim).await?;
        if let Some(address) = &target.address {
            // written before the namespace is made, so that it is found even after a kill
            let note = lab.note_namespace(address, target.kind().name, claim.namespace, claim.run)?;
            instance.note = Some(note);
        }
        let made =
            within(PATIENCE, "making the namespace", instance.store.create(claim.namespace, claim.run)).await;
        if let Err(error) = made {
            // a note of a namespace that was never made would be asked about for ever
            if instance.store.owner(claim.namespace).await == Ok(Owner::Nobody)
                && let Some(note) = instance.note.take()
            {
                note.clear()?;
            }
            return Err(error.into());
        }
        Ok(instance)
    }

    /// An open store with nothing to remove yet.
    fn bare(store: Box<dyn Store>, address: &Address) -> Self {
        let effective = EffectiveSettings {
            version: String::new(),
            durability: Durability::None,
            because: "not read yet".to_owned(),
            settings: BTreeMap::new(),
        };
        Self {
            store,
            effective,
            deployment: None,
            kept_server: None,
            locks: None,
            address: address.clone(),
            folder: None,
            note: None,
            kept: BTreeMap::new(),
        }
    }

    async fn private(
        lab: &Lab,
        target: &Target,
        durability: Durability,
        opening: Opening<'_>,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let kind = target.kind();
        let opening = Opening { durability: Some(durability), ..opening };
        match kind.hosting {
            model::Hosting::InMemory => {
                let nowhere = Address::file(kind.name, "");
                Ok(Self::bare(open(target, &nowhere, opening).await?, &nowhere))
            }
            model::Hosting::Embedded => {
                let folder = lab.folder(kind.name, Lifetime::Run)?;
                let file = folder.path().join("acidtest.db");
                let address = Address::file(kind.name, &file.to_string_lossy());
                let store = open(target, &address, opening).await?;
                Ok(Self { folder: Some(folder), ..Self::bare(store, &address) })
            }
            model::Hosting::Program => {
                let spec = MemberSpec { role: Role::Server, store: kind.program(), durability, port: None };
                let mut deployment = lab.deploy(kind.program(), &[spec], Lifetime::Run)?;
                let Some(server) = deployment.member_mut(Role::Server) else {
                    return Err(Failure::Other(format!("{} was not started", kind.program())));
                };
                let address = address_of(server, target);
                let store = answering(server, target, &address, opening, interrupt).await?;
                Ok(Self { deployment: Some(deployment), ..Self::bare(store, &address) })
            }
        }
    }

    /// The root of the server's process tree, where the lab started it: as a private server, or kept by `lab up`.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.server().map(Member::pid).or(self.kept_server)
    }

    /// The private server; none if it has none.
    pub(crate) fn server(&self) -> Option<&Member> {
        self.deployment.as_ref()?.member(Role::Server)
    }

    /// How the private server ended, if it did.
    pub(crate) fn died(&mut self) -> Option<String> {
        let locks = self.locks.as_mut().and_then(|locks| locks.died());
        let locks = locks.map(|how| format!("lost its lock service, which {how}"));
        let server = self.deployment.as_mut().and_then(|deployment| deployment.member_mut(Role::Server));
        server.and_then(Member::ended).or(locks)
    }

    /// Removes the namespace, unless it is to be kept, and stops every process that was started; a failure of one
    /// step does not keep the others from being done.
    pub(crate) async fn close(mut self, namespace: &str, keep: bool) -> Result<(), Failure> {
        let locks = match self.locks.take() {
            Some(locks) => Box::pin(locks.close(&acidtest_locks::namespace(namespace), keep)).await,
            None => Ok(()),
        };
        let removed = self.release(namespace, keep).await;
        drop(self.store);
        let stopped = match self.deployment.take() {
            Some(mut deployment) => deployment.stop().map_err(Failure::from),
            None => Ok(()),
        };
        drop(self.folder.take());
        removed.and(stopped).and(locks)
    }

    /// Removes the namespace on a user's server. A private server is removed with all its data.
    async fn release(&mut self, namespace: &str, keep: bool) -> Result<(), Failure> {
        let Some(note) = self.note.take() else { return Ok(()) };
        if !keep {
            within(PATIENCE, "removing the namespace", self.store.remove(namespace)).await?;
        }
        note.clear()?;
        Ok(())
    }
}

/// The address at which a private server is reached as this store: engines of one server have schemes of their own.
pub(crate) fn address_of(server: &Member, target: &Target) -> Address {
    let address = server.address().clone();
    let scheme = target.kind().schemes.first().map_or_else(|| address.scheme.clone(), ToString::to_string);
    Address { scheme, ..address }
}

/// Waits for a server's first answer.
pub(crate) async fn answering(
    server: &mut Member,
    target: &Target,
    address: &Address,
    opening: Opening<'_>,
    interrupt: &Interrupt,
) -> Result<Box<dyn Store>, Failure> {
    let begun = Instant::now();
    loop {
        server.check()?;
        match open(target, address, opening).await {
            Ok(store) => return Ok(store),
            Err(_) if interrupt.is_set() => {
                return Err(Failure::Store("interrupted while its server started".to_owned()));
            }
            Err(error) if begun.elapsed() > READY => {
                let log = server.log_tail(10).join("\n  ");
                return Err(Failure::Store(format!("{error}\n  its log ends:\n  {log}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(30)).await,
        }
    }
}

/// Checks that the namespace is free; an existing one is removed only if the user asked for that.
async fn free_namespace(store: &dyn Store, address: &str, claim: &Claim<'_>) -> Result<(), Failure> {
    let owner = within(PATIENCE, "looking for the namespace", store.owner(claim.namespace)).await?;
    if owner != Owner::Nobody {
        if !claim.replace {
            return Err(StoreError::Occupied {
                namespace: format!("namespace \"{}\"", claim.namespace),
                address: address.to_owned(),
            }
            .into());
        }
        within(PATIENCE, "removing the namespace", store.remove(claim.namespace)).await?;
    }
    Ok(())
}

/// Removes the namespace that a killed run left on a user's server, and returns whether it is gone. A namespace with
/// another run's mark, or with none, is not known to be that run's and is left alone. An empty namespace is the
/// run's: a run that is killed while it makes one leaves that.
pub(crate) async fn remove_leftover(
    target: &Target,
    address: &Address,
    namespace: &str,
    run: &str,
) -> Result<bool, Failure> {
    if target.kind().hosting == model::Hosting::Embedded && !std::path::Path::new(&address.path).exists() {
        return Ok(true);
    }
    let store = open(target, address, Opening::default()).await?;
    match within(PATIENCE, "looking for the namespace", store.owner(namespace)).await? {
        Owner::Nobody => Ok(true),
        Owner::Run(owner) if owner != run => Ok(false),
        Owner::Run(_) | Owner::Empty => {
            within(PATIENCE, "removing the namespace", store.remove(namespace)).await?;
            Ok(true)
        }
        Owner::Stranger => Ok(false),
    }
}
