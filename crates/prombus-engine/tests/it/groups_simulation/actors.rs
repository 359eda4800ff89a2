//! Those who use the hub: producers, members that behave badly, and someone who changes things meanwhile.

use crate::groups_simulation::archive::{Archive, How};
use crate::groups_simulation::history::{Delivered, Entry, History, Stamped};
use crate::groups_simulation::plan::GroupPlan;
use crate::groups_simulation::world::{SlowStore, WallClock, pass};
use bytes::Bytes;
use parking_lot::Mutex;
use prombus_core::{
    Append, Bounds, Commit, ConfigChange, Json, Loss, NewEvent, Offset, Partition, TopicName, TopicPatch,
};
use prombus_engine::groups::{
    Delivery, GivenBack, Group, GroupError, GroupName, LeaseToken, Present, Pull, Settle, SettleCall,
    SettleResult,
};
use prombus_engine::{BusError, Hub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A topic grows to so many partitions at most.
const MAX_PARTITIONS: u32 = 6;
/// A lost connection held at most so many of its latest leases.
const CONNECTION_LEASES: usize = 20;
/// The wall clock is stepped by so much at most.
const MAX_STEP_MS: i64 = 600_000;

/// A group as those who use it see it, in one life of the hub.
#[derive(Clone)]
pub struct Seat {
    /// The hubs that there are; whoever asks goes to any of them.
    pub hubs: Vec<Hub>,
    pub topic: TopicName,
    pub plan: GroupPlan,
    pub history: Arc<History>,
    pub clock: Arc<WallClock>,
    /// Every load of the group that was ever seen.
    pub loads: Arc<Mutex<Vec<Arc<Group>>>>,
}

impl Seat {
    pub fn note(&self, load: usize, entry: Entry) {
        let moves = *self.loads.lock()[load].assignments().borrow();
        self.history.note(Stamped { at: self.clock.elapsed(), load, moves, entry });
    }

    /// The group on one of the hubs, and the number of its load.
    pub async fn group(&self, at: usize) -> Result<(Arc<Group>, usize), GroupError> {
        let name = GroupName::parse(&self.plan.name)?;
        let (group, _) = self.hubs[at].group(&self.topic, &name, &self.plan.call()).await?;
        let mut loads = self.loads.lock();
        if let Some(load) = loads.iter().position(|known| Arc::ptr_eq(known, &group)) {
            return Ok((group, load));
        }
        let load = loads.len();
        loads.push(group.clone());
        drop(loads);
        self.note(load, Entry::Loaded(group.epoch()));
        Ok((group, load))
    }

    /// Pulls, over a connection where there is one, and writes down what came.
    pub async fn pull(
        &self,
        (group, load): (&Arc<Group>, usize),
        connection: Option<&Present>,
        pull: &Pull,
    ) -> Result<Vec<Delivery>, GroupError> {
        let asked = self.clock.elapsed();
        let deliveries = match connection {
            Some(connection) => connection.pull(pull).await?,
            None => group.pull(pull).await?,
        };
        let owned = group.owned_by(pull.member.as_deref().unwrap_or_default());
        for delivery in &deliveries {
            let event = &delivery.event;
            let delivered = Delivered {
                place: (event.partition.0, event.offset.0),
                number: number_of(&event.payload),
                member: pull.member.clone(),
                lease: delivery.lease,
                attempt: delivery.attempt,
                deadline: self.clock.since_start(delivery.deadline),
                max_in_flight: pull.max_in_flight,
                asked,
                owned: owned.contains(&event.partition),
            };
            self.note(load, Entry::Delivered(delivered));
        }
        Ok(deliveries)
    }

    /// Says something of deliveries, and writes down what was answered.
    pub async fn say(&self, group: &Arc<Group>, load: usize, settles: Vec<Settle>) {
        let call = self.history.next_call();
        self.note(load, Entry::Said { call, settles: settles.clone() });
        let settles = settles.into_iter().map(Some).collect();
        let results = group.settle(SettleCall { settles }).await.ok();
        let results = results.map(|all| all.into_iter().map(SettleResult::is_done).collect());
        self.note(load, Entry::Answered { call, results });
    }
}

/// The number that an event has in its payload.
pub fn number_of(payload: &Json) -> u64 {
    let value = payload.to_value().expect("payloads are JSON");
    value["n"].as_u64().expect("payloads of the simulation have a number")
}

/// Publishes until all events are out.
pub async fn produce(
    hub: Hub,
    topic: TopicName,
    (next, events, keys): (Arc<AtomicU64>, u64, u32),
    mut rng: fastrand::Rng,
) {
    while next.load(Ordering::Relaxed) < events {
        let batch = (0..rng.u64(1..5)).map(|_| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let mut event = NewEvent::new(Json::from_stored(Bytes::from(format!("{{\"n\":{number}}}"))));
            event.key = (rng.u32(..4) > 0).then(|| format!("key-{}", rng.u32(..keys)).into());
            Append::new(topic.clone(), event)
        });
        // What is refused is not published: the checker goes by what is in the log.
        let _ = hub.publish(batch.collect()).await;
        pass(Duration::from_millis(rng.u64(..40))).await;
    }
}

