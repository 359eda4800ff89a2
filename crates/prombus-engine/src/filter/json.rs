//! What expressions come to, as JSON.

use cel::Value as Cel;
use cel::objects::Key;
use serde_json::{Map, Number, Value};

/// A value of CEL as JSON.
pub(crate) fn to_json(value: Cel) -> Result<Value, String> {
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(bool) => Value::Bool(bool),
        Cel::Int(int) => Value::from(int),
        Cel::UInt(int) => Value::from(int),
        Cel::Float(double) => match Number::from_f64(double) {
            Some(number) => Value::Number(number),
            None => return Err(format!("{double} is not a JSON number")),
        },
        Cel::String(text) => Value::from(text.as_str()),
        Cel::Timestamp(time) => Value::from(time.to_rfc3339()),
        Cel::List(items) => Value::Array(items.iter().cloned().map(to_json).collect::<Result<_, _>>()?),
        Cel::Map(map) => {
            let mut object = Map::new();
            for (key, value) in map.map.iter() {
                let Key::String(name) = key else { return Err("the names of fields are strings".into()) };
                object.insert(name.to_string(), to_json(value.clone())?);
            }
            Value::Object(object)
        }
        other => return Err(format!("{:?} cannot be part of a document", other.type_of())),
    })
}
