//! From a document to formulas: what each keyword means.

use super::endless::Steps;
use super::scopes::{DYNAMIC, Destination, ScopeId, Scopes};
use super::{ALL_KINDS, Atom, Except, FALSE, Graph, Kind, Kinds, Listed, Lit, NUMBERS, Names, TRUE};
use crate::{
    draft::Draft,
    error::SchemaError,
    formats,
    fuel::Fuel,
    json::Json,
    refs::{Address, References, place},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// How many steps it may take to find what unevaluated keywords leave over. What is not found by then is opaque.
const BUILD_STEPS: u64 = 150_000;

/// How far the values that a schema lists are counted.
const VALUES_LIMIT: u64 = 100_000;

/// Why nothing is known of a value for which there is a reference to another document.
const OUTWARD: &str = "a reference to another document";

pub type Members = BTreeMap<Arc<str>, Json>;

/// Turns a document into formulas.
pub struct Builder<'d, 'g> {
    pub graph: &'g mut Graph,
    pub draft: Draft,
    pub document: &'d Json,
    /// The number of the document, once it was asked for.
    pub number: Option<i64>,
    pub references: References<'d>,
    /// The formulas of the places that are built, by their numbers.
    pub built: HashMap<u32, Lit>,
    /// Places that a reference leads to and that are not built yet, and on which way.
    pub open: Vec<(&'d Json, ScopeId)>,
    pub scopes: Scopes,
    /// The schemas, in the order in which they were come upon.
    pub schemas: Vec<&'d Json>,
    /// Which schemas apply to the same value.
    pub steps: Steps,
    /// How many schemas were looked at for an unevaluated keyword.
    pub looked_at: usize,
    /// The schemas that refer to other documents, and what they say there.
    pub outward: Vec<(&'d Json, &'d str)>,
    /// How many statements were made of which nothing is known.
    pub unknowns: i64,
}

impl<'d, 'g> Builder<'d, 'g> {
    pub fn new(graph: &'g mut Graph, document: &'d Json, draft: Draft) -> Result<Self, SchemaError> {
        let references = References::of(document, draft)?;
        graph.fuel = Fuel::new(BUILD_STEPS);
        Ok(Self {
            graph,
            draft,
            document,
            number: None,
            references,
            built: HashMap::new(),
            open: Vec::new(),
            scopes: Scopes::new(),
            schemas: Vec::new(),
            steps: Steps::new(),
            looked_at: 0,
            outward: Vec::new(),
            unknowns: 0,
        })
    }

    /// The formula of a document; what it refers to is in `built`.
    pub fn document(&mut self, document: &'d Json) -> Result<Lit, SchemaError> {
        let root = self.schema(document)?;
        while let Some((schema, scope)) = self.open.pop() {
            self.within(scope, |builder| builder.schema(schema))?;
        }
        Ok(root)
    }

    /// Where each place is.
    pub fn places(&self) -> HashMap<Address, String> {
        self.references.places()
    }

    /// The formula of a schema. The recursion is as deep as the document.
    pub fn schema(&mut self, schema: &'d Json) -> Result<Lit, SchemaError> {
        let Some(scope) = self.scope_of(schema) else {
            // Where references in it lead is not known, but what they may lead to is gone through once.
            if self.scopes.visited.insert(place(schema))
                && let Some(members) = schema.object()
            {
                self.members(schema, members, true)?;
            }
            return Ok(self.unknown(DYNAMIC));
        };
        let site = self.site(schema, scope);
        if let Some(built) = self.built.get(&site) {
            return Ok(*built);
        }
        let is_first = self.scopes.visited.insert(place(schema));
        let lit = match schema {
            Json::Bool(false) => FALSE,
            Json::Object(members) if is_first || self.scopes.take_room(width(members)) => {
                self.within(scope, |builder| builder.members(schema, members, is_first))?
            }
            Json::Object(_) => self.unknown(DYNAMIC),
            _ => TRUE,
        };
        self.built.insert(site, lit);
        Ok(lit)
    }

    fn members(
        &mut self,
        schema: &'d Json,
        members: &'d Members,
        is_first: bool,
    ) -> Result<Lit, SchemaError> {
        let mut parts = Vec::new();
        if is_first {
            self.schemas.push(schema);
            self.note_steps(schema, members);
        }
        let dynamic = match self.draft {
            Draft::Draft7 => None,
            Draft::Draft201909 => Some("$recursiveRef"),
            Draft::Draft202012 => Some("$dynamicRef"),
        };
        for keyword in [Some("$ref"), dynamic].into_iter().flatten() {
            if let Some(Json::String(reference)) = members.get(keyword) {
                parts.push(self.refer(schema, keyword, reference, is_first)?);
                if self.draft == Draft::Draft7 {
                    return Ok(self.graph.and(parts));
                }
            }
        }
        self.values(members, &mut parts);
        self.numbers(members, &mut parts);
        self.strings(members, &mut parts);
        self.arrays(members, &mut parts)?;
        self.objects(members, &mut parts)?;
        self.dependencies(members, &mut parts)?;
        self.combined(members, &mut parts)?;
        self.unevaluated(schema, members, &mut parts)?;
        Ok(self.graph.and(parts))
    }

    /// The formula of a reference that leads to another document: nothing is known of it but what it is called.
    fn outward(&mut self, schema: &'d Json, reference: &'d str) -> Option<Lit> {
        let target = self.references.elsewhere(schema, reference)?;
        self.outward.push((schema, reference));
        if self.references.is_dynamic() {
            // What is there may refer back to anchors on the way, which are not the same in another document.
            return Some(self.unknown(OUTWARD));
        }
        Some(self.graph.atom(Atom::Opaque(OUTWARD, Arc::new(Json::from(target.as_str())), Box::default())))
    }

    /// The formula of what a reference means.
    fn refer(
        &mut self,
        schema: &'d Json,
        keyword: &str,
        reference: &'d str,
        is_first: bool,
    ) -> Result<Lit, SchemaError> {
        if let Some(outward) = self.outward(schema, reference) {
            return Ok(outward);
        }
        let meaning = self.references.meaning(schema, keyword, reference)?;
        let targets = self.references.targets(&meaning);
        if is_first {
            self.steps.entry(place(schema)).or_default().extend(targets.iter().map(|target| place(target)));
        }
        Ok(match self.destination(schema, &meaning) {
            Some(Destination { target, scope }) => self.within(scope, |builder| builder.reference(target)),
            None => self.unknown_reference(targets),
        })
    }

    fn values(&mut self, members: &Members, parts: &mut Vec<Lit>) {
        if let Some(kinds) = members.get("type") {
            let names = kinds.array().unwrap_or(std::slice::from_ref(kinds));
            let kinds = names.iter().filter_map(Json::text).fold(0, |kinds, name| kinds | kinds_named(name));
            parts.push(self.kinds(kinds));
        }
        let mut one_of = |values: &[Json]| {
            let listed = Listed::new(values.iter().cloned());
            let never = listed.values().is_empty();
            parts.push(if never { FALSE } else { self.graph.atom(Atom::Enum(Arc::new(listed))) });
        };
        if let Some(Json::Array(values)) = members.get("enum") {
            one_of(values);
        }
        if let Some(value) = members.get("const") {
            one_of(std::slice::from_ref(value));
        }
    }

    pub fn kinds(&mut self, kinds: Kinds) -> Lit {
        match kinds {
            ALL_KINDS => TRUE,
            0 => FALSE,
            kinds => self.graph.atom(Atom::Kinds(kinds)),
        }
    }

    fn numbers(&mut self, members: &Members, parts: &mut Vec<Lit>) {
        for (keyword, exclusive) in [("minimum", false), ("exclusiveMinimum", true)] {
            if let Some(Json::Number(bound)) = members.get(keyword) {
                parts.push(self.graph.atom(Atom::AtLeast { bound: bound.clone(), exclusive }));
            }
        }
        for (keyword, exclusive) in [("maximum", false), ("exclusiveMaximum", true)] {
            if let Some(Json::Number(bound)) = members.get(keyword) {
                parts.push(self.graph.atom(Atom::AtMost { bound: bound.clone(), exclusive }));
            }
        }
        if let Some(Json::Number(step)) = members.get("multipleOf")
            && step.is_positive()
        {
            parts.push(self.graph.atom(Atom::MultipleOf(step.clone())));
        }
    }

    fn count(members: &Members, keyword: &str) -> Option<u64> {
        members.get(keyword)?.number()?.to_u64()
    }

    fn strings(&mut self, members: &Members, parts: &mut Vec<Lit>) {
        if let Some(least) = Self::count(members, "minLength").filter(|least| *least > 0) {
            parts.push(self.graph.atom(Atom::MinLength(least)));
        }
        if let Some(most) = Self::count(members, "maxLength") {
            parts.push(self.graph.atom(Atom::MaxLength(most)));
        }
        if let Some(Json::String(pattern)) = members.get("pattern") {
            let pattern = self.graph.patterns.add(pattern);
            parts.push(self.graph.atom(Atom::Pattern(pattern)));
        }
        if let Some(Json::String(format)) = members.get("format")
            && formats::is_known(format)
        {
            parts.push(self.graph.atom(Atom::Format(format.clone())));
        }
    }

    fn arrays(&mut self, members: &'d Members, parts: &mut Vec<Lit>) -> Result<(), SchemaError> {
        if let Some(least) = Self::count(members, "minItems").filter(|least| *least > 0) {
            parts.push(self.graph.atom(Atom::MinItems(least)));
        }
        if let Some(most) = Self::count(members, "maxItems") {
            parts.push(self.graph.atom(Atom::MaxItems(most)));
        }
        if members.get("uniqueItems") == Some(&Json::Bool(true)) {
            parts.push(self.graph.atom(Atom::Unique));
        }
        let (tuple, rest) = self.tuple(members);
        for (at, item) in tuple.iter().enumerate() {
            let inner = self.schema(item)?;
            parts.push(self.graph.atom(Atom::Item(at as u64, inner)));
        }
        if let Some(rest) = rest {
            let inner = self.schema(rest)?;
            parts.push(self.graph.atom(Atom::Items(tuple.len() as u64, inner)));
        }
        if let Some(contains) = members.get("contains") {
            let inner = self.schema(contains)?;
            let counted = self.draft != Draft::Draft7;
            let least = Self::count(members, "minContains").filter(|_| counted).unwrap_or(1);
            if least > 0 {
                parts.push(self.graph.atom(Atom::Some(least, inner)));
            }
            if let Some(most) = Self::count(members, "maxContains").filter(|_| counted) {
                parts.push(self.graph.atom(Atom::Few(most, inner)));
            }
        }
        Ok(())
    }

    /// The schemas of the first items, and that of all others.
    pub fn tuple(&self, members: &'d Members) -> (&'d [Json], Option<&'d Json>) {
        if self.draft == Draft::Draft202012 {
            return (
                members.get("prefixItems").and_then(Json::array).unwrap_or_default(),
                members.get("items"),
            );
        }
        match members.get("items") {
            Some(Json::Array(tuple)) => (tuple, members.get("additionalItems")),
            items => (&[], items),
        }
    }

    fn objects(&mut self, members: &'d Members, parts: &mut Vec<Lit>) -> Result<(), SchemaError> {
        if let Some(least) = Self::count(members, "minProperties").filter(|least| *least > 0) {
            parts.push(self.graph.atom(Atom::MinProperties(least)));
        }
        if let Some(most) = Self::count(members, "maxProperties") {
            parts.push(self.graph.atom(Atom::MaxProperties(most)));
        }
        for name in members.get("required").and_then(Json::array).into_iter().flatten().filter_map(Json::text)
        {
            parts.push(self.graph.atom(Atom::Has(name.clone())));
        }
        for (name, inner) in members.get("properties").and_then(Json::object).into_iter().flatten() {
            let inner = self.schema(inner)?;
            parts.push(self.graph.atom(Atom::Values(Names::Exactly(name.clone()), inner)));
        }
        for (pattern, inner) in members.get("patternProperties").and_then(Json::object).into_iter().flatten()
        {
            let inner = self.schema(inner)?;
            let pattern = self.graph.patterns.add(pattern);
            parts.push(self.graph.atom(Atom::Values(Names::Matching(pattern), inner)));
        }
        if let Some(rest) = members.get("additionalProperties") {
            let inner = self.schema(rest)?;
            let except = self.named(members);
            parts.push(self.graph.atom(Atom::Values(Names::Except(Arc::new(except)), inner)));
        }
        if let Some(names) = members.get("propertyNames") {
            let inner = self.schema(names)?;
            parts.push(self.graph.atom(Atom::Names(inner)));
        }
        Ok(())
    }

    /// The names that `properties` and `patternProperties` speak of.
    pub fn named(&mut self, members: &Members) -> Except {
        let keys = |keyword: &str| {
            members.get(keyword).and_then(Json::object).into_iter().flatten().map(|(name, _)| name)
        };
        Except {
            names: keys("properties").cloned().collect(),
            patterns: keys("patternProperties").map(|pattern| self.graph.patterns.add(pattern)).collect(),
        }
    }

    fn dependencies(&mut self, members: &'d Members, parts: &mut Vec<Lit>) -> Result<(), SchemaError> {
        let of = |keyword: &str| members.get(keyword).and_then(Json::object).into_iter().flatten();
        let modern = self.draft != Draft::Draft7;
        let listed = of("dependentRequired").filter(|_| modern).chain(of("dependencies"));
        for (name, needed) in listed.filter_map(|(name, needed)| Some((name, needed.array()?))) {
            let needed: Vec<Lit> = needed
                .iter()
                .filter_map(Json::text)
                .map(|needed| self.graph.atom(Atom::Has(needed.clone())))
                .collect();
            let needed = self.graph.and(needed);
            parts.push(self.where_there_is(name, needed));
        }
        let schemas = of("dependentSchemas").filter(|_| modern).chain(of("dependencies"));
        for (name, inner) in schemas.filter(|(_, inner)| inner.array().is_none()) {
            let inner = self.schema(inner)?;
            parts.push(self.where_there_is(name, inner));
        }
        Ok(())
    }

    /// That something is so of objects with such a property.
    fn where_there_is(&mut self, name: &Arc<str>, then: Lit) -> Lit {
        let object = self.kinds(Kind::Object.bit());
        let has = self.graph.atom(Atom::Has(name.clone()));
        self.graph.or([object.not(), has.not(), then])
    }

    fn combined(&mut self, members: &'d Members, parts: &mut Vec<Lit>) -> Result<(), SchemaError> {
        let mut all = |keyword: &str| -> Result<Option<Vec<Lit>>, SchemaError> {
            let Some(Json::Array(schemas)) = members.get(keyword) else { return Ok(None) };
            schemas.iter().map(|schema| self.schema(schema)).collect::<Result<_, _>>().map(Some)
        };
        let (all_of, any_of, one_of) = (all("allOf")?, all("anyOf")?, all("oneOf")?);
        parts.extend(all_of.into_iter().flatten());
        if let Some(any_of) = any_of {
            parts.push(self.graph.or(any_of));
        }
        if let Some(one_of) = one_of {
            parts.push(self.graph.one(one_of));
        }
        if let Some(not) = members.get("not") {
            parts.push(self.schema(not)?.not());
        }
        if let Some(condition) = members.get("if") {
            let condition = self.schema(condition)?;
            for (keyword, unless) in [("then", condition.not()), ("else", condition)] {
                if let Some(branch) = members.get(keyword) {
                    let branch = self.schema(branch)?;
                    parts.push(self.graph.or([unless, branch]));
                }
            }
        }
        Ok(())
    }
}

/// How much there is to build of a schema, without the schemas in it.
fn width(members: &Members) -> usize {
    let of = |(name, value): (&Arc<str>, &Json)| match (&**name, value) {
        ("enum" | "const", value) => value.size(VALUES_LIMIT) as usize,
        (_, Json::Array(items)) => 1 + items.len(),
        (_, Json::Object(members)) => 1 + members.len(),
        _ => 1,
    };
    1 + members.iter().map(of).sum::<usize>()
}

/// The kinds that `type` means by a name.
fn kinds_named(name: &str) -> Kinds {
    match name {
        "null" => Kind::Null.bit(),
        "boolean" => Kind::Bool.bit(),
        "integer" => Kind::Integer.bit(),
        "number" => NUMBERS,
        "string" => Kind::String.bit(),
        "array" => Kind::Array.bit(),
        "object" => Kind::Object.bit(),
        _ => 0,
    }
}
