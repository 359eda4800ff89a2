//! Every block of every document is run by somebody, and works as it stands.
//!
//! The shell of a chapter is pasted into one shell after the other, at a hub and in a folder of the chapter's own. Rust is
//! compiled and run by `prombus-docs`, and programs in other languages by `docs_clients.rs`.

use crate::auth_support::Setup;
use crate::auth_support::jwt::{Signer, jwks};
use crate::auth_support::tls::Identity;
use crate::common::{binary, run};
use crate::contract_support::{Site, encoded};
use crate::docs_clients::PROGRAMS;
use crate::docs_support::{Block, Desk, blocks_of, documents, must_not_run};
use crate::examples_support::in_repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// All blocks that are run.
fn all() -> impl Iterator<Item = Block> {
    let blocks = documents().into_iter().flat_map(|document| blocks_of(&document));
    blocks.filter(|block| block.noted("not run").is_none() && !must_not_run(block))
}

fn all_of(language: &str) -> Vec<Block> {
    let found: Vec<Block> = all().filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "there is some {language}");
    found
}

#[test]
fn every_block_is_run_by_somebody() {
    let mut named = BTreeSet::new();
    for block in documents().iter().flat_map(|document| blocks_of(document)) {
        let place = block.place();
        if let Some(why) = block.noted("not run") {
            assert!(why.len() > 10, "{place} has to say why it is not run: <!-- not run: because -->");
            continue;
        }
        assert!(!must_not_run(&block), "{place} changes the machine: say <!-- not run: why --> before it");
        if let Some(name) = block.noted("test") {
            assert!(PROGRAMS.iter().any(|(known, _)| *known == name), "{place}: no test is called {name}");
            assert!(named.insert(name.to_owned()), "{place}: {name} is another block already");
            continue;
        }
        let kinds = ["answers", "hub", "serves", "prints"];
        let known = block.note.is_none() || kinds.iter().any(|kind| block.noted(kind).is_some());
        assert!(known, "{place}: nobody understands the note {:?}", block.note);
        let run = ["sh", "rust", "toml", "json", "cel", "text", "picture"].contains(&block.language.as_str());
        assert!(run, "{place}: nobody runs {:?}; let a test do it: <!-- test: name -->", block.language);
    }
    let tested: BTreeSet<String> = PROGRAMS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(named, tested, "each test has its block");
}

#[test]
fn shell_works_when_pasted() {
    let mut chapters: BTreeMap<(String, String), Vec<Block>> = BTreeMap::new();
    for block in all().filter(|block| ["sh", "toml"].contains(&block.language.as_str())) {
        chapters.entry((block.document.clone(), block.chapter.clone())).or_default().push(block);
    }
    for (document, chapter, _) in CHECKS {
        let known = chapters.contains_key(&(document.to_string(), chapter.to_string()));
        assert!(known, "{document} has no shell in a chapter {chapter:?}");
    }
    for ((document, chapter), blocks) in chapters {
        let said = paste_chapter(&blocks);
        for (.., check) in CHECKS.iter().filter(|(of, name, _)| (*of, *name) == (&document, &chapter)) {
            check(&said);
        }
    }
}

/// Pastes the shell of a chapter; what each block printed.
fn paste_chapter(blocks: &[Block]) -> Vec<String> {
    let (configs, mut shell): (Vec<&Block>, Vec<&Block>) =
        blocks.iter().partition(|block| block.language == "toml");
    shell.retain(|block| block.noted("test").is_none());
    let Some(wanted) = shell.first().map(|first| first.noted("hub")) else { return Vec::new() };
    let config =
        wanted.map_or("", |part| &configs.iter().find(|block| block.text.contains(part)).unwrap().text);
    let (mut said, mut desk) = (Vec::new(), Desk::new(config));
    for block in shell {
        // Shown where it fails.
        println!("{}", block.place());
        match block.noted("serves") {
            Some(printed) => desk.starts(block, printed),
            None => said.push(desk.paste(block)),
        }
    }
    said
}

/// What the text around the blocks of a chapter says of what they print.
type Check = fn(&[String]);

