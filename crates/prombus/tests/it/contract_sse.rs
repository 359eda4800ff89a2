//! Server-sent events: a topic as a stream that catches up, goes on live, and can be taken up again anywhere.

use crate::contract_support::{Api, Site, encoded};
use crate::groups_support;
use crate::groups_support::{publish, publish_all, publish_keys, publish_spread, since};
use crate::ws_support::Socket;
use crate::ws_support::stream::{Line, Sent, Stream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The numbers of a stream's messages as a set; no number may come twice.
#[track_caller]
fn numbers(sent: &[Sent]) -> BTreeSet<u64> {
    let all: BTreeSet<u64> = sent.iter().map(Sent::number).collect();
    assert_eq!(all.len(), sent.len(), "{sent:?}");
    all
}

/// Within each partition the messages come in the order of their offsets.
#[track_caller]
fn in_order(sent: &[Sent]) {
    let events: Vec<Value> = sent.iter().map(Sent::event).collect();
    let partitions: BTreeSet<u64> = events.iter().map(|one| one["partition"].as_u64().unwrap()).collect();
    for partition in partitions {
        let of_it = events.iter().filter(|one| one["partition"] == partition);
        let offsets: Vec<u64> = of_it.map(|one| one["offset"].as_u64().unwrap()).collect();
        assert!(offsets.is_sorted(), "{partition}: {offsets:?}");
    }
}

/// Takes the stream up again after each message, and gets the rest each time, and what comes later.
#[track_caller]
fn resumes_anywhere(api: &Api, topic: &str, query: &str, sent: &[Sent]) {
    for (place, last) in sent.iter().enumerate() {
        let mut stream = Stream::after(api, topic, query, &last.id);
        let rest = stream.take(sent.len() - place - 1);
        assert_eq!(numbers(&rest), numbers(&sent[place + 1..]), "after {last:?}");
        in_order(&rest);
        stream.is_quiet();
    }
}

#[test]
fn a_stream_is_one_by_its_head() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut stream = Stream::open(&site.api, "t", "");
    assert_eq!(stream.head.status, 200);
    assert!(stream.head.header("content-type").unwrap().starts_with("text/event-stream"));
    // One that is kept by a cache on the way would not be live.
    assert!(stream.head.header("cache-control").is_some_and(|value| value.contains("no-")));
    stream.next();
}

#[test]
fn a_stream_catches_up_and_then_goes_on_live() {
    let site = Site::start();
    publish(&site.api, "t", 0..5);
    let mut stream = Stream::open(&site.api, "t", "");
    assert_eq!(stream.numbers(5), [0, 1, 2, 3, 4]);
    stream.is_quiet();
    for n in 5..10 {
        publish(&site.api, "t", n..n + 1);
        assert_eq!(stream.numbers(1), [n]);
    }
    publish(&site.api, "t", 10..60);
    assert_eq!(stream.numbers(50), (10..60).collect::<Vec<_>>());
}

#[test]
fn an_event_comes_at_once() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut stream = Stream::open(&site.api, "t", "from=latest");
    let mut times: Vec<u128> = (0..11)
        .map(|n| {
            let started = Instant::now();
            publish(&site.api, "t", n..n + 1);
            assert_eq!(stream.numbers(1), [n]);
            since(started)
        })
        .collect();
    times.sort_unstable();
    assert!(times[5] < 150, "{times:?}");
}

#[test]
fn a_large_backlog_comes_whole_while_more_is_published() {
    let site = Site::start();
    publish(&site.api, "t", 0..2000);
    let mut stream = Stream::open(&site.api, "t", "");
    std::thread::scope(|scope| {
        scope.spawn(|| (2000..2100).for_each(|n| drop(publish(&site.api, "t", n..n + 1))));
        assert_eq!(stream.numbers(2100), (0..2100).collect::<Vec<_>>());
    });
}

