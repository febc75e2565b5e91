//! The connection between a client and a host: a line of JSON each way for every operation.

use std::{
    future::Future,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream as HostStream},
    pin::Pin,
};

use acidtest_engine::Fault;
use acidtest_model::Address;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader as AsyncBufReader},
    net::TcpStream,
};

use super::Purpose;

/// The client's end.
#[derive(Debug)]
pub(crate) struct HostLine {
    stream: AsyncBufReader<TcpStream>,
    /// What has been read of the next answer.
    read: Vec<u8>,
    written: Vec<u8>,
}

fn lost(error: &dyn std::fmt::Display) -> Fault {
    Fault::lost(format!("the store's host is gone: {error}"))
}

impl HostLine {
    pub(crate) async fn open(address: &Address, purpose: &Purpose) -> Result<Self, String> {
        let opened = TcpStream::connect(address.endpoint(0)).await;
        let stream = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = AsyncBufReader::new(stream.map_err(|error| error.to_string())?);
        let mut line = Self { stream, read: Vec::new(), written: Vec::new() };
        line.send(purpose).await.map_err(|fault| fault.message)?;
        Ok(line)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask<R: Serialize, A: DeserializeOwned>(&mut self, request: &R) -> Result<A, Fault> {
        self.send(request).await?;
        self.receive().await
    }

    pub(crate) async fn send(&mut self, request: &impl Serialize) -> Result<(), Fault> {
        self.written.clear();
        serde_json::to_writer(&mut self.written, request).map_err(|error| lost(&error))?;
        self.written.push(b'\n');
        self.stream.get_mut().write_all(&self.written).await.map_err(|error| lost(&error))
    }

    /// The next answer. What was read of it is kept if the future is dropped.
    pub(crate) async fn receive<A: DeserializeOwned>(&mut self) -> Result<A, Fault> {
        self.stream.read_until(b'\n', &mut self.read).await.map_err(|error| lost(&error))?;
        if self.read.last() != Some(&b'\n') {
            return Err(lost(&"it closed the connection"));
        }
        let answer = serde_json::from_slice(&self.read).map_err(|error| lost(&error));
        self.read.clear();
        answer
    }
}

/// Serves one client's connection to its end.
pub type Served = Box<dyn FnOnce(ServedLine) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The host's end. It blocks its thread, as the operations of the store do.
#[derive(Debug)]
pub struct ServedLine {
    input: BufReader<HostStream>,
    output: HostStream,
    line: Vec<u8>,
}

impl ServedLine {
    /// A client's connection, and its purpose.
    ///
    /// # Errors
    /// It is closed, or says nothing that a client would say.
    pub fn accept(stream: HostStream) -> std::io::Result<(Self, Purpose)> {
        stream.set_nodelay(true)?;
        let mut line = Self { input: BufReader::new(stream.try_clone()?), output: stream, line: Vec::new() };
        let purpose = line.request();
        purpose.map(|purpose| (line, purpose)).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    /// The next request; none at the end.
    pub fn request<R: DeserializeOwned>(&mut self) -> Option<R> {
        self.line.clear();
        self.input.read_until(b'\n', &mut self.line).ok()?;
        serde_json::from_slice(&self.line).ok()
    }

    /// Answers it. Returns whether the client is still there.
    pub fn answer(&mut self, answer: &impl Serialize) -> bool {
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, answer).is_ok();
        self.line.push(b'\n');
        written && self.output.write_all(&self.line).is_ok()
    }

    /// Answers whether the client's connection to the store is open, and returns it if it is.
    pub(crate) fn opened<C>(&mut self, connected: Result<C, String>) -> Option<C> {
        let is_there = match &connected {
            Ok(_) => self.answer(&Ok::<(), String>(())),
            Err(why) => self.answer(&Err::<(), _>(why)),
        };
        connected.ok().filter(|_| is_there)
    }
}

/// The address of a host's port on loopback.
#[must_use]
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
