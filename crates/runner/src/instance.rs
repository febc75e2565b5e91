//! A store that is open for a run, with all that must be cleared away after it. It has one member, or several: a store
//! that has no locks of its own is deployed with the server that keeps them. A member is a private server, a private
//! file, or a server or file of the user's own.

use std::{collections::BTreeMap, path::Path, time::Duration};

use acidtest_lab::{Deployment, Folder, Lab, Lifetime, Member, MemberSpec, Note, ServerSize, run_of};
use acidtest_model::{
    Address, Durability, EffectiveSettings, Encryption, Hosting, MemberId, Role, Selector, StoreError, Task,
};
use acidtest_workloads::{
    Owner, Place, ReusableData, Store,
    hosted::{Hosted, HostedTrial},
    lock_namespace,
};

use crate::{
    Failure, Interrupt, OpenOptions, Target,
    answer::{PATIENCE, first_answer, open, unless_interrupted, within},
    cluster::{Cluster, ClusterSpec},
    evictions::Evicted,
    lives::Lives,
    services::StartedServices,
};

/// An open store, and everything that must be removed when the run is done with it.
pub struct Instance {
    /// The settings that the store's server was found to have.
    pub effective: EffectiveSettings,
    server: OpenMember,
    /// The nodes that the store's server is, where it is several; its id is that of the one that leads.
    cluster: Option<Cluster>,
    /// The members beside the store's own server.
    others: Vec<OpenMember>,
    private: Private,
    /// The services in front of the store, for the trial that is under way.
    pub(crate) services: StartedServices,
    /// How long a client's message to the host of an embedded store and its answer take; none where there is no host.
    pub(crate) round_trip: Option<Duration>,
    /// Data that trials left behind for later ones, by a key that says what they are.
    pub(crate) earlier: BTreeMap<String, EarlierData>,
    /// The lives in which those members were found that say in which one they are.
    pub(crate) lives: Vec<Lives>,
}

/// Data that a trial left behind for later ones.
pub(crate) struct EarlierData {
    pub(crate) place: Place,
    pub(crate) reusable: ReusableData,
    /// The number of that trial in the run, from 1.
    pub(crate) by: u32,
    /// What servers had evicted before it was loaded.
    pub(crate) evicted: Evicted,
}

/// The purpose that a store is opened for: its namespace, its run, and its locks.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The server that is to keep its hard locks, if it needs one.
    pub locks: Option<&'a Target>,
    /// The namespace that the run makes in the store.
    pub namespace: &'a str,
    /// The run's id.
    pub run: &'a str,
    /// Which of the run's open stores it is, from 1.
    pub number: usize,
    /// Whether a namespace that is there already is removed.
    pub replace: bool,
    /// How long opening a connection to a server may take.
    pub connect_timeout: Duration,
    /// What private servers must have room for.
    pub size: ServerSize,
    /// The nodes that a private server is to be; none for one.
    pub cluster: Option<ClusterSpec>,
    /// acidtest's own program, which is to keep an embedded store in a process of its own while clients are driven, so
    /// that it can be killed; none for one that need not be.
    pub host: Option<&'a Path>,
}

impl Claim<'_> {
    /// What marks its namespaces: the run, and which of its stores they are of.
    fn mark(&self) -> String {
        if self.number == 1 { self.run.to_owned() } else { format!("{}.{}", self.run, self.number) }
    }
}

/// Whether a namespace with this mark is one of the run, which is given by its id or, where one of its stores is meant, by that
/// store's mark.
pub(crate) fn is_of_run(mark: &str, run: &str) -> bool {
    mark == run || run_of(mark) == run
}

/// A member of the store's deployment that answers, before the run has a namespace in it.
struct Reached {
    id: MemberId,
    target: Target,
    address: Address,
    /// The durability level that a private one was opened with.
    durability: Option<Durability>,
    store: Box<dyn Store>,
    effective: EffectiveSettings,
    /// The root of the process tree of a server that `lab up` started and that is used by its address.
    kept_server: Option<u32>,
}

/// A member of the store's deployment that was opened, with a namespace of the run in it.
struct OpenMember {
    id: MemberId,
    target: Target,
    address: Address,
    /// The durability level that a private one was opened with.
    durability: Option<Durability>,
    store: Box<dyn Store>,
    /// The address of the host that an embedded store was given to.
    hosted_at: Option<Address>,
    namespace: String,
    /// The mark that it was made with.
    mark: String,
    /// The lab's note of the namespace, on a server of the user's own.
    note: Option<Note>,
    /// The root of the process tree of a server that `lab up` started and that is used by its address.
    kept_server: Option<u32>,
}

