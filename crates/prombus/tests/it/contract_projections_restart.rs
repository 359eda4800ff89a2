//! Projections over the end of the hub: each event counts exactly once, and definitions are not forgotten.

use crate::common::Hub;
use crate::contract_support::{Api, Site};
use crate::groups_support;
use crate::state_support;
use crate::state_support::{
    caught_up, changelog, content, counting, dead_offsets, define, doc, emit, emit_all, emit_as, is_missing,
    letters, list, list_all, names, projection_path, put, rebuild, snap, status, try_call, wait_for_letters,
    with,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

/// The example of the manual, word by word.
const EXAMPLE: &str = r#"
[[projection]]                      # changelog: topic -> collection
name = "processes"
topic = "process.state"
collection = "processes"
key = "event.payload.processId"     # CEL; an event for which it fails or is not a string goes to the DLQ
fields = ["processId","name","host","pid","sid","cpu_pct","mem_mb","status","last_seen_ts"]   # or map = "<CEL>"; default: the payload
tombstone = "event.payload.gone"    # besides payload null (the event's key is deleted) and payload._deleted == true
version = "event.payload.rev"       # optional: only a greater one is written, as _v
indexes = [["host","name"], ["status"]]

[[projection]]                      # transactional: one event, several collections, all or none
name = "processes-txn"
topic = "process.state"
[[projection.write]]
collection = "proc_live"
key = "event.payload.processId"
set = "event.payload"               # the whole document; or a table of fields = CEL
[[projection.write]]
collection = "host_stats"
key = "event.payload.host"
inc = { seen = "1" }
set = { last_ts = "event.ts" }
"#;

fn process(id: &str, host: &str, rev: u64) -> Value {
    json!({
        "processId": id, "name": "stt", "host": host, "pid": 42, "sid": "s", "cpu_pct": 81.5, "mem_mb": 100,
        "status": "alive", "last_seen_ts": 1_754_683_200_123_u64, "rev": rev, "extra": "not asked for",
    })
}

#[test]
fn the_example_works_as_it_is_written() {
    let mut site = Site::with_file(EXAMPLE);
    let send = |api: &Api, payload: Value, ts: u64| {
        emit_as(api, "process.state", json!({"key": payload["processId"], "payload": payload, "ts": ts}));
    };
    send(&site.api, process("web1:stt:42", "web1", 1), 1000);
    send(&site.api, process("web1:stt:43", "web1", 1), 2000);
    send(&site.api, process("web2:stt:44", "web2", 1), 3000);
    let mut gone = process("web1:stt:43", "web1", 2);
    gone["gone"] = json!(true);
    send(&site.api, gone, 4000);
    for round in 0..3 {
        let api = &site.api;
        caught_up(api, "processes");
        caught_up(api, "processes-txn");
        let document = doc(api, "processes", "web1:stt:42");
        assert_eq!((&document["_v"], &document["_ts"]), (&json!(1), &json!(1000)));
        assert_eq!((&document["cpu_pct"], document.get("extra")), (&json!(81.5), None));
        is_missing(api, "processes", "web1:stt:43");
        let found = list(api, "processes", "status=alive&host=web1&cpu_pct[gte]=80&sort=-_ts");
        assert_eq!(found["count"], 1, "{found}");
        assert_eq!(content(api, "proc_live", "web2:stt:44"), process("web2:stt:44", "web2", 1));
        let stats = doc(api, "host_stats", "web1");
        assert_eq!(
            (&stats["seen"], &stats["last_ts"], &stats["_ts"]),
            (&json!(3), &json!(4000), &json!(4000))
        );
        assert!(letters(api, "process.state").is_empty());
        for name in ["processes", "processes-txn"] {
            assert_ne!(status(api, name)["stale"], true);
        }
        if round == 0 { site.restart() } else { site.crash() }
    }
}

#[test]
fn a_definition_over_http_survives() {
    let mut site = Site::start();
    define(&site.api, "p", &with(changelog("t", "c"), "fields", json!(["id", "a"])));
    define(&site.api, "q", &counting("t", "d"));
    for (end, id) in [(Site::crash as fn(&mut Site), "first"), (Site::restart, "second")] {
        end(&mut site);
        assert_eq!(names(&site.api.get("/v1/projections").is(200)), ["p", "q"]);
        assert_ne!(status(&site.api, "p")["stale"], true);
        emit_as(&site.api, "t", json!({"key": "all", "payload": {"id": id, "a": 1, "b": 2}}));
        caught_up(&site.api, "p");
        caught_up(&site.api, "q");
        let document = doc(&site.api, "c", id);
        assert_eq!((&document["a"], document.get("b")), (&json!(1), None));
    }
    assert_eq!(content(&site.api, "d", "all"), json!({"n": 2}));
}

#[test]
fn a_definition_is_there_as_soon_as_it_is_answered() {
    let mut site = Site::start();
    emit(&site.api, "t", &json!({"id": "k"}));
    for n in 0..4 {
        define(&site.api, &format!("p{n}"), &changelog("t", &format!("c{n}")));
        site.crash();
        caught_up(&site.api, &format!("p{n}"));
        doc(&site.api, &format!("c{n}"), "k");
    }
}

#[test]
fn documents_and_positions_survive() {
    let mut site = Site::start();
    define(&site.api, "p", &with(changelog("t", "c"), "indexes", json!([["n"]])));
    define(&site.api, "q", &counting("t", "counts"));
    let events: Vec<Value> = (0..500)
        .map(|n| json!({"key": format!("k{}", n % 9), "payload": {"id": n.to_string(), "n": n % 50}}))
        .collect();
    groups_support::publish_all(&site.api, "t", &events);
    caught_up(&site.api, "p");
    caught_up(&site.api, "q");
    let read =
        |api: &Api| [list_all(api, "c", "limit=200"), list_all(api, "c", "n=7"), list_all(api, "counts", "")];
    let before = read(&site.api);
    assert_eq!((before[0].len(), before[1].len(), before[2].len()), (500, 10, 9));
    for end in [Site::crash, Site::restart, Site::crash] {
        end(&mut site);
        assert_eq!(read(&site.api), before);
        assert_eq!(status(&site.api, "q")["lag"], 0);
    }
}

#[test]
fn a_dead_letter_is_written_once() {
    let mut site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    for n in 0..5 {
        emit(&site.api, "t", &json!({"bad": n}));
        emit(&site.api, "t", &json!({"id": n.to_string()}));
        site.crash();
    }
    caught_up(&site.api, "p");
    assert_eq!(dead_offsets(&wait_for_letters(&site.api, "t", 5)), [0, 2, 4, 6, 8]);
    assert_eq!(list(&site.api, "c", "")["count"], 5);
    site.crash();
    assert_eq!(letters(&site.api, "t").len(), 5);
}

/// What the events of the topic sum up to, by key: how many, and their sum.
fn truth(api: &Api) -> BTreeMap<String, (i64, i64)> {
    let mut sums = BTreeMap::new();
    for line in api.export("t", "").lines() {
        let sum: &mut (i64, i64) = sums.entry(line["key"].as_str().unwrap().to_owned()).or_default();
        sum.0 += 1;
        sum.1 += line["payload"]["by"].as_i64().unwrap();
    }
    sums
}

/// What a collection has, by key.
fn counted(api: &Api, collection: &str) -> BTreeMap<String, (i64, i64)> {
    let all = list_all(api, collection, "limit=1000");
    let one = |one: &Value| {
        let number = |name: &str| one[name].as_i64().unwrap();
        (one["_key"].as_str().unwrap().to_owned(), (number("n"), number("sum")))
    };
    all.iter().map(one).collect()
}

/// Publishes arrays until the hub is gone; tells of each that was answered.
fn publish_until_gone(api: &Api, told: &mpsc::Sender<usize>) {
    for n in 0.. {
        let size = 1 + (n * 37) % 60;
        let events: Vec<Value> =
            (0..size).map(|m| json!({"key": format!("k{}", (n + m) % 23), "payload": {"by": m}})).collect();
        match try_call(api, "POST", "/v1/topics/t/events", &json!(events).to_string()) {
            Some(answer) if answer.status == 201 => drop(told.send(size)),
            _ => return,
        }
    }
}

/// Kills the hub again and again in the midst of events, and compares what was counted with what is in the log.
fn count_through_kills(partitions: u32, kills: &[usize]) {
    let mut site = Site::start();
    site.api.make("t", partitions);
    let sums = |collection: &str| json!({"collection": collection, "key": "event.key", "inc": {"n": "1", "sum": "event.payload.by"}});
    define(&site.api, "p", &json!({"topic": "t", "write": [sums("a"), sums("b")]}));
    define(&site.api, "q", &json!({"topic": "t", "write": [sums("c")]}));
    let mut answered = 0;
    for &answers in kills {
        let (told, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (api, told) = (site.api.clone(), told.clone());
                scope.spawn(move || publish_until_gone(&api, &told));
            }
            drop(told);
            answered += heard.iter().take(answers).sum::<usize>();
            site.hub().signal(Signal::KILL);
            answered += heard.iter().sum::<usize>();
        });
        site.crash();
    }
    for round in 0..2 {
        caught_up(&site.api, "p");
        caught_up(&site.api, "q");
        let truth = truth(&site.api);
        let total: i64 = truth.values().map(|(n, _)| n).sum();
        assert!(total >= i64::try_from(answered).unwrap() && answered > 1000, "{answered} of {total}");
        for collection in ["a", "b", "c"] {
            assert_eq!(counted(&site.api, collection), truth, "{collection} in round {round}");
        }
        site.crash();
    }
}

