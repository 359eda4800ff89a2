//! A hub that asks who calls, whose every word is kept, and callers that carry a token.

pub mod jwt;
pub mod line;
pub mod tls;

use crate::common::{Hub, PATIENCE, Said, binary, run};
use crate::contract_support::{Answer, Api, Call};
use serde_json::Value;
use std::fs::Permissions;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The secret that most hubs of these tests sign with.
pub const SECRET: &str = "k7Vq2-this-is-the-secret-of-the-hub-9xZ";

/// A token that nobody gave out.
pub const STRANGER: &str = "stranger-token-5h3k2j9q8w7e";

/// A file that makes a hub take JWT of [`SECRET`].
pub fn secret_file() -> String {
    format!("[auth]\nmode = \"jwt\"\nsecret = \"{SECRET}\"\n")
}

/// How a hub is started.
#[derive(Debug, Default)]
pub struct Setup<'a> {
    pub file: &'a str,
    /// Files beside the configuration.
    pub beside: &'a [(&'a str, &'a str)],
    pub args: &'a [&'a str],
    pub env: &'a [(&'a str, &'a str)],
}

impl Setup<'_> {
    /// The command in a folder where everything lies ready.
    fn prepare(&self) -> (tempfile::TempDir, Command) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prombus.toml"), self.file).unwrap();
        for (name, text) in self.beside {
            put_file(&folder.path().join(name), text);
        }
        let mut command = binary(folder.path());
        command.arg("serve").args(["--store", "memory"]);
        if !self.args.contains(&"--listen") && !self.file.contains("listen =") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(self.args).envs(self.env.iter().copied());
        (folder, command)
    }

    pub fn start(&self) -> Guarded {
        let (folder, command) = self.prepare();
        let hub = Hub::running(command, folder);
        Guarded { api: hub.api(), hub }
    }

    /// Runs a hub that has to give up by itself.
    pub fn gives_up(&self) -> Said {
        let (_folder, command) = self.prepare();
        run(command, b"")
    }

    /// What a hub says that does not take its configuration.
    #[track_caller]
    pub fn is_usage_error(&self) -> String {
        self.gives_up().fails_with(2)
    }
}

/// Writes a file that only its owner may read, as keys want to be.
pub fn put_file(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// A hub that is running.
pub struct Guarded {
    hub: Hub,
    pub api: Api,
}

impl Guarded {
    /// A hub with this configuration.
    pub fn start(file: &str) -> Self {
        Setup { file, ..Setup::default() }.start()
    }

    /// A hub that takes JWT of [`SECRET`].
    pub fn jwt() -> Self {
        Self::start(&secret_file())
    }

    /// Everything that it has logged until now.
    pub fn said(&self) -> String {
        self.hub.log().text()
    }

    /// Ends it, and gives back everything that it ever logged.
    #[track_caller]
    pub fn ends(self) -> String {
        let log = self.hub.log();
        assert_eq!(self.hub.stop().code(), Some(0));
        let said = log.text();
        assert!(!said.contains("panic"), "{said}");
        said
    }

    pub fn caller<'a>(&'a self, token: &'a str) -> Caller<'a> {
        Caller { api: &self.api, token }
    }
}

impl Deref for Guarded {
    type Target = Hub;

    fn deref(&self) -> &Hub {
        &self.hub
    }
}

/// Someone with a token.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    pub api: &'a Api,
    pub token: &'a str,
}

impl Caller<'_> {
    #[track_caller]
    pub fn call(&self, call: Call) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        self.api.call(&call.header("authorization", &bearer))
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.call(Call::new("GET", target))
    }

    #[track_caller]
    pub fn delete(&self, target: &str) -> Answer {
        self.call(Call::new("DELETE", target))
    }

    #[track_caller]
    pub fn put(&self, target: &str, body: &Value) -> Answer {
        self.send("PUT", target, body)
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.send("POST", target, body)
    }

    #[track_caller]
    fn send(&self, method: &str, target: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let call = Call::new(method, target).header("content-type", "application/json");
        self.call(call.body(body.as_bytes()))
    }

    #[track_caller]
    pub fn publish(&self, topic: &str) -> Answer {
        self.call(Call::new("POST", &format!("/publish/{topic}")).body(b"1"))
    }

    #[track_caller]
    pub fn read(&self, topic: &str) -> Answer {
        self.get(&format!("/v1/topics/{topic}/events"))
    }

    #[track_caller]
    pub fn pull(&self, topic: &str, group: &str) -> Answer {
        let body = serde_json::json!({"from": "earliest"});
        self.post(&format!("/v1/topics/{topic}/groups/{group}/pull"), &body)
    }

    /// The names of the topics that it is shown.
    #[track_caller]
    pub fn topics(&self) -> Vec<String> {
        let list = self.get("/v1/topics").is(200);
        let names = list["topics"].as_array().unwrap().iter();
        let mut names: Vec<String> = names.map(|one| name_of(one, "topic")).collect();
        names.sort_unstable();
        names
    }
}

/// The name of something in a list, which may be all that there is of it.
pub fn name_of(one: &Value, field: &str) -> String {
    one.as_str().or_else(|| one[field].as_str()).unwrap_or_else(|| panic!("no {field} in {one}")).to_owned()
}

/// What a refusal for want of a valid token looks like.
#[track_caller]
pub fn is_unauthorized(answer: &Answer) {
    answer.fails(401, "unauthorized");
    let scheme = answer.header("www-authenticate").unwrap_or_else(|| panic!("{answer:?}"));
    assert!(scheme.starts_with("Bearer"), "{answer:?}");
}

/// Asks again until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        // The hub is asked some times a second, not as fast as it can answer.
        std::thread::sleep(Duration::from_millis(30));
    }
}
