//! How far cleaning has come in a partition, and how that is stored: as a cursor of the topic under a name that no group
//! has. It moves in the commit that gives events up, so a restart goes on where the last commit was, and of two hubs that
//! clean the same topic one is refused.

use bytes::Bytes;
use prombus_core::{
    Cursor, CursorKey, CursorMove, CursorTarget, Epoch, EventLog, Offset, Partition, ReadError, TopicState,
};

/// Whose cursors these are.
const CLEANER: &str = "cleaner";

/// How far cleaning has come in a partition: `buried <= judged <= seen`, but where settings have changed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// Events below are known as those that supersede others.
    pub seen: Offset,
    /// Of the events below, those are gone that one below `seen` has superseded. The others were too young.
    pub judged: Offset,
    /// Below, no tombstone is left that is the last of its key.
    pub buried: Offset,
}

impl Position {
    /// The same where events below `first` are gone.
    fn from(self, first: Offset) -> Self {
        let Self { seen, judged, buried } = self;
        Self { seen: seen.max(first), judged: judged.max(first), buried: buried.max(first) }
    }

    /// What the cursor keeps beside `seen`.
    fn detail(self) -> Bytes {
        [self.judged.0.to_le_bytes(), self.buried.0.to_le_bytes()].concat().into()
    }

    fn of(cursor: &Cursor) -> Self {
        let number = |at: usize| {
            let bytes = cursor.detail.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            Offset(bytes.map_or(0, u64::from_le_bytes))
        };
        // What cannot be read is done again, which does no harm.
        Self { seen: cursor.next, judged: number(0), buried: number(8) }
    }
}

/// A position and the cursor that it is stored in.
#[derive(Debug)]
pub(super) struct Stored {
    /// As it is now.
    pub now: Position,
    /// As it is stored.
    stored: Position,
    version: u64,
    pub epoch: Epoch,
}

impl Stored {
    /// The position in a partition whose first kept offset is `first`.
    pub async fn load(
        log: &dyn EventLog,
        topic: &TopicState,
        partition: Partition,
        first: Offset,
    ) -> Result<Self, ReadError> {
        let cursor = log.cursor(&key(topic, partition)).await?;
        let stored = cursor.as_ref().map(Position::of).unwrap_or_default();
        let (version, epoch) = cursor.map_or((0, Epoch(0)), |cursor| (cursor.version, cursor.epoch));
        Ok(Self { now: stored.from(first), stored, version, epoch })
    }

    /// Whether it is not stored as it is.
    pub fn has_moved(&self) -> bool {
        self.now != self.stored
    }

    /// What stores it.
    pub fn step(&self, topic: &TopicState, partition: Partition, epoch: Epoch) -> CursorMove {
        CursorMove {
            key: key(topic, partition),
            incarnation: Some(topic.number),
            expect_version: self.version,
            epoch,
            to: Some(CursorTarget { next: self.now.seen, detail: self.now.detail() }),
        }
    }

    /// Takes note that a [step](Self::step) was committed.
    pub fn stepped(&mut self, epoch: Epoch) {
        (self.stored, self.epoch) = (self.now, epoch);
        self.version += 1;
    }
}

fn key(topic: &TopicState, partition: Partition) -> CursorKey {
    CursorKey { topic: topic.name.clone(), reader: CLEANER.to_owned(), partition }
}
