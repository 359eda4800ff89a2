//! The machine goes down in the middle of every operation that the engine does to the disk, or an operation fails;
//! what was answered is there afterwards, once, and what was not is there as a whole or not at all.

use crate::support::*;
use prombus_core::*;
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::{Crash, Fault};
use std::path::Path;
use std::sync::Arc;

/// How many commits the workload has.
const COMMITS: u64 = 24;

/// Which commits of each topic were answered.
#[derive(Default, Debug, Clone)]
struct Answered {
    sync: Vec<u64>,
    interval: Vec<u64>,
}

/// Runs the workload until it is done or the machine goes down.
async fn run(disk: &SimDisk) -> Answered {
    let mut answered = Answered::default();
    let Ok(store) = open(disk) else { return answered };
    for (topic, durability) in [("sync", Durability::Sync), ("interval", Durability::Interval)] {
        if store.commit(Arc::new(create(topic, durability))).await.is_err() {
            return answered;
        }
    }
    for n in 0..COMMITS {
        let (topic, list) =
            if n % 3 == 2 { ("interval", &mut answered.interval) } else { ("sync", &mut answered.sync) };
        let commit = numbered(&store, topic, n).await;
        match store.commit(Arc::new(commit)).await {
            Ok(_) => list.push(n),
            Err(_) => break,
        }
    }
    answered
}

/// Opens the disk again and checks what is there.
async fn verify(disk: &SimDisk, answered: &Answered, crash: Crash, what: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let there = commits_there(&store, "sync").await;
    assert!(there.starts_with(&answered.sync), "{what}: answered {answered:?}, there {there:?}");
    assert!(there.len() <= answered.sync.len() + 1, "{what}: at most the one under way may be there besides");
    assert_eq!(counter(&store).await, there.len() as u64, "{what}: each commit counts once");
    assert_eq!(items(&store).await, items_after(&there), "{what}");
    assert_eq!(items_by_group(&store).await, items_after(&there), "{what}");
    if store.collection("items").await.unwrap().is_some() {
        items_are_indexed(&store).await;
        assert_eq!(items_by_group(&store).await, items_after(&there), "{what}");
    }
    let interval = commits_there(&store, "interval").await;
    let (short, long) = if interval.len() < answered.interval.len() {
        assert_eq!(crash, Crash::PowerCut, "{what}: only a power cut may take a suffix");
        (&interval, &answered.interval)
    } else {
        (&answered.interval, &interval)
    };
    assert!(long.starts_with(short), "{what}: answered {answered:?}, there {interval:?}");
    go_on(&store, &there, what).await;
    store.close().await;
    drop(store);
    assert_eq!(check(disk), [""; 0], "{what}");
}

/// The store goes on: what may be there is recognised, and new commits follow without a gap.
async fn go_on(store: &DiskStoreRef, there: &[u64], what: &str) {
    if store.topic(&name("sync")).await.unwrap().is_none() {
        return;
    }
    if let Some(last) = there.last() {
        let mut again = numbered(store, "sync", *last).await;
        again.events.truncate(1);
        (again.documents, again.config) = (Vec::new(), Vec::new());
        let receipt = store.commit(Arc::new(again)).await.unwrap();
        assert!(receipt.events[0].duplicate, "{what}: a retry is recognised after the crash");
    }
    let new = numbered(store, "sync", COMMITS).await;
    store.commit(Arc::new(new)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut expected = there.to_vec();
    expected.push(COMMITS);
    assert_eq!(commits_there(store, "sync").await, expected, "{what}");
    assert_eq!(items(store).await, items_after(&expected), "{what}");
    assert_eq!(items_by_group(store).await, items_after(&expected), "{what}");
}

fn table_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(".table")?.parse().ok()
}

type DiskStoreRef = prombus_store_disk::DiskStore;

/// How many operations the workload takes, having seen that it does all that is to be interrupted.
async fn operations_of_a_run() -> u64 {
    // How far merges come before the store is closed is up to the machine, so several runs may have to show them.
    for _ in 0..50 {
        let disk = SimDisk::new();
        run(&disk).await;
        let tables: Vec<u64> = disk.files().iter().filter_map(|(path, _)| table_number(path)).collect();
        assert!(disk.operations() > 60, "the workload does enough to be interrupted: {}", disk.operations());
        assert!(!tables.is_empty(), "rows are put into tables");
        if tables.last() > Some(&(tables.len() as u64)) {
            return disk.operations();
        }
    }
    panic!("tables are never merged and let go");
}

