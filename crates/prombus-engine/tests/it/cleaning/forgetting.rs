//! A key that is forgotten, and everybody who has to do with it.

use super::snapshots::to;
use super::stage::*;
use crate::groups::stage::{Use, drain};
use crate::projections::stage::changelog;
use prombus_core::*;
use prombus_engine::groups::{OptionsPatch, Replay, ReplayTo};
use prombus_engine::{CleanError, Reduce};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uuid::Uuid;

async fn forget(s: &Stage, topic: &TopicName, key: &str) -> u64 {
    s.hub.forget(topic, key).await.expect("a key can be forgotten")
}

/// All ways to read a key find nothing.
async fn is_unknown(s: &Stage, topic: &TopicName, key: &str, ids: &[Uuid]) {
    let all = TopicRef::from(topic);
    assert!(s.events(topic).await.iter().all(|event| event.key.as_deref() != Some(key)), "by offset");
    assert_eq!(s.hub.latest_by_key(&all, key).await.unwrap(), None, "by key");
    for id in ids {
        assert_eq!(s.hub.by_id(topic, *id).await.unwrap(), None, "by id");
    }
    let request =
        HistoryRequest { topic: all, key: key.into(), after: None, limit: 10, max_bytes: usize::MAX };
    assert_eq!(s.log.history(request).await.unwrap(), [], "its history");
    for reduce in [Reduce::Replace, Reduce::Merge] {
        let state = s.hub.time_travel().state_at(topic, key, (u64::MAX, reduce)).await;
        assert!(state.unwrap().is_none(), "its state");
    }
    let mut states = s.hub.time_travel().all_at(topic, u64::MAX).await.unwrap();
    while let Some(page) = states.next_page().await.unwrap() {
        assert!(page.iter().all(|event| event.key.as_deref() != Some(key)), "the states of all keys");
    }
}

pub async fn a_key_is_forgotten_and_nothing_else(s: Stage) {
    let topic = s.topic("forgetting", 2).await;
    let ids: Vec<Uuid> = s
        .record(&topic, &[of("a"), of("b"), of("a"), end_of("a"), of("a")])
        .await
        .iter()
        .map(|appended| appended.id)
        .collect();
    s.record(&topic, &[Draft::default()]).await;
    let before = s.kept(&topic).await;
    let others = s
        .events(&topic)
        .await
        .into_iter()
        .filter(|event| event.key.as_deref() != Some("a"))
        .collect::<Vec<_>>();
    assert_eq!(forget(&s, &topic, "a").await, 4);
    is_unknown(&s, &topic, "a", &[ids[0], ids[2], ids[3], ids[4]]).await;
    assert_eq!(s.events(&topic).await, others);
    let after = s.kept(&topic).await;
    let bytes: u64 = others.iter().map(|event| event.size() as u64).sum();
    assert_eq!(after.iter().map(|kept| kept.bytes).sum::<u64>(), bytes);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (before.bounds, 0, false),
            (after.bounds, after.horizon_ts, after.has_holes),
            "nobody else misses anything"
        );
    }
    assert_eq!(forget(&s, &topic, "a").await, 0, "it may be forgotten again");
    assert_eq!(forget(&s, &topic, "never").await, 0);
    let nowhere = topic_name("nowhere");
    let refused = s.hub.forget(&nowhere, "a").await;
    assert_eq!(refused, Err(CleanError::Read(ReadError::TopicNotFound(nowhere))));
    let again = s.record(&topic, &[of("a")]).await[0];
    let latest = s.hub.latest_by_key(&(&topic).into(), "a").await.unwrap().unwrap();
    assert_eq!(latest.id, again.id, "it may be published again");
    if s.is_durable() {
        let s = s.restart().await;
        assert_eq!(s.hub.latest_by_key(&(&topic).into(), "a").await.unwrap().unwrap().id, again.id);
        assert_eq!(forget(&s, &topic, "a").await, 1);
        let s = s.restart().await;
        is_unknown(&s, &topic, "a", &[again.id]).await;
        assert_eq!(s.events(&topic).await, others);
    }
}

pub async fn a_key_with_many_events_goes_in_several_commits(s: Stage) {
    let s = s.remembering(400).await;
    let topic = s.topic("many", 1).await;
    for _ in 0..50 {
        s.record(&topic, &[of("k"); 100]).await;
        s.record(&topic, &[of("other")]).await;
    }
    assert_eq!(forget(&s, &topic, "k").await, 5_000);
    is_unknown(&s, &topic, "k", &[]).await;
    assert_eq!(s.events(&topic).await.len(), 50);
}

