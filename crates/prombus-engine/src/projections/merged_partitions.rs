//! The partitions of a topic as one sequence: by recorded time, then by partition, then by offset. It is the same
//! whenever it is read, and so is what is made of it.

use prombus_core::{Event, Page};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// How many events are taken at once.
pub(super) const MOST_EVENTS: usize = 2_000;
/// And about how many bytes of them.
const MOST_BYTES: usize = 2 << 20;
/// However many partitions there are, so many events of each are read at once.
const LEAST_SHARE_EVENTS: usize = 32;
/// And about how many bytes.
const LEAST_SHARE_BYTES: usize = 16 << 10;

/// Where it is in a partition; `next <= taken <= reached <= read`.
#[derive(Debug)]
struct PartitionReader {
    /// The version of its cursor.
    version: u64,
    /// The first offset that is not done.
    next: u64,
    /// The first offset that was not taken.
    taken: u64,
    /// What was read and not taken yet.
    ahead: VecDeque<Event>,
    /// The first offset that is not read.
    read: u64,
}

impl PartitionReader {
    /// Where the events begin that are ahead, or would.
    fn reached(&self) -> u64 {
        self.ahead.front().map_or(self.read, |event| event.offset.0)
    }

    fn forget_ahead(&mut self) {
        self.ahead.clear();
        self.read = self.taken;
    }
}

/// Events in the order in which they are applied.
#[derive(Default)]
pub(super) struct Run {
    pub events: Vec<Event>,
    /// Where it ends in each partition in which it goes on, which may be behind its last event: over removed ones.
    pub ends: BTreeMap<u32, u64>,
    bytes: usize,
}

impl Run {
    fn is_full(&self) -> bool {
        self.events.len() >= MOST_EVENTS || self.bytes >= MOST_BYTES
    }
}

/// What to read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub partition: u32,
    pub from: u64,
    pub limit: usize,
    pub max_bytes: usize,
}

/// All partitions of a topic that are known.
#[derive(Debug, Default)]
pub(super) struct MergedPartitions(Vec<PartitionReader>);

impl MergedPartitions {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Adds one, with its cursor.
    pub fn add(&mut self, version: u64, next: u64) {
        self.0.push(PartitionReader { version, next, taken: next, ahead: VecDeque::new(), read: next });
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What was read and not taken yet.
    pub fn ahead(&self) -> impl Iterator<Item = &Event> {
        self.0.iter().flat_map(|reader| &reader.ahead)
    }

    /// Whether nothing of a partition was ever taken.
    pub fn is_new(&self, partition: u32) -> bool {
        let reader = &self.0[partition as usize];
        reader.version == 0 && reader.taken == reader.next && reader.reached() == reader.next
    }

    /// The version of a cursor.
    pub fn version(&self, partition: u32) -> u64 {
        self.0[partition as usize].version
    }

    /// The first offset that is not done, by partition.
    pub fn done(&self) -> Vec<u64> {
        self.0.iter().map(|reader| reader.next).collect()
    }

    /// The first offset that was not taken, by partition.
    pub fn taken(&self) -> Vec<u64> {
        self.0.iter().map(|reader| reader.taken).collect()
    }

    /// When the first event was recorded that was read and not taken, unless it is at the limit.
    pub fn first_ahead(&self, limit: Option<&[u64]>) -> Option<u64> {
        let place = |event: &Event| (event.recorded_ts, event.partition.0, event.offset.0);
        let (recorded, partition, offset) =
            self.0.iter().filter_map(|reader| reader.ahead.front()).map(place).min()?;
        (offset < end_of(limit, partition)).then_some(recorded)
    }

    /// What was taken up to here is done, and the cursors have moved.
    pub fn land(&mut self, ends: &BTreeMap<u32, u64>) {
        for (partition, end) in ends {
            let reader = &mut self.0[*partition as usize];
            reader.version += 1;
            reader.next = *end;
        }
    }

    /// Takes back everything that is not done.
    pub fn go_back(&mut self) {
        for reader in &mut self.0 {
            reader.taken = reader.next;
            reader.forget_ahead();
        }
    }

    /// Starts to take what was recorded before a time, and what is below `limit` where there is one, which is a place
    /// in the one order. Whoever asks must know that no such event is still to come.
    pub fn take_before<'a>(&'a mut self, before: u64, limit: Option<&'a [u64]>) -> Taking<'a> {
        let (mut due, mut unread) = (BinaryHeap::new(), Vec::new());
        for (partition, reader) in (0..).zip(&self.0) {
            match reader.ahead.front() {
                Some(event) => due.push(Reverse((event.recorded_ts, partition))),
                None => unread.push(partition),
            }
        }
        let is_dry = vec![false; self.0.len()];
        Taking { partitions: self, before, limit, run: Run::default(), due, unread, is_dry, is_done: false }
    }
}

/// Where to stop in a partition.
fn end_of(limit: Option<&[u64]>, partition: u32) -> u64 {
    limit.map_or(u64::MAX, |limit| limit.get(partition as usize).copied().unwrap_or(0))
}

/// A run in the making.
pub(super) struct Taking<'a> {
    partitions: &'a mut MergedPartitions,
    /// Only what was recorded before is taken.
    before: u64,
    /// And what is below these offsets.
    limit: Option<&'a [u64]>,
    run: Run,
    /// Who has something ahead, the first one first.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Who must be read before anything is taken.
    unread: Vec<u32>,
    /// Who has nothing more that is to be taken now than what is ahead.
    is_dry: Vec<bool>,
    is_done: bool,
}

