//! Each event counts exactly once, whatever happens to the hub and to its commits.

use crate::projections::stage::*;
use crate::support::switch::Refusal;
use prombus_core::collection::MAX_INDEX_VALUE_BYTES;
use prombus_core::{CommitError, Event, EventLog};
use prombus_engine::projections::ProjectionState;
use serde_json::{Value, json};
use std::time::Duration;

/// The key and value of the `n`th event; they go to all partitions and to few documents.
fn payload(n: u64) -> (String, Value) {
    (format!("e{n}"), json!({"k": format!("c{}", n % 7), "v": n}))
}

async fn publish(s: &Stage, topic: &prombus_core::TopicName, numbers: std::ops::Range<u64>) {
    let events = numbers.map(payload).map(|(key, payload)| append(topic, Some(&key), &payload)).collect();
    s.hub.publish(events).await.expect("events can be published");
}

async fn assert_exact(s: &Stage, collection: &str, published: u64) {
    for counter in 0..7 {
        let mine = (0..published).filter(|n| n % 7 == counter);
        let (count, sum) = mine.fold((0, 0), |(count, sum), n| (count + 1, sum + n));
        let document = s.document(collection, &format!("c{counter}")).await.expect("a counter");
        assert_eq!((&document["n"], &document["sum"]), (&json!(count), &json!(sum)), "counter {counter}");
    }
}

pub async fn a_counter_is_exact_over_partitions(s: Stage) {
    let topic = s.topic("t", 4).await;
    publish(&s, &topic, 0..3_000).await;
    s.put("p", counter("t", "counts")).await;
    publish(&s, &topic, 3_000..6_000).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.lag, status.state, status.errors), (0, ProjectionState::Running, 0));
    assert_exact(&s, "counts", 6_000).await;
    let s = s.restart().await;
    publish(&s, &topic, 6_000..6_100).await;
    s.caught_up("p").await;
    assert_exact(&s, "counts", 6_100).await;
}

pub async fn a_counter_is_exact_after_crashes(mut s: Stage) {
    let topic = s.topic("t", 3).await;
    s.put("p", counter("t", "counts")).await;
    let mut published = 0;
    for round in 0..8 {
        // From some commit on nothing is taken any more; in odd rounds the last one happens, and nobody hears of it.
        let error = CommitError::Unknown("the machine is about to go".into());
        let refusal =
            Refusal { which: moves_cursors, after: round % 3, times: 1, error, happens: round % 2 == 1 };
        s.log.refuse(refusal);
        publish(&s, &topic, published..published + 1_500).await;
        published += 1_500;
        s.until("p", "a commit is refused", |status| s.log.refusals_left() == 0 || status.lag == 0).await;
        s = s.crash().await;
    }
    s.caught_up("p").await;
    assert_exact(&s, "counts", published).await;
}

pub async fn a_commit_that_is_refused_for_now_is_made_later(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", counter("t", "counts")).await;
    let mut published = 0;
    for error in [
        CommitError::NoRoom,
        CommitError::Busy,
        CommitError::Unavailable("no".into()),
        CommitError::CursorMoved { reader: "someone".into(), actual: 7 },
    ] {
        s.refuse(moves_cursors, 3, error);
        publish(&s, &topic, published..published + 500).await;
        published += 500;
        let status = s.caught_up("p").await;
        assert_eq!((status.state, status.errors, s.log.refusals_left()), (ProjectionState::Running, 0, 0));
    }
    assert_exact(&s, "counts", published).await;
}

pub async fn an_answer_that_is_lost_counts_nothing_twice(s: Stage) {
    let topic = s.topic("t", 2).await;
    s.put("p", counter("t", "counts")).await;
    let error = CommitError::Unknown("the answer was lost".into());
    s.log.refuse(Refusal { which: moves_cursors, after: 0, times: 2, error, happens: true });
    publish(&s, &topic, 0..3_000).await;
    s.caught_up("p").await;
    assert_exact(&s, "counts", 3_000).await;
}

pub async fn a_full_disk_does_not_keep_the_hub_from_ending(s: Stage) {
    let topic = s.topic("t", 1).await;
    s.put("p", counter("t", "counts")).await;
    s.refuse(moves_cursors, usize::MAX, CommitError::NoRoom);
    publish(&s, &topic, 0..10).await;
    let full = CommitError::NoRoom.to_string();
    s.until("p", "it says what it waits for", |status| status.last_error.as_ref() == Some(&full)).await;
    let s = s.restart().await;
    let status = s.caught_up("p").await;
    assert_eq!(status.last_error, None);
    assert_exact(&s, "counts", 10).await;
}

