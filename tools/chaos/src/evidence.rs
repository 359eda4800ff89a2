//! What is stored after a round: every line of an export, compared with what was sent.

use super::draft::Draft;
use super::ledger::{Ledger, PartitionFacts};
use super::plan::Topic;
use super::reader::Observed;
use super::request::{Position, Sent};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The version of the ids that the hub makes.
const HUB_ID_VERSION: usize = 7;

/// What tells one event from all others: its topic and payload.
pub type Mark = u128;

/// The mark of an event.
pub fn mark(topic: &str, payload: &str) -> Mark {
    let mut hash = Xxh3::new();
    hash.update(topic.as_bytes());
    hash.update(b"\n");
    hash.update(payload.as_bytes());
    hash.digest128()
}

/// An event that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundEvent {
    /// Where.
    pub place: Position,
    /// Its id.
    pub id: Uuid,
    /// Its time.
    pub ts: u64,
}

/// Everything that is there of a round.
#[derive(Default)]
pub struct Evidence {
    /// What was sent.
    drafts: HashMap<Mark, Arc<Draft>>,
    /// What is there.
    pub found: HashMap<Mark, FoundEvent>,
    /// Which event has an id in a topic.
    pub by_id: HashMap<(String, Uuid), Mark>,
    /// The ids of the events of chains, with those that they started from.
    pub chain_ids: HashSet<Uuid>,
    /// What a reader saw before the end, and was not met again yet.
    pub observed: Observed,
}

/// A line of an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: Uuid,
    ts: u64,
    recorded_ts: Option<u64>,
    topic: String,
    key: Option<String>,
    partition: u32,
    offset: u64,
    sid: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    tags: Vec<String>,
}

impl Evidence {
    /// The start: what was sent, what was seen, and where chains ended before.
    pub fn new(sent: &[Sent], observed: Observed, ledger: &Ledger) -> Self {
        let mut evidence =
            Self { observed, chain_ids: ledger.heads.values().copied().collect(), ..Self::default() };
        // What repeats an older event must not be there again.
        for Sent { request, .. } in sent.iter().filter(|sent| sent.request.known.is_none()) {
            for draft in &request.drafts {
                evidence.drafts.insert(mark(&request.topic.name, &draft.payload), draft.clone());
            }
        }
        evidence
    }

    /// Takes in the lines of a partition that follow what the ledger knows of it.
    pub fn absorb(
        &mut self,
        ledger: &mut Ledger,
        (topic, partition): (&Topic, u32),
        lines: &[u8],
    ) -> Result<(), String> {
        if lines.last().is_some_and(|last| *last != b'\n') {
            return Err(format!("the export of {}/{partition} ends in the middle of a line", topic.name));
        }
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.absorb_line(ledger, (topic, partition), line).map_err(|why| {
                let (name, line) = (&topic.name, String::from_utf8_lossy(line));
                format!("{name}/{partition}: {why}: {}", line.trim_end())
            })?;
        }
        Ok(())
    }

    fn absorb_line(
        &mut self,
        ledger: &mut Ledger,
        (topic, partition): (&Topic, u32),
        text: &[u8],
    ) -> Result<(), String> {
        let line: Line<'_> =
            serde_json::from_slice(text).map_err(|error| format!("not an event: {error}"))?;
        let mark = mark(&topic.name, line.payload.get());
        let draft = self.drafts.get(&mark).ok_or("nobody sent this event in this round")?.clone();
        let place = Position { partition, offset: line.offset };
        let found = FoundEvent { place, id: line.id, ts: line.ts };
        if let Some(first) = self.found.insert(mark, found) {
            return Err(format!("the event is there twice, first at {:?}", first.place));
        }
        if self.by_id.insert((topic.name.clone(), line.id), mark).is_some() {
            return Err("another event of the topic has the same id".to_owned());
        }
        compare(&draft, &line, topic)?;
        if let Some(seen) = self.observed.remove(&(topic.name.clone(), partition, line.offset))
            && seen != xxh3_64(text)
        {
            return Err("a reader saw something else there before".to_owned());
        }
        let facts = ledger.partitions(topic).get_mut(partition as usize).ok_or("no such partition")?;
        follow(facts, &line, &draft)?;
        facts.digest.update(text);
        ledger.events += 1;
        self.follow_key(ledger, &line, &draft)
    }

    /// A key stays in its partition, and its chain has one history.
    fn follow_key(&mut self, ledger: &mut Ledger, line: &Line<'_>, draft: &Draft) -> Result<(), String> {
        let Some(key) = &line.key else { return Ok(()) };
        let key = (line.topic.clone(), key.clone());
        let partition = *ledger.key_partitions.entry(key.clone()).or_insert(line.partition);
        if partition != line.partition {
            return Err(format!("the key has been in partition {partition} before"));
        }
        if let Some(expected) = draft.expect {
            let last = ledger.heads.insert(key, line.id);
            if last != expected {
                return Err(format!(
                    "it expected {expected:?} to be the latest event of its key, which was {last:?}"
                ));
            }
            self.chain_ids.insert(line.id);
        }
        Ok(())
    }

    /// What a reader saw must still be there.
    pub fn nothing_seen_is_gone(&self) -> Result<(), String> {
        match self.observed.keys().next() {
            None => Ok(()),
            Some((topic, partition, offset)) => {
                let count = self.observed.len();
                Err(format!(
                    "a reader saw {count} events that are gone, one of them {topic}/{partition} {offset}"
                ))
            }
        }
    }
}

