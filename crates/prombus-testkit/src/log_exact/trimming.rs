//! Giving up the oldest events of a partition.

use crate::Subject;
use crate::build::{event, moving_keys, numbered, partitions, producer_id};
use crate::subject::{PAGE_BYTES, must, refusal};
use prombus_core::{
    Appended, Bounds, Commit, CommitError, ConfigChange, HistoryRequest, Loss, Offset, Partition, ReadError,
    TopicName, TopicRef,
};

async fn filled(s: &Subject, name: &str) -> TopicName {
    let topic = s.create(name, partitions(2)).await;
    for partition in 0..2 {
        s.published(&topic, (0..10).map(|n| numbered(n).ts(100 * n as u64).in_partition(partition))).await;
    }
    topic
}

fn bounds(first: u64, next: u64) -> Bounds {
    Bounds { first: Offset(first), next: Offset(next) }
}

/// What lies below the trim is gone, and says so; the rest stays, with its offsets.
pub async fn trimmed_events_are_gone(s: Subject) {
    let topic = filled(&s, "trimmed").await;
    let (all, other) = (s.all(&topic, 0).await, s.all(&topic, 1).await);
    s.trim(&topic, 0, 4).await;
    assert_eq!(s.bounds(&topic, 0).await, bounds(4, 10), "the first kept offset is the one asked for");
    for from in 0..4 {
        let answer = s.log.read(s.page(&topic, 0, Offset(from))).await;
        assert_eq!(answer, Err(ReadError::Gone { first: Offset(4) }), "offset {from} is gone");
    }
    let page = must(s.log.read(s.page(&topic, 0, Offset(4))).await, "the first kept offset can be read");
    assert_eq!((&page.events[..], page.next), (&all[4..], Offset(10)), "the rest stays as it is");
    for event in &all {
        let kept = (event.offset >= Offset(4)).then_some(event);
        assert_eq!(s.by_id(&topic, event.id).await.as_ref(), kept, "a look-up by id finds what is kept");
    }
    assert_eq!(s.all(&topic, 1).await, other, "other partitions are left alone");
    let appended = s.published_one(&topic, event("1").in_partition(0)).await;
    assert_eq!(appended.offset, Offset(10), "offsets are never given again");
}

/// A trim below the first kept offset changes nothing, and one above the end stops there.
pub async fn a_trim_is_clamped(s: Subject) {
    let topic = filled(&s, "clamped").await;
    for (before, first) in [(0, 0), (5, 5), (2, 5), (0, 5), (5, 5), (10, 10), (3, 10)] {
        s.trim(&topic, 0, before).await;
        assert_eq!(s.bounds(&topic, 0).await, bounds(first, 10), "after a trim before {before}");
    }
    s.trim(&topic, 1, u64::MAX).await;
    assert_eq!(s.bounds(&topic, 1).await, bounds(10, 10), "a trim stops at the end");
}

/// A partition that was trimmed to its end is empty, and goes on where it was.
pub async fn a_partition_trimmed_to_its_end_goes_on(s: Subject) {
    let topic = filled(&s, "emptied").await;
    s.trim(&topic, 0, 10).await;
    let page = must(s.log.read(s.page(&topic, 0, Offset(10))).await, "the end can be read");
    assert_eq!((page.events, page.next, page.end), (Vec::new(), Offset(10), Offset(10)), "nothing is left");
    assert_eq!(s.offset_at(&topic, 0, 0).await, Offset(10), "without events, every time is the end");
    let appended = s.published_one(&topic, event("1").in_partition(0)).await;
    assert_eq!(appended.offset, Offset(10), "it goes on where it was");
    assert_eq!(s.all(&topic, 0).await.len(), 1);
    assert_eq!(s.bounds(&topic, 0).await, bounds(10, 11));
}

/// A place by time is among what is kept.
pub async fn a_place_by_time_is_a_kept_one(s: Subject) {
    let topic = filled(&s, "trimmed.time").await;
    s.published(&topic, [event("1").ts(50), event("2").ts(2_000)].map(|draft| draft.in_partition(0))).await;
    s.trim(&topic, 0, 6).await;
    for (ts, offset) in [(0, 6), (300, 6), (600, 6), (601, 7), (901, 11), (2_001, 12)] {
        assert_eq!(s.offset_at(&topic, 0, ts).await, Offset(offset), "the first kept with a ts from {ts} on");
    }
}

