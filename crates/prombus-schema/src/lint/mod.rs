//! Whether a folder of schemas is in order, without a hub: what is read is given, and nothing is opened here.
//!
//! The folder has `<topic>/v1.json`, `<topic>/v2.json` and so on, and beside them `<topic>/upcasters/1.json`, which raises
//! events of version 1 to the next one.

mod layout;
mod place;

pub use layout::{Layout, TopicFiles};

use crate::{
    Allowance, Comparison, Demand, Policy, Schema, Violation, check::Compat, check::check_within,
    error::SchemaError,
};

/// A file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it is, from the folder on, with `/` between names.
    pub path: String,
    /// What it says, or why it could not be read.
    pub text: Result<String, String>,
}

/// A topic that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub topic: String,
    /// The file that names it, as it is to be told.
    pub file: String,
    /// In which line, from 1.
    pub line: usize,
}

/// What is looked at.
pub struct Listing<'l> {
    /// What the folder is called. The names of files are told with it.
    pub folder: &'l str,
    /// Its files.
    pub files: &'l [File],
    /// Topics that should have schemas.
    pub wanted: &'l [Named],
    /// Why a topic cannot have schemas; `None` if it can.
    pub why_barred: &'l dyn Fn(&str) -> Option<&'static str>,
    /// In which direction each version has to fit the ones before.
    pub demand: Demand,
    /// How they are read.
    pub policy: Policy,
    /// What is wrong with the name of a topic.
    pub check_topic: &'l dyn Fn(&str) -> Result<(), String>,
    /// How many operations the text of an upcaster has, or what is wrong with it.
    pub check_upcaster: &'l dyn Fn(&str) -> Result<usize, Fault>,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In which line, from 1.
    pub line: usize,
    /// What it is.
    pub message: String,
}

/// The rule that something is against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A file or a folder has a name that it cannot have here.
    Name,
    /// There is nothing to look at.
    Empty,
    /// A file cannot be read.
    Unreadable,
    /// A version is missing.
    Gap,
    /// A schema is not valid.
    Schema,
    /// A version does not fit one before.
    Incompatible,
    /// An upcaster is missing or not valid.
    Upcaster,
    /// A topic has no schema.
    NoSchema,
    /// A topic cannot have a schema.
    Barred,
    /// The configuration that names topics cannot be used.
    Config,
}

impl Rule {
    /// What it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Empty => "empty",
            Self::Unreadable => "unreadable",
            Self::Gap => "gap",
            Self::Schema => "schema",
            Self::Incompatible => "incompatible",
            Self::Upcaster => "upcaster",
            Self::NoSchema => "no-schema",
            Self::Barred => "barred",
            Self::Config => "config",
        }
    }
}

/// Something that is not in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The rule that it is against.
    pub rule: Rule,
    /// What is wrong, and what to do.
    pub message: String,
    /// For versions that do not fit: where, why, and a document that shows it.
    pub violation: Option<Violation>,
}

/// Everything that is not in order, topic by topic.
pub fn lint(listing: &Listing<'_>) -> Vec<Finding> {
    let mut found = Findings { folder: listing.folder, findings: Vec::new() };
    let layout = Layout::of(listing.files);
    for path in &layout.strange {
        let message = "this is neither a version of a schema nor an upcaster: they are called <topic>/v1.json, \
                       <topic>/v2.json and <topic>/upcasters/1.json";
        found.add(path, 1, Rule::Name, message.to_owned());
    }
    if layout.topics.is_empty() && found.findings.is_empty() {
        let message = "there are no schemas here; they are called <topic>/v1.json".to_owned();
        found.add("", 1, Rule::Empty, message);
    }
    for (topic, files) in &layout.topics {
        TopicLint { listing, topic, files, found: &mut found }.lint();
    }
    for Named { topic, file, line } in listing.wanted {
        let has_schema = layout.topics.get(topic.as_str()).is_some_and(|files| !files.versions.is_empty());
        if !has_schema {
            let folder = listing.folder;
            let message = format!(
                "topic {topic} has no schema: add {folder}/{topic}/v1.json, or set schema = \"off\" for the topic"
            );
            let finding =
                Finding { file: file.clone(), line: *line, rule: Rule::NoSchema, message, violation: None };
            found.findings.push(finding);
        }
    }
    found.findings
}

