//! Requests to a gateway, by HTTP/1.1 over connections that stay open. Not more of HTTP is understood than the gateway
//! speaks: on the timed path a client is to cost little beside what it measures.

use std::{io, time::Duration};

use acidtest_engine::{Attempt, Fault};
use acidtest_model::{Address, NegotiatedTls, StoreError};
use acidtest_transport::{Stream, TlsError, Transport};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Architecture, Connector, LogQueue, Operations, Request};

/// The longest answer that is read, in bytes.
const LONGEST: usize = 1 << 20;
/// How long the gateway may take to say how it stands.
const PATIENCE: Duration = Duration::from_secs(5);

/// A gateway, and what its clients need to be let in.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    transport: Transport,
    token: String,
}

/// How a gateway stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayState {
    /// Entries that were acknowledged and are not yet stored; of those in a broker, their messages.
    pub waiting: u64,
    /// Entries that were acknowledged, since the gateway was started.
    pub acknowledged: u64,
    /// Entries that were stored since then.
    pub stored: u64,
    /// Entries that came again, since the gateway was started, and were not stored a second time.
    pub repeated: u64,
    /// Which start of which gateway it is; 0 if that is not said.
    pub instance: u64,
}

impl Gateway {
    /// # Errors
    /// A certificate that the address names cannot be used.
    pub(super) fn new(address: &Address, token: &str) -> Result<Self, StoreError> {
        Ok(Self { transport: Transport::new(address, 80)?, token: token.to_owned() })
    }

    /// The TLS that is agreed on with it; none without TLS.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(super) async fn negotiated(&self) -> Result<Option<NegotiatedTls>, StoreError> {
        Ok(self.opened().await?.negotiated())
    }

    /// A connection on which nothing has been asked yet.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(super) async fn opened(&self) -> Result<Stream, StoreError> {
        let stream = self.transport.connect().await;
        stream.map_err(|error| self.failed("connecting to the gateway", in_words(&error)))
    }

    /// How the gateway stands, or a collector at this address, by its metrics.
    ///
    /// # Errors
    /// It does not answer, or not so.
    pub(super) async fn state(&self) -> Result<GatewayState, StoreError> {
        self.told(GatewayState::read).await
    }

    /// How entries come into the database there, where they wait, and how it stands.
    ///
    /// # Errors
    /// It does not answer, or not so.
    pub(super) async fn found(&self) -> Result<(Architecture, LogQueue, GatewayState), StoreError> {
        self.told(|metrics| {
            let (architecture, queue) = way(metrics)?;
            Some((architecture, queue, GatewayState::read(metrics)?))
        })
        .await
    }

    /// What this reads in the metrics.
    async fn told<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
        let asked = async {
            let mut connection = Connection::open(self).await?;
            let (endpoint, token) = (self.transport.endpoint(), &self.token);
            let request =
                format!("GET /metrics HTTP/1.1\r\nHost: {endpoint}\r\nAuthorization: Bearer {token}\r\n\r\n");
            connection.stream.write_all(request.as_bytes()).await?;
            connection.stream.flush().await?;
            connection.answer().await
        };
        let asked = tokio::time::timeout(PATIENCE, asked).await;
        let cause = match asked {
            Ok(Ok(Response { status: 200, body, .. })) => match read(&body) {
                Some(told) => return Ok(told),
                None => "its metrics are not those of acidtest gateway".to_owned(),
            },
            Ok(Ok(Response { status, body, .. })) => said(status, &body),
            Ok(Err(error)) => in_words(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        Err(self.failed("asking the gateway for its state (/metrics)", cause))
    }

    /// The status of the answer to a request on a connection of its own, and what was said with it.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn post(&self, request: &Request) -> io::Result<(u16, String)> {
        let Response { status, body, .. } = Connection::open(self).await?.ask(&request.body).await?;
        Ok((status, said(status, &body)))
    }

    /// That this has failed there.
    pub(super) fn failed(&self, doing: &str, cause: String) -> StoreError {
        StoreError::Server { doing: doing.to_owned(), address: self.transport.endpoint().to_owned(), cause }
    }
}

/// What went wrong with a connection; where it was TLS, with what to do about it.
fn in_words(error: &io::Error) -> String {
    match TlsError::within(error) {
        Some(TlsError { cause, remedy }) => format!("{cause}\n  remedy: {remedy}"),
        None => error.to_string(),
    }
}

