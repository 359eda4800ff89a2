//! Whether versions and upcasters can be registered, before any of them is: a version that is registered stays for good.

use super::register::{Earlier, NewSchema, Registered, VersionSlot};
use super::stored::{Head, VersionHead};
use super::upcast::{Hop, Upcaster};
use super::{Schemas, SchemasError, apart};
use prombus_core::{TopicName, TopicNumber};
use prombus_schema::Violation;

/// What would be there for a topic if all that was tried so far were registered. Nothing of it is.
pub struct Rehearsal<'s> {
    schemas: &'s Schemas,
    topic: TopicName,
    /// With the versions that were tried.
    earlier: Earlier,
}

impl Schemas {
    /// Tries things for a topic one after the other without registering them.
    pub async fn rehearse(&self, topic: &TopicName) -> Result<Rehearsal<'_>, SchemasError> {
        let earlier = self.earlier(self.log.topic(topic).await?.as_ref()).await?;
        Ok(Rehearsal { schemas: self, topic: topic.clone(), earlier })
    }

    /// Why a schema does not follow the earlier ones; nothing if it could be registered. Nothing is registered.
    pub async fn check(&self, topic: &TopicName, new: &NewSchema) -> Result<Vec<Violation>, SchemasError> {
        let mut rehearsal = self.rehearse(topic).await?;
        if apart::why_no_schemas(&*self.log, &*self.documents, topic).await?.is_some() {
            // Whoever may read a topic may not read all that feeds it, so that is not named.
            let why = format!("topic {topic} cannot have schemas, because the hub itself publishes there");
            return Err(SchemasError::Bad(why));
        }
        match rehearsal.add(new).await {
            Ok(_) => Ok(Vec::new()),
            Err(SchemasError::Incompatible { violations, .. }) => Ok(violations),
            Err(error) => Err(error),
        }
    }
}

impl Rehearsal<'_> {
    /// Tries to register a version, as [`Schemas::register`] does.
    pub async fn register(&mut self, new: &NewSchema) -> Result<Registered, SchemasError> {
        let registered = self.add(new).await?;
        let Schemas { log, documents, .. } = self.schemas;
        match apart::why_no_schemas(&**log, &**documents, &self.topic).await? {
            Some(why) if registered.made => Err(SchemasError::Bad(why)),
            _ => Ok(registered),
        }
    }

    async fn add(&mut self, new: &NewSchema) -> Result<Registered, SchemasError> {
        let Self { schemas, topic, earlier } = self;
        let schema = schemas.read(topic, &new.text).await?;
        let version = match schemas.place(topic, earlier, new).await? {
            VersionSlot::There(version) => return Ok(Registered { version, made: false }),
            VersionSlot::New(version) => version,
        };
        schemas.refuse_incompatible(topic, earlier, (new, &schema)).await?;
        // Nothing is stored for a topic that is not there, so its number does not matter.
        let head = earlier.head.get_or_insert_with(|| Head::new(TopicNumber(0)));
        head.versions.push(VersionHead { version, registered_ts: schemas.clock.now_ms() });
        earlier.texts.insert(version, new.text.clone());
        Ok(Registered { version, made: true })
    }

    /// Tries to store an upcaster, as [`Schemas::put_upcaster`] does.
    pub async fn put_upcaster(&self, from: u32, upcaster: &Upcaster) -> Result<(), SchemasError> {
        Hop::compile(upcaster).await?;
        let (topic, head) = (self.topic.clone(), self.earlier.head.as_ref());
        match head.and_then(Head::latest) {
            None => Err(SchemasError::NotFound(topic)),
            Some(_) if head.is_some_and(|head| head.version(from).is_some()) => Ok(()),
            Some(latest) => Err(SchemasError::NoVersion { topic, version: from, latest }),
        }
    }
}
