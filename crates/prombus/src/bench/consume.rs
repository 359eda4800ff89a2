//! Consuming: each connection is a member that pulls from a group and acks what it got, page by page.

use super::http::{HttpError, More};
use super::{Shared, topic_name};
use memchr::memmem::Finder;
use std::time::Instant;

/// How long a pull waits: not long, because members that wait for events held by others are measured too.
const WAIT_MS: u64 = 10;
const LEASE: &[u8] = b"\"lease\":\"";

/// One member of the group, until all events are seen.
pub async fn member(shared: &Shared<'_>, number: u32) -> Result<(), HttpError> {
    let args = shared.args;
    let topic = topic_name(&args.prefix, number % args.topics);
    let base = format!("{}/v1/topics/{topic}/groups/{}", shared.target.base_path, args.group);
    let max_in_flight = args.batch.max(1_000);
    let body = format!(
        r#"{{"from":"earliest","member":"m{number}","max":{},"waitMs":{WAIT_MS},"maxInFlight":{max_in_flight}}}"#,
        args.batch
    );
    let pull = request(shared, &format!("{base}/pull"), body.as_bytes());
    let lease = Finder::new(LEASE);
    let mut connection = shared.target.connect().await?;
    let (mut answer, mut ack) = (Vec::new(), Vec::new());
    while shared.events.get() < args.events {
        let started = Instant::now();
        answer.clear();
        connection.call(&pull, |piece| keep(&mut answer, piece)).await?;
        let leases = write_acks(&lease, &answer, &mut ack);
        if leases == 0 {
            // The remaining events are held by other members.
            continue;
        }
        let bytes = answer.len();
        answer.clear();
        connection
            .call(&request(shared, &format!("{base}/ack"), &ack), |piece| keep(&mut answer, piece))
            .await?;
        if memchr::memmem::find(&answer, b"\"ok\":false").is_some() {
            return Err(HttpError::Malformed("a lease was refused"));
        }
        shared.finished(started, bytes as u64);
        shared.events.set(shared.events.get() + leases);
        shared.progress.set_position(shared.events.get());
    }
    Ok(())
}

fn keep(answer: &mut Vec<u8>, piece: &[u8]) -> More {
    answer.extend_from_slice(piece);
    More::Yes
}

fn request(shared: &Shared<'_>, path: &str, body: &[u8]) -> Vec<u8> {
    let head = &shared.target.head;
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\n{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Writes the acks of all leases of an answer, and says how many there are. Payloads of this load have no leases.
fn write_acks(lease: &Finder<'_>, answer: &[u8], out: &mut Vec<u8>) -> u64 {
    out.clear();
    out.extend_from_slice(b"{\"ack\":[");
    let mut count = 0;
    for at in lease.find_iter(answer) {
        let rest = &answer[at + LEASE.len()..];
        let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        out.extend_from_slice(if count > 0 { b",\"" } else { b"\"" });
        out.extend_from_slice(&rest[..end]);
        out.push(b'"');
        count += 1;
    }
    out.extend_from_slice(b"]}");
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_name_every_lease() {
        let mut out = Vec::new();
        let answer = br#"{"deliveries":[{"event":{},"ctx":{"lease":"a1"}},{"ctx":{"lease":"b2"}}]}"#;
        assert_eq!(write_acks(&Finder::new(LEASE), answer, &mut out), 2);
        assert_eq!(out, br#"{"ack":["a1","b2"]}"#);
        assert_eq!(write_acks(&Finder::new(LEASE), b"{}", &mut out), 0);
    }
}
