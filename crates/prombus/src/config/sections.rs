//! The sections of the file as types.

use super::auth::Auth;
use super::cluster::Cluster;
use super::state::{self, Collection, Projection, Snapshots};
use crate::serve::{LogFormat, LogLevel, SchemaFolder};
use prombus_core::commit::{DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, MIN_RESULT_BYTES};
use prombus_core::{TopicConfig, TopicName, TopicPatch, check_snapshot};
use prombus_engine::Limits;
use prombus_engine::schemas::Rule;
use prombus_server::{GatewayOptions, Hosts};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The allowed sizes of a part of the journal.
const PART_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
/// How long to wait between two cleaning passes, where nothing else is said.
const CLEAN_EVERY: Duration = Duration::from_secs(10);
/// The upper limit for `commit_bytes`: a commit is in memory several times.
const MAX_COMMIT_BYTES: usize = 32 << 20;
/// Of what connections may hold, groups may hold one part in so many of events that they have read ahead.
const READ_AHEAD_SHARE: usize = 4;
/// Less than this does not hold a few answers.
const MIN_BUFFER_BYTES: usize = 64 << 20;

/// A configuration file. Everything is optional.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// How the hub can be reached.
    pub server: Server,
    /// The log.
    pub log: Log,
    /// Where events are stored.
    pub store: Store,
    /// How callers are authenticated.
    pub auth: Auth,
    /// Limits on sizes and rates.
    pub limits: LimitValues,
    /// Whether topics are created automatically, and the settings of some.
    pub topics: Topics,
    /// Collections that commits write, which are created at startup.
    pub collections: BTreeMap<String, Collection>,
    /// How documents are served.
    pub snapshots: Snapshots,
    /// Projections, which are created at startup.
    pub projection: Vec<Projection>,
    /// Schemas, which are registered at startup.
    pub schemas: Schemas,
    /// The other hubs that use the same database.
    pub cluster: Cluster,
}

/// Schemas, which are registered at startup.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schemas {
    /// The folder that they are in.
    pub dir: Option<PathBuf>,
    /// How new versions have to follow the earlier ones, such as `backward`.
    pub compat: Option<String>,
    /// How properties are read that a schema does not name: `lenient` or `strict`.
    pub policy: Option<String>,
}

impl Schemas {
    /// The folder and how its schemas have to follow each other, if there is one.
    pub fn folder(&self) -> Result<Option<SchemaFolder>, String> {
        let demand = self.compat.as_deref().map(str::parse).transpose();
        let demand = demand.map_err(|why| format!("schemas.compat: {why}"))?.unwrap_or_default();
        let policy = self.policy.as_deref().map(str::parse).transpose();
        let policy = policy.map_err(|why| format!("schemas.policy: {why}"))?.unwrap_or_default();
        let rule = Rule { demand, policy };
        Ok(self.dir.clone().map(|dir| SchemaFolder { dir, rule }))
    }
}

/// How the hub can be reached.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Where to listen.
    pub listen: Option<String>,
    /// The TLS certificate, in PEM format.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// Origins whose web pages may call.
    pub allow_origins: Option<Vec<String>>,
    /// The names by which the hub is reached.
    pub hosts: Option<Vec<String>>,
    /// Where the other hubs of a database reach this one.
    pub advertise: Option<String>,
}

/// The log, on stderr.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Its format: `text` or `json`.
    pub format: Option<String>,
    /// Its level, such as `info` or `warn`.
    pub level: Option<String>,
}

/// Where events are stored: in a folder, in memory or in MongoDB.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The folder.
    pub data: Option<PathBuf>,
    /// Whether to keep them in memory only.
    pub memory: Option<bool>,
    /// The database: `mongodb://HOSTS/DATABASE?replicaSet=NAME`.
    pub url: Option<String>,
    /// What the names of all collections in the database begin with.
    pub prefix: Option<String>,
    /// The size of a part of the journal.
    pub part_bytes: Option<u64>,
    /// How many bytes a second are read and written at most to give space back; 0 means no limit.
    pub rewrite_bytes_per_s: Option<u64>,
    /// How long to wait between two cleaning passes.
    pub clean_every_ms: Option<u64>,
    /// How long commits and reads wait for a database that does not answer.
    pub wait_ms: Option<u64>,
}

impl Store {
    /// How long to wait between two cleaning passes.
    pub fn clean_every(&self) -> Duration {
        self.clean_every_ms.map_or(CLEAN_EVERY, Duration::from_millis)
    }
}

