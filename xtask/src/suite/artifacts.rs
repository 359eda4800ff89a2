//! What a build has produced and what it had to say, according to cargo's `--message-format json`.

use serde::Deserialize;
use std::path::PathBuf;

/// The programs of a build.
#[derive(Debug)]
pub struct Artifacts {
    /// Programs that run tests.
    pub tests: Vec<TestBinary>,
    /// The hub.
    pub hub: PathBuf,
    /// What kills it.
    pub chaos: PathBuf,
    /// What starts a replica set of MongoDB.
    pub mongo_set: PathBuf,
}

/// A program that runs tests.
#[derive(Debug)]
pub struct TestBinary {
    /// Its crate, and where in it its source is.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// The folder of its crate, where tests run.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    message: Option<Finding>,
}

/// Something that the compiler or clippy does not like.
#[derive(Debug, Deserialize)]
pub struct Finding {
    /// What it says, with the place.
    pub rendered: String,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Reads messages, one a line.
fn each(messages: &str) -> impl Iterator<Item = Result<Message, String>> {
    messages.lines().map(|line| {
        serde_json::from_str(line).map_err(|error| format!("cargo says something unknown: {error}: {line}"))
    })
}

/// What the compiler and clippy had to say.
pub fn findings(messages: &str) -> Result<Vec<Finding>, String> {
    each(messages).filter_map(|message| message.map(|message| message.message).transpose()).collect()
}

impl Artifacts {
    /// Reads what was produced.
    pub fn read(messages: &str) -> Result<Self, String> {
        let (mut tests, mut hub, mut chaos, mut mongo_set) = (Vec::new(), None, None, None);
        for message in each(messages) {
            match program(message?) {
                Some(Program::Test(test)) => tests.push(test),
                Some(Program::Binary(name, program)) if name == "prombus" => hub = Some(program),
                Some(Program::Binary(name, program)) if name == "prombus-chaos" => chaos = Some(program),
                Some(Program::Binary(name, program)) if name == "mongo-set" => mongo_set = Some(program),
                _ => {}
            }
        }
        match (hub, chaos, mongo_set) {
            (Some(hub), Some(chaos), Some(mongo_set)) if !tests.is_empty() => {
                Ok(Self { tests, hub, chaos, mongo_set })
            }
            _ => {
                Err("the build has no tests, or not the programs prombus, prombus-chaos and mongo-set"
                    .to_owned())
            }
        }
    }
}

enum Program {
    Test(TestBinary),
    Binary(String, PathBuf),
}

/// The program that a message tells of.
fn program(message: Message) -> Option<Program> {
    let (program, target) = (message.executable?, message.target?);
    let folder = message.manifest_path?.parent()?.to_owned();
    if !message.profile?.test {
        return (target.kind == ["bin"]).then_some(Program::Binary(target.name, program));
    }
    let source = target.src_path.strip_prefix(&folder).unwrap_or(&target.src_path);
    let name = format!("{} {}", folder.file_name()?.display(), source.display());
    Some(Program::Test(TestBinary { name, program, folder }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(target: &str, kind: &str, test: bool) -> String {
        let program = if kind == "lib" && !test { "null".to_owned() } else { format!("\"/t/{target}-1\"") };
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/a/Cargo.toml","target":{{"name":"{target}",
            "kind":["{kind}"],"src_path":"/r/a/src/{target}.rs"}},"profile":{{"test":{test}}},"executable":{program}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn programs_are_told_apart() {
        let messages = [
            message("a", "lib", false),
            message("a", "lib", true),
            message("prombus", "bin", false),
            message("prombus", "bin", true),
            message("prombus-chaos", "bin", false),
            message("mongo-set", "bin", false),
            message("typed", "example", false),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = Artifacts::read(&messages.join("\n")).unwrap();
        let tests: Vec<&str> = found.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(tests, ["a src/a.rs", "a src/prombus.rs"]);
        assert_eq!(found.tests[0].folder, PathBuf::from("/r/a"));
        assert_eq!((found.hub, found.chaos), ("/t/prombus-1".into(), "/t/prombus-chaos-1".into()));
    }

    #[test]
    fn what_the_compiler_does_not_like_is_found() {
        let said = r#"{"reason":"compiler-message","manifest_path":"/r/a/Cargo.toml","target":{"name":"a","kind":["lib"],
            "src_path":"/r/a/src/a.rs"},"message":{"level":"warning","rendered":"warning: this is vain"}}"#;
        let messages = [message("a", "lib", true), said.replace('\n', "")].join("\n");
        let found: Vec<String> =
            findings(&messages).unwrap().into_iter().map(|finding| finding.rendered).collect();
        assert_eq!(found, ["warning: this is vain"]);
        assert!(findings("no json").is_err());
    }

    #[test]
    fn what_is_missing_or_unknown_is_an_error() {
        let whole = [
            message("a", "lib", true),
            message("prombus", "bin", false),
            message("prombus-chaos", "bin", false),
            message("mongo-set", "bin", false),
        ];
        assert!(Artifacts::read(&whole.join("\n")).is_ok());
        for missing in 0..whole.len() {
            let rest: Vec<&str> =
                whole.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, one)| &**one).collect();
            assert!(Artifacts::read(&rest.join("\n")).is_err());
        }
        assert!(Artifacts::read(&format!("{}\nno json", whole.join("\n"))).is_err());
    }
}
