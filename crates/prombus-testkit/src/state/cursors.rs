//! Cursors: compare-and-set, fenced by epoch, and gone with their topic.

use crate::Subject;
use crate::build::{event, partitions, topic};
use crate::subject::{must, refusal};
use crate::tasks::together;
use bytes::Bytes;
use prombus_core::{
    Commit, CommitError, CommitLimits, ConfigChange, Cursor, CursorKey, CursorMove, CursorTarget, Durability,
    Epoch, Offset, Partition, ReaderLimit, Receipt, TopicConfig, TopicName,
};
use std::sync::Arc;

fn key(topic: &TopicName) -> CursorKey {
    CursorKey { topic: topic.clone(), reader: "group".into(), partition: Partition(0) }
}

fn step(key: CursorKey, version: u64, next: u64) -> CursorMove {
    let to = Some(CursorTarget { next: Offset(next), detail: Bytes::new() });
    CursorMove { key, incarnation: None, expect_version: version, epoch: Epoch(1), to }
}

fn removal(key: CursorKey, version: u64) -> CursorMove {
    CursorMove { to: None, ..step(key, version, 0) }
}

async fn commit(s: &Subject, cursors: Vec<CursorMove>) -> Result<Receipt, CommitError> {
    s.commit(Commit { cursors, ..Commit::default() }).await
}

async fn moved(s: &Subject, cursor: CursorMove) {
    must(commit(s, vec![cursor]).await, "a cursor that nobody else moved can be moved");
}

fn lost(actual: u64) -> CommitError {
    CommitError::CursorMoved { reader: "group".into(), actual }
}

/// A cursor counts its moves from 1, and carries what its reader keeps beside.
pub async fn a_cursor_is_where_it_was_moved_to(s: Subject) {
    let topic = s.create("cursors", partitions(1)).await;
    assert_eq!(s.cursor(&key(&topic)).await, None, "a cursor that was never moved is not there");
    let details = [Bytes::new(), Bytes::from_static(b"\x00\xff{"), Bytes::from(vec![7; 50_000])];
    for (n, detail) in (0..).zip(details) {
        let to = Some(CursorTarget { next: Offset(10 - n), detail: detail.clone() });
        moved(&s, CursorMove { to, ..step(key(&topic), n, 0) }).await;
        let cursor = Cursor { version: n + 1, epoch: Epoch(1), next: Offset(10 - n), detail };
        assert_eq!(s.cursor(&key(&topic)).await, Some(cursor), "a cursor is where it was moved to");
    }
}

/// Readers have no more partitions together than a commit allows: each has all that its topic has, in commits that let the
/// topic grow too. Those that go make room.
pub async fn readers_have_only_so_many_partitions(s: Subject) {
    let topic = s.create("cursors.many", partitions(4)).await;
    let reader_partitions = Some(ReaderLimit { readers: "group", most: 11 });
    let limits = CommitLimits { reader_partitions, ..CommitLimits::default() };
    let others = (0..4).map(|n| CursorKey { partition: Partition(n), reader: "other".into(), ..key(&topic) });
    must(
        commit(&s, others.map(|key| step(key, 0, 0)).collect()).await,
        "cursors of other readers do not count",
    );
    let limited = |cursors| s.commit(Commit { cursors, limits, ..Commit::default() });
    let of = |n: u32| CursorKey { reader: format!("group.{n}"), ..key(&topic) };
    let too_many = CommitError::TooManyReaderPartitions { limit: 11 };
    assert_eq!(refusal(limited((0..3).map(|n| step(of(n), 0, 0)).collect()).await), too_many);
    assert_eq!(s.cursor(&of(0)).await, None, "nothing has happened");
    must(limited(vec![step(of(0), 0, 0), step(of(1), 0, 0)]).await, "so many may be there");
    must(limited(vec![step(of(0), 1, 0)]).await, "one that is there can be moved");
    must(limited(vec![removal(of(0), 2), step(of(2), 0, 0)]).await, "one that goes makes room");
    assert_eq!(refusal(limited(vec![step(of(3), 0, 0)]).await), too_many);
    let grown = async |to: u32| {
        let state = s.topic(&topic).await;
        let (name, config) = (topic.clone(), TopicConfig { partitions: to, ..state.config });
        let change = ConfigChange::AlterTopic { name, expect_revision: state.revision, config };
        s.commit(Commit { config: vec![change], limits, ..Commit::default() }).await
    };
    assert_eq!(refusal(grown(6).await), too_many, "they would have twelve");
    must(grown(5).await, "they have ten");
    let events = s.place(&topic, [event("1")]);
    must(commit(&s, vec![step(of(3), 0, 0)]).await, "where nobody asks for the limit, there is none");
    assert_eq!(refusal(s.commit(Commit { events, limits, ..Commit::default() }).await), too_many);
    s.delete(&topic).await;
    let topic = s.create("cursors.many", partitions(1)).await;
    must(limited(vec![step(key(&topic), 0, 0)]).await, "a topic that goes takes its cursors along");
}

