//! The queue on PostgreSQL: a table, whose consumers skip messages that others have locked.

use std::{collections::VecDeque, mem, ops::Range, time::Duration};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, Completion, Fault, Place,
    queue::{
        self, Ack, AckAnswer, Connector, Consume, Delivery, Depth, Message, MessageNumbers, Publisher,
        QueueAdapter, ReceivedMessage, Requirements, Subscriber,
    },
};
use tokio_postgres::error::SqlState;

use crate::{
    ConnectOptions, Postgres, Value,
    fault::{self, SendState},
    protocol::{Connection, Row, Statement},
    quoted,
    records::BY_KEY,
    session::{Part, Session, may_have_changed},
};

/// The quoted name of the trial's table, with its schema.
fn table(place: &Place) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object("queue")))
}

impl QueueAdapter for Postgres {
    type Connector = PostgresConnector;

    fn connector(&self, place: &Place, wanted: &Requirements) -> PostgresConnector {
        PostgresConnector { server: self.server.clone(), table: table(place), wanted: *wanted }
    }

    fn declare<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("making the queue", async move |client| {
            let columns = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL";
            client.batch_execute(&format!("CREATE TABLE {} ({columns})", table(place))).await
        }))
    }

    /// Counts locked messages too: a message can be delivered as soon as its lock is given up.
    fn depth<'a>(&'a self, place: &'a Place, _: &'a Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(self.on_server("counting the messages", async move |client| {
            let count = format!("SELECT count(*) FROM {}", table(place));
            let ready: i64 = match client.query_one(&count, &[]).await {
                Ok(row) => row.try_get(0)?,
                // the table was lost with its server's data, and so there are no messages left
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => 0,
                Err(error) => return Err(error),
            };
            Ok(Depth { ready: ready.unsigned_abs(), unacknowledged: 0 })
        }))
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(self.on_server("removing the queue", async move |client| {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {}", table(place))).await
        }))
    }

    /// A message that one consumer gives back comes after messages that others have taken meanwhile. And a
    /// consumer that holds several looks for more only behind those: a message committed late with a lower id
    /// waits for its next transaction.
    fn keeps_order(&self, wanted: &Requirements) -> bool {
        let Delivery { consumers, consume, batch, .. } = wanted.delivery;
        consumers <= 1 && (batch == 1 || consume == Consume::Auto)
    }

    fn filling(&self, wanted: &Requirements) -> Requirements {
        wanted.in_transactions()
    }
}

/// Opens producers' and consumers' connections to one queue.
pub struct PostgresConnector {
    server: ConnectOptions,
    table: String,
    wanted: Requirements,
}

/// A consumer's transaction stays open while there is nothing to take, and must see messages committed meanwhile.
const READ_COMMITTED: &str = "SET default_transaction_isolation = 'read committed'";

impl Connector for PostgresConnector {
    type Publisher = PostgresPublisher;
    type Subscriber = PostgresSubscriber;

    async fn publisher(&self) -> Result<PostgresPublisher, String> {
        let table = &self.table;
        let sql = match self.wanted.delivery.ack {
            Ack::None | Ack::Confirm => format!("INSERT INTO {table} (body) VALUES ($1)"),
            Ack::Transaction => format!("INSERT INTO {table} (body) SELECT unnest($1::bytea[])"),
        };
        let (session, insert) =
            Session::open(&self.server, async |connection| connection.prepare(&sql).await).await?;
        let sent = match self.wanted.delivery.ack {
            Ack::None | Ack::Confirm => Sending::Each,
            Ack::Transaction => Sending::Together(Vec::new()),
        };
        Ok(PostgresPublisher { session, insert, sent, numbers: MessageNumbers::default() })
    }

