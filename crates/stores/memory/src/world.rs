//! State that all connections to a reference store share: its outages, its history and its strikes of the planted
//! bug; and the simulated network between a client and the store.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use acidtest_model::Replication;
use acidtest_workloads::{Attempt, Boundary, Fault, WorkloadTrial};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::{Instant, sleep};

use crate::{
    Faults, Watch,
    faults::{Bug, Plant, SWAPPED},
};

/// Number of events that a history keeps; older ones are dropped.
const KEPT: usize = 20_000;

/// How long the store is reachable at first, in milliseconds, so that every client gets a first connection.
const AT_FIRST: u64 = 40;
/// How long the store is reachable between two outages, in milliseconds.
const THERE: std::ops::Range<u64> = 20..200;
/// How long an outage takes, in milliseconds.
const AWAY: std::ops::Range<u64> = 1..60;

/// How long a leader that was promoted over may answer, and must not, in milliseconds.
const UNFENCED: std::ops::Range<u64> = 20..80;

/// How long a leader waits for replicas that it does not reach, until it gives its client up.
const WAITING: Duration = Duration::from_millis(10);

/// The longest delay of a request or of an answer, in milliseconds.
const SLOWEST: u64 = 12;

/// How many servers a cluster has.
pub(crate) const SERVERS: usize = 3;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that all connections to one reference store share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) faults: Faults,
    /// Whether clients run one after the other, so that the store's answers so far are all that they know.
    pub(crate) exact: bool,
    seeds: AtomicU64,
    connections: AtomicU64,
    struck: AtomicU64,
    /// Number of changes that were asked for since there was room last.
    changes: AtomicU64,
    is_sound: AtomicBool,
    presence: Mutex<Availability>,
    told: Mutex<ToldTrial>,
    history: Option<Mutex<History>>,
}

/// The simulated outages of the store.
#[derive(Debug)]
struct Availability {
    rng: Xoshiro256PlusPlus,
    phase: Phase,
    /// Number of outages so far, of a cluster: of promotions. No connection outlives one.
    left: u64,
    /// The same, of a cluster: of leaders that were lost or cut off, counted before another one is promoted.
    begun: u64,
    /// Whether the last of those was cut off.
    was_cut_off: bool,
    until: Option<Instant>,
    /// Whether none begins for now.
    is_calm: bool,
}

/// What an outage has come to. Of a cluster, it is the loss of the leader, or its being cut off from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    There,
    Away,
    /// The leader is cut off from the others, and still reached by clients.
    CutOff,
    /// The same, and another one has been promoted.
    Split,
    /// The same, when nobody should reach it any more: a planted bug.
    Unfenced,
}

/// What sides of a cluster there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Number of leaders that were lost or cut off.
    pub(crate) begun: u64,
    /// Number of promotions.
    pub(crate) leader: u64,
    /// Whether the last leader was cut off, and the new one did not have what it took from then on.
    pub(crate) was_cut_off: bool,
    /// Whether the leader before answers, too.
    pub(crate) is_split: bool,
}

/// What a server of a cluster is to whoever asks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// It does not answer.
    Lost,
    /// It is the leader of this number.
    Leads(u64),
    Follows,
}

/// The server that the leader of this number is.
fn server_of(leader: u64) -> usize {
    // below the number of servers
    usize::try_from(leader % SERVERS as u64).unwrap_or_default()
}

/// The trial that is told of each outage as of a crash, while it has its effect.
#[derive(Default)]
struct ToldTrial(Option<Arc<dyn WorkloadTrial>>);

impl fmt::Debug for ToldTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a trial" } else { "nobody" })
    }
}

#[derive(Debug)]
struct History {
    begun: Instant,
    events: VecDeque<String>,
}

