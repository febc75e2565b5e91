//! Runs a script on sessions of a store, one step at a time.
//!
//! Whether a step is done, refused or waits is told by the store: by its answer, or by its lock monitor. While a session waits, the
//! steps of others go on, and its own further steps follow as soon as it goes on itself. No step counts as waiting because it takes
//! long.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use acidtest_model::StoreError;
use acidtest_workloads::{
    Place,
    interactive::{InteractiveSession, InteractiveStore, LockMonitor, Mode, Reply},
};
use tokio::{
    sync::{Mutex, mpsc},
    task::{JoinHandle, spawn_local},
    time::sleep,
};

use crate::{
    orders::Order,
    script::{Boundary, Script, Step},
};

/// How long a step may take altogether. What waits longer than this for others is not told from what hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// How long a step may take if the store does not tell who waits: then it is not known whether it waits or is slow.
const UNHEARD: Duration = Duration::from_secs(2);

/// A step that is refused after longer than this, and of which the store did not say that it waited, may have waited unseen until
/// its time was over: that is no refusal to be counted. Adapters let statements wait longer.
const UNSEEN: Duration = Duration::from_secs(10);

/// The first pause before the monitor is asked about a step without an answer; each is twice as long as the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What happened in a play, one thing after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The session's index.
    pub session: usize,
    /// The statement.
    pub statement: String,
    /// What came of it.
    pub what: Happened,
    /// Whether it had to wait for others before.
    pub waited: bool,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was answered.
    Replied(Reply),
    /// It was answered before, and only now what it read is known.
    Late(Reply),
    /// The store says that the session waits for others.
    Waits,
    /// It was never answered, for this reason.
    Stuck(String),
}

/// How a session's transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It committed.
    Committed,
    /// It was rolled back by the script.
    RolledBack,
    /// The store refused a statement of it.
    Refused {
        /// Whether that was the commit.
        at_commit: bool,
    },
    /// It was neither committed nor rolled back by the script.
    Open,
    /// It is not known.
    Unknown,
}

/// A script that was run once, in one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Play {
    /// What happened.
    pub events: Vec<Event>,
    /// How each session's transaction ended.
    pub endings: Vec<Ending>,
    /// The rows that were read, by their names.
    pub read: BTreeMap<String, Vec<Vec<String>>>,
    /// The rows of each table in the end.
    pub last: Vec<Vec<Vec<String>>>,
    /// Why it proves nothing; none if it does.
    pub failure: Option<String>,
}

/// The lock monitor of a store, which all of its sessions share.
pub(crate) struct SharedMonitor(Option<Mutex<Monitor>>);

struct Monitor {
    monitor: Box<dyn LockMonitor>,
    seen: Option<Look>,
}

/// A look at who waits.
struct Look {
    begun: Instant,
    done: Instant,
    waiting: Result<BTreeSet<u64>, String>,
}

impl SharedMonitor {
    /// The store's own.
    ///
    /// # Errors
    /// The store does not answer.
    pub(crate) async fn of(store: &dyn InteractiveStore) -> Result<Self, StoreError> {
        let monitor = store.lock_monitor().await?;
        Ok(Self(monitor.map(|monitor| Mutex::new(Monitor { monitor, seen: None }))))
    }

    /// Whether a session waits for others, by a look that began at this time or later.
    async fn waits(&self, session: u64, since: Instant) -> Result<bool, String> {
        let Some(monitor) = &self.0 else { return Ok(false) };
        let mut monitor = monitor.lock().await;
        loop {
            match &monitor.seen {
                Some(look) if look.begun >= since => {
                    return look.waiting.clone().map(|waiting| waiting.contains(&session));
                }
                _ => monitor.look().await,
            }
        }
    }
}

impl Monitor {
    async fn look(&mut self) {
        if let Some(last) = &self.seen {
            sleep(self.monitor.interval().saturating_sub(last.done.elapsed())).await;
        }
        let begun = Instant::now();
        let waiting = self.monitor.waiting().await;
        self.seen = Some(Look { begun, done: Instant::now(), waiting });
    }
}

