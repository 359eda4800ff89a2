//! Commits over HTTP and WebSocket.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod common;

use common::{Answer, Served, as_one_who, document, guarded, send, start, start_with};
use reqwest::Method;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

const COMMIT: &str = "/v1/commit";

async fn commit(hub: &Served, body: &Value) -> Answer {
    hub.post(COMMIT, &body.to_string()).await
}

fn write(fields: Value) -> Value {
    let mut write = json!({"collection": "c", "key": "k"});
    write.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "writes": [write] })
}

/// A lease of group `g` on the next event of topic `t`.
async fn lease(hub: &Served) -> String {
    let pulled = hub.post("/v1/topics/t/groups/g/pull", r#"{"from":"earliest","max":1}"#).await;
    pulled.is(200).json()["deliveries"][0]["ctx"]["lease"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_makes_no_sense() {
    let hub = start().await;
    for bad in [
        json!({}),
        json!({"commit_id": "c"}),
        json!({"ack": [], "writes": [], "publish": []}),
        json!({"acks": ["x"]}),
        json!({"ack": "x"}),
        write(json!({})),
        write(json!({"set": {}, "merge": {}})),
        write(json!({"set": 1})),
        write(json!({"delete": false})),
        write(json!({"inc": {"n": "x"}})),
        write(json!({"merge": {"_v": 1}})),
        write(json!({"set": {}, "if_version": -1})),
        write(json!({"set": {}, "unless": 1})),
        json!({"writes": [{"collection": "C", "key": "k", "delete": true}]}),
        json!({"publish": [{"topic": "T", "payload": 1}]}),
        json!({"publish": [{"topic": "t"}]}),
        json!({"publish": [{"topic": "t", "payload": 1, "id": "x"}]}),
        json!([]),
    ] {
        commit(&hub, &bad).await.is_error(400, "bad_request");
    }
    let huge = r#"{"writes":[{"collection":"c","key":"k","set":{"n":1e400}}]}"#;
    hub.post(COMMIT, huge).await.is_error(400, "bad_request");
    hub.post(COMMIT, "").await.is_error(400, "bad_json");
    hub.post(COMMIT, "{").await.is_error(400, "bad_json");
    hub.lines(COMMIT, "{}").await.is_error(415, "bad_request");
    hub.post("/v1/commit?x=1", "{}").await.is_error(400, "bad_request");
    hub.get(COMMIT).await.is_error(405, "method_not_allowed");
    hub.get("/v1/collections/c").await.is_error(404, "not_found");
}

#[tokio::test]
async fn leases_that_are_none() {
    let hub = start().await;
    for lease in ["nonsense", "", "00000000000000011", "ffffffffffffffffff"] {
        let error = commit(&hub, &json!({"ack": [lease]})).await.is_error(409, "lease_expired");
        assert_eq!(error["lease"], lease);
    }
}

#[tokio::test]
async fn rights_come_before_everything() {
    let hub =
        start_with(guarded(&["publish:c", "publish:c publish:t", "subscribe:u", "read:** admin:**"])).await;
    hub.write(vec![document("c", "k", 1, &json!({}))]).await;
    let ask = |may: &str, body: Value| {
        let request = as_one_who(may, hub.request(Method::POST, COMMIT));
        send(request.header("content-type", "application/json").body(body.to_string()))
    };
    let set = write(json!({"set": {}}));
    let mut both = set.clone();
    both["publish"] = json!([{"topic": "t", "payload": 1}]);
    for (may, body) in [
        ("read:** admin:**", set),
        ("publish:c", both),
        ("publish:c publish:t", json!({"ack": ["nonsense"]})),
        ("subscribe:u", json!({"ack": ["nonsense"], "publish": [{"topic": "t", "payload": 1}]})),
    ] {
        ask(may, body.clone()).await.is_error(403, "forbidden");
    }
    ask("subscribe:u", json!({"ack": ["nonsense"]})).await.is_error(409, "lease_expired");
    hub.post(COMMIT, "{}").await.is_error(401, "unauthorized");
}

/// One end of a WebSocket, which waits for each answer.
struct Line(WebSocket<std::net::TcpStream>);

impl Line {
    fn open(address: std::net::SocketAddr) -> Self {
        let stream = std::net::TcpStream::connect(address).unwrap();
        Self(tungstenite::client(format!("ws://{address}/ws"), stream).unwrap().0)
    }

    fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.0.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    fn ask(&mut self, frame: Value) -> Value {
        self.0.send(Message::text(frame.to_string())).unwrap();
        self.next()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_refused_alike() {
    let hub = start().await;
    let address = hub.address;
    let talk = tokio::task::spawn_blocking(move || {
        let mut line = Line::open(address);
        let refused = line.ask(json!({"op": "COMMIT", "corr": 1}));
        assert_eq!(
            (&refused["op"], &refused["code"], &refused["corr"]),
            (&json!("ERR"), &json!("bad_request"), &json!(1))
        );
        let refused = line.ask(json!({"op": "COMMIT", "ack": ["nonsense"]}));
        assert_eq!((&refused["code"], &refused["lease"]), (&json!("lease_expired"), &json!("nonsense")));
        let refused = line.ask(json!({"op": "COMMIT", "ack": ["00000000000000011"]}));
        assert_eq!(refused["code"], "lease_expired");
    });
    talk.await.unwrap();
}
