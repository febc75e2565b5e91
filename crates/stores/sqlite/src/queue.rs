//! The queue on SQLite: a table, which one consumer has to itself from taking to acknowledging.

use std::{collections::VecDeque, mem, time::Duration};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, Completion, Fault, Place,
    queue::{
        self, Ack, AckAnswer, Connector, Consume, Depth, Message, MessageNumbers, Publisher, QueueAdapter,
        ReceivedMessage, Requirements, Subscriber,
    },
};
use rusqlite::{Connection, Row, params};

use crate::{
    File, Sqlite, attempt, named,
    transaction::{IMMEDIATE, OperationResult, begin, end, roll_back},
};

/// The name of the queue among the trial's objects.
const QUEUE: &str = "queue";

impl QueueAdapter for Sqlite {
    type Connector = SqliteConnector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> SqliteConnector {
        SqliteConnector { file: self.file.clone(), table: named(place, QUEUE), wanted: *wanted }
    }

    /// A new id is one above the highest that is there. So ids ascend without AUTOINCREMENT, whose own table
    /// cannot be removed.
    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let columns = "id INTEGER PRIMARY KEY, body BLOB NOT NULL";
            let create = format!("CREATE TABLE {} ({columns})", named(place, QUEUE));
            self.on_file("making the queue", |connection| connection.execute_batch(&create))
        })
    }

    /// Counts messages that a consumer holds too: they can be delivered if it does not delete them.
    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async move {
            let count = format!("SELECT count(*) FROM {}", named(place, QUEUE));
            self.on_file("counting the messages", |connection| {
                let ready: i64 = connection.query_row(&count, [], |row| row.get(0))?;
                Ok(Depth { ready: ready.unsigned_abs(), unacknowledged: 0 })
            })
        })
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move { self.drop_tables("removing the queue", place, &[QUEUE]) })
    }

    /// Messages that a consumer gives back were its alone, so nobody has taken any behind them.
    fn keeps_order(&self, _: &Requirements) -> bool {
        true
    }

    fn filling(&self, wanted: &Requirements) -> Requirements {
        wanted.in_transactions()
    }
}

/// Opens producers' and consumers' connections to one queue.
pub struct SqliteConnector {
    file: File,
    table: String,
    wanted: Requirements,
}

impl Connector for SqliteConnector {
    type Publisher = SqlitePublisher;
    type Subscriber = SqliteSubscriber;

    async fn publisher(&self) -> Result<SqlitePublisher, String> {
        Ok(SqlitePublisher {
            connection: self.file.connect().map_err(|error| error.to_string())?,
            insert: format!("INSERT INTO {} (body) VALUES (?1)", self.table),
            together: self.wanted.delivery.ack == Ack::Transaction,
            bodies: Vec::new(),
            numbers: MessageNumbers::default(),
        })
    }

    async fn subscriber(&self) -> Result<SqliteSubscriber, String> {
        let table = &self.table;
        let first = format!("SELECT id FROM {table} ORDER BY id LIMIT 1");
        Ok(SqliteSubscriber {
            connection: self.file.connect().map_err(|error| error.to_string())?,
            sql: Statements {
                any: format!("SELECT EXISTS (SELECT 1 FROM {table})"),
                read: format!("SELECT id, body FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?2"),
                delete: format!("DELETE FROM {table} WHERE id = ?1"),
                take: format!("DELETE FROM {table} WHERE id = ({first}) RETURNING body"),
            },
            wanted: self.wanted,
            ahead: VecDeque::new(),
            taken: Vec::new(),
            stopped: false,
        })
    }
}

/// A producer's connection. It keeps messages until they are settled.
pub struct SqlitePublisher {
    connection: Connection,
    insert: String,
    /// Whether the messages settled at once form one transaction.
    together: bool,
    bodies: Vec<Vec<u8>>,
    numbers: MessageNumbers,
}

