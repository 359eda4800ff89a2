//! What other hubs change: the stream of changes of heads, by which those who wait here are woken.
//!
//! What this hub has changed itself is no news: whoever waits was woken when it was committed. Where the history of the stream is
//! lost, everybody is woken, and heads are read again.

use crate::failure::text;
use crate::pause;
use crate::shared::{Counts, Shared};
use futures::StreamExt;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use prombus_core::{ChangedSet, TopicName};
use std::sync::Arc;

/// Opens a stream of what changes from now on.
pub async fn open(shared: &Shared) -> mongodb::error::Result<ChangeStream<Document>> {
    let names = &shared.names;
    let heads = [names.name("heads"), names.name("collections")];
    let pipeline = [
        doc! { "$match": { "ns.coll": { "$in": heads.to_vec() } } },
        doc! { "$project": {
            "operationType": 1, "ns": 1, "documentKey": 1, "lsid": 1, "clusterTime": 1,
            "updateDescription.updatedFields.rev": 1,
        } },
    ];
    Ok(names.db().watch().pipeline(pipeline).await?.with_type::<Document>())
}

/// Follows the stream for as long as the store is open.
pub async fn follow(shared: Arc<Shared>, mut stream: ChangeStream<Document>) {
    loop {
        while let Ok(Some(change)) = shared.primary.unless_lost(None, stream.next()).await {
            match change {
                Ok(change) => heed(&shared, &change),
                Err(error) => {
                    tracing::warn!(error = %text(&error), "the stream of changes has broken off; opening it again");
                    break;
                }
            }
        }
        Counts::add(&shared.counts.reopened_streams);
        stream = loop {
            match shared.primary.unless_lost(None, open(&shared)).await {
                Ok(Ok(stream)) => break stream,
                _ => pause::before_reopening().await,
            }
        };
        *shared.cache.write() = Default::default();
        // Whatever has changed meanwhile.
        shared.tell(1, &ChangedSet::everything());
        shared.has_index.notify_one();
    }
}

fn heed(shared: &Shared, change: &Document) {
    if shared.made(change.get_document("lsid").ok()) {
        return;
    }
    let name = change.get_document("documentKey").ok().and_then(|key| key.get_str("_id").ok());
    let of = change.get_document("ns").ok().and_then(|ns| ns.get_str("coll").ok());
    let (Some(name), Some(of)) = (name, of) else { return };
    let mut changed_set = ChangedSet::default();
    let is_update = change.get_str("operationType").is_ok_and(|kind| kind == "update");
    if of == shared.names.name("collections") {
        shared.cache.write().collections.remove(name);
        changed_set.wrote_to(name);
        if !is_update {
            shared.has_index.notify_one();
        }
    } else if let Ok(topic) = TopicName::parse(name) {
        shared.cache.write().heads.remove(&topic);
        match is_update {
            true => changed_set.appended_to(&topic),
            false => changed_set.changed(&topic),
        }
    }
    shared.tell(1, &changed_set);
}
