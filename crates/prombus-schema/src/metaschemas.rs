//! The schemas of schemas, which references may lead to without being in the document.

use crate::{draft::Draft, json::Json};
use referencing::meta;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// How the names of all of them begin.
const NAMED: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];

type Named = (&'static str, Json);

fn read(all: &[(&'static str, &LazyLock<Arc<Value>>)]) -> Vec<Named> {
    all.iter().map(|(id, schema)| (*id, Json::from(&****schema))).collect()
}

static DRAFT7: LazyLock<Vec<Named>> =
    LazyLock::new(|| read(&[("http://json-schema.org/draft-07/schema", &meta::DRAFT7)]));

static DRAFT201909: LazyLock<Vec<Named>> = LazyLock::new(|| {
    read(&[
        ("https://json-schema.org/draft/2019-09/schema", &meta::DRAFT201909),
        ("https://json-schema.org/draft/2019-09/meta/applicator", &meta::DRAFT201909_APPLICATOR),
        ("https://json-schema.org/draft/2019-09/meta/content", &meta::DRAFT201909_CONTENT),
        ("https://json-schema.org/draft/2019-09/meta/core", &meta::DRAFT201909_CORE),
        ("https://json-schema.org/draft/2019-09/meta/format", &meta::DRAFT201909_FORMAT),
        ("https://json-schema.org/draft/2019-09/meta/meta-data", &meta::DRAFT201909_META_DATA),
        ("https://json-schema.org/draft/2019-09/meta/validation", &meta::DRAFT201909_VALIDATION),
    ])
});

static DRAFT202012: LazyLock<Vec<Named>> = LazyLock::new(|| {
    read(&[
        ("https://json-schema.org/draft/2020-12/schema", &meta::DRAFT202012),
        ("https://json-schema.org/draft/2020-12/meta/applicator", &meta::DRAFT202012_APPLICATOR),
        ("https://json-schema.org/draft/2020-12/meta/content", &meta::DRAFT202012_CONTENT),
        ("https://json-schema.org/draft/2020-12/meta/core", &meta::DRAFT202012_CORE),
        (
            "https://json-schema.org/draft/2020-12/meta/format-annotation",
            &meta::DRAFT202012_FORMAT_ANNOTATION,
        ),
        ("https://json-schema.org/draft/2020-12/meta/meta-data", &meta::DRAFT202012_META_DATA),
        ("https://json-schema.org/draft/2020-12/meta/unevaluated", &meta::DRAFT202012_UNEVALUATED),
        ("https://json-schema.org/draft/2020-12/meta/validation", &meta::DRAFT202012_VALIDATION),
    ])
});

/// The metaschemas of the draft, if the document refers to any.
pub fn referred_to(document: &Json, draft: Draft) -> &'static [Named] {
    if !refers(document) {
        return &[];
    }
    match draft {
        Draft::Draft7 => &DRAFT7,
        Draft::Draft201909 => &DRAFT201909,
        Draft::Draft202012 => &DRAFT202012,
    }
}

fn refers(value: &Json) -> bool {
    match value {
        Json::Array(items) => items.iter().any(refers),
        Json::Object(members) => members.iter().any(|(name, value)| match value {
            Json::String(text) if name.ends_with("Ref") || &**name == "$ref" => {
                NAMED.iter().any(|named| text.starts_with(named))
            }
            value => refers(value),
        }),
        _ => false,
    }
}
