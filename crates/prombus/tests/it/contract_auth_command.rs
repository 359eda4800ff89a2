//! The command line shows a token: by a flag, by the environment, and what it says where the hub does not take it.

use crate::auth_support::jwt::{Signer, all, scopes};
use crate::auth_support::{Guarded, SECRET, STRANGER};
use crate::common::{Said, run};

/// Every command that talks to a hub, and what it reads.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["pub", "t", "1"], ""),
    (&["pub", "t", "-"], "1\n2\n"),
    (&["sub", "t", "--group", "g", "--from", "earliest", "--max", "1"], ""),
    (&["topics", "list"], ""),
    (&["topics", "show", "t"], ""),
    (&["topics", "create", "new"], ""),
    (&["groups", "list", "t"], ""),
    (&["groups", "show", "t", "g"], ""),
    (&["dlq", "list", "t"], ""),
    (&["export", "t"], ""),
    (&["import", "t"], "{\"payload\":1}\n"),
];

fn with_env(hub: &Guarded, args: &[&str], token: &str) -> Said {
    let mut command = hub.command(args);
    command.env("PROMBUS_TOKEN", token);
    run(command, b"")
}

fn root() -> String {
    Signer::secret(SECRET).token(&all())
}

#[test]
fn every_command_works_with_a_token() {
    let hub = Guarded::jwt();
    for (args, input) in COMMANDS {
        let mut command = hub.command(args);
        command.env("PROMBUS_TOKEN", root());
        let said = run(command, input.as_bytes());
        assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
    }
}

#[test]
fn every_command_without_a_token_fails_and_says_what_is_missing() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    for (args, input) in COMMANDS {
        let said = run(hub.command(args), input.as_bytes());
        assert_eq!(said.code, Some(1), "{args:?}: {said:?}");
        assert!(said.stderr.contains("token"), "{args:?}: {said:?}");
        assert!(said.stdout.is_empty(), "{args:?}: {said:?}");
    }
}

#[test]
fn every_command_with_a_bad_token_fails_and_does_not_repeat_it() {
    let hub = Guarded::jwt();
    hub.caller(&root()).publish("t").is(201);
    for (args, input) in COMMANDS {
        let mut command = hub.command(args);
        command.env("PROMBUS_TOKEN", STRANGER);
        let said = run(command, input.as_bytes());
        assert_eq!(said.code, Some(1), "{args:?}: {said:?}");
        assert!(!said.stderr.is_empty() && !said.stderr.contains(STRANGER), "{args:?}: {said:?}");
    }
}

#[test]
fn the_flag_wins_over_the_environment() {
    let hub = Guarded::jwt();
    with_env(&hub, &["--token", &root(), "pub", "t", "1"], STRANGER).ok();
    with_env(&hub, &["pub", "t", "1", "--token", &root()], STRANGER).ok();
    with_env(&hub, &["--token", STRANGER, "pub", "t", "1"], &root()).fails_with(1);
}

#[test]
fn what_a_token_does_not_allow_fails_and_says_so() {
    let hub = Guarded::jwt();
    let token = Signer::secret(SECRET).token(&scopes(&["publish:mine"]));
    with_env(&hub, &["pub", "mine", "1"], &token).ok();
    let said = with_env(&hub, &["pub", "theirs", "1"], &token).fails_with(1);
    assert!(said.contains("publish") && said.contains("theirs") && !said.contains(&token), "{said}");
    let said = with_env(&hub, &["sub", "mine", "--group", "g", "--max", "1"], &token).fails_with(1);
    assert!(said.contains("subscribe") && !said.contains(&token), "{said}");
}

#[test]
fn a_token_that_is_no_header_value_is_an_error_and_no_panic() {
    let hub = Guarded::jwt();
    for token in ["a\nb", "a\r\nx-evil: 1", "tokèn", " "] {
        let said = with_env(&hub, &["topics", "list"], token);
        assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
        assert!(!said.stderr.contains("panic"), "{said:?}");
    }
}

#[test]
fn help_does_not_show_the_token_of_the_environment() {
    let hub = Guarded::jwt();
    let said = with_env(&hub, &["pub", "--help"], "secret-token-of-the-environment");
    assert!(!said.stdout.contains("secret-token-of-the-environment"), "{said:?}");
}

#[test]
fn a_hub_without_auth_takes_a_command_with_a_token() {
    let hub = Guarded::start("");
    with_env(&hub, &["pub", "t", "1"], STRANGER).ok();
}