async fn crash_everywhere(crash: Crash, lives: u64) {
    let operations = operations_of_a_run().await;
    for at in 1..=operations + 3 {
        for life in 0..lives {
            let what = format!("{crash:?} in operation {at} of {operations}, life {life}");
            let disk = SimDisk::new();
            disk.restart(at * 31 + life);
            disk.crash_at(at, crash);
            let answered = run(&disk).await;
            disk.crash(crash);
            disk.restart(at * 1_000 + life);
            verify(&disk, &answered, crash, &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_every_operation_loses_nothing() {
    crash_everywhere(Crash::Kill, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_every_operation_loses_nothing_that_was_flushed() {
    crash_everywhere(Crash::PowerCut, 4).await;
}

/// The machine goes down again while it recovers, over and over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_during_recovery_lose_nothing() {
    for seed in 0..40 {
        let disk = SimDisk::new();
        disk.restart(seed);
        disk.crash_at(40 + seed * 3, Crash::PowerCut);
        let answered = run(&disk).await;
        disk.crash(Crash::PowerCut);
        for again in 1..12 {
            disk.restart(seed * 100 + again);
            disk.crash_at(again, Crash::PowerCut);
            drop(open(&disk));
            disk.crash(Crash::PowerCut);
        }
        disk.restart(seed);
        verify(&disk, &answered, Crash::PowerCut, &format!("seed {seed}")).await;
    }
}

/// What a reader has seen is not taken back, also where it was found unflushed at the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_shown_after_a_kill_survives_a_power_cut() {
    for at in 20..110 {
        let disk = SimDisk::new();
        disk.restart(at);
        disk.crash_at(at, Crash::Kill);
        run(&disk).await;
        disk.crash(Crash::Kill);
        disk.restart(at);
        let mut shown = Vec::new();
        for cut in 0..3 {
            let store = open(&disk).unwrap();
            let there = (commits_there(&store, "sync").await, commits_there(&store, "interval").await);
            shown.push(there);
            assert_eq!(shown[0], shown[cut], "operation {at}, power cut {cut}");
            disk.crash(Crash::PowerCut);
            drop(store);
            disk.restart(at * 7 + cut as u64);
        }
    }
}

/// What became of the commits that need no luck: those of the topic `sync`.
#[derive(Default, Debug)]
struct Outcomes {
    answered: Vec<u64>,
    refused: Vec<u64>,
    /// Those of which it is not known whether they happened.
    unknown: Vec<u64>,
    /// Notes that were answered, one after each commit that was refused.
    notes: Vec<u64>,
}

/// So small that it fits where the commit before it did not.
fn note(n: u64) -> Commit {
    let write = DocumentWrite::new("notes", n.to_string(), WriteOp::Set(Json::parse("{}".into()).unwrap()));
    Commit { documents: vec![write], ..Commit::default() }
}

/// When and how a run ends.
#[derive(Debug, Clone, Copy)]
struct End {
    /// Whether it ends after the first commit that is refused, or goes on to the end of the workload.
    early: bool,
    /// A clean stop if there is none.
    crash: Option<Crash>,
}

/// Runs the workload, whatever is refused on the way, and then lets the process end.
async fn run_on(disk: &SimDisk, end: End) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let Ok(store) = open(disk) else { return outcomes };
    // Whether a topic is there shows in what follows.
    let _ = store.commit(Arc::new(create("sync", Durability::Sync))).await;
    for n in 0..COMMITS {
        // Looked at beforehand: the store makes indexes by itself, and may fail at that once a commit is answered.
        let is_failed = store.status().failed.is_some();
        let commit = numbered(&store, "sync", n).await;
        match store.commit(Arc::new(commit)).await {
            Ok(_) => outcomes.answered.push(n),
            Err(error) => {
                match error {
                    CommitError::Unknown(_) => outcomes.unknown.push(n),
                    _ => outcomes.refused.push(n),
                }
                if store.commit(Arc::new(note(n))).await.is_ok() {
                    outcomes.notes.push(n);
                }
            }
        }
        assert!(!is_failed || outcomes.answered.last() != Some(&n), "a store that has failed takes nothing");
        if end.early && outcomes.answered.last() != Some(&n) {
            break;
        }
    }
    match end.crash {
        None => store.close().await,
        Some(crash) => disk.crash(crash),
    }
    outcomes
}

/// The folder opens, has what was answered and goes on, also after a power cut.
async fn verify_outcomes(disk: &SimDisk, seed: u64, outcomes: &Outcomes, what: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let there = commits_there(&store, "sync").await;
    let missing = outcomes.answered.iter().find(|n| !there.contains(n));
    assert_eq!(missing, None, "{what}: {outcomes:?}, there {there:?}");
    for n in &outcomes.notes {
        let note = store.document("notes", &n.to_string()).await.unwrap();
        assert!(note.is_some(), "{what}: note {n} is gone");
    }
    let refused = outcomes.refused.iter().find(|n| there.contains(n));
    assert_eq!(refused, None, "{what}: {outcomes:?}, there {there:?}");
    assert!(outcomes.unknown.len() <= 1, "{what}: {outcomes:?}");
    assert_eq!(counter(&store).await, there.len() as u64, "{what}: each commit counts once");
    assert_eq!(items(&store).await, items_after(&there), "{what}");
    go_on(&store, &there, what).await;
    let shown = commits_there(&store, "sync").await;
    disk.crash(Crash::PowerCut);
    drop(store);
    disk.restart(seed);
    let store = open(disk).unwrap_or_else(|error| panic!("{what}, then a power cut: {error}"));
    assert_eq!(commits_there(&store, "sync").await, shown, "{what}, then a power cut");
    store.close().await;
    drop(store);
    assert_eq!(check(disk), [""; 0], "{what}");
}

async fn fail_everywhere(fault: Fault) {
    fail_on(SimDisk::new, fault).await;
}

async fn fail_on(new: fn() -> SimDisk, fault: Fault) {
    let operations = operations_of_a_run().await;
    for at in 1..=operations + 3 {
        for (early, crash) in
            [(true, None), (false, None), (true, Some(Crash::Kill)), (false, Some(Crash::PowerCut))]
        {
            let end = End { early, crash };
            let what = format!("{fault:?} in operation {at} of {operations}, {end:?}");
            let disk = new();
            disk.restart(at);
            disk.fail_at(at, fault);
            let outcomes = run_on(&disk, end).await;
            disk.restart(at * 1_000);
            verify_outcomes(&disk, at, &outcomes, &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_fails_loses_nothing() {
    fail_everywhere(Fault::Refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_may_have_failed_loses_nothing() {
    fail_everywhere(Fault::Unclear).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_file_handles_loses_nothing() {
    fail_everywhere(Fault::NoHandles).await;
}

/// Where room cannot be reserved, a full disk shows in the middle of a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_finds_no_room_loses_nothing() {
    fail_on(SimDisk::without_reserve, Fault::Full).await;
}
