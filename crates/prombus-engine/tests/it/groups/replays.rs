//! Dead letters that go back, to their group or to everyone.

use crate::groups::stage::{Stage, Use, append, drain, group_name};
use prombus_core::event::MAX_HEADER_BYTES;
use prombus_core::{Json, TopicName};
use prombus_engine::Filter;
use prombus_engine::groups::{FailedBy, Group, OptionsPatch, Replay, ReplayTo, Replayed};
use std::collections::HashSet;
use std::sync::Arc;

fn once() -> OptionsPatch {
    OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() }
}

async fn replay(s: &Stage, topic: &TopicName, replay: Replay) -> Replayed {
    s.hub.replay(topic, replay).await.expect("letters can be replayed")
}

/// Lets everything that there is die.
async fn fail_all(group: &Arc<Group>) {
    while group.status().await.unwrap().partitions.iter().any(|partition| partition.lag > 0) {
        for delivery in group.take("m", 100).await {
            assert!(group.nack(delivery.lease, None).await);
        }
    }
}

pub async fn a_replayed_letter_reaches_only_its_group(s: Stage) {
    let topic = s.topic("replayed", 1).await;
    s.publish_numbers(&topic, Some("k"), 1..=3).await;
    let options = OptionsPatch { max_attempts: Some(2), ..OptionsPatch::default() };
    let (group, other) = (s.group(&topic, "g", options).await, s.group(&topic, "other", once()).await);
    assert_eq!(drain(&other, "m").await, [1, 2, 3]);
    for attempt in 1..=2 {
        let lease = group.take_just("m", 1, attempt).await.lease;
        assert!(group.nack(lease, None).await);
    }
    assert_eq!(drain(&group, "m").await, [2, 3]);
    let answer = replay(&s, &topic, Replay::default()).await;
    assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (1, 1, 0));
    assert_eq!(group.status().await.unwrap().partitions[0].lag, 1, "it is open again");
    let s = s.restart().await;
    let (group, other) = (s.found(&topic, "g").await, s.found(&topic, "other").await);
    let lease = group.take_just("m", 1, 1).await.lease;
    assert!(group.nack(lease, None).await, "attempts are counted anew");
    group.ack_all(&[group.take_just("m", 1, 2).await]).await;
    assert!(drain(&other, "m").await.is_empty(), "nobody else hears of it");
    let s = s.restart().await;
    assert!(drain(&s.found(&topic, "g").await, "m").await.is_empty(), "it is settled for good");
}

pub async fn a_letter_is_replayed_once_unless_forced(s: Stage) {
    let topic = s.topic("once", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", once()).await;
    fail_all(&group).await;
    assert_eq!(replay(&s, &topic, Replay::default()).await.replayed, 1);
    assert_eq!(drain(&group, "m").await, [1]);
    let s = s.restart().await;
    let answer = replay(&s, &topic, Replay::default()).await;
    assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (1, 0, 1));
    assert_eq!(answer.skipped[0].0, s.letters(&topic).await[0].id);
    assert_eq!(replay(&s, &topic, Replay { force: true, ..Replay::default() }).await.replayed, 1);
    assert_eq!(drain(&s.found(&topic, "g").await, "m").await, [1]);
}

