//! Snapshot topics: which records there are, in which order, and how far they go.

use super::stage::*;
use crate::support::switch::{Look, Refusal};
use prombus_core::*;
use prombus_engine::{BusError, CleanError, SnapshotStatus};
use std::sync::Arc;
use std::time::Duration;

/// A record of a snapshot topic.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub key: String,
    pub payload: serde_json::Value,
    pub ts: u64,
    pub partition: u32,
    pub offset: u64,
    pub max_ts: u64,
}

impl Record {
    pub fn place(&self) -> (u32, u64) {
        (self.partition, self.offset)
    }
}

pub fn to(target: &str) -> TopicPatch {
    let snapshot = SnapshotConfig { topic: topic_name(target), every_ms: 1 };
    TopicPatch { snapshot: Some(Some(snapshot)), ..TopicPatch::default() }
}

impl Stage {
    pub async fn snapshot(&self, topic: &TopicName) -> u64 {
        self.hub.cleaning().snapshot(topic).await.expect("snapshots can be published")
    }

    pub async fn records(&self, target: &str) -> Vec<Record> {
        let events = self.events(&topic_name(target)).await;
        let record = |event: &Event| -> Record {
            let record: Record = serde_json::from_slice(event.payload.as_bytes()).expect("a record");
            assert_eq!(event.key.as_deref(), Some(record.key.as_str()));
            record
        };
        events.iter().map(record).collect()
    }

    pub async fn snapshots_of(&self, topic: &TopicName) -> SnapshotStatus {
        let state = self.hub.topic(topic).await.expect("topics can be read").expect("it is there");
        let kept = self.hub.kept(&state).await.expect("what is kept can be told");
        self.hub.snapshots(&state, &kept).await.expect("it can be told").expect("it has snapshots")
    }

    async fn through(&self, topic: &TopicName) -> Vec<u64> {
        self.snapshots_of(topic).await.through.iter().map(|next| next.0).collect()
    }
}

fn places(records: &[Record]) -> Vec<(&str, u64)> {
    records.iter().map(|record| (record.key.as_str(), record.offset)).collect()
}

pub async fn keys_that_have_changed_are_published(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (0, vec![0]));
    s.record(&topic, &[of("a"), Draft::default(), of("b"), of("a"), end_of("c")]).await;
    assert_eq!(s.snapshot(&topic).await, 3);
    let records = s.records("t.snapshot").await;
    assert_eq!(places(&records), [("b", 2), ("a", 3), ("c", 4)]);
    assert_eq!(records[0].payload, serde_json::json!({"some": "payload"}));
    assert_eq!(records[2].payload, serde_json::Value::Null, "one that has ended");
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (1, vec![5]));
    s.record(&topic, &[of("b")]).await;
    s.looked_at();
    assert_eq!(s.snapshot(&topic).await, 1);
    assert_eq!(s.looked_at(), (2, 1), "what is new is read twice, and its last record is looked up");
    assert_eq!(places(&s.records("t.snapshot").await)[3..], [("b", 5)]);
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (2, vec![6]));
    assert_eq!(s.snapshot(&topic).await, 0);
    assert_eq!(s.snapshots_of(&topic).await.pass, 2, "a pass that finds nothing is none");
}

pub async fn the_snapshot_topic_is_made_and_compacted(s: Stage) {
    let topic = s.topic_with("t", TopicPatch { partitions: Some(3), ..to("t.snapshot") }).await;
    let made = s.hub.topic(&topic_name("t.snapshot")).await.unwrap().expect("it was made with the setting");
    assert_eq!((made.config.compaction, made.config.partitions), (true, 3));
    for _ in 0..3 {
        s.record(&topic, &[of("a")]).await;
        s.snapshot(&topic).await;
    }
    s.clean(&made.name).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("a", 2)]);
    let own = s.topic_with("own", TopicPatch { partitions: Some(2), ..TopicPatch::default() }).await;
    s.topic_with("u", to("own")).await;
    assert!(
        !s.hub.topic(&own).await.unwrap().unwrap().config.compaction,
        "one that was there says otherwise"
    );
}

