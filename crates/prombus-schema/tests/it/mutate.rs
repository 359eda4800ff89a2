//! Small changes to a schema, as people make them.

use serde_json::{Map, Value, json};

/// Changes a schema, and says whether it could.
type Change = fn(&mut Value) -> bool;

/// Changes of a schema, with a name for each; those that do not apply are left out.
pub fn mutations(schema: &Value) -> Vec<(&'static str, Value)> {
    let kinds: [(&'static str, Change); 10] = [
        ("same", |_| true),
        ("property added", |schema| first(schema, &mut |object| add_property(object))),
        ("property removed", |schema| first(schema, &mut |object| remove_property(object))),
        ("property required", |schema| first(schema, &mut |object| require_property(object))),
        ("property retyped", |schema| first(schema, &mut |object| retype_property(object))),
        ("enum grown", |schema| first(schema, &mut |object| grow_enum(object))),
        ("bound moved", |schema| first(schema, &mut |object| move_bound(object))),
        ("branch added", |schema| first(schema, &mut |object| add_branch(object))),
        ("anchor retyped", |schema| first(schema, &mut |object| retype_anchor(object))),
        ("reference inlined", inline),
    ];
    let mut mutants = Vec::new();
    for (kind, change) in kinds {
        let mut mutant = schema.clone();
        if change(&mut mutant) {
            mutants.push((kind, mutant));
        }
    }
    mutants
}

/// Applies a change to the first place that it fits, the outermost first.
fn first(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>) -> bool) -> bool {
    if let Value::Object(members) = schema {
        if change(members) {
            return true;
        }
        for (keyword, inner) in members.iter_mut() {
            let within = match (keyword.as_str(), inner) {
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(map),
                ) => map.values_mut().any(|inner| first(inner, change)),
                ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(list)) => {
                    list.iter_mut().any(|inner| first(inner, change))
                }
                (
                    "items"
                    | "additionalProperties"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contains"
                    | "propertyNames",
                    inner,
                ) => first(inner, change),
                _ => false,
            };
            if within {
                return true;
            }
        }
    }
    false
}

fn properties(object: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    object.get_mut("properties")?.as_object_mut()
}

fn add_property(object: &mut Map<String, Value>) -> bool {
    let Some(properties) = properties(object) else { return false };
    properties.insert("zz_added".to_owned(), json!({"type": "integer", "minimum": 0}));
    true
}

fn remove_property(object: &mut Map<String, Value>) -> bool {
    let Some(properties) = properties(object) else { return false };
    let Some(name) = properties.keys().next().cloned() else { return false };
    properties.remove(&name).is_some()
}

fn require_property(object: &mut Map<String, Value>) -> bool {
    let names: Vec<String> = properties(object).map(|map| map.keys().cloned().collect()).unwrap_or_default();
    let required = object.entry("required").or_insert_with(|| json!([]));
    let Some(required) = required.as_array_mut() else { return false };
    let Some(name) = names.iter().find(|name| !required.contains(&json!(name))) else { return false };
    required.push(json!(name));
    true
}

fn retype_property(object: &mut Map<String, Value>) -> bool {
    let Some(properties) = properties(object) else { return false };
    let typed =
        properties.values_mut().filter_map(Value::as_object_mut).find(|inner| inner.get("type").is_some());
    let Some(inner) = typed else { return false };
    let new = if inner["type"] == "string" { "integer" } else { "string" };
    inner.insert("type".to_owned(), json!(new)).is_some()
}

fn grow_enum(object: &mut Map<String, Value>) -> bool {
    let Some(Value::Array(values)) = object.get_mut("enum") else { return false };
    values.push(json!("zz_grown"));
    true
}

fn move_bound(object: &mut Map<String, Value>) -> bool {
    for keyword in [
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ] {
        if let Some(number) = object.get(keyword).and_then(Value::as_i64) {
            object.insert(keyword.to_owned(), json!(number + 1));
            return true;
        }
    }
    false
}

fn add_branch(object: &mut Map<String, Value>) -> bool {
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = object.get_mut(keyword) {
            branches.push(json!({"type": "object", "required": ["zz_branch"], "properties": {"zz_branch": {"type": "boolean"}}}));
            return true;
        }
    }
    false
}

/// Changes what references by a dynamic anchor lead to, though not their text.
fn retype_anchor(object: &mut Map<String, Value>) -> bool {
    let anchored = object.contains_key("$dynamicAnchor") || object.contains_key("$recursiveAnchor");
    let new = if object.get("type") == Some(&json!("string")) { "integer" } else { "string" };
    anchored && object.insert("type".to_owned(), json!(new)) != Some(json!(new))
}

/// Puts what the first reference means in its place.
fn inline(schema: &mut Value) -> bool {
    let document = schema.clone();
    first(schema, &mut |object| {
        let Some(Value::String(reference)) = object.get("$ref") else { return false };
        let Some(pointer) = reference.strip_prefix('#') else { return false };
        let Some(Value::Object(target)) = document.pointer(pointer) else { return false };
        if pointer.is_empty() || object.len() > 1 || target.contains_key("$id") || target.contains_key("id") {
            return false;
        }
        *object = target.clone();
        true
    })
}
