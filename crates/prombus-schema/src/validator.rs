//! Checks documents against a schema, with the crate `jsonschema`.

use crate::{
    check::BUDGET,
    deep,
    draft::Draft,
    formats,
    fuel::Fuel,
    graph::{Graph, Lit, link},
    json::Json,
    outline::Outline,
    pattern::BACKTRACK_LIMIT,
    schema::formula,
};
use jsonschema::PatternOptions;
use serde_json::Value;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// How many failing places of a document are told.
pub const FAULTS_LIMIT: usize = 100;

/// How long a message about a document may be, in bytes.
const MESSAGE_LIMIT: usize = 300;

/// How deep a document may be nested.
pub const DEPTH_LIMIT: usize = 128;

/// How many schemas may be gone through for a document without reckoning before how many they are.
const PLAIN_LIMIT: u64 = 10_000;

/// How many schemas the crate `jsonschema` goes through for a document.
const VISITS_LIMIT: u64 = 2_000_000;

/// How many schemas it goes through to tell every failing place.
const FAULTS_VISITS_LIMIT: u64 = 500_000;

/// How many schemas may be gone into, one inside the other, on the stack of the caller.
const STACK_LIMIT: u64 = 1_500;

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

/// A schema, ready to check documents. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Validator {
    compiled: Arc<jsonschema::Validator>,
    outline: Arc<Outline>,
    schema: Json,
    draft: Draft,
    /// Its formulas, once they were needed.
    formulas: Arc<OnceLock<Option<Mutex<Formulas>>>>,
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
        outline: Outline,
    ) -> Result<Self, jsonschema::ValidationError<'static>> {
        let ours = draft;
        let draft = draft.of_validator();
        let mut options = jsonschema::options()
            .with_draft(draft)
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
            .without_content_encoding_support("base64")
            .without_content_media_type_support("application/json");
        // Drafts know different formats; here they mean the same in each of them.
        let unknown: Vec<&str> =
            formats::names().filter(|name| !options.is_known_format(draft, name)).collect();
        for name in unknown {
            options = options.with_format(name, move |text: &str| formats::accepts(name, text));
        }
        let compiled = Arc::new(options.build(&schema.to_nearest())?);
        Ok(Self {
            compiled,
            outline: Arc::new(outline),
            schema: schema.clone(),
            draft: ours,
            formulas: Arc::default(),
        })
    }

    /// How many schemas are gone through, about and at most, for documents that hold so many values together.
    pub fn steps_for(&self, values: usize) -> u64 {
        self.outline.size.saturating_mul(values as u64)
    }

    /// Whether a document is taken.
    pub fn is_valid(&self, document: &Value) -> bool {
        self.on_stack(|| {
            if self.outline.size <= PLAIN_LIMIT || self.outline.visits(document) <= VISITS_LIMIT {
                return self.compiled.is_valid(document);
            }
            self.is_valid_exactly(document).unwrap_or(false)
        })
    }

    /// The same by formulas, which takes steps once for each pair of a schema and a value; `None` if those are too many.
    fn is_valid_exactly(&self, document: &Value) -> Option<bool> {
        let formulas = self.formulas.get_or_init(|| self.formulas().map(Mutex::new)).as_ref()?;
        let mut formulas = formulas.lock().unwrap_or_else(PoisonError::into_inner);
        let Formulas { graph, root } = &mut *formulas;
        graph.fuel = Fuel::new(BUDGET.steps);
        let holds = graph.holds(*root, &Json::from(document));
        graph.patterns.forget();
        holds.filter(|_| !graph.fuel.is_empty())
    }

    fn formulas(&self) -> Option<Formulas> {
        let (mut graph, mut built) = (Graph::new(), HashMap::new());
        let root = formula(&self.schema, self.draft, &mut graph, &mut built).ok()?;
        let (graph, roots) = link::link(graph, &built, &[root]);
        Some(Formulas { graph, root: *roots.first()? })
    }

    /// Goes through the schemas on a stack that is large enough.
    fn on_stack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        if self.outline.depth() > STACK_LIMIT { deep::run(work) } else { work() }
    }

    /// Every place of a document that is refused, at most [`FAULTS_LIMIT`]; none if it is taken.
    pub fn faults(&self, document: &Value) -> Vec<Fault> {
        if self.is_valid(document) {
            return Vec::new();
        }
        if self.on_stack(|| self.outline.visits(document)) > FAULTS_VISITS_LIMIT {
            let message = "the document is refused, in more ways than can be told one by one".to_owned();
            return vec![Fault { path: String::new(), rule: "schema".to_owned(), message }];
        }
        let fault = |error: jsonschema::ValidationError<'_>| Fault {
            path: error.instance_path().to_string(),
            rule: error.kind().keyword().to_owned(),
            message: shortened(error.to_string()),
        };
        self.on_stack(|| self.compiled.iter_errors(document).take(FAULTS_LIMIT).map(fault).collect())
    }

    /// The same for a document as it was sent. Numbers are checked as the nearest that a 64-bit integer or a double holds.
    pub fn faults_in(&self, document: &[u8]) -> Vec<Fault> {
        let value = match serde_json::from_slice::<Value>(document) {
            Ok(value) => value,
            // What `serde_json` cannot hold, such as 1e400, can still be valid.
            Err(error) => match std::str::from_utf8(document).map(|text| Json::parse(text, DEPTH_LIMIT)) {
                Ok(Ok(value)) => value.to_nearest(),
                _ => {
                    let message = format!("the document is not JSON that can be checked: {error}");
                    return vec![Fault { path: String::new(), rule: "json".to_owned(), message }];
                }
            },
        };
        self.faults(&value)
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
