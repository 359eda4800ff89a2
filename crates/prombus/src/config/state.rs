//! The collections and projections in the file.

use super::keys::names;
use prombus_core::collection::check_name;
use prombus_core::{FieldPath, TopicName};
use prombus_engine::collections::CollectionSettings;
use prombus_engine::projections::{Definition, IndexDefinition, SetDefinition, WriteDefinition};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A collection that commits write.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collection {
    /// Its indexes.
    pub indexes: Vec<IndexDefinition>,
    /// The topic that its changes are published to.
    pub changefeed: Option<TopicName>,
}

impl Collection {
    /// What it comes to.
    pub fn settings(&self) -> CollectionSettings {
        let indexes = self.indexes.iter().map(IndexDefinition::index).collect();
        CollectionSettings { indexes, changefeed: self.changefeed.clone() }
    }
}

/// The topics that the hub publishes changes of collections to, those that commits write and those of projections.
pub fn changefeeds<'a>(
    collections: &'a BTreeMap<String, Collection>,
    projections: &'a [Projection],
) -> impl Iterator<Item = &'a TopicName> {
    let written = projections.iter().flat_map(|projection| projection.definition.changefeeds());
    let committed = collections.values().filter_map(|collection| collection.changefeed.as_ref());
    committed.chain(written.map(|(_, topic)| topic))
}

/// How documents are served.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Snapshots {
    /// How long caches may keep a document, in seconds.
    pub max_age_s: Option<u64>,
}

/// A projection and its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Projection {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub definition: Definition,
}

impl<'de> Deserialize<'de> for Projection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = toml::Table::deserialize(deserializer)?;
        let name = match table.remove("name") {
            Some(toml::Value::String(name)) if !name.is_empty() => name,
            Some(_) => return Err(D::Error::custom("the name of a projection must be a string")),
            None => return Err(D::Error::custom("a projection needs a name")),
        };
        // Not flattened, which would pass over keys that are not known.
        let definition = Definition::deserialize(table).map_err(|error| {
            let key = key_of(&error).map(|key| format!("{key}: ")).unwrap_or_default();
            D::Error::custom(format!("projection {name:?}: {key}{}", error.message()))
        })?;
        Ok(Self { name, definition })
    }
}

/// The key that an error is about. Only its text tells, in a line of its own.
fn key_of(error: &toml::de::Error) -> Option<String> {
    let text = error.to_string();
    let line = text.strip_prefix(error.message())?.trim();
    Some(line.strip_prefix("in `")?.strip_suffix('`')?.to_owned())
}

/// Refuses names that make no sense, or are there twice.
pub fn validate(
    collections: &BTreeMap<String, Collection>,
    projections: &[Projection],
) -> Result<(), String> {
    for name in collections.keys() {
        check_name(name).map_err(|error| format!("collections.\"{name}\": {error}"))?;
    }
    let mut seen = BTreeSet::new();
    match projections.iter().find(|projection| !seen.insert(&projection.name)) {
        Some(twice) => Err(format!("there are two projections {:?}: rename one of them", twice.name)),
        None => Ok(()),
    }
}

/// The keys of a projection and of its writes.
pub struct DefinitionKeys {
    pub projection: Vec<String>,
    pub write: Vec<String>,
}

