//! Following topics without a group: catch up, then live, as server-sent events.

use crate::error::{self, HubError};
use crate::{Client, ClientError, ReadFrom, ReadQuery};
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder};
use std::collections::VecDeque;

/// The status that a stream began with.
const STREAM_STATUS: u16 = 200;
/// The code of a temporary error, and its status.
const UNAVAILABLE: &str = "unavailable";
const UNAVAILABLE_STATUS: u16 = 503;

/// What to follow.
#[derive(Debug, Clone, Default)]
pub struct TailQuery {
    /// Names of topics and patterns (`process.*`, `orders.**`), separated by commas. Topics created later are followed
    /// too.
    pub topics: String,
    /// Where to start: `Earliest`, `Latest` or `Ts`.
    pub from: ReadFrom,
    /// Only events of this key.
    pub key: Option<String>,
    /// Only events that match this CEL expression.
    pub filter: Option<String>,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailEvent {
    /// Resumes the stream after this event, if passed as `after` to [`Client::tail`] or [`Client::follow`].
    pub resume: String,
    /// The event, as the JSON that the hub sent.
    pub json: String,
}

/// An open stream. It ends with its connection; to continue, open another one after the last event.
pub struct Tail {
    pieces: BoxStream<'static, Result<Bytes, ClientError>>,
    reader: Reader,
    resume: Option<String>,
}

impl Client {
    /// Follows topics from where `query` says, or after the event whose `resume` is `after`.
    pub async fn tail(&self, query: &TailQuery, after: Option<&str>) -> Result<Tail, ClientError> {
        let mut parameters = vec![("topics", query.topics.clone())];
        parameters.extend(query.from.parameters());
        parameters.extend(query.key.clone().map(|key| ("key", key)));
        parameters.extend(query.filter.clone().map(|filter| ("filter", filter)));
        self.live_events(self.request(Method::GET, &["v1", "events"])?.query(&parameters), after).await
    }

    /// Follows one topic from where `query` says, or after the event whose `resume` is `after`.
    pub async fn follow(
        &self,
        topic: &str,
        query: &ReadQuery,
        after: Option<&str>,
    ) -> Result<Tail, ClientError> {
        self.live_events(self.events(topic)?.query(&query.parameters()), after).await
    }

    async fn live_events(&self, request: RequestBuilder, after: Option<&str>) -> Result<Tail, ClientError> {
        let mut request = request.header(ACCEPT, "text/event-stream");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let pieces = self.stream(request).await?.bytes_stream();
        let pieces = pieces.map(|piece| piece.map_err(ClientError::Transport)).boxed();
        Ok(Tail { pieces, reader: Reader::default(), resume: after.map(str::to_owned) })
    }
}

impl Tail {
    /// Resumes a stream after the last event returned, even if there was none yet.
    pub fn resume(&self) -> Option<&str> {
        self.resume.as_deref()
    }

    /// The next events, as many as have arrived together; `None` at the end of the connection. The list may be empty:
    /// the hub sends a keep-alive now and then.
    pub async fn next(&mut self) -> Result<Option<Vec<TailEvent>>, ClientError> {
        let Some(piece) = self.pieces.next().await.transpose()? else { return Ok(None) };
        self.reader.feed(&piece);
        let mut events = Vec::new();
        while let Some(message) = self.reader.next() {
            match message.kind.as_str() {
                "" => {
                    self.resume = Some(message.id.clone());
                    // Without an event, it says where the stream begins.
                    if !message.data.is_empty() {
                        events.push(TailEvent { resume: message.id, json: message.data });
                    }
                }
                // What was read before it is still handed out; it comes again with the next call.
                "error" if !events.is_empty() => {
                    self.reader.messages.push_front(message);
                    break;
                }
                "error" => return Err(refusal(&message.data)),
                _ => {}
            }
        }
        Ok(Some(events))
    }
}

/// The error that ends a stream, by its code; the status of the stream itself was a success.
fn refusal(data: &str) -> ClientError {
    let HubError { code, message, details, .. } = error::parse(STREAM_STATUS, data.as_bytes());
    let status = if code == UNAVAILABLE { UNAVAILABLE_STATUS } else { STREAM_STATUS };
    ClientError::Hub(Box::new(HubError { status, code, message, details }))
}

/// One message of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Message {
    id: String,
    kind: String,
    data: String,
}

/// Assembles messages from arbitrary pieces.
#[derive(Debug, Default)]
struct Reader {
    rest: Vec<u8>,
    message: Message,
    has_data: bool,
    messages: VecDeque<Message>,
}

impl Reader {
    fn feed(&mut self, piece: &[u8]) {
        // Only the new bytes are searched: a long line comes in many pieces.
        let mut ends = piece.split(|byte| *byte == b'\n');
        // What follows the last line end is no line yet.
        let begun = ends.next_back().unwrap_or_default();
        for end in ends {
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(end);
            self.line(&String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)));
        }
        self.rest.extend_from_slice(begun);
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            if std::mem::take(&mut self.has_data) || !message.id.is_empty() {
                self.messages.push_back(message);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut self.message.id),
            "event" => value.clone_into(&mut self.message.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // A comment, or nothing that matters here.
            _ => {}
        }
    }

    fn next(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_end_anywhere_are_as_good_as_the_whole() {
        let text = "retry: 1000\nid: 0\n\n: keep-alive\n\nid: a\ndata: {\"ö\":1}\n\nid: b\r\ndata: x\r\ndata:y\r\n\r\nevent: error\ndata: {}\n\nid: c\n";
        let message = |id: &str, kind: &str, data: &str| Message {
            id: id.into(),
            kind: kind.into(),
            data: data.into(),
        };
        let expected = [
            message("0", "", ""),
            message("a", "", "{\"ö\":1}"),
            message("b", "", "x\ny"),
            message("", "error", "{}"),
        ];
        for size in 1..=text.len() {
            let mut reader = Reader::default();
            text.as_bytes().chunks(size).for_each(|piece| reader.feed(piece));
            assert_eq!(Vec::from(reader.messages), expected, "{size}");
        }
    }

    #[test]
    fn what_has_come_of_a_long_line_is_not_copied_for_each_piece() {
        let mut reader = Reader::default();
        reader.feed(b"data: ");
        let mut moves = 0;
        for _ in 0..1_024 {
            let before = reader.rest.capacity();
            reader.feed(&[b'x'; 64]);
            moves += u32::from(reader.rest.capacity() != before);
        }
        assert!(moves <= u16::BITS, "{moves}");
        reader.feed(b"\n\n");
        assert_eq!(reader.next().map(|message| message.data.len()), Some(65_536));
    }
}
