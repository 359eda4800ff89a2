//! Giving up single events of a partition, which leaves holes.

use crate::Subject;
use crate::build::{event, moving_keys, numbered, partitions, producer_id};
use crate::subject::{PAGE_BYTES, must, refusal};
use prombus_core::{
    Appended, Bounds, Commit, CommitError, ConfigChange, EventLogExt, HistoryRequest, Kept, Loss, Offset,
    Partition, PreviousRequest, ReadRequest, TopicName, TopicRef,
};
use std::sync::Arc;

async fn filled(s: &Subject, name: &str) -> TopicName {
    let topic = s.create(name, partitions(2)).await;
    for partition in 0..2 {
        s.published(&topic, (0..10).map(|n| numbered(n).ts(100 * n as u64).in_partition(partition))).await;
    }
    topic
}

fn discard(topic: &TopicRef, offsets: &[u64], loss: Loss) -> ConfigChange {
    let offsets = Arc::new(offsets.iter().copied().map(Offset).collect());
    ConfigChange::Discard { topic: topic.clone(), partition: Partition(0), offsets, loss }
}

/// What was discarded cannot be read in any way, and readers pass over it; the rest keeps its offsets.
pub async fn discarded_events_are_passed_over(s: Subject) {
    let topic = filled(&s, "discarded").await;
    let (all, other) = (s.all(&topic, 0).await, s.all(&topic, 1).await);
    s.discard(&topic, 0, &[0, 3, 4, 5, 9]).await;
    let left = [1, 2, 6, 7, 8];
    let bounds = Bounds { first: Offset(0), next: Offset(10) };
    assert_eq!(s.bounds(&topic, 0).await, bounds, "the bounds stay where they are");
    for from in 0..=10 {
        for limit in [1, 2, 100] {
            let request = ReadRequest { limit, ..s.page(&topic, 0, Offset(from)) };
            let page = must(s.log.read(request).await, "a hole is no reason not to read");
            let offsets: Vec<u64> = page.events.iter().map(|event| event.offset.0).collect();
            let mut wanted: Vec<u64> = left.into_iter().filter(|offset| *offset >= from).collect();
            let next = wanted.get(limit).copied().unwrap_or(10);
            wanted.truncate(limit);
            assert_eq!((offsets, page.next.0), (wanted, next), "from {from}, {limit} at most");
        }
    }
    for event in &all {
        let kept = left.contains(&event.offset.0).then_some(event);
        assert_eq!(s.by_id(&topic, event.id).await.as_ref(), kept, "a look-up by id finds what is kept");
    }
    assert_eq!(s.all(&topic, 1).await, other, "other partitions are left alone");
    let appended = s.published_one(&topic, event("1").in_partition(0)).await;
    assert_eq!(appended.offset, Offset(10), "offsets are never given again");
}

/// Discarding what is gone, or not there yet, changes nothing: an event that gets such an offset later is kept.
pub async fn what_is_not_there_is_not_discarded(s: Subject) {
    let topic = filled(&s, "discarded.early").await;
    s.trim(&topic, 0, 3).await;
    s.discard(&topic, 0, &[1, 5, 10, 11]).await;
    s.discard(&topic, 0, &[5]).await;
    s.published(&topic, (10..12).map(|n| numbered(n).in_partition(0))).await;
    let offsets: Vec<u64> = s.all(&topic, 0).await.iter().map(|event| event.offset.0).collect();
    assert_eq!(offsets, [3, 4, 6, 7, 8, 9, 10, 11]);
}

/// A place by time is one that has an event.
pub async fn a_place_by_time_has_an_event(s: Subject) {
    let topic = filled(&s, "discarded.time").await;
    s.discard(&topic, 0, &[0, 4, 5, 9]).await;
    for (ts, offset) in [(0, 1), (300, 3), (301, 6), (600, 6), (801, 10), (901, 10)] {
        assert_eq!(s.offset_at(&topic, 0, ts).await, Offset(offset), "the first kept with a ts from {ts} on");
    }
}

