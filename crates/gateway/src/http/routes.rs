//! What is answered to which request.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use acidtest_web::Unread;
use futures_util::future::join_all;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST},
    http::uri::Authority,
};

use super::{
    Keeper, Service,
    answer::{Answer, Fates, MadeId, Problem, RefusedEntry, header, json, stretches, whole},
    body, page,
};
use crate::{
    Partial,
    entry::{self, Body, Entry, Form, Made, Refusal, Unreadable},
    metrics::{Fate, Stage},
    queue::{PutError, Queue, Queued, Record},
    sink::SinkError,
    users::{Denied, User},
};

/// So many refused entries are told one by one.
const TOLD: usize = 100;

/// What a client is to do whose entries were not all taken. Ids that the gateway makes depend on an entry's place, or on others of
/// its request that say the same, so that a part of it would be given other ids.
const AGAIN: &str = "send the whole request again, as it was: what was taken is stored once if ids are your own, or made of \
                     content (--ids content) or of an Idempotency-Key";

/// What proxies add to a request that comes from elsewhere.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

pub(super) async fn answer(service: &Arc<Service>, peer: SocketAddr, request: Request<Incoming>) -> Answer {
    let is_logs = request.uri().path() == "/logs";
    let answer = route(service, peer, request).await.unwrap_or_else(|problem| problem.answer());
    if is_logs {
        service.metrics.request(answer.status().as_u16());
    }
    answer
}

async fn route(
    service: &Arc<Service>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Answer, Problem> {
    let allowed = match request.uri().path() {
        "/logs" => Method::POST,
        "/" | "/events" | "/metrics" | "/healthz" | "/readyz" => Method::GET,
        _ => {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing at this path",
                "entries go to POST /logs; GET has /, /metrics, /healthz and /readyz",
            )
            .none_taken());
        }
    };
    // HTTP's library answers HEAD without the body
    let is_head =
        request.method() == Method::HEAD && allowed == Method::GET && request.uri().path() != "/events";
    if *request.method() != allowed && !is_head {
        let mut answer = Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path has another method",
            format!("{} takes {allowed}", request.uri().path()),
        )
        .none_taken()
        .answer();
        header(&mut answer, ALLOW, if allowed == Method::POST { "POST" } else { "GET" });
        return Ok(answer);
    }
    match request.uri().path() {
        "/logs" => logs(service, peer, request).await,
        "/healthz" => Ok(whole(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")),
        "/readyz" => ready(service),
        path => {
            let path = path.to_owned();
            may_look(service, peer, &request).await?;
            match path.as_str() {
                "/metrics" => Ok(whole(
                    StatusCode::OK,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    service.metrics.text(service.keeper.depth()),
                )),
                "/events" => page::events(service),
                _ => Ok(page::page(service)),
            }
        }
    }
}

fn ready(service: &Service) -> Result<Answer, Problem> {
    let what = if service.authenticator.is_some() {
        "the gateway accepts no entries"
    } else {
        "the collector stores nothing"
    };
    match service.trouble() {
        None => Ok(whole(StatusCode::OK, "text/plain; charset=utf-8", "ready\n")),
        Some(why) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, what, why)),
    }
}

/// Whether a request may see the page and the metrics: on loopback by its host's name alone, so that no page of
/// another site can read them; elsewhere, or where a proxy says that it comes from elsewhere, with an operator's token.
async fn may_look(service: &Service, peer: SocketAddr, request: &Request<Incoming>) -> Result<(), Problem> {
    let is_forwarded = FORWARDED.iter().any(|name| request.headers().contains_key(*name));
    if is_forwarded && service.authenticator.is_none() {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "what a collector shows is for its own machine",
            "it knows no users",
        ));
    }
    if is_forwarded || !service.address.ip().is_loopback() {
        let user = authenticated(service, peer, request).await?;
        return if user.is_operator {
            Ok(())
        } else {
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                "only operators may see this",
                "acidtest gateway user add NAME --operator makes one",
            ))
        };
    }
    if is_to_loopback(request) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "the host is not this machine's",
        format!(
            "open {0}://{1}/ or {0}://localhost:{2}/",
            service.scheme,
            service.address,
            service.address.port()
        ),
    ))
}

