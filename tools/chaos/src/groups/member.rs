//! A member of a group: it pulls and acks, and now and then does everything that it should not.

use super::calls::RoundContext;
use super::group_client::{GroupClient, Pull, Settlement};
use super::history::{Delivery, History, Micros, Verb};
use super::spec::Spec;
use fastrand::Rng;
use std::time::Duration;

/// One call in so many is hung up on before it is answered.
const HANG_UP_ONE_IN: u32 = 25;
/// A call that is hung up on is so within this.
const HANG_UP_MS: u64 = 12;
/// Events whose number is divisible by this fail more often than not.
const POISON: u64 = 13;
/// A named member lives at most so long, and then another one comes.
const LIFE_US: u64 = 900_000;
/// How many leases of the last life of the hub are tried in the next one, at most.
pub const LEFTOVERS: usize = 20;

/// What a member is.
pub struct Role {
    /// Its group.
    pub spec: Spec,
    /// Its name.
    pub name: String,
    /// Where its randomness comes from.
    pub rng: Rng,
    /// Leases that the hub gave out in an earlier life.
    pub old: Vec<String>,
    /// Whether it hangs up on pulls. Nobody knows then what they brought, so it is not always so.
    pub hangs_up: bool,
}

/// A member.
pub struct Member {
    role: Role,
    voice: GroupClient,
    incarnation: u32,
    lives_until: Micros,
    later: Vec<(Micros, Settlement)>,
}

/// What a member leaves behind when the hub is gone.
pub struct Legacy {
    /// What happened.
    pub history: History,
    /// Leases that it still held.
    pub leftovers: Vec<String>,
}

impl Member {
    /// A member.
    pub fn new(mut role: Role, stage: RoundContext) -> Result<Self, String> {
        let voice = GroupClient::new(role.spec, stage)?;
        let old = std::mem::take(&mut role.old);
        let later = old.into_iter().map(|lease| (0, plain(lease, Verb::Ack))).collect();
        Ok(Self { role, voice, incarnation: 0, lives_until: 0, later })
    }

    /// Pulls until the hub is gone or everything is over.
    pub async fn run(mut self) -> Result<Legacy, String> {
        while self.step().await? {}
        let mut leftovers: Vec<String> = self.later.into_iter().map(|(_, word)| word.lease).collect();
        leftovers.truncate(LEFTOVERS);
        Ok(Legacy { history: self.voice.history, leftovers })
    }

    async fn step(&mut self) -> Result<bool, String> {
        if self.voice.trouble().is_over() {
            return Ok(false);
        }
        let now = self.voice.now();
        if now >= self.lives_until {
            self.incarnation += 1;
            self.lives_until = now + self.role.rng.u64(LIFE_US / 4..LIFE_US);
        }
        let due = self.later.extract_if(.., |(at, _)| *at <= now).map(|(_, word)| word).collect();
        if !self.say(due).await? {
            return Ok(false);
        }
        self.voice.trouble().pace().await;
        let pull = self.next_pull();
        let Some(delivered) = self.voice.pull(&pull).await? else {
            return Ok(false);
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for delivery in delivered {
            self.decide(&delivery, &mut first, &mut second);
        }
        Ok(self.say(first).await? && self.say(second).await?)
    }

    fn next_pull(&mut self) -> Pull {
        let rng = &mut self.role.rng;
        let drop_after = hang_up(rng).filter(|_| self.role.hangs_up);
        // Some give no name, and are one member together.
        let anonymous = !self.role.spec.partitioned && self.role.name.ends_with('0');
        Pull {
            member: if anonymous {
                String::new()
            } else {
                format!("{}.{}", self.role.name, self.incarnation)
            },
            max: [1, 2, 5, 20, 100][rng.usize(..5)],
            wait_ms: [0, 0, 5, 50, 200][rng.usize(..5)],
            max_in_flight: [3, 30, 1_000][rng.usize(..3)],
            drop_after,
        }
    }

    /// Says things that belong together, where there are any. `false`: the hub is gone.
    async fn say(&mut self, mut words: Vec<Settlement>) -> Result<bool, String> {
        let drop_after = hang_up(&mut self.role.rng);
        while !words.is_empty() {
            // What is said of one lease twice goes into two calls, or nobody could tell which came first.
            let (mut now, mut rest): (Vec<Settlement>, Vec<Settlement>) = (Vec::new(), Vec::new());
            for word in words {
                let again = now.iter().any(|other| other.lease == word.lease);
                if again { rest.push(word) } else { now.push(word) }
            }
            if !self.voice.say(&now, drop_after).await? {
                return Ok(false);
            }
            words = rest;
        }
        Ok(true)
    }

    /// What to do with a delivery: what is said at once, what is said right after, and what is said later.
    fn decide(&mut self, delivery: &Delivery, first: &mut Vec<Settlement>, second: &mut Vec<Settlement>) {
        let lease = &delivery.lease;
        let say = |verb| plain(lease.clone(), verb);
        let nack = |rng: &mut Rng| Settlement {
            reason: format!("failed {}", rng.u32(..1_000)),
            delay_ms: [None, None, Some(0), Some(60), Some(250)][rng.usize(..5)],
            ..say(Verb::Nack)
        };
        let poisoned = delivery.spot.1.is_multiple_of(POISON);
        if poisoned && self.role.rng.u32(..4) > 0 {
            first.push(nack(&mut self.role.rng));
            return;
        }
        if self.role.rng.u32(..self.role.spec.trouble_one_in) > 0 {
            first.push(say(Verb::Ack));
            return;
        }
        let (now, lease_us) = (self.voice.now(), self.role.spec.lease_us());
        match self.role.rng.u32(..20) {
            0..=5 => first.push(nack(&mut self.role.rng)),
            // A late ack.
            6..=7 => self.later.push((now + lease_us + self.role.rng.u64(..300_000), say(Verb::Ack))),
            // One that may be late, or a nack that may.
            8..=9 => self.later.push((now + self.role.rng.u64(..lease_us * 6 / 5), say(Verb::Ack))),
            10 => {
                let word = nack(&mut self.role.rng);
                self.later.push((now + self.role.rng.u64(..lease_us * 6 / 5), word));
            }
            // Nothing is ever said.
            11 => {}
            // It takes longer, and says so.
            12..=13 => {
                first.push(say(Verb::Extend(2 * lease_us)));
                self.later.push((now + lease_us + lease_us / 2, say(Verb::Ack)));
            }
            // Things are said twice, or taken back.
            14..=15 => both(first, second, say(Verb::Ack), say(Verb::Ack)),
            16 => {
                let word = nack(&mut self.role.rng);
                both(first, second, word.clone(), word);
            }
            17 => both(first, second, nack(&mut self.role.rng), say(Verb::Ack)),
            18 => both(first, second, say(Verb::Ack), nack(&mut self.role.rng)),
            // It says again much later what was accepted.
            _ => {
                let word = nack(&mut self.role.rng);
                self.later.push((now + self.role.rng.u64(..600_000), word.clone()));
                first.push(word);
            }
        }
    }
}

fn plain(lease: String, verb: Verb) -> Settlement {
    Settlement { lease, verb, reason: String::new(), delay_ms: None }
}

fn both(first: &mut Vec<Settlement>, second: &mut Vec<Settlement>, one: Settlement, other: Settlement) {
    first.push(one);
    second.push(other);
}

fn hang_up(rng: &mut Rng) -> Option<Duration> {
    (rng.u32(..HANG_UP_ONE_IN) == 0).then(|| Duration::from_millis(rng.u64(..HANG_UP_MS)))
}
