//! Which projections there are: made, changed and deleted, each with all that is stored of it in one commit.

use super::super::actor::Setup;
use super::super::batch::{Code, Projector};
use super::super::stored::{self, Record, shadow};
use super::super::{DEFAULT_RETRIES, Definition, Plan, Project, ProjectionError, ProjectionStatus};
use super::{Ended, Projections, collections_of};
use crate::collections::{CollectionSettings, check_indexes};
use crate::retry::Tries;
use prombus_core::collection::{self, CollectionConfig};
use prombus_core::{Commit, ConfigChange, CursorMove, Epoch, Owner, ReadError, TopicName};
use std::future::Future;
use std::sync::Arc;
use tokio::task::JoinError;

/// The most projections of a hub.
const MAX_PROJECTIONS: usize = 1_000;
/// The longest name of a projection, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A projection in Rust, and what it reads and writes.
pub struct CodeSetup {
    /// The topic whose events it takes.
    pub topic: TopicName,
    /// The collections that it writes.
    pub collections: Vec<(String, CollectionSettings)>,
    /// What it does.
    pub project: Arc<dyn Project>,
}

/// What a projection is and owns, for whoever decides if it may be changed.
#[derive(Debug, Clone)]
pub struct Holdings {
    /// What it is.
    pub definition: Definition,
    /// The collections that it writes.
    pub collections: Vec<Arc<str>>,
    /// Collections that only its earlier definitions wrote. They go when it is deleted or rebuilt.
    pub left_behind: Vec<Arc<str>>,
}

impl Holdings {
    fn new(setup: &Setup, owned: &[Arc<str>]) -> Self {
        let collections: Vec<Arc<str>> = setup.collections.iter().map(|(name, _)| name.clone()).collect();
        let is_left = |name: &&Arc<str>| !collection::is_internal(name) && !collections.contains(name);
        let left_behind = owned.iter().filter(is_left).cloned().collect();
        Self { definition: setup.record.definition.clone(), collections, left_behind }
    }
}

impl Projections {
    /// Makes a projection, or changes it. Says whether it was made.
    pub async fn put(
        self: &Arc<Self>,
        name: &str,
        definition: Definition,
    ) -> Result<(ProjectionStatus, bool), ProjectionError> {
        self.put_if(name, definition, |_| Ok(())).await
    }

    /// The same, if `may_change` takes what the projection is before, if it is there. It is asked twice: before what takes
    /// long, and where nothing changes meanwhile.
    pub async fn put_if<E: From<ProjectionError> + Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        definition: Definition,
        may_change: impl Fn(Option<&Holdings>) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(ProjectionStatus, bool), E> {
        may_change(self.holdings(name).await?.as_ref())?;
        let plan = self.compile(name, &definition).await?;
        let (this, name) = (self.clone(), name.to_owned());
        to_its_end(async move {
            let _changing = this.turn().await?;
            may_change(this.holdings(&name).await?.as_ref())?;
            Ok(this.put_compiled(&name, definition, plan).await?)
        })
        .await
    }

    /// What a projection is and owns, if it is there.
    pub(super) async fn holdings(&self, name: &str) -> Result<Option<Holdings>, ProjectionError> {
        let setup = self.running.lock().get(name).map(|handle| {
            let mut setup = handle.setup.clone();
            setup.record = handle.record.borrow().clone();
            setup
        });
        let Some(setup) = setup else { return Ok(None) };
        Ok(Some(Holdings::new(&setup, &stored::owned_by(&*self.hub.documents, name).await?)))
    }

    async fn compile(&self, name: &str, definition: &Definition) -> Result<Plan, ProjectionError> {
        check_name(name)?;
        // One that an earlier build has stored may be larger.
        if self.record(name).is_none_or(|before| before.definition != *definition) {
            definition.check_size()?;
        }
        let plan = Plan::compile_in_turn(name, definition).await?;
        if definition.normalize
            && let Some(topic) = self.hub.log.topic(&definition.topic).await?
        {
            self.hub.raisers.of(&topic).await?;
        }
        Ok(plan)
    }

