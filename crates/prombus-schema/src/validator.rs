//! Checks documents against a schema, with the crate `jsonschema`.

use crate::{
    check::BUDGET,
    deep::{self, NO_STACK, NoStack},
    draft::Draft,
    formats,
    fuel::Fuel,
    graph::{Graph, Lit, link},
    json::{self, Json},
    outline::Outline,
    pattern::bounded,
    plain::Plain,
    refs::{Address, place},
    schema::formula,
};
use jsonschema::ValidationOptions;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// How many failing places of a document are told.
pub const FAULTS_LIMIT: usize = 100;

/// How long a message about a document may be, in bytes.
const MESSAGE_LIMIT: usize = 300;

/// How deep a document may be nested.
pub const DEPTH_LIMIT: usize = 128;

/// How many steps the crate `jsonschema` takes for a document: schemas that it goes through, and texts that it looks through.
const VISITS_LIMIT: u64 = 10_000_000;

/// How many it takes for a document that is only looked at to make sure of a proof.
const CHEAP_LIMIT: u64 = 200_000;

/// The same where schemas go in circles, so that more may be gone through than is reckoned at first.
const PLAIN_LIMIT: u64 = 10_000;

/// Why it is not known of a document whether it is taken, unless the schema has something that is beyond this crate.
pub(crate) const TOO_MANY_STEPS: &str = "more steps than a check may take";

/// How many steps it takes to make the formulas of a schema, about, for each schema in it.
const FORMULA_STEPS: u64 = 100;

/// How many steps may be taken to tell every failing place: each may find one, and all of them are kept until they are told.
const FAULTS_VISITS_LIMIT: u64 = 100_000;

/// How many schemas may be gone into, one inside the other, on the stack of the caller.
const STACK_LIMIT: u64 = 1_500;

/// Keywords that refer to other schemas.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// A place of a document that a schema refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, as a JSON pointer into the document; the document itself is ``.
    pub path: String,
    /// The keyword that refuses it.
    pub rule: String,
    /// What is wrong there.
    pub message: String,
}

/// The rule of a fault that no schema has found.
const UNCHECKED: &str = "unchecked";

impl Fault {
    /// Whether the document could not be checked, so that it is neither known to be taken nor to be refused.
    pub fn is_unchecked(&self) -> bool {
        self.rule == UNCHECKED
    }
}

/// A schema, ready to check documents. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Validator {
    compiled: Arc<jsonschema::Validator>,
    outline: Arc<Outline>,
    /// What takes most documents at once, if the schema is plain; once it was needed.
    plain: Arc<OnceLock<Option<Plain>>>,
    bytes: usize,
    schema: Json,
    draft: Draft,
    /// Whether what is compiled says exactly the same: no number of the schema is rounded there, and no reference to another
    /// document left out.
    is_exact: bool,
    /// Its formulas, once they were needed.
    formulas: Arc<OnceLock<Option<Mutex<Formulas>>>>,
}

/// What was reckoned before a validator is made.
pub(crate) struct Size {
    pub outline: Outline,
    pub bytes: usize,
}

/// The formulas of a schema, and the one of the whole of it.
struct Formulas {
    graph: Graph,
    root: Lit,
}

impl fmt::Debug for Formulas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Formulas").finish_non_exhaustive()
    }
}

