//! The bus and its layers, and [`Hub`]: the stack put together, which gateways talk to.
//!
//! One way in (a commit through the layers) and one way out (pages through the hub): a layer never reaches
//! around the bus to a store, and a gateway never sees an adapter.

pub mod backups;
pub mod bus;
mod cache;
pub mod cleaning;
pub mod collections;
pub mod commits;
pub mod filter;
pub mod follow;
mod forgetting;
pub mod groups;
pub mod homes;
pub mod hub;
mod json_walk;
pub mod layers;
pub mod projections;
pub mod query;
pub mod replays;
mod retry;
mod room;
pub mod schemas;
pub mod time_travel;
pub mod topics;
mod turns;

pub use backups::{Backup, BackupError, Backups, PieceRequest};
pub use bus::{Bus, BusError, Layer};
pub use cleaning::{CleanError, Cleaned, Cleaning, SnapshotStatus};
pub use filter::{BadFilter, Cost, Filter, FilterError};
pub use follow::{Follower, MAX_PARTITIONS, Resume, RoundsResume, TopicsFollower, TopicsQuery};
pub use forgetting::Forgotten;
pub use hub::{Hub, HubOptions, Limits, Store};
pub use layers::CommitSize;
pub use query::{
    From, MAX_PAGE_BYTES, MAX_SCANNED, Query, QueryError, QueryPage, QueryPosition, Reader, Token,
};
pub use schemas::{SchemaViolation, Schemas, SchemasError};
pub use time_travel::{Reduce, StateAt, TimeTravel, TimeTravelError};
pub use topics::{NumberedTopic, TopicNumbers};
