//! Where in the text of a schema something is.

use crate::{
    json::{Json, Reader},
    schema::DEPTH_LIMIT,
};

/// How many references are followed one after the other to find the schema of a value.
const REFERENCES_LIMIT: usize = 16;

/// The line of a byte, from 1.
pub fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// The byte at which the member or item begins that a JSON pointer leads to, or the last one on the way that is there.
pub fn of_pointer(text: &str, pointer: &str) -> usize {
    let mut reader = Reader { text, at: 0 };
    reader.blank();
    let mut place = reader.at;
    for token in pointer.split('/').skip(1) {
        match step(&mut reader, &unescaped(token)) {
            Some(at) => place = at,
            None => break,
        }
    }
    place
}

/// Goes from before a value to before the value that it has under a name or number; tells where that begins, with its name.
fn step(reader: &mut Reader<'_>, token: &str) -> Option<usize> {
    let is_object = reader.peek()? == b'{';
    if !is_object && reader.peek()? != b'[' {
        return None;
    }
    reader.at += 1;
    for at in 0.. {
        reader.blank();
        let place = reader.at;
        let found = if is_object {
            let name = reader.string().ok()?;
            reader.blank();
            if !reader.take(b':') {
                return None;
            }
            reader.blank();
            name == token
        } else {
            token.parse() == Ok(at)
        };
        if found {
            return reader.peek().filter(|byte| !matches!(byte, b'}' | b']')).map(|_| place);
        }
        reader.value(DEPTH_LIMIT).ok()?;
        reader.blank();
        if !reader.take(b',') {
            return None;
        }
    }
    None
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Where a schema says something of the place of a document: a pointer to the keyword if it is there, or else to the
/// schema of that place, as far as there is one. For people to look at, so nothing depends on it.
pub fn in_schema(schema: &Json, path: &str, rule: &str) -> String {
    let mut pointer = String::new();
    for token in path.split('/').skip(1) {
        pointer = resolved(schema, pointer);
        match below(schema, &pointer, token) {
            Some(next) => pointer = next,
            None => return pointer,
        }
    }
    let said = |pointer: &str| {
        schema.pointer(pointer)?.object()?.contains_key(rule).then(|| format!("{pointer}/{rule}"))
    };
    said(&pointer).or_else(|| said(&resolved(schema, pointer.clone()))).unwrap_or(pointer)
}

/// What a reference at a place leads to, if it is one to a place in the document.
fn resolved(schema: &Json, mut pointer: String) -> String {
    for _ in 0..REFERENCES_LIMIT {
        let reference = schema.pointer(&pointer).and_then(|place| place.object()?.get("$ref")?.text());
        match reference.and_then(|reference| reference.strip_prefix('#')) {
            Some(target) if schema.pointer(target).is_some() => pointer = target.to_owned(),
            _ => break,
        }
    }
    pointer
}

/// Where the schema at a place says something of a property or an item, itself or in a branch.
fn below(schema: &Json, pointer: &str, token: &str) -> Option<String> {
    let is_there = |place: String| schema.pointer(&place).is_some().then_some(place);
    let direct = |pointer: &str| {
        let named = [format!("{pointer}/properties/{token}"), format!("{pointer}/prefixItems/{token}")];
        named.into_iter().find_map(is_there).or_else(|| {
            let number = token == "*" || token.parse::<usize>().is_ok();
            let items = number.then(|| [format!("{pointer}/items/{token}"), format!("{pointer}/items")]);
            items.into_iter().flatten().find_map(is_there)
        })
    };
    let branches = || {
        let lists = ["allOf", "anyOf", "oneOf"].map(|keyword| format!("{pointer}/{keyword}"));
        let count = |list: &str| schema.pointer(list).and_then(Json::array).map_or(0, <[Json]>::len);
        let listed =
            lists.into_iter().flat_map(move |list| (0..count(&list)).map(move |at| format!("{list}/{at}")));
        let single = ["then", "else"].map(|keyword| format!("{pointer}/{keyword}"));
        listed.chain(single).find_map(|branch| direct(&resolved(schema, branch)))
    };
    let others = || is_there(format!("{pointer}/additionalProperties"));
    direct(pointer).or_else(branches).or_else(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n \"a/b\": [1,\n  {\"~\":\n 7}],\n \"c\": {}, \"d\": []\n}";

    #[test]
    fn pointers_are_found_in_texts() {
        for (pointer, expected) in [
            ("", 1),
            ("/a~1b", 2),
            ("/a~1b/0", 2),
            ("/a~1b/1", 3),
            ("/a~1b/1/~0", 3),
            ("/a~1b/1/~0/x", 3),
            ("/a~1b/7", 2),
            ("/c/x", 5),
            ("/d/0", 5),
            ("/none", 1),
        ] {
            assert_eq!(line(TEXT, of_pointer(TEXT, pointer)), expected, "{pointer}");
        }
        assert_eq!(of_pointer("", "/a"), 0);
    }

    #[test]
    fn places_of_documents_are_found_in_schemas() {
        let schema = Json::parse(
            r##"{"properties": {"a": {"$ref": "#/$defs/a"}, "l": {"items": {"type": "string"}}, "m": {"additionalProperties": {"maximum": 1}}},
                "allOf": [{"properties": {"b": {"minimum": 1}}}], "required": ["a"],
                "$defs": {"a": {"properties": {"x": {"type": "integer"}}}, "loop": {"$ref": "#/$defs/loop"}}}"##,
            9,
        )
        .unwrap();
        for (path, rule, expected) in [
            ("", "required", "/required"),
            ("", "type", ""),
            ("/a/x", "type", "/$defs/a/properties/x/type"),
            ("/l/3", "type", "/properties/l/items/type"),
            ("/l/*", "type", "/properties/l/items/type"),
            ("/b", "minimum", "/allOf/0/properties/b/minimum"),
            ("/m/any", "maximum", "/properties/m/additionalProperties/maximum"),
            ("/none/more", "type", ""),
        ] {
            assert_eq!(in_schema(&schema, path, rule), expected, "{path}");
        }
        assert_eq!(resolved(&schema, "/$defs/loop".to_owned()), "/$defs/loop");
    }
}
