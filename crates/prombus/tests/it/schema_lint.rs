//! `prombus schema lint` and the comparison of files, which need no hub.

use crate::common::{Said, binary, run};
use serde_json::Value;
use std::path::Path;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        put(folder.path(), path, bytes);
    }
    folder
}

fn put(folder: &Path, path: &str, bytes: &[u8]) {
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
}

fn prombus(folder: &Path, args: &[&str], input: &str) -> Said {
    let mut command = binary(folder);
    command.args(args);
    run(command, input.as_bytes())
}

fn lint(folder: &Path, args: &[&str]) -> Said {
    prombus(folder, &[&["schema", "lint"], args].concat(), "")
}

const NUMBER: &[u8] = b"{\n\"type\": \"number\"\n}";
const INTEGER: &[u8] = b"{\n\"type\": \"integer\"\n}";

#[test]
fn a_folder_in_order_passes() {
    let files: [(&str, &[u8]); 6] = [
        ("s/orders/v1.json", INTEGER),
        ("s/orders/v2.json", NUMBER),
        (
            "s/orders/upcasters/1.json",
            b"{\"ops\":[{\"rename\":[\"a\",\"b\"]},{\"set\":{\"c\":\"1\"}},{\"remove\":[\"d\"]}]}",
        ),
        ("s/process.state/v1.json", b"true"),
        ("s/README.md", b"\xff"),
        ("s/.git/HEAD", b"\xff"),
    ];
    let folder = folder(&files);
    put(folder.path(), "p.toml", b"[topics.orders]\n[topics.\"audit\"]\nschema = \"off\"\n");
    for dir in ["s", "s/", "./s"] {
        let said = lint(folder.path(), &[dir, "--config", "p.toml"]);
        assert!(said.stderr.contains("is in order: 5 files"), "{said:?}");
        assert_eq!(said.ok(), "");
    }
}