impl Taking<'_> {
    /// Takes as much as it can. Where it has to know more first, that is the answer.
    pub fn go_on(&mut self) -> Option<PageRequest> {
        while self.unread.is_empty() && !self.run.is_full() {
            let Some(Reverse((ts, partition))) = self.due.pop() else { break };
            // What is at the limit is followed by nothing that is below it, in any partition.
            if ts >= self.before
                || self.partitions.0[partition as usize].reached() >= end_of(self.limit, partition)
            {
                break;
            }
            self.take_from(partition);
        }
        let partition = *self.unread.last().filter(|_| !self.run.is_full())?;
        let share = |most: usize, least: usize| (most / self.partitions.0.len()).max(least);
        Some(PageRequest {
            partition,
            from: self.partitions.0[partition as usize].read,
            limit: share(MOST_EVENTS, LEAST_SHARE_EVENTS),
            max_bytes: share(MOST_BYTES, LEAST_SHARE_BYTES),
        })
    }

    /// Takes from a partition until another one comes first.
    fn take_from(&mut self, partition: u32) {
        let end = end_of(self.limit, partition);
        let reader = &mut self.partitions.0[partition as usize];
        let others =
            self.due.peek().map_or((self.before, 0), |Reverse(first)| (*first).min((self.before, 0)));
        while let Some(event) = reader.ahead.front() {
            let is_beyond = event.offset.0 >= end || (event.recorded_ts, partition) >= others;
            if is_beyond || self.run.is_full() {
                self.due.push(Reverse((event.recorded_ts, partition)));
                return;
            }
            self.run.bytes += event.payload.len();
            self.run.events.extend(reader.ahead.pop_front());
        }
        if !self.is_dry[partition as usize] {
            self.unread.push(partition);
        }
    }

    /// Takes note of what was read, as it was wanted; of nothing, where there is no such partition now.
    pub fn read(&mut self, page: Option<Page>) {
        let Some(partition) = self.unread.pop() else { return };
        let is_dry = page.as_ref().is_none_or(|page| page.next >= page.end);
        self.is_dry[partition as usize] = is_dry;
        let Some(page) = page else { return };
        let reader = &mut self.partitions.0[partition as usize];
        reader.read = page.next.0;
        reader.ahead = page.events.into();
        match reader.ahead.front() {
            Some(event) => self.due.push(Reverse((event.recorded_ts, partition))),
            None if is_dry => {}
            None => self.unread.push(partition),
        }
    }

    /// Nothing was read, because what was wanted is gone: goes on at what is kept.
    pub fn skip_to(&mut self, first: u64) {
        if let Some(partition) = self.unread.last() {
            let reader = &mut self.partitions.0[*partition as usize];
            reader.read = reader.read.max(first);
        }
    }

    /// What was taken. Without this nothing was, and nothing was read.
    pub fn done(mut self) -> Run {
        for (partition, reader) in (0..).zip(&mut self.partitions.0) {
            let reached = reader.reached().min(end_of(self.limit, partition));
            if reached > reader.taken {
                self.run.ends.insert(partition, reached);
                reader.taken = reached;
            }
        }
        self.is_done = true;
        std::mem::take(&mut self.run)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.partitions.0.iter_mut().for_each(PartitionReader::forget_ahead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_core::{Json, NewEvent, Offset, Partition, TopicName};
    use proptest::prelude::*;

    type MergeKey = (u64, u32, u64);

    /// A partition as it is in the end: when each event was recorded, and how many offsets were removed before it.
    type Log = Vec<(u64, u64)>;

    /// What happens next.
    #[derive(Debug, Clone)]
    enum Act {
        /// A run is taken; its pages have no more than so many events, and after so many pages reading may fail.
        Take { page: usize, fails_after: Option<usize> },
        /// What was taken is done.
        Land,
        /// What was taken is not done after all.
        Refuse,
        /// Time goes on.
        Wait(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (1usize..5, prop::option::weighted(0.2, 0usize..4))
                .prop_map(|(page, fails_after)| Act::Take { page, fails_after }),
            3 => Just(Act::Land),
            1 => Just(Act::Refuse),
            3 => (1u64..6).prop_map(Act::Wait),
        ]
    }

    fn event(partition: u32, offset: u64, recorded_ts: u64) -> Event {
        let topic = TopicName::parse("t").expect("a name");
        let NewEvent { payload, .. } = NewEvent::new(Json::from_value(&serde_json::json!(offset)));
        Event {
            id: uuid::Uuid::nil(),
            ts: 0,
            recorded_ts,
            topic,
            key: None,
            partition: Partition(partition),
            offset: Offset(offset),
            sid: None,
            headers: Default::default(),
            payload,
            caused_by: None,
            tags: Default::default(),
        }
    }

    /// The events of a partition that are there at a time. Of those of the present moment some are still to come.
    fn visible(partition: u32, log: &Log, now: u64) -> Vec<Event> {
        let mut offset = 0;
        let mut at = |removed: u64| {
            offset += removed + 1;
            offset - 1
        };
        let all = log.iter().map(|(ts, removed)| event(partition, at(*removed), *ts)).collect::<Vec<_>>();
        let before = all.partition_point(|event| event.recorded_ts < now);
        let present = all[before..].partition_point(|event| event.recorded_ts == now);
        let there = before + (present * (partition as usize + now as usize) % 3).min(present);
        all.into_iter().take(there).collect()
    }

    fn page(events: &[Event], wanted: PageRequest, most: usize) -> Page {
        let end = events.last().map_or(0, |event| event.offset.0 + 1);
        let rest = events.iter().filter(|event| event.offset.0 >= wanted.from);
        let events: Vec<Event> = rest.take(most.min(wanted.limit)).cloned().collect();
        let next = events.last().map_or(end.max(wanted.from), |event| event.offset.0 + 1);
        Page { events, next: Offset(next), end: Offset(end.max(wanted.from)) }
    }

    fn places(events: &[Event]) -> Vec<MergeKey> {
        events.iter().map(|event| (event.recorded_ts, event.partition.0, event.offset.0)).collect()
    }

    /// A reader, and what is there to read.
    struct World {
        logs: Vec<Log>,
        partitions: MergedPartitions,
        now: u64,
        done: Vec<MergeKey>,
        /// What was taken and is not done.
        flights: VecDeque<(Vec<MergeKey>, BTreeMap<u32, u64>)>,
    }

    impl World {
        fn take(&mut self, most: usize, fails_after: Option<usize>) {
            // As of now, no event of the past is still to come.
            let mut taking = self.partitions.take_before(self.now, None);
            let mut pages = 0;
            while let Some(wanted) = taking.go_on() {
                if fails_after.is_some_and(|after| pages >= after) {
                    return;
                }
                pages += 1;
                let log = &self.logs[wanted.partition as usize];
                taking.read(Some(page(&visible(wanted.partition, log, self.now), wanted, most)));
            }
            let run = taking.done();
            self.flights.push_back((places(&run.events), run.ends));
        }

        fn act(&mut self, act: &Act) {
            match act {
                Act::Take { page, fails_after } => self.take(*page, *fails_after),
                Act::Land => {
                    for (events, ends) in self.flights.drain(..) {
                        self.done.extend(events);
                        self.partitions.land(&ends);
                    }
                }
                Act::Refuse => {
                    self.flights.clear();
                    self.partitions.go_back();
                }
                Act::Wait(ms) => self.now += ms,
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_the_order_is_one(
            steps in prop::collection::vec(
                prop::collection::vec((0u64..3, prop_oneof![5 => Just(0u64), 1 => 1u64..4]), 0..30), 1..5),
            acts in prop::collection::vec(act(), 0..40),
        ) {
            let recorded = |log: &Log| -> Log {
                let mut ts = 0;
                log.iter().map(|(step, removed)| { ts += step; (ts, *removed) }).collect()
            };
            let logs: Vec<Log> = steps.iter().map(recorded).collect();
            let mut partitions = MergedPartitions::default();
            logs.iter().for_each(|_| partitions.add(0, 0));
            let mut world = World { logs, partitions, now: 0, done: Vec::new(), flights: VecDeque::new() };
            for act in &acts {
                world.act(act);
            }
            world.act(&Act::Wait(1_000));
            world.act(&Act::Take { page: 2, fails_after: None });
            world.act(&Act::Land);
            let mut all: Vec<MergeKey> = Vec::new();
            for (partition, log) in (0..).zip(&world.logs) {
                let events = visible(partition, log, world.now);
                let end = events.last().map_or(0, |event| event.offset.0 + 1);
                prop_assert_eq!(world.partitions.done()[partition as usize], end);
                all.extend(places(&events));
            }
            all.sort_unstable();
            prop_assert_eq!(world.done, all);
            prop_assert_eq!(world.partitions.first_ahead(None), None);
        }
    }

    #[test]
    fn a_run_has_an_end() {
        let mut partitions = MergedPartitions::default();
        (0..2).for_each(|_| partitions.add(0, 0));
        let logs: Vec<Log> = vec![vec![(1, 0); 3_000], vec![(2, 0); 10]];
        let mut lengths = Vec::new();
        loop {
            let mut taking = partitions.take_before(9, None);
            while let Some(wanted) = taking.go_on() {
                assert_eq!(wanted.limit, MOST_EVENTS / 2);
                let events = visible(wanted.partition, &logs[wanted.partition as usize], 9);
                taking.read(Some(page(&events, wanted, usize::MAX)));
            }
            let run = taking.done();
            if run.ends.is_empty() {
                break;
            }
            lengths.push(run.events.len());
        }
        assert_eq!(lengths, [MOST_EVENTS, 1_010]);
    }
}
