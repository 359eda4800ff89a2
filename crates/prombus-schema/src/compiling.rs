//! How large a validator becomes, reckoned before it is made.
//!
//! The crate `jsonschema` makes what a reference leads to again for each way through other resources (parts of a document
//! with an `$id`) on which it gets there. Behind each reference that an unevaluated keyword follows, it makes again what is
//! inside, which may have such keywords itself. So a short schema can become larger than any memory. This goes the same ways,
//! makes nothing, and stops at a limit.

use crate::{
    draft::Draft,
    graph::build::Members,
    json::Json,
    pattern::bytes_of,
    refs::{Address, Meaning, RECURSIVE, References, has_schemas, inner, place},
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

/// About how many bytes a schema takes, besides texts.
const SCHEMA_BYTES: usize = 300;

/// About how many bytes a keyword takes, besides texts.
const KEYWORD_BYTES: usize = 100;

/// About how many bytes a value takes that is kept, a name, or a reference that is being followed.
const ENTRY_BYTES: usize = 64;

/// As how many bytes the time counts in which a list of such references is copied, for each of them.
const COPIED_BYTES: usize = 4;

/// How often the base of a reference is kept.
const BASES: usize = 3;

/// Keywords that name a schema.
const ANCHORS: [&str; 4] = ["$anchor", "$dynamicAnchor", "$id", "id"];

/// How many references are followed one inside the other. What others lead to is made afterwards.
const NESTED_LIMIT: usize = 8;

/// Why a validator is not made, and at which schema that was seen.
#[derive(Debug, PartialEq)]
pub enum TooMuch {
    /// It would have more bytes than it may. The schema is the one that would be in it most often.
    Bytes(Address),
    /// It would for its patterns alone.
    Patterns(Address),
    /// An unevaluated keyword comes back to a schema that it is going through, and it would have more bytes than such a one may.
    Circular(Address),
    /// So many schemas would be made one inside the other that there might be no stack for it.
    Deep(Address),
}

/// How much a validator may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// About how many bytes.
    pub bytes: usize,
    /// The same if an unevaluated keyword goes in circles: the crate `jsonschema` never frees what is made for it then.
    pub circular_bytes: usize,
    /// How many schemas one inside the other.
    pub depth: usize,
}

/// Goes through everything that a validator of a document would be made of, and says about how many bytes that is.
pub fn compile<'d>(
    document: &'d Json,
    draft: Draft,
    references: &mut References<'d>,
    limits: Limits,
) -> Result<usize, TooMuch> {
    let mut compiling = Compiling {
        draft,
        references,
        left: limits,
        links: HashMap::new(),
        aliases: HashMap::new(),
        scopes: vec![Scope { base: "".into(), outer: OUTERMOST, bytes: 0 }],
        numbers: HashMap::new(),
        anchored: HashSet::new(),
        made: HashMap::new(),
        round: 0,
        done: HashSet::new(),
        waiting: HashSet::new(),
        queue: VecDeque::new(),
        open: Vec::new(),
        nested: 0,
        evaluating: HashSet::new(),
        circle: None,
        times: HashMap::new(),
        patterns: HashMap::new(),
        of_patterns: 0,
    };
    match compiling.all(document) {
        Ok(()) => {
            let bytes = limits.bytes - compiling.left.bytes;
            let circular = compiling.circle.filter(|_| bytes > limits.circular_bytes);
            circular.map_or(Ok(bytes), |circle| Err(TooMuch::Circular(circle)))
        }
        Err(Stop::Bytes) if compiling.of_patterns > limits.bytes / 2 => {
            Err(TooMuch::Patterns(place(document)))
        }
        Err(Stop::Bytes) => Err(TooMuch::Bytes(compiling.most_often().unwrap_or(place(document)))),
        Err(Stop::Deep(schema)) => Err(TooMuch::Deep(schema)),
    }
}

enum Stop {
    Bytes,
    Deep(Address),
}

/// What a reference is known by: the resource that it names, and the rest of it as it is written.
type Alias = u32;

/// The number of a list of resources.
type ScopeId = u32;

/// Before any reference is followed.
const OUTERMOST: ScopeId = 0;

/// A resource that a reference has led out of, and those before it.
struct Scope {
    base: Arc<str>,
    outer: ScopeId,
    /// How long all their names are together.
    bytes: usize,
}

struct Link<'d> {
    alias: Alias,
    /// How long the pointer is by which it leads there.
    pointer: usize,
    meaning: Meaning<'d>,
    /// The resource that the reference is in.
    base: Arc<str>,
    is_recursive: bool,
}

/// Where a schema is made.
#[derive(Clone, Copy)]
struct Site {
    scope: ScopeId,
    /// How long the pointer to it is.
    pointer: usize,
    /// Whether it is made where it is, and not on the way of an unevaluated keyword.
    is_home: bool,
}

