//! Projections in Rust.

use crate::projections::stage::*;
use crate::support::switch::Refusal;
use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::collection::{Index, MAX_INDEX_VALUE_BYTES};
use prombus_core::{Append, CommitError, Event, FieldPath, Partition, TopicName};
use prombus_engine::collections::CollectionSettings;
use prombus_engine::projection;
use prombus_engine::projections::{CodeSetup, Project, ProjectFailure, ProjectionError, ProjectionState, Tx};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

projection! {
    /// Keeps the greatest number of each key, and how often it was beaten.
    struct Records;
    async fn apply(event, tx) {
        let payload: Value = serde_json::from_slice(event.payload.as_bytes())?;
        let key = payload["k"].as_str().ok_or_else(|| ProjectFailure::new("no k"))?;
        let before: Option<Value> = tx.get("records", key).await?;
        let (best, beaten) = before.map_or((0, 0), |b| (b["best"].as_u64().unwrap(), b["beaten"].as_u64().unwrap()));
        let now = payload["v"].as_u64().unwrap_or_default();
        tx.inc("seen", key, "n", 1).await?;
        if now > best {
            tx.put("records", key, &json!({"best": now, "beaten": beaten + 1})).await?;
        }
        Ok(())
    }
}

async fn run(
    s: &Stage,
    name: &str,
    project: impl Project,
    collections: &[&str],
) -> Result<(), ProjectionError> {
    let collections =
        collections.iter().map(|name| (name.to_string(), CollectionSettings::default())).collect();
    let setup = CodeSetup { topic: topic_name("t"), collections, project: Arc::new(project) };
    s.hub.projections().run_code(name, setup).await
}

/// What [`Records`] should have made of numbers in order.
fn expected(numbers: impl Iterator<Item = u64>) -> (u64, u64) {
    numbers.fold((0, 0), |(best, beaten), n| if n > best { (n, beaten + 1) } else { (best, beaten) })
}

fn number(n: u64) -> u64 {
    (n * 7_919) % 5_003
}

async fn publish(s: &Stage, topic: &TopicName, numbers: std::ops::Range<u64>) {
    let events = numbers.map(|n| append(topic, None, &json!({"k": "a", "v": number(n)}))).collect();
    s.hub.publish(events).await.expect("events can be published");
}

pub async fn reads_see_what_earlier_events_wrote(mut s: Stage) {
    let topic = s.topic("t", 1).await;
    run(&s, "p", Records, &["records", "seen"]).await.expect("it runs");
    for round in 0..4 {
        let error = CommitError::Unknown("the machine is about to go".into());
        s.log.refuse(Refusal { which: moves_cursors, after: round, times: 1, error, happens: round == 1 });
        publish(&s, &topic, 1_100 * round as u64..1_100 * (round as u64 + 1)).await;
        s.until("p", "it is refused or done", |status| s.log.refusals_left() == 0 || status.lag == 0).await;
        s = s.crash().await;
        run(&s, "p", Records, &["records", "seen"]).await.expect("it goes on from where it was");
    }
    assert_eq!(s.caught_up("p").await.lag, 0);
    let (best, beaten) = expected((0..4_400).map(number));
    let record = s.document("records", "a").await.expect("a record");
    assert_eq!((&record["best"], &record["beaten"]), (&json!(best), &json!(beaten)));
    assert_eq!(s.field("seen", "a", "n").await, json!(4_400));
}

pub async fn a_rebuild_of_code_gives_the_same(s: Stage) {
    let topic = s.topic("t", 1).await;
    run(&s, "p", Records, &["records", "seen"]).await.expect("it runs");
    publish(&s, &topic, 0..2_500).await;
    s.caught_up("p").await;
    let before = [s.all("records").await, s.all("seen").await];
    s.rebuilt("p").await;
    assert_eq!([s.all("records").await, s.all("seen").await], before);
    publish(&s, &topic, 2_500..2_510).await;
    s.caught_up("p").await;
    assert_eq!(s.field("seen", "a", "n").await, json!(2_510));
}

