//! What dynamic references mean: the same place of a document is another formula on each way that leads to it with other
//! anchors.
//!
//! By the specification, the outermost resource on the way counts. The crate `jsonschema`, which checks what is published,
//! notes a resource only when a reference leads out of it, so that it does not find those that were entered without one, and
//! goes by the way for `$ref`, too. Where the two would come to different places, it is unknown what a reference means.

use super::{Atom, Lit, Node, build::Builder};
use crate::{
    json::Json,
    refs::{Address, Meaning, RECURSIVE, place},
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// How much may be built of places that are built already, with other anchors on the way.
const ROOM: usize = 50_000;

/// Why nothing is known of a value for which there is a dynamic reference.
pub const DYNAMIC: &str =
    "a dynamic reference that can be read in more than one way, or leads on too many ways";

/// The place of each anchor.
type Anchors = BTreeMap<Arc<str>, Address>;

/// What dynamic references mean on a way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Scope {
    /// The outermost place of each anchor in all resources on the way.
    outermost: Anchors,
    /// The same in the resources that the crate `jsonschema` notes.
    noted: Anchors,
    /// Whether it has noted any.
    is_noting: bool,
    /// The outermost of the last resources that it noted, as long as each has a recursive anchor.
    recursive: Option<Address>,
}

/// The number of a scope. The first is that of the whole document.
pub type ScopeId = u32;

/// The scopes of a document, and what is built in them.
#[derive(Debug)]
pub struct Scopes {
    all: Vec<Scope>,
    numbers: HashMap<Scope, ScopeId>,
    /// What a scope becomes inside a resource.
    entered: HashMap<(ScopeId, Arc<str>), Option<ScopeId>>,
    /// The one of the place that is being built.
    pub current: ScopeId,
    /// The number of each place in each scope, by which formulas refer to it.
    sites: HashMap<(Address, ScopeId), u32>,
    /// The places that were come upon, in any scope.
    pub visited: HashSet<Address>,
    room: usize,
}

impl Scopes {
    pub fn new() -> Self {
        Self {
            all: vec![Scope::default()],
            numbers: HashMap::from([(Scope::default(), 0)]),
            entered: HashMap::new(),
            current: 0,
            sites: HashMap::new(),
            visited: HashSet::new(),
            room: ROOM,
        }
    }

    /// Takes room for something that was built before, and says whether there was enough.
    pub fn take_room(&mut self, size: usize) -> bool {
        let left = self.room.checked_sub(size);
        self.room = left.unwrap_or(0);
        left.is_some()
    }

    fn number(&mut self, scope: Scope) -> Option<ScopeId> {
        if let Some(known) = self.numbers.get(&scope) {
            return Some(*known);
        }
        self.take_room(1 + scope.outermost.len() + scope.noted.len()).then_some(())?;
        let next = self.all.len() as ScopeId;
        self.all.push(scope.clone());
        self.numbers.insert(scope, next);
        Some(next)
    }
}

/// Where a reference leads.
pub struct Destination<'d> {
    pub target: &'d Json,
    pub scope: ScopeId,
}

