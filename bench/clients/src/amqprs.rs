//! amqprs: a connection's reader and writer are tasks, and confirmations come to a callback.

use std::{collections::VecDeque, sync::Arc};

use amqprs::{
    Ack, BasicProperties, Cancel, CloseChannel, DELIVERY_MODE_PERSISTENT, Nack, Return,
    callbacks::ChannelCallback,
    channel::{
        BasicAckArguments, BasicConsumeArguments, BasicPublishArguments, BasicQosArguments, Channel,
        ConfirmSelectArguments, QueueDeclareArguments, QueueDeleteArguments,
    },
    connection::{Connection, OpenConnectionArguments},
    error::Error,
};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::{Library, NAME, Progress, Result};

#[derive(Clone, Debug)]
pub struct Amqprs {
    host: String,
    port: u16,
}

impl Amqprs {
    pub fn new(endpoint: &str) -> Result<Self> {
        let (host, port) = endpoint.rsplit_once(':').ok_or("the address has no port")?;
        Ok(Self { host: host.to_owned(), port: port.parse()? })
    }

    async fn connect(&self) -> Result<(Connection, Channel)> {
        let arguments = OpenConnectionArguments::new(&self.host, self.port, "guest", "guest");
        let connection = Connection::open(&arguments).await?;
        let channel = connection.open_channel(None).await?;
        Ok((connection, channel))
    }
}

const UNCONFIRMED: &str = "the broker returned or refused a message, or closed the channel";

/// Takes the answers to a producer's messages. The semaphore has a permit for each message that may be published; it is closed
/// where one is not confirmed.
struct Confirmations {
    room: Arc<Semaphore>,
    progress: Arc<Progress>,
    /// The number of the first message in `confirmed`; the broker counts from 1.
    first: u64,
    confirmed: VecDeque<bool>,
}

impl Confirmations {
    fn confirm(&mut self, tag: u64, multiple: bool) -> Option<()> {
        let place = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        if self.confirmed.len() <= place {
            self.confirmed.resize(place + 1, false);
        }
        let from = if multiple { 0 } else { place };
        let newly = self.confirmed.range(from..=place).filter(|confirmed| !**confirmed).count();
        self.confirmed.range_mut(from..=place).for_each(|confirmed| *confirmed = true);
        while self.confirmed.pop_front_if(|confirmed| *confirmed).is_some() {
            self.first += 1;
        }
        self.progress.ended(newly as u64);
        self.room.add_permits(newly);
        Some(())
    }
}

#[async_trait]
impl ChannelCallback for Confirmations {
    async fn close(&mut self, _: &Channel, _: CloseChannel) -> Result<(), Error> {
        self.room.close();
        Ok(())
    }

    async fn cancel(&mut self, _: &Channel, _: Cancel) -> Result<(), Error> {
        Ok(())
    }

    async fn flow(&mut self, _: &Channel, active: bool) -> Result<bool, Error> {
        Ok(active)
    }

    async fn publish_ack(&mut self, _: &Channel, ack: Ack) {
        if self.confirm(ack.delivery_tag(), ack.mutiple()).is_none() {
            self.room.close();
        }
    }

    async fn publish_nack(&mut self, _: &Channel, _: Nack) {
        self.room.close();
    }

    async fn publish_return(&mut self, _: &Channel, _: Return, _: BasicProperties, _: Vec<u8>) {
        self.room.close();
    }
}

impl Library for Amqprs {
    async fn create(&self) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.queue_declare(QueueDeclareArguments::durable_client_named(NAME)).await?;
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.queue_delete(QueueDeleteArguments::new(NAME)).await?;
        Ok(())
    }

    async fn publish(&self, window: usize, bytes: usize, progress: Arc<Progress>) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        let room = Arc::new(Semaphore::new(window));
        let confirmations = Confirmations {
            room: Arc::clone(&room),
            progress: Arc::clone(&progress),
            first: 1,
            confirmed: VecDeque::new(),
        };
        channel.register_callback(confirmations).await?;
        channel.confirm_select(ConfirmSelectArguments::default()).await?;
        let arguments = BasicPublishArguments::new("", NAME).mandatory(true).finish();
        let properties = BasicProperties::default().with_delivery_mode(DELIVERY_MODE_PERSISTENT).finish();
        let (body, mut begun) = (vec![b'x'; bytes], 0);
        while !progress.is_over(begun) {
            room.acquire().await.map_err(|_| UNCONFIRMED)?.forget();
            channel.basic_publish(properties.clone(), body.clone(), arguments.clone()).await?;
            begun += 1;
        }
        room.acquire_many(u32::try_from(window)?).await.map_err(|_| UNCONFIRMED)?.forget();
        Ok(())
    }

    async fn consume(&self, window: usize, progress: Arc<Progress>) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.basic_qos(BasicQosArguments::new(0, u16::try_from(window)?, false)).await?;
        let (_, mut messages) = channel.basic_consume_rx(BasicConsumeArguments::new(NAME, "")).await?;
        while !progress.is_over(0) {
            let message = messages.recv().await.ok_or("the subscription has ended")?;
            let delivered = message.deliver.ok_or("a message without its number")?;
            channel.basic_ack(BasicAckArguments::new(delivered.delivery_tag(), false)).await?;
            progress.ended(1);
        }
        Ok(())
    }
}
