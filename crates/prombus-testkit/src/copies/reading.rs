//! How the files of a copy are listed, read and compared.

use super::{CopiesSubject, fetched};
use crate::build::{numbered, partitions};
use crate::subject::must;
use prombus_core::CopyError;

/// The files of a copy are listed once each, in the order of their names, with their lengths.
pub async fn files_are_listed_in_order(s: CopiesSubject) {
    let topic = s.store.create("listed", partitions(1)).await;
    s.store.published(&topic, (0..100).map(numbered)).await;
    let copy = s.hold().await;
    let names: Vec<&str> = copy.files().iter().map(|file| file.name.as_str()).collect();
    assert!(!names.is_empty() && names.is_sorted_by(|a, b| a < b), "{names:?}");
    for (file, bytes) in copy.files().iter().zip(fetched(&*copy).await.values()) {
        assert_eq!(file.bytes, bytes.len() as u64, "{}", file.name);
    }
}

/// A read gives as many bytes as were asked for, and fewer only at the end of the file; what is not there is refused.
pub async fn a_read_is_as_long_as_was_asked_for(s: CopiesSubject) {
    let topic = s.store.create("read", partitions(1)).await;
    s.store.published(&topic, (0..100).map(numbered)).await;
    let copy = s.hold().await;
    let files = fetched(&*copy).await;
    for (name, bytes) in &files {
        let len = bytes.len();
        for (from, most) in [(0, 1), (0, len), (0, usize::MAX), (len / 2, len), (len, 10), (len - 1, 10)] {
            let piece = must(copy.read(name, from as u64, most).await, "a file of a copy can be read");
            let end = from.saturating_add(most).min(len);
            assert!(piece[..] == bytes[from..end], "{name}: {most} bytes from {from}");
        }
        let beyond = copy.read(name, len as u64 + 1, 1).await;
        assert!(matches!(beyond, Err(CopyError::BeyondEnd { .. })), "{name}: {beyond:?}");
    }
    for name in ["", "nothing", "../FORMAT", "/etc/passwd"] {
        assert_eq!(copy.read(name, 0, 1).await, Err(CopyError::NotFound(name.to_owned())));
        assert_eq!(copy.fingerprint(name, 0).await, Err(CopyError::NotFound(name.to_owned())));
    }
}

/// Fingerprints are of the beginning of a file: two are the same where the bytes are, and a file that has grown says so.
pub async fn marks_tell_what_is_the_same(s: CopiesSubject) {
    let topic = s.store.create("marked", partitions(1)).await;
    s.store.published(&topic, (0..100).map(numbered)).await;
    let first = s.hold().await;
    s.store.published(&topic, (0..3).map(numbered)).await;
    let second = s.hold().await;
    let (old, new) = (fetched(&*first).await, fetched(&*second).await);
    let mut grown = 0;
    for file in first.files() {
        let (name, bytes) = (&file.name, file.bytes);
        assert_eq!(
            first.fingerprint(name, bytes).await,
            Ok(file.fingerprint),
            "the fingerprint of all of it"
        );
        let Some(later) = new.get(name).filter(|later| later.len() as u64 >= bytes) else { continue };
        let fingerprint = must(second.fingerprint(name, bytes).await, "a file has a fingerprint");
        assert_eq!(fingerprint == file.fingerprint, later[..bytes as usize] == old[name], "{name}");
        grown += usize::from(later.len() as u64 > bytes);
        let beyond = second.fingerprint(name, later.len() as u64 + 1).await;
        assert!(matches!(beyond, Err(CopyError::BeyondEnd { .. })), "{name}: {beyond:?}");
    }
    let is_new = |file: &&prombus_core::CopyFile| !old.contains_key(&file.name);
    assert!(grown + second.files().iter().filter(is_new).count() > 0, "what is new is in some file");
}

/// As long as the store needs the files itself, a copy holds nothing back.
pub async fn what_the_store_needs_is_not_held_back(s: CopiesSubject) {
    let topic = s.store.create("needed", partitions(1)).await;
    s.store.published(&topic, [numbered(0)]).await;
    assert_eq!(s.hold().await.held_back(), 0);
}
