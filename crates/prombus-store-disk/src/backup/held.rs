//! The files of an open store as of one commit, held for whoever copies them.
//!
//! The commit is flushed, and the checkpoint is the newest at that moment: what it lacks is in parts that are as they were
//! written, so these files open like those of a hub that was stopped. All of them are open, so neither the writer nor anyone
//! who replaces or deletes them waits for the copy.

use crate::backup::fingerprint::fingerprint_of;
use crate::disk::{DiskFile, read_exact};
use crate::folder::{FORMAT, FileKind};
use crate::journal::part::{Index, Part};
use crate::shared::Shared;
use crate::state::checkpoints::Newest;
use crate::state::rows::Table;
use crate::state::view::View;
use async_trait::async_trait;
use bytes::Bytes;
use prombus_core::{CopyError, CopyFile, FileFingerprint, HeldCopy};
use std::io;
use std::sync::{Arc, Weak};

/// The store at one moment, as the writer tells it: everything is flushed.
pub struct Moment {
    /// The state.
    pub view: View,
    /// The newest checkpoint: everything that it does not hold is in parts that are as they were written.
    pub checkpoint: Option<Arc<Newest>>,
}

/// The files of a store. Each is open, so it can be read though it was replaced and deleted.
pub struct HeldFiles {
    files: Vec<CopyFile>,
    /// In the order of `files`.
    contents: Arc<Vec<Arc<dyn DiskFile>>>,
    parts: Vec<Arc<Part>>,
    tables: Vec<Arc<Table>>,
    shared: Weak<Shared>,
}

impl HeldFiles {
    /// Holds the files of a moment. Blocks while it reads a little of each.
    pub fn new(shared: &Arc<Shared>, moment: Moment) -> Result<Self, CopyError> {
        let Moment { view, checkpoint } = moment;
        let mut found: Vec<(String, Arc<dyn DiskFile>, u64)> = Vec::new();
        let mut add = |kind: FileKind, file: Arc<dyn DiskFile>, bytes: io::Result<u64>| {
            let name = kind.name();
            let bytes = bytes.map_err(|error| unreadable(&name, &error))?;
            found.push((name, file, bytes));
            Result::<(), CopyError>::Ok(())
        };
        let format = shared.disk.open_to_read(&shared.options.dir.join(FORMAT));
        let format = format.map_err(|error| unreadable(FORMAT, &error))?;
        add(FileKind::Format, format.clone(), format.len())?;
        for part in view.parts.iter() {
            let is_last = part.number() == view.end.part;
            let index = match &*part.index() {
                // The last one may be full by now, and have an index. It was not at that moment.
                Index::Sealed(sidecar) if !is_last => Some((sidecar.file().handle(), sidecar.part_end)),
                Index::Sealed(_) | Index::Active(_) => None,
            };
            let end = match &index {
                Some((_, end)) => *end,
                None => part.end().filter(|_| !is_last).unwrap_or(view.end.at),
            };
            add(FileKind::Part(part.name), part.file.clone(), Ok(u64::from(end)))?;
            if let Some((index, _)) = index {
                add(FileKind::Index(part.name), index.clone(), index.len())?;
            }
        }
        let mut tables = Vec::new();
        if let Some(Newest { pos, file, tables: named }) = checkpoint.as_deref() {
            add(FileKind::State(*pos), file.clone(), file.len())?;
            for table in named.list() {
                let file = table.handle();
                add(FileKind::Table(table.number()), file.clone(), file.len())?;
                tables.push(table.clone());
            }
        }
        found.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let (mut files, mut contents) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
        for (name, file, bytes) in found {
            let fingerprint = fingerprint_of(&*file, bytes).map_err(|error| unreadable(&name, &error))?;
            files.push(CopyFile { name, bytes, fingerprint });
            contents.push(file);
        }
        let parts = view.parts.to_vec();
        Ok(Self { files, contents: Arc::new(contents), parts, tables, shared: Arc::downgrade(shared) })
    }

    /// Which file has this name, and its length.
    fn find(&self, name: &str) -> Result<(usize, u64), CopyError> {
        let at = self.files.binary_search_by(|file| file.name.as_str().cmp(name));
        let at = at.map_err(|_| CopyError::NotFound(name.to_owned()))?;
        Ok((at, self.files[at].bytes))
    }

    /// Does something with a file where that may block.
    async fn with_file<T: Send + 'static>(
        &self,
        at: usize,
        act: impl FnOnce(&dyn DiskFile) -> io::Result<T> + Send + 'static,
    ) -> Result<T, CopyError> {
        let (name, contents) = (&self.files[at].name, self.contents.clone());
        let done = tokio::task::spawn_blocking(move || act(&*contents[at])).await;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(unreadable(name, &error)),
            Err(error) => Err(CopyError::Unavailable(error.to_string())),
        }
    }
}

fn unreadable(name: &str, error: &io::Error) -> CopyError {
    CopyError::Unreadable { name: name.to_owned(), why: error.to_string() }
}

fn check_end(name: &str, bytes: u64, asked: u64) -> Result<(), CopyError> {
    match asked <= bytes {
        true => Ok(()),
        false => Err(CopyError::BeyondEnd { name: name.to_owned(), bytes, asked }),
    }
}

#[async_trait]
impl HeldCopy for HeldFiles {
    fn files(&self) -> &[CopyFile] {
        &self.files
    }

    async fn read(&self, name: &str, from: u64, most: usize) -> Result<Bytes, CopyError> {
        let (at, bytes) = self.find(name)?;
        check_end(name, bytes, from)?;
        let len = usize::try_from(bytes - from).map_or(most, |left| left.min(most));
        self.with_file(at, move |file| {
            let mut buffer = vec![0; len];
            read_exact(file, &mut buffer, from)?;
            Ok(buffer.into())
        })
        .await
    }

    async fn fingerprint(&self, name: &str, bytes: u64) -> Result<FileFingerprint, CopyError> {
        let (at, len) = self.find(name)?;
        check_end(name, len, bytes)?;
        self.with_file(at, move |file| fingerprint_of(file, bytes)).await
    }

    fn held_back(&self) -> u64 {
        let Some(shared) = self.shared.upgrade() else { return 0 };
        let view = shared.view();
        let parts = self.parts.iter().filter(|part| !view.parts.iter().any(|now| Arc::ptr_eq(part, now)));
        let now = view.rows.tables();
        let tables = self.tables.iter().filter(|table| !now.numbers().any(|number| number == table.number()));
        parts.map(|part| part.disk_bytes()).sum::<u64>() + tables.map(|table| table.disk_bytes()).sum::<u64>()
    }
}
