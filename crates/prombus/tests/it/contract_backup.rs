//! `prombus backup`: a copy of a running hub, taken over HTTP, brought up to date, and restored.

use crate::auth_support::jwt::{Signer, policy, scopes};
use crate::auth_support::{Guarded, SECRET};
use crate::client_support::wire::Wire;
use crate::common::{Hub, binary, run};
use crate::contract_support::{Api, Site, fields};
use crate::durability_support::check;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Small, so that there are many files.
const CONFIG: &str = "[store]\npart_bytes = 65536\nclean_every_ms = 3600000\n";
/// A payload of which a few fill a part.
const BIG: usize = 8_000;

fn publish(site: &Site, topic: &str, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let payload = json!({"n": n, "pad": "x".repeat(BIG)}).to_string();
        site.api.publish(&format!("{topic}?key=k{}", n % 3), &payload).is(201);
    }
}

/// Takes a backup; how many bytes were new, as it says.
#[track_caller]
fn back_up(hub: &Hub, dir: &Path) -> u64 {
    let said = hub.run(&["backup", dir.to_str().unwrap()]);
    let stderr = said.stderr.clone();
    assert_eq!(said.ok(), "", "stdout is for data");
    let (_, new) = stderr.rsplit_once("fetched ").unwrap();
    new.split(' ').next().unwrap().parse().unwrap()
}

/// A hub on a copy of the backup, which stays a backup.
fn restored(dir: &Path) -> (Hub, tempfile::TempDir) {
    check(dir).ok();
    let copy = tempfile::tempdir().unwrap();
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("-r").arg(dir).arg(copy.path().join("data")).status().unwrap().success());
    let hub = Hub::with(&["--data", copy.path().join("data").to_str().unwrap()]);
    (hub, copy)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["", "journal", "state"] {
        for entry in std::fs::read_dir(dir.join(folder)).unwrap() {
            names.push(format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy()));
        }
    }
    names.sort();
    names
}

