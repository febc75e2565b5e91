//! How a client of an SQL database captures and releases: the order of steps in each lock mode. The store supplies
//! the statements, and decides which of them are sent in one request.

#![warn(missing_docs)]

use std::future::Future;

use acidtest_engine::Attempt;

use super::{Capture, Operations, Release, Withdrawal, plan_capture};

/// `Ok` if a step was done, or how the operation ended with it.
pub type Step = Result<(), Attempt>;

/// The statements that a lock mode captures with, in the form that a session takes.
pub enum SqlCapture<S> {
    /// Lock mode none: reads, then sets each tuple to the count that should be left.
    Unprotected {
        /// Reads a group.
        read: S,
        /// Sets a tuple's count.
        set: S,
    },
    /// Lock mode soft: reads, then takes from tuples that have not changed since.
    IfUnchanged {
        /// Reads a group.
        read: S,
        /// Takes from a tuple if it still has the version that was read.
        take: S,
    },
    /// Lock mode hard: reads and locks, then takes.
    Locked {
        /// Reads a group and locks it.
        read: S,
        /// Takes from a tuple.
        take: S,
    },
    /// Lock mode native: reads, decides and takes inside the database.
    InOne {
        /// Takes from a group, all or nothing.
        take: S,
    },
}

/// A session that runs these statements. Each step is one round trip where the database can send its statements at
/// once.
pub trait SqlSession {
    /// A prepared statement.
    type Statement;

    /// Checks that an operation can begin, as far as that is known without asking the server.
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

    /// Runs a statement on a withdrawal's tuple with a value, in a transaction of its own; it must change only that
    /// tuple.
    fn change(
        &mut self,
        change: &Self::Statement,
        withdrawal: &Withdrawal,
        value: i64,
    ) -> impl Future<Output = Step>;

    /// Makes a withdrawal in a transaction of its own if its tuple still has the version that was read; a conflict if
    /// not.
    fn take_if_unchanged(
        &mut self,
        take: &Self::Statement,
        withdrawal: &Withdrawal,
        seen: &Reading,
    ) -> impl Future<Output = Step>;

    /// Begins a transaction, and makes all withdrawals in it as [`take_if_unchanged`](Self::take_if_unchanged) does.
    fn take_all_if_unchanged(
        &mut self,
        take: &Self::Statement,
        withdrawals: &[Withdrawal],
        seen: &Reading,
    ) -> impl Future<Output = Step>;

    /// Makes all withdrawals from the group that is locked, and commits; if that fails it is rolled back.
    fn take_locked(
        &mut self,
        take: &Self::Statement,
        withdrawals: &[Withdrawal],
    ) -> impl Future<Output = Step>;

    /// Takes from a group, all or nothing, and adds the withdrawals to `taken`; adds none if there were too few units.
    fn take_in_one(
        &mut self,
        take: &Self::Statement,
        capture: &Capture,
        taken: &mut Vec<Withdrawal>,
    ) -> impl Future<Output = Step>;

    /// Commits the transaction of [`take_all_if_unchanged`](Self::take_all_if_unchanged).
    fn commit(&mut self) -> impl Future<Output = Step>;

    /// Rolls back the transaction that may be open after an operation ended as `ended`. Returns how the operation
    /// ends after that: if the rollback is not answered, the connection is lost.
    fn roll_back(&mut self, ended: Attempt) -> impl Future<Output = Attempt>;

    /// Looks whether the session still is what it was when it was opened, as [`Operations::check`] does.
    ///
    /// # Errors
    /// What has changed, in words.
    fn check(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }
}

/// The state of one tuple as a client read it before it decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockLevel {
    /// The warehouse that it is in, from 1.
    pub warehouse: u8,
    /// Units in stock.
    pub count: i64,
    /// Version: how often the tuple was changed; 0 where the lock mode keeps no version.
    pub version: i64,
}

/// The state of a group as a client read it before it decides, ascending by warehouse. Its memory is reused.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    tuples: Vec<StockLevel>,
}

