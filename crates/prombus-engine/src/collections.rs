//! The collections of a hub, as gateways read them.

use crate::bus::{Bus, BusError};
use prombus_core::collection::{self, BadCollectionName, BadFind, CollectionConfig, Index, IndexState};
use prombus_core::{
    CollectionState, Commit, CommitError, ConfigChange, Document, Documents, Find, Found, Owner, ReadError,
    TopicName,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// How often a change of a collection is tried again when others change it at the same time.
const MAX_TRIES: usize = 16;
/// So many queries run at once; others wait for their turn.
const MAX_QUERIES: usize = 32;
/// What a query may sort in memory while others do the same. What needs more runs again, with no other like it.
const SMALL_SORT_BYTES: usize = 1 << 20;
/// How long a query waits for another one that sorts much.
const LARGE_SORT_WAIT: Duration = Duration::from_secs(5);
/// What it is told then.
const SORTS_MUCH: &str =
    "another query sorts a lot in memory; try again shortly, or add an index that has the order asked for";

/// Why a collection is not as it was asked to be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CollectionError {
    /// No collection can have this name.
    #[error(transparent)]
    BadName(#[from] BadCollectionName),
    /// Its settings make no sense.
    #[error("{0}")]
    Bad(String),
    /// There is no such collection.
    #[error("collection {0} does not exist")]
    NotFound(String),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refused a commit.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// The settings of a collection that commits write.
#[derive(Debug, Clone, Default)]
pub struct CollectionSettings {
    /// Its indexes.
    pub indexes: Vec<Index>,
    /// The topic that its changes are published to.
    pub changefeed: Option<TopicName>,
}

/// The collections of a hub.
pub struct Collections {
    documents: Arc<dyn Documents>,
    bus: Arc<dyn Bus>,
    queries: Arc<Semaphore>,
    large_sorts: Arc<Semaphore>,
}

impl Collections {
    pub(crate) fn new(documents: Arc<dyn Documents>, bus: Arc<dyn Bus>) -> Self {
        let (queries, large_sorts) = (Semaphore::new(MAX_QUERIES).into(), Semaphore::new(1).into());
        Self { documents, bus, queries, large_sorts }
    }

    /// All collections but the hub's own, by name.
    pub async fn list(&self) -> Result<Vec<CollectionState>, ReadError> {
        let mut all = self.documents.collections().await?;
        all.retain(|state| !collection::is_internal(&state.name));
        Ok(all)
    }

    /// The collection of that name.
    pub async fn get(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        if collection::is_internal(name) {
            return Ok(None);
        }
        self.documents.collection(name).await
    }

    /// A document. `None` where there is no such document, or no such collection.
    pub async fn document(&self, name: &str, key: &str) -> Result<Option<Document>, ReadError> {
        if collection::is_internal(name) {
            return Ok(None);
        }
        self.documents.document(name, key).await
    }

    /// The documents that meet conditions. What all queries together hold in memory is bounded: those that sort little
    /// run side by side, and those that sort much one after the other.
    pub async fn find(&self, request: Find) -> Result<Found, ReadError> {
        let large = request.sort_bytes;
        let small = Find { sort_bytes: large.min(SMALL_SORT_BYTES), ..request };
        let turn = self.queries.clone().acquire_owned().await;
        match self.run(small.clone(), turn).await {
            Err(ReadError::BadFind(BadFind::TooMany)) if large > SMALL_SORT_BYTES => {
                let turn =
                    tokio::time::timeout(LARGE_SORT_WAIT, self.large_sorts.clone().acquire_owned()).await;
                let Ok(turn) = turn else { return Err(ReadError::Unavailable(SORTS_MUCH.into())) };
                self.run(Find { sort_bytes: large, ..small }, turn).await
            }
            found => found,
        }
    }

    /// Runs a query in its turn. Where no index fits, all documents are looked at: on a thread of its own, so that other
    /// tasks go on meanwhile. The turn ends with the query and not with its client, who may leave before that.
    async fn run(
        &self,
        request: Find,
        turn: Result<OwnedSemaphorePermit, AcquireError>,
    ) -> Result<Found, ReadError> {
        let stopped = |why: String| Err(ReadError::Unavailable(why));
        let turn = match turn {
            Ok(turn) => turn,
            Err(closed) => return stopped(closed.to_string()),
        };
        let (documents, runtime) = (self.documents.clone(), tokio::runtime::Handle::current());
        let found = tokio::task::spawn_blocking(move || {
            let found = runtime.block_on(documents.find(request));
            drop(turn);
            found
        });
        found.await.unwrap_or_else(|error| stopped(error.to_string()))
    }

    /// Makes a collection that commits write, or changes its settings. Says whether it was made. Where it has many
    /// documents, new indexes are still being made then.
    pub async fn put(
        &self,
        name: &str,
        settings: CollectionSettings,
    ) -> Result<(CollectionState, bool), CollectionError> {
        let name = collection::check_name(name)?;
        check_indexes(&settings.indexes).map_err(CollectionError::Bad)?;
        if settings.changefeed.as_ref().is_some_and(TopicName::is_internal) {
            return Err(CollectionError::Bad("a changefeed cannot be a topic of the hub's own".into()));
        }
        for _ in 0..MAX_TRIES {
            let now = self.documents.collection(&name).await?;
            let made = now.is_none();
            now.as_ref().map_or(Ok(()), of_commits)?;
            let CollectionSettings { indexes, changefeed } = settings.clone();
            let config = CollectionConfig { owner: Owner::COMMITS, indexes, changefeed };
            // An index that failed is begun anew.
            let is_so = |state: &&CollectionState| {
                *state.config == config && state.indexes.iter().all(IndexState::is_kept)
            };
            if let Some(state) = now.as_ref().filter(is_so) {
                return Ok((state.clone(), false));
            }
            let expect_revision = now.map_or(0, |state| state.revision);
            let change = ConfigChange::PutCollection { name: name.clone(), expect_revision, config };
            match self.bus.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await {
                Err(BusError::Commit(CommitError::CollectionChanged(_))) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => {
                    if let Some(state) = self.documents.collection(&name).await? {
                        return Ok((state, made));
                    }
                }
            }
        }
        Err(BusError::Commit(CommitError::Busy).into())
    }

    /// Removes a collection that commits write, with its documents, its indexes and its settings. What that costs does not
    /// go by how many documents there are: their rows are out of reach at once, and leave the disk with merges. So no
    /// changefeed tells of each of them.
    pub async fn delete(&self, name: &str) -> Result<(), CollectionError> {
        let missing = || CollectionError::NotFound(name.to_owned());
        let checked = collection::check_name(name).map_err(|_| missing())?;
        for _ in 0..MAX_TRIES {
            let state = self.documents.collection(&checked).await?.ok_or_else(missing)?;
            of_commits(&state)?;
            // Its settings as they are come first, so that this is refused where it has become another collection since.
            let config = vec![
                ConfigChange::PutCollection {
                    name: checked.clone(),
                    expect_revision: state.revision,
                    config: CollectionConfig { indexes: Vec::new(), ..(*state.config).clone() },
                },
                ConfigChange::DropCollection { name: checked.clone() },
            ];
            match self.bus.commit(Arc::new(Commit { config, ..Commit::default() })).await {
                Err(BusError::Commit(CommitError::CollectionChanged(_))) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
        Err(BusError::Commit(CommitError::Busy).into())
    }
}

/// Refuses collections that a projection owns.
fn of_commits(state: &CollectionState) -> Result<(), CollectionError> {
    if state.config.owner == Owner::COMMITS {
        return Ok(());
    }
    let (collection, owner) = (state.name.to_string(), state.config.owner.as_projection().map(str::to_owned));
    Err(BusError::Commit(CommitError::NotOwner { collection, owner }).into())
}

/// Refuses indexes that make no sense.
pub(crate) fn check_indexes(indexes: &[Index]) -> Result<(), String> {
    if indexes.len() > collection::MAX_INDEXES {
        return Err(format!("a collection has at most {} indexes", collection::MAX_INDEXES));
    }
    for (n, index) in indexes.iter().enumerate() {
        if index.fields.is_empty() || index.fields.len() > collection::MAX_INDEX_FIELDS {
            return Err(format!("an index has 1 to {} fields", collection::MAX_INDEX_FIELDS));
        }
        if indexes[..n].iter().any(|other| other.fields == index.fields) {
            let fields: Vec<&str> = index.fields.iter().map(|field| field.as_str()).collect();
            return Err(format!("the index on {} is there twice", fields.join(", ")));
        }
    }
    Ok(())
}
