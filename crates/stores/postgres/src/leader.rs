//! Which of several servers takes writes: what each says of that at the login, and in which order they are asked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout;

use crate::fault::ConnectError;

/// How long a server is waited for before the next is asked as well, as RFC 8305 has it for the addresses of a host. One that hangs then
/// takes no more than this of the time for connecting, and one that is slow still has all of that.
const HEAD_START: Duration = Duration::from_millis(250);

/// What a server says of whether it takes writes: from PostgreSQL 14 on by itself, at the login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    is_standby: Option<bool>,
    is_read_only: Option<bool>,
}

impl Writes {
    /// The settings that say so, by the names under which they are reported.
    pub(crate) const SETTINGS: [&str; 2] = ["in_hot_standby", "default_transaction_read_only"];

    /// What asks a server that reports none of them.
    pub(crate) const QUESTION: &str =
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')";

    /// As the values of these [settings](Self::SETTINGS), or the [question's](Self::QUESTION) answers, say it.
    pub(crate) fn of(said: [Option<&str>; 2]) -> Self {
        let [is_standby, is_read_only] = said.map(|said| said.map(|said| ["on", "t"].contains(&said)));
        Self { is_standby, is_read_only }
    }

    /// Takes a setting that is reported, if it is one of these.
    pub(crate) fn note(&mut self, name: &str, value: &str) {
        let of_both = [&mut self.is_standby, &mut self.is_read_only];
        for (setting, said) in Self::SETTINGS.iter().zip(of_both) {
            if *setting == name {
                *said = Some(value == "on");
            }
        }
    }

    /// Whether that is all that there is to know: one reason not to take any is enough.
    pub(crate) fn is_known(self) -> bool {
        self.check().is_err() || (self.is_standby.is_some() && self.is_read_only.is_some())
    }

    /// # Errors
    /// [`ConnectError::ReadOnly`]: it takes none.
    pub(crate) fn check(self) -> Result<(), ConnectError> {
        match (self.is_standby, self.is_read_only) {
            (Some(true), _) => Err(ConnectError::ReadOnly("a replica")),
            (_, Some(true)) => Err(ConnectError::ReadOnly("read-only (default_transaction_read_only=on)")),
            _ => Ok(()),
        }
    }
}

/// Servers one of which takes writes. Whoever finds another one that does tells all others that use the same list: they begin with it.
#[derive(Clone, Debug)]
pub(crate) struct Servers<S>(Arc<List<S>>);

#[derive(Debug)]
struct List<S> {
    first: S,
    others: Vec<S>,
    /// The index of the one that took writes last.
    leader: AtomicUsize,
}

impl<S> Servers<S> {
    pub(crate) fn new(first: S, others: Vec<S>) -> Self {
        Self(Arc::new(List { first, others, leader: AtomicUsize::new(0) }))
    }

    /// The one that took writes last; the first before any has.
    pub(crate) fn leader(&self) -> &S {
        self.get(self.0.leader.load(Ordering::Relaxed))
    }

    /// Whether there is one alone, which is used whatever it says.
    pub(crate) fn is_one(&self) -> bool {
        self.0.others.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.others.len() + 1
    }

    /// The one at this place, as they were given; none where there are not so many.
    pub(crate) fn at(&self, index: usize) -> Option<&S> {
        index.checked_sub(1).map_or(Some(&self.0.first), |index| self.0.others.get(index))
    }

    fn get(&self, index: usize) -> &S {
        self.at(index).unwrap_or(&self.0.first)
    }

    /// What opening comes to at the first server with which it succeeds. It begins with the one that took writes last, and goes on to the
    /// next when one has failed, or has had its [head start](HEAD_START), or its share of `time` if that is less.
    ///
    /// # Errors
    /// [`ConnectError::Nobody`], with what each of them has said; of one alone, its own.
    pub(crate) async fn reach<T>(
        &self,
        time: Duration,
        name: impl Fn(&S) -> String,
        open: impl AsyncFn(&S) -> Result<T, ConnectError>,
    ) -> Result<T, ConnectError> {
        if self.is_one() {
            return open(&self.0.first).await;
        }
        let count = self.count();
        let head_start = u32::try_from(count).map_or(HEAD_START, |count| HEAD_START.min(time / count));
        let leader = self.0.leader.load(Ordering::Relaxed);
        let attempt = async |index: usize| (index, open(self.get(index)).await);
        let (mut begun, mut under_way, mut failed) = (0, FuturesUnordered::new(), Vec::new());
        while failed.len() < count {
            if begun < count {
                under_way.push(attempt((leader + begun) % count));
                begun += 1;
            }
            let wait = if begun < count { head_start } else { Duration::MAX };
            // a server more is asked where none has answered
            let Ok(Some((index, answer))) = timeout(wait, under_way.next()).await else { continue };
            match answer {
                Ok(opened) => {
                    self.0.leader.store(index, Ordering::Relaxed);
                    return Ok(opened);
                }
                Err(error) => failed.push((name(self.get(index)), error)),
            }
        }
        Err(ConnectError::Nobody(failed))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future::pending, time::Instant};

