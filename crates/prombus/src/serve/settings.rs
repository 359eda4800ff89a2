//! The effective settings: flags override environment variables, and those override the file.

use super::{LogFormat, LogLevel, ServeArgs};
use crate::config::{Collection, ConfigFile, Projection, Topics};
use crate::failure::Failure;
use prombus_engine::Limits;
use prombus_engine::schemas::Rule;
use prombus_server::{GatewayOptions, TlsFiles};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Says how much is logged.
pub const LOG_VARIABLE: &str = "PROMBUS_LOG";
const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
const DEFAULT_DATA: &str = "./data";
const DEFAULT_CONFIG: &str = "prombus.toml";

/// Everything that is settled before the hub starts.
#[derive(Debug)]
pub struct Settings {
    pub listen: String,
    pub insecure: bool,
    pub store: StoreChoice,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
    pub limits: Limits,
    /// The most that a commit may make, in bytes.
    pub result_bytes: usize,
    /// How long to wait between two cleaning passes.
    pub clean_every: Duration,
    /// How long commits and reads wait for a database that does not answer; `None` for the usual time.
    pub store_wait: Option<Duration>,
    pub topics: Topics,
    /// Collections that commits write, by name.
    pub collections: BTreeMap<String, Collection>,
    pub projections: Vec<Projection>,
    /// The folder of schemas, if there is one.
    pub schemas: Option<SchemaFolder>,
    /// How the hub can be reached.
    pub gateway: GatewayOptions,
}

/// A folder of schemas that are registered at startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFolder {
    /// The folder.
    pub dir: PathBuf,
    /// How versions that are new have to follow the earlier ones.
    pub rule: Rule,
}

/// Where events are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChoice {
    /// Nowhere that lasts.
    Memory,
    /// In a folder.
    Disk {
        /// The folder.
        dir: PathBuf,
        /// The size of a part of the journal, unless it is the usual one.
        part_bytes: Option<u64>,
        /// How many bytes a second are read and written at most to give space back, unless it is the usual number.
        rewrite_bytes_per_s: Option<u64>,
    },
    /// In a MongoDB database.
    MongoDb {
        /// Where the database is, in which one.
        url: String,
        /// What the names of all collections begin with.
        prefix: String,
    },
}

impl StoreChoice {
    /// Whether several hubs can use the same store.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::MongoDb { .. } => true,
            Self::Memory | Self::Disk { .. } => false,
        }
    }
}

/// The environment that settings are taken from.
pub struct Environment {
    /// The value of an environment variable; one that is empty counts as not set.
    pub variable: fn(&str) -> Option<String>,
    /// The folder in which a configuration file is looked for that nobody named.
    pub folder: PathBuf,
}

impl Environment {
    /// That of this process.
    pub fn real() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { variable, folder: PathBuf::from(".") }
    }
}

impl Settings {
    /// Settles everything.
    pub fn resolve(flags: &ServeArgs, environment: &Environment) -> Result<Self, Failure> {
        let variable = environment.variable;
        let (path, file) = read_file(flags, environment)?;
        let first = |flag: &Option<String>, name: &str, file: &Option<String>| {
            flag.clone().or_else(|| variable(name)).or_else(|| file.clone())
        };
        let log_format = first(&flags.log_format, "PROMBUS_LOG_FORMAT", &file.log.format);
        let log_format = log_format.as_deref().map_or(Ok(LogFormat::default()), LogFormat::parse);
        let log_level = first(&flags.log_level, LOG_VARIABLE, &file.log.level);
        let log_level = log_level.as_deref().map_or(Ok(LogLevel::default()), LogLevel::parse);
        Ok(Self {
            listen: first(&flags.listen, "PROMBUS_LISTEN", &file.server.listen)
                .unwrap_or_else(|| DEFAULT_LISTEN.to_owned()),
            insecure: flags.insecure,
            gateway: gateway_options(flags, environment, (path.as_deref(), &file))?,
            store: choose_store(flags, environment, &file)?,
            log_format: log_format.map_err(Failure::Usage)?,
            log_level: log_level.map_err(Failure::Usage)?,
            limits: file.limits.limits(),
            result_bytes: file.limits.result_bytes(),
            clean_every: file.store.clean_every(),
            store_wait: file.store.wait_ms.map(Duration::from_millis),
            topics: file.topics,
            collections: file.collections,
            projections: file.projection,
            schemas: file.schemas.folder().map_err(Failure::Usage)?,
        })
    }
}

