//! The queue on `InnoDB`: a table, whose consumers skip messages that others have locked.

use std::{collections::VecDeque, mem, time::Duration};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, Completion, Fault, Place,
    queue::{
        self, Ack, AckAnswer, Connector, Consume, Delivery, Depth, Message, MessageNumbers, Publisher,
        QueueAdapter, ReceivedMessage, Requirements, Subscriber,
    },
};
use mysql_async::{Error, prelude::Queryable};

use crate::{
    ConnectOptions, MariaDb,
    columns::{Columns, number},
    engine::Engine,
    fault::{self, SendState},
    load::drop_tables,
    object,
    protocol::{self, Connection, Statement},
    session::{Session, UnitOfWork},
};

const TRANSACTION: UnitOfWork = UnitOfWork::Transaction;

/// Consumers' isolation level: at it a search locks the rows that it finds, but not the gaps between, into which
/// producers insert.
const READ_COMMITTED: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Makes each transaction begin with its first statement, which saves the request that would begin it.
const NO_AUTOCOMMIT: &str = "SET autocommit=0";

/// Error 1146: there is no such table.
const ABSENT: u16 = 1146;

/// The reason why `InnoDB` cannot deliver messages in this way; `None` if it can.
pub(crate) fn refuses(delivery: &Delivery) -> Option<&'static str> {
    const ONE_BY_ONE: &str =
        "a connection has one statement at a time: --in-flight 1, or --ack transaction with a --batch";
    let several = delivery.producers > 0 && delivery.ack == Ack::Confirm && delivery.in_flight > 1;
    delivery.beyond_a_table().or(several.then_some(ONE_BY_ONE))
}

fn table(place: &Place) -> String {
    object(place, "queue")
}

impl QueueAdapter for MariaDb {
    type Connector = MariaDbConnector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> MariaDbConnector {
        MariaDbConnector { server: self.server.clone(), table: table(place), wanted: *wanted }
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        let columns = "id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, body LONGBLOB NOT NULL";
        let create = format!("CREATE TABLE {} ({columns}) ENGINE={}", table(place), Engine::InnoDb.name());
        Box::pin(self.on_server("making the queue", async move |conn| conn.query_drop(create).await))
    }

