//! Dead letters that go back: to the group or projection that failed them, or to the topic for everyone.
//!
//! Which letters were replayed is kept in a cursor of the `dlq.` topic that moves in the same commit, so a letter is
//! replayed once, crash or not, unless it is forced.

use super::dead::{DeadLetter, FailedBy};
use super::options::GroupName;
use super::pull::Body;
use super::registry::Groups;
use super::{Group, GroupError};
use crate::bus::BusError;
use crate::filter::Filter;
use crate::projections::{EventToReplay, Outcome, ProjectionError, Projections};
use crate::query::{From, Query, QueryError, QueryPosition, Reader};
use crate::retry;
use bytes::Bytes;
use prombus_core::{
    Append, Commit, CommitError, Cursor, CursorKey, CursorMove, CursorTarget, Epoch, EventLog, HomesError,
    Offset, Origin, Partition, ReadError, TopicName, TopicState,
};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tokio::sync::oneshot;
use uuid::Uuid;

/// An event that came back so often is left alone.
const MAX_REPLAYS: u32 = 3;
/// How many letters are replayed in one commit.
const LETTERS_AT_ONCE: usize = 500;
/// About how many bytes of letters are read at once: each is held with what was parsed of it.
pub const LETTER_BYTES_AT_ONCE: usize = 1 << 20;
/// How many of those that are not replayed are told one by one.
const MAX_SKIPPED: usize = 1_000;
/// How many events of a group may be open again in a partition: they are kept in memory beside the window.
const MAX_REOPENED: usize = 10_000;
/// And about how many bytes of them.
const BYTES_AT_ONCE: usize = 4 << 20;
const REPLAYED: &str = "replayed";

/// Where letters go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplayTo {
    /// To the group or projection that failed them.
    #[default]
    Group,
    /// To the topic, for everyone.
    Topic,
}

/// Which letters are replayed, and how.
#[derive(Clone, Default)]
pub struct Replay {
    /// Where to.
    pub to: ReplayTo,
    /// Only letters with these ids, or whose originals have them.
    pub ids: Option<HashSet<Uuid>>,
    /// Only what this group or projection failed.
    pub failed_by: Option<FailedBy>,
    /// Only letters that match.
    pub filter: Option<Filter>,
    /// The maximum number.
    pub limit: Option<usize>,
    /// Only tell what would be done.
    pub dry_run: bool,
    /// Also what was replayed before, and what came back too often.
    pub force: bool,
    /// Tell no reason that may quote an event: whoever asks may not read the topic.
    pub hides_events: bool,
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

/// Which letters of a topic were replayed.
#[derive(Debug, Clone)]
pub struct ReplayedLetters(RoaringTreemap);

impl ReplayedLetters {
    /// Whether the letter at this offset was.
    pub fn contains(&self, letter: Offset) -> bool {
        self.0.contains(letter.0)
    }
}

/// The letters of a topic that were replayed, and how that is noted.
#[derive(Clone)]
struct Ledger {
    key: CursorKey,
    topic: TopicState,
    version: u64,
    /// In which it is written: of a claim on the topic that the letters are of.
    epoch: Epoch,
    offsets: RoaringTreemap,
}

impl Replay {
    fn is_about(&self, letter: &DeadLetter) -> bool {
        let has = |ids: &HashSet<Uuid>| ids.contains(&letter.event.id) || ids.contains(&letter.original_id);
        self.ids.as_ref().is_none_or(has)
            && self.failed_by.as_ref().is_none_or(|failed_by| *failed_by == letter.failed_by)
    }
}

impl Groups {
    /// See [`crate::Hub::replayed_letters`].
    pub(crate) async fn replayed_letters(&self, letters: &TopicState) -> Result<ReplayedLetters, GroupError> {
        Ok(ReplayedLetters(Ledger::read(&*self.hub.log, letters).await?.offsets))
    }

