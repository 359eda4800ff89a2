//! `GET /v1/topics/{topic}/events` as pages, and events by id.

use crate::common;
use crate::common::{Served, payloads, start};
use reqwest::Method;
use serde_json::Value;

const EVENTS: &str = "/v1/topics/t/events";

/// All pages from a query on.
async fn all_pages(hub: &Served, query: &str, limit: usize) -> Vec<i64> {
    let mut page = hub.get(&format!("{EVENTS}?limit={limit}&{query}")).await.is(200).json();
    let mut all = Vec::new();
    loop {
        assert!(page["count"].as_u64().unwrap() <= limit as u64, "{}", page["count"]);
        all.extend(payloads(&page));
        let Some(next) = page["next"].as_str() else { return all };
        page = hub.get(&format!("{EVENTS}?limit={limit}&cursor={next}")).await.is(200).json();
    }
}

#[tokio::test]
async fn keys_filters_and_times_leave_out_the_rest() {
    let hub = start().await;
    hub.fill("t", 2_000).await;
    let of_key: Vec<i64> = (0..2_000).filter(|n| n % 10 == 3).collect();
    let large: Vec<i64> = (1_500..2_000).collect();
    let filter = "filter=event.payload+%3E%3D+1500";
    for limit in [3, 7, 100, 10_000] {
        assert_eq!(all_pages(&hub, "key=k3", limit).await, of_key, "{limit}");
        assert_eq!(all_pages(&hub, filter, limit).await, large, "{limit}");
    }
    assert_eq!(all_pages(&hub, &format!("key=k3&{filter}"), 7).await.len(), 50);
    assert_eq!(all_pages(&hub, "toTs=99999999999999", 3).await.len(), 2_000);
    assert_eq!(all_pages(&hub, "key=nobody", 7).await.len(), 0);
}

#[tokio::test]
async fn what_lies_past_the_end_is_nothing_and_what_was_never_there_is_missing() {
    let hub = start().await;
    hub.fill("t", 10).await;
    assert_eq!(all_pages(&hub, "from=offset&offset=99", 10).await.len(), 0);
    let unknown = "from=afterId&afterId=0198c0de-0000-7000-8000-000000000001";
    hub.get(&format!("{EVENTS}?{unknown}")).await.is_error(404, "not_found");
    let page = hub.request(Method::GET, EVENTS).header("accept", "text/html");
    common::send(page).await.is_error(406, "bad_request");
}

#[tokio::test]
async fn bad_filters_say_where() {
    let hub = start().await;
    hub.fill("t", 3).await;
    let error = hub.get(&format!("{EVENTS}?filter=event.payload.a+%3D%3D")).await.is_error(400, "bad_filter");
    assert_eq!(error["line"], 1);
    assert!(error["column"].as_u64().unwrap() > 10, "{error}");
    hub.get(&format!("{EVENTS}?filter=payload")).await.is_error(400, "bad_filter");
    hub.get(&format!("{EVENTS}?filter=")).await.is_error(400, "bad_filter");
    let page = hub.get(&format!("{EVENTS}?filter=event.payload.missing")).await.is(200).json();
    assert_eq!(page["count"], 0);
    assert!(hub.get("/metrics").await.text.contains("filter_errors_total 3\n"));
}

#[tokio::test]
async fn filters_that_nest_deeply_do_no_harm() {
    let hub = start().await;
    hub.fill("t", 3).await;
    for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", "")] {
        let nested = format!("{}1{}", open.repeat(4_000), close.repeat(4_000));
        hub.get(&format!("{EVENTS}?filter={nested}")).await;
    }
    hub.get("/healthz").await.is(200);
}

