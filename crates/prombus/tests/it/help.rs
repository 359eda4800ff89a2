//! Help texts: every command has one with an example, and mistakes are answered with what to do.

use crate::common::{Said, binary, run};

fn prombus(args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let mut command = binary(folder.path());
    command.args(args);
    run(command, b"")
}

/// Every command by its words.
const COMMANDS: &[&[&str]] = &[
    &["serve"],
    &["dev"],
    &["pub"],
    &["sub"],
    &["tail"],
    &["topics"],
    &["topics", "list"],
    &["topics", "show"],
    &["topics", "create"],
    &["topics", "alter"],
    &["topics", "clean"],
    &["topics", "trim"],
    &["topics", "delete"],
    &["groups"],
    &["groups", "list"],
    &["groups", "show"],
    &["groups", "reset"],
    &["groups", "skip"],
    &["groups", "delete"],
    &["get"],
    &["list"],
    &["at"],
    &["collections"],
    &["collections", "list"],
    &["collections", "show"],
    &["collections", "set"],
    &["projections"],
    &["projections", "list"],
    &["projections", "show"],
    &["projections", "put"],
    &["projections", "delete"],
    &["projections", "rebuild"],
    &["commit"],
    &["snapshots"],
    &["schema"],
    &["schema", "register"],
    &["schema", "check"],
    &["schema", "list"],
    &["schema", "show"],
    &["schema", "upcast"],
    &["schema", "lint"],
    &["dlq"],
    &["dlq", "list"],
    &["dlq", "show"],
    &["dlq", "replay"],
    &["replay"],
    &["replay", "start"],
    &["replay", "list"],
    &["replay", "show"],
    &["replay", "pause"],
    &["replay", "resume"],
    &["replay", "cancel"],
    &["replay", "delete"],
    &["export"],
    &["import"],
    &["backup"],
    &["move"],
    &["check"],
    &["bench"],
    &["health"],
    &["completions"],
];

#[test]
fn the_list_of_commands_is_complete() {
    let help = prombus(&["--help"]).ok();
    let listed = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let tested: Vec<_> = COMMANDS.iter().filter(|words| words.len() == 1).map(|words| words[0]).collect();
    assert_eq!(listed.iter().filter(|name| **name != "help").copied().collect::<Vec<_>>(), tested);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for words in COMMANDS {
        let mut args = words.to_vec();
        args.push("--help");
        let said = prombus(&args);
        assert_eq!(said.stderr, "", "{words:?}");
        let help = said.ok();
        let usage = format!("Usage: prombus {}", words.join(" "));
        assert!(help.contains(&usage), "{words:?} has no usage:\n{help}");
        let example =
            help.split("Example").nth(1).unwrap_or_else(|| panic!("{words:?} has no example:\n{help}"));
        assert!(example.contains(&format!("prombus {}", words.join(" "))), "{words:?}:\n{example}");
    }
}

