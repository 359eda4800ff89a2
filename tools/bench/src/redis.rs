//! A comparison in the same round: Redis streams, flushed before each answer, under the same load as the hub.

use super::context::Context;
use super::load::EVENT_BYTES;
use super::raw;
use super::table::{Group, Ledger, Row};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many events in all.
const EVENTS: u64 = 500_000;
/// How many connections, each with one pipeline in flight.
const CONNECTIONS: u64 = 16;
/// Events in a pipeline.
const BATCH: u64 = 100;
/// How many consumers share a group.
const CONSUMERS: usize = 4;
/// A server that does not answer by then never will.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often a connection is tried.
const TRY_EVERY: Duration = Duration::from_millis(10);

/// What is said where there is no server.
pub const MISSING: &str = "Redis was not measured: there is no redis-server (Debian: redis-server).";

/// The group.
pub struct Redis;

impl Group for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let dir = context.fresh_dir("redis")?;
        let Some(server) = Server::start(&dir)? else {
            ledger.note(MISSING.to_owned());
            return Ok(());
        };
        raw::record(BATCH, context, ledger)?;
        let batches = context.scaled(EVENTS) / CONNECTIONS / BATCH;
        let events = batches * CONNECTIONS * BATCH;
        let seconds = server.load(batches).map_err(|error| format!("redis: {error}"))?;
        let row = Row::events("Redis streams, pipelines of 100, 16 connections, flushed");
        ledger.record(row.versus(raw::row_name(BATCH)), events as f64 / seconds);
        server.check(events)?;
        let seconds = server.consume(events).map_err(|error| format!("redis: {error}"))?;
        let row = Row::events("Redis streams, XREADGROUP + XACK of 1,000, 4 consumers, flushed");
        ledger.record(row, events as f64 / seconds);
        Ok(())
    }
}

/// Events in a second that one connection appends with so many in flight; `None` where there is no server.
pub fn windowed(context: &Context, window: u64) -> Result<Option<f64>, String> {
    let Some(server) = Server::start(&context.fresh_dir("redis")?)? else { return Ok(None) };
    let events = context.scaled(EVENTS) / BATCH * BATCH;
    let load = || -> io::Result<f64> {
        let mut connection = Connection::open(&server.address)?;
        let block = append_command().repeat(BATCH as usize);
        let start = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        while answered < events {
            while sent < events && sent - answered + BATCH <= window {
                connection.send(&block)?;
                sent += BATCH;
            }
            for _ in 0..BATCH {
                connection.appended()?;
            }
            answered += BATCH;
        }
        Ok(start.elapsed().as_secs_f64())
    };
    let seconds = load().map_err(|error| format!("redis: {error}"))?;
    server.check(events)?;
    Ok(Some(events as f64 / seconds))
}

