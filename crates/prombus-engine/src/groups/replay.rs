//! Dead letters that go back: to the group that failed them, or to the topic for everyone.
//!
//! Which letters were replayed is kept in a cursor of the `dlq.` topic that moves in the same commit, so a letter is
//! replayed once, crash or not, unless it is forced.

use super::dead::DeadLetter;
use super::options::GroupName;
use super::registry::Groups;
use super::{Group, GroupError};
use crate::filter::Filter;
use crate::query::{From, Place, Query, QueryError, Reader};
use bytes::Bytes;
use prombus_core::{
    Append, Commit, CursorKey, CursorMove, CursorTarget, Epoch, Offset, Placement, ReadError, TopicName,
    TopicState,
};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// An event that came back so often is left alone.
const MAX_REPLAYS: u32 = 3;
/// So many letters are replayed in one commit.
const LETTERS_AT_ONCE: usize = 500;
/// So many of those that are not replayed are told one by one.
const MAX_SKIPPED: usize = 1_000;
/// So many events of a group may be open again in a partition: each is written with every commit of the group.
const MAX_REOPENED: usize = 10_000;
/// And about so many bytes of them.
const BYTES_AT_ONCE: usize = 4 << 20;
const REPLAYED: &str = "replayed";

/// Where letters go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayTo {
    /// To the group that failed them.
    Group,
    /// To the topic, for everyone.
    Topic,
}

/// Which letters are replayed, and how.
#[derive(Clone)]
pub struct Replay {
    /// Where to.
    pub to: ReplayTo,
    /// Only letters with these ids, or whose originals have them.
    pub ids: Option<HashSet<Uuid>>,
    /// Only what this group failed.
    pub group: Option<GroupName>,
    /// Only letters that match.
    pub filter: Option<Filter>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// Also what was replayed before, and what came back too often.
    pub force: bool,
}

/// What a replay did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many letters it was about.
    pub matched: u64,
    /// How many went back.
    pub replayed: u64,
    /// The others, and why not.
    pub skipped: Vec<(Uuid, String)>,
}

/// The letters of a topic that were replayed.
struct Ledger {
    key: CursorKey,
    topic: TopicState,
    version: u64,
    offsets: RoaringTreemap,
}

impl Replay {
    fn is_about(&self, letter: &DeadLetter) -> bool {
        let has = |ids: &HashSet<Uuid>| ids.contains(&letter.event.id) || ids.contains(&letter.original_id);
        self.ids.as_ref().is_none_or(has)
            && self.group.as_ref().is_none_or(|group| group.as_str() == letter.group)
    }
}

impl Groups {
    /// Sends dead letters of `topic` back. Goes on when the caller gives up: what is under way must be known to the
    /// next one.
    pub async fn replay(self: &Arc<Self>, topic: &TopicName, replay: Replay) -> Result<Replayed, GroupError> {
        let (groups, topic) = (self.clone(), topic.clone());
        let task = tokio::spawn(async move { groups.replay_all(&topic, replay).await });
        task.await.unwrap_or_else(|error| Err(GroupError::Failed(error.to_string())))
    }

    async fn replay_all(&self, topic: &TopicName, replay: Replay) -> Result<Replayed, GroupError> {
        let _one_at_a_time = self.replaying.lock().await;
        let mut answer = Replayed::default();
        let Some(name) = topic.dead_letters() else { return Ok(answer) };
        let Some(letters) = self.hub.log.topic(&name).await? else { return Ok(answer) };
        let mut ledger = self.ledger(&letters).await?;
        let query = Query {
            from: From::Earliest,
            partition: None,
            key: None,
            to_ts: None,
            filter: replay.filter.clone(),
        };
        let mut reader = Reader::new(self.hub.log.clone(), letters, query, Place::START)?.up_to_now();
        let limit = replay.limit.unwrap_or(usize::MAX);
        loop {
            let left = limit.saturating_sub(answer.replayed as usize);
            if left == 0 {
                break;
            }
            let page = reader.next_page(LETTERS_AT_ONCE).await?;
            let letters = page.events.into_iter().filter_map(DeadLetter::parse);
            let wanted: Vec<DeadLetter> = letters.filter(|letter| replay.is_about(letter)).collect();
            for some in batches(wanted, left) {
                self.replay_some(topic, &replay, some, &mut ledger, &mut answer).await?;
                if answer.replayed as usize >= limit {
                    break;
                }
            }
            answer.skipped.truncate(MAX_SKIPPED);
            if page.next.is_none() {
                break;
            }
        }
        Ok(answer)
    }

    async fn replay_some(
        &self,
        topic: &TopicName,
        replay: &Replay,
        letters: Vec<DeadLetter>,
        ledger: &mut Ledger,
        answer: &mut Replayed,
    ) -> Result<(), GroupError> {
        answer.matched += letters.len() as u64;
        let mut by_group: BTreeMap<String, Vec<DeadLetter>> = BTreeMap::new();
        for letter in letters {
            let refusal = match () {
                () if replay.force => None,
                () if ledger.offsets.contains(letter.event.offset.0) => Some("it was replayed already"),
                () if letter.replays >= MAX_REPLAYS => Some("it came back too often"),
                () => None,
            };
            match refusal {
                Some(why) => answer.skipped.push((letter.event.id, format!("{why}; force replays it"))),
                None => by_group.entry(letter.group.clone()).or_default().push(letter),
            }
        }
        for (group, letters) in by_group {
            match replay.to {
                ReplayTo::Topic => self.to_topic(topic, replay, letters, ledger, answer).await?,
                ReplayTo::Group => self.to_group(topic, replay, (&group, letters), ledger, answer).await?,
            }
        }
        Ok(())
    }

