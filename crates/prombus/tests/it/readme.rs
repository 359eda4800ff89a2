//! The tour in the README, and the examples of groups in the guide, work when they are pasted.

use crate::common;
use crate::common::Hub;
use std::path::Path;
use std::process::Command;

/// The shell blocks of one chapter of a document.
fn blocks(document: &str, chapter: &str) -> Vec<String> {
    blocks_of("sh", document, chapter)
}

fn blocks_of(kind: &str, document: &str, chapter: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let start = text.find(&format!("\n## {chapter}\n")).unwrap() + 1;
    let chapter = &text[start..start + text[start + 3..].find("\n## ").unwrap()];
    chapter
        .split(&format!("```{kind}\n"))
        .skip(1)
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// A folder as a user has it after a build, with the binary in it.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("target/release");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_prombus"), bin.join("prombus")).unwrap();
    folder
}

/// Runs a block as a user would who sits in the project's folder, except that the hub has a port of its own.
fn paste(block: &str, hub: &Hub, folder: &Path) -> String {
    let address = hub.url.strip_prefix("http://").unwrap();
    let script = block.replace("localhost:7070", address);
    // Other tests have hubs too.
    let script = script.replace("pkill -KILL -x prombus", "true");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder).env("PROMBUS_URL", &hub.url);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.join("target/release").display()));
    common::run(command, b"").ok()
}

#[test]
fn the_tour_works_when_pasted() {
    let folder = project();
    let data = folder.path().join("data");
    let [before, after] = blocks("README.md", "A tour in five minutes").try_into().unwrap();
    assert!(before.contains("pkill -KILL -x prombus"), "the tour ends with a crash");

    let args = ["--data", data.to_str().unwrap()];
    let hub = Hub::with(&args);
    let said = paste(&before, &hub, folder.path());
    let count = |what: &str| said.matches(what).count();
    assert!(said.contains(r#""cpu_pct":12.50"#), "digit for digit: {said}");
    assert_eq!(count(r#""duplicate":true"#), 1, "one retry is recognised: {said}");
    assert_eq!(count(r#""error":"expectation_failed""#), 1, "one of two writers loses: {said}");
    assert!(said.contains(r#""count":2"#), "an array is published: {said}");
    let printed: Vec<&str> = said.lines().filter(|line| line.starts_with(r#"{"id":"#)).collect();
    assert!(
        printed.iter().any(|line| line.contains(r#""cpu_pct":91"#)),
        "a group gets what it asks for: {said}"
    );
    drop(hub);

    let hub = Hub::with(&args);
    let said = paste(&after, &hub, folder.path());
    assert!(said.contains(r#""count":3"#) && said.contains(r#""cpu_pct":12.50"#), "it is all there: {said}");
    assert!(said.contains(r#""group":"alerts""#), "so is the group: {said}");
}

#[test]
fn the_examples_of_groups_work_when_pasted() {
    let folder = project();
    let hub = Hub::with(&["--data", folder.path().join("data").to_str().unwrap()]);
    let [consume, change, look_after] = blocks("docs/guide.md", "Consumer groups").try_into().unwrap();
    let said = paste(&consume, &hub, folder.path());
    assert_eq!(said.matches(r#""ok":true"#).count(), 3, "an ack, a nack and an extend: {said}");
    assert!(
        said.contains(r#""lag":2"#) && said.contains(r#""why":"retry""#),
        "one is done, one waits: {said}"
    );
    let said = paste(&change, &hub, folder.path());
    assert!(
        said.contains(r#""maxAttempts":10"#) && said.contains(r#""backoffMs":500"#),
        "it is changed: {said}"
    );
    let said = paste(&look_after, &hub, folder.path());
    assert!(said.contains(r#""exact":true"#), "what a reset would deliver is told: {said}");
    assert!(said.contains(r#""skipped":true"#), "one is skipped: {said}");
    assert!(said.contains(r#"{"job":1}"#) && said.contains(r#"{"job":3}"#), "the others come: {said}");

    let [letters] = blocks("docs/guide.md", "Dead letters").try_into().unwrap();
    let said = paste(&letters, &hub, folder.path());
    assert!(said.contains("mailbox is full"), "the letter says why: {said}");
    assert_eq!(said.matches(r#""replayed":1"#).count(), 2, "tried, then done: {said}");
}

#[test]
fn the_tokens_of_the_guide_work_when_pasted() {
    let folder = project();
    let tokens = &blocks_of("toml", "docs/guide.md", "Security")[0];
    // The tests of one process share its environment, so the tokens are written down here.
    let tokens = tokens.replace("token_env = \"OPS_TOKEN\"", "token = \"ops\"");
    let tokens = tokens.replace("token_env = \"SHOP_TOKEN\"", "token = \"shop\"");
    let hub = Hub::with_file(&tokens, &["--store", "memory"]);
    let [block] = blocks("docs/guide.md", "Security").try_into().unwrap();
    let said = paste(&format!("SHOP_TOKEN=shop\n{block}"), &hub, folder.path());
    assert!(said.contains("401 Unauthorized") && said.contains(r#""error":"unauthorized""#), "{said}");
    assert_eq!(said.matches(r#""topic":"orders.eu""#).count(), 2, "published and exported: {said}");
}

#[test]
fn the_tour_of_live_state_works_when_pasted() {
    let folder = project();
    let data = folder.path().join("data");
    let [before, after] = blocks("docs/guide.md", "Live state: a tour").try_into().unwrap();
    assert!(before.contains("pkill -KILL -x prombus"), "the tour has a crash in between");
    let args = ["--data", data.to_str().unwrap()];
    let hub = Hub::with(&args);
    let said = paste(&before, &hub, folder.path());
    let etags = |said: &str| -> Vec<String> {
        said.lines().filter(|line| line.starts_with("etag: ")).map(str::to_owned).collect()
    };
    assert!(said.contains("HTTP/1.1 200 OK") && said.contains(r#""_key":"web2:api:18""#), "{said}");
    assert!(said.contains(r#""count":2,"items":[{"_key":"web2:api:18""#), "two are busy: {said}");
    assert!(said.contains(r#""seen":2"#), "web1 was seen twice: {said}");
    assert!(said.contains("HTTP/1.1 304 Not Modified"), "{said}");
    let before = etags(&said);
    assert!(before.len() == 2 && before[0] == before[1], "one tag for one document: {said}");
    drop(hub);

    let hub = Hub::with(&args);
    let said = paste(&after, &hub, folder.path());
    assert!(said.contains(r#""count":2,"items""#) && said.contains(r#""seen":2"#), "{said}");
    assert_eq!(etags(&said), before[..1], "the tag is the same after a crash: {said}");
    assert!(said.contains(r#""count":1,"items":[{"_key":"web1:api:17""#), "one process is gone: {said}");
}

#[test]
fn the_commit_of_the_guide_works_when_pasted() {
    let folder = project();
    let hub = Hub::start();
    let [block] = blocks("docs/guide.md", "Commits").try_into().unwrap();
    let said = paste(&block, &hub, folder.path());
    assert!(said.contains(r#""versions":{"bills":{"o-17":1},"totals":{"all":1}}"#), "{said}");
    assert!(said.contains(r#""cents":1990"#), "{said}");
}
