//! Real servers that are started, crashed, started again and stopped.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Entry, Holder, Lab, LabError, Lifetime, Member, MemberSpec};
use acidtest_model::{Address, Durability, MemberId, Role, Selector};
use acidtest_testbed::wanted;
use tempfile::{NamedTempFile, TempDir};

/// The variable that names the lab's folder to this test binary when it is started again as another process.
pub(crate) const HELPER: &str = "LAB_TEST_FOLDER";

/// A lab of the test's own, in a folder that the servers' user may pass through.
pub(crate) fn lab() -> (TempDir, Lab) {
    let folder = tempfile::Builder::new().prefix("lab-").permissions(mode(0o711)).tempdir().unwrap();
    let lab = Lab::at(folder.path()).unwrap();
    (folder, lab)
}

/// A deployment of one server, which stands for that server.
#[derive(Debug)]
struct Server(Deployment);

impl Deref for Server {
    type Target = Member;

    fn deref(&self) -> &Member {
        self.0.member(Role::Server).unwrap()
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Member {
        self.0.member_mut(Role::Server).unwrap()
    }
}

impl Server {
    fn stop(&mut self) -> Result<(), LabError> {
        self.0.stop()
    }
}

fn start(
    lab: &Lab,
    store: &str,
    durability: Durability,
    lifetime: Lifetime,
    port: Option<u16>,
) -> Result<Server, LabError> {
    lab.deploy(store, &[MemberSpec { port, ..MemberSpec::server(Role::Server, store, durability) }], lifetime)
        .map(Server)
}

fn mode(bits: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_mins(1), "timed out: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn socket(address: &Address) -> SocketAddr {
    address.endpoint(0).parse().unwrap()
}

fn await_answer(server: &mut Member) {
    let address = socket(server.bound());
    until("the server listens", || {
        server.check().unwrap();
        TcpStream::connect(address).is_ok()
    });
}

/// Whether a process exists and does not merely wait to be reaped.
pub(crate) fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Every living process that works in the folder or has its path in the environment or arguments, whatever binary it
/// runs.
pub(crate) fn processes_of(folder: &Path) -> Vec<u32> {
    let name = folder.to_str().unwrap();
    numbers()
        .filter(|pid| {
            let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
            let told = ["cmdline", "environ"].map(|file| text_of(*pid, file));
            cwd.is_ok_and(|cwd| cwd.starts_with(folder)) || told.iter().any(|text| text.contains(name))
        })
        .filter(|pid| lives(*pid))
        .collect()
}

/// The ids of all processes of the machine.
fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The text of a file in a process's `/proc` folder; empty if the process has ended.
fn text_of(pid: u32, file: &str) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default()).into_owned()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = text_of(pid, "stat");
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process already runs that program.
fn runs(pid: u32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
}