pub async fn removed_events_hold_nothing_up(s: Stage) {
    let topic = s.topic("t", 1).await;
    (5..10).for_each(|offset| s.log.remove(0, offset));
    s.put("p", counter("t", "counts")).await;
    publish(&s, &topic, 0..5).await;
    s.caught_up("p").await;
    // A page of these has no event at all.
    publish(&s, &topic, 5..10).await;
    let status = s.caught_up("p").await;
    assert_eq!(status.lag, 0, "the cursor is past what was removed");
    // What is in new partitions waits for what was there before, which is done.
    s.topic("t", 4).await;
    publish(&s, &topic, 10..40).await;
    assert_eq!(s.caught_up("p").await.lag, 0);
    assert_eq!(counted(&s).await, 35);
}

async fn counted(s: &Stage) -> u64 {
    let mut all = 0;
    for counter in 0..7 {
        all += s.field("counts", &format!("c{counter}"), "n").await.as_u64().unwrap_or_default();
    }
    all
}

/// Events that fail when they are committed: here, a text that nothing can be added to.
fn adder(retries: u32) -> Value {
    json!({"topic": "t", "retries": retries, "write": [
        {"collection": "sums", "key": "event.payload.k", "inc": {"n": "event.payload.v"}},
        {"collection": "order", "key": "'all'", "inc": {"seen": "1"}, "set": {"last": "event.payload.i"}},
    ]})
}

async fn publish_numbers(s: &Stage, count: u64, is_bad: impl Fn(u64) -> bool) -> prombus_core::TopicName {
    let topic = s.topic("t", 1).await;
    let payload = |i| json!({"k": "a", "i": i, "v": if is_bad(i) { json!("x") } else { json!(1) }});
    let events = (0..count).map(|i| append(&topic, None, &payload(i))).collect();
    s.hub.publish(events).await.expect("events can be published");
    topic
}

fn assert_letter(letter: &Event, number: u64, attempts: u32) {
    let body = letter.payload.to_value().expect("JSON");
    assert_eq!(body["original"]["payload"]["i"], json!(number));
    assert_eq!((&body["projection"], &body["topic"]), (&json!("p"), &json!("t")));
    assert_eq!(body["attempts"], json!(attempts));
    assert!(body["err"].as_str().expect("a text").contains("not a number"), "{body}");
    let causes = letter.caused_by.as_ref().expect("a cause").to_value().expect("JSON");
    assert_eq!(causes, json!([body["original"]["id"]]));
}

pub async fn only_the_event_that_fails_is_left_out(s: Stage) {
    let topic = publish_numbers(&s, 3_000, |i| i == 1_234).await;
    s.put("p", adder(2)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (1, ProjectionState::Running));
    assert!(status.last_error.expect("an error").contains("not a number"));
    assert_eq!(s.field("sums", "a", "n").await, json!(2_999));
    assert_eq!(s.field("order", "all", "seen").await, json!(2_999), "all or none of an event's writes");
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    assert_letter(&letters[0], 1_234, 3);
    let s = s.restart().await;
    s.caught_up("p").await;
    assert_eq!(s.letters(&topic).await.len(), 1, "once");
}

pub async fn the_first_and_last_of_a_page_may_fail(s: Stage) {
    let is_bad = |i| i == 0 || i == 1_999 || i == 2_000 || i == 2_001 || i == 2_499;
    let topic = publish_numbers(&s, 2_500, is_bad).await;
    s.put("p", adder(0)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.lag), (5, 0));
    assert_eq!(s.field("order", "all", "seen").await, json!(2_495));
    assert_eq!(s.field("order", "all", "last").await, json!(2_498));
    let letters = s.letters(&topic).await;
    let bad = [0, 1_999, 2_000, 2_001, 2_499];
    assert_eq!(letters.len(), bad.len());
    letters.iter().zip(bad).for_each(|(letter, number)| assert_letter(letter, number, 1));
}

pub async fn many_events_of_a_page_may_fail(s: Stage) {
    let topic = publish_numbers(&s, 600, |i| i % 3 == 0).await;
    s.put("p", adder(3)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, s.letters(&topic).await.len()), (200, 200));
    assert_eq!(s.field("sums", "a", "n").await, json!(400));
    assert_letter(&s.letters(&topic).await[7], 21, 4);
}

