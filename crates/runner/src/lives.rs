//! Whether the members of an instance are still in the lives in which they were found. One that has begun another without
//! being asked has ended without anybody knowing when.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use acidtest_engine::Measurement;
use acidtest_model::{EffectiveDurability, EffectiveSettings, MemberId, Role};
use acidtest_results::RestartFigures;
use acidtest_workloads::{Audit, Identity, Restart, Store, guarantee::LOCK};

use crate::{
    answer::{AGAIN, PATIENCE, within},
    inject::Injector,
    instance::{Instance, Reopening},
    outages::{Event, Outage},
};

/// The least time between two questions to a member while clients are driven.
const REST: Duration = Duration::from_millis(200);

/// The lives in which one member was found.
#[derive(Debug)]
pub(crate) struct Lives {
    member: MemberId,
    /// Whether the lab starts it anew, so that whoever answers has its data.
    is_private: bool,
    /// Those in which it is known to be: several, where several servers answer at its address.
    known: Vec<Identity>,
    /// Whether it is being ended, or was, as it was asked to: then it is in another one.
    is_asked: bool,
    /// Those of servers that answered in its place once it had been ended as it was asked to: they serve other data.
    elsewhere: Vec<Identity>,
    /// Those that nobody asked for.
    unasked: Vec<UnaskedLife>,
}

/// What became of a member that was to be ended, as far as who answers afterwards shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedEnd {
    /// It is in the same life: it has not ended.
    SameLife,
    /// It has ended, and is there again; or it does not say which data it serves.
    Again,
    /// Another server answers in its place, which need not have all that was acknowledged.
    Elsewhere,
}

#[derive(Debug)]
struct UnaskedLife {
    identity: Identity,
    /// When it was found, from the beginning of the measured part; none if that was before or after.
    found: Option<Duration>,
    /// The loss of connections by which it was noticed, and the longest time since in which nobody was served; none where
    /// clients noticed nothing in the measured part.
    loss: Option<Event>,
    unserved: Option<Outage>,
}

/// When, in a trial, members were asked who answers.
#[derive(Clone, Copy, Debug, Default)]
struct Inquiry {
    /// From the beginning of the measured part; none if that was before or after.
    at: Option<Duration>,
    /// Because clients had lost connections.
    because: Option<Event>,
    /// When the clients were done.
    is_last: bool,
}

impl Lives {
    /// Of this member; none if it does not say in which life it is.
    pub(crate) async fn of(member: MemberId, is_private: bool, store: &dyn Store) -> Option<Self> {
        let known = Box::pin(who_answer(store)).await;
        (!known.is_empty()).then(|| Self::known(member, is_private, known))
    }

    fn known(member: MemberId, is_private: bool, known: Vec<Identity>) -> Self {
        Self { member, is_private, known, is_asked: false, elsewhere: Vec::new(), unasked: Vec::new() }
    }

    /// Whose they are.
    pub(crate) fn member(&self) -> MemberId {
        self.member
    }

    /// How many servers are known to answer at its address.
    pub(crate) fn servers(&self) -> usize {
        self.known.len()
    }

    /// Notes who answers. Returns what became of an end that it was asked for, if that can be told: it is then in another
    /// life, at the latest when the clients are done, because what is asked to stop may still answer for a while.
    fn note(&mut self, answer: Vec<Identity>, Inquiry { at, because, is_last }: Inquiry) -> Option<AskedEnd> {
        if answer.is_empty() {
            return None;
        }
        if self.is_asked {
            let end = self.end(&answer, is_last)?;
            self.is_asked = false;
            match end {
                AskedEnd::SameLife => {}
                AskedEnd::Again => {
                    // of several servers nobody knows which of them it was
                    let kept =
                        if self.known.len() > 1 { std::mem::take(&mut self.known) } else { Vec::new() };
                    self.known = kept.into_iter().chain(answer).collect();
                }
                AskedEnd::Elsewhere => {
                    let others: Vec<Identity> =
                        answer.into_iter().filter(|identity| !self.knows(identity)).collect();
                    self.elsewhere.extend(others);
                }
            }
            return Some(end);
        }
        for identity in answer {
            let is_told = self.unasked.iter().any(|begun| begun.identity.life == identity.life);
            if !is_told && !self.knows(&identity) {
                self.unasked.push(UnaskedLife { identity, found: at, loss: because, unserved: None });
            }
        }
        None
    }