/// The latest and the history of a key are of what is kept, also where a key is in two partitions.
pub async fn keys_are_looked_up_among_what_is_left(s: Subject) {
    let topic = s.create("discarded.keys", partitions(1)).await;
    let Some(key) = moving_keys(2).next() else { panic!("some key moves") };
    let old = s.published(&topic, (0..4).map(|n| numbered(n).key(&key))).await;
    s.grow(&topic, 2).await;
    let new = s.published(&topic, (4..6).map(|n| numbered(n).key(&key))).await;
    let check = async |kept: &[Appended]| {
        let kept: Vec<_> = kept.iter().map(|appended| appended.id).collect();
        for limit in [1, 2, 10] {
            let found: Vec<_> = s.history(&topic, &key, limit).await.iter().map(|event| event.id).collect();
            assert_eq!(found, kept, "a history has what is kept");
        }
        let latest = s.latest(&topic, &key).await.map(|event| event.id);
        assert_eq!(latest, kept.last().copied(), "the latest is the latest of what is kept");
        let mut back = Vec::new();
        let mut at = s.latest(&topic, &key).await;
        while let Some(event) = at {
            back.insert(0, event.id);
            let before = (event.partition, event.offset);
            let previous = s.log.event_before(&TopicRef::from(&topic), &key, before).await;
            at = must(previous, "the event before another one of its key can be read");
        }
        assert_eq!(back, kept, "step by step it goes back through what is kept");
        let places = s.history(&topic, &key, 10).await;
        let places = places.iter().map(|event| (key.to_string(), (event.partition, event.offset)));
        let places: Vec<_> = places.collect();
        for max_bytes in [1, PAGE_BYTES] {
            let mut before = Vec::new();
            while let Some(events) = places.get(before.len()..).filter(|events| !events.is_empty()) {
                let (topic, events) = (TopicRef::from(&topic), events.to_vec());
                let found = s.log.previous_by_key(PreviousRequest { topic, events, max_bytes }).await;
                let found = must(found, "the events before several ones can be read");
                assert!(!found.is_empty(), "at least the first one is answered");
                before.extend(found.into_iter().map(|event| event.map(|event| event.id)));
            }
            let earlier = std::iter::once(None).chain(kept.iter().copied().map(Some));
            assert_eq!(before, earlier.take(kept.len()).collect::<Vec<_>>(), "in the order of the request");
        }
    };
    s.discard(&topic, 0, &[1, 2]).await;
    check(&[old[0], old[3], new[0], new[1]]).await;
    s.discard(&topic, 1, &[1]).await;
    check(&[old[0], old[3], new[0]]).await;
    // The last one of the new partition goes, so the latest lies in the old one again.
    s.discard(&topic, 1, &[0]).await;
    check(&[old[0], old[3]]).await;
    s.discard(&topic, 0, &[0, 3]).await;
    check(&[]).await;
}

/// A history that is being paged through goes on after an event that was discarded meanwhile.
pub async fn a_history_goes_on_after_a_discarded_event(s: Subject) {
    let topic = s.create("discarded.paging", partitions(1)).await;
    s.published(&topic, (0..10).map(|n| numbered(n).key("k"))).await;
    s.discard(&topic, 0, &[2, 3, 5]).await;
    for (after, left) in [(1, &[4, 6, 7, 8, 9][..]), (2, &[4, 6, 7, 8, 9]), (5, &[6, 7, 8, 9])] {
        let (topic, key, after) =
            (TopicRef::from(&topic), "k".to_owned(), Some((Partition(0), Offset(after))));
        let request = HistoryRequest { topic, key, after, limit: 100, max_bytes: PAGE_BYTES };
        let found = must(s.log.history(request).await, "histories are read");
        let offsets: Vec<u64> = found.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, left, "nothing is given twice, and nothing left out");
    }
}

