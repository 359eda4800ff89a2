//! What a store gives to an event: its offset, id and times; and what the receipt says of it.

use crate::Subject;
use crate::build::{event, numbered, partitions, producer_id};
use crate::subject::{assert_is, must};
use prombus_core::{Bounds, Durability, Offset, Partition, TopicConfig};
use uuid::{Uuid, Variant};

/// Offsets start at 0 in each partition and continue where it ends, without gaps.
pub async fn offsets_continue_without_gaps(s: Subject) {
    let topic = s.create("offsets", partitions(3)).await;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ends = [0u64; 3];
    for n in 0..40 {
        let batch: Vec<u32> = (0..rng.usize(1..6)).map(|_| rng.u32(0..3)).collect();
        let drafts = batch.iter().map(|partition| numbered(n).in_partition(*partition));
        let receipt = s.published(&topic, drafts).await;
        assert_eq!(receipt.len(), batch.len(), "a receipt has one entry for each event");
        for (partition, appended) in batch.iter().zip(&receipt) {
            let end = &mut ends[*partition as usize];
            let place = (appended.partition, appended.offset);
            assert_eq!(place, (Partition(*partition), Offset(*end)), "offsets continue without gaps");
            *end += 1;
        }
    }
    for (partition, end) in (0..).zip(ends) {
        let offsets: Vec<u64> = s.all(&topic, partition).await.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, (0..end).collect::<Vec<_>>(), "a partition holds every offset once, in order");
        let bounds = s.bounds(&topic, partition).await;
        assert_eq!(bounds, Bounds { first: Offset(0), next: Offset(end) }, "bounds are what was written");
    }
}

/// A commit that was refused takes no offsets.
pub async fn a_refused_commit_takes_no_offsets(s: Subject) {
    let topic = s.create("refused", partitions(1)).await;
    s.published(&topic, [event("1").id(producer_id(1))]).await;
    s.refused(&topic, [event("2"), event("3"), event("4").id(producer_id(1))]).await;
    let appended = s.published_one(&topic, event("5")).await;
    assert_eq!(appended.offset, Offset(1), "a refused commit leaves no gap");
    s.assert_holds(&topic, 0, &["1", "5"]).await;
}

/// Ids that the store makes are UUIDv7, unique, and grow within a partition: from commit to commit and within one.
pub async fn made_ids_are_v7_and_grow(s: Subject) {
    let topic = s.create("ids", partitions(2)).await;
    let mut last = [Uuid::nil(); 2];
    for n in 0..30 {
        let drafts = (0..8).map(|i| numbered(n).in_partition(i % 2));
        for appended in s.published(&topic, drafts).await {
            let id = appended.id;
            assert_eq!((id.get_version_num(), id.get_variant()), (7, Variant::RFC4122), "{id} is a UUIDv7");
            let last = &mut last[appended.partition.0 as usize];
            assert!(id > *last, "ids that the store makes grow within a partition: {id} after {last}");
            *last = id;
        }
    }
    let mut ids: Vec<Uuid> = s.all(&topic, 0).await.iter().map(|event| event.id).collect();
    ids.extend(s.all(&topic, 1).await.iter().map(|event| event.id));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 240, "no id is made twice");
}

/// A producer's own id is the event's id, of whatever version it is.
pub async fn a_producers_id_is_kept(s: Subject) {
    let topic = s.create("own-ids", partitions(1)).await;
    let ids = [producer_id(1), Uuid::max(), Uuid::from_u128(1), Uuid::from_u128(0x0198 << 112 | 0x7 << 76)];
    let receipt = s.published(&topic, ids.iter().map(|id| event("1").id(*id))).await;
    assert_eq!(receipt.iter().map(|appended| appended.id).collect::<Vec<_>>(), ids);
    let found: Vec<Uuid> = s.all(&topic, 0).await.iter().map(|event| event.id).collect();
    assert_eq!(found, ids, "a producer's own id is the event's id");
}

/// A receipt names its events in order, each where it then is.
pub async fn a_receipt_says_where_each_event_is(s: Subject) {
    let topic = s.create("receipts", partitions(4)).await;
    let drafts = (0..50).map(|n| match n % 3 {
        0 => numbered(n).in_partition(n as u32 % 4),
        1 => numbered(n).key(&format!("k{n}")),
        _ => numbered(n).id(producer_id(n as u64)).ts(n as u64),
    });
    let receipt = s.published(&topic, drafts).await;
    assert_eq!(receipt.len(), 50, "a receipt has one entry for each event");
    for (n, appended) in receipt.iter().enumerate() {
        let event = s.by_id(&topic, appended.id).await;
        assert_is(event.as_ref(), appended);
        let payload = event.map(|event| event.payload);
        assert_eq!(payload, Some(numbered(n).event.payload), "a receipt is in the order of the events");
        assert!(!appended.duplicate, "an event that was appended is no duplicate");
    }
}

/// An event has the producer's `ts`, as it is, or else the time at which it was recorded.
pub async fn ts_is_the_producers_or_the_recorded_time(s: Subject) {
    let topic = s.create("times", partitions(1)).await;
    let given = [1_000, 0, 999, 1 << 40];
    let receipt = s.published(&topic, given.iter().map(|ts| event("1").ts(*ts))).await;
    assert_eq!(receipt.iter().map(|appended| appended.ts).collect::<Vec<_>>(), given);
    let appended = s.published_one(&topic, event("2")).await;
    let events = s.all(&topic, 0).await;
    assert_eq!(events[..4].iter().map(|event| event.ts).collect::<Vec<_>>(), given, "a given ts is kept");
    assert_eq!(events[4].ts, events[4].recorded_ts, "without a ts, an event has the time of its recording");
    assert_eq!(appended.ts, events[4].ts, "the receipt has the ts that the store gave");
}

/// `recorded_ts` never decreases within a partition, whatever `ts` does.
pub async fn recorded_ts_never_decreases(s: Subject) {
    let topic = s.create("recorded", partitions(1)).await;
    for n in 0..20 {
        s.published(&topic, [numbered(n).ts(1_000 - n as u64), numbered(n)]).await;
    }
    let recorded: Vec<u64> = s.all(&topic, 0).await.iter().map(|event| event.recorded_ts).collect();
    assert!(recorded.is_sorted(), "recorded_ts never decreases: {recorded:?}");
    assert!(recorded[0] > 1_000, "recorded_ts is the store's time and not the producer's");
}

/// The receipt says what was waited for: what the topic asks for.
pub async fn a_receipt_says_how_durable_it_is(s: Subject) {
    for durability in [Durability::Sync, Durability::Interval] {
        let name = format!("durability.{durability:?}").to_lowercase();
        let topic = s.create(&name, TopicConfig { durability, ..partitions(1) }).await;
        let first = event("1").id(producer_id(1));
        for draft in [first.clone(), event("2"), first] {
            let receipt = must(s.publish(&topic, [draft]).await, "an event can be published");
            assert_eq!(receipt.durability, durability, "a publish is as durable as its topic asks for");
        }
    }
}
