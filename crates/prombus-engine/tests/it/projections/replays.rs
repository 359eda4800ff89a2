//! Dead letters of projections that go back to them.

use crate::projections::stage::*;
use crate::support::switch::Refusal;
use prombus_core::{Append, Commit, CommitError, EventLogExt, Json, NewEvent, TopicName};
use prombus_engine::groups::{FailedBy, GroupCall, GroupName, Replay, Replayed};
use prombus_engine::query::From;
use serde_json::{Value, json};
use std::sync::Arc;

/// Counts events by a key that some do not have, and so fail.
fn strict() -> Value {
    json!({"topic": "t", "write": [{"collection": "c", "key": "event.payload.k", "inc": {"n": "1"}}]})
}

/// The same without the mistake.
fn lenient() -> Value {
    let key = "has(event.payload.k) ? event.payload.k : 'none'";
    json!({"topic": "t", "write": [{"collection": "c", "key": key, "inc": {"n": "1"}}]})
}

/// A projection that has failed the second of three events.
async fn failing(s: &Stage) -> TopicName {
    let topic = s.topic("t", 1).await;
    s.put("p", strict()).await;
    s.publish(&topic, [("x", json!({"k": "a"})), ("x", json!({"v": 1})), ("x", json!({"k": "a"}))]).await;
    s.caught_up("p").await;
    assert_eq!((s.letters(&topic).await.len(), count(s, "a").await), (1, json!(2)));
    topic
}

async fn count(s: &Stage, key: &str) -> Value {
    s.field("c", key, "n").await
}

async fn replay(s: &Stage, topic: &TopicName, force: bool) -> Replayed {
    s.hub.replay(topic, Replay { force, ..Replay::default() }).await.expect("letters can be replayed")
}

/// Why the only letter did not go back.
async fn skipped(s: &Stage, topic: &TopicName, force: bool) -> String {
    let Replayed { matched, replayed, skipped } = replay(s, topic, force).await;
    assert_eq!((matched, replayed, skipped.len()), (1, 0, 1), "{skipped:?}");
    skipped[0].1.clone()
}

pub async fn a_letter_goes_back_to_its_projection_and_to_no_group(s: Stage) {
    let topic = failing(&s).await;
    let call = GroupCall { from: From::Latest, ..GroupCall::default() };
    let name = GroupName::parse("p").expect("a name");
    let (group, _) = s.hub.group(&topic, &name, &call).await.expect("a group");
    s.put("p", lenient()).await;
    let of = |failed_by| Replay { failed_by: Some(failed_by), ..Replay::default() };
    let of_group = s.hub.replay(&topic, of(FailedBy::Group("p".into()))).await.expect("an answer");
    assert_eq!(of_group, Replayed::default(), "the group of that name has failed nothing");
    let projection = of(FailedBy::Projection("p".into()));
    let dry = Replay { dry_run: true, ..projection.clone() };
    assert_eq!(s.hub.replay(&topic, dry).await.expect("an answer").replayed, 1);
    assert_eq!(count(&s, "none").await, Value::Null, "nothing was done");
    assert_eq!(s.hub.replay(&topic, projection).await.expect("an answer").replayed, 1);
    assert_eq!((count(&s, "none").await, count(&s, "a").await), (json!(1), json!(2)));
    assert_eq!(group.status().await.expect("a status").partitions[0].lag, 0);
    assert!(skipped(&s, &topic, false).await.contains("replayed already"));
    assert!(skipped(&s, &topic, true).await.contains("applied the original"), "not even by force");
    let s = s.crash().await;
    s.caught_up("p").await;
    assert!(skipped(&s, &topic, true).await.contains("applied the original"));
    assert_eq!((count(&s, "none").await, s.letters(&topic).await.len()), (json!(1), 1));
}

pub async fn a_letter_that_fails_again_has_a_successor(s: Stage) {
    let topic = failing(&s).await;
    assert!(skipped(&s, &topic, false).await.contains("failed again"), "that is no success");
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 2, "it has failed anew");
    assert!(format!("{:?}", letters[1].headers).contains("x-dlq-replays"));
    assert_eq!(s.status("p").await.errors, 2);
    s.put("p", lenient()).await;
    let Replayed { matched, replayed, .. } = replay(&s, &topic, false).await;
    assert_eq!((matched, replayed), (2, 1), "the one was replayed, the other not yet");
    assert_eq!(count(&s, "none").await, json!(1));
    assert_eq!(replay(&s, &topic, true).await.replayed, 0, "it counts once, whatever letters there are");
}