#[test]
fn a_backup_is_taken_brought_up_to_date_and_restored() {
    let (site, folder) = (Site::with_file(CONFIG), tempfile::tempdir().unwrap());
    let dir = folder.path().join("deep/backup");
    publish(&site, "t", 0..30);
    site.api.post("/v1/topics/t/groups/g/pull", r#"{"from":"earliest","max":5}"#).is(200);
    let all = back_up(site.hub(), &dir);
    assert!(all > 30 * BIG as u64, "{all}");
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let (hub, _copy) = restored(&dir);
    assert_eq!(hub.api().all("t", ""), site.api.all("t", ""));
    let group = |api: &Api| api.get("/v1/topics/t/groups/g/cursor").is(200);
    assert_eq!(group(&hub.api()), group(&site.api));
    drop(hub);
    publish(&site, "t", 30..32);
    let more = back_up(site.hub(), &dir);
    assert!(2 * BIG as u64 <= more && more < all / 2, "{more} of {all}");
    let (hub, _copy) = restored(&dir);
    assert_eq!(hub.api().all("t", ""), site.api.all("t", ""));
    drop(hub);
    // The folder itself is a data folder as well.
    let expected = site.api.all("t", "");
    let hub = Hub::with(&["--data", dir.to_str().unwrap()]);
    assert_eq!(hub.api().all("t", ""), expected);
    let refused = site.hub().run(&["backup", dir.to_str().unwrap()]).fails_with(1);
    assert!(refused.contains("is the data folder of a hub"), "{refused}");
    site.ends_well();
}

/// What the hub no longer has is no longer in the backup either.
#[test]
fn what_is_gone_from_the_hub_goes_from_the_backup() {
    let (site, folder) = (Site::with_file(CONFIG), tempfile::tempdir().unwrap());
    let dir = folder.path().join("backup");
    publish(&site, "secret", 0..30);
    site.api.publish("kept", "1").is(201);
    back_up(site.hub(), &dir);
    let before = names(&dir);
    site.api.post("/v1/topics/secret/trim", r#"{"partition":0,"before":30}"#).is(200);
    assert_eq!(site.api.delete("/v1/topics/secret").status, 204);
    let mut n = 0;
    // Parts go once two checkpoints are behind them.
    while names(Path::new(site.data())).contains(&"journal/0000000001.part".to_owned()) {
        publish(&site, "other", n..n + 1);
        n += 1;
        assert!(n < 1_000, "the first part is never dropped");
    }
    back_up(site.hub(), &dir);
    assert!(before.contains(&"journal/0000000001.part".to_owned()), "{before:?}");
    let after = names(&dir);
    assert!(!after.contains(&"journal/0000000001.part".to_owned()), "{after:?}");
    assert!(!after.iter().any(|name| name.contains(".g") || name.ends_with(".tmp")), "{after:?}");
    let (hub, _copy) = restored(&dir);
    assert_eq!(hub.api().all("kept", "").len(), 1);
    site.ends_well();
}

/// The files of a folder that hold these bytes.
fn holding(dir: &Path, bytes: &[u8]) -> Vec<String> {
    let holds = |name: &String| {
        let path = dir.join(name.trim_start_matches('/'));
        path.is_file() && std::fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    };
    names(dir).into_iter().filter(holds).collect()
}

/// A backup into the same folder as before has nothing of what was forgotten since.
#[test]
fn what_was_forgotten_is_not_in_a_backup_that_is_made_again() {
    let (site, folder) = (Site::with_file(CONFIG), tempfile::tempdir().unwrap());
    let dir = folder.path().join("backup");
    let (key, said) = ("mallory", "told-in-confidence");
    publish(&site, "people", 0..12);
    site.api.publish(&format!("people?key={key}"), &json!({"said": said}).to_string()).is(201);
    publish(&site, "people", 12..24);
    back_up(site.hub(), &dir);
    for bytes in [key, said] {
        assert!(!holding(&dir, bytes.as_bytes()).is_empty(), "{bytes}");
    }
    site.api.delete(&format!("/v1/topics/people/keys/{key}")).is(200);
    site.api.post("/v1/topics/people/clean", "").is(200);
    back_up(site.hub(), &dir);
    for bytes in [key, said] {
        assert_eq!(holding(&dir, bytes.as_bytes()), [""; 0], "{bytes}");
    }
    let (hub, _copy) = restored(&dir);
    assert_eq!(hub.api().all("people", ""), site.api.all("people", ""));
    site.ends_well();
}

#[test]
fn a_folder_that_is_something_else_is_left_alone() {
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    site.api.publish("t", "1").is(201);
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    let refused = site.hub().run(&["backup", folder.path().to_str().unwrap()]).fails_with(1);
    assert!(refused.contains("is not empty and no backup"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let refused = site.hub().run(&["backup", site.data()]).fails_with(1);
    assert!(refused.contains("is the data folder of a hub"), "{refused}");
    let nowhere = {
        let mut command = binary(folder.path());
        command.args(["backup", "new", "--url", "http://127.0.0.1:1"]);
        run(command, b"").fails_with(1)
    };
    assert!(nowhere.contains("127.0.0.1:1"), "{nowhere}");
    // That was begun and is no backup yet.
    let mut serve = binary(folder.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "new"]);
    let refused = run(serve, b"").fails_with(1);
    assert!(refused.contains("begun and never finished"), "{refused}");
    back_up(site.hub(), &folder.path().join("new"));
    check(&folder.path().join("new")).ok();
    site.ends_well();
}

#[test]
fn a_hub_in_memory_says_what_to_do_instead() {
    let (hub, folder) = (Hub::start(), tempfile::tempdir().unwrap());
    let error = hub.api().post("/v1/backups", "").fails(400, "bad_request");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("prombus export") && message.contains("--data"), "{message}");
    let said = hub.run(&["backup", folder.path().join("b").to_str().unwrap()]).fails_with(1);
    assert!(said.contains("cannot be copied file by file"), "{said}");
}

#[test]
fn a_backup_is_fetched_in_pieces() {
    let site = Site::start();
    publish(&site, "t", 0..3);
    let backup = site.api.post("/v1/backups", "{}").is(201);
    assert_eq!(fields(&backup), ["bytes", "files", "id", "lease_ms"]);
    let (id, files) = (backup["id"].as_str().unwrap(), backup["files"].as_array().unwrap());
    let lengths: u64 = files.iter().map(|file| file["bytes"].as_u64().unwrap()).sum();
    assert_eq!(backup["bytes"], lengths);
    for file in files {
        assert_eq!(fields(file), ["bytes", "mark", "name"]);
        let target =
            |query: &str| format!("/v1/backups/{id}/files/{}{query}", file["name"].as_str().unwrap());
        let answer = site.api.get(&target(""));
        assert_eq!((answer.status, answer.body.len() as u64), (200, file["bytes"].as_u64().unwrap()));
        assert_eq!(answer.header("x-piece-digest").map(str::len), Some(32));
        let bytes = file["bytes"].as_u64().unwrap();
        let mark = file["mark"].as_str().unwrap();
        let end = site.api.get(&target(&format!("?from={bytes}&mark={mark}")));
        assert_eq!((end.status, end.body.len()), (200, 0));
        site.api.get(&target(&format!("?from=1&mark={mark}"))).fails(412, "expectation_failed");
        site.api.get(&target(&format!("?from={}", bytes + 1))).fails(400, "bad_request");
        for bad in ["?from=-1", "?mark=x", "?from=1&from=2", "?to=1"] {
            site.api.get(&target(bad)).fails(400, "bad_request");
        }
    }
    for name in [
        "LOCK",
        "BACKUP",
        "../FORMAT",
        "..%2FFORMAT",
        "journal",
        "%2Fetc%2Fpasswd",
        "journal/..%2FFORMAT",
        "x",
    ] {
        site.api.get(&format!("/v1/backups/{id}/files/{name}")).fails(404, "not_found");
    }
    site.api.get("/v1/backups/nonsense/files/FORMAT").fails(400, "bad_request");
    site.api.post("/v1/backups", r#"{"fast":true}"#).fails(400, "bad_request");
    let none = "00000000-0000-4000-8000-000000000000";
    site.api.get(&format!("/v1/backups/{none}/files/FORMAT")).fails(410, "gone");
    // Few at a time, and one that has ended makes room.
    for _ in 1..4 {
        site.api.post("/v1/backups", "").is(201);
    }
    site.api.post("/v1/backups", "").fails(503, "unavailable");
    for _ in 0..2 {
        assert_eq!(site.api.delete(&format!("/v1/backups/{id}")).status, 204);
    }
    site.api.get(&format!("/v1/backups/{id}/files/FORMAT")).fails(410, "gone");
    site.api.post("/v1/backups", "").is(201);
    site.ends_well();
}

#[test]
fn what_does_not_arrive_as_it_was_sent_is_not_kept() {
    let (site, folder) = (Site::with_file(CONFIG), tempfile::tempdir().unwrap());
    site.api.publish("t", r#""~""#).is(201);
    let dir = folder.path().join("backup");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let wire = runtime.block_on(Wire::to(site.hub().url.split_once("://").unwrap().1));
    wire.falsify(b'~');
    for _ in 0..2 {
        let mut command = site.hub().command(&["backup", dir.to_str().unwrap()]);
        command.env("PROMBUS_URL", wire.url());
        let stderr = run(command, b"").fails_with(1);
        assert!(stderr.contains("did not arrive as it was sent"), "{stderr}");
    }
    let came = |name: &String| name.contains(".part") && !name.ends_with(".tmp");
    assert_eq!(names(&dir).into_iter().filter(came).collect::<Vec<_>>(), [""; 0]);
    back_up(site.hub(), &dir);
    let (hub, _copy) = restored(&dir);
    assert_eq!(hub.api().all("t", ""), site.api.all("t", ""));
    site.ends_well();
}

#[test]
fn a_backup_needs_the_right_to_everything() {
    let hub = Guarded::jwt();
    let token = |claims: &Value| Signer::secret(SECRET).token(claims);
    let deny = json!([
        {"effect": "allow", "action": "*", "topics": ["**"]},
        {"effect": "deny", "action": "admin", "topics": ["payroll"]},
    ]);
    for claims in [scopes(&["admin:*"]), scopes(&["read:**", "publish:**", "admin:a.**"]), policy(&deny)] {
        let token = token(&claims);
        let caller = hub.caller(&token);
        caller.post("/v1/backups", &json!({})).fails(403, "forbidden");
        let id = "00000000-0000-4000-8000-000000000000";
        caller.get(&format!("/v1/backups/{id}/files/FORMAT")).fails(403, "forbidden");
        caller.delete(&format!("/v1/backups/{id}")).fails(403, "forbidden");
    }
    // This one gets as far as the store, which is in memory.
    let token = token(&scopes(&["admin:**"]));
    hub.caller(&token).post("/v1/backups", &json!({})).fails(400, "bad_request");
    hub.api.post("/v1/backups", "{}").fails(401, "unauthorized");
}