    /// Whether a life is one in which it, or who answers in its place, is known to be.
    fn knows(&self, identity: &Identity) -> bool {
        self.known.iter().chain(&self.elsewhere).any(|one| one.life == identity.life)
    }

    /// What became of the end that it was asked for, given who answers; none as long as that cannot be told.
    fn end(&self, answer: &[Identity], is_last: bool) -> Option<AskedEnd> {
        if self.known.len() > 1 {
            return Some(AskedEnd::Again);
        }
        let begun: Vec<&Identity> = answer.iter().filter(|identity| !self.knows(identity)).collect();
        if self.is_private {
            // the lab has ended its process, and started another: two lives that began in one second may look like one
            return (is_last || !begun.is_empty()).then_some(AskedEnd::Again);
        }
        if begun.is_empty() {
            // a crash need not show in what it says of its life
            let is_exact = self.known.iter().all(|one| one.is_exact);
            return is_last.then_some(if is_exact { AskedEnd::SameLife } else { AskedEnd::Again });
        }
        let served: Vec<&String> = self.known.iter().filter_map(|one| one.data.as_ref()).collect();
        if served.is_empty() {
            return Some(AskedEnd::Again);
        }
        let serves_other = |one: &&Identity| one.data.as_ref().is_some_and(|data| !served.contains(&data));
        if begun.iter().any(serves_other) {
            return Some(AskedEnd::Elsewhere);
        }
        // a standby says nothing of its data until it is promoted
        let is_silent = begun.iter().any(|one| one.data.is_none());
        match (is_silent, is_last) {
            (false, _) => Some(AskedEnd::Again),
            (true, true) => Some(AskedEnd::Elsewhere),
            (true, false) => None,
        }
    }

    /// Where several servers answer at its address and no client has lost a connection, those that were found late are others of
    /// them: they have not restarted.
    fn take_in(&mut self) {
        if self.known.len() > 1 {
            self.known.extend(self.unasked.drain(..).map(|begun| begun.identity));
        }
    }

    /// Whether it is known to serve the same data as before, if it was found in a life that nobody asked for.
    fn is_same(&self) -> Option<bool> {
        let is_same = |begun: &UnaskedLife| {
            begun.identity.data.is_some() && self.known.iter().any(|one| one.data == begun.identity.data)
        };
        (!self.unasked.is_empty()).then(|| self.unasked.iter().all(is_same))
    }

    /// What nobody asked for, as a result keeps it.
    fn figures(&self) -> impl Iterator<Item = RestartFigures> {
        self.unasked.iter().map(|begun| RestartFigures {
            member: self.member.to_string(),
            found_seconds: begun.found.map(|found| found.as_secs_f64()),
            same_data: begun
                .identity
                .data
                .as_ref()
                .map(|data| self.known.iter().any(|one| one.data.as_ref() == Some(data))),
            servers: u32::try_from(self.known.len()).unwrap_or(u32::MAX),
            unserved_from_seconds: begun.unserved.map(|outage| outage.from.as_secs_f64()),
            unserved_until_seconds: begun.unserved.and_then(|outage| Some(outage.until?.as_secs_f64())),
        })
    }
}

/// Who answers on several connections at once, so that whoever deals connections out to several servers deals out these.
/// Nobody if the store does not say, or cannot be reached.
async fn who_answer(store: &dyn Store) -> Vec<Identity> {
    let ask = || within(PATIENCE, "asking which server answers", store.identity());
    let asked = tokio::join!(ask(), ask(), ask(), ask());
    let mut found: Vec<Identity> = Vec::new();
    for identity in [asked.0, asked.1, asked.2, asked.3].into_iter().filter_map(|one| one.ok().flatten()) {
        if !found.contains(&identity) {
            found.push(identity);
        }
    }
    found
}

