//! Schemas last: through kill -9, in a backup, and from a folder that the hub reads when it starts.

use crate::auth_support::Setup;
use crate::common::{Hub, binary, run};
use crate::contract_support::{Api, Site};
use crate::durability_support::check;
use prombus_fixtures::ANY_PORT;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const CONFIG: &str = "[schemas]\ndir = \"schemas\"\n";

#[track_caller]
fn register(api: &Api, topic: &str, schema: &Value) {
    let body = json!({"schema": schema, "compat": "none"}).to_string();
    api.post(&format!("/v1/schemas/{topic}"), &body).is(201);
}

/// The versions that a topic has.
#[track_caller]
fn versions(api: &Api, topic: &str) -> Vec<u64> {
    let shown = api.get(&format!("/v1/schemas/{topic}")).is(200);
    shown["versions"].as_array().unwrap().iter().map(|one| one["version"].as_u64().unwrap()).collect()
}

#[test]
fn schemas_survive_kill_9() {
    let mut site = Site::start();
    for round in 0..5 {
        register(&site.api, "t", &json!({"type": "integer", "minimum": round}));
        site.crash();
        assert_eq!(versions(&site.api, "t"), (1..=round + 1).collect::<Vec<u64>>());
        let shown = site.api.get("/v1/schemas/t/versions/latest").is(200);
        assert_eq!(shown["schema"], json!({"type": "integer", "minimum": round}));
        site.api.publish("t", "-1").fails(422, "schema_violation");
        site.api.publish("t", &round.to_string()).is(201);
    }
    let stamps: Vec<Value> =
        site.api.all("t", "").iter().map(|event| event["headers"]["x-schema-version"].clone()).collect();
    assert_eq!(stamps, ["1", "2", "3", "4", "5"]);
    site.stop();
    check(Path::new(site.data())).ok();
}

