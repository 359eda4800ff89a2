//! A persistent connection with one request in flight, so that answers are measured and not connects.

use prombus_fixtures::http::{self, Call};

/// The connection.
pub struct Connection(http::Connection);

impl Connection {
    /// Opens one.
    pub fn open(address: &str) -> Result<Self, String> {
        http::Connection::open(address).map(Self).map_err(|error| format!("{address}: {error}"))
    }

    /// Sends a request, and gives the status and the body of its answer.
    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Vec<u8>), String> {
        let answer = self.0.call(&Call::json(method, path, body));
        answer.map(|answer| (answer.status, answer.body)).map_err(|error| format!("{method} {path}: {error}"))
    }
}