#[test]
fn data_is_the_event_digit_for_digit() {
    let site = Site::start();
    let payload = r#"{"z":123456789012345678901234567890,"a":1.10,"e":1E+2,"s":"\u00e9\n\r\/é","u":" "}"#;
    let body = format!(r#"{{"payload":{payload},"key":"k\n","headers":{{"x-a":"b"}},"tags":["a"],"ts":5}}"#);
    let told = site.api.events("t", &body).is(201);
    let sent = Stream::open(&site.api, "t", "").next();
    let event = site.api.get(&format!("/v1/topics/t/events/{}", told["id"].as_str().unwrap()));
    assert_eq!(event.status, 200);
    assert_eq!(sent.data, event.text().trim_end());
    assert!(sent.data.contains(payload), "{}", sent.data);
    assert!(sent.kind.is_empty(), "an EventSource hears it as a message: {sent:?}");
}

#[test]
fn a_stream_of_several_partitions_has_them_all() {
    let site = Site::start();
    site.api.make("t", 4);
    publish_spread(&site.api, "t", 4, 5);
    let mut stream = Stream::open(&site.api, "t", "");
    let sent = stream.take(20);
    assert_eq!(numbers(&sent), (0..20).collect());
    in_order(&sent);
    let more: Vec<Value> = (20..28).map(|n| json!({"payload": {"n": n}, "partition": n % 4})).collect();
    publish_all(&site.api, "t", &more);
    let live = stream.take(8);
    assert_eq!(numbers(&live), (20..28).collect());
    in_order(&live);
}

#[test]
fn a_stream_can_be_taken_up_after_any_event() {
    let site = Site::start();
    publish(&site.api, "t", 0..6);
    let sent = Stream::open(&site.api, "t", "").take(6);
    resumes_anywhere(&site.api, "t", "", &sent);
    let mut stream = Stream::after(&site.api, "t", "", &sent[5].id);
    publish(&site.api, "t", 6..8);
    assert_eq!(stream.numbers(2), [6, 7]);
}

#[test]
fn a_stream_of_several_partitions_can_be_taken_up_after_any_event() {
    let site = Site::start();
    site.api.make("t", 3);
    publish_spread(&site.api, "t", 3, 2);
    let mut stream = Stream::open(&site.api, "t", "");
    let mut sent = stream.take(6);
    // Live ones come in another order than a catch-up has.
    for n in [6, 7, 8, 9] {
        publish_all(&site.api, "t", &[json!({"payload": {"n": n}, "partition": (n * 2) % 3})]);
        sent.push(stream.next());
    }
    resumes_anywhere(&site.api, "t", "", &sent);
}

#[test]
fn tokens_hold_over_a_crash() {
    let mut site = Site::start();
    site.api.make("t", 3);
    publish_spread(&site.api, "t", 3, 2);
    let sent = Stream::open(&site.api, "t", "").take(6);
    site.crash();
    resumes_anywhere(&site.api, "t", "", &sent);
    let mut stream = Stream::after(&site.api, "t", "", &sent[5].id);
    publish(&site.api, "t", 6..7);
    assert_eq!(stream.numbers(1), [6]);
    site.restart();
    assert_eq!(Stream::after(&site.api, "t", "", &sent[5].id).numbers(1), [6]);
}

#[test]
fn a_token_goes_before_the_start_that_is_named() {
    let site = Site::start();
    publish(&site.api, "t", 0..4);
    let sent = Stream::open(&site.api, "t", "from=earliest").take(4);
    for query in ["from=earliest", "from=latest", "from=offset&offset=0", "from=ts&ts=0"] {
        let mut stream = Stream::after(&site.api, "t", query, &sent[1].id);
        assert_eq!(stream.numbers(2), [2, 3], "{query}");
    }
}

#[test]
fn a_stream_from_the_latest_that_is_taken_up_misses_nothing() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 2);
    let mut stream = Stream::open(&site.api, "t", "from=latest");
    publish_all(&site.api, "t", &[json!({"payload": {"n": 4}, "partition": 0})]);
    let last = stream.next();
    drop(stream);
    publish_all(&site.api, "t", &[json!({"payload": {"n": 5}, "partition": 1})]);
    let mut stream = Stream::after(&site.api, "t", "from=latest", &last.id);
    // Neither what was before it, nor a hole.
    assert_eq!(stream.numbers(1), [5]);
    stream.is_quiet();
}

#[test]
fn a_filtered_stream_can_be_taken_up() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 10);
    let query = format!("filter={}", encoded("event.payload.n % 3 == 0"));
    let sent = Stream::open(&site.api, "t", &query).take(7);
    assert_eq!(numbers(&sent), (0..20).step_by(3).collect());
    resumes_anywhere(&site.api, "t", &query, &sent);
}

