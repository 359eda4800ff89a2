//! Erasing what was forgotten: whatever still holds bytes of it is rewritten or removed, however little of it is dead.
//!
//! Which keys are to be erased is part of the state until that is done. It takes four steps:
//!
//! 1. The part that is being written ends, and a checkpoint is taken behind it. Earlier checkpoints go, and where tables
//!    hold documents under the name of such a key that are gone, all of them become one.
//! 2. Of the parts before it, those are rewritten that hold an event of such a key that was given up, or a change that
//!    names such a key.
//! 3. A commit says that this is done: the names go from the state.
//! 4. Another checkpoint is taken, without the names, and the one that has them goes.
//!
//! What is interrupted is begun again with the next attempt: each step finds by itself what is left to do.

use crate::background::pace::Pace;
use crate::background::refusal;
use crate::background::rewriter::Rewriter;
use crate::disk::remove_if_there;
use crate::index::lookup::key_hash;
use crate::journal::change;
use crate::journal::part::{self, Part, PartName, index_part, part_of};
use crate::journal::record::{self, EVENT, GONE};
use crate::journal::scan::BatchReader;
use crate::shared::Shared;
use crate::state::checkpoint;
use crate::state::view::{Change, View};
use crate::write::writer::{Renewed, Work};
use hashbrown::HashSet;
use prombus_core::CommitError;
use prombus_core::collection::Progress;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many events of a key are looked up at a time.
const PLACES: usize = 256;

/// Erases what was forgotten until now.
pub fn erase(rewriter: &mut Rewriter<'_>) -> Result<(), CommitError> {
    let shared = rewriter.shared;
    if !shared.view().forgotten.is_empty() {
        let Renewed { part, sequence } = rewriter.renew(true)?;
        let names = Names::of(&shared.view());
        let parts: Vec<PartName> = shared.view().parts.iter().map(|part| part.name).collect();
        for name in parts.into_iter().filter(|name| name.number < part) {
            if shared.closing.load(Ordering::Relaxed) {
                return Err(CommitError::Unavailable(
                    "the store is closing; the rest is erased later".into(),
                ));
            }
            // Looked up anew each time, so that none that was removed is kept open.
            let view = shared.view();
            let Some(part) = view.parts.iter().find(|part| part.name == name).cloned() else { continue };
            rewriter.pace.begin();
            let are_in = names.are_in(&part, &view, &mut rewriter.pace);
            rewriter.pace.end();
            if are_in.map_err(not_erased)? {
                rewriter.rewrite(view, vec![part]).map_err(|failed| failed.error)?;
            }
        }
        remove_leftovers(shared, part).map_err(not_erased)?;
        rewriter.answer_of(Work::Erased(sequence))?;
    }
    if shared.has_names.load(Ordering::Relaxed) {
        rewriter.renew(false)?;
    }
    let (disk, dir) = (&*shared.disk, &shared.options.dir);
    // What was removed must not come back.
    disk.sync_dir(&dir.join("journal"))
        .and_then(|()| disk.sync_dir(&checkpoint::folder(dir)))
        .map_err(not_erased)
}

/// What an I/O error means for who waits.
pub fn not_erased(error: io::Error) -> CommitError {
    refusal("what was forgotten cannot be erased yet", &error)
}

/// Removes files of parts that were replaced, which may have failed before, and what is left of rewrites that failed.
fn remove_leftovers(shared: &Shared, before: u32) -> io::Result<()> {
    let (disk, folder) = (&*shared.disk, shared.options.dir.join("journal"));
    let view = shared.view();
    let is_left = |name: PartName| name.number < before && !view.parts.iter().any(|part| part.name == name);
    for file in disk.list(&folder)? {
        if file.ends_with(".tmp") && file.contains('-') {
            remove_if_there(disk, &folder.join(&file))?;
        }
        if let Some(name) = part_of(&file).or_else(|| index_part(&file)).filter(|name| is_left(*name)) {
            part::remove(disk, &shared.options.dir, name)?;
        }
    }
    Ok(())
}

