//! A checkpoint: the state as of one position in the journal, so that what precedes it need not be replayed.
//!
//! A checkpoint refers to the tables that hold its rows, and is written only once they are durable. Checkpoints of early
//! builds are as of the start of a part, and contain the documents themselves.

use crate::disk::{Disk, DiskFile, remove_if_there};
use crate::journal::change;
use crate::journal::part::PART_HEAD;
use crate::journal::position::Pos;
use crate::journal::record;
use crate::paged::{PagedFile, PagedWriter, damaged};
use crate::state::view::{Change, View};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"PROMBUSS";
/// Checkpoints that hold documents.
const WITH_DOCUMENTS: u32 = 1;
const VERSION: u32 = 2;

/// The folder of checkpoints and tables.
pub fn folder(dir: &Path) -> PathBuf {
    dir.join("state")
}

/// The checkpoint as of `pos`.
pub fn path(dir: &Path, pos: Pos) -> PathBuf {
    let Pos { part, at } = pos;
    folder(dir).join(match at as usize {
        PART_HEAD => format!("{part:010}.state"),
        _ => format!("{part:010}-{at:010}.state"),
    })
}

/// The place as of which a checkpoint of that name is.
pub fn pos_of(name: &str) -> Option<Pos> {
    let name = name.strip_suffix(".state")?;
    match name.split_once('-') {
        None => Some(Pos { part: name.parse().ok()?, at: PART_HEAD as u32 }),
        Some((part, at)) => Some(Pos { part: part.parse().ok()?, at: at.parse().ok()? }),
    }
}

/// The places as of which there is a checkpoint, from the first to the last.
pub fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<Pos>> {
    let names = disk.list(&folder(dir))?;
    let mut places: Vec<Pos> = names.iter().filter_map(|name| pos_of(name)).collect();
    places.sort_unstable();
    Ok(places)
}

/// What a checkpoint holds.
pub struct Checkpoint {
    /// The state, without the rows of tables.
    pub view: View,
    /// The epoch of the run that wrote it.
    pub epoch: u64,
    /// The tables that hold its rows, the oldest first.
    pub tables: Vec<u64>,
    /// Whether it is one of an early build, which holds documents.
    pub with_documents: bool,
}

/// Writes a checkpoint, whose tables must be durable, and makes it durable. Gives its file.
pub fn write(disk: &dyn Disk, dir: &Path, checkpoint: &Checkpoint) -> io::Result<Arc<dyn DiskFile>> {
    let Checkpoint { view, .. } = checkpoint;
    let path = path(dir, view.end);
    let tmp = path.with_extension("tmp");
    let written = fill(disk, &tmp, checkpoint).and_then(|file| {
        disk.rename(&tmp, &path)?;
        Ok(file)
    });
    let file = written.inspect_err(|_| {
        // What is left of it takes room, and may name what is to be forgotten. The next open removes it otherwise.
        let _ = remove_if_there(disk, &tmp);
    })?;
    disk.sync_dir(&folder(dir))?;
    file.let_go();
    Ok(file)
}

fn fill(disk: &dyn Disk, tmp: &Path, checkpoint: &Checkpoint) -> io::Result<Arc<dyn DiskFile>> {
    let Checkpoint { view, epoch, tables, .. } = checkpoint;
    let file = disk.create(tmp)?;
    let mut out = PagedWriter::new(file.clone());
    let mut item = Vec::new();
    for change in [Change::Tables(tables.clone())].into_iter().chain(view.changes(*epoch)) {
        item.clear();
        change::write(&mut item, &change)?;
        out.write(&item)?;
    }
    let mut header = Vec::new();
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&view.end.part.to_le_bytes());
    header.extend_from_slice(&out.position().to_le_bytes());
    header.extend_from_slice(&view.end.at.to_le_bytes());
    out.finish(&header)?;
    Ok(file)
}

/// Reads the checkpoint as of `pos`.
pub fn read(disk: &dyn Disk, dir: &Path, pos: Pos) -> io::Result<Checkpoint> {
    let (file, header) = PagedFile::open(disk.open_to_read(&path(dir, pos))?)?;
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
    let version = u32_at(8);
    // An early one does not say where in its part it is, because that is always the start.
    let at = if version == WITH_DOCUMENTS { PART_HEAD as u32 } else { u32_at(24) };
    let known = [WITH_DOCUMENTS, VERSION].contains(&version);
    if header[..8] != MAGIC || !known || (Pos { part: u32_at(12), at }) != pos {
        return Err(damaged(format!("it is not the checkpoint of {pos:?}")));
    }
    let len = u64::from_le_bytes(header[16..24].try_into().unwrap_or_default());
    let content = file.read(0, len as usize)?;
    let mut view = View::default();
    let mut epoch = None;
    let mut tables = Vec::new();
    let mut rest = &content[..];
    while !rest.is_empty() {
        let change = record::item(rest).and_then(|(kind, content)| change::parse(kind, content));
        let change =
            change.ok_or_else(|| damaged("it holds something that this build cannot read".into()))?;
        match &change {
            Change::Counters(counters) => epoch = Some(counters.epoch),
            Change::Tables(numbers) => tables.clone_from(numbers),
            _ => {}
        }
        view.apply(change).map_err(|error| damaged(error.to_string()))?;
        rest = &rest[record::item_len(rest).unwrap_or(rest.len())..];
    }
    match epoch {
        Some(epoch) if view.end == pos => {
            Ok(Checkpoint { view, epoch, tables, with_documents: version == WITH_DOCUMENTS })
        }
        _ => Err(damaged("it ends too early".into())),
    }
}