fn gateway_options(
    flags: &ServeArgs,
    environment: &Environment,
    (path, file): (Option<&Path>, &ConfigFile),
) -> Result<GatewayOptions, Failure> {
    let at_file = |why: String| {
        let file = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
        Failure::Usage(format!("{file}{why}"))
    };
    let default = GatewayOptions::default();
    let (limits, ms) = (&file.limits, |ms: Option<u64>| ms.map(Duration::from_millis));
    Ok(GatewayOptions {
        version: env!("CARGO_PKG_VERSION"),
        header_timeout: ms(limits.header_timeout_ms).unwrap_or(default.header_timeout),
        body_timeout: ms(limits.body_timeout_ms).unwrap_or(default.body_timeout),
        send_timeout: ms(limits.send_timeout_ms).unwrap_or(default.send_timeout),
        max_body_bytes: limits.body_bytes(),
        max_connections: limits.connections.unwrap_or(default.max_connections),
        max_buffer_bytes: limits.buffer_bytes(),
        connection_events_per_s: limits.connection_events_per_s.unwrap_or(0),
        topic_events_per_s: limits.topic_events_per_s.unwrap_or(0),
        snapshot_max_age: file.snapshots.max_age_s.map_or(default.snapshot_max_age, Duration::from_secs),
        auth: file.auth.options(environment.variable).map_err(at_file)?,
        cluster: choose_store(flags, environment, file).and_then(|store| {
            let advertise = file.server.advertise.as_deref();
            let cluster = file.cluster.options(store.is_shared(), advertise, environment.variable);
            cluster.map_err(at_file)
        })?,
        hosts: file.server.hosts.clone().unwrap_or_default(),
        allow_origins: file.server.allow_origins.clone().unwrap_or_default(),
        tls: choose_tls(flags, environment, file)?,
    })
}

fn choose_tls(
    flags: &ServeArgs,
    environment: &Environment,
    file: &ConfigFile,
) -> Result<Option<TlsFiles>, Failure> {
    let choose = |flag: &Option<PathBuf>, variable: &str, file: &Option<PathBuf>| {
        flag.clone().or_else(|| (environment.variable)(variable).map(PathBuf::from)).or_else(|| file.clone())
    };
    let cert = choose(&flags.tls_cert, "PROMBUS_TLS_CERT", &file.server.tls_cert);
    let key = choose(&flags.tls_key, "PROMBUS_TLS_KEY", &file.server.tls_key);
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key })),
        _ => Err(Failure::Usage("a certificate and its key must be set together".into())),
    }
}

/// The configuration file, and where it is if there is one.
fn read_file(flags: &ServeArgs, environment: &Environment) -> Result<(Option<PathBuf>, ConfigFile), Failure> {
    let named = flags.config.clone().or_else(|| (environment.variable)("PROMBUS_CONFIG").map(PathBuf::from));
    let found = || Some(environment.folder.join(DEFAULT_CONFIG)).filter(|path| path.exists());
    match named.or_else(found) {
        Some(path) => {
            let file = ConfigFile::read(&path).map_err(|error| Failure::Usage(error.to_string()))?;
            Ok((Some(path), file))
        }
        None => Ok((None, ConfigFile::default())),
    }
}

