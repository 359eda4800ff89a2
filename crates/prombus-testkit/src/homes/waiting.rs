//! Who is there, and hearing of changes.

use super::{HomesSubject, about, claimed, release, renewed, topic};
use crate::subject::must;
use crate::tasks::{joined, poll_once};
use prombus_core::{HomesError, Sequence};
use std::pin::pin;
use std::task::Poll;

/// Hubs that take part are listed while they are heard of, with what they say of themselves, and nobody else is.
pub async fn hubs_are_listed_while_they_live(s: HomesSubject) {
    claimed(&s.other, &topic("u")).await;
    assert_eq!(s.one.hubs().await, Ok(Vec::new()), "a claim alone is not taking part");
    must(s.one.join(about("one")).await, "a hub can join");
    must(s.other.join(about("other")).await, "a hub can join");
    let held = claimed(&s.one, &topic("t")).await;
    let both = must(s.one.hubs().await, "hubs are listed");
    assert_eq!(s.other.hubs().await.as_ref(), Ok(&both), "all hubs see the same");
    let mut expected = vec![(s.one.id().clone(), about("one")), (s.other.id().clone(), about("other"))];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(both.into_iter().map(|hub| (hub.id, hub.about)).collect::<Vec<_>>(), expected);
    s.clock.advance(s.ttl_ms);
    must(renewed(&s.one, &held).await, "nobody has taken over");
    let one = must(s.other.hubs().await, "hubs are listed");
    assert_eq!(one.iter().map(|hub| &hub.id).collect::<Vec<_>>(), [s.one.id()]);
    let home = must(s.one.home_of(&topic("t")).await, "homes can be asked for");
    assert_eq!(home.map(|home| home.hub).as_ref(), Some(s.one.id()));
    assert_eq!(s.one.home_of(&topic("u")).await, Ok(None));
}

/// A hub that joins again says something else of itself, and has been there as long as before.
pub async fn joining_again_changes_what_a_hub_says(s: HomesSubject) {
    must(s.one.join(about("one")).await, "a hub can join");
    let before = must(s.one.hubs().await, "hubs are listed").remove(0);
    s.clock.advance(1);
    must(s.one.join(about("new")).await, "a hub can join again");
    let after = must(s.other.hubs().await, "hubs are listed").remove(0);
    assert_eq!((&after.id, &after.about, after.since_ms), (&before.id, &about("new"), before.since_ms));
}

/// A hub that leaves is gone at once, and so are its claims; it can come back.
pub async fn a_hub_that_leaves_is_gone_at_once(s: HomesSubject) {
    for homes in [&s.one, &s.other] {
        must(homes.join(about("any")).await, "a hub can join");
    }
    let left = topic("left");
    let before = claimed(&s.one, &left).await;
    must(s.one.leave().await, "a hub can leave");
    let hubs = must(s.one.hubs().await, "hubs are listed");
    assert_eq!(hubs.iter().map(|hub| &hub.id).collect::<Vec<_>>(), [s.other.id()]);
    let after = claimed(&s.other, &left).await;
    assert!(after.epoch > before.epoch);
    assert_eq!(renewed(&s.one, &before).await, Err(HomesError::Lost(left)));
    must(s.one.join(about("back")).await, "a hub can come back");
    assert_eq!(must(s.other.hubs().await, "hubs are listed").len(), 2);
}

/// Whoever waits is woken when a hub joins or leaves.
pub async fn whoever_waits_hears_of_hubs(s: HomesSubject) {
    let seen = s.other.changed(Sequence(0)).await;
    must(s.one.join(about("one")).await, "a hub can join");
    let joined_at = s.other.changed(seen).await;
    assert!(joined_at > seen, "a join wakes");
    must(s.one.leave().await, "a hub can leave");
    assert!(s.other.changed(joined_at).await > joined_at, "a leave wakes");
}

/// Whoever waits is woken when a topic is claimed, given up or taken over, and never misses that.
pub async fn whoever_waits_is_woken(s: HomesSubject) {
    let moved = topic("moved");
    let mut seen = s.other.changed(Sequence(0)).await;
    let waits = |after: Sequence| {
        let other = s.other.clone();
        tokio::spawn(async move { other.changed(after).await })
    };
    let waiting = waits(seen);
    let held = claimed(&s.one, &moved).await;
    let claimed_at = joined(waiting).await;
    assert!(claimed_at > seen, "a claim wakes");
    seen = claimed_at;
    release(&s.one, &held).await;
    // Also one who comes later.
    let released_at = s.other.changed(seen).await;
    assert!(released_at > seen, "a release wakes");
    claimed(&s.one, &moved).await;
    seen = s.one.changed(released_at).await;
    s.clock.advance(s.ttl_ms);
    claimed(&s.other, &moved).await;
    assert!(s.one.changed(seen).await > seen, "a takeover wakes");
}

/// Renewing is no news.
pub async fn a_renewal_wakes_nobody(s: HomesSubject) {
    let held = claimed(&s.one, &topic("t")).await;
    let seen = s.other.changed(Sequence(0)).await;
    let mut waiting = pin!(s.other.changed(seen));
    assert!(poll_once(waiting.as_mut()).await.is_pending());
    must(renewed(&s.one, &held).await, "nobody has taken over");
    assert!(matches!(poll_once(waiting).await, Poll::Pending), "nothing has changed");
}
