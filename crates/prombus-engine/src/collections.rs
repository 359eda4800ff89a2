//! The collections of a hub, as gateways read them.

use crate::bus::{Bus, BusError};
use prombus_core::collection::{self, BadCollectionName, CollectionConfig, Index, IndexState};
use prombus_core::{
    CollectionState, Commit, CommitError, ConfigChange, Document, Documents, Find, Found, Owner, ReadError,
    TopicName,
};
use std::sync::Arc;

/// How often a change of a collection is tried again when others change it at the same time.
const MAX_TRIES: usize = 16;

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
}

impl Collections {
    pub(crate) fn new(documents: Arc<dyn Documents>, bus: Arc<dyn Bus>) -> Self {
        Self { documents, bus }
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

    /// The documents that meet conditions. Where no index fits, all are looked at: on a thread of its own, so that
    /// other tasks go on meanwhile.
    pub async fn find(&self, request: Find) -> Result<Found, ReadError> {
        let (documents, runtime) = (self.documents.clone(), tokio::runtime::Handle::current());
        let found = tokio::task::spawn_blocking(move || runtime.block_on(documents.find(request)));
        found.await.unwrap_or_else(|error| Err(ReadError::Unavailable(error.to_string())))
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