    /// Whoever calls this has the turn.
    async fn put_compiled(
        &self,
        name: &str,
        definition: Definition,
        plan: Plan,
    ) -> Result<(ProjectionStatus, bool), ProjectionError> {
        let before = self.record(name);
        let is_halted = self.running.lock().get(name).is_some_and(|handle| handle.setup.halted().is_some());
        let snapshots = self.snapshot_flows().await?;
        let circle = self.circle(name, (&definition.topic, &plan.collections), &snapshots);
        // One that stands still for a circle goes on once that is gone.
        if before.as_ref().is_some_and(|before| before.definition == definition)
            && (!is_halted || circle.is_some())
        {
            return Ok((self.status(name).await?, false));
        }
        if let Some(circle) = circle {
            return Err(ProjectionError::Bad(circle));
        }
        if self.running.lock().get(name).is_some_and(|handle| !handle.is_stored) {
            let message = format!("projection {name:?} is part of the program and cannot be redefined");
            return Err(ProjectionError::Bad(message));
        }
        if before.is_none() && self.running.lock().len() >= MAX_PROJECTIONS {
            let message = format!("there are {MAX_PROJECTIONS} projections, which is the maximum");
            return Err(ProjectionError::Bad(message));
        }
        // Nothing is under way by the old definition when the new one is stored.
        let ended = self.end(name).await;
        match self.redefine(name, ended.as_ref().map(|ended| &ended.setup.record), (definition, &plan)).await
        {
            Ok(record) => {
                self.run(name, setup_of(record, plan), true);
                Ok((self.status(name).await?, before.is_none()))
            }
            Err(error) => {
                if let Some(Ended { setup, is_stored }) = ended {
                    self.run(name, setup, is_stored);
                }
                Err(error)
            }
        }
    }

    /// Stores what a projection is from now on.
    async fn redefine(
        &self,
        name: &str,
        before: Option<&Record>,
        (definition, plan): (Definition, &Plan),
    ) -> Result<Record, ProjectionError> {
        let record = match before {
            None => Record::new(definition),
            Some(before) => {
                let moves = self.moves(&before.definition.topic, name).await?;
                match moves == 0 && self.is_empty(name).await? {
                    true => Record::new(definition),
                    false => before.redefined(definition, moves),
                }
            }
        };
        self.store(name, before, (&record, plan)).await?;
        Ok(record)
    }

    /// How often the cursors of a projection have moved; 0 while it has done nothing.
    async fn moves(&self, topic: &TopicName, name: &str) -> Result<u64, ProjectionError> {
        let moves = stored::without_cursors(&*self.hub.log, topic, name, false).await?;
        Ok(moves.iter().map(|cursor| cursor.expect_version).sum())
    }

    /// Whether no collection of a projection has a document.
    async fn is_empty(&self, name: &str) -> Result<bool, ProjectionError> {
        let all = self.hub.documents.collections().await?;
        let mut owned = all.iter().filter(|state| state.config.owner.as_projection() == Some(name));
        Ok(owned.all(|state| state.documents == 0))
    }

