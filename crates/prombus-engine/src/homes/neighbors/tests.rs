//! Where topics belong, by how many there are and which hubs are alive.

use super::super::Claims;
use super::*;
use async_trait::async_trait;
use prombus_core::homes::{MemoryHomes, Moves, Residence, SharedHomes};
use prombus_core::{Homes, ManualClock, Sequence};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No time passes but by hand, so this is never over by itself.
const TTL_MS: u64 = 60_000;
const BEAT: Duration = Duration::from_secs(3_600);

fn topic(n: usize) -> TopicName {
    TopicName::parse(&format!("orders.shop{n}")).unwrap()
}

fn about(name: &str) -> AboutHub {
    AboutHub { url: format!("http://{name}").into(), version: "1".into(), mark: name.into() }
}

/// Homes that count what they are asked.
struct CountingHomes {
    inner: MemoryHomes,
    claims: AtomicUsize,
    waits: AtomicUsize,
}

#[async_trait]
impl Homes for CountingHomes {
    fn id(&self) -> &HubId {
        self.inner.id()
    }

    async fn join(&self, about: AboutHub) -> Result<(), HomesError> {
        self.inner.join(about).await
    }

    async fn leave(&self) -> Result<(), HomesError> {
        self.inner.leave().await
    }

    async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        // Others come meanwhile.
        tokio::task::yield_now().await;
        self.inner.claim(requests).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        self.inner.renew(claims).await
    }

    async fn release(&self, claims: &[Claim]) -> Result<(), HomesError> {
        self.inner.release(claims).await
    }

    async fn hand_over(&self, claims: &[Claim], to: &HubId) -> Result<(), HomesError> {
        self.inner.hand_over(claims, to).await
    }

    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        self.inner.home_of(topic).await
    }

    async fn moves(&self, after: Sequence) -> Result<Moves, HomesError> {
        self.inner.moves(after).await
    }

    async fn hubs(&self) -> Result<Vec<LiveHub>, HomesError> {
        self.inner.hubs().await
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.inner.changed(after).await
    }
}

/// Several hubs of one process.
struct Town {
    shared: SharedHomes,
    clock: Arc<ManualClock>,
    hubs: Vec<Arc<Claims>>,
}

impl Town {
    async fn new(hubs: usize) -> Self {
        let clock = Arc::new(ManualClock::at(1_754_683_200_000));
        let shared = SharedHomes::new(clock.clone(), Some(TTL_MS));
        let mut town = Self { shared, clock, hubs: Vec::new() };
        for _ in 0..hubs {
            town.join().await;
        }
        town
    }

    async fn join(&mut self) {
        let name = format!("hub-{}", self.hubs.len());
        let homes = Arc::new(self.shared.hub(&name));
        let claims = Claims::new(homes, self.clock.clone());
        claims.take_part(about(&name), BEAT).await.unwrap();
        self.hubs.push(claims);
        self.agree().await;
    }

