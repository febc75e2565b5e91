//! TLS with the users' own servers: each store on a server that speaks it, on one that does not, and with strangers in between.

use std::{
    fs,
    future::{Future, poll_fn},
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use acidtest_lab::{Issued, Issuer};
use acidtest_model::{
    Address, CertificateCheck, Durability, EffectiveSettings, OwnCertificate, Secret, StoreError, Task, Tls,
};
use acidtest_store_elasticsearch::Elasticsearch;
use acidtest_store_mariadb::Variant;
use acidtest_store_nats::Nats;
use acidtest_store_postgres::Postgres;
use acidtest_store_rabbitmq::{
    ConnectOptions, RabbitMq,
    amqp::{Arguments, Envelope, Event, ids},
};
use acidtest_store_redis::Redis;
use acidtest_testbed::{PgBouncer, Private, left_out, wait};
use acidtest_transport::{Acceptor, Security, Transport, Wire};
use acidtest_workloads::Store;
use mysql_async::{Conn, OptsBuilder, prelude::Queryable};
use tokio::time::timeout;

type Opened = Result<Box<dyn Store>, StoreError>;

/// A store with a server that can speak TLS.
struct Subject {
    name: &'static str,
    /// How an address asks for TLS, as the remedies say it.
    asked: &'static str,
    /// How one asks for the name not to be checked.
    any_name: &'static str,
    open: for<'a> fn(&'a Address) -> Task<'a, Opened>,
    /// What its server says before a handshake of TLS can begin, to one that offers TLS, and one that does not.
    greetings: [Greeting; 2],
}

/// What a server sends first: at once, or once so many bytes have come.
#[derive(Clone, Copy)]
struct Greeting {
    after: usize,
    says: &'static [u8],
}

const NOTHING: Greeting = Greeting { after: 0, says: b"" };

async fn boxed<S: Store>(opened: impl Future<Output = Result<S, StoreError>>) -> Opened {
    Ok(Box::new(opened.await?))
}

const POSTGRES: Subject = Subject {
    name: "postgres",
    asked: "?sslmode=verify-full",
    any_name: "sslmode=verify-ca",
    open: |address| Box::pin(boxed(Postgres::open(address))),
    // 8 bytes ask for TLS
    greetings: [Greeting { after: 8, says: b"S" }, Greeting { after: 8, says: b"N" }],
};

/// A greeting of MySQL's protocol, version 10, whose capabilities have TLS or have not.
const fn mysql_greeting(lower: [u8; 2]) -> [u8; 78] {
    let mut greeting = *b"\x4a\0\0\0\x0a8.0.36\0\x01\0\0\0abcdefgh\0\0\0\x2d\x02\0\xff\xdf\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0caching_sha2_password\0";
    greeting[25] = lower[0];
    greeting[26] = lower[1];
    greeting
}

const MYSQL_WITH_TLS: [u8; 78] = mysql_greeting([0xff, 0xff]);
const MYSQL_WITHOUT: [u8; 78] = mysql_greeting([0xff, 0xf7]);

const MYSQL: Subject = Subject {
    name: "mysql",
    asked: "?ssl-mode=VERIFY_IDENTITY",
    any_name: "ssl-mode=VERIFY_CA",
    open: |address| Box::pin(boxed(Variant::MYSQL.open(address))),
    greetings: [Greeting { after: 0, says: &MYSQL_WITH_TLS }, Greeting { after: 0, says: &MYSQL_WITHOUT }],
};

const MARIADB: Subject =
    Subject { name: "mariadb", open: |address| Box::pin(boxed(Variant::MARIADB.open(address))), ..MYSQL };

const REDIS: Subject = Subject {
    name: "redis",
    asked: "rediss://",
    any_name: "sslmode=verify-ca",
    open: |address| Box::pin(boxed(Redis::open(address))),
    greetings: [NOTHING, Greeting { after: 1, says: b"-ERR Protocol error\r\n" }],
};

const NATS: Subject = Subject {
    name: "nats",
    asked: "tls://",
    any_name: "sslmode=verify-ca",
    open: |address| Box::pin(boxed(Nats::open(address))),
    greetings: [
        Greeting {
            after: 0,
            says: b"INFO {\"version\":\"2.9.10\",\"headers\":true,\"tls_required\":true} \r\n",
        },
        Greeting { after: 0, says: b"INFO {\"version\":\"2.9.10\",\"headers\":true} \r\n" },
    ],
};