    /// Counts locked messages too: a message can be delivered as soon as its lock is given up.
    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        let count = format!("SELECT COUNT(*) FROM {}", table(place));
        Box::pin(self.on_server("counting the messages", async move |conn| {
            match conn.query_first(count).await {
                Ok(ready) => Ok(Depth { ready: ready.unwrap_or(0), unacknowledged: 0 }),
                // the table was lost with its server's data, and so there are no messages left
                Err(Error::Server(answer)) if answer.code == ABSENT => Ok(Depth::default()),
                Err(error) => Err(error),
            }
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(
            self.on_server("removing the queue", async move |conn| drop_tables(conn, &[table(place)]).await),
        )
    }

    /// A search that locks sees rows that are committed while it runs: it may pass over a message that is not
    /// committed yet, and then find the next one of the same producer.
    fn keeps_order(&self, _: &Requirements) -> bool {
        false
    }

    fn filling(&self, wanted: &Requirements) -> Requirements {
        wanted.in_transactions()
    }
}

/// Opens producers' and consumers' connections to one queue.
pub struct MariaDbConnector {
    server: ConnectOptions,
    table: String,
    wanted: Requirements,
}

impl Connector for MariaDbConnector {
    type Publisher = MariaDbPublisher;
    type Subscriber = MariaDbSubscriber;

    async fn publisher(&self) -> Result<MariaDbPublisher, String> {
        let Delivery { ack, batch, .. } = self.wanted.delivery;
        let together = ack == Ack::Transaction;
        let rows = if together { self.wanted.at_once(batch) as usize } else { 1 };
        let prepare = async |connection: &mut Connection| {
            if together {
                connection.query(NO_AUTOCOMMIT).await?;
            }
            connection.prepare(&insert(&self.table, rows)).await
        };
        let (session, insert) = Session::open(&self.server, prepare).await?;
        let (bodies, numbers) = (Vec::new(), MessageNumbers::default());
        let inserts = vec![(rows, insert)];
        Ok(MariaDbPublisher { session, table: self.table.clone(), inserts, together, bodies, numbers })
    }

    async fn subscriber(&self) -> Result<MariaDbSubscriber, String> {
        let table = &self.table;
        let prepare = async |connection: &mut Connection| {
            connection.query(READ_COMMITTED).await?;
            connection.query(NO_AUTOCOMMIT).await?;
            let lock = "WHERE id > ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED";
            let lock = connection.prepare(&format!("SELECT id, body FROM {table} {lock}")).await?;
            let delete_one = connection.prepare(&format!("DELETE FROM {table} WHERE id = ?")).await?;
            // with IN the server may read a small table in full, and wait for rows that others have locked
            let taken = "JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS taken";
            let delete =
                format!("DELETE {table} FROM {taken} STRAIGHT_JOIN {table} ON {table}.id = taken.id");
            Ok((lock, delete_one, connection.prepare(&delete).await?))
        };
        let (session, (lock, delete_one, delete)) = Session::open(&self.server, prepare).await?;
        Ok(MariaDbSubscriber {
            session,
            lock,
            delete_one,
            delete,
            wanted: self.wanted,
            ahead: VecDeque::new(),
            taken: Vec::new(),
            stopped: false,
        })
    }
}

/// An INSERT of `rows` messages.
fn insert(table: &str, rows: usize) -> String {
    format!("INSERT INTO {table} (body) VALUES (?){}", ", (?)".repeat(rows.saturating_sub(1)))
}

/// A producer's connection. It keeps messages until they are settled.
pub struct MariaDbPublisher {
    session: Session,
    table: String,
    /// Inserts of so many messages: of as many as one statement has room for, and, as far as they were needed, of what is left
    /// at the end of a large batch or of a trial.
    inserts: Vec<(usize, Statement)>,
    /// Whether the messages settled at once form one transaction.
    together: bool,
    bodies: Vec<Vec<u8>>,
    numbers: MessageNumbers,
}

impl Publisher for MariaDbPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.bodies.push(message.body.clone());
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let bodies = mem::take(&mut self.bodies);
        let sent = bodies.len();
        let done = if self.together {
            let inserted = self.insert(&bodies, SendState::Nothing).await.map(|()| Attempt::Ok);
            self.session.end(&TRANSACTION, inserted).await
        } else {
            // singly: no more than one message is in flight
            self.insert(&bodies, SendState::Write).await.map(|()| Attempt::Ok)
        };
        self.numbers.end(sent, done.unwrap_or_else(|trouble| trouble), ended)
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

impl MariaDbPublisher {
    /// Inserts messages in as few statements as have room for them.
    async fn insert(&mut self, bodies: &[Vec<u8>], sent: SendState) -> Result<(), Attempt> {
        let rows = self.inserts.first().map_or(1, |(rows, _)| *rows);
        for bodies in bodies.chunks(rows) {
            let insert = self.insert_of(bodies.len()).await?;
            self.session.run(insert, bodies.iter().map(|body| body.as_slice().into()), sent).await?;
        }
        Ok(())
    }

    async fn insert_of(&mut self, rows: usize) -> Result<Statement, Attempt> {
        if let Some((_, insert)) = self.inserts.iter().find(|(known, _)| *known == rows) {
            return Ok(*insert);
        }
        let prepared = self.session.connection().prepare(&insert(&self.table, rows)).await;
        let prepared = prepared.map_err(|error| fault::attempt(&error, SendState::Nothing))?;
        self.inserts.push((rows, prepared));
        Ok(prepared)
    }
}

/// A consumer's connection. It is in a transaction whenever it has asked for messages.
pub struct MariaDbSubscriber {
    session: Session,
    lock: Statement,
    delete_one: Statement,
    /// Deletes the messages whose ids are in a JSON array.
    delete: Statement,
    wanted: Requirements,
    /// Messages that were locked and not taken, in the order of their ids.
    ahead: VecDeque<Locked>,
    /// Ids of the messages that were taken, to be deleted when they are acknowledged.
    taken: Vec<u64>,
    stopped: bool,
}

struct Locked {
    id: Result<u64, String>,
    /// Empty where it is none.
    body: Vec<u8>,
}

impl Locked {
    fn read(row: &protocol::Row<'_>) -> Self {
        Self { id: number(row, 0), body: row.bytes(1).to_vec() }
    }
}

impl Subscriber for MariaDbSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        if self.stopped {
            return Attempt::Refused;
        }
        received.redelivered = None;
        let auto = self.wanted.delivery.consume == Consume::Auto;
        queue::poll(patience, async || match self.take_one(received).await {
            // no single statement deletes a message, returns it and skips messages that others have locked
            Ok(true) if auto => {
                self.delete().await.map_or_else(|trouble| Attempt::Unknown(lost(trouble)), |()| Attempt::Ok)
            }
            Ok(true) => Attempt::Ok,
            Ok(false) => Attempt::Refused,
            Err(trouble) => self.failed(trouble).await,
        })
        .await
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        if !self.taken.is_empty() {
            self.delete().await?;
        }
        Ok(AckAnswer::Answered)
    }

