//! `prombus tail`: follows topics, and writes each event to stdout as one line. It has no group and acks nothing; after a
//! disconnect, it resumes after the last event that it has written.

use super::retry::{LONGEST_PAUSE, Retry, pauses};
use super::waiting;
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output;
use crate::say;
use crate::serve::signals::Signals;
use crate::time::{self, Moment};
use crate::visible;
use chrono::{DateTime, SecondsFormat};
use clap::Args;
use prombus_client::{Backoff, Client, ClientError, EventRecord, ReadFrom, Tail, TailEvent, TailQuery};
use std::time::{Duration, Instant};

/// A hub sends a keep-alive every 15 s; if it is silent for this long, it is considered gone.
const SILENT: Duration = Duration::from_secs(45);

const EXAMPLES: &str = "\
Examples:
  prombus tail orders
  prombus tail 'process.*' --from -10m --filter 'event.payload.cpu_pct > 80'
  prombus tail 'orders.**,payments' --key web1 | ./alarm
  prombus tail 'dlq.**' --from earliest

* matches one segment of a name, ** any number; quote patterns. Topics created later are followed
from their first event. The hub's own topics (dlq., system.) match only patterns that spell out
their prefix.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TailArgs {
    /// Topics to follow: names or patterns
    #[arg(value_name = "TOPIC|PATTERN", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// Where to start: earliest, latest, epoch ms, RFC 3339, a date (midnight UTC), or relative to now (-15m, -2d)
    #[arg(long, value_name = "TIME", default_value = "latest", value_parser = time::parse_moment, allow_hyphen_values = true)]
    from: Moment,
    /// Only events that match this CEL expression over `event`
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Only events of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

pub fn run(hub: &HubArgs, args: TailArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    let from = match args.from {
        Moment::Earliest => ReadFrom::Earliest,
        Moment::Latest => ReadFrom::Latest,
        Moment::At(ts) => ReadFrom::Ts(ts),
    };
    let query = TailQuery { topics: args.topics.join(","), from, key: args.key, filter: args.filter };
    hub::block_on(async {
        let (mut signals, mut backoff) = (Signals::take()?, pauses());
        tokio::select! {
            // It ends on its own only after a failure.
            failure = follow(&client, &query, &mut backoff) => Err(failure),
            _ = signals.next() => Ok(()),
        }
    })
}

/// Writes events, across any number of connections, until there is an error that waiting does not fix. It backs off
/// between connections that bring nothing.
async fn follow(client: &Client, query: &TailQuery, backoff: &mut Backoff) -> Failure {
    let mut retry = Retry::new();
    let mut after: Option<String> = None;
    let mut announced = false;
    loop {
        let open = async || client.tail(query, after.as_deref()).await;
        let tail = match retry.until_answered(open).await {
            Ok(tail) => tail,
            Err(failure) => return failure,
        };
        if !std::mem::replace(&mut announced, true) {
            waiting::announce(client, &query.topics).await;
        }
        let opened = Instant::now();
        match write(tail, &mut after).await {
            Err(failure) => return failure,
            // A connection that has lasted counts as a pause.
            Ok(brought) if brought || opened.elapsed() >= LONGEST_PAUSE => *backoff = pauses(),
            // A proxy may end every stream, or the hub is busy.
            Ok(_) => backoff.pause().await,
        }
    }
}

/// Writes the events of one connection, records the position, and returns whether there were any. A connection that
/// ends or breaks is not a failure.
async fn write(mut tail: Tail, after: &mut Option<String>) -> Result<bool, Failure> {
    let mut brought = false;
    loop {
        let events = match tokio::time::timeout(SILENT, tail.next()).await {
            Ok(Ok(Some(events))) => events,
            Ok(Ok(None)) => return Ok(brought),
            Ok(Err(error)) if error.is_temporary() => return Ok(brought),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                say!("the hub is silent; reconnecting");
                return Ok(brought);
            }
        };
        if !events.is_empty() {
            brought = true;
            let lines = lines(&events)?;
            // A reader may be slow, but signals must still be handled.
            let written = tokio::task::spawn_blocking(move || output::write_all(&lines)).await;
            written.map_err(|error| Failure::Failed(format!("cannot write to stdout: {error}")))??;
        }
        *after = tail.resume().map(str::to_owned);
    }
}

fn lines(events: &[TailEvent]) -> Result<Vec<u8>, Failure> {
    let for_a_person = output::is_terminal();
    let mut out = Vec::new();
    for event in events {
        match for_a_person {
            true => out.extend_from_slice(readable(&event.json)?.as_bytes()),
            false => out.extend_from_slice(event.json.as_bytes()),
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// An event as a person reads it: when, where, which key, and what.
fn readable(json: &str) -> Result<String, Failure> {
    let event: EventRecord =
        serde_json::from_str(json).map_err(|error| ClientError::BadAnswer(error.to_string()))?;
    let EventRecord { ts, topic, partition, offset, key, payload, .. } = event;
    let when = i64::try_from(ts).ok().and_then(DateTime::from_timestamp_millis);
    let when = when.map_or_else(|| ts.to_string(), |when| when.to_rfc3339_opts(SecondsFormat::Millis, true));
    let key = key.map_or_else(|| "-".to_owned(), |key| visible::in_line(&key).into_owned());
    Ok(format!("{when}  {topic} {partition}:{offset}  {key}  {payload}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    const STREAM: &str = "200 OK\r\ncontent-type: text/event-stream";

    /// Gives each connection one of the answers (status with headers, body), and ends it.
    async fn answer(listener: TcpListener, answers: Vec<(&str, &str)>) {
        for (head, body) in answers {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            let answer = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}");
            stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// What the pauses are when these answers came, and one at last that refuses.
    async fn pauses_after(streams: &[&'static str]) -> Backoff {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        let mut answers: Vec<_> = streams.iter().map(|body| (STREAM, *body)).collect();
        answers.push(("400 Bad Request", r#"{"error":"bad_request","message":"no"}"#));
        let (query, mut backoff) = (TailQuery::default(), pauses());
        tokio::join!(answer(listener, answers), follow(&client, &query, &mut backoff));
        backoff
    }

    #[tokio::test]
    async fn there_are_growing_pauses_while_streams_bring_nothing() {
        let unavailable =
            "id: 0\n\nevent: error\ndata: {\"error\":\"unavailable\",\"message\":\"later\"}\n\n";
        let mut expected = pauses();
        for _ in 0..3 {
            expected.pause().await;
        }
        assert_eq!(pauses_after(&["id: 0\n\n", unavailable, ""]).await, expected);
        // One that brings an event is not paused after.
        let event = "id: 1\ndata: {\"id\":\"x\",\"ts\":1,\"topic\":\"t\",\"partition\":0,\"offset\":0,\"payload\":null}\n\n";
        assert_eq!(pauses_after(&["id: 0\n\n", event]).await, pauses());
    }

    #[test]
    fn a_person_reads_when_where_and_what() {
        let json = r#"{"id":"0198c0de-0000-7000-8000-000000000001","ts":1754683200123,"topic":"a.b","key":"k\n","partition":3,"offset":7,"payload":{"n":1.10}}"#;
        assert_eq!(readable(json).unwrap(), "2025-08-08T20:00:00.123Z  a.b 3:7  k\\u000a  {\"n\":1.10}");
        let json =
            r#"{"id":"x","ts":18446744073709551615,"topic":"t","partition":0,"offset":0,"payload":null}"#;
        assert_eq!(readable(json).unwrap(), "18446744073709551615  t 0:0  -  null");
    }
}
