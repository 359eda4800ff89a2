//! Following all topics that match, and topics that do not exist yet, as one stream that can be taken up anywhere.

use crate::auth_support::Guarded;
use crate::contract_support::{Api, Call, Site, encoded};
use crate::groups_support::{publish, publish_keys, publish_spread};
use crate::ws_support::stream::{Sent, Stream};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Topic and number of each message; none may come twice.
#[track_caller]
fn seen(sent: &[Sent]) -> BTreeSet<(String, u64)> {
    let of = |one: &Sent| (one.event()["topic"].as_str().unwrap().to_owned(), one.number());
    let all: BTreeSet<_> = sent.iter().map(of).collect();
    assert_eq!(all.len(), sent.len(), "{sent:?}");
    all
}

/// The topics of so many messages, sorted.
#[track_caller]
fn topics(stream: &mut Stream, count: usize) -> Vec<String> {
    let of = |one: &Sent| one.event()["topic"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = stream.take(count).iter().map(of).collect();
    all.sort_unstable();
    all
}

fn dead_letter(api: &Api, topic: &str) {
    let group = format!("/v1/topics/{topic}/groups/g");
    let pulled = api.post(&format!("{group}/pull"), r#"{"from":"earliest","maxAttempts":1,"max":1}"#).is(200);
    let lease = &pulled["deliveries"][0]["ctx"]["lease"];
    api.post(&format!("{group}/ack"), &json!({"nack": [{"lease": lease}]}).to_string()).is(200);
}

#[test]
fn a_stream_has_all_topics_that_match_and_those_that_are_made_later() {
    let site = Site::start();
    for topic in ["process.a", "process.b", "process.b.c", "orders", "other"] {
        publish(&site.api, topic, 0..2);
    }
    let mut stream = Stream::of_topics(&site.api, "topics=process.*,orders", None);
    assert_eq!(stream.head.header("content-type"), Some("text/event-stream"));
    assert_eq!(
        topics(&mut stream, 6),
        ["orders", "orders", "process.a", "process.a", "process.b", "process.b"]
    );
    publish(&site.api, "process.new", 0..1);
    publish(&site.api, "other", 2..3);
    assert_eq!(topics(&mut stream, 1), ["process.new"]);
    // Latest leaves out what is there, and nothing of what is made later.
    let mut latest = Stream::of_topics(&site.api, "topics=process.**&from=latest", None);
    publish(&site.api, "process.b.c", 2..3);
    publish(&site.api, "process.x.y.z", 0..1);
    assert_eq!(topics(&mut latest, 2), ["process.b.c", "process.x.y.z"]);
    latest.is_quiet();
    stream.is_quiet();
}

#[test]
fn a_stream_is_taken_up_after_any_event_also_after_a_restart() {
    let mut site = Site::start();
    site.api.make("a.x", 3);
    publish_spread(&site.api, "a.x", 3, 4);
    publish(&site.api, "a.y", 0..3);
    let mut stream = Stream::of_topics(&site.api, "topics=a.*", None);
    let mut sent = stream.take(15);
    publish(&site.api, "a.y", 3..5);
    sent.extend(stream.take(2));
    publish(&site.api, "a.z", 0..2);
    sent.extend(stream.take(2));
    assert!(sent.iter().all(|one| one.id.len() < 80), "a token is short however many topics there are");
    site.restart();
    publish(&site.api, "a.x", 100..102);
    publish(&site.api, "a.new", 0..1);
    let all: BTreeSet<_> = {
        let mut all = seen(&sent);
        all.extend([("a.x".into(), 100), ("a.x".into(), 101), ("a.new".into(), 0)]);
        all
    };
    for (place, last) in sent.iter().enumerate() {
        let mut stream = Stream::of_topics(&site.api, "topics=a.*", Some(&last.id));
        let rest = stream.take(all.len() - place - 1);
        let before = seen(&sent[..=place]);
        assert_eq!(seen(&rest), all.difference(&before).cloned().collect(), "after {last:?}");
    }
}

#[test]
fn a_stream_that_breaks_off_in_silence_misses_nothing() {
    let mut site = Site::start();
    publish(&site.api, "a.x", 0..2);
    let mut stream = Stream::of_topics(&site.api, "topics=a.*&from=latest", None);
    stream.is_quiet();
    site.restart();
    publish(&site.api, "a.x", 2..3);
    publish(&site.api, "a.new", 0..1);
    let mut again = Stream::of_topics(&site.api, "topics=a.*&from=latest", Some(&stream.begin));
    assert_eq!(seen(&again.take(2)), [("a.new".into(), 0), ("a.x".into(), 2)].into());
    again.is_quiet();
}

#[test]
fn a_stream_starts_at_a_time_and_goes_by_key_and_filter() {
    let site = Site::start();
    for (topic, base) in [("a.x", 1_000_u64), ("a.y", 5_000)] {
        let events: Vec<Value> = (0..4).map(|n| json!({"payload": {"n": n}, "ts": base + n})).collect();
        site.api.events(topic, &json!(events).to_string()).is(201);
    }
    let mut stream = Stream::of_topics(&site.api, "topics=a.*&from=ts&ts=1002", None);
    let got = seen(&stream.take(6));
    assert!(got.contains(&("a.x".into(), 2)) && !got.contains(&("a.x".into(), 1)), "{got:?}");
    publish_keys(&site.api, "k.x", 0, &["a", "b", "a"]);
    publish_keys(&site.api, "k.y", 0, &["b", "a"]);
    let mut of_key = Stream::of_topics(&site.api, "topics=k.*&key=a", None);
    assert_eq!(topics(&mut of_key, 3), ["k.x", "k.x", "k.y"]);
    let filter = encoded("event.payload.n > 0 && event.key == \"a\"");
    let mut filtered = Stream::of_topics(&site.api, &format!("topics=k.*&filter={filter}"), None);
    assert_eq!(topics(&mut filtered, 2), ["k.x", "k.y"]);
    filtered.is_quiet();
    of_key.is_quiet();
}

#[test]
fn a_topic_that_is_deleted_ends_nothing_and_its_successor_is_new() {
    let site = Site::start();
    for topic in ["a.x", "a.y"] {
        publish(&site.api, topic, 0..1);
    }
    let mut stream = Stream::of_topics(&site.api, "topics=a.*", None);
    let sent = stream.take(2);
    site.api.delete("/v1/topics/a.x");
    publish(&site.api, "a.y", 1..2);
    publish(&site.api, "a.x", 10..12);
    let later = seen(&stream.take(3));
    assert_eq!(later, [("a.x".into(), 10), ("a.x".into(), 11), ("a.y".into(), 1)].into());
    // Also for those who were away meanwhile, wherever they were.
    let mut again = Stream::of_topics(&site.api, "topics=a.*", Some(&sent[1].id));
    assert_eq!(seen(&again.take(3)), later);
}

#[test]
fn topics_of_the_hub_are_followed_only_by_their_prefix() {
    let site = Site::start();
    publish(&site.api, "orders", 0..1);
    dead_letter(&site.api, "orders");
    let mut all = Stream::of_topics(&site.api, "topics=**", None);
    assert_eq!(topics(&mut all, 1), ["orders"]);
    all.is_quiet();
    let mut dead = Stream::of_topics(&site.api, "topics=dlq.**", None);
    assert_eq!(topics(&mut dead, 1), ["dlq.orders"]);
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    for query in [
        "",
        "topics=",
        "topics=a*",
        "topics=A.*",
        "topics=a,,b",
        "topics=a..b",
        "topics=a&from=offset&offset=1",
        "topics=a&from=ts",
        "topics=a&partition=0",
        "topics=a&limit=1",
    ] {
        let Err(answer) = Stream::try_topics(&site.api, query, None) else { panic!("{query}") };
        answer.fails(400, "bad_request");
    }
    let Err(answer) = Stream::try_topics(&site.api, "topics=t&filter=event.", None) else { panic!() };
    answer.fails(400, "bad_filter");
    let token = Stream::open(&site.api, "t", "").next().id;
    for token in [token.as_str(), "x", "AAAA"] {
        let Err(answer) = Stream::try_topics(&site.api, "topics=t", Some(token)) else { panic!() };
        answer.fails(400, "bad_request");
    }
    let page = Call::new("GET", "/v1/events?topics=t").header("accept", "application/json");
    assert_eq!(site.api.call(&page).status, 406);
    assert_eq!(site.api.post("/v1/events?topics=t", "{}").status, 405);
}

#[test]
fn a_stream_shows_only_what_its_caller_may_subscribe_to() {
    let hub = Guarded::start(
        "[auth]\nmode = \"token\"\ntokens = [{ token = \"root\", scopes = [\"*:**\"] }, \
         { token = \"some\", scopes = [\"subscribe:a.x\", \"subscribe:a.new\", \"read:**\"] }, \
         { token = \"none\", scopes = [\"read:**\"] }]\n",
    );
    let root = hub.caller("root");
    for topic in ["a.x", "a.y", "b"] {
        root.publish(topic).is(201);
    }
    let refused = |token: &'static str, topics: &str| {
        let live = format!("/v1/events?topics={topics}");
        hub.caller(token).call(Call::new("GET", &live).header("accept", "text/event-stream"))
    };
    refused("none", "**").fails(403, "forbidden");
    refused("some", "a.*,b").fails(403, "forbidden");
    refused("nobody", "**").fails(401, "unauthorized");
    let filter = encoded("event.payload >= 1");
    let target = format!("/v1/events?topics=**&filter={filter}");
    let mut stream = Stream::as_caller(root.api, &target, "some").unwrap();
    assert_eq!(topics(&mut stream, 1), ["a.x"]);
    for topic in ["a.y", "a.new", "c"] {
        root.publish(topic).is(201);
    }
    assert_eq!(topics(&mut stream, 1), ["a.new"]);
    stream.is_quiet();
}

#[test]
fn a_stream_of_a_topic_that_does_not_exist_waits_for_it() {
    let site = Site::start();
    let mut streams: Vec<Stream> =
        ["", "from=latest", "from=ts&ts=1"].map(|query| Stream::open(&site.api, "later", query)).into();
    publish(&site.api, "other", 0..1);
    streams.iter_mut().for_each(Stream::is_quiet);
    assert_eq!(site.api.page("later", "").status, 404, "to follow a topic does not make it");
    publish(&site.api, "later", 0..3);
    for stream in &mut streams {
        assert_eq!(stream.numbers(3), [0, 1, 2]);
    }
    publish(&site.api, "later", 3..4);
    assert_eq!(streams[0].numbers(1), [3]);
    Stream::refused(&site.api, "none", "filter=event.", None).fails(400, "bad_filter");
    Stream::refused(&site.api, "none", "from=offset&offset=0", None).fails(404, "not_found");
    site.api.export("none", "").fails(404, "not_found");
    site.api.page("none", "").fails(404, "not_found");
    let strict = Site::with_file("[topics]\nauto_create = false\n");
    Stream::refused(&strict.api, "later", "", None).fails(404, "not_found");
}