impl GatewayState {
    fn read(metrics: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse::<i64>().ok()
        };
        // without a queue nothing waits, and without a broker there are less than no messages
        let waits = |name: &str| value(name).map_or(0, |count| count.max(0).unsigned_abs());
        let total = |name: &str| u64::try_from(value(name)?).ok();
        let is_in_broker = way(metrics).is_some_and(|(_, queue)| queue.broker().is_some());
        if is_in_broker && value("acidtest_gateway_queue_messages").is_none_or(|count| count < 0) {
            // the broker could not be asked
            return None;
        }
        let instance = label(metrics, "instance").and_then(|id| u64::from_str_radix(id, 16).ok());
        Some(Self {
            instance: instance.unwrap_or_default(),
            waiting: waits("acidtest_gateway_queue_entries") + waits("acidtest_gateway_queue_messages"),
            acknowledged: total("acidtest_gateway_entries_acknowledged_total")?,
            stored: total("acidtest_gateway_entries_stored_total")?,
            repeated: total("acidtest_gateway_entries_repeated_total")?,
        })
    }

    /// What both say together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            acknowledged: self.acknowledged + other.acknowledged,
            stored: self.stored + other.stored,
            repeated: self.repeated + other.repeated,
            instance: self.instance ^ other.instance,
        }
    }
}

/// How entries come into the database, and where they wait, by the metrics.
fn way(metrics: &str) -> Option<(Architecture, LogQueue)> {
    let value = |name| label(metrics, name);
    let architectures = [Architecture::Direct, Architecture::Queued];
    let queues = [LogQueue::Disk, LogQueue::Memory, LogQueue::RabbitMq, LogQueue::Nats];
    let (architecture, queue) = (value("architecture")?, value("queue")?);
    let architecture = architectures.into_iter().find(|known| known.name() == architecture)?;
    let queue = queues.into_iter().find(|known| known.name() == queue);
    match architecture {
        Architecture::Direct => Some((architecture, queue.unwrap_or_default())),
        Architecture::Queued => Some((architecture, queue?)),
    }
}

/// What is said under this name of what a gateway is.
fn label<'a>(metrics: &'a str, name: &str) -> Option<&'a str> {
    let labels = metrics.lines().find_map(|line| line.strip_prefix("acidtest_gateway_info{"))?;
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

impl Connector for Gateway {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        Connection::open(self).await.map_err(|error| in_words(&error))
    }
}

/// A connection to a gateway.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    /// The head of every request, up to the length of its body.
    head: String,
    /// What is sent, and what was read of the answer. Their memory is reused.
    sent: Vec<u8>,
    read: Vec<u8>,
    /// The places of those entries of the last acknowledged request that were not taken.
    refused: Vec<usize>,
}

#[derive(Debug)]
struct Response {
    status: u16,
    body: String,
    /// Whether the connection stays open.
    stays: bool,
}

/// What a gateway says of a request that it does not take as it is.
#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: String,
    /// How many of its entries were taken, where the gateway says so.
    accepted: Option<u64>,
}

impl Problem {
    fn read(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok()
    }
}

/// A status with what was said with it, or its beginning.
fn said(status: u16, body: &str) -> String {
    let text = match Problem::read(body) {
        // some details begin with the title
        Some(Problem { title, detail, .. }) if !title.is_empty() && detail.starts_with(&title) => detail,
        Some(Problem { title, detail, .. }) if !detail.is_empty() => format!("{title}: {detail}"),
        // what is wrong with each entry stands elsewhere in it
        _ => body.to_owned(),
    };
    let text: String = text.chars().take(200).collect();
    format!("HTTP {status}: {}", text.trim())
}

impl Connection {
    async fn open(gateway: &Gateway) -> io::Result<Self> {
        let (endpoint, token) = (gateway.transport.endpoint(), &gateway.token);
        let stream = gateway.transport.connect().await?;
        let head = format!(
            "POST /logs HTTP/1.1\r\nHost: {endpoint}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: "
        );
        Ok(Self { stream, head, sent: Vec::new(), read: Vec::new(), refused: Vec::new() })
    }

    async fn ask(&mut self, body: &str) -> io::Result<Response> {
        self.sent.clear();
        self.sent.extend(self.head.as_bytes());
        self.sent.extend(body.len().to_string().as_bytes());
        self.sent.extend(b"\r\n\r\n");
        self.sent.extend(body.as_bytes());
        self.stream.write_all(&self.sent).await?;
        // with TLS, a part of it may be kept until then
        self.stream.flush().await?;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<Response> {
        self.read.clear();
        loop {
            if let Some(response) = response(&self.read)? {
                return Ok(response);
            }
            if self.read.len() > LONGEST {
                return Err(io::Error::other("its answer does not end"));
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::Error::other("the gateway closed the connection without an answer"));
            }
        }
    }
}

