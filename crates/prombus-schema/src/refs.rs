//! Which part of a document a reference means: identifiers, anchors and pointers.

use crate::{draft::Draft, error::SchemaError, graph::build::Members, json::Json, metaschemas, uri};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The base of a document that does not name itself.
const NAMELESS: &str = "schema:///";

/// How long the identifier of a resource may be, in bytes. Each reference in it is as long.
const BASE_LIMIT: usize = 2_048;

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

/// Whether there are schemas in what a keyword says.
pub fn has_schemas(keyword: &str) -> bool {
    [ONE, LISTS, MAPS].iter().any(|keywords| keywords.contains(&keyword))
}

/// The schemas in a schema: by which keyword, with which pointer from there, and what they say.
pub fn inner(members: &Members) -> impl Iterator<Item = (&'static str, String, &Json)> {
    let one = ONE.iter().filter_map(|keyword| match members.get(*keyword) {
        Some(inner @ Json::Object(_)) => Some((*keyword, format!("/{keyword}"), inner)),
        _ => None,
    });
    let lists = LISTS.iter().flat_map(|keyword| {
        let all = members.get(*keyword).and_then(Json::array).into_iter().flatten().enumerate();
        all.map(move |(at, inner)| (*keyword, format!("/{keyword}/{at}"), inner))
    });
    let maps = MAPS.iter().flat_map(|keyword| {
        let all = members.get(*keyword).and_then(Json::object).into_iter().flatten();
        all.map(move |(name, inner)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            (*keyword, format!("/{keyword}/{name}"), inner)
        })
    });
    one.chain(lists).chain(maps)
}

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
    /// The places that have `$dynamicAnchor`, by its name, and the resources that have `$recursiveAnchor`, by [`RECURSIVE`].
    dynamic: HashMap<Arc<str>, Vec<&'d Json>>,
    /// The same by the resource that they are in.
    dynamic_in: HashMap<Arc<str>, Vec<(Arc<str>, &'d Json)>>,
    /// Anchors of which it is not clear where they are: twice in one resource, or where no keyword would have a schema.
    unclear: HashSet<String>,
    /// Whether the places are known that have anchors.
    is_complete: bool,
    known: HashMap<Address, (Arc<str>, String)>,
}

/// The name under which `$recursiveAnchor` is kept. No other anchor is called that.
pub const RECURSIVE: &str = "";

/// What a reference means.
pub struct Meaning<'d> {
    /// What it leads to, unless it is by an anchor that another resource on the way has as well.
    pub target: &'d Json,
    /// The base of the resource that it names.
    pub resource: Arc<str>,
    /// The dynamic anchor by which it leads there.
    pub anchor: Option<Arc<str>>,
    /// Whether it is a keyword for which other resources on the way count.
    pub is_dynamic: bool,
    /// Whether readers of the specification may take it for different things.
    pub is_unclear: bool,
}

impl<'d> References<'d> {
    pub fn of(document: &'d Json, draft: Draft) -> Result<Self, SchemaError> {
        let mut references = Self {
            draft,
            resources: HashMap::from([(NAMELESS.to_owned(), document)]),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
            dynamic_in: HashMap::new(),
            unclear: HashSet::new(),
            is_complete: false,
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
        references.is_complete = true;
        Ok(references)
    }

    /// Where a schema is in its document.
    pub fn pointer(&self, schema: &Json) -> &str {
        self.pointer_of(place(schema))
    }

    /// The same for a place.
    pub fn pointer_of(&self, place: Address) -> &str {
        self.known.get(&place).map_or("", |(_, pointer)| pointer)
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
        if base.len() > BASE_LIMIT {
            let message = format!(
                "its `$id` is longer than {BASE_LIMIT} bytes, together with those that it is relative to"
            );
            return Err(SchemaError::Invalid { path: pointer, message });
        }
        if self.known.insert(place(schema), (base.clone(), pointer.clone())).is_some() {
            return Ok(());
        }
        for (_, way, inner) in inner(members) {
            self.index(inner, base.clone(), pointer.clone() + &way)?;
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
                if let Some(anchor) = text(keyword)
                    && let Some(other) = self.anchors.insert((base.to_string(), anchor.to_string()), schema)
                    && place(other) != place(schema)
                {
                    self.unclear.insert(anchor.to_string());
                }
            }
        }
        let dynamic = text("$dynamicAnchor").filter(|_| self.draft == Draft::Draft202012);
        if let Some(anchor) = dynamic {
            self.note_dynamic(&base, anchor.clone(), schema);
        }
        let recursive = members.get("$recursiveAnchor") == Some(&Json::Bool(true));
        let root = self.resources.get(&*base).is_some_and(|root| place(root) == place(schema));
        if recursive && root && self.draft == Draft::Draft201909 {
            self.note_dynamic(&base, RECURSIVE.into(), schema);
        }
        base
    }

