//! The read loads of one connection: pages, and whole exports. One that is finished starts over.

use super::http::{HttpError, More};
use super::{Shared, topic_name};
use std::time::Instant;

/// Reads page after page until enough events were seen.
pub async fn pages(shared: &Shared<'_>, number: u32) -> Result<(), HttpError> {
    let args = shared.args;
    let topic = topic_name(&args.prefix, number % args.topics);
    let mut connection = shared.target.connect().await?;
    let (mut body, mut next) = (Vec::new(), None);
    let mut seen_since_start = 0;
    while shared.wants_more() {
        let cursor = next.take().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let request = shared.get(&format!("{topic}/events?limit={}{cursor}", args.batch));
        body.clear();
        let started = Instant::now();
        connection
            .call(request.as_bytes(), |piece| {
                body.extend_from_slice(piece);
                More::Yes
            })
            .await?;
        shared.finished(started, body.len() as u64);
        let page = parse_page(&body)?;
        shared.saw(page.count);
        seen_since_start += page.count;
        next = page.next.map(str::to_owned);
        if next.is_none() && std::mem::take(&mut seen_since_start) == 0 {
            return Err(HttpError::Empty(topic));
        }
    }
    Ok(())
}

/// Streams export after export until enough events were seen.
pub async fn exports(shared: &Shared<'_>, number: u32) -> Result<(), HttpError> {
    let topic = topic_name(&shared.args.prefix, number % shared.args.topics);
    let request = shared.get(&format!("{topic}/events"));
    let mut connection = shared.target.connect().await?;
    while shared.wants_more() {
        let (mut bytes, mut events) = (0, 0);
        let started = Instant::now();
        connection
            .call(request.as_bytes(), |piece| {
                bytes += piece.len() as u64;
                let lines = memchr::memchr_iter(b'\n', piece).count() as u64;
                events += lines;
                shared.saw(lines);
                if shared.wants_more() { More::Yes } else { More::No }
            })
            .await?;
        shared.finished(started, bytes);
        if events == 0 {
            return Err(HttpError::Empty(topic));
        }
    }
    Ok(())
}

impl Shared<'_> {
    fn get(&self, path: &str) -> String {
        format!("GET {}/v1/topics/{path} HTTP/1.1\r\n{}\r\n", self.target.base_path, self.target.head)
    }

    fn wants_more(&self) -> bool {
        self.events.get() < self.args.events
    }

    fn saw(&self, events: u64) {
        self.events.set(self.events.get() + events);
        self.progress.inc(events);
    }
}

/// What is needed of a page.
#[derive(Debug, PartialEq, Eq)]
struct Page<'a> {
    count: u64,
    next: Option<&'a str>,
}

/// Finds the count at the start of a page and the cursor at its end, and parses nothing in between.
fn parse_page(body: &[u8]) -> Result<Page<'_>, HttpError> {
    let malformed = HttpError::Malformed("it is not a page of events");
    let find = || {
        let after_count = memchr::memmem::find(body, b"\"count\":")? + b"\"count\":".len();
        let digits = body[after_count..].split(|byte| !byte.is_ascii_digit()).next()?;
        let count = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let after_next = memchr::memmem::rfind(body, b"\"next\":")? + b"\"next\":".len();
        let next = std::str::from_utf8(&body[after_next..]).ok()?.trim_end().strip_suffix('}')?;
        let next = if next == "null" { None } else { Some(next.strip_prefix('"')?.strip_suffix('"')?) };
        Some(Page { count, next })
    };
    find().ok_or(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_cursor_are_found() {
        let page =
            br#"{"topic":"t","count":2,"events":[{"payload":{"count":7,"next":"x"}},{}],"next":"abc-_"}"#;
        assert_eq!(parse_page(page).unwrap(), Page { count: 2, next: Some("abc-_") });
        let page = b"{\"topic\":\"t\",\"count\":0,\"events\":[],\"next\":null}\n";
        assert_eq!(parse_page(page).unwrap(), Page { count: 0, next: None });
        for bad in [&b""[..], b"{}", br#"{"count":1}"#, br#"{"count":1,"next":1}"#] {
            assert!(parse_page(bad).is_err());
        }
    }
}
