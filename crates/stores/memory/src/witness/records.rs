//! The answers that clients of the records had.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_model::Consistency;
use acidtest_workloads::{Staleness, records::Action};

/// A record's version, and the tag that its fields carry; none if they are torn.
pub(crate) type RecordVersion = (u64, Option<u64>);

/// One request of a client's operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) key: String,
    /// The tag of the fields that it writes.
    pub(crate) tag: u64,
    /// The clients' knowledge of the record when the operation began.
    pub(crate) known: Known,
}

/// How many epochs of a trial a ledger counts at least; of what comes after them, it proves nothing.
const COUNTED: u64 = 127;

/// Who has asked, and of whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The client's number.
    pub(crate) client: u64,
    /// On a connection for reads at any server, whether that led when it was opened; none on one to the leader.
    pub(crate) leads: Option<bool>,
    /// The epoch in which it was asked and has answered, counted by leaders; none if that is not known.
    pub(crate) epoch: Option<u64>,
}

/// How old the reads of a trial were, as far as it is known beyond doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownStaleness {
    reads: u64,
    at_leader: u64,
    stale: u64,
    own_writes_missed: u64,
    went_back: u64,
    /// Whether all of it is known of each read, so that there is no more of it.
    is_all: bool,
}

impl KnownStaleness {
    /// What an audit has told wrongly, in words; none if it is right.
    #[must_use]
    pub fn contradicts(&self, told: &Staleness) -> Option<String> {
        // a session ends with the epoch of a leader
        let of_sessions = |known: u64, told: u64| if self.is_all { known == told } else { known >= told };
        let of_epochs = |known: u64, told: u64| if self.is_all { known == told } else { known <= told };
        let is_right = of_epochs(self.reads, told.reads)
            && of_epochs(self.at_leader, told.at_leader)
            && of_epochs(self.stale, told.stale)
            && of_sessions(self.own_writes_missed, told.own_writes_missed)
            && of_sessions(self.went_back, told.went_back);
        (!is_right).then(|| format!("{told:?} was told, and {self:?} is known"))
    }
}

/// The clients' knowledge of a record, from the answers that they had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    is_there: bool,
    /// Whether it was there before the trial.
    was_there: bool,
    /// The newest epoch in which a version was acknowledged, and the newest version of that; none if that is not known.
    fresh: Option<(u64, u64)>,
    /// The newest version that was acknowledged.
    newest: Option<Newest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newest {
    version: u64,
    /// The tag that was written with it; none if two clients were told that they wrote this version.
    tag: Option<u64>,
}

impl Known {
    fn wrote(&mut self, version: u64, tag: u64, epoch: Option<u64>) {
        self.fresh = self.fresh.max(epoch.map(|epoch| (epoch, version)));
        let newest = self.newest.get_or_insert(Newest { version, tag: Some(tag) });
        if version > newest.version {
            *newest = Newest { version, tag: Some(tag) };
        } else if version == newest.version && newest.tag != Some(tag) {
            newest.tag = None;
        }
    }

    /// Whether this version of the record has another tag than the one that was acknowledged with it.
    fn contradicts(&self, (version, tag): RecordVersion) -> bool {
        self.newest.is_some_and(|newest| {
            version == newest.version && newest.tag.is_some() && tag.is_some() && tag != newest.tag
        })
    }

    fn version(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.version)
    }
}

/// What one client knows of a record by itself: the newest version that it was acknowledged, and the newest that it has read.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    wrote: Option<u64>,
    read: Option<u64>,
}

#[derive(Debug, Default)]
struct Account {
    known: Known,
    first: u64,
    updates: u64,
    /// Whether an insert of this record was answered as failed or refused.
    failed: bool,
    /// By client.
    own: BTreeMap<u64, Own>,
    /// The newest version that was read on a connection for reads at any server.
    shown: Option<u64>,
}