/// A move from any version but the present one is refused.
pub async fn a_cursor_moves_only_from_its_version(s: Subject) {
    let topic = s.create("cursors.cas", partitions(1)).await;
    assert_eq!(refusal(commit(&s, vec![step(key(&topic), 1, 5)]).await), lost(0), "there is none yet");
    moved(&s, step(key(&topic), 0, 5)).await;
    moved(&s, step(key(&topic), 1, 6)).await;
    for wrong in [0, 1, 3] {
        assert_eq!(
            refusal(commit(&s, vec![step(key(&topic), wrong, 9)]).await),
            lost(2),
            "it is at version 2"
        );
        assert_eq!(refusal(commit(&s, vec![removal(key(&topic), wrong)]).await), lost(2));
    }
    let cursor = s.cursor(&key(&topic)).await.map(|cursor| (cursor.version, cursor.next));
    assert_eq!(cursor, Some((2, Offset(6))), "a refused move moves nothing");
}

/// Who comes with an earlier epoch than the cursor has seen is fenced off.
pub async fn a_cursor_is_fenced_by_epoch(s: Subject) {
    let topic = s.create("cursors.epoch", partitions(1)).await;
    let at = |version, epoch| CursorMove { epoch: Epoch(epoch), ..step(key(&topic), version, version) };
    moved(&s, at(0, 5)).await;
    let over = |epoch| CommitError::EpochOver { reader: key(&topic).reader, epoch: Epoch(epoch) };
    assert_eq!(refusal(commit(&s, vec![at(1, 4)]).await), over(4), "an earlier epoch is over");
    assert_eq!(refusal(commit(&s, vec![at(7, 4)]).await), over(4), "whatever version it has seen");
    moved(&s, at(1, 5)).await;
    moved(&s, at(2, 8)).await;
    for early in [0, 5, 7] {
        assert_eq!(refusal(commit(&s, vec![at(3, early)]).await), over(early), "epoch {early} is over");
        let remove = CursorMove { to: None, ..at(3, early) };
        assert_eq!(refusal(commit(&s, vec![remove]).await), over(early), "also for a removal");
    }
    let cursor = s.cursor(&key(&topic)).await.map(|cursor| (cursor.version, cursor.epoch));
    assert_eq!(cursor, Some((3, Epoch(8))), "a cursor has the epoch of its last move");
}

/// A cursor that was removed is gone, and can be made anew.
pub async fn a_removed_cursor_is_gone(s: Subject) {
    let topic = s.create("cursors.removed", partitions(1)).await;
    moved(&s, step(key(&topic), 0, 5)).await;
    moved(&s, step(key(&topic), 1, 6)).await;
    moved(&s, removal(key(&topic), 2)).await;
    assert_eq!(s.cursor(&key(&topic)).await, None, "a removed cursor is gone");
    assert_eq!(
        refusal(commit(&s, vec![step(key(&topic), 2, 7)]).await),
        lost(0),
        "it has no version any more"
    );
    moved(&s, step(key(&topic), 0, 8)).await;
    let cursor = s.cursor(&key(&topic)).await.map(|cursor| (cursor.version, cursor.next));
    assert_eq!(cursor, Some((1, Offset(8))), "versions start over");
}