/// How a member was opened, and can be opened anew.
pub(crate) struct Reopening {
    pub(crate) target: Target,
    pub(crate) address: Address,
    /// The durability level that a private one is opened with.
    pub(crate) durability: Option<Durability>,
    /// Where its hard locks are kept, if it keeps none of its own.
    pub(crate) locks: Option<Address>,
    /// Where the other members of its cluster are, one of which may come to lead.
    pub(crate) peers: Vec<Address>,
}

impl Reopening {
    pub(crate) fn options(&self) -> OpenOptions<'_> {
        OpenOptions { durability: None, locks: self.locks.as_ref(), peers: &self.peers }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        open(&self.target, &self.address, self.options()).await
    }
}

/// A member that is to be opened.
struct Wanted<'a> {
    id: MemberId,
    target: &'a Target,
    durability: Durability,
    tls: Encryption,
    size: ServerSize,
    cluster: Option<ClusterSpec>,
}

impl Wanted<'_> {
    /// The program of its host, if it is a private one of an embedded store.
    fn host<'h>(&self, host: Option<&'h Path>) -> Option<&'h Path> {
        host.filter(|_| self.target.address.is_none() && self.target.kind().hosting == Hosting::Embedded)
    }

    /// Whether it is a server that the lab starts.
    fn is_private_server(&self) -> bool {
        self.target.address.is_none() && self.target.kind().hosting == Hosting::Program
    }
}

/// The private servers and files of an instance. Dropping it ends the servers and removes the files.
#[derive(Default)]
struct Private {
    servers: Option<Deployment>,
    folder: Option<Folder>,
}

impl Private {
    fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        self.servers.as_mut()?.member_mut(id)
    }
}

