//! Who is there, and hearing of changes.

use super::{HomesSubject, claimed, renewed, topic};
use crate::tasks::{joined, poll_once};
use prombus_core::Sequence;
use std::pin::pin;
use std::task::Poll;

/// Hubs that are heard of are listed, and those that are silent for too long are not.
pub async fn hubs_are_listed_while_they_live(s: HomesSubject) {
    let held = claimed(&s.one, &topic("t")).await;
    claimed(&s.other, &topic("u")).await;
    let both = s.one.hubs().await.unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(s.other.hubs().await.as_ref(), Ok(&both), "all hubs see the same");
    s.clock.advance(s.ttl_ms);
    renewed(&s.one, &held).await.unwrap();
    let one = s.other.hubs().await.unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(s.one.home_of(&topic("t")).await.unwrap().map(|home| home.hub), one.first().cloned());
    assert_eq!(s.one.home_of(&topic("u")).await, Ok(None));
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
    s.one.release(&held).await.unwrap();
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
    renewed(&s.one, &held).await.unwrap();
    assert!(matches!(poll_once(waiting).await, Poll::Pending), "nothing has changed");
}