pub async fn an_event_that_keeps_coming_back_is_left_alone(s: Stage) {
    let topic = s.topic("again", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    let group = s.group(&topic, "g", once()).await;
    fail_all(&group).await;
    for round in 0..3 {
        assert_eq!(replay(&s, &topic, Replay::default()).await.replayed, 1, "round {round}");
        fail_all(&group).await;
    }
    assert_eq!(s.letters(&topic).await.len(), 4);
    let answer = replay(&s, &topic, Replay::default()).await;
    assert_eq!((answer.replayed, answer.skipped.len()), (0, 4), "it came back three times");
    let last = s.letters(&topic).await[3].id;
    let forced = Replay { force: true, ids: Some(HashSet::from([last])), ..Replay::default() };
    assert_eq!(replay(&s, &topic, forced).await.replayed, 1);
}

pub async fn a_dry_run_changes_nothing(s: Stage) {
    let topic = s.topic("dry", 1).await;
    s.publish_numbers(&topic, None, [1, 2]).await;
    let group = s.group(&topic, "g", once()).await;
    fail_all(&group).await;
    for to in [ReplayTo::Group, ReplayTo::Topic] {
        let answer = replay(&s, &topic, Replay { to, dry_run: true, ..Replay::default() }).await;
        assert_eq!((answer.matched, answer.replayed), (2, 2), "what would be done");
        assert!(group.take_now("m", 5).await.is_empty());
    }
    assert_eq!(replay(&s, &topic, Replay::default()).await.replayed, 2);
}

pub async fn a_replay_is_about_what_it_names(s: Stage) {
    let topic = s.topic("named", 1).await;
    let events = s.publish_numbers(&topic, None, 0..6).await;
    let (group, other) = (s.group(&topic, "g", once()).await, s.group(&topic, "other", once()).await);
    fail_all(&group).await;
    fail_all(&other).await;
    let of_group = Replay { failed_by: Some(FailedBy::Group("g".into())), ..Replay::default() };
    let ids = Some(HashSet::from([events[4].id]));
    assert_eq!(replay(&s, &topic, Replay { ids, ..of_group.clone() }).await.matched, 1, "by the original");
    assert_eq!(drain(&group, "m").await, [4]);
    let filter = Some(Filter::compile("event.payload.original.payload.n < 2").unwrap());
    assert_eq!(replay(&s, &topic, Replay { filter, ..of_group.clone() }).await.replayed, 2);
    assert_eq!(drain(&group, "m").await, [0, 1]);
    assert_eq!(replay(&s, &topic, Replay { limit: Some(2), ..of_group.clone() }).await.replayed, 2);
    assert_eq!(drain(&group, "m").await, [2, 3]);
    assert!(drain(&other, "m").await.is_empty(), "the other group was not named");
    assert_eq!(replay(&s, &topic, Replay::default()).await.replayed, 7);
    assert_eq!((drain(&group, "m").await, drain(&other, "m").await.len()), (vec![5], 6));
}

/// Letters that are refused take no room in the limit, and never more go back than it says.
pub async fn a_limit_counts_what_goes_back(s: Stage) {
    let topic = s.topic("limited", 1).await;
    s.publish_numbers(&topic, None, 0..=9).await;
    let group = s.group(&topic, "g", once()).await;
    fail_all(&group).await;
    let letters = s.letters(&topic).await;
    let ids = Some([0, 2, 4].map(|n: usize| letters[n].id).into());
    assert_eq!(replay(&s, &topic, Replay { ids, ..Replay::default() }).await.replayed, 3);
    drain(&group, "m").await;
    for (matched, replayed, skipped) in [(7, 4, 3), (10, 3, 7), (10, 0, 10)] {
        let answer = replay(&s, &topic, Replay { limit: Some(4), ..Replay::default() }).await;
        let counts = (answer.matched, answer.replayed, answer.skipped.len());
        assert_eq!(counts, (matched, replayed, skipped), "four at most, in the order of the letters");
        assert_eq!(drain(&group, "m").await.len() as u64, replayed);
    }
}

pub async fn a_letter_can_go_to_the_topic(s: Stage) {
    let topic = s.topic("everyone", 1).await;
    let id = s.publish_numbers(&topic, Some("k"), [1]).await[0].id;
    let (group, other) = (s.group(&topic, "g", once()).await, s.group(&topic, "other", once()).await);
    fail_all(&group).await;
    assert_eq!(drain(&other, "m").await, [1]);
    let letter = s.letters(&topic).await[0].id;
    assert_eq!(replay(&s, &topic, Replay { to: ReplayTo::Topic, ..Replay::default() }).await.replayed, 1);
    for group in [&group, &other] {
        let delivery = group.take_just("m", 1, 1).await;
        let event = &delivery.event;
        assert_ne!(event.id, id, "it is an event of its own");
        assert_eq!(event.key.as_deref(), Some("k"));
        let causes = event.caused_by.as_ref().unwrap().to_value().unwrap();
        assert_eq!(causes, serde_json::json!([id.to_string(), letter.to_string()]));
        let headers = event.headers.as_ref().unwrap().to_value().unwrap();
        assert_eq!(headers, serde_json::json!({"x-dlq-replays": "1"}));
        group.ack_all(&[delivery]).await;
    }
    let again = replay(&s, &topic, Replay { to: ReplayTo::Topic, ..Replay::default() }).await;
    assert_eq!((again.replayed, again.skipped.len()), (0, 1), "what was replayed is not replayed again");
}

/// What goes back says where it comes from, and is under the limits of producers with that.
pub async fn what_has_no_room_for_its_causes_stays_a_letter(s: Stage) {
    let topic = s.topic("full", 1).await;
    let [mut headers, mut whole, small] = [1, 2, 3].map(|number| append(&topic, None, number));
    let header = |bytes: usize| Json::parse(format!(r#"{{"x-a":"{}"}}"#, "a".repeat(bytes)).into()).unwrap();
    headers.event.headers = Some(header(MAX_HEADER_BYTES - header(0).len()).into());
    let left = s.hub.limits().event_bytes - whole.event.size() - r#","a":"""#.len();
    whole.event.payload = Json::parse(format!(r#"{{"n":2,"a":"{}"}}"#, "a".repeat(left)).into()).unwrap();
    s.hub.publish(vec![headers, whole, small]).await.expect("all of them are as large as may be");
    fail_all(&s.group(&topic, "g", once()).await).await;
    for dry_run in [true, false] {
        let to_topic = Replay { to: ReplayTo::Topic, dry_run, ..Replay::default() };
        let answer = replay(&s, &topic, to_topic).await;
        assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (3, 1, 2));
        for ((_, why), limit) in answer.skipped.iter().zip(["headers", "limits.event_bytes"]) {
            assert!(why.contains(limit), "{why}");
        }
    }
    assert_eq!(replay(&s, &topic, Replay::default()).await.replayed, 2, "to the group it can go as it is");
}

pub async fn letters_of_a_group_that_is_gone_are_skipped(s: Stage) {
    let topic = s.topic("gone", 1).await;
    s.publish_numbers(&topic, None, [1]).await;
    fail_all(&s.group(&topic, "g", once()).await).await;
    s.hub.groups().delete(&topic, &group_name("g")).await.unwrap();
    let answer = replay(&s, &topic, Replay::default()).await;
    assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (1, 0, 1));
    assert_eq!(replay(&s, &topic_without_letters(&s).await, Replay::default()).await, Replayed::default());
}

async fn topic_without_letters(s: &Stage) -> TopicName {
    s.topic("healthy", 1).await
}

/// An import brings ids and places along.
pub async fn letters_of_a_topic_that_was_made_anew_are_skipped(s: Stage) {
    let topic = s.topic("anew", 1).await;
    let with_id = |number: u64| {
        let mut append = append(&topic, None, number);
        append.event.id = Some(uuid::Uuid::from_u128(7));
        vec![append]
    };
    s.hub.publish(with_id(1)).await.expect("it is published");
    fail_all(&s.group(&topic, "g", once()).await).await;
    s.hub.delete_topic(&topic).await.expect("it can be deleted");
    s.topic("anew", 1).await;
    s.clock.advance(1);
    s.hub.publish(with_id(2)).await.expect("it is published");
    let group = s.group(&topic, "g", once()).await;
    assert_eq!(drain(&group, "m").await, [2]);
    let answer = replay(&s, &topic, Replay { force: true, ..Replay::default() }).await;
    assert_eq!((answer.matched, answer.replayed, answer.skipped.len()), (1, 0, 1));
    assert!(drain(&group, "m").await.is_empty(), "what was acked does not come again");
}
