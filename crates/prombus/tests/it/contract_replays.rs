//! Bulk replays over HTTP and by the command line, through kills and with rights.

use crate::auth_support::jwt::{Signer, scopes};
use crate::auth_support::{Guarded, SECRET, until};
use crate::contract_support::Site;
use serde_json::{Value, json};

/// Publishes payloads with these numbers.
fn publish(site: &Site, topic: &str, numbers: std::ops::Range<u64>) {
    let events: Vec<Value> =
        numbers.map(|n| json!({"key": format!("k{}", n % 5), "payload": {"n": n}})).collect();
    site.api.post(&format!("/v1/topics/{topic}/events"), &json!(events).to_string()).is(201);
}

fn begin(site: &Site, request: Value) -> Value {
    site.api.post("/v1/replays", &request.to_string()).is(201)
}

fn show(site: &Site, name: &str) -> Value {
    site.api.get(&format!("/v1/replays/{name}")).is(200)
}

fn done(site: &Site, name: &str) -> Value {
    until("the replay is done", || show(site, name)["state"] == "done");
    show(site, name)
}

#[test]
fn a_range_is_copied_with_a_filter_and_a_map() {
    let site = Site::start();
    publish(&site, "orders", 0..100);
    let begun = begin(
        &site,
        json!({
            "name": "r", "source": {"topic": "orders", "from": "offset", "offset": 10}, "target": "copies",
            "filter": "event.payload.n % 2 == 0",
            "map": {"payload": "{'half': event.payload.n / 2}", "key": "'all'"},
        }),
    );
    assert_eq!((&begun["state"], &begun["source"]["offset"]), (&json!("running"), &json!(10)));
    let shown = done(&site, "r");
    assert_eq!([&shown["read"], &shown["copied"], &shown["errors"], &shown["left"]], [90, 45, 0, 0]);
    assert!(shown["began_ts"].as_u64() <= shown["ended_ts"].as_u64());
    let copies = site.api.all("copies", "");
    let originals = site.api.all("orders", "");
    for (at, copy) in copies.iter().enumerate() {
        let original = &originals[10 + 2 * at];
        assert_eq!(copy["payload"], json!({"half": 5 + at}));
        assert_eq!((&copy["key"], &copy["ts"]), (&json!("all"), &original["ts"]));
        assert_eq!(
            (&copy["headers"], &copy["caused_by"]),
            (&json!({"x-replay": "r"}), &json!([original["id"]]))
        );
    }
    assert_eq!(copies.len(), 45);
    assert_eq!(site.api.get("/v1/replays").is(200)["replays"], json!([shown]));
    site.api
        .post("/v1/replays", &json!({"name": "r", "source": {"topic": "orders"}, "target": "x"}).to_string())
        .fails(409, "id_conflict");
}

