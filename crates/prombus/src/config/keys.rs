//! Which keys are valid. The list is derived from the types, so the two cannot diverge.

use super::auth::Token;
use super::state::{self, Collection};
use super::{ConfigFile, Problem};
use prombus_core::collection::Index;
use prombus_core::{SnapshotConfig, TopicConfig, TopicName};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Sections whose tables have user-defined names.
const NAMED: [&str; 2] = ["topics", "collections"];

/// Refuses unknown keys, and suggests the closest known one.
pub fn check(text: &str, file: &DeTable<'_>) -> Result<(), Problem> {
    let sections = names(&ConfigFile::default());
    for (section, value) in file {
        let name = section.get_ref().as_ref();
        let known = KnownKeys { path: "", names: &sections, text };
        known.check(name, section.span().start)?;
        if let (DeValue::Array(tables), "projection") = (value.get_ref(), name) {
            tables.iter().try_for_each(|table| check_projection(text, table.get_ref()))?;
        }
        if let DeValue::Table(table) = value.get_ref() {
            match name {
                "topics" => check_topics(text, table)?,
                "collections" => check_collections(text, table)?,
                "auth" => {
                    check_table(text, Section { path: name, names: &section_keys(name) }, table)?;
                    check_tokens(text, table)?;
                }
                _ => check_table(text, Section { path: name, names: &section_keys(name) }, table)?,
            }
        }
    }
    Ok(())
}

fn check_tokens(text: &str, auth: &DeTable<'_>) -> Result<(), Problem> {
    let known = names(&Token::default());
    let Some(DeValue::Array(tokens)) = auth.get("tokens").map(|value| value.get_ref()) else { return Ok(()) };
    for token in tokens {
        if let DeValue::Table(table) = token.get_ref() {
            check_table(text, Section { path: "auth.tokens", names: &known }, table)?;
        }
    }
    Ok(())
}

fn check_collections(text: &str, collections: &DeTable<'_>) -> Result<(), Problem> {
    let known = names(&Collection::default());
    for (collection, value) in collections {
        let name = collection.get_ref().as_ref();
        let DeValue::Table(table) = value.get_ref() else { continue };
        nested(text, ("collections", name), table, &known)?;
        let path = format!("collections.{name:?}");
        check_table(text, Section { path: &path, names: &known }, table)?;
        check_indexes(text, &path, table)?;
    }
    Ok(())
}

fn check_projection(text: &str, projection: &DeValue<'_>) -> Result<(), Problem> {
    const PATH: &str = "projection";
    const WRITE: &str = "projection.write";
    let DeValue::Table(table) = projection else { return Ok(()) };
    let known = state::definition_keys();
    check_table(text, Section { path: PATH, names: &known.projection }, table)?;
    check_indexes(text, PATH, table)?;
    let Some(DeValue::Array(writes)) = table.get("write").map(|value| value.get_ref()) else { return Ok(()) };
    for write in writes {
        if let DeValue::Table(table) = write.get_ref() {
            check_table(text, Section { path: WRITE, names: &known.write }, table)?;
            check_indexes(text, WRITE, table)?;
        }
    }
    Ok(())
}

/// An index may be a table too.
fn check_indexes(text: &str, path: &str, table: &DeTable<'_>) -> Result<(), Problem> {
    let Some(DeValue::Array(indexes)) = table.get("indexes").map(|value| value.get_ref()) else {
        return Ok(());
    };
    let (path, known) = (format!("{path}.indexes"), names(&Index { fields: Vec::new(), unique: false }));
    for index in indexes {
        if let DeValue::Table(table) = index.get_ref() {
            check_table(text, Section { path: &path, names: &known }, table)?;
        }
    }
    Ok(())
}

fn check_topics(text: &str, topics: &DeTable<'_>) -> Result<(), Problem> {
    let (settings, snapshot) = (topic_settings(), snapshot_keys());
    for (topic, value) in topics {
        let name = topic.get_ref().as_ref();
        let DeValue::Table(table) = value.get_ref() else {
            // Anything but a table can only be the switch.
            KnownKeys { path: "topics", names: &["auto_create".to_owned()], text }
                .check(name, topic.span().start)?;
            continue;
        };
        let path = format!("topics.{name:?}");
        nested(text, ("topics", name), table, &settings)?;
        check_table(text, Section { path: &path, names: &settings }, table)?;
        if let Some(DeValue::Table(table)) = table.get("snapshot").map(|value| value.get_ref()) {
            let path = format!("{path}.snapshot");
            check_table(text, Section { path: &path, names: &snapshot }, table)?;
        }
    }
    Ok(())
}

/// The line in which each topic of a file is named first, from 1.
pub fn topic_lines(text: &str) -> BTreeMap<String, usize> {
    let Ok(file) = DeTable::parse(text) else { return BTreeMap::new() };
    let Some(DeValue::Table(topics)) = file.get_ref().get("topics").map(|value| value.get_ref()) else {
        return BTreeMap::new();
    };
    let line =
        |key: &Spanned<DeString<'_>>| (key.get_ref().to_string(), Problem::line_of(text, key.span().start));
    topics.iter().map(|(key, _)| line(key)).collect()
}

