//! The topics that are at home on this hub: claimed when they are first needed, renewed in time, given up with the hub.
//!
//! A hub that takes part with others ([`neighbors`]) claims only what belongs to it.
//!
//! Whatever is done on behalf of a topic is done under a [`Home`]. One that was lost never holds again: whoever has
//! something in memory under it lets go of that, and starts from what is stored under the next one.

mod neighbors;

pub use neighbors::{HubList, Place};

use crate::retry::pause;
use neighbors::Neighbors;
use parking_lot::Mutex;
use prombus_core::{Claim, ClaimRequest, Clock, Epoch, Homes, HomesError, Sequence, TopicName};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

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
    /// Held while claims are made, renewed or given up, so that nobody sees half of that. Up to where it was read what others
    /// have.
    changing: tokio::sync::Mutex<Sequence>,
    /// The topics that are wanted, and who waits for them: whoever claims next claims all of them in one step.
    wanted: Mutex<Vec<Wanted>>,
    /// Whether there is a task that renews.
    is_renewed: AtomicBool,
    /// Up to where was heard of what has changed between hubs.
    heard: watch::Sender<Sequence>,
    /// The task that listens, once there is one.
    listens: Mutex<Option<AbortHandle>>,
    neighbors: Neighbors,
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.listens.get_mut().iter().for_each(AbortHandle::abort);
    }
}

