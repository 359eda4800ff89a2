//! Tells the log by which rules of the hub it is to take each commit: only the log knows what a commit comes to.

use crate::bus::{Bus, BusError, Layer};
use async_trait::async_trait;
use prombus_core::{Commit, CommitLimits, NewTopics, Ticket};
use std::sync::Arc;

/// The layer.
pub struct Rules {
    /// What every commit may come to, whoever it is from.
    pub limits: CommitLimits,
    /// How topics come into being by their first event; `None` where they don't.
    pub auto_create: Option<Arc<NewTopics>>,
}

impl Layer for Rules {
    fn wrap(self, inner: Arc<dyn Bus>) -> Arc<dyn Bus> {
        Arc::new(RulesBus { rules: self, inner })
    }
}

struct RulesBus {
    rules: Rules,
    inner: Arc<dyn Bus>,
}

#[async_trait]
impl Bus for RulesBus {
    async fn enqueue(&self, commit: &mut Arc<Commit>) -> Result<Ticket, BusError> {
        let ruled = Arc::make_mut(commit);
        ruled.limits = ruled.limits.and(self.rules.limits);
        ruled.auto_create = ruled.auto_create.take().or_else(|| self.rules.auto_create.clone());
        self.inner.enqueue(commit).await
    }
}
