//! What a client of Redis has for interactive transactions: it reads at once, keeps its writes, and sends them together.
//!
//! A row is a string under a key that ends in its id. The ids of a table's rows are in a set, because no command of Redis
//! finds the keys of a table at one moment.

use std::{collections::BTreeSet, mem};

use acidtest_engine::Attempt;
use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Place,
    interactive::{
        Condition, InteractiveSession, InteractiveStore, Mode, Reply, Select, Statement, Table, Update,
    },
};
use redis::{Cmd, Pipeline, cmd, pipe};

use crate::{
    Redis, keys,
    protocol::{Connection, Error, Reply as Answer, nonsense},
    server::Request,
    session::Session,
};

/// The mode that watches what it reads.
const WATCH: &str = "WATCH";

/// Why a statement with a condition on values is not run.
const NO_PREDICATES: &str =
    "Redis has no predicates: its commands name keys, so that rows are found by their ids alone";

/// Names of a table's keys.
struct Keys(String);

impl Keys {
    fn of(place: &Place, table: &str) -> Self {
        Self(format!("{}table:{table}", keys::prefix(&place.namespace)))
    }

    fn ids(&self) -> String {
        format!("{}:ids", self.0)
    }

    fn row(&self, id: i64) -> String {
        format!("{}:{id}", self.0)
    }
}

/// The condition of a statement.
fn condition(statement: &Statement) -> Option<&Condition> {
    match statement {
        Statement::Select(Select { rows, .. })
        | Statement::Delete(Select { rows, .. })
        | Statement::Update(Update { rows, .. }) => Some(rows),
        Statement::Begin | Statement::Commit | Statement::Rollback | Statement::Insert { .. } => None,
    }
}

/// A statement that can be run, or the reason why it cannot.
fn understood(statement: &str) -> Result<Statement, String> {
    let statement = Statement::parse(statement).map_err(|error| error.to_string())?;
    match condition(&statement) {
        Some(Condition::Value(_)) => Err(NO_PREDICATES.to_owned()),
        _ => Ok(statement),
    }
}

impl InteractiveStore for Redis {
    fn modes(&self) -> Task<'_, Result<Vec<Mode>, StoreError>> {
        let mode = |name: &str, how, is_default| Mode { name: name.to_owned(), level: None, how, is_default };
        Box::pin(async move {
            Ok(vec![
                mode("MULTI", "reads at once; writes kept, and sent as MULTI … EXEC at commit", true),
                mode(WATCH, "the same, with WATCH before each read", false),
            ])
        })
    }

    fn refuses(&self, _: &Mode, statement: &str) -> Option<String> {
        understood(statement).err()
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
            let keys = Keys::of(place, &name);
            let mut commands = pipe();
            for (id, value) in rows {
                commands.cmd("SET").arg(keys.row(id)).arg(value);
                commands.cmd("SADD").arg(keys.ids()).arg(id);
            }
            let mut connection = self.server.reach().await?;
            let made = connection.ask_all(&commands).await.and_then(|answers| answers.all().map(drop));
            self.written(DOING, &mut connection, made).await?;
            Ok(name)
        })
    }

    fn drop_table<'a>(&'a self, place: &'a Place, name: &'a str) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.server.reach().await?;
            let removed = remove(&mut connection, &Keys::of(place, name)).await;
            self.written("removing a table", &mut connection, removed).await
        })
    }

    fn session<'a>(
        &'a self,
        place: &'a Place,
        mode: &'a Mode,
    ) -> Task<'a, Result<Box<dyn InteractiveSession>, StoreError>> {
        Box::pin(async move {
            Ok(Box::new(Client {
                session: Redis::session(self).await?,
                place: place.clone(),
                watches: mode.name == WATCH,
                is_watching: false,
                transaction: None,
            }) as Box<dyn InteractiveSession>)
        })
    }
}

/// Removes the rows whose ids are in the table's set, and then that.
async fn remove(connection: &mut Connection, keys: &Keys) -> Result<(), Error> {
    let members = connection.ask(cmd("SMEMBERS").arg(keys.ids())).await?.array()?;
    let ids: Vec<i64> = members.map(number).collect::<Result<_, _>>()?;
    let mut commands = pipe();
    for id in ids {
        commands.cmd("UNLINK").arg(keys.row(id));
    }
    commands.cmd("UNLINK").arg(keys.ids());
    connection.ask_all(&commands).await?.all().map(drop)
}

/// What a command's answer tells of the rows of its table.
#[derive(Clone, Copy)]
enum Effect {
    /// Whether a row was there, and so was changed.
    Changes,
    /// How many rows were removed.
    Removes,
    /// Whether the row of this id was inserted.
    Inserts(i64),
    /// Nothing: it keeps the set of ids.
    Keeps,
}