pub async fn an_id_of_a_forgotten_event_is_recognised(s: Stage) {
    let topic = s.topic("known", 1).await;
    let event = |payload: &str| {
        let payload = Json::parse(payload.to_owned().into()).unwrap();
        let event =
            NewEvent { id: Some(Uuid::from_u128(7)), key: Some("k".into()), ..NewEvent::new(payload) };
        vec![Append::new(topic.clone(), event)]
    };
    s.hub.publish(event("1")).await.unwrap();
    forget(&s, &topic, "k").await;
    let again = s.hub.publish(event("1")).await.unwrap().events[0];
    assert_eq!((again.duplicate, again.offset), (true, Offset(0)));
    s.hub.publish(event("2")).await.expect_err("another event has that id");
    is_unknown(&s, &topic, "k", &[Uuid::from_u128(7)]).await;
}

pub async fn a_group_in_the_middle_gets_nothing_of_it(s: Stage) {
    let topic = s.topic("grouped", 1).await;
    let mut numbers = 0..;
    for _ in 0..5 {
        s.publish_numbers(&topic, Some("k"), numbers.by_ref().take(1)).await;
        s.publish_numbers(&topic, Some("other"), numbers.by_ref().take(1)).await;
    }
    let options = OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", options).await;
    // One of each key is out, and the others were read ahead.
    let out = group.take("m", 2).await;
    assert_eq!(out.len(), 2);
    assert_eq!(forget(&s, &topic, "k").await, 5);
    let held = out.iter().find(|delivery| delivery.event.key.as_deref() == Some("k")).unwrap();
    assert!(group.nack(held.lease, None).await, "what somebody has can be settled");
    assert!(s.letters(&topic).await.is_empty(), "but not be kept");
    let other = out.iter().find(|delivery| delivery.event.key.as_deref() == Some("other")).unwrap();
    assert!(group.ack(other.lease).await);
    assert_eq!(drain(&group, "m").await, [3, 5, 7, 9], "only of the other key");
}

pub async fn dead_letters_are_forgotten_too(s: Stage) {
    let topic = s.topic("failed", 1).await;
    s.publish_numbers(&topic, Some("k"), [1]).await;
    s.publish_numbers(&topic, Some("other"), [2]).await;
    let options = OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", options).await;
    for _ in 0..2 {
        let lease = group.take_one("m").await.lease;
        assert!(group.nack(lease, None).await);
    }
    assert_eq!(s.letters(&topic).await.len(), 2);
    assert_eq!(forget(&s, &topic, "k").await, 1, "letters are not counted");
    let letters = s.letters(&topic).await;
    assert_eq!(letters.iter().map(|letter| letter.key.as_deref()).collect::<Vec<_>>(), [Some("other")]);
    let replay = Replay {
        to: ReplayTo::Topic,
        ids: None,
        failed_by: None,
        filter: None,
        limit: None,
        dry_run: false,
        force: false,
        hides_events: false,
    };
    assert_eq!(s.hub.replay(&topic, replay).await.unwrap().replayed, 1);
    is_unknown(&s, &topic, "k", &[]).await;
}

/// A group has read the event for a dead letter, and commits that after the key was forgotten.
pub async fn a_dead_letter_under_way_does_not_bring_it_back(s: Stage) {
    let topic = s.topic("dying", 1).await;
    s.publish_numbers(&topic, Some("k"), [1]).await;
    let options = OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", options).await;
    let lease = group.take_one("m").await.lease;
    s.log.hold(|commit| commit.events.iter().any(|append| append.topic.as_str().starts_with("dlq.")));
    let mut nacked = pin!(group.nack(lease, None));
    let mut forgotten = pin!(s.hub.forget(&topic, "k"));
    tokio::select! {
        _ = &mut nacked => panic!("its letter is held"),
        () = s.log.until_held(1) => {}
    }
    tokio::select! {
        biased;
        _ = &mut forgotten => panic!("nobody says that it is forgotten while its letter may come"),
        () = until_gone(&s, &topic) => {}
    }
    s.log.release();
    let (nacked, forgotten) = tokio::join!(nacked, forgotten);
    assert_eq!((nacked, forgotten), (true, Ok(1)));
    assert!(s.letters(&topic).await.is_empty());
}

