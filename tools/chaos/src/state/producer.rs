//! Producers: they publish events with known numbers, some of which no projection can apply.

use super::setup::IN;
use crate::calls::{Caller, RoundContext};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many events a producer publishes in a round, at most.
const EVENTS: u64 = 300;
/// The longest array.
const ARRAY: u64 = 8;
/// How many keys there are.
const KEYS: u32 = 24;
/// One event in so many lacks what projections need.
const BAD_ONE_IN: u32 = 40;
/// One in so many deletes the document of its key.
const GONE_ONE_IN: u32 = 12;
/// One in so many has a version that came before.
const OLD_ONE_IN: u32 = 10;
/// Versions of a round are so far from those of the next.
const REVISIONS: i64 = 10_000;
/// Versions are up to so many ahead, so that what two producers send is not always in order.
const AHEAD: i64 = 20;
/// Numbers that are added up stay below this, so that many documents have the same.
pub const VALUES: i64 = 10;
/// The longest pause between two publishes.
const PAUSE_MS: u64 = 6;

/// What was sent: who, and which of theirs; whether it was answered.
pub type Published = BTreeMap<(String, u64), bool>;

/// A producer.
pub struct Producer {
    /// Its name.
    pub name: String,
    /// The round.
    pub round: u32,
    /// Where its randomness comes from.
    pub rng: Rng,
}

#[derive(Deserialize)]
struct Taken {
    count: u64,
}

impl Producer {
    fn event(&mut self, n: u64) -> Value {
        let Self { name, round, rng } = self;
        let key = format!("k{}", rng.u32(..KEYS));
        if rng.u32(..BAD_ONE_IN) == 0 {
            return json!({"key": key, "payload": {"p": name, "n": n}});
        }
        let newest = i64::from(*round) * REVISIONS + n.cast_signed() + rng.i64(0..AHEAD);
        let rev = if rng.u32(..OLD_ONE_IN) == 0 { rng.i64(0..newest) } else { newest };
        let gone = rng.u32(..GONE_ONE_IN) == 0;
        let payload = json!({"p": name, "n": n, "v": rng.i64(0..VALUES), "rev": rev, "gone": gone});
        json!({"key": key, "payload": payload})
    }

    /// Publishes until it is enough, or the hub is gone, and says what was sent.
    pub async fn run(mut self, stage: RoundContext) -> Result<Published, String> {
        let caller = Caller::new(stage)?;
        let (mut published, mut next) = (Published::new(), 0);
        while next < EVENTS {
            let numbers = next..next + self.rng.u64(1..=ARRAY);
            next = numbers.end;
            let bodies: Vec<Value> = numbers.clone().map(|n| self.event(n)).collect();
            let count = bodies.len() as u64;
            let answer = caller.post(&format!("/v1/topics/{IN}/events"), &json!(bodies)).await?;
            let answered = answer.is_some();
            published.extend(numbers.map(|n| ((self.name.clone(), n), answered)));
            let trouble = &caller.stage.trouble;
            if trouble.is_over() {
                break;
            }
            trouble.pace().await;
            let Some(answer) = answer else {
                if trouble.goes_on() {
                    continue;
                }
                break;
            };
            let taken: Taken = answer.parse().map_err(|why| format!("a publish was {why}"))?;
            if taken.count != count {
                return Err(format!("{count} events were sent, and {} counted", taken.count));
            }
            // Its pace is the plan's; there is nothing to wait for.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..PAUSE_MS))).await;
        }
        Ok(published)
    }
}
