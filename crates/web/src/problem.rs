//! Problem documents (RFC 9457).

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
};
use schemars::JsonSchema;
use serde::Serialize;

/// A problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem<E> {
    /// The sort of problem: a URN that begins with `urn:acidtest:problem:`.
    // a service without sorts says none: the status tells what sort it is (RFC 9457, 4.2.1)
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub kind: String,
    /// The sort of problem, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong this time, and the remedy.
    pub detail: String,
    /// What a service says beyond that: its members stand beside the others.
    #[serde(flatten)]
    pub more: E,
    /// Headers of the answer.
    #[serde(skip)]
    pub headers: HeaderMap,
}

impl<E: Default> Problem<E> {
    /// A problem of no sort, and with nothing beyond what every problem has.
    pub fn new(status: StatusCode, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: String::new(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            more: E::default(),
            headers: HeaderMap::new(),
        }
    }
}

impl<E: Serialize> Problem<E> {
    pub fn answer<B: From<Bytes>>(&self) -> Response<B> {
        // these documents have no maps with other keys than strings, and nothing else can fail
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        let mut answer = Response::new(Bytes::from(text).into());
        *answer.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        answer.headers_mut().extend(self.headers.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::RETRY_AFTER;

    use super::*;

    #[derive(Default, Serialize)]
    struct Fates {
        accepted: u32,
    }

    #[test]
    fn a_problem_has_its_members_and_those_of_its_service() {
        let mut problem = Problem::<Option<Fates>>::new(StatusCode::SERVICE_UNAVAILABLE, "away", "wait");
        problem.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        let said = |problem: &Problem<_>| problem.answer::<Bytes>().into_body();
        assert_eq!(said(&problem), "{\"title\":\"away\",\"status\":503,\"detail\":\"wait\"}\n");
        problem.kind = "urn:acidtest:problem:away".to_owned();
        problem.more = Some(Fates { accepted: 3 });
        let whole = "{\"type\":\"urn:acidtest:problem:away\",\"title\":\"away\",\"status\":503,\"detail\":\"wait\",\"accepted\":3}\n";
        assert_eq!(said(&problem), whole);
        let answer = problem.answer::<Bytes>();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(answer.headers()[RETRY_AFTER], "1");
    }
}