/// A store that is busy for a moment while a page is taken apart.
pub async fn a_page_that_is_taken_apart_waits_for_better_times(s: Stage) {
    let topic = publish_numbers(&s, 2_000, |i| i == 500 || i == 1_000).await;
    let refusal =
        Refusal { which: moves_cursors, after: 1, times: 2, error: CommitError::Busy, happens: false };
    s.log.refuse(refusal);
    s.put("p", adder(1)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (2, ProjectionState::Running));
    assert_eq!((s.field("sums", "a", "n").await, s.letters(&topic).await.len()), (json!(1_998), 2));
}

pub async fn a_page_that_is_too_large_is_made_in_pieces(s: Stage) {
    let topic = publish_numbers(&s, 100, |_| false).await;
    let error = CommitError::TooLarge { bytes: 2, limit: 1 };
    let which = |commit: &prombus_core::Commit| !commit.cursors.is_empty() && commit.documents.len() > 20;
    s.refuse(which, usize::MAX, error);
    s.put("p", adder(1)).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, s.letters(&topic).await.len()), (0, 0));
    assert_eq!(s.field("sums", "a", "n").await, json!(100));
}

/// Merges a number into one of a few documents that are large already.
fn into_large(collection: &str) -> Value {
    let write = json!({"collection": collection, "key": "event.payload.to", "merge": "event.payload.patch"});
    json!({"topic": "t", "write": [write]})
}

/// Publishes documents of so many bytes to merge, and then `count` small patches of them.
async fn publish_patches(s: &Stage, bytes: usize, documents: usize, count: usize) {
    let topic = s.topic("t", 1).await;
    let event = |to: usize, patch: Value| ("k", json!({"to": format!("d{to}"), "patch": patch}));
    for to in 0..documents {
        // In pieces, because an event may not be as large as a document.
        for piece in 0..bytes.div_ceil(500_000) {
            let pad = "x".repeat(bytes.min(500_000));
            s.publish(&topic, [event(to, json!({(format!("pad{piece}")): pad}))]).await;
        }
    }
    let patches = (0..count).map(|n| event(n % documents, json!({(format!("n{}", n % 10)): n})));
    s.publish(&topic, patches).await;
}

/// A backlog of small events into one large document costs what the document does, and not once for each event.
pub async fn small_changes_of_a_large_document_are_few_bytes(s: Stage) {
    const BYTES: usize = 3_500_000;
    publish_patches(&s, BYTES, 1, 1_100).await;
    let before = s.log.status().extra("disk_bytes");
    s.put("p", into_large("large")).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, s.field("large", "d0", "n9").await), (0, json!(1_099)));
    let grown = s.log.status().extra("disk_bytes") - before;
    let most = 20 * BYTES as u64;
    assert!(grown < most, "{grown} bytes were written for a document of {BYTES}");
}

/// Batches that make too much are done in smaller ones, and only an event that alone makes too much has failed.
pub async fn a_batch_ends_by_what_it_makes(_: Stage) {
    const LIMIT: usize = 80_000;
    let s = Stage::bounded(LIMIT).await;
    publish_patches(&s, 20_000, 20, 300).await;
    s.put("p", into_large("large")).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (0, ProjectionState::Running));
    for n in 290..300 {
        assert_eq!(s.field("large", &format!("d{}", n % 20), &format!("n{}", n % 10)).await, json!(n));
    }
    let refused = s.log.too_large();
    assert!((1..50).contains(&refused), "{refused} commits of 300 events were refused");
    let all = json!(
        ["d0", "d1", "d2", "d3", "d4"]
            .map(|to| json!({"collection": "large", "key": format!("'{to}'"), "merge": "event.payload"}))
    );
    s.put("p", json!({"topic": "t", "write": all, "retries": 0})).await;
    let topic = topic_name("t");
    s.publish(&topic, [("k", json!({"last": 1}))]).await;
    s.caught_up("p").await;
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    let letter = letters[0].payload.to_value().expect("JSON");
    assert!(letter["err"].as_str().expect("a reason").contains("limits.result_bytes"), "{letter}");
    assert_eq!(s.field("large", "d0", "last").await, Value::Null, "all or none of an event's writes");
}

