//! How a client of an SQL database captures and releases: which step follows which in each lock mode. The statements
//! are the store's, and so is which of them are sent at once.

use std::future::Future;

use acidtest_engine::Attempt;

use super::{Capture, Operations, Release, Withdrawal, plan_capture};

/// That a step was done, or how the operation has ended with it.
pub type Step = Result<(), Attempt>;

/// The statements with which a lock mode captures, as a session takes them.
pub enum SqlCapture<S> {
    /// Reads, and sets each tuple to what should be left of it.
    Unprotected {
        /// Reads a group.
        read: S,
        /// Sets a tuple's count.
        set: S,
    },
    /// Reads, and takes from what has not changed since.
    IfUnchanged {
        /// Reads a group.
        read: S,
        /// Takes from a tuple of a certain version.
        take: S,
    },
    /// Reads and locks, and takes.
    Locked {
        /// Reads a group and locks it.
        read: S,
        /// Takes from a tuple.
        take: S,
    },
    /// Does all that in the database.
    InOne {
        /// Takes from a group.
        take: S,
    },
}

/// A session that runs such statements. Each step is one round trip where the database can send at once what it takes.
pub trait SqlSession {
    /// A statement, ready to run.
    type Statement;

    /// Whether an operation can begin, as far as is known without asking.
    fn ready(&mut self) -> impl Future<Output = Step> {
        async { Ok(()) }
    }

    /// Reads a group, ascending by warehouse.
    fn read_group(
        &mut self,
        read: &Self::Statement,
        capture: &Capture,
        seen: &mut Reading,
    ) -> impl Future<Output = Step>;

    /// Begins a transaction, and reads a group in it.
    fn lock_group(
        &mut self,
        read: &Self::Statement,
        capture: &Capture,
        seen: &mut Reading,
    ) -> impl Future<Output = Step>;

    /// Runs a statement on a line's tuple with a value, in a transaction by itself; it must change that tuple alone.
    fn change(
        &mut self,
        change: &Self::Statement,
        line: &Withdrawal,
        value: i64,
    ) -> impl Future<Output = Step>;

    /// Takes a line in a transaction by itself, if its tuple has the version still that was seen; a conflict if not.
    fn take_if_unchanged(
        &mut self,
        take: &Self::Statement,
        line: &Withdrawal,
        seen: &Reading,
    ) -> impl Future<Output = Step>;

    /// Begins a transaction, and takes all lines in it as [`take_if_unchanged`](Self::take_if_unchanged) does.
    fn take_all_if_unchanged(
        &mut self,
        take: &Self::Statement,
        lines: &[Withdrawal],
        seen: &Reading,
    ) -> impl Future<Output = Step>;

    /// Takes all lines from the group that is locked and commits; what fails is rolled back.
    fn take_locked(&mut self, take: &Self::Statement, lines: &[Withdrawal]) -> impl Future<Output = Step>;

    /// Takes from a group, all or nothing, and adds to `taken` from where: nothing if there was too little.
    fn take_in_one(
        &mut self,
        take: &Self::Statement,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> impl Future<Output = Step>;

    /// Commits the transaction.
    fn commit(&mut self) -> impl Future<Output = Step>;

    /// Rolls back what may be open of a transaction that has ended so. How it has ended then: without an answer the
    /// connection is of no more use.
    fn roll_back(&mut self, ended: Attempt) -> impl Future<Output = Attempt>;
}

/// What a client read of one tuple before it decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockLevel {
    /// Where it lies.
    pub warehouse: u8,
    /// Units.
    pub count: i64,
    /// How often it was changed, where the lock mode keeps a version.
    pub version: i64,
}

/// What a client read of a group before it decides, ascending by warehouse. Its room is used again.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    tuples: Vec<StockLevel>,
}

impl Reading {
    /// Replaces the last reading.
    ///
    /// # Errors
    /// The first of `tuples`.
    pub fn fill<E>(&mut self, tuples: impl IntoIterator<Item = Result<StockLevel, E>>) -> Result<(), E> {
        self.tuples.clear();
        tuples.into_iter().try_for_each(|tuple| tuple.map(|seen| self.tuples.push(seen)))
    }

    /// What was read of the tuple that a line takes from; nothing, if that was not read.
    #[must_use]
    pub fn of(&self, line: &Withdrawal) -> StockLevel {
        let seen = self.tuples.iter().find(|seen| seen.warehouse == line.warehouse);
        seen.copied().unwrap_or_default()
    }

    /// What that tuple is to hold after the line: what was read, less the line.
    fn left(&self, line: &Withdrawal) -> i64 {
        self.of(line).count.saturating_sub(line.count.into())
    }

