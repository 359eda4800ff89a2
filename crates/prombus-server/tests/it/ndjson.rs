//! Publishing a stream of lines.

use crate::common::{Setup, start, start_with};
use prombus_engine::Limits;
use serde_json::json;

const EVENTS: &str = "/v1/topics/t/events";
const ID: &str = "0198c0de-0000-7000-8000-000000000001";

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|n| format!("{{\"payload\":{n}}}\n")).collect()
}

#[tokio::test]
async fn line_ends_and_blank_lines() {
    let hub = start().await;
    let answer = hub.lines(EVENTS, "\r\n{\"payload\":0}\r\n\n   \n{\"payload\":1}").await;
    assert_eq!(answer.is(201).json(), json!({"count": 2}));
    assert_eq!(hub.lines(EVENTS, "").await.is(201).json(), json!({"count": 0}));
    let wrong = hub.lines(EVENTS, "\n\n{\"payload\":2}\n\nx\n").await;
    let wrong = wrong.is_error(400, "bad_json");
    assert_eq!((&wrong["count"], &wrong["line"]), (&json!(1), &json!(5)));
}

#[tokio::test]
async fn a_line_may_come_in_pieces() {
    let hub = start().await;
    let text = lines(0..50);
    let pieces: Vec<_> =
        text.as_bytes().chunks(7).map(|part| Ok::<_, std::io::Error>(part.to_vec())).collect();
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    assert_eq!(hub.lines(EVENTS, body).await.is(201).json(), json!({"count": 50}));
}

#[tokio::test]
async fn what_comes_before_a_bad_line_is_in() {
    for (bad, code) in [
        ("{", "bad_json"),
        ("{\"payload\":1,\"x\":1}", "bad_request"),
        ("[{\"payload\":1}]", "bad_request"),
        ("{\"payload\":1,\"headers\":{\"X\":\"1\"}}", "bad_request"),
        ("{\"payload\":1,\"key\":\"k\",\"partition\":0}", "bad_request"),
        (
            "{\"payload\":1,\"key\":\"k\",\"expect\":{\"last_id\":\"0198c0de-0000-7000-8000-000000000001\"}}",
            "expectation_failed",
        ),
        ("{\"payload\":1,\"id\":\"0198c0de-0000-7000-8000-000000000001\"}", "id_conflict"),
    ] {
        for before in [0, 1, 999, 1_000, 1_001, 1_500] {
            let hub = start().await;
            hub.post(EVENTS, &format!(r#"{{"payload":"first","id":"{ID}"}}"#)).await.is(201);
            let body = format!("{}{bad}\n{}", lines(0..before), lines(0..3));
            let answer = hub.lines(EVENTS, body).await;
            let error = answer.is_error(400, code);
            assert_eq!((&error["count"], &error["line"]), (&json!(before), &json!(before + 1)), "{bad}");
            let topic = hub.get("/v1/topics/t").await.json();
            assert_eq!(topic["events"], before + 1, "{bad}");
        }
    }
}

#[tokio::test]
async fn of_two_bad_lines_the_first_counts() {
    let hub = start().await;
    let refused_then_broken = "{\"payload\":1}\n{\"payload\":1,\"ts\":99999999999999}\n{\n";
    let error = hub.lines(EVENTS, refused_then_broken).await.is_error(400, "bad_request");
    assert_eq!((&error["count"], &error["line"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn bad_utf8_is_bad_json() {
    let hub = start().await;
    let error = hub.lines(EVENTS, b"{\"payload\":1}\n{\"payload\":\"\xff\"}\n".to_vec()).await;
    let error = error.is_error(400, "bad_json");
    assert_eq!((&error["count"], &error["line"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn a_whole_body_may_be_larger_than_any_limit_but_a_line_may_not() {
    let mut setup = Setup {
        limits: Limits { event_bytes: 2_000, commit_bytes: 5_000, ..Limits::default() },
        ..Setup::default()
    };
    setup.gateway.max_body_bytes = 3_000;
    let hub = start_with(setup).await;
    let line = |size: usize| format!("{{\"payload\":\"{}\"}}\n", "x".repeat(size));
    let answer = hub.lines(EVENTS, line(1_500).repeat(100)).await;
    assert_eq!(answer.is(201).json(), json!({"count": 100}));
    let event = hub.lines(EVENTS, format!("{}{}", line(10), line(2_100))).await.is_error(400, "too_large");
    assert_eq!((&event["count"], &event["line"]), (&json!(1), &json!(2)));
    let long = hub.lines(EVENTS, format!("{}{}", line(10), line(100_000))).await.is_error(400, "too_large");
    assert_eq!((&long["count"], &long["line"]), (&json!(1), &json!(2)));
    let endless = hub.lines(EVENTS, "x".repeat(10 << 20)).await.is_error(400, "too_large");
    assert_eq!((&endless["count"], &endless["line"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_closed_store_keeps_its_status_and_says_what_is_in() {
    let hub = start().await;
    hub.lines(EVENTS, lines(0..5)).await.is(201);
    prombus_core::EventLog::close(&*hub.store).await;
    let answer = hub.lines(EVENTS, lines(0..5)).await;
    let error = answer.is_error(503, "unavailable");
    assert_eq!((&error["count"], &error["line"]), (&json!(0), &json!(1)));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn duplicates_count_and_topics_are_checked() {
    let hub = start().await;
    let line = format!("{{\"payload\":1,\"id\":\"{ID}\"}}\n");
    assert_eq!(hub.lines(EVENTS, line.repeat(3)).await.is(201).json(), json!({"count": 3, "duplicates": 2}));
    assert_eq!(hub.get(EVENTS).await.json()["count"], 1);
    let reserved = hub.lines("/v1/topics/dlq.t/events", lines(0..1)).await;
    assert_eq!(reserved.is_error(403, "forbidden")["count"], 0);
    hub.lines("/v1/topics/T/events", lines(0..1)).await.is_error(400, "bad_request");
    let strict = start_with(Setup { auto_create: false, ..Setup::default() }).await;
    strict.lines(EVENTS, lines(0..1)).await.is_error(404, "not_found");
}

/// What is left of a stream whose topic was deleted belongs to no topic that was made since.
#[tokio::test]
async fn a_topic_that_is_deleted_ends_the_lines() {
    for is_remade in [false, true] {
        let hub = start().await;
        let (sender, receiver) = tokio::sync::mpsc::channel::<String>(4);
        let pieces = futures::stream::unfold(receiver, async |mut receiver| {
            let piece = receiver.recv().await?;
            Some((Ok::<_, std::io::Error>(piece), receiver))
        });
        let body = reqwest::Body::wrap_stream(pieces);
        let feeding = async {
            sender.send(lines(0..1_000)).await.unwrap();
            while hub.get("/v1/topics/t").await.json()["events"] != 1_000 {
                tokio::task::yield_now().await;
            }
            hub.delete("/v1/topics/t").await.is(204);
            if is_remade {
                hub.put("/v1/topics/t", "{}").await.is(201);
            }
            sender.send(lines(1_000..3_000)).await.unwrap();
            drop(sender);
        };
        let (answer, ()) = tokio::join!(hub.lines(EVENTS, body), feeding);
        let cut = answer.is_error(404, "not_found");
        assert_eq!((&cut["count"], &cut["line"]), (&json!(1_000), &json!(1_001)), "{cut}");
        match is_remade {
            false => drop(hub.get("/v1/topics/t").await.is_error(404, "not_found")),
            true => assert_eq!(hub.get("/v1/topics/t").await.json()["events"], 0),
        }
    }
}