const CHECKS: &[(&str, &str, Check)] = &[
    ("README.md", "A five-minute tour", |said| tour(&said[0], &said[1])),
    ("docs/guide.md", "How long things stay", |said| stays(&said[1])),
    ("docs/guide.md", "Consumer groups", |said| groups(&said[0], &said[1], &said[2])),
    ("docs/guide.md", "Dead letters", |said| letters(&said[0])),
    ("docs/guide.md", "Live state: a tour", |said| live_state(&said[0], &said[1])),
    ("docs/guide.md", "Yesterday at 14:03", |said| yesterday(&said[0], &said[1])),
    ("docs/guide.md", "Commits", |said| commit(&said[0])),
    ("docs/guide.md", "Changing a schema without stopping anyone", |said| versions(said)),
    ("docs/guide.md", "Security", |said| tokens(&said[0])),
    ("docs/schemas.md", "Checking schemas before they are registered", |said| compared(&said[0])),
    ("docs/schemas.md", "Schemas in continuous integration", |said| linted(&said[0])),
    ("examples/README.md", "Python", |said| scripts(&said[0], r#""hello": "python""#)),
    ("examples/README.md", "Node", |said| scripts(&said[0], r#""hello":"node""#)),
];

fn stays(said: &str) {
    // The hub may have done a pass by itself between two lines.
    let answers =
        [r#""reclaimed_events":2,"reclaimed_bytes":157,"#, r#""reclaimed_events":0,"reclaimed_bytes":0,"#];
    assert!(answers.iter().any(|answer| said.contains(answer)), "{said}");
    let exported = said.lines().filter(|line| line.starts_with(r#"{"id":"#) && line.contains(r#""payload""#));
    assert_eq!(exported.filter(|line| line.contains("stopped")).count(), 1, "the latest is left: {said}");
    assert_eq!(said.matches(r#""first":3,"next":3"#).count(), 2, "trimmed twice: {said}");
}

fn compared(said: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[1]), (2, "exit code 1"), "the second way round is fine: {said}");
    assert!(lines[0].contains(r#""path":"/cents","rule":"type""#), "{said}");
}

fn linted(said: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[1]), (2, "exit code 1"), "before and after, it is in order: {said}");
    assert!(lines[0].starts_with("schemas/orders/v2.json:6: incompatible: "), "{said}");
}

fn letters(said: &str) {
    assert!(said.contains("mailbox is full"), "the letter says why: {said}");
    assert_eq!(said.matches(r#""replayed":1"#).count(), 2, "tried, then done: {said}");
}

fn tokens(said: &str) {
    assert!(said.contains("401 Unauthorized") && said.contains(r#""error":"unauthorized""#), "{said}");
    assert_eq!(said.matches(r#""topic":"orders.eu""#).count(), 2, "published and exported: {said}");
}

fn yesterday(keys: &str, documents: &str) {
    let then = r#""state":{"processId":"web1","status":"alive","cpu_pct":97},"ts":1754661730000,"offset":1"#;
    assert_eq!(keys.matches(then).count(), 3, "by key, among all keys, and by the command: {keys}");
    assert_eq!(keys.matches(&format!(r#"{then},"applied":2,"base":null}}"#)).count(), 2, "{keys}");
    let merged = r#""state":{"cpu_pct":97,"processId":"web1","status":"stale"}"#;
    assert_eq!(keys.matches(merged).count(), 2, "{keys}");
    let document = r#"{"_key":"web1","_ts":1754661730000,"processId":"web1","status":"alive"}"#;
    assert_eq!(documents.matches(document).count(), 2, "{documents}");
}

fn commit(said: &str) {
    assert!(said.contains(r#""versions":{"bills":{"o-17":1},"totals":{"all":1}}"#), "{said}");
    assert!(said.contains(r#""cents":1990"#), "{said}");
}

fn versions(said: &[String]) {
    let [_, _, raised, copied, _, filled, ended] = said else { panic!("{said:?}") };
    assert_eq!(raised.matches(r#""temp_c":10.0,"unit":"C""#).count(), 2, "read and delivered: {raised}");
    assert!(!raised.contains("temp_f"), "{raised}");
    assert_eq!(copied.matches(r#""caused_by""#).count(), 1, "one was copied: {copied}");
    let lines = filled.lines().filter(|line| line.starts_with(r#"{"id":"#));
    let mut temperatures: Vec<String> = lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"]["temp_c"].as_f64().unwrap())
        .map(|celsius| format!("{celsius:.0}"))
        .collect();
    temperatures.sort();
    assert_eq!(temperatures, ["10", "15", "16", "20", "30", "31"], "each is there once: {filled}");
    assert!(ended.contains(r#""dual_write":false"#), "{ended}");
}

fn tour(before: &str, after: &str) {
    let count = |what: &str| before.matches(what).count();
    assert!(before.contains(r#""cpu_pct":12.50"#), "digit for digit: {before}");
    assert_eq!(count(r#""duplicate":true"#), 1, "one retry is recognised: {before}");
    assert_eq!(count(r#""error":"expectation_failed""#), 1, "one of two writers loses: {before}");
    assert!(before.contains(r#""count":2"#), "an array is published: {before}");
    let mut printed = before.lines().filter(|line| line.starts_with(r#"{"id":"#));
    assert!(printed.any(|line| line.contains(r#""cpu_pct":91"#)), "a group gets what it asks for: {before}");
    assert!(
        after.contains(r#""count":3"#) && after.contains(r#""cpu_pct":12.50"#),
        "it is all there: {after}"
    );
    assert!(after.contains(r#""group":"alerts""#), "so is the group: {after}");
}

fn groups(consume: &str, change: &str, look_after: &str) {
    assert_eq!(consume.matches(r#""ok":true"#).count(), 3, "an ack, a nack and an extend: {consume}");
    let waits = consume.contains(r#""lag":2"#) && consume.contains(r#""why":"retry""#);
    assert!(waits, "one is done, one waits: {consume}");
    let changed = change.contains(r#""maxAttempts":10"#) && change.contains(r#""backoffMs":500"#);
    assert!(changed, "its options are other ones: {change}");
    assert!(look_after.contains(r#""exact":true"#), "what a reset would deliver is counted: {look_after}");
    assert!(look_after.contains(r#""skipped":true"#), "one is skipped: {look_after}");
    let come = look_after.contains(r#"{"job":1}"#) && look_after.contains(r#"{"job":3}"#);
    assert!(come, "the others come: {look_after}");
}

fn live_state(before: &str, after: &str) {
    let etags = |said: &str| -> Vec<String> {
        said.lines().filter(|line| line.starts_with("etag: ")).map(str::to_owned).collect()
    };
    assert!(before.contains("HTTP/1.1 200 OK") && before.contains(r#""_key":"web2:api:18""#), "{before}");
    assert!(before.contains(r#""count":2,"items":[{"_key":"web2:api:18""#), "two are busy: {before}");
    assert!(before.contains(r#""seen":2"#), "web1 was seen twice: {before}");
    assert!(before.contains("HTTP/1.1 304 Not Modified"), "{before}");
    let tags = etags(before);
    assert!(tags.len() == 2 && tags[0] == tags[1], "one tag for one document: {before}");
    assert!(after.contains(r#""count":2,"items""#) && after.contains(r#""seen":2"#), "{after}");
    assert_eq!(etags(after), tags[..1], "the tag is the same after a crash: {after}");
    assert!(after.contains(r#""count":1,"items":[{"_key":"web1:api:17""#), "one process is gone: {after}");
}

/// An event is published, consumed and followed.
fn scripts(said: &str, payload: &str) {
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[1].contains(payload), "{said}");
    assert!(lines[2].contains(&payload.replace(": ", ":")), "{said}");
}

fn is_manifest(block: &Block) -> bool {
    block.text.contains("dependencies]")
}

#[test]
fn configurations_start_a_hub() {
    let (identity, signer) = (Identity::new(), Signer::ec());
    let keys = jwks(&[signer.jwk("k")]);
    let beside =
        [identity.files().as_slice(), &[("keys.json", keys.as_str()), ("schemas/orders/v1.json", "{}")]]
            .concat();
    for block in all_of("toml").into_iter().filter(|block| !is_manifest(block)) {
        // Shown where the hub does not start.
        println!("{}", block.place());
        let env = [("OPS_TOKEN", "ops"), ("SHOP_TOKEN", "shop")];
        let args = ["--listen", "127.0.0.1:0"];
        let hub = Setup { file: &block.text, beside: &beside, args: &args, env: &env }.start();
        assert!(hub.ends().contains("ready"), "{}", block.place());
    }
}

/// What a document says to depend on is what its blocks are compiled with, and all that they use.
#[test]
fn dependencies_are_named() {
    let manifest = std::fs::read_to_string(in_repository("crates/prombus-docs/Cargo.toml")).unwrap();
    for document in documents() {
        let (mut named, mut used) = (BTreeSet::from(["std".to_owned()]), BTreeSet::new());
        for block in blocks_of(&document) {
            if block.language == "toml" && is_manifest(&block) {
                named.extend(dependencies(&block, &manifest));
            } else if block.language == "rust" {
                let paths = block.text.lines().filter_map(|line| line.trim_start().strip_prefix("use "));
                let crates = paths.filter_map(|path| path.split_once("::")).map(|(name, _)| name.to_owned());
                used.extend(crates.filter(|name| !["crate", "super", "self"].contains(&name.as_str())));
            }
        }
        let missing: Vec<&String> = used.difference(&named).collect();
        assert!(missing.is_empty(), "{document} uses {missing:?}, and no toml block has it as a dependency");
    }
}

/// The crates that a manifest names, each of which is compiled here too.
fn dependencies(block: &Block, manifest: &str) -> Vec<String> {
    let table: toml::Table = block.text.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place()));
    let sections = ["dependencies", "dev-dependencies"].map(|name| table.get(name));
    let crates = sections.into_iter().flatten().flat_map(|section| section.as_table().unwrap());
    let check = |(name, about): (&String, &toml::Value)| {
        assert!(manifest.contains(&format!("\n{name}.workspace")), "{}: {name} is unknown", block.place());
        if let Some(path) = about.get("path") {
            let path = path.as_str().unwrap();
            let inside = &path[path.find("crates/").unwrap()..];
            assert!(in_repository(inside).join("Cargo.toml").exists(), "{}: {path}", block.place());
        }
        name.replace('-', "_")
    };
    crates.map(check).collect()
}

#[test]
fn json_is_json() {
    for block in all_of("json") {
        // What is left out is shown by dots.
        let text = block.text.replace(", ...", "").replace("[...]", "[]").replace("{...}", "{}");
        let parsed = serde_json::from_str::<Value>(&text);
        assert!(parsed.is_ok(), "{}: {parsed:?}", block.place());
    }
}

#[test]
fn expressions_compile() {
    let site = Site::start();
    site.api.publish("t", "1").is(201);
    for block in all_of("cel") {
        for line in block.text.lines() {
            site.api.get(&format!("/v1/topics/t/events?filter={}", encoded(line))).is(200);
        }
    }
}

/// Each line of plain text is a command with what it takes: help knows all of it.
#[test]
fn usages_are_those_of_the_command() {
    for block in all_of("text") {
        for line in block.text.lines() {
            let usage = line.strip_prefix("prombus ").unwrap_or_else(|| panic!("{}: {line}", block.place()));
            is_usage(usage.trim(), &block.place());
        }
    }
}

fn is_usage(usage: &str, place: &str) {
    let help = |args: &[&str]| {
        let mut command = binary(in_repository("").as_path());
        command.args(args).arg("--help");
        run(command, b"").ok()
    };
    let mut words = usage.split_whitespace().take_while(|word| !word.starts_with('['));
    let name = words.next().unwrap();
    let mut known = help(&[name]);
    // What is written in small letters is to be typed as it is.
    let typed = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    for verb in words.filter(|word| word.contains('|')).flat_map(|word| word.split('|')).filter(typed) {
        known += &help(&[name, verb]);
    }
    let flags =
        usage.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| word.starts_with("--"));
    for flag in flags {
        assert!(known.contains(flag), "{place}: prombus {name} has no {flag}");
    }
}
