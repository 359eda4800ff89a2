//! Space of events that were given up is given back, and nothing else goes with it.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::disk::Disk;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How many rounds of publishing and giving up the workload has.
const ROUNDS: u64 = 12;
/// How many events a round publishes.
const EVENTS: u64 = 12;
/// What a commit of one event takes on disk, at most.
const MOST_PER_EVENT: u64 = 1024;

fn topic() -> TopicName {
    name("t")
}

fn event(n: u64) -> NewEvent {
    NewEvent {
        id: (!n.is_multiple_of(3)).then(|| Uuid::from_u128(u128::from(n) + 1)),
        key: Some(format!("key-{}", n % 7).into()),
        ..NewEvent::new(payload(n, 0))
    }
}

/// The payload of each event that is kept, by offset, as the answers say.
type Expected = BTreeMap<u64, u64>;

async fn published(store: &DiskStore, numbers: impl Iterator<Item = u64>) -> Result<Receipt, CommitError> {
    let placement = Placement::Named(Partition(0));
    let append = |n| Append { topic: topic(), placement, expect: None, event: event(n) };
    let auto_create = Some(Arc::new(NewTopics { configs: [(topic(), TopicConfig::default())].into() }));
    store.commit(Arc::new(Commit { auto_create, ..numbers.map(append).collect::<Vec<_>>().into() })).await
}

async fn give_up(store: &DiskStore, round: u64, expected: &Expected) -> Result<Vec<u64>, CommitError> {
    let (topic, partition, loss) = (topic(), Partition(0), Loss { bytes: 0, horizon_ts: Some(round) });
    let offsets: Vec<u64> = match round % 4 {
        3 => expected.keys().copied().take(expected.len() / 3).collect(),
        _ => expected.keys().copied().filter(|offset| offset % 5 != round % 5).collect(),
    };
    let change = match (round % 4, offsets.last()) {
        (3, Some(last)) => {
            ConfigChange::Trim { topic: (&topic).into(), partition, before: Offset(last + 1), loss }
        }
        _ => {
            let offsets = Arc::new(offsets.iter().copied().map(Offset).collect());
            ConfigChange::Discard { topic: (&topic).into(), partition, offsets, loss }
        }
    };
    store.commit(Arc::new(Commit { config: vec![change], ..Commit::default() })).await?;
    Ok(offsets)
}

/// What is kept, and what was under way when the machine went down.
#[derive(Debug, Default)]
struct Outcome {
    kept: Expected,
    publishing: Expected,
    giving_up: Vec<u64>,
}

async fn run(disk: &SimDisk) -> Outcome {
    let mut outcome = Outcome::default();
    let Ok(store) = open(disk) else { return outcome };
    for round in 0..ROUNDS {
        let numbers = round * EVENTS..(round + 1) * EVENTS;
        outcome.publishing = numbers.clone().map(|n| (n, n)).collect();
        if published(&store, numbers).await.is_err() {
            return outcome;
        }
        outcome.kept.append(&mut outcome.publishing);
        outcome.giving_up = outcome.kept.keys().copied().collect();
        match give_up(&store, round, &outcome.kept).await {
            Ok(gone) => outcome.kept.retain(|offset, _| !gone.contains(offset)),
            Err(_) => return outcome,
        }
        outcome.giving_up.clear();
    }
    store.close().await;
    outcome
}

/// Everything that is kept, read in pages of a few.
async fn all(store: &DiskStore) -> Expected {
    let topic = TopicRef::from(&topic());
    let Ok(bounds) = store.bounds(&topic, Partition(0)).await else { return Expected::new() };
    let (mut from, mut found) = (bounds.first, Expected::new());
    while from < bounds.next {
        let (topic, partition) = (topic.clone(), Partition(0));
        let request = ReadRequest { topic, partition, from, limit: 5, max_bytes: usize::MAX };
        let page = store.read(request).await.unwrap();
        for event in &page.events {
            let n = event.payload.to_value().unwrap()["commit"].as_u64().unwrap();
            assert_eq!(event.payload, payload(n, 0));
            found.insert(event.offset.0, n);
        }
        from = page.next;
    }
    found
}