/// Who answers on a new connection to this member, once somebody does.
async fn who_answers(way: Reopening) -> Vec<Identity> {
    loop {
        if let Ok(store) = way.open().await
            && let Ok(identity) = store.identity().await
        {
            return identity.into_iter().collect();
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What members answer while clients are driven.
type Answers = Pin<Box<dyn Future<Output = Vec<(MemberId, Vec<Identity>)>>>>;

/// Asks the members which server answers, whenever clients of a trial have lost connections, and once a fault is over that has
/// ended a member.
pub(crate) struct Lookout {
    asking: Option<Answers>,
    /// How many operations had ended with their connection when the members were last asked.
    interrupted: u64,
    /// How many had when clients were last looked at.
    seen: u64,
    /// That they have lost connections since; none if they have not.
    loss: Option<Event>,
    /// Whether a member was being ended, so that they are to be asked once it is back.
    was_ending: bool,
    rested: Instant,
}

impl Lookout {
    pub(crate) fn new() -> Self {
        Self { asking: None, interrupted: 0, seen: 0, loss: None, was_ending: false, rested: Instant::now() }
    }

    /// Goes on while clients are driven, of whose operations so many have ended with their connection. `measured` is how long the
    /// measured part has lasted.
    pub(crate) async fn go_on(
        &mut self,
        instance: &mut Instance,
        injector: &mut Injector<'_>,
        interrupted: u64,
        measured: Option<Duration>,
    ) {
        self.seen = interrupted;
        let ending: Vec<bool> = instance.lives.iter().map(|lives| injector.is_ending(lives.member)).collect();
        for (lives, is_ending) in instance.lives.iter_mut().zip(&ending) {
            lives.is_asked |= is_ending;
        }
        if ending.contains(&true) {
            // what answers now may be either life
            (self.asking, self.was_ending) = (None, true);
            self.loss.take().into_iter().for_each(|loss| injector.outages.forget(loss));
            return;
        }
        if self.loss.is_none() && interrupted > self.interrupted {
            self.loss = measured.map(|measured| injector.outages.begin_loss(measured));
        }
        if let Some(asking) = &mut self.asking {
            if let Ok(answers) = tokio::time::timeout(Duration::ZERO, asking).await {
                (self.asking, self.rested) = (None, Instant::now());
                let asked = Inquiry { at: measured, because: self.loss.take(), is_last: false };
                note(instance, injector, answers, asked);
            }
        } else if (interrupted > self.interrupted || self.was_ending) && self.rested.elapsed() >= REST {
            self.was_ending = false;
            self.interrupted = interrupted;
            let ways: Vec<(MemberId, Reopening)> = instance
                .lives
                .iter()
                .filter_map(|lives| Some((lives.member, instance.reopening_of(lives.member)?)))
                .collect();
            self.asking = Some(Box::pin(async {
                let mut answers = Vec::new();
                for (member, way) in ways {
                    answers.push((member, who_answers(way).await));
                }
                answers
            }));
        }
    }

    /// Asks once more, when the clients are done and every member is back. One that is lost says nothing.
    pub(crate) async fn end(
        self,
        instance: &mut Instance,
        injector: &mut Injector<'_>,
        measured: &Measurement,
    ) {
        drop(self.asking);
        let answers = instance.who_answer().await;
        let asked = Inquiry { at: Some(measured.window), because: self.loss, is_last: true };
        note(instance, injector, answers, asked);
        if self.seen + measured.reconnects == 0 {
            instance.lives.iter_mut().for_each(Lives::take_in);
        }
        for begun in instance.lives.iter_mut().flat_map(|lives| &mut lives.unasked) {
            begun.unserved = begun.loss.and_then(|loss| injector.outages.since(loss));
        }
    }
}

/// Notes who answers. Connections that were lost to no restart are none of its.
fn note(
    instance: &mut Instance,
    injector: &mut Injector<'_>,
    answers: Vec<(MemberId, Vec<Identity>)>,
    asked: Inquiry,
) {
    for (member, answer) in answers {
        let Some(lives) = instance.lives.iter_mut().find(|lives| lives.member == member) else { continue };
        if let Some(end) = lives.note(answer, asked) {
            injector.note_end(member, end);
        }
    }
    let mut begun = instance.lives.iter().flat_map(|lives| &lives.unasked);
    if let Some(loss) = asked.because.filter(|loss| begun.all(|begun| begun.loss != Some(*loss))) {
        injector.outages.forget(loss);
    }
}

impl Instance {
    /// Who answers at each member that says in which life it is.
    async fn who_answer(&self) -> Vec<(MemberId, Vec<Identity>)> {
        let mut all = Vec::new();
        for lives in &self.lives {
            if let Some(store) = self.store_of(lives.member) {
                all.push((lives.member, Box::pin(who_answer(store)).await));
            }
        }
        all
    }

    /// Asks who answers, after a trial and before the next one. Returns whether any member is in a life that nobody asked
    /// for, or another server answers in its place.
    pub(crate) async fn has_restarted(&mut self) -> bool {
        for (member, answer) in self.who_answer().await {
            if let Some(lives) = self.lives.iter_mut().find(|lives| lives.member == member) {
                let _ = lives.note(answer, Inquiry { is_last: true, ..Inquiry::default() });
            }
        }
        self.lives.iter().any(|lives| !lives.unasked.is_empty() || !lives.elsewhere.is_empty())
    }

    /// The lives that nobody asked for, as a result keeps them.
    pub(crate) fn restarts(&self) -> Vec<RestartFigures> {
        self.lives.iter().flat_map(Lives::figures).collect()
    }

    /// Takes into account, in an audit of the store at these settings, that its server was found in a life that nobody had asked
    /// for, or is `suspected` to have been, for this reason, and does not say; or that another one answered once it had been ended.
    /// `keeps` is the durability level of what the server keeps. Returns whether any of that is so.
    pub(crate) fn judge_restarts(
        &self,
        audit: &mut Audit,
        keeps: EffectiveDurability,
        without: &[String],
        suspected: Option<&'static str>,
    ) -> bool {
        // a member of a cluster that restarted need not be the one that led
        let is_same = |role| {
            let same: Vec<bool> = self
                .lives
                .iter()
                .filter(|lives| lives.member.role == role)
                .filter_map(Lives::is_same)
                .collect();
            (!same.is_empty()).then(|| same.into_iter().all(|is_same| is_same))
        };
        if is_same(Role::Locks).is_some() {
            audit.doubt(
                LOCK,
                "the lock service had an unrequested restart, and may have forgotten who holds which lock",
            );
        }
        let mut of_servers = self.lives.iter().filter(|lives| lives.member.role == Role::Server);
        let is_elsewhere = of_servers.any(|lives| !lives.elsewhere.is_empty());
        let restart = match is_same(Role::Server) {
            Some(is_same) => Restart { keeps, is_same: is_same && !is_elsewhere, suspected: None },
            None if is_elsewhere => {
                audit.across_failover(keeps, without);
                return true;
            }
            None if suspected.is_some() && self.may_restart_unseen() => {
                Restart { keeps, is_same: false, suspected }
            }
            None => return false,
        };
        audit.across_restart(restart, without);
        true
    }

    /// Whether the store's server is one of the user's own that does not say in which of its lives it is.
    pub(crate) fn may_restart_unseen(&self) -> bool {
        self.is_on_users_server() && self.lives.iter().all(|lives| lives.member.role != Role::Server)
    }
}

/// Says in the settings that several servers answer, where they do.
pub(crate) fn tell_servers(instance: &Instance, settings: &mut EffectiveSettings) {
    let server = instance.lives.iter().find(|lives| lives.member.role == Role::Server);
    if let Some(several) = server.map(Lives::servers).filter(|servers| *servers > 1) {
        settings.settings.insert("servers that answer".to_owned(), several.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(life: &str, data: Option<&str>) -> Identity {
        Identity { life: life.to_owned(), data: data.map(str::to_owned), is_exact: true }
    }

    const LAST: Inquiry = Inquiry { at: None, because: None, is_last: true };

    fn lives(known: Vec<Identity>) -> Lives {
        Lives::known(Role::Server.into(), false, known)
    }

    #[test]
    fn a_life_that_nobody_asked_for_is_told_from_one_that_somebody_did() {
        let mut lives = lives(vec![identity("a", Some("x"))]);
        assert_eq!(lives.note(vec![identity("a", Some("x"))], Inquiry::default()), None);
        assert_eq!(lives.note(Vec::new(), Inquiry::default()), None, "nobody answers");
        assert_eq!(lives.is_same(), None);
        lives.is_asked = true;
        assert_eq!(lives.note(Vec::new(), Inquiry::default()), None, "nobody answers yet");
        assert_eq!(lives.note(vec![identity("b", Some("x"))], Inquiry::default()), Some(AskedEnd::Again));
        lives.is_asked = true;
        assert_eq!(lives.note(vec![identity("b", Some("x"))], Inquiry::default()), None, "it may yet end");
        assert_eq!(lives.note(vec![identity("b", Some("x"))], LAST), Some(AskedEnd::SameLife));
        assert_eq!(lives.is_same(), None);
        let (at, because) = (Some(Duration::from_secs(1)), Some(Event::Loss(0)));
        let asked = Inquiry { at, because, is_last: false };
        assert_eq!(lives.note(vec![identity("c", Some("x"))], asked), None);
        assert_eq!(lives.note(vec![identity("c", Some("x"))], Inquiry::default()), None);
        assert_eq!(lives.is_same(), Some(true));
        assert_eq!(lives.unasked[0].loss, because, "what it was noticed by");
        let (from, until) = (Duration::from_millis(500), None);
        lives.unasked[0].unserved = Some(Outage { from, until });
        let [one] = &lives.figures().collect::<Vec<_>>()[..] else { panic!("{lives:?}") };
        assert_eq!((one.found_seconds, one.same_data, one.servers), (Some(1.0), Some(true), 1));
        assert_eq!((one.unserved_from_seconds, one.unserved_until_seconds), (Some(0.5), None));
        assert_eq!(lives.note(vec![identity("d", Some("y"))], Inquiry::default()), None);
        assert_eq!(
            (lives.is_same(), lives.figures().count()),
            (Some(false), 2),
            "another server took its place"
        );
    }

    /// The lab has ended it: MariaDB tells its lives apart by the second in which they began.
    #[test]
    fn a_private_server_that_was_killed_has_ended_whatever_it_says() {
        let mut lives = Lives::known(Role::Server.into(), true, vec![identity("a", Some("x"))]);
        lives.is_asked = true;
        assert_eq!(
            lives.note(vec![identity("a", Some("x"))], Inquiry::default()),
            None,
            "what it was may still answer"
        );
        assert_eq!(lives.note(vec![identity("a", Some("x"))], LAST), Some(AskedEnd::Again));
        lives.is_asked = true;
        assert_eq!(lives.note(vec![identity("b", Some("y"))], Inquiry::default()), Some(AskedEnd::Again));
    }

    /// PostgreSQL 14 says since when it runs, and not that a crash has ended all that served clients.
    #[test]
    fn a_server_whose_crashes_do_not_show_is_not_said_to_have_gone_on() {
        let unsure = || vec![Identity { is_exact: false, ..identity("a", Some("x")) }];
        let mut lives = lives(unsure());
        lives.is_asked = true;
        assert_eq!(lives.note(unsure(), Inquiry::default()), None, "it may yet end");
        assert_eq!(lives.note(unsure(), LAST), Some(AskedEnd::Again));
    }

    /// What says nothing of its data is never said to be the same.
    #[test]
    fn a_server_without_a_name_of_its_data_may_be_another_one() {
        let mut lives = lives(vec![identity("a", None)]);
        assert_eq!(lives.note(vec![identity("b", None)], Inquiry::default()), None);
        assert_eq!(lives.is_same(), Some(false));
        assert_eq!(lives.figures().next().and_then(|one| one.same_data), None);
    }

    /// Connections that are dealt out to several servers find these in turn, and none of them has restarted.
    #[test]
    fn several_servers_at_one_address_are_not_taken_for_one_that_restarts() {
        let (one, other) = (identity("a", None), identity("b", None));
        let mut lives = lives(vec![one.clone(), other.clone()]);
        for _ in 0..3 {
            lives.note(vec![one.clone()], Inquiry::default());
            lives.note(vec![other.clone(), one.clone()], Inquiry::default());
        }
        assert_eq!((lives.is_same(), lives.servers()), (None, 2));
        // a third one, which was not among those that answered first
        lives.note(vec![identity("c", None)], LAST);
        assert_eq!((lives.is_same(), lives.servers()), (Some(false), 2), "clients may have lost a server");
        lives.take_in();
        lives.note(vec![identity("c", None)], LAST);
        assert_eq!((lives.is_same(), lives.servers()), (None, 3));
        lives.is_asked = true;
        assert_eq!(
            lives.note(vec![other.clone()], Inquiry::default()),
            Some(AskedEnd::Again),
            "another one may have ended"
        );
        lives.note(vec![one, other], Inquiry::default());
        assert_eq!(lives.is_same(), None);
    }

    /// What is asked to end and gives its place to another server: that one need not have all that was acknowledged.
    #[test]
    fn another_server_after_an_end_that_was_asked_for_is_no_restart_of_the_first() {
        let primary = identity("a", Some("x"));
        let asked = |known: Identity, is_private| Lives {
            is_asked: true,
            ..Lives::known(Role::Server.into(), is_private, vec![known])
        };
        let (standby, promoted) = (identity("b", None), identity("b", Some("y")));
        let answers = |lives: &mut Lives, answer: &Identity, asked| lives.note(vec![answer.clone()], asked);
        let mut lives = asked(primary.clone(), false);
        assert_eq!(answers(&mut lives, &standby, Inquiry::default()), None, "it may yet say what it serves");
        assert_eq!(answers(&mut lives, &promoted, Inquiry::default()), Some(AskedEnd::Elsewhere));
        assert_eq!(answers(&mut lives, &promoted, LAST), None, "it is known");
        assert_eq!((lives.is_same(), lives.figures().count(), lives.elsewhere.len()), (None, 0, 1));
        // a second end that is none, and one after which the first one is back
        lives.is_asked = true;
        assert_eq!(answers(&mut lives, &promoted, LAST), Some(AskedEnd::SameLife));
        lives.is_asked = true;
        assert_eq!(answers(&mut lives, &identity("c", Some("x")), Inquiry::default()), Some(AskedEnd::Again));
        assert_eq!(lives.elsewhere.len(), 1, "what was acknowledged meanwhile is elsewhere");
        let mut silent = asked(primary.clone(), false);
        assert_eq!(answers(&mut silent, &standby, LAST), Some(AskedEnd::Elsewhere), "it never said");
        // what the lab starts anew has its own folder, whatever it says; and of others nobody may know
        assert_eq!(answers(&mut asked(primary, true), &promoted, LAST), Some(AskedEnd::Again));
        assert_eq!(answers(&mut asked(identity("a", None), false), &promoted, LAST), Some(AskedEnd::Again));
    }

    /// One server by itself that answers in another life has restarted, whatever clients have noticed of it.
    #[test]
    fn a_server_by_itself_is_not_taken_for_several() {
        let mut lives = lives(vec![identity("a", None)]);
        lives.note(vec![identity("b", None)], LAST);
        lives.take_in();
        assert_eq!((lives.is_same(), lives.servers()), (Some(false), 1));
    }
}
