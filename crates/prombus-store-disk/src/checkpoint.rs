//! Checkpoints: the whole state as of the start of a part, so that earlier parts need not be applied again.

use crate::change;
use crate::disk::Disk;
use crate::paged::{PagedFile, PagedWriter, damaged};
use crate::position::Pos;
use crate::record;
use crate::view::{Change, View};
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"PROMBUSS";
const VERSION: u32 = 1;
/// How many checkpoints are kept, in case the newest is damaged.
const KEEP: usize = 2;

/// The folder of checkpoints.
pub fn folder(dir: &Path) -> PathBuf {
    dir.join("state")
}

/// The checkpoint as of the start of `part`.
pub fn path(dir: &Path, part: u32) -> PathBuf {
    folder(dir).join(format!("{part:010}.state"))
}

/// The parts at whose start there is a checkpoint, from the first to the last.
pub fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u32>> {
    let names = disk.list(&folder(dir))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".state")?.parse().ok()).collect())
}

/// Writes a checkpoint, makes it durable, and only then lets older ones go.
pub fn write(disk: &dyn Disk, dir: &Path, view: &View, epoch: u64) -> io::Result<()> {
    let part = view.end.part;
    let path = path(dir, part);
    let tmp = path.with_extension("tmp");
    let mut out = PagedWriter::new(disk.create(&tmp)?);
    let mut item = Vec::new();
    for change in view.changes(epoch) {
        item.clear();
        change::write(&mut item, &change);
        out.write(&item)?;
    }
    let mut header = Vec::new();
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&part.to_le_bytes());
    header.extend_from_slice(&out.position().to_le_bytes());
    out.finish(&header)?;
    disk.rename(&tmp, &path)?;
    disk.sync_dir(&folder(dir))?;
    let all = list(disk, dir)?;
    for old in &all[..all.len().saturating_sub(KEEP)] {
        disk.remove(&self::path(dir, *old))?;
    }
    Ok(())
}

/// Reads the checkpoint as of the start of `part`, and the epoch in which it was written.
pub fn read(disk: &dyn Disk, dir: &Path, part: u32) -> io::Result<(View, u64)> {
    let (file, header) = PagedFile::open(disk.open_to_read(&path(dir, part))?)?;
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default());
    if header[..8] != MAGIC || u32_at(8) != VERSION || u32_at(12) != part {
        return Err(damaged(format!("it is not the checkpoint of part {part}")));
    }
    let len = u64::from_le_bytes(header[16..24].try_into().unwrap_or_default());
    let content = file.read(0, len as usize)?;
    let mut view = View::default();
    let mut epoch = None;
    let mut rest = &content[..];
    while !rest.is_empty() {
        let change = record::item(rest).and_then(|(kind, content)| change::parse(kind, content));
        let change =
            change.ok_or_else(|| damaged("it holds something that this build cannot read".into()))?;
        if let Change::Counters(counters) = &change {
            epoch = Some(counters.epoch);
        }
        view.apply(change).map_err(|error| damaged(error.to_string()))?;
        rest = &rest[record::item_len(rest).unwrap_or(rest.len())..];
    }
    match epoch {
        Some(epoch) if view.end == (Pos { part, at: view.end.at }) => Ok((view, epoch)),
        _ => Err(damaged("it ends too early".into())),
    }
}