async fn verify(store: &DiskStore, kept: &Expected, what: &str) {
    assert_eq!(all(store).await, *kept, "{what}");
    if store.topic(&topic()).await.unwrap().is_none() {
        return;
    }
    let topic = TopicRef::from(&topic());
    for key in 0..7 {
        let key = format!("key-{key}");
        let request = |after| HistoryRequest {
            topic: topic.clone(),
            key: key.clone(),
            after,
            limit: 3,
            max_bytes: usize::MAX,
        };
        let mut history: Vec<u64> = Vec::new();
        let mut after = None;
        loop {
            let page = store.history(request(after)).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.partition, last.offset));
            history.extend(page.iter().map(|event| event.offset.0));
        }
        let wanted: Vec<u64> =
            kept.iter().filter(|(_, n)| format!("key-{}", **n % 7) == key).map(|(at, _)| *at).collect();
        assert_eq!(history, wanted, "{what}: {key}");
        let latest = store.latest_by_key(&topic, &key).await.unwrap();
        assert_eq!(latest.map(|event| event.offset.0), wanted.last().copied(), "{what}: {key}");
    }
}

/// Every id is recognised, with what it was used for, whether its event is kept or not.
async fn ids_are_recognised(store: &DiskStore, published_events: u64, what: &str) {
    for n in (0..published_events).filter(|n| event(*n).id.is_some()) {
        let receipt = published(store, [n].into_iter()).await.unwrap();
        let (found, wanted) = (receipt.events[0], (true, Offset(n)));
        assert_eq!((found.duplicate, found.offset), wanted, "{what}: event {n} again");
    }
    let other = NewEvent { id: event(1).id, ..event(2) };
    let append = Append { placement: Placement::Named(Partition(0)), ..Append::new(topic(), other) };
    let refused = store.commit(Arc::new(vec![append].into())).await.unwrap_err();
    assert!(matches!(refused, CommitError::IdConflict { .. }), "{what}: {refused}");
}