pub async fn an_answer_that_is_lost_replays_nothing_twice(s: Stage) {
    let topic = failing(&s).await;
    s.put("p", lenient()).await;
    let error = CommitError::Unavailable("lost".into());
    let which = |commit: &Commit| commit.cursors.iter().any(|step| step.key.reader == "replayed");
    s.log.refuse(Refusal { which, after: 0, times: 1, error, happens: true });
    assert!(s.hub.replay(&topic, Replay::default()).await.is_err(), "nobody knows");
    assert!(skipped(&s, &topic, false).await.contains("replayed already"));
    assert!(skipped(&s, &topic, true).await.contains("applied the original"));
    assert_eq!(count(&s, "none").await, json!(1));
    let s = s.crash().await;
    s.caught_up("p").await;
    assert_eq!(count(&s, "none").await, json!(1));
}

pub async fn a_rebuild_neither_doubles_nor_loses_what_was_replayed(s: Stage) {
    let topic = failing(&s).await;
    // What it fails, too, can go back afterwards.
    s.rebuilt("p").await;
    s.put("p", lenient()).await;
    assert_eq!(replay(&s, &topic, false).await.replayed, 1);
    assert_eq!(count(&s, "none").await, json!(1));
    s.rebuilt("p").await;
    assert_eq!((count(&s, "none").await, count(&s, "a").await), (json!(1), json!(2)));
    assert!(skipped(&s, &topic, true).await.contains("applied the original"));
}

pub async fn what_a_rebuild_has_made_up_for_is_not_replayed(s: Stage) {
    let topic = failing(&s).await;
    s.put("p", lenient()).await;
    s.rebuilt("p").await;
    assert_eq!(count(&s, "none").await, json!(1));
    assert!(skipped(&s, &topic, false).await.contains("applied the original"));
    assert_eq!(count(&s, "none").await, json!(1));
}

pub async fn letters_of_a_projection_that_is_gone_are_skipped(s: Stage) {
    let topic = failing(&s).await;
    s.hub.projections().delete("p").await.expect("it can be deleted");
    assert!(skipped(&s, &topic, false).await.contains("no projection"));
    s.put("p", lenient()).await;
    s.caught_up("p").await;
    assert!(skipped(&s, &topic, false).await.contains("recreated"), "it has applied all events itself");
    assert_eq!(count(&s, "none").await, json!(1));
    let again = json!({"topic": "other", "collection": "c", "key": "event.key"});
    s.hub.projections().delete("p").await.expect("it can be deleted");
    s.put("p", again).await;
    assert!(skipped(&s, &topic, false).await.contains("reads topic other"));
}

/// An import brings ids and places along.
pub async fn letters_of_a_topic_that_was_made_anew_are_skipped(s: Stage) {
    let topic = s.topic("t", 1).await;
    let id = uuid::Uuid::from_u128(7);
    let with_id = |payload: Value| {
        let mut append = append(&topic, Some("x"), &payload);
        append.event.id = Some(id);
        vec![append]
    };
    s.put("p", strict()).await;
    s.hub.publish(with_id(json!({"v": 1}))).await.expect("it is published");
    s.caught_up("p").await;
    assert_eq!(s.letters(&topic).await.len(), 1);
    s.hub.delete_topic(&topic).await.expect("it can be deleted");
    s.topic("t", 1).await;
    s.hub.publish(with_id(json!({"k": "a"}))).await.expect("it is published");
    s.caught_up("p").await;
    assert_eq!(count(&s, "a").await, json!(1));
    assert!(skipped(&s, &topic, true).await.contains("applied the original"));
    assert_eq!(count(&s, "a").await, json!(1));
}

pub async fn letters_that_older_builds_wrote_are_explained(s: Stage) {
    let topic = failing(&s).await;
    let letter = s.letters(&topic).await.remove(0).payload.to_value().expect("JSON");
    let mut old = letter.as_object().expect("an object").clone();
    let name = old.remove("projection").expect("a name");
    old.insert("group".into(), name);
    let dead = topic.dead_letters().expect("a name");
    let event = NewEvent::new(Json::from_value(&Value::Object(old)));
    let events = vec![Append::new(dead, event)];
    let filter = prombus_engine::Filter::compile("has(event.payload.group)").expect("a filter");
    s.log.commit(Arc::new(Commit { events, ..Commit::default() })).await.expect("it can be written");
    let about = Replay { filter: Some(filter), ..Replay::default() };
    let answer = s.hub.replay(&topic, about).await.expect("an answer");
    assert_eq!((answer.matched, answer.replayed), (1, 0));
    assert!(answer.skipped[0].1.contains("older version"), "{:?}", answer.skipped);
}