/// A reference that is followed later.
struct Waiting<'d> {
    target: &'d Json,
    alias: Alias,
    site: Site,
    /// The references inside of which it was found.
    open: Vec<Alias>,
}

/// What an unevaluated keyword is about.
#[derive(Clone, Copy, PartialEq)]
enum LeftOver {
    Properties,
    Items,
}

struct Compiling<'d, 'r> {
    draft: Draft,
    references: &'r mut References<'d>,
    left: Limits,
    links: HashMap<(Address, bool), Option<Arc<Link<'d>>>>,
    aliases: HashMap<(Arc<str>, &'d str), Alias>,
    scopes: Vec<Scope>,
    numbers: HashMap<(ScopeId, Arc<str>), ScopeId>,
    /// The resources whose anchors were looked for.
    anchored: HashSet<Arc<str>>,
    /// In which round a schema was made at home, by the length of its pointer, as a schema inside two resources has two.
    made: HashMap<(Address, ScopeId, usize), u64>,
    round: u64,
    done: HashSet<(Alias, ScopeId)>,
    waiting: HashSet<(Alias, ScopeId)>,
    queue: VecDeque<Waiting<'d>>,
    /// The references that are being followed, in this round and those that it waited for.
    open: Vec<Alias>,
    nested: usize,
    /// The schemas that an unevaluated keyword is just going through.
    evaluating: HashSet<(Address, bool)>,
    /// The first schema to which one of them came back.
    circle: Option<Address>,
    /// How often each schema was made that a reference leads to.
    times: HashMap<Address, u64>,
    /// How many bytes each pattern takes.
    patterns: HashMap<&'d str, usize>,
    /// How many bytes all of them take, each once.
    of_patterns: usize,
}

impl<'d> Compiling<'d, '_> {
    fn all(&mut self, document: &'d Json) -> Result<(), Stop> {
        self.schema(document, Site { scope: OUTERMOST, pointer: 0, is_home: true })?;
        while let Some(Waiting { target, alias, site, open }) = self.queue.pop_front() {
            self.round += 1;
            self.waiting.remove(&(alias, site.scope));
            self.left.bytes += open.len() * ENTRY_BYTES;
            self.open = open;
            self.target(target, alias, site)?;
        }
        Ok(())
    }

    fn most_often(&self) -> Option<Address> {
        let pointer = |at: &Address| self.references.pointer_of(*at);
        let most = self.times.iter().max_by_key(|(at, times)| (**times, std::cmp::Reverse(pointer(at))));
        most.map(|(at, _)| *at)
    }

    fn pay(&mut self, bytes: usize) -> Result<(), Stop> {
        self.left.bytes = self.left.bytes.checked_sub(bytes).ok_or(Stop::Bytes)?;
        Ok(())
    }

    /// A pattern is compiled for a name, as often as there is one. What texts are searched for is there once.
    fn pattern(&mut self, pattern: &'d str, is_name: bool) -> Result<(), Stop> {
        let known = self.patterns.get(pattern).copied();
        let bytes = known.unwrap_or_else(|| bytes_of(pattern));
        if known.is_none() {
            self.patterns.insert(pattern, bytes);
            self.of_patterns = self.of_patterns.saturating_add(bytes);
        }
        if is_name || known.is_none() { self.pay(bytes) } else { Ok(()) }
    }

    /// The names that a schema says something of by patterns.
    fn pattern_names(&mut self, members: &'d Members) -> Result<(), Stop> {
        let named = members.get("patternProperties").and_then(Json::object);
        named.into_iter().flat_map(|all| all.keys()).try_for_each(|pattern| self.pattern(pattern, true))
    }

    /// Something one level further inside.
    fn inside(
        &mut self,
        schema: &'d Json,
        work: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.left.depth = self.left.depth.checked_sub(1).ok_or(Stop::Deep(place(schema)))?;
        work(self)?;
        self.left.depth += 1;
        Ok(())
    }

    /// A value is kept.
    fn keep(&mut self, value: &Json) -> Result<(), Stop> {
        match value {
            Json::String(text) => self.pay(ENTRY_BYTES + text.len()),
            Json::Array(items) => items.iter().try_for_each(|item| self.keep(item)),
            Json::Object(members) => members.iter().try_for_each(|(name, value)| {
                self.pay(ENTRY_BYTES + name.len())?;
                self.keep(value)
            }),
            _ => self.pay(ENTRY_BYTES),
        }
    }

    /// What a schema takes without those that are in it.
    fn alone(&mut self, schema: &'d Json, site: Site) -> Result<(), Stop> {
        let scope = self.scopes[site.scope as usize].bytes;
        let base = self.references.base(schema).len();
        self.pay(SCHEMA_BYTES + 2 * site.pointer + scope + base)?;
        for (keyword, value) in schema.object().into_iter().flatten() {
            self.pay(KEYWORD_BYTES + site.pointer)?;
            // What is not to be is kept for messages.
            if &**keyword == "not" || !has_schemas(keyword) {
                self.keep(value)?;
            }
        }
        Ok(())
    }

