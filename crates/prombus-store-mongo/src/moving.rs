//! Keeping hubs and moves apart: a database that is moved is used by nobody else.
//!
//! A move holds a lease, by the clock of the database, and looks for hubs once it has it; a hub looks for the lease once it is
//! alive. So of two that begin at once, at least one sees the other. A database that is being filled says so in a document that
//! is there before anything else is and goes last.

use crate::failure::text;
use crate::names::Names;
use crate::open::{OpenError, Purpose};
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ReadConcern, ReturnDocument, WriteConcern};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a move that was killed keeps hubs out.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often it says that it goes on.
const RENEW: Duration = Duration::from_secs(3);
/// The document of the lease, among what is kept about the database.
const LEASE_ID: &str = "move";
/// The document that says from where the database is being filled.
const FILLING_ID: &str = "filled_from";

/// Keeps hubs out until it is ended; where it is only dropped, a little longer.
pub struct MoveLease {
    /// Renews it.
    task: JoinHandle<()>,
    /// Dropped when that is to end.
    goes_on: Option<oneshot::Sender<()>>,
}

impl MoveLease {
    /// Lets hubs in again.
    pub async fn end(mut self, names: &Names) -> mongodb::error::Result<()> {
        self.goes_on = None;
        // What is on its way to the database would come after the end, and keep hubs out once more.
        let _ = (&mut self.task).await;
        remove(names).await
    }
}

impl Drop for MoveLease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn majority() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).build()
}

/// Checks that the database may be opened for this, and keeps hubs out where it is moved.
pub async fn admit(names: &Names, purpose: &Purpose) -> Result<Option<MoveLease>, OpenError> {
    check_unfinished(names, purpose).await?;
    if *purpose == Purpose::Use {
        check_lease(names).await?;
        return Ok(None);
    }
    let owner = fastrand::i64(..);
    if !renew(names, owner).await? {
        return Err(OpenError::BeingMoved);
    }
    let alive = hubs(names).await?;
    if !alive.is_empty() {
        // Nothing was begun, so nobody has to wait.
        remove(names).await?;
        return Err(OpenError::InUse(alive));
    }
    let kept = names.clone();
    let (goes_on, mut ended) = oneshot::channel::<()>();
    let renewing = async move {
        loop {
            tokio::select! {
                _ = &mut ended => return,
                // It goes by time, and nothing else.
                () = tokio::time::sleep(RENEW) => {}
            }
            match renew(&kept, owner).await {
                Ok(true) => {}
                Ok(false) => tracing::error!("another `prombus move` uses the database; stop one of them"),
                Err(error) => {
                    let error = text(&error);
                    tracing::warn!(error, "cannot tell hubs that the database is being moved; will retry");
                }
            }
        }
    };
    let lease = MoveLease { task: tokio::spawn(renewing), goes_on: Some(goes_on) };
    if let Purpose::FillFrom(source) = purpose {
        let which = doc! { "_id": FILLING_ID };
        let mark = doc! { "$setOnInsert": { "source": source } };
        names.meta().update_one(which, mark).upsert(true).write_concern(majority()).await?;
    }
    Ok(Some(lease))
}

/// Fails where the database is being moved.
pub async fn check_lease(names: &Names) -> Result<(), OpenError> {
    let held = doc! { "_id": LEASE_ID, "$expr": { "$gt": ["$until", "$$NOW"] } };
    match names.meta().find_one(held).read_concern(ReadConcern::majority()).await? {
        Some(_) => Err(OpenError::BeingMoved),
        None => Ok(()),
    }
}

async fn check_unfinished(names: &Names, purpose: &Purpose) -> Result<(), OpenError> {
    let meta = names.meta();
    let find = meta.find_one(doc! { "_id": FILLING_ID }).read_concern(ReadConcern::majority());
    let Some(unfinished) = find.await? else {
        let is_filled = matches!(purpose, Purpose::FillFrom(_));
        let is_empty = !is_filled || is_empty(names).await?;
        return if is_empty { Ok(()) } else { Err(OpenError::NotEmpty) };
    };
    let from = unfinished.get_str("source").unwrap_or_default().to_owned();
    if *purpose == Purpose::FillFrom(from.clone()) { Ok(()) } else { Err(OpenError::Moving { from }) }
}

async fn is_empty(names: &Names) -> Result<bool, OpenError> {
    let any = |found: Option<Document>| found.is_some();
    let has_topics = any(names.heads().find_one(doc! {}).await?);
    let has_collections = any(names.collections().find_one(doc! {}).await?);
    // What was there once has left ids, and perhaps rubbish.
    let has_events = names.events().find_one(doc! {}).await?.is_some();
    Ok(!has_topics && !has_collections && !has_events)
}

/// Takes the lease, or goes on with it; whether nobody else has it.
async fn renew(names: &Names, owner: i64) -> mongodb::error::Result<bool> {
    let ms = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
    let is_held = doc! { "$and": [{ "$ne": ["$owner", owner] }, { "$gt": ["$until", "$$NOW"] }] };
    let mine = doc! { "owner": owner, "until": { "$add": ["$$NOW", ms] } };
    let kept = doc! { "owner": "$owner", "until": "$until" };
    let update = vec![
        doc! { "$set": { "lease": { "$cond": [is_held, kept, mine] } } },
        doc! {
            "$set": { "owner": "$lease.owner", "until": "$lease.until" },
        },
    ];
    let meta = names.meta();
    let update = meta.find_one_and_update(doc! { "_id": LEASE_ID }, update).upsert(true);
    let after = update.return_document(ReturnDocument::After).write_concern(majority()).await?;
    Ok(after.is_some_and(|after| after.get_i64("owner").is_ok_and(|known| known == owner)))
}

/// Removes what keeps hubs out.
async fn remove(names: &Names) -> mongodb::error::Result<()> {
    names.meta().delete_one(doc! { "_id": LEASE_ID }).write_concern(majority()).await.map(drop)
}

/// The database is whole.
pub async fn filled(names: &Names) -> mongodb::error::Result<()> {
    names.meta().delete_one(doc! { "_id": FILLING_ID }).write_concern(majority()).await.map(drop)
}

/// The hubs that are alive.
async fn hubs(names: &Names) -> Result<Vec<String>, OpenError> {
    let silence = doc! { "$subtract": [{ "$toLong": "$$NOW" }, "$beat"] };
    let which = doc! { "$expr": { "$lt": [silence, "$ttl"] } };
    let mut found = names.hubs().find(which).read_concern(ReadConcern::majority()).await?;
    let mut alive = Vec::new();
    while found.advance().await? {
        let hub = found.deserialize_current()?;
        let url = hub.get_document("about").and_then(|about| about.get_str("url"));
        alive.push(url.or_else(|_| hub.get_str("_id")).unwrap_or_default().to_owned());
    }
    Ok(alive)
}