#[test]
fn findings_name_file_and_line_and_end_with_1() {
    let files: [(&str, &[u8]); 9] = [
        ("s/orders/v1.json", NUMBER),
        ("s/orders/v2.json", INTEGER),
        ("s/orders/v4.json", b"{\n\n\"type\": 7\n}"),
        ("s/orders/notes.txt", b""),
        ("s/Bad/v1.json", b"{}"),
        ("s/dlq.orders/v1.json", b"{}"),
        ("s/latin/v1.json", b"{\n\"title\": \"\xe9\"}"),
        ("s/up/v1.json", b"{}"),
        ("s/up/upcasters/1.json", b"{\"ops\":[\n{\"move\":[]}]}"),
    ];
    let folder = folder(&files);
    put(
        folder.path(),
        "p.toml",
        b"[store]\nmemory = true\n[topics.orders]\n\n[topics.\"late.ones\"]\npartitions = 2\n",
    );
    let said = lint(folder.path(), &["s", "--config", "p.toml"]);
    let places: Vec<String> =
        said.stdout.lines().map(|line| line.splitn(3, ": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "s/orders/notes.txt:1 name",
        "s/Bad:1 name",
        "s/dlq.orders:1 name",
        "s/latin/v1.json:1 unreadable",
        "s/orders/v4.json:1 gap",
        "s/orders/v4.json:3 schema",
        "s/orders/v2.json:2 incompatible",
        "s/up/upcasters/1.json:2 upcaster",
        "p.toml:5 no-schema",
    ];
    assert_eq!(places, expected, "{said:?}");
    assert!(said.stdout.contains("not UTF-8 in line 2"), "{said:?}");
    assert!(said.stdout.contains("; for example 0."), "{said:?}");
    assert!(said.fails_with(1).contains("error: s has 9 findings"));
}

#[test]
fn expressions_of_upcasters_are_compiled() {
    for (op, hint) in [
        ("{\"set\":{\"a\":\"payload.\"}}", "compile"),
        ("{\"set\":{\"a\":\"1\",\"a\":\"2\"}}", "set twice"),
        ("{\"rename\":[\"a\"]}", "\"rename\": [\"from\", \"to\"]"),
    ] {
        let ops = format!("{{\"ops\":[{op}]}}");
        let folder = folder(&[("s/a/v1.json", b"{}"), ("s/a/upcasters/1.json", ops.as_bytes())]);
        let said = lint(folder.path(), &["s"]);
        assert!(said.stdout.starts_with("s/a/upcasters/1.json:1: upcaster: "), "{said:?}");
        assert!(said.stdout.contains(hint), "{said:?}");
        said.fails_with(1);
    }
}

#[test]
fn programs_get_objects_and_github_gets_annotations() {
    let folder = folder(&[("s/a/v1.json", NUMBER), ("s/a/v2.json", INTEGER), ("s/100%,:/v1.json", b"{}")]);
    let said = lint(folder.path(), &["s", "--format", "json"]);
    let found: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [name, broken] = found.as_slice() else { panic!("{said:?}") };
    assert_eq!((&name["file"], &name["rule"]), (&"s/100%,:".into(), &"name".into()));
    assert_eq!((&broken["file"], &broken["line"]), (&"s/a/v2.json".into(), &2.into()));
    assert_eq!((&broken["rule"], &broken["violation"]["rule"]), (&"incompatible".into(), &"type".into()));
    assert!(broken["violation"]["counterexample"].is_f64(), "{broken}");
    said.fails_with(1);

    let said = lint(folder.path(), &["s", "--format", "github"]);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(lines[0].starts_with("::error file=s/100%25%2C%3A,line=1,title=name::"), "{said:?}");
    assert!(lines[1].starts_with("::error file=s/a/v2.json,line=2,title=incompatible::"), "{said:?}");
    said.fails_with(1);
}

/// What a file says is told in one line: it must not become a command of the workflow or act on a terminal.
#[test]
fn what_others_wrote_stays_in_its_line() {
    let wicked = b"{\"required\": [\"a\\n::set-env name=X::1\\u001b[2J\"]}";
    let folder = folder(&[("s/a/v1.json", b"{}"), ("s/a/v2.json", wicked)]);
    for format in ["text", "github", "json"] {
        let said = lint(folder.path(), &["s", "--format", format]);
        assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
        assert!(!said.stdout.contains('\u{1b}'), "{said:?}");
        assert!(said.stdout.contains("set-env"), "{said:?}");
        said.fails_with(1);
    }
}

#[test]
fn directions_and_policies_are_those_that_are_asked_for() {
    let files: [(&str, &[u8]); 2] = [
        ("s/a/v1.json", b"{\"properties\":{\"a\":{\"type\":\"string\"}}}"),
        ("s/a/v2.json", b"{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\"}}}"),
    ];
    let folder = folder(&files);
    for (args, code) in [
        (&[][..], 0),
        (&["--compat", "full"], 0),
        (&["--policy", "strict"], 1),
        (&["--policy", "strict", "--compat", "forward"], 0),
        (&["--policy", "strict", "--compat", "full_transitive"], 1),
        (&["--policy", "strict", "--compat", "none"], 0),
    ] {
        let said = lint(folder.path(), &[&["s"], args].concat());
        assert_eq!(said.code, Some(code), "{args:?}: {said:?}");
    }
    put(folder.path(), "p.toml", b"[schemas]\ndir = \"s\"\npolicy = \"strict\"\n");
    lint(folder.path(), &["s", "--config", "p.toml"]).fails_with(1);
    lint(folder.path(), &["s", "--config", "p.toml", "--policy", "lenient"]).ok();
    lint(folder.path(), &["s", "--config", "p.toml", "--compat", "forward"]).ok();
}

#[test]
fn a_folder_without_schemas_and_a_bad_configuration_are_findings() {
    let folder = folder(&[("s/.keep", b""), ("t/a/v1.json", b"{}"), ("p.toml", b"\n[topcis]\n")]);
    assert_eq!(
        lint(folder.path(), &["s"]).stdout.lines().next().map(|line| line.starts_with("s:1: empty: ")),
        Some(true)
    );
    let said = lint(folder.path(), &["t", "--config", "p.toml"]);
    assert!(said.stdout.starts_with("p.toml:2: config: "), "{said:?}");
    said.fails_with(1);
}

/// What would keep a hub with this configuration from starting.
#[test]
fn a_topic_of_copies_has_no_schemas() {
    let folder = folder(&[("s/t/v1.json", b"{}"), ("s/t.v1/v1.json", b"{}")]);
    put(folder.path(), "p.toml", b"[topics.t]\ndual_write = true\n");
    let said = lint(folder.path(), &["s", "--config", "p.toml"]);
    assert!(said.stdout.starts_with("s/t.v1:1: barred: topic t.v1 cannot have a schema"), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
    said.fails_with(1);
}

#[test]
fn one_break_with_an_upcaster_lets_nothing_else_off() {
    let change = b"{\"ops\":[{\"set\":{\"n\":\"1\"}}]}";
    let folder =
        folder(&[("s/a/v1.json", NUMBER), ("s/a/v2.json", INTEGER), ("s/a/upcasters/1.json", change)]);
    lint(folder.path(), &["s"]).ok();
    put(folder.path(), "s/a/upcasters/2.json", b"{\"ops\":[]}");
    put(folder.path(), "s/a/v3.json", b"{\n\"type\": \"string\"\n}");
    let said = lint(folder.path(), &["s"]);
    assert!(said.stdout.starts_with("s/a/v3.json:2: incompatible: "), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
    said.fails_with(1);
}

#[test]
fn two_files_are_compared_without_a_hub() {
    let folder = folder(&[("old.json", NUMBER), ("new.json", INTEGER), ("bad.json", b"{\"type\": 7}")]);
    let check =
        |args: &[&str], input: &str| prombus(folder.path(), &[&["schema", "check"], args].concat(), input);
    let said = check(&["--old", "old.json", "--new", "new.json"], "");
    let violation: Value = serde_json::from_str(said.stdout.trim_end()).unwrap();
    assert_eq!((&violation["path"], &violation["rule"]), (&"".into(), &"type".into()));
    assert!(violation["counterexample"].is_f64() && violation["message"].is_string(), "{violation}");
    let stderr = said.fails_with(1);
    assert!(
        stderr.contains("new.json after old.json is not compatible (backward, lenient): 1 violation"),
        "{stderr}"
    );

    let said =
        check(&["--old", "old.json", "--new", "new.json", "--compat", "forward", "--policy", "strict"], "");
    assert!(said.stderr.contains("is compatible (forward, strict)"), "{said:?}");
    assert_eq!(said.ok(), "");
    check(&["--old", "-", "--new", "old.json"], "{\"type\": \"integer\"}").ok();
    let stderr = check(&["--old", "old.json", "--new", "bad.json"], "").fails_with(1);
    assert!(stderr.contains("bad.json: the schema is not valid at `/type`"), "{stderr}");
}