/// Does what the payload asks for, and remembers how often each event came.
#[derive(Default)]
struct Obedient {
    tries: Arc<Mutex<HashMap<u64, u32>>>,
}

#[async_trait]
impl Project for Obedient {
    async fn apply(&self, event: &Event, tx: &mut Tx<'_>) -> Result<(), ProjectFailure> {
        let payload: Value = serde_json::from_slice(event.payload.as_bytes())?;
        let n = payload["n"].as_u64().unwrap_or_default();
        let tries = {
            let mut tries = self.tries.lock();
            let tries = tries.entry(n).or_default();
            *tries += 1;
            *tries
        };
        let seen: Option<Value> = tx.get("c", "all").await?;
        let seen = seen.map_or(0, |document| document["n"].as_u64().unwrap_or_default());
        tx.put("c", "all", &json!({"n": seen + 1, "last": n})).await?;
        tx.inc("d", &format!("k{}", n % 3), "n", 1).await?;
        if let Some(mail) = payload.get("mail") {
            tx.put("mails", &format!("m{n}"), &json!({"mail": mail})).await?;
        }
        if payload["tell"] == json!(true) {
            tx.publish(append(&topic_name("told"), Some("k"), &json!({"n": n, "seen": seen + 1})))?;
        }
        if let Some(to) = payload["publish"]["to"].as_str() {
            let text = "x".repeat(payload["publish"]["bytes"].as_u64().unwrap_or_default() as usize);
            let partition = payload["publish"]["partition"].as_u64().map(|n| Partition(n as u32));
            let placement = partition.into();
            tx.publish(Append { placement, ..append(&topic_name(to), Some("k"), &json!(text)) })?;
        }
        match payload["do"].as_str() {
            Some("fail") => Err(ProjectFailure::new("it was asked to fail")),
            Some("fail twice") if tries <= 2 => Err(ProjectFailure::new("not yet")),
            Some("panic") => panic!("it was asked to panic"),
            Some("stray") => tx.delete("other", "x").await,
            Some("add to a text") => {
                tx.put("d", "text", &json!({"n": "x"})).await?;
                tx.inc("d", "text", "n", 1).await
            }
            _ => Ok(()),
        }
    }
}

async fn obey(
    s: &Stage,
    payloads: impl IntoIterator<Item = Value>,
) -> (TopicName, Arc<Mutex<HashMap<u64, u32>>>) {
    let topic = s.topic("t", 1).await;
    let events = payloads.into_iter().map(|payload| append(&topic, None, &payload)).collect();
    s.hub.publish(events).await.expect("events can be published");
    let project = Obedient::default();
    let tries = project.tries.clone();
    let unique = Index { fields: vec![FieldPath::parse("mail").expect("a field")], unique: true };
    let mails = CollectionSettings { indexes: vec![unique], ..CollectionSettings::default() };
    let plain = |name: &str| (name.to_owned(), CollectionSettings::default());
    let collections = vec![plain("c"), plain("d"), ("mails".to_owned(), mails)];
    let setup = CodeSetup { topic: topic.clone(), collections, project: Arc::new(project) };
    s.hub.projections().run_code("p", setup).await.expect("it runs");
    (topic, tries)
}

