//! Mistakes that many make, and what they are told: what is wrong, and what to do.

use crate::auth_support::line::subscribe;
use crate::auth_support::tls::Identity;
use crate::auth_support::{Guarded, Setup};
use crate::common::run;
use crate::contract_support::{Answer, Api, Call, Site};
use crate::groups_support::{Group, publish};
use crate::ws_support::Socket;
use prombus_client::Client;
use serde_json::{Value, json};

const TLS: [&str; 4] = ["--tls-cert", "hub.pem", "--tls-key", "hub.key"];

fn encrypted(identity: &Identity) -> Guarded {
    Setup { args: &TLS, beside: &identity.files(), env: &[("PROMBUS_LOG", "info")], ..Setup::default() }
        .start()
}

/// What the command line says of a hub at `url`.
fn told(hub: &Guarded, url: &str) -> String {
    run(hub.command(&["--url", url, "topics", "list"]), b"").fails_with(1)
}

/// That a client is mistaken is no news for the one who runs the hub.
fn says_nothing_of_it(hub: Guarded) {
    let said = hub.ends();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
}

#[test]
fn plain_http_to_a_port_that_speaks_tls_is_told_to_use_https() {
    let hub = encrypted(&Identity::new());
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let answer = Answer::parse(&hub.api.raw(request, false), false).expect("an answer in plain HTTP");
    assert!(answer.fails(400, "bad_request")["message"].as_str().unwrap().contains("https://"));
    assert!(answer.text().ends_with("}\n"), "{answer:?}");
    let said = told(&hub, &format!("http://{}", hub.api.address));
    assert!(said.contains("speaks TLS") && said.contains("https://"), "{said}");
    says_nothing_of_it(hub);
}

#[tokio::test]
async fn a_websocket_without_tls_is_told_too() {
    let hub = tokio::task::spawn_blocking(|| encrypted(&Identity::new())).await.unwrap();
    let client = Client::new(&format!("http://{}", hub.api.address), None).unwrap();
    let error = client.connect().await.unwrap_err().to_string();
    assert!(error.contains("https://") && error.contains("wss://"), "{error}");
}

#[test]
fn tls_to_a_port_that_speaks_plain_http_is_told_to_use_http() {
    let hub = Setup::default().start();
    let said = told(&hub, &format!("https://{}", hub.api.address));
    assert!(said.contains("does not speak TLS") && said.contains("use http://"), "{said}");
    hub.api.get("/healthz").is(200);
    says_nothing_of_it(hub);
}

