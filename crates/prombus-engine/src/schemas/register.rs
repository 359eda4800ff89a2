//! Registering a version, and whether it follows the earlier ones.

use super::known::parse;
use super::stored::{self, Head, VersionHead};
use super::{MAX_VERSIONS, Schemas, SchemasError, apart, work};
use crate::bus::BusError;
use crate::retry::Tries;
use prombus_core::{Commit, ConfigChange, Json, MadeFor, ReadError, TopicName, TopicState};
use prombus_schema::{Allowance, Comparison, Compat, Demand, Policy, Schema, check_within, is_same_json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a version has to follow the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// In which direction documents have to be taken, and of which versions.
    pub demand: Demand,
    /// How properties that a schema does not name are read.
    pub policy: Policy,
}

/// A version to be registered.
#[derive(Debug, Clone)]
pub struct NewSchema {
    /// Its number; the next one where there is none.
    pub version: Option<u32>,
    /// How it has to follow the earlier ones.
    pub rule: Rule,
    /// The first version that it has to follow; 0 for any. Earlier ones may be as they are, because an upcaster in between
    /// raises their events.
    pub compare_from: u32,
    /// The schema.
    pub text: Json,
}

/// A version that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// Its number.
    pub version: u32,
    /// Whether it was registered now, and not before.
    pub made: bool,
}

impl Schemas {
    /// Registers a version, and makes the topic where there is none. The same schema under the version that it has already
    /// is registered.
    pub async fn register(&self, topic: &TopicName, new: &NewSchema) -> Result<Registered, SchemasError> {
        self.register_if(topic, new, |_| Ok(())).await
    }

    /// The same, if `may_copy` takes the topic that events of the version are copied to from then on (`dual_write`).
    pub async fn register_if<E: From<SchemasError> + From<BusError> + From<ReadError>>(
        &self,
        topic: &TopicName,
        new: &NewSchema,
        may_copy: impl Fn(&TopicName) -> Result<(), E> + Send + Sync,
    ) -> Result<Registered, E> {
        let schema = self.read(topic, &new.text).await?;
        let mut tries = Tries::default();
        loop {
            let state = self.log.topic(topic).await?;
            let earlier = self.earlier(state.as_ref()).await?;
            let version = match self.place(topic, &earlier, new).await? {
                VersionSlot::There(version) => return Ok(Registered { version, made: false }),
                VersionSlot::New(version) => version,
            };
            if state.as_ref().is_some_and(|state| state.config.dual_write) {
                topic.of_version(version).iter().try_for_each(&may_copy)?;
            }
            // Once more at the gate, where nothing changes meanwhile. Here it comes before what takes long.
            if let Some(why) = apart::why_no_schemas(&*self.log, &*self.documents, topic).await? {
                return Err(SchemasError::Bad(why).into());
            }
            self.refuse_incompatible(topic, &earlier, (new, &schema)).await?;
            let done = match (state, earlier.head) {
                (Some(state), Some(head)) => self.add(&state, head, version, &new.text).await.map(|()| true),
                _ => self.make(topic).await.map(|()| false),
            };
            match done {
                Ok(true) => return Ok(Registered { version, made: true }),
                Ok(false) => {}
                Err(error) => tries.again(error).await?,
            }
        }
    }

    pub(super) async fn read(&self, topic: &TopicName, text: &Json) -> Result<Schema, SchemasError> {
        if topic.is_internal() {
            return Err(BusError::ReservedTopic(topic.clone()).into());
        }
        let text = text.clone();
        Ok(work::check(move || parse(&text)).await??)
    }

    pub(super) async fn earlier(&self, topic: Option<&TopicState>) -> Result<Earlier, ReadError> {
        let head = match topic {
            Some(topic) => Some(stored::load_head(&*self.documents, topic).await?.head),
            None => None,
        };
        Ok(Earlier { head, texts: BTreeMap::new() })
    }

    /// The schema of an earlier version.
    async fn text_of(&self, earlier: &Earlier, version: u32) -> Result<Option<Json>, ReadError> {
        match (earlier.texts.get(&version), &earlier.head) {
            (Some(text), _) => Ok(Some(text.clone())),
            (None, Some(head)) => Ok(self.known.schema(head, version).await?.map(|stored| stored.text)),
            (None, None) => Ok(None),
        }
    }

