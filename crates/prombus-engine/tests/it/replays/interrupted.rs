//! What becomes of a replay that is stopped in the middle.

use super::stage::*;
use prombus_core::*;
use prombus_engine::replays::{Command, Definition, ReplayState, ReplaysError};

/// The copies of replays, and of nothing else.
fn copies(commit: &Commit) -> bool {
    !commit.documents.is_empty() && !commit.events.is_empty()
}

pub async fn crashes_neither_lose_nor_double(s: Stage) {
    const EVENTS: u64 = 40_000;
    let mut s = s;
    let topic = s.topic("from", 2).await;
    s.publish_numbered(&topic, 0..EVENTS).await;
    s.begin("r", all("from", "to")).await;
    for least in [1, 10_000, 20_000, 30_000] {
        s.until_replay("r", "it goes on", |status| status.counts.copied >= least).await;
        s = s.crash().await;
    }
    let done = s.done("r").await;
    assert_eq!((done.counts.copied, done.counts.errors, done.counts.lost), (EVENTS, 0, 0));
    let mut from_keys = s.all_payloads("from").await;
    let mut to_keys = s.all_payloads("to").await;
    assert_eq!(to_keys.len() as u64, EVENTS);
    from_keys.sort();
    to_keys.sort();
    assert_eq!(from_keys, to_keys);
}

impl Stage {
    async fn all_payloads(&self, topic: &str) -> Vec<Vec<u8>> {
        let mut reader = self
            .hub
            .read(
                &topic_name(topic),
                prombus_engine::query::Query::of_all(prombus_engine::query::From::Earliest),
            )
            .await
            .expect("it can be read")
            .up_to_now();
        let mut all = Vec::new();
        loop {
            let page = reader.next_page(10_000).await.expect("a page");
            all.extend(page.events.iter().map(|event| event.payload.as_bytes().to_vec()));
            if page.next.is_none() {
                return all;
            }
        }
    }

    async fn command(&self, name: &str, command: Command) -> ReplayState {
        self.hub.replays().command(name, command).await.expect("it can be told").state
    }

    async fn copied(&self) -> usize {
        self.events(&topic_name("to")).await.len()
    }
}

/// Slow enough to be caught in the middle.
fn slow() -> Definition {
    Definition { rate_per_s: Some(50), ..all("from", "to") }
}

pub async fn a_paused_replay_waits(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..40).await;
    s.begin("r", slow()).await;
    s.until_replay("r", "it has begun", |status| status.counts.copied > 0).await;
    assert_eq!(s.command("r", Command::Pause).await, ReplayState::Paused);
    let copied = s.copied().await;
    assert!(copied < 40);
    assert_eq!(s.replay("r").await.counts.copied, copied as u64);
    let s = s.restart().await;
    assert_eq!((s.replay("r").await.state, s.copied().await), (ReplayState::Paused, copied));
    assert_eq!(s.command("r", Command::Resume).await, ReplayState::Running);
    assert_eq!((s.done("r").await.counts.copied, s.copied().await), (40, 40));
    let refused = s.hub.replays().command("r", Command::Pause).await;
    assert!(matches!(refused, Err(ReplaysError::WrongState { .. })), "{refused:?}");
}

pub async fn a_cancelled_replay_copies_nothing_more(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..100_000).await;
    s.begin("r", all("from", "to")).await;
    s.until_replay("r", "it has begun", |status| status.counts.copied > 0).await;
    assert_eq!(s.command("r", Command::Cancel).await, ReplayState::Cancelled);
    let status = s.replay("r").await;
    assert!(status.ended_ms.is_some() && status.counts.copied < 100_000, "{status:?}");
    assert_eq!(s.all_payloads("to").await.len() as u64, status.counts.copied);
    s.hub.replays().delete("r").await.expect("it is over");
    s.begin("r", all("from", "again")).await;
    assert_eq!(s.done("r").await.counts.copied, 100_000);
}

pub async fn a_replay_whose_topic_is_deleted_has_failed(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..40).await;
    s.begin("r", slow()).await;
    s.until_replay("r", "it has begun", |status| status.counts.copied > 0).await;
    s.hub.delete_topic(&topic).await.expect("it can be deleted");
    s.topic("from", 1).await;
    let failed = s.until_replay("r", "it fails", |status| status.state == ReplayState::Failed).await;
    assert!(failed.reason.expect("a reason").contains("was deleted"));
}

pub async fn a_replay_whose_target_is_deleted_has_failed(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..40).await;
    s.begin("r", slow()).await;
    s.until_replay("r", "it has gone on", |status| status.counts.copied > 10).await;
    s.hub.delete_topic(&topic_name("to")).await.expect("it can be deleted");
    let failed = s.until_replay("r", "it fails", |status| status.state == ReplayState::Failed).await;
    assert!(failed.reason.expect("a reason").contains("topic to was deleted"));
}

pub async fn a_full_disk_is_waited_for(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..100).await;
    s.refuse(copies, 2, CommitError::NoRoom);
    s.begin("r", all("from", "to")).await;
    assert_eq!(s.done("r").await.counts.copied, 100);
    assert_eq!(s.copied().await, 100);
}

pub async fn what_was_forgotten_is_not_copied(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..70).await;
    s.begin("r", slow()).await;
    s.until_replay("r", "it has begun", |status| status.counts.copied > 0).await;
    s.hub.forget(&topic, "k3").await.expect("it can be forgotten");
    let before: Vec<_> = s.events(&topic_name("to")).await.iter().map(|event| event.key.clone()).collect();
    let count = |keys: &[Option<_>]| {
        keys.iter().flatten().filter(|key: &&bytestring::ByteString| **key == "k3").count()
    };
    s.done("r").await;
    let after: Vec<_> = s.events(&topic_name("to")).await.iter().map(|event| event.key.clone()).collect();
    assert_eq!(count(&before), count(&after), "what comes after the answer is not of that key");
}

pub async fn a_name_is_used_once(s: Stage) {
    let topic = s.topic("from", 1).await;
    s.publish_numbered(&topic, 0..10).await;
    s.begin("r", all("from", "to")).await;
    for _ in 0..2 {
        let refused = s.hub.replays().begin("r", all("from", "to")).await;
        assert!(matches!(refused, Err(ReplaysError::NameUsed { .. })), "{refused:?}");
        s.done("r").await;
    }
    let s = s.restart().await;
    assert!(s.hub.replays().begin("r", all("from", "other")).await.is_err());
    assert_eq!(s.copied().await, 10);
    assert_eq!(s.hub.replays().page(None).await.expect("they can be listed").len(), 1);
}
