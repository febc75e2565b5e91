//! A connection whose requests are answered in their order, driven by whoever awaits an answer on it.

use std::{
    fmt,
    task::{Context, Poll, ready},
};

use crate::{RequestError, Requests, Wire};

/// A connection on which requests are answered in their order. The protocol says what its frames mean
/// ([`hear`](Self::hear)); how they are waited for, and what becomes of requests when the connection ends, is said here.
///
/// The task of whoever awaits an answer writes and reads. Where it is dropped before the answer has come, the connection can be
/// used no more: whether the server has carried the request out is not known.
pub trait Pipelined {
    /// What a protocol must remember of a request to understand its answer.
    type Request: Copy;
    /// The error that a server answers.
    type Answer: fmt::Display;

    /// The buffers, and the requests without an answer.
    fn parts(&mut self) -> (&mut Wire, &mut Requests<Self::Request>);

    /// Takes the next frame, and notes what it means, if it has arrived whole.
    ///
    /// # Errors
    /// Why the connection can be used no more.
    fn hear(&mut self) -> Result<Received, String>;

    /// Notes that a request stays without an answer.
    fn give_up(&mut self, request: Self::Request, why: RequestError<Self::Answer>);

    /// Forgets the answers that have come.
    fn forget(&mut self);

    /// Makes ready for new requests, if the connection can still be used, as far as is known without asking the server. Costs
    /// no system call as long as the server has said nothing.
    ///
    /// # Errors
    /// [`RequestError::NotSent`], with the reason why it cannot be used.
    fn begin(&mut self) -> Result<(), RequestError<Self::Answer>> {
        if !self.parts().1.is_empty() {
            self.end("an earlier request was given up");
        }
        self.forget();
        self.parts().0.clear_away();
        self.check()
    }

    /// Whether the connection can still be used, as far as is known without asking the server. Reads nothing while an answer is
    /// due: whoever awaits it does.
    ///
    /// # Errors
    /// [`RequestError::NotSent`], with the reason why it cannot.
    fn check(&mut self) -> Result<(), RequestError<Self::Answer>> {
        let (wire, requests) = self.parts();
        if requests.ended().is_none() && requests.oldest(wire).is_none() {
            match wire.try_read() {
                Ok(false) => {}
                Ok(true) => {
                    self.understand();
                }
                Err(error) => self.end(&error.to_string()),
            }
        }
        self.parts().1.usable()
    }

    /// Sends what is to be sent, until as many answers have come as is asked for, or all that are due.
    fn poll_answers(&mut self, context: &mut Context<'_>, is_enough: impl Fn(&Self) -> bool) -> Poll<()> {
        loop {
            let missing = self.understand();
            if self.parts().1.is_empty() || is_enough(self) {
                return Poll::Ready(());
            }
            if let Err(error) = ready!(self.parts().0.poll_exchange(context, missing)) {
                self.understand();
                self.end(&error.to_string());
            }
        }
    }

    /// Takes the frames that have arrived whole. Returns how many bytes the next one lacks, as far as that is known.
    fn understand(&mut self) -> usize {
        while self.parts().1.ended().is_none() {
            match self.hear() {
                Ok(Received::Frame) => {}
                Ok(Received::Missing(bytes)) => return bytes,
                Err(why) => self.end(&why),
            }
        }
        0
    }

    /// The connection can be used no more, for this reason if there was none before. What becomes of requests without an
    /// answer depends on whether they were sent.
    fn end(&mut self, why: &str) {
        self.parts().1.end(why);
        loop {
            let (wire, requests) = self.parts();
            let Some((request, known)) = requests.given_up(wire) else { return };
            self.give_up(request, known);
        }
    }
}

/// What has become of the frame that was to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was taken.
    Frame,
    /// It has not arrived whole, and lacks so many bytes, as far as that is known.
    Missing(usize),
}
