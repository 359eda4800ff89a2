//! Publishes, one test a rule.

use super::*;

#[test]
fn what_is_not_answered_is_sent_again_in_order() {
    let mut hand = Hand::connected();
    let mut answers: Vec<_> = (0..4).map(|n| hand.publish(n)).collect();
    let frames = hand.sent();
    assert_eq!(frames.iter().flat_map(payloads).collect::<Vec<_>>(), [0, 1, 2, 3]);
    hand.ok(&frames[1]);
    assert_eq!(answers.remove(1).try_recv().unwrap().unwrap().offset, 7);
    hand.break_line();
    let mut late = hand.publish(4);
    assert!(hand.sent().is_empty(), "there is no line");
    hand.reconnect();
    let again = hand.sent();
    assert_eq!(again.iter().flat_map(payloads).collect::<Vec<_>>(), [0, 2, 3, 4]);
    assert_eq!(again[0]["opts"]["id"], frames[0]["opts"]["id"], "with the ids that they had");
    again.iter().for_each(|frame| hand.ok(frame));
    assert!(late.try_recv().unwrap().is_ok() && hand.session.is_idle());
}

#[test]
fn what_a_frame_says_once_is_told_of_each_of_its_events() {
    let mut hand = Hand::connected();
    let producer = producer(2, 0, true);
    let mut answers: Vec<_> = (0..2).map(|n| hand.stream(&producer, n)).collect();
    let frames = hand.sent();
    let events: Vec<_> = (0..2).map(|n| place(&id_of(n).into())).collect();
    hand.hear(json!({"op": "OK", "corr": frames[0]["corr"], "durability": "interval", "events": events}));
    for (n, answer) in answers.iter_mut().enumerate() {
        let Published { id, topic, durability, .. } = answer.try_recv().unwrap().unwrap();
        assert_eq!((id, &*topic, &*durability), (id_of(n as u64), "t", "interval"));
    }
}

#[test]
fn an_ordered_stream_waits_for_each_frame() {
    let mut hand = Hand::connected();
    let producer = producer(3, 0, true);
    let _answers: Vec<_> = (0..7).map(|n| hand.stream(&producer, n)).collect();
    let first = hand.sent();
    assert_eq!(first.iter().map(payloads).collect::<Vec<_>>(), [[0, 1, 2]]);
    hand.ok(&first[0]);
    let second = hand.sent();
    assert_eq!(second.iter().map(payloads).collect::<Vec<_>>(), [[3, 4, 5]]);
    hand.ok(&second[0]);
    let third = hand.sent();
    assert_eq!(third.iter().map(payloads).collect::<Vec<_>>(), [[6]]);
    // It may have to be sent again, so it is waited for as well.
    let _more = hand.stream(&producer, 7);
    assert!(hand.sent().is_empty());
    hand.ok(&third[0]);
    assert_eq!(hand.sent().len(), 1);
}

