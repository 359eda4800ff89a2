//! `/metrics` is as Prometheus wants it, and the dashboard asks for nothing that is not there.

use crate::auth_support::until;
use crate::contract_support::{Site, encoded};
use crate::examples_support::in_repository;
use crate::examples_support::metrics::{Family, Sample, names, parse};
use crate::groups_support::Group;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Labels that Prometheus adds when it scrapes.
const SCRAPED: &[&str] = &["instance", "job"];

/// A name that needs every escape that a label's value can.
const ODD_GROUP: &str = r#"a "quoted\" näme"#;

/// What a hub tells after events were published, delivered, acked, nacked, delivered again and given up.
fn busy_hub() -> String {
    let site = Site::start();
    for number in 0..6 {
        site.api.publish(&format!("orders?key=k{number}"), &number.to_string()).is(201);
    }
    for name in ["g".to_owned(), encoded(ODD_GROUP)] {
        let group = Group::of(&site, "orders", &name);
        group.make(&json!({"from": "earliest", "maxAttempts": 2, "backoffMs": 1}));
        let got = group.gather(&json!({"max": 6}), 6);
        group.ack(&got[..4]);
        group.nack(&got[4]);
        let again = group.one(json!({}));
        group.nack(&again);
    }
    site.api.get("/v1/topics/nothing-here").fails(404, "not_found");
    site.api.post("/v1/schemas/orders", r#"{"schema": {"type": "integer"}}"#).is(201);
    let settings = json!({"retention_days": 7, "snapshot": {"topic": "orders.snapshot", "every_ms": 10}});
    site.api.put("/v1/topics/orders", &settings.to_string()).is(200);
    site.api.post("/v1/topics/orders/clean", "").is(200);
    // Orders are numbers, so it fails on each.
    let definition = json!({"topic": "orders", "collection": "c", "key": "event.payload.name", "retries": 0});
    site.api.put("/v1/projections/names", &definition.to_string()).is(201);
    let letters = r#"events_dead_lettered_total{topic="orders",projection="names"}"#;
    until("the projection has failed on each", || site.api.metric(letters) == Some(6.0));
    let answer = site.api.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    answer.text().to_owned()
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The rules of `promtool check metrics`, but for one: milliseconds are what the names promise.
#[track_caller]
fn is_well_made(family: &Family) {
    let Family { name, kind, help, samples } = family;
    assert!(is_name(name) && !name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name}");
    assert!(!help.is_empty(), "{name}");
    assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{name}: {kind}");
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
    for reserved in ["_count", "_sum", "_bucket", "_counter", "_gauge", "_histogram"] {
        assert!(!name.ends_with(reserved), "{name}");
    }
    assert_eq!(
        kind == "histogram",
        name.ends_with("_duration_ms") || name.ends_with("_latency_ms"),
        "{name}"
    );
    let mut seen = BTreeSet::new();
    for Sample { name: full, labels, value } in samples {
        assert!(seen.insert((full, labels)), "{full} {labels:?} twice");
        assert!(labels.keys().all(|label| is_name(label) && !label.starts_with("__")), "{labels:?}");
        assert!(value.is_finite() && *value >= 0.0, "{full} {value}");
        assert_eq!(labels.contains_key("le"), full.ends_with("_bucket"), "{full} {labels:?}");
    }
}

/// Buckets count up, the last one counts everything, and the sum is there.
#[track_caller]
fn is_a_histogram(family: &Family) {
    let of = |suffix: &str| {
        let name = format!("{}{suffix}", family.name);
        family.samples.iter().filter(move |sample| sample.name == name).collect::<Vec<_>>()
    };
    let buckets = of("_bucket");
    let bounds: Vec<f64> = buckets.iter().map(|bucket| bucket.labels["le"].parse().unwrap()).collect();
    assert!(bounds.is_sorted_by(|a, b| a < b) && bounds.last() == Some(&f64::INFINITY), "{bounds:?}");
    assert!(buckets.is_sorted_by_key(|bucket| bucket.value), "{buckets:?}");
    let ([count], [sum]) = (&of("_count")[..], &of("_sum")[..]) else { panic!("{family:?}") };
    assert_eq!(count.value, buckets.last().unwrap().value, "{}", family.name);
    assert_eq!(count.value > 0.0, sum.value > 0.0, "{}", family.name);
}

#[test]
fn the_metrics_are_as_prometheus_wants_them() {
    let families = parse(&busy_hub());
    families.iter().for_each(is_well_made);
    families.iter().filter(|family| family.kind == "histogram").for_each(is_a_histogram);
    let all: BTreeSet<&str> = families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(all.len(), families.len(), "a family stands in one place: {all:?}");
    let groups = families.iter().flat_map(|family| &family.samples).filter_map(|one| one.labels.get("group"));
    let groups: BTreeSet<&str> = groups.map(String::as_str).collect();
    assert_eq!(groups, BTreeSet::from(["g", ODD_GROUP]), "names are escaped");
}

/// Everything that stands under this name, anywhere in the dashboard.
fn every<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name).and_then(Value::as_str));
            fields.values().for_each(|field| every(field, name, found));
        }
        Value::Array(items) => items.iter().for_each(|item| every(item, name, found)),
        _ => (),
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(in_repository("docs/grafana/prombus.json")).unwrap())
        .unwrap()
}