/// The key whose value is at `at`, in full.
pub fn path_at(file: &DeTable<'_>, at: usize) -> Option<String> {
    let path = path_below("", file, at)?;
    // The message itself names the projection and its key.
    (path != "projection").then_some(path)
}

fn path_below(path: &str, table: &DeTable<'_>, at: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let (name, is_table) = (key.get_ref().as_ref(), matches!(value.get_ref(), DeValue::Table(_)));
        // User-defined names are quoted, as they have to be if they contain dots.
        let name = match is_table && NAMED.contains(&path) {
            true => format!("{name:?}"),
            false => name.to_owned(),
        };
        path_within(&join(path, &name), value, at)
    })
}

/// A table that has a header is not where its keys are, so what it holds is looked at first.
fn path_within(path: &str, value: &Spanned<DeValue<'_>>, at: usize) -> Option<String> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => path_below(path, table, at),
        DeValue::Array(values) => values.iter().find_map(|value| path_within(path, value, at)),
        _ => None,
    };
    inner.or_else(|| value.span().contains(&at).then(|| path.to_owned()))
}

/// Without quotes, the dots of a name make tables within tables.
fn nested(
    text: &str,
    (section, outer): (&str, &str),
    table: &DeTable<'_>,
    known: &[String],
) -> Result<(), Problem> {
    let kind = section.trim_end_matches('s');
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if matches!(value.get_ref(), DeValue::Table(_)) && !known.iter().any(|known| known == name) {
            let what = format!(
                "unknown key {section}.{outer}.{name}: if it is a {kind}, write its name in quotes, as in [{section}.\"{outer}.{name}\"]"
            );
            return Err(Problem::at(text, key.span().start, what));
        }
    }
    Ok(())
}

/// A table of the file, and the keys that it may have.
struct Section<'a> {
    path: &'a str,
    names: &'a [String],
}

fn check_table(text: &str, place: Section<'_>, table: &DeTable<'_>) -> Result<(), Problem> {
    let known = KnownKeys { path: place.path, names: place.names, text };
    table.iter().try_for_each(|(key, _)| known.check(key.get_ref(), key.span().start))
}

struct KnownKeys<'a> {
    path: &'a str,
    names: &'a [String],
    text: &'a str,
}

impl KnownKeys<'_> {
    fn check(&self, name: &str, at: usize) -> Result<(), Problem> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        let path = join(self.path, name);
        let what = format!("unknown key {path}; the nearest known one is {}", self.nearest(name));
        Err(Problem::at(self.text, at, what))
    }

    /// The known key that `name` most likely means: one of the same table, unless one elsewhere is clearly closer.
    fn nearest(&self, name: &str) -> String {
        let here = self.names.iter().map(|known| (distance(name, known) * 2, join(self.path, known)));
        let elsewhere = everywhere().into_iter().map(|(path, known)| {
            // `log_format` is how an environment variable or a flag would have it.
            let as_one_word = distance(name, &path.replace('.', "_"));
            (distance(name, &known).min(as_one_word) * 2 + 1, path)
        });
        here.chain(elsewhere).min_by_key(|(distance, _)| *distance).map(|(_, path)| path).unwrap_or_default()
    }
}

fn distance(a: &str, b: &str) -> usize {
    strsim::damerau_levenshtein(a, b)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// All keys, by path and name.
fn everywhere() -> Vec<(String, String)> {
    let sections = names(&ConfigFile::default()).into_iter();
    let sections = sections.map(|section| (section_keys(&section), section));
    let definition = state::definition_keys();
    let named = [
        (topic_settings(), "topics.\"NAME\""),
        (names(&Collection::default()), "collections.\"NAME\""),
        (definition.projection, "projection"),
        (definition.write, "projection.write"),
        (names(&Token::default()), "auth.tokens"),
    ];
    let named = named.into_iter().map(|(keys, path)| (keys, path.to_owned()));
    let each =
        |(keys, path): (Vec<String>, String)| keys.into_iter().map(move |key| (format!("{path}.{key}"), key));
    sections.chain(named).flat_map(each).collect()
}

fn section_keys(section: &str) -> Vec<String> {
    let file = serde_json::to_value(ConfigFile::default()).unwrap_or_default();
    file.get(section)
        .and_then(Value::as_object)
        .map(|keys| keys.keys().cloned().collect())
        .unwrap_or_default()
}

/// What can be set on a topic, and the other way to say one of it.
fn topic_settings() -> Vec<String> {
    let mut settings = names(&TopicConfig::default());
    settings.push("retention_days".to_owned());
    settings
}

fn snapshot_keys() -> Vec<String> {
    TopicName::parse("a").map(|topic| names(&SnapshotConfig { topic, every_ms: 1 })).unwrap_or_default()
}

/// The names of a type's fields.
pub(super) fn names(value: &impl Serialize) -> Vec<String> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}
