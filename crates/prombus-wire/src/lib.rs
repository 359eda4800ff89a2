//! What goes over the wire: the requests and answers of the HTTP interface as types.
//!
//! Requests borrow from the body that they were parsed from, so that a payload is carried as the bytes that
//! the producer sent. Answers are owned, for clients to hold. Nothing here knows what a request means.

pub mod answer;
pub mod backup;
pub mod collection;
pub mod commit;
pub mod error;
pub mod frame;
pub mod group;
pub mod group_options;
pub mod hub_frame;
pub mod object;
pub mod ops;
pub mod publish;
pub mod replay;
pub mod schema;
pub mod spelling;
pub mod text;
pub mod topic;

pub use answer::{
    CleanAnswer, CleanRequest, DeadLettersPage, EventRecord, EventsPage, ForgetAnswer, Imported, KeyEvents,
    PartitionBounds, Published, PublishedBatch, SnapshotAnswer, SnapshotRecord, StateAnswer, TopicAnswer,
    Topics, TrimRequest,
};
pub use backup::{BackupAnswer, BackupFile, BackupRequest, PIECE_DIGEST};
pub use collection::{
    CollectionAnswer, CollectionIndex, CollectionOwner, CollectionRequest, Collections, DocumentsPage,
    FullIndexRequest, IndexAnswer, IndexRequest, IndexState, ProjectionAnswer, ProjectionPartition,
    ProjectionState, ProjectionsAnswer, RebuildAnswer, RebuildRequest,
};
pub use commit::{CommitEventRequest, CommitRequest, Committed, WriteRequest};
pub use error::{ErrorBody, ErrorCode};
pub use frame::{
    AuthFrame, CommitFrame, FrameHead, PublishFrame, SettleFrame, SubscribeFrame, SubscribeOptions,
    SubscriptionFrame,
};
pub use group::{
    AckAnswer, AckRequest, CursorAnswer, CursorPosition, CursorRequest, DeliveryContext, DeliveryRecord,
    DryRun, ExtendRequest, GroupAnswer, GroupPartition, Groups, LeaseResult, MemberAnswer, NackRequest,
    PullRequest, Pulled, ReplayAnswer, ReplayRequest, SkipRequest, Skipped, SkippedLetter, Waiting,
};
pub use group_options::{GroupChangeRequest, GroupMode, GroupOptionsRequest, GroupOrdering};
pub use hub_frame::HubFrame;
pub use object::{Object, parse_object};
pub use ops::{GroupTotals, HealthAnswer, OpsAnswer, OpsGroup, OpsHub, OpsSnapshot, OpsStore, OpsTopic};
pub use publish::{ArrayError, EventRequest, ExpectRequest, KeysRequest, PublishOptions, each_event};
pub use replay::{
    BulkReplayAnswer, BulkReplayError, BulkReplayMap, BulkReplayRequest, BulkReplaySource, BulkReplayState,
    BulkReplays,
};
pub use schema::{
    SchemaAnswer, SchemaChecked, SchemaRegistered, SchemaRequest, SchemaVersion, SchemaViolation,
    SchemasAnswer, TopicSchemas, UpcasterAnswer,
};
pub use text::Text;
pub use topic::{Durability, SchemaMode, SnapshotConfig, TopicConfig, TopicPatch};
