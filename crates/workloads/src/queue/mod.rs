//! Queues: messages that producers publish and consumers take.
//!
//! Each message carries its id (producer and sequence), the time at which it was sent, and a checksum over all of
//! it. The ledger keeps a byte for each message: how its publishing ended, whether it was delivered, and whether a
//! consumer has acknowledged it, and the store has answered that.
//!
//! | finding | proves that |
//! | --- | --- |
//! | lost | a message whose publishing was acknowledged was never consumed, although the queue is empty: it was never delivered, or each consumer that it was delivered to was lost before an acknowledgement can have reached the store |
//! | duplicated | a message came again and the store answered its acknowledgement a second time, or it came again without the store's flag that it may have come before, where the store has such a flag |
//! | phantom | a message was delivered that no producer of the trial sent, or that was proved not to have been published |
//! | torn | a message was delivered whose checksum or length is wrong |
//! | reordered | a consumer received a producer's messages in another order than they were published in, where the store promises the order; left out are repeated deliveries, messages sent on different connections and, where a store has no flag for repeated deliveries, every trial in which a consumer was lost |
//!
//! Lost messages are judged only when the queue is drained by the store's own count: nothing ready, nothing
//! unacknowledged. Otherwise the verdict is unknown. Where producers do without acknowledgements (`ack none`)
//! "acknowledged" means written to the connection, and where consumers do (`consume auto`) a message that was
//! handed out is gone: a lost message is then counted, but breaks no promise. Repeated deliveries that are none of
//! the above are evidence (`redelivered`), not findings: every queue here promises at least once.

mod adapter;
mod audit;
mod client;
mod delivery;
mod drain;
mod hand;
mod kind;
mod ledger;
mod message;
mod order;
mod parameters;
mod port;
mod workload;

const NAME: &str = "queue";

pub use adapter::{MessageNumbers, POLL, SentAcks, poll};
pub use audit::{DOUBTFUL, HOLES, IN_HAND, audit};
pub(crate) use client::task;
pub use client::{OPERATIONS, SPANS, Scenario};
pub use delivery::{Ack, Consume, Delivery, QueueKind};
pub use kind::{LOCKS_OF_QUEUES, NO_CONFLICTS, idle_on_tables};
pub use ledger::Ledger;
pub(crate) use ledger::PublishState;
pub(crate) use message::as_base64;
pub use message::{HEADER, Id, LOADED, Message};
pub use parameters::{BACKLOG, PREFETCH, Parameters, Phase};
pub use port::{
    AckAnswer, AckProgress, Connector, Consumed, Depth, Published, Publisher, PublisherOperation,
    QueueAdapter, QueueStore, ReceivedMessage, Requirements, Subscriber, SubscriberOperation,
};
pub use workload::{KIND, Queue};
