//! Who has a topic, and under which epoch.

use super::{HomesSubject, claim, claim_as, claimed, is_elsewhere, release, renewed, topic, wanted};
use crate::subject::must;
use crate::tasks::together;
use prombus_core::homes::Moves;
use prombus_core::{ClaimRequest, Clock, Epoch, HomesError, Sequence};

/// While a hub has a topic, no other one gets it; other topics are not touched by that.
pub async fn a_claim_is_exclusive(s: HomesSubject) {
    let (mine, free) = (topic("mine"), topic("free"));
    let held = claimed(&s.one, &mine).await;
    assert!(is_elsewhere(claim(&s.other, &mine).await));
    claimed(&s.other, &free).await;
    let home = must(s.other.home_of(&mine).await, "homes can be asked for");
    assert_eq!(home.map(|home| home.epoch), Some(held.epoch));
    assert_eq!(s.one.home_of(&topic("nobodys")).await, Ok(None));
}

/// Many topics are claimed in one step, and given up in one; each of them has its own answer.
pub async fn many_topics_are_claimed_at_once(s: HomesSubject) {
    let taken = topic("taken");
    claimed(&s.one, &taken).await;
    let names: Vec<_> = (0..50).map(|n| topic(&format!("many.{n}"))).chain([taken]).collect();
    let requests: Vec<_> = names.iter().map(wanted).collect();
    let mut answers = must(s.other.claim(&requests).await, "claims can be made");
    assert_eq!(answers.len(), requests.len());
    assert!(answers.pop().is_some_and(is_elsewhere), "one that is refused keeps no other back");
    let claims: Vec<_> = answers.into_iter().map(|claim| must(claim, "nobody has it")).collect();
    assert!(claims.iter().zip(&names).all(|(claim, name)| claim.topic == *name));
    let theirs = must(s.one.claim(&requests).await, "claims can be asked for");
    assert!(theirs[..50].iter().all(|claim| is_elsewhere(claim.clone())) && theirs[50].is_ok());
    must(s.other.release(&claims).await, "claims can be given up");
    let theirs = must(s.one.claim(&requests).await, "claims can be made");
    for (before, after) in claims.iter().zip(theirs) {
        assert!(must(after, "it was given up").epoch > before.epoch);
    }
    assert_eq!(s.other.claim(&[]).await, Ok(Vec::new()));
}

/// Of several that want a topic at the same moment, one gets it.
pub async fn of_concurrent_claims_one_wins(s: HomesSubject) {
    for round in 0..20 {
        let wanted = topic(&format!("wanted.{round}"));
        let claims = together(2, |n| {
            let homes = [&s.one, &s.other][n].clone();
            let wanted = wanted.clone();
            async move { claim(&homes, &wanted).await }
        });
        assert_eq!(claims.await.iter().filter(|claim| claim.is_ok()).count(), 1, "round {round}");
    }
}

/// Claiming again what one has changes nothing but its end.
pub async fn a_repeated_claim_is_the_same(s: HomesSubject) {
    let mine = topic("mine");
    let first = claimed(&s.one, &mine).await;
    s.clock.advance(1);
    let again = claimed(&s.one, &mine).await;
    assert_eq!(again.epoch, first.epoch);
    assert!(again.until >= first.until);
}

/// Whoever claims a topic after another hub, or again after it was given up, has a later epoch.
pub async fn epochs_only_grow(s: HomesSubject) {
    let shared = topic("shared");
    let mut last = Epoch(0);
    for homes in [&s.one, &s.other, &s.other, &s.one] {
        let claim = claimed(homes, &shared).await;
        assert!(claim.epoch > last, "{} after {last}", claim.epoch);
        last = claim.epoch;
        release(homes, &claim).await;
    }
    claimed(&s.one, &shared).await;
    s.clock.advance(s.ttl_ms);
    assert!(claimed(&s.other, &shared).await.epoch > last);
}

/// An epoch is later than what the hub has seen, also where it has the topic already.
pub async fn an_epoch_is_above_what_was_seen(s: HomesSubject) {
    let seen = topic("seen");
    let first = claimed(&s.one, &seen).await;
    let above = Epoch(first.epoch.0 + 1_000);
    let request = ClaimRequest { topic: seen.clone(), above };
    let raised = must(claim_as(&s.one, request.clone()).await, "a claim can be raised");
    assert!(raised.epoch > above);
    assert_eq!(claim_as(&s.one, request).await.map(|claim| claim.epoch), Ok(raised.epoch));
    assert_eq!(renewed(&s.one, &first).await, Err(HomesError::Lost(seen)));
}

/// A topic that is given up is free at once.
pub async fn a_release_hands_over_at_once(s: HomesSubject) {
    let moved = topic("moved");
    let before = claimed(&s.one, &moved).await;
    release(&s.one, &before).await;
    assert_eq!(s.one.home_of(&moved).await, Ok(None));
    let after = claimed(&s.other, &moved).await;
    // What was given up is nothing to give up.
    release(&s.one, &before).await;
    assert_eq!(renewed(&s.other, &after).await.map(|claim| claim.epoch), Ok(after.epoch));
    assert_eq!(renewed(&s.one, &before).await, Err(HomesError::Lost(moved)));
}

