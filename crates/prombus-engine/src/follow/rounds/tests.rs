//! What a stream of several topics hands out, from wherever it goes on.

use super::*;
use crate::{Hub, HubOptions, Limits, Store};
use prombus_core::{Append, Json, ManualClock, NewEvent, TopicPatch};
use prombus_store_memory::MemoryStore;
use proptest::prelude::*;
use std::collections::HashMap;

struct Stage {
    hub: Hub,
    clock: Arc<ManualClock>,
    published: u64,
}

impl Stage {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_000));
        let store = Store::new(Arc::new(MemoryStore::new(clock.clone(), 1)));
        let (limits, topics) = (Limits::default(), HashMap::new());
        let hub =
            Hub::assemble(store, HubOptions { limits, auto_create: true, topics, clock: clock.clone() });
        Self { hub, clock, published: 0 }
    }

    /// Publishes the next number.
    async fn publish(&mut self, topic: &str) -> u64 {
        let payload = Json::parse(self.published.to_string().into_bytes().into()).unwrap();
        let append = Append::new(TopicName::parse(topic).unwrap(), NewEvent::new(payload));
        self.hub.publish(vec![append]).await.unwrap();
        self.published += 1;
        self.published - 1
    }

    async fn follow(&self, from: From, after: Option<&str>) -> TopicsFollower {
        let matches = |name: &TopicName| name.as_str().starts_with("a.");
        let query =
            TopicsQuery { matches: Box::new(matches), from, key: None, filter: None, normalize: false };
        self.hub.follow_topics(query, after.map(|text| RoundsResume::decode(text).unwrap())).await.unwrap()
    }
}

fn number(event: &Event) -> u64 {
    std::str::from_utf8(event.payload.as_bytes()).unwrap().parse().unwrap()
}

/// All that can be read now, and the token of each.
async fn all(follower: &mut TopicsFollower) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some(events) = follower.next_events().await.unwrap() {
        all.extend(events.iter().map(|event| (number(event), follower.token_after(event))));
    }
    all
}

