//! Registering a version, and whether it follows the earlier ones.

use super::known::parse;
use super::stored::{self, Head, VersionHead};
use super::{MAX_VERSIONS, Schemas, SchemasError, apart, work};
use crate::bus::BusError;
use crate::retry::Tries;
use prombus_core::{Commit, ConfigChange, Json, ReadError, TopicName, TopicState};
use prombus_schema::{
    BUDGET, Budget, Comparison, Compat, Demand, Policy, Schema, Violation, check_within, is_same_json,
};
use std::sync::Arc;

/// How many checks of two schemas a check against all versions may cost together.
const TRANSITIVE_BUDGETS: u64 = 10;

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
            let head = self.head_of(state.as_ref()).await?;
            let version = match self.place(topic, head.as_ref(), new).await? {
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
            if let Some(head) = &head {
                self.refuse_incompatible(topic, head, new.rule, &schema).await?;
            }
            let done = match (state, head) {
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

    /// Why a schema does not follow the earlier ones; nothing if it does. Nothing is registered.
    pub async fn check(
        &self,
        topic: &TopicName,
        rule: Rule,
        text: &Json,
    ) -> Result<Vec<Violation>, SchemasError> {
        let schema = self.read(topic, text).await?;
        let state = self.log.topic(topic).await?;
        let Some(head) = self.head_of(state.as_ref()).await? else { return Ok(Vec::new()) };
        let found = self.compare(&head, rule, &schema).await?;
        Ok(found.map(|(_, violations)| violations).unwrap_or_default())
    }

    async fn read(&self, topic: &TopicName, text: &Json) -> Result<Schema, SchemasError> {
        if topic.is_internal() {
            return Err(BusError::ReservedTopic(topic.clone()).into());
        }
        let text = text.clone();
        Ok(work::check(move || parse(&text)).await??)
    }

    async fn head_of(&self, topic: Option<&TopicState>) -> Result<Option<Head>, ReadError> {
        match topic {
            Some(topic) => Ok(Some(stored::load_head(&*self.documents, topic).await?.head)),
            None => Ok(None),
        }
    }

    /// Which version a new schema gets.
    async fn place(
        &self,
        topic: &TopicName,
        head: Option<&Head>,
        new: &NewSchema,
    ) -> Result<VersionSlot, SchemasError> {
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
        let there = match head {
            Some(head) => self.known.schema(head, version).await?,
            None => None,
        };
        let message = match there {
            Some(there) if is_same_json(there.text.as_bytes(), new.text.as_bytes()) => {
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

    async fn refuse_incompatible(
        &self,
        topic: &TopicName,
        head: &Head,
        rule: Rule,
        schema: &Schema,
    ) -> Result<(), SchemasError> {
        match self.compare(head, rule, schema).await? {
            None => Ok(()),
            Some((version, violations)) => {
                let (topic, rule) = (topic.clone(), rule.demand.to_string());
                Err(SchemasError::Incompatible { topic, rule, version, violations })
            }
        }
    }

    /// The latest earlier version that a schema does not follow, and why.
    async fn compare(
        &self,
        head: &Head,
        rule: Rule,
        schema: &Schema,
    ) -> Result<Option<(u32, Vec<Violation>)>, SchemasError> {
        let Rule { demand: Demand { compat, transitive }, policy } = rule;
        if compat == Compat::None {
            return Ok(None);
        }
        let count = if transitive { head.versions.len() } else { 1 };
        let share = TRANSITIVE_BUDGETS * BUDGET.steps / (count as u64).max(1);
        let budget = Budget { steps: BUDGET.steps.min(share), ..BUDGET };
        for known in head.versions.iter().rev().take(count) {
            let Some(old) = self.known.schema(head, known.version).await? else { continue };
            let new = schema.clone();
            let verdict = work::check(move || {
                let old = parse(&old.text)?;
                Ok::<_, SchemasError>(check_within(
                    &Comparison { old: &old, new: &new, compat, policy },
                    budget,
                ))
            });
            let verdict = verdict.await??;
            if !verdict.is_compatible() {
                return Ok(Some((known.version, verdict.violations().to_vec())));
            }
        }
        Ok(None)
    }

    /// Makes a topic with the settings that the configuration has for it.
    async fn make(&self, topic: &TopicName) -> Result<(), BusError> {
        let change =
            ConfigChange::CreateTopic { name: topic.clone(), config: self.new_topics.config_of(topic) };
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

/// Which version a schema becomes.
enum VersionSlot {
    /// It is a new version.
    New(u32),
    /// It is there already.
    There(u32),
}