/// The letter is still there when somebody wants it back in the topic, where the key was forgotten already.
pub async fn a_replay_meanwhile_does_not_bring_it_back(s: Stage) {
    let topic = s.topic("again", 1).await;
    s.publish_numbers(&topic, Some("k"), [1]).await;
    let options = OptionsPatch { max_attempts: Some(1), ..OptionsPatch::default() };
    let group = s.group(&topic, "g", options).await;
    let lease = group.take_one("m").await.lease;
    assert!(group.nack(lease, None).await);
    s.log.hold(forgets_letters);
    let mut forgotten = pin!(s.hub.forget(&topic, "k"));
    tokio::select! {
        _ = &mut forgotten => panic!("its letter is held"),
        () = s.log.until_held(1) => {}
    }
    let replay = Replay { to: ReplayTo::Topic, ..Replay::default() };
    let mut replayed = pin!(s.hub.replay(&topic, replay));
    tokio::select! {
        biased;
        _ = &mut replayed => {}
        () = until_gone(&s, &topic) => {}
    }
    assert!(s.events(&topic).await.is_empty());
    s.log.release();
    assert_eq!(forgotten.await, Ok(1));
    is_unknown(&s, &topic, "k", &[]).await;
}

fn forgets_letters(commit: &Commit) -> bool {
    let letters = |change: &ConfigChange| matches!(change, ConfigChange::Forget { topic, .. } if topic.name.as_str().starts_with("dlq."));
    commit.config.iter().any(letters)
}

async fn until_gone(s: &Stage, topic: &TopicName) {
    while !s.events(topic).await.is_empty() {
        tokio::task::yield_now().await;
    }
    // A while longer, for whoever does not wait for the letter.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

pub async fn its_documents_are_deleted_and_that_is_told(s: Stage) {
    let topic = s.topic("t", 2).await;
    let mut definition = changelog("t", "docs");
    definition["changefeed"] = json!("docs.changed");
    s.put("p", definition).await;
    s.publish(&topic, [("a", json!({"v": 1})), ("b", json!({"v": 2})), ("a", json!({"v": 3}))]).await;
    s.caught_up("p").await;
    assert_eq!(forget(&s, &topic, "a").await, 2);
    assert_eq!((s.document("docs", "a").await, s.field("docs", "b", "v").await), (None, json!(2)));
    let told = s.events(&topic_name("docs.changed")).await;
    let last = told.iter().rfind(|event| event.key.as_deref() == Some("a")).unwrap();
    assert!(last.payload.is_null(), "as for a tombstone");
    let count = told.len();
    assert_eq!(forget(&s, &topic, "a").await, 0);
    assert_eq!(s.events(&topic_name("docs.changed")).await.len(), count, "once");
    s.publish(&topic, [("a", json!({"v": 4}))]).await;
    s.caught_up("p").await;
    assert_eq!(s.field("docs", "a", "v").await, json!(4), "a new life is a new document");
    s.rebuilt("p").await;
    assert_eq!((s.field("docs", "a", "v").await, s.field("docs", "b", "v").await), (json!(4), json!(2)));
}

/// A projection has read events and commits what it made of them when the key was forgotten.
pub async fn a_projection_in_the_middle_does_not_bring_it_back(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "docs")).await;
    s.log.hold(|commit| commit.documents.iter().any(|write| &*write.collection == "docs"));
    s.publish(&topic, [("a", json!({"v": 1})), ("b", json!({"v": 2}))]).await;
    s.log.until_held(1).await;
    // So much that it is read at once, and applied in several batches.
    let large = json!({"v": "x".repeat(800_000)});
    for _ in 0..12 {
        s.publish(&topic, [("a", large.clone())]).await;
    }
    let mut forgotten = pin!(s.hub.forget(&topic, "a"));
    for _ in 0..1_000 {
        tokio::select! {
            biased;
            _ = &mut forgotten => panic!("it waits for what is under way"),
            () = tokio::task::yield_now() => {}
        }
    }
    s.log.release();
    assert_eq!(forgotten.await, Ok(13));
    s.caught_up("p").await;
    assert_eq!((s.document("docs", "a").await, s.field("docs", "b", "v").await), (None, json!(2)));
}