/// Limits on sizes and rates.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitValues {
    /// The largest event.
    pub event_bytes: Option<usize>,
    /// The largest commit.
    pub commit_bytes: Option<usize>,
    /// The most that a commit may make.
    pub result_bytes: Option<usize>,
    /// How far ahead of the hub's clock a `ts` may be.
    pub future_ts_ms: Option<u64>,
    /// The most topics.
    pub topics: Option<usize>,
    /// The most collections.
    pub collections: Option<usize>,
    /// The most partitions of all consumer groups together.
    pub group_partitions: Option<usize>,
    /// The largest body and the largest frame.
    pub body_bytes: Option<usize>,
    /// The most connections.
    pub connections: Option<usize>,
    /// Maximum memory for requests and answers of all connections.
    pub buffer_bytes: Option<usize>,
    /// Maximum number of events per second over one connection; 0 means no limit.
    pub connection_events_per_s: Option<u64>,
    /// Maximum number of events per second to one topic; 0 means no limit.
    pub topic_events_per_s: Option<u64>,
    /// How long the headers of a request may take, and how long a connection may be idle.
    pub header_timeout_ms: Option<u64>,
    /// How long a body may stall.
    pub body_timeout_ms: Option<u64>,
    /// How long a client may take no byte of what it is sent.
    pub send_timeout_ms: Option<u64>,
}

/// Whether topics are created automatically, and the settings of some.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Topics {
    /// Whether a topic is created with its first publish.
    pub auto_create: Option<bool>,
    /// The settings of topics, which are made when the hub starts.
    #[serde(flatten)]
    pub named: BTreeMap<TopicName, TopicPatch>,
}

impl ConfigFile {
    /// Refuses what is well formed and makes no sense all the same.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.store.data.is_some() && self.store.memory == Some(true) {
            return Err("store.data and store.memory cannot be combined: remove one of them".into());
        }
        if self.store.url.is_some() && (self.store.data.is_some() || self.store.memory == Some(true)) {
            return Err(
                "store.url cannot be combined with store.data or store.memory: keep one of them".into()
            );
        }
        if self.store.part_bytes.is_some_and(|bytes| !PART_BYTES.contains(&bytes)) {
            let (least, most) = (PART_BYTES.start(), PART_BYTES.end());
            return Err(format!("store.part_bytes must be between {least} and {most}"));
        }
        if self.store.clean_every_ms == Some(0) {
            return Err("store.clean_every_ms must be at least 1".into());
        }
        if self.store.wait_ms == Some(0) {
            return Err("store.wait_ms must be at least 1".into());
        }
        if let Some(format) = &self.log.format {
            LogFormat::parse(format).map_err(|why| format!("log.format: {why}"))?;
        }
        if let Some(level) = &self.log.level {
            LogLevel::parse(level).map_err(|why| format!("log.level: {why}"))?;
        }
        let limits = self.limits.limits();
        self.limits.validate()?;
        if self.server.tls_cert.is_some() != self.server.tls_key.is_some() {
            return Err("server.tls_cert and server.tls_key must be set together".into());
        }
        if let Some(host) = self.server.hosts.iter().flatten().find(|host| !Hosts::is_name(host)) {
            return Err(format!(
                "server.hosts: {host:?} is not a host name; write it without scheme and port, like hub.example"
            ));
        }
        for origin in self.server.allow_origins.iter().flatten() {
            validate_origin(origin)?;
        }
        if limits.commit_bytes > MAX_COMMIT_BYTES {
            return Err(format!("limits.commit_bytes can be at most {MAX_COMMIT_BYTES}"));
        }
        validate_result_bytes(self.limits.result_bytes(), limits.commit_bytes)?;
        if limits.event_bytes > limits.commit_bytes {
            return Err(format!(
                "limits.event_bytes = {} does not fit into limits.commit_bytes = {}: raise the latter",
                limits.event_bytes, limits.commit_bytes
            ));
        }
        state::validate(&self.collections, &self.projection)?;
        self.schemas.folder()?;
        for (name, patch) in &self.topics.named {
            self.topics.validate(name, patch).map_err(|what| format!("topics.\"{name}\": {what}"))?;
        }
        Ok(())
    }
}

impl Topics {
    fn validate(&self, name: &TopicName, patch: &TopicPatch) -> Result<(), String> {
        if name.is_internal() {
            return Err("topics that start with dlq. or system. are the hub's own".into());
        }
        self.config_of(name, patch).validate()?;
        check_snapshot((name, &self.config_of(name, patch)), &self.configs())
    }

    /// The settings of these topics when they are made.
    pub fn configs(&self) -> HashMap<TopicName, TopicConfig> {
        self.named.iter().map(|(name, patch)| (name.clone(), self.config_of(name, patch))).collect()
    }

    /// The settings of one of these topics when it is made. One that holds snapshots is compacted unless it says otherwise.
    pub fn config_of(&self, name: &TopicName, patch: &TopicPatch) -> TopicConfig {
        let names_it =
            |patch: &TopicPatch| patch.snapshot.iter().flatten().any(|snapshot| snapshot.topic == *name);
        let compaction = self.named.values().any(names_it);
        patch.clone().apply(TopicConfig { compaction, ..TopicConfig::default() })
    }
}

