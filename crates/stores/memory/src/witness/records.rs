//! What clients of records were told.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::records::Action;

/// A record as a client was told of it, or as it is: its version, and its tag; none where it is torn.
pub(crate) type RecordVersion = (u64, Option<u64>);

/// One operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) key: String,
    /// What it writes.
    pub(crate) tag: u64,
    /// What was known of the record when the operation began.
    pub(crate) known: Known,
}

/// What clients know of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    is_there: bool,
    /// The newest version that was acknowledged.
    newest: Option<Newest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newest {
    version: u64,
    /// What was written then; none where two were told that they wrote it.
    tag: Option<u64>,
}

impl Known {
    fn wrote(&mut self, version: u64, tag: u64) {
        let newest = self.newest.get_or_insert(Newest { version, tag: Some(tag) });
        if version > newest.version {
            *newest = Newest { version, tag: Some(tag) };
        } else if version == newest.version && newest.tag != Some(tag) {
            newest.tag = None;
        }
    }

    /// Whether a record cannot be so, if no newer version was written.
    fn contradicts(&self, (version, tag): RecordVersion) -> bool {
        self.newest.is_some_and(|newest| {
            version == newest.version && newest.tag.is_some() && tag.is_some() && tag != newest.tag
        })
    }

    fn version(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.version)
    }
}

#[derive(Debug, Default)]
struct Account {
    known: Known,
    first: u64,
    updates: u64,
    /// Whether its insert was said to have failed.
    failed: bool,
}

/// What clients were told of one trial's records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    accounts: BTreeMap<String, Account>,
    /// What an operation without an answer may have changed.
    doubtful: BTreeSet<String>,
    /// Answers that were wrong.
    seen: u64,
    exact: bool,
}

impl Records {
    /// A trial over these records. `exact`: clients run one after the other.
    pub(crate) fn over<'a>(records: impl IntoIterator<Item = (&'a str, RecordVersion)>, exact: bool) -> Self {
        let account = |(version, tag): RecordVersion| Account {
            known: Known { is_there: true, newest: Some(Newest { version, tag }) },
            first: version,
            ..Account::default()
        };
        let accounts = records.into_iter().map(|(key, told)| (key.to_owned(), account(told))).collect();
        Self { accounts, exact, ..Self::default() }
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    /// What is known of a record.
    pub(crate) fn known(&self, key: &str) -> Known {
        self.accounts.get(key).map_or_else(Known::default, |account| account.known)
    }

    /// An operation was acknowledged, with what it read and the version that it wrote.
    pub(crate) fn acknowledged(&mut self, request: &Request, read: &[RecordVersion], wrote: Option<u64>) {
        let Request { action, key, tag, known } = request;
        self.look(*action, *known, read);
        let account = self.accounts.entry(key.clone()).or_default();
        match action {
            Action::Insert => {
                account.known.is_there = true;
                account.known.wrote(0, *tag);
            }
            Action::Update | Action::Modify => {
                account.updates += 1;
                if let Some(version) = wrote {
                    account.known.wrote(version, *tag);
                    self.seen += u64::from(self.exact && version <= known.version());
                }
            }
            Action::Read | Action::Scan => {}
        }
    }

    fn look(&mut self, action: Action, known: Known, read: &[RecordVersion]) {
        let reads = matches!(action, Action::Read | Action::Modify);
        for told in read {
            let wrong = self.exact && reads && (told.0 < known.version() || known.contradicts(*told));
            self.seen += u64::from(told.1.is_none() || wrong);
        }
        self.seen += u64::from(self.exact && reads && read.is_empty() && known.is_there);
    }

    /// Operations were refused, all of which only need what is there.
    pub(crate) fn refused(&mut self, requests: &[Request]) {
        let is_there = |request: &Request| request.known.is_there;
        let must_do = |request: &Request| match request.action {
            Action::Scan => true,
            Action::Insert => false,
            Action::Read | Action::Update | Action::Modify => is_there(request),
        };
        self.seen += u64::from(self.exact && requests.iter().all(must_do) && requests.iter().any(is_there));
    }

    /// Operations were said to have had no effect.
    pub(crate) fn failed(&mut self, requests: &[Request]) {
        for request in requests.iter().filter(|request| request.action == Action::Insert) {
            self.accounts.entry(request.key.clone()).or_default().failed = true;
        }
    }

    /// Nobody knows whether they were done.
    pub(crate) fn doubt(&mut self, requests: &[Request]) {
        let writes = requests.iter().filter(|request| !matches!(request.action, Action::Read | Action::Scan));
        self.doubtful.extend(writes.map(|request| request.key.clone()));
    }

    /// How much an audit must see: in the answers, and in the records that the store ended with.
    pub(crate) fn shown<'a>(&self, records: impl IntoIterator<Item = (&'a str, RecordVersion)>) -> u64 {
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        let mut shown = self.seen;
        for (key, (version, tag)) in records {
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
