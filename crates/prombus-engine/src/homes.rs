//! The topics that are at home on this hub: claimed when they are first needed, renewed in time, given up with the hub.
//!
//! A hub that takes part with others claims only what has its [place](Claims::place) here, and gives up what gets its place
//! elsewhere when a hub comes or goes. All hubs reckon places from the same list, so nobody has to be asked for them.
//!
//! Whatever is done on behalf of a topic is done under a [`Home`]. One that was lost never holds again: whoever has
//! something in memory under it lets go of that, and starts from what is stored under the next one.

use crate::retry::pause;
use parking_lot::Mutex;
use prombus_core::hashing::home_of;
use prombus_core::{
    AboutHub, Claim, ClaimRequest, Clock, Epoch, Homes, HomesError, HubId, LiveHub, Sequence, TopicName,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Claims are renewed when so much of the time that they have left is over.
const RENEWED_AFTER: u64 = 2;
/// How topics of dead letters begin.
const LETTERS: &str = "dlq.";
/// Between two looks at which hubs there are, where nothing has changed.
const SHORTEST_REST: Duration = Duration::from_millis(10);

/// A topic that is at home on this hub, from a claim until that is lost.
pub struct Home {
    topic: TopicName,
    claim: Mutex<Claim>,
    clock: Arc<dyn Clock>,
    lost: watch::Sender<bool>,
}

impl Home {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The epoch of the claim. It may grow, where the hub finds out that it has to be later than what is stored.
    pub fn epoch(&self) -> Epoch {
        self.claim.lock().epoch
    }

    /// Whether no other hub can have the topic at this moment.
    pub fn holds(&self) -> bool {
        let until = self.claim.lock().until;
        // Most claims have no end, and need no clock.
        !self.is_lost() && until.is_none_or(|until| self.clock.steady_ms() < until)
    }

    /// Whether the topic was lost, for all that is known.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the topic is lost.
    pub async fn until_lost(&self) {
        // The sender is here, so this ends only when that is told.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }

    fn claim(&self) -> Claim {
        self.claim.lock().clone()
    }
}

/// Who has something in memory on behalf of topics.
pub trait Tenant: Send + Sync {
    /// Lets go of everything that is held under a home that was lost.
    fn evict(&self, home: &Arc<Home>);
}

/// Where a topic belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this hub.
    Here,
    /// On another one.
    At(LiveHub),
}

/// The hubs that take part, as this hub knows them.
pub type HubList = Arc<[LiveHub]>;

/// The claims of this hub.
pub struct Claims {
    homes: Arc<dyn Homes>,
    clock: Arc<dyn Clock>,
    held: Mutex<HashMap<TopicName, Arc<Home>>>,
    tenants: Mutex<Vec<Weak<dyn Tenant>>>,
    /// Held while claims are made, renewed or given up, so that nobody sees half of that.
    changing: tokio::sync::Mutex<()>,
    /// Whether there is a task that renews.
    is_renewed: AtomicBool,
    /// The hubs that take part; empty where this one never did.
    hubs: watch::Sender<HubList>,
    /// Whether this hub takes part no more.
    has_left: AtomicBool,
}

impl Claims {
    /// No claims yet.
    pub fn new(homes: Arc<dyn Homes>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (held, tenants) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            homes,
            clock,
            held,
            tenants,
            changing: tokio::sync::Mutex::default(),
            is_renewed: AtomicBool::new(false),
            hubs: watch::Sender::new(Arc::default()),
            has_left: AtomicBool::new(false),
        })
    }

    /// Takes part with the other hubs, of which this one is heard every `beat` from now on, until it [leaves](Self::leave).
    pub async fn take_part(self: &Arc<Self>, about: AboutHub, beat: Duration) -> Result<(), HomesError> {
        self.homes.join(about).await?;
        self.is_renewed.store(true, Ordering::Release);
        self.look_around().await?;
        tokio::spawn(live_with_others(Arc::downgrade(self), beat));
        Ok(())
    }

    /// The name of this hub.
    pub fn id(&self) -> &HubId {
        self.homes.id()
    }

    /// Where a topic belongs, for all that is known: here, where no hubs take part. Dead letters belong where their topic does,
    /// whose home replays and forgets them.
    pub fn place(&self, topic: &TopicName) -> Place {
        let hubs = self.hubs.borrow();
        let home = home_of(topic.as_str().trim_start_matches(LETTERS), hubs.iter().map(|hub| &*hub.id.0));
        match home.and_then(|home| hubs.iter().find(|hub| &*hub.id.0 == home)) {
            Some(hub) if hub.id != *self.id() => Place::At(hub.clone()),
            _ => Place::Here,
        }
    }

    /// The other hubs that take part, as the store has them.
    pub async fn others(&self) -> Result<Vec<LiveHub>, HomesError> {
        let hubs = self.homes.hubs().await?;
        Ok(hubs.into_iter().filter(|hub| hub.id != *self.id()).collect())
    }

    /// The hubs that take part, and word of every change.
    pub fn hubs(&self) -> watch::Receiver<HubList> {
        self.hubs.subscribe()
    }

    /// How many topics this hub has claimed.
    pub fn count(&self) -> usize {
        self.held.lock().len()
    }

    /// Looks which hubs take part, and gives up what belongs to others now.
    async fn look_around(&self) -> Result<(), HomesError> {
        let hubs: HubList = self.homes.hubs().await?.into();
        let is_news = self.hubs.send_if_modified(|known| {
            let is_news = *known != hubs;
            *known = hubs;
            is_news
        });
        if is_news {
            let _changing = self.changing.lock().await;
            let held: Vec<Arc<Home>> = self.held.lock().values().cloned().collect();
            for home in held.iter().filter(|home| self.place(&home.topic) != Place::Here) {
                tracing::info!(topic = %home.topic, "a topic moves to another hub");
                self.vacate(home).await;
            }
        }
        Ok(())
    }

    /// Takes part no more: all topics are given up, and what is asked of them is for other hubs.
    pub async fn leave(&self) {
        let _changing = self.changing.lock().await;
        self.has_left.store(true, Ordering::Release);
        // Nobody claims anything here from now on, unless there is no other hub.
        let id = self.id();
        self.hubs.send_modify(|hubs| *hubs = hubs.iter().filter(|hub| hub.id != *id).cloned().collect());
        self.is_renewed.store(false, Ordering::Release);
        let held: Vec<Arc<Home>> = self.held.lock().values().cloned().collect();
        for home in &held {
            self.leave_home(home);
        }
        if let Err(error) = self.homes.leave().await {
            tracing::warn!(%error, "this hub could not take its leave: the others have to wait for its topics");
        }
    }

    /// Tells `tenant` from now on when a topic is lost.
    pub fn tell(&self, tenant: Weak<dyn Tenant>) {
        self.tenants.lock().push(tenant);
    }

    fn held(&self, topic: &TopicName) -> Option<Arc<Home>> {
        self.held.lock().get(topic).cloned()
    }

    /// The home of a topic on this hub, under an epoch that is later than `above`.
    pub async fn home(self: &Arc<Self>, topic: &TopicName, above: Epoch) -> Result<Arc<Home>, HomesError> {
        let is_good = |home: &Arc<Home>| home.epoch() > above && home.holds();
        if let Some(home) = self.held(topic).filter(is_good) {
            return Ok(home);
        }
        self.check_place(topic)?;
        let _changing = self.changing.lock().await;
        self.check_place(topic)?;
        if let Some(home) = self.held(topic) {
            match self.renewed(&home).await {
                Ok(()) if home.epoch() > above => return Ok(home),
                Err(error @ HomesError::Unavailable(_)) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let claim = self.homes.claim(ClaimRequest { topic: topic.clone(), above }).await?;
        let ends = claim.until.is_some();
        let home = match self.held(topic) {
            // What is stored is later than the clock of a hub that is alone: nobody else was here.
            Some(home) if !ends => {
                *home.claim.lock() = claim;
                home
            }
            before => {
                before.iter().for_each(|home| self.lose(home));
                let (clock, lost) = (self.clock.clone(), watch::Sender::new(false));
                let home = Arc::new(Home { topic: topic.clone(), claim: Mutex::new(claim), clock, lost });
                self.held.lock().insert(topic.clone(), home.clone());
                home
            }
        };
        if ends && !self.is_renewed.swap(true, Ordering::AcqRel) {
            tokio::spawn(renew_in_time(Arc::downgrade(self)));
        }
        Ok(home)
    }

    fn check_place(&self, topic: &TopicName) -> Result<(), HomesError> {
        match self.place(topic) {
            Place::Here => Ok(()),
            Place::At(LiveHub { id: hub, .. }) => Err(HomesError::Elsewhere { topic: topic.clone(), hub }),
        }
    }

    /// Makes sure that no other hub can have the topic at this moment.
    pub async fn check(&self, home: &Arc<Home>) -> Result<(), HomesError> {
        if home.holds() {
            return Ok(());
        }
        let _changing = self.changing.lock().await;
        self.renewed(home).await
    }

    /// Renews one claim whose end may have passed.
    async fn renewed(&self, home: &Arc<Home>) -> Result<(), HomesError> {
        if home.is_lost() {
            return Err(HomesError::Lost(home.topic.clone()));
        }
        if home.holds() {
            return Ok(());
        }
        let claim = home.claim();
        let mut answers = self.homes.renew(std::slice::from_ref(&claim)).await?;
        self.note(home, answers.pop().unwrap_or(Err(HomesError::Lost(claim.topic))))
    }

    fn note(&self, home: &Arc<Home>, renewed: Result<Claim, HomesError>) -> Result<(), HomesError> {
        match renewed {
            Ok(claim) => *home.claim.lock() = claim,
            Err(HomesError::Unavailable(why)) => return Err(HomesError::Unavailable(why)),
            Err(error) => {
                self.lose(home);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Another hub has the topic: what was done under this home is over.
    pub fn lose(&self, home: &Arc<Home>) {
        if self.leave_home(home) {
            tracing::warn!(topic = %home.topic, epoch = %home.epoch(), "a topic is no longer at home on this hub");
        }
    }

    /// Ends a home, with everything that is held under it. Says whether that is news.
    fn leave_home(&self, home: &Arc<Home>) -> bool {
        if home.lost.send_replace(true) {
            return false;
        }
        let mut held = self.held.lock();
        if held.get(&home.topic).is_some_and(|known| Arc::ptr_eq(known, home)) {
            held.remove(&home.topic);
        }
        drop(held);
        let tenants: Vec<_> = self.tenants.lock().iter().filter_map(Weak::upgrade).collect();
        tenants.iter().for_each(|tenant| tenant.evict(home));
        true
    }

    /// Waits until topics may be at home elsewhere than they were after `after`.
    pub async fn changed(&self, after: Sequence) -> Sequence {
        self.homes.changed(after).await
    }

    /// Gives a topic up that is not there any more.
    pub async fn give_up(&self, topic: &TopicName) {
        let _changing = self.changing.lock().await;
        if let Some(home) = self.held(topic) {
            self.vacate(&home).await;
        }
    }

    async fn vacate(&self, home: &Arc<Home>) {
        self.leave_home(home);
        if let Err(error) = self.homes.release(&home.claim()).await {
            tracing::warn!(topic = %home.topic, %error, "failed to release a topic; other hubs have to wait until its claim expires");
        }
    }

    /// Gives all topics up, so that other hubs can have them at once.
    pub async fn close(&self) {
        let _changing = self.changing.lock().await;
        let held: Vec<Arc<Home>> = self.held.lock().values().cloned().collect();
        for home in held {
            self.vacate(&home).await;
        }
    }

    /// Renews all claims that have an end. Says when to do that again; `None` where there are none.
    async fn renew(&self) -> Option<Duration> {
        let _changing = self.changing.lock().await;
        let held: Vec<Arc<Home>> = self.held.lock().values().cloned().collect();
        let claims: Vec<Claim> = held.iter().map(|home| home.claim()).collect();
        match self.homes.renew(&claims).await {
            Ok(answers) => held.iter().zip(answers).for_each(|(home, answer)| {
                // Those that cannot be asked are asked again, and hold for as long as they did.
                let _ = self.note(home, answer);
            }),
            Err(error) => {
                tracing::warn!(%error, "failed to renew the claims of this hub");
                return (!held.is_empty()).then_some(pause::CLAIM);
            }
        }
        let now = self.clock.steady_ms();
        let left = |home: &Arc<Home>| Some(home.claim.lock().until?.saturating_sub(now));
        let left = self.held.lock().values().filter_map(left).min()?;
        Some(Duration::from_millis((left / RENEWED_AFTER).max(1)))
    }
}

/// Lets a hub be heard of while it takes part, and follows which others there are.
async fn live_with_others(claims: Weak<Claims>, beat: Duration) {
    let (mut seen, mut due) = (Sequence(0), Instant::now());
    while let Some(strong) = claims.upgrade() {
        if due <= Instant::now() && !strong.has_left.load(Ordering::Acquire) {
            strong.renew().await;
            due = Instant::now() + beat;
        }
        if let Err(error) = strong.look_around().await {
            tracing::warn!(%error, "it cannot be found out which hubs there are");
        }
        let homes = strong.homes.clone();
        drop(strong);
        let rest = due.saturating_duration_since(Instant::now()).max(SHORTEST_REST);
        tokio::select! {
            now = homes.changed(seen) => seen = now,
            // That a hub's time is over is told by nobody, and this one has to be heard of.
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// Renews the claims of a hub for as long as it has any that end.
async fn renew_in_time(claims: Weak<Claims>) {
    while let Some(strong) = claims.upgrade() {
        let Some(pause) = strong.renew().await else {
            strong.is_renewed.store(false, Ordering::Release);
            // One that was made meanwhile is not left to itself.
            let is_needed = strong.held.lock().values().any(|home| home.claim.lock().until.is_some());
            if !is_needed || strong.is_renewed.swap(true, Ordering::AcqRel) {
                return;
            }
            continue;
        };
        drop(strong);
        // There is nothing to wait for but the time.
        tokio::time::sleep(pause).await;
    }
}