fn life_of(store: &str) {
    if !wanted(store) {
        return;
    }
    let (root, lab) = lab();
    for durability in Durability::ALL {
        let mut server = start(&lab, store, durability, Lifetime::Run, None).unwrap();
        await_answer(&mut server);
        let (folder, address) = (server.folder().to_owned(), server.address().clone());
        assert!(folder.starts_with(root.path()));
        assert!((21_000..24_000).contains(&address.port.unwrap()), "{address}");

        let listed = &lab.list().unwrap()[0];
        let [member] = &listed.members[..] else { panic!("{listed:?}") };
        assert_eq!((member.pid, &member.address), (Some(server.pid()), &address));
        assert_eq!((listed.store.as_str(), member.store.as_str()), (store, store));
        assert_eq!((member.id, member.durability), (Role::Server.into(), durability));
        assert_eq!(listed.holder, Holder::Bench { pid: std::process::id(), alive: true });

        server.kill().unwrap();
        assert_eq!(server.ended().as_deref(), Some("was killed by signal 9"));
        assert_eq!(processes_of(&folder), Vec::<u32>::new());
        server.restart().unwrap();
        await_answer(&mut server);
        assert_eq!(server.ended(), None);
        assert_eq!(server.address(), &address);
        assert_eq!(server.damage(), None, "a kill alone does no damage");
        if durability == Durability::Disk {
            says_that_its_data_is_damaged(store, &mut server);
        }

        server.stop().unwrap();
        assert_eq!(processes_of(&folder), Vec::<u32>::new());
        assert!(!folder.exists());
        assert!(TcpStream::connect(socket(&address)).is_err());
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// A file without which a server cannot read its data; none where it would come up without it.
fn needed_file(store: &str) -> Option<&'static str> {
    match store {
        "postgres" => Some("pg_wal/000000010000000000000001"),
        "mariadb" => Some("/ib_logfile0"),
        "mysql" => Some("/ibdata1"),
        "redis" => Some("/appendonly.aof.manifest"),
        "tarantool" => Some(".snap"),
        _ => None,
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn says_that_its_data_is_damaged(store: &str, server: &mut Server) {
    let Some(needed) = needed_file(store) else { return };
    // it may listen before it has made all of its files
    let found =
        || files_below(server.folder()).into_iter().find(|file| file.to_str().unwrap().ends_with(needed));
    until("the file is there", || found().is_some());
    let file = found().unwrap();
    server.kill().unwrap();
    let length = fs::metadata(&file).unwrap().len().min(16 << 20);
    let mut opened = fs::OpenOptions::new().write(true).open(&file).unwrap();
    opened.write_all(&vec![0xA5; usize::try_from(length).unwrap()]).unwrap();
    // it may end while it is waited for, or only later
    let _ = server.restart();
    until("the server gives up", || server.ended().is_some());
    let said = server.damage();
    assert!(said.is_some(), "{store}: {:#?}", server.log_tail(40));
    eprintln!("{store}: {}", said.unwrap());
}

#[test]
fn postgres_lives_and_dies() {
    life_of("postgres");
}

#[test]
fn mariadb_lives_and_dies() {
    life_of("mariadb");
}

/// What is slow and rarely breaks, for `./check --all`.
mod slow {
    use super::life_of;

    #[test]
    #[ignore = "slow: ./check --all"]
    fn mysql_lives_and_dies() {
        life_of("mysql");
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn elasticsearch_lives_and_dies() {
        life_of("elasticsearch");
    }

    #[test]
    #[ignore = "slow: ./check --all"]
    fn rabbitmq_lives_and_dies() {
        life_of("rabbitmq");
    }
}

#[test]
fn redis_lives_and_dies() {
    life_of("redis");
}

#[test]
fn tarantool_lives_and_dies() {
    life_of("tarantool");
}

#[test]
fn nats_lives_and_dies() {
    life_of("nats");
}

fn say(server: &Member, line: &str) -> String {
    let mut stream = TcpStream::connect(socket(server.bound())).unwrap();
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).trim_end().to_owned()
}

#[test]
fn a_durability_decides_what_a_kill_leaves() {
    if !wanted("redis") {
        return;
    }
    let (_root, lab) = lab();
    for (durability, kept) in [(Durability::None, "$-1"), (Durability::Process, "$1\r\nv")] {
        let mut server = start(&lab, "redis", durability, Lifetime::Run, None).unwrap();
        await_answer(&mut server);
        assert_eq!(say(&server, "SET k v"), "+OK");
        server.kill().unwrap();
        server.restart().unwrap();
        await_answer(&mut server);
        until("the data is loaded", || !say(&server, "PING").starts_with("-LOADING"));
        assert_eq!(say(&server, "GET k"), kept, "{durability}");
    }
}

#[test]
fn a_dropped_server_leaves_nothing_in_the_kernel_either() {
    if !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let mut server = start(&lab, "postgres", Durability::None, Lifetime::Run, None).unwrap();
    await_answer(&mut server);
    let mut segment = None;
    until("the lock file is whole", || {
        segment = segment_of(server.folder());
        segment.is_some()
    });
    let segment = segment.unwrap();
    server.kill().unwrap();
    assert!(shared_memory().contains(&segment), "a killed server leaves its memory");
    drop(server);
    assert!(!shared_memory().contains(&segment));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// The shared memory of a PostgreSQL server, as the seventh line of its lock file names it.
pub(crate) fn segment_of(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
    Some(text.lines().nth(6)?.split_whitespace().nth(1)?.to_owned())
}

pub(crate) fn shared_memory() -> Vec<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table.lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
}

/// Two servers of one deployment, with nothing but the journal in common.
fn two(lab: &Lab, lifetime: Lifetime) -> Deployment {
    let spec = |role| MemberSpec::server(role, "redis", Durability::Process);
    let mut both = lab.deploy("redis", &[spec(Role::Locks), spec(Role::Server)], lifetime).unwrap();
    for role in [Role::Locks, Role::Server] {
        await_answer(both.member_mut(role).unwrap());
    }
    both
}

fn pair(stores: [&str; 2], port: Option<u16>) -> [MemberSpec<'_>; 2] {
    let [locks, server] = stores;
    let durability = Durability::None;
    [
        MemberSpec { port, ..MemberSpec::server(Role::Locks, locks, durability) },
        MemberSpec { port, ..MemberSpec::server(Role::Server, server, durability) },
    ]
}

/// One member is killed and started again on its own data while the other serves; they go together.
#[test]
fn members_of_a_deployment_die_alone_and_go_together() {
    if !wanted("redis") {
        return;
    }
    let (root, lab) = lab();
    let mut both = two(&lab, Lifetime::Run);
    let listed = lab.list().unwrap();
    let roles: Vec<Role> = listed[0].members.iter().map(|member| member.id.role).collect();
    assert_eq!((listed.len(), &roles[..]), (1, &[Role::Locks, Role::Server][..]));
    for role in [Role::Locks, Role::Server] {
        assert_eq!(say(both.member(role).unwrap(), &format!("SET k {role}")), "+OK");
    }
    for (role, other) in [(Role::Locks, Role::Server), (Role::Server, Role::Locks)] {
        let address = both.member(role).unwrap().address().clone();
        both.member_mut(role).unwrap().kill().unwrap();
        assert!(both.member_mut(role).unwrap().ended().is_some());
        assert_eq!(both.member_mut(other).unwrap().ended(), None);
        assert!(say(both.member(other).unwrap(), "GET k").ends_with(other.name()));
        let member = both.member_mut(role).unwrap();
        member.restart().unwrap();
        await_answer(member);
        until("the data is loaded", || !say(member, "PING").starts_with("-LOADING"));
        assert!(say(member, "GET k").ends_with(role.name()));
        assert_eq!(member.address(), &address);
    }
    let pids: Vec<u32> = both.members().iter().map(Member::pid).collect();
    both.stop().unwrap();
    assert!(pids.into_iter().all(|pid| !lives(pid)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// Servers with one role have numbers; clients are told where to reach each, which need not be where it listens.
#[test]
fn several_servers_are_one_deployment() {
    if !wanted("redis") {
        return;
    }
    let (root, lab) = lab();
    let ids = [1, 2, 3].map(|number| MemberId::numbered(Role::Server, number));
    let spec = |id| MemberSpec::server(id, "redis", Durability::None);
    let away = MemberSpec { advertised: Some(("cache.example", 6400)), ..spec(ids[2]) };
    let mut three = lab.deploy("redis", &[spec(ids[0]), spec(ids[1]), away], Lifetime::Run).unwrap();
    for (number, id) in ids.into_iter().enumerate() {
        let server = three.member_mut(id).unwrap();
        await_answer(server);
        assert_eq!(say(server, &format!("SET k {number}")), "+OK");
        assert!(server.folder().ends_with(format!("server-{}", number + 1)), "{:?}", server.folder());
    }
    let listed = lab.list().unwrap().remove(0).members;
    assert_eq!(listed.iter().map(|member| member.id).collect::<Vec<_>>(), ids);
    let addresses: Vec<&Address> = three.addresses(Role::Server).collect();
    let is_bound = |id: MemberId| three.member(id).unwrap().bound() == three.member(id).unwrap().address();
    assert_eq!((addresses.len(), ids.map(is_bound)), (3, [true, true, false]));
    assert_eq!((addresses[2].host.as_str(), addresses[2].port), ("cache.example", Some(6400)));
    assert_eq!(listed[2].address, *addresses[2]);
    // those that a fault selects end, and the others serve on
    let minority = Selector::Minority.of(&ids, Some(ids[1]));
    assert_eq!(minority, [ids[1]]);
    three.member_mut(minority[0]).unwrap().kill().unwrap();
    assert!(three.member_mut(ids[1]).unwrap().ended().is_some());
    for (number, id) in [(0, ids[0]), (2, ids[2])] {
        assert!(say(three.member(id).unwrap(), "GET k").ends_with(&number.to_string()));
    }
    three.stop().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_pair() {
    let Some(root) = std::env::var_os(HELPER) else { return };
    let lab = Lab::at(Path::new(&root)).unwrap();
    println!("{}", lab.deploy("redis", &pair(["redis", "postgres"], None), Lifetime::Run).unwrap_err());
}

/// If the last member cannot be started, nothing is left of those before it.
#[test]
fn a_deployment_starts_as_a_whole_or_not_at_all() {
    if !wanted("redis") {
        return;
    }
    let (root, lab) = lab();
    // a server whose data cannot be prepared
    let kit = tempfile::Builder::new().prefix("kit-").permissions(mode(0o755)).tempdir().unwrap();
    for (program, does) in [("postgres", "/bin/sleep"), ("initdb", "/bin/false")] {
        fs::copy(does, kit.path().join(program)).unwrap();
    }
    let said = again("servers::role_pair")
        .env(HELPER, root.path())
        .env("ACIDTEST_POSTGRES", kit.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("preparing the data of a private postgres server failed"), "{said}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert!(lab.list().unwrap().is_empty());
    // nor is anything made where a program is missing, or a port is given twice
    let error = lab.deploy("redis", &pair(["redis", "oracle"], None), Lifetime::Run).unwrap_err();
    assert!(matches!(error, LabError::Unknown { .. }), "{error}");
    let port = Some(two(&lab, Lifetime::Run).members()[0].address().port.unwrap());
    let error = lab.deploy("redis", &pair(["redis", "nats"], port), Lifetime::Run).unwrap_err();
    assert!(matches!(error, LabError::PortTaken { .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// Whether the server takes a connection and answers on it within a moment.
fn answers(server: &Member) -> bool {
    let mut stream = TcpStream::connect(socket(server.address())).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // PostgreSQL answers a request for encryption with one letter
    let request: &[u8] =
        if server.address().scheme == "redis" { b"PING\r\n" } else { &[0, 0, 0, 8, 4, 210, 22, 47] };
    stream.write_all(request).unwrap();
    stream.read(&mut [0; 64]).is_ok_and(|length| length > 0)
}

/// A paused server answers nobody and goes on where it was; it can be killed, and stopped in order, while it is paused.
#[test]
fn a_paused_server_does_nothing_until_it_goes_on() {
    for store in ["redis", "postgres"] {
        if !wanted(store) {
            continue;
        }
        let (root, lab) = lab();
        let mut server = start(&lab, store, Durability::Process, Lifetime::Run, None).unwrap();
        await_answer(&mut server);
        until("it answers", || answers(&server));
        server.pause().unwrap();
        assert!(!answers(&server), "{store}");
        assert_eq!(server.ended(), None);
        server.resume().unwrap();
        until("it answers again", || answers(&server));

        server.pause().unwrap();
        server.kill().unwrap();
        assert_eq!(server.ended().as_deref(), Some("was killed by signal 9"));
        server.restart().unwrap();
        await_answer(&mut server);

        server.pause().unwrap();
        server.ask_to_stop().unwrap();
        until("it stops in order", || server.ended().is_some());
        assert_eq!(server.ended().as_deref(), Some("exited with status 0"), "{store}");
        server.restart().unwrap();
        await_answer(&mut server);

        server.pause().unwrap();
        let folder = server.folder().to_owned();
        server.stop().unwrap();
        assert_eq!(processes_of(&folder), Vec::<u32>::new());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_pauser() {
    let Some(root) = std::env::var_os(HELPER) else { return };
    let lab = Lab::at(Path::new(&root)).unwrap();
    let mut server = start(&lab, "postgres", Durability::None, Lifetime::Run, None).unwrap();
    await_answer(&mut server);
    server.pause().unwrap();
    ready()
}

/// A paused server does not hear that its bench is gone; `down` finds and ends it, in order.
#[test]
fn what_was_paused_when_its_bench_was_killed_is_cleared_away() {
    if !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let mut bench = bench(root.path(), "servers::role_pauser");
    let entry = lab.list().unwrap().remove(0);
    let segment = segment_of(&entry.folder.join(Role::Server.name()));
    bench.kill().unwrap();
    bench.wait().unwrap();
    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
    assert_eq!(processes_of(&entry.folder), Vec::<u32>::new());
    assert!(segment.is_none_or(|segment| !shared_memory().contains(&segment)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_taken_port_is_told_before_anything_is_made() {
    if !wanted("redis") {
        return;
    }
    let (root, lab) = lab();
    let held = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = held.local_addr().unwrap().port();
    let error = start(&lab, "redis", Durability::None, Lifetime::Run, Some(port)).unwrap_err();
    assert!(matches!(error, LabError::PortTaken { port: taken } if taken == port), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_dies_shows_its_last_words() {
    if !wanted("redis") {
        return;
    }
    let (_root, lab) = lab();
    let mut server = start(&lab, "redis", Durability::Process, Lifetime::Run, None).unwrap();
    await_answer(&mut server);
    assert_eq!(say(&server, "SET k v"), "+OK");
    server.kill().unwrap();
    let manifest = server.folder().join("data/appendonlydir/appendonly.aof.manifest");
    fs::write(manifest, "nonsense\n").unwrap();
    let told = server.restart().and_then(|()| {
        until("the server gives up", || server.ended().is_some());
        server.check()
    });
    let told = told.unwrap_err().to_string();
    assert!(told.contains("redis server exited with status 1; the last lines of its log:\n"), "{told}");
    assert!(told.contains("Invalid AOF manifest"), "{told}");
    assert!(server.log_tail(5).len() <= 5 && !server.log_tail(5).is_empty());
}

#[test]
fn an_unknown_store_is_told_which_are_known() {
    let error = Lab::locate("oracle").unwrap_err().to_string();
    let known = "postgres, mariadb, mysql, redis, tarantool, elasticsearch, rabbitmq, nats";
    assert_eq!(error, format!("the lab cannot start \"oracle\": it can start {known}"));
}

#[test]
fn a_root_that_is_not_ours_is_refused() {
    let (root, _) = lab();
    let link = root.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).unwrap();
    let slashed = format!("{}/", link.display());
    let open = root.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, mode(0o777)).unwrap();
    for bad in [link.as_path(), Path::new(&slashed), open.as_path()] {
        let error = Lab::at(bad).unwrap_err();
        assert!(matches!(error, LabError::NotOurs { .. }), "{error}");
    }
}

#[test]
fn folders_without_a_journal_are_never_touched() {
    let (root, lab) = lab();
    let treasure = root.path().join("redis-photos");
    fs::create_dir(&treasure).unwrap();
    fs::write(treasure.join("one.jpg"), "x").unwrap();
    let folder = lab.folder("sqlite", Lifetime::Kept).unwrap();
    fs::write(folder.path().join("a.db"), "x").unwrap();
    drop(folder);
    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0));
    assert!(treasure.join("one.jpg").exists());
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn an_embedded_folder_goes_with_its_value() {
    let (root, lab) = lab();
    let folder = lab.folder("sqlite", Lifetime::Run).unwrap();
    fs::write(folder.path().join("a.db"), "x").unwrap();
    assert!(lab.list().unwrap()[0].members.is_empty());
    drop(folder);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// This program again, with nothing but one of its roles.
pub(crate) fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--ignored", "--nocapture"]);
    command
}

/// Starts this test binary again as a bench: one that says `ready`, then lives until it is killed.
pub(crate) fn bench(root: &Path, role: &str) -> Child {
    let mut child = again(role)
        .arg("--test-threads=1")
        .env(HELPER, root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")), "the bench did not start");
    child
}

pub(crate) fn ready() -> ! {
    println!("ready");
    loop {
        thread::sleep(Duration::from_mins(1));
    }
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_bench() {
    let Some(root) = std::env::var_os(HELPER) else { return };
    let lab = Lab::at(Path::new(&root)).unwrap();
    let mut server = start(&lab, "redis", Durability::None, Lifetime::Run, None).unwrap();
    await_answer(&mut server);
    let _folder = lab.folder("sqlite", Lifetime::Run).unwrap();
    let address = Address::parse("mysql://ann:hunter2@db.example/shop").unwrap();
    let _note = lab.note_namespace(&address, "mariadb", "acidtest_1", "run-1").unwrap();
    ready()
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_keeper() {
    let Some(root) = std::env::var_os(HELPER) else { return };
    let lab = Lab::at(Path::new(&root)).unwrap();
    for store in ["redis", "postgres"] {
        await_answer(&mut start(&lab, store, Durability::Process, Lifetime::Kept, None).unwrap());
    }
    ready()
}

#[test]
fn a_killed_bench_leaves_no_server_and_down_clears_the_rest() {
    if !wanted("redis") {
        return;
    }
    let (root, lab) = lab();
    let mut bench = bench(root.path(), "servers::role_bench");
    let server = lab.list().unwrap().into_iter().find(|entry| entry.store == "redis").unwrap();
    let pid = server.members[0].pid.unwrap();
    assert_eq!(server.holder, Holder::Bench { pid: bench.id(), alive: true });

    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (0, 2), "a living bench keeps its own");
    assert!(cleared.leftovers[0].why.contains(&bench.id().to_string()));
    assert!(lives(pid) && lab.namespaces().unwrap().is_empty());
    for mark in ["run-1", "run-1.2"] {
        assert_eq!(lab.bench_of(mark).unwrap(), Some(bench.id()));
    }
    assert_eq!(lab.bench_of("run-2").unwrap(), None);
    // this process's own runs are no others
    let address = Address::parse("redis://db.example").unwrap();
    let note = lab.note_namespace(&address, "redis", "acidtest", "run-3").unwrap();
    assert_eq!(lab.bench_of("run-3").unwrap(), None);
    note.clear().unwrap();

    bench.kill().unwrap();
    bench.wait().unwrap();
    until("the server follows its bench", || !lives(pid));
    assert_eq!(lab.bench_of("run-1").unwrap(), None);
    let left = lab.namespaces().unwrap();
    assert_eq!(
        (left[0].address.as_str(), left[0].namespace.as_str()),
        ("mysql://ann@db.example/shop", "acidtest_1")
    );
    for entry in left {
        entry.clear().unwrap();
    }

    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (2, 0));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "a bench, started by the tests"]
fn role_starter() {
    let Some(order) = std::env::var(HELPER).ok() else { return };
    let [store, lifetime, root] = order.splitn(3, ':').collect::<Vec<_>>().try_into().unwrap();
    let lifetime = if lifetime == "Kept" { Lifetime::Kept } else { Lifetime::Run };
    let lab = Lab::at(Path::new(root)).unwrap();
    let _server = match store.split_once('+') {
        Some((locks, server)) => lab.deploy(server, &pair([locks, server], None), lifetime).unwrap(),
        None => start(&lab, store, Durability::None, lifetime, None).unwrap().0,
    };
    ready()
}

#[test]
fn a_bench_killed_at_any_moment_of_a_start_leaves_nothing_that_down_cannot_clear() {
    let moments = [("postgres", 50), ("postgres", 250), ("mariadb", 50), ("mariadb", 350)];
    let moments = moments.into_iter().chain([
        // between the start of the first member and that of the second
        ("redis+postgres", 100),
        ("redis+mariadb", 300),
        ("mysql", 20),
        ("mysql", 900),
        ("elasticsearch", 20),
        ("rabbitmq", 20),
        ("rabbitmq", 1500),
    ]);
    for (store, delay) in moments {
        if !store.split('+').all(wanted) {
            continue;
        }
        let (root, lab) = lab();
        let mut starter = Starter::of(store, Lifetime::Run, root.path(), &[]);
        until("the journal is there", || !lab.list().unwrap().is_empty());
        thread::sleep(Duration::from_millis(delay));
        starter.kill();
        let cleared = lab.down().unwrap();
        assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
        until("the helpers have ended too", || processes_of(&cleared.removed[0].folder).is_empty());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}

/// A bench, in another process, that starts a server and writes a file when the server is there.
struct Starter {
    bench: Child,
    said: NamedTempFile,
}

impl Starter {
    fn of(store: &str, lifetime: Lifetime, root: &Path, environment: &[(&str, &Path)]) -> Self {
        let said = NamedTempFile::new().unwrap();
        let bench = again("servers::role_starter")
            .env(HELPER, format!("{store}:{lifetime:?}:{}", root.display()))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(said.reopen().unwrap())
            .spawn()
            .unwrap();
        Self { bench, said }
    }

    fn is_ready(&self) -> bool {
        fs::read_to_string(self.said.path()).unwrap().contains("ready")
    }

    fn kill(&mut self) {
        self.bench.kill().unwrap();
        self.bench.wait().unwrap();
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        let _ = self.bench.kill();
        let _ = self.bench.wait();
    }
}

/// Starts a bench and waits until it prepares a server by a program with that word on its command line, other than
/// a shell that was told to start it. One whose preparation went by unseen is followed by another.
fn preparing(store: &str, word: &str, lifetime: Lifetime, lab: &Lab) -> (Starter, PathBuf) {
    for _ in 0..100 {
        let mut starter = Starter::of(store, lifetime, lab.root(), &[]);
        let mut seen = None;
        until("the preparation is seen, or over", || {
            let prepares = |pid: &u32| {
                let line = text_of(*pid, "cmdline");
                line.contains(word) && line.split('\0').nth(1) != Some("-c")
            };
            let folder = lab.list().unwrap().pop().map(|entry| entry.folder);
            seen = folder.filter(|folder| processes_of(folder).iter().any(prepares));
            seen.is_some() || starter.is_ready()
        });
        if let Some(folder) = seen.filter(|_| !starter.is_ready()) {
            return (starter, folder);
        }
        starter.kill();
        lab.down().unwrap();
    }
    panic!("{store} is prepared by something else than {word}");
}

/// The program that prepares a server, kept or not, starts others in its turn: initdb `postgres --boot`, MariaDB's
/// script `mariadbd`.
#[test]
fn what_prepares_a_server_ends_with_its_bench_and_down_leaves_nothing() {
    let moments = [
        ("postgres", "/initdb\0"),
        ("postgres", "log_checkpoints=false"),
        ("mariadb", "/mariadb-install-db\0"),
        ("mariadb", "--bootstrap"),
        ("mysql", "--initialize-insecure"),
    ];
    for (store, word) in moments.into_iter().filter(|(store, _)| wanted(store)) {
        for (lifetime, alone) in [(Lifetime::Run, true), (Lifetime::Run, false), (Lifetime::Kept, true)] {
            let (root, lab) = lab();
            let (mut starter, folder) = preparing(store, word, lifetime, &lab);
            starter.kill();
            if alone {
                until("the preparation follows its bench", || processes_of(&folder).is_empty());
            }
            let segment = segment_of(&folder);
            let cleared = lab.down().unwrap();
            assert_eq!(processes_of(&folder), Vec::<u32>::new(), "{store} {word}");
            assert_eq!(
                (cleared.removed.len(), cleared.leftovers.len()),
                (1, 0),
                "{store}: {:?}",
                cleared.leftovers
            );
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{store} {word}");
            assert!(segment.is_none_or(|segment| !shared_memory().contains(&segment)), "{store} {word}");
        }
    }
}

/// A stand-in for PostgreSQL whose preparation ignores the signal to end. It starts a process that works elsewhere
/// and one that leaves its group.
struct Stubborn {
    kit: TempDir,
    /// A number on the command lines of its processes, and of no others.
    tag: u32,
}

impl Stubborn {
    fn new(tag: u32) -> Self {
        let kit = tempfile::Builder::new().prefix("kit-").permissions(mode(0o755)).tempdir().unwrap();
        let tag = tag * 10_000_000 + std::process::id();
        let initdb = format!(
            "#!/bin/sh\ntrap '' INT TERM HUP\n(cd / && exec sleep 590.{tag}) &\nsetsid sleep 591.{tag} &\n\
             sleep 592.{tag}\n"
        );
        fs::write(kit.path().join("initdb"), initdb).unwrap();
        fs::set_permissions(kit.path().join("initdb"), mode(0o755)).unwrap();
        fs::copy("/bin/sleep", kit.path().join("postgres")).unwrap();
        Self { kit, tag }
    }

    fn program(&self) -> PathBuf {
        self.kit.path().join("postgres")
    }

    /// Starts a bench that prepares it, and waits until all its processes exist. Returns the bench, the processes,
    /// and the one that the bench itself started.
    fn prepare(&self, root: &Path) -> (Starter, Vec<u32>, u32) {
        let named = [("ACIDTEST_POSTGRES", &*self.program())];
        let starter = Starter::of("postgres", Lifetime::Run, root, &named);
        let mut processes = Vec::new();
        until("all processes are there", || {
            processes = numbers().filter(|pid| self.runs(*pid, "")).collect();
            processes.len() == 3
        });
        let first = numbers().find(|pid| parent_of(*pid) == Some(starter.bench.id())).unwrap();
        (starter, processes, first)
    }

    fn runs(&self, pid: u32, seconds: &str) -> bool {
        let line = text_of(pid, "cmdline");
        line.starts_with(&format!("sleep\0{seconds}")) && line.contains(&format!(".{}\0", self.tag))
    }
}

impl Drop for Stubborn {
    /// A test that failed half-way leaves nothing running.
    fn drop(&mut self) {
        for pid in numbers().filter(|pid| self.runs(*pid, "")) {
            let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
        }
    }
}

#[test]
fn a_preparation_that_ignores_its_end_is_killed_with_its_bench() {
    let (root, lab) = lab();
    let stubborn = Stubborn::new(1);
    let (mut starter, processes, _) = stubborn.prepare(root.path());
    let (others, group): (Vec<u32>, Vec<u32>) = processes.iter().partition(|pid| stubborn.runs(**pid, "591"));
    starter.kill();
    until("its group follows the bench", || !group.iter().any(|pid| lives(*pid)));
    assert!(others.iter().all(|pid| lives(*pid)));
    let cleared = lab.down().unwrap();
    assert!(!others.iter().any(|pid| lives(*pid)), "what has left the group is found by down");
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn down_ends_whatever_was_started_for_a_folder_and_no_shell_of_the_user_s() {
    let (root, lab) = lab();
    let stubborn = Stubborn::new(2);
    let (mut starter, processes, first) = stubborn.prepare(root.path());
    let folder = lab.list().unwrap().pop().unwrap().folder;
    let mut shells = [
        Command::new("sleep").arg("593").current_dir(&folder).spawn().unwrap(),
        // a process that may, for all one can see, just be turning into another program
        Command::new("sleep").arg("594").current_dir(&folder).env_clear().spawn().unwrap(),
        Command::new(stubborn.program()).arg("595").current_dir(&folder).spawn().unwrap(),
    ];
    // the process that would tell the others dies before it can, while the bench is stopped
    signal("STOP", starter.bench.id());
    signal("KILL", first);
    starter.kill();
    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
    assert!(!folder.exists() && !processes.iter().any(|pid| lives(*pid)));
    for shell in &mut shells {
        assert!(lives(shell.id()), "{}", text_of(shell.id(), "cmdline"));
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}

#[test]
fn a_preparation_that_dies_leaves_nothing_that_it_started() {
    let (root, _lab) = lab();
    let stubborn = Stubborn::new(3);
    let (mut starter, processes, first) = stubborn.prepare(root.path());
    signal("KILL", first);
    let ended = starter.bench.wait().unwrap();
    assert!(!ended.success() && !processes.iter().any(|pid| lives(*pid)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

fn signal(name: &str, pid: u32) {
    assert!(pid > 1);
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// A stand-in for Redis, as a script that turns into it: it hears no signal for a while when it starts, as RabbitMQ.
#[test]
fn a_server_that_hears_no_signal_ends_with_its_bench() {
    let (root, lab) = lab();
    let kit = tempfile::Builder::new().prefix("kit-").permissions(mode(0o755)).tempdir().unwrap();
    let server = kit.path().join("redis-server");
    fs::write(&server, "#!/bin/sh\ntrap '' INT TERM HUP\nexec \"$0.process\" 590\n").unwrap();
    fs::set_permissions(&server, mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/bin/sleep", kit.path().join("redis-server.process")).unwrap();
    let mut starter = Starter::of("redis", Lifetime::Run, root.path(), &[("ACIDTEST_REDIS", &server)]);
    until("the server is there", || starter.is_ready());
    let pid = lab.list().unwrap()[0].members[0].pid.unwrap();
    starter.kill();
    until("the server follows its bench", || !lives(pid));
    let cleared = lab.down().unwrap();
    assert_eq!((cleared.removed.len(), cleared.leftovers.len()), (1, 0), "{:?}", cleared.leftovers);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// A user's own processes: one of the same binary with a file in the folder on its command line, and one of another
/// binary that even works there.
#[test]
fn a_user_s_own_process_is_never_ended() {
    if !wanted("nats") {
        return;
    }
    let (root, lab) = lab();
    let mut server = start(&lab, "nats", Durability::None, Lifetime::Run, None).unwrap();
    await_answer(&mut server);
    let program = fs::read_link(format!("/proc/{}/exe", server.pid())).unwrap();
    let data = server.folder().join("data");
    let theirs = |elsewhere: &Path, file: &str| {
        let mut command = Command::new(&program);
        command.args(["--addr", "127.0.0.1", "--port", "-1", "--log"]).arg(data.join(file));
        command.current_dir(elsewhere).spawn().unwrap()
    };
    let mut theirs = [theirs(root.path(), "one.log"), theirs(&data, "two.log")];
    for (each, file) in theirs.iter().zip(["one.log", "two.log"]) {
        let log = data.join(file);
        until("it is there", || fs::read_to_string(&log).is_ok_and(|text| text.contains("Server is ready")));
        assert!(runs(each.id(), &program));
    }
    server.kill().unwrap();
    server.restart().unwrap();
    await_answer(&mut server);
    server.stop().unwrap();
    assert!(lab.down().unwrap().removed.is_empty());
    for each in &mut theirs {
        assert!(lives(each.id()), "{}", text_of(each.id(), "cmdline"));
        each.kill().unwrap();
        each.wait().unwrap();
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_kept_server_outlives_its_starter_until_down() {
    if !wanted("redis") || !wanted("postgres") {
        return;
    }
    let (root, lab) = lab();
    let mut keeper = bench(root.path(), "servers::role_keeper");
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    thread::sleep(Duration::from_millis(300));
    let kept = lab.list().unwrap();
    assert_eq!(kept.len(), 2);
    for entry in &kept {
        assert_eq!(entry.holder, Holder::Kept);
        assert!(TcpStream::connect(socket(&entry.members[0].address)).is_ok(), "{entry:?}");
    }
    // neither a shell in its folder nor any other process of the user is the server
    let mut shell = Command::new("sleep")
        .arg("600")
        .current_dir(kept[0].folder.join(Role::Server.name()))
        .spawn()
        .unwrap();
    let cleared = lab.down().unwrap();
    assert!(lives(shell.id()));
    shell.kill().unwrap();
    shell.wait().unwrap();
    let pids = |entries: &[Entry]| -> Vec<u32> {
        entries.iter().flat_map(|entry| &entry.members).map(|member| member.pid.unwrap()).collect()
    };
    assert!(pids(&cleared.removed).len() == 2 && cleared.leftovers.is_empty());
    assert!(pids(&kept).into_iter().all(|pid| !lives(pid)));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

/// The result of [`Lab::locate`] for a store in a process with another environment.
fn located_with(store: &str, environment: &[(&str, &str)]) -> String {
    let output =
        again("servers::role_locator").env(HELPER, store).envs(environment.iter().copied()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "a process with an environment of its own, started by the tests"]
fn role_locator() {
    if let Ok(store) = std::env::var(HELPER) {
        match Lab::locate(&store) {
            Ok(found) => println!("found {} {}", found.program.display(), found.version),
            Err(error) => println!("{error}"),
        }
    }
}

#[test]
fn the_environment_names_another_binary() {
    let redis = |program: &str| located_with("redis", &[("ACIDTEST_REDIS", program)]);
    let missing = redis("/nonexistent");
    assert!(missing.contains("redis-server is not installed: looked for /nonexistent"), "{missing}");
    assert!(missing.contains("apt-get install redis-server; or name its program in ACIDTEST_REDIS"));
    assert!(redis("/etc/passwd").contains("cannot use /etc/passwd: it is not a program"));
    assert!(redis("bin/redis").contains("is not installed"));
    if wanted("redis") {
        let found = Lab::locate("redis").unwrap();
        assert!(found.version.contains("v="), "{found:?}");
        assert!(redis(found.program.to_str().unwrap()).contains("found /"));
        assert!(redis(found.program.parent().unwrap().to_str().unwrap()).contains("found /"));
    }
}

#[test]
fn a_server_of_another_maker_is_not_taken_for_mysql() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let stand_in = folder.path().join("mysqld");
    let nowhere = [("PATH", path), ("XDG_CACHE_HOME", path)];
    if wanted("mariadb") {
        let mariadb = Lab::locate("mariadb").unwrap().program;
        std::os::unix::fs::symlink(&mariadb, &stand_in).unwrap();
        let refused = located_with("mysql", &nowhere);
        assert!(refused.contains(&format!("\n  {} is something else: ", stand_in.display())), "{refused}");
        assert!(refused.contains("MariaDB"), "{refused}");
        assert!(
            refused.contains("acidtest's sources: tools/get-mysql; or name its program in ACIDTEST_MYSQL")
        );
        let refused = located_with("mysql", &[("ACIDTEST_MYSQL", mariadb.to_str().unwrap())]);
        assert!(refused.contains("it is something else: ") && refused.contains("MariaDB"), "{refused}");
    }
    let missing = located_with("elasticsearch", &nowhere);
    assert!(missing.contains(&format!("{path}/acidtest/elasticsearch/elasticsearch")), "{missing}");
    assert!(missing.contains("tools/get-elasticsearch"), "{missing}");
}
