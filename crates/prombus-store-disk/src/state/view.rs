//! What readers see: topics, the ends of partitions, documents and cursors, as of one commit.
//!
//! The maps are persistent, so keeping a view costs next to nothing: the writer works on its own version, a failed commit
//! is rolled back to the previous one, and readers get a new version atomically once it is durable.

use crate::journal::part::Part;
use crate::journal::part_set::PartSet;
use crate::journal::position::{PartitionRef, Pos};
use crate::state::rows::Rows;
use hashbrown::HashSet;
use imbl::{HashMap, OrdMap};
use prombus_core::collection::Progress;
use prombus_core::{
    Bounds, CollectionConfig, CollectionState, CommitError, Cursor, CursorKey, Document, Kept, Loss, Offset,
    Offsets, Owner, ReadError, TopicName, TopicState,
};
use prombus_rows::{DOCUMENT, INDEX_PREFIX, IndexStep};
use std::sync::Arc;
use uuid::Uuid;

/// A change of a checkpoint tells of the holes among so many offsets: about 2 MiB where they lie at random, and no item may
/// be longer than [`MAX_ITEM`](crate::journal::record::MAX_ITEM).
pub const HOLES_WITHIN: u64 = 1 << 24;

/// What is kept of a partition: `first <= offset < next`, without the holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionExtent {
    /// The first that is kept.
    pub first: u64,
    /// The first that is not written.
    pub next: u64,
    /// The sizes of the events that are kept.
    pub bytes: u64,
    /// From when on what is kept says what every key was.
    pub horizon_ts: u64,
    /// Whether it has holes that somebody might ask for.
    pub has_holes: bool,
}

impl From<Kept> for PartitionExtent {
    fn from(Kept { bounds, bytes, horizon_ts, has_holes }: Kept) -> Self {
        Self { first: bounds.first.0, next: bounds.next.0, bytes, horizon_ts, has_holes }
    }
}

impl PartitionExtent {
    /// The same as the port says it.
    pub fn kept(self) -> Kept {
        let Self { first, next, bytes, horizon_ts, has_holes } = self;
        Kept { bounds: Bounds { first: Offset(first), next: Offset(next) }, bytes, horizon_ts, has_holes }
    }

    /// What is kept without events that were given up.
    pub fn without(self, loss: Loss) -> Self {
        let horizon_ts = self.horizon_ts.max(loss.horizon_ts.unwrap_or(0));
        Self { bytes: self.bytes.saturating_sub(loss.bytes), horizon_ts, ..self }
    }
}

/// The state as of one commit.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How many commits there were.
    pub sequence: u64,
    /// The end of the last batch.
    pub end: Pos,
    /// Which parts the journal has.
    pub part_set: PartSet,
    /// The parts of the journal, the last of which is being written. Whoever only replays it has none.
    pub parts: Arc<Vec<Arc<Part>>>,
    /// Topics by name.
    pub topics: OrdMap<TopicName, Arc<TopicState>>,
    /// Partitions that ever had an event or were trimmed.
    pub extents: HashMap<PartitionRef, PartitionExtent>,
    /// Whether what they say of bytes is too little, as builds left it that did not count them. They are counted before the
    /// view is anybody's.
    pub lacks_bytes: bool,
    /// Offsets between the bounds whose events were given up.
    pub holes: HashMap<PartitionRef, Arc<Offsets>>,
    /// Keys that are to be erased, by the number of their topic, and the commit that they were last forgotten by.
    pub forgotten: OrdMap<(u32, Arc<str>), u64>,
    /// Collections by name.
    pub collections: OrdMap<Arc<str>, Arc<CollectionState>>,
    /// The rows of collections.
    pub rows: Rows,
    /// Cursors.
    pub cursors: OrdMap<CursorKey, Arc<Cursor>>,
    /// The number of the next topic.
    pub next_topic: u32,
    /// The number of the next collection.
    pub next_collection: u32,
    /// Recorded time: when the last commit was taken, or later where it was moved on.
    pub last_recorded_ts: u64,
    /// The greatest id that the engine has made.
    pub last_hub_id: Uuid,
}

