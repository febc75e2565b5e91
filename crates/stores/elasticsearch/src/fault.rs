//! The meaning of answers other than success: for the operation, and for the user.

use acidtest_engine::{Attempt, Fault};
use acidtest_model::Address;
use acidtest_transport::{TlsError, demand};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// The reason why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The server answered that it did not do as asked.
    #[error("{0}")]
    Refused(Refusal),
    /// No answer arrived in full.
    #[error("{cause}")]
    Lost {
        /// Whether any part of the request may have reached the server.
        sent: bool,
        /// The network's error.
        cause: String,
    },
    /// TLS did not come about, or ended.
    #[error("{error}")]
    Tls {
        /// Whether any part of the request may have reached the server.
        sent: bool,
        error: TlsError,
    },
    /// The answer reports success and cannot be parsed.
    #[error("an invalid answer: {0}")]
    Nonsense(String),
}

impl Error {
    /// The server's refusal; `None` for any other error.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Lost { .. } | Self::Tls { .. } | Self::Nonsense(_) => None,
        }
    }

    /// Whether the server refused with this kind of error.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind == kind)
    }
}

/// Kinds of errors, by Elasticsearch's own names.
pub(crate) mod kind {
    /// The index to be created is there already.
    pub(crate) const INDEX_EXISTS: &str = "resource_already_exists_exception";
    /// There is no such index, or none that an alias names.
    pub(crate) const NO_INDEX: &str = "index_not_found_exception";
    /// The document to be updated does not exist.
    pub(crate) const NO_DOCUMENT: &str = "document_missing_exception";
    /// The document is not as the request demands.
    pub(crate) const VERSION_CONFLICT: &str = "version_conflict_engine_exception";
    /// A thread pool's queue, or the room for writes in flight, is full.
    pub(super) const REJECTED: &str = "es_rejected_execution_exception";
    /// The heap is too full.
    pub(super) const CIRCUIT_BREAKER: &str = "circuit_breaking_exception";
    /// The index or the cluster permits no writes.
    pub(super) const BLOCKED: &str = "cluster_block_exception";

    /// The errors below 500 that prove that nothing was written: the request, the document or the state of the index was at
    /// fault, or the user may not write there.
    pub(super) const NOTHING_WRITTEN: [&str; 19] = [
        INDEX_EXISTS,
        NO_INDEX,
        NO_DOCUMENT,
        REJECTED,
        CIRCUIT_BREAKER,
        BLOCKED,
        "action_request_validation_exception",
        "document_parsing_exception",
        "illegal_argument_exception",
        "illegal_state_exception",
        "index_closed_exception",
        "invalid_index_name_exception",
        "json_parse_exception",
        "mapper_parsing_exception",
        "parse_exception",
        "script_exception",
        "security_exception",
        "strict_dynamic_mapping_exception",
        "x_content_parse_exception",
    ];
}

/// A refusal in the server's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({kind}, HTTP {status}){}", remedy_of(.kind, .reason).map(|remedy| format!("; {remedy}")).unwrap_or_default())]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Elasticsearch's name for the error; `unknown` where it gives none.
    pub(crate) kind: String,
    pub(crate) reason: String,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// Bytes of the longest error that is parsed.
const LONGEST: usize = 1 << 20;

/// Bytes of each of the server's texts that are kept at most.
const WORDS: usize = 1000;

impl Refusal {
    /// Reads the body of an answer whose status is no success. Any body is accepted.
    pub(crate) fn read(status: u16, body: &[u8]) -> Self {
        let error = serde_json::from_slice::<Envelope<'_>>(body).ok();
        error.and_then(|Envelope { error }| Self::of(status, error.get())).unwrap_or_else(|| {
            let reason = match body {
                [] => "an answer without a body".to_owned(),
                body => beginning(body),
            };
            Self { status, kind: "unknown".to_owned(), reason }
        })
    }

