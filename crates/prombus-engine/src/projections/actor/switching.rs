//! Putting what was made anew in the place of what is there, in one commit.

use super::super::ProjectionError;
use super::super::runner::Runner;
use super::super::stored::{self, Record, cursor_key, failures_of, shadow};
use super::Actor;
use prombus_core::{Commit, ConfigChange, CursorMove, CursorTarget, Offset, ReadError};
use std::sync::Arc;

impl Actor {
    /// Puts what was made anew in the place of what is there, and goes on from where it is: in one commit.
    pub(super) async fn switch(&mut self, rebuild: &Runner) -> Result<(), ProjectionError> {
        let mut config = Vec::new();
        for (name, settings) in &self.setup.collections {
            config.push(ConfigChange::SwapCollection { from: shadow(name), to: name.clone() });
            if settings.changefeed.is_some() {
                let config_now = settings.clone();
                config.push(ConfigChange::PutCollection {
                    name: name.clone(),
                    expect_revision: 1,
                    config: config_now,
                });
            }
        }
        config.extend(self.switch_failures().await?);
        config.extend(self.left_behind().await?);
        let mut cursors = self.without_rebuild_cursors().await?;
        for (partition, next) in (0..).zip(rebuild.done()) {
            let key = cursor_key(self.setup.topic(), &self.name, false, partition);
            // Nobody else moves it, and nothing is under way.
            let expect_version = self.hub.log.cursor(&key).await?.map_or(0, |cursor| cursor.version);
            cursors.push(CursorMove {
                key,
                incarnation: rebuild.topic().map(|topic| topic.number),
                expect_version,
                epoch: rebuild.home.epoch(),
                to: Some(CursorTarget { next: Offset(next), detail: Default::default() }),
            });
        }
        let (made, before) = (self.setup.record.definition.clone(), self.setup.record.clone());
        let keys_compared = before.rebuild_compares;
        let record = Record { made, mixed: false, rebuilding: false, keys_compared, ..before };
        self.store(&rebuild.home, record, Commit { config, cursors, ..Commit::by_hub() }).await
    }

    /// What failed in a rebuild is what the collections lack from then on, and nothing else.
    async fn switch_failures(&self) -> Result<Vec<ConfigChange>, ReadError> {
        let to = failures_of(&self.name);
        let from = shadow(&to);
        let made = self.hub.documents.collection(&from).await?;
        Ok(match made.is_some_and(|made| made.documents > 0) {
            true => vec![ConfigChange::SwapCollection { from, to }],
            false => [from, to].map(|name| ConfigChange::DropCollection { name }).into(),
        })
    }

    /// What removes the collections that an earlier definition wrote and this one does not.
    async fn left_behind(&self) -> Result<Vec<ConfigChange>, ProjectionError> {
        let owned = stored::owned_by(&*self.hub.documents, &self.name).await?;
        let failures = failures_of(&self.name);
        let is_ours = |name: &Arc<str>| {
            let known = self.setup.collections.iter().map(|(known, _)| known).chain([&failures]);
            known.into_iter().any(|known| *known == *name || shadow(known) == *name)
        };
        let left = owned.into_iter().filter(|name| !is_ours(name));
        Ok(left.map(|name| ConfigChange::DropCollection { name }).collect())
    }
}