/// A change of the state beside events, as it is logged.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A topic as it is now.
    Topic(TopicState),
    /// A topic is gone.
    TopicGone(TopicName),
    /// What is kept of a partition (after some was given up, and in checkpoints).
    Extent(PartitionRef, PartitionExtent),
    /// The same as builds logged it that did not count bytes.
    EarlyExtent(PartitionRef, Bounds),
    /// Single events of a partition were given up.
    Holes(PartitionRef, Offsets),
    /// A collection as it is now, with no documents where it is new.
    Collection(CollectionState),
    /// An index of a collection is further on.
    Index(IndexChange),
    /// A collection is gone.
    CollectionGone(Arc<str>),
    /// A collection has the name of another one, which is gone.
    CollectionSwap(Arc<str>, Arc<str>),
    /// A document of a collection as it is now.
    Document(Arc<str>, Document),
    /// A document of a collection is gone.
    DocumentGone(Arc<str>, String),
    /// A cursor as it is now.
    Cursor(CursorKey, Cursor),
    /// A cursor is gone.
    CursorGone(CursorKey),
    /// A key is to be erased.
    Forget {
        /// The number of its topic.
        topic: u32,
        /// The key.
        key: Arc<str>,
        /// The commit that says so.
        sequence: u64,
    },
    /// What was to be erased by this commit or earlier ones is.
    Erased(u64),
    /// Parts of the journal were rewritten or dropped.
    Parts(PartSet),
    /// The numbers of the tables of a checkpoint, the oldest first.
    Tables(Vec<u64>),
    /// The counters of a checkpoint.
    Counters(Counters),
}

impl Change {
    /// Whether it may hold a key of an event or a document, which may be forgotten.
    pub fn may_name_keys(&self) -> bool {
        match self {
            Self::Document(..)
            | Self::DocumentGone(..)
            | Self::Index(_)
            | Self::Collection(_)
            | Self::Forget { .. } => true,
            Self::Topic(_)
            | Self::TopicGone(_)
            | Self::Extent(..)
            | Self::EarlyExtent(..)
            | Self::Holes(..)
            | Self::CollectionGone(_)
            | Self::CollectionSwap(..)
            | Self::Cursor(..)
            | Self::CursorGone(_)
            | Self::Erased(_)
            | Self::Parts(_)
            | Self::Tables(_)
            | Self::Counters(_) => false,
        }
    }
}

/// How far an index of a collection is now. The rows that it got on the way follow from the documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexChange {
    /// The collection.
    pub collection: Arc<str>,
    /// Which of its indexes.
    pub index: usize,
    /// How far it is.
    pub progress: Progress,
}

/// What a checkpoint holds beside topics, collections and cursors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// How many commits there were.
    pub sequence: u64,
    /// From where the journal is to be applied.
    pub end: Pos,
    /// The number of the next topic.
    pub next_topic: u32,
    /// The number of the next collection. Early checkpoints do not know it.
    pub next_collection: Option<u32>,
    /// Recorded time: when the last commit was taken, or later where it was moved on.
    pub last_recorded_ts: u64,
    /// The greatest id that the engine has made.
    pub last_hub_id: Uuid,
    /// The epoch of the run that wrote it.
    pub epoch: u64,
}

fn unavailable(error: ReadError) -> CommitError {
    CommitError::Unavailable(error.to_string())
}

/// What the rows of each index of a collection start with, also of the one by time that every collection has, as far
/// as they are kept up.
pub fn index_prefixes(state: &CollectionState) -> Vec<Vec<u8>> {
    let kept = state.indexes.iter().filter(|index| index.is_kept()).map(Some);
    std::iter::once(None).chain(kept).map(|index| prombus_rows::index_prefix(state.number, index)).collect()
}

impl View {
    /// The bounds of a partition.
    pub fn extent(&self, partition: PartitionRef) -> PartitionExtent {
        self.extents.get(&partition).copied().unwrap_or_default()
    }

    /// Whether an event that was written is kept.
    pub fn is_kept(&self, partition: PartitionRef, offset: u64) -> bool {
        offset >= self.extent(partition).first
            && self.holes.get(&partition).is_none_or(|holes| !holes.contains(Offset(offset)))
    }

