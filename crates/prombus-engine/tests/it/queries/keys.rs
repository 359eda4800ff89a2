//! Pages of one key, which leave out most of what there is of it.

pub use crate::support::stage::Stage;
use prombus_core::*;
use prombus_engine::query::{From, MAX_SCANNED, Query};
use std::sync::atomic::Ordering;

/// How many events are published at once.
const BATCH: u64 = 5_000;

/// Events of one key, each a millisecond after the one before.
async fn filled(s: &Stage, count: u64) -> TopicName {
    let topic = s.topic("hot", 1).await;
    for start in (0..count).step_by(BATCH as usize) {
        let event = |ts| NewEvent {
            ts: Some(ts),
            key: Some("k".into()),
            ..NewEvent::new(Json::parse("1".into()).unwrap())
        };
        let batch = (start..count.min(start + BATCH)).map(|ts| Append::new(topic.clone(), event(ts)));
        s.hub.publish(batch.collect()).await.expect("events can be published");
    }
    topic
}

fn of_key() -> Query {
    Query {
        from: From::Earliest,
        partition: None,
        key: Some("k".into()),
        to_ts: None,
        filter: None,
        normalize: false,
    }
}

pub async fn small_pages_of_a_key_look_at_what_large_ones_do(s: Stage) {
    let count = 3 * BATCH;
    let topic = filled(&s, count).await;
    let late = Query { from: From::Ts(count - 1), ..of_key() };
    let at_offset = Query { from: From::Offset(Offset(count - 1)), ..of_key() };
    let none = Query { from: From::Ts(count), ..of_key() };
    let early = Query { to_ts: Some(0), ..of_key() };
    for (query, found) in
        [(late, Some(count - 1)), (at_offset, Some(count - 1)), (none, None), (early, Some(0))]
    {
        let mut reader = s.hub.read(&topic, query).await.expect("a topic");
        s.log.looked_up.store(0, Ordering::SeqCst);
        let page = reader.next_page(1).await.expect("a page");
        assert_eq!(page.events.first().map(|event| event.offset.0), found);
        assert!(s.log.looked_up.load(Ordering::SeqCst) <= 5, "it is read in pages of their own size");
    }
    let middle = Query { from: From::Ts(count / 2), to_ts: Some(count / 2 + 9), ..of_key() };
    let mut reader = s.hub.read(&topic, middle).await.expect("a topic");
    let mut offsets = Vec::new();
    loop {
        let page = reader.next_page(3).await.expect("a page");
        offsets.extend(page.events.iter().map(|event| event.offset.0));
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(offsets, (count / 2..count / 2 + 10).collect::<Vec<_>>(), "pages go on where they ended");
}

pub async fn a_page_of_a_key_looks_at_so_much_at_most(s: Stage) {
    let count = MAX_SCANNED as u64 + 2 * BATCH;
    let topic = filled(&s, count).await;
    s.hub
        .put_topic(&topic, TopicPatch { partitions: Some(2), ..TopicPatch::default() })
        .await
        .expect("it can grow");
    // With a second partition, nobody knows where the key's events of that time begin.
    let mut reader = s.hub.read(&topic, Query { from: From::Ts(count), ..of_key() }).await.expect("a topic");
    let page = reader.next_page(1).await.expect("a page");
    assert!(page.events.is_empty() && page.next.is_some(), "it is handed out though it is empty");
    assert!(page.scanned < MAX_SCANNED + BATCH as usize, "{}", page.scanned);
    assert!(reader.next_page(1).await.expect("a page").next.is_none());
}
