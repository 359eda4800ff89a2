//! The topics that are at home on this hub: claimed when they are first needed, renewed in time, given up with the hub.
//!
//! Whatever is done on behalf of a topic is done under a [`Home`]. One that was lost never holds again: whoever has
//! something in memory under it lets go of that, and starts from what is stored under the next one.

use crate::retry::pause;
use parking_lot::Mutex;
use prombus_core::{Claim, ClaimRequest, Clock, Epoch, Homes, HomesError, Sequence, TopicName};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Claims are renewed when so much of the time that they have left is over.
const RENEWED_AFTER: u64 = 2;

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
pub trait HomeObserver: Send + Sync {
    /// Lets go of everything that is held under a home that was lost.
    fn evict(&self, home: &Arc<Home>);
}

/// The claims of this hub.
pub struct Claims {
    homes: Arc<dyn Homes>,
    clock: Arc<dyn Clock>,
    held: Mutex<HashMap<TopicName, Arc<Home>>>,
    observers: Mutex<Vec<Weak<dyn HomeObserver>>>,
    /// Held while claims are made, renewed or given up, so that nobody sees half of that.
    changing: tokio::sync::Mutex<()>,
    /// Whether there is a task that renews.
    is_renewed: AtomicBool,
}

impl Claims {
    /// No claims yet.
    pub fn new(homes: Arc<dyn Homes>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (held, observers) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            homes,
            clock,
            held,
            observers,
            changing: tokio::sync::Mutex::default(),
            is_renewed: AtomicBool::new(false),
        })
    }

    /// Tells `observer` from now on when a topic is lost.
    pub fn add_observer(&self, observer: Weak<dyn HomeObserver>) {
        self.observers.lock().push(observer);
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
        let _changing = self.changing.lock().await;
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
        if self.leave(home) {
            tracing::warn!(topic = %home.topic, epoch = %home.epoch(), "a topic is no longer at home on this hub");
        }
    }

    /// Ends a home, with everything that is held under it. Says whether that is news.
    fn leave(&self, home: &Arc<Home>) -> bool {
        if home.lost.send_replace(true) {
            return false;
        }
        let mut held = self.held.lock();
        if held.get(&home.topic).is_some_and(|known| Arc::ptr_eq(known, home)) {
            held.remove(&home.topic);
        }
        drop(held);
        let observers: Vec<_> = self.observers.lock().iter().filter_map(Weak::upgrade).collect();
        observers.iter().for_each(|observer| observer.evict(home));
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
        self.leave(home);
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