    /// Waits until all hubs know the same.
    async fn agree(&self) {
        let homes = self.shared.hub("observer");
        loop {
            let (hubs, moves) = (homes.hubs().await.unwrap(), homes.moves(Sequence(0)).await.unwrap());
            let knows = |claims: &Arc<Claims>| {
                let places = claims.neighbors.places.read();
                let has = |(topic, to): &(TopicName, Option<HubId>)| {
                    let live = to.as_ref().filter(|to| hubs.iter().any(|hub| hub.id == **to));
                    topic.as_str().starts_with("dlq.") || places.resident(topic) == live
                };
                **claims.hubs().borrow() == *hubs && moves.topics.iter().all(has)
            };
            let is_settled = |claims: &Arc<Claims>| {
                claims.neighbors.places.read().surplus(claims.id()).is_empty()
                    && claims.all_held().iter().all(|home| claims.place(home.topic()) == Place::Here)
            };
            let taking_part: Vec<_> = self.hubs.iter().filter(|one| one.neighbors.beat().is_some()).collect();
            if taking_part.iter().all(|claims| knows(claims) && is_settled(claims)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Has a topic claimed where it belongs, by whichever hub that is.
    async fn claim(&self, topic: &TopicName) -> Arc<Home> {
        self.agree().await;
        let mut found = None;
        for hub in self.hubs.iter().filter(|one| one.neighbors.beat().is_some()) {
            match hub.home(topic, Epoch(0)).await {
                Ok(home) => assert!(found.replace(home).is_none(), "{topic} belongs to two hubs"),
                Err(error) => assert!(matches!(error, HomesError::Elsewhere { .. }), "{error}"),
            }
        }
        found.unwrap_or_else(|| panic!("{topic} belongs nowhere"))
    }

    fn homes(&self) -> BTreeMap<TopicName, HubId> {
        let all = |hub: &Arc<Claims>| {
            let held = hub.all_held();
            held.into_iter().map(|home| (home.topic().clone(), hub.id().clone())).collect::<Vec<_>>()
        };
        self.hubs.iter().flat_map(all).collect()
    }
}

#[tokio::test]
async fn topics_that_are_wanted_together_are_claimed_together() {
    let clock = Arc::new(ManualClock::at(1));
    let inner = SharedHomes::new(clock.clone(), Some(TTL_MS)).hub("one");
    let homes = Arc::new(CountingHomes { inner, claims: AtomicUsize::new(0), waits: AtomicUsize::new(0) });
    let claims = Claims::new(homes.clone(), clock);
    let all = (0..100).map(|n| {
        let claims = claims.clone();
        // Each topic is wanted twice.
        tokio::spawn(async move { claims.home(&topic(n / 2), Epoch(0)).await.unwrap() })
    });
    let homes_of_all = futures::future::join_all(all).await;
    assert!(homes_of_all.chunks(2).all(|two| match two {
        [Ok(one), Ok(other)] => Arc::ptr_eq(one, other),
        _ => false,
    }));
    assert!(homes.claims.load(Ordering::SeqCst) <= 3, "{:?}", homes.claims);
}

#[tokio::test]
async fn one_task_waits_for_all() {
    let clock = Arc::new(ManualClock::at(1));
    let shared = SharedHomes::new(clock.clone(), Some(TTL_MS));
    let (claims, waits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let homes = Arc::new(CountingHomes { inner: shared.hub("one"), claims, waits });
    let claims = Claims::new(homes.clone(), clock);
    let seen = claims.changed(Sequence(0)).await;
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let claims = claims.clone();
            tokio::spawn(async move { claims.changed(seen).await })
        })
        .collect();
    shared.hub("other");
    for waiter in waiting {
        assert!(waiter.await.unwrap() > seen);
    }
    assert!(homes.waits.load(Ordering::SeqCst) <= 3, "{:?}", homes.waits);
}

#[tokio::test]
async fn whoever_goes_away_while_claiming_keeps_nobody_waiting() {
    let clock = Arc::new(ManualClock::at(1));
    let inner = SharedHomes::new(clock.clone(), Some(TTL_MS)).hub("one");
    let homes = Arc::new(CountingHomes { inner, claims: AtomicUsize::new(0), waits: AtomicUsize::new(0) });
    let claims = Claims::new(homes.clone(), clock);
    let (hasty, patient) = (topic(0), topic(1));
    let mut leader = Box::pin(claims.home(&hasty, Epoch(0)));
    assert!(futures::poll!(leader.as_mut()).is_pending());
    let mut follower = Box::pin(claims.home(&patient, Epoch(0)));
    assert!(futures::poll!(follower.as_mut()).is_pending());
    drop(leader);
    assert_eq!(follower.await.unwrap().topic(), &patient);
}

#[tokio::test]
async fn topics_are_spread_and_a_hub_that_joins_takes_its_part() {
    let mut town = Town::new(3).await;
    for n in 0..100 {
        town.claim(&topic(n)).await;
    }
    let before = town.homes();
    let load =
        |homes: &BTreeMap<TopicName, HubId>, hub: &HubId| homes.values().filter(|home| *home == hub).count();
    for hub in &town.hubs {
        assert!((27..=40).contains(&load(&before, hub.id())), "{}", load(&before, hub.id()));
    }
    town.join().await;
    for n in 0..100 {
        town.claim(&topic(n)).await;
    }
    let after = town.homes();
    let moved: Vec<_> = before.iter().filter(|(topic, home)| after[*topic] != **home).collect();
    assert!(moved.len() <= 25, "{} have moved", moved.len());
    assert!(moved.iter().all(|(topic, _)| after[*topic] == *town.hubs[3].id()));
    assert_eq!(load(&after, town.hubs[3].id()), 25);
}

#[tokio::test]
async fn what_a_hub_leaves_is_free_at_once() {
    let town = Town::new(3).await;
    let mut left = Vec::new();
    for n in 0..30 {
        left.push(town.claim(&topic(n)).await);
    }
    let gone = town.hubs[0].clone();
    left.retain(|home| matches!(gone.place(home.topic()), Place::Here));
    assert!(!left.is_empty());
    gone.leave_others().await;
    for home in &left {
        assert!(home.is_lost());
        assert!(town.claim(home.topic()).await.epoch() > home.epoch());
        // It knows where to send what it is still asked.
        let to = town.homes()[home.topic()].clone();
        while !matches!(gone.place(home.topic()), Place::At(hub) if hub.id == to) {
            tokio::task::yield_now().await;
        }
        assert!(matches!(gone.home(home.topic(), Epoch(0)).await, Err(HomesError::Elsewhere { .. })));
    }
}

#[tokio::test]
async fn letters_follow_their_topic() {
    let mut town = Town::new(1).await;
    for n in 0..8 {
        town.claim(&topic(n)).await;
        town.claim(&TopicName::parse(&format!("dlq.orders.shop{n}")).unwrap()).await;
    }
    town.join().await;
    for n in 0..8 {
        let letters = TopicName::parse(&format!("dlq.orders.shop{n}")).unwrap();
        assert_eq!(town.hubs[0].place(&topic(n)), town.hubs[0].place(&letters));
        town.claim(&topic(n)).await;
        town.claim(&letters).await;
    }
    let homes = town.homes();
    assert_eq!(homes.values().filter(|home| *home == town.hubs[1].id()).count(), 8, "{homes:?}");
}
