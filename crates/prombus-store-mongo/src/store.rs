//! The store as its ports.

use crate::batch::Job;
use crate::document_doc;
use crate::failure::{text, unreadable};
use crate::find;
use crate::head::{CollectionHead, Head};
use crate::homes::{HomesOptions, Hub, MongoHomes};
use crate::keeping;
use crate::moving::{self, MoveLease};
use crate::open::{self, MongoOptions, OpenError};
use crate::reads::{SnapshotSession, damaged};
use crate::shared::{Shared, SharedOptions};
use crate::trash::Sweeper;
use crate::watch;
use crate::writer::{QUEUE, Writer};
use async_trait::async_trait;
use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use parking_lot::Mutex;
use prombus_core::{
    CollectionState, Commit, CommitError, Copies, CopyError, Cursor, CursorKey, Document, Documents, Event,
    EventLog, Find, FoundDocuments, HeldCopy, HistoryRequest, HomesError, Kept, Offset, Page, Partition,
    PreviousRequest, ReadError, ReadRequest, ScanRequest, Sequence, StoreStatus, Ticket, TopicName, TopicRef,
    TopicState, TsRequest, Watched,
};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use uuid::Uuid;

/// A store in a MongoDB database.
pub struct MongoStore {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    /// What goes on beside commits. The writer ends by itself.
    tasks: Vec<AbortHandle>,
    /// Whoever takes part by this store, and leaves with it.
    hubs: Mutex<Vec<Arc<Hub>>>,
    /// Keeps hubs out, where the store is moved.
    lease: Mutex<Option<MoveLease>>,
}

const CLOSED: &str = "the store is closed";

fn closed() -> CommitError {
    CommitError::Unavailable(CLOSED.into())
}

impl MongoStore {
    /// Opens a database, and makes in it what is missing.
    pub async fn open(options: MongoOptions) -> Result<Arc<Self>, OpenError> {
        let opened = open::open(&options).await?;
        let MongoOptions { result_bytes, wait, clock, .. } = options;
        let open::Opened { names, salt, primary, lease } = opened;
        let shared = Arc::new(Shared::new(SharedOptions { names, primary, clock, salt, result_bytes, wait }));
        // Before anything is read, so that nothing that comes after it is missed.
        let changes = watch::open(&shared).await?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        tokio::spawn(Writer::new(shared.clone(), queue).await?.run());
        let tasks = vec![
            tokio::spawn(watch::follow(shared.clone(), changes)).abort_handle(),
            tokio::spawn(keeping::sweep(shared.clone())).abort_handle(),
            tokio::spawn(keeping::keep_collections(shared.clone(), jobs.clone())).abort_handle(),
        ];
        Ok(Arc::new(Self { shared, jobs, tasks, hubs: Mutex::default(), lease: Mutex::new(lease) }))
    }

    /// The homes of topics for one of the hubs that use the same database. It leaves when the store is closed.
    pub async fn homes(&self, options: HomesOptions) -> Result<MongoHomes, HomesError> {
        let homes = MongoHomes::open(self.shared.clone(), options).await?;
        self.hubs.lock().push(homes.hub());
        // A move that began meanwhile has not seen this hub; from now on it does.
        moving::check_lease(&self.shared.names)
            .await
            .map_err(|error| HomesError::Unavailable(error.to_string()))?;
        Ok(homes)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    async fn snapshot(&self) -> Result<SnapshotSession<'_>, ReadError> {
        SnapshotSession::new(&self.shared.names, self.shared.salt).await
    }

    async fn session(&self) -> Result<ClientSession, ReadError> {
        let client = self.shared.names.db().client();
        client.start_session().snapshot(true).await.map_err(unreadable)
    }

