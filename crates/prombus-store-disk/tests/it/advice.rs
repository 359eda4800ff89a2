//! What a check advises about damage: nothing that makes it worse, and what it says brings everything back.

use crate::support::*;
use prombus_core::*;
use prombus_store_disk::disk::Disk;
use prombus_testkit::SimDisk;
use std::path::Path;

/// Whoever follows the advice of a check opens the folder with everything in it; where the journal is damaged, it
/// advises nothing that could make it worse.
#[tokio::test]
async fn a_check_advises_only_what_helps() {
    let disk = filled(40).await;
    let expected = items_after(&(0..40).collect::<Vec<_>>());
    let of_kind = |kind: &str| {
        let is_kind = |path: &Path| path.extension().is_some_and(|extension| extension == kind);
        let files: Vec<_> = disk.files().into_iter().filter(|(path, _)| is_kind(path)).collect();
        files
    };
    let (part, _) = of_kind("part")[0].clone();
    for kind in ["index", "state", "table"] {
        let (file, len) = of_kind(kind).last().unwrap().clone();
        let bit = len / 2 * 8;
        disk.flip(&file, bit);
        let told = check(&disk).join("\n");
        assert!(told.contains("the journal is intact: move"), "{told}");
        if let Err(error) = open_keeping(&disk) {
            assert!(error.to_string().contains("Run `prombus check`"), "{error}");
        }
        disk.flip(&part, 100 * 8);
        let told = check(&disk).join("\n");
        assert!(told.contains("leave it where it is") && !told.contains("move"), "{told}");
        disk.flip(&part, 100 * 8);
        disk.flip(&file, bit);
    }
    // A part that is shorter than it was has lost something that nothing can make again.
    let (index, _) = of_kind("index")[0].clone();
    let whole = disk.open(&part).unwrap();
    let mut bytes = vec![0; whole.len().unwrap() as usize];
    whole.read_at(&mut bytes, 0).unwrap();
    whole.set_len(64).unwrap();
    let told = check(&disk).join("\n");
    assert!(told.contains("before the next part was begun") && !told.contains("move"), "{told}");
    whole.write_at(&bytes, 0).unwrap();
    assert_eq!(check(&disk), [""; 0]);
    // What a check advises, done.
    disk.flip(&index, 8 * 5_000);
    let told = check(&disk).join("\n");
    assert!(told.contains("move this file away"), "{told}");
    disk.rename(&index, Path::new("/away.index")).unwrap();
    for (file, _) in of_kind("state").into_iter().chain(of_kind("table")) {
        disk.rename(&file, &Path::new("/").join(file.file_name().unwrap())).unwrap();
    }
    let store = open_keeping(&disk).unwrap();
    assert_eq!(items(&store).await, expected);
    store.close().await;
    drop(store);
    assert_eq!(check(&disk), [""; 0]);
}

/// A file that is whole, and in the place of another one, is none of what its name says: check says so of every one that
/// an open would refuse, and whoever follows its advice has everything back.
#[tokio::test]
async fn a_copy_of_another_index_or_checkpoint_is_told() {
    let whole = filled(40).await;
    let expected = items_after(&(0..40).collect::<Vec<_>>());
    for (kind, advice) in [("index", "move this file away"), ("state", "move the folder `state` away")] {
        let is_kind = |path: &Path| path.extension().is_some_and(|extension| extension == kind);
        let files: Vec<_> = whole.files().into_iter().map(|(path, _)| path).filter(|p| is_kind(p)).collect();
        assert!(files.len() > 1, "there is only one {kind}");
        let mut refused = 0;
        for (file, other) in files.iter().flat_map(|file| files.iter().map(move |other| (file, other))) {
            if file == other {
                continue;
            }
            let disk = whole.copy();
            put_copy(&disk, other, file);
            let told = check(&disk);
            let name = file.display().to_string();
            assert!(
                matches!(&told[..], [one] if one.starts_with(&name) && one.contains("it is not the") && one.contains(advice)),
                "{name} is a copy of {}: {told:?}",
                other.display()
            );
            if let Err(error) = open_keeping(&disk) {
                refused += 1;
                assert!(error.to_string().contains("Run `prombus check`"), "{error}");
            }
            for (path, _) in disk.files() {
                if path == *file || (kind == "state" && path.parent().is_some_and(|of| of.ends_with("state")))
                {
                    disk.remove(&path).unwrap();
                }
            }
            let store = open_keeping(&disk).unwrap();
            assert_eq!(items(&store).await, expected);
            store.close().await;
            drop(store);
            assert_eq!(check(&disk), [""; 0]);
        }
        assert!(refused > 0, "no {kind} was refused");
    }
}

/// Overwrites a file with another one.
fn put_copy(disk: &SimDisk, from: &Path, to: &Path) {
    let from = disk.open_to_read(from).unwrap();
    let mut bytes = vec![0; from.len().unwrap() as usize];
    from.read_at(&mut bytes, 0).unwrap();
    let to = disk.open(to).unwrap();
    to.set_len(0).unwrap();
    to.write_at(&bytes, 0).unwrap();
}