const RABBITMQ: Subject = Subject {
    name: "rabbitmq",
    asked: "amqps://",
    any_name: "sslmode=verify-ca",
    open: |address| Box::pin(boxed(RabbitMq::open(address))),
    greetings: [NOTHING, Greeting { after: 8, says: b"AMQP\0\0\x09\x01" }],
};

const ELASTICSEARCH: Subject = Subject {
    name: "elasticsearch",
    asked: "https://",
    any_name: "sslmode=verify-ca",
    open: |address| Box::pin(boxed(Elasticsearch::open(address, None, None))),
    greetings: [
        NOTHING,
        Greeting { after: 1, says: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" },
    ],
};

impl Subject {
    /// The error of an address that cannot be opened: one message with a remedy, and without the password.
    fn refusal(&self, address: &Address) -> String {
        let begun = Instant::now();
        let Err(error) = wait((self.open)(address)) else { panic!("{address} was opened") };
        assert!(begun.elapsed() < Duration::from_secs(30), "{address} took {:?}", begun.elapsed());
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("\n  remedy: "), "{said}");
        if let Some(password) = &address.password {
            assert!(!format!("{said}{error:?}").contains(password.reveal()), "{said}");
        }
        said
    }

    fn refuses(&self, address: &Address, words: &[&str]) {
        let said = self.refusal(address);
        for word in words {
            assert!(said.contains(word), "{}: no {word:?} in: {said}", self.name);
        }
    }

    fn settings(&self, address: &Address) -> EffectiveSettings {
        wait(async { (self.open)(address).await?.effective().await })
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

fn with(address: &Address, change: impl FnOnce(&mut Tls)) -> Address {
    let mut changed = address.clone();
    change(changed.tls.as_mut().unwrap());
    changed
}

/// Replaces the certificate of a private server, and starts it again with it.
fn restart_with(private: &mut Private, subject: &Subject, issuer: &Issuer, new: &Issued) {
    private.kill();
    let folder = private.folder().join("tls");
    for (name, content) in
        [("issuer.pem", &issuer.certificate()), ("server.pem", &new.certificate), ("server.key", &new.key)]
    {
        // in place, as the server's user owns it
        fs::write(folder.join(name), content).unwrap();
    }
    private.restart();
    let anybody = with(private.address(), |tls| {
        *tls = Tls::checking(CertificateCheck::Nothing);
    });
    private.open(async |_| (subject.open)(&anybody).await);
}

/// A server with TLS, from its start to a certificate that has expired.
fn privacy(subject: &Subject) {
    // stands in front of a server that speaks no TLS itself
    if subject.name == "elasticsearch" && left_out("stunnel") {
        return;
    }
    let Some(mut private) = Private::start_with_tls(subject.name) else { return };
    let opened: Box<dyn Store> = private.open(async |address| (subject.open)(address).await);
    let address = private.address().clone();

    let tls = wait(opened.effective()).unwrap().tls.expect("no TLS is read back");
    assert_eq!((tls.version.as_str(), tls.checked), ("TLSv1.3", CertificateCheck::Name));
    assert!(tls.cipher.starts_with("TLS_") && tls.beyond.is_none(), "{tls:?}");

    let took = wait(opened.connecting()).unwrap().expect("it has connections");
    assert!((Duration::from_micros(50)..Duration::from_secs(5)).contains(&took), "{took:?}");

    // a client without TLS, and one that does not know the issuer
    subject.refuses(&Address { tls: None, ..address.clone() }, &[subject.asked]);
    let unknown = with(&address, |tls| tls.issuers = None);
    subject.refuses(&unknown, &["was not issued by anybody that the system trusts", "=FILE"]);

    // another certificate after a restart, of another issuer and for another name
    let issuer = Issuer::new().unwrap();
    restart_with(&mut private, subject, &issuer, &issuer.issue(&["db.example", "10.1.2.3"]).unwrap());
    let away = wait(opened.effective()).unwrap_err().to_string();
    assert!(away.contains("was not issued by"), "{away}");
    let names = ["is not for \"127.0.0.1\", but for db.example, 10.1.2.3", subject.any_name];
    subject.refuses(&address, &names);
    for (check, issuers) in [
        (CertificateCheck::Issuer, Some(private.folder().join("tls/issuer.pem"))),
        (CertificateCheck::Nothing, None),
    ] {
        let less = with(&address, |tls| (tls.check, tls.issuers) = (check, issuers));
        assert_eq!(subject.settings(&less).tls.map(|tls| tls.checked), Some(check), "{less}");
    }
    // what is not checked is the name alone
    let stranger = private.folder().join("stranger.pem");
    fs::write(&stranger, Issuer::new().unwrap().certificate()).unwrap();
    let other =
        with(&address, |tls| *tls = Tls { check: CertificateCheck::Issuer, ..Tls::issued_by(&stranger) });
    subject.refuses(&other, &["was not issued by", "stranger.pem"]);

    let expired = issuer.issue_with(&["127.0.0.1"], |certificate| {
        certificate.not_after = rcgen::date_time_ymd(2026, 1, 31);
    });
    restart_with(&mut private, subject, &issuer, &expired.unwrap());
    subject.refuses(&address, &["has expired, ", " days ago", "renew the server's certificate"]);
}

/// Plays a server that says this, and then reads until the client is gone, or closes at once. Returns its address, and
/// what it hears.
fn stranger(subject: &Subject, greeting: Greeting, closes: bool) -> (Address, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let heard = play(stream.unwrap(), greeting, closes);
            // the test may be over
            let _ = sender.send(heard);
        }
    });
    let scheme = if subject.name == "rabbitmq" { "amqp" } else { subject.name };
    let password = Some(Secret::new("hunter2"));
    let tls = Some(Box::new(Tls::checking(CertificateCheck::Nothing)));
    (Address { password, tls, ..Address::loopback(scheme, Some("ann"), port, "") }, heard)
}