#[test]
fn a_stream_may_have_a_filter_or_a_key() {
    let site = Site::start();
    publish_keys(&site.api, "t", 0, &["a", "b", "a", "c", "b"]);
    let mut filtered = Stream::open(
        &site.api,
        "t",
        &format!("filter={}", encoded("event.key == 'b' || event.payload.n > 5")),
    );
    let mut keyed = Stream::open(&site.api, "t", "key=a");
    assert_eq!(filtered.numbers(2), [1, 4]);
    assert_eq!(keyed.numbers(2), [0, 2]);
    publish_keys(&site.api, "t", 5, &["a", "x", "a"]);
    assert_eq!(filtered.numbers(2), [6, 7]);
    assert_eq!(keyed.numbers(2), [5, 7]);
    filtered.is_quiet();
    keyed.is_quiet();
}

#[test]
fn a_stream_may_start_anywhere() {
    let site = Site::start();
    let events: Vec<Value> = (0..6).map(|n| json!({"payload": {"n": n}, "ts": 1000 + n})).collect();
    let told = publish_all(&site.api, "t", &events);
    let after = format!("from=afterId&afterId={}", told[3]["id"].as_str().unwrap());
    for (query, wanted) in [
        ("from=earliest", vec![0, 1, 2, 3, 4, 5]),
        ("from=offset&offset=2", vec![2, 3, 4, 5]),
        ("from=ts&ts=1004", vec![4, 5]),
        (after.as_str(), vec![4, 5]),
    ] {
        let mut stream = Stream::open(&site.api, "t", query);
        assert_eq!(stream.numbers(wanted.len()), wanted, "{query}");
    }
    let mut latest = Stream::open(&site.api, "t", "from=latest");
    latest.is_quiet();
    publish(&site.api, "t", 6..7);
    assert_eq!(latest.numbers(1), [6]);
}

#[test]
fn a_stream_may_be_of_one_partition() {
    let site = Site::start();
    site.api.make("t", 3);
    publish_spread(&site.api, "t", 3, 3);
    let mut stream = Stream::open(&site.api, "t", "partition=1");
    assert_eq!(stream.numbers(3), [1, 4, 7]);
    publish_spread(&site.api, "t", 3, 1);
    let last = stream.next();
    assert_eq!(last.number(), 1);
    stream.is_quiet();
    let mut stream = Stream::open(&site.api, "t", "partition=2&from=offset&offset=1");
    assert_eq!(stream.numbers(3), [5, 8, 2]);
    let mut stream = Stream::after(&site.api, "t", "partition=1", &last.id);
    stream.is_quiet();
}

#[test]
fn a_partition_that_is_added_comes_too() {
    let site = Site::start();
    publish(&site.api, "t", 0..2);
    let mut stream = Stream::open(&site.api, "t", "");
    let sent = stream.take(2);
    site.api.make("t", 3);
    let events: Vec<Value> = (2..5).map(|n| json!({"payload": {"n": n}, "partition": n - 2})).collect();
    publish_all(&site.api, "t", &events);
    assert_eq!(numbers(&stream.take(3)), (2..5).collect());
    // A token from before the growth covers what was added, too.
    let again = Stream::after(&site.api, "t", "", &sent[1].id).take(3);
    assert_eq!(numbers(&again), (2..5).collect());
}

#[test]
fn bad_requests_are_refused_before_a_stream_begins() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    Stream::refused(&site.api, "t", "filter=event.", None).fails(400, "bad_filter");
    for query in ["from=nowhere", "from=offset", "offset=x", "foo=1", "partition=7", "partition=x", "from=ts"]
    {
        let answer = Stream::refused(&site.api, "t", query, None);
        answer.fails_as(&[400, 404]);
    }
    let far =
        Stream::refused(&site.api, "t", "from=afterId&afterId=6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", None);
    far.fails_as(&[400, 404, 410]);
}

#[test]
fn a_token_that_is_none_is_refused() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let good = Stream::open(&site.api, "t", "").next().id;
    let short = &good[..good.len() - 1];
    let long = "x".repeat(4000);
    for token in ["x", "0", "0:0", "!!", "AAAA", "-1", "nonsense", "null", &long, short] {
        let answer = Stream::refused(&site.api, "t", "", Some(token));
        assert_eq!(answer.status, 400, "{token}: {}", answer.text());
        answer.fails(400, "bad_request");
    }
}

#[test]
fn a_token_of_another_topic_is_refused() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    publish(&site.api, "u", 0..2);
    let token = Stream::open(&site.api, "t", "").next().id;
    Stream::refused(&site.api, "u", "", Some(&token)).fails_as(&[400, 410]);
}