    /// Reads the JSON of an `error`, an object or a text, and appends the reasons of its causes. `None` for any
    /// other JSON.
    pub(crate) fn of(status: u16, error: &str) -> Option<Self> {
        let error: Value = serde_json::from_str(Some(error).filter(|error| error.len() <= LONGEST)?).ok()?;
        let text = |text: &str| text[..text.floor_char_boundary(WORDS)].to_owned();
        if let Some(reason) = error.as_str() {
            return Some(Self { status, kind: "unknown".to_owned(), reason: text(reason) });
        }
        let text = |value: &Value, name: &str| value.get(name)?.as_str().map(text);
        let kind = text(&error, "type")?;
        let mut reason = text(&error, "reason").unwrap_or_default();
        let mut cause = error.get("caused_by");
        // a search reports the shards' reasons only here
        if cause.is_none() {
            cause = error.pointer("/failed_shards/0/reason");
        }
        while let Some(each) = cause {
            if let Some(words) = text(each, "reason") {
                reason.push_str(": ");
                reason.push_str(&words);
            }
            cause = each.get("caused_by");
        }
        Some(Self { status, kind, reason })
    }

    /// Whether the request was turned away before anything was done, so that it may be sent again.
    pub(crate) fn is_rejection(&self) -> bool {
        self.status == 429 && self.kind != kind::BLOCKED
    }

    /// A message that is the same for all rejections of a kind, whose reasons name tasks and bytes.
    fn words(&self) -> String {
        if !self.is_rejection() {
            return self.to_string();
        }
        let remedy = remedy_of(&self.kind, &self.reason).map(|remedy| format!("; {remedy}"));
        format!("rejected: {} (HTTP {}){}", self.kind, self.status, remedy.unwrap_or_default())
    }
}

/// A hint for the user on an error of that kind; `None` where there is none.
fn remedy_of(kind: &str, reason: &str) -> Option<&'static str> {
    match kind {
        kind::REJECTED => Some("the server is overloaded: ask for fewer clients"),
        kind::CIRCUIT_BREAKER => Some("give the server a larger heap (-Xmx), or ask for fewer clients"),
        kind::BLOCKED if reason.contains("flood-stage") => Some(
            "free room on the disk of the server's data, or raise \
             cluster.routing.allocation.disk.watermark.flood_stage: the block then goes by itself",
        ),
        kind::BLOCKED if reason.contains("read-only") => {
            Some("lift the block: PUT _settings {\"index.blocks.read_only\": null}")
        }
        _ => None,
    }
}

/// The effect that a request could have had on the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: it reads.
    None,
    /// A change of one document, unless it is refused.
    Change,
}

/// How an error ends the operation that met it.
///
/// A proxy before the server may have passed a request on whatever status it answers with: below 500 an answer proves that nothing
/// was written by Elasticsearch's name for the error, if that is one of [`kind::NOTHING_WRITTEN`]. From 500 on the write may have
/// been done and only its sync, or its answer, have failed; but not where a block turned the write away.
pub(crate) fn attempt(error: &Error, effect: Effect) -> Attempt {
    match (error, effect) {
        (Error::Refused(refusal), _) if refusal.kind == kind::VERSION_CONFLICT => Attempt::Conflict,
        (Error::Refused(refusal), _) if refusal.status < 500 => {
            let is_proved = kind::NOTHING_WRITTEN.contains(&&*refusal.kind);
            match effect {
                Effect::Change if !is_proved => Attempt::Unknown(Fault::lost(refusal.words())),
                _ => Attempt::Failed(Fault::answered(refusal.words())),
            }
        }
        // counts as a lost connection, since connecting waits until the server has recovered
        (Error::Refused(refusal), Effect::None) => Attempt::Failed(Fault::lost(refusal.words())),
        (Error::Refused(refusal), Effect::Change) if refusal.kind == kind::BLOCKED => {
            Attempt::Failed(Fault::lost(refusal.words()))
        }
        (Error::Refused(refusal), Effect::Change) => Attempt::Unknown(Fault::lost(refusal.words())),
        (Error::Lost { sent: false, .. } | Error::Tls { sent: false, .. }, _)
        | (Error::Lost { .. } | Error::Tls { .. } | Error::Nonsense(_), Effect::None) => {
            Attempt::Failed(Fault::lost(error.to_string()))
        }
        (Error::Lost { .. } | Error::Tls { .. } | Error::Nonsense(_), Effect::Change) => {
            Attempt::Unknown(Fault::lost(error.to_string()))
        }
    }
}

/// The wanted result, or the outcome that ended the attempt without it.
pub(crate) type Step<T> = Result<T, Attempt>;

