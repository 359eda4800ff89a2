//! Upcasters of topics: stored with the versions of their schema, or functions of this process.

use super::upcast::{Hop, Upcaster};
use super::{Head, Schemas, SchemasError, stored};
use crate::retry::Tries;
use prombus_core::{Json, ReadError, TopicName, TopicState};

/// An upcaster that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUpcaster {
    /// The version that it raises payloads of.
    pub from: u32,
    /// The version that it raises them to, once that is registered.
    pub to: Option<u32>,
    /// What it does.
    pub upcaster: Upcaster,
}

impl Schemas {
    /// Stores what raises payloads of a version to the next one, which need not be there yet. Says whether there was none.
    pub async fn put_upcaster(
        &self,
        topic: &TopicName,
        from: u32,
        upcaster: &Upcaster,
    ) -> Result<bool, SchemasError> {
        // What does not compile is not stored.
        Hop::compile(upcaster).await?;
        self.change_head(topic, from, |head| {
            let before = head.upcasters.insert(from, upcaster.clone());
            (before.as_ref() != Some(upcaster)).then_some(before.is_none())
        })
        .await
        .map(|made| made.unwrap_or(false))
    }

    /// Removes the upcaster from a version.
    pub async fn delete_upcaster(&self, topic: &TopicName, from: u32) -> Result<(), SchemasError> {
        let gone = self.change_head(topic, from, |head| head.upcasters.remove(&from).map(drop)).await?;
        gone.ok_or_else(|| SchemasError::NoUpcaster { topic: topic.clone(), from })
    }

    /// The upcaster from a version.
    pub async fn upcaster(&self, topic: &TopicName, from: u32) -> Result<StoredUpcaster, SchemasError> {
        let head = self.head(topic).await?;
        let none = || SchemasError::NoUpcaster { topic: topic.clone(), from };
        let upcaster = head.upcasters.get(&from).cloned().ok_or_else(none)?;
        Ok(StoredUpcaster { from, to: head.next_after(from), upcaster })
    }

    /// Has a function raise payloads of a version to the next one, for as long as this hub is open, and whatever upcaster
    /// is stored. It is called for many events, in any order and several at once, and must say the same of the same payload.
    pub fn upcast_with(
        &self,
        topic: &TopicName,
        from: u32,
        raise: impl Fn(&Json) -> Result<Json, String> + Send + Sync + 'static,
    ) {
        self.raisers.by_function(topic, from, Hop::function(raise));
    }

    /// Refuses where events of a topic cannot be raised to the latest version, whatever version they are of.
    pub async fn check_raising(&self, topic: &TopicState) -> Result<(), ReadError> {
        self.raisers.of(topic).await.map(drop)
    }

    /// The topics that copies of events of a topic may be in, whether it has `dual_write` now or had it before.
    pub(crate) async fn copies_of(&self, topic: &TopicState) -> Result<Vec<TopicName>, ReadError> {
        let head = self.known.head(topic).await?;
        let versions = head.iter().flat_map(|head| &head.versions);
        Ok(versions.filter_map(|known| topic.name.of_version(known.version)).collect())
    }

    /// Changes what is stored for a topic with this version; `None` where `change` has nothing to change.
    async fn change_head<T>(
        &self,
        topic: &TopicName,
        version: u32,
        change: impl Fn(&mut Head) -> Option<T>,
    ) -> Result<Option<T>, SchemasError> {
        let mut tries = Tries::default();
        loop {
            let none = || SchemasError::NotFound(topic.clone());
            let state = self.log.topic(topic).await?.ok_or_else(none)?;
            let mut head = stored::load_head(&*self.documents, &state).await?.head;
            let latest = head.latest().ok_or_else(none)?;
            if head.version(version).is_none() {
                return Err(SchemasError::NoVersion { topic: topic.clone(), version, latest });
            }
            let Some(changed) = change(&mut head) else { return Ok(None) };
            match self.bus.commit(self.storing(&state, &head, Vec::new())).await {
                Ok(_) => return Ok(Some(changed)),
                Err(error) => tries.again(error).await?,
            }
        }
    }
}
