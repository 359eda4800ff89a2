//! Reads on a store with several sealed parts: pages of a partition, and single events by id, key and time.

use super::context::{self, Context};
use super::load::{self, Ids, KEYS, Maker, Shape, Topic};
use super::stats::Unit;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::{EventLog, HistoryRequest, Offset, Partition, ReadRequest, TopicName, TsRequest};
use prombus_store_disk::DiskStore;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// How many events the store holds.
const EVENTS: u64 = 2_000_000;
/// Events in a commit while the store is filled.
const FILL_BATCH: u64 = 1_000;
/// Events in a page.
const PAGE: usize = 1_000;
/// Events in a page of a key's history.
const HISTORY_PAGE: usize = 100;
/// What a page may hold at most; more than it ever does.
const PAGE_BYTES: usize = 8 << 20;
/// The time of the first event; each is a millisecond later than the one before.
const FIRST_TS: u64 = 1_700_000_000_000;
/// How many single events a thread asks for.
const LOOKUPS: u64 = 200_000;
/// How many threads read at once.
const THREADS: [u64; 2] = [1, 2];

/// The group.
#[derive(Default)]
pub struct Reads {
    filled: Option<Filled>,
}

/// A store with events.
struct Filled {
    store: Arc<DiskStore>,
    topic: TopicName,
    ids: Vec<Uuid>,
}

/// A kind of read: one thread's share of it, and how many events or calls that were.
type Read = fn(&Filled, Share) -> Result<u64, String>;

/// What one thread does.
#[derive(Debug, Clone, Copy)]
struct Share {
    lookups: u64,
    /// The first offset of its part of the partition.
    from: u64,
    /// Where its part ends.
    to: u64,
}

impl Group for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        let filled = match &self.filled {
            Some(filled) => filled,
            None => self.filled.insert(fill(context)?),
        };
        let kinds: [(&str, &'static str, Option<f64>, Read); 5] = [
            ("engine, pages of 1,000", "events", Some(3e6), pages),
            ("engine, get by id", "calls", Some(3e5), by_id),
            ("engine, latest by key", "calls", Some(3e5), latest_by_key),
            ("engine, history of a key, pages of 100", "events", None, history),
            ("engine, offset at a time", "calls", None, offset_at),
        ];
        for (name, what, target, read) in kinds {
            for threads in THREADS {
                let label = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
                let row = Row::of(format!("{name}, {label}"), Unit::PerSecond(what))
                    .target(target.map(Target::AtLeast));
                ledger.record(row, measure(context, filled, threads, read)?);
            }
        }
        Ok(())
    }
}

/// Reads done in a second by so many threads.
fn measure(context: &Context, filled: &Filled, threads: u64, read: Read) -> Result<f64, String> {
    let events = filled.ids.len() as u64;
    let share = |thread: u64| Share {
        lookups: context.scaled(LOOKUPS),
        from: events * thread / threads,
        to: events * (thread + 1) / threads,
    };
    let start = Instant::now();
    let done = std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || read(filled, share(thread)))).collect();
        readers.into_iter().try_fold(0, |sum, reader| {
            Ok::<u64, String>(sum + reader.join().map_err(|_| "a reader panicked")??)
        })
    })?;
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

fn fill(context: &Context) -> Result<Filled, String> {
    let dir = context.fresh_dir("reads")?;
    let events = context.scaled(EVENTS);
    load::runtime()?.block_on(async {
        let store = load::open_store(&dir, context.part_bytes())?;
        let topic = Topic::create(&store, "bench").await?;
        let maker = Maker::new(Shape { ids: Ids::Own, keys: true })?;
        let mut ids = Vec::with_capacity(events as usize);
        for number in 0..events / FILL_BATCH {
            let mut commit = maker.commit(&topic, FILL_BATCH);
            let made = Arc::get_mut(&mut commit).ok_or("a new commit is shared already")?;
            for (append, offset) in made.events.iter_mut().zip(number * FILL_BATCH..) {
                append.event.ts = Some(FIRST_TS + offset);
                ids.extend(append.event.id);
            }
            load::send(&store, commit).await?;
        }
        topic.check(&store, events).await?;
        // Opened again, so that all full parts are read from their indexes on disk.
        store.close().await;
        drop(store);
        context::settle();
        let store = load::open_store(&dir, context.part_bytes())?;
        Ok(Filled { store, topic: topic.name, ids })
    })
}

fn pages(filled: &Filled, share: Share) -> Result<u64, String> {
    load::runtime()?.block_on(async {
        let mut next = share.from;
        while next < share.to {
            let request = ReadRequest {
                topic: (&filled.topic).into(),
                partition: Partition(0),
                from: Offset(next),
                limit: PAGE.min((share.to - next) as usize),
                max_bytes: PAGE_BYTES,
            };
            let wanted = request.limit;
            let page = filled.store.read(request).await.map_err(|error| error.to_string())?;
            let right = page.events.len() == wanted && page.events[0].offset.0 == next;
            expect(right, || format!("the page at {next} is not what was asked for"))?;
            next = page.next.0;
        }
        Ok(share.to - share.from)
    })
}

fn by_id(filled: &Filled, share: Share) -> Result<u64, String> {
    load::runtime()?.block_on(async {
        for _ in 0..share.lookups {
            let offset = fastrand::usize(..filled.ids.len());
            let found = filled.store.by_id(&(&filled.topic).into(), filled.ids[offset]).await;
            let found = found.map_err(|error| error.to_string())?;
            let right = found.is_some_and(|event| event.offset.0 == offset as u64);
            expect(right, || format!("the event at {offset} was not found by its id"))?;
        }
        Ok(share.lookups)
    })
}

fn latest_by_key(filled: &Filled, share: Share) -> Result<u64, String> {
    load::runtime()?.block_on(async {
        for _ in 0..share.lookups {
            let key = load::key(fastrand::usize(..KEYS));
            let found = filled.store.latest_by_key(&(&filled.topic).into(), &key).await;
            let found = found.map_err(|error| error.to_string())?;
            let right = found.is_some_and(|event| event.key.as_ref() == Some(&key));
            expect(right, || format!("the latest event of {key} was not found"))?;
        }
        Ok(share.lookups)
    })
}

fn history(filled: &Filled, share: Share) -> Result<u64, String> {
    load::runtime()?.block_on(async {
        let mut seen = 0;
        while seen < share.lookups {
            let request = HistoryRequest {
                topic: (&filled.topic).into(),
                key: load::key(fastrand::usize(..KEYS)).to_string(),
                after: None,
                limit: HISTORY_PAGE,
                max_bytes: PAGE_BYTES,
            };
            let events = filled.store.history(request).await.map_err(|error| error.to_string())?;
            let grows = events.windows(2).all(|pair| pair[0].offset < pair[1].offset);
            expect(!events.is_empty() && grows, || "a history is not in order".to_owned())?;
            seen += events.len() as u64;
        }
        Ok(seen)
    })
}

fn offset_at(filled: &Filled, share: Share) -> Result<u64, String> {
    load::runtime()?.block_on(async {
        for _ in 0..share.lookups {
            let offset = fastrand::u64(..filled.ids.len() as u64);
            let request =
                TsRequest { topic: (&filled.topic).into(), partition: Partition(0), ts: FIRST_TS + offset };
            let found = filled.store.offset_at(request).await.map_err(|error| error.to_string())?;
            expect(found.0 == offset, || format!("offset {offset} was not found by its time"))?;
        }
        Ok(share.lookups)
    })
}

fn expect(right: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(what()) }
}