pub async fn a_failure_takes_back_that_event_only(s: Stage) {
    let bad = [("fail", 3), ("panic", 5), ("stray", 7), ("add to a text", 8)];
    let payload = |n: u64| match bad.iter().find(|(_, at)| *at == n) {
        Some((what, _)) => json!({"n": n, "do": what, "tell": true}),
        None if n == 4 => json!({"n": n, "do": "fail twice"}),
        None => json!({"n": n, "tell": n.is_multiple_of(2)}),
    };
    let (topic, tries) = obey(&s, (0..12).map(payload)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (4, ProjectionState::Running));
    assert_eq!(s.document("c", "all").await.expect("a count")["n"], json!(8));
    assert_eq!(s.field("c", "all", "last").await, json!(11));
    assert_eq!(s.document("d", "text").await, None);
    let counts: Vec<Value> =
        vec![s.field("d", "k0", "n").await, s.field("d", "k1", "n").await, s.field("d", "k2", "n").await];
    assert_eq!(counts, [json!(3), json!(3), json!(2)]);
    let letters = s.letters(&topic).await;
    let letters: Vec<Value> = letters.iter().map(|letter| letter.payload.to_value().expect("JSON")).collect();
    let found: Vec<_> = letters.iter().map(|letter| letter["original"]["payload"]["n"].clone()).collect();
    assert_eq!(found, [json!(3), json!(5), json!(7), json!(8)]);
    assert!(letters.iter().all(|letter| letter["attempts"] == json!(4)), "{letters:?}");
    assert!(letters[1]["err"].as_str().expect("a text").contains("asked to panic"));
    let tries = tries.lock().clone();
    assert_eq!((tries[&4], tries[&3], tries[&0]), (3, 4, 1));
    let told: Vec<Value> = s
        .events(&topic_name("told"))
        .await
        .iter()
        .map(|event| event.payload.to_value().expect("JSON"))
        .collect();
    let numbers: Vec<_> = told.iter().map(|told| told["n"].clone()).collect();
    assert_eq!(numbers, [json!(0), json!(2), json!(6), json!(10)], "what failed has told nothing");
    assert!(s.events(&topic_name("told")).await.iter().all(|event| event.caused_by.is_some()));
}

/// An event is refused when it is committed, after later ones have read what it wrote.
pub async fn what_came_after_a_refused_event_is_done_again(s: Stage) {
    let payload = |n: u64| match n {
        2 | 700 | 1_500 => json!({"n": n, "mail": "same"}),
        _ => json!({"n": n}),
    };
    let (topic, _) = obey(&s, (0..2_100).map(payload)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (2, ProjectionState::Running));
    assert_eq!(s.letters(&topic).await.len(), 2);
    assert_eq!(s.document("c", "all").await.expect("a count")["n"], json!(2_098));
    assert_eq!(s.all("mails").await.len(), 1);
}

pub async fn an_event_that_is_too_long_for_an_index_is_left_out(s: Stage) {
    let long = "x".repeat(MAX_INDEX_VALUE_BYTES);
    let payload = |n: u64| match n {
        3 => json!({"n": n, "mail": long}),
        _ => json!({"n": n, "mail": n}),
    };
    let (topic, _) = obey(&s, (0..8).map(payload)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (1, ProjectionState::Running));
    let letter = s.letters(&topic).await[0].payload.to_value().expect("JSON");
    assert_eq!(letter["original"]["payload"]["n"], 3);
    assert!(letter["err"].as_str().expect("a reason").contains("4096"), "{letter}");
    assert_eq!(s.document("c", "all").await.expect("a count")["n"], json!(7));
    assert_eq!(s.all("mails").await.len(), 7);
}

pub async fn what_is_published_is_there_with_the_documents(s: Stage) {
    let (_, _) = obey(&s, (0..3_000).map(|n| json!({"n": n, "tell": true}))).await;
    s.caught_up("p").await;
    let told = s.events(&topic_name("told")).await;
    assert_eq!(told.len(), 3_000);
    for (n, event) in told.iter().enumerate() {
        assert_eq!(event.payload.to_value().expect("JSON"), json!({"n": n, "seen": n + 1}));
    }
    s.rebuilt("p").await;
    assert_eq!(s.events(&topic_name("told")).await.len(), 3_000, "a rebuild tells nothing");
}

pub async fn code_and_definitions_keep_apart(s: Stage) {
    s.topic("t", 1).await;
    run(&s, "p", Records, &["records", "seen"]).await.expect("it runs");
    let again = run(&s, "p", Records, &["records", "seen"]).await;
    assert!(matches!(again, Err(ProjectionError::Bad(_))), "{again:?}");
    let other = run(&s, "q", Records, &["records"]).await;
    assert!(matches!(other, Err(ProjectionError::NotOwner { .. })), "{other:?}");
    let put = s.try_put("p", changelog("t", "c")).await;
    assert!(matches!(put, Err(ProjectionError::Bad(_))), "{put:?}");
    assert_eq!(s.status("p").await.collections, ["records", "seen"], "it goes on");
    assert!(matches!(run(&s, "Not a name", Records, &[]).await, Err(ProjectionError::Bad(_))));
}

