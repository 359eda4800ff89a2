//! Frames that the client sends, serialised by hand because there are very many of them.

use crate::live::event_text::EventText;
use crate::live::feed::Feed;
use crate::live::settle::SettleKind;
use serde_json::to_string;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// What a frame has beside its own fields.
const HEAD_BYTES: usize = 96;

fn text(json: &str) -> String {
    // A string can always be written.
    to_string(json).unwrap_or_default()
}

fn head(op: &str, corr: u64, bytes: usize) -> String {
    let mut out = String::with_capacity(HEAD_BYTES + bytes);
    out.push_str("{\"op\":\"");
    out.push_str(op);
    out.push_str("\",\"corr\":\"");
    out.push_str(itoa::Buffer::new().format(corr));
    out.push('"');
    out
}

/// `PUBLISH` of one event.
pub(crate) fn publish(corr: u64, topic: &str, event: &EventText) -> Utf8Bytes {
    let mut out = head("PUBLISH", corr, topic.len() + event.len());
    out.push_str(",\"topic\":");
    out.push_str(&text(topic));
    out.push_str(",\"payload\":");
    out.push_str(event.payload());
    out.push_str(",\"opts\":{");
    out.push_str(event.fields());
    out.push_str("}}");
    out.into()
}

/// `PUBLISH` of several events, all or none.
pub(crate) fn publish_many<'e>(
    corr: u64,
    topic: &str,
    events: impl Iterator<Item = &'e EventText> + Clone,
) -> Utf8Bytes {
    let bytes: usize = events.clone().map(|event| event.len() + 16).sum();
    let mut out = head("PUBLISH", corr, topic.len() + bytes);
    out.push_str(",\"topic\":");
    out.push_str(&text(topic));
    out.push_str(",\"events\":[");
    for (index, event) in events.enumerate() {
        out.push_str(if index > 0 { ",{\"payload\":" } else { "{\"payload\":" });
        out.push_str(event.payload());
        out.push(',');
        out.push_str(event.fields());
        out.push('}');
    }
    out.push_str("]}");
    out.into()
}

/// `COMMIT` with a body that is a JSON object of at least one field.
pub(crate) fn commit(corr: u64, body: &str) -> Utf8Bytes {
    let mut out = head("COMMIT", corr, body.len());
    out.push(',');
    // Its own bracket is there already.
    out.push_str(body.strip_prefix('{').unwrap_or(body));
    out.into()
}

fn of_feed(op: &str, corr: u64, feed: &Feed) -> String {
    let mut out = head(op, corr, feed.topic.len() + feed.group.len());
    out.push_str(",\"topic\":");
    out.push_str(&text(&feed.topic));
    out.push_str(",\"group\":");
    out.push_str(&text(&feed.group));
    out
}

/// `SUBSCRIBE`.
pub(crate) fn subscribe(corr: u64, feed: &Feed) -> Utf8Bytes {
    let mut out = of_feed("SUBSCRIBE", corr, feed);
    out.push_str(",\"opts\":");
    out.push_str(&feed.opts);
    out.push('}');
    out.into()
}

/// `UNSUBSCRIBE`, `PAUSE` and `RESUME`.
pub(crate) fn about(op: &str, corr: u64, feed: &Feed) -> Utf8Bytes {
    let mut out = of_feed(op, corr, feed);
    out.push('}');
    out.into()
}

/// `ACK`, `NACK` or `MODACK` of leases.
pub(crate) fn settle<'l>(
    corr: u64,
    feed: &Feed,
    kind: &SettleKind,
    leases: impl Iterator<Item = &'l str>,
) -> Utf8Bytes {
    let op = match kind {
        SettleKind::Ack => "ACK",
        SettleKind::Nack { .. } => "NACK",
        SettleKind::Extend { .. } => "MODACK",
    };
    let mut out = of_feed(op, corr, feed);
    out.push_str(",\"leases\":[");
    for (index, lease) in leases.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&text(lease));
    }
    out.push(']');
    match kind {
        SettleKind::Ack => {}
        SettleKind::Nack { reason, delay_ms } => {
            if let Some(reason) = reason {
                out.push_str(",\"reason\":");
                out.push_str(&text(reason));
            }
            if let Some(ms) = delay_ms {
                out.push_str(",\"delay_ms\":");
                out.push_str(itoa::Buffer::new().format(*ms));
            }
        }
        SettleKind::Extend { ms } => {
            out.push_str(",\"extend_ms\":");
            out.push_str(itoa::Buffer::new().format(*ms));
        }
    }
    out.push('}');
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewEvent;
    use prombus_wire::{PublishFrame, SettleFrame, SubscribeFrame, parse_object};
    use serde_json::{Value, json};

    fn event(payload: Value) -> EventText {
        EventText::new(&NewEvent::of(&payload).unwrap().with_id("i").with_key("k")).unwrap()
    }

    #[test]
    fn frames_are_what_the_hub_takes() {
        let one = publish(7, "a\"b", &event(json!({"n": 1})));
        let frame: PublishFrame<'_> = parse_object(one.as_bytes()).unwrap();
        assert_eq!((&*frame.topic, frame.payload.unwrap().get()), ("a\"b", r#"{"n":1}"#));
        assert_eq!(frame.opts.unwrap().0.id.as_deref(), Some("i"));

        let events = [event(json!(1)), event(json!(2))];
        let many: Value = serde_json::from_str(&publish_many(8, "t", events.iter())).unwrap();
        let expected = json!({"op": "PUBLISH", "corr": "8", "topic": "t", "events": [
            {"payload": 1, "id": "i", "key": "k"}, {"payload": 2, "id": "i", "key": "k"}]});
        assert_eq!(many, expected);
    }

    #[test]
    fn frames_of_groups_are_what_the_hub_takes() {
        let feed = Feed::for_tests("t", "g\\");
        assert!(parse_object::<SubscribeFrame<'_>>(subscribe(1, &feed).as_bytes()).is_ok());
        let nack = SettleKind::Nack { reason: Some("no \"x\"".into()), delay_ms: Some(5) };
        let written = settle(2, &feed, &nack, ["l1", "l2"].into_iter());
        let frame: SettleFrame<'_> = parse_object(written.as_bytes()).unwrap();
        assert_eq!((frame.leases.unwrap().len(), frame.delay_ms), (2, Some(5)));
        assert_eq!((frame.reason.as_deref(), &*frame.group), (Some("no \"x\""), "g\\"));
        let extend = settle(3, &feed, &SettleKind::Extend { ms: 9 }, ["l"].into_iter());
        let frame: SettleFrame<'_> = parse_object(extend.as_bytes()).unwrap();
        assert_eq!(frame.extend_ms, Some(9));
    }
}
