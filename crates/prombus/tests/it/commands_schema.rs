//! The commands about schemas, at a hub.

use crate::common::{Hub, Said};
use serde_json::{Value, json};

const NUMBER: &str = r#"{"type": "object", "properties": {"n": {"type": "number"}}}"#;
const INTEGER: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#;

fn json(said: Said) -> Value {
    let text = said.ok();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_schema_is_registered_listed_and_shown() {
    let hub = Hub::start();
    assert_eq!(hub.run(&["schema", "list"]).ok(), "");
    std::fs::write(hub.folder().join("v1.json"), INTEGER).unwrap();
    let registered = json(hub.run(&["schema", "register", "orders", "v1.json"]));
    assert_eq!(registered, json!({"topic": "orders", "version": 1}));
    // The same again under the version that it has changes nothing.
    let again = hub.run(&["schema", "register", "orders", "v1.json", "--version", "1"]);
    assert_eq!(json(again)["version"], 1);
    let registered = json(hub.run_with(&["schema", "register", "orders", "-", "--version", "4"], NUMBER));
    assert_eq!(registered["version"], 4);

    let listed = lines(&hub.run(&["schema", "list"]).ok());
    let numbers = |versions: &Value| -> Vec<u64> {
        versions.as_array().unwrap().iter().map(|known| known["version"].as_u64().unwrap()).collect()
    };
    assert_eq!((&listed[0]["topic"], numbers(&listed[0]["versions"])), (&json!("orders"), vec![1, 4]));
    let versions = lines(&hub.run(&["schema", "show", "orders"]).ok());
    assert_eq!((versions.len(), &versions[1]["version"]), (2, &json!(4)));
    assert!(versions[0]["registered_ts"].is_u64() && versions[0]["upcaster"] == false, "{versions:?}");

    let shown = |version: &str| json(hub.run(&["schema", "show", "orders", version]));
    assert_eq!(shown("1").to_string(), serde_json::from_str::<Value>(INTEGER).unwrap().to_string());
    assert_eq!(shown("latest"), shown("4"));
    let example = json(hub.run(&["schema", "show", "orders", "latest", "--example"]));
    assert!(example.is_object(), "{example}");
    hub.run(&["pub", "orders", &example.to_string()]).ok();
    for args in [&["show", "orders", "2"][..], &["show", "nothing"], &["show", "nothing", "latest"]] {
        let stderr = hub.run(&[&["schema"], args].concat()).fails_with(1);
        assert!(stderr.contains("not_found"), "{args:?}: {stderr}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_counterexample() {
    let hub = Hub::start();
    hub.run_with(&["schema", "register", "orders", "-"], NUMBER).ok();
    for verb in ["register", "check"] {
        let said = hub.run_with(&["schema", verb, "orders", "-"], INTEGER);
        let violations = lines(&said.stdout);
        let [violation] = violations.as_slice() else { panic!("{said:?}") };
        assert_eq!((&violation["path"], &violation["rule"]), (&json!("/n"), &json!("type")));
        assert!(violation["message"].is_string() && violation["counterexample"]["n"].is_f64(), "{violation}");
        assert!(said.fails_with(1).contains("compatible"));
    }
    let check = |args: &[&str]| hub.run_with(&[&["schema", "check", "orders", "-"], args].concat(), INTEGER);
    check(&["--compat", "forward"]).ok();
    check(&["--compat", "none"]).ok();
    assert!(check(&["--compat", "full", "--policy", "strict"]).fails_with(1).contains("(full, strict)"));
    // A check registers nothing.
    assert_eq!(lines(&hub.run(&["schema", "show", "orders"]).ok()).len(), 1);
    hub.run_with(&["schema", "register", "orders", "-", "--compat", "none"], INTEGER).ok();
    let stderr = hub.run_with(&["schema", "register", "orders", "-"], r#"{"type": 7}"#).fails_with(1);
    assert!(stderr.contains("/type"), "{stderr}");
    // A number that no double holds arrives as it was written.
    hub.run_with(&["schema", "register", "large", "-"], r#"{"maximum": 1e400}"#).ok();
    assert_eq!(hub.run(&["schema", "show", "large", "1"]).ok(), "{\"maximum\":1e400}\n");
}

#[test]
fn upcasters_are_set_shown_and_deleted() {
    let hub = Hub::start();
    hub.run_with(&["schema", "register", "orders", "-"], NUMBER).ok();
    let upcast = ["schema", "upcast", "orders", "1"];
    let with = |more: &[&'static str], input: &str| hub.run_with(&[&upcast[..], more].concat(), input);
    assert!(with(&["--show"], "").fails_with(1).contains("not_found"));
    let ops = r#"{"ops":[{"rename":["a","b"]},{"set":{"unit":"'MiB'"}},{"remove":["c"]}]}"#;
    with(&["-"], ops).ok();
    assert_eq!(json(with(&["--show"], "")), serde_json::from_str::<Value>(ops).unwrap());
    assert_eq!(lines(&hub.run(&["schema", "show", "orders"]).ok())[0]["upcaster"], true);
    assert_eq!(lines(&hub.run(&["schema", "list"]).ok())[0]["upcasters"], json!([1]));
    assert!(with(&["-"], r#"{"ops":[{"set":{"a":"payload."}}]}"#).fails_with(1).contains("bad_"));
    with(&["--delete"], "").ok();
    assert_eq!(lines(&hub.run(&["schema", "show", "orders"]).ok())[0]["upcaster"], false);
}