#[test]
fn a_killed_hub_goes_on_where_it_was() {
    let mut site = Site::start();
    for start in (0..30_000).step_by(1_000) {
        publish(&site, "a", start..start + 1_000);
    }
    begin(&site, json!({"name": "r", "source": {"topic": "a"}, "target": "b"}));
    for least in [1, 10_000, 20_000] {
        until("it goes on", || show(&site, "r")["copied"].as_u64().unwrap() >= least);
        site.crash();
    }
    assert_eq!(done(&site, "r")["copied"], 30_000);
    let numbers = |topic: &str| -> Vec<u64> {
        site.api.all(topic, "").iter().map(|event| event["payload"]["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers("a"), numbers("b"));
}

#[test]
fn replays_are_paused_resumed_and_cancelled() {
    let mut site = Site::start();
    publish(&site, "a", 0..100);
    begin(&site, json!({"name": "r", "source": {"topic": "a"}, "target": "b", "rate_per_s": 50}));
    until("it has begun", || show(&site, "r")["copied"].as_u64().unwrap() > 0);
    let tell = |site: &Site, what: &str| site.api.post(&format!("/v1/replays/r/{what}"), "");
    let paused = tell(&site, "pause").is(200);
    assert_eq!(paused["state"], "paused");
    site.restart();
    assert_eq!(show(&site, "r")["copied"], paused["copied"]);
    assert_eq!(site.api.all("b", "").len() as u64, paused["copied"].as_u64().unwrap());
    assert_eq!(tell(&site, "resume").is(200)["state"], "running");
    let cancelled = tell(&site, "cancel").is(200);
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(site.api.all("b", "").len() as u64, cancelled["copied"].as_u64().unwrap());
    tell(&site, "resume").fails(409, "bad_request");
    for what in ["pause", "resume", "cancel"] {
        site.api.post(&format!("/v1/replays/none/{what}"), "").fails(404, "not_found");
    }
    assert_eq!(site.api.delete("/v1/replays/r").status, 204);
    site.api.get("/v1/replays/r").fails(404, "not_found");
}

#[test]
fn a_dry_run_counts_and_what_makes_no_sense_is_refused() {
    let site = Site::start();
    publish(&site, "a", 0..100);
    let request = json!({"name": "r", "source": {"topic": "a"}, "target": "b", "filter": "event.payload.n < 7", "dry_run": true});
    let counted = site.api.post("/v1/replays", &request.to_string()).is(200);
    assert_eq!(
        (&counted["dry_run"], &counted["read"], &counted["copied"]),
        (&json!(true), &json!(100), &json!(7))
    );
    site.api.get("/v1/replays/r").fails(404, "not_found");
    site.api.get("/v1/topics/b").fails(404, "not_found");
    let change = |field: &str, value: Value| {
        let mut changed = json!({"name": "r", "source": {"topic": "a"}, "target": "b"});
        changed[field] = value;
        site.api.post("/v1/replays", &changed.to_string())
    };
    change("filter", json!("event.")).fails(400, "bad_filter");
    assert_eq!(change("map", json!({"key": "}"})).fails(400, "bad_filter")["place"], "map.key");
    change("source", json!({"topic": "none"})).fails(404, "not_found");
    change("target", json!("dlq.a")).fails(400, "bad_request");
    change("rate_per_s", json!(0)).fails(400, "bad_request");
    change("name", json!("")).fails(400, "bad_request");
    change("nonsense", json!(1)).fails(400, "bad_request");
    change("source", json!({"topic": "a", "from": "ts"})).fails(400, "bad_request");
    change(
        "source",
        json!({"topic": "a", "from": "afterId", "afterId": "0198c0de-0000-7000-8000-000000000001"}),
    )
    .fails(404, "not_found");
    site.api.post("/v1/topics/a/trim", r#"{"partition":0,"before":50}"#).is(200);
    assert_eq!(
        change("source", json!({"topic": "a", "from": "offset", "offset": 3})).fails(410, "gone")["first"],
        50
    );
}

#[test]
fn a_replay_needs_both_topics() {
    let hub = Guarded::jwt();
    let token = |allowed: &[&str]| Signer::secret(SECRET).token(&scopes(allowed));
    let all = token(&["*:**"]);
    hub.caller(&all).post("/v1/topics/a/events", &json!({"payload": {"secret": 1}})).is(201);
    let needed = ["admin:a", "read:a", "publish:b"];
    let request =
        json!({"name": "r", "source": {"topic": "a"}, "target": "b", "map": {"key": "event.payload.secret"}});
    for lacking in needed {
        let others: Vec<&str> =
            needed.into_iter().filter(|scope| *scope != lacking).chain(["admin:other"]).collect();
        hub.caller(&token(&others)).post("/v1/replays", &request).fails(403, "forbidden");
    }
    hub.caller(&token(&needed)).post("/v1/replays", &request).is(201);
    let show = |allowed: &[&str]| hub.caller(&token(allowed)).get("/v1/replays/r");
    until("it is over", || show(&["*:**"]).is(200)["state"] == "done");
    assert!(
        show(&["*:**"]).is(200)["last_errors"][0]["error"].as_str().unwrap().contains("must be a string")
    );
    let hidden = show(&["admin:a"]).is(200);
    assert_eq!(hidden["errors"], 1);
    assert!(
        hidden["last_errors"][0]["error"].as_str().unwrap().contains("shown to those who have `read`"),
        "{hidden}"
    );
    show(&["admin:b", "read:**"]).fails(403, "forbidden");
    assert_eq!(hub.caller(&token(&["admin:b"])).get("/v1/replays").is(200)["replays"], json!([]));
}

#[test]
fn the_command_line_does_the_same() {
    let site = Site::start();
    publish(&site, "a", 0..100);
    let run =
        |arguments: &[&str]| -> Value { serde_json::from_str(&site.hub().run(arguments).ok()).unwrap() };
    let started = run(&[
        "replay",
        "start",
        "r",
        "a",
        "b",
        "--filter",
        "event.payload.n >= 90",
        "--map-key",
        "event.key",
        "--wait",
    ]);
    assert_eq!(started["copied"], 10);
    assert_eq!(run(&["replay", "show", "r"])["state"], "done");
    assert_eq!(run(&["replay", "list"])["name"], "r");
    assert_eq!(
        run(&["replay", "start", "again", "a", "c", "--from", "offset:50", "--dry-run"])["copied"],
        50
    );
}