    /// A schema is made, with all that is in place in it.
    fn schema(&mut self, schema: &'d Json, site: Site) -> Result<(), Stop> {
        if site.is_home
            && self.made.insert((place(schema), site.scope, site.pointer), self.round) == Some(self.round)
        {
            return self.pay(ENTRY_BYTES);
        }
        self.alone(schema, site)?;
        let Some(members) = schema.object() else { return Ok(()) };
        self.pattern_names(members)?;
        if let Some(Json::String(pattern)) = members.get("pattern") {
            self.pattern(pattern, false)?;
        }
        self.inside(schema, |this| {
            for keyword in this.reference_keywords() {
                if let Some(Json::String(reference)) = members.get(*keyword) {
                    this.refer(schema, keyword, reference, site)?;
                    if this.draft == Draft::Draft7 {
                        return Ok(());
                    }
                }
            }
            for (keyword, way, part) in inner(members) {
                if !matches!(keyword, "$defs" | "definitions" | "contentSchema") {
                    this.schema(part, Site { pointer: site.pointer + way.len(), ..site })?;
                }
            }
            for (keyword, what) in
                [("unevaluatedProperties", LeftOver::Properties), ("unevaluatedItems", LeftOver::Items)]
            {
                if this.draft != Draft::Draft7 && members.contains_key(keyword) {
                    this.evaluated(schema, members, site, (what, false))?;
                }
            }
            Ok(())
        })
    }

