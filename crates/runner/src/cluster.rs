//! The nodes of a store that has several: private servers of which one leads, and the others follow. acidtest is their operator: it
//! sets them up, promotes a replica when the leader is gone, and compares them in the end.

use std::{
    collections::BTreeMap,
    pin::Pin,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Links};
use acidtest_model::{
    Address, Consistency, EffectiveReplication, MemberId, Promotion, Replication, Role, StoreError,
};
use acidtest_results::PromotionFigures;
use acidtest_workloads::{Audit, Place, Replica, Standing, Store};

use crate::{
    Failure, Interrupt, OpenOptions, Target,
    answer::{AGAIN, PATIENCE, READY, first_answer, open, within},
    instance::address_of,
};

/// How long it takes the operator to notice that a leader is gone, and to be sure that it does not come back.
pub(crate) const NOTICING: Duration = Duration::from_secs(1);

/// How long a member may take to answer the operator, who asks those first that answer.
const ASKING: Duration = Duration::from_secs(3);

/// How long a replica may take to have all that the leader had when it was asked.
const CATCHING_UP: Duration = Duration::from_secs(30);

/// For how long two members must have different data that have the same log: a leader shows what it commits only once that is
/// confirmed, and a replica as soon as it has it.
const DIFFERING: Duration = Duration::from_secs(5);

/// The cluster that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterSpec {
    /// How many nodes it has, from 2.
    pub nodes: u16,
    /// What its acknowledgements wait for.
    pub replication: Replication,
    /// What reads at its replicas are promised to see.
    pub consistency: Consistency,
    /// Whether its members reach each other by links that can be cut.
    pub linked: bool,
}

impl ClusterSpec {
    /// The member that leads at first.
    pub(crate) const FIRST: MemberId = MemberId::numbered(Role::Server, 1);

    /// Its members, the one that leads at first before the others.
    pub(crate) fn members(self) -> impl Iterator<Item = MemberId> {
        (1..=self.nodes).map(|number| MemberId::numbered(Role::Server, number))
    }
}

/// A member of a cluster.
struct Node {
    id: MemberId,
    /// Where clients reach it.
    address: Address,
    /// Opened at its own address, whoever leads.
    store: Box<dyn Store>,
    /// Whether it is not one of them any more.
    is_lost: bool,
}

/// The nodes of a store that has several.
pub(crate) struct Cluster {
    target: Target,
    spec: ClusterSpec,
    leader: MemberId,
    nodes: Vec<Node>,
    links: Option<Links>,
    /// Where each member reaches each other one.
    ways: BTreeMap<(MemberId, MemberId), Address>,
    /// Why a member could not be copied anew, so that it is none any more.
    uncopied: Option<String>,
}

impl Cluster {
    /// Makes replicas of the leader, which answers already, and waits until all of them follow it.
    ///
    /// # Errors
    /// One cannot be made, or does not answer or follow.
    pub(crate) async fn open(
        deployment: &mut Deployment,
        target: &Target,
        spec: ClusterSpec,
        connect_timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let address = |deployment: &Deployment, id: MemberId| {
            let member = deployment.member(id).ok_or_else(|| not_started(id))?;
            Ok::<_, Failure>(Address { connect_timeout, ..address_of(member, target) })
        };
        let mut links = spec.linked.then(Links::new).transpose().map_err(|error| no_links(&error))?;
        let mut way = |from: MemberId, to: MemberId, own: Address| match &mut links {
            Some(links) => links.address(from, to, &own).map_err(|error| no_links(&error)),
            None => Ok(own),
        };
        let leader = ClusterSpec::FIRST;
        for id in spec.members().filter(|id| *id != leader) {
            deployment.start_replica(id, &way(id, leader, address(deployment, leader)?)?)?;
        }
        let mut ways = BTreeMap::new();
        let pairs = spec.members().flat_map(|from| spec.members().map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            ways.insert((from, to), way(from, to, address(deployment, to)?)?);
        }
        let mut nodes = Vec::new();
        for id in spec.members() {
            let address = address(deployment, id)?;
            let options = OpenOptions::default();
            let store = first_answer(deployment, id, target, &address, options, interrupt).await?;
            nodes.push(Node { id, address, store, is_lost: false });
        }
        let cluster = Self { target: target.clone(), spec, leader, nodes, links, ways, uncopied: None };
        cluster.set_up().await?;
        Ok(cluster)
    }