/// What a session has to say after a statement.
struct Answer {
    reply: Reply,
    /// The replies to earlier statements that came with it, each with the number of its statement in the transaction.
    late: Vec<(usize, Reply)>,
}

impl Answer {
    /// The outcome of a statement that was not answered.
    fn none(why: String) -> Self {
        Self { reply: Reply::Unknown(why), late: Vec::new() }
    }
}

/// A session with the task that runs its statements, so that others go on while it waits.
struct Driven {
    id: u64,
    level: String,
    statements: mpsc::UnboundedSender<String>,
    replies: mpsc::UnboundedReceiver<Answer>,
    task: JoinHandle<()>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driven {
    /// Ends the session, and waits until that is done: what it holds would keep its table from being removed.
    async fn close(mut self) {
        self.task.abort();
        // it was aborted
        let _ = (&mut self.task).await;
    }
}

impl Driven {
    fn new(mut session: Box<dyn InteractiveSession>) -> Self {
        let (statements, mut told) = mpsc::unbounded_channel::<String>();
        let (answer, replies) = mpsc::unbounded_channel();
        let (id, level) = (session.id(), session.level().to_owned());
        let task = spawn_local(async move {
            while let Some(statement) = told.recv().await {
                let reply = session.run(&statement).await;
                let late = session.late();
                if answer.send(Answer { reply, late }).is_err() {
                    return;
                }
            }
        });
        Self { id, level, statements, replies, task }
    }

    fn tell(&self, statement: &str) {
        // the task takes statements until it is dropped; if it died, no reply comes
        let _ = self.statements.send(statement.to_owned());
    }

    /// The answer to a statement; if nobody gives one, whether it took effect is unknown.
    async fn answer(&mut self) -> Answer {
        let ended = || Answer::none("its task ended: a defect of acidtest".to_owned());
        self.replies.recv().await.unwrap_or_else(ended)
    }

    async fn ask(&mut self, statement: &str) -> Reply {
        self.tell(statement);
        let late = |_| Answer::none(format!("no answer within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, self.answer()).await.unwrap_or_else(late).reply
    }
}

/// Sessions of a store in one mode, on which one script after the other is run, and one to look at the tables. Each is driven by a
/// task of this thread's `LocalSet`.
pub(crate) struct Stage<'a> {
    store: &'a dyn InteractiveStore,
    mode: &'a Mode,
    monitor: &'a SharedMonitor,
    sessions: Vec<Driven>,
    looker: Option<Driven>,
    level: Option<String>,
}

impl<'a> Stage<'a> {
    /// Without sessions: they are opened when a script needs them.
    pub(crate) fn new(store: &'a dyn InteractiveStore, mode: &'a Mode, monitor: &'a SharedMonitor) -> Self {
        Self { store, mode, monitor, sessions: Vec::new(), looker: None, level: None }
    }

    /// The isolation level of its sessions, as the store tells it; none before the first play.
    pub(crate) fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// Runs a script in one of its orders, on tables of its own in this place.
    ///
    /// # Errors
    /// No session can be opened, or no table made.
    pub(crate) async fn play(
        &mut self,
        script: &Script,
        order: &Order,
        place: &Place,
    ) -> Result<Play, StoreError> {
        while self.sessions.len() < script.sessions.len() {
            let session = Driven::new(self.store.session(place, self.mode).await?);
            self.level.get_or_insert_with(|| session.level.clone());
            self.sessions.push(session);
        }
        if self.looker.is_none() {
            self.looker = Some(Driven::new(self.store.session(place, self.mode).await?));
        }
        let mut names = Vec::new();
        for table in &script.tables {
            names.push(self.store.make_table(place, table).await?);
        }
        let mut playing = Playing::new(self, script, &names);
        playing.run(order).await;
        let mut play = playing.play;
        self.end(&mut play, &names).await;
        if !script.is_built_in {
            // it may have set something for its session
            self.close().await;
        }
        for name in &names {
            let dropped = self.store.drop_table(place, name).await;
            // a session that is in doubt may still hold it: then it goes with the namespace
            if play.failure.is_none() {
                dropped?;
            }
        }
        Ok(play)
    }

