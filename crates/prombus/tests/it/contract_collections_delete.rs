//! Deleting a collection: its documents are gone for good, and what has its name later is another one.

use crate::contract_support::{Site, now};
use crate::groups_support::eventually;
use crate::state_support::{
    caught_up, changelog, commit, committed, define, doc, emit, exists, is_missing, keys, on_both_stores,
    put, versions, write,
};
use serde_json::{Value, json};

#[test]
fn a_deleted_collection_is_gone_and_starts_over() {
    on_both_stores(|api| {
        for n in 0..3 {
            put(api, "c", "k", json!({"n": n}));
        }
        put(api, "c", "other", json!({}));
        put(api, "cc", "k", json!({}));
        let before = api.get("/v1/collections/c/snap/k");
        let tag = before.header("etag").unwrap().to_owned();
        assert_eq!(api.delete("/v1/collections/c").status, 204);
        api.get("/v1/collections/c").fails(404, "not_found");
        is_missing(api, "c", "k");
        assert!(exists(api, "cc", "k"), "others stay");
        let listed = api.get("/v1/collections").is(200);
        assert!(!listed.to_string().contains("\"c\""), "{listed}");
        let error = api.delete("/v1/collections/c").fails(404, "not_found");
        assert!(error["message"].as_str().unwrap().contains("collection c"), "{error}");
        // It starts over: no document is there, and versions count from 1.
        let started = now();
        let answer = committed(api, &json!({"writes": [write("c", "k", "merge", json!({"m": 1}))]}));
        assert_eq!(versions(&answer), [1]);
        let document = doc(api, "c", "k");
        assert_eq!((&document["m"], &document["n"], &document["_v"]), (&json!(1), &Value::Null, &json!(1)));
        assert!(document["_ts"].as_i64().unwrap() >= started - 1_000, "{document}");
        assert_ne!(api.get("/v1/collections/c/snap/k").header("etag"), Some(tag.as_str()));
        assert_eq!(keys(api, "c", ""), ["k"]);
        let spent = write("c", "k", "set", json!({}));
        let mut stale = spent.clone();
        stale["if_version"] = json!(3);
        commit(api, &json!({"writes": [stale]})).fails(409, "version_conflict");
    });
}

#[test]
fn it_stays_deleted_after_a_crash() {
    let mut site = Site::start();
    for n in 0..200 {
        put(&site.api, "c", &format!("k{n}"), json!({"n": n}));
    }
    site.restart();
    let settings = json!({"indexes": [["n"], {"fields": ["m"], "unique": true}], "changefeed": "c.changed"});
    site.api.put("/v1/collections/c", &settings.to_string()).is(200);
    assert_eq!(site.api.delete("/v1/collections/c").status, 204);
    site.crash();
    site.api.get("/v1/collections/c").fails(404, "not_found");
    is_missing(&site.api, "c", "k7");
    put(&site.api, "c", "k7", json!({"m": 1}));
    site.crash();
    assert_eq!(keys(&site.api, "c", ""), ["k7"]);
    let state = site.api.get("/v1/collections/c").is(200);
    assert_eq!(
        (&state["indexes"], &state["count"]),
        (&json!([]), &json!(1)),
        "its settings went with it: {state}"
    );
    assert!(state.get("changefeed").is_none(), "{state}");
}

#[test]
fn a_collection_of_a_projection_is_not_deleted() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        emit(api, "t", &json!({"id": "a"}));
        caught_up(api, "p");
        let error = api.delete("/v1/collections/c").fails(409, "not_owner");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("written by projection p, and is deleted with it"), "{error}");
        assert!(message.contains("prombus projections delete p"), "{error}");
        assert_eq!((&error["collection"], &error["owner"]), (&json!("c"), &json!("p")));
        api.get("/v1/collections/c").is(200);
        assert_eq!(api.delete("/v1/projections/p").status, 204);
        api.delete("/v1/collections/c").fails(404, "not_found");
    });
}

#[test]
fn a_changefeed_is_not_told_of_a_deletion() {
    let site = Site::start();
    site.api.put("/v1/collections/c", &json!({"changefeed": "c.changed"}).to_string()).is(201);
    for n in 0..5 {
        put(&site.api, "c", &format!("k{n}"), json!({}));
    }
    eventually("all are told", || site.api.all("c.changed", "").len() == 5);
    assert_eq!(site.api.delete("/v1/collections/c").status, 204);
    put(&site.api, "c", "k0", json!({}));
    assert_eq!(site.api.all("c.changed", "").len(), 5, "neither it, nor what has its name now");
}

#[test]
fn what_is_no_collection_is_not_found() {
    on_both_stores(|api| {
        api.delete("/v1/collections/none").fails(404, "not_found");
        api.delete("/v1/collections/none?force=1").fails(400, "bad_request");
    });
}