#[test]
fn the_version_is_told() {
    assert_eq!(prombus(&["--version"]).ok(), concat!("prombus ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_ends_with_2_and_says_nothing_on_stdout() {
    for (args, hint) in [
        (&[][..], "Usage"),
        (&["nonsense"], "nonsense"),
        (&["pub"], "TOPIC"),
        (&["pub", "a", "{not json"], "not JSON"),
        (&["pub", "a", "1", "--header", "x-a"], "name=value"),
        (&["pub", "a", "1", "--key", "k", "--partition", "1"], "--partition"),
        (&["pub", "a", "1", "--expect-last-id", "none"], "--key"),
        (&["pub", "a", "-", "--id", "0198c0de-0000-7000-8000-000000000001"], "one event"),
        (&["pub", "a", "1", "--url", "localhost:7070"], "write http://localhost:7070"),
        (&["topics", "create", "a", "--durability", "maybe"], "sync or interval"),
        (&["topics", "alter", "a"], "nothing to change"),
        (&["sub", "a"], "--group"),
        (&["sub", "a", "--group", "g", "--from", "ts"], "needs --ts"),
        (&["sub", "a", "--group", "g", "--from", "offset"], "--from"),
        (&["sub", "a", "--group", "g", "--from", "latest", "--ts", "1"], "--from ts"),
        (&["sub", "a", "--group", "g", "--max", "0"], "--max"),
        (&["sub", "a", "--group", "g", "--url", "hub"], "write http://hub:7070"),
        (&["groups", "reset", "a", "g"], "--to"),
        (&["groups", "reset", "a", "g", "--to", "offset", "--partition", "0"], "needs --offset"),
        (&["groups", "skip", "a", "g", "--partition", "0"], "--offset"),
        (&["get", "c"], "KEY"),
        (&["get", "c", "k", "--min-offset", "x"], "3:7"),
        (&["list", "c", "status"], "field=value"),
        (&["list", "c", "--limit", "0"], "--limit"),
        (&["list", "c", "--all", "--limit", "1"], "--all"),
        (&["collections", "set", "c", "--index", "a,"], "field,field"),
        (&["collections", "set", "c", "--index", "a", "--no-indexes"], "--no-indexes"),
        (&["projections", "put", "/does/not/exist"], "cannot read /does/not/exist"),
        (&["projections", "put", "-"], "stdin: it contains no [[projection]]"),
        (&["commit", "-"], "stdin is not JSON"),
        (&["snapshots", "--listen", ":0"], "--collection"),
        (&["snapshots", "--collection", "c", "--listen", "0.0.0.0:0"], "--insecure"),
        (&["snapshots", "--collection", "c", "--listen", "nonsense"], "host:port"),
        (&["snapshots", "--collection", "C!", "--listen", ":0"], "not a collection name"),
        (&["schema", "register", "a"], "FILE"),
        (&["schema", "register", "a", "-"], "stdin is not JSON"),
        (&["schema", "check", "a"], "FILE"),
        (&["schema", "check", "--old", "a"], "--new"),
        (&["schema", "check", "--old", "-", "--new", "-"], "only one of --old and --new"),
        (&["schema", "check", "a", "b", "--old", "c", "--new", "d"], "--old"),
        (&["schema", "check", "a", "b", "--compat", "backwards"], "backward, forward or full"),
        (&["schema", "check", "a", "b", "--policy", "loose"], "lenient or strict"),
        (&["schema", "show", "a", "newest"], "a number, or latest"),
        (&["schema", "show", "a", "--example"], "VERSION"),
        (&["schema", "upcast", "a", "1"], "FILE"),
        (&["schema", "upcast", "a", "1", "-", "--delete"], "--delete"),
        (&["schema", "lint", "/does/not/exist"], "cannot read the folder /does/not/exist"),
        (&["schema", "lint", ".", "--format", "xml"], "--format"),
        (&["schema", "lint", ".", "--config", "/does/not/exist"], "cannot read /does/not/exist"),
        (&["dlq", "show", "a", "nope"], "nope"),
        (&["dlq", "replay", "a", "--to", "nobody"], "--to"),
        (&["check"], "--data"),
        (&["bench", "--size", "3"], "--size"),
        (&["serve", "--data", "x", "--store", "memory"], "--store"),
    ] {
        let said = prombus(args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(hint), "{args:?}: {}", said.stderr);
    }
}

#[test]
fn a_hub_that_does_not_answer_is_a_failure_that_names_it() {
    for args in [
        &["pub", "a", "1", "--url", "http://127.0.0.1:1"][..],
        &["topics", "list", "--url", "http://127.0.0.1:1"],
        &["groups", "list", "--url", "http://127.0.0.1:1"],
        &["get", "c", "k", "--url", "http://127.0.0.1:1"],
        &["list", "c", "--url", "http://127.0.0.1:1"],
        &["collections", "list", "--url", "http://127.0.0.1:1"],
        &["projections", "list", "--url", "http://127.0.0.1:1"],
        &["schema", "list", "--url", "http://127.0.0.1:1"],
        &["dlq", "list", "a", "--url", "http://127.0.0.1:1"],
        &["export", "a", "--url", "http://127.0.0.1:1"],
        &["bench", "--url", "http://127.0.0.1:1"],
    ] {
        let stderr = prombus(args).fails_with(1);
        assert!(stderr.contains("no hub answers at http://127.0.0.1:1"), "{args:?}: {stderr}");
    }
}

/// What was typed may be what somebody else has made up, and is shown like anything else.
#[test]
fn a_mistake_is_told_without_what_would_act_on_the_terminal() {
    for args in [&["topics", "show", "a", "--x\u{202e}y\u{9b}31m"][..], &["to\u{202e}pics\u{9b}31m"]] {
        let error = prombus(args).fails_with(2);
        assert!(error.contains(r"\u202e") && error.contains(r"\u009b31m"), "{error}");
        assert!(!error.contains(['\u{202e}', '\u{9b}']), "{error}");
    }
}