fn rewritten(disk: &SimDisk) -> usize {
    let is_rewritten = |name: &str| name.ends_with(".part") && name.contains('-');
    disk.files().iter().filter(|(path, _)| is_rewritten(&path.file_name().unwrap().to_string_lossy())).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_parts_are_rewritten_and_the_rest_stays() {
    let disk = SimDisk::new();
    let outcome = run(&disk).await;
    let store = open(&disk).unwrap();
    let before = disk.used();
    // A part is rewritten once two checkpoints are behind it, which follow from more to write.
    let mut n = ROUNDS * EVENTS;
    let mut kept = outcome.kept;
    while rewritten(&disk) == 0 {
        published(&store, [n].into_iter()).await.unwrap();
        kept.insert(n, n);
        n += 1;
        assert!(n < 100_000, "nothing is ever rewritten");
    }
    verify(&store, &kept, "after a rewrite").await;
    ids_are_recognised(&store, n, "after a rewrite").await;
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    let store = open(&disk).unwrap();
    verify(&store, &kept, "after a restart").await;
    ids_are_recognised(&store, n, "after a restart").await;
    // When everything is given up, almost everything is given back.
    let trim = ConfigChange::Trim {
        topic: (&topic()).into(),
        partition: Partition(0),
        before: Offset(u64::MAX),
        loss: Loss::default(),
    };
    store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
    let delete = ConfigChange::DeleteTopic { name: topic() };
    store.commit(Arc::new(Commit { config: vec![delete], ..Commit::default() })).await.unwrap();
    let mut since = 0;
    while store.status().extra("dead_bytes") > 0 || disk.used() > before + since * MOST_PER_EVENT {
        // The rewriter works beside, and nobody is told when it is done.
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Each time another event: what was there before is recognised, and nothing is written.
        published(&store, [n + since].into_iter()).await.unwrap();
        since += 1;
    }
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// A part is not full for a long time where little is published: its dead events need not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_in_the_part_that_is_being_written_is_given_back() {
    let disk = SimDisk::new();
    let open = || {
        let options = DiskOptions { part_bytes: 256 << 10, ..options() };
        DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let store = open();
    let events = 500;
    published(&store, 0..events).await.unwrap();
    let offsets = Arc::new((0..events).filter(|offset| offset % 10 > 0).map(Offset).collect());
    let (topic, partition) = ((&topic()).into(), Partition(0));
    let discard = ConfigChange::Discard { topic, partition, offsets, loss: Loss::default() };
    store.commit(Arc::new(Commit { config: vec![discard], ..Commit::default() })).await.unwrap();
    let first = std::path::Path::new(DIR).join("journal/0000000001.part");
    let has = |kind: &str| {
        disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == kind)).count()
    };
    let is_done = async {
        while disk.files().iter().any(|(path, _)| *path == first) || has("state") < 2 {
            // The rewriter works beside, and nobody is told when it is done.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(25), is_done).await.unwrap();
    let kept: Expected = (0..events).step_by(10).map(|n| (n, n)).collect();
    verify(&store, &kept, "after a rewrite").await;
    ids_are_recognised(&store, events, "after a rewrite").await;
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    let store = open();
    verify(&store, &kept, "after a restart").await;
}

/// A part is not rewritten while most of it is kept. The dead events of a key in it hold up those who ask for its latest event
/// once, and not each time, whether its index is in memory or on the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_of_a_key_are_gone_over_once() {
    const DEAD: u64 = 400;
    for part_bytes in [1 << 20, 128 << 10] {
        let disk = SimDisk::new();
        let open = || {
            let options = DiskOptions { part_bytes, reclaims: false, ..options() };
            DiskStore::open_on(Arc::new(disk.clone()), options).unwrap()
        };
        let append = |(partition, key): (u32, &str), expect| {
            let event = NewEvent { key: Some(key.into()), ..NewEvent::new(payload(0, 0)) };
            Append {
                placement: Placement::Named(Partition(partition)),
                expect,
                ..Append::new(topic(), event)
            }
        };
        let store = open();
        let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
        let create = ConfigChange::CreateTopic { name: topic(), config };
        store.commit(Arc::new(Commit { config: vec![create], ..Commit::default() })).await.unwrap();
        for (place, events) in [((0, "dead"), DEAD), ((1, "kept"), 2 * DEAD)] {
            let appends: Vec<Append> = (0..events).map(|_| append(place, None)).collect();
            store.commit(Arc::new(appends.into())).await.unwrap();
        }
        let (partition, before) = (Partition(0), Offset(DEAD));
        let trim = ConfigChange::Trim { topic: (&topic()).into(), partition, before, loss: Loss::default() };
        store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
        store.close().await;
        drop(store);
        let store = open();
        let reads = async || {
            let before = disk.reads();
            let expect = Some(Expect { last_id: Some(Uuid::from_u128(1)) });
            let refused = store.commit(Arc::new(vec![append((0, "dead"), expect)].into())).await.unwrap_err();
            assert!(matches!(refused, CommitError::ExpectationFailed { actual: None, .. }), "{refused}");
            disk.reads() - before
        };
        let (first, second) = (reads().await, reads().await);
        assert!(first >= DEAD && second < DEAD / 10, "{first} reads, and then {second}");
        let before = disk.reads();
        assert_eq!(store.latest_by_key(&(&topic()).into(), "dead").await.unwrap(), None);
        assert!(disk.reads() - before < DEAD / 10, "who reads knows it, too");
        let expect = Some(Expect { last_id: None });
        let receipt = store.commit(Arc::new(vec![append((0, "dead"), expect)].into())).await.unwrap();
        let latest = store.latest_by_key(&(&topic()).into(), "dead").await.unwrap().unwrap();
        assert_eq!(latest.id, receipt.events[0].id);
        let other = store.latest_by_key(&(&topic()).into(), "kept").await.unwrap().unwrap();
        assert_eq!(other.offset, Offset(2 * DEAD - 1));
        store.close().await;
    }
}

/// What retention takes as a whole is dropped, and nothing is written for it but the commits that say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_are_dead_as_a_whole_are_dropped_and_not_rewritten() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    let first = std::path::Path::new(DIR).join("journal/0000000001.part");
    let is_there = || disk.files().iter().any(|(path, _)| *path == first);
    let mut n = 0;
    while is_there() {
        // The hub makes the ids of these, so nothing has to be remembered of them.
        published(&store, (0..EVENTS).map(|i| 3 * (n + i))).await.unwrap();
        n += EVENTS;
        let (topic, partition) = ((&topic()).into(), Partition(0));
        let trim = ConfigChange::Trim { topic, partition, before: Offset(n), loss: Loss::default() };
        store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
        assert!(n < 100_000, "the first part is never dropped");
    }
    let status = store.status();
    assert!(status.extra("reclaimed_bytes") > 0);
    assert_eq!((status.extra("rewritten_bytes"), rewritten(&disk)), (0, 0));
    store.close().await;
}