    fn set_extent(&mut self, partition: PartitionRef, extent: PartitionExtent) {
        self.extents.insert(partition, extent);
        self.change_holes(partition, |holes| holes.remove_below(Offset(extent.first)));
    }

    fn change_holes(&mut self, partition: PartitionRef, change: impl FnOnce(&mut Offsets)) {
        let mut holes = self.holes.remove(&partition).unwrap_or_default();
        change(Arc::make_mut(&mut holes));
        if !holes.is_empty() {
            self.holes.insert(partition, holes);
        }
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) -> Result<(), CommitError> {
        match change {
            Change::Topic(state) => {
                self.next_topic = self.next_topic.max(state.number.0 + 1);
                self.topics.insert(state.name.clone(), Arc::new(state));
            }
            Change::TopicGone(name) => self.remove_topic(&name),
            Change::Extent(partition, extent) => self.set_extent(partition, extent),
            Change::EarlyExtent(partition, Bounds { first, next }) => {
                self.lacks_bytes = true;
                let extent = PartitionExtent { first: first.0, next: next.0, ..PartitionExtent::default() };
                self.set_extent(partition, extent);
            }
            Change::Holes(partition, offsets) => {
                let PartitionExtent { first, next, .. } = self.extent(partition);
                self.change_holes(partition, |holes| {
                    holes.add_within(&offsets, Offset(first), Offset(next));
                });
            }
            Change::Collection(after) => {
                self.next_collection = self.next_collection.max(after.number + 1);
                if let Some(before) = self.collections.get(&after.name)
                    && before.indexes != after.indexes
                {
                    let changes = prombus_rows::backfill(&self.rows, before, &after).map_err(unavailable)?;
                    // Also where there are none: changes of documents under other indexes must not become one.
                    self.rows.change_indexes(&changes);
                }
                self.collections.insert(after.name.clone(), Arc::new(after));
            }
            Change::Index(IndexChange { collection, index, progress }) => {
                if let Some(state) = self.collections.get(&collection).cloned() {
                    let step = prombus_rows::build_to(&self.rows, &state, index, progress);
                    self.advance(&state, index, &step.map_err(unavailable)?);
                }
            }
            // Its rows are out of reach with its number, which no other gets; they go when tables are written.
            Change::CollectionGone(name) => drop(self.collections.remove(&name)),
            Change::CollectionSwap(from, to) => {
                if let Some(state) = self.collections.remove(&from) {
                    let state = CollectionState { name: to.clone(), ..(*state).clone() };
                    self.collections.insert(to, Arc::new(state));
                }
            }
            Change::Document(collection, document) => {
                let key = document.key.clone();
                self.replace_document(&collection, &key, Some(&document))?;
            }
            Change::DocumentGone(collection, key) => self.replace_document(&collection, &key, None)?,
            Change::Cursor(key, cursor) => {
                self.cursors.insert(key, Arc::new(cursor));
            }
            Change::CursorGone(key) => {
                self.cursors.remove(&key);
            }
            Change::Forget { topic, key, sequence } => {
                self.forgotten.insert((topic, key), sequence);
            }
            Change::Erased(upto) => {
                let left = self.forgotten.iter().filter(|(_, sequence)| **sequence > upto);
                self.forgotten = left.map(|(key, sequence)| (key.clone(), *sequence)).collect();
            }
            // Whoever reads the journal opens the files.
            Change::Parts(parts) => self.part_set.apply(&parts),
            // Whoever reads the checkpoint opens them.
            Change::Tables(_) => {}
            Change::Counters(counters) => {
                self.sequence = counters.sequence;
                self.end = counters.end;
                self.next_topic = counters.next_topic;
                self.next_collection = counters.next_collection.unwrap_or(self.next_collection);
                self.last_recorded_ts = counters.last_recorded_ts;
                self.last_hub_id = counters.last_hub_id;
            }
        }
        Ok(())
    }

    /// A collection; one that does not exist is created.
    pub fn collection(&mut self, name: &Arc<str>, owner: &Owner) -> Arc<CollectionState> {
        if let Some(state) = self.collections.get(name) {
            return state.clone();
        }
        let config = CollectionConfig::owned_by(owner);
        let state = Arc::new(CollectionState::new(name.clone(), self.next_collection, config));
        self.next_collection += 1;
        self.collections.insert(name.clone(), state.clone());
        state
    }

