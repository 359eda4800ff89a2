//! The drafts of JSON Schema that are known.

/// A draft of JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Draft {
    /// Draft 7. Documents in draft 4 and 6 are read as if they were in draft 7.
    Draft7,
    /// Draft 2019-09.
    Draft201909,
    /// Draft 2020-12, which a schema is in that does not say.
    Draft202012,
}

impl Draft {
    /// The draft that `$schema` names.
    pub fn named(schema: &str) -> Option<Self> {
        let name = schema.trim_end_matches('#');
        let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
        match name.strip_prefix("json-schema.org/")?.strip_suffix("schema")?.trim_end_matches('/') {
            "draft/2020-12" => Some(Self::Draft202012),
            "draft/2019-09" => Some(Self::Draft201909),
            "draft-07" | "draft-06" | "draft-04" => Some(Self::Draft7),
            _ => None,
        }
    }

    pub(crate) fn of_validator(self) -> jsonschema::Draft {
        match self {
            Self::Draft7 => jsonschema::Draft::Draft7,
            Self::Draft201909 => jsonschema::Draft::Draft201909,
            Self::Draft202012 => jsonschema::Draft::Draft202012,
        }
    }
}

/// Whether `$schema` names draft 4, in which exclusive bounds are `true`, and `$id` is `id`.
pub(crate) fn is_draft4(schema: &str) -> bool {
    schema.contains("draft-04/")
}