/// A topic that is handed over is the other hub's, before that asks for it, and nobody else's.
pub async fn what_is_handed_over_has_a_new_home(s: HomesSubject) {
    let (moved, kept) = (topic("moved"), topic("kept"));
    let before = claimed(&s.one, &moved).await;
    let still = claimed(&s.one, &kept).await;
    must(s.one.hand_over(std::slice::from_ref(&before), s.other.id()).await, "a topic can be handed over");
    let home = must(s.one.home_of(&moved).await, "homes can be asked for");
    assert_eq!(home.map(|home| home.hub).as_ref(), Some(s.other.id()));
    assert!(is_elsewhere(claim(&s.one, &moved).await));
    assert_eq!(renewed(&s.one, &before).await, Err(HomesError::Lost(moved.clone())));
    let after = claimed(&s.other, &moved).await;
    assert!(after.epoch > before.epoch);
    // What one does not have any more cannot be given.
    must(s.one.hand_over(&[before], s.one.id()).await, "what was lost stays where it is");
    assert_eq!(renewed(&s.other, &after).await.map(|claim| claim.epoch), Ok(after.epoch));
    assert_eq!(renewed(&s.one, &still).await.map(|claim| claim.epoch), Ok(still.epoch));
}

/// Whatever changes hands is told to those who ask what has since, as it is by then.
pub async fn moves_are_told(s: HomesSubject) {
    let (given, left) = (topic("given"), topic("left"));
    let before = must(s.other.moves(Sequence(0)).await, "moves can be asked for").through;
    let claim = claimed(&s.one, &given).await;
    claimed(&s.one, &left).await;
    let told = async |after| {
        let mut moves = must(s.other.moves(after).await, "moves can be asked for");
        moves.topics.sort();
        moves
    };
    let one = || Some(s.one.id().clone());
    let first = told(before).await;
    assert_eq!(first.topics, [(given.clone(), one()), (left.clone(), one())]);
    assert!(first.through > before);
    assert_eq!(told(first.through).await, Moves { topics: Vec::new(), ..first });
    must(s.one.hand_over(&[claim], s.other.id()).await, "a topic can be handed over");
    let second = told(first.through).await;
    assert_eq!(second.topics, [(given.clone(), Some(s.other.id().clone()))]);
    must(s.one.leave().await, "a hub can leave");
    assert_eq!(told(second.through).await.topics, [(left, None)]);
    let all = told(Sequence(0)).await;
    assert!(all.topics.contains(&(given, Some(s.other.id().clone()))), "a hub that comes learns all");
}

/// A hub that says that it is alive keeps its claims, and those of others go by themselves.
pub async fn a_claim_that_is_renewed_is_kept(s: HomesSubject) {
    let kept = topic("kept");
    let mut held = claimed(&s.one, &kept).await;
    for _ in 0..5 {
        s.clock.advance(s.ttl_ms / 2);
        let renewed = must(renewed(&s.one, &held).await, "nobody has taken over");
        assert!(renewed.epoch == held.epoch && renewed.until > held.until);
        held = renewed;
        assert!(is_elsewhere(claim(&s.other, &kept).await));
    }
}

/// A claim ends for the hub that has it before any other can have it.
pub async fn a_claim_ends_before_it_can_be_taken_over(s: HomesSubject) {
    let stalled = topic("stalled");
    let held = claimed(&s.one, &stalled).await;
    assert!(held.holds_at(s.clock.steady_ms()), "it holds at first");
    while is_elsewhere(claim(&s.other, &stalled).await) {
        s.clock.advance(1);
    }
    assert!(!held.holds_at(s.clock.steady_ms()), "it has ended by its own clock");
    assert!(s.clock.steady_ms() <= s.ttl_ms, "whoever is silent is missed in time");
}

/// A hub that was silent for too long and comes back finds out that it was taken over from.
pub async fn a_claim_that_was_taken_over_is_refused(s: HomesSubject) {
    let (lost, kept) = (topic("lost"), topic("kept"));
    let [before, still] = [claimed(&s.one, &lost).await, claimed(&s.one, &kept).await];
    s.clock.advance(s.ttl_ms);
    let after = claimed(&s.other, &lost).await;
    let renewal = s.one.renew(&[before.clone(), still.clone()]).await;
    let answers = must(renewal, "claims can be renewed");
    assert_eq!(answers[0], Err(HomesError::Lost(lost.clone())));
    assert_eq!(answers[1].as_ref().map(|claim| claim.epoch), Ok(still.epoch), "nobody wanted this one");
    assert!(is_elsewhere(claim(&s.one, &lost).await));
    release(&s.one, &before).await;
    assert_eq!(renewed(&s.other, &after).await.map(|claim| claim.epoch), Ok(after.epoch));
}
