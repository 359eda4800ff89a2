//! A schema that was read and found good.

use crate::{
    deep,
    draft::{Draft, is_draft4},
    error::SchemaError,
    graph::{Graph, Lit, build::Builder, endless},
    json::Json,
    limits,
    outline::Outline,
    refs::place,
    validator::{Size, Validator},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// How long the text of a schema may be, in bytes.
pub const BYTES_LIMIT: usize = 1024 * 1024;

/// How deep a schema may be nested.
pub const DEPTH_LIMIT: usize = 128;

/// A schema. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Schema {
    document: Json,
    draft: Draft,
    validator: Validator,
    /// What is wrong with the first reference to another document, if there is one.
    outward: Option<SchemaError>,
}

impl Schema {
    /// Reads a schema from its text, in which numbers have any precision.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let schema = Self::parse_to_compare(text)?;
        schema.outward.clone().map_or(Ok(schema), Err)
    }

    /// The same for a schema that is only compared with others: it may refer to other documents. Nothing is known of those
    /// but that the same reference means the same, so that documents cannot always be checked against it.
    pub fn parse_to_compare(text: &str) -> Result<Self, SchemaError> {
        if text.len() > BYTES_LIMIT {
            return Err(SchemaError::TooLarge { bytes: text.len(), limit: BYTES_LIMIT });
        }
        let document =
            Json::parse(text, DEPTH_LIMIT).map_err(|error| SchemaError::of_json(error, DEPTH_LIMIT))?;
        deep::run(|| Self::of(document)).unwrap_or(Err(SchemaError::NoStack))
    }

    /// Takes a schema that was read already, with the numbers that it has.
    pub fn from_value(value: &Value) -> Result<Self, SchemaError> {
        limits::of_value(value)?;
        Self::parse(&value.to_string())
    }

    fn of(document: Json) -> Result<Self, SchemaError> {
        if !matches!(document, Json::Object(_) | Json::Bool(_)) {
            let message = "a schema is an object, `true` or `false`".to_owned();
            return Err(SchemaError::Invalid { path: String::new(), message });
        }
        let named = document.object().and_then(|members| members.get("$schema")).and_then(Json::text);
        let unknown = |found: &Arc<str>| SchemaError::Draft { path: String::new(), found: found.to_string() };
        let draft =
            named.map_or(Ok(Draft::Draft202012), |name| Draft::named(name).ok_or_else(|| unknown(name)))?;
        let document = if named.is_some_and(|name| is_draft4(name)) { upgraded(&document) } else { document };
        limits::of_text(&document)?;
        let mut graph = Graph::new();
        let mut builder = Builder::new(&mut graph, &document, draft)?;
        builder.document(&document)?;
        if let Some(endless) = endless::endless(&builder.steps) {
            let path = builder.places().remove(&endless).unwrap_or_default();
            return Err(SchemaError::Endless { path });
        }
        let outline = Outline::of(&builder.schemas, &builder.steps);
        limits::of_outline(&outline)?;
        let bytes = limits::of_validator(&document, draft, &mut builder.references)?;
        let places = builder.outward.iter().map(|(schema, _)| place(schema)).collect();
        let outward = match builder.outward.first().copied() {
            Some((schema, reference)) => builder.references.resolve(schema, reference).err(),
            None => None,
        };
        let validator =
            Validator::build(&document, draft, Size { outline, bytes }, &places).map_err(|error| {
                SchemaError::Invalid { path: error.instance_path().to_string(), message: error.to_string() }
            })?;
        Ok(Self { document, draft, validator, outward })
    }

    /// The draft that it is written in.
    pub fn draft(&self) -> Draft {
        self.draft
    }

    /// What checks documents against it.
    pub fn validator(&self) -> &Validator {
        &self.validator
    }

    /// What it says.
    pub(crate) fn document(&self) -> &Json {
        &self.document
    }

    /// Adds its formulas to a graph.
    pub(crate) fn build(&self, graph: &mut Graph, built: &mut HashMap<u32, Lit>) -> Result<Lit, SchemaError> {
        formula(&self.document, self.draft, graph, built)
    }
}

/// Adds the formulas of a document to a graph.
pub(crate) fn formula(
    document: &Json,
    draft: Draft,
    graph: &mut Graph,
    built: &mut HashMap<u32, Lit>,
) -> Result<Lit, SchemaError> {
    let mut builder = Builder::new(graph, document, draft)?;
    let root = builder.document(document)?;
    built.extend(std::mem::take(&mut builder.built));
    Ok(root)
}

/// A document in draft 4, in the words of draft 7.
fn upgraded(document: &Json) -> Json {
    match document {
        Json::Array(items) => Json::Array(items.iter().map(upgraded).collect()),
        Json::Object(members) => {
            let mut upgraded: BTreeMap<Arc<str>, Json> = BTreeMap::new();
            for (name, value) in members.iter() {
                match (&**name, value) {
                    ("$schema", Json::String(schema)) if is_draft4(schema) => {
                        upgraded.insert(name.clone(), "http://json-schema.org/draft-07/schema#".into());
                    }
                    ("id", Json::String(_)) if !members.contains_key("$id") => {
                        upgraded.insert("$id".into(), value.clone());
                    }
                    ("enum" | "const" | "default" | "examples", _) => {
                        upgraded.insert(name.clone(), value.clone());
                    }
                    _ => {
                        upgraded.insert(name.clone(), self::upgraded(value));
                    }
                }
            }
            for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
                let said = members.get(exclusive);
                if let Some(Json::Bool(_)) = said {
                    upgraded.remove(exclusive);
                }
                if said == Some(&Json::Bool(true))
                    && let Some(number @ Json::Number(_)) = upgraded.remove(bound)
                {
                    upgraded.insert(exclusive.into(), number);
                }
            }
            Json::Object(Arc::new(upgraded))
        }
        other => other.clone(),
    }
}
