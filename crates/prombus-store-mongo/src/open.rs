//! Opening a database: what the hub needs of it, and what it makes there itself.

use crate::failure::{code, text};
use crate::head::{CATALOG, Catalog};
use crate::moving::{self, LEASE, MoveLease};
use crate::names::Names;
use crate::primary::Primary;
use crate::rights::{Missing, missing};
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};
use prombus_core::commit::DEFAULT_RESULT_BYTES;
use prombus_core::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// The format of what is stored. A database with a later one is refused.
pub const FORMAT: i64 = 1;
/// The oldest MongoDB that will do, by what it says of its wire protocol, and by its name.
const LEAST_WIRE_VERSION: (i32, &str) = (17, "6.0");
/// What MongoDB answers where there is such a collection already.
const EXISTS: i32 = 48;
/// How often members are heard of, at least, and how long one may take to answer, as parts of the time that commits wait: together,
/// they are less.
const HEARTBEAT_PART: f64 = 0.4;
const ANSWER_PART: f64 = 0.5;
/// The driver takes no less.
const LEAST_HEARTBEAT: Duration = Duration::from_millis(500);
/// How long a commit waits for a database that cannot be reached, unless it is told otherwise.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

/// What can be chosen about a store.
#[derive(Clone)]
pub struct MongoOptions {
    /// `mongodb://host1,host2/database?replicaSet=name`.
    pub url: String,
    /// What the names of all collections begin with.
    pub prefix: String,
    /// What a commit may make: see [`ResultBytes`](prombus_core::ResultBytes).
    pub result_bytes: usize,
    /// How long a commit waits while the database cannot be reached.
    pub wait: Duration,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// How far the clock may be from that of the database; `None` where it does not matter.
    pub most_skew: Option<Duration>,
    /// What the store is opened for.
    pub purpose: Purpose,
}

/// What a store is opened for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// To be used, by any number of hubs.
    Use,
    /// To be moved somewhere else, while no hub uses it.
    MoveFrom,
    /// To be filled from the store of this name with [`Transfer`](prombus_core::Transfer), while no hub uses it.
    FillFrom(String),
}

impl MongoOptions {
    /// The usual choices for a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: String::new(),
            result_bytes: DEFAULT_RESULT_BYTES,
            wait: DEFAULT_WAIT,
            clock: Arc::new(SystemClock),
            most_skew: None,
            purpose: Purpose::Use,
        }
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is none.
    #[error("{0}; use mongodb://host1,host2/database?replicaSet=name")]
    Url(String),
    /// It cannot be reached, or refuses.
    #[error(
        "the database cannot be used: {0}; check that its replica set has a primary, and that the user may read, write, \
         and make collections and indexes in this database"
    )]
    Database(String),
    /// There are no transactions without a replica set.
    #[error(
        "the MongoDB at this address is no member of a replica set, and there are no transactions without one; start it \
         with --replSet, and call rs.initiate() once"
    )]
    NoReplicaSet,
    /// The user may not do what the hub does.
    #[error(
        "the MongoDB user {user} lacks rights in database {database} ({}); give it {}, with db.grantRolesToUser()",
        .actions.join(", "),
        the_roles(.roles)
    )]
    Rights {
        /// The user.
        user: String,
        /// The database.
        database: String,
        /// What it may not do.
        actions: Vec<&'static str>,
        /// The roles that let it.
        roles: Vec<&'static str>,
    },
    /// It is too old.
    #[error("this MongoDB is too old: version {} or later is needed", LEAST_WIRE_VERSION.1)]
    TooOld,
    /// A later version of the hub has written it.
    #[error(
        "the database has format {found}, and this version of prombus knows formats up to {FORMAT}; start a version that is \
         at least as new as the one that wrote it"
    )]
    LaterFormat {
        /// The format that it has.
        found: i64,
    },
    /// The clocks differ.
    #[error(
        "the clock of this machine is {ms} ms from that of the database, more than {most} ms; set both by the same time \
         server"
    )]
    Skew {
        /// By so much.
        ms: u64,
        /// How much it may be.
        most: u64,
    },
    /// Another store is being moved to it.
    #[error(
        "the database holds an unfinished move from {from}; run that `prombus move` again to finish it, or drop the database \
         (with a prefix: its collections with that prefix)"
    )]
    Moving {
        /// What is being moved.
        from: String,
    },
    /// It is to be filled, and holds something already.
    #[error(
        "the database holds topics or collections of a hub already; choose another database, or another prefix"
    )]
    NotEmpty,
    /// It is being moved, or was until a moment ago.
    #[error(
        "`prombus move` uses the database; wait until it has ended (if it was killed, {} s longer)",
        LEASE.as_secs()
    )]
    BeingMoved,
    /// Hubs use it.
    #[error("hubs use the database ({}); stop them first (one that was killed is missed after some seconds)", .0.join(", "))]
    InUse(Vec<String>),
}

fn the_roles(roles: &[&str]) -> String {
    let role = if roles.len() == 1 { "role" } else { "roles" };
    format!("the {role} {} on it", roles.join(" and "))
}

impl From<mongodb::error::Error> for OpenError {
    fn from(error: mongodb::error::Error) -> Self {
        Self::Database(text(&error))
    }
}

/// A database that can be used.
pub struct Opened {
    pub names: Names,
    /// See [`made_id`](crate::event_id::made_id).
    pub salt: u32,
    pub primary: Primary,
    /// Keeps hubs out, where the store is moved.
    pub lease: Option<MoveLease>,
}