    /// Decides from which warehouses to take, as [`plan_capture`] does.
    fn decide(&self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Step {
        let held = self.tuples.iter().map(|seen| (seen.warehouse, seen.count));
        if plan_capture(capture, held, taken) { Ok(()) } else { Err(Attempt::Refused) }
    }
}

/// One client's connection to an SQL database.
pub struct SqlConnection<S: SqlSession> {
    session: S,
    capture: SqlCapture<S::Statement>,
    release: S::Statement,
    /// The group last read.
    seen: Reading,
}

impl<S: SqlSession> SqlConnection<S> {
    /// A session with the statements that it captures and releases with.
    pub fn new(session: S, (capture, release): (SqlCapture<S::Statement>, S::Statement)) -> Self {
        Self { session, capture, release, seen: Reading::default() }
    }

    async fn take(&mut self, wanted: &Capture, taken: &mut Vec<Withdrawal>) -> Step {
        let Self { session, capture, seen, .. } = self;
        session.ready().await?;
        match capture {
            SqlCapture::Unprotected { read, set } => {
                session.read_group(read, wanted, seen).await?;
                seen.decide(wanted, taken)?;
                for (index, line) in taken.iter().enumerate() {
                    session.change(set, line, seen.left(line)).await.map_err(|ended| match index {
                        0 => ended,
                        // the lines before have taken effect
                        _ => ended.after_a_part(),
                    })?;
                }
                Ok(())
            }
            SqlCapture::IfUnchanged { read, take } => {
                session.read_group(read, wanted, seen).await?;
                seen.decide(wanted, taken)?;
                // one statement is atomic by itself
                if let [line] = taken.as_slice() {
                    return session.take_if_unchanged(take, line, seen).await;
                }
                match session.take_all_if_unchanged(take, taken, seen).await {
                    Ok(()) => session.commit().await,
                    Err(ended) => Err(session.roll_back(ended).await),
                }
            }
            SqlCapture::Locked { read, take } => {
                let read = session.lock_group(read, wanted, seen).await;
                match read.and_then(|()| seen.decide(wanted, taken)) {
                    Ok(()) => session.take_locked(take, taken).await,
                    Err(ended) => Err(session.roll_back(ended).await),
                }
            }
            SqlCapture::InOne { take } => {
                taken.clear();
                session.take_in_one(take, wanted, taken).await?;
                if taken.is_empty() { Err(Attempt::Refused) } else { Ok(()) }
            }
        }
    }

    async fn put_back(&mut self, release: &Release) -> Step {
        self.session.ready().await?;
        self.session.change(&self.release, &release.line(), release.units.into()).await
    }
}

impl<S: SqlSession> Operations for SqlConnection<S> {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        self.take(capture, taken).await.err().unwrap_or(Attempt::Ok)
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        self.put_back(release).await.err().unwrap_or(Attempt::Ok)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_engine::Fault;

    use super::*;

    /// Two units in the first warehouse, five in the second.
    const HELD: [StockLevel; 2] = [
        StockLevel { warehouse: 1, count: 2, version: 7 },
        StockLevel { warehouse: 2, count: 5, version: 8 },
    ];

    /// Notes each step, and ends one of them as it is told.
    struct Scripted {
        steps: Vec<String>,
        ends: (&'static str, Attempt),
    }

    impl Scripted {
        fn step(&mut self, step: impl Into<String>) -> Step {
            let (last, ended) = &self.ends;
            self.steps.push(step.into());
            if self.steps.last().is_some_and(|step| step == last) { Err(ended.clone()) } else { Ok(()) }
        }
    }

    impl SqlSession for Scripted {
        type Statement = &'static str;

        async fn read_group(&mut self, read: &&'static str, _: &Capture, seen: &mut Reading) -> Step {
            seen.fill(HELD.map(Ok))?;
            self.step(*read)
        }

        async fn lock_group(&mut self, read: &&'static str, _: &Capture, seen: &mut Reading) -> Step {
            seen.fill(HELD.map(Ok))?;
            self.step(format!("begin {read}"))
        }

        async fn change(&mut self, change: &&'static str, line: &Withdrawal, value: i64) -> Step {
            self.step(format!("{change} {}: {value}", line.warehouse))
        }

        async fn take_if_unchanged(
            &mut self,
            take: &&'static str,
            line: &Withdrawal,
            seen: &Reading,
        ) -> Step {
            self.step(format!("{take} v{}", seen.of(line).version))
        }

        async fn take_all_if_unchanged(
            &mut self,
            take: &&'static str,
            lines: &[Withdrawal],
            _: &Reading,
        ) -> Step {
            self.step(format!("begin {take} {}", lines.len()))
        }

