//! Encryption: what a hub with a certificate speaks and does not, and what it says of a certificate that cannot be used.

use crate::auth_support::jwt::{Signer, all};
use crate::auth_support::line::{Flow, publish, subscribe};
use crate::auth_support::tls::{Identity, Secure};
use crate::auth_support::{Guarded, SECRET, Setup, is_unauthorized, put_file, secret_file, until};
use crate::common::{Said, run};
use crate::contract_support::{Answer, Call};
use crate::ws_support::Socket;
use std::io::{Read, Write};

const ARGS: [&str; 4] = ["--tls-cert", "hub.pem", "--tls-key", "hub.key"];

fn start(identity: &Identity) -> Guarded {
    Setup { args: &ARGS, beside: &identity.files(), ..Setup::default() }.start()
}

fn frames(hub: &Guarded, identity: &Identity) -> Socket<Secure> {
    let line = identity.connect(&hub.api).unwrap();
    Socket::over(line, "wss://localhost/ws", &[]).unwrap_or_else(|answer| panic!("{answer:?}"))
}

#[test]
fn a_hub_with_a_certificate_says_that_it_speaks_https() {
    let hub = start(&Identity::new());
    assert!(hub.url.starts_with("https://"), "{}", hub.url);
}

#[test]
fn https_works() {
    let identity = Identity::new();
    let hub = start(&identity);
    identity.call(&hub.api, &Call::new("POST", "/publish/t?key=k").body(b"{\"n\":1}")).is(201);
    let page = identity.call(&hub.api, &Call::new("GET", "/v1/topics/t/events")).is(200);
    assert_eq!(page["events"][0]["payload"]["n"], 1);
}

#[test]
fn a_large_body_comes_through_whole() {
    let identity = Identity::new();
    let hub = start(&identity);
    let payload = format!("\"{}\"", "x".repeat(900_000));
    identity.call(&hub.api, &Call::new("POST", "/publish/t").body(payload.as_bytes())).is(201);
    let page = identity.call(&hub.api, &Call::new("GET", "/v1/topics/t/events")).is(200);
    assert_eq!(page["events"][0]["payload"].as_str().unwrap().len(), 900_000);
}

#[test]
fn wss_works() {
    let identity = Identity::new();
    let hub = start(&identity);
    let mut frames = frames(&hub, &identity);
    frames.ok(publish("t"));
    frames.ok(subscribe("t", "g"));
    let event = frames.find(|frame| frame["op"] == "EVENT");
    assert_eq!(event["event"]["payload"], 1);
}

#[test]
fn streams_work() {
    let identity = Identity::new();
    let hub = start(&identity);
    let publish = Call::new("POST", "/publish/t").body(b"1");
    identity.call(&hub.api, &publish).is(201);
    let mut flow = Flow::over(identity.connect(&hub.api).unwrap(), "t", "");
    flow.until("\"offset\":0");
    identity.call(&hub.api, &publish).is(201);
    flow.until("\"offset\":1");
}

#[test]
fn tokens_work_over_encryption() {
    let identity = Identity::new();
    let file = secret_file();
    let hub = Setup { file: &file, args: &ARGS, beside: &identity.files(), ..Setup::default() }.start();
    is_unauthorized(&identity.call(&hub.api, &Call::new("GET", "/v1/topics")));
    let bearer = format!("Bearer {}", Signer::secret(SECRET).token(&all()));
    identity.call(&hub.api, &Call::new("GET", "/v1/topics").header("authorization", &bearer)).is(200);
    frames(&hub, &identity).fails(publish("t"), "unauthorized");
}

#[test]
fn certificate_and_key_may_stand_in_the_file() {
    let identity = Identity::new();
    let file = "[server]\ntls_cert = \"hub.pem\"\ntls_key = \"hub.key\"\n";
    let hub = Setup { file, beside: &identity.files(), ..Setup::default() }.start();
    assert!(hub.url.starts_with("https://"), "{}", hub.url);
    identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
}

#[test]
fn plain_http_to_an_encrypted_port_gets_nothing_done() {
    let identity = Identity::new();
    let hub = start(&identity);
    let request =
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1";
    let bytes = hub.api.raw(request, true);
    Answer::parse(&bytes, false).expect("an answer in plain HTTP").fails(400, "bad_request");
    assert_eq!(identity.call(&hub.api, &Call::new("GET", "/v1/topics/t")).status, 404);
}

#[test]
fn one_who_says_nothing_holds_up_nobody() {
    let identity = Identity::new();
    let hub = start(&identity);
    let silent: Vec<_> = (0..20).map(|_| hub.api.connect()).collect();
    let mut garbage = hub.api.connect();
    garbage.write_all(&[0xff; 1000]).unwrap();
    identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
    drop(silent);
}

#[test]
fn a_handshake_that_never_ends_is_cut_off() {
    let identity = Identity::new();
    // The good client below has as long, also where the machine is busy.
    let file = "[limits]\nheader_timeout_ms = 3000\n";
    let hub = Setup { file, args: &ARGS, beside: &identity.files(), ..Setup::default() }.start();
    let mut line = hub.api.connect();
    // The beginning of a hello that promises more.
    line.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).unwrap();
    let mut rest = Vec::new();
    line.read_to_end(&mut rest).unwrap_or_default();
    identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
}