/// The first of flags, environment and file that says anything about the store decides.
fn choose_store(
    flags: &ServeArgs,
    environment: &Environment,
    file: &ConfigFile,
) -> Result<StoreChoice, Failure> {
    let (part_bytes, rewrite_bytes_per_s) = (file.store.part_bytes, file.store.rewrite_bytes_per_s);
    let disk = |dir: &Path| StoreChoice::Disk { dir: dir.to_owned(), part_bytes, rewrite_bytes_per_s };
    let prefix = file.store.prefix.as_deref().unwrap_or_default();
    if let Some(store) = &flags.store {
        return named_store("--store", store, prefix);
    }
    if let Some(dir) = &flags.data {
        return Ok(disk(dir));
    }
    match ((environment.variable)("PROMBUS_STORE"), (environment.variable)("PROMBUS_DATA")) {
        (Some(_), Some(_)) => {
            let message = "PROMBUS_STORE and PROMBUS_DATA cannot be combined: unset one of them";
            return Err(Failure::Usage(message.into()));
        }
        (Some(store), None) => return named_store("PROMBUS_STORE", &store, prefix),
        (None, Some(dir)) => return Ok(disk(Path::new(&dir))),
        (None, None) => {}
    }
    if let Some(url) = &file.store.url {
        return named_store("store.url", url, prefix);
    }
    match &file.store.data {
        _ if file.store.memory == Some(true) => Ok(StoreChoice::Memory),
        Some(dir) => Ok(disk(dir)),
        None => Ok(disk(Path::new(DEFAULT_DATA))),
    }
}

