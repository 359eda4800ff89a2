//! What goes on beside commits: deleting what was given up, making indexes of what is there, and keeping up views.

use crate::batch::Job;
use crate::document_doc;
use crate::failure::{NO_PRIMARY, unreadable};
use crate::head::CollectionHead;
use crate::pause;
use crate::primary::PrimaryLost;
use crate::shared::Shared;
use crate::trash::Sweeper;
use crate::views;
use crate::writer;
use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use prombus_core::{CollectionState, CommitError, ReadError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How often to look for what nobody has told of.
const LOOK: Duration = Duration::from_secs(5);

/// Deletes what was given up, for as long as the store is open.
pub async fn sweep(shared: Arc<Shared>) {
    let sweeper = Sweeper { names: shared.names.clone(), clock: shared.clock.clone() };
    loop {
        match shared.primary.unless_lost(None, sweeper.sweep()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to delete removed data; will retry");
                pause::after_failed_chore().await;
                continue;
            }
            Err(PrimaryLost) => {
                pause::after_failed_chore().await;
                continue;
            }
        }
        shared.has_trash.notified().await;
    }
}

/// All collections.
pub async fn collections(shared: &Shared) -> Result<Vec<CollectionState>, ReadError> {
    let from = shared.names.collections();
    let find = from.find(doc! {}).sort(doc! { "_id": 1 });
    let mut found = find.read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
    let mut all = Vec::new();
    while found.advance().await.map_err(unreadable)? {
        let document = found.deserialize_current().map_err(unreadable)?;
        all.push(CollectionHead::of_document(&document)?.state);
    }
    Ok(all)
}

/// Makes indexes and keeps up views, for as long as the store is open.
pub async fn keep_collections(shared: Arc<Shared>, jobs: mpsc::Sender<Job>) {
    let mut settled = HashMap::new();
    loop {
        let done = shared.primary.unless_lost(None, round(&shared, &jobs, &mut settled)).await;
        match done.unwrap_or_else(|PrimaryLost| Err(ReadError::Unavailable(NO_PRIMARY.into()))) {
            // It may be another hub that has left something half made, without a word.
            Ok(true) => drop(tokio::time::timeout(LOOK, shared.has_index.notified()).await),
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "failed to create indexes and views of collections; will retry");
                pause::after_failed_chore().await;
            }
        }
    }
}

/// Does what there is to do. Whether the store is still open.
async fn round(
    shared: &Shared,
    jobs: &mpsc::Sender<Job>,
    settled: &mut HashMap<Arc<str>, u32>,
) -> Result<bool, ReadError> {
    let all = collections(shared).await?;
    for state in &all {
        if settled.get(&state.name) != Some(&state.number) {
            views::settle(&shared.names, &state.name).await?;
            settled.insert(state.name.clone(), state.number);
        }
    }
    let is_gone = |name: &&Arc<str>| !all.iter().any(|state| state.name == **name);
    for name in settled.keys().filter(is_gone).cloned().collect::<Vec<_>>() {
        views::settle(&shared.names, &name).await?;
        settled.remove(&name);
    }
    for state in all.iter().filter(|state| state.building().is_some()) {
        // MongoDB's own comes first, so that the hub's can be used once it is ready.
        let indexes = document_doc::mongo_indexes(state, |_| true);
        let made = writer::make_indexes(shared, state.number, &indexes).await;
        made.map_err(|failure| ReadError::Unavailable(format!("{failure:?}")))?;
        loop {
            let (answer, answered) = oneshot::channel();
            if jobs.send(Job::IndexStep(state.name.clone(), answer)).await.is_err() {
                return Ok(false);
            }
            match answered.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break,
                Ok(Err(CommitError::Unavailable(_))) | Err(_) if jobs.is_closed() => return Ok(false),
                Ok(Err(error)) => return Err(ReadError::Unavailable(error.to_string())),
                Err(_) => return Ok(false),
            }
        }
    }
    Ok(true)
}
