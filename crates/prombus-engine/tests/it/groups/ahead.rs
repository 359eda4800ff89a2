//! What groups hold of events that were read and not delivered.

use crate::groups::stage::{Stage, Use, number};
use prombus_core::{Append, Json, NewEvent};
use prombus_engine::groups::{GivenBack, Group, OptionsPatch, Ordering, Pull};
use std::sync::Arc;

const GROUPS: usize = 12;
const EVENTS: u64 = 20;
const EVENT_BYTES: usize = 100_000;
/// Each group alone would hold several times as much.
const LIMIT: usize = 256 << 10;

/// Groups of a topic with large events of one key, none of them read yet.
async fn groups(s: &Stage, ordering: Ordering) -> Vec<Arc<Group>> {
    let topic = s.topic("large", 1).await;
    for n in 0..EVENTS {
        let payload = format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(EVENT_BYTES));
        let mut event = NewEvent::new(Json::from_stored(payload.into()));
        event.key = Some("hot".into());
        s.hub.publish(vec![Append::new(topic.clone(), event)]).await.unwrap();
    }
    let mut groups = Vec::new();
    for n in 0..GROUPS {
        let options = OptionsPatch { ordering: Some(ordering), ..OptionsPatch::default() };
        groups.push(s.group(&topic, &format!("g{n}"), options).await);
    }
    groups
}

/// Takes all events of a group one by one, in order.
async fn drain(group: &Arc<Group>, from: u64) {
    for wanted in from..EVENTS {
        let delivery = group.take_one("m").await;
        assert_eq!((number(&delivery.event), delivery.attempt), (wanted, 1));
        group.ack_all(&[delivery]).await;
    }
    assert!(group.take_now("m", 10).await.is_empty());
}

#[tokio::test]
async fn what_groups_read_ahead_is_bounded_for_all_of_them_together() {
    for ordering in [Ordering::None, Ordering::Key] {
        let s = Stage::reading_ahead(LIMIT).await;
        let (groups, held) = (groups(&s, ordering).await, || s.hub.groups().read_ahead().held());
        let mut first = Vec::new();
        for group in &groups {
            first.push(group.take_one("m").await);
            if ordering == Ordering::Key {
                // All others have to wait for the first, and are looked at for that.
                assert!(group.take_now("m", 10).await.is_empty());
            }
            assert!(held() <= LIMIT, "{ordering:?}: {} bytes", held());
        }
        for (group, first) in groups.iter().zip(first) {
            group.ack_all(&[first]).await;
            drain(group, 1).await;
            assert!(held() <= LIMIT, "{ordering:?}: {} bytes", held());
        }
    }
}

#[tokio::test]
async fn what_was_read_ahead_is_counted_until_it_is_delivered_or_nobody_is_there() {
    let s = Stage::reading_ahead(usize::MAX).await;
    let (groups, held) = (groups(&s, Ordering::Key).await, || s.hub.groups().read_ahead().held());
    let group = &groups[0];
    let present = group.enter("m").unwrap();
    let first = present.pull(&Pull { max: 1, ..Pull::default() }).await.unwrap();
    assert!(first.len() == 1 && held() > EVENT_BYTES, "{} bytes", held());
    group.give_back(&[first[0].lease], GivenBack::Unused);
    drop(present);
    assert_eq!(held(), 0, "the last connection is gone");
    drain(group, 0).await;
    assert_eq!(held(), 0, "everything is delivered");
}
