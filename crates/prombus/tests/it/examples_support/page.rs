//! A page in headless Chromium, on an origin of its own.

use super::{Running, in_repository, program, tool};
use crate::common::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Serves one page, whatever is asked for, until the tests end.
pub struct Served {
    pub origin: String,
}

impl Served {
    pub fn file(path: &str) -> Self {
        Self::page(std::fs::read_to_string(in_repository(path)).unwrap())
    }

    pub fn page(text: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            // A browser that goes away in the middle is no concern of the test's.
            listener.incoming().flatten().for_each(|stream| drop(answer(stream, &text)));
        });
        Self { origin }
    }
}

fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    // A browser opens connections ahead of need, and one at a time is served here.
    stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let size = text.len();
    let head = format!("content-type: text/html\r\nconnection: close\r\ncontent-length: {size}");
    write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{text}")
}

/// A page that is open.
pub struct Page {
    browser: Running,
}

impl Page {
    pub fn open(url: &str) -> Self {
        tool("node/node_modules/playwright-core");
        let mut node = Command::new(program("node"));
        // The packages are found from the folder in which the script runs.
        node.current_dir(tool("node")).args(["--input-type=module", "--eval", include_str!("page.mjs")]);
        node.arg("--").arg(program("chromium")).args([url, &PATIENCE.as_millis().to_string()]);
        Self { browser: Running::start(node) }
    }

    /// Waits until an expression is true in the page; its value.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) -> Value {
        writeln!(self.browser.child.stdin.as_mut().unwrap(), "{expression}").unwrap();
        serde_json::from_str(&self.browser.line()).unwrap()
    }

    /// Closes the browser; what the page wrote to its console.
    #[track_caller]
    pub fn close(mut self) -> String {
        drop(self.browser.child.stdin.take());
        self.browser.end()
    }
}