#[tokio::test]
async fn bad_queries() {
    let hub = start().await;
    hub.fill("t", 3).await;
    for bad in [
        "x=1",
        "from=x",
        "from=",
        "from=ts",
        "from=offset",
        "from=afterId",
        "ts=1",
        "offset=1",
        "afterId=0198c0de-0000-7000-8000-000000000001",
        "from=ts&ts=x",
        "from=ts&ts=-1",
        "from=afterId&afterId=x",
        "limit=0",
        "limit=10001",
        "limit=-1",
        "limit=x",
        "limit=1&limit=1",
        "partition=1",
        "partition=x",
        "key=%ff",
        "cursor=x",
        "cursor=",
        "cursor=e30",
        "cursor=x&key=y",
        "toTs=x",
        "from=latest&ts=1",
        "Limit=1",
    ] {
        hub.get(&format!("{EVENTS}?{bad}")).await.is_error(400, "bad_request");
    }
    let hint = hub.get(&format!("{EVENTS}?offset=1")).await.is_error(400, "bad_request");
    assert!(hint["message"].as_str().unwrap().contains("from=offset"), "{hint}");
    hub.get("/v1/topics/nobody/events").await.is_error(404, "not_found");
    hub.get("/v1/topics/BAD/events").await.is_error(400, "bad_request");
}

#[tokio::test]
async fn forged_cursors_do_no_harm() {
    let hub = start().await;
    hub.fill("t", 3).await;
    let next = hub.get(&format!("{EVENTS}?limit=1")).await.json()["next"].as_str().unwrap().to_owned();
    for cut in 1..next.len() {
        hub.get(&format!("{EVENTS}?cursor={}", &next[..cut])).await.is_error(400, "bad_request");
    }
    let place = |partition: u64, offset: &str| {
        // The alphabet of cursors is base64 without padding; this is one made by hand.
        let text = format!(
            r#"{{"topic":0,"from":"Earliest","partition":null,"key":null,"to_ts":null,"filter":null,"place":{{"partition":{partition},"offset":{offset}}}}}"#
        );
        base64(text.as_bytes())
    };
    hub.get(&format!("{EVENTS}?cursor={}", place(0, "1"))).await.is(200);
    hub.get(&format!("{EVENTS}?cursor={}", place(0, "18446744073709551615"))).await.is(200);
    for offset in ["null", "0", "18446744073709551615"] {
        for partition in [1, u64::from(u32::MAX)] {
            let forged = place(partition, offset);
            hub.get(&format!("{EVENTS}?cursor={forged}")).await.is_error(400, "bad_request");
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let sextets = |chunk: &[u8]| {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(|n| ALPHABET[(bits >> (18 - 6 * n) & 63) as usize] as char).collect::<Vec<_>>()
    };
    bytes.chunks(3).flat_map(sextets).collect()
}

#[tokio::test]
async fn large_events_make_short_pages() {
    let hub = start().await;
    let event = format!(r#"{{"payload":"{}"}}"#, "x".repeat(1_000_000));
    for _ in 0..30 {
        hub.post(EVENTS, &event).await.is(201);
    }
    let page = hub.get(EVENTS).await;
    assert!(page.is(200).text.len() < 12 << 20, "{}", page.text.len());
    let mut seen = 0;
    let mut next: Value = page.json();
    loop {
        seen += next["count"].as_u64().unwrap();
        let Some(cursor) = next["next"].as_str() else { break };
        next = hub.get(&format!("{EVENTS}?cursor={cursor}")).await.json();
    }
    assert_eq!(seen, 30);
}

#[tokio::test]
async fn one_by_id() {
    let hub = start().await;
    hub.fill("t", 3).await;
    let event = hub.get(EVENTS).await.json()["events"][1].clone();
    let id = event["id"].as_str().unwrap();
    assert_eq!(hub.get(&format!("{EVENTS}/{id}")).await.is(200).json(), event);
    assert_eq!(hub.get(&format!("{EVENTS}/{}", id.to_uppercase())).await.is(200).json(), event);
    let unknown = "0198c0de-0000-7000-8000-000000000001";
    hub.get(&format!("{EVENTS}/{unknown}")).await.is_error(404, "not_found");
    hub.get(&format!("{EVENTS}/x")).await.is_error(400, "bad_request");
    hub.get(&format!("{EVENTS}/{id}?x=1")).await.is_error(400, "bad_request");
    hub.get(&format!("/v1/topics/nobody/events/{id}")).await.is_error(404, "not_found");
}
