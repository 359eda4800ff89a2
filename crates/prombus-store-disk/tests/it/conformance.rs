//! The disk engine keeps every promise of the ports, on a real disk: with parts of the usual size, where most
//! is still in memory, and with tiny ones, where most is sealed and in tables, and indexes take many steps.

use prombus_core::collection::Progress;
use prombus_core::*;
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_testkit::copies::Files;
use prombus_testkit::{CopiesSubject, Reopen, Subject};
use std::path::Path;
use std::sync::Arc;

const USUAL: u64 = 8 << 20;
const TINY: u64 = 2 << 10;

fn options(part_bytes: u64, dir: &Path, clock: &Arc<ManualClock>) -> DiskOptions {
    DiskOptions {
        part_bytes,
        rows_in_memory: part_bytes as usize / 4,
        index_step: if part_bytes == TINY { 2 } else { 256 },
        clock: clock.clone(),
        seed: 1,
        ..DiskOptions::new(dir)
    }
}

async fn store(part_bytes: u64) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let options = options(part_bytes, dir.path(), &clock);
    let open = move || Subject::new(DiskStore::open(options.clone()).unwrap(), clock.clone());
    let opened = open();
    Subject { keep: Box::new(Reopen { keep: Box::new(dir), open: Box::new(open) }), ..opened }
}

/// A store in a folder, and copies of it in folders of their own.
async fn copied(part_bytes: u64) -> CopiesSubject {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let store = DiskStore::open(options(part_bytes, dir.path(), &clock)).unwrap();
    let copies = store.clone();
    let store = Subject { keep: Box::new(dir), ..Subject::new(store, clock.clone()) };
    let open = move |files: &Files| {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let store = DiskStore::open(options(part_bytes, dir.path(), &clock)).unwrap();
        Subject { keep: Box::new(dir), ..Subject::new(store, clock.clone()) }
    };
    CopiesSubject { store, copies, open: Box::new(open) }
}

/// Commits go on while an index is made: nobody waits for more than a step of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_go_on_while_an_index_is_made() {
    const DOCUMENTS: u64 = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(DiskOptions { index_step: 1, ..DiskOptions::new(dir.path()) }).unwrap();
    let write = |collection: &str, n: u64| {
        let body = Json::parse(format!("{{\"n\":{n}}}").into()).unwrap();
        DocumentWrite::new(collection, format!("k{n:04}"), WriteOp::Set(body))
    };
    let commit = async |commit: Commit| store.commit(Arc::new(commit)).await.unwrap();
    let documents = (0..DOCUMENTS).map(|n| write("c", n)).collect();
    commit(Commit { documents, ..Commit::default() }).await;
    let fields = vec![FieldPath::parse("n").unwrap()];
    let indexes = vec![collection::Index { fields, unique: true }];
    let config = CollectionConfig { indexes, ..CollectionConfig::default() };
    let change = ConfigChange::PutCollection { name: "c".into(), expect_revision: 1, config };
    let put = commit(Commit { config: vec![change], ..Commit::default() }).await;
    let (mut commits, mut while_building, mut done) = (0, 0, Vec::new());
    loop {
        commit(Commit { documents: vec![write("other", commits)], ..Commit::default() }).await;
        commits += 1;
        match store.collection("c").await.unwrap().unwrap().indexes[0].progress.clone() {
            Progress::Building { done: now, of, .. } => {
                assert_eq!(of, DOCUMENTS);
                while_building += 1;
                done.push(now);
            }
            Progress::Failed(failure) => panic!("{failure}"),
            Progress::Ready => {
                let steps =
                    store.changed(&Watched::Everything, Sequence(0)).await.0 - put.sequence.0 - commits;
                assert!(steps >= DOCUMENTS, "no step does more than it may: {steps}");
                break;
            }
        }
    }
    assert!(while_building > 0, "commits were answered while the index was being made");
    assert!(done.is_sorted() && done.last() <= Some(&DOCUMENTS), "progress is told: {done:?}");
    store.close().await;
    drop(store);
    assert_eq!(prombus_store_disk::check(dir.path(), &mut |_| {}).unwrap().problems, []);
}

mod usual {
    async fn disk() -> super::Subject {
        super::store(super::USUAL).await
    }

    async fn copies() -> super::CopiesSubject {
        super::copied(super::USUAL).await
    }

    prombus_testkit::log_conformance!(disk);
    prombus_testkit::log_exact_conformance!(disk);
    prombus_testkit::state_conformance!(disk);
    prombus_testkit::copies_conformance!(copies);
}

mod tiny_parts {
    async fn disk() -> super::Subject {
        super::store(super::TINY).await
    }

    async fn copies() -> super::CopiesSubject {
        super::copied(super::TINY).await
    }

    prombus_testkit::log_conformance!(disk);
    prombus_testkit::log_exact_conformance!(disk);
    prombus_testkit::state_conformance!(disk);
    prombus_testkit::copies_conformance!(copies);
}