impl Validator {
    pub(crate) fn build(
        schema: &Json,
        draft: Draft,
        Size { outline, bytes }: Size,
        outward: &HashSet<Address>,
    ) -> Result<Self, jsonschema::ValidationError<'static>> {
        let is_exact = schema.to_value().is_some() && outward.is_empty();
        let compiled = Arc::new(options(draft).build(&inward(schema, outward).to_nearest())?);
        Ok(Self {
            compiled,
            outline: Arc::new(outline),
            plain: Arc::default(),
            bytes,
            schema: schema.clone(),
            draft,
            is_exact,
            formulas: Arc::default(),
        })
    }

    /// How many bytes it takes, about. For a short text that can be many.
    pub fn bytes(&self) -> usize {
        self.bytes + self.plain().map_or(0, Plain::bytes)
    }

    fn plain(&self) -> Option<&Plain> {
        let texts = |form: &Value| options(self.draft).build(form).ok();
        let make = || if self.is_exact { Plain::of(&self.schema, &texts) } else { None };
        self.plain.get_or_init(make).as_ref()
    }

    /// How many steps are taken, about and at most, for documents that hold so many values and bytes together.
    pub fn steps_for(&self, values: usize, bytes: usize) -> u64 {
        let steps = self.outline.steps(values as u64, bytes as u64);
        // Where it is certain that formulas are needed, the first who needs them makes them.
        let makes_formulas = !self.is_exact && self.formulas.get().is_none();
        let making = if makes_formulas { self.outline.schemas().saturating_mul(FORMULA_STEPS) } else { 0 };
        steps.saturating_add(making)
    }

    /// Whether a document is taken.
    pub fn is_valid(&self, document: &Value) -> bool {
        self.takes(document) == Ok(true)
    }

    /// Whether a document is taken, or why that cannot be found out.
    pub(crate) fn takes(&self, document: &Value) -> Result<bool, &'static str> {
        self.on_stack(|| self.takes_here(document)).unwrap_or(Err(NO_STACK))
    }

    /// The same on a stack that is large enough.
    fn takes_here(&self, document: &Value) -> Result<bool, &'static str> {
        if self.is_exact && self.is_bounded(document) {
            return Ok(self.compiled.is_valid(document));
        }
        self.takes_exactly(&Json::from(document))
    }

    /// Whether the crate `jsonschema` takes no more steps than it may.
    fn is_bounded(&self, document: &Value) -> bool {
        let plain = if self.outline.circles { PLAIN_LIMIT } else { VISITS_LIMIT };
        self.outline.steps_for(document) <= plain || self.outline.visits(document) <= VISITS_LIMIT
    }

    /// Whether the crate `jsonschema` is asked about a document, and takes few steps for it.
    pub(crate) fn is_cheap(&self, document: &Value) -> bool {
        let plain = if self.outline.circles { PLAIN_LIMIT } else { CHEAP_LIMIT };
        let is_cheap =
            || self.outline.steps_for(document) <= plain || self.outline.visits(document) <= CHEAP_LIMIT;
        self.is_exact && is_cheap()
    }

    /// The same by formulas, which are exact, and take steps once for each pair of a schema and a value.
    fn takes_exactly(&self, document: &Json) -> Result<bool, &'static str> {
        let formulas = self.formulas.get_or_init(|| self.formulas().map(Mutex::new)).as_ref();
        let formulas = formulas.ok_or("the schema cannot be read again")?;
        let mut formulas = formulas.lock().unwrap_or_else(PoisonError::into_inner);
        let Formulas { graph, root } = &mut *formulas;
        graph.fuel = Fuel::new(BUDGET.steps);
        graph.beyond = None;
        let holds = graph.holds(*root, document);
        graph.patterns.forget();
        match holds {
            Some(holds) if !graph.fuel.is_empty() => Ok(holds),
            _ => Err(graph.beyond.unwrap_or(TOO_MANY_STEPS)),
        }
    }

    fn formulas(&self) -> Option<Formulas> {
        let (mut graph, mut built) = (Graph::new(), HashMap::new());
        let root = formula(&self.schema, self.draft, &mut graph, &mut built).ok()?;
        let (graph, roots) = link::link(graph, &built, &[root]);
        Some(Formulas { graph, root: *roots.first()? })
    }

    /// Goes through the schemas on a stack that is large enough, on one thread for all that is asked of a document.
    fn on_stack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NoStack> {
        if self.outline.depth() > STACK_LIMIT { deep::run(work) } else { Ok(work()) }
    }

    /// Every place of a document that is refused, at most [`FAULTS_LIMIT`]; none if it is taken.
    pub fn faults(&self, document: &Value) -> Vec<Fault> {
        self.on_stack(|| self.told(self.takes_here(document), document)).unwrap_or_else(|_| no_stack())
    }

    /// Whether a document as it was sent is taken for certain, which is seen while it is read once. If not, it has to be asked
    /// whether it is valid.
    pub fn takes_plainly(&self, document: &[u8]) -> bool {
        self.plain().is_some_and(|plain| plain.takes(document))
    }

    /// The same for a document as it was sent, with numbers as they are written.
    pub fn is_valid_in(&self, document: &[u8]) -> bool {
        match json::with_long_numbers(document, DEPTH_LIMIT) {
            Some(exact) => matches!(self.on_stack(|| self.takes_exactly(&exact)), Ok(Ok(true))),
            None => serde_json::from_slice(document).is_ok_and(|value| self.is_valid(&value)),
        }
    }

    /// What there is to tell of a document, in the nearest numbers that `serde_json` holds.
    fn told(&self, taken: Result<bool, &'static str>, document: &Value) -> Vec<Fault> {
        match taken {
            Ok(true) => return Vec::new(),
            Ok(false) => {}
            Err(why) => return vec![unchecked(why)],
        }
        if self.outline.visits(document) > FAULTS_VISITS_LIMIT {
            let message = "the document is refused, in more ways than can be told one by one".to_owned();
            return vec![whole("schema", message)];
        }
        let fault = |error: jsonschema::ValidationError<'_>| Fault {
            path: error.instance_path().to_string(),
            rule: error.kind().keyword().to_owned(),
            message: shortened(error.to_string()),
        };
        let mut faults: Vec<Fault> =
            self.compiled.iter_errors(document).take(FAULTS_LIMIT).map(fault).collect();
        if faults.is_empty() {
            let message = "the schema refuses the document as a whole".to_owned();
            faults.push(whole("schema", message));
        }
        faults
    }

    /// The same for a document as it was sent, with numbers as they are written.
    pub fn faults_in(&self, document: &[u8]) -> Vec<Fault> {
        if let Some(exact) = json::with_long_numbers(document, DEPTH_LIMIT) {
            let told = || self.told(self.takes_exactly(&exact), &exact.to_nearest());
            return self.on_stack(told).unwrap_or_else(|_| no_stack());
        }
        match serde_json::from_slice::<Value>(document) {
            Ok(value) => self.faults(&value),
            Err(error) => {
                let message = format!("the document is not JSON that can be checked: {error}");
                vec![Fault { path: String::new(), rule: "json".to_owned(), message }]
            }
        }
    }
}