/// Connects, checks what there is, and makes what is missing.
pub async fn open(options: &MongoOptions) -> Result<Opened, OpenError> {
    let (db, primary) = connect(options).await?;
    check(&db, options).await?;
    let names = Names::new(db, &options.prefix);
    let lease = moving::admit(&names, &options.purpose).await?;
    let salt = format(&names).await?;
    prepare(&names).await?;
    Ok(Opened { names, salt, primary, lease })
}

/// The database of a URL, and what hears of its primary.
async fn connect(options: &MongoOptions) -> Result<(Database, Primary), OpenError> {
    let bad = |error: mongodb::error::Error| OpenError::Url(text(&error));
    let mut client = ClientOptions::parse(&options.url).await.map_err(bad)?;
    let Some(database) = client.default_database.clone() else {
        return Err(OpenError::Url("the URL names no database".into()));
    };
    // A client's read concern would replace that of snapshots, silently; and only the primary has what was just written.
    client.read_concern = None;
    client.write_concern = None;
    client.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    client.server_selection_timeout = Some(options.wait);
    // What the URL says of these counts.
    client.heartbeat_freq.get_or_insert(options.wait.mul_f64(HEARTBEAT_PART).max(LEAST_HEARTBEAT));
    client.connect_timeout.get_or_insert(options.wait.mul_f64(ANSWER_PART).max(LEAST_HEARTBEAT));
    let primary = Primary::default();
    client.sdam_event_handler = Some(primary.listener());
    client.app_name.get_or_insert_with(|| "prombus".to_owned());
    Ok((Client::with_options(client)?.database(&database), primary))
}

async fn check(db: &Database, options: &MongoOptions) -> Result<(), OpenError> {
    let hello = db.run_command(doc! { "hello": 1 }).await?;
    let is_sharded = hello.get_str("msg").is_ok_and(|message| message == "isdbgrid");
    if !is_sharded && !hello.contains_key("setName") {
        return Err(OpenError::NoReplicaSet);
    }
    if hello.get_i32("maxWireVersion").unwrap_or_default() < LEAST_WIRE_VERSION.0 {
        return Err(OpenError::TooOld);
    }
    let status = db.run_command(doc! { "connectionStatus": 1, "showPrivileges": true }).await?;
    if let Some(Missing { user, actions, roles }) = missing(&status, db.name()) {
        return Err(OpenError::Rights { user, database: db.name().to_owned(), actions, roles });
    }
    if let (Some(most), Ok(theirs)) = (options.most_skew, hello.get_datetime("localTime")) {
        let mine = options.clock.now_ms();
        let ms = mine.abs_diff(u64::try_from(theirs.timestamp_millis()).unwrap_or_default());
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        if ms > most {
            return Err(OpenError::Skew { ms, most });
        }
    }
    Ok(())
}

/// Notes the format where there is none, and checks the one that there is. Gives the salt of ids.
async fn format(names: &Names) -> Result<u32, OpenError> {
    let new = doc! { "$setOnInsert": {
        "version": FORMAT,
        "salt": i64::from(fastrand::u32(..)),
        "prombus": env!("CARGO_PKG_VERSION"),
    } };
    let from = names.meta();
    let format = from.find_one_and_update(doc! { "_id": "format" }, new);
    let format = format.upsert(true).return_document(mongodb::options::ReturnDocument::After).await?;
    let format = format.unwrap_or_default();
    let found = format.get_i64("version").unwrap_or_default();
    if found > FORMAT {
        return Err(OpenError::LaterFormat { found });
    }
    Ok(format.get_i64("salt").unwrap_or_default() as u32)
}

/// Makes the collections and indexes that are missing.
async fn prepare(names: &Names) -> Result<(), OpenError> {
    let there = names.db().list_collection_names().await?;
    let plain = ["heads", "collections", "cursors", "trash", "claims", "hubs"].map(|what| names.name(what));
    for name in plain.iter().filter(|name| !there.contains(name)) {
        match names.db().create_collection(name).await {
            Err(error) if code(&error) == Some(EXISTS) => {}
            made => made?,
        }
    }
    let by_key = doc! {
        "name": "key", "key": { "key": 1, "_id": 1 }, "partialFilterExpression": { "key": { "$exists": true } },
    };
    let by_id = doc! { "name": "own_id", "key": { "id": 1 }, "partialFilterExpression": { "own_id": true } };
    index(names, "events", vec![by_key, by_id]).await?;
    let expiry = doc! { "name": "expires", "key": { "expires": 1 }, "expireAfterSeconds": 0 };
    index(names, "ids", vec![expiry]).await?;
    let by_change = doc! { "name": "at", "key": { "at": 1 } };
    index(names, "claims", vec![by_change]).await?;
    let catalog = Catalog::default().to_document();
    let new = doc! { "$setOnInsert": catalog };
    names.meta().update_one(doc! { "_id": CATALOG }, new).upsert(true).await?;
    Ok(())
}

async fn index(names: &Names, collection: &str, indexes: Vec<Document>) -> Result<(), OpenError> {
    let command = doc! {
        "createIndexes": names.name(collection),
        "indexes": indexes,
        "writeConcern": { "w": "majority" },
    };
    names.db().run_command(command).await?;
    Ok(())
}