fn numbers(all: &[(u64, String)]) -> Vec<u64> {
    let mut numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn each_token_goes_on_after_its_event() {
    let mut stage = Stage::new();
    for topic in ["a.x", "b.x", "a.y", "a.x", "a.z", "a.y"] {
        stage.publish(topic).await;
    }
    let mut follower = stage.follow(From::Earliest, None).await;
    let mut first = all(&mut follower).await;
    assert_eq!(numbers(&first), [0, 2, 3, 4, 5]);
    for topic in ["a.y", "a.new", "b.y", "a.x"] {
        stage.publish(topic).await;
        stage.clock.advance(1);
    }
    first.extend(all(&mut follower).await);
    assert_eq!(numbers(&first), [0, 2, 3, 4, 5, 6, 7, 9]);
    for (place, (_, token)) in first.iter().enumerate() {
        let rest = all(&mut stage.follow(From::Earliest, Some(token)).await).await;
        assert_eq!(numbers(&rest), numbers(&first[place + 1..]), "after {place}");
    }
}

#[tokio::test]
async fn latest_leaves_out_what_is_there_and_nothing_else() {
    let mut stage = Stage::new();
    let mut nothing = stage.follow(From::Latest, None).await;
    stage.publish("a.x").await;
    stage.publish("a.y").await;
    assert_eq!(numbers(&all(&mut nothing).await), [0, 1], "topics that are made later are new");
    // The clock stands still, so all of this is of one millisecond.
    let mut follower = stage.follow(From::Latest, None).await;
    for topic in ["a.y", "a.new", "a.x"] {
        stage.publish(topic).await;
    }
    let got = all(&mut follower).await;
    assert_eq!(numbers(&got), [2, 3, 4]);
    for (place, (_, token)) in got.iter().enumerate() {
        let rest = all(&mut stage.follow(From::Latest, Some(token)).await).await;
        assert_eq!(numbers(&rest), numbers(&got[place + 1..]), "after {place}");
    }
}

#[tokio::test]
async fn who_has_seen_nothing_yet_goes_on_there_too() {
    let mut stage = Stage::new();
    let nothing = stage.follow(From::Latest, None).await.token();
    stage.publish("a.x").await;
    let latest = stage.follow(From::Latest, None).await.token();
    let earliest = stage.follow(From::Earliest, None).await.token();
    for topic in ["a.x", "a.new"] {
        stage.publish(topic).await;
    }
    for (from, token, wanted) in [
        (From::Latest, nothing, &[0, 1, 2][..]),
        (From::Latest, latest, &[1, 2]),
        (From::Earliest, earliest, &[0, 1, 2]),
    ] {
        let mut follower = stage.follow(from, Some(&token)).await;
        assert_eq!(follower.token(), token);
        assert_eq!(numbers(&all(&mut follower).await), wanted);
    }
}

#[tokio::test]
async fn a_topic_that_is_deleted_is_passed_over_and_its_successor_is_new() {
    let mut stage = Stage::new();
    for topic in ["a.x", "a.y", "a.z"] {
        stage.publish(topic).await;
    }
    let mut follower = stage.follow(From::Earliest, None).await;
    let before = all(&mut follower).await;
    stage.hub.delete_topic(&TopicName::parse("a.y").unwrap()).await.unwrap();
    stage.publish("a.z").await;
    stage.publish("a.y").await;
    assert_eq!(numbers(&all(&mut follower).await), [3, 4]);
    let (_, token) = before.iter().find(|(number, _)| *number == 1).unwrap();
    let rest = all(&mut stage.follow(From::Earliest, Some(token)).await).await;
    assert_eq!(numbers(&rest), [2, 3, 4]);
}

#[tokio::test]
async fn partitions_that_come_later_are_read_from_their_start() {
    let mut stage = Stage::new();
    stage.publish("a.x").await;
    let mut follower = stage.follow(From::Latest, None).await;
    let patch = TopicPatch { partitions: Some(4), ..TopicPatch::default() };
    stage.hub.put_topic(&TopicName::parse("a.x").unwrap(), patch).await.unwrap();
    for _ in 0..8 {
        stage.publish("a.x").await;
    }
    assert_eq!(numbers(&all(&mut follower).await), (1..9).collect::<Vec<_>>());
}

#[test]
fn tokens_survive_their_text_and_others_are_none() {
    let token = RoundsResume { since: 7, until: u64::MAX, at: At { topic: 3, partition: 9, next: 1 << 40 } };
    assert_eq!(RoundsResume::decode(&token.encode()).unwrap(), token);
    assert!(token.encode().len() < 64);
    let other = crate::Resume::decode(&token.encode());
    assert!(matches!(other, Err(QueryError::BadToken)));
    for bad in ["", "x", "AAAA", "????"] {
        assert!(matches!(RoundsResume::decode(bad), Err(QueryError::BadToken)), "{bad}");
    }
}

/// What happens next.
#[derive(Debug, Clone)]
enum Step {
    Publish(usize),
    Delete(usize),
    Tick,
    Read,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4usize).prop_map(Step::Publish),
        1 => (0..4usize).prop_map(Step::Delete),
        2 => Just(Step::Tick),
        4 => Just(Step::Read),
        2 => Just(Step::Reconnect),
    ]
}

async fn run(steps: Vec<Step>) {
    const TOPICS: [&str; 4] = ["a.w", "a.x", "a.y", "b.z"];
    let mut stage = Stage::new();
    let (mut wanted, mut got, mut token) = (Vec::new(), Vec::new(), None);
    let mut follower = stage.follow(From::Earliest, None).await;
    for step in steps {
        match step {
            Step::Publish(topic) => {
                let number = stage.publish(TOPICS[topic]).await;
                if topic < 3 {
                    wanted.push(number);
                }
            }
            Step::Delete(topic) => {
                // What was not read before is gone.
                let rest = all(&mut follower).await;
                token = rest.last().map(|(_, token)| token.clone()).or(token);
                got.extend(numbers(&rest));
                let _ = stage.hub.delete_topic(&TopicName::parse(TOPICS[topic]).unwrap()).await;
            }
            Step::Tick => stage.clock.advance(1),
            Step::Read => {
                if let Some(events) = follower.next_events().await.unwrap() {
                    for event in events {
                        got.push(number(&event));
                        token = Some(follower.token_after(&event));
                    }
                }
            }
            Step::Reconnect => follower = stage.follow(From::Earliest, token.as_deref()).await,
        }
    }
    got.extend(numbers(&all(&mut follower).await));
    got.sort_unstable();
    assert_eq!(got, wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_event_comes_once_through_any_number_of_connections(steps in prop::collection::vec(step(), 0..60)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(steps));
    }
}
