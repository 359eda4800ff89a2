//! A definition, compiled: from an event to the writes that it makes, as a pure function.

use super::definition::{Definition, SetDefinition, WriteDefinition};
use super::expression::{Compiler, Expression, Facts, body_of};
use super::{MAX_RETRIES, ProjectionError};
use crate::collections::check_indexes;
use crate::filter::{self, Failure, Probation};
use prombus_core::collection::{self, CollectionConfig, Index, MAX_KEY_BYTES};
use prombus_core::fields::Field;
use prombus_core::{DocumentWrite, Event, Owner, TopicName, Versioning, WriteOp, document};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most writes of a transactional projection.
const MAX_WRITES: usize = 64;

/// A projection that can be asked what an event does. Nothing but the event decides that.
#[derive(Clone)]
pub struct Plan {
    owner: Owner,
    rule: Rule,
    is_written_costly: bool,
    /// Clones apply the same expressions to the same topic, so they share it.
    probation: Arc<Probation>,
    /// The collections, and what they are set to.
    pub(super) collections: Vec<(Arc<str>, CollectionConfig)>,
    /// How often an event that fails is tried again.
    pub(super) retries: u32,
    /// Whether it takes events as those of the latest version of the topic's schema.
    pub(super) normalize: bool,
}

#[derive(Clone)]
enum Rule {
    Changelog(Box<Changelog>),
    Transaction(Vec<Write>),
}

#[derive(Clone)]
struct Changelog {
    collection: Arc<str>,
    key: Expression,
    content: Content,
    tombstone: Option<Expression>,
    version: Option<Expression>,
}

#[derive(Clone)]
enum Content {
    Payload,
    Fields(Vec<String>),
    Map(Expression),
}

#[derive(Clone)]
struct Write {
    collection: Arc<str>,
    key: Expression,
    when: Option<Expression>,
    delete: Option<Expression>,
    kind: WriteKind,
}

#[derive(Clone)]
enum WriteKind {
    Set(Expression),
    Merge(Expression),
    Update { set: Vec<(String, Expression)>, inc: Vec<(String, Expression)> },
    Delete,
}

fn bad(message: impl Into<String>) -> ProjectionError {
    ProjectionError::Bad(message.into())
}

impl Plan {
    /// Compiles a definition, and blocks until that is done: for those who have no runtime.
    pub fn compile(name: &str, definition: &Definition) -> Result<Self, ProjectionError> {
        filter::wait(Self::compile_in_turn(name, definition))
    }

    /// Compiles a definition, in turn with others.
    pub(super) async fn compile_in_turn(
        name: &str,
        definition: &Definition,
    ) -> Result<Self, ProjectionError> {
        let owner = Owner::projection(name);
        let collections = Self::collections(&owner, definition)?;
        let retries = definition.retries.unwrap_or(super::DEFAULT_RETRIES);
        let mut compiler = Compiler::default();
        let rule = match &definition.collection {
            Some(collection) => {
                let compiled = changelog(&mut compiler, definition, collection.as_str().into()).await?;
                Rule::Changelog(Box::new(compiled))
            }
            None => {
                let mut compiled = Vec::new();
                for (n, write) in definition.write.iter().enumerate() {
                    compiled.push(transaction(&mut compiler, &format!("write[{n}]"), write).await?);
                }
                Rule::Transaction(compiled)
            }
        };
        let (is_written_costly, probation) = (compiler.is_costly(), Arc::default());
        let normalize = definition.normalize;
        Ok(Self { owner, rule, is_written_costly, probation, collections, retries, normalize })
    }

    /// The collections of a definition, and what they are set to. It may still have expressions that do not compile, which takes
    /// far longer to find out.
    pub(super) fn collections(
        owner: &Owner,
        definition: &Definition,
    ) -> Result<Vec<(Arc<str>, CollectionConfig)>, ProjectionError> {
        if definition.retries.is_some_and(|retries| retries > MAX_RETRIES) {
            return Err(bad(format!("retries must be at most {MAX_RETRIES}")));
        }
        if definition.topic.is_internal() && definition.topic.dead_letters().is_none() {
            return Err(bad("the name of the topic is too long for its dead letters"));
        }
        let mut collections = Vec::new();
        match (&definition.collection, &definition.write[..]) {
            (Some(_), [_, ..]) => {
                return Err(bad(
                    "a projection has a collection (changelog) or writes (transactional), not both",
                ));
            }
            (None, []) => {
                return Err(bad(
                    "a projection needs a collection (changelog) or at least one write (transactional)",
                ));
            }
            (Some(collection), []) => {
                let config = Settings::of(definition.indexes.iter(), &definition.changefeed);
                config.add(collection, definition, owner, &mut collections)?;
            }
            (None, writes) => {
                refuse_changelog_fields(definition)?;
                if writes.len() > MAX_WRITES {
                    return Err(bad(format!("a projection has at most {MAX_WRITES} writes")));
                }
                for write in writes {
                    let config = Settings::of(write.indexes.iter(), &write.changefeed);
                    config.add(&write.collection, definition, owner, &mut collections)?;
                }
            }
        }
        Ok(collections)
    }

