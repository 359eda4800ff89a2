//! The commands about collections, projections and commits, and what the configuration says of them.

use crate::common::{Hub, Said, binary, run};
use serde_json::{Value, json};

const PROJECTIONS: &str = r#"
[store]
memory = true

[collections."shop.orders"]
indexes = [["state"], { fields = ["number"], unique = true }]
changefeed = "orders.changed"

[snapshots]
max_age_s = 30

[[projection]]
name = "processes"
topic = "process.state"
collection = "processes"
key = "event.payload.id"
fields = ["id", "host", "cpu"]
indexes = [["host"]]

[[projection]]
name = "hosts"
topic = "process.state"
[[projection.write]]
collection = "host_stats"
key = "event.payload.host"
inc = { seen = "1" }
set = { last = "event.payload.id" }
"#;

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

/// A hub with the projections of the file, and four processes on two hosts.
fn hub_with_processes() -> Hub {
    let hub = Hub::with_file(PROJECTIONS, &[]);
    for (id, host, cpu) in [("a", "web1", 10), ("b", "web1", 80), ("c", "web2", 90), ("d", "web2", 5)] {
        let payload = json!({"id": id, "host": host, "cpu": cpu, "noise": true}).to_string();
        hub.run(&["pub", "process.state", &payload, "--key", id]).ok();
    }
    hub.run(&["get", "processes", "d", "--min-offset", "3"]).ok();
    hub.run(&["get", "host_stats", "web2", "--min-offset", "0:3"]).ok();
    hub
}

