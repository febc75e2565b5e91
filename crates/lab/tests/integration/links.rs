//! Links that are cut and healed.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use acidtest_lab::Links;
use acidtest_model::{Address, MemberId, Role, Tls};

use crate::servers::{HELPER, again};

/// How long to listen for what must not come.
const SILENCE: Duration = Duration::from_millis(200);

fn server(number: u16) -> MemberId {
    MemberId::numbered(Role::Server, number)
}

/// A member that others connect to.
struct Target {
    listener: TcpListener,
    address: Address,
}

impl Target {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, address: Address::loopback("tcp", Some("ann"), port, "db") }
    }

    fn accept(&self) -> TcpStream {
        patient(self.listener.accept().unwrap().0)
    }

    /// Both ends of a connection that comes by this address.
    fn reached_at(&self, address: &Address) -> (TcpStream, TcpStream) {
        let client = connect(address);
        (client, self.accept())
    }
}

/// A test fails rather than wait for ever.
fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn connect(address: &Address) -> TcpStream {
    patient(TcpStream::connect(address.endpoint(0)).unwrap())
}

fn hear(mut stream: &TcpStream, length: usize) -> Vec<u8> {
    let mut heard = vec![0; length];
    stream.read_exact(&mut heard).unwrap();
    heard
}

fn say(mut stream: &TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
}

/// Whether nothing comes for a while, the end of the connection included.
fn is_silent(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let heard = stream.read(&mut [0]);
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    matches!(heard, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_link_is_the_way_from_one_member_to_another() {
    let mut links = Links::new().unwrap();
    let target = Target::new();
    let of =
        Address { tls: Some(Box::new(Tls::issued_by(Path::new("/issuer.pem")))), ..target.address.clone() };
    let address = links.address(server(1), server(2), &of).unwrap();
    assert_ne!(address.port, of.port);
    assert_eq!(Address { port: of.port, ..address.clone() }, of, "all else stays");
    assert_eq!(links.address(server(1), server(2), &of).unwrap(), address);
    assert_ne!(links.address(server(2), server(1), &of).unwrap().port, address.port);
    let elsewhere = Target::new().address;
    assert_eq!(links.address(server(1), server(2), &elsewhere).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(links.address(server(1), server(3), &Address::file("sqlite", "a.db")).is_err());

    let (client, there) = target.reached_at(&address);
    for (from, to) in [(&client, &there), (&there, &client)] {
        say(from, b"words");
        assert_eq!(hear(to, 5), b"words");
    }
    // an end that has said its last may still listen
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&there).read(&mut [0]).unwrap(), 0);
    say(&there, b"answer");
    assert_eq!(hear(&client, 6), b"answer");
    drop(there);
    assert_eq!((&client).read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_cut_holds_back_what_a_heal_lets_pass_in_order() {
    let mut links = Links::new().unwrap();
    let target = Target::new();
    let address = links.address(server(1), server(2), &target.address).unwrap();
    let (client, there) = target.reached_at(&address);
    say(&client, b"0");
    assert_eq!(hear(&there, 1), b"0");
    // whichever end it is that is cut
    for member in [server(1), server(2)] {
        links.cut(member);
        say(&client, b"1");
        say(&there, b"a");
        let fresh = connect(&address);
        say(&fresh, b"new");
        assert!(is_silent(&there) && is_silent(&client) && is_silent(&fresh));
        target.listener.set_nonblocking(true).unwrap();
        assert_eq!(target.listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        target.listener.set_nonblocking(false).unwrap();
        say(&client, b"2");
        links.heal(member);
        say(&client, b"3");
        assert_eq!((hear(&there, 3), hear(&client, 1)), (b"123".to_vec(), b"a".to_vec()));
        let reached = target.accept();
        assert_eq!(hear(&reached, 3), b"new");
        say(&reached, b"b");
        assert_eq!(hear(&fresh, 1), b"b");
    }
}

/// Nor does the relay: it waits for the heal without a look at those who are gone, and then tells the other end.
#[test]
fn a_member_that_is_cut_does_not_hear_that_another_is_gone() {
    // in a process that has no other links, whose processor time would be taken for theirs
    assert!(again("links::role_alone").env(HELPER, "").status().unwrap().success());
}

#[test]
#[ignore = "a process of its own, started by the tests"]
fn role_alone() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let mut links = Links::new().unwrap();
    let target = Target::new();
    let address = links.address(server(1), server(2), &target.address).unwrap();
    let (client, there) = target.reached_at(&address);
    links.cut(server(2));
    say(&there, b"last");
    drop(there);
    drop(target);
    let fresh = connect(&address);
    let spent = spent_by_links();
    assert!(is_silent(&client) && is_silent(&fresh));
    assert!(spent_by_links() - spent < 10, "of 40 ticks that have passed");
    links.heal(server(2));
    assert_eq!(hear(&client, 4), b"last");
    for end in [client, fresh] {
        // an end or a reset
        assert_eq!((&end).read(&mut [0]).unwrap_or(0), 0);
    }
    // nor where nobody is left, and a member tries again and again
    for _ in 0..10 {
        let fresh = connect(&address);
        assert_eq!((&fresh).read(&mut [0]).unwrap_or(0), 0);
    }
    let spent = spent_by_links();
    thread::sleep(SILENCE);
    assert!(spent_by_links() - spent < 10);
    assert_eq!(threads().count(), 1);
    drop(links);
    assert_eq!(threads().count(), 0);
}

/// The threads of links in this process.
fn threads() -> impl Iterator<Item = PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "links"))
}