pub async fn a_tombstone_stays_until_it_has_a_record(s: Stage) {
    let settings =
        TopicPatch { compaction: Some(true), tombstone_retention_ms: Some(10), ..to("t.snapshot") };
    let topic = s.topic_with("t", settings).await;
    // The first pass has not been there when the first key ends.
    for key in ["a", "b"] {
        s.record(&topic, &[of(key), end_of(key)]).await;
        s.clock.advance(20);
        s.clean(&topic).await;
        let end = s.through(&topic).await[0] + 2;
        assert_eq!(s.offsets(&topic).await, [end - 2, end - 1]);
        assert_eq!(s.snapshot(&topic).await, 1);
        let ended = s.records("t.snapshot").await.pop().expect("a record");
        assert_eq!((ended.place(), ended.payload), ((0, end - 1), serde_json::Value::Null));
        s.clean(&topic).await;
        assert_eq!((s.offsets(&topic).await, s.through(&topic).await), (vec![], vec![end]));
    }
}

pub async fn a_superseded_event_stays_until_its_time_is_recorded(s: Stage) {
    let topic = s.topic_with("t", TopicPatch { compaction: Some(true), ..to("t.snapshot") }).await;
    s.snapshot(&topic).await;
    let at = |ts| Draft { ts: Some(ts), ..of("a") };
    s.record(&topic, &[at(50), at(10)]).await;
    s.clean(&topic).await;
    assert_eq!(s.offsets(&topic).await, [0, 1]);
    s.snapshot(&topic).await;
    assert_eq!(s.records("t.snapshot").await.last().map(|record| record.max_ts), Some(50));
    s.clean(&topic).await;
    assert_eq!(s.offsets(&topic).await, [1]);
}

pub async fn the_greatest_time_of_a_key_is_kept_through_passes(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let at = |ts| Draft { ts: Some(ts), ..of("a") };
    s.record(&topic, &[at(50), at(10)]).await;
    s.snapshot(&topic).await;
    s.record(&topic, &[at(20)]).await;
    s.snapshot(&topic).await;
    s.record(&topic, &[at(70), at(60)]).await;
    s.snapshot(&topic).await;
    let times = |record: &Record| (record.ts, record.max_ts);
    let told: Vec<_> = s.records("t.snapshot").await.iter().map(times).collect();
    assert_eq!(told, [(10, 50), (20, 50), (60, 70)]);
}

pub async fn the_greatest_time_survives_a_pass_that_was_cut_off(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let large = |key: &str, ts| {
        let payload = Json::parse(format!("\"{}\"", "x".repeat(700_000)).into()).unwrap();
        let event = NewEvent { ts: Some(ts), key: Some(key.into()), ..NewEvent::new(payload) };
        Append::new(topic.clone(), event)
    };
    s.record(&topic, &[Draft { ts: Some(90), ..of("a") }]).await;
    for key in ["b", "c", "d"] {
        s.hub.publish(vec![large(key, 1)]).await.unwrap();
    }
    s.record(&topic, &[Draft { ts: Some(5), ..of("a") }]).await;
    let error = CommitError::Unavailable("the test says so".into());
    let which = |commit: &Commit| !commit.events.is_empty();
    s.log.refuse(Refusal { which, after: 1, times: 1, error, happens: false });
    assert!(s.hub.cleaning().snapshot(&topic).await.is_err());
    assert!(!s.records("t.snapshot").await.is_empty(), "some of it is there");
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (0, vec![0]));
    let s = if s.is_durable() { s.restart().await } else { s };
    s.snapshot(&topic).await;
    let records = s.records("t.snapshot").await;
    assert_eq!(places(&records), [("b", 1), ("c", 2), ("d", 3), ("a", 4)], "each once");
    assert_eq!(records[3].max_ts, 90);
}

pub async fn few_keys_are_remembered_and_none_is_missed(s: Stage) {
    let s = s.remembering(8).await;
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{}", n % 10)).collect();
    for key in &keys {
        s.record(&topic, &[of(key)]).await;
    }
    s.snapshot(&topic).await;
    let records = s.records("t.snapshot").await;
    for n in 0..10 {
        let of_key: Vec<u64> = records
            .iter()
            .filter(|record| record.key == format!("k{n}"))
            .map(|record| record.offset)
            .collect();
        assert!(of_key.is_sorted() && of_key.last() == Some(&(30 + n)), "{of_key:?}");
    }
}