#[test]
fn a_stream_without_order_does_not_wait() {
    let mut hand = Hand::connected();
    let producer = producer(2, 0, false);
    let _answers: Vec<_> = (0..5).map(|n| hand.stream(&producer, n)).collect();
    assert_eq!(hand.sent().iter().map(payloads).collect::<Vec<_>>(), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn a_frame_lingers_until_it_is_full_or_late() {
    let mut hand = Hand::connected();
    let producer = producer(2, 10, true);
    let _first = hand.stream(&producer, 0);
    assert!(hand.sent().is_empty());
    assert_eq!(hand.session.deadline(), Some(hand.now + Duration::from_millis(10)));
    let _second = hand.stream(&producer, 1);
    let full = hand.sent();
    assert_eq!(payloads(&full[0]), [0, 1]);
    hand.ok(&full[0]);
    let _third = hand.stream(&producer, 2);
    assert!(hand.sent().is_empty());
    hand.now += Duration::from_millis(10);
    assert_eq!(hand.sent().len(), 1);
}

#[test]
fn the_bad_one_of_a_refused_frame_is_found_and_the_others_keep_their_order() {
    const BAD: u64 = 5;
    for ordered in [true, false] {
        let mut hand = Hand::connected();
        let producer = producer(8, 0, ordered);
        let mut answers: Vec<_> = (0..20).map(|n| hand.stream(&producer, n)).collect();
        let (mut taken, mut frames) = (Vec::new(), 0);
        loop {
            let sent = hand.sent();
            if sent.is_empty() {
                break;
            }
            for frame in sent {
                frames += 1;
                if payloads(&frame).contains(&BAD) {
                    hand.err(&frame, "schema_violation");
                } else {
                    taken.extend(payloads(&frame));
                    hand.ok(&frame);
                }
            }
        }
        let good = (0..20).filter(|n| *n != BAD).collect::<Vec<_>>();
        assert!(taken == good || !ordered, "{taken:?}");
        taken.sort_unstable();
        assert_eq!(taken, good);
        assert!(frames < 12, "it took {frames} frames");
        let failed = answers.iter_mut().position(|answer| answer.try_recv().unwrap().is_err());
        assert_eq!(failed, Some(BAD as usize));
        assert!(hand.session.is_idle());
    }
}

#[test]
fn what_the_hub_cannot_take_now_is_sent_again_as_it_was_and_before_later_events() {
    for code in ["rate_limited", "unavailable"] {
        let mut hand = Hand::connected();
        let producer = producer(2, 60_000, true);
        let mut answers: Vec<_> = (0..4).map(|n| hand.stream(&producer, n)).collect();
        let first = hand.sent();
        hand.hear(
            json!({"op": "ERR", "corr": first[0]["corr"], "code": code, "msg": "m", "retry_after_ms": 50}),
        );
        assert!(hand.sent().is_empty() && !hand.session.is_idle());
        assert_eq!(hand.session.deadline(), Some(hand.now + Duration::from_millis(50)));
        hand.break_line();
        hand.reconnect();
        assert!(hand.sent().is_empty(), "the hub wants to be left alone");
        hand.now += Duration::from_millis(50);
        let again = hand.sent();
        assert_eq!((again.len(), &again[0]["events"]), (1, &first[0]["events"]));
        hand.ok(&again[0]);
        let rest = hand.sent();
        assert_eq!(payloads(&rest[0]), [2, 3]);
        hand.ok(&rest[0]);
        assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap().is_ok()));
        assert!(hand.session.is_idle());
    }
}

#[test]
fn single_publishes_and_those_without_order_are_sent_again_as_well() {
    let mut hand = Hand::connected();
    let producer = producer(2, 0, false);
    let mut answers = [hand.publish(0), hand.stream(&producer, 1), hand.stream(&producer, 2)];
    for frame in hand.sent() {
        hand.err(&frame, "unavailable");
    }
    assert!(hand.sent().is_empty() && !hand.session.is_idle());
    hand.now = hand.session.deadline().unwrap() + Duration::from_secs(1);
    let again = hand.sent();
    assert_eq!(again.iter().flat_map(payloads).collect::<Vec<_>>(), [0, 1, 2]);
    again.iter().for_each(|frame| hand.ok(frame));
    assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap().is_ok()));
}

#[test]
fn what_the_hub_cannot_take_for_too_long_fails_with_what_it_said() {
    let mut hand = Hand::connected();
    hand.session = Session::new(SessionOptions {
        give_up_after: Some(Duration::from_secs(1)),
        ..SessionOptions::default()
    });
    hand.reconnect();
    let producer = producer(1, 0, true);
    let mut answers = [hand.publish(0), hand.stream(&producer, 1), hand.stream(&producer, 2)];
    while !hand.session.is_idle() {
        for frame in hand.sent() {
            hand.err(&frame, "rate_limited");
        }
        hand.now = hand.session.deadline().unwrap_or(hand.now);
    }
    for answer in &mut answers {
        assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 429));
    }
}