/// The latest and the history of a key are of what is kept, also where a key is in two partitions.
pub async fn keys_are_looked_up_among_what_is_kept(s: Subject) {
    let topic = s.create("trimmed.keys", partitions(1)).await;
    let Some(key) = moving_keys(2).next() else { panic!("some key moves") };
    let old = s.published(&topic, (0..4).map(|n| numbered(n).key(&key))).await;
    s.grow(&topic, 2).await;
    let new = s.published(&topic, (4..6).map(|n| numbered(n).key(&key))).await;
    let ids = |appended: &[Appended]| -> Vec<_> { appended.iter().map(|appended| appended.id).collect() };
    let check = async |kept: Vec<uuid::Uuid>| {
        for limit in [1, 2, 10] {
            let found: Vec<_> = s.history(&topic, &key, limit).await.iter().map(|event| event.id).collect();
            assert_eq!(found, kept, "a history has what is kept");
        }
        let latest = s.latest(&topic, &key).await.map(|event| event.id);
        assert_eq!(latest, kept.last().copied(), "the latest is the latest of what is kept");
    };
    s.trim(&topic, 0, 2).await;
    check([&ids(&old)[2..], &ids(&new)].concat()).await;
    // The new partition is emptied, so the latest that is kept lies in the old one again.
    s.trim(&topic, 1, 2).await;
    check(ids(&old)[2..].to_vec()).await;
    s.trim(&topic, 0, 4).await;
    check(Vec::new()).await;
}

/// A history that is being paged through goes on after an event that was trimmed meanwhile.
pub async fn a_history_goes_on_after_a_trimmed_event(s: Subject) {
    let topic = s.create("trimmed.paging", partitions(1)).await;
    s.published(&topic, (0..10).map(|n| numbered(n).key("k"))).await;
    s.trim(&topic, 0, 6).await;
    for (after, first) in [(2, 6), (5, 6), (6, 7)] {
        let (topic, key, after) =
            (TopicRef::from(&topic), "k".to_owned(), Some((Partition(0), Offset(after))));
        let request = HistoryRequest { topic, key, after, limit: 100, max_bytes: PAGE_BYTES };
        let found = must(s.log.history(request).await, "histories are read");
        let offsets: Vec<u64> = found.iter().map(|event| event.offset.0).collect();
        assert_eq!(offsets, (first..10).collect::<Vec<_>>(), "nothing is given twice, and nothing left out");
    }
}

/// The same where the key is in two partitions, and the event was in either of them.
pub async fn a_history_goes_on_after_a_trimmed_event_and_growth(s: Subject) {
    let topic = s.create("trimmed.growth", partitions(1)).await;
    let Some(key) = moving_keys(2).next() else { panic!("some key moves") };
    s.published(&topic, (0..3).map(|n| numbered(n).key(&key))).await;
    s.grow(&topic, 2).await;
    s.published(&topic, (3..6).map(|n| numbered(n).key(&key))).await;
    s.trim(&topic, 0, 2).await;
    s.trim(&topic, 1, 1).await;
    let all = [(0, 2), (1, 1), (1, 2)];
    for (after, left) in [((0, 0), 0), ((0, 1), 0), ((0, 2), 1), ((1, 0), 1), ((1, 1), 2), ((1, 2), 3)] {
        let after = Some((Partition(after.0), Offset(after.1)));
        let request = HistoryRequest {
            topic: (&topic).into(),
            key: key.clone(),
            after,
            limit: 9,
            max_bytes: PAGE_BYTES,
        };
        let found = must(s.log.history(request).await, "histories are read");
        let places: Vec<(u32, u64)> = found.iter().map(|event| (event.partition.0, event.offset.0)).collect();
        assert_eq!(places, all[left..], "after {after:?}");
    }
}

/// An id is remembered for its window, though its event is no longer kept.
pub async fn an_id_is_remembered_though_its_event_is_trimmed(s: Subject) {
    let topic = s.create("trimmed.ids", partitions(1)).await;
    let draft = event("1").key("k").id(producer_id(1)).ts(5);
    let first = s.published_one(&topic, draft.clone()).await;
    s.trim(&topic, 0, 1).await;
    assert_eq!(s.by_id(&topic, producer_id(1)).await, None, "the event is not kept");
    let answer = s.published_one(&topic, draft.clone()).await;
    assert_eq!(answer, Appended { duplicate: true, ..first }, "its id is remembered with its position");
    for other in [event("2").key("k"), event("1").key("other"), event("1")] {
        let error = s.refused(&topic, [other.id(producer_id(1))]).await;
        assert_eq!(
            error,
            CommitError::IdConflict { index: 0, id: producer_id(1) },
            "and with what it was used for"
        );
    }
    assert_eq!(s.bounds(&topic, 0).await, bounds(1, 1), "nothing is appended");
}