/// What was asked for has to fit, and so have the hub's own commits, whose dead letters hold whole events.
fn validate_result_bytes(most: usize, commit_bytes: usize) -> Result<(), String> {
    let least = commit_bytes.saturating_mul(2).max(MIN_RESULT_BYTES);
    if !(least..=MAX_RESULT_BYTES).contains(&most) {
        return Err(format!(
            "limits.result_bytes must be between {least} (twice limits.commit_bytes, and 16 MiB) and {MAX_RESULT_BYTES}"
        ));
    }
    Ok(())
}

/// An origin is what a browser sends: scheme, host and port, and no path.
fn validate_origin(origin: &str) -> Result<(), String> {
    let host = origin.split_once("://").map(|(_, host)| host);
    if ["*", "null"].contains(&origin) || host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
        return Ok(());
    }
    Err(format!(
        "server.allow_origins: {origin:?} is not an origin; write it as https://app.example, or * for any"
    ))
}

impl LimitValues {
    fn validate(&self) -> Result<(), String> {
        let numbers = [
            ("event_bytes", self.event_bytes.map(|bytes| bytes as u64)),
            ("commit_bytes", self.commit_bytes.map(|bytes| bytes as u64)),
            ("topics", self.topics.map(|most| most as u64)),
            ("collections", self.collections.map(|most| most as u64)),
            ("group_partitions", self.group_partitions.map(|most| most as u64)),
            ("body_bytes", self.body_bytes.map(|bytes| bytes as u64)),
            ("connections", self.connections.map(|most| most as u64)),
            ("header_timeout_ms", self.header_timeout_ms),
            ("body_timeout_ms", self.body_timeout_ms),
            ("send_timeout_ms", self.send_timeout_ms),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, value)| *value == Some(0)) {
            return Err(format!("limits.{name} must be at least 1"));
        }
        let least = self.least_buffer_bytes();
        if (self.buffer_bytes() as u128) < least {
            return Err(format!(
                "limits.buffer_bytes must be at least {least} (64 MiB, and four times limits.body_bytes): raise it, or lower limits.body_bytes"
            ));
        }
        Ok(())
    }

    /// The largest body. It may be larger than the commit in it, which is counted without names, quotes and escapes.
    pub fn body_bytes(&self) -> usize {
        let enough = GatewayOptions::default().max_body_bytes.max(self.commit_bytes().saturating_mul(2));
        self.body_bytes.unwrap_or(enough)
    }

    /// What all connections together may hold.
    pub fn buffer_bytes(&self) -> usize {
        let least = usize::try_from(self.least_buffer_bytes()).unwrap_or(usize::MAX);
        self.buffer_bytes.unwrap_or(GatewayOptions::default().max_buffer_bytes.max(least))
    }

    /// One body must not keep all others out. It may be more than any memory has, and is not cut down to that: then
    /// nothing would be enough, and seem to be.
    fn least_buffer_bytes(&self) -> u128 {
        (self.body_bytes() as u128 * 4).max(MIN_BUFFER_BYTES as u128)
    }

    fn commit_bytes(&self) -> usize {
        self.commit_bytes.unwrap_or(Limits::default().commit_bytes)
    }

    /// The most that a commit may make; for the store to see to.
    pub fn result_bytes(&self) -> usize {
        self.result_bytes.unwrap_or(DEFAULT_RESULT_BYTES)
    }

    /// The limits, with defaults for those that were left out.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            event_bytes: self.event_bytes.unwrap_or(default.event_bytes),
            commit_bytes: self.commit_bytes(),
            future_ts_ms: self.future_ts_ms.unwrap_or(default.future_ts_ms),
            topics: self.topics.unwrap_or(default.topics),
            collections: self.collections.unwrap_or(default.collections),
            group_partitions: self.group_partitions.unwrap_or(default.group_partitions),
            read_ahead_bytes: self.buffer_bytes() / READ_AHEAD_SHARE,
            cleaning_keys: default.cleaning_keys,
        }
    }
}

/// `auto_create` is a name that a topic may have too: a switch is the setting, a table is a topic.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true or false")]
enum SwitchOrTopic {
    Switch(bool),
    Topic(Box<TopicPatch>),
}

impl<'de> Deserialize<'de> for Topics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopicsVisitor;
        impl<'de> Visitor<'de> for TopicsVisitor {
            type Value = Topics;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("auto_create and a table for each topic")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Topics, A::Error> {
                let mut topics = Topics::default();
                while let Some(key) = map.next_key::<String>()? {
                    let name = TopicName::parse(&key).map_err(A::Error::custom)?;
                    let patch = match key.as_str() {
                        "auto_create" => match map.next_value()? {
                            SwitchOrTopic::Switch(on) => {
                                topics.auto_create = Some(on);
                                continue;
                            }
                            SwitchOrTopic::Topic(patch) => *patch,
                        },
                        _ => map.next_value()?,
                    };
                    topics.named.insert(name, patch);
                }
                Ok(topics)
            }
        }
        deserializer.deserialize_map(TopicsVisitor)
    }
}