    /// See [`crate::Hub::replay`].
    pub(crate) async fn replay(
        self: &Arc<Self>,
        topic: &TopicName,
        replay: Replay,
        projections: Arc<Projections>,
    ) -> Result<Replayed, GroupError> {
        let (groups, topic) = (self.clone(), topic.clone());
        // Dropped with this call: whoever has left is not worked for any more.
        let (caller, is_waiting) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            // Where nothing is done, nobody has to know of it.
            let turn = if replay.dry_run { None } else { Some(groups.replaying_turn(&topic).await) };
            let Some(name) = topic.dead_letters() else { return Ok(Replayed::default()) };
            let Some(letters) = groups.hub.log.topic(&name).await? else {
                return match groups.hub.log.topic(&topic).await? {
                    Some(_) => Ok(Replayed::default()),
                    None => Err(ReadError::TopicNotFound(topic).into()),
                };
            };
            let mut ledger = Ledger::read(&*groups.hub.log, &letters).await?;
            if !replay.dry_run {
                // As with everything else that is done on behalf of a topic, the hub that it is at home on does it.
                let above = Epoch(ledger.epoch.0.saturating_sub(1));
                ledger.epoch = groups.hub.claims.home(&topic, above).await?.epoch();
            }
            let answer = Replayed::default();
            let replaying = Replaying {
                groups: &groups,
                projections,
                topic,
                replay,
                ledger,
                answer,
                failed_again: 0,
                caller,
            };
            let replayed = replaying.run(letters).await;
            drop(turn);
            replayed
        });
        let replayed = task.await;
        drop(is_waiting);
        replayed.unwrap_or_else(|error| Err(GroupError::Failed(error.to_string())))
    }
}

/// A replay at work.
struct Replaying<'a> {
    groups: &'a Groups,
    projections: Arc<Projections>,
    topic: TopicName,
    replay: Replay,
    ledger: Ledger,
    answer: Replayed,
    /// How many a projection was given again, and failed again.
    failed_again: usize,
    /// Whether somebody waits for the answer.
    caller: oneshot::Sender<()>,
}