        async fn take_locked(&mut self, take: &&'static str, lines: &[Withdrawal]) -> Step {
            self.step(format!("{take} {} commit", lines.len()))
        }

        async fn take_in_one(
            &mut self,
            take: &&'static str,
            wanted: &Capture,
            taken: &mut Vec<Withdrawal>,
        ) -> Step {
            taken.extend((wanted.units <= 7).then(|| wanted.line(1, wanted.units)));
            self.step(*take)
        }

        async fn commit(&mut self) -> Step {
            self.step("commit")
        }

        async fn roll_back(&mut self, ended: Attempt) -> Attempt {
            self.step("roll back").err().unwrap_or(ended)
        }
    }

    const UNPROTECTED: SqlCapture<&str> = SqlCapture::Unprotected { read: "read", set: "set" };
    const IF_UNCHANGED: SqlCapture<&str> = SqlCapture::IfUnchanged { read: "read", take: "take" };
    const LOCKED: SqlCapture<&str> = SqlCapture::Locked { read: "read", take: "take" };
    const IN_ONE: SqlCapture<&str> = SqlCapture::InOne { take: "take" };

    /// The steps of a capture of which one ends so, and how the capture ends.
    fn captured(
        capture: SqlCapture<&'static str>,
        units: u32,
        ends: (&'static str, Attempt),
    ) -> (String, Attempt) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut connection = SqlConnection::new(Scripted { steps: Vec::new(), ends }, (capture, "put back"));
        let wanted = Capture { sku: 7, condition: 1, source: 2, units };
        // what an earlier capture has left
        let mut taken = vec![wanted.line(9, 9)];
        let ended = runtime.block_on(connection.capture(&wanted, &mut taken));
        if ended == Attempt::Ok {
            assert_eq!(taken.iter().map(|line| line.count).sum::<u32>(), units);
        }
        (connection.session.steps.join(", "), ended)
    }

    #[test]
    fn each_lock_mode_has_its_steps() {
        for (capture, units, steps, ended) in [
            (UNPROTECTED, 1, "read, set 1: 1", Attempt::Ok),
            (UNPROTECTED, 4, "read, set 1: 0, set 2: 3", Attempt::Ok),
            (UNPROTECTED, 8, "read", Attempt::Refused),
            (IF_UNCHANGED, 1, "read, take v7", Attempt::Ok),
            (IF_UNCHANGED, 4, "read, begin take 2, commit", Attempt::Ok),
            (IF_UNCHANGED, 8, "read", Attempt::Refused),
            (LOCKED, 1, "begin read, take 1 commit", Attempt::Ok),
            (LOCKED, 4, "begin read, take 2 commit", Attempt::Ok),
            (LOCKED, 8, "begin read, roll back", Attempt::Refused),
            (IN_ONE, 4, "take", Attempt::Ok),
            (IN_ONE, 8, "take", Attempt::Refused),
        ] {
            assert_eq!(captured(capture, units, ("", Attempt::Ok)), (steps.to_owned(), ended));
        }
    }

    #[test]
    fn what_ends_a_step_ends_the_capture_and_its_transaction() {
        let failed = || Attempt::Failed(Fault::answered("no"));
        let unknown = || Attempt::Unknown(Fault::lost("gone"));
        let in_part = Attempt::Unknown(Fault::lost("no"));
        for (capture, step, ends, steps, ended) in [
            (UNPROTECTED, "read", failed(), "read", failed()),
            (UNPROTECTED, "set 1: 0", failed(), "read, set 1: 0", failed()),
            (UNPROTECTED, "set 2: 3", failed(), "read, set 1: 0, set 2: 3", in_part),
            (
                IF_UNCHANGED,
                "begin take 2",
                Attempt::Conflict,
                "read, begin take 2, roll back",
                Attempt::Conflict,
            ),
            (IF_UNCHANGED, "commit", unknown(), "read, begin take 2, commit", unknown()),
            (LOCKED, "begin read", Attempt::Conflict, "begin read, roll back", Attempt::Conflict),
            (LOCKED, "take 2 commit", unknown(), "begin read, take 2 commit", unknown()),
            (IN_ONE, "take", unknown(), "take", unknown()),
        ] {
            assert_eq!(captured(capture, 4, (step, ends)), (steps.to_owned(), ended));
        }
        // what cannot be rolled back has cost the connection
        let gone = Attempt::Failed(Fault::lost("gone"));
        assert_eq!(captured(LOCKED, 8, ("roll back", gone.clone())).1, gone);
    }
}