#[test]
fn schemas_are_in_a_backup() {
    let (site, folder) = (Site::start(), tempfile::tempdir().unwrap());
    register(&site.api, "t", &json!({"type": "integer"}));
    register(&site.api, "t", &json!({"type": "string"}));
    let ops = json!({"ops": [{"rename": ["a", "b"]}]});
    for required in ["a", "b"] {
        register(&site.api, "u", &json!({"type": "object", "required": [required]}));
    }
    site.api.put("/v1/schemas/u/upcasters/1", &ops.to_string()).is(201);
    site.api.put("/v1/topics/u", r#"{"dual_write": true}"#).is(200);
    let old = |n: u64| json!({"payload": {"a": n}, "headers": {"x-schema-version": "1"}}).to_string();
    site.api.events("u", &old(1)).is(201);
    let dir = folder.path().join("backup");
    site.hub().run(&["backup", dir.to_str().unwrap()]).ok();
    let hub = Hub::with(&["--data", dir.to_str().unwrap()]);
    assert_eq!(versions(&hub.api(), "t"), [1, 2]);
    hub.api().publish("t", "1").fails(422, "schema_violation");
    hub.api().publish("t", "\"a\"").is(201);
    // What raises and copies events goes on with those that come later.
    assert_eq!(hub.api().get("/v1/schemas/u/upcasters/1").is(200)["ops"], ops["ops"]);
    hub.api().events("u", &old(2)).is(201);
    let payloads = |topic: &str, query: &str| -> Vec<Value> {
        hub.api().all(topic, query).iter().map(|event| event["payload"].clone()).collect()
    };
    assert_eq!(payloads("u", "normalize=true"), [json!({"b": 1}), json!({"b": 2})]);
    assert_eq!(payloads("u.v1", ""), [json!({"a": 1}), json!({"a": 2})]);
}

/// A folder with a configuration and these schemas.
fn folder(config: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prombus.toml"), config).unwrap();
    for (path, text) in files {
        put(folder.path(), path, text);
    }
    folder
}

fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join("schemas").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// What a hub says that does not start in this folder.
#[track_caller]
fn gives_up(folder: &Path) -> String {
    let mut command = binary(folder);
    command.args(["serve", "--data", "data"]).envs([ANY_PORT]);
    let said = run(command, b"").fails_with(1);
    assert!(!said.contains("panic"), "{said}");
    said
}

#[test]
fn the_files_of_a_folder_are_registered_in_order_when_the_hub_starts() {
    let config = format!("{CONFIG}[topics.orders]\npartitions = 3\n");
    let files = [
        ("orders/v1.json", r#"{"type": "integer"}"#),
        ("orders/v2.json", r#"{"type": "number"}"#),
        ("orders/v10.json", r#"{"type": ["number", "string"]}"#),
        ("orders/README.md", "notes"),
        ("other.topic/v1.json", "true"),
    ];
    let mut hub = Hub::within(folder(&config, &files), &["--data", "data"]);
    let api = hub.api();
    assert_eq!((versions(&api, "orders"), versions(&api, "other.topic")), (vec![1, 2, 10], vec![1]));
    assert_eq!(api.get("/v1/topics/orders").is(200)["partitions"], 3);
    api.publish("orders", "true").fails(422, "schema_violation");
    // The same again changes nothing, and a new one is added.
    put(hub.folder(), "orders/v11.json", "true");
    hub.kill();
    hub.start_again();
    assert_eq!(versions(&hub.api(), "orders"), [1, 2, 10, 11]);
}

#[test]
fn a_file_that_differs_from_what_is_registered_stops_the_start_and_is_named() {
    let folder = folder(CONFIG, &[("orders/v1.json", r#"{"type": "integer"}"#)]);
    let path = folder.path().to_owned();
    let mut hub = Hub::within(folder, &["--data", "data"]);
    hub.kill();
    put(&path, "orders/v1.json", r#"{"type":    "integer"}"#);
    hub.start_again();
    assert_eq!(versions(&hub.api(), "orders"), [1], "white space makes no difference");
    hub.kill();
    put(&path, "orders/v1.json", r#"{"type": "string"}"#);
    let said = gives_up(&path);
    assert!(said.contains("schemas/orders/v1.json") && said.contains("is another schema already"), "{said}");
    put(&path, "orders/v1.json", r#"{"type": "integer"}"#);
    put(&path, "orders/v2.json", r#"{"type": "string"}"#);
    let said = gives_up(&path);
    assert!(said.contains("schemas/orders/v2.json") && said.contains("not backward compatible"), "{said}");
    fs::write(path.join("prombus.toml"), format!("{CONFIG}compat = \"none\"\n")).unwrap();
    hub.start_again();
    assert_eq!(versions(&hub.api(), "orders"), [1, 2]);
}

#[test]
fn a_start_that_is_given_up_has_registered_nothing() {
    let files = [("b/v1.json", r#"{"type": "integer"}"#), ("b/v2.json", "true")];
    let folder = folder(CONFIG, &files);
    let path = folder.path().to_owned();
    let mut hub = Hub::within(folder, &["--data", "data"]);
    hub.kill();
    // Topics are registered by name: all of these could be, before what cannot.
    put(&path, "a/v1.json", "{}");
    put(&path, "b/v3.json", "true");
    for (file, text, why) in [
        ("b/v1.json", "{}", "is another schema already"),
        ("c/v1.json", r#"{"type": "text"}"#, "is not valid"),
        ("c/upcasters/1.json", r#"{"ops": []}"#, "has no schemas"),
        ("b/upcasters/4.json", r#"{"ops": []}"#, "has no version 4"),
        ("b/upcasters/2.json", r#"{"ops": [{"set": {"a": "payload."}}]}"#, "does not compile"),
        ("b/v4.json", r#"{"type": "integer"}"#, "not backward compatible with version 3"),
    ] {
        let before = fs::read(path.join("schemas").join(file));
        put(&path, file, text);
        let said = gives_up(&path);
        assert!(said.contains(file) && said.contains(why), "{file}: {said}");
        match before {
            Ok(before) => fs::write(path.join("schemas").join(file), before).unwrap(),
            Err(_) => fs::remove_file(path.join("schemas").join(file)).unwrap(),
        }
    }
    let config = fs::read(path.join("prombus.toml")).unwrap();
    fs::write(path.join("prombus.toml"), format!("{CONFIG}[collections.c]\nchangefeed = \"a\"\n")).unwrap();
    let said = gives_up(&path);
    assert!(said.contains("schemas/a") && said.contains("changefeed"), "{said}");
    fs::write(path.join("prombus.toml"), "").unwrap();
    hub.start_again();
    assert_eq!(versions(&hub.api(), "b"), [1, 2]);
    hub.api().get("/v1/schemas/a").fails(404, "not_found");
    hub.kill();
    fs::write(path.join("prombus.toml"), config).unwrap();
    hub.start_again();
    assert_eq!((versions(&hub.api(), "a"), versions(&hub.api(), "b")), (vec![1], vec![1, 2, 3]));
}

#[test]
fn a_version_behind_an_upcaster_that_changes_events_may_break() {
    let files = [
        ("orders/v1.json", r#"{"type": "object", "required": ["a"]}"#),
        ("orders/v2.json", r#"{"type": "object", "required": ["b"]}"#),
        ("orders/upcasters/1.json", r#"{"ops": [{"rename": ["a", "b"]}]}"#),
    ];
    let folder = folder(&format!("{CONFIG}compat = \"backward_transitive\"\n"), &files);
    let path = folder.path().to_owned();
    let mut hub = Hub::within(folder, &["--data", "data"]);
    assert_eq!(versions(&hub.api(), "orders"), [1, 2]);
    hub.kill();
    // One that does not change them says that they fit as they are.
    put(&path, "orders/v3.json", r#"{"type": "object", "required": ["c"]}"#);
    put(&path, "orders/upcasters/2.json", r#"{"ops": []}"#);
    let said = gives_up(&path);
    assert!(said.contains("orders/v3.json") && said.contains("with version 2"), "{said}");
    put(&path, "orders/v3.json", r#"{"type": "object"}"#);
    hub.start_again();
    assert_eq!(versions(&hub.api(), "orders"), [1, 2, 3]);
}

#[test]
fn what_is_wrong_in_the_folder_stops_the_start_and_is_named() {
    for (file, text, why) in [
        ("orders/v1.json", "{", "orders/v1.json"),
        ("orders/v1.json", r#"{"type":"text"}"#, "orders/v1.json"),
        ("orders/one.json", "{}", "orders/one.json"),
        ("v1.json", "{}", "schemas/v1.json"),
        ("Orders/v1.json", "{}", "schemas/Orders"),
        ("dlq.orders/v1.json", "{}", "dlq.orders/v1.json"),
    ] {
        let said = gives_up(folder(CONFIG, &[(file, text)]).path());
        assert!(said.contains(why), "{file}: {said}");
    }
    let said = gives_up(folder("[schemas]\ndir = \"elsewhere\"\n", &[]).path());
    assert!(said.contains("elsewhere") && said.contains("schemas.dir"), "{said}");
    let said = Setup { file: "[schemas]\ncompat = \"sideways\"\n", ..Setup::default() }.is_usage_error();
    assert!(said.contains("schemas.compat"), "{said}");
}

#[test]
fn upcasters_of_the_folder_take_the_place_of_those_that_are_stored() {
    let files = [
        ("orders/v1.json", r#"{"type": "object", "required": ["a"]}"#),
        ("orders/v2.json", r#"{"type": "object", "required": ["b"]}"#),
        ("orders/upcasters/1.json", r#"{"ops": [{"rename": ["a", "b"]}]}"#),
    ];
    let folder = folder(&format!("{CONFIG}compat = \"none\"\n"), &files);
    let path = folder.path().to_owned();
    let mut hub = Hub::within(folder, &["--data", "data"]);
    let event = r#"{"payload": {"a": 1}, "headers": {"x-schema-version": "1"}}"#;
    hub.api().events("orders", event).is(201);
    assert_eq!(hub.api().all("orders", "normalize=true")[0]["payload"], serde_json::json!({"b": 1}));
    hub.kill();
    put(&path, "orders/upcasters/1.json", r#"{"ops": [{"set": {"b": "2"}}]}"#);
    hub.start_again();
    assert_eq!(hub.api().all("orders", "normalize=true")[0]["payload"], serde_json::json!({"a": 1, "b": 2}));
    hub.kill();
    for (file, text) in [
        ("orders/upcasters/1.json", r#"{"ops": [{"set": {"b": "payload."}}]}"#),
        ("orders/upcasters/3.json", r#"{"ops": []}"#),
    ] {
        put(&path, file, text);
        let said = gives_up(&path);
        assert!(said.contains(file), "{said}");
        fs::remove_file(path.join("schemas").join(file)).unwrap();
    }
}