pub async fn a_rebuild_in_the_middle_does_not_bring_it_back(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", changelog("t", "docs")).await;
    let all: Vec<String> = (0..3_000).map(|n| format!("k{n}")).collect();
    s.publish(&topic, all.iter().map(|key| (key.as_str(), json!({"v": 1})))).await;
    s.publish(&topic, [("k7", json!({"v": 2}))]).await;
    s.caught_up("p").await;
    s.log.hold(|commit| commit.documents.iter().any(|write| write.collection.ends_with("~rebuild")));
    s.hub.projections().rebuild("p", false).await.expect("it can be begun");
    s.log.until_held(1).await;
    let (forgotten, ()) = tokio::join!(s.hub.forget(&topic, "k7"), async {
        tokio::task::yield_now().await;
        s.log.release();
    });
    assert_eq!(forgotten, Ok(2));
    assert_eq!(s.document("docs", "k7").await, None);
    let status = s.until("p", "the rebuild ends", |status| status.rebuild.is_none()).await;
    assert_eq!((status.rebuild_error, s.all("docs").await.len()), (None, 2_999));
    assert_eq!(s.document("docs", "k7").await, None);
}

pub async fn it_goes_from_its_snapshots_too(s: Stage) {
    let (topic, snapshots) = (s.topic("t", 1).await, s.topic("t.snapshots", 1).await);
    let snapshot = SnapshotConfig { topic: snapshots.clone(), every_ms: 3_600_000 };
    s.set(&topic, TopicPatch { snapshot: Some(Some(snapshot)), ..TopicPatch::default() }).await;
    s.record(&topic, &[of("a"), of("b")]).await;
    s.record(&snapshots, &[of("a"), of("b")]).await;
    assert_eq!(forget(&s, &topic, "a").await, 1);
    is_unknown(&s, &snapshots, "a", &[]).await;
    assert_eq!(s.events(&snapshots).await.len(), 1);
}

/// Snapshots may have gone elsewhere before, or nowhere any more.
pub async fn it_goes_from_former_snapshots_too(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.record(&topic, &[of("a"), of("b")]).await;
    for target in ["one", "two"] {
        s.set(&topic, to(target)).await;
        assert_eq!(s.snapshot(&topic).await, 2);
    }
    let other = s.topic("other", 1).await;
    s.record(&other, &[of("a")]).await;
    s.set(&topic, TopicPatch { snapshot: Some(None), ..TopicPatch::default() }).await;
    assert_eq!(forget(&s, &topic, "a").await, 1);
    for target in ["one", "two"] {
        is_unknown(&s, &topic_name(target), "a", &[]).await;
        assert_eq!(s.records(target).await.len(), 1, "the record of another key stays");
    }
    assert_eq!(s.events(&other).await.len(), 1, "what the hub has not put there stays");
}

/// The record of the key is about to be committed, after others of the same pass.
pub async fn a_snapshot_pass_in_the_middle_does_not_bring_it_back(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("before"), of("secret")]).await;
    s.snapshot(&topic).await;
    let large = Json::parse(format!("\"{}\"", "x".repeat(700_000)).into()).unwrap();
    for key in ["one", "two", "three", "secret", "four"] {
        let event = NewEvent { key: Some(key.into()), ..NewEvent::new(large.clone()) };
        s.hub.publish(vec![Append::new(topic.clone(), event)]).await.unwrap();
    }
    s.log.hold(|commit| commit.events.iter().any(|append| append.event.key.as_deref() == Some("secret")));
    let (hub, name) = (s.hub.clone(), topic.clone());
    let pass = tokio::spawn(async move { hub.cleaning().snapshot(&name).await });
    s.log.until_held(1).await;
    assert!(s.records("t.snapshot").await.len() > 2, "some of the pass is there already");
    let hub = s.hub.clone();
    let mut forgotten = pin!(hub.forget(&topic, "secret"));
    for _ in 0..100 {
        tokio::select! {
            biased;
            _ = &mut forgotten => panic!("its record may still come"),
            () = tokio::task::yield_now() => {}
        }
    }
    s.log.release();
    assert_eq!(forgotten.await, Ok(2));
    pass.await.unwrap().unwrap();
    is_unknown(&s, &topic, "secret", &[]).await;
    is_unknown(&s, &topic_name("t.snapshot"), "secret", &[]).await;
    s.snapshot(&topic).await;
    let s = if s.is_durable() { s.restart().await } else { s };
    let mut keys: Vec<String> = s.records("t.snapshot").await.into_iter().map(|record| record.key).collect();
    keys.sort();
    assert_eq!(keys, ["before", "four", "one", "three", "two"]);
}