impl Instance {
    /// Starts or reaches the store, and the keeper of its locks if it needs one, and makes the run's namespace in it.
    ///
    /// # Errors
    /// The store cannot be started or reached, or the namespace is there already; nothing of it is left then.
    pub async fn open(
        lab: &Lab,
        target: &Target,
        durability: Durability,
        tls: Encryption,
        claim: &Claim<'_>,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let size = claim.size;
        let locks = claim.locks.map(|service| Wanted {
            id: Role::Locks.into(),
            target: service,
            // a lock service that forgets its tokens when it is killed fences nothing
            durability: durability.max(Durability::Process),
            tls,
            size,
            cluster: None,
        });
        let cluster = claim.cluster;
        let id = cluster.map_or(Role::Server.into(), |_| ClusterSpec::FIRST);
        let server = Wanted { id, target, durability, tls, size, cluster };
        let servers = deploy(lab, &server, locks.as_ref(), claim.host)?;
        let mut private = Private { servers, folder: None };
        let locks = match &locks {
            Some(wanted) => Some(reach(lab, wanted, &mut private, None, claim, interrupt).await?),
            None => None,
        };
        let keeper = locks.as_ref().map(|locks| &locks.address);
        let mut server = reach(lab, &server, &mut private, keeper, claim, interrupt).await?;
        let cluster = match (cluster, &mut private.servers) {
            (Some(spec), Some(servers)) => {
                let timeout = claim.connect_timeout;
                let opening = Cluster::open(servers, target, spec, timeout, interrupt);
                let cluster = Box::pin(opening).await?;
                let peers = cluster.peers();
                let options = OpenOptions { peers: &peers, ..OpenOptions::default() };
                server.store = unless_interrupted(interrupt, open(target, &server.address, options)).await?;
                // what it waits for was set when all others followed it
                let settings = within(PATIENCE, "reading the settings", server.store.effective());
                server.effective = settings.await?;
                Some(cluster)
            }
            _ => None,
        };
        let effective = server.effective.clone();
        let reached: Vec<&Reached> = locks.iter().chain([&server]).collect();
        let namespace = free_namespace(lab, &reached, claim).await?;
        let mut others = Vec::new();
        if let Some(locks) = locks {
            others.push(locks.make_namespace(lab, &namespace, claim).await?);
        }
        let server = match server.make_namespace(lab, &namespace, claim).await {
            Ok(server) => server,
            Err(failure) => {
                for mut member in others {
                    // the first error is the one that is reported
                    let _ = member.release(false).await;
                }
                return Err(failure);
            }
        };
        let mut lives = Vec::new();
        for OpenMember { id, target, store, .. } in others.iter().chain([&server]) {
            // of a cluster, each member is asked by itself
            let nodes: Vec<MemberId> = match &cluster {
                Some(cluster) if *id == cluster.leader() => cluster.ids().collect(),
                _ => vec![*id],
            };
            for id in nodes {
                let own = cluster.as_ref().and_then(|cluster| cluster.store_of(id));
                lives.extend(Lives::of(id, target.address.is_none(), own.unwrap_or(&**store)).await);
            }
        }
        Ok(Self {
            effective,
            server,
            cluster,
            others,
            private,
            services: StartedServices::new(tls),
            round_trip: None,
            earlier: BTreeMap::new(),
            lives,
        })
    }

    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.server.store
    }

    /// The name of the run's namespace in it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.server.namespace
    }

    /// What is open of this member.
    pub(crate) fn store_of(&self, id: MemberId) -> Option<&dyn Store> {
        if let Some(node) = self.cluster.as_ref().and_then(|cluster| cluster.store_of(id)) {
            return Some(node);
        }
        Some(&*self.members().find(|member| member.id == id)?.store)
    }

    /// All members, those in front of the store included.
    fn ids(&self) -> Vec<MemberId> {
        self.own().chain(self.services.members().map(Member::id)).collect()
    }

    /// The members that are not in front of the store, its own servers first.
    fn own(&self) -> impl Iterator<Item = MemberId> {
        self.servers().into_iter().chain(self.others.iter().map(|member| member.id))
    }

    /// The store's own servers, the one that leads first.
    fn servers(&self) -> Vec<MemberId> {
        match &self.cluster {
            Some(cluster) => cluster.ids().collect(),
            None => vec![self.server.id],
        }
    }

    /// The store's own server; of several, the one that leads.
    pub(crate) fn leader(&self) -> MemberId {
        self.server.id
    }

    /// The members that something is done to at this moment. A single server leads itself.
    pub(crate) fn selected(&self, by: Selector) -> Vec<MemberId> {
        match by {
            // of several, who does not say which means the one that clients are at
            Selector::Member(member) if member == Role::Server.into() => vec![self.leader()],
            Selector::Member(member) => vec![member],
            several => {
                let mut ids = self.ids();
                ids.sort_unstable();
                several.of(&ids, Some(self.leader()))
            }
        }
    }

    /// The nodes that the store's server is, where it is several.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// Goes on without a member of the cluster, which is gone as far as the others know.
    pub(crate) fn lose(&mut self, id: MemberId) {
        self.cluster.iter_mut().for_each(|cluster| cluster.lose(id));
        self.lives.retain(|lives| lives.member() != id);
    }

    /// Has the store led by a replica that was promoted.
    pub(crate) fn follow(&mut self, promoted: MemberId) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.follow(promoted);
        if let Some(address) = cluster.address_of(promoted) {
            self.server.address = address.clone();
        }
        self.server.id = promoted;
    }

    /// Makes a member a copy of the leader, whatever it has, and has it follow the leader. One that cannot be copied is no member any
    /// more, and nobody knows what it has.
    pub(crate) fn copy_anew(&mut self, id: MemberId) {
        let leader = self.leader();
        let (Some(cluster), Some(servers)) = (&mut self.cluster, &mut self.private.servers) else { return };
        if let (Some(way), Some(member)) = (cluster.way(id, leader), servers.member_mut(id)) {
            match member.copy_anew(way) {
                Ok(()) => cluster.take_back(id),
                Err(error) => cluster.give_up(id, &error.to_string()),
            }
        }
        // it begins a life that the operator asked for
        self.lives.retain(|lives| lives.member() != id);
    }

    /// Whether its server is one of the user's own.
    pub(crate) fn is_on_users_server(&self) -> bool {
        let target = &self.server.target;
        target.address.is_some() && target.kind().hosting == Hosting::Program
    }

    /// The same, beside the services in front of it.
    pub(crate) fn store_and_services(&mut self) -> (&dyn Store, &mut StartedServices) {
        (&*self.server.store, &mut self.services)
    }

    /// Whether the run's mark is missing in a namespace on a user's server: then the error that says that somebody has removed it. That
    /// is so only where nothing else explains it. A server that does not say is not asked again.
    ///
    /// # Errors
    /// Another run has replaced a namespace with its own: other data are in it, and both write there.
    pub(crate) async fn missing_mark(&self) -> Result<Option<Failure>, Failure> {
        let mut missing = None;
        for member in self.members().filter(|member| member.note.is_some()) {
            match member.mark_there().await {
                Ok(MarkThere::Another(run)) => {
                    return Err(member.taken(&format!("was replaced by that of run {run}")));
                }
                Ok(MarkThere::None) => {
                    missing = Some(member.taken("or its mark was removed by somebody else"));
                }
                Ok(MarkThere::Own) | Err(_) => {}
            }
        }
        Ok(missing)
    }

    /// The address of this service in front of the store.
    pub(crate) fn service_address(&self, id: MemberId) -> Option<Address> {
        let member = self.services.members().find(|member| member.id() == id)?;
        Some(member.address().clone())
    }

    /// Gives an embedded store to its host, for clients of the trial, if it has one.
    ///
    /// # Errors
    /// The host does not answer, or cannot open the store.
    pub(crate) async fn give_to_host(
        &mut self,
        trial: HostedTrial,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let Some(host) = self.host() else { return Ok(()) };
        self.server.store = Box::new(Closed);
        let way = self.reopening();
        let options = OpenOptions { durability: None, locks: None, peers: &[] };
        if let Some(servers) = &mut self.private.servers {
            first_answer(servers, self.server.id, &way.target, &host, options, interrupt).await?;
        }
        let store = within(PATIENCE, "reaching the store's host", Hosted::open(&host, Some(trial))).await?;
        if self.round_trip.is_none() {
            let asked = within(PATIENCE, "asking the store's host", store.round_trip(ASKED)).await?;
            self.round_trip = Some(asked);
        }
        self.server.store = Box::new(store);
        self.server.hosted_at = Some(host);
        Ok(())
    }

    /// Takes an embedded store back from its host, if it was given to it.
    ///
    /// # Errors
    /// The host does not answer, or the store cannot be opened.
    pub(crate) async fn take_from_host(&mut self) -> Result<(), Failure> {
        let Some(host) = self.server.hosted_at.take() else { return Ok(()) };
        self.server.store = Box::new(Closed);
        let asked = within(PATIENCE, "reaching the store's host", Hosted::open(&host, None)).await?;
        within(PATIENCE, "closing the store in its host", asked.close()).await?;
        let way = self.reopening();
        let options = OpenOptions { durability: way.durability, locks: None, peers: &[] };
        self.server.store = open(&way.target, &way.address, options).await?;
        Ok(())
    }

    /// The address of an embedded store's host, if clients reach it in one.
    pub(crate) fn host(&self) -> Option<Address> {
        let host = self.private.servers.as_ref()?.member(self.server.id)?;
        let is_embedded = self.server.target.kind().hosting == Hosting::Embedded;
        is_embedded.then(|| address_of(host, &self.server.target))
    }

    /// The roots of the process trees of its servers, where the lab started them, by member; the store's own server
    /// first.
    pub(crate) fn pids(&self) -> Vec<(MemberId, u32)> {
        let private = |id: MemberId| self.private.servers.as_ref()?.member(id).map(Member::pid);
        let kept = |id: MemberId| self.members().find(|member| member.id == id)?.kept_server;
        let services = self.services.members().map(|member| (member.id(), member.pid()));
        self.own().filter_map(|id| Some((id, private(id).or_else(|| kept(id))?))).chain(services).collect()
    }

    fn members(&self) -> impl Iterator<Item = &OpenMember> {
        std::iter::once(&self.server).chain(&self.others)
    }

    /// The private server that this member is; none if the member is not there, or is not private.
    pub(crate) fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        match self.private.member(id) {
            Some(member) => Some(member),
            None => self.services.member_mut(id),
        }
    }

    /// How to open the store anew.
    pub(crate) fn reopening(&self) -> Reopening {
        let peers = self.cluster.as_ref().map(Cluster::peers).unwrap_or_default();
        Reopening { peers, ..self.reopening_member(&self.server) }
    }

    /// How to open this member anew, by itself; none for one that is lost.
    pub(crate) fn reopening_of(&self, id: MemberId) -> Option<Reopening> {
        if let Some(cluster) = &self.cluster
            && id.role == Role::Server
        {
            let address = cluster.address_of(id)?.clone();
            return Some(Reopening { address, ..self.reopening_member(&self.server) });
        }
        self.members().find(|member| member.id == id).map(|member| self.reopening_member(member))
    }

    fn reopening_member(&self, member: &OpenMember) -> Reopening {
        let locks =
            self.others.iter().find(|other| other.id.role == Role::Locks && member.id.role == Role::Server);
        Reopening {
            target: member.target.clone(),
            address: member.hosted_at.as_ref().unwrap_or(&member.address).clone(),
            durability: member.durability,
            locks: locks.map(|locks| locks.address.clone()),
            peers: Vec::new(),
        }
    }

    /// The member that has ended, if any has that the trial cannot do without, and `is_expected` does not say so of it.
    pub(crate) fn lost(&mut self, is_expected: impl Fn(MemberId) -> bool) -> Option<LostMember> {
        let ids = self.ids();
        let mut ended = BTreeMap::new();
        for id in &ids {
            ended.extend(self.member(*id).and_then(Member::ended).map(|how| (*id, how)));
        }
        // replicas take no writes
        let leader = self.cluster.as_ref().map(Cluster::leader);
        let others_serve = |lost: MemberId| {
            leader != Some(lost) && ids.iter().any(|id| id.role == lost.role && !ended.contains_key(id))
        };
        // in this order: a service may have ended because the one that was started before it has
        ids.iter().filter(|id| !is_expected(**id) && !others_serve(**id)).find_map(|id| {
            let how = ended.get(id)?;
            let is_back = self.services.revive(*id);
            (!is_back).then(|| self.lost_member(*id, how))
        })
    }

    /// This member as lost, because it does not answer.
    pub(crate) fn silent(&mut self, id: MemberId) -> LostMember {
        self.lost_member(id, "did not answer after its restart")
    }

    pub(crate) fn lost_member(&mut self, id: MemberId, how: &str) -> LostMember {
        // a server of the user's own has no log here
        let log = self.member(id).map_or_else(Vec::new, |member| member.log_tail(LOG_LINES));
        LostMember { id, how: lost(id.role, how), log, damage: None }
    }

    /// Starts the store's own server a second time, which did not come up again after a fault: what kept it from that may have
    /// been there only then. If it does not come up either, it is lost, and its log may say that its data is damaged. `None`
    /// if it answers.
    pub(crate) async fn start_once_more(
        &mut self,
        lost: LostMember,
        interrupt: &Interrupt,
    ) -> Option<LostMember> {
        let way = self.reopening_of(lost.id).unwrap_or_else(|| self.reopening());
        let options = OpenOptions { durability: way.durability, ..way.options() };
        let Some(servers) = self.private.servers.as_mut() else { return Some(lost) };
        let Some(member) = servers.member_mut(lost.id) else { return Some(lost) };
        // one that does not even start ends, and is found so
        let _ = member.restart();
        let answered = first_answer(servers, lost.id, &way.target, &way.address, options, interrupt).await;
        let damage = servers.member(lost.id).and_then(Member::damage);
        answered.is_err().then_some(LostMember { damage, ..lost })
    }

    /// Removes the namespaces, unless they are to be kept, and stops every process that was started; a failure of one
    /// step does not keep the others from being done.
    ///
    /// # Errors
    /// The first of those failures.
    pub async fn close(mut self, keep: bool) -> Result<(), Failure> {
        let mut first = self.services.end().map_err(Failure::from);
        for member in self.others.iter_mut().chain([&mut self.server]) {
            let released = member.release(keep).await;
            first = first.and(released);
        }
        drop((self.server, self.others));
        let stopped = match self.private.servers.take() {
            Some(mut servers) => servers.stop().map_err(Failure::from),
            None => Ok(()),
        };
        drop(self.private);
        first.and(stopped)
    }
}

