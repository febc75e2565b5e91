//! The statements of each lock mode, and the steps in which operations run them.

use acidtest_model::Lock;
use acidtest_workloads::records::{Action, Request, Requirements};

use super::table::{each_field, values};
use crate::{
    Value,
    protocol::{Connection, Error, Statement},
};

pub(crate) struct Statements {
    read: Statement,
    scan: Statement,
    insert: Statement,
    how: ChangeStatements,
}

/// How updates and modifies change a record, which depends on the lock mode.
enum ChangeStatements {
    /// Reads the record, computes the new version here and writes it: no, soft and hard locks.
    InSteps {
        /// Reads the version alone, for an update.
        version: Statement,
        /// Reads the whole record, for a modify.
        record: Statement,
        write: Statement,
        guard: Guard,
    },
    /// The server reads and writes in one statement: native lock.
    InOne { update: Statement, modify: Statement },
}

/// How a write is protected from changes made since its record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Not at all: it overwrites whatever was written meanwhile.
    None,
    /// The write finds its row only if that still has the version that was read.
    Version,
    /// The record was locked when it was read.
    Locked,
}

pub(crate) struct Step<'a> {
    pub(crate) statement: Statement,
    request: &'a Request,
    pub(crate) what: StatementKind,
}

/// The statement's part in its operation, by which its answer is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Reads a whole record for a read.
    Read,
    /// Reads records in the order of their keys, from the request's key on.
    Scan,
    Insert,
    /// Reads the version from which an update computes the new one.
    UpdateFrom,
    /// Reads the record from which a modify computes the new version.
    ModifyFrom,
    /// Writes this version, one above the version that was read.
    Write(u64, Guard),
    /// Raises the version and returns it, in one statement.
    Update,
    /// Reads the record and raises its version, in one statement.
    Modify,
}

impl Statements {
    pub(crate) async fn prepare(
        connection: &mut Connection,
        table: &str,
        wanted: &Requirements,
    ) -> Result<Self, Error> {
        let layout = &wanted.layout;
        let names = each_field(layout, |field| format!("field{field}"));
        let set = |first: u16| each_field(layout, |field| format!("field{field} = ${}", first + field));
        let given = each_field(layout, |field| format!("${}", 2 + field));
        let record = format!("SELECT version, {names} FROM {table} WHERE key = $1");
        let version = format!("SELECT version FROM {table} WHERE key = $1");
        let scan =
            format!("SELECT version, {names} FROM {table} WHERE key >= $1 ORDER BY key LIMIT $2::bigint");
        let in_steps = async |connection: &mut Connection, locking: &str, write: String, guard| {
            Ok::<_, Error>(ChangeStatements::InSteps {
                version: connection.prepare(&format!("{version}{locking}")).await?,
                record: connection.prepare(&format!("{record}{locking}")).await?,
                write: connection.prepare(&write).await?,
                guard,
            })
        };
        let computed = || format!("UPDATE {table} SET version = $2, {} WHERE key = $1", set(3));
        let raise = |first| format!("version = version + 1, {}", set(first));
        let how = match wanted.lock {
            Lock::None => in_steps(connection, "", computed(), Guard::None).await?,
            Lock::Soft => {
                let write = format!("UPDATE {table} SET {} WHERE key = $1 AND version = $2", raise(3));
                in_steps(connection, "", write, Guard::Version).await?
            }
            Lock::Hard => in_steps(connection, " FOR UPDATE", computed(), Guard::Locked).await?,
            Lock::Native => {
                let update = format!("UPDATE {table} SET {} WHERE key = $1 RETURNING version", raise(2));
                ChangeStatements::InOne {
                    update: connection.prepare(&update).await?,
                    modify: connection.prepare(&modify(table, &record, &set(2))).await?,
                }
            }
        };
        Ok(Self {
            read: connection.prepare(&record).await?,
            scan: connection.prepare(&scan).await?,
            insert: connection.prepare(&format!("INSERT INTO {table} VALUES ($1, 0, {given})")).await?,
            how,
        })
    }

    pub(crate) fn first<'a>(&'a self, request: &'a Request) -> Step<'a> {
        let (what, statement) = match (request.action, &self.how) {
            (Action::Read, _) => (StatementKind::Read, self.read),
            (Action::Scan, _) => (StatementKind::Scan, self.scan),
            (Action::Insert, _) => (StatementKind::Insert, self.insert),
            (Action::Update, ChangeStatements::InSteps { version, .. }) => {
                (StatementKind::UpdateFrom, *version)
            }
            (Action::Update, ChangeStatements::InOne { update, .. }) => (StatementKind::Update, *update),
            (Action::Modify, ChangeStatements::InSteps { record, .. }) => {
                (StatementKind::ModifyFrom, *record)
            }
            (Action::Modify, ChangeStatements::InOne { modify, .. }) => (StatementKind::Modify, *modify),
        };
        Step { statement, request, what }
    }

    /// The write that follows a step which read the version to go on from; `None` after any other step.
    pub(crate) fn then<'a>(&'a self, step: &Step<'a>, version: u64) -> Option<Step<'a>> {
        match &self.how {
            ChangeStatements::InSteps { write, guard, .. } if step.what.is_followed() => Some(Step {
                statement: *write,
                request: step.request,
                what: StatementKind::Write(version, *guard),
            }),
            _ => None,
        }
    }

    /// Whether updates and modifies lock their record as they read it, for which they need a transaction.
    pub(crate) fn lock(&self) -> bool {
        matches!(self.how, ChangeStatements::InSteps { guard: Guard::Locked, .. })
    }
}

/// A statement that locks the record, reads it and writes the version above the one read.
///
/// Under READ COMMITTED a record that another transaction has changed meanwhile is read again once it is locked,
/// so `held` is the record as it is now, not as it was when the statement began. The `UPDATE` then finds the same
/// record, which nobody else can change until it is done.
fn modify(table: &str, record: &str, set: &str) -> String {
    format!(
        "WITH held AS MATERIALIZED ({record} FOR UPDATE)
         UPDATE {table} AS stored SET version = held.version + 1, {set} FROM held
         WHERE stored.key = $1 RETURNING held.*"
    )
}

impl StatementKind {
    /// Whether a write has to follow, computed from the answer.
    pub(crate) fn is_followed(self) -> bool {
        matches!(self, Self::UpdateFrom | Self::ModifyFrom)
    }

    /// Whether the statement changes a record.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Insert | Self::Write(..) | Self::Update | Self::Modify)
    }

    /// Whether the statement either does as intended or fails with an error, so that COMMIT can be sent behind it
    /// before its answer is known.
    pub(crate) fn is_sure(self) -> bool {
        matches!(self, Self::Scan | Self::Insert | Self::Write(_, Guard::Locked))
    }
}

impl Step<'_> {
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        let Request { key, length, fields, .. } = self.request;
        let number = match self.what {
            StatementKind::Scan => Some(i64::from(*length)),
            // never 0, as it is one above another version, and below 2^63, so that the signed number is the same
            StatementKind::Write(version, Guard::Version) => Some(version.cast_signed() - 1),
            StatementKind::Write(version, _) => Some(version.cast_signed()),
            _ => None,
        };
        values(key, number, self.what.writes().then_some(fields))
    }
}