    /// Rolls back what the script left open, and looks at the tables.
    async fn end(&mut self, play: &mut Play, tables: &[String]) {
        for (session, ending) in self.sessions.iter_mut().zip(&play.endings) {
            // one that is in doubt may never answer
            if *ending != Ending::Unknown && !matches!(session.ask("rollback").await, Reply::Done(_)) {
                play.failure.get_or_insert_with(|| "a session does not roll back".to_owned());
            }
        }
        if play.failure.is_some() {
            return self.close().await;
        }
        if let Some(looker) = &mut self.looker {
            for table in tables {
                match looker.ask(&format!("select * from {table}")).await {
                    Reply::Rows(rows) => play.last.push(rows),
                    other => {
                        let said = format!("the table cannot be read in the end: {}", words(&other));
                        play.failure.get_or_insert(said);
                    }
                }
            }
        }
        if play.failure.is_some() {
            self.close().await;
        }
    }

    /// Ends all sessions, as their state is not known. The next play gets others.
    async fn close(&mut self) {
        for session in self.sessions.drain(..).chain(self.looker.take()) {
            session.close().await;
        }
    }
}

/// A reply in words.
#[must_use]
pub(crate) fn words(reply: &Reply) -> String {
    match reply {
        Reply::Rows(rows) if rows.is_empty() => "no rows".to_owned(),
        Reply::Rows(rows) => in_brackets(rows),
        Reply::Done(None) => "done".to_owned(),
        Reply::Done(Some(1)) => "1 row".to_owned(),
        Reply::Done(Some(rows)) => format!("{rows} rows"),
        Reply::Refused(said) => format!("refused: {said}"),
        Reply::Failed(said) => format!("error: {said}"),
        Reply::Unknown(said) => format!("no answer: {said}"),
    }
}

/// Rows as scripts write them.
pub(crate) fn in_brackets(rows: &[Vec<String>]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| format!("({})", row.join(", "))).collect();
    rows.join(" ")
}

/// A play that is under way.
struct Playing<'p, 'a> {
    stage: &'p mut Stage<'a>,
    script: &'p Script,
    /// The names of the tables in statements.
    tables: &'p [String],
    /// The steps that each session has yet to run.
    left: Vec<VecDeque<&'p Step>>,
    /// The steps of each session's transaction, as far as they were told, from the last `begin` on.
    transactions: Vec<Vec<&'p Step>>,
    /// The step that a session waits in.
    waiting: Vec<Option<&'p Step>>,
    /// How many steps of a session came to their turn while it waited.
    deferred: Vec<usize>,
    ended: Vec<bool>,
    play: Play,
}

/// What came of looking at a step that was told.
enum Seen {
    Answer(Answer),
    Waits,
    Stuck(String),
}

impl<'p, 'a> Playing<'p, 'a> {
    fn new(stage: &'p mut Stage<'a>, script: &'p Script, tables: &'p [String]) -> Self {
        let sessions = script.sessions.len();
        Self {
            stage,
            script,
            tables,
            left: (0..sessions).map(|session| script.steps_of(session).collect()).collect(),
            transactions: vec![Vec::new(); sessions],
            waiting: vec![None; sessions],
            deferred: vec![0; sessions],
            ended: vec![false; sessions],
            play: Play {
                events: Vec::new(),
                endings: vec![Ending::Open; sessions],
                read: BTreeMap::new(),
                last: Vec::new(),
                failure: None,
            },
        }
    }

    async fn run(&mut self, order: &Order) {
        for session in order {
            if self.waiting[*session].is_some() {
                self.deferred[*session] += 1;
            } else {
                self.step(*session).await;
                self.follow().await;
            }
            if self.play.failure.is_some() {
                return;
            }
        }
        let begun = Instant::now();
        while self.play.failure.is_none() && self.waiting.iter().any(Option::is_some) {
            // a deadlock is found, or a wait times out, in the server's own time
            if begun.elapsed() > PATIENCE {
                self.fail(format!("a step still waits after {} s", PATIENCE.as_secs()));
            }
            sleep(FIRST_PAUSE).await;
            self.follow().await;
        }
    }