/// Cursors of other readers, partitions and topics are others; one commit can move several, all or none.
pub async fn cursors_are_apart(s: Subject) {
    let (a, b) = (s.create("cursors.a", partitions(2)).await, s.create("cursors.b", partitions(1)).await);
    let keys = [
        key(&a),
        CursorKey { partition: Partition(1), ..key(&a) },
        CursorKey { reader: "group2".into(), ..key(&a) },
        key(&b),
    ];
    let moves: Vec<CursorMove> = keys.iter().zip(1..).map(|(key, next)| step(key.clone(), 0, next)).collect();
    must(commit(&s, moves).await, "one commit can move several cursors");
    for bad in 0..keys.len() {
        let moves = keys.iter().enumerate().map(|(n, key)| step(key.clone(), u64::from(n != bad), 99));
        assert!(matches!(
            refusal(commit(&s, moves.collect()).await),
            CommitError::CursorMoved { actual: 1, .. }
        ));
    }
    for (key, next) in keys.iter().zip(1..) {
        let cursor = s.cursor(key).await.map(|cursor| cursor.next);
        assert_eq!(cursor, Some(Offset(next)), "each cursor is where it was moved to: {key:?}");
    }
}

/// The moves of one commit happen in order, each on top of the earlier ones.
pub async fn moves_of_a_commit_see_each_other(s: Subject) {
    let topic = s.create("cursors.twice", partitions(1)).await;
    let twice = vec![
        step(key(&topic), 0, 1),
        step(key(&topic), 1, 2),
        removal(key(&topic), 2),
        step(key(&topic), 0, 3),
    ];
    must(commit(&s, twice).await, "a cursor can move twice in a commit");
    let cursor = s.cursor(&key(&topic)).await.map(|cursor| (cursor.version, cursor.next));
    assert_eq!(cursor, Some((1, Offset(3))));
    let error = refusal(commit(&s, vec![step(key(&topic), 1, 4), step(key(&topic), 1, 5)]).await);
    assert_eq!(error, lost(2), "a move sees the earlier ones of its commit");
    assert_eq!(s.cursor(&key(&topic)).await.map(|cursor| cursor.version), Some(1));
}

/// Cursors go with their topic; one that is made again has none.
pub async fn cursors_go_with_their_topic(s: Subject) {
    let (gone, kept) =
        (s.create("cursors.gone", partitions(1)).await, s.create("cursors.kept", partitions(1)).await);
    must(commit(&s, vec![step(key(&gone), 0, 1), step(key(&kept), 0, 1)]).await, "cursors can be moved");
    s.delete(&gone).await;
    assert_eq!(s.cursor(&key(&gone)).await, None, "a cursor goes with its topic");
    let error = refusal(commit(&s, vec![step(key(&gone), 0, 1)]).await);
    assert_eq!(error, CommitError::TopicNotFound(gone.clone()), "there is no topic to have a cursor in");
    s.create(gone.as_str(), partitions(1)).await;
    assert_eq!(s.cursor(&key(&gone)).await, None, "a topic that is made again has no cursors");
    moved(&s, step(key(&gone), 0, 7)).await;
    assert_eq!(s.cursor(&key(&kept)).await.map(|cursor| cursor.version), Some(1), "other cursors stay");
}

/// A commit that replaces a topic moves the cursors of the new one.
pub async fn a_replaced_topic_has_no_old_cursors(s: Subject) {
    let topic = s.create("cursors.replaced", partitions(1)).await;
    moved(&s, step(key(&topic), 0, 1)).await;
    let config = vec![
        ConfigChange::DeleteTopic { name: topic.clone() },
        ConfigChange::CreateTopic { name: topic.clone(), config: partitions(1) },
    ];
    let cursors = vec![step(key(&topic), 0, 5)];
    must(
        s.commit(Commit { config, cursors, ..Commit::default() }).await,
        "configuration comes before cursors",
    );
    let cursor = s.cursor(&key(&topic)).await.map(|cursor| (cursor.version, cursor.next));
    assert_eq!(cursor, Some((1, Offset(5))), "the new topic's cursor is its own");
}

/// Growing and trimming a topic leave its cursors alone.
pub async fn cursors_stay_when_the_topic_changes(s: Subject) {
    let topic = s.create("cursors.stay", partitions(1)).await;
    s.published(&topic, [event("1"), event("2")]).await;
    moved(&s, step(key(&topic), 0, 1)).await;
    let before = s.cursor(&key(&topic)).await;
    s.grow(&topic, 3).await;
    s.trim(&topic, 0, 2).await;
    assert_eq!(s.cursor(&key(&topic)).await, before, "a cursor moves only when it is moved");
}

