//! A store that can be told to refuse commits, and that is gone when its hub has ended.

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_core::*;
use prombus_engine::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// A log that can be told to refuse commits.
pub struct Switch {
    /// Gone when the hub has ended, whoever still holds something of it.
    store: Mutex<Option<Store>>,
    refuses: AtomicBool,
}

impl Switch {
    /// Around a store.
    pub fn new(store: Store) -> Arc<Self> {
        Arc::new(Self { store: Mutex::new(Some(store)), refuses: AtomicBool::new(false) })
    }

    /// The hub has ended: whoever still holds something of it has no store any more.
    pub fn end(&self) {
        self.store.lock().take();
    }

    /// From here on commits are refused, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    fn store(&self) -> Result<Store, ReadError> {
        let gone = || ReadError::Unavailable("the hub has ended".into());
        self.store.lock().clone().ok_or_else(gone)
    }

    fn log(&self) -> Result<Arc<dyn EventLog>, ReadError> {
        Ok(self.store()?.log)
    }
}

#[async_trait]
impl EventLog for Switch {
    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, CommitError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(CommitError::Unavailable("the test says so".into()));
        }
        let log = self.log().map_err(|error| CommitError::Unavailable(error.to_string()))?;
        log.commit(commit).await
    }

    async fn read(&self, request: ReadRequest) -> Result<Page, ReadError> {
        self.log()?.read(request).await
    }

    async fn bounds(&self, topic: &TopicName, partition: Partition) -> Result<Bounds, ReadError> {
        self.log()?.bounds(topic, partition).await
    }

    async fn offset_at(&self, request: TsRequest) -> Result<Offset, ReadError> {
        self.log()?.offset_at(request).await
    }

    async fn by_id(&self, topic: &TopicName, id: Uuid) -> Result<Option<Event>, ReadError> {
        self.log()?.by_id(topic, id).await
    }

    async fn latest_by_key(&self, topic: &TopicName, key: &str) -> Result<Option<Event>, ReadError> {
        self.log()?.latest_by_key(topic, key).await
    }

    async fn history(&self, request: HistoryRequest) -> Result<Vec<Event>, ReadError> {
        self.log()?.history(request).await
    }

    async fn horizon(&self, topic: &TopicName, past: u64) -> Result<u64, ReadError> {
        self.log()?.horizon(topic, past).await
    }

    async fn changed(&self, after: Sequence) -> Sequence {
        match self.log() {
            Ok(log) => log.changed(after).await,
            Err(_) => std::future::pending().await,
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<TopicState>, ReadError> {
        self.log()?.topic(name).await
    }

    async fn topics(&self) -> Result<Vec<TopicState>, ReadError> {
        self.log()?.topics().await
    }

    async fn cursor(&self, key: &CursorKey) -> Result<Option<Cursor>, ReadError> {
        self.log()?.cursor(key).await
    }

    async fn readers(&self, topic: &TopicName) -> Result<Vec<String>, ReadError> {
        self.log()?.readers(topic).await
    }

    fn status(&self) -> StoreStatus {
        self.log().expect("the hub is there").status()
    }

    async fn close(&self) {
        if let Ok(log) = self.log() {
            log.close().await;
        }
    }
}

#[async_trait]
impl Documents for Switch {
    async fn document(&self, collection: &str, key: &str) -> Result<Option<Document>, ReadError> {
        self.store()?.documents.document(collection, key).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<Vec<Document>, ReadError> {
        self.store()?.documents.scan(request).await
    }

    async fn find(&self, request: Find) -> Result<Found, ReadError> {
        self.store()?.documents.find(request).await
    }

    async fn collection(&self, name: &str) -> Result<Option<CollectionState>, ReadError> {
        self.store()?.documents.collection(name).await
    }

    async fn collections(&self) -> Result<Vec<CollectionState>, ReadError> {
        self.store()?.documents.collections().await
    }
}