/// Whether a request is made to this machine by a name of its own: by its one host, and by its target, where that names one.
fn is_to_loopback<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host.to_str().is_ok_and(is_loopback)
        && request.uri().authority().is_none_or(|target| is_loopback(target.as_str()))
}

/// Whether a host, with or without a port, is a name of this machine's own. With anything else, such as a user before it, it
/// is none.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let is_plain = match authority.port() {
        Some(port) => host.len() == name.len() + 1 + port.as_str().len(),
        None => host.len() == name.len(),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    is_plain
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()))
}

async fn authenticated(
    service: &Service,
    peer: SocketAddr,
    request: &Request<Incoming>,
) -> Result<Arc<User>, Problem> {
    let Some(authenticator) = &service.authenticator else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "this is a collector", "send entries to a gateway"));
    };
    let header = request.headers().get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
    let since = Instant::now();
    let user = authenticator.authenticate(header).await;
    service.metrics.stage(Stage::Authenticate, since.elapsed());
    // a browser gives none at first
    if header.is_some()
        && let Err(Denied::Token(why)) = &user
        && let Some(untold) = service.bad_tokens.tell()
    {
        let path = request.uri().path();
        tracing::warn!(%peer, path, untold_requests = untold, "a request is refused: {why}");
    }
    user.map_err(|denied| match denied {
        Denied::Token(why) => Problem::new(StatusCode::UNAUTHORIZED, "the token is invalid", why),
        Denied::Away(why) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "users cannot be looked up", why.to_string())
        }
    })
}

async fn logs(service: &Service, peer: SocketAddr, request: Request<Incoming>) -> Result<Answer, Problem> {
    let user = authenticated(service, peer, &request).await.map_err(Problem::none_taken)?;
    let form = form(&request).map_err(Problem::none_taken)?;
    let key = idempotency_key(&request).map_err(Problem::none_taken)?;
    let held = body::read(service, &user.name, request.into_body())
        .await
        .map_err(|unread| unread_body(service, &unread))?;
    let since = Instant::now();
    let ids = || key.as_deref().map_or_else(|| service.limits.ids.into(), Made::by_key);
    let mut body = entry::read(&held.bytes, form, ids).map_err(|Unreadable(why)| {
        Problem::new(StatusCode::BAD_REQUEST, "the body cannot be read", why).none_taken()
    })?;
    service.metrics.count(Fate::Received, body.count as u64);
    service.metrics.count(Fate::Invalid, body.refused.len() as u64);
    let received = entry::now();
    let kept = match &service.keeper {
        Keeper::Queued { queue, recent, .. } => {
            let conflicts = conflicts(&mut body, |entry| recent.conflicts(&user.name, entry));
            service.metrics.count(Fate::Conflicting, conflicts as u64);
            if service.limits.partial == Partial::Reject && !body.refused.is_empty() {
                body.entries.clear();
            }
            let records = records(&user.name, received, &body, queue.record_limit());
            service.metrics.stage(Stage::Validate, since.elapsed());
            let kept = put(queue, records, &mut body).await;
            for (_, entry) in body.entries.iter().filter(|(place, _)| !body.is_new(*place)) {
                recent.note(&user.name, entry);
            }
            kept.map_err(|error| not_put(&error))
        }
        Keeper::Direct(direct) => {
            service.metrics.stage(Stage::Validate, since.elapsed());
            let mut done = Vec::new();
            let mut failed = None;
            for (place, entry) in &body.entries {
                let queued = Queued { user: &user.name, received, entry: entry.clone() };
                match direct.store(&queued).await {
                    Ok(stored) => {
                        service.metrics.count(Fate::Stored, stored.new);
                        service.metrics.count(Fate::Repeated, stored.repeated);
                        service.metrics.count(Fate::Conflicting, stored.conflicts.len() as u64);
                        if stored.conflicts.is_empty() {
                            done.push(*place);
                        } else {
                            body.refused.push(conflict(&body, *place));
                        }
                    }
                    Err(SinkError::Refused(why)) => {
                        let reason = format!("the database refuses it: {why}");
                        body.refused.push(Refusal { place: *place, field: None, reason });
                    }
                    Err(SinkError::Away(why) | SinkError::TooMuch(why)) => {
                        failed = Some(why);
                        break;
                    }
                }
            }
            body.entries.retain(|(place, _)| done.binary_search(place).is_ok());
            failed.map_or(Ok(()), |why| {
                Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the database does not accept entries",
                    format!("{why}; {AGAIN}"),
                ))
            })
        }
    };
    service.metrics.count(Fate::Acknowledged, body.entries.len() as u64);
    tell_refused(service, &user.name, &body);
    match kept {
        Ok(()) => Ok(told(&service.keeper, body)),
        Err(problem) => Ok(problem.with(fates(body)).answer()),
    }
}

