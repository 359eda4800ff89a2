//! What a projection is at the moment, and its expressions, which are compiled when it starts.

use super::super::batch::Projector;
use super::super::runner::ProjectionContext;
use super::super::stored::Record;
use super::super::{Definition, Plan, ProjectionError, ProjectionState};
use crate::retry::pause;
use prombus_core::TopicName;
use prombus_core::collection::CollectionConfig;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// What a projection is told to wait for that has just been started.
pub(in super::super) const COMPILING: &str = "the expressions of the projection are being compiled";

/// What a projection is at the moment.
#[derive(Clone)]
pub(in super::super) struct Setup {
    pub record: Record,
    /// Unknown until its expressions were compiled, as they are when it starts.
    projector: Arc<OnceCell<Projector>>,
    pub collections: Vec<(Arc<str>, CollectionConfig)>,
}

impl Setup {
    /// A projection whose projector is known, or is what its definition compiles to.
    pub fn new(
        record: Record,
        projector: Option<Projector>,
        collections: Vec<(Arc<str>, CollectionConfig)>,
    ) -> Self {
        Self { record, projector: Arc::new(OnceCell::new_with(projector)), collections }
    }

    /// Why it stands still, if it does as far as is known.
    pub fn halted(&self) -> Option<String> {
        self.projector.get().and_then(Projector::halted)
    }

    /// What it does before it was told or has done anything.
    pub fn first_state(&self) -> ProjectionState {
        match self.projector.get().map(Projector::halted) {
            None => ProjectionState::Starting,
            Some(None) => ProjectionState::Running,
            Some(Some(reason)) => ProjectionState::Stopped(reason),
        }
    }

    /// What makes writes of events, once its expressions are compiled.
    pub async fn projector(&self, hub: &ProjectionContext, name: &str) -> &Projector {
        self.projector.get_or_init(|| compiled(hub, name, &self.record.definition)).await
    }

    pub(super) fn topic(&self) -> &TopicName {
        &self.record.definition.topic
    }
}

/// What a stored definition compiles to.
async fn compiled(hub: &ProjectionContext, name: &str, definition: &Definition) -> Projector {
    let _turn = hub.compiling.lock().await;
    loop {
        match Plan::compile_in_turn(name, definition).await {
            Ok(plan) => return Projector::Plan(Arc::new(plan)),
            // Nobody tells when there is someone to compile it.
            Err(ProjectionError::Read(_)) => tokio::time::sleep(pause::SWITCH).await,
            // It was fine for the build that stored it. The others are none the worse for it.
            Err(error) => {
                tracing::error!(projection = name, %error, "failed to start a projection");
                return Projector::Halted(error.to_string());
            }
        }
    }
}
