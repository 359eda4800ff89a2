//! How everything is called in the database.

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::{Collection, Database};

/// The collections of one hub database.
#[derive(Debug, Clone)]
pub struct Names {
    db: Database,
    prefix: String,
}

impl Names {
    pub fn new(db: Database, prefix: &str) -> Self {
        Self { db, prefix: prefix.to_owned() }
    }

    pub fn db(&self) -> &Database {
        &self.db
    }

    pub fn name(&self, what: &str) -> String {
        format!("{}{what}", self.prefix)
    }

    fn documents_in(&self, what: &str) -> Collection<Document> {
        self.db.collection(&self.name(what))
    }

    /// One document an event.
    pub fn events(&self) -> Collection<RawDocumentBuf> {
        self.db.collection(&self.name("events"))
    }

    /// One document a topic.
    pub fn heads(&self) -> Collection<Document> {
        self.documents_in("heads")
    }

    /// One document a collection.
    pub fn collections(&self) -> Collection<Document> {
        self.documents_in("collections")
    }

    /// Positions of readers.
    pub fn cursors(&self) -> Collection<Document> {
        self.documents_in("cursors")
    }

    /// Ids of events that were given up.
    pub fn ids(&self) -> Collection<Document> {
        self.documents_in("ids")
    }

    /// The format and the catalog.
    pub fn meta(&self) -> Collection<Document> {
        self.documents_in("meta")
    }

    /// What is still to be deleted.
    pub fn trash(&self) -> Collection<Document> {
        self.documents_in("trash")
    }

    /// The hubs that are alive.
    pub fn hubs(&self) -> Collection<Document> {
        self.documents_in("hubs")
    }

    /// Which hub has which topic.
    pub fn claims(&self) -> Collection<Document> {
        self.documents_in("claims")
    }

    /// What the collection that holds the documents with this number is called.
    pub fn documents_name(&self, number: u32) -> String {
        self.name(&format!("c.{number}"))
    }

    /// The documents of the collection with this number.
    pub fn documents(&self, number: u32) -> Collection<RawDocumentBuf> {
        self.db.collection(&self.documents_name(number))
    }

    /// The view by which users find a collection under its name.
    pub fn view(&self, collection: &str) -> String {
        self.name(&format!("docs.{collection}"))
    }
}
