//! Transactions of several statements: what the client keeps until the commit, and then has carried out by one call.
//!
//! A table is a space of tuples of id and value. What a transaction reads is known only at its commit.

use std::{collections::BTreeSet, mem};

use acidtest_engine::Attempt;
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{
        Comparison, Condition, InteractiveSession, InteractiveStore, Mode, Reply, Select, Statement, Table,
        Update,
    },
};

use crate::{
    Tarantool,
    iproto::{Connection, Encoder, Error, Reader},
    prefix,
    server::{Request, ended},
    trial::{clear_away, length},
};

/// Why there is no mode whose transactions are interactive.
const NO_STREAMS: &str =
    "a transaction is one call here: before the streams of 2.10 it ends with its request";

/// The name of the space of a table: no workload's has a colon at this place.
fn named(place: &Place, table: &str) -> String {
    format!("{}table:{table}", prefix(&place.namespace))
}

impl InteractiveStore for Tarantool {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        Box::pin(async {
            Ok(vec![Mode {
                name: "stored call".to_owned(),
                level: None,
                how: "statements kept until the commit, then one call, between box.begin and box.commit",
                is_default: true,
            }])
        })
    }

    fn refuses(&self, _: &Mode, statement: &str) -> Option<String> {
        Statement::parse(statement).err().map(|error| format!("{error}; {NO_STREAMS}"))
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn make_table<'a>(&'a self, place: &'a Place, table: &'a Table) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async move {
            const DOING: &str = "making a table";
            let name = place.object(&table.name);
            let rows = table.pairs().map_err(|cause| StoreError::Server {
                doing: DOING.to_owned(),
                address: self.server.address(),
                cause,
            })?;
            let arguments = |args: &mut Encoder| {
                args.array(2).str(&named(place, &name)).array(length(&rows));
                for (id, value) in &rows {
                    args.array(2).i64(*id).i64(*value);
                }
            };
            self.server.run(DOING, include_str!("lua/make_table.lua"), arguments, |_| Ok(())).await?;
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, place: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { clear_away(&self.server, "removing a table", &named(place, name)).await })
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        _: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            Ok(Box::new(Session {
                connection: self.server.reach().await?,
                place: place.clone(),
                transaction: None,
                late: Vec::new(),
            }) as Box<dyn InteractiveSession>)
        })
    }
}

struct Session {
    connection: Connection,
    place: Place,
    transaction: Option<Kept>,
    late: Vec<(usize, Reply)>,
}

/// The statements of a transaction that has not been carried out.
#[derive(Default)]
struct Kept {
    /// How many statements have followed `begin`.
    count: usize,
    /// Those that are to be carried out, each with its number.
    statements: Vec<(usize, Statement)>,
}

impl InteractiveSession for Session {
    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            self.late.clear();
            if let Some(kept) = &mut self.transaction {
                kept.count += 1;
            }
            match Statement::parse(statement) {
                Ok(statement) => self.execute(statement).await,
                Err(error) => Reply::Failed(error.to_string()),
            }
        })
    }

    fn late(&mut self) -> Vec<(usize, Reply)> {
        mem::take(&mut self.late)
    }
}

impl Session {
    async fn execute(&mut self, statement: Statement) -> Reply {
        match (statement, &mut self.transaction) {
            (Statement::Begin, Some(_)) => Reply::Failed("there is a transaction already".to_owned()),
            (Statement::Begin, transaction) => {
                *transaction = Some(Kept::default());
                Reply::Done(None)
            }
            (Statement::Rollback, transaction) => {
                *transaction = None;
                Reply::Done(None)
            }
            (Statement::Commit, transaction) => match transaction.take() {
                Some(kept) => self.commit(kept).await,
                None => Reply::Failed("there is no transaction".to_owned()),
            },
            (statement, Some(kept)) => {
                kept.statements.push((kept.count, statement));
                Reply::Done(None)
            }
            (statement, None) => match self.call(&[&statement]).await {
                Ok(mut replies) => replies.pop().unwrap_or(Reply::Done(None)),
                Err(refused) => refused,
            },
        }
    }

    async fn commit(&mut self, Kept { statements, .. }: Kept) -> Reply {
        if statements.is_empty() {
            return Reply::Done(None);
        }
        let called: Vec<&Statement> = statements.iter().map(|(_, statement)| statement).collect();
        match self.call(&called).await {
            Ok(replies) => {
                let numbers = statements.iter().map(|(number, _)| *number);
                self.late = numbers.zip(replies).collect();
                Reply::Done(None)
            }
            Err(refused) => refused,
        }
    }