    async fn subscriber(&self) -> Result<PostgresSubscriber, String> {
        let table = &self.table;
        let skipping = "FOR UPDATE SKIP LOCKED";
        let lock = format!("SELECT id, body FROM {table} WHERE id > $1 ORDER BY id LIMIT $2 {skipping}");
        let delete = format!("DELETE FROM {table} WHERE id = ANY ($1)");
        // compared with one value instead of looked up in a set, so that the subquery runs only once
        let first = format!("SELECT id FROM {table} ORDER BY id LIMIT 1 {skipping}");
        let take = format!("DELETE FROM {table} WHERE id = ({first}) RETURNING body");
        let prepare = async |connection: &mut Connection| {
            connection.command(&format!("{BY_KEY}; {READ_COMMITTED}")).await?;
            Ok(match self.wanted.delivery.consume {
                Consume::Auto => ConsumeStatements::AtOnce(connection.prepare(&take).await?),
                Consume::Ack | Consume::Transaction => {
                    let (lock, delete) =
                        (connection.prepare(&lock).await?, connection.prepare(&delete).await?);
                    ConsumeStatements::Locked(Box::new(Locked::new(lock, delete, self.wanted)))
                }
            })
        };
        let (session, taking) = Session::open(&self.server, prepare).await?;
        Ok(PostgresSubscriber { session, taking, stopped: false })
    }
}

/// A producer's connection, with the messages that have no outcome yet.
pub struct PostgresPublisher {
    session: Session,
    insert: Statement,
    sent: Sending,
    numbers: MessageNumbers,
}

/// How messages are sent.
enum Sending {
    /// One transaction for each message, several of which may be in flight.
    Each,
    /// Bodies of the messages of one transaction, sent when it is settled.
    Together(Vec<Vec<u8>>),
}

impl Publisher for PostgresPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        match &mut self.sent {
            Sending::Each => self.session.connection().add(self.insert, [Value::Bytes(&message.body)]),
            Sending::Together(bodies) => bodies.push(message.body.clone()),
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let Self { session, insert, sent, numbers } = self;
        match sent {
            Sending::Each => {
                let mut settled = Ok(());
                let each = |answer: Result<u64, _>| {
                    let outcome = answer
                        .map_or_else(|error| fault::attempt(&error, SendState::Commit), |_| Attempt::Ok);
                    // the others have their answers, whatever became of one
                    let one = numbers.end(1, outcome, ended);
                    if settled.is_ok() {
                        settled = one;
                    }
                };
                session.connection().answered(each).await;
                settled
            }
            Sending::Together(bodies) => {
                let bodies = mem::take(bodies);
                let done = insert_all(session, *insert, &bodies).await;
                numbers.end(bodies.len(), done.map_or_else(|trouble| trouble, |()| Attempt::Ok), ended)
            }
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// Inserts messages in one transaction; BEGIN, INSERT and COMMIT are sent at once.
async fn insert_all(session: &mut Session, insert: Statement, bodies: &[Vec<u8>]) -> Result<(), Attempt> {
    let answered =
        session.part(Part::Whole, |pipeline| pipeline.run(insert, [Value::Other(&bodies)])).await?;
    let came = answered.came().get(0);
    answered.begun(may_have_changed(came))?;
    came.map_err(|error| fault::attempt(error, answered.sent()))?;
    answered.committed()
}

/// A consumer's connection, in a transaction while it holds messages that it must acknowledge.
pub struct PostgresSubscriber {
    session: Session,
    taking: ConsumeStatements,
    stopped: bool,
}

/// The statements by which a consumer takes messages.
enum ConsumeStatements {
    /// A statement that deletes a message and returns it.
    AtOnce(Statement),
    /// A transaction that locks messages first and deletes them when they are acknowledged.
    Locked(Box<Locked>),
}

impl Subscriber for PostgresSubscriber {
    async fn take(&mut self, patience: Duration, received: &mut ReceivedMessage) -> Attempt {
        let Self { session, taking, stopped } = self;
        if *stopped {
            return Attempt::Refused;
        }
        received.redelivered = None;
        queue::poll(patience, async || match taking {
            ConsumeStatements::AtOnce(take) => remove_one(session, *take, received).await,
            ConsumeStatements::Locked(locked) => locked.take(session, received).await,
        })
        .await
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        match &mut self.taking {
            ConsumeStatements::AtOnce(_) => Ok(AckAnswer::Answered),
            ConsumeStatements::Locked(locked) => locked.settle(&mut self.session).await,
        }
    }

    /// Gives back messages that were locked and not taken, so that other consumers can take them.
    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        match &mut self.taking {
            ConsumeStatements::Locked(locked) if locked.open => locked.give_back(&mut self.session).await,
            _ => Ok(()),
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        self.session.check().await
    }
}

/// Takes and deletes a message in one statement: it is lost if the consumer fails.
async fn remove_one(session: &mut Session, take: Statement, received: &mut ReceivedMessage) -> Attempt {
    match session.run(take, [], SendState::Commit).await {
        Ok(rows) => match rows.first() {
            Some(row) => {
                received.body.clear();
                received.body.extend_from_slice(body(&row, 0));
                Attempt::Ok
            }
            None => Attempt::Refused,
        },
        Err(trouble) => trouble,
    }
}

/// A message's body. A value that cannot be read still counts as a message, with an empty body.
fn body<'a>(row: &Row<'a>, column: usize) -> &'a [u8] {
    row.get(column).unwrap_or_default()
}