/// An event is not to blame for a document that cannot be read.
pub async fn a_store_that_cannot_be_read_is_waited_for(s: Stage) {
    let topic = s.topic("t", 2).await;
    run(&s, "p", Records, &["records", "seen"]).await.expect("it runs");
    s.log.is_unreadable.store(true, Ordering::SeqCst);
    publish(&s, &topic, 0..100).await;
    let status = s.until("p", "it has to wait", |status| status.last_error.is_some()).await;
    assert_eq!((status.state, status.errors), (ProjectionState::Running, 0));
    s.log.is_unreadable.store(false, Ordering::SeqCst);
    assert_eq!(s.caught_up("p").await.errors, 0);
    assert_eq!(s.field("seen", "a", "n").await, json!(100));
    assert!(s.letters(&topic).await.is_empty());
}

pub async fn what_is_published_is_checked_as_every_publish_is(s: Stage) {
    s.topic("told", 4).await;
    s.registered(&topic_name("strict"), &json!({"type": "integer"})).await;
    let refused = [
        (json!({"to": "dlq.orders"}), "belongs to the hub itself"),
        (json!({"to": "system.x"}), "belongs to the hub itself"),
        (json!({"to": "told", "bytes": 2 << 20}), "limits.event_bytes"),
        (json!({"to": "told", "partition": 0}), "either a key or a partition"),
        (json!({"to": "strict"}), "violates version 1 of the schema of topic strict"),
    ];
    let payloads = (0..).zip(&refused).map(|(n, (publish, _))| json!({"n": n, "publish": publish}));
    let good = json!({"n": 9, "publish": {"to": "told", "bytes": 10}});
    let (topic, _) = obey(&s, payloads.chain([good])).await;
    s.caught_up("p").await;
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), refused.len());
    for (letter, (publish, why)) in letters.iter().zip(&refused) {
        let letter = letter.payload.to_value().expect("JSON");
        assert!(letter["err"].as_str().is_some_and(|err| err.contains(why)), "{publish}: {letter}");
    }
    let told = s.events(&topic_name("told")).await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].partition, prombus_core::hashing::partition_of(b"k", 4));
    for own in ["dlq.orders", "system.x"] {
        assert_eq!(s.hub.topic(&topic_name(own)).await.expect("an answer"), None, "{own}");
    }
    assert_eq!(s.field("c", "all", "n").await, json!(1), "what else they did is taken back");
}

pub async fn code_closes_no_circle_either(s: Stage) {
    s.put("p", with_feed("x", "c", "y")).await;
    let run = |name: &'static str, feed: &str| {
        let settings =
            CollectionSettings { changefeed: Some(topic_name(feed)), ..CollectionSettings::default() };
        let (topic, project) = (topic_name("y"), Arc::new(Obedient::default()));
        let setup = CodeSetup { topic, collections: vec![(format!("of_{name}"), settings)], project };
        s.hub.projections().run_code(name, setup)
    };
    for (feed, why) in [("x", "collection of_q, topic x"), ("y", "topic y"), ("dlq.x", "hub's own")] {
        let refused = run("q", feed).await;
        let Err(ProjectionError::Bad(message)) = refused else { panic!("{feed}: {refused:?}") };
        assert!(message.contains(why), "{message}");
    }
    run("q", "z").await.expect("it leads elsewhere");
    let refused = s.try_put("r", with_feed("z", "d", "x")).await;
    assert!(matches!(refused, Err(ProjectionError::Bad(_))), "{refused:?}");
}

fn with_feed(topic: &str, collection: &str, feed: &str) -> Value {
    let mut definition = changelog(topic, collection);
    definition["changefeed"] = json!(feed);
    definition
}
