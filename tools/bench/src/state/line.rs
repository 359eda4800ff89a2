//! A connection that is kept, with one request under way: what is measured is the answer and not the connecting.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The connection.
pub struct Line {
    reader: BufReader<TcpStream>,
    address: String,
}

impl Line {
    /// Opens one.
    pub fn open(address: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { reader: BufReader::new(stream), address: address.to_owned() })
    }

    /// Sends a request, and gives the status and the body of its answer.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), String> {
        self.exchange(method, path, body).map_err(|error| format!("{method} {path}: {error}"))
    }

    fn exchange(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
        let (address, length) = (&self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.reader.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|status| status.parse().ok()).unwrap_or(0);
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok((status, body))
    }
}