pub async fn a_key_is_followed_as_its_topic_grows(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let drafts: Vec<Draft<'_>> = keys.iter().map(|key| of(key)).collect();
    for partitions in [1, 3, 7] {
        s.set(&topic, TopicPatch { partitions: Some(partitions), ..TopicPatch::default() }).await;
        s.record(&topic, &drafts).await;
        s.record(&topic, &drafts).await;
        if partitions > 1 {
            s.snapshot(&topic).await;
        }
    }
    assert_eq!(s.through(&topic).await.len(), 7);
    let records = s.records("t.snapshot").await;
    for key in &keys {
        let of_key: Vec<(u32, u64)> =
            records.iter().filter(|record| record.key == *key).map(Record::place).collect();
        let last = s.hub.latest_by_key(&(&topic).into(), key).await.unwrap().unwrap();
        assert!(of_key.is_sorted() && of_key.len() == 2, "one of each pass: {of_key:?}");
        assert_eq!(of_key.last(), Some(&(last.partition.0, last.offset.0)));
    }
}

pub async fn what_is_made_again_begins_anew(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let target = topic_name("t.snapshot");
    s.record(&topic, &[of("a"), of("b")]).await;
    s.snapshot(&topic).await;
    let first = s.snapshots_of(&topic).await;
    s.hub.delete_topic(&target).await.unwrap();
    assert_eq!(
        (s.snapshots_of(&topic).await.pass, s.through(&topic).await),
        (0, vec![0]),
        "nothing is there"
    );
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("a", 0), ("b", 1)]);
    let second = s.snapshots_of(&topic).await;
    assert!(second.since > first.since && second.pass == 1, "{first:?} {second:?}");
    s.hub.delete_topic(&topic).await.unwrap();
    s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("b")]).await;
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (0, vec![0]));
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("b", 0)], "what was of the other one is gone");
    s.set(&topic, to("elsewhere")).await;
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("elsewhere").await), [("b", 0)]);
    s.record(&topic, &[of("c")]).await;
    s.set(&topic, to("t.snapshot")).await;
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("b", 0), ("c", 1)]);
}

pub async fn the_setting_can_be_taken_back_and_given_again(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("a")]).await;
    s.snapshot(&topic).await;
    s.set(&topic, TopicPatch { snapshot: Some(None), ..TopicPatch::default() }).await;
    s.record(&topic, &[of("b")]).await;
    assert_eq!(s.snapshot(&topic).await, 0);
    s.set(&topic, to("t.snapshot")).await;
    assert_eq!((s.snapshots_of(&topic).await.pass, s.through(&topic).await), (1, vec![1]));
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("a", 0), ("b", 1)]);
}

pub async fn circles_and_topics_of_others_are_refused(s: Stage) {
    s.topic_with("t", to("t.snapshot")).await;
    let full = s.topic_with("full", TopicPatch::default()).await;
    s.record(&full, &[of("a")]).await;
    for (topic, target) in [
        ("t", "t"),
        ("t.snapshot", "u"),
        ("u", "t"),
        ("u", "t.snapshot"),
        ("u", "full"),
        ("u", "dlq.u"),
        ("u", "system.u"),
    ] {
        let refused = s.hub.put_topic(&topic_name(topic), to(target)).await;
        assert!(matches!(refused, Err(BusError::BadConfig(_))), "{topic} to {target}: {refused:?}");
    }
    assert!(s.hub.topic(&topic_name("u")).await.unwrap().is_none());
    assert_eq!(s.offsets(&full).await, [0]);
}

/// A setting that was made around the hub, or that was right when it was made.
pub async fn events_of_others_are_never_taken_for_snapshots(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    let target = topic_name("t.snapshot");
    s.record(&target, &[of("mine")]).await;
    let refused = s.hub.cleaning().snapshot(&topic).await;
    assert!(matches!(refused, Err(CleanError::NoSnapshots(_))), "{refused:?}");
    assert_eq!(s.offsets(&target).await, [0]);
}