fn started_with(file: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
    let mut command = binary(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory"]);
    run(command, b"")
}

#[test]
fn a_document_is_read_by_its_key() {
    let hub = hub_with_processes();
    let document = json(&hub.run(&["get", "processes", "b"]).ok());
    assert_eq!(
        (&document["host"], &document["cpu"], &document["_key"]),
        (&json!("web1"), &json!(80), &json!("b"))
    );
    assert_eq!(document.get("noise"), None);
    let said = hub.run(&["get", "processes", "nobody"]);
    assert_eq!(said.stdout, "");
    let stderr = said.fails_with(1);
    assert!(stderr.contains("no document \"nobody\" (not_found)"), "{stderr}");
    let stderr = hub.run(&["get", "processes", "b", "--min-offset", "7:1"]).fails_with(1);
    assert!(stderr.contains("bad_request"), "{stderr}");
}

#[test]
fn documents_are_listed_by_conditions_and_in_order() {
    let hub = hub_with_processes();
    let keys = |args: &[&str]| -> Vec<String> {
        let text = hub.run(&[&["list", "processes"], args].concat()).ok();
        json_lines(&text).iter().map(|document| document["_key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&["host=web2", "--sort", "_key"]), ["c", "d"]);
    assert_eq!(keys(&["cpu[gte]=80", "--sort", "-cpu"]), ["c", "b"]);
    assert_eq!(keys(&["host[in]=web1,web2", "cpu[lt]=50", "--sort", "cpu"]), ["d", "a"]);
    assert_eq!(keys(&["--sort", "_key", "--offset", "1", "--limit", "2"]), ["b", "c"]);
    assert_eq!(keys(&["--sort", "_key", "--all"]), ["a", "b", "c", "d"]);
    assert!(keys(&["host=web3"]).is_empty());
    let said = hub.run(&["list", "processes", "--limit", "3"]);
    assert!(
        said.stderr.contains("3 documents of processes, and there are more: --offset 3"),
        "{}",
        said.stderr
    );
    let stderr = hub.run(&["list", "processes", "cpu[near]=80"]).fails_with(1);
    assert!(stderr.contains("bad_request"), "{stderr}");
    let stderr = hub.run(&["list", "nothing"]).fails_with(1);
    assert!(stderr.contains("not_found"), "{stderr}");
}

#[test]
fn more_documents_than_a_page_has_are_listed() {
    let hub = Hub::start();
    let writes: Vec<Value> =
        (0..2_500).map(|n| json!({"collection": "c", "key": format!("k{n}"), "set": {"n": n}})).collect();
    hub.run_with(&["commit", "-"], &json!({ "writes": writes }).to_string()).ok();
    for (args, expected) in [(&["--all"][..], 2_500), (&["--limit", "1500"], 1_500), (&[], 100)] {
        let said = hub.run(&[&["list", "c", "--sort", "n"], args].concat());
        let numbers: Vec<u64> =
            json_lines(&said.ok()).iter().map(|document| document["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..expected).collect::<Vec<_>>(), "{args:?}");
    }
}

#[test]
fn collections_are_listed_shown_and_set() {
    let hub = hub_with_processes();
    let names: Vec<_> = json_lines(&hub.run(&["collections", "list"]).ok());
    let names: Vec<_> = names.iter().map(|collection| collection["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host_stats", "processes", "shop.orders"]);
    let orders = json(&hub.run(&["collections", "show", "shop.orders"]).ok());
    let indexes = json!([{"fields": ["state"], "unique": false, "state": "ready"},
        {"fields": ["number"], "unique": true, "state": "ready"}]);
    assert_eq!((&orders["owner"], &orders["indexes"]), (&json!("commits"), &indexes));
    assert_eq!(orders["changefeed"], "orders.changed");
    let processes = json(&hub.run(&["collections", "show", "processes"]).ok());
    assert_eq!((&processes["owner"], &processes["count"]), (&json!({"projection": "processes"}), &json!(4)));

    let set = json(&hub.run(&["collections", "set", "shop.orders", "--index", "customer,state"]).ok());
    assert_eq!(set["indexes"], json!([{"fields": ["customer", "state"], "unique": false, "state": "ready"}]));
    assert_eq!(set["changefeed"], "orders.changed");
    let set = json(&hub.run(&["collections", "set", "shop.orders", "--no-changefeed"]).ok());
    assert_eq!((set.get("changefeed"), set["indexes"].as_array().unwrap().len()), (None, 1));
    let stderr = hub.run(&["collections", "set", "processes", "--index", "cpu"]).fails_with(1);
    assert!(stderr.contains("not_owner"), "{stderr}");
    let stderr = hub.run(&["collections", "delete", "processes"]).fails_with(1);
    assert!(
        stderr.contains("prombus projections delete processes") && stderr.contains("(not_owner)"),
        "{stderr}"
    );
    hub.run(&["collections", "delete", "shop.orders"]).ok();
    let stderr = hub.run(&["collections", "delete", "shop.orders"]).fails_with(1);
    assert!(stderr.contains("(not_found)"), "{stderr}");
    let stderr = hub.run(&["collections", "show", "nothing"]).fails_with(1);
    assert!(stderr.contains("collection nothing does not exist (not_found)"), "{stderr}");
}

#[test]
fn projections_are_listed_defined_rebuilt_and_deleted() {
    let hub = hub_with_processes();
    let all = json_lines(&hub.run(&["projections", "list"]).ok());
    let names: Vec<_> = all.iter().map(|one| (&one["name"], &one["kind"], &one["state"])).collect();
    let running = json!("running");
    assert_eq!(
        names,
        [
            (&json!("hosts"), &json!("transactional"), &running),
            (&json!("processes"), &json!("changelog"), &running)
        ]
    );
    let shown = json(&hub.run(&["projections", "show", "processes"]).ok());
    assert_eq!((&shown["lag"], &shown["stale"]), (&json!(0), &json!(false)));
    assert_eq!(shown["partitions"], json!([{"partition": 0, "next": 4, "tail": 4, "lag": 0}]));

    let toml = "[[projection]]\nname = \"processes\"\ntopic = \"process.state\"\ncollection = \"processes\"\n\
        key = \"event.payload.id\"\nfields = [\"id\", \"noise\"]\n";
    let said = hub.run_with(&["projections", "put", "-"], toml);
    assert!(said.stderr.contains("rebuild it"), "{}", said.stderr);
    assert_eq!(json(&said.ok())["stale"], true);
    assert_eq!(json(&hub.run(&["get", "processes", "a"]).ok()).get("noise"), None);
    let said = hub.run(&["projections", "rebuild", "processes", "--wait"]);
    assert!(said.stderr.contains("projection processes is rebuilt"), "{}", said.stderr);
    let rebuilt = json(&said.ok());
    assert_eq!((&rebuilt["stale"], &rebuilt["rebuild"]), (&json!(false), &Value::Null));
    assert_eq!(json(&hub.run(&["get", "processes", "a"]).ok())["noise"], true);

    let definition = r#"{"topic":"process.state","collection":"other","key":"event.payload.id"}"#;
    std::fs::write(hub.folder().join("other.json"), definition).unwrap();
    let other = json(&hub.run(&["projections", "put", "other.json", "--name", "other"]).ok());
    assert_eq!((&other["name"], &other["collections"]), (&json!("other"), &json!(["other"])));
    hub.run(&["projections", "delete", "other"]).ok();
    let stderr = hub.run(&["projections", "show", "other"]).fails_with(1);
    assert!(stderr.contains("projection other does not exist (not_found)"), "{stderr}");
    let bad = r#"{"name":"x","topic":"t","collection":"x","key":"event.payload."}"#;
    assert!(!hub.run_with(&["projections", "put", "-"], bad).fails_with(1).is_empty());
}

#[test]
fn a_replay_counts_what_a_projection_has_failed_again_as_such() {
    let hub = Hub::start();
    let put = |inc: &str| {
        let write = json!({"collection": "sums", "key": "event.key", "inc": {"sum": inc}});
        let definition = json!({"name": "p", "topic": "t", "retries": 0, "write": [write]}).to_string();
        hub.run_with(&["projections", "put", "-"], &definition).ok();
    };
    put("event.payload.amount");
    for (key, payload) in [("a", r#"{"amont":1}"#), ("b", r#"{"amont":2}"#), ("c", r#"{"amount":4}"#)] {
        hub.run(&["pub", "t", payload, "--key", key]).ok();
    }
    hub.run(&["get", "sums", "c", "--min-offset", "2"]).ok();
    let replay = |more: &[&str]| {
        let said = hub.run(&[&["dlq", "replay", "t", "--projection", "p"], more].concat());
        (said.stderr.clone(), json(&said.ok()))
    };
    // One is tried, and no other one, although it has failed.
    let (stderr, answer) = replay(&["--limit", "1"]);
    assert_eq!((&answer["matched"], &answer["replayed"]), (&json!(1), &json!(0)), "{answer}");
    assert!(answer["skipped"][0]["why"].as_str().unwrap().contains("failed again"), "{answer}");
    assert!(stderr.contains("0 dead letters of 1 replayed"), "{stderr}");
    put("event.payload.amont");
    let (stderr, answer) = replay(&[]);
    assert_eq!(answer["replayed"], 2, "{answer}");
    assert!(stderr.contains("2 dead letters of 3 replayed"), "{stderr}");
    let why = answer["skipped"][0]["why"].as_str().unwrap();
    assert!(answer["skipped"].as_array().unwrap().len() == 1 && why.contains("already"), "{answer}");
    assert_eq!(json(&hub.run(&["get", "sums", "a"]).ok())["sum"], 1);
}

#[test]
fn a_commit_from_a_file_happens_as_a_whole() {
    let hub = hub_with_processes();
    let commit = json!({"writes": [{"collection": "shop.orders", "key": "o", "set": {"number": 1}, "if_version": 0}],
        "publish": [{"topic": "paid", "payload": {"n": 1}}]});
    std::fs::write(hub.folder().join("commit.json"), commit.to_string()).unwrap();
    let answer = json(&hub.run(&["commit", "commit.json"]).ok());
    assert_eq!(answer["versions"], json!({"shop.orders": {"o": 1}}));
    assert_eq!((&answer["events"][0]["topic"], &answer["events"][0]["offset"]), (&json!("paid"), &json!(0)));
    let stderr = hub.run(&["commit", "commit.json"]).fails_with(1);
    assert!(stderr.contains("version_conflict"), "{stderr}");
    assert_eq!(hub.run(&["export", "paid"]).ok().lines().count(), 1);
    assert_eq!(hub.run(&["export", "orders.changed"]).ok().lines().count(), 1);
    let stderr =
        hub.run_with(&["commit", "-"], r#"{"writes":[{"collection":"processes","key":"a","delete":true}]}"#);
    assert!(stderr.fails_with(1).contains("not_owner"));
}

#[test]
fn the_file_is_settled_again_at_every_start_and_what_came_over_http_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let file = PROJECTIONS.replace("memory = true", "");
    let hub = Hub::with_file(&file, &data);
    let other = r#"{"name":"other","topic":"process.state","collection":"other","key":"event.payload.id"}"#;
    hub.run_with(&["projections", "put", "-"], other).ok();
    hub.run(&["pub", "process.state", r#"{"id":"a","host":"web1","cpu":1}"#]).ok();
    hub.run(&["get", "processes", "a", "--min-offset", "0"]).ok();
    assert!(hub.stop().success());

    let hub = Hub::with_file(&file, &data);
    let all = json_lines(&hub.run(&["projections", "list"]).ok());
    let stale: Vec<_> = all.iter().map(|one| (one["name"].as_str().unwrap(), &one["stale"])).collect();
    let no = json!(false);
    assert_eq!(stale, [("hosts", &no), ("other", &no), ("processes", &no)]);
    assert_eq!(json(&hub.run(&["get", "processes", "a"]).ok())["cpu"], 1);
    assert!(hub.stop().success());

    let changed = file.replace("fields = [\"id\", \"host\", \"cpu\"]", "fields = [\"id\"]");
    let hub = Hub::with_file(&changed, &data);
    let processes = json(&hub.run(&["projections", "show", "processes"]).ok());
    assert_eq!((&processes["stale"], &processes["definition"]["fields"]), (&json!(true), &json!(["id"])));
}

#[test]
fn a_start_that_fails_for_its_configuration_has_made_nothing() {
    const GOOD: &str = "[topics.made]\npartitions = 2\n[topics.source]\n\
        snapshot = { topic = \"made\", every_ms = 1000 }\n[collections.made]\n\
        [[projection]]\nname = \"good\"\ntopic = \"made\"\ncollection = \"good\"\nkey = \"event.key\"\n";
    const BAD: &str = "[[projection]]\nname = \"bad\"\ntopic = \"made\"\n";
    for (bad, told) in [
        ("collection = \"bad\"\nkey = \"event.payload.\"", "does not compile"),
        ("collection = \"good\"\nkey = \"event.key\"", "written by projection \"good\""),
        ("collection = \"made\"\nkey = \"event.key\"", "collection made is also in [collections]"),
        ("collection = \"bad\"\nkey = \"event.key\"\nchangefeed = \"made\"", "it would feed itself"),
        ("collection = \"bad\"\nkey = \"event.key\"\nchangefeed = \"source\"", "its snapshots, topic made"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), format!("{GOOD}{BAD}{bad}")).unwrap();
        let mut serve = binary(folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
        let stderr = run(serve, b"").fails_with(1);
        assert!(
            stderr.contains("projection \"bad\" from the configuration") && stderr.contains(told),
            "{stderr}"
        );
        assert!(!folder.path().join("data").exists(), "{bad}");
    }
}

#[test]
fn a_projection_that_makes_no_sense_stops_the_start_and_is_named() {
    for (definition, hint) in [
        ("collection = \"c\"\nkey = \"event.payload.\"", "projection \"p\" from the configuration"),
        ("", "projection \"p\" from the configuration"),
        ("collection = \"c\"\nkee = \"event.key\"", "the nearest known one is projection.key"),
    ] {
        let file = format!("[[projection]]\nname = \"p\"\ntopic = \"t\"\n{definition}\n");
        let said = started_with(&file);
        assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
        assert!(said.stderr.contains(hint), "{definition}: {}", said.stderr);
    }
    let both = "[collections.c]\n[[projection]]\nname = \"p\"\ntopic = \"t\"\ncollection = \"c\"\nkey = \"event.key\"\n";
    let stderr = started_with(both).fails_with(1);
    assert!(
        stderr.contains("projection \"p\" from the configuration") && stderr.contains("collection c"),
        "{stderr}"
    );
}

#[test]
fn states_are_read_as_they_were() {
    let hub = hub_with_processes();
    // Times that are back from now start with a hyphen.
    let publish = |ts: &str, payload: &str| {
        hub.run(&["pub", "process.state", payload, "--key", "e", "--ts", ts]).ok();
    };
    publish("1000", r#"{"id":"e","host":"web3","cpu":1}"#);
    publish("2000", r#"{"id":"e","cpu":1.10}"#);
    let state = |args: &[&str]| hub.run(&[&["at", "process.state", "e"], args].concat());
    let text = state(&["--at", "1999"]).ok();
    let expected = r#"{"key":"e","state":{"id":"e","host":"web3","cpu":1},"ts":1000,"offset":4,"applied":1,"base":null}"#;
    assert_eq!(text.trim_end(), expected);
    let merged = state(&["--at", "1970-01-01T00:00:02Z", "--reduce", "merge"]).ok();
    assert!(merged.contains(r#""state":{"cpu":1.10,"host":"web3","id":"e"}"#), "{merged}");
    for args in [&["--at", "-15m"][..], &["--at=-2d"], &[], &["--at", "2026-01-31"]] {
        assert_eq!(json(&state(args).ok())["offset"], 5, "{args:?}");
    }
    let stderr = state(&["--at", "999"]).fails_with(1);
    assert!(stderr.contains("no state of key \"e\" at that time (not_found)"), "{stderr}");
    let stderr = state(&["--at", "yesterday"]).fails_with(2);
    assert!(stderr.contains("RFC 3339"), "{stderr}");

    let all = json_lines(&hub.run(&["at", "process.state"]).ok());
    let mut keys: Vec<_> = all.iter().map(|line| line["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    assert_eq!(json_lines(&hub.run(&["at", "process.state", "--at", "1500"]).ok())[0]["ts"], 1000);
    let stderr = hub.run(&["at", "nothing"]).fails_with(1);
    assert!(stderr.contains("not_found"), "{stderr}");
    hub.run(&["at", "process.state", "--reduce", "merge"]).fails_with(2);

    let document = |args: &[&str]| hub.run(&[&["at", "--collection", "processes", "e"], args].concat());
    let text = document(&["--at", "1999"]).ok();
    assert_eq!(text.trim_end(), r#"{"_key":"e","_ts":1000,"cpu":1,"host":"web3","id":"e"}"#);
    assert_eq!(json(&document(&["--at", "-1s"]).ok())["_ts"], 2000);
    assert_eq!(json(&document(&[]).ok())["_ts"], 2000);
    let stderr = document(&["--at", "999"]).fails_with(1);
    assert!(stderr.contains("no document \"e\" at that time (not_found)"), "{stderr}");
    let stderr = hub.run(&["at", "--collection", "host_stats", "web3", "--at", "1"]).fails_with(1);
    assert!(stderr.contains("not filled by a changelog"), "{stderr}");
    hub.run(&["at", "--collection", "processes", "process.state", "e"]).fails_with(2);
}