/// What earlier builds left where they were killed in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_without_its_part_is_told_of_and_removed() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    let path = std::path::Path::new(DIR).join("journal/0000000001.index");
    let (mut n, mut index) = (0, Vec::new());
    while index.is_empty() {
        published(&store, n..n + 1).await.unwrap();
        n += 1;
        index = disk.bytes(&path);
    }
    while !disk.bytes(&path).is_empty() {
        // The rewriter works beside, and nobody is told when it is done.
        tokio::time::sleep(Duration::from_millis(1)).await;
        published(&store, n..n + 1).await.unwrap();
        n += 1;
        trim_all(&store).await;
    }
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
    put(&disk, &path, &index);
    let problems = check(&disk);
    assert!(matches!(&problems[..], [one] if one.contains("0000000001.index")), "{problems:?}");
    open(&disk).unwrap().close().await;
    assert_eq!(disk.bytes(&path), b"");
    assert_eq!(check(&disk), [""; 0]);
}

fn part(number: u32) -> std::path::PathBuf {
    std::path::Path::new(DIR).join(format!("journal/{number:010}.part"))
}

fn is_there(disk: &SimDisk, path: &std::path::Path) -> bool {
    disk.files().iter().any(|(other, _)| other == path)
}

async fn trim_all(store: &DiskStore) {
    let (topic, partition) = ((&topic()).into(), Partition(0));
    let trim = ConfigChange::Trim { topic, partition, before: Offset(u64::MAX), loss: Loss::default() };
    store.commit(Arc::new(Commit { config: vec![trim], ..Commit::default() })).await.unwrap();
}

/// A disk with several full parts, with a flipped bit in an event of each of these, and which bits those are.
async fn with_flipped(numbers: &[u32]) -> (SimDisk, Vec<(std::path::PathBuf, usize)>) {
    let disk = SimDisk::new();
    let store = open_keeping(&disk).unwrap();
    let mut n = 0;
    while !is_there(&disk, &part(8)) {
        published(&store, n..n + EVENTS).await.unwrap();
        n += EVENTS;
    }
    store.close().await;
    let in_event = |number: &u32| {
        let bytes = disk.bytes(&part(*number));
        let at = bytes.windows(8).position(|window| window == b"\"commit\"").unwrap();
        (part(*number), 8 * at)
    };
    let flipped: Vec<_> = numbers.iter().map(in_event).collect();
    flipped.iter().for_each(|(path, bit)| disk.flip(path, *bit));
    (disk, flipped)
}

/// One damaged part is no reason for others to stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_part_keeps_nothing_but_itself() {
    let (disk, flipped) = with_flipped(&[2]).await;
    let store = open(&disk).unwrap();
    trim_all(&store).await;
    comes_true("other parts go", || [1, 3, 4].iter().all(|number| !is_there(&disk, &part(*number)))).await;
    assert!(is_there(&disk, &part(2)));
    let is_stuck = || store.status().extra("reclaiming_stuck") == 1;
    comes_true("it is told", is_stuck).await;
    // The medium answers again.
    flipped.iter().for_each(|(path, bit)| disk.flip(path, *bit));
    comes_true("it goes as well", || !is_there(&disk, &part(2)) && !is_stuck()).await;
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// What nobody needs is dropped, and not read for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_part_goes_when_nothing_of_it_is_needed() {
    let (disk, _) = with_flipped(&[1, 2, 3]).await;
    let clock = Arc::new(ManualClock::at(1_000_000));
    let options = DiskOptions { clock: clock.clone(), ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    // No id of that time is recognised any more.
    clock.advance(TopicConfig::default().dedupe_window_ms + 1);
    trim_all(&store).await;
    comes_true("all go", || [1, 2, 3, 4].iter().all(|number| !is_there(&disk, &part(*number)))).await;
    assert_eq!(store.status().extra("reclaiming_stuck"), 0);
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// Others who use the disk come first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewriting_keeps_to_its_budget() {
    let (disk, _) = with_flipped(&[]).await;
    let options = DiskOptions { rewrite_bytes_per_s: 10_000, ..options() };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options).unwrap();
    let began = std::time::Instant::now();
    trim_all(&store).await;
    comes_true("parts go", || [1, 2, 3, 4].iter().all(|number| !is_there(&disk, &part(*number)))).await;
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    store.close().await;
}