/// How often a host is asked for nothing, to see how long that takes.
const ASKED: usize = 1000;

/// A store that is about to be opened elsewhere.
struct Closed;

impl Closed {
    fn error<T>() -> Result<T, StoreError> {
        Err(StoreError::Server {
            doing: "using the store".to_owned(),
            address: "the store".to_owned(),
            cause: "it is closed here".to_owned(),
        })
    }
}

impl Store for Closed {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async { Self::error() })
    }

    fn owner<'a>(&'a self, _: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async { Self::error() })
    }

    fn create<'a>(&'a self, _: &'a str, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { Self::error() })
    }

    fn remove<'a>(&'a self, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { Self::error() })
    }
}

/// How a store lost a member that did this, in words that follow `it`.
fn lost(role: Role, how: &str) -> String {
    match role {
        // clients are no member, and none of them is looked for here
        Role::Server | Role::Clients => how.to_owned(),
        Role::Locks => format!("lost its lock service, which {how}"),
        Role::Gateway => format!("lost its gateway, which {how}"),
        Role::Queue => format!("lost the broker of its queue, which {how}"),
        Role::Collector => format!("lost its collector, which {how}"),
    }
}

/// Number of lines of a dead server's log that are kept.
const LOG_LINES: usize = 6;

/// A member of an instance that has ended, and was not meant to.
#[derive(Clone, Debug)]
pub(crate) struct LostMember {
    /// How the store lost it, in words that follow `it`.
    pub(crate) how: String,
    /// The last lines of its log.
    pub(crate) log: Vec<String>,
    pub(crate) id: MemberId,
    /// What it says of its own data: that they are damaged; none if it does not.
    pub(crate) damage: Option<String>,
}