/// The kernel's ticks, of 10 ms, that they have had of processors.
fn spent_by_links() -> u64 {
    let of = |task: PathBuf| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        let fields: Vec<u64> =
            stat.split_whitespace().skip(13).take(2).map(|field| field.parse().unwrap()).collect();
        fields.iter().sum::<u64>()
    };
    threads().map(of).sum()
}

#[test]
fn cuts_may_overlap() {
    let mut links = Links::new().unwrap();
    let targets = [Target::new(), Target::new(), Target::new()];
    let mut ends = Vec::new();
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        let target = &targets[usize::from(to) - 1];
        let address = links.address(server(from), server(to), &target.address).unwrap();
        ends.push(target.reached_at(&address));
    }
    // which of 1-2, 2-3 and 3-1 let anything pass
    let passes = |links: &[(TcpStream, TcpStream)]| -> Vec<bool> {
        let said = links.iter().inspect(|(client, _)| say(client, b"x"));
        said.map(|(_, there)| !is_silent(there)).collect()
    };
    links.cut(server(1));
    assert_eq!(passes(&ends), [false, true, false]);
    links.cut(server(2));
    assert_eq!(passes(&ends), [false, false, false]);
    links.heal(server(1));
    assert_eq!(passes(&ends), [false, false, true]);
    // once is enough to heal what was cut twice
    links.cut(server(2));
    links.heal(server(2));
    assert_eq!(passes(&ends), [true, true, true]);
}

#[test]
fn much_passes_unharmed_both_ways_at_once_and_through_cuts() {
    const LENGTH: usize = 100_000_000;
    // a piece out of its place would not fit in, as no piece of a power of two is a part of it
    let said = |seed: usize| -> Vec<u8> {
        let part = (0..LENGTH / 99).map(|at| u8::try_from((at * 31 + at / 251 + seed) % 256).unwrap());
        part.collect::<Vec<u8>>().repeat(99)
    };
    let hears = |mut stream: &TcpStream, words: &[u8]| {
        let mut heard = Vec::with_capacity(LENGTH);
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard == words, "{} bytes of {}", heard.len(), words.len());
    };
    let [forth, back] = [1, 2].map(said);
    let mut links = Links::new().unwrap();
    let target = Target::new();
    let address = links.address(server(1), server(2), &target.address).unwrap();
    let (client, there) = target.reached_at(&address);
    let begun = Instant::now();
    thread::scope(|scope| {
        for (stream, words) in [(&client, &forth), (&there, &back)] {
            scope.spawn(move || {
                say(stream, words);
                stream.shutdown(Shutdown::Write).unwrap();
            });
        }
        for (stream, words) in [(&client, &back), (&there, &forth)] {
            scope.spawn(move || hears(stream, words));
        }
        for _ in 0..10 {
            links.cut(server(1));
            thread::sleep(Duration::from_millis(5));
            links.heal(server(1));
            thread::sleep(Duration::from_millis(20));
        }
    });
    eprintln!("100 MB each way in {:?}", begun.elapsed());
}

#[test]
fn nothing_is_left_of_links_that_are_dropped() {
    let target = Target::new();
    let mut links = Links::new().unwrap();
    let address = links.address(server(1), server(2), &target.address).unwrap();
    let (client, there) = target.reached_at(&address);
    let other = links.address(server(2), server(1), &target.address).unwrap();
    let held = target.reached_at(&other);
    links.cut(server(1));
    let begun = Instant::now();
    drop(links);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for end in [&client, &there, &held.0, &held.1] {
        let mut end = end;
        assert_eq!(end.read(&mut [0]).unwrap_or(0), 0);
    }
    assert_eq!(TcpStream::connect(address.endpoint(0)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// What a link adds to a round trip, for whoever wants to know: `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_round_trip() {
    let mut links = Links::new().unwrap();
    let target = Target::new();
    let linked = links.address(server(1), server(2), &target.address).unwrap();
    for (how, address) in [("directly", &target.address), ("by a link", &linked)] {
        let (client, there) = target.reached_at(address);
        let echo = thread::spawn(move || {
            let mut byte = [0; 100];
            while (&there).read_exact(&mut byte).is_ok() {
                say(&there, &byte);
            }
        });
        let mut times: Vec<Duration> = (0..20_000)
            .map(|_| {
                let begun = Instant::now();
                say(&client, &[7; 100]);
                hear(&client, 100);
                begun.elapsed()
            })
            .collect();
        drop(client);
        echo.join().unwrap();
        times.sort_unstable();
        eprintln!("{how}: median {:?}, 99 % {:?}", times[10_000], times[19_800]);
    }
}
