//! Projections over HTTP.

use crate::common;
use crate::common::{as_one_who, guarded, send, start, start_with};
use prombus_wire::ProjectionAnswer;
use reqwest::Method;
use serde_json::json;

const P: &str = "/v1/projections/p";

#[tokio::test]
async fn where_there_are_none() {
    let hub = start().await;
    assert_eq!(hub.get("/v1/projections").await.is(200).json(), json!({"projections": []}));
    hub.get(P).await.is_error(404, "not_found");
    hub.delete(P).await.is_error(404, "not_found");
    hub.post(&format!("{P}/rebuild"), "").await.is_error(404, "not_found");
    assert_eq!(hub.get("/ops").await.is(200).json()["projections"], json!([]));
    let metrics = hub.get("/metrics").await;
    assert!(metrics.text.contains("# TYPE projection_lag_events gauge\n"), "{}", metrics.text);
}

#[tokio::test]
async fn definitions_that_make_no_sense() {
    let hub = start().await;
    for (body, named) in [
        (r#"{"collection":"c"}"#, "topic"),
        (r#"{"topic":"t","collection":"c","feilds":["a"]}"#, "feilds"),
        (r#"{"topic":"t","collection":["c"]}"#, "collection: "),
        (r#"{"topic":"t","write":[{"collection":"c","key":"k","inc":{"n":1}}]}"#, "write[0].inc.n: "),
        (r#"{"topic":"t","collection":"c","name":"q"}"#, "name: "),
        (r#"{"topic":"t","topic":"t","collection":"c"}"#, "topic"),
        (r#"[]"#, "object"),
    ] {
        let error = hub.put(P, body).await.is_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    hub.put(P, "").await.is_error(400, "bad_json");
    hub.put(P, "{").await.is_error(400, "bad_json");
    hub.put(&format!("{P}?x=1"), r#"{"topic":"t","collection":"c"}"#).await.is_error(400, "bad_request");
    hub.post(&format!("{P}/rebuild"), r#"{"partly":true}"#).await.is_error(400, "bad_request");
    hub.post(&format!("{P}/rebuild"), r#"{"partial":1}"#).await.is_error(400, "bad_request");
}

#[tokio::test]
async fn expressions_have_a_limit_in_number_and_their_patterns_in_size() {
    let hub = start().await;
    let with = |count: usize, expression: &dyn Fn(usize) -> String| {
        let set: serde_json::Map<_, _> =
            (0..count).map(|n| (format!("f{n}"), json!(expression(n)))).collect();
        json!({"topic": "t", "write": [{"collection": "c", "key": "event.key", "set": set}]}).to_string()
    };
    for (count, expression, named) in [
        (1_000, (&|n: usize| format!("event.payload.f{n}")) as &dyn Fn(usize) -> String, "at most 1000"),
        (17, &|n: usize| format!(r"event.key.matches('\\pL{{6}}{n}')"), "regular expressions"),
        (17, &|n: usize| format!("event.key == '{n}{}'", "x".repeat(8_000)), "may take 131072 bytes"),
    ] {
        let error = hub.put(P, &with(count, expression)).await.is_error(400, "bad_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    hub.put(P, &with(999, &|n| format!("event.payload.f{n}"))).await.is(201);
}

#[tokio::test]
async fn they_are_set_up_by_those_who_may() {
    let hub = start_with(guarded(&[
        "read:** publish:** subscribe:**",
        "admin:t",
        "admin:c",
        "admin:* read:t publish:c",
    ]))
    .await;
    let ask = |may: &str, method: Method, path: &str| {
        let body = r#"{"topic":"t","collection":"c","changefeed":"feed"}"#;
        let request =
            as_one_who(may, hub.request(method.clone(), path)).header("content-type", "application/json");
        send(if method == Method::PUT { request.body(body) } else { request })
    };
    let nobody = "read:** publish:** subscribe:**";
    for (method, path) in [
        (Method::GET, "/v1/projections"),
        (Method::GET, P),
        (Method::PUT, P),
        (Method::DELETE, P),
        (Method::POST, "/v1/projections/p/rebuild"),
    ] {
        ask(nobody, method.clone(), path).await.is_error(403, "forbidden");
        send(hub.request(method, path)).await.is_error(401, "unauthorized");
    }
    ask("admin:t", Method::PUT, P).await.is_error(403, "forbidden");
    ask("admin:c", Method::PUT, P).await.is_error(403, "forbidden");
    let feed = ask("admin:* read:t publish:c", Method::PUT, P).await.is_error(403, "forbidden");
    assert!(feed["message"].as_str().unwrap().contains("publish on feed"), "{feed}");
    ask("admin:t", Method::GET, "/v1/projections").await.is(200);
}

#[tokio::test]
async fn one_is_made_seen_changed_rebuilt_and_deleted() {
    let hub = start().await;
    let definition =
        r#"{"name":"p","topic":"t","collection":"c","key":"event.payload.id","indexes":[["n"]]}"#;
    let made = hub.put(P, definition).await;
    let told: ProjectionAnswer = serde_json::from_str(&made.is(201).text).unwrap();
    assert_eq!((told.name.as_str(), told.kind.as_str(), told.topic.as_str()), ("p", "changelog", "t"));
    assert_eq!((told.collections, told.stale), (vec!["c".to_owned()], false));
    assert_eq!(told.definition["key"], "event.payload.id");
    hub.put(P, definition).await.is(200);
    let event = r#"{"payload":{"id":"k","n":1}}"#;
    let offset = hub.post("/v1/topics/t/events", event).await.is(201).json()["offset"].clone();
    for at in [format!("{offset}"), format!("0:{offset}")] {
        let read = hub.get(&format!("/v1/collections/c/snap/k?min_offset={at}")).await;
        assert_eq!(read.is(200).json()["n"], 1);
        let listed = hub.get(&format!("/v1/collections/c/list?n=1&min_offset={at}")).await;
        assert_eq!(listed.is(200).json()["count"], 1);
    }
    hub.get("/v1/collections/c/snap/k?min_offset=7:0").await.is_error(400, "bad_request");
    let status = hub.get(P).await.is(200).json();
    assert_eq!(
        (&status["state"], &status["lag"], &status["rebuild"]),
        (&json!("running"), &json!(0), &json!(null))
    );
    assert_eq!(status["partitions"], json!([{"partition": 0, "next": 1, "tail": 1, "lag": 0}]));
    let listed = hub.get("/v1/projections").await.is(200).json();
    assert_eq!(listed["projections"][0]["name"], "p");
    assert_eq!(hub.get("/ops").await.is(200).json()["projections"][0]["name"], "p");
    let metrics = hub.get("/metrics").await;
    assert!(metrics.text.contains("projection_lag_events{projection=\"p\"} 0\n"), "{}", metrics.text);
    let owner = hub.get("/v1/collections/c").await.is(200).json()["owner"].clone();
    assert_eq!(owner, json!({"projection": "p"}));
    hub.put("/v1/collections/c", "{}").await.is_error(409, "not_owner");
    let write = r#"{"writes":[{"collection":"c","key":"k","delete":true}]}"#;
    hub.post("/v1/commit", write).await.is_error(409, "not_owner");
    hub.put("/v1/projections/q", &definition.replace("\"p\"", "\"q\"")).await.is_error(409, "not_owner");
    let changed = definition.replace("\"indexes\"", "\"fields\":[\"id\"],\"indexes\"");
    assert_eq!(hub.put(P, &changed).await.is(200).json()["stale"], true);
    hub.post(&format!("{P}/rebuild"), r#"{"partial":true}"#).await.is(202);
    hub.delete(P).await.is(204);
    hub.get(P).await.is_error(404, "not_found");
    hub.get("/v1/collections/c").await.is_error(404, "not_found");
}

#[tokio::test]
async fn a_mistake_in_an_expression_is_told_with_its_place() {
    let hub = start().await;
    let error =
        hub.put(P, r#"{"topic":"t","collection":"c","key":"event..x"}"#).await.is_error(400, "bad_filter");
    assert!(error["place"].as_str().unwrap().contains("key"), "{error}");
    assert!(error["line"].is_u64() && error["column"].is_u64(), "{error}");
    let changelog =
        |part: &str| format!(r#"{{"topic":"t","collection":"c","key":"event.key","{part}":"evnt.ts"}}"#);
    let write = |part: &str| {
        format!(
            r#"{{"topic":"t","write":[{{"collection":"c","key":"event.key","inc":{{"m":"1"}},{part}}}]}}"#
        )
    };
    for (definition, place) in [
        (changelog("map"), "`map` does not compile: "),
        (changelog("tombstone"), "`tombstone` does not compile: "),
        (changelog("version"), "`version` does not compile: "),
        (write(r#""set":{"n":"evnt.ts"}"#), "`write[0].set.n` does not compile: "),
        (write(r#""when":"evnt.ts""#), "`write[0].when` does not compile: "),
    ] {
        let error = hub.put(P, &definition).await.is_error(400, "bad_filter");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(place) && message.contains("line 1, column 1"), "{message}");
        assert!(!message.contains("filter"), "{message}");
    }
}

#[tokio::test]
async fn only_ones_own_are_shown_and_changed() {
    let (mine, theirs) = ("admin:t admin:c read:t publish:c", "admin:u admin:d read:u publish:d");
    let hub = start_with(guarded(&[mine, theirs, "admin:t"])).await;
    let ask = |may: &str, method: Method, path: &str, body: &'static str| {
        let request = as_one_who(may, hub.request(method, path)).header("content-type", "application/json");
        send(request.body(body))
    };
    ask(mine, Method::PUT, P, r#"{"topic":"t","collection":"c","key":"event.key"}"#).await.is(201);
    let names = |answer: common::Answer| answer.is(200).json()["projections"].as_array().unwrap().len();
    assert_eq!(names(ask(mine, Method::GET, "/v1/projections", "").await), 1);
    assert_eq!(names(ask(theirs, Method::GET, "/v1/projections", "").await), 0);
    assert_eq!(names(ask(theirs, Method::GET, "/ops", "").await), 0);
    assert_eq!(names(ask("admin:t", Method::GET, "/ops", "").await), 1);
    ask("admin:t", Method::GET, P, "").await.is(200);
    ask(theirs, Method::GET, P, "").await.is_error(403, "forbidden");
    let other = r#"{"topic":"u","collection":"d","key":"event.key"}"#;
    ask(theirs, Method::PUT, P, other).await.is_error(403, "forbidden");
    for may in [theirs, "admin:t"] {
        ask(may, Method::DELETE, P, "").await.is_error(403, "forbidden");
        ask(may, Method::POST, "/v1/projections/p/rebuild", "").await.is_error(403, "forbidden");
    }
    ask(mine, Method::DELETE, P, "").await.is(204);
}

#[tokio::test]
async fn a_circle_is_told_with_its_way() {
    let hub = start().await;
    let define = |topic: &str, feed: &str| {
        let collection = format!("of_{topic}");
        json!({"topic": topic, "collection": collection, "key": "event.key", "changefeed": feed}).to_string()
    };
    hub.put(P, &define("x", "y")).await.is(201);
    let error = hub.put("/v1/projections/q", &define("y", "x")).await.is_error(400, "bad_request");
    let way = "projection \"q\", collection of_y, topic x, projection \"p\", collection of_x, topic y";
    assert!(error["message"].as_str().unwrap().contains(way), "{error}");
    hub.get("/v1/projections/q").await.is_error(404, "not_found");
}

#[tokio::test]
async fn snapshots_close_no_circle_whichever_part_of_it_comes_last() {
    let snapshots = |target: &str| json!({"snapshot": {"topic": target, "every_ms": 1}}).to_string();
    let define = |topic: &str, feed: &str| {
        let write =
            json!({"collection": "c", "key": "event.key", "set": "event.payload", "changefeed": feed});
        json!({"topic": topic, "write": [write]}).to_string()
    };
    let hub = start().await;
    hub.put("/v1/topics/u", &snapshots("u.snap")).await.is(201);
    let error = hub.put(P, &define("u.snap", "u")).await.is_error(400, "bad_request");
    let way = "topic u.snap, projection \"p\", collection c, topic u, its snapshots, topic u.snap";
    assert!(error["message"].as_str().unwrap().ends_with(way), "{error}");
    hub.put(P, &define("v.snap", "v")).await.is(201);
    // Only the projection says where its changes go.
    hub.put("/v1/collections/c", r#"{"changefeed":"u"}"#).await.is_error(409, "not_owner");
    let error = hub.put("/v1/topics/v", &snapshots("v.snap")).await.is_error(400, "bad_request");
    let way = "topic v, its snapshots, topic v.snap, projection \"p\", collection c, topic v";
    assert!(error["message"].as_str().unwrap().ends_with(way), "{error}");
    hub.get("/v1/topics/v").await.is_error(404, "not_found");
}

#[tokio::test]
async fn whoever_waits_for_a_projection_learns_that_it_was_deleted() {
    for path in ["snap/k", "list"] {
        let hub = start().await;
        hub.put(P, r#"{"topic":"t","collection":"c","key":"event.payload.id"}"#).await.is(201);
        let path = format!("/v1/collections/c/{path}?min_offset=5");
        let mut waiting = std::pin::pin!(hub.get(&path));
        // It has nothing to tell, and so it waits; more than once, so that it has begun to.
        for _ in 0..5 {
            tokio::select! {
                biased;
                answer = &mut waiting => panic!("{answer:?}"),
                _ = hub.get("/healthz") => {}
            }
        }
        let (answer, deleted) = tokio::join!(waiting, hub.delete(P));
        deleted.is(204);
        answer.is_error(404, "not_found");
    }
}

#[tokio::test]
async fn whoever_waits_for_a_projection_goes_on_when_it_is_defined_anew() {
    let hub = start().await;
    let definition = r#"{"topic":"t","collection":"c","key":"event.payload.id"}"#;
    hub.put(P, definition).await.is(201);
    let mut waiting = std::pin::pin!(hub.get("/v1/collections/c/snap/k?min_offset=0"));
    for _ in 0..5 {
        tokio::select! {
            biased;
            answer = &mut waiting => panic!("{answer:?}"),
            _ = hub.get("/healthz") => {}
        }
    }
    let change = async {
        hub.put(P, &definition.replace("}", r#","fields":["id"]}"#)).await.is(200);
        hub.post("/v1/topics/t/events", r#"{"payload":{"id":"k","n":1}}"#).await.is(201);
    };
    let (answer, ()) = tokio::join!(waiting, change);
    assert_eq!(answer.is(200).json()["id"], "k");
}