impl World {
    pub(crate) fn new(faults: Faults, seed: u64, Watch { exact, recorded }: Watch) -> Self {
        let presence = Availability {
            rng: Xoshiro256PlusPlus::seed_from_u64(!seed),
            phase: Phase::There,
            left: 0,
            begun: 0,
            was_cut_off: false,
            until: None,
            is_calm: false,
        };
        let history = || Mutex::new(History { begun: Instant::now(), events: VecDeque::new() });
        Self {
            faults,
            exact,
            seeds: AtomicU64::new(seed),
            connections: AtomicU64::new(0),
            struck: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            is_sound: AtomicBool::new(false),
            presence: Mutex::new(presence),
            told: Mutex::default(),
            history: recorded.then(history),
        }
    }

    /// A seed that no other connection of this store gets.
    pub(crate) fn next_seed(&self) -> u64 {
        self.seeds.fetch_add(1, Relaxed)
    }

    fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Relaxed)
    }

    /// Turns the planted bug on or off from now on.
    pub(crate) fn plant(&self, does: bool) {
        self.is_sound.store(!does, Relaxed);
    }

    /// Whether the planted bug is turned off for now.
    pub(crate) fn is_sound(&self) -> bool {
        self.is_sound.load(Relaxed)
    }

    /// How often it has gone away so far, as by a kill; of a cluster, how many leaders were promoted.
    pub(crate) fn kills(&self) -> u64 {
        self.presence();
        locked(&self.presence).left
    }

    /// How often there was something to forget: the leader of a cluster was lost or cut off, or anything else was killed.
    pub(crate) fn losses(&self) -> u64 {
        if self.faults.is_cluster() { self.situation().begun } else { self.kills() }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.presence().is_some()
    }

    /// Makes room anew for as many changes as it has room for.
    pub(crate) fn make_room(&self) {
        self.changes.store(0, Relaxed);
    }

    /// Counts a change that is asked for; returns how many there were before it.
    pub(crate) fn change(&self) -> u64 {
        self.changes.fetch_add(1, Relaxed)
    }

    /// Counts a strike of the bug.
    pub(crate) fn struck(&self) {
        self.struck.fetch_add(1, Relaxed);
    }

    /// How often the bug has struck so far.
    pub(crate) fn strikes(&self) -> u64 {
        self.struck.load(Relaxed)
    }

    /// Number of outages so far; none during one.
    fn presence(&self) -> Option<u64> {
        if !self.faults.outages {
            return Some(0);
        }
        let presence = self.now();
        (presence.phase != Phase::Away).then_some(presence.left)
    }

    /// The outages as they are by now.
    fn now(&self) -> MutexGuard<'_, Availability> {
        let mut guard = locked(&self.presence);
        let presence = &mut *guard;
        let now = Instant::now();
        let mut until = *presence.until.get_or_insert(now + Duration::from_millis(AT_FIRST));
        while until <= now && !(presence.is_calm && presence.phase == Phase::There) {
            // before anybody can see it
            let range = self.go_on(presence);
            until += Duration::from_millis(presence.rng.random_range(range));
        }
        presence.until = Some(until);
        guard
    }

    /// Goes on to the next phase. Returns how long it takes.
    fn go_on(&self, presence: &mut Availability) -> std::ops::Range<u64> {
        let is_unfenced = self.has(Bug::StaleLeader);
        match presence.phase {
            Phase::There => {
                self.note_boundary(&[Boundary::Before, Boundary::During]);
                presence.begun += 1;
                presence.was_cut_off = self.faults.is_cluster() && presence.rng.random();
                if presence.was_cut_off {
                    presence.phase = Phase::CutOff;
                } else {
                    presence.left += 1;
                    presence.phase = Phase::Away;
                }
                AWAY
            }
            Phase::CutOff => {
                presence.left += 1;
                presence.phase = Phase::Split;
                AWAY
            }
            Phase::Split if is_unfenced => {
                self.note_boundary(&[Boundary::After]);
                presence.phase = Phase::Unfenced;
                UNFENCED
            }
            Phase::Away | Phase::Split => {
                self.note_boundary(&[Boundary::After]);
                presence.phase = Phase::There;
                THERE
            }
            Phase::Unfenced => {
                presence.phase = Phase::There;
                THERE
            }
        }
    }

    /// Whether this bug is planted and turned on.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.faults.bug == Some(bug) && !self.is_sound()
    }

    /// What sides there are; always the same of what is no cluster.
    pub(crate) fn situation(&self) -> Situation {
        if !self.faults.is_cluster() {
            return Situation { begun: 0, leader: 0, was_cut_off: false, is_split: false };
        }
        let Availability { phase, left, begun, was_cut_off, .. } = *self.now();
        let is_split = matches!(phase, Phase::Split | Phase::Unfenced);
        Situation { begun, leader: left, was_cut_off, is_split }
    }

    /// Whether the leader of this number is there. Whatever was under way at another one ends with it.
    fn serves(&self, leader: u64) -> bool {
        if !self.faults.outages {
            return true;
        }
        let Availability { phase, left, .. } = *self.now();
        match phase {
            Phase::Away => false,
            Phase::There | Phase::CutOff => leader == left,
            Phase::Split | Phase::Unfenced => leader == left || leader.checked_add(1) == Some(left),
        }
    }

    /// What this server is by now. The first leads at first; at each promotion, the next one does.
    pub(crate) fn member(&self, server: usize) -> Member {
        if !self.faults.is_cluster() {
            return if server == 0 { Member::Leads(0) } else { Member::Follows };
        }
        let Availability { phase, left, .. } = *self.now();
        let before = left.checked_sub(1).filter(|before| server_of(*before) == server);
        match (phase, before) {
            (Phase::Away, Some(_)) => Member::Lost,
            (Phase::Split | Phase::Unfenced, Some(before)) => Member::Leads(before),
            // nobody leads until the next one is promoted
            (Phase::Away, None) => Member::Follows,
            _ if server_of(left) == server => Member::Leads(left),
            _ => Member::Follows,
        }
    }

    /// Whether this server was lost, or promoted over, after this number of promotions.
    fn is_lost_since(&self, opened: u64, server: usize) -> bool {
        if !self.faults.is_cluster() {
            return false;
        }
        let Availability { phase, left, .. } = *self.now();
        // one that was promoted over answers for a while
        let over =
            if matches!(phase, Phase::Split | Phase::Unfenced) { left.saturating_sub(1) } else { left };
        (opened..over).take(SERVERS).any(|leader| server_of(leader) == server)
    }

    /// The epoch that a cluster is in, counted by leaders; none while it is not said to be whole. Always the same of what is no cluster.
    pub(crate) fn epoch(&self) -> Option<u64> {
        if !self.faults.is_cluster() {
            return Some(0);
        }
        drop(self.now());
        self.told_epoch()
    }

    /// The same as clients were told of it last, which may be over by now.
    pub(crate) fn told_epoch(&self) -> Option<u64> {
        let Availability { phase, begun, .. } = *locked(&self.presence);
        let is_whole = !self.faults.is_cluster() || matches!(phase, Phase::There | Phase::Unfenced);
        is_whole.then_some(if self.faults.is_cluster() { begun } else { 0 })
    }

    /// Whether the leader of this number reaches none of the others.
    fn is_cut_off(&self, leader: u64) -> bool {
        if !self.faults.is_cluster() {
            return false;
        }
        let Availability { phase, left, .. } = *self.now();
        match phase {
            Phase::There | Phase::Away => false,
            Phase::CutOff => leader == left,
            Phase::Split | Phase::Unfenced => leader.checked_add(1) == Some(left),
        }
    }

    /// Whether a leader is cut off, and the cluster is not said to be whole again.
    fn is_in_doubt(&self) -> bool {
        self.faults.is_cluster() && matches!(self.now().phase, Phase::CutOff | Phase::Split)
    }

    /// Whether another one was promoted over this leader, which is not said to be over yet.
    fn is_behind(&self, leader: u64) -> bool {
        self.is_cut_off(leader) && self.now().phase == Phase::Split
    }

    /// Whether another one was promoted over this leader, which still answers although the cluster is said to be whole.
    fn is_unfenced(&self, leader: u64) -> bool {
        self.is_cut_off(leader) && self.now().phase == Phase::Unfenced
    }

    /// Whether what this leader is told to change is not acknowledged, as no replica confirms it.
    fn withholds(&self, leader: u64) -> bool {
        let waits = self.faults.replication == Replication::Quorum && !self.has(Bug::SplitBrain);
        waits && self.is_cut_off(leader)
    }

    /// Whether what was under way at the leader of this number is committed there: always, of what is no cluster.
    pub(crate) fn commits_at(&self, leader: u64) -> bool {
        !self.faults.is_cluster() || (self.serves(leader) && !self.withholds(leader))
    }

    /// Waits until the cluster is whole, and keeps it so until [`World::let_go`]; of no effect on what is no cluster.
    pub(crate) async fn calm(&self) {
        if !self.faults.is_cluster() {
            return;
        }
        locked(&self.presence).is_calm = true;
        while self.now().phase != Phase::There {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets leaders be lost again.
    pub(crate) fn let_go(&self) {
        let presence = &mut *locked(&self.presence);
        if presence.is_calm {
            presence.is_calm = false;
            presence.until = None;
        }
    }

    /// Tells this trial of outages from now on.
    pub(crate) fn tell(&self, trial: Option<Arc<dyn WorkloadTrial>>) {
        locked(&self.told).0 = trial;
    }

    fn note_boundary(&self, stages: &[Boundary]) {
        if self.faults.unasked {
            return;
        }
        if let Some(trial) = &locked(&self.told).0 {
            for stage in stages {
                trial.ledger().note_boundary(*stage);
            }
        }
    }

    /// Adds an event on a connection to the history, if one is kept.
    pub(crate) fn note(&self, connection: u64, event: impl FnOnce() -> String) {
        let Some(history) = &self.history else { return };
        let history = &mut *locked(history);
        if history.events.len() == KEPT {
            history.events.pop_front();
        }
        let passed = history.begun.elapsed().as_micros();
        history.events.push_back(format!("{passed:>9} µs  connection {connection:>3}  {}", event()));
    }

    /// The events that were kept, oldest first.
    pub(crate) fn history(&self) -> Vec<String> {
        self.history
            .as_ref()
            .map_or_else(Vec::new, |history| locked(history).events.iter().cloned().collect())
    }
}

/// The simulated network between a client and the store, with its delays and losses.
#[derive(Debug)]
pub(crate) struct Link {
    plant: Plant,
    /// The connection's number, as the history shows it.
    pub(crate) number: u64,
    /// Number of outages when the connection was opened; of one that ends at a pooler, when the request was passed on.
    left: u64,
    is_cut: bool,
    kind: LinkKind,
    /// Whether a leader was being replaced when a request was passed on.
    was_doubtful: bool,
    /// The server that answers what was asked for last, if that follows a leader.
    replica: Option<usize>,
    /// Whether what was asked for last is confirmed by replicas before it is answered, as all is that a queue does.
    is_change: bool,
}

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkKind {
    Plain,
    /// It ends at a pooler.
    Pooled,
    /// It is one to a queue.
    OfQueue,
    /// It is one to this server of a cluster, for reads, opened after this number of promotions.
    Reader {
        server: usize,
        opened: u64,
    },
}

impl Link {
    /// Opens a connection, or fails during an outage, which a pooler does not.
    pub(crate) fn open(plant: Plant) -> Result<Self, String> {
        if plant.faults.pooled {
            let number = plant.world.next_connection();
            return Ok(Self::new(plant, number, 0, LinkKind::Pooled));
        }
        Ok(Self { is_change: false, kind: LinkKind::Plain, ..Self::of_queue(plant, false)? })
    }

    /// Opens a queue's connection, which messages are held by and no pooler is before, or fails during an outage. A calm one,
    /// before or after a trial, has no faults but the bug and the missing flags and confirmations.
    pub(crate) fn of_queue(mut plant: Plant, is_calm: bool) -> Result<Self, String> {
        let number = plant.world.next_connection();
        let mut left = u64::MAX;
        if is_calm {
            let Faults { bug, every, unflagged, unconfirmed, .. } = plant.faults;
            plant.faults = Faults { bug, every, unflagged, unconfirmed, ..Faults::default() };
        } else {
            left = plant.world.presence().ok_or("the store is away")?;
            // of two that take writes, one
            if plant.world.situation().is_split && plant.rng.random() {
                left -= 1;
            }
        }
        Ok(Self { is_change: true, ..Self::new(plant, number, left, LinkKind::OfQueue) })
    }

    /// Opens a connection to this server of a cluster, for reads. No pooler is before it.
    pub(crate) fn reader(plant: Plant, server: usize) -> Result<Self, String> {
        let member = plant.world.member(server);
        if server >= SERVERS || member == Member::Lost {
            return Err(format!("server {server} is away"));
        }
        let opened = plant.world.situation().leader;
        // one that was promoted over was so before
        let opened = if let Member::Leads(leader) = member { leader } else { opened };
        let number = plant.world.next_connection();
        let mut link = Self::new(plant, number, opened, LinkKind::Reader { server, opened });
        link.replica = (member == Member::Follows).then_some(server);
        Ok(link)
    }

    fn new(plant: Plant, number: u64, left: u64, kind: LinkKind) -> Self {
        let (is_cut, was_doubtful, is_change) = (false, false, false);
        Self { plant, number, left, is_cut, kind, was_doubtful, replica: None, is_change }
    }

    /// The server that answers, if that follows a leader.
    pub(crate) fn replica(&self) -> Option<usize> {
        self.replica
    }

    fn is_pooled(&self) -> bool {
        self.kind == LinkKind::Pooled
    }

    /// The number of the leader that answers it; a calm one is answered by whoever leads.
    pub(crate) fn leader(&self) -> u64 {
        self.left
    }

    /// Waits for the end of the connection if its leader does not reach the replicas that it needs for an answer.
    ///
    /// # Errors
    /// It did not.
    async fn confirmed(&mut self) -> Result<(), Fault> {
        if self.replica.is_some() {
            return Ok(());
        }
        let (world, reads) = (&self.plant.world, self.plant.faults.reads_cut_off);
        let is_answered =
            if self.is_change { !self.is_withheld() } else { reads || !world.is_behind(self.left) };
        if is_answered {
            return Ok(());
        }
        let until = Instant::now() + WAITING;
        while self.plant.world.serves(self.left) && Instant::now() < until {
            sleep(Duration::from_millis(1)).await;
        }
        self.is_cut = true;
        Err(Fault::lost("planted: the leader is cut off"))
    }

    /// Whether a leader was being replaced while it was asked, so that nobody knows which one an answer is of.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.was_doubtful || self.plant.world.is_in_doubt()
    }

    /// Whether its leader acknowledges nothing, as no replica confirms it.
    pub(crate) fn is_withheld(&self) -> bool {
        self.plant.world.withholds(self.left)
    }

    /// Whether the connection is lost: cut, or older than the last outage.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_cut || (!self.is_pooled() && self.is_outlived())
    }

    /// Whether an outage has begun since the connection was opened, or its pooler has passed the request on.
    fn is_outlived(&self) -> bool {
        let world = &self.plant.world;
        match self.kind {
            LinkKind::Reader { server, opened } => world.is_lost_since(opened, server),
            _ => self.plant.faults.outages && !world.serves(self.left),
        }
    }

    /// Draws the delay of a request or of an answer: none, or 1 to 12 ms.
    pub(crate) fn delay(&mut self) -> Duration {
        let slow = self.plant.happens(self.plant.faults.delays);
        Duration::from_millis(if slow { self.plant.rng.random_range(1..=SLOWEST) } else { 0 })
    }

    async fn slow(&mut self) {
        let delay = self.delay();
        if !delay.is_zero() {
            sleep(delay).await;
        }
    }

    /// Draws whether the connection is lost now, and returns whether it is.
    pub(crate) fn is_lost(&mut self) -> bool {
        let share = self.plant.faults.cuts / 2.0;
        self.is_cut |= self.plant.happens(share);
        self.is_gone()
    }

    /// Carries a request to the store, after its delay.
    ///
    /// # Errors
    /// If the connection is lost, or the store is away behind a pooler, so that the request does not arrive.
    pub(crate) async fn carry(&mut self) -> Result<(), Fault> {
        self.slow().await;
        if self.is_lost() {
            return Err(Fault::lost("planted: the connection is gone"));
        }
        if self.is_pooled() {
            let there = self.plant.world.presence();
            self.left = there.ok_or_else(|| Fault::answered("planted: the pooler has no server"))?;
        }
        let world = &self.plant.world;
        if let LinkKind::Reader { server, .. } = self.kind {
            let member = world.member(server);
            self.replica = (member == Member::Follows).then_some(server);
            if let Member::Leads(leader) = member {
                self.left = leader;
            }
        }
        self.was_doubtful = world.is_in_doubt();
        self.confirmed().await
    }

    /// Carries an operation to the store, after its delay.
    ///
    /// # Errors
    /// The outcome of an operation that ends here and has changed nothing: a lost connection, a failure or a
    /// conflict.
    pub(crate) async fn send(&mut self) -> Result<(), Attempt> {
        self.is_change = self.kind == LinkKind::OfQueue;
        self.pass_on().await
    }

    async fn pass_on(&mut self) -> Result<(), Attempt> {
        self.carry().await.map_err(Attempt::Failed)?;
        let faults = self.plant.faults;
        if self.plant.happens(faults.failures) {
            return Err(self.plant.failure());
        }
        if self.plant.happens(faults.conflicts) {
            return Err(Attempt::Conflict);
        }
        Ok(())
    }

    /// The same of an operation that changes something, for which the store needs room.
    ///
    /// # Errors
    /// The same, and a failure where there is no room.
    pub(crate) async fn send_change(&mut self) -> Result<(), Attempt> {
        self.is_change = true;
        self.pass_on().await?;
        self.plant.no_room().map_or(Ok(()), Err)
    }

    /// Carries an answer back, after its delay.
    ///
    /// # Errors
    /// The client's connection is lost, or the pooler's to the store. The operation has been applied nevertheless.
    pub(crate) async fn answer<T>(&mut self, answer: T) -> Result<T, Fault> {
        self.slow().await;
        if self.is_lost() {
            return Err(Fault::lost("planted: the answer is lost"));
        }
        if self.is_pooled() && self.is_outlived() {
            return Err(Fault::answered("planted: the pooler has lost its server"));
        }
        self.confirmed().await?;
        let world = &self.plant.world;
        if self.replica.is_some() {
            return Ok(answer);
        }
        let acknowledges = self.is_change && world.is_cut_off(self.left) && self.plant.has(Bug::SplitBrain);
        if acknowledges || (!self.is_change && world.is_unfenced(self.left)) {
            world.struck();
        }
        Ok(answer)
    }

    /// Carries an operation's outcome back, after its delay; the outcome is unknown if the answer is lost, or swapped for an error.
    pub(crate) async fn answer_attempt(&mut self, attempt: Attempt) -> Attempt {
        match self.answer(attempt).await {
            Ok(attempt) => self.plant.passed_on(attempt),
            Err(fault) => Attempt::Unknown(fault),
        }
    }

    /// Carries back the answer of a queue to a consumer, after its delay.
    ///
    /// # Errors
    /// If the connection is lost, or the answer swapped for an error; the operation has been applied anyway.
    pub(crate) async fn answer_consumer<T>(&mut self, answer: T) -> Result<T, Fault> {
        let answer = self.answer(answer).await?;
        if self.plant.is_swapped() { Err(Fault::lost(SWAPPED)) } else { Ok(answer) }
    }

    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        self.plant.world.note(self.number, event);
    }
}