/// A topic that somebody needs at home here.
struct Wanted {
    request: ClaimRequest,
    tell: oneshot::Sender<Result<Arc<Home>, HomesError>>,
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
            wanted: Mutex::default(),
            is_renewed: AtomicBool::new(false),
            heard: watch::Sender::new(Sequence(0)),
            listens: Mutex::default(),
            neighbors: Neighbors::default(),
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
        loop {
            if let Some(home) = self.held(topic).filter(|home| home.epoch() > above && home.holds()) {
                return Ok(home);
            }
            self.check_place(topic)?;
            let request = ClaimRequest { topic: topic.clone(), above };
            let (tell, mut told) = oneshot::channel();
            self.wanted.lock().push(Wanted { request, tell });
            tokio::select! {
                biased;
                answer = &mut told => match answer {
                    Ok(answer) => return answer,
                    // Whoever was about to claim it for all has gone away: it is asked for again.
                    Err(_) => continue,
                },
                _changing = self.changing.lock() => {
                    let wanted = std::mem::take(&mut *self.wanted.lock());
                    self.take_home(wanted).await;
                }
            }
            if let Ok(answer) = told.await {
                return answer;
            }
        }
    }

    /// Claims topics in one step, and tells those who want them.
    async fn take_home(self: &Arc<Self>, mut wanted: Vec<Wanted>) {
        // Those who went away need nothing.
        wanted.retain(|wanted| !wanted.tell.is_closed());
        let held = |wanted: &Wanted| self.held(&wanted.request.topic);
        let expired: Vec<Arc<Home>> = wanted.iter().filter_map(held).filter(|home| !home.holds()).collect();
        if !expired.is_empty()
            && let Err(error) = self.renew_all(&expired).await
        {
            wanted.into_iter().for_each(|wanted| drop(wanted.tell.send(Err(error.clone()))));
            return;
        }
        let mut missing = Vec::new();
        for wanted in wanted {
            let Wanted { request: ClaimRequest { topic, above }, .. } = &wanted;
            let home = held(&wanted).filter(|home| home.epoch() > *above);
            match home.map_or_else(|| self.check_place(topic).map(|()| None), |home| Ok(Some(home))) {
                Ok(None) => missing.push(wanted),
                Ok(Some(home)) => drop(wanted.tell.send(Ok(home))),
                Err(error) => drop(wanted.tell.send(Err(error))),
            }
        }
        let mut requests: Vec<ClaimRequest> = missing.iter().map(|wanted| wanted.request.clone()).collect();
        // One for each topic, above all that was seen of it.
        requests.sort_unstable_by(|a, b| (&a.topic, b.above).cmp(&(&b.topic, a.above)));
        requests.dedup_by(|a, b| a.topic == b.topic);
        if requests.is_empty() {
            return;
        }
        let claimed = match self.homes.claim(&requests).await {
            Ok(claimed) => claimed,
            Err(error) => {
                missing.into_iter().for_each(|wanted| drop(wanted.tell.send(Err(error.clone()))));
                return;
            }
        };
        let homes: HashMap<TopicName, Result<Arc<Home>, HomesError>> = requests
            .into_iter()
            .zip(claimed)
            .map(|(request, claim)| (request.topic, claim.map(|claim| self.settle(claim))))
            .collect();
        for Wanted { request, tell } in missing {
            let lost = || Err(HomesError::Lost(request.topic.clone()));
            drop(tell.send(homes.get(&request.topic).cloned().unwrap_or_else(lost)));
        }
    }

    /// A topic that was claimed is at home here from now on.
    fn settle(self: &Arc<Self>, claim: Claim) -> Arc<Home> {
        let (topic, ends) = (claim.topic.clone(), claim.until.is_some());
        self.neighbors.note_claim(&topic, self.homes.id());
        let home = match self.held(&topic) {
            // What is stored is later than the clock of a hub that is alone: nobody else was here.
            Some(home) if !ends => {
                *home.claim.lock() = claim;
                home
            }
            before => {
                before.iter().for_each(|home| self.lose(home));
                let (clock, lost) = (self.clock.clone(), watch::Sender::new(false));
                let home = Arc::new(Home { topic: topic.clone(), claim: Mutex::new(claim), clock, lost });
                self.held.lock().insert(topic, home.clone());
                home
            }
        };
        if ends {
            self.keep_renewing();
        }
        home
    }

    fn keep_renewing(self: &Arc<Self>) {
        if !self.is_renewed.swap(true, Ordering::AcqRel) {
            tokio::spawn(renew_in_time(Arc::downgrade(self)));
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
        if !home.is_lost() && !home.holds() {
            self.renew_all(std::slice::from_ref(home)).await?;
        }
        match home.is_lost() {
            true => Err(HomesError::Lost(home.topic.clone())),
            false => Ok(()),
        }
    }

    /// Renews claims in one step, and says goodbye to what was lost.
    async fn renew_all(&self, homes: &[Arc<Home>]) -> Result<(), HomesError> {
        let claims: Vec<Claim> = homes.iter().map(|home| home.claim()).collect();
        let answers = self.homes.renew(&claims).await?;
        for (home, answer) in homes.iter().zip(answers) {
            match answer {
                Ok(claim) => *home.claim.lock() = claim,
                Err(_) => self.lose(home),
            }
        }
        Ok(())
    }

    /// Another hub has the topic: what was done under this home is over.
    pub fn lose(&self, home: &Arc<Home>) {
        if self.end(home) {
            tracing::warn!(topic = %home.topic, epoch = %home.epoch(), "a topic is no longer at home on this hub");
        }
    }

    /// Ends a home, with everything that is held under it. Says whether that is news.
    fn end(&self, home: &Arc<Home>) -> bool {
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

    /// Waits until topics may be at home elsewhere than they were after `after`. One task asks for all who wait.
    pub async fn changed(self: &Arc<Self>, after: Sequence) -> Sequence {
        let mut heard = self.heard.subscribe();
        self.keep_listening();
        heard.wait_for(|heard| *heard > after).await.map_or(after, |heard| *heard)
    }

    fn keep_listening(self: &Arc<Self>) {
        let listening = || tokio::spawn(listen(self.homes.clone(), Arc::downgrade(self))).abort_handle();
        self.listens.lock().get_or_insert_with(listening);
    }

    /// Gives a topic up that is not there any more.
    pub async fn give_up(&self, topic: &TopicName) {
        let _changing = self.changing.lock().await;
        if let Some(home) = self.held(topic) {
            self.vacate(&[home]).await;
        }
    }

    async fn vacate(&self, homes: &[Arc<Home>]) {
        if homes.is_empty() {
            return;
        }
        for home in homes {
            self.end(home);
        }
        let claims: Vec<Claim> = homes.iter().map(|home| home.claim()).collect();
        if let Err(error) = self.homes.release(&claims).await {
            let topics = claims.len();
            tracing::warn!(topics, %error, "failed to release topics; other hubs have to wait until the claims expire");
            return;
        }
        claims.iter().for_each(|claim| self.neighbors.note_release(&claim.topic));
    }

    /// Gives all topics up, so that other hubs can have them at once.
    pub async fn close(&self) {
        let _changing = self.changing.lock().await;
        self.vacate(&self.all_held()).await;
    }

    /// Renews all claims that have an end, and lets the hub be heard of where it takes part. Says when to do that again; `None`
    /// where there is nothing to renew.
    async fn renew(&self) -> Option<Duration> {
        let _changing = self.changing.lock().await;
        let (held, beat) = (self.all_held(), self.neighbors.beat());
        if held.is_empty() && beat.is_none() {
            return None;
        }
        if let Err(error) = self.renew_all(&held).await {
            tracing::warn!(%error, "failed to renew the claims of this hub");
            return Some(pause::CLAIM);
        }
        let now = self.clock.steady_ms();
        let left = |home: &Arc<Home>| Some(home.claim.lock().until?.saturating_sub(now));
        let left = self.held.lock().values().filter_map(left).min();
        let due = left.map(|left| Duration::from_millis((left / RENEWED_AFTER).max(1)));
        due.into_iter().chain(beat).min()
    }

    fn all_held(&self) -> Vec<Arc<Home>> {
        self.held.lock().values().cloned().collect()
    }
}

/// Renews the claims of a hub for as long as it has any that end.
async fn renew_in_time(claims: Weak<Claims>) {
    while let Some(strong) = claims.upgrade() {
        let Some(pause) = strong.renew().await else {
            strong.is_renewed.store(false, Ordering::Release);
            // One that was made meanwhile is not left to itself.
            let is_needed = strong.neighbors.beat().is_some()
                || strong.held.lock().values().any(|home| home.claim.lock().until.is_some());
            if !is_needed || strong.is_renewed.swap(true, Ordering::AcqRel) {
                return;
            }
            continue;
        };
        // That a hub's time is over is told by nobody.
        strong.look_around().await;
        drop(strong);
        // There is nothing to wait for but the time.
        tokio::time::sleep(pause).await;
    }
}

/// Hears what changes between hubs, for all who wait for that.
async fn listen(homes: Arc<dyn Homes>, claims: Weak<Claims>) {
    let mut heard = Sequence(0);
    loop {
        heard = homes.changed(heard).await;
        let Some(claims) = claims.upgrade() else { return };
        claims.look_around().await;
        claims.heard.send_replace(heard);
    }
}
