//! Changing the options of a group that is at work: its consumers stay where they are, and go on by the new ones.

use super::group::Group;
use super::options::OptionsChange;
use super::{GroupError, stored};
use crate::filter::Filter;
use bytes::Bytes;
use prombus_core::{Commit, CursorMove, CursorTarget};
use std::sync::Arc;

impl Group {
    /// Changes options for what is delivered from then on, and answers when that is durable.
    pub async fn alter(self: &Arc<Self>, change: OptionsChange) -> Result<(), GroupError> {
        // Before anybody waits for what it changes. It is compiled again below, which takes no time worth a turn.
        Filter::compile_in_turn(change.filter.as_ref().and_then(Option::as_deref)).await?;
        let group = self.clone();
        // To its end, also where nobody waits any more: what is stored and what is in memory must be the same.
        let task = tokio::spawn(async move { group.alter_now(change).await });
        task.await.unwrap_or_else(|error| Err(GroupError::Failed(error.to_string())))
    }

    async fn alter_now(self: &Arc<Self>, change: OptionsChange) -> Result<(), GroupError> {
        // One change at a time, and none of a group that is being deleted.
        let _writing = self.writing.lock().await;
        self.current_topic().await?;
        let before = self.options();
        let options = change.apply(&before);
        options.validate()?;
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
            epoch: cursor.epoch,
            to: Some(CursorTarget { next: cursor.next, detail }),
        };
        self.commit(Arc::new(Commit { cursors: vec![step], ..Commit::default() })).await?;
        self.locked().alter(options);
        self.keep();
        Ok(())
    }
}
