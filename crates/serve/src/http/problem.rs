//! What is wrong with a request, where, and the remedy.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    Refusal,
    runs::{NotTaken, WAITING},
};

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem(Box<Document>);

pub(crate) type Document = acidtest_web::Problem<Faults>;

/// What a problem document says of the body of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Faults {
    /// The values at fault, in the body of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<AtFault>,
}

/// A value at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct AtFault {
    /// Where it is in the body: a JSON Pointer (RFC 6901).
    pointer: String,
    /// What is wrong with it.
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &str, title: &str, detail: impl Into<String>) -> Self {
        let document = Document::new(status, title, detail);
        Self(Box::new(Document { kind: format!("urn:acidtest:problem:{kind}"), ..document }))
    }

    /// The same, with the value at fault; it is about the whole body if the pointer is empty.
    pub(crate) fn at(mut self, pointer: String) -> Self {
        if !pointer.is_empty() {
            let detail = self.0.detail.clone();
            self.0.more.errors.push(AtFault { pointer, detail });
        }
        self
    }

    /// The same, where the values at fault are not in the body of the request.
    pub(crate) fn without_places(mut self) -> Self {
        self.0.more.errors.clear();
        self
    }

    /// The same, with a header of the answer.
    pub(crate) fn with(mut self, name: header::HeaderName, value: &'static str) -> Self {
        self.0.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "The request cannot be read", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    pub(crate) fn no_run(id: &str) -> Self {
        // an id is shown only if it could be one
        let id = if crate::runs::is_id(id) { id } else { "with that id" };
        Self::not_found(format!("there is no run {id}; GET /api/runs lists them"))
    }

    pub(crate) fn uncompared(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "compare", "The runs cannot be compared", why)
    }

    pub(crate) fn too_much(kind: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, "The server cannot take it now", detail)
            .with(header::RETRY_AFTER, "5")
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "acidtest itself failed", detail)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn title(&self) -> &str {
        &self.0.title
    }

    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { detail, pointer } = refusal;
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "plan", "The plan cannot be run", detail).at(pointer)
    }
}

impl From<NotTaken> for Problem {
    fn from(not: NotTaken) -> Self {
        match not {
            NotTaken::Full => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue-full",
                "Too many runs are waiting",
                format!("{WAITING} runs are waiting already: stop some of them (DELETE), or ask again later"),
            )
            .with(header::RETRY_AFTER, "60"),
            NotTaken::Storage(error) => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "storage",
                "The run cannot be stored",
                format!(
                    "the folder of results cannot be written: {error}; free some space, or fix its permissions"
                ),
            ),
            NotTaken::Ending => {
                Self::too_much("ending", "the server is shutting down and accepts no more runs")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.0.answer()
    }
}