/// Tells in the log that entries were refused: a client that takes a 2xx for all of them does not.
fn tell_refused(service: &Service, user: &str, body: &Body<'_>) {
    if let Some(first) = body.refused.first()
        && let Some(untold) = service.refusals.tell()
    {
        tracing::warn!(
            user,
            refused = body.refused.len(),
            of = body.count,
            first = first.to_string(),
            untold_requests = untold,
            "entries are refused for their content; the answer names them"
        );
    }
}

/// The entries of a body as records, each with how many it holds.
fn records(user: &str, received: i64, body: &Body<'_>, most: usize) -> Vec<Record> {
    let entries = body.entries.iter().map(|(_, entry)| entry);
    let mut rest = &body.entries[..];
    let record = |count| {
        let some;
        (some, rest) = rest.split_at(count);
        Record {
            entries: u32::try_from(count).unwrap_or(u32::MAX),
            bytes: entry::encode(user, received, some.iter().map(|(_, entry)| entry)).into(),
        }
    };
    // the counts are those of these entries
    entry::stretches_within(user, entries, most).into_iter().filter(|count| *count > 0).map(record).collect()
}

/// Puts records into the queue, and leaves in the body only entries that are acknowledged.
async fn put(queue: &Queue, mut records: Vec<Record>, body: &mut Body<'_>) -> Result<(), PutError> {
    if records.len() <= 1 {
        let Some(record) = records.pop() else { return Ok(()) };
        return queue.put(record).await.inspect_err(|_| body.entries.clear());
    }
    let counts: Vec<usize> = records.iter().map(|record| record.entries as usize).collect();
    let put = join_all(records.into_iter().map(|record| queue.put(record))).await;
    let mut are_kept = counts.iter().zip(&put).flat_map(|(count, put)| vec![put.is_ok(); *count]);
    body.entries.retain(|_| are_kept.next().unwrap_or(false));
    put.into_iter().collect()
}

/// The header of a request whose entries without ids have the ids that they had when it came before
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The most letters of a key.
const KEY: usize = 255;

/// The key of the request, if it has one: a string in quotes as the draft wants it, or as it is, as most clients write it.
fn idempotency_key(request: &Request<Incoming>) -> Result<Option<String>, Problem> {
    let mut keys = request.headers().get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let key = key.to_str().ok().filter(|_| keys.next().is_none()).and_then(read_key);
    key.map(Some).ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "the Idempotency-Key is invalid",
            format!("send one, of 1 to {KEY} printable letters of ASCII without quotes and backslashes"),
        )
    })
}

fn read_key(text: &str) -> Option<String> {
    let text = text.trim();
    let key = text.strip_prefix('"').map_or(Some(text), |rest| rest.strip_suffix('"'))?;
    let is_good = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
    (!key.trim().is_empty() && key.len() <= KEY && key.bytes().all(is_good)).then(|| key.to_owned())
}