/// The answers that clients had about one trial's records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    accounts: BTreeMap<String, Account>,
    /// Keys that an operation without an answer may have changed; no claim is made about them.
    doubtful: BTreeSet<String>,
    /// Answers that contradict earlier ones.
    seen: u64,
    stage: Stage,
    staleness: KnownStaleness,
}

/// What the answers about a trial's records come from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stage {
    /// Whether clients run one after the other.
    pub(crate) exact: bool,
    /// What reads at any server are promised to see.
    pub(crate) promised: Option<Consistency>,
    /// The epoch in which the trial begins, counted by leaders.
    pub(crate) epoch: u64,
    /// Whether no other epoch follows, and no operation is tried again, so that all is known of each read.
    pub(crate) is_plain: bool,
}

impl Records {
    /// A witness of a trial over these records.
    pub(crate) fn over<'a>(
        records: impl IntoIterator<Item = (&'a str, RecordVersion)>,
        stage: Stage,
    ) -> Self {
        let account = |(version, tag): RecordVersion| Account {
            known: Known {
                is_there: true,
                was_there: true,
                newest: Some(Newest { version, tag }),
                fresh: Some((stage.epoch, version)),
            },
            first: version,
            ..Account::default()
        };
        let accounts = records.into_iter().map(|(key, told)| (key.to_owned(), account(told))).collect();
        Self { accounts, stage, ..Self::default() }
    }

    /// How old the reads were.
    pub(crate) fn staleness(&self) -> KnownStaleness {
        KnownStaleness { is_all: self.stage.exact && self.stage.is_plain, ..self.staleness }
    }

    /// The clients' knowledge of a record so far.
    pub(crate) fn known(&self, key: &str) -> Known {
        self.accounts.get(key).map_or_else(Known::default, |account| account.known)
    }

    /// Notes an acknowledged request, with the records that it read and the version that it wrote.
    pub(crate) fn acknowledged(
        &mut self,
        request: &Request,
        asked: Asked,
        read: &[RecordVersion],
        wrote: Option<u64>,
    ) {
        let Request { action, key, tag, known } = request;
        let asked = self.within(asked);
        self.look(request, asked, read);
        let account = self.accounts.entry(key.clone()).or_default();
        let own = account.own.entry(asked.client).or_default();
        match action {
            Action::Insert => {
                account.known.is_there = true;
                account.known.wrote(0, *tag, asked.epoch);
                own.wrote = own.wrote.max(Some(0));
            }
            Action::Update | Action::Modify => {
                account.updates += 1;
                if let Some(version) = wrote {
                    account.known.wrote(version, *tag, asked.epoch);
                    self.seen += u64::from(self.stage.exact && version <= known.version());
                    own.wrote = own.wrote.max(Some(version));
                }
            }
            Action::Read | Action::Scan => {}
        }
    }

    /// The same without an epoch that no ledger counts.
    fn within(&self, asked: Asked) -> Asked {
        let is_counted = |epoch: &u64| epoch.saturating_sub(self.stage.epoch) < COUNTED;
        Asked { epoch: asked.epoch.filter(is_counted), ..asked }
    }

    fn look(&mut self, request: &Request, asked: Asked, read: &[RecordVersion]) {
        let (known, reads) = (request.known, matches!(request.action, Action::Read | Action::Modify));
        let proves = self.stage.exact && reads && asked.epoch.is_some();
        // what is older is judged by what reads at any server are promised
        let at_leader = asked.leads.is_none();
        for told in read {
            let is_older = at_leader && told.0 < known.version();
            let wrong = proves && (is_older || known.contradicts(*told));
            self.seen += u64::from(wrong || (told.1.is_none() && asked.epoch.is_some()));
        }
        if !reads {
            return;
        }
        if read.is_empty() {
            self.seen += u64::from(proves && known.is_there);
        }
        for (version, _) in read {
            self.compare(request, asked, Some(*version));
        }
    }