    /// Carries out statements in one transaction. Returns their replies, or the one reply to a transaction that was not
    /// carried out.
    async fn call(&mut self, statements: &[&Statement]) -> Result<Vec<Reply>, Reply> {
        let is_read = |statement: &&Statement| matches!(statement, Statement::Select(_));
        let effect = if statements.iter().all(is_read) { Request::Harmless } else { Request::Change };
        let place = &self.place;
        let arguments = |args: &mut Encoder| {
            args.array(1).array(length(statements));
            for statement in statements {
                write_statement(args, place, statement);
            }
        };
        let answer = self.connection.eval(include_str!("lua/transaction.lua"), arguments).await;
        let replies = answer.and_then(|mut values| {
            values.tuple(1)?;
            values.tuple(statements.len())?;
            statements.iter().map(|statement| read_reply(&mut values, statement)).collect()
        });
        replies.map_err(|error| refusal(error, effect))
    }
}

/// Writes a statement as `lua/transaction.lua` takes it.
fn write_statement(args: &mut Encoder, place: &Place, statement: &Statement) {
    args.array(7);
    match statement {
        Statement::Select(Select { table, rows }) => {
            write_rows(args, "select", &named(place, table), rows).nil().nil();
        }
        Statement::Delete(Select { table, rows }) => {
            write_rows(args, "delete", &named(place, table), rows).nil().nil();
        }
        Statement::Update(Update { table, amount, adds, rows }) => {
            write_rows(args, "update", &named(place, table), rows).i64(*amount).bool(*adds);
        }
        Statement::Insert { table, id, value } => {
            let row = Condition::Ids(vec![*id]);
            write_rows(args, "insert", &named(place, table), &row).i64(*value).nil();
        }
        // these are never kept
        Statement::Begin | Statement::Commit | Statement::Rollback => {
            args.nil().nil().nil().nil().nil().nil().nil();
        }
    }
}

/// Writes a statement's kind, its space, and which rows it is about: ids, divisor, and what must be equal.
fn write_rows<'a>(args: &'a mut Encoder, kind: &str, space: &str, rows: &Condition) -> &'a mut Encoder {
    args.str(kind).str(space);
    match rows {
        Condition::All => args.nil().nil().nil(),
        Condition::Ids(ids) => {
            let ids: BTreeSet<i64> = ids.iter().copied().collect();
            args.array(u32::try_from(ids.len()).unwrap_or(u32::MAX));
            for id in ids {
                args.i64(id);
            }
            args.nil().nil()
        }
        Condition::Value(Comparison { divisor, equals }) => {
            args.nil();
            match divisor {
                Some(divisor) => args.i64(*divisor),
                None => args.nil(),
            };
            args.i64(*equals)
        }
    }
}

/// Reads what has come of a statement: ids and values in turn, or the number of changed rows.
fn read_reply(values: &mut Reader<'_>, statement: &Statement) -> Result<Reply, Error> {
    let numbers = values.array_len()?;
    if !matches!(statement, Statement::Select(_)) {
        let changed = values.u64()?;
        return Ok(Reply::Done(Some(changed)));
    }
    let row = |_| Ok(vec![values.i64()?.to_string(), values.i64()?.to_string()]);
    (0..numbers / 2).map(row).collect::<Result<_, _>>().map(Reply::Rows)
}

/// The reply to a call that was not answered as it should.
fn refusal(error: Error, effect: Request) -> Reply {
    if error.code() == Some(Error::DUPLICATE_KEY) {
        return Reply::Refused(error.to_string());
    }
    let said = error.to_string();
    match ended(effect)(error) {
        Attempt::Conflict | Attempt::Refused => Reply::Refused(said),
        Attempt::Failed(fault) if !fault.connection_lost => Reply::Failed(fault.message),
        Attempt::Failed(fault) | Attempt::Unknown(fault) => Reply::Unknown(fault.message),
        Attempt::Ok => Reply::Unknown(said),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_refusal_is_told_from_a_failure_and_from_doubt() {
        let met = |error, effect| refusal(error, effect);
        let answered = |code| Error::Server { code, message: "no".to_owned() };
        let lost = || Error::Lost { sent: true, cause: io::ErrorKind::ConnectionReset.into() };
        for code in [Error::DUPLICATE_KEY, Error::TRANSACTION_CONFLICT] {
            assert!(matches!(met(answered(code), Request::Change), Reply::Refused(_)), "{code}");
        }
        // there is no such space
        assert!(matches!(met(answered(36), Request::Change), Reply::Failed(_)));
        assert!(matches!(met(answered(40), Request::Change), Reply::Unknown(_)), "the log failed");
        for effect in [Request::Change, Request::Harmless] {
            assert!(matches!(met(lost(), effect), Reply::Unknown(_)), "{effect:?}");
        }
    }
}
