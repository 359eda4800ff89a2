//! The hub with a data folder: what it keeps, who may use it, and how it is checked.

use crate::common::{Hub, Said, binary, run};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

fn hub_on(data: &Path) -> Hub {
    Hub::with(&["--data", data.to_str().unwrap()])
}

fn check(data: &Path) -> Said {
    let mut command = binary(Path::new("."));
    command.arg("check").arg("--data").arg(data);
    run(command, b"")
}

#[test]
fn events_outlive_a_stop_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (count, signal) in [(1, Signal::TERM), (2, Signal::KILL), (3, Signal::TERM)] {
        let mut hub = hub_on(&data);
        assert!(hub.ready.contains(data.to_str().unwrap()), "{}", hub.ready);
        hub.run(&["pub", "a.b", r#"{"n":1.10}"#, "--key", "k"]).ok();
        let exported = hub.run(&["export", "a.b"]).ok();
        assert_eq!(exported.matches(r#""payload":{"n":1.10}"#).count(), count, "{exported}");
        hub.signal(signal);
        hub.wait();
    }
    let said = check(&data);
    assert!(said.stderr.contains("is sound") && said.stderr.contains("3 events"), "{}", said.stderr);
    assert_eq!(said.ok(), "");
}

#[test]
fn a_folder_has_one_hub() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub_on(folder.path());
    let mut second = binary(folder.path());
    second.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let stderr = run(second, b"").fails_with(1);
    assert!(stderr.contains("in use by another hub"), "{stderr}");
    let stderr = check(folder.path()).fails_with(1);
    assert!(stderr.contains("in use by another hub"), "{stderr}");
    assert_eq!(hub.stop().code(), Some(0));
    check(folder.path()).ok();
}

/// Nobody gets in, neither to serve the folder nor to check it.
fn assert_in_use(data: &Path) {
    let mut second = binary(data);
    second.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    for said in [run(second, b""), check(data)] {
        let stderr = said.fails_with(1);
        assert!(stderr.contains("in use by another hub"), "{stderr}");
    }
}

#[test]
fn a_folder_has_one_hub_whatever_is_done_to_its_files_and_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (data, moved) = (folder.path().join("data"), folder.path().join("moved"));
    let hub = hub_on(&data);
    std::fs::remove_file(data.join("LOCK")).unwrap();
    assert_in_use(&data);
    std::fs::write(data.join("LOCK"), "").unwrap();
    assert_in_use(&data);
    std::fs::rename(&data, &moved).unwrap();
    assert_in_use(&moved);
    // What has its name now is another folder, and the hub goes on in its own.
    let other = hub_on(&data);
    hub.run(&["pub", "a", "1"]).ok();
    assert_eq!(hub.stop().code(), Some(0));
    assert_eq!(other.stop().code(), Some(0));
    for (data, events) in [(&moved, "1 event"), (&data, "0 events")] {
        let said = check(data);
        assert!(said.stderr.contains(events), "{}", said.stderr);
        said.ok();
    }
}

#[test]
fn a_folder_that_links_to_the_files_of_another_one_has_no_hub_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let hub = hub_on(&data);
    hub.run(&["pub", "a", "1"]).ok();
    for linked in [&["journal", "state"][..], &["journal"], &["state"]] {
        let other = folder.path().join(linked.join("_and_"));
        std::fs::create_dir(&other).unwrap();
        std::fs::copy(data.join("FORMAT"), other.join("FORMAT")).unwrap();
        for name in linked {
            std::os::unix::fs::symlink(data.join(name), other.join(name)).unwrap();
        }
        assert_in_use(&other);
        let mut second = binary(&other);
        second.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&other);
        let stderr = run(second, b"").fails_with(1);
        assert!(stderr.contains(other.join(linked[0]).to_str().unwrap()), "{stderr}");
    }
    // A backup would remove what is no part of it.
    let backup = folder.path().join("backup");
    hub.run(&["backup", backup.to_str().unwrap()]).ok();
    std::fs::remove_dir_all(backup.join("journal")).unwrap();
    std::os::unix::fs::symlink(data.join("journal"), backup.join("journal")).unwrap();
    let stderr = hub.run(&["backup", backup.to_str().unwrap()]).fails_with(1);
    assert!(stderr.contains(backup.join("journal").to_str().unwrap()), "{stderr}");
    hub.run(&["pub", "a", "2"]).ok();
    assert_eq!(hub.stop().code(), Some(0));
    let said = check(&data);
    assert!(said.stderr.contains("2 events"), "{}", said.stderr);
    said.ok();
    // Once nobody has them, they are a folder like any other.
    let hub = hub_on(&folder.path().join("journal_and_state"));
    assert_in_use(&data);
    assert_eq!(hub.stop().code(), Some(0));
}

