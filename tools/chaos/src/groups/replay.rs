//! Replayed dead letters: their group gets the events once more, with attempts reset, and no other group does.

use super::calls::{Caller, Reply};
use super::history::{Event, Letter};
use super::spec::{GroupsPlan, SPECS, Spec};
use super::truth::Events;
use super::{Groups, Judged};
use crate::calls::Trouble;
use serde::Deserialize;
use serde_json::json;

/// Maximum number of dead letters that are replayed at once.
const LETTERS: usize = 20;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Replayed {
    matched: usize,
    replayed: usize,
    skipped: Vec<Skipped>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Skipped {}

impl Groups {
    /// Replays some dead letters of some group, now and then with a hub that is killed right after, and judges what
    /// all groups got of it. Everything else must be settled.
    pub(super) async fn replay(&mut self, plan: &GroupsPlan, judged: &[Judged]) -> Result<(), String> {
        let mut rng = plan.rng("replay");
        let of = |spec: &Spec| judged.iter().find(|judged| judged.topic == spec.topic);
        let has_letters = |spec: &&Spec| of(spec).is_some_and(|judged| judged.of(spec).next().is_some());
        let dead: Vec<&Spec> = SPECS.iter().filter(has_letters).collect();
        let Some(spec) = rng.choice(dead) else { return Ok(()) };
        let Some(judged) = of(spec) else { return Ok(()) };
        let events: Events = judged.of(spec).filter_map(|l| original(judged, l)).take(LETTERS).collect();
        self.ask(spec, &events).await?;
        if rng.bool() {
            self.kill(plan)?;
        }
        self.drain().await?;
        self.judge(|other| if other == spec { events.clone() } else { Events::new() }).await.map(drop)
    }

    async fn ask(&self, spec: &Spec, events: &Events) -> Result<(), String> {
        let ids: Vec<_> = events.values().map(|event| event.id).collect();
        let body = json!({"to": "group", "group": spec.group, "ids": ids});
        let caller = Caller::new(self.stage(Trouble::None))?;
        for replayed in [ids.len(), 0] {
            // What was replayed is not replayed again.
            let path = format!("/v1/dlq/{}/replay", spec.topic);
            let Reply::Answered(answer) = caller.post::<Replayed>(&path, &body, None).await? else {
                return Err("a replay was not answered".to_owned());
            };
            let expected = (ids.len(), replayed, ids.len() - replayed);
            if (answer.matched, answer.replayed, answer.skipped.len()) != expected {
                return Err(format!("POST {path} {body}: {answer:?}, where it should be {expected:?}"));
            }
        }
        Ok(())
    }
}

/// The event that a letter is about, without its key: nothing is said about the order of what is replayed.
fn original(judged: &Judged, letter: &Letter) -> Option<((u32, u64), Event)> {
    let event = judged.events.get(&letter.spot)?;
    Some((letter.spot, Event { key: None, ..event.clone() }))
}
