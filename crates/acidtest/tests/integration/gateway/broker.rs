//! What is in the queues of brokers, by their own protocols.

use acidtest_model::Address;
use acidtest_store_nats::{Api, ConnectOptions as NatsOptions, KIND as NATS};
use acidtest_store_rabbitmq::{
    ConnectOptions as RabbitOptions, KIND as RABBITMQ,
    amqp::{Arguments, Envelope, ids},
};
use serde_json::{Value, json};

/// Connects once, to see whether a broker answers.
pub async fn answers(address: &Address) -> Result<(), String> {
    if address.scheme == "amqp" {
        let connected = RabbitOptions::new(address, RABBITMQ.default_port).unwrap().connect().await;
        return connected.map(drop).map_err(|error| error.to_string());
    }
    let options = NatsOptions::new(address, NATS.default_port).unwrap();
    let connection = options.connect().await.map_err(|error| error.to_string())?;
    let usable = Api::new(connection, &options).ask::<Value>("INFO", &Value::Null).await;
    usable.map(drop).map_err(|error| error.to_string())
}

/// Puts a message into the queue of a gateway that none has made.
pub fn publish(address: &Address, queue: &str, message: &[u8]) {
    acidtest_testbed::wait(async {
        if address.scheme == "amqp" {
            let options = RabbitOptions::new(address, RABBITMQ.default_port).unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.publish(&Envelope::new(queue, true), message).await.unwrap();
            connection.close().await;
        } else {
            let options = NatsOptions::new(address, NATS.default_port).unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.publish(&format!("{queue}.entries"), None, None, message).unwrap();
            connection.ping().await.unwrap();
        }
    });
}

/// How many messages wait in the queue of a gateway: those that nobody holds with RabbitMQ, all with NATS.
pub fn waiting(address: &Address, queue: &str) -> u64 {
    acidtest_testbed::wait(async {
        if address.scheme == "amqp" {
            let options = RabbitOptions::new(address, RABBITMQ.default_port).unwrap();
            let mut connection = options.connect().await.unwrap();
            let passive = Arguments::default().short(0).name(queue).byte(1).table(&[]);
            let answer = connection.ask(ids::DECLARE, &passive, ids::DECLARE_OK).await.unwrap();
            let (ready, _) = acidtest_store_rabbitmq::amqp::declared(&answer).unwrap();
            connection.close().await;
            ready.into()
        } else {
            let info = nats(address, &format!("STREAM.INFO.{queue}"), &Value::Null).await;
            info["state"]["messages"].as_u64().unwrap()
        }
    })
}

/// What a broker says of the queue of a gateway.
pub fn state(address: &Address, queue: &str) -> String {
    if address.scheme == "amqp" {
        return format!("{} messages are ready", waiting(address, queue));
    }
    acidtest_testbed::wait(async {
        let stream = nats(address, &format!("STREAM.INFO.{queue}"), &Value::Null).await;
        let consumer = nats(address, &format!("CONSUMER.INFO.{queue}.collectors"), &Value::Null).await;
        format!("{}\n{consumer}", stream["state"])
    })
}

/// Removes the queue of a gateway, with all that waits in it.
pub fn remove(address: &Address, queue: &str) {
    acidtest_testbed::wait(async {
        if address.scheme == "amqp" {
            let options = RabbitOptions::new(address, RABBITMQ.default_port).unwrap();
            let mut connection = options.connect().await.unwrap();
            let named = Arguments::default().short(0).name(queue).byte(0);
            connection.ask(ids::DELETE, &named, ids::DELETE_OK).await.unwrap();
        } else {
            nats(address, &format!("STREAM.DELETE.{queue}"), &Value::Null).await;
        }
    });
}

/// Makes a queue that is not as gateways make it: with RabbitMQ a classic one, with NATS one with this setting.
pub fn make_another(address: &Address, queue: &str, setting: (&str, Value)) {
    acidtest_testbed::wait(async {
        if address.scheme == "amqp" {
            let options = RabbitOptions::new(address, RABBITMQ.default_port).unwrap();
            let mut connection = options.connect().await.unwrap();
            let durable = Arguments::default().short(0).name(queue).byte(2).table(&[]);
            connection.ask(ids::DECLARE, &durable, ids::DECLARE_OK).await.unwrap();
        } else {
            let mut settings = json!({
                "name": queue, "subjects": [format!("{queue}.entries")], "storage": "file",
                "retention": "workqueue", "discard": "new", "max_bytes": 1 << 30, "num_replicas": 1,
            });
            settings[setting.0] = setting.1;
            nats(address, &format!("STREAM.CREATE.{queue}"), &settings).await;
        }
    });
}

/// Removes the consumer of NATS' from which collectors pull.
pub fn remove_consumer(address: &Address, stream: &str) {
    acidtest_testbed::wait(nats(address, &format!("CONSUMER.DELETE.{stream}.collectors"), &Value::Null));
}

/// Makes a consumer of NATS' from which collectors would pull, and which gives messages up.
pub fn make_another_consumer(address: &Address, stream: &str) {
    let config = json!({ "durable_name": "collectors", "ack_policy": "explicit", "max_deliver": 1 });
    let request = format!("CONSUMER.DURABLE.CREATE.{stream}.collectors");
    let body = json!({ "stream_name": stream, "config": config });
    acidtest_testbed::wait(nats(address, &request, &body));
}

async fn nats(address: &Address, request: &str, body: &Value) -> Value {
    let options = NatsOptions::new(address, NATS.default_port).unwrap();
    let connection = options.connect().await.unwrap();
    Api::new(connection, &options).ask(request, body).await.unwrap()
}
