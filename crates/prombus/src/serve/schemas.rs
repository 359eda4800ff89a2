//! The folder of schemas, which are registered when the hub starts: `<topic>/v1.json`, `<topic>/v2.json` and so on, and
//! `<topic>/upcasters/1.json`.

use super::settings::SchemaFolder;
use crate::failure::Failure;
use crate::schema_folder;
use prombus_core::{Json, TopicName};
use prombus_engine::Hub;
use prombus_engine::schemas::NewSchema;
use prombus_engine::schemas::upcast::Upcaster;
use prombus_schema::lint::{File, Layout};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// What a folder has for one topic, each with the file that it is from.
struct Topic {
    name: TopicName,
    versions: BTreeMap<u32, (PathBuf, Json)>,
    upcasters: BTreeMap<u32, (PathBuf, Upcaster)>,
}

/// Registers all schemas of a folder, those of each topic from the lowest version. One that is registered as it is stays;
/// one that is registered otherwise is an error. Upcasters are set as the folder has them; others stay. The topics of
/// `changefeeds`, which are set up after this, have no schemas.
pub async fn register(
    hub: &Hub,
    folder: &SchemaFolder,
    changefeeds: &BTreeSet<&TopicName>,
) -> Result<(), Failure> {
    let topics = read_all(&folder.dir)?;
    // A version that is registered stays. So none is, unless all can be.
    let mut unregistered = Vec::new();
    for topic in &topics {
        if changefeeds.contains(&topic.name) {
            let why = "it is the topic of a changefeed in the configuration, so it cannot have schemas";
            return Err(refused(&folder.dir.join(topic.name.as_str()), why));
        }
        unregistered.push((topic, topic.rehearse(hub, folder).await?));
    }
    for (Topic { name, upcasters, .. }, versions) in unregistered {
        for (path, new) in versions {
            let registered =
                hub.schemas().register(name, &new).await.map_err(|error| refused(path, error))?;
            if registered.made {
                tracing::info!("version {} of the schema of topic {name} registered", registered.version);
            }
        }
        for (from, (path, upcaster)) in upcasters {
            let put = hub.schemas().put_upcaster(name, *from, upcaster).await;
            put.map_err(|error| refused(path, error))?;
        }
    }
    Ok(())
}

impl Topic {
    /// The versions that are not registered yet, if all of them can be, and the upcasters, too.
    async fn rehearse(&self, hub: &Hub, folder: &SchemaFolder) -> Result<Vec<(&Path, NewSchema)>, Failure> {
        let rehearsal = hub.schemas().rehearse(&self.name).await;
        let mut rehearsal =
            rehearsal.map_err(|error| refused(&folder.dir.join(self.name.as_str()), error))?;
        let mut unregistered = Vec::new();
        for (version, (path, text)) in &self.versions {
            let compare_from = self.compare_from(*version);
            let new =
                NewSchema { version: Some(*version), rule: folder.rule, compare_from, text: text.clone() };
            let registered = rehearsal.register(&new).await.map_err(|error| refused(path, error))?;
            if registered.made {
                unregistered.push((path.as_path(), new));
            }
        }
        for (from, (path, upcaster)) in &self.upcasters {
            let put = rehearsal.put_upcaster(*from, upcaster).await;
            put.map_err(|error| refused(path, error))?;
        }
        Ok(unregistered)
    }

    /// The first version that another one has to follow: none from before an upcaster that changes payloads, because that
    /// raises their events. One without operations says that they need no change.
    fn compare_from(&self, version: u32) -> u32 {
        let changing =
            self.upcasters.range(..version).rev().find(|(_, (_, upcaster))| !upcaster.ops.is_empty());
        changing.map_or(0, |(from, _)| from + 1)
    }
}

fn refused(path: &Path, why: impl Display) -> Failure {
    Failure::Failed(format!("cannot register {}: {why}", path.display()))
}

/// All files are read before the first schema is registered.
fn read_all(dir: &Path) -> Result<Vec<Topic>, Failure> {
    let files = schema_folder::read(dir)
        .map_err(|error| Failure::Failed(format!("cannot read {} (schemas.dir): {error}", dir.display())))?;
    let layout = Layout::of(&files);
    if let Some(strange) = layout.strange.first() {
        let why = match strange.split('/').nth(1) {
            None => "it is not in the folder of a topic: move it to <topic>/v1.json",
            Some("upcasters") => {
                "its name is not the version that it starts from: use 1.json, 2.json and so on"
            }
            Some(_) => "its name is not a version: use v1.json, v2.json and so on",
        };
        return Err(refused(&dir.join(strange), why));
    }
    let topics = layout.topics.iter().map(|(name, files)| -> Result<Topic, Failure> {
        let name = TopicName::parse(name).map_err(|error| refused(&dir.join(name), error))?;
        let schema =
            |text: &str| Json::parse(text.as_bytes().to_vec().into()).map_err(|error| error.to_string());
        let upcaster = |text: &str| serde_json::from_str(text).map_err(|error| error.to_string());
        let versions = each(dir, &files.versions, schema)?;
        Ok(Topic { name, versions, upcasters: each(dir, &files.upcasters, upcaster)? })
    });
    topics.collect()
}

/// Reads the text of each file.
fn each<T>(
    dir: &Path,
    files: &BTreeMap<u32, &File>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<BTreeMap<u32, (PathBuf, T)>, Failure> {
    let one = |(number, file): (&u32, &&File)| -> Result<_, Failure> {
        let path = dir.join(&file.path);
        let text = file.text.as_deref().map_err(|why| refused(&path, why))?;
        let value = read(text).map_err(|why| refused(&path, why))?;
        Ok((*number, (path, value)))
    };
    files.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn files_are_known_by_their_names_and_read_in_order() {
        let dir = folder(&[
            ("b/v10.json", "true"),
            ("b/v2.json", "{ }"),
            ("b/upcasters/2.json", r#"{"ops":[{"remove":["a"]}]}"#),
            ("b/upcasters/README.md", ""),
            ("b/README.md", ""),
            ("a.c/v1.json", "false"),
            (".git/config", ""),
        ]);
        let all = read_all(dir.path()).unwrap();
        let names: Vec<(&str, Vec<u32>)> =
            all.iter().map(|topic| (topic.name.as_str(), topic.versions.keys().copied().collect())).collect();
        assert_eq!(names, [("a.c", vec![1]), ("b", vec![2, 10])]);
        assert_eq!(all[1].versions[&2].1.as_bytes(), b"{}");
        assert_eq!(all[1].upcasters[&2].1.ops.len(), 1);
    }

    #[test]
    fn a_file_that_is_nothing_known_is_named() {
        for (path, why) in [
            ("b/v0.json", "not a version"),
            ("b/v01.json", "not a version"),
            ("b/1.json", "not a version"),
            ("b/v1.jsn", "not a version"),
            ("v1.json", "not in the folder of a topic"),
            ("Not A Topic/v1.json", "not a topic name"),
            ("b/v1.json", "not valid JSON"),
            ("b/upcasters/v1.json", "not the version that it starts from"),
            ("b/upcasters/1.json", "EOF while parsing"),
        ] {
            let dir = folder(&[(path, "{")]);
            let Err(told) = read_all(dir.path()) else { panic!("{path} is refused") };
            let told = told.to_string();
            let named = path.split('/').next().unwrap();
            assert!(told.contains(why) && told.contains(named), "{path}: {told}");
        }
        let missing = folder(&[]).path().join("none");
        let Err(told) = read_all(&missing) else { panic!("there is no such folder") };
        assert!(told.to_string().contains("schemas.dir"));
    }
}