#[test]
fn a_counter_is_exact_through_kills() {
    count_through_kills(1, &[1, 17, 40, 3, 29, 60]);
}

#[test]
fn a_counter_is_exact_through_kills_with_partitions() {
    count_through_kills(5, &[5, 31, 2, 50, 23]);
}

#[test]
fn a_counter_is_exact_when_the_hub_dies_while_it_catches_up() {
    let mut site = Site::start();
    let events: Vec<Value> =
        (0..1000).map(|n| json!({"key": format!("k{}", n % 10), "payload": n})).collect();
    for _ in 0..8 {
        groups_support::publish_all(&site.api, "t", &events);
    }
    define(&site.api, "p", &counting("t", "c"));
    for _ in 0..6 {
        // It is killed as soon as it has begun, and has to go on from there.
        status(&site.api, "p");
        site.crash();
    }
    caught_up(&site.api, "p");
    let all = list_all(&site.api, "c", "");
    assert!(all.len() == 10 && all.iter().all(|one| one["n"] == 800), "{all:?}");
}

#[test]
fn what_a_reader_has_seen_is_there_after_kill_9() {
    let mut site = Site::start();
    define(&site.api, "p", &counting("t", "c"));
    for round in 1..=5 {
        let mut last = Value::Null;
        for _ in 0..20 {
            last = emit_as(&site.api, "t", json!({"key": "k", "payload": round}));
        }
        let seen = site.api.get(&format!("{}?min_offset={}", snap("c", "k"), last["offset"])).is(200);
        assert_eq!(seen["n"], round * 20);
        site.crash();
        assert_eq!(doc(&site.api, "c", "k"), seen);
    }
}