    /// Whether to apply it may take long, by what it does or by how long it has taken.
    pub fn is_costly(&self) -> bool {
        self.is_written_costly || self.probation.is_slow()
    }

    /// Whether each event writes one document, which depends on no other event but for its version.
    pub fn is_changelog(&self) -> bool {
        matches!(self.rule, Rule::Changelog(_))
    }

    /// Whether what it writes may be refused because of other documents.
    pub(super) fn has_unique_index(&self) -> bool {
        self.collections.iter().any(|(_, config)| config.indexes.iter().any(|index| index.unique))
    }

    /// Whether an event may write a document with another key than its own.
    pub(crate) fn may_write_other_keys(&self) -> bool {
        match &self.rule {
            Rule::Changelog(changelog) => !changelog.key.is_event_key(),
            Rule::Transaction(_) => true,
        }
    }

    /// Whether an event of a changelog is about a document with another key than its own. That goes by the expression of the
    /// key alone: an event that fails may be applied by another definition, which has the same.
    pub(super) fn is_about_other_key(&self, event: &Event, writes: Option<&[DocumentWrite]>) -> bool {
        let Rule::Changelog(changelog) = &self.rule else { return false };
        // A tombstone is about its own key.
        if changelog.key.is_event_key() || event.payload.is_null() {
            return false;
        }
        match writes.and_then(<[_]>::first) {
            Some(write) => event.key.as_deref() != Some(&*write.key),
            None => {
                let key = Facts::of(event).and_then(|facts| changelog.key.key(&facts));
                key.is_ok_and(|key| event.key.as_deref() != Some(&*key))
            }
        }
    }

    /// Applies it to a batch, and takes note of how long that took. `work` also says to how many events it was applied.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> (T, usize)) -> T {
        self.probation.time(work)
    }

    /// The writes that an event makes, or why it makes none.
    pub fn apply(&self, event: &Event) -> Result<Vec<DocumentWrite>, String> {
        let facts = Facts::of(event)?;
        match &self.rule {
            Rule::Changelog(changelog) => {
                let (key, op, versioning) = changelog.apply(&facts)?;
                Ok(vec![self.write(&changelog.collection, key, op, (versioning, event))?])
            }
            Rule::Transaction(writes) => {
                let mut all = Vec::with_capacity(writes.len());
                for write in writes {
                    if let Some((key, op)) = write.apply(&facts)? {
                        // What is made until then is in memory, and bounded by what all of it may cost.
                        all.push(self.write(&write.collection, key, op, (Versioning::None, event))?);
                    }
                }
                Ok(all)
            }
        }
    }

    fn write(
        &self,
        collection: &Arc<str>,
        key: String,
        op: WriteOp,
        (versioning, event): (Versioning, &Event),
    ) -> Result<DocumentWrite, String> {
        if key.len() > MAX_KEY_BYTES {
            return Err(format!("the key is {} bytes long; {MAX_KEY_BYTES} are allowed", key.len()));
        }
        Ok(DocumentWrite {
            collection: collection.clone(),
            owner: self.owner.clone(),
            key,
            op,
            versioning,
            if_version: None,
            ts: event.ts,
            cause: Some(event.id),
        })
    }
}

/// What a definition says of a collection.
struct Settings {
    indexes: Vec<Index>,
    changefeed: Option<TopicName>,
}

