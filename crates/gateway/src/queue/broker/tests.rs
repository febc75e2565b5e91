//! The tasks that publish and receive, on a broker that does as the test says.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use tokio::{sync::Notify, time::Instant as Moment};

use super::*;
use crate::entry::{self, Entry, Level};

/// A broker in memory, which delivers again what was not acknowledged when a connection ends.
#[derive(Debug, Default)]
struct Played {
    queue: Mutex<VecDeque<Vec<u8>>>,
    came: Notify,
    /// Whether it can be reached, and whether it answers what is published.
    is_away: AtomicBool,
    is_silent: AtomicBool,
    /// How many messages it has room for.
    room: AtomicUsize,
    /// Ends all connections.
    cut: Notify,
    aside: Mutex<Vec<Vec<u8>>>,
    /// How long an answer takes.
    slow: Mutex<Duration>,
    /// The most messages that were on their way to it, and how many came.
    most: AtomicUsize,
    messages: AtomicUsize,
}

impl Played {
    fn new() -> Arc<Self> {
        Arc::new(Self { room: AtomicUsize::new(usize::MAX), ..Self::default() })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.queue.lock().unwrap()
    }

    fn reach(&self) -> Result<(), String> {
        if self.is_away.load(Relaxed) { Err("it is away".to_owned()) } else { Ok(()) }
    }

    fn lose(&self) {
        self.is_away.store(true, Relaxed);
        self.cut.notify_waiters();
    }
}

#[derive(Debug)]
struct Handle(Arc<Played>);

struct Sending {
    broker: Arc<Played>,
    open: VecDeque<(u64, Vec<u8>)>,
    next: u64,
}

struct Taking {
    broker: Arc<Played>,
    held: VecDeque<Vec<u8>>,
}

impl Broker for Handle {
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, String>> {
        Box::pin(async {
            self.0.reach()?;
            let publisher: Box<dyn Publisher> =
                Box::new(Sending { broker: Arc::clone(&self.0), open: VecDeque::new(), next: 0 });
            Ok(publisher)
        })
    }

    fn consumer(&self) -> BoxFuture<'_, Result<Box<dyn Consumer>, String>> {
        Box::pin(async {
            self.0.reach()?;
            let consumer: Box<dyn Consumer> =
                Box::new(Taking { broker: Arc::clone(&self.0), held: VecDeque::new() });
            Ok(consumer)
        })
    }

    fn gauge(&self) -> BoxFuture<'_, Result<Box<dyn Gauge>, String>> {
        Box::pin(async {
            self.0.reach()?;
            let gauge: Box<dyn Gauge> = Box::new(Handle(Arc::clone(&self.0)));
            Ok(gauge)
        })
    }

    fn keep_aside<'a>(&'a self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            self.0.aside.lock().unwrap().push(message.to_vec());
            Ok(())
        })
    }
}

impl Gauge for Handle {
    fn waiting(&mut self) -> BoxFuture<'_, Result<Waiting, String>> {
        Box::pin(async {
            self.0.reach()?;
            Ok(Waiting { messages: self.0.queue().len() as u64, bytes: None })
        })
    }
}