/// How the body is written, by its type.
fn form(request: &Request<Incoming>) -> Result<Form, Problem> {
    let value = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let wrong = |title, detail: String| Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, title, detail);
    if let Some(encoding) =
        value(CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"))
    {
        return Err(wrong("the body is encoded", format!("send it without Content-Encoding: {encoding}")));
    }
    let kind = value(CONTENT_TYPE).unwrap_or_default();
    match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Form::Json),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Form::Lines),
        _ => Err(wrong(
            "the type of the body is not known",
            "send Content-Type: application/json, for an entry or an array, or application/x-ndjson, for an entry a line"
                .to_owned(),
        )),
    }
}

fn unread_body(service: &Service, unread: &Unread) -> Problem {
    let problem = |status, title, detail: String| Problem::new(status, title, detail).none_taken();
    match unread {
        Unread::TooLarge => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too large",
            format!("at most {} bytes are taken: send fewer entries in a request", service.limits.body),
        ),
        Unread::TooSlow => problem(
            StatusCode::REQUEST_TIMEOUT,
            "the body arrives too slowly",
            format!("all of it must arrive within {} s", service.limits.body_time.as_secs_f64()),
        ),
        Unread::NoRoom => problem(
            StatusCode::TOO_MANY_REQUESTS,
            "too much is being sent at once",
            "send it again in a moment".to_owned(),
        ),
        Unread::Cut(_) => problem(StatusCode::BAD_REQUEST, "the body was cut off", String::new()),
    }
}

fn not_put(error: &PutError) -> Problem {
    let (status, title) = match error {
        PutError::Full => (StatusCode::TOO_MANY_REQUESTS, "the queue is full"),
        PutError::Closed => (StatusCode::SERVICE_UNAVAILABLE, "the gateway is shutting down"),
        PutError::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "the queue cannot keep entries"),
    };
    Problem::new(status, title, format!("{error}; {AGAIN}"))
}

/// Refuses entries whose ids are known with other content, or are in this body twice with different contents, and
/// returns how many those are.
fn conflicts(body: &mut Body<'_>, is_known: impl Fn(&Entry<'_>) -> bool) -> usize {
    let mut places: Vec<usize> =
        body.entries.iter().filter(|(_, entry)| is_known(entry)).map(|(place, _)| *place).collect();
    if body.entries.len() > 1 {
        let mut first = std::collections::HashMap::with_capacity(body.entries.len());
        for (place, entry) in &body.entries {
            let said = first.entry(&*entry.id).or_insert(entry);
            if *said != entry {
                places.push(*place);
            }
        }
        places.sort_unstable();
        places.dedup();
    }
    body.entries.retain(|(place, _)| places.binary_search(place).is_err());
    let refusals: Vec<Refusal> = places.iter().map(|place| conflict(body, *place)).collect();
    body.refused.extend(refusals);
    places.len()
}

const CONFLICT: &str = "was acknowledged before with other content";
const OTHER_REQUEST: &str =
    "the Idempotency-Key was used before, for a request with other content at this place";

fn conflict(body: &Body<'_>, place: usize) -> Refusal {
    if body.is_made(place) {
        return Refusal { place, field: None, reason: OTHER_REQUEST.to_owned() };
    }
    Refusal { place, field: Some("id"), reason: CONFLICT.to_owned() }
}

/// The answer to a request whose entries are kept, but for those that were refused. Where some are kept, it is a success,
/// as with OTLP: what is told to have failed is sent again as a whole, with what was kept.
fn told(keeper: &Keeper, body: Body<'_>) -> Answer {
    if body.entries.is_empty() {
        return none_kept(body);
    }
    let status = match keeper {
        Keeper::Direct(_) => StatusCode::CREATED,
        Keeper::Queued { .. } => StatusCode::ACCEPTED,
    };
    whole(status, "application/json", json(&fates(body)))
}