/// Commands that wait for the commit.
#[derive(Default)]
struct Writes(Vec<(Cmd, Effect)>);

impl Writes {
    fn add(&mut self, command: &Cmd, effect: Effect) {
        self.0.push((command.clone(), effect));
    }

    fn pipeline(&self) -> Pipeline {
        let mut pipeline = pipe();
        for (command, _) in &self.0 {
            pipeline.add_command(command.clone());
        }
        pipeline
    }
}

struct Client {
    session: Session,
    place: Place,
    /// Whether it watches what it reads in a transaction.
    watches: bool,
    /// Whether the server watches keys for it.
    is_watching: bool,
    transaction: Option<Writes>,
}

impl InteractiveSession for Client {
    fn run<'a>(&'a mut self, statement: &'a str) -> Task<'a, Reply> {
        Box::pin(async move {
            match understood(statement) {
                Ok(statement) => self.execute(&statement).await.unwrap_or_else(|error| reply(&error)),
                Err(why) => Reply::Failed(why),
            }
        })
    }
}

/// What an error says of a statement that changes nothing.
fn reply(error: &Error) -> Reply {
    match error {
        Error::Answered(error) => Reply::Failed(error.to_string()),
        Error::NotSent(_) | Error::Lost(_) => Reply::Unknown(error.to_string()),
    }
}

impl Client {
    async fn execute(&mut self, statement: &Statement) -> Result<Reply, Error> {
        match statement {
            Statement::Begin if self.transaction.is_some() => {
                Ok(Reply::Failed("there is a transaction already".to_owned()))
            }
            Statement::Begin => {
                self.transaction = Some(Writes::default());
                Ok(Reply::Done(None))
            }
            Statement::Commit => match self.transaction.take() {
                Some(writes) => self.send(&writes).await,
                None => Ok(Reply::Failed("there is no transaction".to_owned())),
            },
            Statement::Rollback => {
                self.transaction = None;
                self.stop_watching().await?;
                Ok(Reply::Done(None))
            }
            Statement::Select(Select { table, rows }) => {
                let keys = Keys::of(&self.place, table);
                let ids = self.ids(&keys, rows).await?;
                self.read(&keys, &ids).await
            }
            write => {
                let writes = self.commands(write).await?;
                match &mut self.transaction {
                    Some(kept) => {
                        kept.0.extend(writes.0);
                        Ok(Reply::Done(None))
                    }
                    None => self.send(&writes).await,
                }
            }
        }
    }

    /// The commands that do what a statement writes.
    async fn commands(&mut self, statement: &Statement) -> Result<Writes, Error> {
        let mut writes = Writes::default();
        match statement {
            Statement::Update(Update { table, amount, adds, rows }) => {
                let keys = Keys::of(&self.place, table);
                for id in self.ids(&keys, rows).await? {
                    let row = keys.row(id);
                    if *adds {
                        // it makes a row that is not there
                        writes.add(cmd("INCRBY").arg(row).arg(*amount), Effect::Changes);
                        writes.add(cmd("SADD").arg(keys.ids()).arg(id), Effect::Keeps);
                    } else {
                        writes.add(cmd("SET").arg(row).arg(*amount).arg("XX"), Effect::Changes);
                    }
                }
            }
            Statement::Insert { table, id, value } => {
                let keys = Keys::of(&self.place, table);
                writes.add(cmd("SET").arg(keys.row(*id)).arg(*value).arg("NX"), Effect::Inserts(*id));
                writes.add(cmd("SADD").arg(keys.ids()).arg(*id), Effect::Keeps);
            }
            Statement::Delete(Select { table, rows }) => {
                let keys = Keys::of(&self.place, table);
                for id in self.ids(&keys, rows).await? {
                    writes.add(cmd("DEL").arg(keys.row(id)), Effect::Removes);
                    writes.add(cmd("SREM").arg(keys.ids()).arg(id), Effect::Keeps);
                }
            }
            Statement::Begin | Statement::Commit | Statement::Rollback | Statement::Select(_) => {}
        }
        Ok(writes)
    }

    /// The ids that a condition names; without one those in the table's set, as it is now.
    async fn ids(&mut self, keys: &Keys, rows: &Condition) -> Result<BTreeSet<i64>, Error> {
        if let Some(ids) = rows.ids() {
            return Ok(ids.iter().copied().collect());
        }
        let members = self.ask(&[keys.ids()], cmd("SMEMBERS").arg(keys.ids())).await?;
        members.array()?.map(number).collect()
    }

