//! Which hubs have the topics that a hub asks for, and which of these are alive, as one transaction sees them.

use crate::names::Names;
use mongodb::ClientSession;
use mongodb::bson::doc;
use prombus_core::{ClaimRequest, Epoch, TopicName};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Who has a topic; nobody, where it was given up or never claimed.
#[derive(Debug, Clone, Default)]
pub struct Resident {
    pub hub: Option<Arc<str>>,
    pub epoch: Epoch,
}

/// The topics and hubs that a transaction has read.
#[derive(Debug, Default)]
pub struct Residents {
    topics: HashMap<TopicName, Resident>,
    /// When each hub was last heard of, and its time to live.
    hubs: HashMap<Arc<str>, (i64, i64)>,
}

impl Residents {
    pub async fn read(
        names: &Names,
        session: &mut ClientSession,
        requests: &[ClaimRequest],
    ) -> mongodb::error::Result<Self> {
        let mut residents = Self::default();
        let topics: Vec<&str> = requests.iter().map(|request| request.topic.as_str()).collect();
        let mut found = names.claims().find(doc! { "_id": { "$in": topics } }).session(&mut *session).await?;
        while let Some(claim) = found.next(session).await {
            let claim = claim?;
            let Some(topic) = claim.get_str("_id").ok().and_then(|name| TopicName::parse(name).ok()) else {
                continue;
            };
            let epoch = Epoch(claim.get_i64("epoch").unwrap_or_default() as u64);
            let hub = claim.get_str("hub").ok().map(Arc::from);
            residents.topics.insert(topic, Resident { hub, epoch });
        }
        let owners: BTreeSet<&str> = residents.topics.values().filter_map(|one| one.hub.as_deref()).collect();
        let owners: Vec<&str> = owners.into_iter().collect();
        let mut found = names.hubs().find(doc! { "_id": { "$in": owners } }).session(&mut *session).await?;
        while let Some(hub) = found.next(session).await {
            let hub = hub?;
            let (Ok(id), Ok(beat), Ok(ttl)) = (hub.get_str("_id"), hub.get_i64("beat"), hub.get_i64("ttl"))
            else {
                continue;
            };
            residents.hubs.insert(id.into(), (beat, ttl));
        }
        Ok(residents)
    }

    pub fn of(&self, topic: &TopicName) -> Resident {
        self.topics.get(topic).cloned().unwrap_or_default()
    }

    /// Whether a hub was heard of within its own time to live.
    pub fn is_alive(&self, hub: &str, now: i64) -> bool {
        self.hubs.get(hub).is_some_and(|(beat, ttl)| now - beat < *ttl)
    }

    /// A topic passes to another hub in this transaction.
    pub fn moved(&mut self, topic: &TopicName, to: Resident) {
        self.topics.insert(topic.clone(), to);
    }
}