#[test]
fn an_interval_topic_is_counted_exactly_too() {
    let mut site = Site::start();
    site.api.put("/v1/topics/t", r#"{"durability":"interval"}"#).is(201);
    define(&site.api, "p", &counting("t", "c"));
    for _ in 0..4 {
        let events: Vec<Value> = (0..200).map(|n| json!({"key": "k", "payload": n})).collect();
        groups_support::publish_all(&site.api, "t", &events);
        site.crash();
    }
    caught_up(&site.api, "p");
    assert_eq!(content(&site.api, "c", "k"), json!({"n": site.api.all("t", "limit=1000").len()}));
}

#[test]
fn owners_survive() {
    let mut site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    put(&site.api, "mine", "k", json!({}));
    site.crash();
    let write = json!({"writes": [state_support::write("c", "k", "set", json!({}))]});
    state_support::commit(&site.api, &write).fails(409, "not_owner");
    site.api.put(&projection_path("q"), &changelog("t", "mine").to_string()).fails(409, "not_owner");
}

fn hub_on(data: &Path, file: &str) -> (Hub, Api) {
    let hub = Hub::with_file(file, &["--data", data.to_str().unwrap()]);
    let api = hub.api();
    (hub, api)
}

#[test]
fn a_config_that_changed_is_noticed_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = |fields: &str| {
        format!(
            "[[projection]]\nname = \"p\"\ntopic = \"t\"\ncollection = \"c\"\nkey = \"event.payload.id\"\nfields = {fields}\n"
        )
    };
    let (hub, api) = hub_on(folder.path(), &file(r#"["id", "a"]"#));
    emit(&api, "t", &json!({"id": "old", "a": 1, "b": 2}));
    caught_up(&api, "p");
    assert_ne!(status(&api, "p")["stale"], true);
    assert_eq!(hub.stop().code(), Some(0));

    let (hub, api) = hub_on(folder.path(), &file(r#"["id", "b"]"#));
    assert_eq!(status(&api, "p")["stale"], true);
    emit(&api, "t", &json!({"id": "new", "a": 1, "b": 2}));
    caught_up(&api, "p");
    // Old data is as it was, new data is as it should be.
    assert_eq!(content(&api, "c", "old"), json!({"id": "old", "a": 1}));
    assert_eq!(content(&api, "c", "new"), json!({"id": "new", "b": 2}));
    assert_eq!(hub.stop().code(), Some(0));

    let (hub, api) = hub_on(folder.path(), &file(r#"["id", "b"]"#));
    assert_eq!(status(&api, "p")["stale"], true);
    rebuild(&api, "p");
    assert_eq!(content(&api, "c", "old"), json!({"id": "old", "b": 2}));
    assert_eq!(hub.stop().code(), Some(0));

    let (_hub, api) = hub_on(folder.path(), &file(r#"["id", "b"]"#));
    assert_ne!(status(&api, "p")["stale"], true);
    assert_eq!(content(&api, "c", "old"), json!({"id": "old", "b": 2}));
}

#[test]
fn a_stop_in_the_midst_of_events_loses_and_doubles_nothing() {
    let mut site = Site::start();
    define(&site.api, "p", &counting("t", "c"));
    for _ in 0..3 {
        for _ in 0..10 {
            let events: Vec<Value> = (0..100).map(|n| json!({"key": "k", "payload": n})).collect();
            groups_support::publish_all(&site.api, "t", &events);
        }
        site.restart();
    }
    caught_up(&site.api, "p");
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 3000}));
    emit_all(&site.api, "other", &[json!(1)]);
    assert_eq!(content(&site.api, "c", "k"), json!({"n": 3000}));
}

/// Expressions that would take gigabytes or hours.
fn bombs() -> [String; 4] {
    [
        format!("(['aaaaaaaaaaaaaaaa']{})[0]", ".map(a,a+a)".repeat(29)),
        format!("string(size([1]{}))", ".map(a,[a,a])".repeat(29)),
        "event.payload.n.exists(a, event.payload.n.exists(b, event.payload.n.exists(c, a + b + c < 0))) ? 'a' : 'b'"
            .to_owned(),
        "event.payload.n.exists(a, 'x'.matches('(a{50}){9}' + string(a))) ? 'a' : 'b'".to_owned(),
    ]
}

/// Far below what any of the bombs would take, and far above what a hub does.
const MEMORY: u64 = 1 << 30;

#[test]
fn stored_expressions_that_cost_too_much_fail_their_events_and_nothing_else() {
    let mut site = Site::start();
    let numbers: Vec<u64> = (0..2_000).collect();
    for (n, bomb) in bombs().iter().enumerate() {
        let group = groups_support::Group::of(&site, "t", &format!("g{n}"));
        group.make(&json!({"from": "earliest", "filter": format!("{bomb} == 'a'")}));
        define(&site.api, &format!("key{n}"), &with(changelog("t", &format!("k{n}")), "key", json!(bomb)));
        let map = json!(format!("{{'a': {bomb}}}"));
        define(&site.api, &format!("map{n}"), &with(changelog("t", &format!("m{n}")), "map", map));
    }
    for round in 1..=2 {
        emit_as(&site.api, "t", json!({"key": "k", "payload": {"id": "k", "n": numbers, "round": round}}));
        let count = bombs().len();
        wait_for_letters(&site.api, "t", 2 * count * round);
        for n in 0..count {
            let group = groups_support::Group::of(&site, "t", &format!("g{n}"));
            groups_support::eventually("the filter has passed over what there is", || {
                group.nothing(json!({}));
                group.partition(0)["lag"] == 0
            });
            assert!(group.status()["filter_errors"].as_u64() > Some(0));
            for name in [format!("key{n}"), format!("map{n}")] {
                caught_up(&site.api, &name);
                let now = status(&site.api, &name);
                assert!(now["last_error"].as_str().unwrap().contains("more work than"), "{now}");
            }
        }
        let metrics = site.api.get("/metrics");
        let metrics = metrics.text();
        assert!(metrics.contains("group_filter_errors_total{topic=\"t\",group=\"g0\"}"), "{metrics}");
        let taken = site.hub().usage().peak_memory().unwrap();
        assert!(taken < MEMORY, "{taken} bytes");
        site.crash();
    }
    for n in 0..bombs().len() {
        groups_support::Group::of(&site, "t", &format!("g{n}")).delete();
        for name in [format!("key{n}"), format!("map{n}")] {
            site.api.delete(&projection_path(&name)).is(204);
        }
    }
    emit(&site.api, "t", &json!({"n": numbers}));
    assert_eq!(letters(&site.api, "t").len(), 4 * bombs().len(), "nothing of them is left");
}