/// Who has read a topic that was deleted and made again cannot move a cursor of the new one.
pub async fn a_late_mover_is_refused_in_a_remade_topic(s: Subject) {
    let topic = s.create("cursors.late", partitions(1)).await;
    let read = |number| CursorMove { incarnation: Some(number), ..step(key(&topic), 0, 7) };
    let old = s.topic(&topic).await.number;
    must(s.configure(ConfigChange::DeleteTopic { name: topic.clone() }).await, "a topic can be deleted");
    s.create("cursors.late", partitions(1)).await;
    let error = refusal(commit(&s, vec![read(old)]).await);
    assert_eq!(error, CommitError::TopicReplaced(topic.clone()));
    assert_eq!(s.cursor(&key(&topic)).await, None, "nothing was moved");
    moved(&s, read(s.topic(&topic).await.number)).await;
}

/// A move of a cursor in a topic that does not exist is refused.
pub async fn a_cursor_needs_a_topic(s: Subject) {
    let missing = topic("cursors.missing");
    for change in [step(key(&missing), 0, 0), removal(key(&missing), 0)] {
        let error = refusal(commit(&s, vec![change]).await);
        assert_eq!(error, CommitError::TopicNotFound(missing.clone()));
    }
    assert_eq!(s.cursor(&key(&missing)).await, None);
}

/// Of moves from the same version at the same time, one wins.
pub async fn of_equal_moves_one_wins(s: Subject) {
    let s = Arc::new(s);
    let topic = s.create("cursors.race", partitions(1)).await;
    for version in 0..15 {
        let answers = together(6, |n| {
            let (s, change) = (s.clone(), step(key(&topic), version, n as u64));
            async move { commit(&s, vec![change]).await }
        })
        .await;
        let winners: Vec<u64> = (0..6).filter(|n| answers[*n as usize].is_ok()).collect();
        assert_eq!(winners.len(), 1, "of moves from the same version one wins");
        let next = s.cursor(&key(&topic)).await.map(|cursor| cursor.next);
        assert_eq!(next, Some(Offset(winners[0])), "the cursor is where the winner moved it");
        for error in answers.into_iter().filter_map(Result::err) {
            assert_eq!(error, lost(version + 1));
        }
    }
}

/// A move is as durable as its topic asks for.
pub async fn a_move_is_as_durable_as_its_topic(s: Subject) {
    for durability in [Durability::Sync, Durability::Interval] {
        let name = format!("cursors.{durability:?}").to_lowercase();
        let topic = s.create(&name, TopicConfig { durability, ..partitions(1) }).await;
        let receipt = must(commit(&s, vec![step(key(&topic), 0, 1)]).await, "cursors can be moved");
        assert_eq!(receipt.durability, durability, "a move goes by its topic");
    }
}

/// Whoever has a cursor in a topic is a reader of it, once, until the last of its cursors is gone.
pub async fn the_readers_of_a_topic_are_known(s: Subject) {
    let here = s.create("readers", partitions(2)).await;
    let there = s.create("readers.more", partitions(1)).await;
    let of = |topic: &TopicName, reader: &str, partition| CursorKey {
        topic: topic.clone(),
        reader: reader.into(),
        partition: Partition(partition),
    };
    for key in [of(&here, "b", 0), of(&here, "b", 1), of(&here, "a", 1), of(&there, "c", 0)] {
        moved(&s, step(key, 0, 0)).await;
    }
    assert_eq!(s.readers(&here, "").await, ["a", "b"]);
    assert_eq!(s.readers(&here, "b").await, ["b"]);
    assert_eq!(s.readers(&here, "bc").await, [""; 0]);
    assert_eq!(s.readers(&there, "").await, ["c"]);
    moved(&s, removal(of(&here, "a", 1), 1)).await;
    moved(&s, removal(of(&here, "b", 0), 1)).await;
    assert_eq!(s.readers(&here, "").await, ["b"]);
    s.delete(&here).await;
    assert_eq!(s.readers(&here, "").await, [""; 0], "a topic that is not there has no readers");
    assert_eq!(s.readers(&there, "").await, ["c"]);
}
