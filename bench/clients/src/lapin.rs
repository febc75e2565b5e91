//! lapin: each connection has a thread for its socket, and a message or an acknowledgement is done once that has written it.
//! Who waits for each before the next waits for the thread every time, so here all of a window wait together.

use std::sync::Arc;

use async_rs::Runtime;
use futures_util::{StreamExt as _, TryStreamExt as _, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{FieldTable, ShortString},
};

use crate::{Library, NAME, Progress, Result};

#[derive(Clone, Debug)]
pub struct Lapin {
    address: String,
}

impl Lapin {
    pub fn new(endpoint: &str) -> Self {
        Self { address: format!("amqp://guest:guest@{endpoint}/%2f") }
    }

    async fn connect(&self) -> Result<(Connection, Channel)> {
        let (address, options) = (&self.address, ConnectionProperties::default());
        let connection = Connection::connect_with_runtime(address, options, Runtime::tokio_current()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }
}

impl Library for Lapin {
    async fn create(&self) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.queue_declare(NAME.into(), QueueDeclareOptions::durable(), FieldTable::default()).await?;
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.queue_delete(NAME.into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }

    async fn publish(&self, window: usize, bytes: usize, progress: Arc<Progress>) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let body = vec![b'x'; bytes];
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (exchange, queue) = (ShortString::default(), ShortString::from(NAME));
        let properties = BasicProperties::default().with_delivery_mode(2);
        let publish = async || {
            let (exchange, queue, properties) = (exchange.clone(), queue.clone(), properties.clone());
            channel.basic_publish(exchange, queue, options, &body, properties).await?.await
        };
        let (mut unconfirmed, mut begun) = (FuturesUnordered::new(), 0);
        loop {
            while unconfirmed.len() < window && !progress.is_over(begun) {
                unconfirmed.push(publish());
                begun += 1;
            }
            let Some(answer) = unconfirmed.next().await else { return Ok(()) };
            match answer? {
                Confirmation::Ack(None) => progress.ended(1),
                Confirmation::Ack(Some(_)) => return Err("the broker returned a message".into()),
                Confirmation::Nack(_) => return Err("the broker refused a message".into()),
                Confirmation::NotRequested => return Err("the broker confirms nothing".into()),
            }
        }
    }

    async fn consume(&self, window: usize, progress: Arc<Progress>) -> Result<()> {
        let (_connection, channel) = self.connect().await?;
        channel.basic_qos(u16::try_from(window)?, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(NAME.into(), "".into(), options, arguments).await?;
        let mut acknowledged = consumer
            // `Delivery::ack` takes one more task
            .map_ok(|delivery| channel.basic_ack(delivery.delivery_tag, BasicAckOptions::default()))
            .try_buffer_unordered(window);
        while !progress.is_over(0) {
            acknowledged.try_next().await?.ok_or("the subscription has ended")?;
            progress.ended(1);
        }
        Ok(())
    }
}
