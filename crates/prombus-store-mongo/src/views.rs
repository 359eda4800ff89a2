//! Views: users find a collection under its name, though the hub keeps it under a number, because a name can pass from one to another
//! in a commit, and in MongoDB it cannot.

use crate::failure::{code, unreadable};
use crate::head::CollectionHead;
use crate::names::Names;
use mongodb::bson::{Document, doc};
use prombus_core::{ReadError, collection};

/// What MongoDB answers where there is no such collection, and where there is one already.
const NOT_FOUND: i32 = 26;
const EXISTS: i32 = 48;

/// Makes the view of a collection what it should be.
pub async fn settle(names: &Names, name: &str) -> Result<(), ReadError> {
    if collection::is_internal(name) {
        return Ok(());
    }
    let from = names.collections();
    let found = from.find_one(doc! { "_id": name }).await.map_err(unreadable)?;
    let view = names.view(name);
    let Some(head) = found.as_ref().map(CollectionHead::of_document).transpose()? else {
        let dropped = names.db().run_command(doc! { "drop": view }).await;
        return unless(NOT_FOUND, dropped);
    };
    let on = names.documents_name(head.state.number);
    let pipeline = || vec![doc! { "$project": { crate::document_doc::OWN: 0 } }];
    let made = names.db().run_command(doc! { "create": &view, "viewOn": &on, "pipeline": pipeline() }).await;
    match made {
        Err(error) if code(&error) == Some(EXISTS) => {
            let change = doc! { "collMod": view, "viewOn": on, "pipeline": pipeline() };
            names.db().run_command(change).await.map(drop).map_err(unreadable)
        }
        made => made.map(drop).map_err(unreadable),
    }
}

fn unless(fine: i32, answer: mongodb::error::Result<Document>) -> Result<(), ReadError> {
    match answer {
        Err(error) if code(&error) == Some(fine) => Ok(()),
        answer => answer.map(drop).map_err(unreadable),
    }
}