impl Settings {
    fn of<'a>(
        indexes: impl Iterator<Item = &'a super::IndexDefinition>,
        changefeed: &Option<TopicName>,
    ) -> Self {
        Self { indexes: indexes.map(super::IndexDefinition::index).collect(), changefeed: changefeed.clone() }
    }

    /// Adds them to what is known of the collection; several writes may be about the same.
    fn add(
        self,
        name: &str,
        definition: &Definition,
        owner: &Owner,
        collections: &mut Vec<(Arc<str>, CollectionConfig)>,
    ) -> Result<(), ProjectionError> {
        let name = collection::check_name(name).map_err(|error| bad(error.to_string()))?;
        if let Some(feed) = &self.changefeed {
            if feed.is_internal() {
                return Err(bad(format!("changefeed {feed} is a topic of the hub's own")));
            }
            if *feed == definition.topic {
                return Err(bad(format!(
                    "changefeed {feed} is the topic that the projection reads: it would feed itself"
                )));
            }
        }
        let known = collections.iter().position(|(known, _)| *known == name);
        let at = known.unwrap_or_else(|| {
            let config = CollectionConfig { owner: owner.clone(), ..CollectionConfig::default() };
            collections.push((name.clone(), config));
            collections.len() - 1
        });
        let config = &mut collections[at].1;
        if config.changefeed.is_some() && self.changefeed.is_some() && config.changefeed != self.changefeed {
            return Err(bad(format!("collection {name} has two changefeeds")));
        }
        config.changefeed = config.changefeed.take().or(self.changefeed);
        // Several writes to a collection may each say the same of it.
        let before = config.indexes.clone();
        config.indexes.extend(self.indexes.into_iter().filter(|index| !before.contains(index)));
        check_indexes(&config.indexes).map_err(bad)
    }
}

async fn optional(
    compiler: &mut Compiler,
    place: &str,
    source: &Option<String>,
) -> Result<Option<Expression>, ProjectionError> {
    match source {
        Some(source) => compiler.compile(place, source).await.map(Some),
        None => Ok(None),
    }
}

async fn fields(
    compiler: &mut Compiler,
    place: &str,
    table: &BTreeMap<String, String>,
) -> Result<Vec<(String, Expression)>, ProjectionError> {
    let mut fields = Vec::new();
    for (name, source) in table {
        if document::RESERVED.contains(&name.as_str()) {
            return Err(bad(format!("{place}: {name:?} is set by the hub itself")));
        }
        fields.push((name.clone(), compiler.compile(&format!("{place}.{name}"), source).await?));
    }
    Ok(fields)
}

async fn changelog(
    compiler: &mut Compiler,
    definition: &Definition,
    collection: Arc<str>,
) -> Result<Changelog, ProjectionError> {
    let content = match (&definition.fields, &definition.map) {
        (Some(_), Some(_)) => return Err(bad("a projection has fields or a map, not both")),
        (Some(fields), None) => {
            if let Some(name) = fields.iter().find(|name| document::RESERVED.contains(&name.as_str())) {
                return Err(bad(format!("fields: {name:?} is set by the hub itself")));
            }
            // In the order in which a document has them.
            Content::Fields(fields.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect())
        }
        (None, Some(map)) => Content::Map(compiler.compile("map", map).await?),
        (None, None) => Content::Payload,
    };
    let Some(key) = &definition.key else {
        return Err(bad("a changelog needs a key, such as \"event.key\""));
    };
    Ok(Changelog {
        collection,
        key: compiler.compile("key", key).await?,
        content,
        tombstone: optional(compiler, "tombstone", &definition.tombstone).await?,
        version: optional(compiler, "version", &definition.version).await?,
    })
}

