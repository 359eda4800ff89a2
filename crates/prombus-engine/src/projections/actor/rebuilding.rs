//! Making the collections of a projection anew, beside those that are there, until both have seen the same events.

use super::super::ProjectionError;
use super::super::runner::{Purpose, Runner, Step, Stop};
use super::super::stored::{self, Record, failures_of, shadow};
use super::{Actor, Work};
use crate::homes::Home;
use crate::retry::pause;
use prombus_core::collection::CollectionConfig;
use prombus_core::{Commit, ConfigChange, CursorMove, EventLogExt, Partition, ReadError};
use std::sync::Arc;

impl Actor {
    /// What makes the collections anew.
    pub(super) fn rebuilder(&self, home: &Arc<Home>) -> Runner {
        self.runner(home, Purpose::Rebuild { partial: self.setup.record.partial })
    }

    /// Goes on by a page with what is made anew. Whether there may be more to do.
    pub(super) async fn advance_rebuild(&mut self, work: &mut Work) -> bool {
        let goal = match self.goal(work).await {
            Ok(goal) => goal,
            Err(error) => return self.stop_rebuild(error.into(), work).await,
        };
        let home = work.live.home.clone();
        let Some(runner) = &mut work.rebuild else { return false };
        // Beyond what the present collections have, it would do in silence what is to be told of.
        let limit = (!work.stopped).then_some(goal.as_slice());
        let stepped = match runner.step(limit).await {
            Ok(stepped) => stepped,
            Err(stop) => return self.stop_rebuild(stop, work).await,
        };
        let (topic, began) = (runner.topic().map(|topic| topic.number.0), self.setup.record.rebuilt_from);
        match began {
            _ if topic == began => {}
            // It was of nothing until there was a topic.
            None => {
                let record = Record { rebuilt_from: topic, ..self.setup.record.clone() };
                if let Err(error) = self.store(&home, record, Commit::by_hub()).await {
                    self.wait(&format!("the rebuild has to wait: {error}"), pause::SWITCH, work);
                    return false;
                }
            }
            Some(_) => {
                let stop = Stop { reason: "the topic was deleted meanwhile".to_owned(), pause: None };
                return self.stop_rebuild(stop, work).await;
            }
        }
        if stepped == Step::Worked && !covers(&runner.taken(), &goal) {
            return true;
        }
        if let Err(stop) = runner.land().await {
            return self.stop_rebuild(stop, work).await;
        }
        // Nothing is under way when one takes the place of the other.
        if let Err(stop) = work.live.land().await {
            self.stop(stop, work);
            return false;
        }
        match &work.rebuild {
            Some(runner) if !is_there(runner, work, &goal) => return true,
            Some(runner) => {
                if let Err(error) = self.switch(runner).await {
                    self.wait(&format!("the rebuild has to wait: {error}"), pause::SWITCH, work);
                    return false;
                }
            }
            None => return false,
        }
        let failures = std::mem::take(&mut work.live.failures);
        let live = self.runner(&work.live.home, Purpose::Live);
        let slot = work.slot.take();
        *work = Work { live, rebuild: None, stopped: false, tails: None, resume: None, slot };
        work.live.failures = failures;
        true
    }

    /// Where a rebuild is to go: to where the present collections are; where those stay behind for good, to where the
    /// topic ended when that was first asked.
    async fn goal(&self, work: &mut Work) -> Result<Vec<u64>, ReadError> {
        if !work.stopped {
            return Ok(work.live.taken());
        }
        if let Some(tails) = &work.tails {
            return Ok(tails.clone());
        }
        let mut tails = Vec::new();
        if let Some(topic) = self.hub.log.topic(self.setup.topic()).await? {
            for partition in 0..topic.config.partitions {
                tails.push(self.hub.log.bounds(&topic.pinned(), Partition(partition)).await?.next.0);
            }
        }
        Ok(work.tails.insert(tails).clone())
    }

    /// A rebuild cannot go on: it is given up, or waits. Whether there may be more to do.
    async fn stop_rebuild(&mut self, stop: Stop, work: &mut Work) -> bool {
        let Stop { reason, pause } = stop;
        if let Some(pause) = pause {
            self.wait(&reason, pause, work);
            return false;
        }
        tracing::warn!(projection = self.name, reason, "abandoned a rebuild");
        work.live.failures.last = Some(format!("the rebuild was given up: {reason}"));
        // Before anyone is told that it is over.
        {
            let mut status = self.cell.status.lock();
            status.last_error.clone_from(&work.live.failures.last);
            status.rebuild_error = Some(reason);
        }
        if let Some(runner) = &mut work.rebuild {
            // Whatever comes of it: only then nothing is under way.
            let _ = runner.land().await;
        }
        let home = work.live.home.clone();
        if let Err(error) = self.give_up_rebuild(&home).await {
            self.wait(&format!("the rebuild cannot be given up yet: {error}"), pause::SWITCH, work);
            return false;
        }
        (work.rebuild, work.tails) = (None, None);
        true
    }

    /// What removes the cursors of a rebuild.
    pub(super) async fn without_rebuild_cursors(&self) -> Result<Vec<CursorMove>, ReadError> {
        stored::without_cursors(&*self.hub.log, self.setup.topic(), &self.name, true).await
    }

    /// Empty shadows of all collections, and nothing done yet.
    pub(super) async fn begin_rebuild(
        &mut self,
        home: &Arc<Home>,
        partial: bool,
    ) -> Result<(), ProjectionError> {
        let mut config = vec![ConfigChange::DropCollection { name: shadow(&failures_of(&self.name)) }];
        for (name, settings) in &self.setup.collections {
            config.push(ConfigChange::DropCollection { name: shadow(name) });
            // What is made anew is told to nobody.
            let settings = CollectionConfig { changefeed: None, ..settings.clone() };
            config.push(ConfigChange::PutCollection {
                name: shadow(name),
                expect_revision: 0,
                config: settings,
            });
        }
        let cursors = self.without_rebuild_cursors().await?;
        let rebuilt_from = self.hub.log.topic(self.setup.topic()).await?.map(|topic| topic.number.0);
        let before = self.setup.record.clone();
        let record = Record { rebuilding: true, partial, rebuilt_from, rebuild_compares: true, ..before };
        self.store(home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }

    async fn give_up_rebuild(&mut self, home: &Arc<Home>) -> Result<(), ProjectionError> {
        let collections = self.setup.collections.iter().map(|(name, _)| name.clone());
        let collections = collections.chain([failures_of(&self.name)]);
        let config = collections.map(|name| ConfigChange::DropCollection { name: shadow(&name) }).collect();
        let cursors = self.without_rebuild_cursors().await?;
        let record = Record { rebuilding: false, ..self.setup.record.clone() };
        self.store(home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }
}

/// Whether a place in all partitions is not before another one.
fn covers(places: &[u64], others: &[u64]) -> bool {
    places.len() >= others.len() && places.iter().zip(others).all(|(place, other)| place >= other)
}

/// Whether a rebuild is where it is to go: exactly where the present collections are, so that nothing is skipped that
/// those would have told of.
fn is_there(rebuild: &Runner, work: &Work, goal: &[u64]) -> bool {
    let number = |runner: &Runner| runner.topic().map(|topic| topic.number);
    match work.stopped {
        true => covers(&rebuild.done(), goal),
        false => number(rebuild) == number(&work.live) && rebuild.done() == work.live.done(),
    }
}
