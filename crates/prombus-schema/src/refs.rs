//! Which part of a document a reference means: identifiers, anchors and pointers.

use crate::{draft::Draft, error::SchemaError, json::Json, metaschemas, uri};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The base of a document that does not name itself.
const NAMELESS: &str = "schema:///";

/// Keywords whose value is a schema.
const ONE: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const LISTS: &[&str] = &["allOf", "anyOf", "items", "oneOf", "prefixItems"];

/// Keywords whose value is an object of schemas.
const MAPS: &[&str] =
    &["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// What a place is known by: the address of its value, which stays where it is as long as the document lives.
pub type Address = usize;

/// The place of a value.
pub fn place(schema: &Json) -> Address {
    std::ptr::from_ref(schema) as usize
}

/// Everything that references in a document can mean.
pub struct References<'d> {
    draft: Draft,
    resources: HashMap<String, &'d Json>,
    anchors: HashMap<(String, String), &'d Json>,
    /// The places that have `$dynamicAnchor`, by its name.
    dynamic: HashMap<String, Vec<&'d Json>>,
    /// The resources that have `$recursiveAnchor`.
    recursive: Vec<&'d Json>,
    known: HashMap<Address, (Arc<str>, String)>,
}

/// What a reference means.
pub enum Meaning<'d> {
    Schema(&'d Json),
    /// It depends on the way by which it was reached.
    Dynamic,
}

impl<'d> References<'d> {
    pub fn of(document: &'d Json, draft: Draft) -> Result<Self, SchemaError> {
        let mut references = Self {
            draft,
            resources: HashMap::from([(NAMELESS.to_owned(), document)]),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
            recursive: Vec::new(),
            known: HashMap::new(),
        };
        references.index(document, NAMELESS.into(), String::new())?;
        // All of them before anything is resolved, as what a dynamic reference means depends on what there is; and none where
        // the document has some of its own, which would change what the others mean.
        let metaschemas = metaschemas::referred_to(document, draft);
        if metaschemas.iter().all(|(id, _)| !references.resources.contains_key(*id)) {
            for (id, metaschema) in metaschemas {
                references.index(metaschema, NAMELESS.into(), (*id).to_owned())?;
            }
        }
        Ok(references)
    }

    /// Where a schema is in its document.
    pub fn pointer(&self, schema: &Json) -> &str {
        self.known.get(&place(schema)).map_or("", |(_, pointer)| pointer)
    }

    /// Where each place is.
    pub fn places(&self) -> HashMap<Address, String> {
        self.known.iter().map(|(place, (_, pointer))| (*place, pointer.clone())).collect()
    }

    fn index(&mut self, schema: &'d Json, base: Arc<str>, pointer: String) -> Result<(), SchemaError> {
        let Some(members) = schema.object() else {
            self.known.insert(place(schema), (base, pointer));
            return Ok(());
        };
        if let Some(Json::String(found)) = members.get("$schema")
            && Draft::named(found) != Some(self.draft)
        {
            return Err(SchemaError::Draft { path: pointer, found: found.to_string() });
        }
        let base = self.identify(schema, base);
        if self.known.insert(place(schema), (base.clone(), pointer.clone())).is_some() {
            return Ok(());
        }
        for keyword in ONE {
            if let Some(inner @ Json::Object(_)) = members.get(*keyword) {
                self.index(inner, base.clone(), format!("{pointer}/{keyword}"))?;
            }
        }
        for keyword in LISTS {
            for (at, inner) in members.get(*keyword).and_then(Json::array).into_iter().flatten().enumerate() {
                self.index(inner, base.clone(), format!("{pointer}/{keyword}/{at}"))?;
            }
        }
        for keyword in MAPS {
            for (name, inner) in members.get(*keyword).and_then(Json::object).into_iter().flatten() {
                let name = name.replace('~', "~0").replace('/', "~1");
                self.index(inner, base.clone(), format!("{pointer}/{keyword}/{name}"))?;
            }
        }
        Ok(())
    }