#[test]
fn events_that_came_later_have_their_own_time_before_they_are_given_up() {
    const LIMIT: Duration = Duration::from_secs(10);
    let mut hand = Hand::connected();
    hand.session = Session::new(SessionOptions { give_up_after: Some(LIMIT), ..SessionOptions::default() });
    hand.reconnect();
    let producer = producer(2, 0, true);
    let refuse_until = |hand: &mut Hand, end: Instant| {
        let mut tries = 0;
        while hand.now < end {
            let frames = hand.sent();
            tries += frames.len();
            frames.iter().for_each(|frame| hand.err(frame, "unavailable"));
            hand.now = hand.session.deadline().unwrap_or(end).max(hand.now).min(end);
        }
        tries
    };
    let begun = hand.now;
    let mut first = hand.stream(&producer, 0);
    refuse_until(&mut hand, begun + LIMIT / 2);
    // It shares a frame with one that has waited for longer.
    let mut second = hand.stream(&producer, 1);
    refuse_until(&mut hand, begun + LIMIT + LIMIT / 4);
    assert!(matches!(first.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 503));
    assert!(second.try_recv().is_err(), "it has half of its time left");
    refuse_until(&mut hand, begun + 2 * LIMIT);
    assert!(second.try_recv().unwrap().is_err());
    // Although the hub has refused for long, another one is tried for as long, and taken in the end.
    let mut third = hand.stream(&producer, 2);
    let end = hand.now + LIMIT / 2;
    assert!(refuse_until(&mut hand, end) > 1);
    hand.now = hand.session.deadline().unwrap();
    let frames = hand.sent();
    hand.ok(&frames[0]);
    assert!(third.try_recv().unwrap().is_ok() && hand.session.is_idle());
}

#[test]
fn what_waits_for_the_hub_is_told_when_the_connection_ends() {
    let mut hand = Hand::connected();
    let mut answer = hand.publish(0);
    let frames = hand.sent();
    hand.err(&frames[0], "unavailable");
    hand.session.end(&Failure::ended("closed"));
    assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Ended(_))));
}

#[test]
fn a_refusal_that_is_not_about_one_event_fails_all() {
    let mut hand = Hand::connected();
    let producer = producer(2, 0, true);
    let mut answers: Vec<_> = (0..2).map(|n| hand.stream(&producer, n)).collect();
    let frames = hand.sent();
    hand.err(&frames[0], "disk_full");
    assert!(hand.sent().is_empty());
    for answer in &mut answers {
        assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.status == 507));
    }
}

#[test]
fn a_frame_that_is_too_large_is_the_largest() {
    let mut hand = Hand::connected();
    let mut small = hand.publish(1);
    let mut large = hand.publish(u64::MAX);
    hand.sent();
    hand.session.too_large(hand.now);
    hand.break_line();
    assert!(matches!(large.try_recv().unwrap(), Err(Failure::Hub(error)) if error.code == "too_large"));
    hand.reconnect();
    let frames = hand.sent();
    assert_eq!(frames.len(), 1);
    hand.ok(&frames[0]);
    assert!(small.try_recv().unwrap().is_ok());
}

#[test]
fn what_was_not_sent_or_is_no_publish_costs_no_publish_its_life() {
    let mut hand = Hand::connected();
    let mut published = hand.publish(1);
    let (done, mut answer) = oneshot::channel();
    let mut feed = Feed::for_tests("t", "g");
    feed.opts = format!("{{\"filter\":\"{}\"}}", "x".repeat(10_000));
    let feed = Arc::new(feed);
    hand.session.command(Command::Subscribe { feed: feed.clone(), done }, hand.now);
    hand.sent();
    let mut unsent = hand.publish(999_999_999_999);
    hand.session.too_large(hand.now);
    hand.break_line();
    assert!(matches!(answer.try_recv().unwrap(), Err(Failure::Hub(error)) if error.code == "too_large"));
    assert!(feed.ended().is_some());
    hand.reconnect();
    let frames = hand.sent();
    assert_eq!(frames.iter().flat_map(payloads).collect::<Vec<_>>(), [1, 999_999_999_999]);
    frames.iter().for_each(|frame| hand.ok(frame));
    assert!(published.try_recv().unwrap().is_ok() && unsent.try_recv().unwrap().is_ok());
}

#[test]
fn after_a_frame_that_was_too_large_frames_have_fewer_events() {
    let mut hand = Hand::connected();
    let producer = producer(10, 0, true);
    let mut answers: Vec<_> = (0..25).map(|n| hand.stream(&producer, n)).collect();
    let first = hand.sent();
    assert_eq!(payloads(&first[0]).len(), 10);
    hand.session.too_large(hand.now);
    hand.break_line();
    hand.reconnect();
    // Those that were sent come one by one, in their order, and before the others.
    let mut seen = Vec::new();
    loop {
        let frames = hand.sent();
        if frames.is_empty() {
            break;
        }
        for frame in frames {
            assert!(payloads(&frame).len() <= 5, "{frame}");
            seen.extend(payloads(&frame));
            hand.ok(&frame);
        }
    }
    assert_eq!(seen, (0..25).collect::<Vec<_>>());
    assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap().is_ok()));
}
