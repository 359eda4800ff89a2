//! The vocabulary of prombus: events, topics, commits, and the ports that stores implement.
//!
//! Everything that changes anything is one [`Commit`], true as a whole or not at all. A store takes
//! commits through [`EventLog`] and shows documents through [`Documents`]. [`Homes`] says which hub acts for a topic,
//! [`Copies`] gives the files of a store to whoever makes a backup, and [`Transfer`] moves what one store holds to another.

mod body;
pub mod clock;
pub mod collection;
pub mod commit;
pub mod copies;
pub mod document;
pub mod error;
pub mod event;
pub mod event_copy;
pub mod fields;
pub mod hashing;
pub mod histogram;
pub mod homes;
pub mod id;
pub mod json;
pub mod offsets;
pub mod placing;
pub mod ports;
pub mod position;
pub mod receipt;
mod rules;
pub mod staging;
pub mod ticket;
pub mod time;
pub mod topic;
pub mod transfer;
pub mod wakes;

pub use clock::{Clock, ManualClock, SystemClock};
pub use collection::{CollectionConfig, CollectionState, FieldPath, Find, FoundDocuments, Owner};
pub use commit::{
    Append, Appended, Commit, CommitLimits, ConfigChange, CursorKey, CursorMove, CursorTarget, Expect, Loss,
    Origin, Placement, ReaderLimit, Receipt, ResultBytes, TopicFence,
};
pub use copies::{Copies, CopyError, CopyFile, FileFingerprint, HeldCopy};
pub use document::{Document, DocumentWrite, Versioning, WriteOp};
pub use error::{CommitError, ReadError};
pub use event::{Event, NewEvent};
pub use event_copy::EventCopy;
pub use histogram::Histogram;
pub use homes::{AboutHub, Claim, ClaimRequest, Homes, HomesError, HubId, LiveHub, MemoryHomes};
pub use id::IdMaker;
pub use json::{Json, JsonError, ParseJson};
pub use offsets::Offsets;
pub use placing::{MadeFor, NewTopics, Placer};
pub use ports::{
    Bounds, Cursor, Documents, EventLog, HistoryRequest, Kept, Page, PreviousRequest, ReadRequest,
    ScanRequest, StoreStatus, TsRequest,
};
pub use position::{Epoch, Offset, Partition, Sequence, TopicNumber};
pub use receipt::KeptReceipt;
pub use rules::{KnownEvent, Remembered, publish_digest};
pub use ticket::{EventLogExt, Ticket};
pub use topic::{
    Durability, MAX_NAME_BYTES, SchemaMode, SnapshotConfig, TopicConfig, TopicName, TopicPatch, TopicRef,
    TopicState, check_snapshot,
};
pub use transfer::{Piece, Transfer, TransferError, TransferProgress};
pub use wakes::{ChangedSet, Wakes, Watched};

pub use prombus_wire::{GroupMode, GroupOrdering, group_options};