    async fn all_topics(&self) -> Result<Vec<TopicState>, ReadError> {
        let from = self.shared.names.heads();
        let find = from.find(doc! {}).sort(doc! { "_id": 1 });
        let mut found = find.read_concern(ReadConcern::majority()).await.map_err(unreadable)?;
        let mut topics = Vec::new();
        while found.advance().await.map_err(unreadable)? {
            let document = found.deserialize_current().map_err(unreadable)?;
            topics.push(Arc::unwrap_or_clone(Head::of_document(&document)?.state));
        }
        Ok(topics)
    }

    async fn document_of(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        let mut session = self.session().await?;
        let Some(state) = self.state_in(&mut session, collection).await? else { return Ok(None) };
        let documents = self.shared.names.documents(state.number);
        let find = documents.find_one(doc! { "_id": key }).projection(document_doc::exact_fields());
        let found = find.session(&mut session).await.map_err(unreadable)?;
        found.map(|raw| document_doc::of_bson(&raw).ok_or_else(|| damaged(collection))).transpose()
    }

    async fn some_of(&self, request: &ScanRequest) -> Result<Vec<Document>, ReadError> {
        let ScanRequest { collection, after, limit } = request;
        let mut session = self.session().await?;
        let Some(state) = self.state_in(&mut session, collection).await? else { return Ok(Vec::new()) };
        let filter = after.as_ref().map_or(doc! {}, |after| doc! { "_id": { "$gt": after } });
        let documents = self.shared.names.documents(state.number);
        let find = documents.find(filter).sort(doc! { "_id": 1 });
        let find =
            find.limit(i64::try_from(*limit).unwrap_or(i64::MAX)).projection(document_doc::exact_fields());
        let mut found = find.session(&mut session).await.map_err(unreadable)?;
        let mut all = Vec::new();
        while found.advance(&mut session).await.map_err(unreadable)? {
            all.push(document_doc::of_bson(found.current()).ok_or_else(|| damaged(collection))?);
        }
        Ok(all)
    }

    async fn find_in(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        let mut session = self.session().await?;
        let state = self.state_in(&mut session, &request.collection).await?;
        let Some(state) = state else { return Ok(FoundDocuments::default()) };
        let shared = self.shared.clone();
        // Planning and comparing wait for nothing, and so does what is shared by all stores: it asks for one row after another.
        let task = tokio::task::spawn_blocking(move || find::find(&shared, session, &state, &request));
        task.await.unwrap_or_else(|error| Err(ReadError::Unavailable(error.to_string())))
    }

    async fn state_in(
        &self,
        session: &mut ClientSession,
        name: &str,
    ) -> Result<Option<CollectionState>, ReadError> {
        let from = self.shared.names.collections();
        let find = from.find_one(doc! { "_id": name }).session(session);
        let head = find.await.map_err(unreadable)?.as_ref().map(CollectionHead::of_document).transpose()?;
        Ok(head.map(|head| head.state))
    }
}

