//! The answers that clients of the records had.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_workloads::records::Action;

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

/// The clients' knowledge of a record, from the answers that they had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    is_there: bool,
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
    fn wrote(&mut self, version: u64, tag: u64) {
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

#[derive(Debug, Default)]
struct Account {
    known: Known,
    first: u64,
    updates: u64,
    /// Whether an insert of this record was answered as failed or refused.
    failed: bool,
}

/// The answers that clients had about one trial's records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    accounts: BTreeMap<String, Account>,
    /// Keys that an operation without an answer may have changed; no claim is made about them.
    doubtful: BTreeSet<String>,
    /// Answers that contradict earlier ones.
    seen: u64,
    exact: bool,
}

impl Records {
    /// A witness of a trial over these records. `exact`: clients run one after the other.
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

    /// The clients' knowledge of a record so far.
    pub(crate) fn known(&self, key: &str) -> Known {
        self.accounts.get(key).map_or_else(Known::default, |account| account.known)
    }

    /// Notes an acknowledged request, with the records that it read, if they prove anything, and the version that it wrote.
    pub(crate) fn acknowledged(
        &mut self,
        request: &Request,
        read: Option<&[RecordVersion]>,
        wrote: Option<u64>,
    ) {
        let Request { action, key, tag, known } = request;
        if let Some(read) = read {
            self.look(*action, *known, read);
        }
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

    /// Notes that an operation was refused: a violation if all of its records were known to exist and it inserts
    /// none.
    pub(crate) fn refused(&mut self, requests: &[Request]) {
        let is_there = |request: &Request| request.known.is_there;
        let must_do = |request: &Request| match request.action {
            Action::Scan => true,
            Action::Insert => false,
            Action::Read | Action::Update | Action::Modify => is_there(request),
        };
        self.seen += u64::from(self.exact && requests.iter().all(must_do) && requests.iter().any(is_there));
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

    /// The number of violations that an audit must see, in the answers and in the records that the store ended with.
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
