//! Writers whose commits have ids: each has its own document, and repeats a commit until it is answered, after the next
//! restart of the hub if necessary.

use super::setup::SINGLES;
use crate::calls::{Caller, RoundContext};
use fastrand::Rng;
use prombus_client::Committed;
use serde_json::json;

/// How many commits a writer makes in a round, at most.
const COMMITS: u64 = 150;
/// One commit in so many is repeated although it was answered.
const AGAIN_ONE_IN: u32 = 5;

/// A writer.
pub struct Writer {
    /// Its name, which is the key of its document.
    pub name: String,
    /// How many of its commits were answered, and thus the version of its document.
    pub done: u64,
    /// Where its randomness comes from.
    pub rng: Rng,
}

/// The id of a commit.
pub fn commit_id(writer: &str, number: u64) -> String {
    format!("{writer}-{number}")
}

impl Writer {
    /// Commits until it is enough, or the hub is gone. The first may have happened in an earlier life of the hub.
    pub async fn run(mut self, stage: RoundContext) -> Result<Self, String> {
        let caller = Caller::new(stage)?;
        for _ in 0..COMMITS {
            let trouble = caller.stage.trouble.clone();
            if trouble.is_over() || (!self.commit(&caller).await? && !trouble.goes_on()) {
                break;
            }
            trouble.pace().await;
        }
        Ok(self)
    }

    /// Repeats the commit that was not answered, or makes one more.
    pub async fn settle(mut self, stage: RoundContext) -> Result<Self, String> {
        let caller = Caller::new(stage)?;
        self.commit(&caller).await.map(|_| self)
    }

    /// `false`: the hub is gone.
    async fn commit(&mut self, caller: &Caller) -> Result<bool, String> {
        let (name, id) = (&self.name, commit_id(&self.name, self.done));
        let body = json!({"commit_id": id,
            "writes": [
                {"collection": "singles", "key": name, "inc": {"n": 1}, "if_version": self.done},
                {"collection": "ids", "key": id, "set": {"by": name}, "if_version": 0},
            ],
            "publish": [{"topic": SINGLES, "key": name, "payload": {"by": id}}]});
        let Some(answer) = caller.post("/v1/commit", &body).await? else { return Ok(false) };
        let committed: Committed = answer.parse().map_err(|why| format!("commit {id} was {why}"))?;
        if (committed.version("singles", name), committed.version("ids", &id))
            != (Some(self.done + 1), Some(1))
        {
            return Err(format!("commit {id} should write version {}: {committed:?}", self.done + 1));
        }
        self.done += 1;
        if self.rng.u32(..AGAIN_ONE_IN) == 0 {
            let Some(again) = caller.post("/v1/commit", &body).await? else { return Ok(false) };
            if again != answer {
                return Err(format!("commit {id} was answered with {answer:?}, and again with {again:?}"));
            }
        }
        Ok(true)
    }
}
