//! The scripts in Python and Node show live events over both transports.

use crate::auth_support::put_file;
use crate::auth_support::tls::Identity;
use crate::client_support::Spot;
use crate::common;
use crate::common::Hub;
use crate::examples_support::{Running, project, shell};
use serde_json::Value;

const PYTHON: &str = "exec examples/python/.venv/bin/python examples/python/live.py";
const NODE: &str = "exec node examples/node/live.mjs";

/// One of the scripts in a folder as a user has it, and a hub.
struct Script {
    program: &'static str,
    folder: tempfile::TempDir,
    hub: Hub,
}

impl Script {
    fn new(program: &'static str) -> Self {
        Self { program, folder: project(), hub: Hub::start() }
    }

    fn start(&self, args: &str) -> Running {
        Running::start(shell(&format!("{} {args}", self.program), self.folder.path(), &self.hub.url))
    }

    /// Publishes a number with the hub's own command, over HTTP.
    fn publish(&self, number: u64) {
        self.hub.run(&["pub", "live", &number.to_string()]).ok();
    }

    /// Publishes a number with the script, over the WebSocket.
    fn publish_by_script(&self, number: u64) {
        let mut publish = self.start(&format!("publish live {number}"));
        let answer: Value = serde_json::from_str(&publish.line()).unwrap();
        assert_eq!((&answer["op"], &answer["duplicate"]), (&"OK".into(), &false.into()), "{answer}");
        publish.end();
    }
}

/// The payload of the event that the script prints next.
#[track_caller]
fn next(script: &mut Running) -> u64 {
    let event: Value = serde_json::from_str(&script.line()).unwrap();
    assert_eq!((&event["topic"], event["id"].is_string()), (&"live".into(), true), "{event}");
    event["payload"].as_u64().unwrap()
}

/// What was acked does not come again to a script that is started again.
fn consumes(script: &Script) {
    let consume = |max: u64| script.start(&format!("ws live --group g --from earliest --max {max}"));
    script.publish(1);
    script.publish_by_script(2);
    let mut first = consume(4);
    assert_eq!([next(&mut first), next(&mut first)], [1, 2]);
    script.publish(3);
    assert_eq!(next(&mut first), 3, "live");
    script.publish_by_script(4);
    assert_eq!(next(&mut first), 4, "live");
    first.end();

    script.publish(5);
    let mut second = consume(1);
    assert_eq!(next(&mut second), 5, "nothing comes again");
    second.end();

    // What they held besides was given back, which is no attempt.
    [6, 7, 8].into_iter().for_each(|number| script.publish(number));
    for number in [6, 7] {
        let mut third = consume(1);
        assert_eq!(next(&mut third), number);
        third.end();
    }
    let rest = script.hub.run(&["sub", "live", "--group", "g", "--max", "1", "--with-ctx"]).ok();
    let rest: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!((&rest["event"]["payload"], &rest["ctx"]["attempt"]), (&8.into(), &1.into()), "{rest}");
}

/// A stream that is taken up again goes on where it was.
fn follows(script: &Script) {
    script.publish(1);
    script.publish_by_script(2);
    let mut first = script.start("sse live --from earliest --max 3");
    assert_eq!([next(&mut first), next(&mut first)], [1, 2]);
    script.publish(3);
    assert_eq!(next(&mut first), 3, "live");
    let said = first.end();
    let after = said.split("continue with: ").nth(1).unwrap().trim().to_owned();

    script.publish(4);
    let mut second = script.start(&format!("sse live {after} --max 1"));
    assert_eq!(next(&mut second), 4, "nothing comes again");
    second.end();
}

/// What the hub refuses is told as the hub tells it, with an exit code, and without a stack trace.
fn tells_what_is_wrong(script: &Script) {
    for (args, message) in [
        ("publish BAD 1", "not a topic name"),
        ("ws BAD --max 1", "not a topic name"),
        ("sse BAD --max 1", "not a topic name"),
    ] {
        let command = shell(&format!("{} {args}", script.program), script.folder.path(), &script.hub.url);
        let said = common::run(command, b"").fails_with(1);
        assert!(said.contains(message) && said.lines().count() == 1, "{args}: {said}");
    }
}

