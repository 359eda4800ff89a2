//! Checks documents against a schema, with the crate `jsonschema`.

use crate::{draft::Draft, formats, json::Json};
use serde_json::Value;
use std::sync::Arc;

/// How many failing places of a document are told.
pub const FAULTS_LIMIT: usize = 100;

/// How long a message about a document may be, in bytes.
const MESSAGE_LIMIT: usize = 300;

/// How deep a document may be nested.
pub const DEPTH_LIMIT: usize = 128;

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
}

impl Validator {
    pub(crate) fn build(schema: &Json, draft: Draft) -> Result<Self, jsonschema::ValidationError<'static>> {
        let draft = draft.of_validator();
        let mut options = jsonschema::options()
            .with_draft(draft)
            .offline()
            .should_validate_formats(true)
            .without_content_encoding_support("base64")
            .without_content_media_type_support("application/json");
        // Drafts know different formats; here they mean the same in each of them.
        let unknown: Vec<&str> =
            formats::names().filter(|name| !options.is_known_format(draft, name)).collect();
        for name in unknown {
            options = options.with_format(name, move |text: &str| formats::accepts(name, text));
        }
        Ok(Self { compiled: Arc::new(options.build(&schema.to_nearest())?) })
    }

    /// Whether a document is taken.
    pub fn is_valid(&self, document: &Value) -> bool {
        self.compiled.is_valid(document)
    }

    /// Every place of a document that is refused, at most [`FAULTS_LIMIT`]; none if it is taken.
    pub fn faults(&self, document: &Value) -> Vec<Fault> {
        if self.is_valid(document) {
            return Vec::new();
        }
        let fault = |error: jsonschema::ValidationError<'_>| Fault {
            path: error.instance_path().to_string(),
            rule: error.kind().keyword().to_owned(),
            message: shortened(error.to_string()),
        };
        self.compiled.iter_errors(document).take(FAULTS_LIMIT).map(fault).collect()
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
