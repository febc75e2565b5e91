//! One client's operations.

use std::{mem, slice};

use acidtest_workloads::{
    Attempt,
    records::{Answer, Operations, Request},
};
use tokio_postgres::{Client, Error, Row, error::SqlState};

use super::statements::{Came, Guard, Statements, Step, What};
use crate::{
    fault::{self, Sent},
    line::in_order,
    session::{self, Answered, Part, Session, changed_one, unless_stale},
    value::{texts, version},
};

/// One client's connection.
pub(crate) struct Connection {
    session: Session,
    statements: Statements,
}

impl Connection {
    pub(crate) fn new(session: Session, statements: Statements) -> Self {
        Self { session, statements }
    }

    /// Every statement a transaction by itself.
    async fn by_itself(&mut self, request: &Request, answer: &mut Answer) -> Result<(), Attempt> {
        let Self { session, statements } = self;
        session.ready().await?;
        let mut step = Some(statements.first(request));
        while let Some(now) = step {
            let came = session.ask(async |client| now.run(client).await).await;
            let sent = if now.what.writes() { Sent::Commit } else { Sent::Nothing };
            let came = came.map_err(|error| failed(session, &now, &error, sent))?;
            let read = take(&now, &came, sent, answer)?;
            step = read.and_then(|version| statements.then(&now, version));
        }
        Ok(())
    }

    async fn transaction(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let Self { session, statements } = self;
        if let Err(lost) = session.ready().await {
            return lost;
        }
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
}

/// A transaction on its way: what needs no answer to go on waits until it can be sent with the next
/// that does.
struct Transaction<'a> {
    session: &'a mut Session,
    statements: &'a Statements,
    answers: &'a mut [Answer],
    /// What waits, each with the place of its answer.
    steps: Vec<(usize, Step<'a>)>,
    /// Whether BEGIN was answered.
    begun: bool,
    /// Whether COMMIT was sent.
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
        // what may yet end it otherwise is answered before it is told to commit
        if !self.steps.iter().all(|(_, step)| step.what.is_sure()) {
            self.send(false).await?;
        }
        self.send(true).await
    }

    /// Sends what waits at once, with BEGIN before it if that was not sent, and takes the answers. Then
    /// waits what follows from them.
    async fn send(&mut self, commits: bool) -> Result<(), Attempt> {
        let steps = mem::take(&mut self.steps);
        let part = Part::of(!self.begun, commits);
        let run = async |client: &Client| in_order(steps.iter().map(|(_, step)| step.run(client))).await;
        let Answered { begun, came, committed } = self.session.part(part, run).await;
        self.ended = commits;
        self.session.begun(begun, steps.iter().zip(&came).any(may_have_changed))?;
        self.begun = true;
        for ((place, step), came) in steps.iter().zip(came) {
            let came = came.map_err(|error| {
                let sent = part.sent(&error);
                failed(self.session, step, &error, sent)
            })?;
            let read = take(step, &came, Sent::Nothing, &mut self.answers[*place])
                .map_err(|trouble| if commits { trouble.after_a_part() } else { trouble })?;
            let next = read.and_then(|version| self.statements.then(step, version));
            self.steps.extend(next.map(|next| (*place, next)));
        }
        match self.session.committed(committed) {
            Attempt::Ok => Ok(()),
            trouble => Err(trouble),
        }
    }
}

fn may_have_changed(((_, step), came): (&(usize, Step<'_>), &Result<Came, Error>)) -> bool {
    step.what.writes() && session::may_have_changed(came.as_ref().map(|came| came.count))
}

/// What an error means for the operation whose step it ended. That a record is there already is no
/// fault.
fn failed(session: &Session, step: &Step<'_>, error: &Error, sent: Sent) -> Attempt {
    match (step.what, error.code()) {
        (What::Insert, Some(code)) if *code == SqlState::UNIQUE_VIOLATION => Attempt::Refused,
        _ => session.failed(error, sent),
    }
}

/// Takes a step's answer: the version from which a write follows, where one does.
fn take(step: &Step<'_>, came: &Came, sent: Sent, answer: &mut Answer) -> Result<Option<u64>, Attempt> {
    // whatever was done is done, but an answer that cannot be read is as good as none
    let unreadable = |error: Error| fault::lost(sent, fault::words(&error));
    let one = || came.rows.first().ok_or(Attempt::Refused);
    let mut record = |row: &Row| {
        let version = version(row, 0).map_err(unreadable)?;
        answer.record(version, texts(row, 1));
        Ok(version)
    };
    match step.what {
        What::Read => record(one()?).map(|_| None),
        What::Scan => came.rows.iter().try_for_each(|row| record(row).map(|_| ())).map(|()| None),
        What::Insert => changed_one(came.count).map(|()| None),
        What::UpdateFrom => version(one()?, 0).map(Some).map_err(unreadable),
        What::ModifyFrom => record(one()?).map(Some),
        What::Write(read, guard) => {
            let changed = if guard == Guard::Version { unless_stale } else { changed_one };
            changed(came.count)?;
            answer.wrote(read + 1);
            Ok(None)
        }
        What::Update => {
            answer.wrote(version(one()?, 0).map_err(unreadable)?);
            Ok(None)
        }
        What::Modify => {
            let read = record(one()?)?;
            answer.wrote(read + 1);
            Ok(None)
        }
    }
}
