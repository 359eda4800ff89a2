//! The Rust client against a real hub.

use crate::common::Hub;
use futures::TryStreamExt;
use prombus_client::{Client, Imported, NewEvent, ReadFrom, ReadQuery};
use std::pin::pin;

fn numbered(n: u64) -> NewEvent {
    NewEvent::of(&serde_json::json!({"n": n})).unwrap().with_key(format!("k{}", n % 2))
}

#[tokio::test]
async fn what_is_published_can_be_read_in_every_way() {
    let hub = Hub::start();
    let client = Client::new(&hub.url, None).unwrap();
    let one = client.publish("a", &numbered(0)).await.unwrap();
    let batch = client.publish_batch("a", &[numbered(1), numbered(2), numbered(3)]).await.unwrap();
    assert_eq!((one.offset, batch.count, batch.events[2].offset), (0, 3, 3));

    let mut page = client.read("a", &ReadQuery::default(), 3).await.unwrap();
    let mut seen = page.events;
    while let Some(next) = page.next {
        page = client.read_next("a", &next, 3).await.unwrap();
        seen.extend(page.events);
    }
    assert_eq!(seen.iter().map(|event| event.offset).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(seen[3].payload.get(), r#"{"n":3}"#);

    let query = ReadQuery { key: Some("k1".into()), ..ReadQuery::default() };
    assert_eq!(client.read("a", &query, 10).await.unwrap().count, 2);
    for (from, count) in [
        (ReadFrom::Latest, 0),
        (ReadFrom::Offset(1), 3),
        (ReadFrom::AfterId(batch.events[1].id.clone()), 1),
        (ReadFrom::Ts(0), 4),
    ] {
        let query = ReadQuery { from, ..ReadQuery::default() };
        assert_eq!(client.read("a", &query, 10).await.unwrap().count, count, "{query:?}");
    }

    assert_eq!(client.by_id("a", &one.id).await.unwrap().unwrap().offset, 0);
    assert!(client.by_id("a", "6f1c7a1e-3a52-4c1e-9f0b-1d2e3f405060").await.unwrap().is_none());
    assert_eq!(client.latest("a", "k0").await.unwrap().unwrap().offset, 2);
    assert!(client.latest("a", "x/y").await.unwrap().is_none());
}

#[tokio::test]
async fn streams_go_in_and_out() {
    let hub = Hub::start();
    let client = Client::new(&hub.url, None).unwrap();
    let pieces = ["{\"payload\":1}\n{\"pay", "load\":2}\n", "{\"payload\":3}"];
    let lines = futures::stream::iter(pieces.map(|piece| Ok(bytes::Bytes::from_static(piece.as_bytes()))));
    assert_eq!(client.import("a", lines).await.unwrap(), Imported { count: 3, duplicates: 0 });
    let mut exported = Vec::new();
    let mut pieces = pin!(client.export("a", &ReadQuery::default()).await.unwrap());
    while let Some(piece) = pieces.try_next().await.unwrap() {
        exported.extend_from_slice(&piece);
    }
    assert_eq!(String::from_utf8(exported).unwrap().lines().count(), 3);
}

#[tokio::test]
async fn refusals_carry_status_code_message_and_details() {
    let hub = Hub::start();
    let client = Client::new(&hub.url, None).unwrap();
    let error = client.export("missing", &ReadQuery::default()).await.err().unwrap();
    assert!(error.is_not_found());
    let lines = futures::stream::iter([Ok(bytes::Bytes::from_static(b"{\"payload\":1}\nnonsense\n"))]);
    let error = client.import("a", lines).await.unwrap_err();
    let refused = error.hub().unwrap();
    assert_eq!((refused.status, refused.code.as_str()), (400, "bad_json"));
    assert_eq!((refused.number("count"), refused.number("line")), (Some(1), Some(2)));
    assert!(!refused.message.is_empty());
}