    async fn to_topic(
        &self,
        topic: &TopicName,
        replay: &Replay,
        letters: Vec<DeadLetter>,
        ledger: &mut Ledger,
        answer: &mut Replayed,
    ) -> Result<(), GroupError> {
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let (mut events, mut bytes, mut offsets) = (Vec::new(), 0, Vec::new());
            while bytes < BYTES_AT_ONCE
                && let Some(letter) = letters.next()
            {
                let Some(event) = letter.revived() else { continue };
                bytes += event.size();
                offsets.push(letter.event.offset.0);
                events.push(Append { topic: topic.clone(), placement: Placement::Auto, expect: None, event });
            }
            answer.replayed += events.len() as u64;
            if replay.dry_run {
                continue;
            }
            let cursors = vec![ledger.note(&offsets)];
            self.hub.bus.commit(Arc::new(Commit { events, cursors, ..Commit::default() })).await?;
        }
        Ok(())
    }

    async fn to_group(
        &self,
        topic: &TopicName,
        replay: &Replay,
        (group, letters): (&str, Vec<DeadLetter>),
        ledger: &mut Ledger,
        answer: &mut Replayed,
    ) -> Result<(), GroupError> {
        let mut skip = |letter: &DeadLetter, why: String| answer.skipped.push((letter.event.id, why));
        let group = match self.find(topic, &GroupName::parse(group)?).await {
            Ok(group) => group,
            Err(error @ (GroupError::NotFound { .. } | GroupError::Query(_))) => {
                letters.iter().for_each(|letter| skip(letter, error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut kept = Vec::new();
        for letter in letters {
            // A topic that was made anew has other events at the same places.
            match group.body(letter.partition as usize, letter.offset).await {
                Ok(Some(event)) if event.id == letter.original_id => kept.push(letter),
                Ok(_) | Err(GroupError::Query(QueryError::Read(ReadError::NoSuchPartition { .. }))) => {
                    skip(&letter, "the topic no longer has the original; replay to the topic".into());
                }
                Err(error) => return Err(error),
            }
        }
        if replay.dry_run {
            answer.replayed += kept.len() as u64;
            return Ok(());
        }
        let (reopened, refused) = group.reopen(&kept, ledger).await?;
        answer.replayed += reopened;
        answer.skipped.extend(refused);
        Ok(())
    }

    async fn ledger(&self, letters: &TopicState) -> Result<Ledger, GroupError> {
        let key = CursorKey {
            topic: letters.name.clone(),
            reader: REPLAYED.into(),
            partition: prombus_core::Partition(0),
        };
        let cursor = self.hub.log.cursor(&key).await?;
        let damaged = |_| GroupError::Failed("the list of replayed dead letters is damaged".into());
        let (version, offsets) = match cursor {
            None => (0, RoaringTreemap::new()),
            Some(cursor) => {
                (cursor.version, RoaringTreemap::deserialize_from(&cursor.detail[..]).map_err(damaged)?)
            }
        };
        Ok(Ledger { key, topic: letters.clone(), version, offsets })
    }
}

/// Letters in pieces of which none has more than `left`: where all is replayed, that is all that may be.
fn batches(letters: Vec<DeadLetter>, left: usize) -> impl Iterator<Item = Vec<DeadLetter>> {
    let mut letters = letters.into_iter().peekable();
    std::iter::from_fn(move || {
        letters.peek()?;
        Some(letters.by_ref().take(left).collect())
    })
}

impl Ledger {
    /// Notes that letters are replayed, with the commit that the move goes into.
    fn note(&mut self, offsets: &[u64]) -> CursorMove {
        self.offsets.extend(offsets.iter().copied());
        self.offsets.optimize();
        let mut detail = Vec::with_capacity(self.offsets.serialized_size());
        // Writing into memory does not fail.
        let _ = self.offsets.serialize_into(&mut detail);
        let expect_version = self.version;
        self.version += 1;
        CursorMove {
            key: self.key.clone(),
            incarnation: Some(self.topic.number),
            expect_version,
            epoch: Epoch(0),
            to: Some(CursorTarget { next: Offset(0), detail: Bytes::from(detail) }),
        }
    }
}

impl Group {
    /// Opens the originals of letters again. Says how many, and which not.
    async fn reopen(
        self: &Arc<Self>,
        letters: &[DeadLetter],
        ledger: &mut Ledger,
    ) -> Result<(u64, Vec<(Uuid, String)>), GroupError> {
        self.current_topic().await?;
        let (mut offsets, mut refused) = (Vec::new(), Vec::new());
        let version = {
            let mut state = self.locked();
            for letter in letters {
                let lane = letter.partition as usize;
                if state.lanes[lane].progress.given_back().count() >= MAX_REOPENED {
                    let why = "too many others are open again; let the group settle those first";
                    refused.push((letter.event.id, why.into()));
                } else if state.reopen(lane, letter.offset, letter.replays + 1) {
                    offsets.push(letter.event.offset.0);
                } else {
                    refused.push((letter.event.id, "the group has not settled the original yet".into()));
                }
            }
            if offsets.is_empty() {
                return Ok((0, refused));
            }
            state.also(ledger.note(&offsets));
            state.version()
        };
        self.keep();
        self.until_durable(version).await?;
        Ok((offsets.len() as u64, refused))
    }
}
