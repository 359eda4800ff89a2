//! The collections of a hub, as gateways read them.

use crate::bus::{Bus, BusError};
use crate::retry::Tries;
use prombus_core::collection::{self, BadCollectionName, BadFind, CollectionConfig, Index, IndexState};
use prombus_core::{
    CollectionState, Commit, CommitError, ConfigChange, Document, Documents, Find, FoundDocuments, Owner,
    ReadError, TopicName,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many queries run at once; others wait for their turn.
const MAX_QUERIES: usize = 32;
/// What a query may sort in memory while others do the same. What needs more runs again, with no other like it.
const SMALL_SORT_BYTES: usize = 1 << 20;
/// How long a query waits for its turn, and then for another one that sorts much.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// What it is told where others take longer than that.
const TOO_MANY_QUERIES: &str = "too many queries of collections run at the same time; try again shortly";
/// And where one of them does that sorts much.
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
    /// It goes with the projection that fills it, and not before.
    #[error(
        "collection {collection} is written by projection {projection}, and is deleted with it: delete the projection first, with `prombus projections delete {projection}` or DELETE /v1/projections/{projection}"
    )]
    OfProjection {
        /// The collection.
        collection: String,
        /// The projection that owns it.
        projection: String,
    },
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

impl CollectionSettings {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), String> {
        check_indexes(&self.indexes)?;
        match self.changefeed.as_ref().is_some_and(TopicName::is_internal) {
            true => Err("a changefeed cannot be one of the hub's own topics".into()),
            false => Ok(()),
        }
    }
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
    pub async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        let large = request.sort_bytes;
        let small = Find { sort_bytes: large.min(SMALL_SORT_BYTES), ..request };
        let turn = turn_of(&self.queries, TOO_MANY_QUERIES).await?;
        match self.run(small.clone(), turn).await {
            Err(ReadError::BadFind(BadFind::TooMany)) if large > SMALL_SORT_BYTES => {
                let turn = turn_of(&self.large_sorts, SORTS_MUCH).await?;
                self.run(Find { sort_bytes: large, ..small }, turn).await
            }
            found => found,
        }
    }

    /// Runs a query in its turn, as a task of its own: the turn ends with the query and not with its client, who may leave
    /// before that.
    async fn run(&self, request: Find, turn: OwnedSemaphorePermit) -> Result<FoundDocuments, ReadError> {
        let documents = self.documents.clone();
        let found = tokio::spawn(async move {
            let found = documents.find(request).await;
            drop(turn);
            found
        });
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
        settings.check().map_err(CollectionError::Bad)?;
        let mut tries = Tries::default();
        loop {
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
                Err(error) => tries.again(error).await?,
                Ok(_) => match self.documents.collection(&name).await? {
                    Some(state) => return Ok((state, made)),
                    None => tries.look_again().await?,
                },
            }
        }
    }

    /// Removes a collection that commits write, with its documents, its indexes and its settings. What that costs does not
    /// go by how many documents there are: their rows are out of reach at once, and leave the disk with merges. So no
    /// changefeed tells of each of them.
    pub async fn delete(&self, name: &str) -> Result<(), CollectionError> {
        let missing = || CollectionError::NotFound(name.to_owned());
        let checked = collection::check_name(name).map_err(|_| missing())?;
        let mut tries = Tries::default();
        loop {
            let state = self.documents.collection(&checked).await?.ok_or_else(missing)?;
            if let Some(projection) = state.config.owner.as_projection() {
                let (collection, projection) = (name.to_owned(), projection.to_owned());
                return Err(CollectionError::OfProjection { collection, projection });
            }
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
                Err(error) => tries.again(error).await?,
                Ok(_) => return Ok(()),
            }
        }
    }
}

/// A turn, or `refusal` where it takes too long.
async fn turn_of(turns: &Arc<Semaphore>, refusal: &str) -> Result<OwnedSemaphorePermit, ReadError> {
    match tokio::time::timeout(TURN_WAIT, turns.clone().acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        // They are never closed.
        Ok(Err(_)) | Err(_) => Err(ReadError::Unavailable(refusal.into())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::LogBus;
    use prombus_core::ManualClock;
    use prombus_store_memory::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn a_query_does_not_wait_for_its_turn_for_ever() {
        let store = Arc::new(MemoryStore::new(Arc::new(ManualClock::at(1_754_683_200_000)), 1));
        let collections = Collections::new(store.clone(), Arc::new(LogBus(store)));
        let all = collections.queries.clone().acquire_many_owned(MAX_QUERIES as u32).await.unwrap();
        let (conditions, sort) = Default::default();
        let (max_bytes, sort_bytes) = (1 << 20, 1 << 20);
        let all_of =
            Find { collection: "c".into(), conditions, sort, offset: 0, limit: 1, max_bytes, sort_bytes };
        let find = || collections.find(all_of.clone());
        // Longer than a query may wait, so that one that waits for ever does not stop the test.
        let refused = tokio::time::timeout(TURN_WAIT * 10, find()).await.expect("it is answered");
        assert!(matches!(refused, Err(ReadError::Unavailable(why)) if why == TOO_MANY_QUERIES));
        drop(all);
        assert!(!matches!(find().await, Err(ReadError::Unavailable(_))));
    }
}
