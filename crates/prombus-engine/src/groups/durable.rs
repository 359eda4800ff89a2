//! How far what was said to a group is durable, and who waits for that.

use super::GroupError;
use super::settling::SettleResult;
use super::state::SettleEffect;
use crate::bus::BusError;
use parking_lot::Mutex;
use prombus_core::CommitError;
use roaring::RoaringTreemap;
use std::pin::pin;
use tokio::sync::Notify;

/// Whoever waits hears of it long before so many changes more were made.
const REMEMBERED: u64 = 1 << 20;

/// Changes that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Those after this one,
    pub after: u64,
    /// up to this one.
    pub upto: u64,
}

/// How far what was said to a group is durable. Those who wait go on in the order in which they came.
#[derive(Debug, Default)]
pub struct Durable {
    now: Mutex<DurableState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct DurableState {
    /// How many changes are durable.
    version: u64,
    /// Those among them that were taken back, because there was no room for them.
    refused: RoaringTreemap,
    /// Those among them that came to nothing, because a hand has decided about their events first.
    lapsed: RoaringTreemap,
    /// Why there will be no more.
    failed: Option<GroupError>,
}

impl DurableState {
    fn has_refused(&self, span: Span) -> bool {
        has_some(&self.refused, span)
    }
}

fn has_some(changes: &RoaringTreemap, span: Span) -> bool {
    changes.rank(span.upto) > changes.rank(span.after)
}

/// Adds changes, and forgets those that nobody waits for any more.
fn remember(changes: &mut RoaringTreemap, versions: Vec<u64>) {
    if let Some(last) = versions.iter().max() {
        changes.remove_range(..last.saturating_sub(REMEMBERED));
        changes.extend(versions);
    }
}

impl Durable {
    /// Notes that all changes up to this one are durable, but for those that were refused.
    pub fn reached(&self, version: u64) {
        {
            let now = &mut self.now.lock();
            now.version = now.version.max(version);
        }
        self.changed.notify_waiters();
    }

    /// There was no room for these changes, and they were taken back.
    pub fn refuse(&self, versions: Vec<u64>) {
        if !versions.is_empty() {
            remember(&mut self.now.lock().refused, versions);
            self.changed.notify_waiters();
        }
    }

    /// These changes come to nothing: their events are settled, or open again, by other words. That must be said before those
    /// are durable.
    pub fn lapse(&self, versions: Vec<u64>) {
        remember(&mut self.now.lock().lapsed, versions);
    }

    /// There will be no more.
    pub fn fail(&self, error: GroupError) {
        self.now.lock().failed = Some(error);
        self.changed.notify_waiters();
    }

    /// Why there will be no more, if that is so.
    pub fn failure(&self) -> Option<GroupError> {
        self.now.lock().failed.clone()
    }

    /// Whether there will be no more.
    pub fn has_failed(&self) -> bool {
        self.now.lock().failed.is_some()
    }

    /// Whether changes are durable already.
    pub fn has(&self, span: Span) -> bool {
        self.now.lock().version >= span.upto
    }

    /// Waits until changes are durable, or one of them is refused.
    pub async fn until(&self, span: Span) -> Result<(), GroupError> {
        let is_refused = |now: &DurableState| match now.has_refused(span) {
            true => Some(true),
            false => (now.version >= span.upto || span.after >= span.upto).then_some(false),
        };
        match self.known(is_refused).await? {
            true => Err(BusError::Commit(CommitError::NoRoom).into()),
            false => Ok(()),
        }
    }

    /// Waits until so many changes are durable or refused.
    pub async fn until_decided(&self, version: u64) -> Result<(), GroupError> {
        self.known(|now| (now.version >= version).then_some(())).await
    }

    /// What came of what was said, once that is decided. A repeated verb was refused, or has lapsed, where any of the changes
    /// was or has that were `open`: which of them it was is not known, and it can be said again.
    pub fn results(&self, heard: &[SettleEffect], open: Span) -> Vec<SettleResult> {
        let now = self.now.lock();
        let (some_refused, some_lapsed) = (now.has_refused(open), has_some(&now.lapsed, open));
        let result = |heard: &SettleEffect| match heard {
            SettleEffect::Expired => SettleResult::Expired,
            SettleEffect::Change(version) if some_lapsed && now.lapsed.contains(*version) => {
                SettleResult::Expired
            }
            SettleEffect::Repeat if some_lapsed => SettleResult::Expired,
            SettleEffect::Change(version) if some_refused && now.refused.contains(*version) => {
                SettleResult::NoRoom
            }
            SettleEffect::Repeat if some_refused => SettleResult::NoRoom,
            _ => SettleResult::Done,
        };
        heard.iter().map(result).collect()
    }

    /// The same of a group that has ended: whatever was not written by then comes to nothing, and what is only said has ended.
    pub fn results_so_far(&self, heard: &[SettleEffect], open: Span) -> Vec<SettleResult> {
        let written = self.now.lock().version;
        let is_in_time = |heard: &SettleEffect| match heard {
            SettleEffect::Change(version) => *version <= written,
            SettleEffect::Repeat => open.upto <= written,
            _ => false,
        };
        let results = heard.iter().zip(self.results(heard, open));
        results
            .map(|(heard, result)| if is_in_time(heard) { result } else { SettleResult::Expired })
            .collect()
    }

    /// What `look` finds, once it finds something.
    async fn known<T>(&self, look: impl Fn(&DurableState) -> Option<T>) -> Result<T, GroupError> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            {
                let now = self.now.lock();
                if let Some(found) = look(&now) {
                    return Ok(found);
                }
                if let Some(error) = &now.failed {
                    return Err(error.clone());
                }
            }
            changed.await;
        }
    }
}