/// Gives up these events of a folder, has its first part rewritten, and closes it.
async fn rewritten_without(disk: &SimDisk, gone: impl Iterator<Item = u64>) {
    let store = open(disk).unwrap();
    let (topic, partition) = ((&topic()).into(), Partition(0));
    let offsets = Arc::new(gone.map(Offset).collect());
    let discard = ConfigChange::Discard { topic, partition, offsets, loss: Loss::default() };
    store.commit(Arc::new(Commit { config: vec![discard], ..Commit::default() })).await.unwrap();
    comes_true("it is rewritten", || !is_there(disk, &part(1)) && rewritten(disk) > 0).await;
    store.close().await;
}

/// Files that fit each other, and lack an event that nobody has given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_misses_an_event_that_a_rewrite_lost() {
    let (disk, _) = with_flipped(&[]).await;
    let other = disk.copy();
    other.restart(1);
    // All of a commit are in one part.
    rewritten_without(&disk, (0..EVENTS).filter(|offset| ![3, 7].contains(offset))).await;
    rewritten_without(&other, (0..EVENTS).filter(|offset| *offset != 3)).await;
    assert_eq!((check(&disk), check(&other)), (Vec::<String>::new(), Vec::new()));
    let names = |disk: &SimDisk| -> Vec<std::path::PathBuf> {
        let paths = disk.files().into_iter().map(|(path, _)| path);
        paths.filter(|path| path.file_stem().unwrap().to_string_lossy().contains("-0000000001")).collect()
    };
    let names = (names(&disk), names(&other));
    assert!(names.0 == names.1 && !names.0.is_empty(), "{names:?}");
    for path in &names.0 {
        disk.remove(path).unwrap();
        put(&disk, path, &other.bytes(path));
    }
    let problems = check(&disk);
    assert!(
        matches!(&problems[..], [one] if one.contains("1 events of topic t, partition 0") && one.contains("offset 7")),
        "{problems:?}"
    );
}

async fn crash_everywhere(crash: Crash) {
    let whole = SimDisk::new();
    run(&whole).await;
    let operations = whole.operations();
    for at in 1..=operations + 3 {
        let what = format!("{crash:?} in operation {at} of {operations}");
        let disk = SimDisk::new();
        disk.restart(at * 31);
        disk.crash_at(at, crash);
        let outcome = run(&disk).await;
        disk.crash(crash);
        disk.restart(at * 1_000);
        let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_indexes_have_parts(&disk, &what);
        let found = all(&store).await;
        let is_gone = |offset: &u64| outcome.giving_up.contains(offset);
        for (offset, n) in &outcome.kept {
            assert!(found.get(offset) == Some(n) || is_gone(offset), "{what}: {outcome:?}, found {found:?}");
        }
        for (offset, n) in &found {
            let wanted = outcome.kept.get(offset).or(outcome.publishing.get(offset));
            assert_eq!(wanted, Some(n), "{what}: nothing that was given up comes back");
        }
        verify(&store, &found, &what).await;
        store.close().await;
        drop(store);
        assert_eq!(check(&disk), [""; 0], "{what}");
        assert_indexes_have_parts(&disk, &what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_while_space_is_given_back_loses_nothing() {
    crash_everywhere(Crash::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_while_space_is_given_back_loses_nothing() {
    crash_everywhere(Crash::PowerCut).await;
}
