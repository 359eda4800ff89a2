//! Lists and reports of what may be much: they are sent in pieces, or bounded.

use crate::common::{Answer, Served, document, start};
use futures::StreamExt;
use prombus_core::{TopicName, collection};
use serde_json::{Value, json};

/// A definition that takes about so many bytes.
fn definition(collection: &str, bytes: usize) -> Value {
    let fields: Vec<String> = (0..bytes / 100).map(|n| format!("{n:097}")).collect();
    json!({"topic": "t", "collection": collection, "key": "event.key", "fields": fields})
}

#[track_caller]
fn items<'a>(list: &'a Value, name: &str) -> &'a Vec<Value> {
    list[name].as_array().unwrap()
}

/// Checks that a long list is whole, and was not built as a whole.
#[track_caller]
fn in_pieces(answer: &Answer, name: &str, count: usize) -> Value {
    let list = answer.is(200).json();
    assert_eq!(items(&list, name).len(), count);
    assert!(answer.text.len() > 300_000, "{} bytes would fit into one piece", answer.text.len());
    assert_eq!(answer.header("content-length"), None, "it was built as a whole");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    list
}

async fn project(hub: &Served, count: usize, bytes: usize) {
    for n in 0..count {
        let definition = definition(&format!("c{n}"), bytes).to_string();
        hub.put(&format!("/v1/projections/p{n}"), &definition).await.is(201);
    }
}

#[tokio::test]
async fn projections_are_listed_in_pieces() {
    let hub = start().await;
    project(&hub, 4, 200_000).await;
    let list = in_pieces(&hub.get("/v1/projections").await, "projections", 4);
    let one = hub.get("/v1/projections/p3").await.is(200).json();
    assert_eq!(list["projections"][3], one);
    let metrics = hub.get("/metrics").await.text;
    assert!(metrics.contains("projection_lag_events{projection=\"p3\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn collections_are_listed_in_pieces() {
    let hub = start().await;
    let field = |n: usize| format!("{}{n}", "f".repeat(1_000));
    let indexes: Vec<Vec<String>> = (0..16).map(|i| (0..8).map(|n| field(8 * i + n)).collect()).collect();
    for n in 0..4 {
        let settings = json!({ "indexes": indexes }).to_string();
        hub.put(&format!("/v1/collections/c{n}"), &settings).await.is(201);
    }
    let list = in_pieces(&hub.get("/v1/collections").await, "collections", 4);
    assert_eq!(list["collections"][3], hub.get("/v1/collections/c3").await.is(200).json());
}

#[tokio::test]
async fn schemas_are_listed_in_pieces() {
    const TOPICS: usize = 10;
    let hub = start().await;
    let versions: Vec<Value> = (1..=1_000).map(|n| json!({"version": n, "registered_ts": n})).collect();
    for n in 0..TOPICS {
        let name = format!("t{n}");
        hub.post(&format!("/v1/schemas/{name}"), r#"{"schema":{"type":"object"}}"#).await.is(201);
        // As if it had been registered so often.
        let topic =
            hub.hub.as_ref().unwrap().topic(&TopicName::parse(&name).unwrap()).await.unwrap().unwrap();
        let head = json!({"topic": topic.number.0, "versions": versions});
        hub.write(vec![document(&collection::internal_name("hub", "schemas"), &name, 1, &head)]).await;
    }
    hub.put("/v1/topics/without", "{}").await.is(201);
    let list = in_pieces(&hub.get("/v1/schemas").await, "schemas", TOPICS);
    assert_eq!(list["schemas"][3], hub.get("/v1/schemas/t3").await.is(200).json());
    let metrics = hub.get("/metrics").await.text;
    assert!(metrics.contains("schema_violations_total{topic=\"t9\"} 0\n"), "{metrics}");
    assert!(!metrics.contains("topic=\"without\""), "{metrics}");
}

#[tokio::test]
async fn a_definition_has_a_limit_and_larger_ones_of_before_still_run() {
    let hub = start().await;
    let error = hub.put("/v1/projections/p", &definition("c", 300_000).to_string()).await;
    let error = error.is_error(413, "too_large");
    assert!(error["message"].as_str().unwrap().contains("262144"), "{error}");
    hub.put("/v1/projections/p", &definition("c", 200_000).to_string()).await.is(201);

    let large = definition("old", 300_000);
    let record = json!({"definition": large, "made": large});
    hub.write(vec![document(&collection::internal_name("hub", "projections"), "old", 1, &record)]).await;
    hub.hub.as_ref().unwrap().projections().start().await.unwrap();
    let list = hub.get("/v1/projections").await.is(200).json();
    assert_eq!(list["projections"][0]["definition"], large);
    hub.put("/v1/projections/old", &large.to_string()).await.is(200);
    let larger = definition("old", 310_000).to_string();
    hub.put("/v1/projections/old", &larger).await.is_error(413, "too_large");
    hub.delete("/v1/projections/old").await.is(204);
}

#[tokio::test]
async fn what_ops_tells_of_long_definitions_is_bounded() {
    let hub = start().await;
    project(&hub, 4, 200_000).await;
    let answer = hub.get("/ops").await;
    assert!(answer.text.len() < 600_000, "{}", answer.text.len());
    let ops = answer.is(200).json();
    let projections = items(&ops, "projections");
    assert_eq!(projections.len(), 4);
    assert_eq!(projections[0], hub.get("/v1/projections/p0").await.is(200).json());
    let last = &projections[3];
    assert_eq!((&last["name"], &last["truncated"]), (&json!("p3"), &json!(true)));
    assert_eq!((&last["definition"], &last["partitions"]), (&Value::Null, &json!([])));
    assert_eq!((&last["lag"], &last["collections"]), (&json!(0), &json!(["c3"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ops_tells_of_many_groups_with_long_filters_is_bounded() {
    const GROUPS: usize = 1_100;
    let hub = start().await;
    let filter = format!("event.key == \"{}\"", "x".repeat(7_000));
    let options = json!({ "filter": filter }).to_string();
    hub.put("/v1/topics/t", "{}").await.is(201);
    let make = |group: usize| {
        let (hub, options) = (&hub, &options);
        async move {
            hub.put(&format!("/v1/topics/t/groups/g{group:04}"), options).await.is(201);
        }
    };
    futures::stream::iter((0..GROUPS).map(make)).buffer_unordered(16).collect::<Vec<()>>().await;
    let answer = hub.get("/ops").await;
    assert!(answer.text.len() < 1_200_000, "{}", answer.text.len());
    let ops = answer.is(200).json();
    let groups = items(&ops, "groups");
    let whole = groups.iter().take_while(|group| group["options"]["filter"] == filter).count();
    assert!((50..100).contains(&whole), "{whole} groups are shown whole");
    assert_eq!((groups.len(), &ops["groups_left_out"]), (whole + 1_000, &json!(GROUPS - whole - 1_000)));
    for group in &groups[whole..] {
        assert_eq!((&group["truncated"], &group["options"]["mode"]), (&json!(true), &json!("shared")));
        assert!(group["options"].get("filter").is_none(), "{group}");
    }
    let narrowed = hub.get("/ops?group=g1099").await.is(200).json();
    assert_eq!(narrowed["groups"][0]["options"]["filter"], filter);
    assert_eq!((items(&narrowed, "groups").len(), &narrowed["groups_left_out"]), (1, &json!(0)));
}
