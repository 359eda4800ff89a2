//! Raises events to the latest version of their topic's schema.
//!
//! What raises the events of a topic is made once for each revision of the topic, since whatever is registered moves that
//! on. It is all there or refused: nobody starts to read a topic of which some versions lead nowhere.

use super::judge::{self, VERSION_HEADER};
use super::known::SchemaCache;
use super::stored::Head;
use super::upcast::{Chain, Hop, UpcastError, with_field};
use crate::cache::Cache;
use crate::filter::off_the_runtime;
use parking_lot::Mutex;
use prombus_core::{Event, Json, ReadError, TopicName, TopicNumber, TopicState};
use prombus_schema::Validator;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// What all that is kept counts for at most, by the texts that it is made from.
const KEPT_BYTES: usize = 16 << 20;
/// How long a batch may take before others have their turn.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// A raised payload may take so many times what an event may.
const GROWTH: usize = 2;

/// Processors are the machine's, whichever hub of the process wants one. Whoever has a turn waits for nothing else but the
/// store, and others have turns of their own, so that none waits for the other.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));
/// Turns of those that may take long.
static COSTLY_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((processors() / 2).max(1)));

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Lets its holder raise events for a while.
pub(crate) struct RaiseTurn {
    #[expect(dead_code, reason = "it is there to be dropped")]
    permit: Option<SemaphorePermit<'static>>,
}

/// What raises the events of all topics.
pub(crate) struct Raisers {
    known: Arc<SchemaCache>,
    most_bytes: usize,
    /// Hops that are functions of this process, by topic and version.
    functions: Mutex<Functions>,
    made: Mutex<Cache<(MadeFor, Arc<Raiser>)>>,
}

#[derive(Default)]
struct Functions {
    hops: HashMap<TopicName, HashMap<u32, Hop>>,
    /// Counts their changes.
    changes: u64,
}

/// What a raiser was made for: the topic and its revision, and how many functions there had been.
type MadeFor = (TopicNumber, u64, u64);

/// Raises the events of one topic.
pub(crate) struct Raiser {
    head: Arc<Head>,
    first: u32,
    latest: u32,
    chain: Chain,
    validator: Validator,
    has_tombstones: bool,
}

impl Raisers {
    /// Events have at most so many bytes.
    pub fn new(known: Arc<SchemaCache>, event_bytes: usize) -> Self {
        let most_bytes = event_bytes.saturating_mul(GROWTH);
        Self { known, most_bytes, functions: Mutex::default(), made: Mutex::new(Cache::new(KEPT_BYTES)) }
    }

    /// Raises payloads of a version of a topic by a function from now on, whatever upcaster is stored for it.
    pub fn by_function(&self, topic: &TopicName, from: u32, hop: Hop) {
        let mut functions = self.functions.lock();
        functions.hops.entry(topic.clone()).or_default().insert(from, hop);
        functions.changes += 1;
    }

    /// What raises the events of a topic as it is; `None` where it has no schemas, and its events are what they are.
    pub async fn of(&self, topic: &TopicState) -> Result<Option<Arc<Raiser>>, ReadError> {
        let Some(head) = self.known.head(topic).await? else { return Ok(None) };
        let (functions, changes) = {
            let functions = self.functions.lock();
            (functions.hops.get(&topic.name).cloned().unwrap_or_default(), functions.changes)
        };
        let made_for = (topic.number, topic.revision, changes);
        let key: Arc<str> = topic.name.as_str().into();
        if let Some((known_for, raiser)) = self.made.lock().get(&key)
            && known_for == made_for
        {
            return Ok(Some(raiser));
        }
        let (Some(first), Some(latest)) = (head.versions.first(), head.latest()) else { return Ok(None) };
        let mut hops = Vec::with_capacity(head.versions.len());
        for version in head.versions.iter().map(|known| known.version).filter(|known| *known < latest) {
            let hop = match (functions.get(&version), head.upcasters.get(&version)) {
                (Some(function), _) => function.clone(),
                (None, Some(upcaster)) => {
                    let unusable = |error| match error {
                        UpcastError::Unavailable(error) => error,
                        bad => ReadError::Corrupt(format!("upcaster {version} of {}: {bad}", topic.name)),
                    };
                    Hop::compile(upcaster).await.map_err(unusable)?
                }
                (None, None) => {
                    return Err(ReadError::NoUpcaster { topic: topic.name.clone(), from: version });
                }
            };
            hops.push((version, hop));
        }
        let lost = || ReadError::Corrupt(format!("version {latest} of a schema is not there"));
        let raiser = Arc::new(Raiser {
            first: first.version,
            latest,
            chain: Chain::new(hops, self.most_bytes),
            validator: self.known.validator(&head, latest).await?.ok_or_else(lost)?,
            has_tombstones: topic.config.compaction,
            head: head.clone(),
        });
        let gone = self.made.lock().insert(&key, (made_for, raiser.clone()), head.size());
        // Outside of the lock, because it may take a while.
        drop(gone);
        Ok(Some(raiser))
    }
}

