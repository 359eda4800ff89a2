//! Parts of the journal that are shorter than they were.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::disk::{Disk, DiskFile};
use prombus_store_disk::{DiskStore, OpenError};
use prombus_testkit::SimDisk;
use std::path::PathBuf;
use uuid::Uuid;

const COMMITS: u64 = 24;

/// A folder of several parts, and the file of the first one, which is sealed and not read when the folder is opened.
async fn several_parts() -> (SimDisk, PathBuf) {
    let disk = filled(COMMITS).await;
    let parts = disk.files().into_iter().map(|(path, _)| path);
    let mut parts = parts.filter(|path| path.extension().is_some_and(|extension| extension == "part"));
    let first = parts.next().unwrap();
    assert!(parts.count() > 1, "the first part is sealed");
    (disk, first)
}

fn content(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Where the last event of a part ends. Behind it are documents, and as many batches of indexes as there was time for.
fn end_of_last_payload(part: &[u8]) -> usize {
    let (begin, end) = (b"{\"commit\":", b"\"}");
    let last = part.windows(begin.len()).rposition(|bytes| bytes == begin).unwrap();
    last + part[last..].windows(end.len()).position(|bytes| bytes == end).unwrap() + end.len()
}

/// Whatever can be asked of the events, by every way that leads to them; the errors.
async fn errors(store: &DiskStore) -> Vec<ReadError> {
    let topic = TopicRef::from(&name("sync"));
    let mut errors = Vec::new();
    for partition in [Partition(0), Partition(1)] {
        let end = store.bounds(&topic, partition).await.unwrap().next;
        for from in (0..end.0).map(Offset) {
            for limit in [1, 2, 1_000] {
                let request =
                    ReadRequest { topic: topic.clone(), partition, from, limit, max_bytes: usize::MAX };
                errors.extend(store.read(request).await.err());
            }
        }
        for ts in [0, 1_000_000, u64::MAX] {
            errors.extend(store.offset_at(TsRequest { topic: topic.clone(), partition, ts }).await.err());
        }
    }
    for n in 0..COMMITS {
        errors.extend(store.by_id(&topic, Uuid::from_u128(u128::from(n) + 1)).await.err());
    }
    for key in ["key-0", "key-1", "key-2"] {
        errors.extend(store.latest_by_key(&topic, key).await.err());
        let (topic, key) = (topic.clone(), key.to_owned());
        let request = HistoryRequest { topic, key, after: None, limit: 1_000, max_bytes: usize::MAX };
        errors.extend(store.history(request).await.err());
    }
    errors
}

#[tokio::test]
async fn what_was_cut_off_while_the_store_is_open_is_told() {
    let (disk, part) = several_parts().await;
    let store = open_keeping(&disk).unwrap();
    assert_eq!(errors(&store).await, []);
    let file = disk.open(&part).unwrap();
    let whole = content(&*file);
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let end_of_events = end_of_last_payload(&whole);
    for len in (0..used).step_by(13).chain([end_of_events - 1]) {
        file.set_len(len as u64).unwrap();
        let errors = errors(&store).await;
        for error in &errors {
            let told = matches!(error, ReadError::Corrupt(why) if why.contains("part 1 is damaged at byte"));
            assert!(told, "cut to {len} bytes: {error}");
        }
        assert!(!errors.is_empty() || len >= end_of_events, "cut to {len} bytes of {used}");
        file.write_at(&whole, 0).unwrap();
    }
    assert_eq!(errors(&store).await, []);
}

#[tokio::test]
async fn a_sealed_part_that_is_too_short_is_noticed_when_the_folder_is_opened() {
    let (disk, part) = several_parts().await;
    let file = disk.open(&part).unwrap();
    let whole = content(&*file);
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for len in 0..used {
        file.set_len(len as u64).unwrap();
        match open_keeping(&disk) {
            Err(OpenError::Damaged { file, at, .. }) => {
                assert_eq!(file, part);
                assert!(at <= len as u64, "it is told at {at}, and ends at {len}");
            }
            Err(other) => panic!("cut to {len} bytes: {other}"),
            Ok(_) => panic!("nobody noticed that {len} of {used} bytes are left"),
        }
        file.write_at(&whole, 0).unwrap();
    }
    assert_eq!(check(&disk), [""; 0], "nothing was changed");
    open_keeping(&disk).unwrap().close().await;
}