#[test]
fn a_token_of_a_topic_that_was_deleted_is_gone() {
    let site = Site::start();
    publish(&site.api, "t", 0..3);
    let token = Stream::open(&site.api, "t", "").next().id;
    assert!(matches!(site.api.delete("/v1/topics/t").status, 200 | 204));
    Stream::refused(&site.api, "t", "", Some(&token)).fails_as(&[404, 410]);
    publish(&site.api, "t", 10..13);
    Stream::refused(&site.api, "t", "", Some(&token)).fails(410, "gone");
    assert_eq!(Stream::open(&site.api, "t", "").numbers(3), [10, 11, 12]);
}

#[test]
fn a_stream_ends_with_its_topic() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut stream = Stream::open(&site.api, "t", "");
    stream.next();
    site.api.delete("/v1/topics/t");
    publish(&site.api, "t", 10..11);
    // Whatever it says at its end, an event of the new topic it is not.
    let rest = stream.rest();
    assert!(rest.iter().all(|sent| !sent.kind.is_empty()), "{rest:?}");
}

#[test]
fn a_comment_keeps_the_line_open() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut stream = Stream::open(&site.api, "t", "");
    stream.next();
    let started = Instant::now();
    // Time itself is what is tested here: a comment is due after 15 s.
    match stream.hear(Duration::from_secs(18)) {
        Line::Comment(_) => assert!((5_000..17_500).contains(&since(started)), "{}", since(started)),
        other => panic!("{other:?}"),
    }
    publish(&site.api, "t", 1..2);
    assert_eq!(stream.numbers(1), [1]);
}

#[test]
fn many_streams_get_everything_at_once() {
    let site = Site::start();
    site.api.make("t", 2);
    publish_spread(&site.api, "t", 2, 5);
    let mut streams: Vec<Stream> = (0..100).map(|_| Stream::open(&site.api, "t", "")).collect();
    let more: Vec<Value> = (10..20).map(|n| json!({"payload": {"n": n}, "partition": n % 2})).collect();
    publish_all(&site.api, "t", &more);
    for stream in &mut streams {
        let sent = stream.take(20);
        assert_eq!(numbers(&sent), (0..20).collect());
        in_order(&sent);
    }
    drop(streams);
    publish(&site.api, "t", 20..21);
    assert_eq!(site.api.get("/healthz").status, 200);
}

#[test]
fn a_stream_that_nobody_reads_blocks_nobody_and_loses_nothing() {
    let site = Site::start();
    let filler = "x".repeat(100_000);
    let events: Vec<Value> = (0..70).map(|n| json!({"payload": {"n": n, "x": filler}})).collect();
    let mut slow = Stream::open_made(&site.api, "t");
    for _ in 0..3 {
        publish_all(&site.api, "t", &events);
    }
    let started = Instant::now();
    let mut quick = Stream::open(&site.api, "t", "from=latest");
    let mut socket = Socket::open(&site.api);
    for n in 100..110 {
        socket.publish("t", n..n + 1);
        assert_eq!(quick.numbers(1), [n]);
    }
    assert_eq!(site.api.page("t", "limit=1").is(200)["count"], 1);
    assert!(since(started) < 2000, "{}", since(started));
    let wanted: Vec<u64> = (0..70).chain(0..70).chain(0..70).chain(100..110).collect();
    assert_eq!(slow.numbers(wanted.len()), wanted);
}

#[test]
fn a_hub_ends_though_streams_are_open() {
    let mut site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut streams: Vec<Stream> = (0..5).map(|_| Stream::open(&site.api, "t", "")).collect();
    for stream in &mut streams {
        stream.next();
    }
    let started = Instant::now();
    site.stop();
    assert!(since(started) < 10_000);
    for stream in &mut streams {
        stream.rest();
    }
}

#[test]
fn dead_letters_can_be_streamed() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let mut socket = Socket::open(&site.api);
    socket.subscribe("t", "g", json!({"from": "earliest", "maxAttempts": 1}));
    let got = socket.event();
    let nack = json!({"op": "NACK", "topic": "t", "group": "g", "id": got["event"]["id"], "reason": "no"});
    socket.ok(nack);
    groups_support::eventually("there is a dead letter", || site.api.get("/v1/topics/dlq.t").status == 200);
    let sent = Stream::open(&site.api, "dlq.t", "").next();
    assert_eq!(sent.event()["payload"]["original"], got["event"]);
}