    /// Notes what a schema is called, and answers the base of the references inside it.
    fn identify(&mut self, schema: &'d Json, base: Arc<str>) -> Arc<str> {
        let Some(members) = schema.object() else { return base };
        let text = |keyword: &str| members.get(keyword).and_then(Json::text);
        let old = self.draft == Draft::Draft7;
        let id = text("$id").filter(|_| !(old && members.contains_key("$ref")));
        let base: Arc<str> = match id {
            Some(id) => {
                let (id, fragment) = uri::split(id);
                let base = uri::join(&base, id);
                if !id.is_empty() {
                    self.resources.insert(base.clone(), schema);
                }
                if let Some(anchor) = fragment.filter(|fragment| old && !fragment.is_empty()) {
                    self.anchors.insert((base.clone(), anchor.to_owned()), schema);
                }
                base.into()
            }
            None => base,
        };
        if !old {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(anchor) = text(keyword) {
                    self.anchors.insert((base.to_string(), anchor.to_string()), schema);
                }
            }
            if let Some(anchor) = text("$dynamicAnchor") {
                self.dynamic.entry(anchor.to_string()).or_default().push(schema);
            }
            if members.get("$recursiveAnchor") == Some(&Json::Bool(true)) {
                self.recursive.push(schema);
            }
        }
        base
    }

    /// The base of references in a schema.
    fn base(&self, schema: &Json) -> Arc<str> {
        self.known.get(&place(schema)).map_or_else(|| NAMELESS.into(), |(base, _)| base.clone())
    }

    /// What a reference in a schema leads to, if that is another document.
    pub fn elsewhere(&self, schema: &Json, reference: &str) -> Option<String> {
        let (document, fragment) = uri::split(reference);
        let document = uri::join(&self.base(schema), document);
        if self.resources.contains_key(&document) {
            return None;
        }
        let fragment = fragment.filter(|fragment| !fragment.is_empty());
        Some(fragment.map_or_else(|| document.clone(), |fragment| format!("{document}#{fragment}")))
    }

    /// What `$ref` means in a schema.
    pub fn resolve(&mut self, schema: &'d Json, reference: &str) -> Result<&'d Json, SchemaError> {
        let wrong = |references: &Self, why| SchemaError::Reference {
            path: references.pointer(schema).to_owned(),
            reference: reference.to_owned(),
            why,
        };
        let (document, fragment) = uri::split(reference);
        let document = uri::join(&self.base(schema), document);
        let Some(resource) = self.resources.get(&document).copied() else {
            return Err(wrong(
                self,
                "leads to another document; put what it means into this one, below `$defs`",
            ));
        };
        let fragment = uri::unescaped(fragment.unwrap_or_default());
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let anchor = self.anchors.get(&(document, fragment)).copied();
            return anchor.ok_or_else(|| wrong(self, "names an anchor that is not there"));
        }
        let Some(target) = resource.pointer(&fragment) else {
            return Err(wrong(self, "leads nowhere in this document"));
        };
        if !matches!(target, Json::Object(_) | Json::Bool(_)) {
            return Err(wrong(self, "does not lead to a schema"));
        }
        if !self.known.contains_key(&place(target)) {
            self.adopt(resource, &fragment, target)?;
        }
        Ok(target)
    }

    /// Takes up a schema in a place where a keyword would not have it.
    fn adopt(&mut self, resource: &'d Json, fragment: &str, target: &'d Json) -> Result<(), SchemaError> {
        let (mut base, start) =
            self.known.get(&place(resource)).cloned().unwrap_or((NAMELESS.into(), String::new()));
        let mut above = HashSet::new();
        for (at, _) in fragment.match_indices('/').skip(1) {
            if let Some(between) = resource.pointer(&fragment[..at])
                && let Some((inner, _)) = self.known.get(&place(between))
                && above.insert(place(between))
            {
                base = inner.clone();
            }
        }
        self.index(target, base, format!("{start}{fragment}"))
    }

    /// What `$dynamicRef` means in a schema.
    pub fn resolve_dynamic(&mut self, schema: &'d Json, reference: &str) -> Result<Meaning<'d>, SchemaError> {
        let target = self.resolve(schema, reference)?;
        let fragment = uri::split(reference).1.unwrap_or_default();
        let anchor = target.object().and_then(|members| members.get("$dynamicAnchor")).and_then(Json::text);
        if anchor.is_none_or(|anchor| **anchor != *fragment) {
            return Ok(Meaning::Schema(target));
        }
        Ok(if self.dynamic.get(fragment).is_some_and(|places| places.len() > 1) {
            Meaning::Dynamic
        } else {
            Meaning::Schema(target)
        })
    }

    /// What `$recursiveRef` means in a schema.
    pub fn resolve_recursive(
        &mut self,
        schema: &'d Json,
        reference: &str,
    ) -> Result<Meaning<'d>, SchemaError> {
        let target = self.resolve(schema, reference)?;
        let marked =
            target.object().and_then(|members| members.get("$recursiveAnchor")) == Some(&Json::Bool(true));
        Ok(if marked && self.recursive.len() > 1 { Meaning::Dynamic } else { Meaning::Schema(target) })
    }

    /// The places that a dynamic reference can lead to.
    pub fn dynamic_targets(&self, meaning: &Meaning<'_>) -> Vec<Address> {
        match meaning {
            Meaning::Schema(target) => vec![place(target)],
            Meaning::Dynamic => {
                self.dynamic.values().flatten().chain(&self.recursive).map(|schema| place(schema)).collect()
            }
        }
    }
}
