//! Which status and code each error has, and what is told with it.

use super::*;
use prombus_core::{Epoch, Offset, Partition, TopicName, TopicNumber};
use prombus_engine::groups::{LeaseToken, Session};

fn topic() -> TopicName {
    TopicName::parse("t").unwrap()
}

fn seen(error: impl Into<ApiError>) -> (u16, &'static str) {
    let error = error.into();
    (error.status.as_u16(), error.code.as_str())
}

fn no_such_partition() -> CommitError {
    CommitError::NoSuchPartition { index: 0, topic: topic(), partition: Partition(2), partitions: 2 }
}

fn too_long() -> CommitError {
    let (collection, key, fields) = ("c".into(), "k".into(), vec!["a".into(), "b".into()]);
    CommitError::IndexValueTooLong { index: 0, collection, key, fields, bytes: 5_000 }
}

#[test]
fn what_is_too_long_for_an_index_is_told_with_the_index_and_the_limit() {
    let error = ApiError::from(too_long());
    assert_eq!((&error.details["collection"], &error.details["key"]), (&json!("c"), &json!("k")));
    assert_eq!((&error.details["fields"], &error.details["bytes"]), (&json!(["a", "b"]), &json!(5_000)));
    assert_eq!(error.details["limit"], 4_096);
}

#[test]
fn refused_commits() {
    let table = [
        (CommitError::TopicNotFound(topic()), (404, "not_found")),
        (CommitError::TopicExists(topic()), (503, "unavailable")),
        (CommitError::TopicChanged(topic()), (503, "unavailable")),
        (CommitError::Outdated(topic()), (503, "unavailable")),
        (CommitError::PartitionsShrink { topic: topic(), now: 2, asked: 1 }, (400, "bad_request")),
        (CommitError::TooManyGrowths { topic: topic(), limit: 64 }, (400, "bad_request")),
        (CommitError::TopicReplaced(topic()), (503, "unavailable")),
        (no_such_partition(), (400, "bad_request")),
        (CommitError::IdConflict { index: 0, id: Uuid::nil() }, (409, "id_conflict")),
        (CommitError::NotDuplicate { index: 0 }, (400, "bad_request")),
        (CommitError::ExpectationFailed { index: 0, actual: None }, (412, "expectation_failed")),
        (CommitError::TooLarge { bytes: 2, limit: 1 }, (413, "too_large")),
        (CommitError::TooManyTopics { limit: 1 }, (413, "too_large")),
        (CommitError::TooManyCollections { limit: 1 }, (413, "too_large")),
        (CommitError::TooManyReaderPartitions { limit: 1 }, (413, "too_large")),
        (too_long(), (413, "too_large")),
        (CommitError::ChangefeedsNotFound(vec![topic()]), (404, "not_found")),
        (CommitError::NoRoom, (507, "disk_full")),
        (CommitError::Busy, (503, "unavailable")),
        (CommitError::Unavailable("x".into()), (503, "unavailable")),
        (CommitError::Unknown("x".into()), (503, "unavailable")),
    ];
    for (error, expected) in table {
        assert_eq!(seen(BusError::Commit(error.clone())), expected, "{error}");
    }
    assert_eq!(seen(BusError::ReservedTopic(topic())), (403, "forbidden"));
    assert_eq!(seen(BusError::BadConfig("x".into())), (400, "bad_request"));
}

#[test]
fn refused_reads() {
    assert_eq!(seen(ReadError::TopicNotFound(topic())), (404, "not_found"));
    assert_eq!(seen(ReadError::Corrupt("x".into())), (500, "internal"));
    assert_eq!(seen(ReadError::Unavailable("x".into())), (503, "unavailable"));
    let unread = FilterError::Unavailable(ReadError::Unavailable("x".into()));
    assert_eq!(seen(unread), (503, "unavailable"), "what is not compiled is not bad");
    let gone = ApiError::from(QueryError::Read(ReadError::Gone { first: Offset(7) }));
    assert_eq!(gone.details["first"], 7);
    assert_eq!(seen(gone), (410, "gone"));
    assert_eq!(seen(ReadError::TopicGone(topic())), (410, "gone"));
    assert_eq!(seen(QueryError::BadToken), (400, "bad_request"));
    assert_eq!(seen(QueryError::UnknownId(Uuid::nil())), (404, "not_found"));
    let (partition, first) = (Partition(2), Offset(7));
    let id_gone = |kept| ApiError::from(QueryError::IdGone { id: Uuid::nil(), kept });
    let gone = QueryError::Gone { topic: topic(), partition, first };
    for gone in [gone.into(), id_gone(Some((partition, first)))] {
        assert_eq!((&gone.details["partition"], &gone.details["first"]), (&json!(2), &json!(7)));
        assert_eq!(seen(gone), (410, "gone"));
    }
    assert_eq!(seen(id_gone(None)), (410, "gone"));
}

