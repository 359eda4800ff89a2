//! Publishes to topics that are at home on another hub.

use super::Cluster;
use super::between::{Between, Mode};
use super::sockets::blocking;
use crate::common::{Served, as_one_who, guarded, payloads, send};
use prombus_fixtures::http::Api;
use prombus_fixtures::ws::Socket;
use reqwest::Method;
use serde_json::{Value, json};

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

/// A metric of a hub.
async fn metric(hub: &Served, name: &str) -> u64 {
    let text = hub.get("/metrics").await.is(200).text.clone();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse::<f64>().unwrap() as u64)
}

/// How many events a hub has published to a topic itself.
async fn published(hub: &Served, topic: &str) -> u64 {
    metric(hub, &format!("events_published_total{{topic=\"{topic}\"}}")).await
}

#[tokio::test]
async fn whatever_is_published_is_published_at_the_home() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let (home, other) = (&cluster.hubs[0], &cluster.hubs[1]);
    let events = format!("/v1/topics/{topic}/events");
    let raw = other.request(Method::POST, &format!("/publish/{topic}?key=k&tag=t&id={ID}"));
    let first = send(raw.header("x-event-a", "b").body(r#"{"n":1.10,"big":123456789012345678901234567890}"#));
    let first = first.await.is(201).json();
    assert_eq!((&first["offset"], &first["id"], &first["duplicate"]), (&json!(0), &json!(ID), &json!(false)));
    let stored = other.get(&format!("/v1/topics/{topic}/events/{ID}")).await;
    assert!(stored.is(200).text.contains(r#"{"n":1.10,"big":123456789012345678901234567890}"#), "{stored:?}");
    let stored = stored.json();
    assert_eq!((&stored["headers"], &stored["tags"]), (&json!({"x-a": "b"}), &json!(["t"])));
    // The same again, and something else with its id.
    let same =
        format!(r#"{{"payload":{{"n":1.10,"big":123456789012345678901234567890}},"key":"k","id":"{ID}"}}"#);
    assert_eq!(other.post(&events, &same).await.is(200).json()["duplicate"], true);
    let different = format!(r#"{{"payload":2,"id":"{ID}"}}"#);
    other.post(&events, &different).await.is_error(409, "id_conflict");
    let expects = r#"{"payload":2,"key":"k","expect":{"last_id":null}}"#;
    let refused = other.post(&events, expects).await.is_error(412, "expectation_failed");
    assert!(refused.to_string().contains(ID), "{refused}");
    // Arrays are taken as a whole or not at all.
    let bad = format!(r#"[{{"payload":1}},{{"payload":2,"id":"{ID}"}}]"#);
    assert_eq!(other.post(&events, &bad).await.is_error(409, "id_conflict")["index"], 1);
    let array = other.post(&events, r#"[{"payload":1,"key":"a"},{"payload":2}]"#).await.is(201).json();
    assert_eq!((&array["count"], &array["events"][1]["offset"]), (&json!(2), &json!(2)));
    // Lines, of which those before a bad one are in.
    let lines: String = (0..2_500).map(|n| format!("{{\"payload\":{n}}}\n")).collect();
    assert_eq!(other.lines(&events, lines).await.is(201).json()["count"], 2_500);
    let lines = format!("{{\"payload\":1}}\n{{\"payload\":2,\"id\":\"{ID}\"}}\n");
    let stopped = other.lines(&events, lines).await.is_error(400, "id_conflict");
    assert_eq!((&stopped["count"], &stopped["line"]), (&json!(1), &json!(2)));
    let shown = home.get(&format!("/v1/topics/{topic}")).await.is(200).json();
    assert_eq!(shown["bounds"][0]["next"], 2_504, "{shown}");
    assert_eq!((published(home, &topic).await, published(other, &topic).await), (2_504, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_hub_goes_there_together_and_in_order() {
    const COUNT: u64 = 500;
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let (home, other) = (&cluster.hubs[0], &cluster.hubs[1]);
    let between = Between::before(home.address).await;
    cluster.advertise(0, between.address).await;
    other.fill(&topic, 1).await;
    let before = metric(home, "forwarded_calls_served_total").await;
    between.set(Mode::Hold);
    let (api, name) = (Api { address: other.address.to_string() }, topic.clone());
    let (taken, all_taken) = tokio::sync::oneshot::channel();
    let client = blocking(move || {
        let mut socket = Socket::open(&api);
        for n in 1..=COUNT {
            socket.send(json!({"op": "PUBLISH", "corr": n.to_string(), "topic": name, "payload": n, "opts": {"key": "k"}}));
        }
        // It is refused at once, when all before it have been read.
        socket.send(json!({"op": "NONSENSE", "corr": "last"}));
        assert_eq!(socket.next_frame()["corr"], "last");
        taken.send(()).unwrap();
        (1..=COUNT).map(|_| socket.next_frame()).collect::<Vec<Value>>()
    });
    let opened = async {
        all_taken.await.unwrap();
        between.set(Mode::Pass);
    };
    let (answers, ()) = tokio::join!(client, opened);
    for (n, answer) in (1..=COUNT).zip(&answers) {
        assert_eq!(
            (&answer["op"], &answer["corr"], &answer["offset"]),
            (&json!("OK"), &json!(n.to_string()), &json!(n))
        );
    }
    let batches = metric(home, "forwarded_calls_served_total").await - before;
    assert!(batches <= COUNT / 10, "{batches}");
    let page = home.get(&format!("/v1/topics/{topic}/events?limit=1000")).await.is(200).json();
    assert_eq!(payloads(&page), (0..=COUNT as i64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_of_a_connection_keep_their_order_while_the_topic_moves() {
    const COUNT: usize = 2_000;
    let cluster = Cluster::of(3).await;
    let topic = cluster.topic_at(0);
    // So it has a home that can move.
    cluster.hubs[0].put(&format!("/v1/topics/{topic}/groups/g"), "{}").await.is(201);
    let (api, name) = (Api { address: cluster.hubs[1].address.to_string() }, topic.clone());
    let (half, at_half) = tokio::sync::oneshot::channel();
    let client = blocking(move || {
        let mut socket = Socket::open(&api);
        let mut half = Some(half);
        let mut answered = 0;
        for n in 0..COUNT {
            socket.send(json!({"op": "PUBLISH", "corr": n.to_string(), "topic": name, "payload": n}));
            // Some are always under way.
            while n - answered > 100 {
                assert_eq!(socket.next_frame()["op"], "OK");
                answered += 1;
            }
            if n == COUNT / 2 {
                half.take().unwrap().send(()).unwrap();
            }
        }
        (answered..COUNT).for_each(|_| assert_eq!(socket.next_frame()["op"], "OK"));
    });
    let moves = async {
        at_half.await.unwrap();
        cluster.hubs[0].hub().leave().await;
    };
    tokio::join!(client, moves);
    let mut all = Vec::new();
    for from in [0, 1_000] {
        let path = format!("/v1/topics/{topic}/events?from=offset&offset={from}&limit=1000");
        all.extend(payloads(&cluster.hubs[2].get(&path).await.is(200).json()));
    }
    assert_eq!(all, (0..COUNT as i64).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_did_not_begin_is_published_around_the_home_and_the_rest_is_unknown() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let (home, other) = (&cluster.hubs[0], &cluster.hubs[1]);
    let events = format!("/v1/topics/{topic}/events");
    let between = Between::before(home.address).await;
    cluster.advertise(0, between.address).await;
    other.post(&events, r#"{"payload":1}"#).await.is(201);
    between.set(Mode::LoseAnswers);
    let lost = other.post(&events, &format!(r#"{{"payload":2,"id":"{ID}"}}"#)).await;
    assert_eq!(lost.is_error(503, "unavailable")["outcome"], "unknown");
    assert!(lost.header("retry-after").is_some());
    // It has happened, and the same again is safe.
    between.set(Mode::Pass);
    let again = other.post(&events, &format!(r#"{{"payload":2,"id":"{ID}"}}"#)).await;
    assert_eq!((&again.is(200).json()["duplicate"], published(home, &topic).await), (&json!(true), 2));
    // Nobody is there.
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    cluster.advertise(0, nobody).await;
    other.post(&events, r#"{"payload":3}"#).await.is(201);
    assert_eq!(published(other, &topic).await, 1);
}

#[tokio::test]
async fn what_a_topic_may_take_counts_at_its_home() {
    let cluster = Cluster::limited(2, 1).await;
    let topic = cluster.topic_at(0);
    let events = format!("/v1/topics/{topic}/events");
    let array = format!("[{}]", [r#"{"payload":1}"#; 10].join(","));
    cluster.hubs[1].post(&events, &array).await.is(201);
    let refused = cluster.hubs[0].post(&events, &array).await;
    refused.is_error(429, "rate_limited");
    let refused = cluster.hubs[1].post(&events, &array).await;
    refused.is_error(429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn rights_to_publish_travel() {
    let cluster = Cluster::with(2, guarded(&["publish:t.*", "read:**"]).gateway.auth).await;
    let topic = (0..).map(|n| format!("t.n{n}")).find(|name| cluster.home_of(name) == 0).unwrap();
    let other = &cluster.hubs[1];
    let post = |may: &'static str| {
        let request = other.request(Method::POST, &format!("/publish/{topic}")).body("1");
        send(as_one_who(may, request))
    };
    // Those of several callers go together, each with its own.
    let (all, one, none) = tokio::join!(post("all"), post("publish:t.*"), post("read:**"));
    all.is(201);
    one.is(201);
    none.is_error(403, "forbidden");
    // Nobody but a hub is served there.
    let request = other.request(Method::POST, "/cluster/publishes").body("[]");
    send(as_one_who("all", request)).await.is_error(403, "forbidden");
}