pub async fn what_retention_has_taken_is_not_invented(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("a"), of("b"), of("a")]).await;
    s.hub.cleaning().trim(&topic, Partition(0), Offset(2)).await.unwrap();
    assert_eq!(s.through(&topic).await, [2]);
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("a", 2)]);
    s.record(&topic, &[of("b"), of("a")]).await;
    s.hub.cleaning().trim(&topic, Partition(0), Offset(5)).await.unwrap();
    s.snapshot(&topic).await;
    assert_eq!(places(&s.records("t.snapshot").await), [("a", 2)]);
    assert_eq!(s.through(&topic).await, [5]);
}

/// As another hub does that thinks that the topic is its own.
pub async fn what_is_given_up_while_it_is_published_is_not_published(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("kept"), of("secret")]).await;
    s.log.hold(|commit| !commit.events.is_empty());
    let (hub, name) = (s.hub.clone(), topic.clone());
    let pass = tokio::spawn(async move { hub.cleaning().snapshot(&name).await });
    s.log.until_held(1).await;
    let state = s.hub.topic(&topic).await.unwrap().unwrap();
    let key = CursorKey { topic: topic.clone(), reader: "cleaner".into(), partition: Partition(0) };
    let cursor = s.log.cursor(&key).await.unwrap();
    let (version, epoch) = cursor.map_or((0, Epoch(1)), |cursor| (cursor.version, cursor.epoch));
    let to = CursorTarget { next: Offset(0), detail: bytes::Bytes::new() };
    let (incarnation, to) = (Some(state.number), Some(to));
    let step = CursorMove { key, incarnation, expect_version: version, epoch, to };
    let offsets = Arc::new([Offset(1)].into_iter().collect());
    let loss = Loss::default();
    let gone = ConfigChange::Discard { topic: state.pinned(), partition: Partition(0), offsets, loss };
    let commit = Commit { config: vec![gone], cursors: vec![step], ..Commit::default() };
    s.log.commit(Arc::new(commit)).await.unwrap();
    s.log.release();
    assert_eq!(pass.await.unwrap(), Ok(1));
    assert_eq!(places(&s.records("t.snapshot").await), [("kept", 0)]);
}

pub async fn trims_wait_for_records_that_are_under_way(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("a")]).await;
    s.log.hold(|commit| !commit.events.is_empty());
    let (hub, name) = (s.hub.clone(), topic.clone());
    let pass = tokio::spawn(async move { hub.cleaning().snapshot(&name).await });
    s.log.until_held(1).await;
    let trim = s.hub.cleaning().trim(&topic, Partition(0), Offset(1));
    tokio::pin!(trim);
    for _ in 0..100 {
        tokio::select! {
            biased;
            trimmed = &mut trim => panic!("a record of it is under way: {trimmed:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    s.log.release();
    assert_eq!(pass.await.unwrap(), Ok(1));
    assert_eq!(trim.await.unwrap().bounds.first, Offset(1));
}

pub async fn snapshots_are_published_by_themselves(s: Stage) {
    let topic = s.topic_with("t", to("t.snapshot")).await;
    s.record(&topic, &[of("a")]).await;
    s.hub.cleaning().start(Duration::from_secs(1_000_000));
    let mut seen = Sequence(0);
    let watched = Watched::Topic(topic_name("t.snapshot"));
    let until = async |s: &Stage, seen: &mut Sequence, count: usize| {
        while s.records("t.snapshot").await.len() < count {
            *seen = s.hub.changed(&watched, *seen).await;
        }
    };
    let wait = async {
        until(&s, &mut seen, 1).await;
        s.record(&topic, &[of("b")]).await;
        until(&s, &mut seen, 2).await;
        let late = s.topic_with("late", to("late.snapshot")).await;
        s.record(&late, &[of("c")]).await;
        while s.records("late.snapshot").await.is_empty() {
            s.hub.changed(&Watched::Topic(topic_name("late.snapshot")), Sequence(0)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("passes go on");
    // Nobody who reads is in the way of the end.
    s.log.hold_looks(Look::Horizon);
    s.hub.close().await;
}
