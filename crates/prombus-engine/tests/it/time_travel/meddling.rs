//! Events are given up while a state is read: at each single step of the reading in turn.

use super::stage::*;
use parking_lot::Mutex;
use prombus_core::*;
use prombus_engine::{Hub, HubOptions, Limits, Reduce, Store};
use prombus_store_memory::MemoryStore;
use std::collections::HashMap;
use std::sync::Arc;

/// A log in which something happens before its so many'th look.
struct Meddling {
    log: Arc<MemoryStore>,
    next: Mutex<(usize, Option<Arc<Commit>>)>,
}

impl Meddling {
    /// Lets it happen before the look with this number.
    fn before(&self, look: usize, commit: &Commit) {
        *self.next.lock() = (look, Some(Arc::new(commit.clone())));
    }

    /// Whether it has happened.
    fn has_happened(&self) -> bool {
        self.next.lock().1.is_none()
    }

    async fn look(&self) {
        let commit = {
            let mut next = self.next.lock();
            match next.0.checked_sub(1) {
                Some(left) => {
                    next.0 = left;
                    None
                }
                None => next.1.take(),
            }
        };
        if let Some(commit) = commit {
            self.log.commit(commit).await.expect("the store takes it");
        }
    }
}

prombus_testkit::forward_log! { Meddling => log:
    enqueue offset_at by_id latest_by_key previous_by_key erase advance_horizon changed topic topics
    cursor readers status close;

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.look().await;
        self.log.read(ReadRequest { limit: request.limit.min(2), ..request }).await
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.look().await;
        self.log.kept(topic, partition).await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.look().await;
        self.log.history(HistoryRequest { limit: request.limit.min(2), ..request }).await
    }
}

/// A hub with events of two keys, the log that it reads, and the topic.
async fn hub() -> (Hub, Arc<Meddling>, TopicState) {
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let store = Arc::new(MemoryStore::new(clock.clone(), 1));
    let log = Arc::new(Meddling { log: store.clone(), next: Mutex::new((0, None)) });
    let options = HubOptions { limits: Limits::default(), auto_create: true, topics: HashMap::new(), clock };
    let hub = Hub::assemble(
        Store { log: log.clone(), documents: store.clone(), homes: None, copies: store },
        options,
    );
    let name = topic_name("meddled");
    for n in 1..=5 {
        let payload = format!("{{\"n\":{n}}}");
        let events = ["a", "b"].map(|key| keyed(&name, key, (10 * n, &payload)));
        hub.publish(events.into()).await.unwrap();
    }
    let topic = hub.topic(&name).await.unwrap().unwrap();
    (hub, log, topic)
}

/// Gives up events that those at `after` have superseded, or trims.
fn discard(topic: &TopicState, offsets: &[u64], loss: Loss) -> Commit {
    let offsets = Arc::new(offsets.iter().copied().map(Offset).collect());
    let change = ConfigChange::Discard { topic: topic.pinned(), partition: Partition(0), offsets, loss };
    Commit { config: vec![change], ..Commit::default() }
}

#[tokio::test]
async fn a_state_is_exact_or_gone_whenever_events_are_given_up() {
    // Of key a, whose events have even offsets: all but the last, which has ts 50.
    for at in [25, 45, 50] {
        let mut answered = 0;
        for look in 0.. {
            let (hub, log, topic) = hub().await;
            log.before(look, &discard(&topic, &[0, 2, 4, 6], Loss { bytes: 0, horizon_ts: Some(50) }));
            let state = hub.time_travel().state_at(&topic.name, "a", (at, Reduce::Merge)).await;
            match told(state, text) {
                Answer::State(state) => {
                    assert_eq!(state, format!("{{\"n\":{}}}", at / 10));
                    answered += 1;
                }
                gone => assert_eq!(gone, Answer::Gone(50)),
            }
            if !log.has_happened() {
                break;
            }
        }
        assert!(answered > 0, "where it came too late, it is answered");
    }
}

#[tokio::test]
async fn a_state_is_of_one_life_of_its_key_whenever_that_is_forgotten() {
    for (reduce, whole) in [(Reduce::Merge, r#"{"n":5,"x":1}"#), (Reduce::Replace, r#"{"n":5}"#)] {
        let (mut before, mut after) = (0, 0);
        for look in 0.. {
            let (hub, log, topic) = hub().await;
            let first = keyed(&topic.name, "c", (5, r#"{"x":1}"#));
            let rest = (1..=5).map(|n| keyed(&topic.name, "c", (10 * n, &format!("{{\"n\":{n}}}"))));
            hub.publish([first].into_iter().chain(rest).collect()).await.unwrap();
            // The key is forgotten, and begins a new life at once.
            let gone = discard(&topic, &[10, 11, 12, 13, 14, 15], Loss::default());
            let events = vec![keyed(&topic.name, "c", (55, r#"{"new":true}"#))];
            log.before(look, &Commit { events, ..gone });
            let state = hub.time_travel().state_at(&topic.name, "c", (60, reduce)).await;
            match told(state, text) {
                Answer::State(state) if state == r#"{"new":true}"# => after += 1,
                told => {
                    assert_eq!(told, Answer::State(whole.into()), "before look {look}");
                    before += 1;
                }
            }
            if !log.has_happened() {
                break;
            }
        }
        assert!(before > 0 && after > 2, "{before} before, {after} after");
    }
}

#[tokio::test]
async fn all_keys_are_exact_or_refused_whenever_events_are_given_up() {
    let mut answered = 0;
    for look in 0.. {
        let (hub, log, topic) = hub().await;
        // The last event of each key is superseded by one that is not later, so no horizon moves.
        let newer = ["a", "b"].map(|key| keyed(&topic.name, key, (45, "0")));
        let sizes: u64 = 2 * (64 + 1 + r#"{"n":5}"#.len() as u64);
        let gone = discard(&topic, &[8, 9], Loss { bytes: sizes, horizon_ts: Some(0) });
        let commit = Commit { events: newer.into(), ..gone };
        log.before(look, &commit);
        let mut all = hub.time_travel().all_at(&topic.name, 60).await.unwrap();
        let mut found = Vec::new();
        let refused = loop {
            match all.next_page().await {
                Ok(Some(page)) => found.extend(page.into_iter().map(|event| text(event.payload))),
                Ok(None) => break false,
                Err(error) => {
                    assert!(error.to_string().contains("try again"), "{error}");
                    break true;
                }
            }
        };
        if !refused {
            answered += 1;
            let (before, after) = (vec![r#"{"n":5}"#; 2], vec!["0"; 2]);
            assert!(found == before || found == after, "before look {look}: {found:?}");
        }
        if !log.has_happened() {
            break;
        }
    }
    assert!(answered > 3);
}

#[tokio::test]
async fn a_topic_that_is_made_anew_meanwhile_is_another() {
    for look in 0..3 {
        let (hub, log, topic) = hub().await;
        let delete = ConfigChange::DeleteTopic { name: topic.name.clone() };
        let events = vec![keyed(&topic.name, "a", (10, "\"new\""))];
        let create = ConfigChange::CreateTopic { name: topic.name.clone(), config: TopicConfig::default() };
        log.before(look, &Commit { config: vec![delete, create], events, ..Commit::default() });
        let state = hub.time_travel().state_at(&topic.name, "a", (60, Reduce::Replace)).await;
        assert!(log.has_happened());
        let error = state.expect_err("the topic that was asked is gone").to_string();
        assert!(error.contains("was deleted in the meantime"), "{error}");
    }
}