/// An id is remembered for its window, though its event was discarded.
pub async fn an_id_is_remembered_though_its_event_is_discarded(s: Subject) {
    let topic = s.create("discarded.ids", partitions(1)).await;
    let draft = event("1").key("k").id(producer_id(1)).ts(5);
    let first = s.published_one(&topic, draft.clone()).await;
    s.discard(&topic, 0, &[0]).await;
    assert_eq!(s.by_id(&topic, producer_id(1)).await, None, "the event is not kept");
    let answer = s.published_one(&topic, draft).await;
    assert_eq!(answer, Appended { duplicate: true, ..first }, "its id is remembered with its position");
    let error = s.refused(&topic, [event("2").key("k").id(producer_id(1))]).await;
    let conflict = CommitError::IdConflict { index: 0, id: producer_id(1) };
    assert_eq!(error, conflict, "and with what it was used for");
}

/// An expectation is about what is kept, also where the commit itself discards.
pub async fn an_expectation_is_about_what_is_left(s: Subject) {
    let topic = s.create("discarded.expect", partitions(1)).await;
    let receipt = s.published(&topic, (0..3).map(|n| numbered(n).key("k"))).await;
    let events = s.place(&topic, [event("3").key("k").expecting(Some(receipt[2].id))]);
    let config = vec![discard(&(&topic).into(), &[2], Loss::default())];
    let error = refusal(s.commit(Commit { config, events, ..Commit::default() }).await);
    let actual = Some(receipt[1].id);
    assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual }, "what is discarded comes first");
    assert_eq!(s.all(&topic, 0).await.len(), 3, "a refused commit discards nothing");
    s.discard(&topic, 0, &[0, 1, 2]).await;
    s.published_one(&topic, event("3").key("k").expecting(None)).await;
}

/// What was read of a topic that is gone by then is not discarded of its successor.
pub async fn only_the_topic_that_was_read_loses_events(s: Subject) {
    let topic = filled(&s, "discarded.replaced").await;
    let pinned = s.topic(&topic).await.pinned();
    must(s.configure(ConfigChange::DeleteTopic { name: topic.clone() }).await, "topics can be deleted");
    let topic = filled(&s, "discarded.replaced").await;
    must(s.configure(discard(&pinned, &[1, 2], Loss::default())).await, "there is nothing left to discard");
    assert_eq!(s.all(&topic, 0).await.len(), 10);
}

/// A partition says how much is kept, from when on that tells every state, and whether it has holes.
pub async fn what_is_kept_is_counted(s: Subject) {
    let topic = s.create("discarded.counted", partitions(1)).await;
    s.published(&topic, (0..4).map(|n| numbered(n).key("k"))).await;
    let sizes: Vec<u64> = s.all(&topic, 0).await.iter().map(|event| event.size() as u64).collect();
    let pinned = s.topic(&topic).await.pinned();
    let kept = |first, bytes: &[u64], horizon_ts, has_holes| {
        let bounds = Bounds { first: Offset(first), next: Offset(4) };
        Kept { bounds, bytes: bytes.iter().sum(), horizon_ts, has_holes }
    };
    assert_eq!(s.kept(&topic, 0).await, kept(0, &sizes, 0, false));
    let forgotten = Loss { bytes: sizes[1], horizon_ts: None };
    must(s.configure(discard(&pinned, &[1], forgotten)).await, "events can be forgotten");
    assert_eq!(s.kept(&topic, 0).await, kept(0, &[sizes[0], sizes[2], sizes[3]], 0, false));
    let superseded = Loss { bytes: sizes[0], horizon_ts: Some(70) };
    must(s.configure(discard(&pinned, &[0], superseded)).await, "events can be discarded");
    assert_eq!(s.kept(&topic, 0).await, kept(0, &sizes[2..], 70, true));
    let loss = Loss { bytes: sizes[2], horizon_ts: Some(50) };
    let (partition, before) = (Partition(0), Offset(3));
    let trim = ConfigChange::Trim { topic: pinned.clone(), partition, before, loss };
    must(s.configure(trim).await, "a partition can be trimmed");
    assert_eq!(s.kept(&topic, 0).await, kept(3, &sizes[3..], 70, true), "a horizon never falls");
    assert_eq!(must(s.log.bounds(&pinned, partition).await, "bounds").first, before);
}
