//! Following a topic as server-sent events: catch up, then live, and on after a break.

use crate::common::Hub;
use crate::ws_support::stream::{Sent, Stream};
use serde_json::json;

fn follow(hub: &Hub, topic: &str, query: &str) -> Stream {
    Stream::open(&hub.api(), topic, query)
}

fn publish(hub: &Hub, topic: &str, payloads: impl IntoIterator<Item = u64>) {
    for payload in payloads {
        hub.run(&["pub", topic, &payload.to_string()]).ok();
    }
}

#[test]
fn it_catches_up_and_then_goes_on_live() {
    let hub = Hub::start();
    publish(&hub, "t", [1, 2]);
    let mut live = follow(&hub, "t", "");
    assert_eq!(live.head.header("content-type"), Some("text/event-stream"));
    assert_eq!(live.payloads(2), [json!(1), json!(2)]);
    publish(&hub, "t", [3]);
    assert_eq!(live.payloads(1), [json!(3)]);
}

#[test]
fn it_goes_on_after_the_last_event_id_in_all_partitions() {
    let hub = Hub::start();
    hub.run(&["topics", "create", "t", "--partitions", "3"]).ok();
    publish(&hub, "t", 0..6);
    let first = follow(&hub, "t", "").take(3);
    publish(&hub, "t", 6..9);
    let rest = Stream::after(&hub.api(), "t", "", &first[2].id).take(6);
    let payload = |sent: &Sent| sent.event()["payload"].as_u64().unwrap();
    let mut seen: Vec<u64> = first.iter().chain(&rest).map(payload).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..9).collect::<Vec<_>>(), "each once");
}

#[test]
fn filters_keys_and_places_hold_for_streams_too() {
    let hub = Hub::start();
    for n in 0..4 {
        hub.run(&["pub", "t", &n.to_string(), "--key", if n % 2 == 0 { "even" } else { "odd" }]).ok();
    }
    assert_eq!(follow(&hub, "t", "key=odd").payloads(2), [json!(1), json!(3)]);
    assert_eq!(follow(&hub, "t", "filter=event.payload%20%3E%202").payloads(1), [json!(3)]);
    assert_eq!(follow(&hub, "t", "from=offset&offset=2").payloads(1), [json!(2)]);
    let mut live = follow(&hub, "t", "from=latest");
    publish(&hub, "t", [9]);
    assert_eq!(live.payloads(1), [json!(9)]);
}

#[test]
fn what_cannot_be_followed_is_refused_at_once() {
    let hub = Hub::start();
    publish(&hub, "t", [1]);
    let refused = |topic, query, token| Stream::refused(&hub.api(), topic, query, token).status;
    for (topic, query, last, status) in [
        ("none", "from=offset&offset=0", None, 404),
        ("t", "limit=5", None, 400),
        ("t", "filter=event.", None, 400),
        ("t", "", Some("nonsense!"), 400),
    ] {
        assert_eq!(refused(topic, query, last), status, "{topic} {query} {last:?}");
    }
    let token = follow(&hub, "t", "").next().id;
    hub.run(&["topics", "delete", "t"]).ok();
    publish(&hub, "t", [2]);
    assert_eq!(refused("t", "", Some(&token)), 410, "another topic of that name");
}

#[test]
fn it_ends_with_the_topic_and_with_the_hub() {
    let hub = Hub::start();
    publish(&hub, "t", [1]);
    publish(&hub, "u", [1]);
    let mut live = follow(&hub, "t", "");
    live.next();
    hub.run(&["topics", "delete", "t"]).ok();
    let last = live.rest();
    assert_eq!((last.len(), last[0].kind.as_str()), (1, "error"), "{last:?}");
    assert!(last[0].data.contains("gone"), "{last:?}");
    let mut live = follow(&hub, "u", "");
    live.next();
    assert!(hub.stop().success(), "a stream does not keep the hub from ending");
    assert!(live.rest().is_empty());
}