impl Reading {
    /// Replaces the last reading by these tuples.
    ///
    /// # Errors
    /// The first error among `tuples`.
    pub fn fill<E>(&mut self, tuples: impl IntoIterator<Item = Result<StockLevel, E>>) -> Result<(), E> {
        self.tuples.clear();
        tuples.into_iter().try_for_each(|tuple| tuple.map(|seen| self.tuples.push(seen)))
    }

    /// The reading of the tuple that a withdrawal takes from; all zeros if that tuple was not read.
    #[must_use]
    pub fn of(&self, withdrawal: &Withdrawal) -> StockLevel {
        let seen = self.tuples.iter().find(|seen| seen.warehouse == withdrawal.warehouse);
        seen.copied().unwrap_or_default()
    }

    /// The count that the withdrawal leaves on its tuple: the count read, less its own.
    fn left(&self, withdrawal: &Withdrawal) -> i64 {
        self.of(withdrawal).count.saturating_sub(withdrawal.count.into())
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
    /// The group that was read last.
    seen: Reading,
}

impl<S: SqlSession> SqlConnection<S> {
    /// A connection that captures and releases with these statements.
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
                for (index, withdrawal) in taken.iter().enumerate() {
                    let changed = session.change(set, withdrawal, seen.left(withdrawal)).await;
                    // the withdrawals before this one have taken effect
                    changed.map_err(|ended| if index == 0 { ended } else { ended.after_a_part() })?;
                }
                Ok(())
            }
            SqlCapture::IfUnchanged { read, take } => {
                session.read_group(read, wanted, seen).await?;
                seen.decide(wanted, taken)?;
                // a single statement is atomic by itself
                if let [withdrawal] = taken.as_slice() {
                    return session.take_if_unchanged(take, withdrawal, seen).await;
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
        self.session.change(&self.release, &release.withdrawal(), release.units.into()).await
    }
}

impl<S: SqlSession> Operations for SqlConnection<S> {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        self.take(capture, taken).await.err().unwrap_or(Attempt::Ok)
    }

    async fn release(&mut self, release: &Release) -> Attempt {
        self.put_back(release).await.err().unwrap_or(Attempt::Ok)
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
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

    /// Records each step, and ends one of them as the test says.
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

        async fn change(&mut self, change: &&'static str, withdrawal: &Withdrawal, value: i64) -> Step {
            self.step(format!("{change} {}: {value}", withdrawal.warehouse))
        }

        async fn take_if_unchanged(
            &mut self,
            take: &&'static str,
            withdrawal: &Withdrawal,
            seen: &Reading,
        ) -> Step {
            self.step(format!("{take} v{}", seen.of(withdrawal).version))
        }

        async fn take_all_if_unchanged(
            &mut self,
            take: &&'static str,
            withdrawals: &[Withdrawal],
            _: &Reading,
        ) -> Step {
            self.step(format!("begin {take} {}", withdrawals.len()))
        }

        async fn take_locked(&mut self, take: &&'static str, withdrawals: &[Withdrawal]) -> Step {
            self.step(format!("{take} {} commit", withdrawals.len()))
        }

        async fn take_in_one(
            &mut self,
            take: &&'static str,
            wanted: &Capture,
            taken: &mut Vec<Withdrawal>,
        ) -> Step {
            taken.extend((wanted.units <= 7).then(|| wanted.withdrawal(1, wanted.units)));
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

    /// The steps of a capture in which one step ends as given, and how the capture ends.
    fn captured(
        capture: SqlCapture<&'static str>,
        units: u32,
        ends: (&'static str, Attempt),
    ) -> (String, Attempt) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut connection = SqlConnection::new(Scripted { steps: Vec::new(), ends }, (capture, "put back"));
        let wanted = Capture { sku: 7, condition: 1, source: 2, units };
        // a withdrawal left over from an earlier capture
        let mut taken = vec![wanted.withdrawal(9, 9)];
        let ended = runtime.block_on(connection.capture(&wanted, &mut taken));
        if ended == Attempt::Ok {
            assert_eq!(taken.iter().map(|withdrawal| withdrawal.count).sum::<u32>(), units);
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
        // a transaction that could not be rolled back has cost the connection
        let gone = Attempt::Failed(Fault::lost("gone"));
        assert_eq!(captured(LOCKED, 8, ("roll back", gone.clone())).1, gone);
    }
}