/// The pass has seen that the key has changed, and not yet read again what it is to publish.
pub async fn a_snapshot_pass_that_has_seen_it_does_not_bring_it_back(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    for _ in 0..2 {
        s.record(&topic, &[of("kept"), of("secret")]).await;
        if s.records("t.snapshot").await.is_empty() {
            s.snapshot(&topic).await;
        }
    }
    // Whoever forgets has the turn at the topic, which the pass needs to publish and not to look.
    s.log.hold(|commit| commit.config.iter().any(|change| matches!(change, ConfigChange::Discard { .. })));
    let (hub, name) = (s.hub.clone(), topic.clone());
    let forgotten = tokio::spawn(async move { hub.forget(&name, "secret").await });
    s.log.until_held(1).await;
    s.looked_at();
    let (hub, name) = (s.hub.clone(), topic.clone());
    let pass = tokio::spawn(async move { hub.cleaning().snapshot(&name).await });
    let has_seen = async {
        while s.log.paged.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, has_seen).await.expect("the pass looks at what is new");
    s.log.release();
    assert_eq!(forgotten.await.unwrap(), Ok(2));
    pass.await.unwrap().unwrap();
    is_unknown(&s, &topic_name("t.snapshot"), "secret", &[]).await;
    let records = s.records("t.snapshot").await;
    assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(s.snapshot(&topic).await, 0, "the next pass finds nothing");
}

pub async fn a_full_disk_does_not_keep_a_key(s: Stage) {
    let topic = s.topic("full", 1).await;
    s.put("p", changelog("full", "docs")).await;
    s.record(&topic, &[of("a"), of("b")]).await;
    s.caught_up("p").await;
    s.refuse(|commit| !commit.only_removes(), usize::MAX, CommitError::NoRoom);
    let refused = s.hub.forget(&topic, "a").await;
    assert_eq!(refused, Err(CleanError::Bus(CommitError::NoRoom.into())), "its document is still there");
    is_unknown(&s, &topic, "a", &[]).await;
    s.refuse(|_| true, 0, CommitError::NoRoom);
    assert_eq!(forget(&s, &topic, "a").await, 0);
    assert_eq!(s.document("docs", "a").await, None);
}

pub async fn no_read_shows_an_event_after_it_was_forgotten(s: Stage) {
    let topic = s.topic("hammered", 2).await;
    let s = Arc::new(s);
    for round in 0..10 {
        let key = format!("k{round}");
        let ids: Vec<Uuid> =
            s.record(&topic, &[of(&key), of("other"), of(&key)]).await.iter().map(|event| event.id).collect();
        let group = s.group(&topic, &format!("g{round}"), OptionsPatch::default()).await;
        let forgotten = Arc::new(AtomicBool::new(false));
        let readers = (0..3).map(|kind| {
            let (s, topic, key, id) = (s.clone(), topic.clone(), key.clone(), ids[0]);
            let (group, forgotten) = (group.clone(), forgotten.clone());
            tokio::spawn(async move {
                loop {
                    // Readers that are always ready would keep the worker threads from whoever forgets.
                    tokio::task::yield_now().await;
                    let is_over = forgotten.load(Ordering::SeqCst);
                    let shown = match kind {
                        0 => s.events(&topic).await.iter().any(|event| event.key.as_deref() == Some(&key)),
                        1 => {
                            s.hub.by_id(&topic, id).await.unwrap().is_some()
                                || s.hub.latest_by_key(&(&topic).into(), &key).await.unwrap().is_some()
                        }
                        _ => group
                            .take_now("m", 1)
                            .await
                            .iter()
                            .any(|out| out.event.key.as_deref() == Some(&key)),
                    };
                    assert!(!shown || !is_over, "reader {kind}: it is shown after it was forgotten");
                    if is_over {
                        return;
                    }
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        // For no condition: so that it meets the readers at another moment in each round.
        tokio::time::sleep(Duration::from_millis(round)).await;
        assert_eq!(forget(&s, &topic, &key).await, 2);
        forgotten.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.await.expect("no read shows it");
        }
    }
}

pub async fn forgets_and_passes_take_turns(s: Stage) {
    let topic = s.topic_with("turns", compacted()).await;
    s.record(&topic, &[of("a"), of("a"), of("b"), of("b"), of("a")]).await;
    let cleaning = s.hub.cleaning();
    let (cleaned, forgotten, again) =
        tokio::join!(cleaning.clean(&topic), s.hub.forget(&topic, "a"), s.hub.forget(&topic, "a"));
    let went = cleaned.unwrap().events + forgotten.unwrap() + again.unwrap();
    assert_eq!((went, s.clean(&topic).await.events), (4, 0));
    let left = s.events(&topic).await;
    assert_eq!(left.iter().map(|event| event.offset.0).collect::<Vec<_>>(), [3]);
    assert_eq!(s.kept(&topic).await[0].bytes, left[0].size() as u64, "nothing is counted twice");
}