/// Made from definitions that have everything, since what is absent has no name.
pub fn definition_keys() -> DefinitionKeys {
    let Ok(topic) = TopicName::parse("a") else {
        return DefinitionKeys { projection: Vec::new(), write: Vec::new() };
    };
    let some = || Some(String::new());
    let indexes = || vec![IndexDefinition::Fields(Vec::<FieldPath>::new())];
    let write = WriteDefinition {
        collection: String::new(),
        key: String::new(),
        when: some(),
        set: Some(SetDefinition::Whole(String::new())),
        merge: some(),
        inc: [(String::new(), String::new())].into(),
        delete: some(),
        indexes: indexes(),
        changefeed: Some(topic.clone()),
    };
    let write_keys = names(&write);
    let definition = Definition {
        topic: topic.clone(),
        collection: some(),
        key: some(),
        fields: Some(Vec::new()),
        map: some(),
        tombstone: some(),
        version: some(),
        indexes: indexes(),
        changefeed: Some(topic),
        write: vec![write],
        normalize: true,
        retries: Some(0),
    };
    DefinitionKeys { projection: names(&Projection { name: String::new(), definition }), write: write_keys }
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigFile, Problem};
    use super::*;

    const BOTH: &str = r#"
        [[projection]]
        name = "processes"
        topic = "process.state"
        collection = "processes"
        key = "event.payload.processId"
        fields = ["processId", "name"]
        tombstone = "event.payload.gone"
        version = "event.payload.rev"
        indexes = [["host", "name"], { fields = ["status"], unique = true }]
        changefeed = "processes.changed"
        retries = 5

        [[projection]]
        name = "processes-txn"
        topic = "process.state"
        [[projection.write]]
        collection = "proc_live"
        key = "event.payload.processId"
        set = "event.payload"
        [[projection.write]]
        collection = "host_stats"
        key = "event.payload.host"
        when = "true"
        inc = { seen = "1" }
        set = { last_ts = "event.ts" }
    "#;

    fn problem(text: &str) -> (Option<usize>, String) {
        let Problem { line, what } = ConfigFile::parse(text).unwrap_err();
        (line, what)
    }

    #[test]
    fn projections_are_read_whole() {
        let file = ConfigFile::parse(BOTH).unwrap();
        let [changelog, transactional] = &file.projection[..] else { panic!("{:?}", file.projection) };
        assert_eq!((changelog.name.as_str(), changelog.definition.retries), ("processes", Some(5)));
        assert_eq!(changelog.definition.collection.as_deref(), Some("processes"));
        let indexes: Vec<_> = changelog.definition.indexes.iter().map(IndexDefinition::index).collect();
        assert_eq!((indexes[0].fields.len(), indexes[1].unique), (2, true));
        let writes = &transactional.definition.write;
        assert_eq!(writes[0].set, Some(SetDefinition::Whole("event.payload".into())));
        assert_eq!((writes[1].inc["seen"].as_str(), writes[1].when.as_deref()), ("1", Some("true")));
    }

    #[test]
    fn every_key_of_a_definition_is_known() {
        let keys = definition_keys();
        let expected = [
            "name",
            "topic",
            "collection",
            "key",
            "fields",
            "map",
            "tombstone",
            "version",
            "indexes",
            "changefeed",
            "write",
            "normalize",
            "retries",
        ];
        let sorted = |mut keys: Vec<String>| {
            keys.sort_unstable();
            keys
        };
        assert_eq!(sorted(keys.projection), sorted(expected.map(str::to_owned).to_vec()));
        assert_eq!(keys.write.len(), 9);
    }

    #[test]
    fn collections_and_snapshots_are_read() {
        let text = "[collections.\"shop.orders\"]\nindexes = [[\"state\"]]\nchangefeed = \"orders.changed\"\n\
            [collections.plain]\n[snapshots]\nmax_age_s = 30";
        let file = ConfigFile::parse(text).unwrap();
        assert_eq!(file.snapshots.max_age_s, Some(30));
        assert_eq!(file.collections["plain"], Collection::default());
        let settings = file.collections["shop.orders"].settings();
        assert_eq!(settings.indexes[0].fields[0].as_str(), "state");
        assert_eq!(settings.changefeed.unwrap().as_str(), "orders.changed");
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        const P: &str = "[[projection]]\nname = \"p\"\ntopic = \"t\"\n";
        for (text, line, unknown, nearest) in [
            (format!("{P}colection = \"c\""), 4, "projection.colection", "projection.collection"),
            (
                format!("{P}[[projection.write]]\nkye = \"k\""),
                5,
                "projection.write.kye",
                "projection.write.key",
            ),
            (
                format!("{P}indexes = [{{ field = [\"a\"] }}]"),
                4,
                "projection.indexes.field",
                "projection.indexes.fields",
            ),
            ("[collections.c]\nindex = []".into(), 2, "collections.\"c\".index", "collections.\"c\".indexes"),
            ("[snapshots]\nmax_age = 5".into(), 2, "snapshots.max_age", "snapshots.max_age_s"),
            ("[[projections]]\nname = \"p\"".into(), 1, "projections", "projection"),
        ] {
            let expected = format!("unknown key {unknown}; the nearest known one is {nearest}");
            assert_eq!(problem(&text), (Some(line), expected), "{text}");
        }
        let (_, what) = problem("[collections.shop.orders]\nindexes = []");
        assert!(what.contains("[collections.\"shop.orders\"]"), "{what}");
    }

    #[test]
    fn what_makes_no_sense_is_told_with_the_name_of_the_projection() {
        for (text, hint) in [
            ("[[projection]]\ntopic = \"t\"", "needs a name"),
            ("[[projection]]\nname = 7\ntopic = \"t\"", "must be a string"),
            ("[[projection]]\nname = \"\"\ntopic = \"t\"", "must be a string"),
            ("[[projection]]\nname = \"p\"", "projection \"p\": missing field `topic`"),
            ("[[projection]]\nname = \"p\"\ntopic = \"T!\"", "projection \"p\""),
            (
                "[[projection]]\nname = \"p\"\ntopic = \"t\"\nretries = -1",
                "projection \"p\": retries: invalid value",
            ),
            (
                "[[projection]]\nname = \"p\"\ntopic = \"t\"\n[[projection.write]]\ncollection = \"c\"\nkey = 5",
                "projection \"p\": write.key: invalid type",
            ),
            (
                "[[projection]]\nname = \"p\"\ntopic = \"t\"\n[[projection]]\nname = \"p\"\ntopic = \"u\"",
                "two projections \"p\"",
            ),
            ("[collections.\"A!\"]", "collections.\"A!\""),
            ("[snapshots]\nmax_age_s = -1", "invalid value"),
        ] {
            let (_, what) = problem(text);
            assert!(what.contains(hint), "{text}: {what}");
        }
    }
}
