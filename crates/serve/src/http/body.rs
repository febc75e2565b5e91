//! Bodies of requests, read strictly: what is not known is refused by its name.

use std::{fmt::Write, time::Duration};

use acidtest_model::{UnknownName, expected};
use acidtest_results::Plan;
use acidtest_web::Unread;
use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{StatusCode, header},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::problem::Problem;

/// Bytes of the longest body that is read: that of a plan.
pub(crate) const LONGEST: usize = 64 << 10;

/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body of a request, read from JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(&json_text(request).await?).map(Self)
    }
}

/// The body of a request that says that it is JSON.
pub(crate) async fn json_text(request: Request) -> Result<Bytes, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if is_json {
        return whole(request.into_body()).await;
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-type",
        "The body is not JSON",
        "the body must be JSON: Content-Type: application/json",
    ))
}

/// Reads a value from JSON.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| wrong(&error))?;
    reader.end().map_err(|error| Problem::bad_request(format!("after the JSON value: {error}")))?;
    Ok(value)
}

/// A body as a whole, if it is not too long and comes in time.
pub(crate) async fn whole(body: Body) -> Result<Bytes, Problem> {
    let read = acidtest_web::read(body, LONGEST, PATIENCE, |_| true).await;
    read.map_err(|unread| match unread {
        Unread::TooSlow => Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            "The body did not arrive",
            format!("the whole body must arrive within {} s", PATIENCE.as_secs()),
        ),
        Unread::TooLarge => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "The body is too long",
            format!("a body has at most {} KiB", LONGEST >> 10),
        ),
        Unread::NoRoom => Problem::too_much("bodies", "too many bodies are being read"),
        Unread::Cut(why) => Problem::bad_request(format!("the body ended early: {why}")),
    })
}

/// What is wrong with a body, and where.
fn wrong(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let pointer = pointer(error.path());
    let inner = error.inner();
    let message = inner.to_string();
    // the place in the text is said by the pointer
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    if !inner.is_data() {
        return Problem::bad_request(format!("the body is not JSON: {inner}"));
    }
    let detail = if let Some(unknown) = UnknownName::of(message) {
        let sort = if unknown.is_key { "key" } else { "word" };
        format!(
            "unknown {sort} \"{}\"{}; known are {}",
            unknown.name,
            unknown.hint(),
            unknown.known.join(", ")
        )
    } else if let Some(must) = expected(message) {
        let key = if pointer.is_empty() { "the body" } else { pointer.trim_start_matches('/') };
        format!("{key} must be {must}{}", example(&pointer))
    } else {
        message.to_owned()
    };
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "body", "The body is not what is expected", detail)
        .at(pointer)
}

/// What a plan may have there, as an example.
fn example(pointer: &str) -> String {
    let example = serde_json::to_value(Plan::example()).unwrap_or_default();
    match example.pointer(pointer) {
        Some(value) if !pointer.is_empty() => format!(", as in {value}"),
        _ => String::new(),
    }
}

/// A path in a document as a JSON Pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        // writing into a string cannot fail
        let _ = match segment {
            Segment::Seq { index } => write!(pointer, "/{index}"),
            Segment::Map { key } => write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => write!(pointer, "/{variant}"),
            Segment::Unknown => Ok(()),
        };
    }
    pointer
}