/// How the crate `jsonschema` reads schemas.
fn options(draft: Draft) -> ValidationOptions<'static> {
    let draft = draft.of_validator();
    let mut options = jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(bounded())
        .without_content_encoding_support("base64")
        .without_content_media_type_support("application/json");
    // Drafts know different formats; here they mean the same in each of them.
    let unknown: Vec<&str> = formats::names().filter(|name| !options.is_known_format(draft, name)).collect();
    for name in unknown {
        options = options.with_format(name, move |text: &str| formats::accepts(name, text));
    }
    options
}

/// What is wrong with a document as a whole.
fn whole(rule: &str, message: String) -> Fault {
    Fault { path: String::new(), rule: rule.to_owned(), message }
}

fn unchecked(why: &str) -> Fault {
    whole(UNCHECKED, format!("the document could not be checked: {why}"))
}

fn no_stack() -> Vec<Fault> {
    vec![unchecked(NO_STACK)]
}

/// A schema without its references to other documents, which are in these places.
fn inward(schema: &Json, outward: &HashSet<Address>) -> Json {
    let inside = |inner: &Json| inward(inner, outward);
    match schema {
        Json::Array(items) => Json::Array(items.iter().map(inside).collect()),
        Json::Object(members) => {
            let kept = |name: &str| !outward.contains(&place(schema)) || !REFERENCES.contains(&name);
            let members = members.iter().filter(|(name, _)| kept(name));
            Json::Object(Arc::new(members.map(|(name, value)| (name.clone(), inside(value))).collect()))
        }
        other => other.clone(),
    }
}

/// A message that does not repeat a large document.
fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}