    /// Compares a read with what was acknowledged before it, and with what its client has written and read itself.
    fn compare(&mut self, request: &Request, asked: Asked, found: Option<u64>) {
        let Request { key, known, .. } = request;
        let account = self.accounts.entry(key.clone()).or_default();
        let own = account.own.entry(asked.client).or_default();
        let before = *own;
        own.read = own.read.max(found);
        let Some(leads) = asked.leads else { return };
        account.shown = account.shown.max(found);
        let misses = |other: Option<u64>| u64::from(found < other);
        // of a record whose insert is not acknowledged, nothing is older than what was found
        let unknown = (self.stage.epoch, 0);
        let newest = known.fresh.or_else(|| found.map(|_| unknown));
        let newest = newest.filter(|(epoch, _)| asked.epoch == Some(*epoch)).map(|(_, version)| version);
        let (stale, own_writes_missed) = (misses(newest), misses(before.wrote));
        let counts = &mut self.staleness;
        counts.reads += u64::from(newest.is_some());
        counts.at_leader += u64::from(newest.is_some() && leads);
        counts.stale += stale;
        counts.own_writes_missed += own_writes_missed;
        counts.went_back += misses(before.read);
        // whoever reads at several servers may go back
        if self.stage.exact && self.stage.promised == Some(Consistency::Strong) {
            self.seen += stale + own_writes_missed;
        }
    }

    /// Notes that an operation was refused: a violation if all of its records were known to exist and it inserts
    /// none.
    pub(crate) fn refused(&mut self, requests: &[Request], asked: Asked) {
        let asked = self.within(asked);
        if let ([request], Some(_)) = (requests, asked.leads)
            && request.action == Action::Read
            && !request.known.was_there
        {
            // a replica may have it later
            self.compare(request, asked, None);
            return;
        }
        let is_there = |request: &Request| request.known.is_there;
        let must_do = |request: &Request| match request.action {
            Action::Scan => true,
            Action::Insert => false,
            Action::Read | Action::Update | Action::Modify => is_there(request),
        };
        let proves = self.stage.exact && asked.epoch.is_some();
        self.seen += u64::from(proves && requests.iter().all(must_do) && requests.iter().any(is_there));
    }

    /// Notes that an operation was answered as having had no effect.
    pub(crate) fn failed(&mut self, requests: &[Request]) {
        for request in requests.iter().filter(|request| request.action == Action::Insert) {
            self.accounts.entry(request.key.clone()).or_default().failed = true;
        }
    }

    /// Notes that an operation with these requests ended without an answer.
    pub(crate) fn doubt(&mut self, requests: &[Request]) {
        let writes = requests.iter().filter(|request| !matches!(request.action, Action::Read | Action::Scan));
        self.doubtful.extend(writes.map(|request| request.key.clone()));
    }

    /// The number of violations that an audit must see, in the answers and in the records that the store ended with, in this epoch.
    pub(crate) fn shown<'a>(
        &self,
        records: impl IntoIterator<Item = (&'a str, RecordVersion)>,
        epoch: u64,
    ) -> u64 {
        // what a replica showed may be gone with its leader
        let lasts = self.stage.epoch == epoch;
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        let mut shown = self.seen;
        for (key, (version, tag)) in records {
            let newest_shown = self.accounts.get(key).and_then(|account| account.shown);
            shown += u64::from(lasts && tag.is_some() && newest_shown > Some(version));
            let times = seen.entry(key).or_default();
            *times += 1;
            shown += u64::from(*times > 1 || tag.is_none());
            let Some(account) = self.accounts.get(key).filter(|_| !self.doubtful.contains(key)) else {
                continue;
            };
            let other = account.known.contradicts((version, tag));
            let failed = account.failed && !account.known.is_there;
            shown += u64::from(other || failed || version != account.first + account.updates);
        }
        let gone =
            |(key, account): &(&String, &Account)| account.known.is_there && !seen.contains_key(key.as_str());
        shown + self.accounts.iter().filter(gone).count() as u64
    }
}