/// The answer to a request of which no entry is kept, because of those that were refused.
fn none_kept(body: Body<'_>) -> Answer {
    let are_all = |reasons: &[&str]| body.refused.iter().all(|refusal| reasons.contains(&&*refusal.reason));
    let status = if are_all(&[CONFLICT]) {
        StatusCode::CONFLICT
    } else if are_all(&[CONFLICT, OTHER_REQUEST]) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::BAD_REQUEST
    };
    let more = match body.refused.len() {
        0 | 1 => String::new(),
        several => format!("; and {} more", several - 1),
    };
    let first = body.refused.iter().min_by_key(|refusal| refusal.place);
    let detail = first.map(|first| format!("{first}{more}")).unwrap_or_default();
    Problem::new(status, "no entry was taken", detail).with(fates(body)).answer()
}

/// What became of each entry.
fn fates(mut body: Body<'_>) -> Fates {
    let (accepted, rejected) = (body.entries.len(), body.refused.len());
    let is_whole = accepted == body.count;
    let taken = if is_whole { Vec::new() } else { stretches(body.entries.iter().map(|(place, _)| *place)) };
    let ids = made(&body);
    body.refused.sort_by_key(|refusal| refusal.place);
    let refused = body
        .refused
        .into_iter()
        .take(TOLD)
        .map(|Refusal { place, field, reason }| RefusedEntry { entry: place, field, reason })
        .collect();
    Fates { accepted, rejected, taken, refused, ids }
}

/// The ids that were made for entries that were taken.
fn made(body: &Body<'_>) -> Vec<MadeId> {
    if body.made.is_empty() {
        return Vec::new();
    }
    let taken = body.entries.iter().filter(|(place, _)| body.is_made(*place));
    taken.map(|(place, entry)| MadeId { entry: *place, id: entry.id.clone().into_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:1731", "[::1]:1731", "127.8.8.8"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "[::2]",
            "10.0.0.1:80",
            "localhost:1752@evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost:evil",
            "localhost:",
            "localhost:1:2",
            "[::1].evil.example",
            "[::1]evil.example:80",
            "localhost/evil",
            "localhost evil.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host_of_this_machine() {
        let request = |target: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(target);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            is_to_loopback(&request.body(()).unwrap())
        };
        assert!(request("/", &["localhost"]) && request("http://127.0.0.1/", &["localhost"]));
        assert!(!request("/", &[]) && !request("/", &["localhost", "evil.example"]));
        assert!(!request("http://evil.example/", &["localhost"]));
    }

    #[test]
    fn a_key_is_read_with_quotes_or_without() {
        for text in ["8e03978e-40d5", "\"8e03978e-40d5\"", " 8e03978e-40d5 "] {
            assert_eq!(read_key(text).as_deref(), Some("8e03978e-40d5"), "{text}");
        }
        for text in ["", "\"\"", "\" \"", "\"a", "a\"b", "a\\b", "\u{7f}", &"x".repeat(KEY + 1)] {
            assert_eq!(read_key(text), None, "{text}");
        }
    }

    #[test]
    fn one_body_may_repeat_an_id_but_not_with_other_content() {
        let line = |id: &str, message: &str| {
            format!(
                r#"{{"id":"{id}","timestamp":"2026-11-23T10:00:00Z","level":"info","application":"a","message":"{message}"}}"#
            )
        };
        let text =
            [line("1", "a"), line("2", "a"), line("1", "a"), line("1", "b"), line("3", "a")].join("\n");
        let mut body = entry::read(text.as_bytes(), Form::Lines, || crate::Ids::Random.into()).unwrap();
        assert_eq!(conflicts(&mut body, |entry| entry.id == "3"), 2);
        let places: Vec<usize> = body.entries.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 1, 2]);
        let refused: Vec<usize> = body.refused.iter().map(|refusal| refusal.place).collect();
        assert_eq!(refused, [3, 4]);
        let fates = fates(body);
        assert_eq!((fates.accepted, fates.rejected, fates.taken), (3, 2, vec![(0, 2)]));
        assert_eq!((fates.refused[0].entry, fates.refused[0].field), (3, Some("id")));
    }
}