/// The event is what was sent.
fn compare(draft: &Draft, line: &Line<'_>, topic: &Topic) -> Result<(), String> {
    let differs = |what: &str, sent: String| Err(format!("{what} is not what was sent ({sent})"));
    if line.topic != topic.name {
        return differs("topic", topic.name.clone());
    }
    if line.key != draft.key {
        return differs("key", format!("{:?}", draft.key));
    }
    if line.payload.get() != draft.payload {
        return differs("payload", draft.payload.clone());
    }
    if draft.id.is_some_and(|id| id != line.id) {
        return differs("id", format!("{:?}", draft.id));
    }
    if draft.ts.is_some_and(|ts| ts != line.ts) {
        return differs("ts", format!("{:?}", draft.ts));
    }
    if draft.partition.is_some_and(|partition| partition != line.partition) {
        return differs("partition", format!("{:?}", draft.partition));
    }
    if line.sid != draft.sid {
        return differs("sid", format!("{:?}", draft.sid));
    }
    let headers = draft.note.as_ref().map(|note| BTreeMap::from([("x-note".to_owned(), note.clone())]));
    if line.headers != headers {
        return differs("headers", format!("{headers:?}"));
    }
    if line.tags != draft.tags {
        return differs("tags", format!("{:?}", draft.tags));
    }
    Ok(())
}

/// The event follows the one before it.
fn follow(facts: &mut PartitionFacts, line: &Line<'_>, draft: &Draft) -> Result<(), String> {
    if line.offset != facts.next {
        return Err(format!("the offset should be {}", facts.next));
    }
    facts.next += 1;
    let recorded_ts = line.recorded_ts.unwrap_or(line.ts);
    if recorded_ts < facts.last_recorded_ts {
        return Err(format!("it was recorded before the one before it ({})", facts.last_recorded_ts));
    }
    facts.last_recorded_ts = recorded_ts;
    if draft.id.is_none() {
        if line.id.get_version_num() != HUB_ID_VERSION {
            return Err("an id that the hub made must be a UUIDv7".to_owned());
        }
        if facts.last_hub_id.is_some_and(|last| last >= line.id) {
            return Err(format!("its id is not greater than the one before it ({:?})", facts.last_hub_id));
        }
        facts.last_hub_id = Some(line.id);
    }
    Ok(())
}