/// A counter that would leave 64 bits stays as it is, and the event that would have it do so has failed.
pub async fn a_counter_never_leaves_64_bits(s: Stage) {
    let topic = s.topic("t", 1).await;
    let write = json!({"collection": "sums", "key": "'all'", "inc": {"n": "event.payload.by"}});
    s.put("p", json!({"topic": "t", "write": [write], "retries": 0})).await;
    let most = i64::MAX;
    let by = |amount: Value| ("k", json!({"by": amount}));
    s.publish(&topic, [by(json!(most - 1)), by(json!(1)), by(json!(1)), by(json!(u64::MAX)), by(json!(-1))])
        .await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, s.field("sums", "all", "n").await), (2, json!(most - 1)));
    for letter in s.letters(&topic).await {
        let letter = letter.payload.to_value().expect("JSON");
        assert!(letter["err"].as_str().expect("a reason").contains("64-bit integers"), "{letter}");
    }
}

pub async fn what_must_be_unique_is(s: Stage) {
    let topic = s.topic("t", 1).await;
    let index = json!([{"fields": ["mail"], "unique": true}]);
    s.put("p", json!({"topic": "t", "collection": "users", "key": "event.key", "indexes": index})).await;
    let user = |mail: &str| json!({"mail": mail});
    let users = [("a", user("x")), ("b", user("y")), ("c", user("x")), ("d", user("z")), ("a", user("w"))];
    s.publish(&topic, users).await;
    s.publish(&topic, [("e", user("x"))]).await;
    let status = s.caught_up("p").await;
    assert_eq!(status.errors, 1);
    let letters = s.letters(&topic).await;
    assert_eq!(letters.len(), 1);
    let letter = letters[0].payload.to_value().expect("JSON");
    assert_eq!((&letter["original"]["key"], &letter["attempts"]), (&json!("c"), &json!(4)));
    assert_eq!(s.document("users", "c").await, None);
    assert_eq!(s.field("users", "e", "mail").await, json!("x"), "it was free again");
}

pub async fn what_is_too_long_for_an_index_is_left_out(s: Stage) {
    let topic = s.topic("t", 1).await;
    let write = json!({"collection": "users", "key": "event.payload.k", "indexes": [["n"], ["mail"]],
        "set": {"mail": "event.payload.mail"}, "inc": {"seen": "1"}});
    s.put("p", json!({"topic": "t", "write": [write]})).await;
    let user = |k: &'static str, mail: &str| (k, json!({"k": k, "mail": mail}));
    let long = "x".repeat(MAX_INDEX_VALUE_BYTES);
    // The one that comes after it writes the same document, and is not to blame.
    let users = [user("a", "x"), user("b", &long), user("b", "y"), user("a", &long), user("a", "z")];
    s.publish(&topic, users).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, status.state), (2, ProjectionState::Running));
    let letters = s.letters(&topic).await;
    let letters: Vec<Value> = letters.iter().map(|letter| letter.payload.to_value().expect("JSON")).collect();
    let blamed: Vec<&Value> = letters.iter().map(|letter| &letter["original"]["offset"]).collect();
    assert_eq!(blamed, [&json!(1), &json!(3)]);
    for letter in &letters {
        let reason = letter["err"].as_str().expect("a reason");
        assert!(reason.contains("users") && reason.contains("mail") && reason.contains("4096"), "{reason}");
    }
    let expected = [("a", "z", 2), ("b", "y", 1)];
    for (key, mail, seen) in expected {
        assert_eq!(
            (s.field("users", key, "mail").await, s.field("users", key, "seen").await),
            (json!(mail), json!(seen))
        );
    }
    let before = s.all("users").await;
    s.rebuilt("p").await;
    assert_eq!(s.all("users").await, before, "a rebuild leaves out the same");
    assert_eq!(s.letters(&topic).await.len(), 2);
}

pub async fn two_projections_of_a_topic_do_not_disturb_each_other(s: Stage) {
    let topic = publish_numbers(&s, 1_000, |i| i == 10).await;
    s.put("p", adder(0)).await;
    s.put("q", json!({"topic": "t", "collection": "q", "key": "string(event.payload.i)"})).await;
    s.put("r", json!({"topic": "t", "collection": "r", "key": "event.payload.nothing"})).await;
    for name in ["p", "q", "r"] {
        s.caught_up(name).await;
    }
    let errors = [s.status("p").await.errors, s.status("q").await.errors, s.status("r").await.errors];
    assert_eq!(errors, [1, 0, 1_000]);
    assert_eq!(s.letters(&topic).await.len(), 1_001);
    assert_eq!(s.all("q").await.len(), 1_000);
    assert_eq!(s.field("sums", "a", "n").await, json!(999));
}