/// Starts those members that are private servers, as one deployment.
fn deploy(
    lab: &Lab,
    server: &Wanted<'_>,
    locks: Option<&Wanted<'_>>,
    host: Option<&Path>,
) -> Result<Option<Deployment>, Failure> {
    let is_private = |wanted: &&Wanted<'_>| wanted.is_private_server() || wanted.host(host).is_some();
    let private = [locks, Some(server)].into_iter().flatten().filter(is_private);
    let specs: Vec<MemberSpec<'_>> = private
        .flat_map(|wanted| {
            let members = wanted.cluster.map_or_else(|| vec![wanted.id], |spec| spec.members().collect());
            members.into_iter().map(|id| MemberSpec {
                host: wanted.host(host),
                tls: wanted.tls.is_on() && wanted.is_private_server(),
                size: wanted.size,
                replicates: id != wanted.id,
                ..MemberSpec::server(id, wanted.target.kind().program(), wanted.durability)
            })
        })
        .collect();
    match specs.last() {
        Some(last) => Ok(Some(lab.deploy(last.store, &specs, Lifetime::Run)?)),
        None => Ok(None),
    }
}

/// Opens a member, and reads its server's settings.
async fn reach(
    lab: &Lab,
    wanted: &Wanted<'_>,
    private: &mut Private,
    locks: Option<&Address>,
    claim: &Claim<'_>,
    interrupt: &Interrupt,
) -> Result<Reached, Failure> {
    let Wanted { id, target, durability, .. } = wanted;
    let mut kept_server = None;
    let (store, address) = if let Some(address) = &target.address {
        let address = Address { connect_timeout: claim.connect_timeout, ..address.clone() };
        let options = OpenOptions { durability: None, locks, peers: &[] };
        let store = unless_interrupted(interrupt, Box::pin(open(target, &address, options))).await?;
        kept_server = lab.serving(&address, target.kind().default_port)?;
        (store, address)
    } else {
        let options = OpenOptions { durability: Some(*durability), locks, peers: &[] };
        open_private(lab, wanted, private, options, claim, interrupt).await?
    };
    let effective = within(PATIENCE, "reading the settings", store.effective()).await?;
    let durability = Some(*durability).filter(|_| target.address.is_none());
    Ok(Reached { id: *id, target: (*target).clone(), address, durability, store, effective, kept_server })
}