#[test]
fn encrypted_connections_count_too() {
    let identity = Identity::new();
    let file = "[limits]\nconnections = 2\n";
    let hub = Setup { file, args: &ARGS, beside: &identity.files(), ..Setup::default() }.start();
    let kept = [identity.connect(&hub.api).unwrap(), identity.connect(&hub.api).unwrap()];
    let healthy = || {
        let mut line = identity.connect(&hub.api)?;
        line.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        line.read_exact(&mut answer)?;
        Ok::<bool, std::io::Error>(&answer == b"HTTP/1.1 200")
    };
    assert!(!healthy().unwrap_or(false));
    drop(kept);
    until("a place", || healthy().unwrap_or(false));
}

#[test]
fn a_client_that_does_not_trust_the_certificate_does_not_get_through() {
    let hub = start(&Identity::new());
    assert!(Identity::new().connect(&hub.api).is_err());
}

#[test]
fn a_certificate_replaced_on_disk_is_used_for_new_connections() {
    let (old, new) = (Identity::new(), Identity::new());
    let hub = start(&old);
    let mut kept = frames(&hub, &old);
    put_file(&hub.folder().join("hub.key"), &new.key_pem);
    put_file(&hub.folder().join("hub.pem"), &new.cert_pem);
    until("the new certificate", || new.connect(&hub.api).is_ok());
    new.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
    assert!(old.connect(&hub.api).is_err());
    // One that was there before goes on.
    kept.ok(publish("t"));
}

#[test]
fn a_broken_certificate_on_disk_leaves_the_old_one() {
    let identity = Identity::new();
    let hub = start(&identity);
    let lines = hub.said().lines().count();
    put_file(&hub.folder().join("hub.pem"), "broken");
    until("a word on the broken file", || {
        identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
        hub.said().lines().skip(lines).any(|line| line.contains("hub.pem"))
    });
    identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
}

#[test]
fn a_certificate_that_becomes_something_that_blocks_holds_up_neither_connections_nor_the_end() {
    let identity = Identity::new();
    let hub = start(&identity);
    let (pipe, cert) = (hub.folder().join("pipe"), hub.folder().join("hub.pem"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &cert).unwrap();
    until("a word on the pipe", || hub.said().contains("not a regular file"));
    identity.call(&hub.api, &Call::new("GET", "/healthz")).is(200);
    hub.ends();
}

/// A hub that cannot start says what is wrong, and does not listen.
#[track_caller]
fn gives_up(args: &[&str], beside: &[(&str, &str)], words: &[&str]) {
    let said: Said = Setup { args, beside, ..Setup::default() }.gives_up();
    assert!(matches!(said.code, Some(1 | 2)), "{said:?}");
    assert!(!said.stderr.contains("ready") && !said.stderr.contains("panic"), "{said:?}");
    for word in words {
        assert!(said.stderr.contains(word), "no {word:?} in {said:?}");
    }
}

#[test]
fn a_certificate_without_a_key_is_an_error_that_names_it() {
    let identity = Identity::new();
    gives_up(&ARGS[..2], &identity.files(), &["key"]);
    gives_up(&ARGS[2..], &identity.files(), &["cert"]);
}

#[test]
fn files_that_are_not_there_are_named() {
    let identity = Identity::new();
    gives_up(&ARGS, &identity.files()[..1], &["hub.key"]);
    gives_up(&ARGS, &identity.files()[1..], &["hub.pem"]);
}

#[test]
fn files_that_hold_no_certificate_or_key_are_named() {
    let identity = Identity::new();
    gives_up(&ARGS, &[("hub.pem", "x"), identity.files()[1]], &["hub.pem"]);
    gives_up(&ARGS, &[identity.files()[0], ("hub.key", "x")], &["hub.key"]);
    gives_up(&ARGS, &[identity.files()[0], ("hub.key", "")], &["hub.key"]);
    // The wrong way round.
    gives_up(&ARGS, &[("hub.pem", &identity.key_pem), ("hub.key", &identity.cert_pem)], &["hub."]);
}

#[test]
fn a_key_of_another_certificate_is_an_error_that_names_it() {
    let (one, other) = (Identity::new(), Identity::new());
    gives_up(&ARGS, &[one.files()[0], other.files()[1]], &["hub.key"]);
}

#[test]
fn the_command_line_talks_to_an_encrypted_hub_that_the_machine_trusts() {
    let identity = Identity::new();
    let hub = start(&identity);
    let port = hub.api.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let mut trusting = hub.command(&["--url", &url, "pub", "t", "1"]);
    trusting.env("SSL_CERT_FILE", hub.folder().join("hub.pem"));
    run(trusting, b"").ok();
    let strange = hub.command(&["--url", &url, "pub", "t", "2"]);
    run(strange, b"").fails_with(1);
    let page = identity.call(&hub.api, &Call::new("GET", "/v1/topics/t/events")).is(200);
    assert_eq!(page["count"], 1);
}
