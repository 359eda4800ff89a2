//! Reading a topic: where to start, what to leave out, and the token with which a reader goes on.
//!
//! A reader stays with the topic that it began with: it pins the incarnation, and a topic of that name that was made since is
//! another one. What is no longer kept is an error, never passed over in silence. A token says everything that is needed to go
//! on, so no hub remembers a reader.

use crate::filter::{Cost, Filter, FilterError, Turn};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use prombus_core::{
    Event, EventLog, EventLogExt, HistoryRequest, Offset, Partition, ReadError, ReadRequest, TopicName,
    TopicState, TsRequest,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many events one page looks at, matching or not, before it is handed out.
pub const MAX_SCANNED: usize = 20_000;
/// How long a filter may look at events for one page before it is handed out.
const MAX_JUDGED: Duration = Duration::from_secs(1);
/// How many bytes of payload one page has, about, before it is handed out, unless its reader wants smaller ones.
pub const MAX_PAGE_BYTES: usize = 8 << 20;
/// How many bytes of events are read from the log at once.
const READ_BYTES: usize = 1 << 20;
/// How many events are read from the log at once.
const READ_EVENTS: usize = 4_096;

/// Where to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum From {
    /// At the first kept event.
    Earliest,
    /// After the last visible event.
    Latest,
    /// At the first event of each partition whose `ts` is at or after this.
    Ts(u64),
    /// After the event with this id.
    AfterId(Uuid),
    /// At this offset.
    Offset(Offset),
}

/// What to read of a topic.
#[derive(Clone)]
pub struct Query {
    /// Where to start.
    pub from: From,
    /// Only this partition; all, one after the other, where absent.
    pub partition: Option<Partition>,
    /// Only events of this key.
    pub key: Option<String>,
    /// Only events whose `ts` is at or before this.
    pub to_ts: Option<u64>,
    /// Only events that match.
    pub filter: Option<Filter>,
    /// Whether events are raised to the latest version of the topic's schema, before the filter looks at them.
    pub normalize: bool,
}

impl Query {
    /// All events from there on, as they were published.
    pub fn of_all(from: From) -> Self {
        Self { from, partition: None, key: None, to_ts: None, filter: None, normalize: false }
    }
}

/// A part of the answer.
#[derive(Debug)]
pub struct QueryPage {
    /// The events.
    pub events: Vec<Event>,
    /// Where to go on; `None` at the end.
    pub next: Option<QueryPosition>,
    /// How many events were looked at for it, matching or not.
    pub scanned: usize,
    /// Whether it ends here because its filter has taken long.
    pub is_slow: bool,
}

/// A place in the answer to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryPosition {
    partition: Partition,
    /// The first offset not looked at, or for a key the event after which to go on; `None` at the start of the partition.
    offset: Option<Offset>,
}

impl QueryPosition {
    /// The beginning.
    pub const START: Self = Self { partition: Partition(0), offset: None };
}

/// Why a query has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueryError {
    /// The log refused it.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Offsets and ids are places in a partition.
    #[error(
        "this topic has {partitions} partitions: name one with `partition`, since an offset or an event is a place in one of them only"
    )]
    PartitionNeeded {
        /// How many there are.
        partitions: u32,
    },
    /// The place to read from is no longer kept.
    #[error(
        "topic {topic} no longer has the offsets below {first} of partition {partition}: start at offset {first}, or from earliest"
    )]
    Gone {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: Partition,
        /// The first offset of it that is kept.
        first: Offset,
    },
    /// There is no event with that id to start after.
    #[error("there is no event with id {0} to start after, or it is in another partition")]
    UnknownId(Uuid),
    /// The event to start after may have been given up.
    #[error(
        "there is no event with id {id} to start after: it is no longer kept; start {}from earliest",
        .kept.map_or("at a time that is, or ".to_owned(), |(partition, first)| format!("at offset {first} of partition {partition}, or "))
    )]
    IdGone {
        /// The id.
        id: Uuid,
        /// The partition that it was looked for in, and the first offset of that which is kept; `None` where it may
        /// have been in several.
        kept: Option<(Partition, Offset)>,
    },
    /// The token is not one of this hub's.
    #[error("the token is not valid: pass the value of \"next\", or of Last-Event-ID, as it was given")]
    BadToken,
    /// One stream cannot follow so many.
    #[error(
        "the topics that match have more than {limit} partitions, the maximum of one stream: name fewer topics"
    )]
    TooManyPartitions {
        /// The most.
        limit: usize,
    },
}

impl QueryError {
    /// What it means that a partition could not be read.
    pub(crate) fn reading((topic, partition): (&TopicName, Partition), error: ReadError) -> Self {
        match error {
            ReadError::Gone { first } => Self::Gone { topic: topic.clone(), partition, first },
            error => error.into(),
        }
    }
}