    /// Gives back messages that were locked and not taken, so that other consumers can take them.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        self.forget();
        match self.session.give_up(&TRANSACTION, Attempt::Ok).await {
            Attempt::Ok => Ok(()),
            trouble => Err(lost(trouble)),
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

impl MariaDbSubscriber {
    async fn take_one(&mut self, received: &mut ReceivedMessage) -> Result<bool, Attempt> {
        if self.ahead.is_empty() {
            self.lock().await?;
        }
        let Some(Locked { id, body }) = self.ahead.pop_front() else { return Ok(false) };
        self.taken.push(id.map_err(|words| Attempt::Failed(Fault::lost(words)))?);
        // a value that cannot be read still counts as a message
        received.body = body;
        Ok(true)
    }

    /// Locks as many messages as are acknowledged at once, from behind those already held.
    async fn lock(&mut self) -> Result<(), Attempt> {
        let Delivery { consume, batch, .. } = self.wanted.delivery;
        let due = match consume {
            Consume::Auto => 1,
            Consume::Ack | Consume::Transaction => {
                let held = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
                batch.saturating_sub(held).max(1)
            }
        };
        // every id is above 0; messages below the last one that are committed late wait for the next transaction
        let last = self.taken.last().copied().unwrap_or(0);
        let values = [last.into(), self.wanted.at_once(due).into()];
        let locked = self.session.read(self.lock, values).await?;
        self.ahead.extend(locked.iter().map(|row| Locked::read(&row)));
        Ok(())
    }

    /// Deletes the messages that were taken, and gives back those that were not.
    async fn delete(&mut self) -> Result<(), Attempt> {
        let taken = mem::take(&mut self.taken);
        self.forget();
        let deleted = match taken.as_slice() {
            [id] => self.session.run(self.delete_one, [(*id).into()], SendState::Nothing).await,
            ids => {
                let ids = format!("{ids:?}");
                self.session.run(self.delete, [ids.as_str().into()], SendState::Nothing).await
            }
        };
        let done = deleted.map(|deleted| deleted.count()).and_then(|deleted| {
            let all = deleted == taken.len() as u64;
            let odd = || Fault::lost(format!("{deleted} of {} messages were there", taken.len()));
            if all { Ok(Attempt::Ok) } else { Err(Attempt::Failed(odd())) }
        });
        match self.session.end(&TRANSACTION, done).await {
            Ok(Attempt::Ok) => Ok(()),
            Ok(trouble) | Err(trouble) => Err(trouble),
        }
    }

    /// An error ends the transaction, and messages taken in it will be delivered again. Only a new connection
    /// tells that to the client, so where messages were held the error is made one that costs the connection.
    async fn failed(&mut self, trouble: Attempt) -> Attempt {
        let held = !self.taken.is_empty();
        self.forget();
        let outcome = self.session.give_up(&TRANSACTION, trouble).await;
        if held { Attempt::Failed(lost(outcome)) } else { outcome }
    }

    fn forget(&mut self) {
        self.ahead.clear();
        self.taken.clear();
    }
}

/// The fault with which a consumer loses the messages that it held, and with them its connection.
fn lost(trouble: Attempt) -> Fault {
    match trouble {
        Attempt::Failed(fault) | Attempt::Unknown(fault) => Fault::lost(fault.message),
        Attempt::Ok | Attempt::Refused | Attempt::Conflict => {
            Fault::lost("rolled back in favour of another transaction")
        }
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{Private, queue, wait};
    use mysql_async::Conn;

    use super::*;
    use crate::Variant;

    /// A row that nobody published is for the audit to judge, and so must be taken.
    #[test]
    fn what_is_no_body_is_taken_as_a_message() {
        let Some(mut private) = Private::start("mariadb", Durability::None) else { return };
        let store = private.open(async |address| Variant::MARIADB.open(address).await);
        let spoil = async |place: &Place| {
            let table = table(place);
            let spoil = async |conn: &mut Conn| {
                conn.query_drop(format!("ALTER TABLE {table} MODIFY body BLOB NULL")).await?;
                conn.query_drop(format!("INSERT INTO {table} (body) VALUES (NULL)")).await
            };
            store.on_server("spoiling", spoil).await.unwrap();
        };
        wait(queue::what_is_no_body_is_taken(&store, spoil));
    }
}
