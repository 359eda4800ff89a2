//! Homes in memory: for a hub that is alone, where every topic is at home, and for several hubs in one process.

use super::{AboutHub, Claim, ClaimRequest, Homes, HomesError, HubId, LiveHub, Moves, Residence};
use crate::clock::Clock;
use crate::position::{Epoch, Sequence};
use crate::topic::TopicName;
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The name of a hub that is alone.
const ALONE: &str = "local";

/// What the hubs of one process share. Cheap to clone.
#[derive(Clone)]
pub struct SharedHomes {
    state: Arc<Mutex<State>>,
    /// Tells how many changes there were.
    version: Arc<watch::Sender<u64>>,
    clock: Arc<dyn Clock>,
    /// How long a hub that says nothing is taken to be alive; `None`: for ever.
    ttl_ms: Option<u64>,
}

#[derive(Default)]
struct State {
    /// Counts the changes.
    version: u64,
    /// The last epoch that was given, to whichever topic: so those of each topic grow, and none has to be kept for a
    /// topic that nobody has.
    latest: Epoch,
    held: HashMap<TopicName, Residence>,
    /// When each hub was last heard of, by the steady clock.
    heard: BTreeMap<HubId, u64>,
    /// Those that take part.
    joined: BTreeMap<HubId, LiveHub>,
    /// At which version each topic has changed hands last; of a hub that is alone, nobody asks.
    moved: HashMap<TopicName, u64>,
}

impl SharedHomes {
    /// Homes without hubs, where those that say nothing for so long can be taken over from. Epochs start with the time
    /// of the day, so that those of one process are not those of the next.
    pub fn new(clock: Arc<dyn Clock>, ttl_ms: Option<u64>) -> Self {
        let state = State { latest: Epoch(clock.now_ms()), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), version: Arc::new(watch::Sender::new(0)), clock, ttl_ms }
    }

    /// A hub of this name joins.
    pub fn hub(&self, id: &str) -> MemoryHomes {
        let id = HubId(id.into());
        let homes = MemoryHomes { shared: self.clone(), id };
        homes.change(|_, _| ());
        homes
    }

    /// Nothing is left half done by whoever panics in between: each change is one assignment after the checks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self, state: &State, hub: &HubId, now: u64) -> bool {
        let is_heard = |heard: &u64| self.ttl_ms.is_none_or(|ttl| now.saturating_sub(*heard) < ttl);
        state.heard.get(hub).is_some_and(is_heard)
    }

    /// When a claim that was renewed `now` ends for the hub that has it: before anybody else can have it, even if the hub
    /// takes a while to find out.
    fn until(&self, now: u64) -> Option<u64> {
        self.ttl_ms.map(|ttl| now + ttl * 2 / 3)
    }
}

/// [`SharedHomes`] as one of the hubs sees them.
#[derive(Clone)]
pub struct MemoryHomes {
    shared: SharedHomes,
    id: HubId,
}

impl MemoryHomes {
    /// Homes of a hub that is alone: every topic is at home on it, for as long as it lives.
    pub fn alone(clock: Arc<dyn Clock>) -> Self {
        SharedHomes::new(clock, None).hub(ALONE)
    }

    /// Looks at the shared state and changes it, being heard of. Whoever waits is woken where the version has moved.
    fn change<T>(&self, work: impl FnOnce(&mut State, u64) -> T) -> T {
        let now = self.shared.clock.steady_ms();
        let mut state = self.shared.state();
        // One that comes, or comes back after its time, is news to those who wait.
        state.version += u64::from(!self.shared.is_alive(&state, &self.id, now));
        let answer = work(&mut state, now);
        state.heard.insert(self.id.clone(), now);
        let version = state.version;
        drop(state);
        self.shared.version.send_if_modified(|known| {
            let is_later = version > *known;
            *known = version.max(*known);
            is_later
        });
        answer
    }

    fn claimed(&self, state: &mut State, request: ClaimRequest, now: u64) -> Result<Claim, HomesError> {
        let ClaimRequest { topic, above } = request;
        let until = self.shared.until(now);
        match state.held.get(&topic) {
            Some(Residence { hub, epoch }) if *hub == self.id && *epoch > above => {
                return Ok(Claim { epoch: *epoch, topic, until });
            }
            Some(Residence { hub, .. }) if *hub != self.id && self.shared.is_alive(state, hub, now) => {
                return Err(HomesError::Elsewhere { hub: hub.clone(), topic });
            }
            _ => {}
        }
        let epoch = Epoch(state.latest.max(above).0 + 1);
        state.latest = epoch;
        self.pass(state, &topic, Some(Residence { hub: self.id.clone(), epoch }));
        Ok(Claim { topic, epoch, until })
    }