    use acidtest_testbed::wait;

    use super::*;

    const TIME: Duration = Duration::from_secs(20);

    /// What a server of the tests does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Does {
        Lead,
        Follow,
        Hang,
    }

    fn servers(does: &[Does]) -> Servers<RefCell<Does>> {
        let mut each = does.iter().copied().map(RefCell::new);
        Servers::new(each.next().unwrap(), each.collect())
    }

    /// Who was asked, and whether one was found.
    fn asked(servers: &Servers<RefCell<Does>>) -> (Vec<Does>, Result<(), ConnectError>) {
        let asked = RefCell::new(Vec::new());
        let open = async |server: &RefCell<Does>| {
            let does = *server.borrow();
            asked.borrow_mut().push(does);
            match does {
                Does::Lead => Ok(()),
                Does::Follow => Err(ConnectError::ReadOnly("a replica")),
                Does::Hang => pending().await,
            }
        };
        let reached = wait(servers.reach(TIME, |server| format!("{:?}", server.borrow()), open));
        (asked.into_inner(), reached)
    }

    #[test]
    fn the_one_that_takes_writes_is_found_and_asked_first_from_then_on() {
        use Does::{Follow, Lead};
        for (does, first) in [
            ([Lead, Follow, Follow], &[Lead][..]),
            ([Follow, Lead, Follow], &[Follow, Lead]),
            ([Follow, Follow, Lead], &[Follow, Follow, Lead]),
        ] {
            let servers = servers(&does);
            assert_eq!(asked(&servers).0, first);
            assert_eq!(*servers.leader().borrow(), Lead);
            assert_eq!(asked(&servers.clone()).0, [Lead]);
        }
        // it is demoted, and the one before it takes over: whoever failed last is asked last
        let servers = servers(&[Follow, Lead, Follow]);
        assert!(asked(&servers).1.is_ok());
        servers.leader().replace(Follow);
        servers.get(0).replace(Lead);
        assert_eq!(asked(&servers).0, [Follow, Follow, Lead]);
        assert_eq!(asked(&servers).0, [Lead]);
    }

    #[test]
    fn one_that_hangs_takes_its_head_start_alone() {
        let servers = servers(&[Does::Hang, Does::Follow, Does::Lead]);
        let since = Instant::now();
        assert!(asked(&servers).1.is_ok());
        assert!(since.elapsed() >= HEAD_START && since.elapsed() < TIME / 2, "{:?}", since.elapsed());
    }

    #[test]
    fn where_none_takes_writes_each_has_its_words() {
        let (asked, reached) = asked(&servers(&[Does::Follow; 3]));
        assert_eq!(asked.len(), 3);
        let said = reached.unwrap_err().to_string();
        assert_eq!(said.matches("Follow: it takes no writes: it is a replica").count(), 3, "{said}");
    }

    #[test]
    fn what_is_reported_or_answered_says_who_takes_writes() {
        let reported = |standby, read_only| {
            let mut writes = Writes::default();
            writes.note("TimeZone", "on");
            writes.note("in_hot_standby", standby);
            writes.note("default_transaction_read_only", read_only);
            writes
        };
        for (standby, read_only, takes) in
            [("off", "off", true), ("on", "off", false), ("off", "on", false), ("on", "on", false)]
        {
            let writes = reported(standby, read_only);
            assert!(writes.is_known());
            assert_eq!(writes.check().is_ok(), takes, "{standby}, {read_only}");
        }
        assert_eq!(Writes::of([Some("t"), Some("off")]), reported("on", "off"));
        assert_eq!(Writes::of([Some("f"), Some("on")]), reported("off", "on"));
        // as servers before 14, and some poolers
        assert!(!Writes::default().is_known());
        assert!(!Writes::of([None, Some("off")]).is_known() && Writes::of([None, Some("on")]).is_known());
    }
}