impl Publisher for Sending {
    fn publish<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), String>> {
        self.open.push_back((self.next, message.to_vec()));
        self.next += 1;
        self.broker.most.fetch_max(self.open.len(), Relaxed);
        self.broker.messages.fetch_add(1, Relaxed);
        Box::pin(async { self.broker.reach() })
    }

    fn answers<'a>(&'a mut self, answers: &'a mut Vec<Answered>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let cut = self.broker.cut.notified();
            self.broker.reach()?;
            if self.broker.is_silent.load(Relaxed) || self.open.is_empty() {
                cut.await;
                return Err("the connection is lost".to_owned());
            }
            // a moment on its way
            let slow = Duration::from_millis(5) + *self.broker.slow.lock().unwrap();
            sleep(slow).await;
            let mut last = None;
            while let Some((number, message)) = self.open.pop_front() {
                if self.broker.queue().len() >= self.broker.room.load(Relaxed) {
                    answers.push(Answered { number, multiple: false, answer: Answer::Full });
                } else {
                    self.broker.queue().push_back(message);
                    last = Some(number);
                }
            }
            // one answer for all of those, as RabbitMQ gives it
            answers.extend(last.map(|number| Answered { number, multiple: true, answer: Answer::Kept }));
            self.broker.came.notify_waiters();
            Ok(())
        })
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            if self.broker.is_silent.load(Relaxed) {
                std::future::pending::<()>().await;
            }
            self.broker.reach()
        })
    }

    fn blocked(&mut self) -> Option<String> {
        Some("it is blocked".to_owned())
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

impl Consumer for Taking {
    fn next(&mut self, room: usize) -> BoxFuture<'_, Result<Vec<u8>, String>> {
        Box::pin(async move {
            loop {
                let (came, cut) = (self.broker.came.notified(), self.broker.cut.notified());
                self.broker.reach()?;
                let message = if room > 0 { self.broker.queue().pop_front() } else { None };
                if let Some(message) = message {
                    self.held.push_back(message.clone());
                    return Ok(message);
                }
                tokio::select! {
                    () = came => {}
                    () = cut => {}
                }
            }
        })
    }

    fn remove_last(&mut self) -> BoxFuture<'_, Result<(), String>> {
        self.held.pop_back();
        Box::pin(async { Ok(()) })
    }

    fn acknowledge(&mut self, count: usize) -> BoxFuture<'_, Result<(), String>> {
        self.held.drain(..count);
        Box::pin(async { self.broker.reach() })
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            if self.broker.is_silent.load(Relaxed) {
                std::future::pending::<()>().await;
            }
            self.broker.reach()
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut queue = self.broker.queue();
        while let Some(message) = self.held.pop_back() {
            queue.push_front(message);
        }
    }
}

fn open(broker: &Arc<Played>) -> Arc<BrokerQueue> {
    let for_what = Use::Gateway { most_bytes: 1 << 30, collects: true };
    Arc::new(BrokerQueue::on(
        Box::new(Handle(Arc::clone(broker))),
        String::new(),
        for_what,
        Arc::new(Metrics::new()),
    ))
}

/// A record of so many entries, whose ids are numbers from `first` on.
fn record(first: u64, entries: u32) -> Record {
    let entry = |id: u64| Entry {
        id: id.to_string().into(),
        timestamp: 7,
        level: Level::Info,
        application: "a".into(),
        message: "m".repeat(100).into(),
        attributes: None,
    };
    let all: Vec<Entry<'_>> = (first..first + u64::from(entries)).map(entry).collect();
    Record { entries, bytes: entry::encode("ann", entry::now(), all.iter()).into() }
}

fn ids(batch: &Batch) -> BTreeSet<u64> {
    batch.entries().iter().map(|queued| queued.entry.id.parse().unwrap()).collect()
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Moment::now() + Duration::from_mins(5);
    while !so() {
        assert!(Moment::now() < end, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_others_are_on_their_way_shares_a_message() {
    let broker = Played::new();
    let queue = open(&broker);
    let puts = (0..100).map(|id| {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.put(record(id * 3, 3)).await })
    });
    for put in puts.collect::<Vec<_>>() {
        assert_eq!(put.await.unwrap(), Ok(()));
    }
    assert!(broker.messages.load(Relaxed) < 20, "{broker:?}");
    assert!(broker.most.load(Relaxed) <= 4, "{broker:?}");
    // and comes out entry by entry: a batch may end within a record
    let mut all = BTreeSet::new();
    while all.len() < 300 {
        let batch = queue.take(7, Duration::ZERO).await.unwrap();
        let some = ids(&batch);
        assert!(some.len() <= 7 && all.is_disjoint(&some));
        all.extend(some);
        queue.stored(&batch);
    }
    until("all is acknowledged", || queue.receiving.as_ref().unwrap().held() == (0, None)).await;
    queue.close();
    queue.finish().await;
    assert!(broker.queue().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_connection_leaves_is_not_acknowledged() {
    let broker = Played::new();
    let queue = open(&broker);
    queue.put(record(0, 1)).await.unwrap();
    broker.is_silent.store(true, Relaxed);
    let put = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.put(record(1, 1)).await }
    });
    sleep(Duration::from_secs(1)).await;
    broker.lose();
    let Err(PutError::Failed(why)) = put.await.unwrap() else { panic!("acknowledged") };
    assert!(why.contains("the connection is lost"), "{why}");
    // at once, and not after a time
    let since = Moment::now();
    assert!(matches!(queue.put(record(2, 1)).await, Err(PutError::Failed(_))));
    assert!(since.elapsed() < Duration::from_secs(1));
    until("it says why", || queue.trouble() == Some("it is away".to_owned())).await;
    broker.is_away.store(false, Relaxed);
    broker.is_silent.store(false, Relaxed);
    until("it goes on", || queue.trouble().is_none()).await;
    assert_eq!(queue.put(record(3, 1)).await, Ok(()));
}

