//! What the servers of an instance evict. What a trial finds missing then is no proof against them: they did as they were
//! configured to.

use acidtest_model::Role;
use acidtest_workloads::{Audit, Evictions, Verdict, guarantee::LOCK};

use crate::{
    answer::{PATIENCE, within},
    instance::Instance,
};

/// What members had evicted at some time, those of them that say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evicted(Vec<(Role, Evictions)>);

impl Instance {
    /// What each member has evicted so far.
    pub(crate) async fn evicted(&self) -> Evicted {
        let mut all = Vec::new();
        for role in [Role::Server, Role::Locks] {
            let Some(store) = self.store_of(role.into()) else { continue };
            let asked = within(PATIENCE, "asking what was evicted", store.evictions()).await;
            all.extend(asked.ok().flatten().map(|evictions| (role, evictions)));
        }
        Evicted(all)
    }

    /// Whether any member has evicted something since, or may have.
    pub(crate) async fn has_evicted(&self, since: &Evicted) -> bool {
        !since.0.is_empty() && since.has_since(&self.evicted().await)
    }

    /// Takes into account, in an audit that has found something, what members have evicted since. Returns whether the store's
    /// server has, or may have.
    pub(crate) async fn judge_evictions(&self, audit: &mut Audit, since: &Evicted) -> bool {
        audit.verdict == Verdict::Broken && since.judge(&self.evicted().await, audit)
    }
}

impl Evicted {
    fn has_since(&self, now: &Self) -> bool {
        self.0.iter().any(|(role, before)| doubt(before, now.of(*role)).is_some())
    }

    fn of(&self, role: Role) -> Option<&Evictions> {
        self.0.iter().find(|(member, _)| *member == role).map(|(_, evictions)| evictions)
    }

    fn judge(&self, now: &Self, audit: &mut Audit) -> bool {
        let doubt = |role| doubt(self.of(role)?, now.of(role));
        if let Some(why) = doubt(Role::Locks) {
            audit.doubt(LOCK, &format!("the lock service {why}"));
        }
        let evicted = doubt(Role::Server);
        if let Some(why) = &evicted {
            audit.withdraw(&format!("the server {why}"));
        }
        evicted.is_some()
    }
}

/// What a server has evicted between the two, or may have, in words; none if it has evicted nothing that was to stay.
fn doubt(before: &Evictions, now: Option<&Evictions>) -> Option<String> {
    let by = before.by.as_ref().or_else(|| now?.by.as_ref())?;
    // its count begins anew with each of its lives, and where somebody resets it
    let keys = now.filter(|now| now.life == before.life).and_then(|now| now.keys.checked_sub(before.keys));
    match keys {
        Some(0) => None,
        Some(1) => Some(format!("evicted 1 key, as it was configured to ({by})")),
        Some(keys) => {
            let keys = acidtest_model::count(keys);
            Some(format!("evicted {keys} keys, as it was configured to ({by})"))
        }
        None => Some(format!(
            "may have evicted keys, as it was configured to ({by}), and its count of them was lost"
        )),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_workloads::{Finding, guarantee::INTEGRITY};

    use super::*;

    const POLICY: Option<&str> = Some("maxmemory-policy allkeys-random");

    fn evictions(life: &str, keys: u64, by: Option<&str>) -> Evictions {
        Evictions { life: life.to_owned(), keys, by: by.map(str::to_owned) }
    }

    fn broken() -> Audit {
        let mut audit = Audit::unknown("made up");
        (audit.verdict, audit.reason) = (Verdict::Broken, None);
        audit.findings =
            vec![Finding::new("oversold", 2, "units", LOCK), Finding::new("torn", 1, "units", INTEGRITY)];
        audit
    }

    /// What a server drops as it was told to is no loss; where it has dropped nothing, a loss is one whatever its policy.
    #[test]
    fn only_what_was_evicted_excuses_a_server() {
        let before = evictions("a", 5, POLICY);
        for (before, now, words) in [
            (&before, Some(evictions("a", 5, POLICY)), None),
            (&before, Some(evictions("a", 6, POLICY)), Some("the server evicted 1 key,")),
            (
                &before,
                Some(evictions("a", 1_239, POLICY)),
                Some("evicted 1,234 keys, as it was configured to (maxmemory"),
            ),
            // the policy was changed in mid-trial
            (&before, Some(evictions("a", 6, None)), Some("evicted 1 key")),
            (&evictions("a", 5, None), Some(evictions("a", 6, POLICY)), Some("evicted 1 key")),
            // keys of others, which were to expire
            (&evictions("a", 5, None), Some(evictions("a", 9, None)), None),
            // it restarted, its statistics were reset, or it is gone
            (&before, Some(evictions("b", 7, POLICY)), Some("may have evicted")),
            (&before, Some(evictions("a", 0, POLICY)), Some("may have evicted")),
            (&before, None, Some("may have evicted")),
            (&evictions("a", 0, None), None, None),
        ] {
            let mut audit = broken();
            let now = Evicted(now.map(|now| (Role::Server, now)).into_iter().collect());
            let since = Evicted(vec![(Role::Server, before.clone())]);
            let has_evicted = since.judge(&now, &mut audit);
            assert_eq!((has_evicted, since.has_since(&now)), (words.is_some(), words.is_some()));
            assert_eq!(audit.breaks_promise(&[] as &[&str]), words.is_none(), "{audit}");
            let said = audit.to_string();
            assert!(said.contains(words.unwrap_or("broken: oversold 2 units, torn 1 unit")), "{said}");
        }
        let mut audit = broken();
        assert!(!Evicted::default().judge(&Evicted::default(), &mut audit) && audit == broken());
    }

    /// A lock service that evicts may grant a lock twice, and changes no data.
    #[test]
    fn a_lock_service_that_evicts_excuses_the_lock_alone() {
        let [before, now] = [5, 6].map(|keys| Evicted(vec![(Role::Locks, evictions("a", keys, POLICY))]));
        let mut audit = broken();
        assert!(!before.judge(&now, &mut audit));
        assert!(audit.breaks_promise(&[] as &[&str]), "what no lock prevents stays proved");
        let mut audit = broken();
        audit.findings.pop();
        before.judge(&now, &mut audit);
        assert!(audit.verdict == Verdict::Unknown && !audit.breaks_promise(&[] as &[&str]));
        assert!(audit.to_string().contains("oversold 2 units; the lock service evicted 1 key"), "{audit}");
    }
}