    /// Runs a session's next step.
    async fn step(&mut self, session: usize) {
        let Some(step) = self.left[session].pop_front() else { return };
        if self.ended[session] {
            return;
        }
        if step.boundary() == Some(Boundary::Begin) {
            self.transactions[session].clear();
        }
        self.transactions[session].push(step);
        let statement = renamed(&step.statement, &self.script.tables, self.tables);
        self.stage.sessions[session].tell(&statement);
        match self.look(session).await {
            Seen::Waits => {
                self.waiting[session] = Some(step);
                self.note(session, step, Happened::Waits, false);
            }
            seen => self.came(session, step, seen, false).await,
        }
    }

    /// Looks at the waiting sessions again, and continues those that have been answered, until all of the rest still wait.
    async fn follow(&mut self) {
        let mut moved = true;
        while moved && self.play.failure.is_none() {
            moved = false;
            for session in 0..self.waiting.len() {
                let Some(step) = self.waiting[session] else { continue };
                match self.look(session).await {
                    Seen::Waits => {}
                    seen => {
                        moved = true;
                        self.waiting[session] = None;
                        self.came(session, step, seen, true).await;
                        self.catch_up(session).await;
                    }
                }
            }
        }
    }

    /// Runs the steps that came to their turn while the session waited.
    async fn catch_up(&mut self, session: usize) {
        while self.deferred[session] > 0 && self.waiting[session].is_none() && self.play.failure.is_none() {
            self.deferred[session] -= 1;
            Box::pin(self.step(session)).await;
        }
    }

