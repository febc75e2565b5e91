//! The queue on PostgreSQL: a table, whose consumers skip messages that others have locked.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    task::Poll,
    time::Duration,
};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, Completion, Fault, Place,
    queue::{
        self, Ack, AckAnswer, Connector, Consume, Delivery, Depth, Message, MessageNumbers, Publisher,
        QueueAdapter, ReceivedMessage, Requirements, Subscriber,
    },
};
use futures_util::future::{MaybeDone, maybe_done};
use tokio_postgres::{Client, Error, Row, Statement, error::SqlState};

use crate::{
    ConnectOptions, Postgres,
    fault::SendState,
    quoted,
    records::BY_KEY,
    session::{Answered, Part, Session, may_have_changed},
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
            Session::open(&self.server, async |client| client.prepare(&sql).await).await?;
        let sent = match self.wanted.delivery.ack {
            Ack::None | Ack::Confirm => Sending::Each(Requests::default()),
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
        let prepare = async |client: &Client| {
            client.batch_execute(&format!("{BY_KEY}; {READ_COMMITTED}")).await?;
            Ok(match self.wanted.delivery.consume {
                Consume::Auto => ConsumeStatements::AtOnce(client.prepare(&take).await?),
                Consume::Ack | Consume::Transaction => {
                    let (lock, delete) = (client.prepare(&lock).await?, client.prepare(&delete).await?);
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

/// Messages that were sent and whose outcome is not known yet.
enum Sending {
    /// One transaction for each message.
    Each(Requests),
    /// Bodies of the messages of one transaction, sent when it is settled.
    Together(Vec<Vec<u8>>),
}

impl Publisher for PostgresPublisher {
    async fn send(&mut self, message: &Message) -> Result<(), Fault> {
        let body = message.body.clone();
        match &mut self.sent {
            Sending::Each(requests) => {
                let (client, insert) = (self.session.client(), self.insert.clone());
                requests.add(async move { client.execute_raw(&insert, [body]).await });
            }
            Sending::Together(bodies) => bodies.push(body),
        }
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        let Self { session, insert, sent, numbers } = self;
        match sent {
            Sending::Each(requests) => {
                if requests.written == 0
                    && let Err(lost) = session.ready().await
                {
                    return numbers.end(requests.waiting.len(), lost, ended);
                }
                for answer in session.ask(async |_| requests.answers().await).await {
                    numbers.end(1, inserted(session, answer), ended)?;
                }
                Ok(())
            }
            Sending::Together(bodies) => {
                let bodies = mem::take(bodies);
                let done = insert_all(session, insert, &bodies).await;
                numbers.end(bodies.len(), done.map_or_else(|trouble| trouble, |()| Attempt::Ok), ended)
            }
        }
    }
}

fn inserted(session: &Session, answer: Inserted) -> Attempt {
    answer.map_or_else(|error| session.failed(&error, SendState::Commit), |_| Attempt::Ok)
}

/// Inserts messages in one transaction; BEGIN, INSERT and COMMIT are sent at once.
async fn insert_all(session: &mut Session, insert: &Statement, bodies: &[Vec<u8>]) -> Result<(), Attempt> {
    session.ready().await?;
    let run = async |client: &Client| client.execute(insert, &[&bodies]).await;
    let Answered { begun, came, committed } = session.part(Part::Whole, run).await;
    session.begun(begun, may_have_changed(came.as_ref().copied()))?;
    came.map_err(|error| session.failed(&error, Part::Whole.sent(&error)))?;
    session.committed(committed)
}

type Inserted = Result<u64, Error>;

/// Requests that are answered in their order, several of which may be in flight.
#[derive(Default)]
struct Requests {
    /// Requests without an answer, oldest first.
    waiting: VecDeque<MaybeDone<Pin<Box<dyn Future<Output = Inserted>>>>>,
    /// How many of them have been written to the socket: a request is written when it is first polled.
    written: usize,
}

impl Requests {
    fn add(&mut self, request: impl Future<Output = Inserted> + 'static) {
        self.waiting.push_back(maybe_done(Box::pin(request)));
    }

    /// Writes requests not written yet, then waits for one answer and returns all that have arrived. May be
    /// dropped while it waits.
    async fn answers(&mut self) -> Vec<Inserted> {
        let mut answers = Vec::new();
        poll_fn(|context| {
            for request in self.waiting.iter_mut().skip(self.written) {
                let _ = Pin::new(request).poll(context);
            }
            self.written = self.waiting.len();
            while let Some(oldest) = self.waiting.front_mut()
                && Pin::new(&mut *oldest).poll(context).is_ready()
            {
                answers.extend(Pin::new(oldest).take_output());
                self.waiting.pop_front();
            }
            let nothing = answers.is_empty() && !self.waiting.is_empty();
            self.written = self.waiting.len();
            if nothing { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        answers
    }
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
            ConsumeStatements::AtOnce(take) => remove_one(session, take, received).await,
            ConsumeStatements::Locked(locked) => locked.take(session, received).await,
        })
        .await
    }

    async fn settle(&mut self) -> Result<AckAnswer, Fault> {
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
}

/// Takes and deletes a message in one statement: it is lost if the consumer fails.
async fn remove_one(session: &mut Session, take: &Statement, received: &mut ReceivedMessage) -> Attempt {
    if let Err(lost) = session.ready().await {
        return lost;
    }
    let taken = session.ask(async |client| client.query(take, &[]).await).await;
    match taken.map(|rows| rows.first().map(|row| read(row, 0, received))) {
        Ok(Some(())) => Attempt::Ok,
        Ok(None) => Attempt::Refused,
        Err(error) => session.failed(&error, SendState::Commit),
    }
}

/// Takes a message's body. A value that cannot be read still counts as a message, with an empty body.
fn read(row: &Row, column: usize, received: &mut ReceivedMessage) {
    received.body.clear();
    received.body.extend_from_slice(row.try_get(column).unwrap_or_default());
}

/// A consumer's transaction, and the messages that it has locked.
struct Locked {
    lock: Statement,
    delete: Statement,
    wanted: Requirements,
    open: bool,
    /// Messages that were locked and not taken, in the order of their ids.
    ahead: VecDeque<Row>,
    /// Ids of the messages that were taken, to be deleted when they are acknowledged.
    taken: Vec<i64>,
}

impl Locked {
    fn new(lock: Statement, delete: Statement, wanted: Requirements) -> Self {
        Self { lock, delete, wanted, open: false, ahead: VecDeque::new(), taken: Vec::new() }
    }

    async fn take(&mut self, session: &mut Session, received: &mut ReceivedMessage) -> Attempt {
        if self.ahead.is_empty()
            && let Err(trouble) = self.lock(session).await
        {
            return self.failed(session, trouble).await;
        }
        let Some(row) = self.ahead.pop_front() else { return Attempt::Refused };
        match row.try_get(0) {
            Ok(id) => {
                read(&row, 1, received);
                self.taken.push(id);
                Attempt::Ok
            }
            Err(error) => {
                let trouble = session.failed(&error, SendState::Nothing);
                self.failed(session, trouble).await
            }
        }
    }

    /// Locks as many messages as are acknowledged at once, from behind those already held.
    async fn lock(&mut self, session: &mut Session) -> Result<(), Attempt> {
        if !self.open {
            session.ready().await?;
        }
        // every id is above 0; messages below the last one that are committed late wait for the next transaction
        let last = self.taken.last().copied().unwrap_or(0);
        let held = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let due = self.wanted.delivery.batch.saturating_sub(held).max(1);
        let most = i64::from(self.wanted.at_once(due));
        let run = async |client: &Client| client.query(&self.lock, &[&last, &most]).await;
        let Answered { begun, came, .. } = session.part(Part::of(!self.open, false), run).await;
        session.begun(begun, false)?;
        self.open = true;
        let rows = came.map_err(|error| session.failed(&error, SendState::Nothing))?;
        self.ahead.extend(rows);
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
    async fn settle(&mut self, session: &mut Session) -> Result<AckAnswer, Fault> {
        if self.taken.is_empty() {
            return Ok(AckAnswer::Answered);
        }
        let taken = mem::take(&mut self.taken);
        let run = async |client: &Client| client.execute(&self.delete, &[&taken]).await;
        let Answered { came, committed, .. } = session.part(Part::Last, run).await;
        self.forget();
        let deleted = came.and_then(|deleted| committed.map(|()| deleted));
        match deleted.map_err(|error| Fault::lost(session.words(&error)))? {
            deleted if deleted == taken.len() as u64 => Ok(AckAnswer::Answered),
            deleted => Err(Fault::lost(format!("{deleted} of {} messages were there", taken.len()))),
        }
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
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::Durability;
    use acidtest_testbed::{Private, queue, wait};

    use super::*;

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
