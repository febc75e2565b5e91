//! Operations on single rows or keys, as fast as the store answers: acidtest's side of `bench/peers`.

use std::{env, process::ExitCode, time::Duration};

use acidtest_engine::{Client, ClientTask, Extent, Load, Outcome, Trial};
use acidtest_model::Address;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// What a client of [`measure`] is made of.
#[derive(Clone, Debug)]
pub struct Point {
    /// The server.
    pub address: Address,
    /// Number of rows or keys.
    pub rows: u64,
    /// What the client draws them from.
    pub rng: Xoshiro256PlusPlus,
}

/// Runs the program `NAME ADDRESS ACCESS ROWS CLIENTS SECONDS`: so many clients do one of the `accesses` from one thread in a
/// closed loop. Prints in one line: operations, seconds, operations per second, median and 99th percentile in microseconds.
pub fn measure<A: Copy + 'static, C: Client + Send + 'static>(
    accesses: [(&str, A); 2],
    client: impl Fn(Point, A) -> C,
) -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments, accesses, client) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(cause) => {
            eprintln!("{cause}");
            ExitCode::FAILURE
        }
    }
}

fn run<A: Copy + 'static, C: Client + Send + 'static>(
    arguments: &[String],
    accesses: [(&str, A); 2],
    client: impl Fn(Point, A) -> C,
) -> Result<String, String> {
    let [(one, _), (other, _)] = accesses;
    let [address, access, rows, clients, seconds] = arguments else {
        return Err(format!("usage: ADDRESS {one}|{other} ROWS CLIENTS SECONDS"));
    };
    let address = Address::parse(address).map_err(|error| error.to_string())?;
    let found = accesses.into_iter().find(|(name, _)| name == access);
    let (_, access) = found.ok_or_else(|| format!("{access} is neither {one} nor {other}"))?;
    let (rows, clients) = (number(rows)?, number(clients)?);
    let load =
        Load { threads: 1, ..Load::closed(&["point"], Extent::Time(Duration::from_secs(number(seconds)?))) };
    let task = |seed| -> ClientTask {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let client = client(Point { address: address.clone(), rows, rng }, access);
        Box::new(|driver| Box::pin(driver.drive(client)))
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
