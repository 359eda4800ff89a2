//! The store on a MongoDB replica set: the same promises as those of the other stores, for as many hubs as use one
//! database.
//!
//! One document an event and one head a topic; what waits at a hub is one transaction, which moves the heads that it
//! appends to from the revision on which it was checked. So other hubs may write the same topics: whoever comes second
//! finds a head that has moved, and makes the transaction anew.
//!
//! A commit is staged in the hub, by the same rules as in all stores ([`stage`]), on what is known ([`facts`]); what is not
//! known is read in the transaction ([`load`]) before it is staged again; the result is written ([`write`]).

mod batch;
mod changes;
mod document_doc;
mod event_doc;
mod event_id;
mod facts;
mod failure;
mod find;
mod head;
mod homes;
mod keeping;
mod load;
mod moving;
mod names;
mod open;
mod pause;
mod primary;
mod reads;
mod rights;
mod shadow;
mod shared;
mod stage;
mod stage_documents;
mod store;
mod transfer;
mod trash;
mod views;
mod watch;
mod write;
mod writer;

pub use homes::{HomesOptions, HomesTime, MongoHomes};
pub use open::{FORMAT, MongoOptions, OpenError, Purpose};
pub use store::MongoStore;
