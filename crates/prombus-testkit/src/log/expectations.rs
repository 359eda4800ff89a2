//! Publishes on a condition: what the latest event of the key must be.

use crate::Subject;
use crate::build::{event, moving_keys, partitions, producer_id};
use prombus_core::CommitError;
use uuid::Uuid;

/// "No event yet" holds just for a key that has none.
pub async fn expecting_none_holds_for_a_key_without_events(s: Subject) {
    let topic = s.create("expect.none", partitions(1)).await;
    s.published(&topic, [event("0"), event("0").key("other")]).await;
    let first = s.published_one(&topic, event("1").key("k").expecting(None)).await;
    let error = s.refused(&topic, [event("2").key("k").expecting(None)]).await;
    let failed = CommitError::ExpectationFailed { index: 0, actual: Some(first.id) };
    assert_eq!(error, failed, "a failed expectation names the latest event of the key");
    s.assert_holds(&topic, 0, &["0", "0", "1"]).await;
}

/// An expected id must be the latest of the key: not an older one, not another key's, not an unknown one.
pub async fn expecting_an_id_holds_if_it_is_the_latest(s: Subject) {
    let topic = s.create("expect.some", partitions(1)).await;
    let unknown = Some(producer_id(99));
    let error = s.refused(&topic, [event("0").key("k").expecting(unknown)]).await;
    assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: None }, "the key has no event");
    let first = s.published_one(&topic, event("1").key("k").id(producer_id(1))).await;
    let other = s.published_one(&topic, event("2").key("other")).await;
    let second = s.published_one(&topic, event("3").key("k").expecting(Some(first.id))).await;
    for wrong in [None, Some(first.id), Some(other.id), unknown] {
        let error = s.refused(&topic, [event("9"), event("4").key("k").expecting(wrong)]).await;
        let failed = CommitError::ExpectationFailed { index: 1, actual: Some(second.id) };
        assert_eq!(error, failed, "{wrong:?} is not the latest event of the key");
    }
    s.published_one(&topic, event("5").key("k").expecting(Some(second.id))).await;
    s.assert_holds(&topic, 0, &["1", "2", "3", "5"]).await;
}

/// An expectation sees the earlier events of its commit.
pub async fn an_expectation_sees_the_earlier_events_of_its_commit(s: Subject) {
    let topic = s.create("expect.batch", partitions(1)).await;
    let chain = |n: u64, last: Option<u64>| {
        event(&n.to_string()).key("k").id(producer_id(n)).expecting(last.map(producer_id))
    };
    s.published(&topic, [chain(1, None), chain(2, Some(1)), event("0").key("other"), chain(3, Some(2))])
        .await;
    let error = s.refused(&topic, [chain(4, Some(3)), chain(5, Some(3))]).await;
    let failed = CommitError::ExpectationFailed { index: 1, actual: Some(producer_id(4)) };
    assert_eq!(error, failed, "an expectation sees the earlier events of its commit");
    let error = s.refused(&topic, [chain(5, Some(4)), chain(4, Some(3))]).await;
    let failed = CommitError::ExpectationFailed { index: 0, actual: Some(producer_id(3)) };
    assert_eq!(error, failed, "an expectation does not see the later events of its commit");
    s.assert_holds(&topic, 0, &["1", "2", "0", "3"]).await;
}

/// An event without an expectation moves the key on as well.
pub async fn unconditional_events_count_for_expectations(s: Subject) {
    let topic = s.create("expect.mixed", partitions(1)).await;
    let first = s.published_one(&topic, event("1").key("k")).await;
    let second = s.published_one(&topic, event("2").key("k")).await;
    let error = s.refused(&topic, [event("3").key("k").expecting(Some(first.id))]).await;
    assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: Some(second.id) });
}

/// A tombstone is an event: it is the latest, and can be expected.
pub async fn a_tombstone_counts_for_expectations(s: Subject) {
    let topic = s.create("expect.tombstone", partitions(1)).await;
    s.published_one(&topic, event("1").key("k")).await;
    let tombstone = s.published_one(&topic, event("null").key("k")).await;
    let error = s.refused(&topic, [event("2").key("k").expecting(None)]).await;
    let failed = CommitError::ExpectationFailed { index: 0, actual: Some(tombstone.id) };
    assert_eq!(error, failed, "a tombstone is an event");
    s.published_one(&topic, event("3").key("k").expecting(Some(tombstone.id))).await;
}

/// The latest event of a key is the latest in the topic, also when the key is placed elsewhere since.
pub async fn an_expectation_holds_across_growth(s: Subject) {
    let topic = s.create("expect.growth", partitions(1)).await;
    let keys: Vec<String> = moving_keys(4).take(3).collect();
    let before = s.published(&topic, keys.iter().map(|key| event("1").key(key))).await;
    s.grow(&topic, 4).await;
    for (key, before) in keys.iter().zip(before) {
        let error = s.refused(&topic, [event("2").key(key).expecting(None)]).await;
        assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: Some(before.id) });
        let after = s.published_one(&topic, event("3").key(key).expecting(Some(before.id))).await;
        assert_ne!(after.partition, before.partition, "the key has moved");
        let error = s.refused(&topic, [event("4").key(key).expecting(Some(before.id))]).await;
        assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: Some(after.id) });
    }
}

/// An expectation that fails says so however unlikely the expected id is.
pub async fn odd_expected_ids_are_just_wrong(s: Subject) {
    let topic = s.create("expect.odd", partitions(1)).await;
    for odd in [Uuid::nil(), Uuid::max()] {
        let error = s.refused(&topic, [event("1").key("k").expecting(Some(odd))]).await;
        assert_eq!(error, CommitError::ExpectationFailed { index: 0, actual: None });
    }
    s.assert_holds(&topic, 0, &[]).await;
}
