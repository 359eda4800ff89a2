//! Definitions of projections as people write them: `[[projection]]` tables as in the configuration file, or one JSON object.

use crate::config::ConfigFile;
use serde_json::{Map, Value};

/// Projections by name, as the hub takes them. `name` is for a JSON object that has none.
pub fn parse(text: &str, name: Option<String>) -> Result<Vec<(String, Value)>, String> {
    if text.trim_start().starts_with('{') {
        return of_json(text, name).map(|projection| vec![projection]);
    }
    if name.is_some() {
        return Err("--name is for a JSON object; in TOML, each [[projection]] has its own".into());
    }
    let file = ConfigFile::parse(text).map_err(|problem| problem.to_string())?;
    if file.projection.is_empty() {
        return Err("it contains no [[projection]]".into());
    }
    let json = |definition| serde_json::to_value(definition).map_err(|error| error.to_string());
    file.projection
        .into_iter()
        .map(|projection| Ok((projection.name, json(projection.definition)?)))
        .collect()
}

fn of_json(text: &str, name: Option<String>) -> Result<(String, Value), String> {
    let mut definition: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON object: {error}"))?;
    let own = match definition.remove("name") {
        None => None,
        Some(Value::String(own)) => Some(own),
        Some(_) => return Err("its name is not a string".into()),
    };
    let name = match (own, name) {
        (Some(own), Some(name)) if own != name => {
            return Err(format!("its name is {own:?}, but --name says {name:?}"));
        }
        (own, name) => own.or(name).ok_or("it has no name: add \"name\", or use --name")?,
    };
    Ok((name, Value::Object(definition)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_are_understood() {
        let toml = "[[projection]]\nname = \"a\"\ntopic = \"t\"\ncollection = \"c\"\nindexes = [[\"x\"]]\n\
             [[projection]]\nname = \"b\"\ntopic = \"t\"\n[[projection.write]]\ncollection = \"d\"\nkey = \"event.key\"\nset = { x = \"1\" }";
        let expected = [
            ("a".to_owned(), json!({"topic": "t", "collection": "c", "indexes": [["x"]]})),
            (
                "b".to_owned(),
                json!({"topic": "t", "write": [{"collection": "d", "key": "event.key", "set": {"x": "1"}}]}),
            ),
        ];
        assert_eq!(parse(toml, None).unwrap(), expected);
        let one = [("a".to_owned(), json!({"topic": "t", "unknown": 1}))];
        assert_eq!(parse(r#" {"name":"a","topic":"t","unknown":1}"#, None).unwrap(), one);
        assert_eq!(parse(r#"{"topic":"t","unknown":1}"#, Some("a".into())).unwrap(), one);
    }

    #[test]
    fn what_cannot_be_understood_is_told() {
        for (text, name, hint) in [
            ("", None, "no [[projection]]"),
            ("{", None, "not a JSON object"),
            (r#"{"topic":"t"}"#, None, "--name"),
            (r#"{"name":"a"}"#, Some("b"), "\"a\""),
            (r#"{"name":7}"#, None, "not a string"),
            ("[[projection]]\nname = \"a\"\ntopik = \"t\"", None, "topic"),
            ("[[projection]]\nname = \"a\"\ntopic = \"t\"", Some("a"), "--name is for"),
        ] {
            let why = parse(text, name.map(str::to_owned)).unwrap_err();
            assert!(why.contains(hint), "{text}: {why}");
        }
    }
}
