//! One client's operations on records, singly and in transactions.

use std::{mem, slice};

use acidtest_workloads::{
    Attempt,
    records::{Answer, Lookup, Operations, Request},
};
use tokio_postgres::error::SqlState;

use super::statements::{Guard, StatementKind, Statements, Step};
use crate::{
    fault::{self, SendState},
    protocol::{Error, Row, Rows},
    session::{Part, Session, changed_one, may_have_changed, unless_stale},
    value::version,
};

pub(crate) struct Connection {
    session: Session,
    statements: Statements,
}

impl Connection {
    pub(crate) fn new(session: Session, statements: Statements) -> Self {
        Self { session, statements }
    }

    /// Runs every statement of an operation as a transaction by itself.
    async fn by_itself(&mut self, request: &Request, answer: &mut Answer) -> Result<(), Attempt> {
        let Self { session, statements } = self;
        let mut step = Some(statements.first(request));
        while let Some(now) = step {
            let came = session.connection().run(now.statement, now.values()).await;
            let sent = if now.what.writes() { SendState::Commit } else { SendState::Nothing };
            let came = came.map_err(|error| failed(&now, &error, sent))?;
            let read = take(&now, came, sent, answer)?;
            step = read.and_then(|version| statements.then(&now, version));
        }
        Ok(())
    }

    async fn transaction(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let Self { session, statements } = self;
        let mut transaction =
            Transaction { session, statements, answers, steps: Vec::new(), begun: false, ended: false };
        match transaction.run(requests).await {
            Err(trouble) if !transaction.ended => transaction.session.roll_back(trouble).await,
            Err(trouble) => trouble,
            Ok(()) => Attempt::Ok,
        }
    }
}

impl Operations for Connection {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        if self.statements.lock() && self.statements.first(request).what.is_followed() {
            return self.transaction(slice::from_ref(request), slice::from_mut(answer)).await;
        }
        self.by_itself(request, answer).await.err().unwrap_or(Attempt::Ok)
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        self.transaction(requests, answers).await
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// A transaction under way. Steps whose answers are not needed to go on are held back until they can be sent
/// together with the next one whose answer is needed.
struct Transaction<'a> {
    session: &'a mut Session,
    statements: &'a Statements,
    answers: &'a mut [Answer],
    /// Steps not sent yet, each with the index of its request's answer.
    steps: Vec<(usize, Step<'a>)>,
    /// Whether the server has acknowledged BEGIN.
    begun: bool,
    ended: bool,
}

impl<'a> Transaction<'a> {
    async fn run(&mut self, requests: &'a [Request]) -> Result<(), Attempt> {
        for (place, request) in requests.iter().enumerate() {
            let first = self.statements.first(request);
            let is_followed = first.what.is_followed();
            self.steps.push((place, first));
            if is_followed {
                self.send(false).await?;
            }
        }
        // a step that may still end the transaction is answered before COMMIT is sent
        if !self.steps.iter().all(|(_, step)| step.what.is_sure()) {
            self.send(false).await?;
        }
        self.send(true).await
    }

    /// Sends all steps held back at once, with BEGIN before them if that was not sent yet, and takes their
    /// answers. The steps that follow from the answers are held back in turn.
    async fn send(&mut self, commits: bool) -> Result<(), Attempt> {
        let steps = mem::take(&mut self.steps);
        let part = Part::of(!self.begun, commits);
        let answered = self.session.part(part, |pipeline| {
            steps.iter().try_for_each(|(_, step)| pipeline.run(step.statement, step.values()))
        });
        self.ended = commits;
        let answered = answered.await?;
        let came = || steps.iter().zip(answered.came().iter());
        answered.begun(came().any(|((_, step), came)| step.what.writes() && may_have_changed(came)))?;
        self.begun = true;
        for ((place, step), came) in came() {
            let came = came.map_err(|error| failed(step, error, answered.sent()))?;
            let read = take(step, came, SendState::Nothing, &mut self.answers[*place])
                .map_err(|trouble| if commits { trouble.after_a_part() } else { trouble })?;
            let next = read.and_then(|version| self.statements.then(step, version));
            self.steps.extend(next.map(|next| (*place, next)));
        }
        answered.committed()
    }
}

/// How an error ends the operation whose step met it. A record that is there already is no fault.
fn failed(step: &Step<'_>, error: &Error, sent: SendState) -> Attempt {
    match (step.what, error.answer()) {
        (StatementKind::Insert, Some(answer)) if answer.code == SqlState::UNIQUE_VIOLATION => {
            Attempt::Refused
        }
        _ => fault::attempt(error, sent),
    }
}

/// Takes a step's answer. Returns the version that the next step has to write, if one follows.
fn take(
    step: &Step<'_>,
    came: Rows<'_>,
    sent: SendState,
    answer: &mut Answer,
) -> Result<Option<u64>, Attempt> {
    let one = || came.first().ok_or(Attempt::Refused);
    // the statement has been carried out, but an answer that cannot be read is as good as no answer
    let unreadable = || fault::lost(sent, "the version that it wrote is invalid".to_owned());
    match step.what {
        StatementKind::Read => {
            found(&one()?, true, answer);
            Ok(None)
        }
        StatementKind::Scan => {
            for row in came {
                found(&row, true, answer);
            }
            Ok(None)
        }
        StatementKind::Insert => changed_one(came.count()).map(|()| None),
        StatementKind::UpdateFrom => found(&one()?, false, answer).above().map(Some),
        StatementKind::ModifyFrom => found(&one()?, true, answer).above().map(Some),
        StatementKind::Write(version, guard) => {
            let changed = if guard == Guard::Version { unless_stale } else { changed_one };
            changed(came.count())?;
            answer.wrote(version);
            Ok(None)
        }
        StatementKind::Update => {
            answer.wrote(version(&one()?, 0).ok_or_else(unreadable)?);
            Ok(None)
        }
        StatementKind::Modify => {
            let above = found(&one()?, true, answer).above();
            answer.wrote(above.map_err(|_| unreadable())?);
            Ok(None)
        }
    }
}

/// Looks up the version in a row that was read. The answer gets the record if `whole`, and is marked torn in any
/// case if the row is no record.
fn found(row: &Row<'_>, whole: bool, answer: &mut Answer) -> Lookup {
    let Some(version) = version(row, 0) else {
        answer.torn();
        return Lookup::Torn;
    };
    if whole {
        // a value that is NULL counts as empty, which no field of a record is
        answer.record(version, row.raw_from(1));
    }
    Lookup::Record(version)
}