    fn note_dynamic(&mut self, base: &Arc<str>, anchor: Arc<str>, schema: &'d Json) {
        if self.is_complete {
            self.unclear.insert(anchor.to_string());
            return;
        }
        let here = self.dynamic_in.entry(base.clone()).or_default();
        // A schema is come upon again where a reference leads to it by a way of its own.
        if !here.iter().any(|(name, there)| *name == anchor && place(there) == place(schema)) {
            here.push((anchor.clone(), schema));
            self.dynamic.entry(anchor).or_default().push(schema);
        }
    }

    /// Whether there is an anchor for which it matters on which way it is reached.
    pub fn is_dynamic(&self) -> bool {
        !self.dynamic.is_empty()
    }

    /// The dynamic anchors of the resource with this base, and the places that have them.
    pub fn dynamic_in(&self, base: &str) -> &[(Arc<str>, &'d Json)] {
        self.dynamic_in.get(base).map(Vec::as_slice).unwrap_or_default()
    }

    /// The places that have a dynamic anchor.
    pub fn places_of(&self, anchor: &str) -> &[&'d Json] {
        self.dynamic.get(anchor).map(Vec::as_slice).unwrap_or_default()
    }

    /// The resource that is called like this.
    pub fn resource(&self, base: &str) -> Option<&'d Json> {
        self.resources.get(base).copied()
    }

    /// The base of references in a schema.
    pub fn base(&self, schema: &Json) -> Arc<str> {
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

    /// What a reference means in a schema, by a keyword of its draft.
    pub fn meaning(
        &mut self,
        schema: &'d Json,
        keyword: &str,
        reference: &str,
    ) -> Result<Meaning<'d>, SchemaError> {
        let target = self.resolve(schema, reference)?;
        let (document, fragment) = uri::split(reference);
        let resource: Arc<str> = uri::join(&self.base(schema), document).into();
        let is_dynamic = keyword != "$ref";
        let fragment = fragment.unwrap_or_default();
        let name = uri::unescaped(fragment);
        let leads_by =
            |anchor: &str| self.places_of(anchor).iter().any(|there| place(there) == place(target));
        if keyword == "$recursiveRef" {
            let anchor = leads_by(RECURSIVE).then(|| RECURSIVE.into());
            let is_unclear = reference != "#" || self.unclear.contains(RECURSIVE);
            return Ok(Meaning { target, resource, anchor, is_dynamic, is_unclear });
        }
        let by_name = !name.is_empty() && !name.starts_with('/');
        let anchor = (by_name && leads_by(&name)).then(|| Arc::from(name.as_str()));
        let is_unclear = anchor.is_some() && (self.unclear.contains(&name) || *name != *fragment);
        Ok(Meaning { target, resource, anchor, is_dynamic, is_unclear })
    }

    /// The places that a reference can lead to.
    pub fn targets(&self, meaning: &Meaning<'d>) -> Vec<&'d Json> {
        match &meaning.anchor {
            Some(anchor) if meaning.is_dynamic => self.places_of(anchor).to_vec(),
            _ => vec![meaning.target],
        }
    }
}
