//! Requests on a connection that answers them in their order, and what became of them.

use std::{collections::VecDeque, fmt, io};

use bytes::BytesMut;

use crate::{Place, Wire};

/// Why a request has no answer, or the error that the server has answered in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError<A: fmt::Display> {
    /// No byte of the request was handed to the network: the server has not seen it.
    #[error("{0}")]
    NotSent(String),
    /// The server has answered with an error.
    #[error("{0}")]
    Answered(A),
    /// The request was sent, or a part of it; no answer has come that could be understood.
    #[error("{0}")]
    Lost(String),
}

impl<A: fmt::Display> RequestError<A> {
    /// The error that the server has answered, if it is one.
    pub fn answer(&self) -> Option<&A> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::NotSent(_) | Self::Lost(_) => None,
        }
    }
}

/// Requests without an answer, oldest first.
#[derive(Debug)]
pub struct Requests<R> {
    unanswered: VecDeque<(Place, R)>,
    /// Why the connection cannot be used any more.
    ended: Option<String>,
}

impl<R> Default for Requests<R> {
    fn default() -> Self {
        Self { unanswered: VecDeque::new(), ended: None }
    }
}

impl<R: Copy> Requests<R> {
    /// Appends a request to what is to be sent, whole or not at all.
    ///
    /// # Errors
    /// [`RequestError::NotSent`]: what `write` says.
    pub fn push<A: fmt::Display>(
        &mut self,
        wire: &mut Wire,
        write: impl FnOnce(&mut BytesMut) -> io::Result<R>,
    ) -> Result<(), RequestError<A>> {
        let place = wire.place();
        let out = wire.output();
        let start = out.len();
        match write(out) {
            Ok(request) => {
                self.unanswered.push_back((place, request));
                Ok(())
            }
            Err(error) => {
                out.truncate(start);
                Err(RequestError::NotSent(error.to_string()))
            }
        }
    }

    /// Whether every request has its answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// The oldest, if a byte of it was handed to the network: what was not sent is not answered.
    #[must_use]
    pub fn oldest(&self, wire: &Wire) -> Option<R> {
        self.unanswered.front().filter(|(place, _)| wire.reached(*place)).map(|(_, request)| *request)
    }

    /// Notes that the oldest has its answer, and returns it.
    pub fn answered(&mut self) -> Option<R> {
        self.unanswered.pop_front().map(|(_, request)| request)
    }

    /// Why the connection can be used no more, if so.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Fails if the connection can be used no more.
    ///
    /// # Errors
    /// [`RequestError::NotSent`], with the reason.
    pub fn usable<A: fmt::Display>(&self) -> Result<(), RequestError<A>> {
        self.ended.clone().map_or(Ok(()), |ended| Err(RequestError::NotSent(ended)))
    }

    /// Notes that the connection can be used no more, for this reason if there was none before. Whoever calls it
    /// [gives up](Self::given_up) the requests that have no answer.
    pub fn end(&mut self, why: &str) {
        self.ended.get_or_insert_with(|| why.to_owned());
    }

    /// Takes out the oldest request after the connection's [end](Self::end), with what is known of it.
    pub fn given_up<A: fmt::Display>(&mut self, wire: &Wire) -> Option<(R, RequestError<A>)> {
        let why = self.ended.clone()?;
        let (place, request) = self.unanswered.pop_front()?;
        let known = if wire.reached(place) { RequestError::Lost(why) } else { RequestError::NotSent(why) };
        Some((request, known))
    }
}