/// The answer at the beginning of these bytes; none if it is not all there.
fn response(bytes: &[u8]) -> io::Result<Option<Response>> {
    let odd = || io::Error::other("its answer is not HTTP/1.1");
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let (head, rest) = bytes.split_at(end);
    let body = rest.get(4..).unwrap_or_default();
    let head = std::str::from_utf8(head).map_err(|_| odd())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let (mut length, mut stays) = (None, true);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse::<usize>().ok();
        } else if name.eq_ignore_ascii_case("connection") {
            stays = !value.eq_ignore_ascii_case("close");
        }
    }
    let (status, length) = status.zip(length).ok_or_else(odd)?;
    let body = body.get(..length).map(|body| String::from_utf8_lossy(body).into_owned());
    Ok(body.map(|body| Response { status, body, stays }))
}

impl Operations for Connection {
    async fn send(&mut self, request: &Request) -> Attempt {
        match self.ask(&request.body).await {
            Ok(response) => ended(&response, request.entries.len(), &mut self.refused),
            Err(error) => Attempt::Unknown(Fault::lost(error.to_string())),
        }
    }

    fn refused(&self) -> &[usize] {
        &self.refused
    }
}

/// What a gateway says of the entries of a request that it acknowledges.
#[derive(Deserialize)]
struct Acknowledged {
    accepted: usize,
    /// The first and the last place of each stretch of entries that it has taken, unless it has taken all.
    #[serde(default)]
    taken: Vec<(usize, usize)>,
}

impl Acknowledged {
    /// The places of those of so many entries that were not taken; none if the answer contradicts itself.
    fn not_taken(&self, sent: usize) -> Option<Vec<usize>> {
        if self.accepted == sent {
            return Some(Vec::new());
        }
        let is_taken = |place: &usize| self.taken.iter().any(|(first, last)| (first..=last).contains(&place));
        let not_taken: Vec<usize> = (0..sent).filter(|place| !is_taken(place)).collect();
        (self.accepted > 0 && self.accepted + not_taken.len() == sent).then_some(not_taken)
    }
}