    /// A topic changes hands.
    fn pass(&self, state: &mut State, topic: &TopicName, to: Option<Residence>) {
        state.version += 1;
        match to {
            Some(to) => drop(state.held.insert(topic.clone(), to)),
            None => drop(state.held.remove(topic)),
        }
        if self.shared.ttl_ms.is_some() {
            state.moved.insert(topic.clone(), state.version);
        }
    }

    /// What becomes of claims that this hub has.
    fn give(&self, claims: &[Claim], to: Option<&HubId>) {
        self.change(|state, _| {
            for claim in claims {
                if self.has(state, claim) {
                    let epoch = Epoch(state.latest.0 + 1);
                    let to = to.map(|hub| Residence { hub: hub.clone(), epoch });
                    state.latest = to.as_ref().map_or(state.latest, |to| to.epoch);
                    self.pass(state, &claim.topic, to);
                }
            }
        });
    }

    fn has(&self, state: &State, claim: &Claim) -> bool {
        let held = state.held.get(&claim.topic);
        held.is_some_and(|held| held.hub == self.id && held.epoch == claim.epoch)
    }
}

#[async_trait]
impl Homes for MemoryHomes {
    fn id(&self) -> &HubId {
        &self.id
    }

    async fn join(&self, about: AboutHub) -> Result<(), HomesError> {
        let now_ms = self.shared.clock.now_ms();
        self.change(|state, now| {
            // One whose time was over comes anew.
            let known = state.joined.get(&self.id).filter(|_| self.shared.is_alive(state, &self.id, now));
            let since_ms = known.map_or(now_ms, |known| known.since_ms);
            let joined = LiveHub { id: self.id.clone(), about, since_ms };
            if known != Some(&joined) {
                state.joined.insert(self.id.clone(), joined);
                state.version += 1;
            }
        });
        Ok(())
    }

    async fn leave(&self) -> Result<(), HomesError> {
        self.change(|state, _| {
            state.joined.remove(&self.id);
            state.version += 1;
            let own = state.held.iter().filter(|(_, held)| held.hub == self.id);
            let own: Vec<TopicName> = own.map(|(topic, _)| topic.clone()).collect();
            own.iter().for_each(|topic| self.pass(state, topic, None));
        });
        Ok(())
    }

    async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        Ok(self.change(|state, now| {
            requests.iter().map(|request| self.claimed(state, request.clone(), now)).collect()
        }))
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Claim, HomesError>>, HomesError> {
        Ok(self.change(|state, now| {
            let renewed = |claim: &Claim| match self.has(state, claim) {
                true => Ok(Claim { until: self.shared.until(now), ..claim.clone() }),
                false => Err(HomesError::Lost(claim.topic.clone())),
            };
            claims.iter().map(renewed).collect()
        }))
    }

    async fn release(&self, claims: &[Claim]) -> Result<(), HomesError> {
        self.give(claims, None);
        Ok(())
    }

    async fn hand_over(&self, claims: &[Claim], to: &HubId) -> Result<(), HomesError> {
        self.give(claims, Some(to));
        Ok(())
    }

    async fn moves(&self, after: Sequence) -> Result<Moves, HomesError> {
        let state = self.shared.state();
        let later = state.moved.iter().filter(|(_, at)| **at > after.0);
        let now = |(topic, _): (&TopicName, &u64)| {
            (topic.clone(), state.held.get(topic).map(|held| held.hub.clone()))
        };
        Ok(Moves { through: Sequence(state.version), topics: later.map(now).collect() })
    }

    async fn home_of(&self, topic: &TopicName) -> Result<Option<Residence>, HomesError> {
        let (state, now) = (self.shared.state(), self.shared.clock.steady_ms());
        let held = state.held.get(topic).filter(|held| self.shared.is_alive(&state, &held.hub, now));
        Ok(held.cloned())
    }

    async fn hubs(&self) -> Result<Vec<LiveHub>, HomesError> {
        let (state, now) = (self.shared.state(), self.shared.clock.steady_ms());
        Ok(state.joined.values().filter(|hub| self.shared.is_alive(&state, &hub.id, now)).cloned().collect())
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        let mut version = self.shared.version.subscribe();
        // What is shared is there as long as this is.
        version.wait_for(|version| *version > after.0).await.map_or(after, |version| Sequence(*version))
    }
}
