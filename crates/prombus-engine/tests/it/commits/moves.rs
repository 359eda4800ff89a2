//! What else happens to a group while a commit of its leases is under way.

use crate::commits::consumer::*;
use crate::projections::stage::*;
use prombus_core::{CommitError, EventLog, EventLogExt, Offset, Partition, TopicName};
use prombus_engine::commits::CommitAnswer;
use prombus_engine::commits::CommitRefused;
use prombus_engine::groups::{Group, GroupCall, LeaseToken, Mode, OptionsPatch, Pull};
use prombus_engine::query::From;
use std::sync::Arc;
use tokio::task::JoinHandle;

fn is_ours(commit: &prombus_core::Commit) -> bool {
    !commit.events.is_empty() && !commit.cursors.is_empty()
}

type Committing = JoinHandle<Result<CommitAnswer, CommitRefused>>;

/// A commit that is held up on its way to the store.
async fn held(s: &Stage, acks: &[LeaseToken]) -> Committing {
    s.log.hold(is_ours);
    let (hub, acks) = (s.hub.clone(), acks.to_vec());
    let committing = tokio::spawn(async move { hub.commit(request(&acks)).await });
    s.log.until_held(1).await;
    committing
}

/// A group with one event in flight and one of the same key behind it.
async fn started(s: &Stage) -> (TopicName, Arc<Group>, LeaseToken) {
    let t = s.topic("t", 1).await;
    publish(s, &t, "a", 0..2).await;
    let group = group(s, &t, "g").await;
    let lease = take_all(&group, "m", 1).await[0].lease;
    (t, group, lease)
}

/// Something that changes the group waits for a commit of it; it is begun before the commit ends.
async fn begun<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let mut work = Box::pin(work);
    // So far that it has changed what it can change in memory.
    let first = polled(&mut work).await;
    assert!(first.is_pending(), "it has to wait for the commit");
    tokio::spawn(work)
}

async fn polled<F: Future + Unpin>(work: &mut F) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut *work).poll(context))).await
}

pub async fn a_cursor_that_is_set_decides(s: Stage) {
    for refused in [false, true] {
        let t = s.topic(&format!("t-{refused}"), 1).await;
        publish(&s, &t, "a", 0..3).await;
        let group = group(&s, &t, "g").await;
        let first = take_all(&group, "m", 1).await[0].lease;
        s.refuse(is_ours, usize::from(refused), CommitError::Busy);
        let committing = held(&s, &[first]).await;
        let of = group.clone();
        let setting = begun(async move { of.set_cursor(From::Earliest, None).await }).await;
        s.log.release();
        assert_eq!(committing.await.expect("no panic").is_err(), refused);
        setting.await.expect("no panic").expect("a cursor can be set");
        let next = take_all(&group, "m", 1).await;
        assert_eq!(numbers(&next), [0], "from the start, and nothing is stuck");
        assert_eq!(ack(&group, &[first]).await, [!refused], "only what was accepted can be repeated");
        ack(&group, &leases(&next)).await;
        assert_eq!(numbers(&take_all(&group, "m", 1).await), [1]);
        assert_eq!(group.cursor(), [Offset(1)]);
    }
}

pub async fn an_event_is_committed_or_skipped_and_settled_either_way(s: Stage) {
    for refused in [false, true] {
        let t = s.topic(&format!("t-{refused}"), 1).await;
        publish(&s, &t, "a", 0..2).await;
        let options = OptionsPatch { ack_timeout_ms: Some(1_000), ..OptionsPatch::default() };
        let group = group_with(&s, &t, "g", options).await;
        let first = take_all(&group, "m", 1).await[0].lease;
        s.refuse(is_ours, usize::from(refused), CommitError::Busy);
        let committing = held(&s, &[first]).await;
        let of = group.clone();
        let skipping = begun(async move { of.skip(Partition(0), 0).await }).await;
        s.log.release();
        assert_eq!(committing.await.expect("no panic").is_err(), refused);
        assert_eq!(skipping.await.expect("no panic").expect("an answer"), refused);
        let next = take_all(&group, "m", 1).await;
        assert_eq!(numbers(&next), [1]);
        assert_eq!(ack(&group, &leases(&next)).await, [true]);
        // A pause is what this is about: the first lease would end in it, and must not bring its event back.
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
        assert!(take_if_any(&group, "m").await.is_empty());
        assert_eq!(group.status().await.expect("a status").partitions[0].in_flight, 0);
    }
}

