//! How many changes there were of who is there and who has what, and the stream by which a hub hears of them.

use crate::pause;
use crate::shared::Shared;
use futures::StreamExt;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::options::ReadConcern;
use std::sync::Arc;
use tokio::sync::watch;

/// The document among claims that counts their changes; no topic is called so.
pub const VERSION: &str = "~version";

/// The version as it is stored.
pub async fn stored(shared: &Shared) -> mongodb::error::Result<u64> {
    let claims = shared.names.claims();
    let found = claims.find_one(doc! { "_id": VERSION }).read_concern(ReadConcern::majority()).await?;
    Ok(found.and_then(|found| found.get_i64("n").ok()).unwrap_or_default() as u64)
}

pub async fn open(shared: &Shared) -> mongodb::error::Result<ChangeStream<Document>> {
    let pipeline = [doc! { "$match": { "documentKey._id": VERSION } }];
    let claims = shared.names.claims();
    Ok(claims.watch().pipeline(pipeline).await?.with_type::<Document>())
}

/// Hears of changes for as long as the hub takes part.
pub async fn follow(shared: Arc<Shared>, to: Arc<watch::Sender<u64>>, mut stream: ChangeStream<Document>) {
    let heard = |version: u64| {
        to.send_if_modified(|known| {
            let is_later = version > *known;
            *known = version.max(*known);
            is_later
        })
    };
    let look = async || {
        if let Ok(Ok(version)) = shared.primary.unless_lost(None, stored(&shared)).await {
            heard(version);
        }
    };
    loop {
        while let Ok(Some(Ok(_))) = shared.primary.unless_lost(None, stream.next()).await {
            look().await;
        }
        stream = loop {
            match shared.primary.unless_lost(None, open(&shared)).await {
                Ok(Ok(stream)) => break stream,
                _ => pause::before_reopening().await,
            }
        };
        look().await;
    }
}