/// Opens a store that is nobody else's: in memory, in a file of its own, or on the server that was started for it.
async fn open_private(
    lab: &Lab,
    wanted: &Wanted<'_>,
    private: &mut Private,
    options: OpenOptions<'_>,
    claim: &Claim<'_>,
    interrupt: &Interrupt,
) -> Result<(Box<dyn Store>, Address), Failure> {
    let (target, kind) = (wanted.target, wanted.target.kind());
    let address = match kind.hosting {
        Hosting::InMemory => Address::file(kind.name, ""),
        Hosting::Embedded if private.servers.is_some() => {
            // clients reach it in its host; what is not timed opens it here, while no client is driven
            let file = private.member(wanted.id).map(|member| member.hosted());
            Address::file(kind.name, &file.unwrap_or_default().to_string_lossy())
        }
        Hosting::Embedded => {
            let folder = private.folder.insert(lab.folder(kind.name, Lifetime::Run)?);
            Address::file(kind.name, &folder.path().join("acidtest.db").to_string_lossy())
        }
        Hosting::Program => {
            // one was deployed for each member that is a private server
            let deployment = private.servers.as_mut();
            let Some((address, deployment)) = deployment.and_then(|deployment| {
                let address = address_of(deployment.member(wanted.id)?, target);
                Some((Address { connect_timeout: claim.connect_timeout, ..address }, deployment))
            }) else {
                return Err(Failure::Other(format!("{} was not started: a defect of acidtest", kind.name)));
            };
            let store = first_answer(deployment, wanted.id, target, &address, options, interrupt).await?;
            return Ok((store, address));
        }
    };
    Ok((open(target, &address, options).await?, address))
}

impl OpenMember {
    /// Removes the namespace on a user's server. A private server is removed with all its data.
    async fn release(&mut self, keep: bool) -> Result<(), Failure> {
        let Some(note) = self.note.take() else { return Ok(()) };
        // a mark that is missing does not make it another's
        if !keep && !matches!(self.mark_there().await?, MarkThere::Another(_)) {
            within(PATIENCE, "removing the namespace", self.store.remove(&self.namespace)).await?;
        }
        note.clear()?;
        Ok(())
    }

    /// The error of a trial whose namespace was taken from the run, `how` in words that follow it.
    fn taken(&self, how: &str) -> Failure {
        Failure::Store(format!(
            "namespace \"{}\" at {} {how}: this trial does not count\n  remedy: run again, and give each of several runs \
             at a time its own --namespace",
            self.namespace,
            self.target.shown()
        ))
    }