    fn replace_document(
        &mut self,
        name: &Arc<str>,
        key: &str,
        new: Option<&Document>,
    ) -> Result<(), CommitError> {
        let mut state = (*self.collection(name, &Owner::COMMITS)).clone();
        let old = prombus_rows::look_up(&self.rows, &state, key).map_err(unavailable)?;
        let old = old.measured(&state, new);
        if let Some(change) = prombus_rows::replace(&mut state, old, new) {
            self.rows.change(change);
        }
        self.collections.insert(name.clone(), Arc::new(state));
        Ok(())
    }

    /// Takes a step of building an index of a collection.
    pub fn advance(&mut self, state: &CollectionState, index: usize, step: &IndexStep) {
        // Also where there are none: what changed before the step and after it must not become one change.
        self.rows.change_indexes(&step.rows);
        let state = state.with_progress(index, step.progress.clone());
        self.collections.insert(state.name.clone(), Arc::new(state));
    }

    /// Whether a row belongs to a collection that is there, and where it is one of an index, to an index that is kept
    /// up.
    pub fn is_alive(&self) -> impl Fn(&[u8]) -> bool + Send + use<> {
        let numbers: HashSet<u32> = self.collections.values().map(|state| state.number).collect();
        let of_collection = |state: &Arc<CollectionState>| index_prefixes(state);
        let indexes: HashSet<Vec<u8>> = self.collections.values().flat_map(of_collection).collect();
        move |row| match row.first() {
            Some(&DOCUMENT) => {
                prombus_rows::collection_of_row(row).is_some_and(|number| numbers.contains(&number))
            }
            _ => row.get(..INDEX_PREFIX).is_some_and(|prefix| indexes.contains(prefix)),
        }
    }

    fn remove_topic(&mut self, name: &TopicName) {
        let Some(topic) = self.topics.remove(name) else { return };
        for partition in 0..topic.config.partitions {
            let partition = PartitionRef { topic: topic.number.0, partition };
            self.extents.remove(&partition);
            self.holes.remove(&partition);
        }
        let gone: Vec<CursorKey> = self.cursors.keys().filter(|key| key.topic == *name).cloned().collect();
        for key in gone {
            self.cursors.remove(&key);
        }
    }

    /// Everything but the rows as changes that make it again, for a checkpoint.
    pub fn changes(&self, epoch: u64) -> impl Iterator<Item = Change> + '_ {
        let topics = self.topics.values().map(|topic| Change::Topic((**topic).clone()));
        let extents = self.extents.iter().map(|(partition, extent)| Change::Extent(*partition, *extent));
        // Behind the bounds that they lie within.
        let pieces = |(partition, holes): (&PartitionRef, &Arc<Offsets>)| {
            let partition = *partition;
            holes.pieces(HOLES_WITHIN).into_iter().map(move |piece| Change::Holes(partition, piece))
        };
        let holes = self.holes.iter().flat_map(pieces);
        let collections = self.collections.values().map(|state| Change::Collection((**state).clone()));
        let cursors =
            self.cursors.iter().map(|(key, cursor)| Change::Cursor(key.clone(), (**cursor).clone()));
        let counters = Change::Counters(Counters {
            sequence: self.sequence,
            end: self.end,
            next_topic: self.next_topic,
            next_collection: Some(self.next_collection),
            last_recorded_ts: self.last_recorded_ts,
            last_hub_id: self.last_hub_id,
            epoch,
        });
        let parts = (!self.part_set.is_untouched()).then(|| Change::Parts(self.part_set.clone()));
        let forget = |((topic, key), sequence): (&(u32, Arc<str>), &u64)| Change::Forget {
            topic: *topic,
            key: key.clone(),
            sequence: *sequence,
        };
        let forgotten = self.forgotten.iter().map(forget);
        let state = topics.chain(extents).chain(holes).chain(collections).chain(cursors);
        state.chain(forgotten).chain(parts).chain([counters])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::collection::{Condition, Find, Index, Operand, Test};
    use prombus_core::{FieldPath, Json};