fn named_store(from: &str, store: &str, prefix: &str) -> Result<StoreChoice, Failure> {
    match store {
        "memory" => Ok(StoreChoice::Memory),
        url if url.starts_with("mongodb://") || url.starts_with("mongodb+srv://") => {
            Ok(StoreChoice::MongoDb { url: url.to_owned(), prefix: prefix.to_owned() })
        }
        other => Err(Failure::Usage(format!(
            "{from}: {other:?} is not a store; use memory, mongodb://HOSTS/DATABASE, or a folder with --data"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: fn(&str) -> Option<String> = |_| None;

    fn environment(variable: fn(&str) -> Option<String>, file: &str) -> (tempfile::TempDir, Environment) {
        let folder = tempfile::tempdir().unwrap();
        if !file.is_empty() {
            std::fs::write(folder.path().join(DEFAULT_CONFIG), file).unwrap();
        }
        let path = folder.path().to_owned();
        (folder, Environment { variable, folder: path })
    }

    fn resolve(
        flags: ServeArgs,
        variable: fn(&str) -> Option<String>,
        file: &str,
    ) -> Result<Settings, String> {
        let (_folder, environment) = environment(variable, file);
        Settings::resolve(&flags, &environment).map_err(|failure| failure.to_string())
    }

    fn level(text: &str) -> LogLevel {
        LogLevel::parse(text).unwrap()
    }

    fn disk(dir: &str, part_bytes: Option<u64>) -> StoreChoice {
        StoreChoice::Disk { dir: dir.into(), part_bytes, rewrite_bytes_per_s: None }
    }

    #[test]
    fn without_a_word_there_are_defaults() {
        let settings = resolve(ServeArgs::default(), NOTHING, "").unwrap();
        assert_eq!(settings.listen, "127.0.0.1:7070");
        assert_eq!(settings.store, disk("./data", None));
        assert_eq!((settings.log_format, settings.insecure), (LogFormat::Text, false));
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = "[server]\nlisten = \"f:1\"\n[store]\ndata = \"f\"\npart_bytes = 70000";
        let environment: fn(&str) -> Option<String> = |name| match name {
            "PROMBUS_LISTEN" => Some("e:1".into()),
            "PROMBUS_DATA" => Some("e".into()),
            "PROMBUS_LOG_FORMAT" => Some("json".into()),
            "PROMBUS_LOG" => Some("debug".into()),
            _ => None,
        };
        let settings = resolve(ServeArgs::default(), NOTHING, file).unwrap();
        assert_eq!((settings.listen.as_str(), settings.store), ("f:1", disk("f", Some(70_000))));
        let settings = resolve(ServeArgs::default(), environment, file).unwrap();
        assert_eq!((settings.listen.as_str(), settings.store), ("e:1", disk("e", Some(70_000))));
        assert_eq!((settings.log_format, settings.log_level), (LogFormat::Json, level("debug")));
        let flags = ServeArgs {
            listen: Some("a:1".into()),
            data: Some("a".into()),
            log_format: Some("text".into()),
            log_level: Some("trace".into()),
            ..ServeArgs::default()
        };
        let settings = resolve(flags, environment, file).unwrap();
        assert_eq!((settings.listen.as_str(), settings.store), ("a:1", disk("a", Some(70_000))));
        assert_eq!((settings.log_format, settings.log_level), (LogFormat::Text, level("trace")));
        let flags = ServeArgs { store: Some("memory".into()), ..ServeArgs::default() };
        assert_eq!(resolve(flags, environment, file).unwrap().store, StoreChoice::Memory);
    }

    #[test]
    fn the_log_goes_by_the_file_unless_flags_or_the_environment_say_otherwise() {
        let file = "[log]\nformat = \"json\"\nlevel = \"warn,prombus_server=debug\"";
        let settings = resolve(ServeArgs::default(), NOTHING, file).unwrap();
        assert_eq!(settings.log_format, LogFormat::Json);
        assert_eq!(settings.log_level, level("warn,prombus_server=debug"));
        let flags = ServeArgs { log_format: Some("text".into()), ..ServeArgs::default() };
        let settings = resolve(flags, |name| (name == "PROMBUS_LOG").then(|| "error".into()), file).unwrap();
        assert_eq!((settings.log_format, settings.log_level), (LogFormat::Text, level("error")));
        for bad in ["loud", "", "prombus=loud", "7", "info,"] {
            let flags = ServeArgs { log_level: Some(bad.into()), ..ServeArgs::default() };
            let message = resolve(flags, NOTHING, "").unwrap_err();
            assert!(message.contains("use error, warn, info"), "{bad:?}: {message}");
        }
    }

    #[test]
    fn memory_can_be_chosen_in_the_file_and_a_flag_still_wins() {
        let file = "[store]\nmemory = true";
        assert_eq!(resolve(ServeArgs::default(), NOTHING, file).unwrap().store, StoreChoice::Memory);
        let flags = ServeArgs { data: Some("a".into()), ..ServeArgs::default() };
        assert_eq!(resolve(flags, NOTHING, file).unwrap().store, disk("a", None));
    }

    #[test]
    fn stores_that_do_not_exist_are_refused() {
        let flags = ServeArgs { store: Some("redis".into()), ..ServeArgs::default() };
        let message = resolve(flags, NOTHING, "").unwrap_err();
        assert!(message.contains("not a store"), "{message}");
    }

    #[test]
    fn a_database_can_be_chosen_in_each_way() {
        let mongodb =
            |url: &str, prefix: &str| StoreChoice::MongoDb { url: url.into(), prefix: prefix.into() };
        let secret = "[cluster]\nsecret = \"what only the hubs know\"";
        let file = &format!("[store]\nurl = \"mongodb://f/db\"\nprefix = \"p_\"\n{secret}");
        assert_eq!(
            resolve(ServeArgs::default(), NOTHING, file).unwrap().store,
            mongodb("mongodb://f/db", "p_")
        );
        let environment: fn(&str) -> Option<String> =
            |name| (name == "PROMBUS_STORE").then(|| "mongodb+srv://e/db".into());
        let settings = resolve(ServeArgs::default(), environment, file).unwrap();
        assert_eq!(settings.store, mongodb("mongodb+srv://e/db", "p_"));
        let flags = ServeArgs { store: Some("mongodb://a/db".into()), ..ServeArgs::default() };
        assert_eq!(resolve(flags, environment, secret).unwrap().store, mongodb("mongodb://a/db", ""));
    }

    #[test]
    fn a_file_that_was_named_must_exist() {
        let flags = ServeArgs { config: Some("/does/not/exist.toml".into()), ..ServeArgs::default() };
        assert!(resolve(flags, NOTHING, "").unwrap_err().contains("cannot read /does/not/exist.toml"));
    }
}