    /// Runs a projection in Rust for as long as this hub does, from where it was when it last ran.
    pub async fn run_code(&self, name: &str, code: CodeSetup) -> Result<(), ProjectionError> {
        check_name(name)?;
        let _changing = self.turn().await?;
        if self.running.lock().contains_key(name) {
            return Err(ProjectionError::Bad(format!("projection {name:?} already exists")));
        }
        let owner = Owner::projection(name);
        let mut collections = Vec::new();
        for (collection, settings) in code.collections {
            let collection = collection::check_name(&collection)
                .map_err(|error| ProjectionError::Bad(error.to_string()))?;
            let CollectionSettings { indexes, changefeed } = settings;
            check_indexes(&indexes).map_err(ProjectionError::Bad)?;
            if let Some(feed) = changefeed.as_ref().filter(|feed| feed.is_internal()) {
                let message = format!("changefeed {feed} is a topic of the hub's own");
                return Err(ProjectionError::Bad(message));
            }
            collections.push((collection, CollectionConfig { owner: owner.clone(), indexes, changefeed }));
        }
        let snapshots = self.snapshot_flows().await?;
        if let Some(circle) = self.circle(name, (&code.topic, &collections), &snapshots) {
            return Err(ProjectionError::Bad(circle));
        }
        // A rebuild does not outlive the program that it was begun by.
        let shadows = collections.iter().map(|(name, _)| name.clone()).chain([stored::failures_of(name)]);
        let shadows = shadows.map(|name| ConfigChange::DropCollection { name: shadow(&name) });
        let cursors = self.without_cursors(&code.topic, name, true).await?;
        let commit = Commit { config: shadows.collect(), cursors, ..Commit::by_hub() };
        self.commit_collections(&collections, commit).await?;
        let projector = Projector::Code(Arc::new(Code {
            project: code.project,
            owner,
            collections: collections.iter().map(|(name, _)| name.clone()).collect(),
            retries: DEFAULT_RETRIES,
        }));
        let record = Record::new(Definition::in_code(code.topic));
        self.run(name, Setup::new(record, Some(projector), collections), false);
        Ok(())
    }

    /// Stores what a projection is, and makes its collections.
    async fn store(
        &self,
        name: &str,
        before: Option<&Record>,
        (record, plan): (&Record, &Plan),
    ) -> Result<(), ProjectionError> {
        let mut commit = Commit { documents: vec![stored::write(name, Some(record))], ..Commit::by_hub() };
        if let Some(before) = before {
            let shadows = collections_of(&before.definition);
            let shadows = shadows.chain([stored::failures_of(name)]);
            commit.config.extend(shadows.map(|name| ConfigChange::DropCollection { name: shadow(&name) }));
            let topic = &before.definition.topic;
            commit.cursors.extend(self.without_cursors(topic, name, true).await?);
            if *topic != record.definition.topic {
                // What failed there says nothing of what is read from now on.
                commit.config.push(ConfigChange::DropCollection { name: stored::failures_of(name) });
                commit.cursors.extend(self.without_cursors(topic, name, false).await?);
            }
        }
        self.commit_collections(&plan.collections, commit).await
    }

