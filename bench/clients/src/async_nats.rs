//! async-nats: a connection is driven by a task of its own.

use std::{collections::VecDeque, future::IntoFuture as _, sync::Arc};

use async_nats::{
    ConnectOptions,
    jetstream::{
        self, Context,
        consumer::pull,
        stream::{Config, RetentionPolicy, StorageType},
    },
};
use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::{Library, NAME, Progress, Result};

#[derive(Clone, Debug)]
pub struct AsyncNats {
    address: String,
}

impl AsyncNats {
    pub fn new(endpoint: &str) -> Self {
        Self { address: format!("nats://{endpoint}") }
    }

    async fn connect(&self) -> Result<Context> {
        // as its documents say of subjects that are known to be right
        let options = ConnectOptions::new().skip_subject_validation(true);
        Ok(jetstream::new(options.connect(&self.address).await?))
    }
}

impl Library for AsyncNats {
    async fn create(&self) -> Result<()> {
        let config = Config {
            name: NAME.to_owned(),
            subjects: vec![NAME.to_owned()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            ..Config::default()
        };
        let stream = self.connect().await?.create_stream(config).await?;
        let consumer = pull::Config {
            durable_name: Some(NAME.to_owned()),
            max_ack_pending: -1,
            ..pull::Config::default()
        };
        stream.create_consumer(consumer).await?;
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        self.connect().await?.delete_stream(NAME).await?;
        Ok(())
    }

    async fn publish(&self, window: usize, bytes: usize, progress: Arc<Progress>) -> Result<()> {
        let context = self.connect().await?;
        let body = Bytes::from(vec![b'x'; bytes]);
        let (mut unconfirmed, mut begun) = (VecDeque::with_capacity(window), 0);
        loop {
            while unconfirmed.len() < window && !progress.is_over(begun) {
                unconfirmed.push_back(context.publish(NAME, body.clone()).await?);
                begun += 1;
            }
            let Some(oldest) = unconfirmed.pop_front() else { return Ok(()) };
            oldest.into_future().await?;
            progress.ended(1);
        }
    }

    async fn consume(&self, window: usize, progress: Arc<Progress>) -> Result<()> {
        let consumer =
            self.connect().await?.get_stream(NAME).await?.get_consumer::<pull::Config>(NAME).await?;
        let mut messages = consumer.stream().max_messages_per_batch(window).messages().await?;
        while !progress.is_over(0) {
            let message = messages.next().await.ok_or("the subscription has ended")??;
            message.ack().await?;
            progress.ended(1);
        }
        Ok(())
    }
}