/// A consumer's transaction, and the messages that it has locked.
struct Locked {
    lock: Statement,
    delete: Statement,
    wanted: Requirements,
    open: bool,
    /// Messages that were locked and not taken, in the order of their ids: the id, and the place of the body in `bodies`.
    ahead: VecDeque<(i64, Range<usize>)>,
    bodies: Vec<u8>,
    /// Ids of the messages that were taken, to be deleted when they are acknowledged.
    taken: Vec<i64>,
}

impl Locked {
    fn new(lock: Statement, delete: Statement, wanted: Requirements) -> Self {
        Self {
            lock,
            delete,
            wanted,
            open: false,
            ahead: VecDeque::new(),
            bodies: Vec::new(),
            taken: Vec::new(),
        }
    }

    async fn take(&mut self, session: &mut Session, received: &mut ReceivedMessage) -> Attempt {
        if self.ahead.is_empty()
            && let Err(trouble) = self.lock(session).await
        {
            return self.failed(session, trouble).await;
        }
        let Some((id, place)) = self.ahead.pop_front() else { return Attempt::Refused };
        received.body.clear();
        received.body.extend_from_slice(self.bodies.get(place).unwrap_or_default());
        self.taken.push(id);
        Attempt::Ok
    }

    /// Locks as many messages as are acknowledged at once, from behind those already held.
    async fn lock(&mut self, session: &mut Session) -> Result<(), Attempt> {
        // every id is above 0; messages below the last one that are committed late wait for the next transaction
        let last = self.taken.last().copied().unwrap_or(0);
        let held = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let due = self.wanted.delivery.batch.saturating_sub(held).max(1);
        let most = i64::from(self.wanted.at_once(due));
        let lock = self.lock;
        let answered = session.part(Part::of(!self.open, false), |pipeline| {
            pipeline.run(lock, [Value::Number(last), Value::Number(most)])
        });
        let answered = answered.await?;
        answered.begun(false)?;
        self.open = true;
        let rows = answered.came().get(0).map_err(|error| fault::attempt(error, SendState::Nothing))?;
        self.bodies.clear();
        for row in rows {
            let id = row.get(0).map_err(|words| fault::lost(SendState::Nothing, words))?;
            let start = self.bodies.len();
            self.bodies.extend_from_slice(body(&row, 1));
            self.ahead.push_back((id, start..self.bodies.len()));
        }
        Ok(())
    }