#[test]
fn refused_states() {
    let gone = ApiError::from(TimeTravelError::Gone { horizon_ts: 7, at: 5 });
    assert_eq!(gone.details["horizon_ts"], 7);
    assert_eq!(seen(gone), (410, "gone"));
    assert_eq!(seen(TimeTravelError::Bad("x".into())), (400, "bad_request"));
    assert_eq!(seen(TimeTravelError::TooLarge), (413, "too_large"));
    assert_eq!(seen(TimeTravelError::Read(ReadError::TopicNotFound(topic()))), (404, "not_found"));
}

#[test]
fn refused_projections_collections_and_commits() {
    let name = || "p".to_owned();
    let place = || "write[0].key".to_owned();
    let bad = BadFilter { message: "no".into(), line: 1, column: 7 };
    let expression = ApiError::from(ProjectionError::BadExpression { place: place(), error: bad });
    assert_eq!((&expression.details["place"], &expression.details["column"]), (&json!(place()), &json!(7)));
    let incomplete =
        ApiError::from(ProjectionError::Incomplete { partition: Partition(2), first: Offset(7) });
    assert_eq!((&incomplete.details["partition"], &incomplete.details["first"]), (&json!(2), &json!(7)));
    let session = Session { topic: TopicNumber(1), epoch: Epoch(1), seat: 0 };
    let lease = LeaseToken { session, number: 2 };
    let spent = ApiError::from(CommitRefused::LeaseExpired(lease));
    assert_eq!(spent.details["lease"], lease.to_string());
    let not_owner = || CommitError::NotOwner { collection: "c".into(), owner: Some(name()) };
    let conflict = CommitError::IdConflict { index: 3, id: Uuid::nil() };
    let conflict = ApiError::from(CommitRefused::Bus(BusError::Commit(conflict)));
    assert_eq!(conflict.details["index"], 3);
    let table: [(ApiError, _); 12] = [
        (ProjectionError::NotFound(name()).into(), (404, "not_found")),
        (ProjectionError::Bad(name()).into(), (400, "bad_request")),
        (expression, (400, "bad_filter")),
        (ProjectionError::NotOwner { collection: name(), owner: name() }.into(), (409, "not_owner")),
        (incomplete, (409, "gone")),
        (ProjectionError::Rebuilding(name()).into(), (409, "bad_request")),
        (CollectionError::Bad(name()).into(), (400, "bad_request")),
        (CollectionError::NotFound(name()).into(), (404, "not_found")),
        (CollectionError::Bus(BusError::Commit(not_owner())).into(), (409, "not_owner")),
        (CommitRefused::Bad(name()).into(), (400, "bad_request")),
        (spent, (409, "lease_expired")),
        (conflict, (409, "id_conflict")),
    ];
    for (error, expected) in table {
        assert_eq!(seen(error), expected);
    }
}

#[test]
fn a_bad_line_is_a_bad_request_and_anything_else_keeps_its_status() {
    let full = ApiError::from(CommitError::NoRoom).after_lines(5, 6);
    assert_eq!((&full.details["count"], &full.details["line"]), (&json!(5), &json!(6)));
    assert_eq!(seen(full), (507, "disk_full"));
    let refused = ApiError::from(CommitError::IdConflict { index: 0, id: Uuid::nil() }).of_line(5, 6);
    assert_eq!((&refused.details["count"], &refused.details["line"]), (&json!(5), &json!(6)));
    assert_eq!(seen(refused), (400, "id_conflict"));
}