/// What was found so far.
struct Findings<'l> {
    folder: &'l str,
    findings: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, path: &str, line: usize, rule: Rule, message: String) {
        self.push(path, Finding { file: String::new(), line, rule, message, violation: None });
    }

    fn push(&mut self, path: &str, finding: Finding) {
        let folder = self.folder;
        let file = if path.is_empty() { folder.to_owned() } else { format!("{folder}/{path}") };
        self.findings.push(Finding { file, ..finding });
    }
}

/// A version that was read.
struct Version<'l> {
    number: u32,
    path: &'l str,
    text: &'l str,
    schema: Schema,
}

/// The files of one topic.
struct TopicLint<'a, 'l> {
    listing: &'a Listing<'l>,
    topic: &'a str,
    files: &'a TopicFiles<'l>,
    found: &'a mut Findings<'l>,
}

impl<'l> TopicLint<'_, 'l> {
    fn lint(mut self) {
        if let Err(why) = (self.listing.check_topic)(self.topic) {
            self.found.add(self.topic, 1, Rule::Name, why);
        }
        if let Some(why) = (self.listing.why_barred)(self.topic) {
            let message = format!("topic {} cannot have a schema: {why}", self.topic);
            self.found.add(self.topic, 1, Rule::Barred, message);
        }
        self.gaps();
        let versions = self.versions();
        self.compatible(&versions);
        self.upcasters();
    }

    fn gaps(&mut self) {
        let mut next = 1;
        for (number, file) in &self.files.versions {
            if *number != next {
                let missing = match number - 1 {
                    last if last == next => format!("v{next}.json is missing"),
                    last => format!("v{next}.json to v{last}.json are missing"),
                };
                self.found.add(
                    &file.path,
                    1,
                    Rule::Gap,
                    format!("{missing}: versions have no gaps, from 1 on"),
                );
            }
            next = number.saturating_add(1);
        }
        if self.files.versions.is_empty() {
            let message = format!("v1.json is missing: there is no version of {}", self.topic);
            self.found.add(self.topic, 1, Rule::Gap, message);
        }
    }

    /// The text of a file, unless it could not be read.
    fn text(&mut self, file: &'l File) -> Option<&'l str> {
        match &file.text {
            Ok(text) => Some(text),
            Err(why) => {
                self.found.add(&file.path, 1, Rule::Unreadable, why.clone());
                None
            }
        }
    }

    fn versions(&mut self) -> Vec<Version<'l>> {
        let mut versions = Vec::new();
        for (number, file) in &self.files.versions {
            let Some(text) = self.text(file) else { continue };
            match Schema::parse(text) {
                Ok(schema) => versions.push(Version { number: *number, path: &file.path, text, schema }),
                Err(error) => {
                    let line = place::line(text, error_at(&error, text));
                    self.found.add(&file.path, line, Rule::Schema, error.to_string());
                }
            }
        }
        versions
    }

    /// Each version against the one before, or against all before, as far back as events are not raised by an upcaster.
    fn compatible(&mut self, versions: &[Version<'l>]) {
        let Demand { compat, transitive } = self.listing.demand;
        if compat == Compat::None {
            return;
        }
        let changing = self.changing();
        for (at, new) in versions.iter().enumerate() {
            let before = self.files.versions.range(..new.number).next_back().map(|(number, _)| *number);
            // Events of earlier versions are changed on their way to this one.
            let raised = changing.iter().rev().find(|from| **from < new.number);
            let follows = |old: &&Version<'_>| {
                raised.is_none_or(|from| old.number > *from) && (transitive || Some(old.number) == before)
            };
            // As the hub does it: the latest first, and within what all may cost together.
            let earlier: Vec<&Version<'_>> = versions[..at].iter().rev().filter(follows).collect();
            let mut allowance = Allowance::of(earlier.len());
            for old in earlier {
                self.compare(old, new, &mut allowance);
            }
        }
    }

    /// The versions from which upcasters change events: one without operations says that events fit as they are.
    fn changing(&self) -> Vec<u32> {
        let changes = |file: &File| {
            // What is wrong with an upcaster is told of that alone.
            let Ok(text) = &file.text else { return true };
            (self.listing.check_upcaster)(text).map_or(true, |operations| operations > 0)
        };
        let upcasters = self.files.upcasters.iter();
        upcasters.filter(|(_, file)| changes(file)).map(|(from, _)| *from).collect()
    }

    fn compare(&mut self, old: &Version<'_>, new: &Version<'_>, allowance: &mut Allowance) {
        let Listing { demand, policy, .. } = *self.listing;
        let violations = match allowance.take(old.text.len()) {
            Ok(budget) => {
                let comparison =
                    Comparison { old: &old.schema, new: &new.schema, compat: demand.compat, policy };
                check_within(&comparison, budget).violations().to_vec()
            }
            Err(unread) => vec![unread],
        };
        let (before, after) = (old.number, new.number);
        for violation in violations {
            let pointer = place::in_schema(new.schema.document(), &violation.path, &violation.rule);
            let place = if violation.path.is_empty() { "the document" } else { &violation.path };
            let message = format!(
                "version {after} is not {demand} compatible with version {before}: {place} ({}): {}",
                violation.rule, violation.message
            );
            let line = place::line(new.text, place::of_pointer(new.text, &pointer));
            let (file, rule) = (String::new(), Rule::Incompatible);
            self.found.push(new.path, Finding { file, line, rule, message, violation: Some(violation) });
        }
    }

    /// A topic has no upcasters, or events of every version can be raised to the latest.
    fn upcasters(&mut self) {
        let TopicFiles { versions, upcasters } = self.files;
        for (from, file) in upcasters {
            let Some(text) = self.text(file) else { continue };
            if !versions.contains_key(from) {
                let message = format!("there is no v{from}.json whose events this could raise");
                self.found.add(&file.path, 1, Rule::Upcaster, message);
            }
            if let Err(Fault { line, message }) = (self.listing.check_upcaster)(text) {
                self.found.add(&file.path, line, Rule::Upcaster, message);
            }
        }
        let Some((latest, _)) = versions.last_key_value() else { return };
        if upcasters.is_empty() {
            return;
        }
        let is_stuck = |number: &u32| number < latest && !upcasters.contains_key(number);
        for (number, file) in versions.iter().filter(|(number, _)| is_stuck(number)) {
            let message = format!(
                "events of version {number} cannot be upgraded to version {latest}: upcasters/{number}.json is missing \
                 (its ops may be empty)"
            );
            self.found.add(&file.path, 1, Rule::Upcaster, message);
        }
    }
}

/// The byte of a text at which it is not a schema.
fn error_at(error: &SchemaError, text: &str) -> usize {
    match error {
        SchemaError::Json { at, .. } | SchemaError::Number { at } | SchemaError::Twice { at, .. } => *at,
        SchemaError::TooLarge { .. } | SchemaError::TooDeep { .. } | SchemaError::NoStack => 0,
        SchemaError::Draft { path, .. } => place::of_pointer(text, &format!("{path}/$schema")),
        SchemaError::Reference { path, .. } => {
            let keyword = ["$ref", "$dynamicRef", "$recursiveRef"].map(|keyword| format!("{path}/{keyword}"));
            keyword.iter().map(|pointer| place::of_pointer(text, pointer)).max().unwrap_or_default()
        }
        SchemaError::Invalid { path, .. } | SchemaError::Endless { path } => place::of_pointer(text, path),
    }
}
