//! The states of all keys.

use super::stage::*;
use prombus_core::*;
use prombus_engine::TimeTravelError;
use prombus_testkit::build::{json, moving_keys};
use std::collections::BTreeMap;

const MUCH: usize = 1 << 20;

pub async fn every_key_has_its_state(s: Stage) {
    let topic = s.topic("all", 4).await;
    assert_eq!(s.all_keys(&topic, 5, MUCH).await.unwrap(), BTreeMap::new());
    s.push(&topic, "a", &[(10, "1"), (20, "2"), (15, "3"), (30, "4")]).await;
    s.push(&topic, "b", &[(10, "1"), (20, "null")]).await;
    s.push(&topic, "c", &[(10, "null"), (25, "5")]).await;
    let event = NewEvent { ts: Some(5), ..NewEvent::new(json("\"no key\"")) };
    s.hub.publish(vec![Append::new(topic.clone(), event)]).await.unwrap();
    for (at, expected) in [
        (9, &[][..]),
        (10, &[("a", "1"), ("b", "1")]),
        (15, &[("a", "3"), ("b", "1")]),
        (20, &[("a", "3")]),
        (25, &[("a", "3"), ("c", "5")]),
        (30, &[("a", "4"), ("c", "5")]),
    ] {
        let expected = expected.iter().map(|(key, payload)| (key.to_string(), payload.to_string())).collect();
        assert_eq!(s.all_keys(&topic, at, MUCH).await.unwrap(), expected, "at {at}");
    }
}

pub async fn keys_are_found_in_as_many_rounds_as_it_takes(s: Stage) {
    let topic = s.topic("many", 2).await;
    let mut expected = BTreeMap::new();
    for round in 0..3 {
        let events = (0..1_000).map(|n| {
            let (key, payload) = (format!("key-{n}"), format!("[{n},{round}]"));
            let ts = 10 * (round + 1) + u64::from(n % 7 == 0);
            if ts <= 30 {
                expected.insert(key.clone(), payload.clone());
            }
            keyed(&topic, &key, (ts, &payload))
        });
        s.hub.publish(events.collect()).await.unwrap();
    }
    for keys_bytes in [MUCH, 20_000, 2_000] {
        assert_eq!(s.all_keys(&topic, 30, keys_bytes).await.unwrap(), expected, "within {keys_bytes}");
    }
}

/// Keys that were there when it began, and that a trim takes before they were handed out, are not left out in silence.
pub async fn what_goes_meanwhile_is_missed(s: Stage) {
    let topic = s.topic("going", 1).await;
    for round in 0..5 {
        let events = (0..1_000).map(|n| keyed(&topic, &format!("key-{round}-{n}"), (10, "1")));
        s.hub.publish(events.collect()).await.unwrap();
    }
    let mut all = s.hub.time_travel().all_at(&topic, 20).await.unwrap();
    assert!(!all.next_page().await.unwrap().unwrap().is_empty());
    s.trim_of(&topic, (0, 5_000), 0).await;
    let rest = async {
        while all.next_page().await?.is_some() {}
        Ok::<_, TimeTravelError>(())
    };
    assert!(matches!(rest.await, Err(TimeTravelError::Read(ReadError::Unavailable(_)))));
    assert_eq!(s.all_keys(&topic, 20, MUCH).await.unwrap(), BTreeMap::new());
}

pub async fn a_topic_is_not_cleaned_in_the_background_while_all_its_keys_are_read(s: Stage) {
    let compacted = TopicPatch { compaction: Some(true), ..TopicPatch::default() };
    let topics = ["read", "witness"].map(topic_name);
    for topic in &topics {
        s.hub.put_topic(topic, compacted.clone()).await.unwrap();
        for round in ["1", "2"] {
            for n in 0..20 {
                s.push(topic, &format!("key-{n}"), &[(10, round)]).await;
            }
        }
    }
    let [read, witness] = &topics;
    let is_compacted = async |topic: &TopicName| {
        let watched = Watched::Topic(topic.clone());
        let mut seen = Sequence(0);
        let wait = async {
            while !s.log.kept(&topic.into(), Partition(0)).await.unwrap().has_holes {
                seen = s.hub.changed(&watched, seen).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("it is compacted at last");
    };
    let mut all = s.hub.time_travel().all_at(read, 50).await.unwrap().within(300);
    all.begin().await.unwrap();
    for n in 0..20 {
        s.push(read, &format!("key-{n}"), &[(20, "3")]).await;
    }
    // Topics are cleaned in the order of their names.
    s.hub.cleaning().start(std::time::Duration::from_millis(1));
    is_compacted(witness).await;
    let mut found = 0;
    while let Some(page) = all.next_page().await.unwrap() {
        assert!(page.iter().all(|event| text(event.payload.clone()) == "2"));
        found += page.len();
    }
    assert_eq!(found, 20);
    // At its end it lets go of the topic.
    is_compacted(read).await;
}

pub async fn a_key_in_two_partitions_is_there_once(s: Stage) {
    let topic = s.topic("grown.all", 1).await;
    let keys: Vec<String> = moving_keys(2).take(3).collect();
    for key in &keys {
        s.push(&topic, key, &[(10, "1"), (20, "2")]).await;
    }
    s.topic("grown.all", 2).await;
    s.push(&topic, &keys[0], &[(15, "3")]).await;
    s.push(&topic, &keys[1], &[(15, "null")]).await;
    let expected = |states: &[(usize, &str)]| {
        Ok(states.iter().map(|(n, state)| (keys[*n].clone(), state.to_string())).collect())
    };
    let all = async |at| s.all_keys(&topic, at, MUCH).await.map_err(|error| error.to_string());
    assert_eq!(all(14).await, expected(&[(0, "1"), (1, "1"), (2, "1")]));
    assert_eq!(all(20).await, expected(&[(0, "3"), (2, "2")]));
    s.cleaned_up_to(&topic, (1, 1)).await;
    assert_eq!(all(20).await, expected(&[(2, "2")]), "nothing is left of a key whose last event was trimmed");
    s.trim_of(&topic, (0, 6), 20).await;
    assert_eq!(all(20).await, expected(&[]), "the trims have taken everything, but for a tombstone");
}

pub async fn what_comes_later_is_not_seen(s: Stage) {
    let topic = s.topic("seen", 2).await;
    for n in 0..20 {
        s.push(&topic, &format!("key-{n}"), &[(10, "1")]).await;
    }
    let mut all = s.hub.time_travel().all_at(&topic, 50).await.unwrap().within(300);
    all.begin().await.unwrap();
    for n in 0..40 {
        s.push(&topic, &format!("key-{n}"), &[(20, "2")]).await;
    }
    let mut found = 0;
    while let Some(page) = all.next_page().await.unwrap() {
        assert!(page.iter().all(|event| text(event.payload.clone()) == "1"));
        found += page.len();
    }
    assert_eq!(found, 20);
}

pub async fn a_time_before_the_horizon_is_gone(s: Stage) {
    let topic = s.topic("gone.all", 1).await;
    s.push(&topic, "a", &[(10, "1"), (20, "2")]).await;
    s.push(&topic, "b", &[(10, "1")]).await;
    s.discard_of(&topic, &[0], Some(20)).await;
    let refused = s.all_keys(&topic, 19, MUCH).await.unwrap_err();
    assert!(matches!(refused, TimeTravelError::Gone { horizon_ts: 20, at: 19 }), "{refused}");
    assert_eq!(s.all_keys(&topic, 20, MUCH).await.unwrap().len(), 2);
}