impl Replaying<'_> {
    async fn run(mut self, letters: TopicState) -> Result<Replayed, GroupError> {
        let Err(error) = self.go_through(letters).await else { return Ok(self.answer) };
        let sent = self.answer.replayed + self.failed_again as u64;
        // Whoever has the topic now would be asked for all of it, and knows of no letter that it must leave out.
        match self.replay.force && sent > 0 && is_lost(&error) {
            true => Err(CommitError::Unknown(format!(
                "the topic has moved to another hub after {sent} letters were replayed; without force, these are left out"
            ))
            .into()),
            false => Err(error),
        }
    }

    async fn go_through(&mut self, letters: TopicState) -> Result<(), GroupError> {
        let query = Query { filter: self.replay.filter.clone(), ..Query::of_all(From::Earliest) };
        let log = self.groups.hub.log.clone();
        let reader = Reader::new(log, letters, query, QueryPosition::START)?;
        let mut reader = reader.up_to_now().in_pages_of(LETTER_BYTES_AT_ONCE);
        while self.left() > 0 && !self.caller.is_closed() {
            let page = reader.next_page(LETTERS_AT_ONCE).await?;
            let mut letters = page.events.into_iter().filter_map(DeadLetter::parse).peekable();
            // What was chosen may still be refused, so there may be room for more of the same page.
            while self.left() > 0 && letters.peek().is_some() {
                let chosen = self.choose(&mut letters);
                self.send_back(chosen).await?;
            }
            if page.next.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// How many letters may still be replayed, or tried.
    fn left(&self) -> usize {
        let tried = self.answer.replayed as usize + self.failed_again;
        self.replay.limit.map_or(usize::MAX, |limit| limit.saturating_sub(tried))
    }

    /// The next letters that may go back, as many as there is room for.
    fn choose(&mut self, letters: &mut impl Iterator<Item = DeadLetter>) -> Vec<DeadLetter> {
        let (left, mut chosen) = (self.left(), Vec::new());
        while chosen.len() < left
            && let Some(letter) = letters.next()
        {
            if !self.replay.is_about(&letter) {
                continue;
            }
            self.answer.matched += 1;
            match self.refusal(&letter) {
                Some(why) => self.skip(letter.event.id, format!("{why}; force replays it")),
                None => chosen.push(letter),
            }
        }
        chosen
    }

    fn refusal(&self, letter: &DeadLetter) -> Option<&'static str> {
        if self.replay.force {
            None
        } else if self.ledger.offsets.contains(letter.event.offset.0) {
            Some("it was replayed already")
        } else if letter.replays >= MAX_REPLAYS {
            Some("it came back too often")
        } else {
            None
        }
    }

    /// A reason that may quote an event, or else what can be told of it to anyone.
    fn unless_hidden(&self, told: &str, reason: impl FnOnce() -> String) -> String {
        match self.replay.hides_events {
            true => format!("{told}; the reason is shown to those who have `read` on {}", self.topic),
            false => reason(),
        }
    }

    fn skip(&mut self, letter: Uuid, why: String) {
        if self.answer.skipped.len() < MAX_SKIPPED {
            self.answer.skipped.push((letter, why));
        }
    }

    async fn send_back(&mut self, letters: Vec<DeadLetter>) -> Result<(), GroupError> {
        match self.replay.to {
            ReplayTo::Topic => self.back_to_topic(letters).await,
            ReplayTo::Group => {
                let mut shares: BTreeMap<FailedBy, Vec<DeadLetter>> = BTreeMap::new();
                for letter in letters {
                    shares.entry(letter.failed_by.clone()).or_default().push(letter);
                }
                for (failed_by, letters) in shares {
                    match failed_by {
                        FailedBy::Group(group) => {
                            self.back_to_group(&GroupName::parse(&group)?, letters).await?;
                        }
                        FailedBy::Projection(name) => self.back_to_projection(&name, letters).await?,
                    }
                }
                Ok(())
            }
        }
    }

    async fn back_to_topic(&mut self, letters: Vec<DeadLetter>) -> Result<(), GroupError> {
        let mut letters = letters.into_iter().peekable();
        while letters.peek().is_some() {
            let (mut events, mut bytes, mut sent) = (Vec::new(), 0, Vec::new());
            while bytes < BYTES_AT_ONCE
                && let Some(letter) = letters.next()
            {
                let Some(event) = letter.revived() else {
                    self.skip(letter.event.id, "its original cannot be read".into());
                    continue;
                };
                let append = Append::new(self.topic.clone(), event);
                bytes += append.event.size();
                sent.push((letter.event.id, letter.event.offset.0));
                events.push(append);
            }
            self.answer.replayed += self.publish_again(events, sent).await?;
        }
        Ok(())
    }

    /// Publishes what letters have revived, all but those that are refused: by the schema that the topic has by now, or
    /// because they say where they come from and are too large with that. Says how many.
    async fn publish_again(
        &mut self,
        events: Vec<Append>,
        mut sent: Vec<(Uuid, u64)>,
    ) -> Result<u64, GroupError> {
        let hub = &self.groups.hub;
        let mut commit = Arc::new(Commit { origin: Origin::Derived, ..events.into() });
        while !sent.is_empty() {
            let mut noted = self.ledger.clone();
            let offsets: Vec<u64> = sent.iter().map(|(_, offset)| *offset).collect();
            Arc::make_mut(&mut commit).cursors = vec![noted.note(&offsets)];
            let done = match self.replay.dry_run {
                true => match hub.checks.check(&commit) {
                    Ok(()) => hub.schema_checks.foresee(&commit).await,
                    refused => refused,
                },
                false => retry::commit(&*hub.bus, &mut commit).await.map(|_| self.ledger = noted),
            };
            let Err(error) = done else { break };
            match error.index() {
                Some(index) if index < sent.len() && !matches!(error, BusError::Commit(_)) => {
                    Arc::make_mut(&mut commit).take_out(index);
                    let (letter, _) = sent.remove(index);
                    self.skip(letter, self.unless_hidden("the topic refuses it", || error.to_string()));
                }
                _ => return Err(error.into()),
            }
        }
        Ok(sent.len() as u64)
    }

    async fn back_to_group(&mut self, name: &GroupName, letters: Vec<DeadLetter>) -> Result<(), GroupError> {
        let group = match self.groups.find(&self.topic, name).await {
            Ok(group) => group,
            Err(error @ (GroupError::NotFound { .. } | GroupError::Query(_))) => {
                let why = match self.projections.reads(name.as_str(), &self.topic) {
                    false => error.to_string(),
                    true => format!(
                        "{error}; an older version wrote letters of projections like this one: rebuild the projection, or replay to the topic"
                    ),
                };
                letters.iter().for_each(|letter| self.skip(letter.event.id, why.clone()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut kept = Vec::new();
        for letter in letters {
            // A topic that was made anew has other events at the same places.
            match group.body(letter.partition as usize, letter.offset).await {
                Ok(Body::Kept(event)) if letter.is_of(&event) => kept.push(letter),
                Ok(_) | Err(GroupError::Query(QueryError::Read(ReadError::NoSuchPartition { .. }))) => {
                    let why = "the topic no longer has the original; replay to the topic";
                    self.skip(letter.event.id, why.into());
                }
                Err(error) => return Err(error),
            }
        }
        if self.replay.dry_run {
            self.answer.replayed += kept.len() as u64;
            return Ok(());
        }
        let (reopened, refused) = group.reopen(&kept, &mut self.ledger).await?;
        self.answer.replayed += reopened;
        refused.into_iter().for_each(|(letter, why)| self.skip(letter, why));
        Ok(())
    }

    async fn back_to_projection(&mut self, name: &str, letters: Vec<DeadLetter>) -> Result<(), GroupError> {
        for letter in letters {
            let mut noted = self.ledger.clone();
            let note = (!self.replay.dry_run).then(|| noted.note(&[letter.event.offset.0]));
            let replay = EventToReplay {
                topic: self.topic.clone(),
                partition: letter.partition,
                offset: letter.offset,
                id: letter.original_id,
                replays: letter.replays + 1,
                note,
            };
            let outcome = self.projections.apply_again(name, replay).await?;
            match &outcome {
                Outcome::Applied => self.answer.replayed += 1,
                Outcome::FailedAgain(why) => {
                    self.failed_again += 1;
                    let told = "it failed again, and has a new dead letter";
                    let why = self.unless_hidden(told, || format!("{told}: {why}"));
                    self.skip(letter.event.id, why);
                }
                Outcome::Refused(why) => self.skip(letter.event.id, why.clone()),
            }
            if !self.replay.dry_run && !matches!(outcome, Outcome::Refused(_)) {
                self.ledger = noted;
            }
        }
        Ok(())
    }
}

/// Whether an error says that the topic is at home elsewhere.
fn is_lost(error: &GroupError) -> bool {
    matches!(
        error,
        GroupError::Home(HomesError::Lost(_) | HomesError::Elsewhere { .. })
            | GroupError::Bus(BusError::Commit(CommitError::EpochOver { .. }))
    )
}

impl std::convert::From<ProjectionError> for GroupError {
    fn from(error: ProjectionError) -> Self {
        match error {
            ProjectionError::Read(error) => error.into(),
            ProjectionError::Bus(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl Ledger {
    /// What was replayed of the letters of a topic.
    async fn read(log: &dyn EventLog, letters: &TopicState) -> Result<Self, GroupError> {
        let (topic, reader) = (letters.name.clone(), REPLAYED.to_owned());
        // Topics of dead letters have one partition.
        let key = CursorKey { topic, reader, partition: Partition(0) };
        let damaged = |_| GroupError::Failed("the list of replayed dead letters is damaged".into());
        let (version, epoch, offsets) = match log.cursor(&key).await? {
            None => (0, Epoch(0), RoaringTreemap::new()),
            Some(Cursor { version, epoch, detail, .. }) => {
                (version, epoch, RoaringTreemap::deserialize_from(&detail[..]).map_err(damaged)?)
            }
        };
        Ok(Self { key, topic: letters.clone(), version, epoch, offsets })
    }

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
            epoch: self.epoch,
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
        let span = {
            let mut state = self.locked();
            let before = state.version();
            let mut given_back: BTreeMap<usize, usize> = BTreeMap::new();
            for letter in letters {
                let partition = letter.partition as usize;
                // Counted once; from then on, what is reopened here is all that comes to it.
                let count = || state.queues[partition].progress.given_back().count();
                let open = given_back.entry(partition).or_insert_with(count);
                if *open >= MAX_REOPENED {
                    let why = "too many replayed events are open; let the group settle those first";
                    refused.push((letter.event.id, why.into()));
                } else if state.reopen(partition, letter.offset, letter.replays + 1) {
                    *open += usize::from(letter.offset < state.queues[partition].progress.next());
                    offsets.push(letter.event.offset.0);
                } else {
                    refused.push((letter.event.id, "the group has not settled the original yet".into()));
                }
            }
            if offsets.is_empty() {
                return Ok((0, refused));
            }
            state.also(ledger.note(&offsets));
            state.span_since(before)
        };
        self.wake_keeper();
        self.until_durable(span).await?;
        Ok((offsets.len() as u64, refused))
    }
}
