//! Changing the options of a group that is at work: its consumers stay where they are, and go on by the new ones. They are
//! followed as they are stored, whoever has changed them.

use super::group::Group;
use super::options::OptionsChange;
use super::{GroupError, stored};
use crate::filter::Filter;
use bytes::Bytes;
use prombus_core::{Commit, CursorMove, CursorTarget};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Group {
    /// Changes options for what is delivered from then on, and answers when that is durable.
    pub async fn alter(self: &Arc<Self>, change: OptionsChange) -> Result<(), GroupError> {
        // Before anybody waits for what it changes. Below it is known already.
        let _known = Filter::compile_any(change.filter.as_ref().and_then(Option::as_deref)).await?;
        let group = self.clone();
        // To its end, also where nobody waits any more: what is stored and what is in memory must be the same.
        let task = tokio::spawn(async move { group.alter_now(change).await });
        task.await.unwrap_or_else(|error| Err(GroupError::Failed(error.to_string())))
    }

    async fn alter_now(self: &Arc<Self>, change: OptionsChange) -> Result<(), GroupError> {
        // One change at a time, and none of a group that is being deleted.
        let _writing = self.writing.lock().await;
        let topic = self.current_topic().await?;
        let before = self.options();
        let options = change.apply(&before);
        let filter = options.validate().await?;
        if options.normalize && !before.normalize {
            self.hub.raisers.of(&topic).await?;
        }
        if options == *before {
            return Ok(());
        }
        let key = stored::options_key(&self.topic.name, &self.name);
        let Some(cursor) = self.hub.log.cursor(&key).await? else {
            let (topic, group) = (self.topic.name.to_string(), self.name.to_string());
            return Err(GroupError::NotFound { topic, group });
        };
        let detail = Bytes::from(serde_json::to_vec(&options).unwrap_or_default());
        let step = CursorMove {
            key,
            incarnation: Some(self.topic.number),
            expect_version: cursor.version,
            epoch: self.epoch,
            to: Some(CursorTarget { next: cursor.next, detail }),
        };
        self.commit(Arc::new(Commit { cursors: vec![step], ..Commit::by_hub() })).await?;
        self.options_version.store(cursor.version + 1, Ordering::Release);
        self.locked().alter(options, Ok(filter));
        self.wake_keeper();
        Ok(())
    }

    /// Goes by the options that are stored, whoever has changed them. `false`: the group was deleted, and has ended here.
    pub(super) async fn follow(self: &Arc<Self>) -> Result<bool, GroupError> {
        let key = stored::options_key(&self.topic.name, &self.name);
        let known = self.options_version.load(Ordering::Acquire);
        if self.hub.log.cursor(&key).await?.is_some_and(|cursor| cursor.version == known) {
            return Ok(true);
        }
        // One that is being changed or deleted here is looked at when that is done.
        let _writing = self.writing.lock().await;
        if !self.is_usable() {
            return Ok(false);
        }
        let Some((options, cursor)) = stored::options(&*self.hub.log, &self.topic.name, &self.name).await?
        else {
            let (topic, group) = (self.topic.name.to_string(), self.name.to_string());
            self.fail(GroupError::NotFound { topic, group });
            return Ok(false);
        };
        if cursor.version != self.options_version.load(Ordering::Acquire) {
            let filter = options.stored_filter().await?;
            self.options_version.store(cursor.version, Ordering::Release);
            self.locked().alter(options, filter);
            self.wake_keeper();
        }
        Ok(true)
    }
}