/// Makes the topic grow and steps the clock, now and then.
pub async fn meddle(hub: Hub, topic: TopicName, clock: Arc<WallClock>, mut rng: fastrand::Rng) {
    loop {
        pass(Duration::from_millis(rng.u64(..800))).await;
        if rng.u32(..3) > 0 {
            clock.step(rng.i64(-MAX_STEP_MS..MAX_STEP_MS));
            continue;
        }
        let Ok(Some(state)) = hub.topic(&topic).await else { continue };
        let partitions = (state.config.partitions + rng.u32(1..3)).min(MAX_PARTITIONS);
        let patch = TopicPatch { partitions: Some(partitions), ..TopicPatch::default() };
        let _ = hub.put_topic(&topic, patch).await;
    }
}

/// Gives events up, now and then: all below an offset, or single ones.
pub async fn give_up(hub: Hub, topic: TopicName, archive: Arc<Archive>, mut rng: fastrand::Rng) {
    loop {
        pass(Duration::from_millis(rng.u64(..300))).await;
        let Ok(Some(state)) = hub.topic(&topic).await else { continue };
        let partition = Partition(rng.u32(..state.config.partitions));
        let Some(Bounds { first, next }) = archive.look(&state, partition).await else { continue };
        if first == next {
            continue;
        }
        let loss = Loss { bytes: 0, horizon_ts: Some(0) };
        let (how, offsets, change) = if rng.bool() {
            let before = Offset(rng.u64(first.0..=next.0));
            let trim = ConfigChange::Trim { topic: (&topic).into(), partition, before, loss };
            (How::Trimmed, (first.0..before.0).collect::<Vec<_>>(), trim)
        } else {
            let offsets: Vec<u64> = (first.0..next.0).filter(|_| rng.u32(..3) == 0).collect();
            let single = Arc::new(offsets.iter().copied().map(Offset).collect());
            let topic = state.pinned();
            (How::Discarded, offsets, ConfigChange::Discard { topic, partition, offsets: single, loss })
        };
        let places: Vec<_> = offsets.into_iter().map(|offset| (partition.0, offset)).collect();
        let news = archive.begins(&places, how);
        let mut commit = Arc::new(Commit { config: vec![change], ..Commit::default() });
        let done = async { Ok::<_, BusError>(hub.enqueue(&mut commit).await?.await?) }.await;
        // What was refused has not happened. Of what a hub had under way when it was killed, that is not known.
        match done {
            Ok(_) => archive.is_done(&places),
            Err(_) => archive.is_off(&news),
        }
    }
}

/// A member that does everything that members do to a hub.
pub struct Member {
    pub seat: Seat,
    pub name: Option<String>,
    pub rng: fastrand::Rng,
    leases: Vec<LeaseToken>,
    /// With the load of the group that it is to. Others may be connected as the same member.
    connection: Option<(usize, Present)>,
}

impl Member {
    pub fn new(seat: Seat, name: Option<String>, rng: fastrand::Rng) -> Self {
        Self { seat, name, rng, leases: Vec::new(), connection: None }
    }