    fn reference_keywords(&self) -> &'static [&'static str] {
        match self.draft {
            Draft::Draft7 => &["$ref"],
            Draft::Draft201909 => &["$ref", "$recursiveRef"],
            Draft::Draft202012 => &["$ref", "$dynamicRef"],
        }
    }

    /// What a reference leads to is made, unless that was done in the same scope, or is just being done.
    fn refer(
        &mut self,
        schema: &'d Json,
        keyword: &'static str,
        reference: &'d str,
        site: Site,
    ) -> Result<(), Stop> {
        let Some(link) = self.link(schema, keyword, reference)? else { return Ok(()) };
        let (target, scope) = self.destination(&link, site.scope);
        let known = (link.alias, scope);
        let is_made = self.done.contains(&known) || self.open.contains(&link.alias);
        if is_made || place(target) == place(schema) {
            return Ok(());
        }
        let site = Site { scope, pointer: link.pointer, is_home: true };
        let is_late = self.nested >= NESTED_LIMIT || self.waiting.contains(&known);
        if is_late && !link.is_recursive {
            if self.waiting.insert(known) {
                self.pay(SCHEMA_BYTES + self.open.len() * (ENTRY_BYTES + COPIED_BYTES))?;
                let (alias, open) = (link.alias, self.open.clone());
                self.queue.push_back(Waiting { target, alias, site, open });
            }
            return Ok(());
        }
        let nests = usize::from(!link.is_recursive);
        self.nested += nests;
        self.target(target, link.alias, site)?;
        self.nested -= nests;
        Ok(())
    }

    fn target(&mut self, target: &'d Json, alias: Alias, site: Site) -> Result<(), Stop> {
        *self.times.entry(place(target)).or_default() += 1;
        self.open.push(alias);
        self.schema(target, site)?;
        self.open.pop();
        self.done.insert((alias, site.scope));
        Ok(())
    }

    /// An unevaluated keyword goes through a schema that applies to its value. What is inside is made again if the way to it is
    /// `new`, by a reference.
    fn evaluated(
        &mut self,
        schema: &'d Json,
        members: &'d Members,
        site: Site,
        (what, new): (LeftOver, bool),
    ) -> Result<(), Stop> {
        self.pay(SCHEMA_BYTES + site.pointer)?;
        self.pattern_names(members)?;
        for name in members.get("properties").and_then(Json::object).into_iter().flat_map(|all| all.keys()) {
            self.pay(ENTRY_BYTES + name.len())?;
        }
        let pending = (place(schema), what == LeftOver::Items);
        let was_free = self.evaluating.insert(pending);
        self.inside(schema, |this| {
            for (keyword, way, part) in inner(members) {
                let is_home = site.is_home && !new;
                let site = Site { pointer: site.pointer + way.len(), is_home, ..site };
                let is_branch = matches!(keyword, "allOf" | "anyOf" | "oneOf" | "if");
                let is_inside = match what {
                    LeftOver::Properties => matches!(
                        keyword,
                        "additionalProperties" | "patternProperties" | "unevaluatedProperties"
                    ),
                    LeftOver::Items => matches!(keyword, "contains" | "unevaluatedItems"),
                };
                if new && (is_branch || is_inside) {
                    this.schema(part, site)?;
                }
                // What was made with a branch is there for what it leaves over.
                let then = (what, new && !is_branch);
                if (is_branch || matches!(keyword, "then" | "else" | "dependentSchemas"))
                    && let Some(members) = part.object()
                {
                    this.evaluated(part, members, site, then)?;
                }
            }
            for keyword in this.reference_keywords() {
                if let Some(Json::String(reference)) = members.get(*keyword)
                    && let Some(link) = this.link(schema, keyword, reference)?
                {
                    let (target, scope) = this.destination(&link, site.scope);
                    let is_open = this.evaluating.contains(&(place(target), what == LeftOver::Items));
                    if is_open {
                        this.circle.get_or_insert(place(target));
                    } else if let Some(members) = target.object() {
                        *this.times.entry(place(target)).or_default() += 1;
                        let site = Site { scope, is_home: false, ..site };
                        this.evaluated(target, members, site, (what, true))?;
                    }
                }
            }
            Ok(())
        })?;
        if was_free {
            self.evaluating.remove(&pending);
        }
        Ok(())
    }

    /// What a reference is, unless it leads to another document.
    fn link(
        &mut self,
        schema: &'d Json,
        keyword: &'static str,
        reference: &'d str,
    ) -> Result<Option<Arc<Link<'d>>>, Stop> {
        let key = (place(schema), keyword == "$ref");
        if let Some(known) = self.links.get(&key) {
            return Ok(known.clone());
        }
        let Ok(meaning) = self.references.meaning(schema, keyword, reference) else {
            self.links.insert(key, None);
            return Ok(None);
        };
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        self.pay(SCHEMA_BYTES + BASES * (meaning.resource.len() + fragment.len()))?;
        let is_named = !fragment.is_empty() && !fragment.starts_with('/');
        let pointer = if is_named { self.references.pointer(meaning.target) } else { fragment }.len();
        if is_named && self.anchored.insert(meaning.resource.clone()) {
            let root = self.references.resource(&meaning.resource);
            root.map_or(Ok(()), |root| self.anchors(root, 0))?;
        }
        let next = self.aliases.len() as Alias;
        let alias = *self.aliases.entry((meaning.resource.clone(), fragment)).or_insert(next);
        let base = self.references.base(schema);
        let is_recursive = keyword == "$recursiveRef";
        let link = Some(Arc::new(Link { alias, pointer, meaning, base, is_recursive }));
        self.links.insert(key, link.clone());
        Ok(link)
    }

    /// The places of all anchors of a resource are noted.
    fn anchors(&mut self, value: &Json, pointer: usize) -> Result<(), Stop> {
        self.pay(COPIED_BYTES)?;
        match value {
            Json::Array(items) => items.iter().try_for_each(|item| self.anchors(item, pointer + 4)),
            Json::Object(members) => {
                if ANCHORS.iter().any(|keyword| members.contains_key(*keyword)) {
                    self.pay(ENTRY_BYTES + 2 * pointer)?;
                }
                members.iter().try_for_each(|(name, value)| self.anchors(value, pointer + 1 + name.len()))
            }
            _ => Ok(()),
        }
    }

    /// Where a reference leads in a scope, and the scope there.
    fn destination(&mut self, link: &Link<'d>, scope: ScopeId) -> (&'d Json, ScopeId) {
        let Link { meaning, base, is_recursive, .. } = link;
        let Some(anchor) = &meaning.anchor else {
            return (meaning.target, self.leaving(scope, base, &meaning.resource));
        };
        let mut target = meaning.target;
        let mut next = if *is_recursive { scope } else { self.leaving(scope, base, &meaning.resource) };
        let left = next;
        while next != OUTERMOST {
            let Scope { base, outer, .. } = &self.scopes[next as usize];
            let here = self.references.dynamic_in(base).iter().find(|(name, _)| name == anchor);
            match here {
                Some((_, there)) => target = there,
                None if **anchor == *RECURSIVE => break,
                None => {}
            }
            next = *outer;
        }
        if *is_recursive {
            let resource = self.references.base(target);
            return (target, self.leaving(scope, base, &resource));
        }
        (target, left)
    }

    /// A scope once a reference leads from one resource to another.
    fn leaving(&mut self, scope: ScopeId, base: &Arc<str>, resource: &str) -> ScopeId {
        if scope != OUTERMOST && **base == *resource {
            return scope;
        }
        let scopes = &mut self.scopes;
        *self.numbers.entry((scope, base.clone())).or_insert_with(|| {
            let bytes = scopes[scope as usize].bytes + base.len();
            scopes.push(Scope { base: base.clone(), outer: scope, bytes });
            (scopes.len() - 1) as ScopeId
        })
    }
}
