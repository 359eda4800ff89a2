//! Moving everything out of a data folder, and into one.
//!
//! A folder that is being filled says so in a file, which is there before anything else is and goes last.

use crate::background::worth::windows;
use crate::disk::{Disk, remove_if_there};
use crate::folder::{LOCK, MOVING, UNFINISHED};
use crate::index::lookup::LookupKey;
use crate::index::newest::Verdict;
use crate::journal::part::{Index, Part};
use crate::journal::record::{self, EVENT, GONE};
use crate::journal::scan::BatchReader;
use crate::paged::damaged;
use crate::recovery::recover::{OpenError, at_file};
use crate::shared::Shared;
use crate::state::view::View;
use crate::store::{DiskStore, on_blocking_thread};
use crate::write::writer::{Job, Message, Work};
use async_trait::async_trait;
use bytes::Bytes;
use hashbrown::HashMap;
use prombus_core::transfer::{Counters, CursorsRequest, RememberedPage, RememberedRequest};
use prombus_core::{
    Appended, CommitError, Cursor, CursorKey, KnownEvent, Offset, Partition, Piece, ReadError, TopicName,
    TopicNumber, Transfer, publish_digest,
};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// How much of the file is read, at most.
const LABEL_BYTES: usize = 4096;

/// Checks that a folder may be opened: as one that is filled from `source`, or, without that, as any other.
pub fn admit(disk: &dyn Disk, dir: &Path, source: Option<&str>) -> Result<(), OpenError> {
    let path = dir.join(MOVING);
    let names = disk.list(dir).map_err(at_file(dir))?;
    if names.iter().any(|name| name == MOVING) {
        let file = disk.open_to_read(&path).map_err(at_file(&path))?;
        let mut text = vec![0; LABEL_BYTES];
        let len = file.read_at(&mut text, 0).map_err(at_file(&path))?;
        let from = String::from_utf8_lossy(&text[..len]).trim_end().to_owned();
        return match source == Some(&*from) {
            true => Ok(()),
            false => Err(OpenError::Moving { dir: dir.to_owned(), from }),
        };
    }
    let Some(source) = source else { return Ok(()) };
    let is_content = |name: &&String| **name != *LOCK && !name.ends_with(UNFINISHED);
    let inner = ["journal", "state"];
    let mut content = names.iter().filter(|name| !inner.contains(&name.as_str()) && is_content(name)).count();
    for folder in inner.map(|folder| dir.join(folder)) {
        content += disk.list(&folder).map_err(at_file(&folder))?.iter().filter(is_content).count();
    }
    if content > 0 {
        return Err(OpenError::NotEmpty(dir.to_owned()));
    }
    let write = || {
        let tmp = path.with_extension("tmp");
        let file = disk.create(&tmp)?;
        file.write_at(format!("{source}\n").as_bytes(), 0)?;
        file.sync()?;
        disk.rename(&tmp, &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(at_file(&path))
}

#[async_trait]
impl Transfer for DiskStore {
    async fn counters(&self) -> Result<Counters, ReadError> {
        let view = self.shared().view();
        Ok(Counters {
            next_topic: TopicNumber(view.next_topic),
            next_collection: view.next_collection,
            recorded_ts: view.last_recorded_ts,
        })
    }

    async fn remembered(&self, request: RememberedRequest) -> Result<RememberedPage, ReadError> {
        let shared = self.shared().clone();
        on_blocking_thread(move || remembered(&shared, &request)).await
    }

    async fn cursors(&self, request: CursorsRequest) -> Result<Vec<(CursorKey, Cursor)>, ReadError> {
        let view = self.shared().view();
        let (from, is_after) = request.from();
        let all = view.cursors.range(from.clone()..).skip_while(|(key, _)| is_after && **key == from);
        let some = all.take_while(|(key, _)| key.topic == request.topic).take(request.limit);
        Ok(some.map(|(key, cursor)| (key.clone(), (**cursor).clone())).collect())
    }

    async fn put(&self, pieces: Vec<Piece>) -> Result<(), CommitError> {
        for piece in pieces {
            let (answer, answered) = oneshot::channel();
            let job = Job { work: Work::Put(piece), answer, since: Instant::now(), permit: None };
            let unavailable = || CommitError::Unavailable(self.shared().failure());
            if !self.send(Message::Commit(job)) {
                return Err(unavailable());
            }
            answered.await.unwrap_or_else(|_| Err(unavailable()))?;
        }
        Ok(())
    }

    async fn complete(&self) -> Result<(), CommitError> {
        let Shared { disk, options, .. } = &**self.shared();
        // Everything that was put is flushed.
        let removed = remove_if_there(&**disk, &options.dir.join(MOVING));
        let removed = removed.and_then(|()| disk.sync_dir(&options.dir));
        removed.map_err(|error| CommitError::Unavailable(error.to_string()))
    }
}

/// One page is what one part of the journal has.
fn remembered(shared: &Shared, request: &RememberedRequest) -> Result<RememberedPage, ReadError> {
    let view = shared.view();
    let start = match &request.from {
        None => 0,
        Some(from) => {
            let number: Option<[u8; 4]> = from[..].try_into().ok();
            u32::from_be_bytes(number.ok_or_else(|| ReadError::Corrupt("that is no page".into()))?)
        }
    };
    let mut parts = view.parts.iter().filter(|part| part.number() >= start);
    let Some(part) = parts.next() else { return Ok(RememberedPage { events: Vec::new(), next: None }) };
    let next = parts.next().map(|part| Bytes::copy_from_slice(&part.number().to_be_bytes()));
    let looking = Looking { view: &view, windows: windows(&view), now_ms: request.now_ms };
    let events = looking.in_part(part).map_err(|error| ReadError::Unavailable(error.to_string()))?;
    Ok(RememberedPage { events, next })
}

struct Looking<'a> {
    view: &'a View,
    windows: HashMap<u32, u64>,
    now_ms: u64,
}

impl Looking<'_> {
    fn in_part(&self, part: &Arc<Part>) -> io::Result<Vec<(TopicName, KnownEvent)>> {
        let end = part.end().or_else(|| part.sealed_end()).unwrap_or(self.view.end.at);
        let longest = self.windows.values().copied().max().unwrap_or(0);
        let is_over = match &*part.index() {
            Index::Sealed(sidecar) => sidecar.last_recorded_ts < self.now_ms.saturating_sub(longest),
            Index::Active(_) => false,
        };
        let mut found = Vec::new();
        if is_over {
            return Ok(found);
        }
        let names: HashMap<u32, &TopicName> =
            self.view.topics.values().map(|topic| (topic.number.0, &topic.name)).collect();
        let reader = BatchReader::new(&*part.file, part.name)?;
        let mut reader = reader.ok_or_else(|| damaged(format!("{part:?} has no head any more")))?;
        while reader.at() < end {
            let Some(batch) = reader.next_batch()? else { return Err(part.damaged(reader.at())) };
            let mut rest = batch.items;
            for _ in 0..batch.head.items {
                let len = record::item_len(rest).filter(|len| *len <= rest.len());
                let (item, behind) = rest.split_at(len.ok_or_else(|| part.damaged(batch.items_at))?);
                rest = behind;
                if let Some(known) = self.given_up(item)
                    && let Some(name) = names.get(&known.0)
                {
                    found.push(((*name).clone(), known.1));
                }
            }
        }
        let mut meant = Vec::with_capacity(found.len());
        for (name, known) in found {
            let topic = self.view.topics.get(&name).map_or(0, |topic| topic.number.0);
            if self.newest(topic, &known)? == Some(known.at()) {
                meant.push((name, known));
            }
        }
        Ok(meant)
    }

    /// What an item says of an event that was given up within the window of its topic.
    fn given_up(&self, item: &[u8]) -> Option<(u32, KnownEvent)> {
        let head = record::event_head(item)?;
        let window = self.windows.get(&head.partition.topic)?;
        if head.hub_id || head.recorded_ts < self.now_ms.saturating_sub(*window) {
            return None;
        }
        let digest = match item[8] {
            GONE => record::gone_digest(item)?,
            EVENT if self.view.is_kept(head.partition, head.offset) => return None,
            _ => {
                let event = record::event(&Bytes::copy_from_slice(item), TopicName::parse("t").ok()?)?;
                publish_digest(event.key.as_deref().map(str::as_bytes), event.payload.as_bytes())
            }
        };
        let (partition, offset) = (Partition(head.partition.partition), Offset(head.offset));
        let first = Appended { id: head.id, partition, offset, ts: head.ts, duplicate: true };
        Some((head.partition.topic, KnownEvent { first, recorded_ts: head.recorded_ts, digest }))
    }

    /// Where the last event with the same id is, or was.
    fn newest(&self, topic: u32, known: &KnownEvent) -> io::Result<Option<(Partition, Offset)>> {
        let id = known.first.id;
        let judge = |item: &[u8]| match record::event_head(item) {
            Some(head) if head.id == id && head.partition.topic == topic => Verdict::Found,
            _ => Verdict::Other,
        };
        for part in self.view.parts.iter().rev() {
            let found = part.newest(LookupKey::id(topic, id), (u32::MAX, self.view.end), judge)?;
            if let Some(head) = found.and_then(|item| record::event_head(&item)) {
                return Ok(Some((Partition(head.partition.partition), Offset(head.offset))));
            }
        }
        Ok(None)
    }
}