#[test]
fn a_folder_of_someone_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("FORMAT"), "of someone else").unwrap();
    let mut command = binary(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let stderr = run(command, b"").fails_with(1);
    assert!(stderr.contains("not a prombus data folder"), "{stderr}");
    check(folder.path()).fails_with(1);
    check(&folder.path().join("missing")).fails_with(1);
}

/// What to do about a journal that is damaged.
const ADVICE: &str = "leave everything in place and restore a backup";

/// The guide, however its lines are broken.
fn guide() -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md")).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_index_that_is_damaged_is_no_reason_to_restore_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = "[store]\npart_bytes = 65536";
    let hub = Hub::with_file(config, &["--data", data.to_str().unwrap()]);
    hub.run(&["bench", "--events", "2000", "--size", "100"]).ok();
    hub.stop();
    let index = data.join("journal/0000000001.index");
    let mut bytes = std::fs::read(&index).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let said = check(&data);
    assert!(said.stdout.contains("move this file away"), "{said:?}");
    assert!(!said.fails_with(1).contains(ADVICE));
}

#[test]
fn damage_is_found_by_check_and_stops_the_open() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub_on(folder.path());
    hub.run(&["bench", "--events", "1000", "--size", "100"]).ok();
    hub.stop();
    let part = largest_file(folder.path());
    let mut bytes = std::fs::read(&part).unwrap();
    let at = memchr::memmem::find(&bytes, b"xxxxxxxx").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&part, bytes).unwrap();

    let said = check(folder.path());
    assert!(said.stderr.contains("problem"), "{}", said.stderr);
    // In the words of the guide.
    assert!(said.stderr.contains(ADVICE) && guide().contains(ADVICE), "{}", said.stderr);
    assert_eq!(said.code, Some(1));
    let problem: serde_json::Value = serde_json::from_str(said.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(problem["file"], part.to_str().unwrap());
    assert!(problem["at"].is_u64() && problem["problem"].is_string(), "{problem}");

    let mut serve = binary(folder.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path());
    let stderr = run(serve, b"").fails_with(1);
    assert!(stderr.contains("damaged") && stderr.contains("prombus check"), "{stderr}");
}

fn largest_file(folder: &Path) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => files.push((entry.metadata().unwrap().len(), entry.path())),
            }
        }
    }
    files.into_iter().max().unwrap().1
}

#[test]
fn topics_of_the_file_are_altered_where_they_differ_and_never_shrink() {
    let data = tempfile::tempdir().unwrap();
    let shown = |file: &str| {
        let hub = Hub::with_file(file, &["--data", data.path().to_str().unwrap()]);
        let shown: serde_json::Value = serde_json::from_str(&hub.run(&["topics", "show", "a"]).ok()).unwrap();
        assert_eq!(hub.stop().code(), Some(0));
        (shown["partitions"].as_u64().unwrap(), shown["compaction"].as_bool().unwrap())
    };
    assert_eq!(shown("[topics.a]\npartitions = 2"), (2, false));
    assert_eq!(shown("[topics.a]\npartitions = 4\ncompaction = true"), (4, true));
    assert_eq!(shown("[topics.a]\npartitions = 3"), (4, true));
    assert_eq!(shown(""), (4, true));
}
