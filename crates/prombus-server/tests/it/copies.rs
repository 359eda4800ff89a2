//! Copies of events (`dual_write`), and who may have them made.

use crate::common::{Answer, Served, as_one_who, guarded, send, start_with};
use reqwest::Method;

const SCHEMA: &str = r#"{"schema":{"type":"object"}}"#;
const DUAL: &str = r#"{"dual_write":true}"#;

async fn ask(hub: &Served, may: &str, method: Method, path: &str, body: &'static str) -> Answer {
    let request = as_one_who(may, hub.request(method, path)).header("content-type", "application/json");
    send(request.body(body)).await
}

/// Whoever has events copied could read them there.
#[tokio::test]
async fn having_events_copied_needs_to_read_them_and_to_write_the_copies() {
    let enough = "admin:t read:t admin:t.v1 publish:t.v1 admin:u read:u admin:u.v1 publish:u.v1";
    let lacking = [
        "admin:t admin:t.v1 publish:t.v1 read:t.v1 admin:u admin:u.v1 publish:u.v1 read:u.v1",
        "admin:t read:t publish:t.v1 read:t.v1 admin:u read:u publish:u.v1 read:u.v1",
        "admin:t read:t admin:t.v1 read:t.v1 admin:u read:u admin:u.v1 read:u.v1",
    ];
    let hub = start_with(guarded(&[enough, lacking[0], lacking[1], lacking[2]])).await;
    ask(&hub, "all", Method::POST, "/v1/schemas/t", SCHEMA).await.is(201);
    ask(&hub, "all", Method::PUT, "/v1/topics/u", DUAL).await.is(201);
    for who in lacking {
        ask(&hub, who, Method::PUT, "/v1/topics/t", DUAL).await.is_error(403, "forbidden");
        ask(&hub, who, Method::PUT, "/v1/topics/t", r#"{"dual_write":false}"#).await.is(200);
        ask(&hub, who, Method::POST, "/v1/schemas/u", SCHEMA).await.is_error(403, "forbidden");
    }
    let topic = ask(&hub, "all", Method::GET, "/v1/topics/t", "").await.is(200).json();
    assert_eq!(topic["dual_write"], false);
    ask(&hub, "all", Method::GET, "/v1/schemas/u", "").await.is_error(404, "not_found");

    ask(&hub, enough, Method::PUT, "/v1/topics/t", DUAL).await.is(200);
    ask(&hub, enough, Method::POST, "/v1/schemas/u", SCHEMA).await.is(201);
    // What is of the next version would go elsewhere.
    for path in ["/v1/schemas/t", "/v1/schemas/u"] {
        ask(&hub, enough, Method::POST, path, SCHEMA).await.is_error(403, "forbidden");
    }
    // To register what is registered already copies nothing.
    let known = r#"{"schema":{"type":"object"},"version":1}"#;
    ask(
        &hub,
        "admin:t admin:t.v1 publish:t.v1 read:t.v1 admin:u admin:u.v1 publish:u.v1 read:u.v1",
        Method::POST,
        "/v1/schemas/u",
        known,
    )
    .await
    .is(200);
}

/// A name alone gives nobody the right to erase what is there.
#[tokio::test]
async fn forgetting_a_key_needs_admin_on_every_topic_of_copies() {
    let hub = start_with(guarded(&["admin:t", "admin:t admin:t.v1"])).await;
    ask(&hub, "all", Method::POST, "/v1/schemas/t", SCHEMA).await.is(201);
    for path in ["/v1/topics/t/events", "/v1/topics/t.v1/events"] {
        ask(&hub, "all", Method::POST, path, r#"{"payload":{},"key":"k"}"#).await.is(201);
    }
    let key = "/v1/topics/t/keys/k";
    ask(&hub, "admin:t", Method::DELETE, key, "").await.is_error(403, "forbidden");
    for path in [key, "/v1/topics/t.v1/keys/k"] {
        ask(&hub, "all", Method::GET, path, "").await.is(200);
    }
    ask(&hub, "admin:t admin:t.v1", Method::DELETE, key, "").await.is(200);
    ask(&hub, "all", Method::GET, "/v1/topics/t.v1/keys/k", "").await.is_error(404, "not_found");
    // Where there is no such topic, nothing else is needed.
    ask(&hub, "all", Method::DELETE, "/v1/topics/t.v1", "").await.is(204);
    ask(&hub, "admin:t", Method::DELETE, key, "").await.is(200);
}
