//! Several requests in flight on one connection.

use std::io;

use tokio::io::AsyncWriteExt;

use super::{
    Connection, Encoder, Error,
    frame::{self, Answer, request, request_key},
};

/// A connection that does not wait for an answer before it sends the next request.
///
/// The server may answer in another order, and may work on several requests at once. The futures may be dropped:
/// nothing is written twice, and no answer is lost.
#[derive(Debug)]
pub struct Pipeline {
    connection: Connection,
    output: Vec<u8>,
    /// How many bytes of `output` have been written.
    written: usize,
}

impl Pipeline {
    /// Takes over a connection on which no request is in flight.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection, output: Vec::new(), written: 0 }
    }

    /// Adds a call of a stored function to the bytes to be written, and returns the request's number; `args`
    /// writes the array of its arguments.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn call(&mut self, function: &str, args: impl FnOnce(&mut Encoder)) -> Result<u64, Error> {
        let Connection { output, sync, .. } = &mut self.connection;
        frame::encode(output, request::CALL, *sync + 1, |body| {
            body.map(2).u64(request_key::FUNCTION_NAME).str(function).u64(request_key::TUPLE);
            args(body);
        })?;
        *sync += 1;
        self.output.extend_from_slice(output.as_slice());
        Ok(*sync)
    }

    /// How many bytes have not been written yet.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.output.len() - self.written
    }

    /// Writes all bytes that have not been written yet.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is lost.
    pub async fn flush(&mut self) -> Result<(), Error> {
        let lost = |cause| Error::Lost { sent: true, cause };
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.connection.stream.write(rest).await.map_err(lost)? {
                0 => return Err(lost(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// The next answer that has arrived in full: its request's number, and the server's error if it is one.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an answer that is malformed.
    pub fn arrived(&mut self) -> Result<Option<(u64, Option<Error>)>, Error> {
        while let Some(frame) = self.connection.arrived()? {
            let frame = self.connection.input.get(frame).unwrap_or_default();
            let (number, answer) = frame::parse(frame)?;
            match answer {
                Answer::Ok(_) => return Ok(Some((number, None))),
                Answer::Refused { code, message } => {
                    return Ok(Some((number, Some(Error::Server { code, message }))));
                }
                Answer::Pushed => {}
            }
        }
        Ok(None)
    }

    /// Waits for more of the server's answers.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is lost.
    pub async fn read(&mut self) -> Result<(), Error> {
        self.connection.read().await
    }
}