/// The keys that are to be erased.
pub struct Names {
    /// With the number of their topic.
    keys: Vec<(u32, Arc<str>)>,
    names: HashSet<Arc<str>>,
}

impl Names {
    /// All of them. One that was forgotten a moment ago may have been forgotten before, too, and only the last time is known:
    /// whoever waits for what went the first time must not be answered before that is erased.
    pub fn of(view: &View) -> Self {
        let keys: Vec<(u32, Arc<str>)> = view.forgotten.keys().cloned().collect();
        let names = keys.iter().map(|(_, key)| key.clone()).collect();
        Self { keys, names }
    }

    /// Whether a part holds something of them that is to go.
    fn are_in(&self, part: &Part, view: &View, pace: &mut Pace<'_>) -> io::Result<bool> {
        for (topic, key) in &self.keys {
            // Where there are many keys, it adds up.
            pace.spend(0)?;
            if has_dead(part, view, (*topic, key))? {
                return Ok(true);
            }
        }
        if part.may_name_keys() { self.are_in_changes(part, pace) } else { Ok(false) }
    }

    fn are_in_changes(&self, part: &Part, pace: &mut Pace<'_>) -> io::Result<bool> {
        let reader = BatchReader::new(&*part.file, part.name)?;
        let mut reader = reader.ok_or_else(|| part.damaged(0))?;
        while let Some(batch) = reader.next_batch()? {
            pace.spend(u64::from(batch.head.len))?;
            let mut rest = batch.items;
            for _ in 0..batch.head.items {
                let damaged = || part.damaged(batch.items_at);
                let len = record::item_len(rest).ok_or_else(damaged)?;
                let (kind, content) = record::verified_item(rest).ok_or_else(damaged)?;
                if !matches!(kind, EVENT | GONE) {
                    let change = change::parse(kind, content).ok_or_else(damaged)?;
                    if self.are_named_by(&change) {
                        return Ok(true);
                    }
                }
                rest = &rest[len..];
            }
        }
        // What cannot be read may name them.
        match part.sealed_end().is_some_and(|end| reader.at() < end) {
            true => Err(part.damaged(reader.at())),
            false => Ok(false),
        }
    }

    fn are_named_by(&self, change: &Change) -> bool {
        let is_ours = |key: &str| self.names.contains(key);
        if !change.may_name_keys() {
            return false;
        }
        match change {
            Change::Document(_, document) => is_ours(&document.key),
            Change::DocumentGone(_, key) => is_ours(key),
            Change::Index(change) => keys_of(&change.progress).any(is_ours),
            Change::Collection(state) => {
                state.indexes.iter().flat_map(|index| keys_of(&index.progress)).any(is_ours)
            }
            // Of a key that was forgotten, nothing is to be left, also where it is not one of these.
            _ => true,
        }
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

/// The keys of documents that the progress of an index names.
fn keys_of(progress: &Progress) -> impl Iterator<Item = &str> {
    let (after, failed) = match progress {
        Progress::Ready => (None, &[][..]),
        Progress::Building { after, .. } => (after.as_deref(), &[][..]),
        Progress::Failed(failure) => (None, failure.keys()),
    };
    after.into_iter().chain(failed.iter().map(String::as_str))
}

/// Whether a part holds an event of a key that is not kept.
fn has_dead(part: &Part, view: &View, (topic, key): (u32, &str)) -> io::Result<bool> {
    let is_there = view.topics.values().any(|state| state.number.0 == topic);
    let hash = key_hash(topic, key.as_bytes());
    let mut from = 0;
    loop {
        let places = part.of_key(hash, from..u32::MAX, PLACES)?;
        let Some(last) = places.last() else { return Ok(false) };
        from = last + 1;
        for at in places {
            let item = part.item(at)?;
            let Some(head) = record::event_head(&item) else { continue };
            let is_it = head.partition.topic == topic && record::event_key(&item) == Some(key.as_bytes());
            if is_it && !(is_there && view.is_kept(head.partition, head.offset)) {
                return Ok(true);
            }
        }
    }
}
