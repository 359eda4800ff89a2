//! Collections over HTTP: listed, shown, made and searched.

use crate::common;
use crate::common::{Answer, Served, as_one_who, document, guarded, send, start, start_with};
use prombus_core::{DocumentWrite, Owner};
use prombus_wire::{
    CollectionAnswer, CollectionIndex, CollectionOwner, Collections, DocumentsPage, IndexAnswer, IndexState,
};
use reqwest::Method;
use serde_json::{Value, json};

const C: &str = "/v1/collections/c";
const LIST: &str = "/v1/collections/c/list";

fn names(answer: &Answer) -> Vec<String> {
    let all: Collections = serde_json::from_str(&answer.is(200).text).unwrap();
    all.collections.into_iter().map(|one| one.name).collect()
}

#[tokio::test]
async fn a_collection_is_made_changed_and_shown() {
    let hub = start().await;
    assert_eq!(hub.get("/v1/collections").await.is(200).json(), json!({"collections": []}));
    hub.get(C).await.is_error(404, "not_found");
    let settings = r#"{"indexes":[["a","b.c"],{"fields":["d"],"unique":true}],"changefeed":"c.changed"}"#;
    let made = hub.put(C, settings).await;
    let expected = json!({
        "name": "c", "count": 0, "size": 0, "owner": "commits", "changefeed": "c.changed",
        "indexes": [{"fields": ["a", "b.c"], "unique": false, "state": "ready"}, {"fields": ["d"], "unique": true, "state": "ready"}],
    });
    assert_eq!(made.is(201).json(), expected);
    assert_eq!(hub.put(C, settings).await.is(200).json(), expected);
    assert_eq!(hub.get(C).await.is(200).json(), expected);
    assert_eq!(hub.get("/v1/collections").await.is(200).json(), json!({ "collections": [expected] }));
    let bare: CollectionAnswer = serde_json::from_str(&hub.put(C, "").await.is(200).text).unwrap();
    assert_eq!((bare.indexes.len(), bare.changefeed), (0, None));
}

#[tokio::test]
async fn counts_and_owners() {
    let hub = start().await;
    let of_projection = DocumentWrite { owner: Owner::projection("p"), ..document("d", "k", 1, &json!({})) };
    hub.write(vec![document("c", "k", 1, &json!({"a": 1})), of_projection]).await;
    let c: CollectionAnswer = serde_json::from_str(&hub.get(C).await.is(200).text).unwrap();
    assert_eq!((c.count, c.owner), (1, CollectionOwner::Commits));
    assert!(c.size > 0);
    let d = hub.get("/v1/collections/d").await.is(200).json();
    assert_eq!(d["owner"], json!({"projection": "p"}));
    hub.put("/v1/collections/d", "{}").await.is_error(409, "not_owner");
    assert_eq!(names(&hub.get("/v1/collections").await), ["c", "d"]);
}