/// An address that nobody listens on.
fn free_address() -> io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// A server that runs; it is killed when this is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts one that flushes before it answers; `None` if there is none to start.
    fn start(dir: &Path) -> Result<Option<Self>, String> {
        let address = free_address().map_err(|error| format!("no port is free: {error}"))?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let spawned = Command::new("redis-server")
            .args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--dir"])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("redis-server cannot be started: {error}")),
        };
        let server = Self { child, address };
        let start = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            if start.elapsed() > READY_WITHIN {
                return Err("redis-server does not answer".to_owned());
            }
            // There is nothing to wait on but the answer itself.
            std::thread::sleep(TRY_EVERY);
        }
        Ok(Some(server))
    }

    /// Appends `batches` pipelines on each connection; says how long that took.
    fn load(&self, batches: u64) -> io::Result<f64> {
        let pipeline = append_command().repeat(BATCH as usize);
        let connections =
            (0..CONNECTIONS).map(|_| Connection::open(&self.address)).collect::<io::Result<Vec<_>>>()?;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let pipeline = &pipeline;
            let clients: Vec<_> = connections
                .into_iter()
                .map(|mut connection| scope.spawn(move || connection.append(pipeline, batches)))
                .collect();
            clients.into_iter().try_for_each(|client| {
                client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            })
        })?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Reads and acks all events in a group; says how long that took.
    fn consume(&self, events: u64) -> io::Result<f64> {
        let mut connections =
            (0..CONSUMERS).map(|_| Connection::open(&self.address)).collect::<io::Result<Vec<_>>>()?;
        connections[0].send(&command(&[b"XGROUP", b"CREATE", b"bench", b"g", b"0"]))?;
        connections[0].reply(&mut Vec::new())?;
        let start = Instant::now();
        let acked: u64 = std::thread::scope(|scope| {
            let consumers: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(number, mut connection)| scope.spawn(move || connection.consume(number)))
                .collect();
            consumers.into_iter().try_fold(0, |sum, consumer| {
                let acked =
                    consumer.join().unwrap_or_else(|_| Err(io::Error::other("a consumer panicked")))?;
                Ok::<u64, io::Error>(sum + acked)
            })
        })?;
        if acked == events {
            return Ok(start.elapsed().as_secs_f64());
        }
        Err(io::Error::other(format!("{acked} of {events} events were acked")))
    }

    fn check(&self, events: u64) -> Result<(), String> {
        let ask = || -> io::Result<String> {
            let mut connection = Connection::open(&self.address)?;
            connection.stream.get_mut().write_all(&command(&[b"XLEN", b"bench"]))?;
            connection.line()
        };
        let answer = ask().map_err(|error| format!("redis: {error}"))?;
        if answer == format!(":{events}") {
            return Ok(());
        }
        Err(format!("{events} events went into redis, which says {answer}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends the pipeline again and again, each time all of its answers are there.
    fn append(&mut self, pipeline: &[u8], batches: u64) -> io::Result<()> {
        for _ in 0..batches {
            self.stream.get_mut().write_all(pipeline)?;
            for _ in 0..BATCH {
                self.appended()?;
            }
        }
        Ok(())
    }

    /// Reads the answer to one append.
    fn appended(&mut self) -> io::Result<()> {
        let head = self.line()?;
        if !head.starts_with('$') {
            return Err(io::Error::other(head));
        }
        self.line().map(drop)
    }

    /// Reads and acks until nothing is left; says how many events that were.
    fn consume(&mut self, number: usize) -> io::Result<u64> {
        let name = format!("c{number}");
        let read: [&[u8]; 9] =
            [b"XREADGROUP", b"GROUP", b"g", name.as_bytes(), b"COUNT", b"1000", b"STREAMS", b"bench", b">"];
        let read = command(&read);
        let mut acked = 0;
        loop {
            self.send(&read)?;
            let mut texts = Vec::new();
            self.reply(&mut texts)?;
            // An id, then the name and the value of the one field; the name of the stream comes first.
            let ids: Vec<&[u8]> = texts.iter().skip(1).step_by(3).map(Vec::as_slice).collect();
            if ids.is_empty() {
                return Ok(acked);
            }
            let head: [&[u8]; 3] = [b"XACK", b"bench", b"g"];
            let ack: Vec<&[u8]> = head.into_iter().chain(ids.iter().copied()).collect();
            self.send(&command(&ack))?;
            self.reply(&mut Vec::new())?;
            acked += ids.len() as u64;
        }
    }

    fn send(&mut self, command: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(command)
    }

    /// Reads one reply, and collects the texts in it in their order.
    fn reply(&mut self, texts: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let mut open = 1;
        while open > 0 {
            open -= 1;
            let head = self.line()?;
            let count = |text: &str| text.parse::<i64>().map_err(|_| io::Error::other(head.clone()));
            match head.split_at_checked(1) {
                Some(("*", items)) => open += count(items)?.max(0),
                Some(("$", length)) => {
                    let Ok(length) = usize::try_from(count(length)?) else { continue };
                    let mut text = vec![0; length + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(length);
                    texts.push(text);
                }
                Some((":" | "+", _)) => {}
                _ => return Err(io::Error::other(head)),
            }
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

fn append_command() -> Vec<u8> {
    command(&[b"XADD", b"bench", b"*", b"p", &[b'x'; EVENT_BYTES]])
}

/// A command as the server reads it.
fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_carry_the_length_of_each_word() {
        assert_eq!(command(&[b"XLEN", b"bench"]), b"*2\r\n$4\r\nXLEN\r\n$5\r\nbench\r\n");
    }
}
