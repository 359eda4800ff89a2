//! What a configuration says of topics and their schemas.

use crate::config::{self, ConfigError, ConfigFile, Problem};
use crate::failure::Failure;
use prombus_core::{SchemaMode, TopicName};
use prombus_engine::schemas::Rule as SchemaRule;
use prombus_schema::lint::{Finding, Named, Rule};
use std::path::Path;

const CHANGEFEED: &str = "it is a changefeed, which the hub writes";
const SNAPSHOTS: &str = "it holds the snapshots of another topic, which the hub writes";
const COPIES: &str =
    "it gets the copies of a topic with dual_write, which are checked against the schemas of that one";

/// The topics that a configuration names.
#[derive(Debug, Default)]
pub struct Configured {
    /// Those that should have schemas.
    pub wanted: Vec<Named>,
    /// Those that cannot have schemas.
    pub barred: Barred,
    /// How versions have to follow each other when a hub with this configuration starts, if it reads a folder of them.
    pub rule: Option<SchemaRule>,
    /// What is wrong with the configuration itself.
    pub bad: Option<Finding>,
}

impl Configured {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(ConfigError::Read { path: path.to_owned(), error }.to_string())
        })?;
        Ok(Self::of(&path.to_string_lossy(), &text))
    }

    fn of(file: &str, text: &str) -> Self {
        let parsed = match ConfigFile::parse(text) {
            Ok(parsed) => parsed,
            Err(Problem { line, what }) => {
                let (file, line) = (file.to_owned(), line.unwrap_or(1));
                let bad = Finding { file, line, rule: Rule::Config, message: what, violation: None };
                return Self { bad: Some(bad), ..Self::default() };
            }
        };
        let barred = Barred::of(&parsed);
        let lines = config::topic_lines(text);
        let named = parsed.topics.named.iter();
        let is_wanted = |name: &str| barred.why(name).is_none();
        let wanted = named
            .filter(|(name, patch)| patch.schema != Some(SchemaMode::Off) && is_wanted(name.as_str()))
            .map(|(name, _)| {
                let line = lines.get(name.as_str()).copied().unwrap_or(1);
                Named { topic: name.to_string(), file: file.to_owned(), line }
            });
        let rule = parsed.schemas.folder().ok().flatten().map(|folder| folder.rule);
        Self { wanted: wanted.collect(), barred, rule, bad: None }
    }
}

/// Topics that cannot have schemas: what the hub itself writes has the form that the hub gives it.
#[derive(Debug, Default)]
pub struct Barred {
    /// Those that are named, and why.
    named: Vec<(String, &'static str)>,
    /// Those whose events are copied to a topic for each version.
    copied: Vec<TopicName>,
}

impl Barred {
    fn of(file: &ConfigFile) -> Self {
        let feeds = config::changefeeds(&file.collections, &file.projection);
        let feeds = feeds.map(|topic| (topic.to_string(), CHANGEFEED));
        let snapshots = file.topics.named.values().flat_map(|patch| patch.snapshot.iter().flatten());
        let snapshots = snapshots.map(|snapshot| (snapshot.topic.to_string(), SNAPSHOTS));
        let copied = file.topics.named.iter().filter(|(_, patch)| patch.dual_write == Some(true));
        let copied = copied.map(|(topic, _)| topic.clone()).collect();
        Self { named: feeds.chain(snapshots).collect(), copied }
    }

    /// Why a topic cannot have schemas; `None` if it can.
    pub fn why(&self, topic: &str) -> Option<&'static str> {
        let is_copy = |copied: &TopicName| {
            let version = topic.strip_prefix(copied.as_str()).and_then(|rest| rest.strip_prefix(".v"));
            let version = version.and_then(|version| version.parse().ok());
            version.and_then(|version| copied.of_version(version)).is_some_and(|of| of.as_str() == topic)
        };
        let named = self.named.iter().find(|(barred, _)| barred == topic).map(|(_, why)| *why);
        named.or_else(|| self.copied.iter().any(is_copy).then_some(COPIES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_schema::Policy;

    #[test]
    fn topics_that_a_hub_writes_itself_need_no_schemas() {
        let text = "[topics.\"orders\"]\npartitions = 2\nsnapshot = { topic = \"orders.snap\", every_ms = 1000 }\n\
            [topics.\"orders.snap\"]\n[topics.\"free\"]\nschema = \"off\"\n[topics]\nauto_create = false\n\
            \"late\" = { partitions = 1 }\n[collections.c]\nchangefeed = \"c.changed\"\n\
            [[projection]]\nname = \"p\"\ntopic = \"orders\"\ncollection = \"d\"\nchangefeed = \"d.changed\"\n";
        let Configured { wanted, barred, rule, bad } = Configured::of("p.toml", text);
        assert_eq!((bad, rule), (None, None));
        let wanted: Vec<_> = wanted.iter().map(|named| (named.topic.as_str(), named.line)).collect();
        assert_eq!(wanted, [("late", 9), ("orders", 1)]);
        let named: Vec<_> = barred.named.iter().map(|(topic, _)| topic.as_str()).collect();
        assert_eq!(named, ["c.changed", "d.changed", "orders.snap"]);
    }

    #[test]
    fn topics_of_copies_cannot_have_schemas() {
        let text = "[topics.t]\ndual_write = true\n[topics.\"t.v2\"]\n[topics.u]\ndual_write = false\n";
        let Configured { wanted, barred, bad, .. } = Configured::of("p.toml", text);
        assert_eq!(bad, None);
        let wanted: Vec<_> = wanted.iter().map(|named| named.topic.as_str()).collect();
        assert_eq!(wanted, ["t", "u"]);
        for (topic, is_barred) in [
            ("t.v1", true),
            ("t.v17", true),
            ("t", false),
            ("t.v01", false),
            ("t.x.v1", false),
            ("u.v1", false),
        ] {
            assert_eq!(barred.why(topic).is_some(), is_barred, "{topic}");
        }
    }

    #[test]
    fn the_rule_is_the_one_by_which_the_hub_starts() {
        let rule = |text: &str| {
            Configured::of("p.toml", text).rule.map(|rule| (rule.demand.to_string(), rule.policy))
        };
        let text = "[schemas]\ndir = \"schemas\"\ncompat = \"full\"\npolicy = \"strict\"";
        assert_eq!(rule(text), Some(("full".to_owned(), Policy::Strict)));
        assert_eq!(rule("[schemas]\ndir = \"schemas\""), Some(("backward".to_owned(), Policy::Lenient)));
    }

    #[test]
    fn a_configuration_that_cannot_be_used_is_a_finding() {
        let bad = Configured::of("p.toml", "[server]\n\nlistne = 1").bad.unwrap();
        assert_eq!((bad.file.as_str(), bad.line, bad.rule), ("p.toml", 3, Rule::Config));
        assert!(bad.message.contains("server.listen"), "{bad:?}");
    }
}
