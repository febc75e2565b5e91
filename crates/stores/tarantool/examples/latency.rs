//! Prints the time of one request at depth 1, on a private server or on the one whose address is given.

use std::error::Error;
use std::time::Instant;

use acidtest_model::{Address, Durability};
use acidtest_store_tarantool::iproto::{Connection, IteratorType};
use acidtest_testbed::{Private, wait};
use acidtest_transport::Transport;

const REQUESTS: u32 = 50_000;

macro_rules! measure {
    ($name:literal, $request:expr) => {{
        for _ in 0..REQUESTS / 10 {
            $request;
        }
        let mut times = Vec::with_capacity(REQUESTS as usize);
        let start = Instant::now();
        for _ in 0..REQUESTS {
            let sent = Instant::now();
            $request;
            times.push(sent.elapsed());
        }
        let mean = start.elapsed().as_secs_f64() * 1e6 / f64::from(REQUESTS);
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 1000).map_or(0.0, |t| t.as_secs_f64() * 1e6);
        println!("{:8} mean {mean:6.1} µs, median {:6.1}, p99 {:6.1}", $name, at(500), at(990));
    }};
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args().nth(1) {
        return wait(run(&Transport::new(&Address::parse(&address)?, 3301)?));
    }
    let mut private = Private::start("tarantool", Durability::Process).ok_or("tarantool is left out")?;
    let transport = Transport::new(private.address(), 0)?;
    private.open(async |_| Connection::connect(&transport, None).await);
    wait(run(&transport))
}

async fn run(transport: &Transport) -> Result<(), Box<dyn Error>> {
    let mut connection = Connection::connect(transport, None).await?;
    let mut reply = connection
        .eval(
            "if not box.space.latency then
               box.schema.space.create('latency'):create_index('pk', {parts={{1,'unsigned'}}})
             end
             function latency_nothing(n) return n end
             return box.space.latency.id",
            |args| {
                args.array(0);
            },
        )
        .await?;
    reply.tuple(1)?;
    let space = u32::try_from(reply.u64()?)?;
    let mut key: u64 = 0;
    measure!("ping", connection.ping().await?);
    measure!("call", {
        key += 1;
        let mut reply = connection
            .call("latency_nothing", |args| {
                args.array(1).u64(key);
            })
            .await?;
        reply.tuple(1)?;
        assert_eq!(reply.u64()?, key);
    });
    measure!("replace", {
        key += 1;
        connection
            .replace(space, |tuple| {
                tuple.array(2).u64(key % 1000).str("a value of some length");
            })
            .await?;
    });
    measure!("select", {
        key += 1;
        connection
            .select(
                space,
                0,
                |tuple| {
                    tuple.array(1).u64(key % 1000);
                },
                1,
                IteratorType::Eq,
            )
            .await?;
    });
    Ok(())
}
