//! The blocks of the documents, and a desk to try them at: a hub, a shell, and a folder as a user has it.

#[path = "../../../../prombus-docs/src/blocks.rs"]
mod blocks;

use crate::client_support::Spot;
use crate::common;
use crate::examples_support::{Running, in_repository, program, project, shell};
pub use blocks::Block;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// How the documents let a hub crash, whose process id they keep in this file.
const CRASH: &str = "kill -KILL $(cat hub.pid)";
const PID_FILE: &str = "hub.pid";

/// How the documents run an example of the client.
const EXAMPLE: &str = "cargo run -p prombus-client --example ";

/// What changes the machine that it runs on, or takes longer than all tests together.
const NOT_FOR_TESTS: &[&str] = &[
    "cargo install",
    "cargo xtask",
    "--release",
    "sudo ",
    "systemctl ",
    "podman ",
    "docker ",
    "/etc/",
    "/usr/",
    "http.server",
];

/// Whether a block does something that a test must not do.
pub fn must_not_run(block: &Block) -> bool {
    block.language == "sh" && NOT_FOR_TESTS.iter().any(|text| block.text.contains(text))
}

/// The paths of all documents.
pub fn documents() -> Vec<String> {
    blocks::documents(&in_repository(""))
}

/// The blocks of a document.
pub fn blocks_of(document: &str) -> Vec<Block> {
    blocks::blocks(document, &std::fs::read_to_string(in_repository(document)).unwrap())
}

/// A configuration whose tokens are not in the environment, which tests share; and the tokens by their variables.
pub fn with_tokens(config: &str) -> (String, Vec<(String, String)>) {
    let mut tokens = Vec::new();
    let lines = config.lines().map(|line| {
        let Some((before, rest)) = line.split_once("token_env = \"") else { return line.to_owned() };
        let (name, after) = rest.split_once('"').unwrap();
        let token = format!("{}-of-the-test", name.to_lowercase());
        tokens.push((name.to_owned(), token.clone()));
        format!("{before}token = \"{token}\"{after}")
    });
    (lines.collect::<Vec<_>>().join("\n"), tokens)
}

/// The examples of the client, by name.
fn examples() -> &'static HashMap<String, String> {
    static BUILT: OnceLock<HashMap<String, String>> = OnceLock::new();
    BUILT.get_or_init(crate::client_examples::build)
}

/// A hub on disk, and a folder as a user has it after building and installing everything.
pub struct Desk {
    pub folder: tempfile::TempDir,
    pub hub: Spot,
    tokens: Vec<(String, String)>,
    /// Where the heads of all answers to curl are kept.
    heads: tempfile::TempDir,
}

impl Desk {
    /// A desk whose hub has this configuration.
    pub fn new(config: &str) -> Self {
        let (folder, place) = (project(), tempfile::tempdir().unwrap());
        let bin = folder.path().join("target/release");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_prombus"), bin.join("prombus")).unwrap();
        let curl = format!("exec {} -D \"$(mktemp \"$HEADS/XXXXXX\")\" \"$@\"", program("curl").display());
        write_program(&folder.path().join("bin/curl"), &curl);
        let (config, tokens) = with_tokens(config);
        std::fs::write(place.path().join("prombus.toml"), config).unwrap();
        Self { folder, hub: Spot::with(place, &[]), tokens, heads: tempfile::tempdir().unwrap() }
    }

    /// A shell in the folder. What it runs finds the hub where the documents have it.
    pub fn shell(&self, script: &str) -> Command {
        let mut script = script.replace("localhost:7070", &self.hub.address);
        script = script.replace("127.0.0.1:7070", &self.hub.address);
        while let Some((before, after)) = script.split_once(EXAMPLE) {
            let (name, rest) = after.split_at(after.find([' ', '\n']).unwrap_or(after.len()));
            script = format!("{before}{}{rest}", examples()[name]);
        }
        let mut command = shell(&script, self.folder.path(), &self.hub.url());
        let ours = ["bin", "target/release", "examples/python/.venv/bin"];
        let ours = ours.map(|folder| self.folder.path().join(folder).display().to_string()).join(":");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{ours}:{path}"));
        command.env("HEADS", self.heads.path()).envs(self.tokens.iter().cloned());
        command
    }

    /// Runs a block as a user would who pastes it, and lets the hub crash where it says so; what it printed.
    ///
    /// A call that is answered with an error is a failure, unless the block's note has its status.
    #[track_caller]
    pub fn paste(&mut self, block: &Block) -> String {
        let mut said = String::new();
        let mut parts = block.text.split(CRASH);
        let first = parts.next().unwrap_or_default();
        said += &common::run(self.shell(first), b"").ok();
        for part in parts {
            std::fs::write(self.folder.path().join(PID_FILE), self.hub.pid().as_raw_nonzero().to_string())
                .unwrap();
            common::run(self.shell(CRASH), b"").ok();
            self.hub.ended();
            self.hub.start_again();
            said += &common::run(self.shell(part), b"").ok();
        }
        let expected: Vec<u16> = block
            .noted("answers")
            .into_iter()
            .flat_map(str::split_whitespace)
            .map(|code| code.parse().unwrap())
            .collect();
        assert_eq!(self.errors(), expected, "the errors that {} is answered with: {said}", block.place());
        said
    }

    /// Runs each line of a block, which goes on until it is stopped, and waits until it prints what its note says.
    #[track_caller]
    pub fn starts(&self, block: &Block, printed: &str) {
        for line in block.text.lines() {
            let mut command = self.shell(&format!("exec 2>&1\nexec {line}"));
            command.env("PROMBUS_LISTEN", "127.0.0.1:0");
            let mut running = Running::start(command);
            while !running.line().contains(printed) {}
        }
        self.errors();
    }

    /// The errors that calls were answered with since they were last asked for, in the order of their statuses.
    fn errors(&self) -> Vec<u16> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.heads.path()).unwrap() {
            let path = entry.unwrap().path();
            let heads = std::fs::read_to_string(&path).unwrap();
            let statuses =
                heads.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
            found.extend(statuses.filter(|status: &u16| *status >= 400));
            std::fs::remove_file(path).unwrap();
        }
        found.sort_unstable();
        found
    }
}

/// A shell script that can be run by its name.
fn write_program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