    /// Which version a new schema gets.
    pub(super) async fn place(
        &self,
        topic: &TopicName,
        earlier: &Earlier,
        new: &NewSchema,
    ) -> Result<VersionSlot, SchemasError> {
        let head = earlier.head.as_ref();
        let latest = head.and_then(Head::latest).unwrap_or(0);
        if head.is_some_and(|head| head.versions.len() >= MAX_VERSIONS)
            && new.version.is_none_or(|v| v > latest)
        {
            return Err(SchemasError::Bad(format!(
                "topic {topic} has {MAX_VERSIONS} versions of its schema, which is the maximum"
            )));
        }
        let next =
            || latest.checked_add(1).ok_or_else(|| SchemasError::Bad("there is no next version".into()));
        let version = match new.version {
            None => return Ok(VersionSlot::New(next()?)),
            Some(0) => return Err(SchemasError::Bad("versions start at 1".into())),
            Some(version) if version > latest => return Ok(VersionSlot::New(version)),
            Some(version) => version,
        };
        let message = match self.text_of(earlier, version).await? {
            Some(there) if is_same_json(there.as_bytes(), new.text.as_bytes()) => {
                return Ok(VersionSlot::There(version));
            }
            Some(_) => format!(
                "version {version} of the schema of topic {topic} is another schema already, and versions never change; \
                 register this one as version {} or later",
                next()?
            ),
            None => format!(
                "version {version} must be greater than {latest}, the last version of the schema of topic {topic}"
            ),
        };
        Err(SchemasError::VersionConflict { message, latest })
    }

    /// Refuses a schema that does not follow the earlier versions.
    pub(super) async fn refuse_incompatible(
        &self,
        topic: &TopicName,
        earlier: &Earlier,
        (new, schema): (&NewSchema, &Schema),
    ) -> Result<(), SchemasError> {
        let Rule { demand, policy } = new.rule;
        if demand.compat == Compat::None {
            return Ok(());
        }
        let versions = earlier.head.as_ref().map_or(&[][..], |head| &head.versions);
        let count = if demand.transitive { versions.len() } else { 1 };
        let latest_first = versions.iter().rev().map(|known| known.version).take(count);
        let compared: Vec<u32> = latest_first.take_while(|version| *version >= new.compare_from).collect();
        let mut allowance = Allowance::of(compared.len());
        for version in compared {
            let Some(old) = self.text_of(earlier, version).await? else { continue };
            let violations = match allowance.take(old.len()) {
                Ok(budget) => {
                    let new = schema.clone();
                    let verdict = work::check(move || {
                        let old = parse(&old)?;
                        let comparison = Comparison { old: &old, new: &new, compat: demand.compat, policy };
                        Ok::<_, SchemasError>(check_within(&comparison, budget))
                    });
                    let verdict = verdict.await??;
                    if verdict.is_compatible() {
                        continue;
                    }
                    verdict.violations().to_vec()
                }
                Err(unread) => vec![unread],
            };
            let (topic, rule) = (topic.clone(), demand.to_string());
            return Err(SchemasError::Incompatible { topic, rule, version, violations });
        }
        Ok(())
    }

    /// Makes a topic with the settings that the configuration has for it.
    async fn make(&self, topic: &TopicName) -> Result<(), BusError> {
        let config = self.new_topics.config_of(topic, MadeFor::Events);
        let change = ConfigChange::CreateTopic { name: topic.clone(), config };
        self.bus.commit(Arc::new(Commit { config: vec![change], ..Commit::by_hub() })).await.map(drop)
    }

    async fn add(
        &self,
        topic: &TopicState,
        mut head: Head,
        version: u32,
        text: &Json,
    ) -> Result<(), BusError> {
        let new = VersionHead { version, registered_ts: self.clock.now_ms() };
        head.versions.push(new);
        let write = stored::write_version(topic.number, new, text);
        self.bus.commit(self.storing(topic, &head, vec![write])).await.map(drop)
    }
}

/// The versions that a topic has, or would have.
pub(super) struct Earlier {
    /// Which there are; `None` if there is no such topic.
    pub head: Option<Head>,
    /// The schemas of those that are not registered.
    pub texts: BTreeMap<u32, Json>,
}

/// Which version a schema becomes.
pub(super) enum VersionSlot {
    /// It is a new version.
    New(u32),
    /// It is there already.
    There(u32),
}