fn play(mut stream: TcpStream, Greeting { after, says }: Greeting, closes: bool) -> Vec<u8> {
    let mut heard = Vec::new();
    while heard.len() < after && hear(&mut stream, &mut heard) {}
    if stream.write_all(says).is_ok() {
        if closes {
            // once the beginning of the handshake is heard, the connection is cut; what is unread would reset it instead
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
        while hear(&mut stream, &mut heard) {}
    }
    heard
}

/// Hears more, unless the client is gone, or says nothing for too long.
fn hear(stream: &mut TcpStream, heard: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    let read = stream.read(&mut bytes).unwrap_or(0);
    heard.extend_from_slice(&bytes[..read]);
    read > 0
}

/// A server that has no TLS, strangers that say so, that cut the connection, and that do not answer.
fn strangers(subject: &Subject) {
    let [offers, without] = subject.greetings;
    let (address, heard) = stranger(subject, without, false);
    let said = subject.refusal(&address);
    assert!(said.contains("has no TLS") || said.contains("does not answer in TLS"), "{said}");
    let heard = heard.recv_timeout(Duration::from_secs(30)).unwrap();
    // nothing but the wish for TLS, or the beginning of its handshake
    assert!(heard.len() == without.after || heard.first() == Some(&0x16), "{heard:?}");
    for secret in ["hunter2", "ann"] {
        assert!(!heard.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{heard:?}");
    }

    let (address, heard) = stranger(subject, offers, true);
    subject.refuses(&address, &["cut in the middle of the handshake"]);
    let heard = heard.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(!heard.windows(7).any(|bytes| bytes == b"hunter2"), "{heard:?}");

    let (address, _heard) = stranger(subject, offers, false);
    let said = subject.refusal(&address);
    assert!(said.contains("within"), "{said}");
}

/// A server of the store without TLS is asked for it.
fn openness(subject: &Subject) {
    let Some(mut private) = Private::start(subject.name, Durability::Process) else { return };
    let opened: Box<dyn Store> = private.open(async |address| (subject.open)(address).await);
    assert_eq!(wait(opened.effective()).unwrap().tls, None);
    let tls = Tls::checking(CertificateCheck::Nothing);
    let secret = Address {
        tls: Some(Box::new(tls)),
        user: Some("ann".to_owned()),
        password: Some(Secret::new("hunter2")),
        ..private.address().clone()
    };
    let said = subject.refusal(&secret);
    // Redis waits for the end of what it takes for a command
    let known =
        ["has no TLS", "does not answer in TLS", "cut in the middle of the handshake", "not answered within"];
    assert!(known.iter().any(|words| said.contains(words)), "{said}");
}

macro_rules! of_each {
    ($($name:ident: $subject:ident),* $(,)?) => {
        mod privacy {
            $(#[test] fn $name() { super::privacy(&super::$subject); })*
        }
        mod strangers {
            $(#[test] fn $name() { super::strangers(&super::$subject); })*
        }
    };
}

macro_rules! of_each_without {
    ($($name:ident: $subject:ident),* $(,)?) => {
        mod openness {
            $(#[test] fn $name() { super::openness(&super::$subject); })*
        }
    };
}

of_each! {
    postgres: POSTGRES,
    mariadb: MARIADB,
    mysql: MYSQL,
    redis: REDIS,
    nats: NATS,
    rabbitmq: RABBITMQ,
    elasticsearch: ELASTICSEARCH,
}

// MySQL always has TLS, by certificates of its own
of_each_without! {
    postgres: POSTGRES,
    mariadb: MARIADB,
    redis: REDIS,
    nats: NATS,
    rabbitmq: RABBITMQ,
    elasticsearch: ELASTICSEARCH,
}

/// MySQL makes certificates of its own where it is given none, whose issuer is beside its data.
#[test]
fn mysql_is_believed_by_the_issuer_that_it_made_for_itself() {
    let Some(mut private) = Private::start("mysql", Durability::Process) else { return };
    let _: Box<dyn Store> = private.open(async |address| (MYSQL.open)(address).await);
    let issuers = Some(private.folder().join("data/db/ca.pem"));
    for (check, issuers) in [(CertificateCheck::Nothing, None), (CertificateCheck::Issuer, issuers.clone())] {
        let tls = Tls { issuers, ..Tls::checking(check) };
        let address = Address { tls: Some(Box::new(tls)), ..private.address().clone() };
        assert_eq!(MYSQL.settings(&address).tls.map(|tls| tls.checked), Some(check));
    }
    let tls = Tls { issuers, ..Tls::checking(CertificateCheck::Name) };
    let address = Address { tls: Some(Box::new(tls)), ..private.address().clone() };
    MYSQL.refuses(&address, &["is not for \"127.0.0.1\"", "ssl-mode=VERIFY_CA"]);
}

/// A certificate of a client, and its key, of this issuer.
fn client(issuer: &Issuer, folder: &Path) -> OwnCertificate {
    let Issued { certificate, key } = issuer.issue(&["root"]).unwrap();
    let [chain, own] = ["client.pem", "client.key"].map(|name| folder.join(name));
    fs::write(&chain, certificate).unwrap();
    fs::write(&own, key).unwrap();
    OwnCertificate { chain, key: own }
}

fn redis_asks(address: &Address) {
    let mut ask = redis::cmd("CONFIG");
    ask.arg("SET").arg("tls-auth-clients").arg("yes");
    wait(async {
        let mut session = Redis::open(address).await.unwrap().session().await.unwrap();
        session.ask(&ask).await.unwrap();
    });
}

fn execute_mysql(address: &Address, statement: &str) {
    let transport = Transport::new(address, 3306).unwrap();
    let options = OptsBuilder::default()
        .ip_or_hostname(&address.host)
        .tcp_port(address.port.unwrap())
        .user(address.user.as_ref())
        .prefer_socket(false)
        .ssl_opts(transport.security().map(Security::mysql));
    wait(async {
        let mut conn = Conn::new(options).await.unwrap();
        conn.query_drop(statement).await.unwrap();
    });
}

/// Restarts the server so that it lets in only who shows a certificate of its issuer's.
fn postgres_asks(private: &mut Private, known: &Address) {
    let folder = private.folder().join("tls");
    let set = format!("ALTER SYSTEM SET ssl_ca_file = '{}'", folder.join("issuer.pem").display());
    wait(async {
        let store = Postgres::open(private.address()).await.unwrap();
        store.on_server("setting the issuer", async |client| client.batch_execute(&set).await).await.unwrap();
    });
    fs::write(folder.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
        .unwrap();
    private.kill();
    private.restart();
    private.open(async |_| (POSTGRES.open)(known).await);
}

/// Servers that want to see a client's certificate: the address names it, or the error says how.
#[test]
fn a_client_proves_who_it_is() {
    let issuer = Issuer::new().unwrap();
    for subject in [&REDIS, &MYSQL, &POSTGRES] {
        let Some(mut private) = Private::start_with_tls(subject.name) else { continue };
        let _: Box<dyn Store> = private.open(async |address| (subject.open)(address).await);
        restart_with(&mut private, subject, &issuer, &issuer.issue(&["127.0.0.1"]).unwrap());
        let address = private.address().clone();
        let mut known = with(&address, |tls| tls.certificate = Some(client(&issuer, private.folder())));
        let (asked, refusal) = match subject.name {
            "redis" => {
                redis_asks(&address);
                (address.clone(), "the server asks for a client certificate")
            }
            "mysql" => {
                let make = "CREATE USER ann@127.0.0.1 IDENTIFIED BY 'hunter2' REQUIRE X509";
                execute_mysql(&address, make);
                let ann = |address: &Address| {
                    let (user, password) = (Some("ann".to_owned()), Some(Secret::new("hunter2")));
                    Address { user, password, ..address.clone() }
                };
                known = ann(&known);
                (ann(&address), "Access denied")
            }
            _ => {
                postgres_asks(&mut private, &known);
                (address.clone(), "connection requires a valid client certificate")
            }
        };
        subject.refuses(&asked, &[refusal]);
        assert_eq!(subject.settings(&known).tls.map(|tls| tls.checked), Some(CertificateCheck::Name));
        // a key that is not that of the certificate
        let mixed = with(&known, |tls| {
            let key = private.folder().join("other.key");
            fs::write(&key, issuer.issue(&["root"]).unwrap().key).unwrap();
            tls.certificate.as_mut().unwrap().key = key;
        });
        subject.refuses(&mixed, &["does not belong to the certificate"]);
    }
}

/// A login by SCRAM is bound to its connection where that is demanded; one that the server does not ask for cannot be.
#[test]
fn a_login_is_bound_to_its_connection() {
    let Some(mut private) = Private::start_with_tls("postgres") else { return };
    let _: Box<dyn Store> = private.open(async |address| (POSTGRES.open)(address).await);
    let trusted = private.address().clone();
    wait(async {
        let store = Postgres::open(&trusted).await.unwrap();
        let make = "CREATE ROLE ann LOGIN PASSWORD 'hunter2'";
        store.on_server("making a role", async |client| client.batch_execute(make).await).await.unwrap();
    });
    let hba = private.folder().join("tls/pg_hba.conf");
    let rules = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("hostssl all ann 127.0.0.1/32 scram-sha-256\n{rules}")).unwrap();
    private.kill();
    private.restart();
    let _: Box<dyn Store> = private.open(async |address| (POSTGRES.open)(address).await);

    let ann = |password: &str| {
        let (user, password) = (Some("ann".to_owned()), Some(Secret::new(password)));
        with(&Address { user, password, ..trusted.clone() }, |tls| tls.binds = true)
    };
    POSTGRES.settings(&ann("hunter2"));
    POSTGRES.refuses(&ann("swordfish"), &["password authentication failed"]);
    POSTGRES.refuses(&with(&trusted, |tls| tls.binds = true), &["channel binding"]);
}

/// Stands between one client and a server, and takes nothing more of the client's while it is held.
fn in_between(server: &Address) -> (Address, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address { port: Some(listener.local_addr().unwrap().port()), ..server.clone() };
    let (held, server) = (Arc::new(AtomicBool::new(false)), server.endpoint(0));
    let is_held = Arc::clone(&held);
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut to = TcpStream::connect(server).unwrap();
        let (mut from, mut back) = (to.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut back));
        let mut bytes = vec![0; 1 << 16];
        loop {
            while is_held.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            match client.read(&mut bytes) {
                Ok(0) | Err(_) => return to.shutdown(Shutdown::Both),
                Ok(read) => to.write_all(&bytes[..read])?,
            }
        }
    });
    (address, held)
}

/// What TLS has taken and not sent when a flush is given up is sent as soon as something is waited for again.
#[test]
fn a_flush_that_is_given_up_is_made_up_for() {
    let Some(mut private) = Private::start_with_tls("rabbitmq") else { return };
    let _: Box<dyn Store> = private.open(async |address| (RABBITMQ.open)(address).await);
    let (address, held) = in_between(private.address());
    wait(async {
        let mut connection = ConnectOptions::new(&address, 5672).unwrap().connect().await.unwrap();
        let declaration = Arguments::default().short(0).name("given up").byte(0).table(&[]);
        connection.ask(ids::DECLARE, &declaration, ids::DECLARE_OK).await.unwrap();
        connection.ask(ids::CONFIRM, &Arguments::default().byte(0), ids::CONFIRM_OK).await.unwrap();
        let (envelope, body) = (Envelope::new("given up", false), [7; 1000]);
        held.store(true, Relaxed);
        let mut published = 0;
        loop {
            connection.publish(&envelope, &body).await.unwrap();
            published += 1;
            if timeout(Duration::from_millis(300), connection.flush()).await.is_err() {
                break;
            }
        }
        held.store(false, Relaxed);
        let mut confirmed = 0;
        while confirmed < published {
            match timeout(Duration::from_secs(20), connection.event()).await {
                Ok(Ok(Event::Confirmed { tag, .. })) => confirmed = confirmed.max(tag),
                other => panic!("{confirmed} of {published} are confirmed: {other:?}"),
            }
        }
    });
}

/// Private servers with TLS and without, in one run: TLS has a price, and holds through clients in processes of their own
/// and through a kill of the server.
#[test]
fn a_run_prices_tls() {
    let bench = crate::common::Bench::new();
    if ["redis", "nats", "postgres"].iter().any(|store| !acidtest_testbed::wanted(store)) {
        return;
    }
    let short = ["--clients", "4", "--duration", "1s", "--warmup", "0s"];
    let words = ["run", "inventory", "--store", "redis,postgres", "--tls", "off,on", "--processes", "2"];
    let ended = bench.run(&[&words[..], &short, &["--trials", "2"]].concat()).expect(0);
    for said in ["tls on", "TLSv1.3", "opening a connection takes"] {
        assert!(ended.stdout.contains(said), "{}", ended.stdout);
    }
    let result = bench.result();
    let cells = result["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        let agreed = &cell["effective"]["tls"]["version"];
        let price = cell["prices"].as_array().unwrap().iter().find(|price| price["guarantee"] == "tls");
        // off is what nothing is written of
        if cell["tls"] == "on" {
            assert_eq!(agreed, "TLSv1.3", "{cell}");
            assert_eq!(price.unwrap()["against"], "off", "{cell}");
            for figure in ["throughput", "client_cpu", "server_cpu", "connecting"] {
                assert!(
                    price.unwrap()[figure]["estimate"].as_f64().is_some_and(|ratio| ratio > 0.0),
                    "{cell}"
                );
            }
        } else {
            assert!(agreed.is_null() && price.is_none(), "{cell}");
        }
    }

    let words = ["run", "queue", "--store", "nats", "--tls", "on", "--fault", "kill@300ms"];
    bench.run(&[&words[..], &["--duration", "2s", "--warmup", "0s"]].concat()).expect(0);
    assert_eq!(bench.result()["cells"][0]["tls"], "on");
    bench.assert_clean();
}

/// Where the server does not speak TLS itself, the report says what does, and what that uses is the server's.
#[test]
fn a_proxy_in_front_of_a_server_is_told() {
    if left_out("stunnel") || !acidtest_testbed::wanted("elasticsearch") {
        return;
    }
    let bench = crate::common::Bench::new();
    let words =
        ["run", "records", "--store", "elasticsearch", "--tls", "on", "--lock", "soft", "--records", "100"];
    let ended = bench
        .run(&[&words[..], &["--duration", "500ms", "--warmup", "0s", "--clients", "2"]].concat())
        .expect(0);
    assert!(ended.stdout.contains(", by stunnel in front of the server"), "{}", ended.stdout);
    let server = &bench.result()["cells"][0]["trials"][0]["resources"]["server"];
    assert!(server["processes"].as_u64().unwrap() > 1, "{server}");
    bench.assert_clean();
}

/// A pooler ends the TLS of clients: what they have must not pass for what leads to the server, nor the other way round.
#[test]
fn the_way_beyond_a_pooler_is_told() {
    let Some(mut private) = Private::start("postgres", Durability::None) else { return };
    drop(private.open(Postgres::open));
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let issued = Issuer::new().unwrap().issue(&["127.0.0.1"]).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let settings = [
        "pool_mode = session".to_owned(),
        "client_tls_sslmode = require".to_owned(),
        format!("client_tls_cert_file = {}", file("server.pem", &issued.certificate)),
        format!("client_tls_key_file = {}", file("server.key", &issued.key)),
    ];
    let Some(pool) = PgBouncer::before(private.address(), &settings.each_ref().map(String::as_str)) else {
        return;
    };
    let tls = Some(Box::new(Tls::checking(CertificateCheck::Nothing)));
    let address = Address { tls, ..pool.address().clone() };
    let store = wait(Postgres::open(&address)).unwrap_or_else(|error| panic!("{error}"));
    let told = wait(store.effective()).unwrap().tls.expect("no TLS is read back");
    assert_eq!((told.version.as_str(), told.beyond.as_deref()), ("TLSv1.3", Some("no TLS")));
    assert!(told.to_string().contains("of its own side the server reports no TLS"), "{told}");
}

#[test]
fn tls_is_refused_where_it_means_nothing() {
    let bench = crate::common::Bench::new();
    for (words, why) in [
        ("inventory --store tarantool --tls on", "only Tarantool Enterprise speaks TLS"),
        ("inventory --store sqlite --tls on", "runs in the process of its clients"),
        ("inventory --store rediss://localhost --tls on", "--tls has no effect"),
        ("inventory --store redis://localhost?sslmode=require", "rediss://"),
        ("inventory --store rediss://localhost?sslrootcert=nowhere.pem", "nowhere.pem"),
        ("inventory --store redis --tls maybe", "known are off, on"),
    ] {
        let words: Vec<&str> = ["run"].into_iter().chain(words.split(' ')).collect();
        let refused = bench.run(&words);
        assert!(matches!(refused.code, Some(2 | 3)), "{:?}: {}", refused.code, refused.stderr);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    bench.assert_clean();
}

/// Where a connection with TLS fails to send, it may have sent a part of what it was given last, and a server may have acted
/// upon that: so no request passes for one that was not sent.
#[test]
fn what_was_to_be_sent_counts_as_sent_once_tls_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let issued = Issuer::new().unwrap().issue(&["127.0.0.1"]).unwrap();
    let own = OwnCertificate {
        chain: file("server.pem", &issued.certificate),
        key: file("server.key", &issued.key),
    };
    let patience = Duration::from_secs(20);
    let acceptor = Acceptor::new(Some(&own)).unwrap();
    wait(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::parse(&format!("rediss://{}", listener.local_addr().unwrap())).unwrap();
        let address = with(&address, |tls| *tls = Tls::checking(CertificateCheck::Nothing));
        let transport = Transport::new(&address, 6379).unwrap();
        let accepted = async {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream, patience).await.unwrap()
        };
        let (connected, server) = tokio::join!(transport.connect(), accepted);
        let mut wire = Wire::new(connected.unwrap());
        // more than the buffers of both ends of the connection hold
        wire.output().extend_from_slice(&vec![b'.'; 32 << 20]);
        let behind = wire.place();
        wire.output().extend_from_slice(b"behind it");
        let moment = Duration::from_millis(200);
        timeout(moment, poll_fn(|context| wire.poll_write(context))).await.unwrap_err();
        assert!(!wire.reached(behind));
        drop(server);
        timeout(patience, poll_fn(|context| wire.poll_write(context))).await.unwrap().unwrap_err();
        assert!(wire.reached(behind));
    });
}