/// Clients that send and leave at once do not fill the memory while the broker says nothing.
#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_also_where_clients_have_left() {
    let broker = Played::new();
    let queue = open(&broker);
    queue.put(record(0, 1)).await.unwrap();
    broker.is_silent.store(true, Relaxed);
    let large = Record { entries: 1, bytes: vec![0; RECORD].into() };
    let mut sent = 0;
    loop {
        match timeout(Duration::from_micros(1), queue.put(large.clone())).await {
            Err(_) => sent += RECORD as u64,
            Ok(refused) => break assert_eq!(refused, Err(PutError::Full)),
        }
        assert!(sent <= 64 << 20);
    }
    // until it is given up
    broker.is_silent.store(false, Relaxed);
    sleep(PATIENCE * 2).await;
    until("it goes on", || queue.trouble().is_none()).await;
    assert_eq!(queue.put(large).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_is_given_up() {
    let broker = Played::new();
    let queue = open(&broker);
    queue.put(record(0, 1)).await.unwrap();
    broker.is_silent.store(true, Relaxed);
    let since = Moment::now();
    assert!(matches!(queue.put(record(1, 1)).await, Err(PutError::Failed(_))));
    assert!(since.elapsed() >= PATIENCE && since.elapsed() < PATIENCE * 2);
    until("it says why", || queue.trouble() == Some("it is blocked".to_owned())).await;
    // and stays so until it has answered a check
    sleep(PATIENCE * 3).await;
    assert_eq!(queue.trouble(), Some("it is blocked".to_owned()));
    broker.is_silent.store(false, Relaxed);
    until("it goes on", || queue.trouble().is_none()).await;
    assert_eq!(queue.put(record(2, 1)).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_a_collector_holds_comes_again_when_the_connection_is_lost() {
    let broker = Played::new();
    let queue = open(&broker);
    for id in 0..3 {
        queue.put(record(id, 1)).await.unwrap();
    }
    let old = queue.take(2, Duration::from_secs(1)).await.unwrap();
    assert_eq!(ids(&old), BTreeSet::from([0, 1]));
    assert!(queue.depth().oldest.is_some());
    broker.lose();
    until("it notices", || queue.unread().is_some()).await;
    broker.is_away.store(false, Relaxed);
    until("it goes on", || queue.unread().is_none()).await;
    // what is stored of the old connection says nothing of what came on the new one
    queue.stored(&old);
    let mut again = BTreeSet::new();
    while again.len() < 3 {
        let batch = queue.take(10, Duration::from_millis(10)).await.unwrap();
        again.extend(ids(&batch));
        assert_eq!(queue.receiving.as_ref().unwrap().held().0, 3);
        if again.len() == 3 {
            queue.stored(&batch);
        }
    }
    assert_eq!(again, BTreeSet::from([0, 1, 2]));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_says_nothing_to_collectors_is_given_up() {
    let broker = Played::new();
    let queue = open(&broker);
    until("it receives", || queue.receiving.as_ref().unwrap().windows.borrow().number == 1).await;
    broker.is_silent.store(true, Relaxed);
    until("it is given up", || queue.receiving.as_ref().unwrap().windows.borrow().number > 1).await;
    broker.is_silent.store(false, Relaxed);
    until("it goes on", || queue.trouble().is_none() && queue.unread().is_none()).await;
    queue.put(record(0, 1)).await.unwrap();
    assert_eq!(ids(&queue.take(1, Duration::ZERO).await.unwrap()), BTreeSet::from([0]));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_full_until_fewer_messages_wait() {
    let broker = Played::new();
    let for_what = Use::Gateway { most_bytes: 1 << 30, collects: false };
    let queue = BrokerQueue::on(
        Box::new(Handle(Arc::clone(&broker))),
        String::new(),
        for_what,
        Arc::new(Metrics::new()),
    );
    broker.room.store(2, Relaxed);
    for id in 0..2 {
        assert_eq!(queue.put(record(id, 1)).await, Ok(()));
    }
    assert_eq!(queue.put(record(2, 1)).await, Err(PutError::Full));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(queue.trouble(), Some(FULL.to_owned()));
    assert_eq!(queue.depth().messages, Some(2));
    broker.queue().pop_front();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(queue.trouble(), None);
    assert_eq!(queue.put(record(3, 1)).await, Ok(()));
    // where it was emptied before anybody looked, and nobody sends because it says that it is full
    assert_eq!(queue.put(record(4, 1)).await, Err(PutError::Full));
    broker.room.store(usize::MAX, Relaxed);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(queue.trouble(), Some(FULL.to_owned()));
    sleep(STILL_FULL + LOOK).await;
    assert_eq!(queue.trouble(), None);
    assert!(queue.take(1, Duration::ZERO).await.is_none(), "others collect");
}

/// A batch waits for no more entries where none can come before some are stored.
#[tokio::test(start_paused = true)]
async fn a_batch_does_not_linger_where_nothing_more_can_come() {
    let broker = Played::new();
    let queue = open(&broker);
    for id in 0..u64::from(HELD) {
        queue.put(record(id, 1)).await.unwrap();
    }
    let long = Duration::from_hours(1);
    let batch = queue.take(10_000, long).await.unwrap();
    assert_eq!(ids(&batch).len(), usize::from(HELD));
    queue.stored(&batch);
    // and it does where more can come
    queue.put(record(1000, 1)).await.unwrap();
    assert!(timeout(Duration::from_mins(10), queue.take(2, long)).await.is_err());
}

/// What a collector cannot read is not lost: it is kept aside, or stays for collectors of another version.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_kept() {
    let broker = Played::new();
    let queue = open(&broker);
    queue.put(record(0, 1)).await.unwrap();
    let batch = queue.take(1, Duration::ZERO).await.unwrap();
    let damaged = {
        let mut message = message::begin();
        message::add(&mut message, &record(1, 1));
        message::end(&mut message);
        *message.last_mut().unwrap() ^= 1;
        message
    };
    broker.queue().push_back(damaged.clone());
    broker.came.notify_waiters();
    until("it is aside", || *broker.aside.lock().unwrap() == vec![damaged.clone()]).await;
    // what lies before and behind it is stored and acknowledged all the same
    queue.put(record(2, 1)).await.unwrap();
    queue.stored(&batch);
    let batch = queue.take(1, Duration::ZERO).await.unwrap();
    assert_eq!(ids(&batch), BTreeSet::from([2]));
    queue.stored(&batch);
    until("all is acknowledged", || queue.receiving.as_ref().unwrap().held() == (0, None)).await;
    broker.queue().push_back(b"acidlog2 of a later gateway".to_vec());
    broker.came.notify_waiters();
    until("it says why", || queue.unread().is_some_and(|why| why.contains("another version"))).await;
    until("it is there still", || broker.queue().len() == 1).await;
    assert_eq!(broker.aside.lock().unwrap().len(), 1);
}

/// Nobody waits for a slow broker for longer than for one that says nothing, and nothing is sent to it for those who have
/// left.
#[tokio::test(start_paused = true)]
async fn a_slow_broker_makes_nobody_wait_for_long() {
    let broker = Played::new();
    let queue = open(&broker);
    *broker.slow.lock().unwrap() = Duration::from_secs(4);
    let since = Moment::now();
    let puts = (0..40).map(|id| {
        let queue = Arc::clone(&queue);
        // each fills a message
        tokio::spawn(async move { queue.put(record(id * 1000, 500)).await })
    });
    let mut refused = 0;
    for put in puts.collect::<Vec<_>>() {
        refused += usize::from(put.await.unwrap().is_err());
    }
    assert!(refused > 0 && refused < 40, "{refused}");
    assert!(since.elapsed() < PATIENCE * 3, "{:?}", since.elapsed());
    let before = broker.messages.load(Relaxed);
    for id in 0..100 {
        let put = queue.put(record(id, 500));
        assert!(timeout(Duration::from_millis(1), put).await.is_err());
    }
    assert_eq!(queue.put(record(7, 1)).await, Ok(()));
    assert!(broker.messages.load(Relaxed) - before < 10);
}

/// Where collectors have given up what they held, the connection is ended at once, and others get it.
#[tokio::test(start_paused = true)]
async fn what_was_not_stored_is_given_back_at_the_end() {
    let broker = Played::new();
    let queue = open(&broker);
    for id in 0..3 {
        queue.put(record(id, 1)).await.unwrap();
    }
    let batch = queue.take(1, Duration::ZERO).await.unwrap();
    queue.take(1, Duration::ZERO).await.unwrap();
    queue.stored(&batch);
    queue.close();
    let since = Moment::now();
    queue.finish().await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(broker.queue().len(), 2);
}
