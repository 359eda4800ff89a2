//! The state of one key.

use super::stage::*;
use prombus_core::*;
use prombus_engine::{Reduce, TimeTravelError};
use prombus_testkit::build::moving_keys;

pub async fn the_last_event_up_to_a_time_is_the_state(s: Stage) {
    let topic = s.topic("states", 2).await;
    let sent = s.push(&topic, "k", &[(10, "1"), (30, "3"), (20, "\"late\""), (40, "null"), (50, "5")]).await;
    s.push(&topic, "other", &[(15, "0")]).await;
    for (at, expected) in [
        (9, Answer::Nothing),
        (10, state("1")),
        (19, state("1")),
        // By offset, not by time: the one with ts 20 came after the one with 30.
        (20, state("\"late\"")),
        (39, state("\"late\"")),
        (40, Answer::Nothing),
        (50, state("5")),
        (u64::MAX, state("5")),
    ] {
        assert_eq!(s.replaced(&topic, "k", at).await, expected, "at {at}");
    }
    assert_eq!(s.replaced(&topic, "nobody", u64::MAX).await, Answer::Nothing);
    let answer = s.hub.time_travel().state_at(&topic, "k", (39, Reduce::Replace)).await.unwrap().unwrap();
    assert_eq!((answer.last.offset, answer.last.ts), (sent[2].offset, 20));
    assert_eq!((answer.applied, answer.base), (3, None));
}