    /// An error ends the transaction, and messages taken in it will be delivered again. Only a new connection
    /// tells that to the client, so where messages were held the error is made one that costs the connection.
    async fn failed(&mut self, session: &mut Session, trouble: Attempt) -> Attempt {
        let held = !self.taken.is_empty();
        self.forget();
        match session.roll_back(trouble).await {
            Attempt::Conflict if held => {
                Attempt::Failed(Fault::lost("rolled back in favour of another transaction"))
            }
            Attempt::Failed(fault) if held => Attempt::Failed(Fault::lost(fault.message)),
            outcome => outcome,
        }
    }

    /// Deletes the messages that were taken, and gives back those that were not.
    async fn settle(&mut self, session: &mut Session) -> Result<AckAnswer, Attempt> {
        if self.taken.is_empty() {
            return Ok(AckAnswer::Answered);
        }
        let taken = mem::take(&mut self.taken);
        let delete = self.delete;
        let answered = session.part(Part::Last, |pipeline| pipeline.run(delete, [Value::Other(&taken)]));
        let deleted = match answered.await {
            Ok(answered) => match answered.came().get(0) {
                Ok(rows) => answered.committed().map(|()| rows.count()),
                Err(error) => Err(fault::lost(SendState::Nothing, error.to_string())),
            },
            Err(trouble) => Err(trouble),
        };
        self.forget();
        let deleted = deleted?;
        if deleted == taken.len() as u64 {
            return Ok(AckAnswer::Answered);
        }
        // those that were there are deleted, and nobody knows which
        Err(Attempt::Unknown(Fault::lost(format!("{deleted} of {} messages were there", taken.len()))))
    }

    async fn give_back(&mut self, session: &mut Session) -> Result<(), Fault> {
        self.forget();
        match session.roll_back(Attempt::Ok).await {
            Attempt::Failed(fault) | Attempt::Unknown(fault) => Err(fault),
            _ => Ok(()),
        }
    }

    fn forget(&mut self) {
        self.open = false;
        self.ahead.clear();
        self.bodies.clear();
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{Private, queue, wait};
    use tokio_postgres::Client;

    use super::*;
    use crate::{
        protocol::tests::{BYTEA, changed, changed_alone},
        session::tests::{failed, with_session},
    };

    /// Whoever cannot say how one message ended has acknowledged the others all the same.
    #[test]
    fn each_of_several_messages_ends_as_it_was_answered() {
        for open in [failed("ERROR", "40003"), changed_alone("01000")] {
            let answers = [changed(), open, changed()].concat();
            with_session(BYTEA, &[answers], async |session, insert| {
                let numbers = MessageNumbers::default();
                let mut publisher = PostgresPublisher { session, insert, sent: Sending::Each, numbers };
                for id in 0..3 {
                    let message = Message { body: vec![id] };
                    publisher.send(&message).await.unwrap();
                }
                let mut ended = Vec::new();
                let mut settled = Ok(());
                while settled.is_ok() && ended.len() < 2 {
                    settled = publisher.settle(&mut ended).await;
                }
                assert!(settled.is_err());
                assert_eq!(ended, [0, 2].map(|number| Completion { number, attempt: Attempt::Ok }));
            });
        }
    }

    /// A row that nobody published is for the audit to judge, and so must be taken.
    #[test]
    fn what_is_no_body_is_taken_as_a_message() {
        let Some(mut private) = Private::start("postgres", Durability::None) else { return };
        let store = private.open(Postgres::open);
        let spoil = async |place: &Place| {
            let table = table(place);
            let sql = format!(
                "ALTER TABLE {table} ALTER body DROP NOT NULL; INSERT INTO {table} (body) VALUES (NULL)"
            );
            store
                .on_server("spoiling", async |client: &Client| client.batch_execute(&sql).await)
                .await
                .unwrap();
        };
        wait(queue::what_is_no_body_is_taken(&store, spoil));
    }
}
