//! What merging is compared with.

use serde_json::{Map, Value};

/// RFC 7396, as it is written there; `None` where there is nothing yet.
pub fn merge_patch(target: Option<Value>, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = match target {
        Some(Value::Object(target)) => target,
        _ => Map::new(),
    };
    for (name, change) in patch {
        let old = target.remove(name);
        if !change.is_null() {
            target.insert(name.clone(), merge_patch(old, change));
        }
    }
    Value::Object(target)
}