    /// Has the leader's acknowledgements wait as they were asked to, once all replicas follow it.
    async fn set_up(&self) -> Result<(), Failure> {
        let replicas: Vec<MemberId> = self.replicas().map(|node| node.id).collect();
        self.followed().await?;
        let leader = self.replica(self.leader)?;
        let setting = leader.acknowledge(self.spec.replication, self.spec.consistency, &replicas);
        Ok(within(PATIENCE, "setting the replication", setting).await?)
    }

    /// Waits until all replicas follow the leader, and reads what its settings amount to.
    async fn followed(&self) -> Result<EffectiveReplication, Failure> {
        let (leader, replicas) = (self.replica(self.leader)?, self.replicas().count());
        let begun = Instant::now();
        loop {
            let reading = leader.replication(self.spec.nodes.into());
            let read = within(PATIENCE, "reading the replication", reading).await?;
            if read.following as usize >= replicas {
                return Ok(read);
            }
            if begun.elapsed() > READY {
                return Err(Failure::Store(format!(
                    "{} of {replicas} replicas follow the leader after {} s",
                    read.following,
                    READY.as_secs()
                )));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    pub(crate) fn leader(&self) -> MemberId {
        self.leader
    }

    /// The members that are not lost, the leader first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = MemberId> {
        std::iter::once(self.leader).chain(self.replicas().map(|node| node.id))
    }

    fn replicas(&self) -> impl Iterator<Item = &Node> {
        self.members().filter(|node| node.id != self.leader)
    }

    fn members(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.is_lost)
    }

    fn node(&self, id: MemberId) -> Option<&Node> {
        self.members().find(|node| node.id == id)
    }

    /// What is open of a member, at its own address.
    pub(crate) fn store_of(&self, id: MemberId) -> Option<&dyn Store> {
        self.node(id).map(|node| &*node.store)
    }

    /// Where clients reach a member.
    pub(crate) fn address_of(&self, id: MemberId) -> Option<&Address> {
        self.node(id).map(|node| &node.address)
    }

    /// Where clients reach the members that do not lead.
    pub(crate) fn peers(&self) -> Vec<Address> {
        self.replicas().map(|node| node.address.clone()).collect()
    }

    fn replica(&self, id: MemberId) -> Result<&dyn Replica, Failure> {
        let store = self.store_of(id).ok_or_else(|| not_started(id))?;
        store.replica().ok_or_else(|| no_operator(&self.target))
    }

    /// What the leader's settings amount to, read back.
    ///
    /// # Errors
    /// It does not answer, or they are not what was asked for.
    pub(crate) async fn replication(&self) -> Result<EffectiveReplication, Failure> {
        let (read, nodes) = (self.followed().await?, self.spec.nodes);
        let asked = self.spec.replication;
        // of two nodes, a majority is all of them
        let is_same = read.level == asked
            || (nodes == 2
                && read.level.max(asked) == Replication::All
                && read.level.min(asked) == Replication::Quorum);
        if !is_same {
            return Err(Failure::Store(format!(
                "the leader was set to replication {asked}, and says {}: {}",
                read.level, read.because
            )));
        }
        if read.consistency != self.spec.consistency {
            return Err(Failure::Store(format!(
                "the leader was set to consistency {}, and says {}: {}",
                self.spec.consistency, read.consistency, read.because
            )));
        }
        Ok(EffectiveReplication { level: asked, ..read })
    }

    /// Nothing passes any more between the member and the others.
    pub(crate) fn cut(&self, member: MemberId) {
        self.links.iter().for_each(|links| links.cut(member));
    }

    /// What was cut off passes again.
    pub(crate) fn heal(&self, member: MemberId) {
        self.links.iter().for_each(|links| links.heal(member));
    }

    /// Where `from` reaches `to`.
    pub(crate) fn way(&self, from: MemberId, to: MemberId) -> Option<&Address> {
        self.ways.get(&(from, to))
    }

    /// Promotes a replica in the place of the leader, which is not asked: it may be dead, or cut off.
    pub(crate) fn fail_over(&self, rule: Promotion) -> FailingOver {
        let failover = Failover {
            target: self.target.clone(),
            candidates: self.replicas().map(|node| (node.id, node.address.clone())).collect(),
            ways: self.ways.clone(),
            level: self.spec.replication,
            consistency: self.spec.consistency,
            rule,
        };
        Box::pin(async { failover.carry_out().await.map(Some) })
    }

    /// Has the leader wait for a replica no more that is lost. If nobody leads for so long, it is left as it is.
    pub(crate) fn do_without(&self, lost: MemberId) -> FailingOver {
        let (target, level, consistency) =
            (self.target.clone(), self.spec.replication, self.spec.consistency);
        let leader = self.node(self.leader).map(|node| node.address.clone());
        let others: Vec<MemberId> = self.replicas().map(|node| node.id).filter(|id| *id != lost).collect();
        Box::pin(async move {
            let begun = Instant::now();
            // one that waits for nobody needs not be told
            while let Some(address) = leader.as_ref().filter(|_| level > Replication::Async) {
                let told = async {
                    let store = open(&target, address, OpenOptions::default()).await?;
                    let leader = store.replica().ok_or_else(|| not_asked(lost))?;
                    leader.acknowledge(level, consistency, &others).await
                };
                let told = tokio::time::timeout(ASKING, Box::pin(told)).await;
                if matches!(told, Ok(Ok(()))) || begun.elapsed() > CATCHING_UP {
                    break;
                }
                tokio::time::sleep(AGAIN).await;
            }
            Ok(None)
        })
    }

    /// Notes that a member is none any more, until it is [taken back](Self::take_back).
    pub(crate) fn lose(&mut self, id: MemberId) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.id == id) {
            node.is_lost = true;
        }
    }

    /// Notes who leads now.
    pub(crate) fn follow(&mut self, promoted: MemberId) {
        self.leader = promoted;
    }

    /// Notes that a member follows again, which was copied anew from the leader.
    pub(crate) fn take_back(&mut self, id: MemberId) {
        if let Some(node) = self.nodes.iter_mut().find(|node| node.id == id) {
            node.is_lost = false;
        }
    }

    /// Waits, for a while, until every replica has all that the leader has. Only then does a leader answer with all of it: what waits
    /// for the confirmation of replicas is in its log, and nobody can read it there.
    pub(crate) async fn settle(&self) {
        // whoever compares them says why not
        let _ = self.caught_up().await;
    }

    /// Waits until every replica has all that the leader has, so that whoever reads there finds it.
    ///
    /// # Errors
    /// One does not within a while, or does not answer.
    pub(crate) async fn caught_up(&self) -> Result<(), Failure> {
        let mut first = Ok(());
        for node in self.replicas() {
            first = first.and(self.has_caught_up(node).await.map_err(Failure::Store));
        }
        first
    }

    /// Waits until a replica has all that the leader has now.
    async fn has_caught_up(&self, node: &Node) -> Result<(), String> {
        let words = |why: &str| format!("{} could not be compared with the leader: {why}", node.id);
        let leader = self.replica(self.leader).map_err(|error| error.to_string())?;
        let there = standing(leader).await.map_err(|error| words(&error.to_string()))?.received;
        let replica = node.store.replica().ok_or_else(|| words("it is no member of a cluster"))?;
        let begun = Instant::now();
        loop {
            let why = match standing(replica).await {
                Ok(standing) if standing.applied >= there && !standing.leads => return Ok(()),
                Ok(_) => format!("it has not caught up within {} s", CATCHING_UP.as_secs()),
                Err(error) => error.to_string(),
            };
            if begun.elapsed() > CATCHING_UP {
                return Err(words(&why));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Notes that a member could not be copied anew.
    pub(crate) fn give_up(&mut self, id: MemberId, why: &str) {
        let first = why.lines().next().unwrap_or_default();
        self.uncopied.get_or_insert_with(|| format!("{id} could not be copied from the new leader: {first}"));
    }

    /// Compares what the members have of a trial: what still differs once a replica has had all that the leader had is no lag.
    pub(crate) async fn compare(&self, place: &Place, audit: &mut Audit) {
        let compared = Box::pin(self.compared(place)).await;
        let (members, diverged, doubt) = match compared {
            Ok((members, diverged)) => (members, diverged, None),
            Err(why) => (0, Vec::new(), Some(why)),
        };
        let diverged: Vec<String> = diverged.iter().map(ToString::to_string).collect();
        audit.members_compared(members, &diverged, doubt.as_deref());
    }

    /// How many members were compared, and which of them have other data than the leader; or why that cannot be told.
    async fn compared(&self, place: &Place) -> Result<(u64, Vec<MemberId>), String> {
        if let Some(why) = &self.uncopied {
            return Err(why.clone());
        }
        let mut since = None;
        loop {
            let diverged = self.differing(place).await?;
            // what differs for long enough is no lag
            let is_settled = |since: Instant| since.elapsed() > DIFFERING;
            if diverged.is_empty() || is_settled(*since.get_or_insert_with(Instant::now)) {
                return Ok((self.members().count() as u64, diverged));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The replicas that have other data than the leader. It is asked first: what it has, they have when they have caught up.
    async fn differing(&self, place: &Place) -> Result<Vec<MemberId>, String> {
        let contents = async |id: MemberId| {
            let replica = self.replica(id).map_err(|error| error.to_string())?;
            let read = within(PATIENCE, "reading what a member has", replica.contents(place)).await;
            read.map_err(|error| format!("{id} could not be compared: {error}"))
        };
        let truth = contents(self.leader).await?;
        let mut differing = Vec::new();
        for node in self.replicas() {
            self.has_caught_up(node).await?;
            if contents(node.id).await? != truth {
                differing.push(node.id);
            }
        }
        Ok(differing)
    }
}

/// What the operator does about a member that is gone: whom he has promoted, if it led; or why he could not.
pub(crate) type FailingOver = Pin<Box<dyn Future<Output = Result<Option<Promoted>, String>>>>;

/// A replica that was promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The leader from now on.
    pub leader: MemberId,
    /// The rule by which it was chosen.
    pub rule: Promotion,
    /// How many bytes of the log each candidate had received; none of one that did not answer.
    pub received: Vec<(MemberId, Option<u64>)>,
    /// Those that do not follow it, and are to be copied anew: they did not answer, or had received more.
    pub left_behind: Vec<MemberId>,
}

impl Promoted {
    /// The members that had received more than the one that was promoted: their log is not a beginning of its own, and they cannot follow
    /// it.
    fn ahead(&self) -> impl Iterator<Item = MemberId> {
        let of = |id: MemberId| self.received.iter().find(|(member, _)| *member == id)?.1;
        let own = of(self.leader);
        self.received.iter().filter(move |(_, received)| *received > own).map(|(member, _)| *member)
    }

    /// The same as a result keeps it, of one that took writes at this moment.
    pub(crate) fn figures(&self, at: Duration) -> PromotionFigures {
        let most = self.received.iter().filter_map(|(_, received)| *received).max().unwrap_or(0);
        let behind = |received: Option<u64>| received.map(|received| most.saturating_sub(received));
        let behind = self.received.iter().map(|(member, received)| (member.to_string(), behind(*received)));
        PromotionFigures {
            member: self.leader.to_string(),
            rule: self.rule.to_string(),
            at_seconds: at.as_secs_f64(),
            behind: behind.collect(),
        }
    }
}

/// What the operator knows when a leader is gone.
struct Failover {
    target: Target,
    candidates: Vec<(MemberId, Address)>,
    ways: BTreeMap<(MemberId, MemberId), Address>,
    level: Replication,
    consistency: Consistency,
    rule: Promotion,
}

impl Failover {
    /// Asks the candidates how far they have come, promotes one of them, and has the others follow it.
    async fn carry_out(self) -> Result<Promoted, String> {
        let begun = Instant::now();
        let (stores, received) = loop {
            let (stores, received) = self.ask().await;
            if stores.len() >= self.needed() {
                break (stores, received);
            }
            if begun.elapsed() > READY {
                return Err(format!(
                    "{} of {} replicas answered within {} s, and {} must, for one of them to have all that was acknowledged",
                    stores.len(),
                    received.len(),
                    READY.as_secs(),
                    self.needed()
                ));
            }
            tokio::time::sleep(AGAIN).await;
        };
        let leader = choose(&received, self.rule).ok_or("no replica answers")?;
        let others: Vec<MemberId> = received.iter().map(|(id, _)| *id).filter(|id| *id != leader).collect();
        let replica = |id: &MemberId| stores.get(id).and_then(|store| store.replica());
        let promoted = replica(&leader).ok_or("no replica answers")?;
        let words = |error: StoreError| error.to_string();
        // first: what it acknowledges as a leader must wait from the beginning
        within(
            PATIENCE,
            "setting the replication",
            promoted.acknowledge(self.level, self.consistency, &others),
        )
        .await
        .map_err(words)?;
        within(PATIENCE, "promoting a replica", promoted.promote()).await.map_err(words)?;
        let mut done = Promoted { leader, rule: self.rule, received, left_behind: Vec::new() };
        let ahead: Vec<MemberId> = done.ahead().collect();
        for id in others {
            let follows = match (replica(&id), self.ways.get(&(id, leader))) {
                (Some(follower), Some(way)) if !ahead.contains(&id) => {
                    let following = tokio::time::timeout(ASKING, follower.follow(id, way)).await;
                    matches!(following, Ok(Ok(())))
                }
                _ => false,
            };
            if !follows {
                done.left_behind.push(id);
            }
        }
        Ok(done)
    }

    /// What is open of the candidates that answer, and how far each has come.
    async fn ask(&self) -> (BTreeMap<MemberId, Box<dyn Store>>, Vec<(MemberId, Option<u64>)>) {
        let mut stores: BTreeMap<MemberId, Box<dyn Store>> = BTreeMap::new();
        let mut received = Vec::new();
        for (id, address) in &self.candidates {
            let asked = async {
                let store = open(&self.target, address, OpenOptions::default()).await?;
                let replica = store.replica().ok_or_else(|| not_asked(*id))?;
                let standing = replica.standing().await?;
                Ok::<_, StoreError>((store, standing))
            };
            let asked = tokio::time::timeout(ASKING, Box::pin(asked)).await.ok().and_then(Result::ok);
            received.push((*id, asked.as_ref().map(|(_, standing)| standing.received)));
            stores.extend(asked.map(|(store, _)| (*id, store)));
        }
        (stores, received)
    }

    /// How many candidates must answer before one is promoted. Where a majority has what was acknowledged, as many that one of that
    /// majority is among them.
    fn needed(&self) -> usize {
        let replicas = self.candidates.len();
        match (self.level, self.rule) {
            (Replication::Quorum, Promotion::MostAdvanced) => replicas + 1 - self.level.confirming(replicas),
            _ => 1,
        }
    }
}

/// The candidate that is promoted by this rule, of those that answer.
fn choose(received: &[(MemberId, Option<u64>)], rule: Promotion) -> Option<MemberId> {
    let answer = received.iter().filter_map(|(id, received)| Some((*id, (*received)?)));
    let chosen = match rule {
        Promotion::First => answer.min_by_key(|(id, _)| *id),
        // of those that have the same, the first
        Promotion::MostAdvanced => answer.min_by_key(|(id, received)| (u64::MAX - received, *id)),
    };
    chosen.map(|(id, _)| id)
}

async fn standing(replica: &dyn Replica) -> Result<Standing, StoreError> {
    within(PATIENCE, "asking a member how far it is", replica.standing()).await
}

fn not_asked(id: MemberId) -> StoreError {
    StoreError::Server {
        doing: "asking a member how far it is".to_owned(),
        address: id.to_string(),
        cause: "it is no member of a cluster".to_owned(),
    }
}

fn not_started(id: MemberId) -> Failure {
    Failure::Other(format!("{id} was not started: a defect of acidtest"))
}

fn no_operator(target: &Target) -> Failure {
    Failure::Other(format!("acidtest operates no cluster of {}: a defect of acidtest", target.shown()))
}

fn no_links(error: &std::io::Error) -> Failure {
    Failure::store(&format!("members cannot be linked over loopback: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u16) -> MemberId {
        MemberId::numbered(Role::Server, number)
    }

    #[test]
    fn the_operator_promotes_by_its_rule() {
        let received = |two, three| [(server(2), two), (server(3), three)];
        for (two, three, advanced, first) in [
            (Some(10), Some(20), Some(3), Some(2)),
            (Some(20), Some(10), Some(2), Some(2)),
            (Some(20), Some(20), Some(2), Some(2)),
            (None, Some(0), Some(3), Some(3)),
            (None, None, None, None),
        ] {
            let received = received(two, three);
            assert_eq!(choose(&received, Promotion::MostAdvanced), advanced.map(server), "{received:?}");
            assert_eq!(choose(&received, Promotion::First), first.map(server), "{received:?}");
        }
    }

    /// Of two replicas either may be the one that has confirmed a write: both are asked before one is promoted.
    #[test]
    fn so_many_candidates_answer_that_one_has_all() {
        let needed = |nodes: u16, level, rule| {
            let candidates = (2..=nodes).map(|number| (server(number), Address::file("memory", "")));
            let target = Target { opener: &Nobody, address: None };
            let (ways, consistency) = (BTreeMap::new(), Consistency::Eventual);
            Failover { target, candidates: candidates.collect(), ways, level, consistency, rule }.needed()
        };
        for (nodes, all) in [(2, 1), (3, 2), (4, 2), (5, 3), (7, 4)] {
            assert_eq!(needed(nodes, Replication::Quorum, Promotion::MostAdvanced), all, "{nodes}");
            for other in [Replication::Async, Replication::All] {
                assert_eq!(needed(nodes, other, Promotion::MostAdvanced), 1);
            }
            assert_eq!(needed(nodes, Replication::Quorum, Promotion::First), 1);
        }
    }

    /// Opens nothing.
    struct Nobody;

    impl crate::Opener for Nobody {
        fn kind(&self) -> &acidtest_model::StoreKind {
            unreachable!("nobody asks")
        }

        fn open<'a>(
            &'a self,
            _: &'a Address,
            _: OpenOptions<'a>,
        ) -> acidtest_model::Task<'a, Result<Box<dyn Store>, StoreError>> {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn members_that_have_more_than_the_promoted_one_are_known() {
        let received = vec![(server(2), Some(10)), (server(3), Some(25)), (server(4), None)];
        let left_behind = Vec::new();
        let promoted = Promoted { leader: server(2), rule: Promotion::First, received, left_behind };
        assert_eq!(promoted.ahead().collect::<Vec<_>>(), [server(3)]);
        let figures = promoted.figures(Duration::from_millis(4_500));
        let behind = ["server-2", "server-3", "server-4"].map(|member| figures.behind[member]);
        assert_eq!(behind, [Some(15), Some(0), None]);
        assert_eq!(
            (figures.member.as_str(), figures.rule.as_str(), figures.at_seconds),
            ("server-2", "first", 4.5)
        );
    }
}
