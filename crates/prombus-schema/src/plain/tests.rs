//! What is read of documents is what is there, and damaged ones are left to others.

use crate::Schema;

/// What a schema takes at once.
fn takes(schema: &str, documents: &[&str]) -> Vec<bool> {
    let schema = Schema::parse(schema).unwrap();
    let taken = |document: &&str| {
        let taken = schema.validator().takes_plainly(document.as_bytes());
        let value = serde_json::from_str(document);
        assert!(!taken || schema.validator().faults(&value.unwrap()).is_empty(), "{document}");
        taken
    };
    documents.iter().map(taken).collect()
}

#[test]
fn a_bound_that_is_rounded_takes_no_more_than_it_says() {
    let edge = 1i64 << 53;
    for (keyword, sign) in [("minimum", 1), ("maximum", -1)] {
        for bound in edge - 2..=edge + 3 {
            let schema = format!("{{\"{keyword}\": {}}}", sign * bound);
            let documents: Vec<String> =
                (edge - 4..=edge + 5).map(|number| (sign * number).to_string()).collect();
            let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
            for (number, taken) in (edge - 4..).zip(takes(&schema, &documents)) {
                assert!(!taken || number >= bound, "{schema} takes {}", sign * number);
            }
        }
    }
}

#[test]
fn what_is_taken_at_once() {
    let schema = r#"{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "title": "a",
        "x-unit": "s", "required": ["n", "other"], "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10}, "kind": {"type": "string", "pattern": "^[a-z]+$"},
            "x": {"type": "number", "maximum": 1.5}, "status": {"enum": ["on", 1, true, null]}, "no": false,
            "host": {"minLength": 1, "maxLength": 2}, "at": {"type": "string", "format": "date"},
            "list": {"type": "array", "items": {"type": ["null", "boolean"]}, "minItems": 1, "maxItems": 2}}}"#;
    let sure = [
        r#"{"n": 0, "other": [{"any": "\u00e9"}]}"#,
        r#"{"other": 1, "n": 9, "kind": "abc", "x": 1.25, "status": "on", "host": "éé", "at": "2024-02-29"}"#,
        r#"{"other": 1, "n": 5, "n": 6, "list": [null, true], "status": 1}"#,
        r#"{"other": 1, "n": 5, "list": [true], "status": null, "host": 5, "x": -1e300}"#,
    ];
    assert_eq!(takes(schema, &sure), [true; 4]);
    // Some of these are wrong, some are right and have to be asked for.
    let others = [
        "[]",
        r#"{"n": 1}"#,
        r#"{"n": -1, "other": 1}"#,
        r#"{"n": 10, "other": 1}"#,
        r#"{"n": 1.0, "other": 1}"#,
        r#"{"n": 1, "other": 1e999}"#,
        r#"{"n": 1, "other": "\ud800"}"#,
        r#"{"n": 1, "other": 1} x"#,
        r#"{"n": 1, "other": 1, "n": "a"}"#,
        r#"{"n": 1, "other": 1, "x": 1.5}"#,
        r#"{"n": 1, "other": 1, "x": 1.50000000000000000000000000001}"#,
        r#"{"n": 1, "other": 1, "kind": "A"}"#,
        r#"{"n": 1, "other": 1, "no": 1}"#,
        r#"{"n": 1, "other": 1, "host": ""}"#,
        r#"{"n": 1, "other": 1, "host": "ééé"}"#,
        r#"{"n": 1, "other": 1, "at": "2023-02-29"}"#,
        r#"{"n": 1, "other": 1, "list": []}"#,
        r#"{"n": 1, "other": 1, "list": [1]}"#,
        r#"{"n": 1, "other": 1, "list": [null, null, null]}"#,
        r#"{"n": 1, "other": 1, "status": 1.0}"#,
        r#"{"n": 1, "other": 1, "status": []}"#,
        r#"{"n": 1, "other": 1, "status": {}}"#,
        r#"{"n": 1, "other": 1, "status": false}"#,
    ];
    for document in others {
        let schema = Schema::parse(schema).unwrap();
        assert!(!schema.validator().takes_plainly(document.as_bytes()), "{document}");
    }
}

