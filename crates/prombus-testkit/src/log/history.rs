//! The history of a key, over all partitions.

use crate::Subject;
use crate::build::{event, moving_keys, numbered, partitions};
use crate::subject::{PAGE_BYTES, must};
use prombus_core::{Event, HistoryRequest, Json, Offset, Partition, TopicRef};

fn payloads(events: &[Event]) -> Vec<Json> {
    events.iter().map(|event| event.payload.clone()).collect()
}

fn expected(numbers: impl IntoIterator<Item = usize>) -> Vec<Json> {
    numbers.into_iter().map(|n| numbered(n).event.payload).collect()
}

/// A key's history has its events and no others, in the order of their commits, in pages of any size.
pub async fn the_history_of_a_key_is_its_events_in_order(s: Subject) {
    let topic = s.create("history", partitions(2)).await;
    for n in 0..12 {
        let others = [numbered(n), numbered(n).key("other"), numbered(n).key("k0")];
        s.published(
            &topic,
            [numbered(2 * n).key("k"), numbered(2 * n + 1).key("k")].into_iter().chain(others),
        )
        .await;
    }
    for limit in [1, 2, 5, 23, 24, 25, 500] {
        let found = payloads(&s.history(&topic, "k", limit).await);
        assert_eq!(found, expected(0..24), "a history in pages of {limit} is the key's events in order");
    }
    assert_eq!(s.history(&topic, "unknown", 5).await, [], "a key without events has no history");
}

/// A page of history is full unless it is the last.
pub async fn a_page_of_history_is_full_unless_it_ends(s: Subject) {
    let topic = s.create("history.full", partitions(1)).await;
    s.published(&topic, (0..60).map(|n| if n % 3 == 0 { numbered(n).key("k") } else { numbered(n) })).await;
    let (topic, key) = (TopicRef::from(&topic), "k".to_owned());
    let request = HistoryRequest { topic, key, after: None, limit: 7, max_bytes: PAGE_BYTES };
    for (start, length) in [(0, 7), (12, 7), (13, 7), (14, 6), (19, 1), (20, 0)] {
        // Also where an event of no key or of another one is.
        for others in 0..3 {
            let after = (start > 0).then(|| (Partition(0), Offset(3 * (start - 1) + others)));
            let page =
                must(s.log.history(HistoryRequest { after, ..request.clone() }).await, "histories are read");
            assert_eq!(page.len(), length, "a page has fewer than `limit` events only at the end");
            let wanted = expected((start as usize..start as usize + length).map(|n| 3 * n));
            assert_eq!(payloads(&page), wanted, "a page starts after the place that it is asked to");
        }
    }
}

/// A page of history ends at about `max_bytes`, and is empty only at the end.
pub async fn a_page_of_history_is_about_max_bytes(s: Subject) {
    let topic = s.create("history.bytes", partitions(1)).await;
    let payload = format!("\"{}\"", "x".repeat(3_000));
    s.published(&topic, (0..20).map(|_| event(&payload).key("k"))).await;
    for max_bytes in [0, 1, 10_000, 1 << 30] {
        let (mut seen, mut after) = (0, None);
        loop {
            let (topic, key) = (TopicRef::from(&topic), "k".to_owned());
            let request = HistoryRequest { topic, key, after, limit: 100, max_bytes };
            let page = must(s.log.history(request).await, "histories are read");
            let Some(last) = page.last() else { break };
            assert!((page.len() - 1) * 3_000 <= max_bytes, "{} events are not about {max_bytes}", page.len());
            after = Some((last.partition, last.offset));
            seen += page.len();
        }
        assert_eq!(seen, 20, "a page of history is empty only at the end");
    }
}

/// When a key was placed elsewhere by growth, its history goes on there, and can be resumed on both sides.
pub async fn a_history_goes_on_after_growth(s: Subject) {
    let topic = s.create("history.growth", partitions(1)).await;
    let Some(key) = moving_keys(2).find(|key| moving_keys(3).take(1_000).any(|other| other == *key)) else {
        panic!("some key moves");
    };
    let publish = async |numbers: std::ops::Range<usize>| {
        for n in numbers {
            s.published(&topic, [numbered(n).key(&key), numbered(99).in_partition(0)]).await;
        }
    };
    publish(0..4).await;
    s.grow(&topic, 2).await;
    publish(4..7).await;
    s.grow(&topic, 3).await;
    publish(7..9).await;
    for limit in [1, 2, 3, 4, 5, 100] {
        let events = s.history(&topic, &key, limit).await;
        assert_eq!(
            payloads(&events),
            expected(0..9),
            "a history is in the order of commits, in pages of {limit}"
        );
    }
    let first = &s.history(&topic, &key, 100).await[0];
    assert_eq!((first.partition, first.offset), (Partition(0), Offset(0)));
}

/// What is committed while a history is paged through is seen at its end.
pub async fn a_history_sees_what_is_committed_meanwhile(s: Subject) {
    let topic = s.create("history.live", partitions(1)).await;
    s.published(&topic, (0..3).map(|n| numbered(n).key("k"))).await;
    let key = "k".to_owned();
    let request =
        HistoryRequest { topic: (&topic).into(), key, after: None, limit: 10, max_bytes: PAGE_BYTES };
    let page = must(s.log.history(request.clone()).await, "histories are read");
    assert_eq!(payloads(&page), expected(0..3));
    s.published(&topic, (3..5).map(|n| numbered(n).key("k"))).await;
    let after = page.last().map(|event| (event.partition, event.offset));
    let page = must(s.log.history(HistoryRequest { after, ..request }).await, "histories are read");
    assert_eq!(payloads(&page), expected(3..5), "a history goes on after the last event that was read");
}