/// As [`attempt`], in a form to hand to `map_err`.
pub(crate) fn ended(effect: Effect) -> impl Fn(Error) -> Attempt {
    move |error| attempt(&error, effect)
}

const LOGIN: &str = "check user and password: elasticsearch://USER:PASSWORD@HOST:PORT, or ACIDTEST_PASSWORD; an \
                     API key stands in the password's place, without a user";

/// A hint for the user on how to mend a server that could not be opened.
pub(crate) fn remedy(error: &Error, address: &Address) -> String {
    let remedy = match error {
        Error::Tls { error, .. } => &error.remedy,
        Error::Refused(refusal) => match refusal.status {
            401 => LOGIN,
            403 => "log in as a user who may manage and write the indices of the namespace",
            429 | 503 => "wait until the server is up, and ask for fewer clients if it is overloaded",
            _ => "check that the address is that of Elasticsearch's REST interface",
        },
        Error::Nonsense(_) => "check that the address is that of Elasticsearch's REST interface",
        // a port for TLS closes a connection that begins otherwise
        Error::Lost { sent: true, .. } if address.tls.is_none() => {
            return format!(
                "check that the port is that of Elasticsearch's REST interface; if it is one for TLS, {}",
                demand(address)
            );
        }
        Error::Lost { sent: true, .. } => "check that the port is that of Elasticsearch's REST interface",
        Error::Lost { .. } => "start the server, or check host and port",
    };
    remedy.to_owned()
}

