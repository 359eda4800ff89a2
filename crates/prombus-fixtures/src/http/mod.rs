//! A blocking HTTP client: requests spelled out, and answers unchanged.

mod answer;
mod api;

pub use answer::{Answer, CODES};
pub use api::{Api, encoded};

use crate::PATIENCE;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;

/// One request, spelled out.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The method.
    pub method: &'a str,
    /// The path and the query.
    pub target: &'a str,
    /// All headers but the length, and the host where it is the usual one.
    pub headers: Vec<(&'a str, &'a str)>,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Call<'a> {
    /// One with neither headers nor a body.
    pub fn new(method: &'a str, target: &'a str) -> Self {
        Self { method, target, headers: Vec::new(), body: b"" }
    }

    /// One with a JSON body.
    pub fn json(method: &'a str, target: &'a str, body: &'a str) -> Self {
        Self::new(method, target).header("content-type", "application/json").body(body.as_bytes())
    }

    /// The same with a header more.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: &'a [u8]) -> Self {
        self.body = body;
        self
    }

    /// The last one of its connection.
    #[must_use]
    pub fn and_close(&self) -> Self {
        self.clone().header("connection", "close")
    }

    /// What goes over the socket.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        let names_host = self.headers.iter().any(|(name, _)| *name == "host");
        let host = (!names_host).then_some(&("host", "localhost"));
        for (name, value) in host.into_iter().chain(&self.headers) {
            out += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() || matches!(self.method, "POST" | "PUT") {
            out += &format!("content-length: {}\r\n", self.body.len());
        }
        out += "\r\n";
        [out.as_bytes(), self.body].concat()
    }
}

/// A connection that is kept for many calls.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to `host:port`.
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request, and reads its answer to the end. A hub that is gone before that is an error.
    pub fn call(&mut self, call: &Call) -> io::Result<Answer> {
        self.0.get_mut().write_all(&call.bytes())?;
        Answer::read(&mut self.0)
    }
}