/// So is why it refuses a token.
fn tells_what_is_wrong_with_a_token(program: &str) {
    let (folder, place) = (project(), tempfile::tempdir().unwrap());
    let tokens = "[auth]\nmode = \"token\"\ntokens = [{ token = \"a-good-one\", scopes = [\"*:**\"] }]\n";
    std::fs::write(place.path().join("prombus.toml"), tokens).unwrap();
    let hub = Spot::with(place, &[]);
    for args in ["publish live 1", "ws live --max 1", "sse live --max 1"] {
        let mut command = shell(&format!("{program} {args}"), folder.path(), &hub.url());
        command.env("PROMBUS_TOKEN", "a-bad-one");
        let said = common::run(command, b"").fails_with(1);
        assert!(said.contains("401") && said.contains("the token is not known"), "{args}: {said}");
        assert_eq!(said.lines().count(), 1, "{args}: {said}");
    }
}

/// A script goes on when its hub was killed, or stopped, and is there again.
fn outlives_the_hub(program: &'static str) {
    let (folder, mut hub) = (project(), Spot::start());
    let publish = |hub: &Spot, number: u64| {
        let mut command = common::binary(folder.path());
        command.args(["--url", &hub.url(), "pub", "live", &number.to_string()]);
        common::run(command, b"").ok();
    };
    publish(&hub, 0);
    let url = hub.url();
    let start = |args: &str| Running::start(shell(&format!("{program} {args}"), folder.path(), &url));
    let mut consumer = start("ws live --group g --from earliest");
    let mut follower = start("sse live --from earliest");
    assert_eq!((next(&mut consumer), next(&mut follower)), (0, 0));
    let ends: [fn(&mut Spot); 2] = [Spot::kill, Spot::stop];
    for (number, end) in (1..).zip(ends) {
        end(&mut hub);
        hub.start_again();
        publish(&hub, number);
        assert_eq!(next(&mut follower), number, "nothing is missed, and nothing comes twice");
        // What was not acked may come again.
        while next(&mut consumer) != number {}
    }
}

/// A script trusts a certificate of one's own.
fn talks_tls(program: &str) {
    let (folder, place, identity) = (project(), tempfile::tempdir().unwrap(), Identity::new());
    identity.files().iter().for_each(|(name, text)| put_file(&place.path().join(name), text));
    std::fs::write(folder.path().join("ca.pem"), &identity.cert_pem).unwrap();
    let hub = Spot::with(place, &["--tls-cert", "hub.pem", "--tls-key", "hub.key"]);
    let url = hub.url().replace("127.0.0.1", "localhost");
    for (args, payload) in [("publish live 1", None), ("ws live", Some(1)), ("sse live", Some(1))] {
        let more = if payload.is_some() { " --from earliest --max 1" } else { "" };
        let mut command = shell(&format!("{program} {args}{more}"), folder.path(), &url);
        command.env("PROMBUS_CA_CERT", "ca.pem");
        let said = common::run(command, b"").ok();
        let event: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(event["payload"].as_u64(), payload, "{args}: {event}");
    }
    let without = shell(&format!("{program} publish live 1"), folder.path(), &url);
    assert!(common::run(without, b"").fails_with(1).contains("certificate"));
}

#[test]
fn python_trusts_a_certificate_of_ones_own() {
    talks_tls(PYTHON);
}

#[test]
fn node_trusts_a_certificate_of_ones_own() {
    talks_tls(NODE);
}

#[test]
fn python_outlives_the_hub() {
    outlives_the_hub(PYTHON);
}

#[test]
fn node_outlives_the_hub() {
    outlives_the_hub(NODE);
}

#[test]
fn python_consumes_over_the_websocket() {
    consumes(&Script::new(PYTHON));
}

#[test]
fn python_follows_server_sent_events() {
    follows(&Script::new(PYTHON));
}

#[test]
fn python_tells_what_is_wrong() {
    tells_what_is_wrong(&Script::new(PYTHON));
    tells_what_is_wrong_with_a_token(PYTHON);
}

#[test]
fn node_consumes_over_the_websocket() {
    consumes(&Script::new(NODE));
}

#[test]
fn node_follows_server_sent_events() {
    follows(&Script::new(NODE));
}

#[test]
fn node_tells_what_is_wrong() {
    tells_what_is_wrong(&Script::new(NODE));
    tells_what_is_wrong_with_a_token(NODE);
}