impl<'d> Builder<'d, '_> {
    /// Does something in another scope.
    pub fn within<T>(&mut self, scope: ScopeId, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.scopes.current, scope);
        let done = work(self);
        self.scopes.current = outer;
        done
    }

    /// The scope of a schema that is come upon in the current one; `None` if there are too many.
    pub fn scope_of(&mut self, schema: &Json) -> Option<ScopeId> {
        let current = self.scopes.current;
        if !self.references.is_dynamic() {
            return Some(current);
        }
        let base = self.references.base(schema);
        let key = (current, base);
        if let Some(known) = self.scopes.entered.get(&key) {
            return *known;
        }
        let mut scope = self.scopes.all[current as usize].clone();
        for (anchor, there) in self.references.dynamic_in(&key.1) {
            scope.outermost.entry(anchor.clone()).or_insert_with(|| place(there));
        }
        let entered = self.scopes.number(scope);
        self.scopes.entered.insert(key, entered);
        entered
    }

    /// By what formulas refer to a place in a scope.
    pub fn site(&mut self, schema: &Json, scope: ScopeId) -> u32 {
        let graph = &mut *self.graph;
        *self.scopes.sites.entry((place(schema), scope)).or_insert_with(|| {
            graph.sites += 1;
            graph.sites
        })
    }

    /// Where a reference in a schema leads in the current scope; `None` if that cannot be known.
    pub fn destination(&mut self, schema: &Json, meaning: &Meaning<'d>) -> Option<Destination<'d>> {
        if !self.references.is_dynamic() {
            return Some(Destination { target: meaning.target, scope: self.scopes.current });
        }
        if meaning.is_unclear {
            return None;
        }
        let base = self.references.base(schema);
        let scope = &self.scopes.all[self.scopes.current as usize];
        let followed = self.leaving(scope, &base, &meaning.resource);
        let target = match &meaning.anchor {
            None => meaning.target,
            Some(anchor) => {
                let usual = place(meaning.target);
                let said = if meaning.is_dynamic {
                    scope.outermost.get(anchor).copied().unwrap_or(usual)
                } else {
                    usual
                };
                let checked = match &**anchor {
                    RECURSIVE => scope.recursive.unwrap_or(usual),
                    anchor => followed.noted.get(anchor).copied().unwrap_or(usual),
                };
                let all = self.references.places_of(anchor);
                *all.iter().find(|there| place(there) == said && said == checked)?
            }
        };
        let followed = match &meaning.anchor {
            Some(anchor) if &**anchor == RECURSIVE => {
                let resource = self.references.base(target);
                self.leaving(scope, &base, &resource)
            }
            _ => followed,
        };
        let scope = self.scopes.number(followed)?;
        Some(Destination { target, scope })
    }

    /// A scope once a reference leads from one resource to another.
    fn leaving(&self, scope: &Scope, base: &str, resource: &str) -> Scope {
        let mut scope = scope.clone();
        if scope.is_noting && base == resource {
            return scope;
        }
        scope.is_noting = true;
        let mut recursive = None;
        for (anchor, there) in self.references.dynamic_in(base) {
            scope.noted.entry(anchor.clone()).or_insert_with(|| place(there));
            recursive = (&**anchor == RECURSIVE).then(|| place(there)).or(recursive);
        }
        scope.recursive = recursive.map(|here| scope.recursive.unwrap_or(here));
        scope
    }

    /// The formula of a place in the current scope, which may not be built yet.
    pub fn reference(&mut self, target: &'d Json) -> Lit {
        let Some(scope) = self.scope_of(target) else { return self.unknown_reference([target]) };
        let site = self.site(target, scope);
        if let Some(built) = self.built.get(&site) {
            return *built;
        }
        self.open.push((target, scope));
        self.graph.add(Node::Ref(site))
    }

    /// The formula of a reference of which it is not known where it leads. What it may lead to is gone through all the same, as
    /// a validator does.
    pub fn unknown_reference(&mut self, targets: impl IntoIterator<Item = &'d Json>) -> Lit {
        let scope = self.scopes.current;
        let unseen = |target: &&Json| !self.scopes.visited.contains(&place(target));
        self.open.extend(targets.into_iter().filter(unseen).map(|target| (target, scope)));
        self.unknown(DYNAMIC)
    }

    /// A statement of which nothing is known. It is equal to itself alone: to the same in an equal document, as equal documents
    /// are built in the same way.
    pub fn unknown(&mut self, why: &'static str) -> Lit {
        let document = *self.number.get_or_insert_with(|| self.graph.number_of(self.document));
        self.unknowns += 1;
        let which = Json::Array([document, self.unknowns].map(|number| Json::Number(number.into())).into());
        self.graph.atom(Atom::Opaque(why, Arc::new(which), Box::default()))
    }
}
