//! Answers: JSON, problems (RFC 9457), text, and streams of events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    body::{Body, Frame, SizeHint},
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use tokio::sync::mpsc;

pub(super) type Answer = Response<Content>;

/// What an answer says: at once, or as it comes.
pub(crate) enum Content {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => {
                events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }
}

/// What is wrong with a request or with the gateway, with what became of the entries of the request, where it had any.
pub(super) struct Problem(Box<acidtest_web::Problem<Option<Fates>>>);

/// What became of the entries of a request.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fates {
    /// How many were taken.
    pub(super) accepted: usize,
    /// How many were refused for what they say: sent again, they are refused again.
    #[serde(skip_serializing_if = "is_none")]
    pub(super) rejected: usize,
    /// Which were taken, unless all were: places in the body from 0, the first and the last of each stretch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) taken: Vec<(usize, usize)>,
    /// The first of those that were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<RefusedEntry>,
    /// Ids that were made here, by the places of their entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ids: Vec<MadeId>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

#[derive(Debug, Serialize)]
pub(super) struct RefusedEntry {
    pub(super) entry: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field: Option<&'static str>,
    pub(super) reason: String,
}

/// An id that was made for an entry without one.
#[derive(Debug, Serialize)]
pub(super) struct MadeId {
    pub(super) entry: usize,
    pub(super) id: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        let mut problem = acidtest_web::Problem::new(status, title, detail);
        match status {
            StatusCode::UNAUTHORIZED => {
                // browsers ask for it by Basic, whose password is the token
                for scheme in [
                    "Bearer realm=\"acidtest gateway\"",
                    "Basic realm=\"acidtest gateway, any user, the token as password\"",
                ] {
                    problem.headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
                }
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                problem.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        Self(Box::new(problem))
    }

    /// Of the entries of the request none was taken.
    pub(super) fn none_taken(self) -> Self {
        self.with(Fates::default())
    }

    /// The same, with what became of the entries of the request.
    pub(super) fn with(mut self, fates: Fates) -> Self {
        self.0.more = Some(fates);
        self
    }

    pub(super) fn answer(&self) -> Answer {
        self.0.answer()
    }
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // these types have no maps with other keys than strings, and nothing else can fail
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

pub(super) fn whole(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Content::from(text.into()));
    *answer.status_mut() = status;
    header(&mut answer, CONTENT_TYPE, kind);
    answer
}

pub(super) fn events(events: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = Response::new(Content::Events(events));
    header(&mut answer, CONTENT_TYPE, "text/event-stream");
    header(&mut answer, CACHE_CONTROL, "no-store");
    answer
}

pub(super) fn header(answer: &mut Answer, name: HeaderName, value: &'static str) {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Stretches of places that follow each other: the first and the last of each.
pub(super) fn stretches(places: impl IntoIterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for place in places {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == place => *last = place,
            _ => stretches.push((place, place)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_stretches() {
        assert_eq!(stretches([0, 1, 2, 4, 6, 7]), [(0, 2), (4, 4), (6, 7)]);
        assert_eq!(stretches([]), []);
    }
}
