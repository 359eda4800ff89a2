//! The thread that builds indexes over existing documents, so that no commit waits for it.
//!
//! It works in steps. A step is prepared here, from what readers see, and handed to the writer like a commit; only if
//! documents of the collection have changed meanwhile does the writer prepare it again, from what it has in memory. The
//! journal records how far an index has got, so a build resumes after a restart.

use crate::shared::Shared;
use crate::state::view::View;
use crate::write::writer::{Job, Message, Work};
use prombus_core::CollectionState;
use prombus_core::collection::{IndexFailure, Progress};
use prombus_rows::IndexStep;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long to wait before a refused step (because the disk is full, for example) is retried.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A step of building an index.
pub struct Build {
    /// The collection as it was when the step was prepared.
    pub state: Arc<CollectionState>,
    /// Which of its indexes.
    pub index: usize,
    /// The step.
    pub step: IndexStep,
}

/// Runs until all of its wakers are gone.
pub fn run(shared: &Shared, writer: &Sender<Message>, wake: &Receiver<()>) {
    // The collection that could not be gone on with, so that others have their turn.
    let mut stuck: Option<Arc<str>> = None;
    while !shared.closing.load(Ordering::Relaxed) {
        let view = shared.view();
        let next = next(&view, stuck.as_deref()).filter(|_| !is_full(shared, &view));
        let Some((state, index)) = next else {
            // Who waits holds no parts: their files may be removed meanwhile, and take room until nobody has them.
            drop(view);
            match wake.recv() {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let name = state.name.clone();
        let Err(error) = take_step(shared, writer, &view, (state, index)) else {
            stuck = None;
            continue;
        };
        drop(view);
        stuck = Some(name);
        if shared.failed().is_none() {
            tracing::warn!(error, "failed to build an index; will retry");
        }
        if let Err(RecvTimeoutError::Disconnected) = wake.recv_timeout(RETRY_AFTER) {
            return;
        }
    }
}

/// Whether changed rows take as much memory as they may before those in it are frozen for a table, after which the
/// writer wakes the builder. What they may take beyond that while a table is written is for commits, which else had to
/// wait until it is.
fn is_full(shared: &Shared, view: &View) -> bool {
    view.rows.active_bytes() > shared.options.rows_in_memory
}

/// The next index to go on with: behind the collection that is stuck, if there is one.
fn next(view: &View, stuck: Option<&str>) -> Option<(Arc<CollectionState>, usize)> {
    let building = |state: &Arc<CollectionState>| Some((state.clone(), state.building()?));
    let is_behind = |state: &&Arc<CollectionState>| stuck.is_some_and(|name| *state.name > *name);
    let behind = view.collections.values().filter(is_behind).find_map(building);
    behind.or_else(|| view.collections.values().find_map(building))
}

/// Prepares a step, hands it to the writer, and waits for the result.
fn take_step(
    shared: &Shared,
    writer: &Sender<Message>,
    view: &View,
    (state, index): (Arc<CollectionState>, usize),
) -> Result<(), String> {
    // What reads of indexes need is made here, so that the writer does not have to when it looks for clashes.
    view.rows.prepare();
    let step = prombus_rows::build_step(&view.rows, &state, index, shared.step_limits());
    let step = step.map_err(|error| error.to_string())?;
    let name = state.name.clone();
    let (answer, answered) = oneshot::channel();
    let work = Work::Build(Build { state, index, step });
    let gone = "the writer has stopped";
    writer
        .send(Message::Commit(Job { work, answer, since: Instant::now(), permit: None }))
        .map_err(|_| gone)?;
    let receipt = answered.blocking_recv().map_err(|_| gone)?;
    receipt.map_err(|error| error.to_string())?;
    let now = shared.view();
    if let Some(state) = now.collections.get(&name)
        && let Some(Progress::Failed(failure)) = state.indexes.get(index).map(|index| &index.progress)
    {
        warn_of(state, index, failure);
    }
    Ok(())
}

/// Logs that an index could not be built, and why.
pub fn warn_of(state: &CollectionState, index: usize, failure: &IndexFailure) {
    let fields = state.indexes.get(index).map(|index| &index.index.fields);
    tracing::warn!(collection = %state.name, ?fields, %failure, "failed to build an index");
}