/// Configuration comes first in a commit: a trim does not touch the commit's own events.
pub async fn a_trim_comes_before_the_events_of_its_commit(s: Subject) {
    let topic = s.create("trimmed.first", partitions(1)).await;
    s.published(&topic, (0..3).map(|n| numbered(n).key("k"))).await;
    let events = s.place(&topic, [event("9").key("k")]);
    let trim = ConfigChange::Trim {
        topic: (&topic).into(),
        partition: Partition(0),
        before: Offset(u64::MAX),
        loss: Loss::default(),
    };
    let commit = Commit { config: vec![trim], events, ..Commit::default() };
    let receipt = must(s.commit(commit).await, "a trim and events can share a commit");
    assert_eq!(receipt.events[0].offset, Offset(3), "offsets go on after a trim");
    assert_eq!(s.bounds(&topic, 0).await, bounds(3, 4), "a trim does not touch the events of its commit");
    let latest = s.latest(&topic, "k").await.map(|event| event.offset);
    assert_eq!(latest, Some(Offset(3)));
}

/// A trim is of the topic that has the name at that moment.
pub async fn a_trim_is_of_the_topic_that_is_there(s: Subject) {
    let topic = filled(&s, "trimmed.replaced").await;
    let trim = ConfigChange::Trim {
        topic: (&topic).into(),
        partition: Partition(0),
        before: Offset(5),
        loss: Loss::default(),
    };
    let delete = ConfigChange::DeleteTopic { name: topic.clone() };
    let create = ConfigChange::CreateTopic { name: topic.clone(), config: partitions(1) };
    let events = s.place(&topic, [event("1"), event("2")]);
    let commit = Commit { config: vec![trim, delete, create], events, ..Commit::default() };
    must(s.commit(commit).await, "a topic can be trimmed and replaced, and get its first events");
    s.published(&topic, [event("3")]).await;
    s.assert_holds(&topic, 0, &["1", "2", "3"]).await;
}

/// A trim of a topic that was replaced after it was read leaves the new one alone.
pub async fn a_trim_of_a_topic_that_was_replaced_trims_nothing(s: Subject) {
    let topic = filled(&s, "trimmed.other").await;
    let read = s.topic(&topic).await.pinned();
    must(s.configure(ConfigChange::DeleteTopic { name: topic.clone() }).await, "a topic can be deleted");
    s.create(topic.as_str(), partitions(1)).await;
    s.published(&topic, [event("1"), event("2")]).await;
    let (partition, before, loss) = (Partition(0), Offset(1), Loss { bytes: 1, horizon_ts: Some(1_000) });
    let kept = s.kept(&topic, 0).await;
    must(s.configure(ConfigChange::Trim { topic: read, partition, before, loss }).await, "it is no error");
    assert_eq!(s.kept(&topic, 0).await, kept);
    s.assert_holds(&topic, 0, &["1", "2"]).await;
}

/// An expectation is about what is kept, also where the trim is part of its commit.
pub async fn an_expectation_is_about_what_is_kept(s: Subject) {
    let topic = s.create("trimmed.expect", partitions(1)).await;
    let receipt = s.published(&topic, (0..3).map(|n| numbered(n).key("k"))).await;
    let trim = |before| ConfigChange::Trim {
        topic: (&topic).into(),
        partition: Partition(0),
        before: Offset(before),
        loss: Loss::default(),
    };
    s.trim(&topic, 0, 2).await;
    let last = Some(receipt[2].id);
    let error = s.refused(&topic, [event("3").key("k").expecting(None)]).await;
    assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: last }, "the latest is still kept");
    let events = s.place(&topic, [event("3").key("k").expecting(last)]);
    let commit = Commit { config: vec![trim(3)], events, ..Commit::default() };
    let error = refusal(s.commit(commit).await);
    assert_eq!(
        error,
        CommitError::ExpectationFailed { index: 0, actual: None },
        "the commit's trim comes first"
    );
    assert_eq!(s.bounds(&topic, 0).await, bounds(2, 3), "a refused commit trims nothing");
    s.trim(&topic, 0, 3).await;
    s.published_one(&topic, event("3").key("k").expecting(None)).await;
}
