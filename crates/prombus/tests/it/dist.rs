//! What is under `dist/`: flags that exist, a configuration that works, and a unit that lets the hub end in peace.

use crate::auth_support::Setup;
use crate::client_support::Spot;
use crate::common::{Said, binary, run};
use crate::examples_support::{Running, shell};
use std::path::Path;

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)).unwrap()
}

fn prombus(args: &[&str]) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let mut command = binary(folder.path());
    command.args(args);
    run(command, b"")
}

/// The command lines of the hub in a file, each as its words from the command on.
fn calls(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let words = |line: &str| -> Vec<String> {
        let apart = |c: char| c.is_whitespace() || "[],\"'`()=".contains(c);
        line.split(apart).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let call = |line: &str| {
        let mut words = words(line);
        let is_hub = |word: &String| word == "prombus" || word.ends_with("/bin/prombus") || word == "CMD";
        let last = words.iter().rposition(is_hub)?;
        let call = words.split_off(last + 1);
        let is_command = call.first().is_some_and(|word| prombus(&[word, "--help"]).code == Some(0));
        is_command.then_some(call)
    };
    text.lines().filter_map(call).collect()
}

#[test]
fn every_command_and_flag_in_them_exists() {
    for (file, least) in [("prombus.service", 1), ("Containerfile", 2), ("README.md", 2)] {
        let calls = calls(&read(file));
        assert!(calls.len() >= least, "{file}: {calls:?}");
        for call in calls {
            let help = prombus(&[&call[0], "--help"]).ok();
            for flag in call.iter().filter(|word| word.starts_with("--")) {
                let is_there = help.split([' ', '\n', ',']).any(|word| word == flag);
                assert!(is_there, "{file}: prombus {} has no {flag}", call[0]);
            }
        }
    }
}

#[test]
fn the_variables_in_them_are_known() {
    let help = prombus(&["serve", "--help"]).ok();
    let variable = |word: &&str| word.starts_with("PROMBUS_");
    for file in ["prombus.service", "Containerfile", "README.md"] {
        let text = read(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(variable) {
            assert!(help.contains(name), "{file}: {name}");
        }
    }
}

#[test]
fn the_configuration_works_and_the_health_check_needs_no_token() {
    const TOKEN: &str = "a-token-for-the-one-who-runs-it";
    let (file, args) = (read("prombus.toml"), ["--listen", "127.0.0.1:0"]);
    let setup = Setup { file: &file, args: &args, ..Setup::default() };
    let said = setup.is_usage_error();
    assert!(said.contains("OPS_TOKEN"), "{said}");
    let hub = Setup { env: &[("OPS_TOKEN", TOKEN)], ..setup }.start();
    let run = |args: &[&str]| run(hub.command(args), b"");
    run(&["health"]).ok();
    let said = run(&["topics", "list"]).fails_with(1);
    assert!(said.contains("--token or PROMBUS_TOKEN"), "{said}");
    run(&["--token", TOKEN, "topics", "list"]).ok();
    assert!(hub.said().contains("{\"timestamp\""), "the log is as the file says: {}", hub.said());
}

#[test]
fn a_hub_that_is_not_there_is_not_healthy() {
    let said = prombus(&["--url", "http://127.0.0.1:1", "health"]).fails_with(1);
    assert!(said.contains("is it running?"), "{said}");
    let said = prombus(&["--url", "http://127.0.0.1:1", "health", "--wait", "1"]).fails_with(1);
    assert_eq!(
        said.matches("is it running?").count(),
        2,
        "it says what it waits for, and what was missing: {said}"
    );
}

#[test]
fn the_health_check_waits_for_a_hub_that_starts() {
    let mut hub = Spot::start();
    hub.kill();
    let script = format!("exec {} health --wait 60 2>&1", env!("CARGO_BIN_EXE_prombus"));
    let mut waiting = Running::start(shell(&script, Path::new("/"), &hub.url()));
    let said = waiting.line();
    assert!(said.ends_with("; retrying"), "{said}");
    hub.start_again();
    while !waiting.line().contains("is ready") {}
    waiting.end();
}

#[test]
fn the_unit_has_a_user_of_its_own_and_lets_the_hub_end_in_peace() {
    let unit = read("prombus.service");
    let value = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    assert_eq!((value("DynamicUser").as_str(), value("Restart").as_str()), ("yes", "on-failure"));
    let data = format!("/var/lib/{}", value("StateDirectory"));
    assert!(value("ExecStart").contains(&format!("--data {data}")));
    let grace: u64 = value("TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    assert!(grace > 10, "the hub may take 10 s");
    assert!(value("LimitNOFILE").parse::<u64>().unwrap() >= 65_536);
}

#[test]
fn shells_get_a_script_that_knows_every_command() {
    let help = prombus(&["--help"]).ok();
    let listed = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = prombus(&["completions", shell]).ok();
        for command in commands.iter().chain(&["--ca-cert", "--log-level"]) {
            assert!(script.contains(command.trim_start_matches('-')), "{shell} has no {command}");
        }
    }
    let said = prombus(&["completions", "tcsh"]).fails_with(2);
    assert!(said.contains("bash") && said.contains("zsh") && said.contains("fish"), "{said}");
    let script = prombus(&["completions", "bash"]).ok();
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-c", "source /dev/stdin && complete -p prombus"]);
    let said = run(bash, script.as_bytes()).ok();
    assert!(said.contains("prombus"), "{said}");
}