/// The first 120 characters of a body, to be shown in an error.
pub(crate) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]);
    let shown: String =
        text.chars().take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if shown.len() < body.len() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Error {
        Error::Refused(Refusal::read(status, body.as_bytes()))
    }

    /// A conflict as 7.17.29 answers it, shortened.
    const CONFLICT: &str = r#"{"error":{"root_cause":[{"type":"version_conflict_engine_exception"}],
        "type":"version_conflict_engine_exception","reason":"[u1]: version conflict, required seqNo [0]"},
        "status":409}"#;
    const FLOOD: &str = r#"{"error":{"type":"cluster_block_exception","reason":"index [t] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];"}}"#;
    const READ_ONLY: &str = r#"{"error":{"type":"cluster_block_exception",
        "reason":"index [b--t] blocked by: [FORBIDDEN/5/index read-only (api)];"},"status":403}"#;
    const QUEUE: &str = r#"{"error":{"root_cause":[{"type":"remote_transport_exception"}],
        "type":"es_rejected_execution_exception",
        "reason":"rejected execution of x@1d2c3f4 on EsThreadPoolExecutor[name = n1/write]"},"status":429}"#;
    const BREAKER: &str = r#"{"error":{"type":"circuit_breaking_exception",
        "reason":"[parent] Data too large, data for [<http_request>] would be [259522560/247.5mb]"}}"#;
    const PARSING: &str = r#"{"error":{"type":"mapper_parsing_exception","reason":"failed to parse"}}"#;
    const OTHER: &str = r#"{"error":{"type":"upstream_exception","reason":"request timed out"}}"#;
    const TRANSLOG: &str = r#"{"error":{"type":"already_closed_exception","reason":"translog is closed",
        "caused_by":{"type":"i_o_exception","reason":"No space left on device"}},"status":500}"#;
    const NO_MASTER: &str = r#"{"error":{"type":"cluster_block_exception",
        "reason":"blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];"},"status":503}"#;

    #[test]
    fn only_an_answer_or_silence_proves_that_a_change_did_not_happen() {
        let change = |error: &Error| attempt(error, Effect::Change);
        let lost = |sent| Error::Lost { sent, cause: "connection reset".to_owned() };
        assert_eq!(change(&refused(409, CONFLICT)), Attempt::Conflict);
        for body in [(429, FLOOD), (403, READ_ONLY), (429, QUEUE), (429, BREAKER), (400, PARSING)] {
            let ended = change(&refused(body.0, body.1));
            assert!(matches!(&ended, Attempt::Failed(fault) if !fault.connection_lost), "{ended:?}");
        }
        // by what stands between, and has passed the request on: it gave up waiting, withholds the answer, or has its own words
        for body in
            [(400, ""), (404, "x"), (403, "<html>403 Forbidden</html>"), (408, ""), (429, "{}"), (400, OTHER)]
        {
            let ended = change(&refused(body.0, body.1));
            assert!(matches!(&ended, Attempt::Unknown(fault) if fault.connection_lost), "{ended:?}");
            let read = attempt(&refused(body.0, body.1), Effect::None);
            assert!(matches!(&read, Attempt::Failed(fault) if !fault.connection_lost), "{read:?}");
        }
        assert!(matches!(change(&refused(503, NO_MASTER)), Attempt::Failed(fault) if fault.connection_lost));
        for error in
            [refused(500, TRANSLOG), refused(502, ""), refused(503, ""), refused(504, "<html>"), lost(true)]
        {
            assert!(matches!(change(&error), Attempt::Unknown(fault) if fault.connection_lost), "{error}");
        }
        assert!(matches!(change(&Error::Nonsense("x".to_owned())), Attempt::Unknown(_)));
        assert!(matches!(change(&lost(false)), Attempt::Failed(fault) if fault.connection_lost));
        for error in [lost(true), Error::Nonsense("x".to_owned()), refused(500, TRANSLOG)] {
            let ended = attempt(&error, Effect::None);
            assert!(matches!(&ended, Attempt::Failed(fault) if fault.connection_lost), "{ended:?}");
        }
    }

    #[test]
    fn a_refusal_tells_its_innermost_reason_and_what_to_do() {
        let said = |status, body| refused(status, body).to_string();
        let translog = said(500, TRANSLOG);
        assert!(
            translog.starts_with("translog is closed: No space left on device (already_closed"),
            "{translog}"
        );
        assert!(said(429, FLOOD).contains("free room on the disk"), "{}", said(429, FLOOD));
        assert!(said(403, READ_ONLY).contains("lift the block"), "{}", said(403, READ_ONLY));
        assert!(said(429, BREAKER).contains("larger heap"), "{}", said(429, BREAKER));
        let search = r#"{"error":{"type":"search_phase_execution_exception","reason":"all shards failed",
            "failed_shards":[{"shard":0,"reason":{"type":"query_shard_exception","reason":"not indexed"}}]}}"#;
        assert_eq!(
            said(400, search),
            "all shards failed: not indexed (search_phase_execution_exception, HTTP 400)"
        );
    }

    #[test]
    fn rejections_are_counted_together() {
        for (body, word) in [(QUEUE, "fewer clients"), (BREAKER, "larger heap")] {
            let Attempt::Failed(fault) = attempt(&refused(429, body), Effect::Change) else {
                panic!("{body}")
            };
            assert!(fault.message.starts_with("rejected: ") && fault.message.contains(word), "{fault:?}");
            assert!(!fault.message.contains("1d2c3f4") && !fault.message.contains("259522560"), "{fault:?}");
        }
        let Attempt::Failed(fault) = attempt(&refused(429, FLOOD), Effect::Change) else { panic!("{FLOOD}") };
        assert!(fault.message.contains("flood-stage"), "{fault:?}");
    }

    #[test]
    fn whatever_is_answered_is_a_refusal() {
        for body in [
            "",
            "null",
            "[1]",
            "{\"error\":7}",
            "{\"error\":{\"type\":3}}",
            "<html>\u{1b}[2Jno</html>",
            "\u{0}",
        ] {
            let shown = refused(500, body).to_string();
            assert!(shown.contains("HTTP 500") && !shown.contains('\u{1b}'), "{shown}");
        }
        assert!(refused(400, &"x".repeat(1 << 20)).to_string().len() < 1000);
        let long = "é".repeat(1 << 20);
        let causes = format!(r#"{{"reason":"{}","caused_by":"#, &long[..4000]).repeat(100);
        for body in [
            format!(r#"{{"error":{{"type":"{long}","reason":"{long}"}}}}"#),
            format!(r#"{{"error":"{}"}}"#, &long[..1 << 19]),
            format!(r#"{{"error":{{"type":"x","caused_by":{causes}7{}}}}}"#, "}".repeat(100)),
        ] {
            let shown = refused(400, &body).to_string();
            assert!(shown.len() < 101 * (WORDS + 2), "{}", shown.len());
        }
        assert_eq!(
            refused(400, r#"{"error":"no handler","status":400}"#).to_string(),
            "no handler (unknown, HTTP 400)"
        );
    }
}