#[test]
fn bounds_are_exact() {
    let least = r#"{"minimum": 9007199254740992}"#;
    let numbers = ["9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "1e300"];
    assert_eq!(takes(least, &numbers), [false, false, false, true, true]);
    assert_eq!(takes(r#"{"minimum": 9007199254740991}"#, &numbers), [true; 5]);
    assert_eq!(takes(r#"{"exclusiveMinimum": 0.1}"#, &["0.1", "0.2", "1", "0"]), [false, true, true, false]);
    assert_eq!(takes(r#"{"maximum": 0}"#, &["-1e-400", "0", "0.0", "-1"]), [false, true, false, true]);
}

#[test]
fn other_keywords_are_not_plain() {
    for schema in [
        r##"{"$ref": "#/$defs/a", "$defs": {"a": {}}}"##,
        r#"{"properties": {"a": {"not": {}}}}"#,
        r#"{"prefixItems": [true], "items": true}"#,
        r#"{"uniqueItems": true}"#,
        r#"{"pattern": "(?!a)b"}"#,
        r#"{"required": ["a"], "additionalProperties": {"type": "string"}}"#,
        r#"{"const": 0.5}"#,
        r#"{"unit": "s"}"#,
    ] {
        assert_eq!(takes(schema, &["1", "[]", "{}", r#""b""#]), [false; 4], "{schema}");
    }
    assert_eq!(takes("true", &["1", "{"]), [true, false]);
    assert_eq!(takes("false", &["1"]), [false]);
}

/// Texts that are JSON and some that are nearly so: changed in a few bytes.
fn texts(rng: &mut fastrand::Rng) -> Vec<u8> {
    const WHOLE: [&str; 6] = [
        r#"{"a":[1,-2.5e3,0.1,{"b":"x\n\"y\"\u00e9","":[]}],"é":{},"t":true,"f":false,"n":null}"#,
        "[0, -0, 10 , 1E+2,\n-1e-2,\t18446744073709551615, 18446744073709551616, -9223372036854775809]",
        r#"["\ud83d\ude00", "\ud800", "a text that is longer than a few words of eight bytes", "\\"]"#,
        r#""just a text of its own""#,
        "  -12.50  ",
        r#"{"a":{"a":{"a":[[[[]]]]}}}"#,
    ];
    const PIECES: &[u8] = b"\"\\{}[]:,.-+eE019 \n\t\x1f\x7f\xc3\xa9tfnu";
    let mut text = WHOLE[rng.usize(..WHOLE.len())].as_bytes().to_vec();
    for _ in 0..rng.usize(..4) {
        let (at, piece) = (rng.usize(..text.len()), PIECES[rng.usize(..PIECES.len())]);
        match rng.u8(..3) {
            0 => text[at] = piece,
            1 => text.insert(at, piece),
            _ => drop(text.remove(at)),
        }
    }
    text
}

#[test]
fn what_is_json_is_what_the_parser_reads() {
    let schema = Schema::parse("true").unwrap();
    let (mut rng, mut read) = (fastrand::Rng::with_seed(7), 0);
    for _ in 0..100_000 {
        let text = texts(&mut rng);
        let is_read = serde_json::from_slice::<serde_json::Value>(&text).is_ok();
        read += u32::from(is_read);
        assert_eq!(schema.validator().takes_plainly(&text), is_read, "{}", String::from_utf8_lossy(&text));
    }
    assert!((20_000..80_000).contains(&read), "{read}");
    for depth in 125..131 {
        let text = [vec![b'['; depth], vec![b']'; depth]].concat();
        let is_read = serde_json::from_slice::<serde_json::Value>(&text).is_ok();
        assert_eq!(schema.validator().takes_plainly(&text), is_read, "{depth}");
    }
}

#[test]
fn texts_end_where_they_end() {
    let schema = Schema::parse(r#"{"const": "end"}"#).unwrap();
    for length in 0..40 {
        for special in ["\"", "\\\\", "\u{1f}", "é", "\u{80}"] {
            let text = format!("[\"{}{special}{}\"]", "a".repeat(length), "b".repeat(40 - length));
            let is_read = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            assert_eq!(
                Schema::parse("true").unwrap().validator().takes_plainly(text.as_bytes()),
                is_read,
                "{text}"
            );
        }
    }
    assert!(schema.validator().takes_plainly(br#""\u0065nd""#));
    assert!(!schema.validator().takes_plainly(br#""\u0065nd """#));
}