    /// The mark that its namespace bears.
    async fn mark_there(&self) -> Result<MarkThere, Failure> {
        Ok(match owner(&*self.store, &self.namespace).await? {
            Owner::Run(mark) if mark == self.mark => MarkThere::Own,
            Owner::Run(run) => MarkThere::Another(run),
            _ => MarkThere::None,
        })
    }
}

/// The mark of a namespace that was made for a member.
enum MarkThere {
    /// Its own.
    Own,
    /// That of another run.
    Another(String),
    /// None: the namespace was removed, or only the mark.
    None,
}

/// The address at which a private server is reached as this store: engines of one server have schemes of their own.
#[must_use]
pub fn address_of(member: &Member, target: &Target) -> Address {
    let address = member.address().clone();
    let scheme = target.kind().schemes.first().map_or_else(|| address.scheme.clone(), ToString::to_string);
    Address { scheme, ..address }
}

impl Reached {
    /// The name of its namespace, where the store's has this one.
    fn named(&self, namespace: &str) -> String {
        match self.id.role {
            Role::Locks => lock_namespace(namespace),
            _ => namespace.to_owned(),
        }
    }

    /// Checks that its namespace, which has this owner, is free; what is there is removed if it may be.
    async fn free(
        &self,
        lab: &Lab,
        namespace: &str,
        owner: &Owner,
        claim: &Claim<'_>,
    ) -> Result<(), Failure> {
        if let Owner::Run(run) = owner
            && *run != claim.mark()
            && let Some(bench) = lab.bench_of(run)?
        {
            let (namespace, address) = (format!("namespace \"{namespace}\""), self.target.shown());
            return Err(StoreError::InUse { namespace, address, run: run.clone(), bench }.into());
        }
        if is_replaced(owner, claim, namespace, &self.target.shown())? {
            within(PATIENCE, "removing the namespace", self.store.remove(namespace)).await?;
        }
        Ok(())
    }

    /// Makes the run's namespace in it, where the store's has this name.
    ///
    /// # Errors
    /// It cannot be made; nothing of it is left then.
    async fn make_namespace(
        self,
        lab: &Lab,
        namespace: &str,
        claim: &Claim<'_>,
    ) -> Result<OpenMember, Failure> {
        let (mark, name) = (claim.mark(), self.named(namespace));
        let note = match &self.target.address {
            // written before the namespace is made, so that it is found even after a kill
            Some(address) => Some(lab.note_namespace(address, self.target.kind().name, &name, &mark)?),
            None => None,
        };
        let made = within(PATIENCE, "making the namespace", self.store.create(&name, &mark)).await;
        if let Err(error) = made {
            // a note of a namespace that was never made would be asked about for ever
            if let Some(note) = note
                && matches!(self.store.owner(&name).await, Ok(Owner::Nobody | Owner::Prepared))
            {
                note.clear()?;
            }
            let is_another = namespace != claim.namespace;
            let why = || another_is_needed(&name, &self.named(claim.namespace));
            return Err(match Failure::from(error) {
                Failure::Store(said) if is_another => Failure::Store(format!("{said}\n  {}", why())),
                failure => failure,
            });
        }
        let Self { id, target, address, durability, store, kept_server, .. } = self;
        let hosted_at = None;
        Ok(OpenMember {
            id,
            target,
            address,
            durability,
            store,
            hosted_at,
            namespace: name,
            mark,
            note,
            kept_server,
        })
    }
}

/// Who made a namespace, if it is there.
async fn owner(store: &dyn Store, namespace: &str) -> Result<Owner, StoreError> {
    within(PATIENCE, "looking for the namespace", store.owner(namespace)).await
}

/// Why a namespace of another name is needed, and the remedy where it cannot be made.
fn another_is_needed(name: &str, first: &str) -> String {
    format!(
        "another store of this run is on the same server and uses \"{first}\" there, so this one needs \"{name}\"\n  \
         remedy: let this user create it, or prepare it for this user; or run each address separately"
    )
}

/// The most names that a run's namespace may have on one server: more than a run has stores there.
const NAMES: usize = 1000;

/// The name that a run's namespace has where other stores of the run, which are of the same server by another address, have those
/// with lower numbers.
pub(crate) fn numbered(namespace: &str, number: usize) -> String {
    if number == 1 { namespace.to_owned() } else { format!("{namespace}_{number}") }
}