impl Drop for MongoStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[async_trait]
impl EventLog for MongoStore {
    async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
        if self.shared.failed.lock().is_some() {
            return Err(closed());
        }
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Commit(commit, answer)).await.map_err(|_| closed())?;
        Ok(Ticket::new(async move { answered.await.unwrap_or_else(|_| Err(closed())) }))
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        let request = &request;
        self.shared.read(move || async move { self.snapshot().await?.read(request.clone()).await }).await
    }

    async fn kept(&self, topic: &TopicRef, partition: Partition) -> Result<Kept, ReadError> {
        self.shared.read(move || async move { self.snapshot().await?.kept(topic, partition).await }).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        let request = &request;
        self.shared.read(move || async move { self.snapshot().await?.offset_at(request.clone()).await }).await
    }

    async fn by_id(&self, topic: &TopicRef, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.shared.read(move || async move { self.snapshot().await?.by_id(topic, id).await }).await
    }

    async fn latest_by_key(&self, topic: &TopicRef, key: &str) -> Result<Option<Event>, ReadError> {
        self.shared.read(move || async move { self.snapshot().await?.latest_by_key(topic, key).await }).await
    }

    async fn previous_by_key(&self, request: PreviousRequest) -> Result<Vec<Option<Event>>, ReadError> {
        let request = &request;
        self.shared
            .read(move || async move { self.snapshot().await?.previous_by_key(request.clone()).await })
            .await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        let request = &request;
        self.shared.read(move || async move { self.snapshot().await?.history(request.clone()).await }).await
    }

    async fn erase(&self) -> Result<(), CommitError> {
        // What was discarded is deleted, and of what is remembered there is a digest; but what was trimmed, or went with its
        // topic, may still wait for that.
        let Shared { names, clock, .. } = &*self.shared;
        let sweeper = Sweeper { names: names.clone(), clock: clock.clone() };
        sweeper.sweep().await.map_err(|error| CommitError::Unavailable(error.to_string()))
    }

    async fn advance_horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        let unavailable = || ReadError::Unavailable(CLOSED.into());
        let (answer, answered) = oneshot::channel();
        let job = Job::Horizon(topic.clone(), past, answer);
        self.jobs.send(job).await.map_err(|_| unavailable())?;
        answered.await.unwrap_or_else(|_| Err(unavailable()))
    }

    async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
        self.shared.wakes().changed(of, after).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        let found = self.shared.read(move || async move {
            let from = self.shared.names.heads();
            let find = from.find_one(doc! { "_id": name.as_str() });
            find.read_concern(ReadConcern::majority()).await.map_err(unreadable)
        });
        let found = found.await?;
        Ok(found.as_ref().map(Head::of_document).transpose()?.map(|head| Arc::unwrap_or_clone(head.state)))
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        self.shared.read(move || self.all_topics()).await
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        self.shared.read(move || async move { self.snapshot().await?.cursor(key).await }).await
    }

    async fn readers(&self, topic: &TopicName, prefix: &str) -> Result<Vec<String>, ReadError> {
        self.shared.read(move || async move { self.snapshot().await?.readers(topic, prefix).await }).await
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            kind: "mongodb",
            failed: self.shared.failed.lock().clone(),
            is_full: false,
            extra: self.shared.counts.all(),
            flushes: self.shared.flushes.clone(),
        }
    }

    async fn close(&self) {
        *self.shared.failed.lock() = Some(CLOSED.into());
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job::Close(answer)).await.is_ok() {
            // Where the writer has gone, it is closed.
            let _ = answered.await;
        }
        self.tasks.iter().for_each(AbortHandle::abort);
        let lease = self.lease.lock().take();
        if let Some(lease) = lease
            && let Err(error) = lease.end(&self.shared.names).await
        {
            tracing::warn!(error = text(&error), "hubs can use the database only in some seconds");
        }
        let hubs = std::mem::take(&mut *self.hubs.lock());
        for hub in hubs {
            if let Err(error) = hub.leave().await {
                tracing::warn!(%error, "others will miss this hub only after its time");
            }
        }
    }
}

#[async_trait]
impl Documents for MongoStore {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        self.shared.read(move || self.document_of(collection, key)).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        let request = &request;
        self.shared.read(move || self.some_of(request)).await
    }

    async fn find(&self, request: Find) -> Result<FoundDocuments, ReadError> {
        let request = &request;
        self.shared.read(move || self.find_in(request.clone())).await
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        let found = self.shared.read(move || async move {
            let from = self.shared.names.collections();
            let find = from.find_one(doc! { "_id": name });
            find.read_concern(ReadConcern::majority()).await.map_err(unreadable)
        });
        let found = found.await?;
        Ok(found.as_ref().map(CollectionHead::of_document).transpose()?.map(|head| head.state))
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        self.shared.read(move || keeping::collections(&self.shared)).await
    }
}

#[async_trait]
impl Copies for MongoStore {
    async fn hold(&self) -> Result<Arc<dyn HeldCopy>, CopyError> {
        Err(CopyError::NoFiles(
            "it is in MongoDB; back the database up with mongodump or by snapshots of its members",
        ))
    }
}