impl Raiser {
    /// Whether it may take long.
    pub fn is_costly(&self) -> bool {
        self.chain.is_costly()
    }

    /// Waits for a turn at raising.
    pub async fn turn(&self) -> RaiseTurn {
        let turns = if self.chain.is_costly() { &COSTLY_TURNS } else { &TURNS };
        // Nobody closes them.
        RaiseTurn { permit: turns.acquire().await.ok() }
    }

    /// Raises one event after the other, as long as there is time: where there is none left, some are missing at the end.
    pub fn raise_some<T>(
        &self,
        events: Vec<T>,
        _turn: RaiseTurn,
        mut raise: impl FnMut(&Self, &T) -> bool,
    ) -> Vec<T> {
        off_the_runtime(|| {
            let start = Instant::now();
            let mut left = events;
            let mut done = 0;
            while let Some(event) = left.get(done)
                && raise(self, event)
            {
                done += 1;
                if start.elapsed() > BATCH_TIME {
                    break;
                }
            }
            left.split_off(done)
        })
    }

    /// An event as one of the latest version, or why it cannot be.
    pub fn raise(&self, event: &Event) -> Result<Event, String> {
        let named = event.headers.as_deref().and_then(judge::named_version);
        let version = match &named {
            None => self.first,
            Some(named) => self.registered(named)?,
        };
        let is_tombstone = self.has_tombstones && event.key.is_some() && event.payload.is_null();
        let payload = match version < self.latest && !is_tombstone {
            true => self.chain.raise(version, &event.payload).map_err(|error| error.to_string())?,
            false => event.payload.clone(),
        };
        if !is_tombstone {
            self.check(&payload)?;
        }
        let headers = match named.is_some() && version == self.latest {
            true => event.headers.clone(),
            false => Some(Box::new(self.stamped(event.headers.as_deref()))),
        };
        Ok(Event { payload, headers, ..event.clone() })
    }

    /// Whether the version that an event names was registered when this was made, or it names none.
    pub fn knows_version_of(&self, event: &Event) -> bool {
        let named = event.headers.as_deref().and_then(judge::named_version);
        named.is_none_or(|named| self.registered(&named).is_ok())
    }

    fn registered(&self, named: &str) -> Result<u32, String> {
        let version = named.parse().ok().filter(|version: &u32| self.head.version(*version).is_some());
        version.ok_or_else(|| format!("its {VERSION_HEADER} is {named:?}, and no such version is registered"))
    }

    fn check(&self, payload: &Json) -> Result<(), String> {
        let faults = self.validator.faults_in(payload.as_bytes());
        let Some(first) = faults.first() else { return Ok(()) };
        let place = if first.path.is_empty() { String::new() } else { format!("{}: ", first.path) };
        let more = match faults.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Err(format!("it violates version {}: {place}{}{more}", self.latest, first.message))
    }

    fn stamped(&self, headers: Option<&Json>) -> Json {
        match headers {
            Some(headers) => with_field(headers, VERSION_HEADER, &format!("\"{}\"", self.latest)),
            None => judge::stamped(None, self.latest),
        }
    }
}