pub async fn a_group_that_is_deleted_takes_its_leases_with_it(s: Stage) {
    let (t, group, lease) = started(&s).await;
    let committing = held(&s, &[lease]).await;
    let (hub, topic, name) = (s.hub.clone(), t.clone(), group.name().clone());
    let remaking = tokio::spawn(async move {
        hub.groups().delete(&topic, &name).await.expect("it can be deleted");
        let call = GroupCall { from: From::Earliest, options: OptionsPatch::default() };
        hub.group(&topic, &name, &call).await.expect("it can be made again").0
    });
    // As far as it comes while the commit is under way.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    s.log.release();
    let answer = committing.await.expect("no panic");
    let again = remaking.await.expect("no panic");
    // Whichever came first: the commit is whole, or nothing of it is.
    match &answer {
        Ok(_) => assert_eq!(outcome(&s).await, (1, 1)),
        Err(_) => {
            assert!(is_spent(&answer, lease), "{answer:?}");
            assert_eq!(outcome(&s).await, (0, 0));
        }
    }
    let all = take_all(&again, "m", 1).await;
    assert_eq!(numbers(&all), [0], "a new group has nothing to do with the one before");
    assert!(s.hub.commit(request(&leases(&all))).await.is_ok());
    assert_eq!(numbers(&take_all(&again, "m", 1).await), [1]);
}

pub async fn a_topic_that_is_deleted_takes_its_leases_with_it(s: Stage) {
    let (t, _, lease) = started(&s).await;
    let other = s.topic("u", 1).await;
    publish(&s, &other, "a", 0..2).await;
    let good = group(&s, &other, "h").await;
    let kept = take_all(&good, "m", 1).await;
    let committing = held(&s, &[kept[0].lease, lease]).await;
    s.hub.delete_topic(&t).await.expect("it can be deleted");
    s.topic("t", 1).await;
    publish(&s, &t, "a", 0..2).await;
    s.log.release();
    let answer = committing.await.expect("no panic");
    assert!(is_spent(&answer, lease), "{answer:?}");
    assert_eq!(outcome(&s).await, (0, 0));
    // The other group has lost nothing.
    s.hub.commit(request(&leases(&kept))).await.expect("a lease that holds");
    assert_eq!(numbers(&take_all(&good, "m", 1).await), [1]);
    let again = group(&s, &t, "g").await;
    assert_eq!(numbers(&take_all(&again, "m", 1).await), [0]);
}

/// Another hub has moved the cursor of one of the groups: the other one's leases hold.
pub async fn a_group_that_was_taken_away_does_not_spoil_others(s: Stage) {
    let (t, u) = (s.topic("t", 1).await, s.topic("u", 1).await);
    for topic in [&t, &u] {
        publish(&s, topic, "a", 0..2).await;
    }
    let (lost, kept) = (group(&s, &t, "lost").await, group(&s, &u, "kept").await);
    let gone = take_all(&lost, "m", 1).await[0].lease;
    let good = take_all(&kept, "m", 1).await[0].lease;
    let key =
        prombus_core::CursorKey { topic: t.clone(), reader: "group:lost".into(), partition: Partition(0) };
    let cursor = s.log.cursor(&key).await.expect("readable").expect("a cursor");
    let to = Some(prombus_core::CursorTarget { next: cursor.next, detail: cursor.detail });
    let moved = prombus_core::CursorMove {
        key,
        incarnation: None,
        expect_version: cursor.version,
        epoch: cursor.epoch,
        to,
    };
    let commit = prombus_core::Commit { cursors: vec![moved], ..prombus_core::Commit::default() };
    s.log.commit(Arc::new(commit)).await.expect("a cursor can be moved");
    let answer = s.hub.commit(request(&[gone, good])).await;
    assert!(is_spent(&answer, gone), "{answer:?}");
    assert_eq!(outcome(&s).await, (0, 0));
    s.hub.commit(request(&[good])).await.expect("this lease holds");
    assert_eq!(numbers(&take_all(&kept, "m", 1).await), [1], "and its key is free");
    let lost = group(&s, &t, "lost").await;
    assert_eq!(numbers(&take_all(&lost, "m", 1).await), [0], "the other one starts afresh");
}

pub async fn a_partition_that_moves_takes_its_leases_along(s: Stage) {
    for refused in [false, true] {
        let t = s.topic(&format!("t-{refused}"), 1).await;
        publish(&s, &t, "a", 0..2).await;
        let options = OptionsPatch { mode: Some(Mode::Partitioned), ..OptionsPatch::default() };
        let group = group_with(&s, &t, "g", options).await;
        let m = group.enter("m").unwrap();
        let pull = Pull { max: 1, wait: LONG, ..Pull::default() };
        let first = m.pull(&pull).await.expect("a pull has an answer")[0].lease;
        s.refuse(is_ours, usize::from(refused), CommitError::Busy);
        let committing = held(&s, &[first]).await;
        drop(m);
        s.log.release();
        let answer = committing.await.expect("no panic");
        assert_eq!(answer.is_err(), refused, "{answer:?}");
        let next = take_all(&group, "n", 1).await;
        let expected = if refused { 0 } else { 1 };
        assert_eq!((numbers(&next), next[0].attempt), (vec![expected], 1), "no attempt is counted");
        assert_eq!(ack(&group, &leases(&next)).await, [true]);
        let settled = group.cursor();
        assert_eq!(settled, [Offset(expected + 1)]);
        let status = group.status().await.expect("a status");
        assert_eq!(status.partitions[0].in_flight, 0);
    }
}