impl Publisher for SqlitePublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.bodies.push(message.body.clone());
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let bodies = mem::take(&mut self.bodies);
        if self.together {
            let done = self.insert_all(&bodies).unwrap_or_else(|error| attempt(&error));
            return self.numbers.end(bodies.len(), done, ended);
        }
        for body in bodies {
            let done = self.insert(&body).map_or_else(|error| attempt(&error), |()| Attempt::Ok);
            self.numbers.end(1, done, ended)?;
        }
        Ok(())
    }
}

impl SqlitePublisher {
    fn insert(&self, body: &[u8]) -> rusqlite::Result<()> {
        self.connection.prepare_cached(&self.insert)?.execute([body]).map(drop)
    }

    fn insert_all(&self, bodies: &[Vec<u8>]) -> OperationResult {
        begin(&self.connection, IMMEDIATE)?;
        let done = bodies.iter().try_for_each(|body| self.insert(body));
        end(&self.connection, done.map(|()| Attempt::Ok))
    }
}

/// The bytes of a text or blob; empty for a value of another type.
fn body<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a [u8]> {
    Ok(row.get_ref(column)?.as_bytes().unwrap_or_default())
}

struct Statements {
    /// Whether there is any message.
    any: String,
    /// Reads the next messages behind an id.
    read: String,
    delete: String,
    /// Deletes the first message and returns it.
    take: String,
}

/// A consumer's connection, in a transaction while it holds messages.
pub struct SqliteSubscriber {
    connection: Connection,
    sql: Statements,
    wanted: Requirements,
    /// Messages that were read in the transaction and not taken, in the order of their ids.
    ahead: VecDeque<(i64, Vec<u8>)>,
    /// Ids of the messages that were taken, to be deleted when they are acknowledged.
    taken: Vec<i64>,
    stopped: bool,
}

impl Subscriber for SqliteSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        if self.stopped {
            return Attempt::Refused;
        }
        received.redelivered = None;
        // waiting would be in vain: nobody can publish before the messages held are acknowledged
        let patience = if self.taken.is_empty() { patience } else { Duration::ZERO };
        queue::poll(patience, async || self.try_to_take(received)).await
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        if self.taken.is_empty() {
            return Ok(AckAnswer::Answered);
        }
        let taken = mem::take(&mut self.taken);
        self.ahead.clear();
        let deleted = self.delete(&taken);
        match end(&self.connection, deleted) {
            Ok(Attempt::Ok) => Ok(AckAnswer::Answered),
            Ok(_) => Err(Attempt::Failed(Fault::lost("a message that was taken no longer existed"))),
            Err(error) => Err(attempt(&error)),
        }
    }

    /// Ends the transaction, so that other consumers can take the messages that were not taken.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        self.give_back().map_err(|error| Fault::lost(error.to_string()))
    }
}

impl SqliteSubscriber {
    fn try_to_take(&mut self, received: &mut ReceivedMessage) -> Attempt {
        // ask first, since even a futile transaction to write keeps all others from writing
        let taken = match self.any() {
            Ok(false) => return Attempt::Refused,
            Ok(true) if self.wanted.delivery.consume == Consume::Auto => self.remove_one(received),
            Ok(true) => self.take_one(received),
            Err(error) => Err(error),
        };
        taken.unwrap_or_else(|error| self.failed(&error))
    }

    /// Whether to look for a message in a transaction.
    fn any(&self) -> rusqlite::Result<bool> {
        let holds = !self.connection.is_autocommit();
        Ok(holds || self.connection.prepare_cached(&self.sql.any)?.query_row([], |row| row.get(0))?)
    }

    fn remove_one(&self, received: &mut ReceivedMessage) -> OperationResult {
        let mut statement = self.connection.prepare_cached(&self.sql.take)?;
        let mut rows = statement.query([])?;
        let mut taken = Attempt::Refused;
        // to the end of the rows, where the statement commits
        while let Some(row) = rows.next()? {
            received.body.clear();
            received.body.extend_from_slice(body(row, 0)?);
            taken = Attempt::Ok;
        }
        Ok(taken)
    }