    /// Waits until the session's statement is answered, or the store says that it waits for others.
    async fn look(&mut self, session: usize) -> Seen {
        let is_new = self.waiting[session].is_none();
        let driven = &mut self.stage.sessions[session];
        let begun = Instant::now();
        let (mut pause, mut unheard) = (FIRST_PAUSE, None);
        loop {
            if let Ok(answer) = tokio::time::timeout(pause, driven.answer()).await {
                let is_refused = matches!(answer.reply, Reply::Refused(_));
                return match unheard {
                    Some(why) if is_refused => Seen::Stuck(why),
                    None if is_refused && is_new && begun.elapsed() > UNSEEN => {
                        Seen::Stuck(unseen(&answer.reply))
                    }
                    _ => Seen::Answer(answer),
                };
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            // each time by a new look: it may not have waited yet at the last one
            match self.stage.monitor.waits(driven.id, Instant::now()).await {
                // it may have been answered meanwhile
                Ok(true) => match driven.replies.try_recv() {
                    Ok(answer) => return Seen::Answer(answer),
                    Err(_) => return Seen::Waits,
                },
                Ok(false) => {}
                Err(why) => unheard = Some(why),
            }
            if begun.elapsed() > PATIENCE || (unheard.is_some() && begun.elapsed() > UNHEARD) {
                return Seen::Stuck(unheard.unwrap_or_else(|| {
                    format!(
                        "no answer within {} s, and the store does not say that it waits",
                        PATIENCE.as_secs()
                    )
                }));
            }
        }
    }

    /// Takes in what came of a step.
    async fn came(&mut self, session: usize, step: &'p Step, seen: Seen, waited: bool) {
        let Answer { reply, late } = match seen {
            Seen::Answer(answer) => answer,
            Seen::Waits => return,
            Seen::Stuck(why) => {
                self.note(session, step, Happened::Stuck(why.clone()), waited);
                self.play.endings[session] = Ending::Unknown;
                return self.fail(self.of_session(session, &why));
            }
        };
        match &reply {
            Reply::Rows(rows) => {
                if let Some(label) = &step.label {
                    self.play.read.insert(label.clone(), rows.clone());
                }
            }
            Reply::Done(_) if step.boundary() == Some(Boundary::Commit) => {
                self.ends(session, Ending::Committed);
            }
            Reply::Done(_) if step.boundary() == Some(Boundary::Rollback) => {
                self.ends(session, Ending::RolledBack);
            }
            Reply::Done(_) => {}
            Reply::Refused(_) => {
                self.ends(session, Ending::Refused { at_commit: step.boundary() == Some(Boundary::Commit) });
            }
            Reply::Failed(why) | Reply::Unknown(why) => {
                self.play.endings[session] = Ending::Unknown;
                self.fail(self.of_session(session, &format!("{}: {why}", step.statement)));
            }
        }
        let is_refused = matches!(reply, Reply::Refused(_));
        self.note(session, step, Happened::Replied(reply), waited);
        for (number, reply) in late {
            self.came_late(session, number, reply);
        }
        if is_refused {
            // what it holds would keep others waiting
            let rolled_back = self.stage.sessions[session].ask("rollback").await;
            if !matches!(rolled_back, Reply::Done(_)) {
                self.fail(self.of_session(session, &format!("rollback: {}", words(&rolled_back))));
            }
        }
    }

    /// Takes in the reply to an earlier statement of the session's transaction, by its number there.
    fn came_late(&mut self, session: usize, number: usize, reply: Reply) {
        let Some(step) = self.transactions[session].get(number).copied() else {
            return self.fail(
                self.of_session(
                    session,
                    "a reply came to a statement that was not sent: a defect of acidtest",
                ),
            );
        };
        if let (Reply::Rows(rows), Some(label)) = (&reply, &step.label) {
            self.play.read.insert(label.clone(), rows.clone());
        }
        self.note(session, step, Happened::Late(reply), false);
    }

    fn of_session(&self, session: usize, what: &str) -> String {
        format!("{}: {what}", self.script.sessions[session])
    }

    fn ends(&mut self, session: usize, how: Ending) {
        // one that begins another transaction has not ended: the last one counts
        self.play.endings[session] = how;
        self.ended[session] = self.left[session].is_empty()
            || !matches!(self.play.endings[session], Ending::Committed | Ending::RolledBack);
    }

    fn note(&mut self, session: usize, step: &Step, what: Happened, waited: bool) {
        self.play.events.push(Event { session, statement: step.statement.clone(), what, waited });
    }

    fn fail(&mut self, why: String) {
        self.play.failure.get_or_insert(why);
    }
}

/// Why a refusal proves nothing that came late, and to a step that was not seen to wait.
fn unseen(reply: &Reply) -> String {
    format!(
        "{}, after more than {} s in which the store did not say that it waits",
        words(reply),
        UNSEEN.as_secs()
    )
}

/// The statement with the names that the tables really have: capitals do not matter, and a name may be quoted. What stands in single
/// quotes is a value.
fn renamed(statement: &str, tables: &[acidtest_workloads::interactive::Table], names: &[String]) -> String {
    let mut text = String::with_capacity(statement.len() + 32);
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = if is_part(first) {
            rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())
        } else if matches!(first, '\'' | '"' | '`') {
            rest[1..].find(first).map_or(rest.len(), |end| end + 2)
        } else {
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(end);
        let bare = word.trim_matches(['"', '`']);
        let table = tables.iter().position(|table| table.name.eq_ignore_ascii_case(bare));
        text.push_str(table.and_then(|table| names.get(table)).map_or(word, String::as_str));
        rest = behind;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use acidtest_workloads::interactive::Table;

    #[test]
    fn only_names_of_tables_are_replaced() {
        let table = |name: &str| Table { name: name.to_owned(), columns: String::new(), rows: Vec::new() };
        let tables = [table("test"), table("t")];
        let names = ["ns.\"test_7\"".to_owned(), "ns.t_7".to_owned()];
        let renamed = |statement: &str| renamed(statement, &tables, &names);
        assert_eq!(renamed("select * from test"), "select * from ns.\"test_7\"");
        assert_eq!(
            renamed("insert into test values ('test', 't') -- é"),
            "insert into ns.\"test_7\" values ('test', 't') -- é"
        );
        assert_eq!(renamed("update t set a = testing"), "update ns.t_7 set a = testing");
        assert_eq!(renamed("select 'it"), "select 'it");
        // however it is spelled, it must not be another table of the server
        assert_eq!(renamed("UPDATE Test SET a = 1"), "UPDATE ns.\"test_7\" SET a = 1");
        assert_eq!(renamed("update \"test\", `t`"), "update ns.\"test_7\", ns.t_7");
    }
}