    async fn read(&mut self, keys: &Keys, ids: &BTreeSet<i64>) -> Result<Reply, Error> {
        let rows: Vec<String> = ids.iter().map(|id| keys.row(*id)).collect();
        if rows.is_empty() {
            return Ok(Reply::Rows(Vec::new()));
        }
        let values = self.ask(&rows, cmd("MGET").arg(&rows)).await?.array()?;
        let found = ids.iter().zip(values).filter(|(_, value)| *value != Answer::Nil);
        let texts = found.map(|(id, value)| Ok(vec![id.to_string(), value.string()?]));
        texts.collect::<Result<_, Error>>().map(Reply::Rows)
    }

    /// Sends a command that reads these keys; where they are to be watched, from before it.
    async fn ask(&mut self, keys: &[String], command: &Cmd) -> Result<Answer<'_>, Error> {
        let mut commands = pipe();
        if self.watches && self.transaction.is_some() {
            commands.cmd("WATCH").arg(keys);
            self.is_watching = true;
        }
        commands.add_command(command.clone());
        let mut answers = self.session.ask_all(&commands).await?.all()?.behind(commands.len() - 1);
        answers.reply()
    }

    async fn stop_watching(&mut self) -> Result<(), Error> {
        if mem::take(&mut self.is_watching) {
            self.session.ask(&cmd("UNWATCH")).await?;
        }
        Ok(())
    }

    /// Carries out writes between MULTI and EXEC, and tells how many rows they have changed.
    async fn send(&mut self, writes: &Writes) -> Result<Reply, Error> {
        let effect = match (writes.0.is_empty(), mem::take(&mut self.is_watching)) {
            (true, false) => return Ok(Reply::Done(None)),
            // what was read is of one moment only if nothing of it was changed until now: EXEC tells, even of no commands
            (true, true) => Request::Harmless,
            (false, _) => Request::Change,
        };
        Ok(match self.session.exec(&writes.pipeline(), effect).await {
            Ok(None) => Reply::Refused("EXEC returned nil: a watched key was changed".to_owned()),
            Ok(Some(answers)) => carried_out(writes, answers),
            Err(Attempt::Failed(fault)) if !fault.connection_lost => Reply::Failed(fault.message),
            Err(Attempt::Failed(fault) | Attempt::Unknown(fault)) => Reply::Unknown(fault.message),
            Err(other) => Reply::Unknown(format!("{other:?}")),
        })
    }
}

fn number(answer: Answer<'_>) -> Result<i64, Error> {
    answer.string()?.parse().map_err(|_| nonsense())
}

/// The reply to a transaction whose commands have these answers.
fn carried_out<'a>(writes: &Writes, answers: impl Iterator<Item = Answer<'a>>) -> Reply {
    let mut changed = 0;
    let mut taken = None;
    for ((_, effect), answer) in writes.0.iter().zip(answers) {
        match (effect, answer) {
            (Effect::Inserts(id), Answer::Nil) => taken = Some(id),
            (Effect::Keeps, _) | (Effect::Changes, Answer::Nil) | (Effect::Removes, Answer::Integer(0)) => {}
            _ => changed += 1,
        }
    }
    match taken {
        None => Reply::Done(Some(changed)),
        Some(id) if changed == 0 => Reply::Refused(format!("there is a row with id {id} already")),
        Some(id) => Reply::Failed(format!(
            "there is a row with id {id} already; EXEC has carried out the other commands, as Redis undoes nothing"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(statements: &[(&str, Effect)]) -> Writes {
        let mut writes = Writes::default();
        for (name, effect) in statements {
            writes.add(&cmd(name), *effect);
        }
        writes
    }

    #[test]
    fn rows_are_counted_by_the_answers() {
        let writes = statements(&[
            ("SET", Effect::Changes),
            ("SET", Effect::Changes),
            ("INCRBY", Effect::Changes),
            ("DEL", Effect::Removes),
            ("DEL", Effect::Removes),
            ("SREM", Effect::Keeps),
        ]);
        let ok = Answer::Status(b"OK");
        let one = Answer::Integer(1);
        let answers = [ok, Answer::Nil, Answer::Integer(0), one.clone(), Answer::Integer(0), one];
        assert_eq!(carried_out(&writes, answers.into_iter()), Reply::Done(Some(3)));
    }

    #[test]
    fn an_insert_of_what_is_there_is_refused_unless_others_were_carried_out() {
        let writes = statements(&[("SET", Effect::Inserts(3)), ("SADD", Effect::Keeps)]);
        let answers = [Answer::Nil, Answer::Integer(0)];
        let reply = carried_out(&writes, answers.into_iter());
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("id 3")), "{reply:?}");
        let writes = statements(&[("SET", Effect::Changes), ("SET", Effect::Inserts(3))]);
        let reply = carried_out(&writes, [Answer::Status(b"OK"), Answer::Nil].into_iter());
        assert!(matches!(&reply, Reply::Failed(why) if why.contains("undoes nothing")), "{reply:?}");
    }
}