#[tokio::test]
async fn bad_settings() {
    let hub = start().await;
    for bad in [
        r#"{"indexes":["a"]}"#,
        r#"{"indexes":[[]]}"#,
        r#"{"indexes":[["a..b"]]}"#,
        r#"{"indexes":[["a"],["a"]]}"#,
        r#"{"indexes":[{"fields":["a"],"sparse":true}]}"#,
        r#"{"changefeed":"T"}"#,
        r#"{"changefeed":"dlq.t"}"#,
        r#"{"owner":"commits"}"#,
        "[]",
    ] {
        hub.put(C, bad).await.is_error(400, "bad_request");
    }
    hub.put(C, "{").await.is_error(400, "bad_json");
    hub.put("/v1/collections/C", "{}").await.is_error(400, "bad_request");
    hub.get("/v1/collections?x=1").await.is_error(400, "bad_request");
    hub.get(C).await.is_error(404, "not_found");
    let answer = hub.put(C, r#"{"indexes":[{"fields":["a"]}]}"#).await;
    let made: CollectionAnswer = serde_json::from_str(&answer.is(201).text).unwrap();
    assert_eq!(
        made.indexes,
        [IndexAnswer {
            index: CollectionIndex { fields: vec!["a".into()], unique: false },
            state: IndexState::Ready,
        }]
    );
}

#[tokio::test]
async fn only_what_the_caller_may() {
    let hub = start_with(guarded(&[
        "read:c",
        "admin:c",
        "admin:c publish:feed",
        "admin:c read:c publish:feed",
        "publish:c",
    ]))
    .await;
    hub.write(vec![document("c", "k", 1, &json!({})), document("d", "k", 1, &json!({}))]).await;
    let get = |may: &str, path: &str| send(as_one_who(may, hub.request(Method::GET, path)));
    let put = |may: &str, body: &'static str| {
        send(
            as_one_who(may, hub.request(Method::PUT, C))
                .header("content-type", "application/json")
                .body(body),
        )
    };
    assert_eq!(names(&get("read:c", "/v1/collections").await), ["c"]);
    assert_eq!(names(&get("all", "/v1/collections").await), ["c", "d"]);
    assert_eq!(names(&get("admin:c", "/v1/collections").await), [""; 0]);
    for path in [C, LIST] {
        get("read:c", path).await.is(200);
        get("publish:c", path).await.is_error(403, "forbidden");
        get("read:c", &path.replace("collections/c", "collections/d")).await.is_error(403, "forbidden");
    }
    put("read:c", "{}").await.is_error(403, "forbidden");
    put("admin:c", "{}").await.is(200);
    put("admin:c", r#"{"changefeed":"feed"}"#).await.is_error(403, "forbidden");
    put("admin:c publish:feed", r#"{"changefeed":"feed"}"#).await.is_error(403, "forbidden");
    put("admin:c read:c publish:feed", r#"{"changefeed":"feed"}"#).await.is(200);
    hub.get("/v1/collections").await.is_error(401, "unauthorized");
}

async fn filled() -> Served {
    let hub = start().await;
    let one = |n: u64| {
        let status = ["alive", "stale"][(n % 2) as usize];
        document("c", &format!("k{n}"), n, &json!({"n": n, "status": status, "a": {"b": n % 3}}))
    };
    hub.write((0..10).map(one).collect()).await;
    hub
}

/// The `n` of the documents of a page.
async fn numbers(hub: &Served, query: &str) -> Vec<u64> {
    let answer = hub.get(&format!("{LIST}?{query}")).await;
    let page: DocumentsPage = serde_json::from_str(&answer.is(200).text).unwrap();
    assert_eq!(page.count, page.items.len());
    let number = |item: &str| serde_json::from_str::<Value>(item).unwrap()["n"].as_u64().unwrap();
    page.items.iter().map(|item| number(item.get())).collect()
}

#[tokio::test]
async fn conditions_and_order() {
    let hub = filled().await;
    for (query, expected) in [
        ("", &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0][..]),
        ("status=alive", &[8, 6, 4, 2, 0]),
        ("n[gte]=8", &[9, 8]),
        ("n%5Blt%5D=2", &[1, 0]),
        ("n[gt]=3&n[lte]=5&sort=n", &[4, 5]),
        ("n[in]=1,5,77", &[5, 1]),
        ("status[ne]=stale&a.b=0", &[6, 0]),
        ("sort=-a.b,n&limit=4", &[2, 5, 8, 1]),
        ("_key=k3", &[3]),
        ("_ts[gt]=8", &[9]),
        ("n=x", &[]),
        ("nothing=1", &[]),
    ] {
        assert_eq!(numbers(&hub, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn pages() {
    let hub = filled().await;
    let page = hub.get(&format!("{LIST}?limit=4&offset=4&sort=n")).await;
    assert_eq!(page.is(200).header("cache-control"), Some("no-store"));
    assert_eq!(page.header("content-type"), Some("application/json"));
    let page = page.json();
    assert_eq!(
        (&page["offset"], &page["limit"], &page["count"], &page["next"]),
        (&json!(4), &json!(4), &json!(4), &json!(8))
    );
    assert_eq!(page["items"][0], json!({"_key": "k4", "_ts": 4, "n": 4, "status": "alive", "a": {"b": 1}}));
    let last = hub.get(&format!("{LIST}?limit=4&offset=8&sort=n")).await.is(200).json();
    assert_eq!((&last["count"], &last["next"]), (&json!(2), &json!(null)));
    let beyond = hub.get(&format!("{LIST}?offset=1000")).await.is(200).json();
    assert_eq!((&beyond["count"], &beyond["next"], &beyond["items"]), (&json!(0), &json!(null), &json!([])));
    let exact = hub.get(&format!("{LIST}?limit=10")).await.is(200).json();
    assert_eq!(exact["next"], json!(null));
}

#[tokio::test]
async fn bad_lists() {
    let hub = filled().await;
    for bad in [
        "limit=0",
        "limit=1001",
        "offset=-1",
        "sort=",
        "n[near]=1",
        "sort=n&sort=n",
        "a..b=1",
        "min_offset=x",
    ] {
        hub.get(&format!("{LIST}?{bad}")).await.is_error(400, "bad_request");
    }
    hub.get(&format!("{LIST}?min_offset[eq]=1&limit[eq]=1")).await.is(200);
    hub.get("/v1/collections/none/list").await.is_error(404, "not_found");
    hub.get("/v1/collections/C/list").await.is_error(400, "bad_request");
    hub.post(LIST, "{}").await.is_error(405, "method_not_allowed");
}

#[tokio::test]
async fn there_are_only_so_many() {
    let mut setup = common::Setup::default();
    setup.limits.collections = 2;
    let hub = start_with(setup).await;
    let write = |name: &str| {
        let write = json!({"collection": name, "key": "k", "inc": {"n": 1}});
        json!({"commit_id": name, "writes": [write]}).to_string()
    };
    hub.post("/v1/commit", &write("a")).await.is(200);
    hub.put("/v1/projections/p", r#"{"topic":"t","collection":"b","key":"event.key"}"#).await.is(201);
    let refused = [
        hub.post("/v1/commit", &write("d")).await,
        hub.put(C, "{}").await,
        hub.put("/v1/projections/q", r#"{"topic":"t","collection":"d","key":"event.key"}"#).await,
    ];
    for refused in refused {
        let error = refused.is_error(413, "too_large");
        assert_eq!(error["limit"], 2);
        assert!(error["message"].as_str().unwrap().contains("limits.collections"), "{error}");
    }
    hub.get("/v1/projections/q").await.is_error(404, "not_found");
    hub.post("/v1/projections/p/rebuild", "").await.is(202);
    hub.delete("/v1/projections/p").await.is(204);
    hub.put(C, "{}").await.is(201);
}

#[tokio::test]
async fn what_a_changefeed_publishes_is_under_the_limits() {
    let mut setup = common::Setup::default();
    (setup.limits.event_bytes, setup.limits.topics) = (2_000, 1);
    let hub = start_with(setup).await;
    hub.put(C, r#"{"changefeed":"c.changed"}"#).await.is(201);
    let commit = |text: usize| {
        let write = json!({"collection": "c", "key": "k", "set": {"a": "x".repeat(text)}});
        let (hub, body) = (&hub, json!({ "writes": [write] }).to_string());
        async move { hub.post("/v1/commit", &body).await }
    };
    commit(10).await.is(200);
    let error = commit(2_000).await.is_error(413, "too_large");
    assert_eq!(error["limit"], 2_000);
    assert_eq!(hub.get("/v1/topics/c.changed/events").await.is(200).json()["count"], 1);
    hub.put(C, r#"{"changefeed":"elsewhere"}"#).await.is(200);
    let error = commit(10).await.is_error(413, "too_large");
    assert!(error["message"].as_str().unwrap().contains("limits.topics"), "{error}");
    hub.put(C, "{}").await.is(200);
    commit(2_000).await.is(200);
}

#[tokio::test]
async fn a_changefeed_makes_no_topic_where_publishing_makes_none() {
    let hub = start_with(common::Setup { auto_create: false, ..common::Setup::default() }).await;
    hub.put(C, r#"{"changefeed":"c.changed"}"#).await.is(201);
    let body = r#"{"writes":[{"collection":"c","key":"k","set":{}}]}"#;
    hub.post("/v1/commit", body).await.is_error(404, "not_found");
    hub.put("/v1/topics/c.changed", "{}").await.is(201);
    hub.post("/v1/commit", body).await.is(200);
}