/// How a request of so many entries has ended that was answered so; those that were not taken of one that was acknowledged
/// are put into `refused`.
///
/// A proxy before the gateway may have passed the request on, or not, whatever status it answers with: only the gateway itself
/// says how many of the entries were taken.
fn ended(response: &Response, sent: usize, refused: &mut Vec<usize>) -> Attempt {
    let Response { status, body, stays } = response;
    let none_taken = || Problem::read(body).is_some_and(|problem| problem.accepted == Some(0));
    refused.clear();
    match status {
        201 | 202 => {
            let acknowledged = serde_json::from_str::<Acknowledged>(body).ok();
            match acknowledged.and_then(|acknowledged| acknowledged.not_taken(sent)) {
                Some(not_taken) => {
                    *refused = not_taken;
                    Attempt::Ok
                }
                None => Attempt::Unknown(Fault::lost(said(*status, body))),
            }
        }
        // of a request that is kept in several records, some may have been taken
        429 if none_taken() => Attempt::Refused,
        // nothing of the request was looked at, or no entry of it is one
        400 | 401 | 404 | 405 | 408 | 413 | 415 if none_taken() => {
            let fault = if *stays { Fault::answered } else { Fault::lost };
            Attempt::Failed(fault(said(*status, body)))
        }
        // some of its entries may have been taken, or what could not be synced may be found after a restart
        _ => Attempt::Unknown(Fault::lost(said(*status, body))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        let whole =
            b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..whole.len() {
            assert!(response(&whole[..end]).unwrap().is_none(), "{end}");
        }
        let Response { status, body, stays } = response(whole).unwrap().unwrap();
        assert_eq!((status, body.as_str(), stays), (202, "abc", true));
        let closed = b"HTTP/1.1 503 x\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n";
        assert!(!response(closed).unwrap().unwrap().stays);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bytes in [
            &b"HTTP/1.1 abc\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"\xff\xfe\r\n\r\n",
            b"HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 2\xc3\xa90\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert!(response(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn only_what_is_told_to_be_refused_is() {
        let end = |status, body: &str| {
            ended(&Response { status, body: body.to_owned(), stays: true }, 3, &mut Vec::new())
        };
        assert!(matches!(end(202, r#"{"accepted":3}"#), Attempt::Ok));
        // as a proxy that answers without having asked, and what contradicts itself
        for body in [
            "",
            "OK",
            r#"{"accepted":2}"#,
            r#"{"accepted":4}"#,
            r#"{"accepted":0}"#,
            r#"{"accepted":2,"taken":[[0,0]]}"#,
            r#"{"accepted":2,"taken":[[0,3]]}"#,
        ] {
            assert!(matches!(end(202, body), Attempt::Unknown(_)), "{body}");
        }
        let problem = |rest: &str| format!(r#"{{"title":"no","detail":"why"{rest}}}"#);
        let none = problem(r#","accepted":0"#);
        assert!(matches!(end(429, &none), Attempt::Refused));
        for (status, body) in
            [(429, r#"{"accepted":3,"taken":[[0,2]]}"#), (429, ""), (409, ""), (503, ""), (400, "")]
        {
            assert!(matches!(end(status, body), Attempt::Unknown(_)), "{status} {body}");
        }
        for status in [400, 401, 404, 405, 408, 413, 415] {
            assert!(matches!(end(status, &none), Attempt::Failed(fault) if !fault.connection_lost));
            // as a proxy that looks at answers, too, and withholds this one
            for body in ["", "<html>403 Forbidden</html>", &problem(""), &problem(r#","accepted":1"#)] {
                assert!(matches!(end(status, body), Attempt::Unknown(_)), "{status} {body}");
            }
        }
        // what could not be synced may be found after a restart; a proxy waits no longer, or has lost the gateway
        for (status, body) in [(503, &*none), (504, "<html>"), (502, ""), (500, "")] {
            assert!(matches!(end(status, body), Attempt::Unknown(_)), "{status} {body}");
        }
        let closing = Response { status: 401, body: none.clone(), stays: false };
        assert!(
            matches!(ended(&closing, 3, &mut Vec::new()), Attempt::Failed(fault) if fault.connection_lost)
        );
    }

    #[test]
    fn what_was_refused_of_an_acknowledged_request_is_read() {
        let mut refused = vec![7];
        let mut end = |status, body: &str| {
            let response = Response { status, body: body.to_owned(), stays: true };
            let ended = ended(&response, 6, &mut refused);
            (matches!(ended, Attempt::Ok), refused.clone())
        };
        let some =
            r#"{"accepted":3,"rejected":3,"taken":[[0,1],[4,4]],"refused":[{"entry":2,"reason":"no"}]}"#;
        assert_eq!(end(202, some), (true, vec![2, 3, 5]));
        assert_eq!(end(201, r#"{"accepted":6}"#), (true, vec![]));
        assert_eq!(end(202, some), (true, vec![2, 3, 5]));
        assert_eq!(end(503, some), (false, vec![]));
    }

    #[test]
    fn the_state_is_in_the_metrics() {
        let totals = "# HELP x\nacidtest_gateway_entries_repeated_total 7\nacidtest_gateway_entries_stored_total 9\n\
                      acidtest_gateway_entries_acknowledged_total 20\n";
        let known = GatewayState { waiting: 0, acknowledged: 20, stored: 9, repeated: 7, instance: 0 };
        assert_eq!(GatewayState::read(totals), Some(known));
        let on_disk =
            format!("{totals}acidtest_gateway_queue_entries 12\nacidtest_gateway_queue_messages -1\n");
        assert_eq!(GatewayState::read(&on_disk), Some(GatewayState { waiting: 12, ..known }));
        let in_broker =
            format!("{totals}acidtest_gateway_queue_entries 0\nacidtest_gateway_queue_messages 3\n");
        assert_eq!(GatewayState::read(&in_broker), Some(GatewayState { waiting: 3, ..known }));
        let info = r#"acidtest_gateway_info{architecture="queued",queue="nats",instance="00ff"} 1"#;
        let told = GatewayState::read(&format!("{in_broker}{info}\n"));
        assert_eq!(told, Some(GatewayState { waiting: 3, instance: 255, ..known }));
        // a broker that cannot be asked may have anything
        assert_eq!(GatewayState::read(&format!("{on_disk}{info}\n")), None);
        assert_eq!(GatewayState::read("something else"), None);
        let info = |labels: &str| {
            way(&format!("acidtest_gateway_connections 3\nacidtest_gateway_info{{{labels}}} 1\n"))
        };
        assert_eq!(
            info(r#"architecture="queued",queue="memory""#),
            Some((Architecture::Queued, LogQueue::Memory))
        );
        assert!(matches!(info(r#"architecture="direct",queue="none""#), Some((Architecture::Direct, _))));
        for odd in ["", r#"architecture="queued",queue="none""#, r#"architecture="queued""#] {
            assert_eq!(info(odd), None, "{odd}");
        }
    }
}
