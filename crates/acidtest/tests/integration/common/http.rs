//! A client of HTTP/1.1 on one connection, with nothing between the test and the bytes.

use std::{
    io::{BufRead, BufReader, Error, Read, Result, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use super::certificate::Certificate;

trait Duplex: Read + Write + Send {}

impl<T: Read + Write + Send> Duplex for T {}

pub struct Http {
    stream: BufReader<Box<dyn Duplex>>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        let said: String = self.body.chars().take(2_000).collect();
        assert_eq!(self.status, status, "{}{said}", self.head);
        self
    }
}

impl Http {
    pub fn open(address: &str) -> Result<Self> {
        Ok(Self { stream: BufReader::new(Box::new(connect(address)?)) })
    }

    /// Opens one with TLS, to a server that has this certificate; what is said first comes with the end of the handshake.
    pub fn open_secure(address: &str, certificate: &Certificate, first: &[u8]) -> Result<Self> {
        let stream = certificate.secure(connect(address)?, first)?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(bytes)?;
        self.stream.get_mut().flush()
    }

    pub fn post(&mut self, token: &str, kind: &str, body: &str) -> Result<Answer> {
        self.post_with("", token, kind, body)
    }

    /// Posts with more headers, each with its end of line.
    pub fn post_with(&mut self, more: &str, token: &str, kind: &str, body: &str) -> Result<Answer> {
        let length = body.len();
        let request = format!(
            "POST /logs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: {kind}\r\n{more}\
             content-length: {length}\r\n\r\n{body}"
        );
        self.write(request.as_bytes())?;
        self.answer()
    }

    /// Sends a request with a body of JSON.
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let length = body.len();
        self.write(
            format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: \
                 {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )?;
        self.answer()
    }

    pub fn get(&mut self, path: &str, more: &str) -> Result<Answer> {
        let host = if more.contains("host:") { "" } else { "host: localhost\r\n" };
        self.write(format!("GET {path} HTTP/1.1\r\n{host}{more}\r\n").as_bytes())?;
        self.answer()
    }

    pub fn answer(&mut self) -> Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(Error::other(format!("the connection ended after {head:?}")));
            }
        }
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| Error::other(head.clone()))?;
        let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, head, body: String::from_utf8(body).map_err(Error::other)? })
    }

    /// The next line of an answer that has no end.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map(|_| line)
    }

    /// Whether the other side has closed the connection without a word.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]) | Err(_))
    }
}

fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    Ok(stream)
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}