pub async fn merged_payloads_are_the_state(s: Stage) {
    let topic = s.topic("merged", 1).await;
    let first = [(10, r#"{"a":1,"b":{"x":1.10}}"#), (20, r#"{"b":{"y":2},"a":null}"#), (30, "null")];
    s.push(&topic, "k", &first).await;
    s.push(&topic, "k", &[(40, r#"{"c":3}"#), (50, "[1]"), (60, r#"{"d":4}"#)]).await;
    for (at, expected) in [
        (9, Answer::Nothing),
        (10, state(r#"{"a":1,"b":{"x":1.10}}"#)),
        (20, state(r#"{"b":{"x":1.10,"y":2}}"#)),
        (30, Answer::Nothing),
        (40, state(r#"{"c":3}"#)),
        (50, state("[1]")),
        (60, state(r#"{"d":4}"#)),
    ] {
        assert_eq!(s.merged(&topic, "k", at).await, expected, "at {at}");
    }
}

pub async fn any_function_makes_a_state(s: Stage) {
    let topic = s.topic("accounts", 1).await;
    s.push(&topic, "a", &[(10, "5"), (20, "-2"), (30, "null"), (40, "7"), (50, "1")]).await;
    let sum =
        |sum: Option<i64>, event: &Event| Some(sum.unwrap_or(0) + event.payload.parse::<i64>().unwrap());
    let travel = s.hub.time_travel();
    for (at, expected) in [(9, None), (10, Some(5)), (29, Some(3)), (30, None), (49, Some(7)), (50, Some(8))]
    {
        let answer = travel.reconstruct_at(&topic, ("a", at), sum).await.unwrap();
        assert_eq!(answer.map(|answer| answer.state), expected, "at {at}");
    }
    // A function may end it too.
    let nothing = travel.reconstruct_at(&topic, ("a", 50), |_: Option<()>, _| None).await.unwrap();
    assert!(nothing.is_none());
}

pub async fn a_trim_leaves_what_it_did_not_take(s: Stage) {
    let topic = s.topic("trimmed", 1).await;
    s.push(&topic, "k", &[(10, "1"), (30, "2"), (20, "3"), (40, "4")]).await;
    s.push(&topic, "gone", &[]).await;
    // Of the one with ts 10, the next is kept: what was before it is known no more.
    s.trim_of(&topic, (0, 1), 30).await;
    for (at, expected) in [
        (9, Answer::Gone(30)),
        (19, Answer::Gone(30)),
        (20, state("3")),
        (29, state("3")),
        (30, state("3")),
        (40, state("4")),
    ] {
        assert_eq!(s.replaced(&topic, "k", at).await, expected, "at {at}");
    }
    assert_eq!(s.replaced(&topic, "nobody", 29).await, Answer::Gone(30), "it may have been there");
    assert_eq!(s.replaced(&topic, "nobody", 30).await, Answer::Nothing);
    assert_eq!(s.merged(&topic, "k", 40).await, state("4"), "a number replaces whatever was there");
}

pub async fn holes_leave_what_is_known_from_the_horizon_on(s: Stage) {
    let topic = s.topic("compacted", 1).await;
    s.push(&topic, "k", &[(10, "1"), (20, r#"{"a":2}"#), (30, r#"{"b":3}"#)]).await;
    s.discard_of(&topic, &[0], Some(20)).await;
    assert_eq!(s.replaced(&topic, "k", 10).await, Answer::Gone(20));
    assert_eq!(s.replaced(&topic, "k", 20).await, state(r#"{"a":2}"#));
    s.discard_of(&topic, &[1], Some(30)).await;
    assert_eq!(s.replaced(&topic, "k", 29).await, Answer::Gone(30), "what is kept need not be the last");
    assert_eq!(s.replaced(&topic, "k", 30).await, state(r#"{"b":3}"#));
    assert_eq!(s.merged(&topic, "k", 30).await, Answer::Gone(30), "what it was merged with is gone");
    let refused = s.hub.time_travel().state_at(&topic, "k", (30, Reduce::Merge)).await.unwrap_err();
    assert!(refused.to_string().contains("reduce=replace"), "{refused}");
    assert_eq!(s.merged(&topic, "nobody", 30).await, Answer::Nothing, "what is not there was not merged");
}

/// One key with a time far ahead keeps nobody from asking what others are now.
pub async fn what_is_newest_is_known_before_the_horizon_too(s: Stage) {
    let topic = s.topic("ahead", 1).await;
    s.push(&topic, "ahead", &[(10, "1"), (1_000, "2")]).await;
    s.push(&topic, "k", &[(20, "3"), (30, "4")]).await;
    s.discard_of(&topic, &[0, 2], Some(1_000)).await;
    assert_eq!(s.replaced(&topic, "k", 30).await, state("4"));
    assert_eq!(s.replaced(&topic, "k", 29).await, Answer::Gone(1_000));
    assert_eq!(s.replaced(&topic, "ahead", 30).await, Answer::Gone(1_000));
    assert_eq!(s.replaced(&topic, "nobody", 30).await, Answer::Gone(1_000));
}

pub async fn a_merge_is_exact_since_the_last_event_that_decides_alone(s: Stage) {
    let topic = s.topic("decided", 1).await;
    let events = [(10, r#"{"a":1}"#), (20, "null"), (30, r#"{"b":2}"#), (40, r#"{"c":3}"#)];
    s.push(&topic, "k", &events).await;
    s.trim_of(&topic, (0, 1), 20).await;
    assert_eq!(s.merged(&topic, "k", 40).await, state(r#"{"b":2,"c":3}"#), "the tombstone is kept");
    assert_eq!(s.merged(&topic, "k", 19).await, Answer::Gone(20));
    s.trim_of(&topic, (0, 2), 30).await;
    assert_eq!(s.merged(&topic, "k", 40).await, Answer::Gone(30), "there may have been anything before");
    s.push(&topic, "k", &[(50, "null"), (60, r#"{"d":4}"#)]).await;
    assert_eq!(s.merged(&topic, "k", 60).await, state(r#"{"d":4}"#));
    assert_eq!(s.merged(&topic, "k", 50).await, Answer::Nothing);
    let count = |count: Option<u32>, _: &Event| Some(count.unwrap_or(0) + 1);
    let answer = s.hub.time_travel().reconstruct_at(&topic, ("k", 60), count).await.unwrap().unwrap();
    assert_eq!((answer.state, answer.applied), (1, 4));
    let refused = s.hub.time_travel().reconstruct_at(&topic, ("k", 45), count).await;
    assert!(matches!(refused, Err(TimeTravelError::Gone { horizon_ts: 30, at: 45 })), "{refused:?}");
}

pub async fn a_forgotten_key_was_never_there(s: Stage) {
    let topic = s.topic("forgotten", 1).await;
    s.push(&topic, "k", &[(10, r#"{"a":1}"#), (20, r#"{"b":2}"#)]).await;
    s.push(&topic, "other", &[(10, r#"{"a":1}"#), (20, r#"{"b":2}"#)]).await;
    s.discard_of(&topic, &[0, 1], None).await;
    s.push(&topic, "k", &[(30, r#"{"c":3}"#)]).await;
    assert_eq!(s.replaced(&topic, "k", 20).await, Answer::Nothing);
    assert_eq!(s.merged(&topic, "k", 30).await, state(r#"{"c":3}"#));
    assert_eq!(s.merged(&topic, "other", 30).await, state(r#"{"a":1,"b":2}"#), "others are none the worse");
}

pub async fn a_key_that_moved_is_known_by_its_later_partition(s: Stage) {
    let topic = s.topic("grown", 1).await;
    let mut moving = moving_keys(2);
    let (key, other) = moving.next().zip(moving.next()).expect("some keys move");
    s.push(&topic, &key, &[(10, r#"{"a":1}"#), (40, r#"{"b":2}"#)]).await;
    s.push(&topic, &other, &[(10, "5")]).await;
    s.topic("grown", 2).await;
    let moved = s.push(&topic, &key, &[(20, r#"{"c":3}"#), (30, r#"{"d":4}"#)]).await;
    assert_eq!(moved[0].partition, Partition(1));
    assert_eq!(s.replaced(&topic, &key, 15).await, state(r#"{"a":1}"#));
    assert_eq!(s.replaced(&topic, &key, 50).await, state(r#"{"d":4}"#), "the later partition comes later");
    assert_eq!(s.merged(&topic, &key, 30).await, state(r#"{"a":1,"c":3,"d":4}"#));
    // A trim of the later partition leaves nothing of a key whose last event was there, and all of the others.
    s.cleaned_up_to(&topic, (1, 2)).await;
    assert_eq!(s.replaced(&topic, &key, 50).await, Answer::Nothing);
    assert_eq!(s.replaced(&topic, &other, 50).await, state("5"));
    s.push(&topic, &key, &[(60, "6")]).await;
    assert_eq!(s.replaced(&topic, &key, 60).await, state("6"));
    s.trim_of(&topic, (0, 2), 60).await;
    assert_eq!(
        s.replaced(&topic, &key, 59).await,
        Answer::Gone(60),
        "a horizon of any partition of the key counts"
    );
}

pub async fn a_long_history_is_read_to_its_end(s: Stage) {
    let topic = s.topic("long", 1).await;
    let payloads: Vec<String> = (0..3_000).map(|n| format!("{{\"f{}\":{n}}}", n % 10)).collect();
    let events: Vec<(u64, &str)> = (1..).zip(payloads.iter().map(String::as_str)).collect();
    for chunk in events.chunks(1_000) {
        s.push(&topic, "k", chunk).await;
    }
    assert_eq!(s.replaced(&topic, "k", 2_500).await, state(&payloads[2_499]));
    let fields: Vec<String> = (0..10).map(|n| format!("\"f{n}\":{}", 2_490 + n)).collect();
    assert_eq!(s.merged(&topic, "k", 2_500).await, state(&format!("{{{}}}", fields.join(","))));
    let answer = s.hub.time_travel().state_at(&topic, "k", (2_500, Reduce::Merge)).await.unwrap().unwrap();
    assert_eq!(answer.applied, 2_500);
}

pub async fn a_topic_that_is_not_there_has_no_states(s: Stage) {
    let missing = topic_name("missing");
    let travel = s.hub.time_travel();
    let is_missing = |error| matches!(error, TimeTravelError::Read(ReadError::TopicNotFound(_)));
    assert!(is_missing(travel.state_at(&missing, "k", (5, Reduce::Replace)).await.unwrap_err()));
    assert!(is_missing(travel.all_at(&missing, 5).await.err().expect("no topic, no keys")));
}
