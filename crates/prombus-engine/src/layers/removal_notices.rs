//! Tells those who have read events ahead that events were given up, before whoever gave them up hears that it is done: from
//! then on none of them is shown to anybody.

use crate::bus::{Bus, BusError, Layer};
use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::{
    Commit, CommitError, ConfigChange, EventLog, EventLogExt, Offset, Offsets, Partition, Ticket, TopicName,
};
use std::sync::{Arc, Weak};

/// Who may have read events that are given up.
pub trait RemovalObserver: Send + Sync {
    /// Events were trimmed or discarded.
    fn events_removed(&self, events: &RemovedEvents);
}

/// Events of a partition that were given up: trimmed, or discarded.
#[derive(Debug, Clone)]
pub struct RemovedEvents {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: Partition,
    /// The first offset that is kept now.
    pub first: Offset,
    /// Single ones that were given up for certain, among others.
    pub single: Option<Arc<Offsets>>,
}

/// The layer. What is given up around it is noticed by whoever reads there next.
#[derive(Clone)]
pub struct RemovalNotices {
    log: Arc<dyn EventLog>,
    observers: Arc<Mutex<Vec<Weak<dyn RemovalObserver>>>>,
}

impl RemovalNotices {
    /// Nobody is told yet.
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, observers: Arc::default() }
    }

    /// Tells `observer` from now on.
    pub fn add_observer(&self, observer: Weak<dyn RemovalObserver>) {
        self.observers.lock().push(observer);
    }

    async fn done(&self, all: Vec<RemovedEvents>) {
        let observers: Vec<_> = self.observers.lock().iter().filter_map(Weak::upgrade).collect();
        for mut events in all {
            let bounds = self.log.bounds(&(&events.topic).into(), events.partition).await;
            events.first = bounds.map_or(events.first, |bounds| bounds.first);
            observers.iter().for_each(|observer| observer.events_removed(&events));
        }
    }
}

impl Layer for RemovalNotices {
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(RemovalNoticesBus { layer: self, inner })
    }
}

struct RemovalNoticesBus {
    layer: RemovalNotices,
    inner: Arc<dyn Bus>,
}

#[async_trait]
impl Bus for RemovalNoticesBus {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        let mut all: Vec<_> = commit.config.iter().filter_map(removed_by).collect();
        let ticket = self.inner.enqueue(commit).await?;
        if all.is_empty() {
            return Ok(ticket);
        }
        let layer = self.layer.clone();
        // On its own, because it must come to its end even if nobody waits for the ticket.
        let told = tokio::spawn(async move {
            let answer = ticket.await;
            if answer.is_err() {
                // It may have happened where that is not known, and may not: what was read is read again.
                all.iter_mut().for_each(|events| events.single = None);
            }
            layer.done(all).await;
            answer
        });
        let ended = |_| Err(CommitError::Unknown("the hub is closing".into()));
        Ok(Ticket::new(async move { told.await.unwrap_or_else(ended) }))
    }
}

/// What a change gives up, if it does.
fn removed_by(change: &ConfigChange) -> Option<RemovedEvents> {
    let (topic, partition, single) = match change {
        ConfigChange::Trim { topic, partition, .. } => (&topic.name, partition, None),
        ConfigChange::Discard { topic, partition, offsets, .. } => {
            (&topic.name, partition, Some(offsets.clone()))
        }
        _ => return None,
    };
    Some(RemovedEvents { topic: topic.clone(), partition: *partition, first: Offset(0), single })
}