    fn take_one(&mut self, received: &mut ReceivedMessage) -> OperationResult {
        if self.ahead.is_empty() {
            self.read()?;
        }
        let Some((id, body)) = self.ahead.pop_front() else {
            // another consumer took the message first
            if self.taken.is_empty() {
                self.give_back()?;
            }
            return Ok(Attempt::Refused);
        };
        self.taken.push(id);
        received.body = body;
        Ok(Attempt::Ok)
    }

    /// Reads as many messages as are acknowledged at once, from behind those already held.
    fn read(&mut self) -> rusqlite::Result<()> {
        if self.connection.is_autocommit() {
            begin(&self.connection, IMMEDIATE)?;
        }
        // every id is above 0
        let last = self.taken.last().copied().unwrap_or(0);
        let held = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let due = self.wanted.delivery.batch.saturating_sub(held).max(1);
        let mut statement = self.connection.prepare_cached(&self.sql.read)?;
        let message = |row: &Row| Ok((row.get(0)?, body(row, 1)?.to_vec()));
        for message in statement.query_map(params![last, self.wanted.at_once(due)], message)? {
            self.ahead.push_back(message?);
        }
        Ok(())
    }

    /// Deletes the messages that were taken; refused if one is no longer there.
    fn delete(&self, taken: &[i64]) -> OperationResult {
        let mut delete = self.connection.prepare_cached(&self.sql.delete)?;
        for id in taken {
            if delete.execute([id])? != 1 {
                return Ok(Attempt::Refused);
            }
        }
        Ok(Attempt::Ok)
    }

    /// An error ends the transaction, and messages taken in it will be delivered again. Only a new connection
    /// tells that to the client, so where messages were held the error is made one that costs the connection.
    fn failed(&mut self, error: &rusqlite::Error) -> Attempt {
        let held = !self.taken.is_empty();
        if let Err(worse) = self.give_back() {
            return Attempt::Failed(Fault::lost(worse.to_string()));
        }
        if held { Attempt::Failed(Fault::lost(error.to_string())) } else { attempt(error) }
    }

    fn give_back(&mut self) -> rusqlite::Result<()> {
        self.ahead.clear();
        self.taken.clear();
        roll_back(&self.connection)
    }
}

#[cfg(test)]
mod tests {
    use acidtest_testbed::{NAMESPACE, wait};
    use acidtest_workloads::queue::Parameters;

    use super::*;
    use crate::opened;

    /// A row that nobody published is for the audit to judge, and so must be taken.
    #[test]
    fn what_is_no_body_is_taken_as_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder);
        for (trial, consume) in (0..).zip([Consume::Auto, Consume::Ack]) {
            let parameters = Parameters { consume, ..Parameters::default() };
            let wanted =
                Requirements { delivery: parameters.delivery(), message_bytes: parameters.message_bytes };
            let place = Place { namespace: NAMESPACE.to_owned(), trial };
            let bodies = [("x'61'", &b"a"[..]), ("'text'", b"text"), ("7", b""), ("1.5", b"")];
            wait(async {
                store.declare(&place, &wanted).await.unwrap();
                let values = bodies.map(|(body, _)| format!("({body})")).join(", ");
                let insert = format!("INSERT INTO {} (body) VALUES {values}", named(&place, QUEUE));
                store.on_file("publishing", |connection| connection.execute_batch(&insert)).unwrap();
                let mut subscriber = store.connector(&place, &wanted).subscriber().await.unwrap();
                for (_, body) in bodies {
                    let mut received = ReceivedMessage::default();
                    assert_eq!(subscriber.take(Duration::ZERO, &mut received).await, Attempt::Ok);
                    assert_eq!(received.body, body, "{consume:?}");
                    assert_eq!(subscriber.settle().await, Ok(AckAnswer::Answered));
                }
                assert_eq!(store.depth(&place, &wanted).await.unwrap(), Depth::default());
            });
        }
    }
}
