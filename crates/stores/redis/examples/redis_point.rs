//! Reads or counts up single keys as fast as Redis answers: acidtest's side of `bench/peers`.
//!
//! `redis_point ADDRESS get|script KEYS CLIENTS SECONDS` drives the keys `key:…` or `count:…`, numbers
//! below KEYS in 12 digits, from one thread in a closed loop, and prints in one line: operations,
//! seconds, operations per second, median and 99th percentile in microseconds.

use std::{env, process::ExitCode, time::Duration};

use acidtest_engine::{Attempt, Client, ClientTask, Extent, Load, Outcome, Trial};
use acidtest_model::Address;
use acidtest_store_redis::Point;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Clone, Copy)]
enum Access {
    Get,
    Script,
}

struct PointClient {
    address: Address,
    access: Access,
    keys: u64,
    rng: Xoshiro256PlusPlus,
    point: Option<Point>,
}

impl Client for PointClient {
    type Operation = String;

    fn draw(&mut self) -> Option<String> {
        let number = self.rng.random_range(0..self.keys);
        Some(match self.access {
            Access::Get => format!("key:{number:012}"),
            Access::Script => format!("count:{number:012}"),
        })
    }

    fn kind(_: &String) -> usize {
        0
    }

    fn changes(&self, _: &String) -> bool {
        !matches!(self.access, Access::Get)
    }

    async fn attempt(&mut self, key: &String) -> Attempt {
        match (&mut self.point, self.access) {
            (Some(point), Access::Get) => point.get(key).await,
            (Some(point), Access::Script) => point.count_up(key).await,
            // not reached: the engine connects before it attempts anything
            (None, _) => Attempt::Refused,
        }
    }

    fn account(&mut self, _: String, _: Outcome) {}

    async fn connect(&mut self) -> Result<(), String> {
        // close the old connection before opening a new one
        self.point = None;
        self.point = Some(Point::open(&self.address).await.map_err(|error| error.to_string())?);
        Ok(())
    }
}

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("redis_point: {cause}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<String, String> {
    let [address, access, keys, clients, seconds] = arguments else {
        return Err("usage: redis_point ADDRESS get|script KEYS CLIENTS SECONDS".to_owned());
    };
    let address = Address::parse(address).map_err(|error| error.to_string())?;
    let access = match access.as_str() {
        "get" => Access::Get,
        "script" => Access::Script,
        other => return Err(format!("{other} is neither get nor script")),
    };
    let keys = number(keys)?;
    let clients = number(clients)?;
    let load =
        Load { threads: 1, ..Load::closed(&["point"], Extent::Time(Duration::from_secs(number(seconds)?))) };
    let task = |seed| -> ClientTask {
        let address = address.clone();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let client = PointClient { address, access, keys, rng, point: None };
        Box::new(|seat| Box::pin(seat.drive(client)))
    };
    let tasks: Vec<_> = (0..clients).map(task).collect();
    let measured = Trial::new(load, tasks.len()).run(tasks).map_err(|error| error.to_string())?;
    if measured.stopped.is_some() || !measured.faults.is_empty() {
        return Err(format!("{:?} {:?}", measured.stopped, measured.faults));
    }
    let done = &measured.operations[0];
    let latency = done.ok().ok_or("nothing was done")?;
    let quantile = |of| latency.service.value_at_quantile(of) as f64 / 1e3;
    Ok(format!(
        "{} {:.3} {:.1} {:.1} {:.1}",
        done.count(Outcome::Ok),
        measured.window.as_secs_f64(),
        measured.throughput(),
        quantile(0.5),
        quantile(0.99),
    ))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text} is no positive number"))
}