/// Whoever publishes waits behind what projections have under way, so that must not go by how many there are.
pub async fn large_batches_go_a_few_at_a_time(s: Stage) {
    const AT_ONCE: usize = 4;
    let topic = s.topic("t", 1).await;
    s.publish(&topic, (0..3_000).map(|_| ("x", json!({"k": "a", "v": 1})))).await;
    s.log.hold(moves_cursors);
    let names: Vec<String> = (0..AT_ONCE + 2).map(|n| format!("p{n}")).collect();
    for name in &names {
        s.put(name, counter("t", &format!("counts.{name}"))).await;
    }
    s.log.until_held(AT_ONCE).await;
    let more = tokio::time::timeout(Duration::from_millis(300), s.log.until_held(AT_ONCE + 1));
    assert!(more.await.is_err(), "the others wait for their turn");
    s.log.release();
    for name in &names {
        s.caught_up(name).await;
        assert_eq!(s.field(&format!("counts.{name}"), "a", "n").await, json!(3_000));
    }
}

/// The same for batches that are large by what a single event makes: they have the room that large commits have.
pub async fn batches_that_make_much_go_one_at_a_time(s: Stage) {
    let topic = s.topic("t", 1).await;
    let text = "x".repeat(900 << 10);
    s.publish(&topic, [("x", json!({"t": text})), ("x", json!({"t": text}))]).await;
    s.log.hold(moves_cursors);
    let names = ["p0", "p1", "p2"];
    let thrice = "{'a': event.payload.t, 'b': event.payload.t, 'c': event.payload.t}";
    for name in names {
        let write = |n: u32| json!({"collection": format!("{name}.{n}"), "key": "event.key", "set": thrice});
        s.put(name, json!({"topic": "t", "write": [write(0), write(1), write(2), write(3)]})).await;
    }
    s.log.until_held(1).await;
    let more = tokio::time::timeout(Duration::from_millis(300), s.log.until_held(2));
    assert!(more.await.is_err(), "the others wait for room");
    s.log.release();
    for name in names {
        s.caught_up(name).await;
        assert_eq!(s.all(&format!("{name}.3")).await.len(), 1);
    }
}

/// The same for batches that are large by the documents that they change, of which a changefeed tells each time.
pub async fn batches_that_tell_much_go_one_at_a_time(s: Stage) {
    const EVENTS: usize = 30;
    let names = ["p0", "p1", "p2"];
    for name in names {
        let write = json!({
            "collection": name, "key": "'d'", "merge": "event.payload", "changefeed": format!("feed-{name}"),
        });
        s.put(name, json!({"topic": "t", "write": [write]})).await;
    }
    let topic = s.topic("t", 1).await;
    s.publish(&topic, [("k", json!({"text": "x".repeat(700_000)}))]).await;
    for name in names {
        s.caught_up(name).await;
    }
    s.log.hold(moves_cursors);
    s.publish(&topic, (0..EVENTS).map(|n| ("k", json!({"n": n})))).await;
    s.log.until_held(1).await;
    let more = tokio::time::timeout(Duration::from_millis(300), s.log.until_held(2));
    assert!(more.await.is_err(), "the others wait for room");
    s.log.release();
    for name in names {
        s.caught_up(name).await;
        assert_eq!(s.field(name, "d", "n").await, json!(EVENTS - 1));
    }
}

/// A batch that makes too much is done in pieces that need room, while room is kept for the batch after it.
pub async fn pieces_of_a_batch_find_room(_: Stage) {
    const EVENTS: usize = 2_100;
    let s = Stage::bounded(1 << 20).await;
    let topic = s.topic("t", 1).await;
    s.publish(&topic, [("k", json!({"text": "x".repeat(6_000)}))]).await;
    s.publish(&topic, (0..EVENTS).map(|n| ("k", json!({"n": n})))).await;
    let write = json!({"collection": "c", "key": "'d'", "merge": "event.payload", "changefeed": "c.changed"});
    s.put("p", json!({"topic": "t", "write": [write]})).await;
    let status = s.caught_up("p").await;
    assert_eq!((status.errors, s.field("c", "d", "n").await), (0, json!(EVENTS - 1)));
    assert!(s.log.too_large() > 0, "a batch was refused");
}
