//! The latency of an event from one client to another, at a steady rate.
//!
//! It uses three blocking threads: a runtime's timer is too coarse for ten thousand events per second.

use super::super::context::Context;
use super::super::hub::Hub;
use super::consume::subscribe;
use super::frames::{self, Inbox};
use super::wire::check_ok;
use super::{FIRST_NUMBER, payload};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

const TOPIC: &str = "paced";
const GROUP: &str = "bench";
/// How many events are measured: ten seconds of them.
const EVENTS: u64 = 100_000;
/// How many go before them: nothing is warm at the start.
const WARM_UP: u64 = 10_000;
/// The time between two events.
const PACE: Duration = Duration::from_micros(100);
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;
/// A client that hears nothing for so long is told an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// Times in microseconds.
pub struct Times {
    /// The one in the middle.
    pub p50: f64,
    /// One in a hundred took longer.
    pub p99: f64,
}

/// Measures the way through a hub.
pub fn measure(hub: &Hub, context: &Context) -> Result<Times, String> {
    let events = WARM_UP + context.scaled(EVENTS);
    let mut subscriber = BlockingConnection::open(hub.address())?;
    subscriber.send(&subscribe(
        TOPIC,
        GROUP,
        r#"{"from":"earliest","batchSize":1000,"maxInFlight":10000}"#,
    ))?;
    subscriber.each_text(|text| check_ok(text).map(|()| Go::Stop))?;
    let publisher = BlockingConnection::open(hub.address())?;
    let mut listener = publisher.twin()?;
    let (sent, received) = thread::scope(|scope| {
        let sent = scope.spawn(|| publish(publisher, events));
        let received = scope.spawn(|| receive(subscriber, events));
        let answered = scope.spawn(move || count_answers(&mut listener, events));
        let (sent, received) = (joined(sent)?, joined(received)?);
        joined(answered)?;
        Ok::<_, String>((sent, received))
    })?;
    hub.check_group(TOPIC, GROUP)?;
    let mut micros: Vec<f64> = (WARM_UP as usize..events as usize)
        .map(|n| received[n].map(|at| at.saturating_duration_since(sent[n]).as_secs_f64() * 1e6))
        .collect::<Option<_>>()
        .ok_or("an event was not received")?;
    micros.sort_by(f64::total_cmp);
    let at = |hundredths: usize| micros[micros.len() * hundredths / 100];
    Ok(Times { p50: at(50), p99: at(99) })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, String> {
    thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned()))
}

/// Publishes at the pace, and says when each event was about to be written.
fn publish(mut line: BlockingConnection, events: u64) -> Result<Vec<Instant>, String> {
    let frame = |n: u64| {
        let mut out = Vec::new();
        let text = format!(r#"{{"op":"PUBLISH","corr":"{n}","topic":"{TOPIC}","payload":{}}}"#, payload(n));
        frames::write_text(&mut out, text.as_bytes());
        out
    };
    let frames: Vec<Vec<u8>> = (0..events).map(frame).collect();
    let mut sent = Vec::with_capacity(frames.len());
    let mut due = Instant::now();
    for frame in &frames {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            // The pace is what is asked for here.
            thread::sleep(early);
        }
        // One that is late goes at once, so that the pace holds over time.
        sent.push(Instant::now());
        line.write(frame)?;
        due += PACE;
    }
    Ok(sent)
}

/// Reads the answers to all publishes.
fn count_answers(line: &mut BlockingConnection, events: u64) -> Result<(), String> {
    let mut answered = 0;
    line.each_text(|text| {
        check_ok(text)?;
        answered += 1;
        Ok(if answered == events { Go::Stop } else { Go::On })
    })
}

/// Reads and acks all events, and says when each came.
fn receive(mut line: BlockingConnection, events: u64) -> Result<Vec<Option<Instant>>, String> {
    let mut times = vec![None; events as usize];
    let mut seen = 0;
    while seen < events {
        let now = line.read()?;
        let mut leases = Vec::new();
        while let Some(text) = line.inbox.next_text(&mut line.out)? {
            let n = field(text, "\"n\":").and_then(|n| n.parse::<u64>().ok());
            let lease = field(text, "\"lease\":\"");
            let (Some(n), Some(lease)) = (n, lease) else {
                return Err(format!("not an event: {}", String::from_utf8_lossy(text)));
            };
            let time = times.get_mut((n - FIRST_NUMBER) as usize).ok_or("an event that nobody published")?;
            // What comes again was there before.
            seen += u64::from(time.is_none());
            time.get_or_insert(now);
            leases.push(format!("\"{lease}\""));
        }
        if !leases.is_empty() {
            let leases = leases.join(",");
            line.send(&format!(r#"{{"op":"ACK","topic":"{TOPIC}","group":"{GROUP}","leases":[{leases}]}}"#))?;
        }
    }
    Ok(times)
}

/// What stands behind `name`, up to the next sign.
fn field<'a>(text: &'a [u8], name: &str) -> Option<&'a str> {
    let start = memchr::memmem::find(text, name.as_bytes())? + name.len();
    let end = start + memchr::memchr3(b'"', b',', b'}', &text[start..])?;
    std::str::from_utf8(&text[start..end]).ok()
}

/// Whether to read on.
enum Go {
    On,
    Stop,
}

/// A connection that blocks.
struct BlockingConnection {
    stream: TcpStream,
    inbox: Inbox,
    out: Vec<u8>,
    piece: Vec<u8>,
}

impl BlockingConnection {
    fn open(address: &str) -> Result<Self, String> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            frames::upgrade(&stream, address)?;
            Ok(stream)
        };
        open().map(Self::on).map_err(broken)
    }

    fn on(stream: TcpStream) -> Self {
        Self { stream, inbox: Inbox::default(), out: Vec::new(), piece: vec![0; READ_BYTES] }
    }

    /// The same connection, for another thread to read from.
    fn twin(&self) -> Result<Self, String> {
        self.stream.try_clone().map(Self::on).map_err(broken)
    }

    fn write(&mut self, frames: &[u8]) -> Result<(), String> {
        self.stream.write_all(frames).map_err(broken)
    }

    /// Sends a text, and what else is to be sent.
    fn send(&mut self, text: &str) -> Result<(), String> {
        frames::write_text(&mut self.out, text.as_bytes());
        let out = std::mem::take(&mut self.out);
        self.write(&out)
    }

    /// Reads what has come, and says when that was.
    fn read(&mut self) -> Result<Instant, String> {
        let count = self.stream.read(&mut self.piece).map_err(broken)?;
        let now = Instant::now();
        if count == 0 {
            return Err("the hub has gone".to_owned());
        }
        self.inbox.push(&self.piece[..count]);
        Ok(now)
    }

    fn each_text(&mut self, mut see: impl FnMut(&[u8]) -> Result<Go, String>) -> Result<(), String> {
        loop {
            while let Some(text) = self.inbox.next_text(&mut self.out)? {
                if let Go::Stop = see(text)? {
                    return Ok(());
                }
            }
            self.read()?;
        }
    }
}

fn broken(error: std::io::Error) -> String {
    format!("a WebSocket broke: {error}")
}