fn refuse_changelog_fields(definition: &Definition) -> Result<(), ProjectionError> {
    let given = [
        ("key", definition.key.is_some()),
        ("fields", definition.fields.is_some()),
        ("map", definition.map.is_some()),
        ("tombstone", definition.tombstone.is_some()),
        ("version", definition.version.is_some()),
        ("indexes", !definition.indexes.is_empty()),
        ("changefeed", definition.changefeed.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(bad(format!("{name} goes into each write of a transactional projection"))),
        None => Ok(()),
    }
}

async fn transaction(
    compiler: &mut Compiler,
    place: &str,
    write: &WriteDefinition,
) -> Result<Write, ProjectionError> {
    let at = |field: &str| format!("{place}.{field}");
    // A mistake in it is told before one in what it goes with.
    let (whole, table) = match &write.set {
        Some(SetDefinition::Whole(source)) => (Some(compiler.compile(&at("set"), source).await?), None),
        Some(SetDefinition::Fields(table)) => (None, Some(table)),
        None => (None, None),
    };
    let kind = match (whole, table, &write.merge, &write.inc) {
        (None, None, None, inc) if inc.is_empty() => {
            if write.delete.is_none() {
                return Err(bad(format!("{place} does nothing: give it set, merge, inc or delete")));
            }
            WriteKind::Delete
        }
        (Some(whole), None, None, inc) if inc.is_empty() => WriteKind::Set(whole),
        (None, None, Some(source), inc) if inc.is_empty() => {
            WriteKind::Merge(compiler.compile(&at("merge"), source).await?)
        }
        (None, table, None, inc) => {
            let set = match table {
                Some(table) => fields(compiler, &at("set"), table).await?,
                None => Vec::new(),
            };
            WriteKind::Update { set, inc: fields(compiler, &at("inc"), inc).await? }
        }
        _ => {
            return Err(bad(format!(
                "{place}: the whole document (set) or a merge goes alone; a table of fields (set) may go with inc"
            )));
        }
    };
    Ok(Write {
        collection: write.collection.as_str().into(),
        key: compiler.compile(&at("key"), &write.key).await?,
        when: optional(compiler, &at("when"), &write.when).await?,
        delete: optional(compiler, &at("delete"), &write.delete).await?,
        kind,
    })
}

/// Whether an expression holds, where there is one.
fn holds(expression: Option<&Expression>, facts: &Facts<'_>) -> Result<Option<bool>, String> {
    expression.map(|expression| expression.holds(facts)).transpose()
}

impl Changelog {
    fn apply(&self, facts: &Facts<'_>) -> Result<(String, WriteOp, Versioning), String> {
        if facts.event().payload.is_null() {
            let key = facts.event().key.as_ref().ok_or("the event has neither key nor payload")?;
            return Ok((key.to_string(), WriteOp::Delete, Versioning::None));
        }
        let key = self.key.key(facts)?;
        let is_marked = facts.field("_deleted").map(Field::text) == Some("true");
        let gone = is_marked || holds(self.tombstone.as_ref(), facts)?.unwrap_or(false);
        let versioning = match &self.version {
            None => Versioning::None,
            Some(version) => match version.value(facts) {
                Ok(Value::Number(n)) if n.is_i64() => Versioning::Newer(n.as_i64().unwrap_or_default()),
                Ok(other) => return Err(format!("the version must be an integer, not {other}")),
                // What is gone need not say in which version.
                Err(Failure::Unfit(_)) if gone => Versioning::None,
                Err(failure) => return Err(failure.to_string()),
            },
        };
        if gone {
            return Ok((key, WriteOp::Delete, versioning));
        }
        let object = match &self.content {
            Content::Map(map) => map.object(facts)?,
            Content::Payload => body_of(facts.fields()?.iter())?,
            Content::Fields(names) => {
                let fields = facts.fields()?;
                body_of(names.iter().filter_map(|name| fields.get(name)))?
            }
        };
        Ok((key, WriteOp::Set(object), versioning))
    }
}

impl Write {
    fn apply(&self, facts: &Facts<'_>) -> Result<Option<(String, WriteOp)>, String> {
        if !holds(self.when.as_ref(), facts)?.unwrap_or(true) {
            return Ok(None);
        }
        let deleted = holds(self.delete.as_ref(), facts)?.unwrap_or(false);
        if !deleted && matches!(self.kind, WriteKind::Delete) {
            return Ok(None);
        }
        let key = self.key.key(facts)?;
        if deleted {
            return Ok(Some((key, WriteOp::Delete)));
        }
        let fields = |table: &[(String, Expression)], adapt: fn(&mut Value)| {
            let value = |(name, expression): &(String, Expression)| {
                let mut value = expression.value(facts).map_err(|failure| failure.to_string())?;
                adapt(&mut value);
                Ok((name.clone(), value))
            };
            table.iter().map(value).collect::<Result<Map<_, _>, String>>()
        };
        let op = match &self.kind {
            WriteKind::Set(whole) => WriteOp::Set(whole.object(facts)?),
            WriteKind::Merge(patch) => WriteOp::Merge(patch.object(facts)?),
            WriteKind::Update { set, inc } => WriteOp::Update {
                set: fields(set, document::normalize)?,
                // An integer that is too great for a document is still added as one, or refused.
                inc: fields(inc, |_| {})?,
            },
            WriteKind::Delete => return Ok(None),
        };
        Ok(Some((key, op)))
    }
}