#[tokio::test]
async fn a_websocket_with_tls_to_a_port_without_is_told_too() {
    let hub = tokio::task::spawn_blocking(|| Setup::default().start()).await.unwrap();
    let client = Client::new(&format!("https://{}", hub.api.address), None).unwrap();
    let error = client.connect().await.unwrap_err().to_string();
    assert!(error.contains("use http://"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_an_unknown_authority_is_told_with_what_makes_it_known() {
    let hub = tokio::task::spawn_blocking(|| encrypted(&Identity::new())).await.unwrap();
    let port = hub.api.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let said = tokio::task::block_in_place(|| told(&hub, &url));
    for words in ["authority that is not trusted", "--ca-cert"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let client = Client::new(&url, None).unwrap();
    for error in [client.topics().await.unwrap_err(), client.connect().await.unwrap_err()] {
        assert!(error.to_string().contains("with_extra_ca"), "{error}");
    }
}

/// The id of an event that a group holds, in the two forms of a UUID.
fn held_id(group: &Group) -> [String; 2] {
    let held = group.gather(&json!({"from": "earliest"}), 1);
    let id = held[0]["event"]["id"].as_str().unwrap();
    [id.to_owned(), id.replace('-', "")]
}

fn points_to_the_lease(message: &Value) {
    let message = message.as_str().unwrap_or_default();
    assert!(message.contains("id of an event") && message.contains("ctx.lease"), "{message}");
}

#[test]
fn an_event_id_where_a_lease_belongs_is_recognised() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    for id in held_id(&group) {
        let body = json!({"ack": [id], "nack": [{"lease": id}], "extend": [{"lease": id}]});
        let results = group.post("/ack", &body).is(200)["results"].clone();
        for result in results.as_array().unwrap() {
            assert_eq!((&result["lease"], &result["ok"]), (&json!(id), &json!(false)));
            assert_eq!(result["error"], "lease_expired");
            points_to_the_lease(&result["message"]);
        }
        assert_eq!(results.as_array().unwrap().len(), 3);
        let commit = site.api.post("/v1/commit", &json!({"ack": [id]}).to_string());
        points_to_the_lease(&commit.fails(409, "lease_expired")["message"]);
        let mut frames = Socket::open(&site.api);
        frames.ok(subscribe("t", "other"));
        for op in ["ACK", "NACK", "MODACK"] {
            let frame = json!({"op": op, "topic": "t", "group": "other", "lease": id});
            points_to_the_lease(&frames.fails(&frame, "lease_expired")["msg"]);
        }
        let frame = frames.fails(json!({"op": "COMMIT", "ack": [id]}), "lease_expired");
        points_to_the_lease(&frame["msg"]);
    }
    let results = group.post("/ack", &json!({"ack": ["00000000000000010"]})).is(200);
    assert_eq!(results["results"][0].as_object().unwrap().len(), 3, "what may be a lease has no more to say");
}

#[test]
fn what_is_no_lease_at_all_is_told_from_one_that_has_expired() {
    let site = Site::start();
    publish(&site.api, "t", 0..1);
    let group = Group::of(&site, "t", "g");
    group.gather(&json!({"from": "earliest"}), 1);
    let mut frames = Socket::open(&site.api);
    frames.ok(subscribe("t", "other"));
    let says_so = |message: &Value| {
        let message = message.as_str().unwrap_or_default();
        assert!(message.contains("not a lease") && message.contains("ctx.lease"), "{message}");
    };
    for junk in ["", "junk", "0123", "ABCDEF00000000001", "00000000000000010 "] {
        let results = group.post("/ack", &json!({"ack": [junk], "extend": [{"lease": junk}]})).is(200);
        for result in results["results"].as_array().unwrap() {
            assert_eq!((&result["ok"], &result["error"]), (&json!(false), &json!("lease_expired")));
            says_so(&result["message"]);
        }
        let commit = site.api.post("/v1/commit", &json!({"ack": [junk]}).to_string());
        says_so(&commit.fails(409, "lease_expired")["message"]);
        let frame = json!({"op": "ACK", "topic": "t", "group": "other", "lease": junk});
        says_so(&frames.fails(&frame, "lease_expired")["msg"]);
    }
}

/// How an answer ends, and whether its length is right.
fn ends_with_one_newline(api: &Api, call: &Call) {
    let answer = api.call(call);
    assert!(answer.text().ends_with("}\n"), "{call:?}: {answer:?}");
    assert_eq!(answer.text().matches('\n').count(), 1, "{call:?}: {answer:?}");
    if let Some(length) = answer.header("content-length") {
        assert_eq!(length.parse::<usize>().unwrap(), answer.body.len(), "{call:?}");
    }
}

#[test]
fn answers_in_json_end_with_a_newline() {
    let site = Site::start();
    let (api, json_type) = (&site.api, "application/json");
    let post = |target, body: &'static str| {
        Call::new("POST", target).header("content-type", json_type).body(body.as_bytes())
    };
    ends_with_one_newline(api, &Call::new("POST", "/publish/t?key=k").body(b"1"));
    ends_with_one_newline(api, &post("/v1/topics/t/events", r#"[{"payload":1},{"payload":2}]"#));
    ends_with_one_newline(
        api,
        &post("/v1/commit", r#"{"writes":[{"collection":"c","key":"k","set":{"a":1}}]}"#),
    );
    ends_with_one_newline(api, &post("/v1/topics/t/groups/g/pull", r#"{"from":"earliest"}"#));
    ends_with_one_newline(api, &post("/v1/topics/t/groups/g/ack", r#"{"ack":["x"]}"#));
    for target in [
        "/v1/topics",
        "/v1/topics/t",
        "/v1/topics/t/events",
        "/v1/topics/none/events",
        "/v1/topics/t/keys/k",
        "/v1/topics/t/groups",
        "/v1/topics/t/groups/g",
        "/v1/collections",
        "/v1/collections/c/list",
        "/v1/collections/c/snap/none",
        "/v1/projections",
        "/v1/dlq",
        "/ops",
        "/healthz",
        "/readyz",
        "/nowhere",
    ] {
        ends_with_one_newline(api, &Call::new("GET", target));
    }
}

#[test]
fn a_document_is_as_its_tag_says_and_events_that_are_lines_stay_lines() {
    let site = Site::start();
    let commit = r#"{"writes":[{"collection":"c","key":"k","set":{"a":1}}]}"#;
    site.api.post("/v1/commit", commit).is(200);
    let document = "/v1/collections/c/snap/k";
    let (got, head) = (site.api.get(document), site.api.call(&Call::new("HEAD", document)));
    assert!(got.text().ends_with('}'), "{got:?}");
    for name in ["etag", "content-length"] {
        assert_eq!(got.header(name), head.header(name), "{name}");
    }
    site.api.publish("t", "1").is(201);
    let lines = site.api.export("t", "");
    assert!(lines.text().ends_with("}\n") && !lines.text().ends_with("\n\n"), "{lines:?}");
}