    fn ms(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.rng.u64(..below.max(1)))
    }

    pub async fn run(mut self) {
        loop {
            let at = self.rng.usize(..self.seat.hubs.len());
            let Ok((group, load)) = self.seat.group(at).await else {
                let pause = self.ms(20);
                pass(pause).await;
                continue;
            };
            self.pull_some(&group, load).await;
            match self.rng.u32(..40) {
                0 => self.lose_connection(&group, load).await,
                1 => self.connect_or_leave(&group, load).await,
                // It stalls.
                2 => {
                    let stall = self.ms(2 * self.seat.plan.member_ttl.as_millis() as u64);
                    pass(stall).await;
                }
                3..8 => self.say_something_old(&group, load).await,
                _ => {
                    let pause = self.ms(20);
                    pass(pause).await;
                }
            }
        }
    }

    async fn pull_some(&mut self, group: &Arc<Group>, load: usize) {
        let pull = Pull {
            member: self.name.clone(),
            max: self.rng.usize(1..8),
            wait: self.ms(150),
            max_in_flight: self.rng.usize(1..16),
        };
        // Some give up before they get their answer.
        let patience = if self.rng.u32(..8) == 0 { self.ms(60) } else { Duration::MAX };
        let connection = self.connection.as_ref().filter(|(to, _)| *to == load).map(|(_, present)| present);
        let pulling = self.seat.pull((group, load), connection, &pull);
        let Ok(Ok(deliveries)) = timeout(patience, pulling).await else { return };
        self.leases.extend(deliveries.iter().map(|delivery| delivery.lease));
        let mut now = Vec::new();
        for delivery in deliveries {
            self.decide(group, load, delivery, &mut now);
        }
        if !now.is_empty() {
            self.later(group, load, vec![(Duration::ZERO, now)]);
        }
    }

    /// Decides what becomes of a delivery. What is said at once goes to `now`, together with others.
    fn decide(&mut self, group: &Arc<Group>, load: usize, delivery: Delivery, now: &mut Vec<Settle>) {
        let lease = delivery.lease;
        let timeout_ms = self.seat.plan.ack_timeout.as_millis() as u64;
        let ack = Settle::Ack(lease);
        let nack = |delay| Settle::Nack { lease, reason: Some("at random".into()), delay };
        if self.rng.u32(..100) < self.seat.plan.good_percent {
            return now.push(ack);
        }
        match self.rng.u32(..12) {
            0..3 => now.push(nack(None)),
            3 => {
                let delay = self.ms(300);
                now.push(nack(Some(delay)));
            }
            4 => now.extend([ack.clone(), ack]),
            5 => now.extend([nack(None), ack, nack(None)]),
            6 => {
                let (extend, wait) = (self.ms(2 * timeout_ms), self.ms(2 * timeout_ms));
                let by = self.rng.bool().then_some(extend.max(Duration::from_millis(1)));
                self.later(
                    group,
                    load,
                    vec![(Duration::ZERO, vec![Settle::Extend { lease, by }]), (wait, vec![ack])],
                );
            }
            7 => now.push(Settle::Bury { lease, reason: "in vain".into() }),
            // It is forgotten.
            8 => {}
            // It comes about when the lease ends.
            _ => {
                let wait = self.ms(2 * timeout_ms);
                let settle = if self.rng.bool() { ack } else { nack(None) };
                self.later(group, load, vec![(wait, vec![settle])]);
            }
        }
    }

    /// Says things after a while each, whatever becomes of the member.
    fn later(&self, group: &Arc<Group>, load: usize, steps: Vec<(Duration, Vec<Settle>)>) {
        let (seat, group) = (self.seat.clone(), group.clone());
        tokio::spawn(async move {
            for (wait, settles) in steps {
                if !wait.is_zero() {
                    pass(wait).await;
                }
                seat.say(&group, load, settles).await;
            }
        });
    }

    async fn say_something_old(&mut self, group: &Arc<Group>, load: usize) {
        let Some(lease) = self.seat.history.some_lease(&mut self.rng) else { return };
        let settle = match self.rng.u32(..3) {
            0 => Settle::Ack(lease),
            1 => Settle::Nack { lease, reason: None, delay: None },
            _ => Settle::Extend { lease, by: None },
        };
        self.seat.say(group, load, vec![settle]).await;
    }

    async fn lose_connection(&mut self, group: &Arc<Group>, load: usize) {
        let latest = self.leases.len().saturating_sub(CONNECTION_LEASES);
        let leases = self.leases.split_off(latest);
        let lost_connection = self.rng.bool();
        self.connection = None;
        let why = if lost_connection { GivenBack::ConnectionLost } else { GivenBack::Unused };
        group.give_back(&leases, why);
        self.seat.note(load, Entry::GaveBack { leases, lost_connection });
        let pause = self.ms(50);
        pass(pause).await;
    }

    async fn connect_or_leave(&mut self, group: &Arc<Group>, load: usize) {
        self.connection = match self.connection.take() {
            Some(_) => None,
            None => Some((load, group.enter(self.name.as_deref().unwrap_or_default()).unwrap())),
        };
        let pause = self.ms(100);
        pass(pause).await;
    }
}

/// Stalls hubs, now and then, for so long that another one may take over.
pub async fn stall(stores: Vec<Arc<SlowStore>>, ttl: Duration, mut rng: fastrand::Rng) {
    loop {
        pass(Duration::from_millis(rng.u64(..400))).await;
        let store = &stores[rng.usize(..stores.len())];
        store.homes_stall.set(true);
        store.stall.set(rng.u32(..3) > 0);
        pass(ttl.mul_f64(3.0 * rng.f64())).await;
        store.stall.set(false);
        // It may be able to write long before it hears that it has lost a topic.
        pass(ttl.mul_f64(rng.f64())).await;
        store.homes_stall.set(false);
    }
}

/// A member that acks everything, until the group has settled all that there is. Says how many events were lost ever;
/// `None` where it has not settled all in the end.
pub async fn finish(seat: Seat, name: String, until: Instant) -> Option<u64> {
    while Instant::now() < until {
        let Ok((group, load)) = seat.group(0).await else { continue };
        let wait = Duration::from_millis(500);
        let pull = Pull { member: Some(name.clone()), max: 50, wait, max_in_flight: 1_000 };
        let deliveries = seat.pull((&group, load), None, &pull).await.unwrap_or_default();
        let acks = deliveries.iter().map(|delivery| Settle::Ack(delivery.lease)).collect();
        seat.say(&group, load, acks).await;
        let Ok(status) = group.status().await else { continue };
        if status.partitions.iter().all(|partition| partition.lag == 0) {
            return Some(status.partitions.iter().map(|partition| partition.lost).sum());
        }
    }
    None
}