/// Why there is no event with an id to start after, in a partition or in any.
pub(crate) async fn missing_id(
    log: &dyn EventLog,
    topic: &TopicState,
    (id, partition): (Uuid, Option<Partition>),
) -> QueryError {
    let all = (0..topic.config.partitions).map(Partition);
    let wanted: Vec<Partition> = all.filter(|one| partition.is_none_or(|wanted| wanted == *one)).collect();
    for partition in &wanted {
        match log.kept(&topic.pinned(), *partition).await {
            // An id alone does not tell whether it was ever one of the partition's.
            Ok(kept) if kept.bounds.first > Offset(0) || kept.has_holes => {
                let kept = (wanted.len() == 1).then_some((*partition, kept.bounds.first));
                return QueryError::IdGone { id, kept };
            }
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
    QueryError::UnknownId(id)
}

/// A query and a place in its answer, as an opaque text that a client can hold.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    topic: u32,
    from: From,
    partition: Option<Partition>,
    key: Option<String>,
    to_ts: Option<u64>,
    filter: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    normalize: bool,
    place: QueryPosition,
}

impl Token {
    /// The token of a place.
    pub fn encode(topic: &TopicState, query: &Query, place: QueryPosition) -> String {
        let token = Self {
            topic: topic.number.0,
            from: query.from,
            partition: query.partition,
            key: query.key.clone(),
            to_ts: query.to_ts,
            filter: query.filter.as_ref().map(|filter| filter.source().to_owned()),
            normalize: query.normalize,
            place,
        };
        BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    /// The query and the place of a token.
    pub async fn decode(topic: &TopicState, text: &str) -> Result<(Query, QueryPosition), QueryError> {
        let bytes = BASE64.decode(text).map_err(|_| QueryError::BadToken)?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| QueryError::BadToken)?;
        if token.topic != topic.number.0 {
            return Err(ReadError::TopicGone(topic.name.clone()).into());
        }
        let filter = match Filter::compile_any(token.filter.as_deref()).await {
            Ok(filter) => filter,
            Err(FilterError::Bad(_)) => return Err(QueryError::BadToken),
            Err(FilterError::Unavailable(error)) => return Err(error.into()),
        };
        let query = Query {
            from: token.from,
            partition: token.partition,
            key: token.key,
            to_ts: token.to_ts,
            filter,
            normalize: token.normalize,
        };
        Ok((query, token.place))
    }
}

/// Where an event is, whatever can be made of it.
fn place_of(found: Result<Option<Event>, ReadError>) -> Result<Option<(Partition, Offset)>, ReadError> {
    match found {
        Err(ReadError::NotRaised { partition, offset, .. }) => Ok(Some((partition, offset))),
        found => Ok(found?.map(|event| (event.partition, event.offset))),
    }
}

/// Reads one topic by one query, page by page.
pub struct Reader {
    log: Arc<dyn EventLog>,
    topic: TopicState,
    query: Query,
    place: QueryPosition,
    /// Where the present partition ended when it was entered, for readers that must come to an end.
    fixed_end: Option<Offset>,
    fix_ends: bool,
    /// Whether what was read last is the last there is.
    at_end: bool,
    max_page_bytes: usize,
}

impl Reader {
    /// A reader at `place`. It follows events that are committed while it reads.
    pub fn new(
        log: Arc<dyn EventLog>,
        topic: TopicState,
        query: Query,
        place: QueryPosition,
    ) -> Result<Self, QueryError> {
        let partitions = topic.config.partitions;
        let reader = Self {
            log,
            topic,
            query,
            place,
            fixed_end: None,
            fix_ends: false,
            at_end: false,
            max_page_bytes: MAX_PAGE_BYTES,
        };
        if let Some(partition) = reader.query.partition
            && partition.0 >= partitions
        {
            let topic = reader.topic.name.clone();
            return Err(ReadError::NoSuchPartition { topic, partitions }.into());
        }
        if reader.place.partition.0 >= partitions {
            return Err(QueryError::BadToken);
        }
        let needs_partition = matches!(reader.query.from, From::AfterId(_) | From::Offset(_));
        if needs_partition && reader.query.partition.is_none() && partitions > 1 {
            return Err(QueryError::PartitionNeeded { partitions });
        }
        Ok(reader)
    }

    /// Makes the reader end each partition where it ended when it was entered.
    #[must_use]
    pub fn up_to_now(mut self) -> Self {
        self.fix_ends = true;
        self
    }

    /// Makes the reader hand out pages of about so many bytes, and at least one event.
    #[must_use]
    pub fn in_pages_of(mut self, bytes: usize) -> Self {
        self.max_page_bytes = bytes;
        self
    }

    /// The topic that is read.
    pub fn topic(&self) -> &TopicState {
        &self.topic
    }

    /// The query that is answered.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// What its filter may cost.
    pub fn cost(&self) -> Cost {
        Filter::cost_of(self.query.filter.as_ref())
    }

    /// The next page, of at most `limit` events. It may be empty and still have a `next`.
    pub async fn next_page(&mut self, limit: usize) -> Result<QueryPage, QueryError> {
        let mut events = Vec::new();
        let (mut scanned, mut bytes) = (0, 0);
        self.at_end = false;
        let mut judged = Duration::ZERO;
        let cost = self.cost();
        while !self.at_end
            && events.len() < limit
            && scanned < MAX_SCANNED
            && bytes < self.max_page_bytes
            && judged < MAX_JUDGED
            // Where it turns out to be costly, whoever asks has to wait with others of that kind.
            && self.cost() == cost
        {
            let turn = Turn::at(self.query.filter.as_ref()).await;
            let batch = match &self.query.key {
                Some(_) => self.next_of_key(limit - events.len()).await,
                None => self.next_of_partitions(limit - events.len()).await,
            };
            let batch = match batch {
                // What is before it is handed out first.
                Err(QueryError::Read(ReadError::NotRaised { .. })) if !events.is_empty() => break,
                batch => batch?,
            };
            let Some((looked_at, batch)) = batch else {
                return Ok(QueryPage { events, next: None, scanned, is_slow: false });
            };
            scanned += looked_at;
            let (start, is_judged) = (Instant::now(), turn.is_some());
            let batch = self.wanted(batch, turn);
            if is_judged {
                judged += start.elapsed();
            }
            for event in batch {
                if events.len() == limit {
                    // More was read than is handed out: the next page starts with this one.
                    let before = self.query.key.as_ref().and(events.last());
                    let Event { partition, offset, .. } = *before.unwrap_or(&event);
                    self.place = QueryPosition { partition, offset: Some(offset) };
                    self.at_end = false;
                    break;
                }
                bytes += event.payload.len();
                events.push(event);
            }
        }
        let is_slow = judged >= MAX_JUDGED;
        Ok(QueryPage { events, next: (!self.at_end).then_some(self.place), scanned, is_slow })
    }

    /// The events of a batch that the query asks for. If that takes long, the rest of the batch is left for the
    /// next page.
    fn wanted(&mut self, mut batch: Vec<Event>, turn: Option<Turn>) -> Vec<Event> {
        let to_ts = self.query.to_ts;
        batch.retain(|event| to_ts.is_none_or(|to| event.ts <= to));
        let Some((filter, turn)) = self.query.filter.as_ref().zip(turn) else { return batch };
        let (wanted, stopped_at) = filter.keep(batch, turn);
        if let Some((partition, offset)) = stopped_at {
            self.at_end = false;
            // In a key's history one goes on after an event, otherwise at an offset.
            let next = if self.query.key.is_some() { offset } else { offset.plus(1) };
            self.place = QueryPosition { partition, offset: Some(next) };
        }
        wanted
    }

    /// Whether no partition is read after this one.
    fn is_last(&self, partition: Partition) -> bool {
        self.query.partition.is_some() || partition.0 + 1 >= self.topic.config.partitions
    }

    /// Some more events and how many that are, or `None` at the end of the last partition.
    async fn next_of_partitions(&mut self, limit: usize) -> Result<Option<(usize, Vec<Event>)>, QueryError> {
        loop {
            let partition = self.query.partition.unwrap_or(self.place.partition);
            let from = match self.place.offset {
                Some(offset) => offset,
                None => self.enter(partition).await?,
            };
            // Without anything to leave out, what is read is what is handed out.
            let everything = self.query.to_ts.is_none() && self.query.filter.is_none();
            let limit = if everything { limit.min(READ_EVENTS) } else { READ_EVENTS };
            let end = self.fixed_end.unwrap_or(Offset(u64::MAX));
            let limit = limit.min(end.0.saturating_sub(from.0) as usize);
            if limit > 0 {
                let topic = self.topic.pinned();
                let request = ReadRequest { topic, partition, from, limit, max_bytes: self.read_bytes() };
                let page = match self.log.read(request).await {
                    // It was given up between the look for the start and this one.
                    Err(ReadError::Gone { .. }) if self.place.offset.is_none() && self.starts_anywhere() => {
                        continue;
                    }
                    page => {
                        page.map_err(|error| QueryError::reading((&self.topic.name, partition), error))?
                    }
                };
                if !page.events.is_empty() {
                    self.at_end = self.is_last(partition) && page.next >= page.end.min(end);
                    self.place = QueryPosition { partition, offset: Some(page.next) };
                    return Ok(Some((page.events.len(), page.events)));
                }
            }
            if self.is_last(partition) {
                self.place = QueryPosition { partition, offset: Some(from) };
                return Ok(None);
            }
            self.place = QueryPosition { partition: Partition(partition.0 + 1), offset: None };
        }
    }

    /// How many bytes are read from the log at once.
    fn read_bytes(&self) -> usize {
        READ_BYTES.min(self.max_page_bytes)
    }

    /// Whether it starts at whatever is kept.
    fn starts_anywhere(&self) -> bool {
        matches!(self.query.from, From::Earliest | From::Latest | From::Ts(_))
    }

    /// Where the query starts in `partition`.
    async fn enter(&mut self, partition: Partition) -> Result<Offset, QueryError> {
        let bounds = self.log.bounds(&self.topic.pinned(), partition).await?;
        self.fixed_end = self.fix_ends.then_some(bounds.next);
        Ok(match self.query.from {
            From::Earliest => bounds.first,
            From::Latest => bounds.next,
            From::Offset(offset) if offset < bounds.first => {
                let topic = self.topic.name.clone();
                return Err(QueryError::Gone { topic, partition, first: bounds.first });
            }
            From::Offset(offset) => offset,
            From::Ts(ts) => {
                let topic = self.topic.pinned();
                self.log.offset_at(TsRequest { topic, partition, ts }).await?
            }
            From::AfterId(id) => match place_of(self.log.by_id(&self.topic.pinned(), id).await)? {
                Some((of, offset)) if of == partition => offset.plus(1),
                Some(_) => return Err(QueryError::UnknownId(id)),
                None => return Err(missing_id(&*self.log, &self.topic, (id, Some(partition))).await),
            },
        })
    }

    /// Some more events of the key and how many were looked at, or `None` at the end. Events before the query's start are
    /// passed over.
    async fn next_of_key(&mut self, limit: usize) -> Result<Option<(usize, Vec<Event>)>, QueryError> {
        let starts = self.starts().await?;
        let Query { from, partition: only, to_ts, filter, .. } = &self.query;
        // Without anything to leave out, what is read is what is handed out. Else each look has to be worth it: it may go through
        // much of what there is of the key.
        let everything =
            matches!(from, From::Earliest) && only.is_none() && to_ts.is_none() && filter.is_none();
        let only = only.or((starts.len() == 1).then_some(Partition(0)));
        let start = only.and_then(|only| Some((only, starts.get(only.0 as usize)?.0.checked_sub(1)?)));
        let after = self.place.offset.map(|offset| (self.place.partition, offset));
        let request = HistoryRequest {
            topic: self.topic.pinned(),
            key: self.query.key.clone().unwrap_or_default(),
            after: after.max(start.map(|(partition, before)| (partition, Offset(before)))),
            limit: if everything { limit.min(READ_EVENTS) } else { READ_EVENTS },
            max_bytes: self.read_bytes(),
        };
        let is_asked_for = |partition: Partition, offset: Offset| {
            self.query.partition.is_none_or(|wanted| wanted == partition)
                && starts.get(partition.0 as usize).is_some_and(|start| offset >= *start)
        };
        let mut events = match self.log.history(request).await {
            // Nobody wants to know what could be made of it.
            Err(ReadError::NotRaised { partition, offset, .. }) if !is_asked_for(partition, offset) => {
                self.place = QueryPosition { partition, offset: Some(offset) };
                return Ok(Some((1, Vec::new())));
            }
            events => events?,
        };
        self.check_place().await?;
        let Some(last) = events.last() else { return Ok(None) };
        self.place = QueryPosition { partition: last.partition, offset: Some(last.offset) };
        let looked_at = events.len();
        events.retain(|event| is_asked_for(event.partition, event.offset));
        Ok(Some((looked_at, events)))
    }

    /// Fails where the place in the history of a key is no longer kept: what came after it may be gone, too.
    async fn check_place(&self) -> Result<(), QueryError> {
        let QueryPosition { partition, offset } = self.place;
        let Some(offset) = offset else { return Ok(()) };
        let first = self.log.bounds(&self.topic.pinned(), partition).await?.first;
        let topic = self.topic.name.clone();
        if offset.plus(1) < first { Err(QueryError::Gone { topic, partition, first }) } else { Ok(()) }
    }

    /// Where the query starts in each partition (for one that is not read, nowhere).
    pub(crate) async fn starts(&mut self) -> Result<Vec<Offset>, QueryError> {
        let mut starts = Vec::new();
        for partition in (0..self.topic.config.partitions).map(Partition) {
            let read = self.query.partition.is_none_or(|wanted| wanted == partition);
            starts.push(match self.query.from {
                _ if !read => Offset(u64::MAX),
                From::Earliest => Offset(0),
                _ => self.enter(partition).await?,
            });
        }
        self.fixed_end = None;
        Ok(starts)
    }
}
