//! The updates and inserts that each durability level keeps when the process that has the database open is killed; here
//! that is a child process of the test.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use acidtest_engine::Outcome;
use acidtest_model::{Address, Durability, Lock};
use acidtest_store_fjall::Fjall;
use acidtest_testbed::{
    for_operations,
    parcels::{self, ParcelsRun},
    records::RecordsRun,
};
use acidtest_workloads::records::Parameters;

/// The environment variable that tells the child process its workload, folder, durability level and lock mode, separated
/// by `|`.
const ORDERS: &str = "ACIDTEST_TEST_FJALL_CHILD";

/// Number of updates or inserts that are acknowledged before the kill: too few to fill the journal's buffer.
const UPDATES: u64 = 5;

const ACKNOWLEDGED: &str = "all were acknowledged";

fn case(lock: Lock) -> RecordsRun {
    let mix = "update:1".parse().unwrap();
    RecordsRun::new(lock, 1, Parameters { mix, records: 20, ..Parameters::default() })
}

fn scans(lock: Lock) -> ParcelsRun {
    ParcelsRun::new(lock, 2, parcels::few("insert"))
}

fn open(folder: &Path, durability: Durability) -> Fjall {
    Fjall::open(&Address::file("fjall", folder.to_str().unwrap()), Some(durability)).ok().unwrap()
}

/// Not a test by itself: the child process that is killed. Does nothing without [`ORDERS`].
#[test]
fn child() {
    let Ok(orders) = env::var(ORDERS) else { return };
    let orders: Vec<&str> = orders.split('|').collect();
    let [workload, folder, durability, lock] = orders[..] else { panic!("{orders:?}") };
    let store = open(Path::new(folder), durability.parse().unwrap());
    let lock = lock.parse().unwrap();
    let measured = if workload == "records" {
        let case = case(lock);
        case.load(&store);
        case.drive(&store, &for_operations(UPDATES), 1)
    } else {
        let case = scans(lock);
        case.load(&store);
        case.drive(&store, &for_operations(UPDATES), 1)
    };
    let ok: u64 = measured.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum();
    assert_eq!(ok, UPDATES, "{measured:?}");
    println!("{ACKNOWLEDGED}");
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// The folder of a database whose process was killed, after it had acknowledged all updates or inserts.
fn killed(workload: &str, durability: Durability, lock: Lock) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let orders = format!("{workload}|{}|{durability}|{lock}", folder.path().join("store").display());
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["killed::child", "--exact", "--nocapture"])
        .env(ORDERS, orders)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = lines.any(|line| line.unwrap().contains(ACKNOWLEDGED));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(acknowledged, "the child ended before its updates did");
    folder
}

/// Number of updates that are there after the process that had acknowledged all of them was killed.
fn kept(durability: Durability, lock: Lock) -> u64 {
    let folder = killed("records", durability, lock);
    let store = open(&folder.path().join("store"), durability);
    let state = case(lock).state(&store).unwrap();
    assert_eq!(state.len(), 20, "what was loaded is there");
    state.iter().map(|(_, version, _)| version).sum()
}

#[test]
fn a_synced_or_written_commit_survives_in_every_lock_mode() {
    for durability in [Durability::Disk, Durability::Process] {
        for lock in Lock::ALL {
            assert_eq!(kept(durability, lock), UPDATES, "{durability}, {lock}");
        }
    }
}

#[test]
fn a_buffered_commit_is_lost_in_every_lock_mode() {
    for lock in Lock::ALL {
        assert_eq!(kept(Durability::None, lock), 0, "{lock}");
    }
}

/// Number of inserted scans that are there after the process that had acknowledged all of them was killed. What was
/// loaded past the journal is there too, and whoever opens the database then goes on above it.
fn inserted(durability: Durability, lock: Lock) -> u64 {
    let folder = killed("parcels", durability, lock);
    let store = open(&folder.path().join("store"), durability);
    let case = scans(lock);
    let state = case.state(&store).unwrap();
    let loaded = case.initial();
    assert!(state.starts_with(&loaded), "what was loaded is there");
    let measured = case.drive(&store, &for_operations(UPDATES), 1);
    assert!(measured.faults.is_empty(), "{:?}", measured.faults);
    let later = case.state(&store).unwrap();
    assert!(later.starts_with(&state), "what was there is there still");
    assert!(later.len() > state.len(), "nothing was inserted");
    (state.len() - loaded.len()) as u64
}

#[test]
fn scans_survive_where_updates_do() {
    for (durability, lock) in [(Durability::Disk, Lock::Soft), (Durability::Process, Lock::Hard)] {
        assert_eq!(inserted(durability, lock), UPDATES, "{durability}, {lock}");
    }
    assert_eq!(inserted(Durability::None, Lock::Native), 0);
}