    /// Makes collections or changes their settings, and whatever else the commit has.
    async fn commit_collections(
        &self,
        collections: &[(Arc<str>, CollectionConfig)],
        commit: Commit,
    ) -> Result<(), ProjectionError> {
        let mut tries = Tries::default();
        loop {
            let mut commit = commit.clone();
            for (name, config) in collections {
                let now = self.hub.documents.collection(name).await?;
                if let Some(now) = now.as_ref().filter(|now| now.config.owner != config.owner) {
                    let owner = match now.config.owner.as_projection() {
                        Some(projection) => format!("projection {projection:?}"),
                        None => "commits".to_owned(),
                    };
                    return Err(ProjectionError::NotOwner { collection: name.to_string(), owner });
                }
                if now.as_ref().is_none_or(|now| *now.config != *config) {
                    let (name, config) = (name.clone(), config.clone());
                    let expect_revision = now.map_or(0, |now| now.revision);
                    commit.config.push(ConfigChange::PutCollection { name, expect_revision, config });
                }
            }
            match self.hub.bus.commit(Arc::new(commit)).await {
                Err(error) => tries.again(error).await?,
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Ends a projection and removes its collections.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), ProjectionError> {
        self.delete_if(name, |_| Ok(())).await
    }

    /// The same, if `may_delete` takes all that goes with it. It is asked where nothing changes meanwhile.
    pub async fn delete_if<E: From<ProjectionError> + Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        may_delete: impl Fn(&Holdings) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<(), E> {
        let (this, name) = (self.clone(), name.to_owned());
        to_its_end(async move { this.delete_now(&name, &may_delete).await }).await
    }

    async fn delete_now<E: From<ProjectionError>>(
        &self,
        name: &str,
        may_delete: &(impl Fn(&Holdings) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        let _changing = self.turn().await?;
        let not_found = || ProjectionError::NotFound(name.to_owned());
        // Before it is ended: nobody stops it who may not delete it.
        may_delete(&self.holdings(name).await?.ok_or_else(not_found)?)?;
        let ended = self.end(name).await.ok_or_else(not_found)?;
        let forgotten = self.forget(name, &ended.setup, may_delete).await;
        if forgotten.is_err() {
            self.run(name, ended.setup, ended.is_stored);
        }
        forgotten
    }

    /// What removes the cursors of a projection, or of its rebuild: under the claim on their topic where that is at home
    /// here. A definition can be changed on any hub; elsewhere, they go in the epoch in which the other hub has left them.
    async fn without_cursors(
        &self,
        topic: &TopicName,
        name: &str,
        rebuild: bool,
    ) -> Result<Vec<CursorMove>, ReadError> {
        let mut moves = stored::without_cursors(&*self.hub.log, topic, name, rebuild).await?;
        let Some(latest) = moves.iter().map(|step| step.epoch.0).max() else { return Ok(moves) };
        if let Ok(home) = self.hub.claims.home(topic, Epoch(latest.saturating_sub(1))).await {
            moves.iter_mut().for_each(|step| step.epoch = home.epoch());
        }
        Ok(moves)
    }

    /// Removes all that is stored of a projection that does not run.
    async fn forget<E: From<ProjectionError>>(
        &self,
        name: &str,
        setup: &Setup,
        may_delete: &(impl Fn(&Holdings) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        let read = |error: ReadError| ProjectionError::from(error);
        let mut tries = Tries::default();
        loop {
            // Those that an earlier definition wrote, too.
            let owned = stored::owned_by(&*self.hub.documents, name).await.map_err(read)?;
            // Another hub may have defined it anew since.
            may_delete(&Holdings::new(setup, &owned))?;
            let mut cursors = Vec::new();
            for topic in
                stored::topics_of(&*self.hub.log, &setup.record.definition.topic).await.map_err(read)?
            {
                cursors.extend(self.without_cursors(&topic, name, false).await.map_err(read)?);
                cursors.extend(self.without_cursors(&topic, name, true).await.map_err(read)?);
            }
            let commit = Commit {
                config: owned.into_iter().map(|name| ConfigChange::DropCollection { name }).collect(),
                documents: vec![stored::write(name, None)],
                cursors,
                ..Commit::by_hub()
            };
            match self.hub.bus.commit(Arc::new(commit)).await {
                Err(error) => tries.again(error).await.map_err(ProjectionError::from)?,
                Ok(_) => return Ok(()),
            }
        }
    }
}

/// Does what must not end half way, even where nobody waits for it any more.
async fn to_its_end<T: Send + 'static, E: From<ProjectionError> + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    let given_up =
        |error: JoinError| Err(ProjectionError::from(ReadError::Unavailable(error.to_string())).into());
    tokio::spawn(work).await.unwrap_or_else(given_up)
}

pub(in super::super) fn check_name(name: &str) -> Result<(), ProjectionError> {
    let fits = name.len() <= MAX_NAME_BYTES && TopicName::parse(name).is_ok();
    fits.then_some(()).ok_or_else(|| {
        ProjectionError::Bad(format!(
            "{name:?} is not a projection name: use dot-separated segments of a-z, 0-9, _ and -, {MAX_NAME_BYTES} bytes at most"
        ))
    })
}

fn setup_of(record: Record, plan: Plan) -> Setup {
    let collections = plan.collections.clone();
    Setup::new(record, Some(Projector::Plan(Arc::new(plan))), collections)
}
