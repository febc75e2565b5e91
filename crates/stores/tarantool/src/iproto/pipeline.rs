//! Several requests in flight on one connection.

use std::future::poll_fn;

use acidtest_transport::Place;

use super::{
    Connection, Encoder, Error,
    frame::{self, Answer, Frame, request, request_key},
};

/// A connection that does not wait for an answer before it sends the next request.
///
/// The server may answer in another order, and may work on several requests at once. The futures may be dropped:
/// nothing is written twice, and no answer is lost.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) connection: Connection,
}

impl Pipeline {
    /// Takes over a connection on which no request is in flight.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Adds a call of a stored function to the bytes to be written, and returns the request's number, and its place among all
    /// that is to be sent; `args` writes the array of its arguments.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn call(&mut self, function: &str, args: impl FnOnce(&mut Encoder)) -> Result<(u64, Place), Error> {
        let place = self.connection.add(request::CALL, |body| {
            body.map(2).u64(request_key::FUNCTION_NAME).str(function).u64(request_key::TUPLE);
            args(body);
        })?;
        Ok((self.connection.sync, place))
    }

    /// How many bytes have not been written yet.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.connection.wire.unwritten()
    }

    /// Whether any byte of the request at this place was handed to the network. If not, the server has not seen it.
    #[must_use]
    pub fn reached(&self, place: Place) -> bool {
        self.connection.wire.reached(place)
    }

    /// Writes all bytes that have not been written yet.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is lost.
    pub async fn flush(&mut self) -> Result<(), Error> {
        let wire = &mut self.connection.wire;
        poll_fn(|context| wire.poll_write(context)).await.map_err(|cause| Error::Lost { sent: true, cause })
    }

    /// The next answer that has arrived in full: its request's number, and the server's error if it is one.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an answer that is malformed.
    pub fn arrived(&mut self) -> Result<Option<(u64, Option<Error>)>, Error> {
        while let Frame::Whole(frame) = self.connection.next_frame()? {
            let frame = self.connection.wire.arrived().get(frame).unwrap_or_default();
            let (number, answer) = frame::parse(frame)?;
            match answer {
                Answer::Ok(_) => return Ok(Some((number, None))),
                Answer::Refused { code, message } => {
                    return Ok(Some((number, Some(Error::Server { code, message }))));
                }
                Answer::Pushed => {}
            }
        }
        self.connection.wire.clear_away();
        Ok(None)
    }

    /// Waits for more of the server's answers.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is lost.
    pub async fn read(&mut self) -> Result<(), Error> {
        let wire = &mut self.connection.wire;
        poll_fn(|context| wire.poll_read(context, 0)).await.map_err(|cause| Error::Lost { sent: true, cause })
    }
}