/// Finds the first name of the run's namespace that no other store of the run has on a server of these members, and frees it: what
/// a run has left under the name that the user gave is removed only if the user asked for that, and what no run has made never is.
///
/// # Errors
/// It must not be used, or a store does not answer.
async fn free_namespace(lab: &Lab, members: &[&Reached], claim: &Claim<'_>) -> Result<String, Failure> {
    for namespace in (1..=NAMES).map(|number| numbered(claim.namespace, number)) {
        let mut owners = Vec::new();
        for member in members {
            owners.push(owner(&*member.store, &member.named(&namespace)).await?);
        }
        let is_skipped = |owner: &Owner| match owner {
            Owner::Nobody | Owner::Prepared => false,
            Owner::Run(mark) if *mark == claim.mark() => false,
            // nobody has asked for the names further on, and what others have there is not to be replaced
            _ if namespace != claim.namespace => true,
            // another of the run's stores, which is of the same server
            Owner::Run(mark) => is_of_run(mark, claim.run),
            Owner::Stranger | Owner::Empty => false,
        };
        if owners.iter().any(is_skipped) {
            continue;
        }
        for (member, owner) in members.iter().zip(&owners) {
            member.free(lab, &member.named(&namespace), owner, claim).await?;
        }
        return Ok(namespace);
    }
    Err(Failure::Other(format!(
        "all names of namespace \"{}\" are in use: a defect of acidtest",
        claim.namespace
    )))
}

/// Whether what there is under the namespace's name is to be removed first.
///
/// # Errors
/// It must not be used: it is somebody else's, or it was not asked for that it is removed.
fn is_replaced(owner: &Owner, claim: &Claim<'_>, namespace: &str, address: &str) -> Result<bool, StoreError> {
    let (namespace, address) = (format!("namespace \"{namespace}\""), address.to_owned());
    match owner {
        Owner::Nobody | Owner::Prepared => Ok(false),
        // this run has left it itself, before it opened this store anew
        Owner::Run(run) if claim.replace || *run == claim.mark() => Ok(true),
        Owner::Run(_) => Err(StoreError::Occupied { namespace, address }),
        // an empty one bears no mark: an administrator may have made it for somebody
        Owner::Stranger | Owner::Empty => Err(StoreError::Foreign { namespace, address }),
    }
}

/// Removes the namespace that a killed run left on a user's server, and returns whether it is gone. `run` is the run's id, or the
/// mark of one of its stores. A namespace with another run's mark, or with none, is not known to be that run's and is left alone. One
/// that a run has left half made, or that has lost its mark, is the run's if `is_noted`: if the lab has a note of it. One that
/// holds nothing at all may have been prepared by somebody.
///
/// # Errors
/// The store cannot be reached, or does not answer.
pub async fn remove_leftover(
    target: &Target,
    address: &Address,
    namespace: &str,
    run: &str,
    is_noted: bool,
) -> Result<bool, Failure> {
    if target.kind().hosting == Hosting::Embedded && !Path::new(&address.path).exists() {
        return Ok(true);
    }
    let store = open(target, address, OpenOptions::default()).await?;
    match owner(&*store, namespace).await? {
        Owner::Nobody | Owner::Prepared => Ok(true),
        Owner::Run(mark) if !is_of_run(&mark, run) => Ok(false),
        Owner::Empty if !is_noted => Ok(false),
        Owner::Run(_) | Owner::Empty => {
            within(PATIENCE, "removing the namespace", store.remove(namespace)).await?;
            Ok(true)
        }
        Owner::Stranger => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_bears_the_mark_of_a_run_is_replaced() {
        let replaced = |owner: &Owner, replace| {
            let claim = Claim {
                locks: None,
                namespace: "shop",
                run: "20260101T000000Z-2",
                number: 1,
                replace,
                connect_timeout: Address::CONNECT_TIMEOUT,
                size: ServerSize::default(),
                cluster: None,
                host: None,
            };
            is_replaced(owner, &claim, "shop", "mysql://db.example")
        };
        for replace in [false, true] {
            assert_eq!(replaced(&Owner::Nobody, replace), Ok(false));
            assert_eq!(replaced(&Owner::Prepared, replace), Ok(false));
        }
        let [run, own] = ["1", "2"].map(|number| Owner::Run(format!("20260101T000000Z-{number}")));
        assert_eq!(replaced(&run, true), Ok(true));
        assert_eq!(replaced(&own, false), Ok(true));
        assert!(matches!(replaced(&run, false), Err(StoreError::Occupied { .. })));
        for owner in [Owner::Stranger, Owner::Empty] {
            for replace in [false, true] {
                assert!(matches!(replaced(&owner, replace), Err(StoreError::Foreign { .. })), "{owner:?}");
            }
        }
    }
}