    fn document(key: &str, v: u64) -> Change {
        let body = Json::parse(format!("{{\"v\":{v}}}").into()).unwrap();
        Change::Document("c".into(), Document::new(key.into(), 1, None, 1, body))
    }

    /// The change of settings as early builds logged it, who made indexes at once and gave them no numbers.
    fn early(view: &View, fields: &[&str]) -> Change {
        let path = |field: &&str| FieldPath::parse(field).unwrap();
        let indexes = fields.iter().map(|field| Index { fields: vec![path(field)], unique: false }).collect();
        let config = CollectionConfig { indexes, ..CollectionConfig::default() };
        let now = &view.collections["c"];
        let CollectionState { documents, bytes, revision, .. } = **now;
        let state = CollectionState::new("c".into(), now.number, config);
        Change::Collection(CollectionState { revision: revision + 1, documents, bytes, ..state })
    }

    /// However many holes a partition has, no item of a checkpoint is too long to be read again.
    #[test]
    fn holes_are_told_in_pieces() {
        const WITHIN: u64 = 1 << 24;
        let partition = PartitionRef { topic: 1, partition: 0 };
        let mut view = View::default();
        let (first, next) = (7, 5 * WITHIN);
        view.extents.insert(partition, PartitionExtent { first, next, ..PartitionExtent::default() });
        let sparse = (first..next).step_by(1_001).chain([WITHIN - 1, WITHIN, next - 1]);
        let holes: Offsets = sparse.map(Offset).collect();
        view.apply(Change::Holes(partition, holes.clone())).unwrap();
        let mut again = View::default();
        let mut pieces = 0;
        for change in view.changes(1) {
            if let Change::Holes(_, offsets) = &change {
                let mut within: Vec<u64> = offsets.iter().map(|offset| offset.0 / WITHIN).collect();
                within.dedup();
                assert_eq!(within.len(), 1, "a piece goes beyond its offsets");
                pieces += 1;
            }
            again.apply(change).unwrap();
        }
        assert_eq!((pieces, &*again.holes[&partition]), (5, &holes));
    }

    fn found(view: &View, v: u64) -> Vec<String> {
        let test = Test::Eq(Operand::value(v.into()));
        let conditions = vec![Condition { field: FieldPath::parse("v").unwrap(), test }];
        let (sort, collection) = (Vec::new(), "c".into());
        let find = Find {
            collection,
            conditions,
            sort,
            offset: 0,
            limit: 9,
            max_bytes: usize::MAX,
            sort_bytes: usize::MAX,
        };
        let found = prombus_rows::find(&view.rows, &view.collections["c"], &find).unwrap();
        found.documents.into_iter().map(|document| document.key).collect()
    }

    /// A document that goes and comes back as it was, with an index made in between, is new to that index.
    #[test]
    fn an_index_has_what_came_back_after_it_was_made() {
        let mut view = View::default();
        view.apply(document("k", 7)).unwrap();
        view.rows.freeze();
        view.apply(Change::DocumentGone("c".into(), "k".into())).unwrap();
        let index = Index { fields: vec![FieldPath::parse("v").unwrap()], unique: false };
        let config = CollectionConfig { indexes: vec![index], ..CollectionConfig::default() };
        view.apply(Change::Collection(view.collections["c"].with_settings(config))).unwrap();
        view.apply(document("k", 7)).unwrap();
        assert_eq!(found(&view, 7), ["k"]);
    }

    #[test]
    fn an_index_of_an_early_build_has_no_rows_of_one_that_was_removed() {
        let mut view = View::default();
        for v in 0..20 {
            view.apply(document(&format!("k{v}"), v)).unwrap();
        }
        for (round, fields) in [&["v"][..], &[], &["w"], &["v"]].into_iter().enumerate() {
            view.apply(early(&view, fields)).unwrap();
            view.apply(document("k3", 100 + round as u64)).unwrap();
        }
        view.apply(Change::DocumentGone("c".into(), "k4".into())).unwrap();
        for gone in [3, 4, 100, 101, 102] {
            assert_eq!(found(&view, gone), [""; 0], "{gone}");
        }
        assert_eq!((found(&view, 103), found(&view, 5)), (vec!["k3".to_owned()], vec!["k5".to_owned()]));
    }
}