#[test]
fn the_dashboard_asks_for_what_is_there() {
    let families = parse(&busy_hub());
    let samples: Vec<&Sample> = families.iter().flat_map(|family| &family.samples).collect();
    let dashboard = dashboard();
    let mut exprs = Vec::new();
    every(&dashboard["panels"], "expr", &mut exprs);
    assert!(!exprs.is_empty());
    for expr in exprs {
        let names = names(expr);
        assert!(!names.metrics.is_empty(), "{expr}");
        for metric in &names.metrics {
            let of_it: Vec<&&Sample> = samples.iter().filter(|sample| sample.name == *metric).collect();
            assert!(!of_it.is_empty(), "the hub has no {metric}: {expr}");
            for label in names.labels.iter().filter(|label| !SCRAPED.contains(&label.as_str())) {
                // Dead letters are those of a group, or those of a projection.
                let known = of_it.iter().any(|one| one.labels.contains_key(label));
                assert!(known, "{metric} has no {label}: {expr}");
            }
        }
    }
}

/// The metrics in the table of the guide.
fn documented() -> BTreeSet<String> {
    let guide = std::fs::read_to_string(in_repository("docs/guide.md")).unwrap();
    let table = guide.split("\n| metric | |\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let cells = table.lines().filter_map(|line| line.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(|name| name.split('{').next().unwrap().to_owned()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_metric_is_documented_and_in_the_dashboard() {
    let families = parse(&busy_hub());
    let told: BTreeSet<String> = families.iter().map(|family| family.name.clone()).collect();
    assert_eq!(told, documented());
    let (dashboard, mut exprs) = (dashboard(), Vec::new());
    every(&dashboard["panels"], "expr", &mut exprs);
    let asked: BTreeSet<String> = exprs.iter().flat_map(|expr| names(expr).metrics).collect();
    for Family { name, kind, .. } in &families {
        let name = if kind == "histogram" { format!("{name}_bucket") } else { name.clone() };
        assert!(asked.contains(&name), "the dashboard has no {name}");
    }
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    assert_eq!(dashboard["__inputs"][0]["pluginId"], "prometheus");
    assert!(dashboard["id"].is_null(), "Grafana gives it a number");
    let mut uids = Vec::new();
    every(&dashboard, "datasource", &mut uids);
    assert!(uids.is_empty(), "a data source is named by an object: {uids:?}");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own id");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        let [x, width] = ["x", "w"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + width <= 24, "{} is outside of the grid", panel["title"]);
    }
}
