//! Nothing that is secret is ever said: not in the log at any level, not in answers, not in metrics.

use crate::auth_support;
use crate::auth_support::jwt::{Signer, all, assembled, jwks, scopes, seconds, with};
use crate::auth_support::line::{Flow, publish, subscribe};
use crate::auth_support::{Guarded, SECRET, STRANGER, Setup, secret_file};
use crate::contract_support::Call;
use crate::ws_support::Socket;
use serde_json::json;

/// Everything that a hub was heard saying.
#[derive(Default)]
struct Heard(String);

impl Heard {
    fn add(&mut self, text: impl AsRef<str>) {
        self.0.push_str(text.as_ref());
        self.0.push('\n');
    }

    /// None of these may be in it, nor the part that makes a token worth something.
    #[track_caller]
    fn knows_none(&self, secrets: &[String]) {
        for secret in secrets {
            let signature = secret.rsplit('.').next().unwrap();
            for part in [secret.as_str(), signature].into_iter().filter(|part| part.len() > 8) {
                let line = self.0.lines().find(|line| line.contains(part));
                assert!(line.is_none(), "{part} in {}", line.unwrap());
            }
        }
    }
}

/// Shows a token everywhere a token can be shown, and keeps what is answered.
fn show(hub: &Guarded, token: &str, heard: &mut Heard) {
    let caller = hub.caller(token);
    let answers = [
        caller.get("/v1/topics"),
        caller.get("/ops"),
        caller.publish("t"),
        caller.publish("forbidden"),
        caller.read("missing"),
        caller.get("/metrics"),
        caller.get("/nowhere"),
        caller.call(
            Call::new("POST", "/v1/topics/t/events").header("content-type", "application/json").body(b"{"),
        ),
        hub.api.get(&format!("/v1/topics?token={token}")),
        hub.api.call(&Call::new("GET", "/v1/topics").header("authorization", token)),
        hub.api.call(&Call::new("GET", "/v1/topics").header("authorization", &format!("Basic {token}"))),
    ];
    for answer in &answers {
        assert!(answer.status < 500, "{answer:?}");
        heard.add(format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body)));
    }
    let mut frames = Socket::open(&hub.api);
    for frame in [
        json!({"op": "AUTH", "token": token}),
        json!({"op": "AUTH", "token": token, "junk": 1}),
        json!({"op": "AUTH", "token": [token]}),
        json!({"op": "AUTH", "tokn": token}),
        publish("t"),
        publish("forbidden"),
    ] {
        heard.add(frames.ask(&frame).to_string());
    }
    frames.text(format!("{{\"op\":\"AUTH\",\"token\":\"{token}"));
    heard.add(format!("{:?}", frames.frame_or_close()));
    let value = format!("Bearer {token}");
    if let Err(answer) = Socket::open_with(&hub.api, &[("authorization", &value)]) {
        heard.add(format!("{answer:?} {}", answer.text()));
    }
}

/// Tokens good and bad.
fn tokens(signer: &Signer) -> Vec<String> {
    let good = signer.token(&all());
    let (message, _) = good.rsplit_once('.').unwrap();
    vec![
        signer.token(&scopes(&["publish:t"])),
        signer.token(&with(all(), "exp", json!(seconds() - 100))),
        signer.token(&with(all(), "nbf", json!(seconds() + 1000))),
        signer.token(&with(all(), "policy", json!("nonsense"))),
        signer.token_of("unknown-kid", &all()),
        Signer::secret("wrong").token(&all()),
        assembled("{\"alg\":\"none\"}", &all().to_string(), ""),
        format!("{message}.AAAAAAAAAAAAAAAA"),
        STRANGER.to_owned(),
        good,
    ]
}

/// Does everything with a hub that could reveal a secret, and checks that it did not.
#[track_caller]
fn stays_silent(setup: &Setup, tokens: &[String], secrets: &[&str]) {
    let hub = setup.start();
    let mut heard = Heard::default();
    for token in tokens {
        show(&hub, token, &mut heard);
    }
    let good = tokens.last().unwrap();
    hub.caller(good).publish("t").is(201);
    Socket::authed(&hub.api, good).ok(subscribe("t", "g"));
    Flow::open(&hub.api, "t", good).until("\"offset\":0");
    let metrics = hub.caller(good).get("/metrics");
    assert!(metrics.text().contains("events_published_total"));
    heard.add(metrics.text());
    heard.add(hub.ends());
    let mut all = tokens.to_vec();
    all.extend(secrets.iter().map(|&secret| secret.to_owned()));
    heard.knows_none(&all);
}

#[test]
fn a_log_of_plain_lines_names_no_secret() {
    let file = secret_file();
    let setup = Setup { file: &file, ..Setup::default() };
    stays_silent(&setup, &tokens(&Signer::secret(SECRET)), &[SECRET]);
}

#[test]
fn a_log_with_every_detail_names_no_secret() {
    let file = secret_file();
    let env = [("PROMBUS_LOG", "debug")];
    let setup = Setup { file: &file, env: &env, ..Setup::default() };
    stays_silent(&setup, &tokens(&Signer::secret(SECRET)), &[SECRET]);
}

#[test]
fn a_log_of_json_names_no_secret() {
    let file = secret_file();
    let env = [("PROMBUS_LOG", "debug")];
    let setup = Setup { file: &file, env: &env, args: &["--log-format", "json"], ..Setup::default() };
    stays_silent(&setup, &tokens(&Signer::secret(SECRET)), &[SECRET]);
}

#[test]
fn a_log_of_everything_that_libraries_say_names_no_secret() {
    let file = secret_file();
    let env = [("PROMBUS_LOG", "trace")];
    let setup = Setup { file: &file, env: &env, ..Setup::default() };
    stays_silent(&setup, &tokens(&Signer::secret(SECRET)), &[SECRET]);
}

#[test]
fn a_secret_of_the_environment_is_not_named() {
    let file = "[auth]\nmode = \"jwt\"\nsecret_env = \"HUB_SECRET\"\n";
    let env = [("PROMBUS_LOG", "debug"), ("HUB_SECRET", SECRET)];
    let setup = Setup { file, env: &env, ..Setup::default() };
    stays_silent(&setup, &tokens(&Signer::secret(SECRET)), &[SECRET]);
}

#[test]
fn keys_of_a_set_are_not_named() {
    let signer = Signer::ec();
    let jwk = signer.jwk("k");
    let set = jwks(std::slice::from_ref(&jwk));
    let file = "[auth]\nmode = \"jwt\"\njwks_file = \"keys.json\"\n";
    let env = [("PROMBUS_LOG", "debug")];
    let setup = Setup { file, beside: &[("keys.json", &set)], env: &env, ..Setup::default() };
    stays_silent(&setup, &tokens(&signer), &[jwk["x"].as_str().unwrap(), jwk["y"].as_str().unwrap()]);
}

#[test]
fn written_tokens_are_not_named() {
    let file = "[auth]\nmode = \"token\"\ntokens = [{ token_env = \"OPS_TOKEN\", scopes = [\"*:**\"] }, { token = \"reader-9f8e7d6c5b4a3210\", scopes = [\"read:a\"] }]\n";
    let good = "ops-token-from-the-environment-42";
    let env = [("PROMBUS_LOG", "debug"), ("OPS_TOKEN", good)];
    let setup = Setup { file, env: &env, args: &["--log-format", "json"], ..Setup::default() };
    let tokens = [STRANGER, "reader-9f8e7d6c5b4a3210", good].map(str::to_owned);
    stays_silent(&setup, &tokens, &[]);
}

#[test]
fn a_refused_token_is_logged_without_itself() {
    let file = secret_file();
    let env = [("PROMBUS_LOG", "debug")];
    let hub = Setup { file: &file, env: &env, ..Setup::default() }.start();
    let expired = Signer::secret(SECRET).token(&with(all(), "exp", json!(seconds() - 100)));
    let forged = Signer::secret("wrong").token(&all());
    for token in [&expired, &forged] {
        let before = hub.said().lines().count();
        assert_eq!(hub.caller(token).get("/v1/topics").status, 401);
        auth_support::until("a word on the refusal", || {
            hub.said().lines().skip(before).any(|line| {
                let line = line.to_lowercase();
                line.contains("token") || line.contains("unauthorized") || line.contains("401")
            })
        });
    }
    let said = hub.ends();
    assert!(!said.contains(&expired) && !said.contains(&forged));
}

#[test]
fn refused_requests_are_logged_with_who_asked_for_what_and_why() {
    let hub = Guarded::jwt();
    let bob = Signer::secret(SECRET).token(&with(scopes(&["publish:orders"]), "sub", json!("bob")));
    let heard = |parts: &[&str]| {
        let is_it = |line: &str| parts.iter().all(|part| line.contains(part));
        auth_support::until("a line with all of it", || hub.said().lines().any(is_it));
    };
    hub.api.get("/v1/topics/orders/events?token=querytoken");
    heard(&["GET", "/v1/topics/{topic}/events", "401", "this hub requires a token"]);
    hub.caller(STRANGER).get("/v1/topics");
    heard(&["GET", "\"/v1/topics\"", "401", "JSON Web Token"]);
    hub.caller(&bob).publish("invoices");
    heard(&["POST", "/publish/{topic}", "bob", "403", "does not allow publish on invoices"]);
    hub.caller(&bob).post("/v1/commit", &json!({"publish": [{"topic": "invoices", "payload": 1}]}));
    heard(&["POST", "/v1/commit", "bob", "403", "does not allow publish on invoices"]);
    let mut frames = Socket::open(&hub.api);
    frames.ask(publish("invoices"));
    heard(&["PUBLISH", "/ws", "401", "send AUTH"]);
    frames.ask(json!({"op": "AUTH", "token": bob}));
    frames.ask(subscribe("orders", "g"));
    heard(&["SUBSCRIBE", "/ws", "bob", "403", "does not allow subscribe on orders"]);
    hub.caller(&bob).publish("orders").is(201);
    let said = hub.ends();
    assert_eq!(said.lines().filter(|line| line.contains("a request was refused")).count(), 6, "{said}");
    assert!(!said.contains("querytoken") && !said.contains(STRANGER) && !said.contains(&bob), "{said}");
}

#[test]
fn a_flood_of_refused_requests_does_not_flood_the_log() {
    const REQUESTS: u64 = 400;
    let hub = Guarded::jwt();
    for _ in 0..REQUESTS {
        assert_eq!(hub.caller(STRANGER).get("/v1/topics").status, 401);
    }
    let lines = || hub.said().lines().filter(|line| line.contains("refused")).map(str::to_owned).collect();
    let count = |line: &String| match line.split_once("count=") {
        Some((_, rest)) => rest.split(' ').next().unwrap().parse().unwrap(),
        None => 1,
    };
    // None is forgotten, however few lines there are.
    auth_support::until("all of them are told", || {
        Vec::<String>::into_iter(lines()).map(|line| count(&line)).sum::<u64>() == REQUESTS
    });
    let lines: Vec<String> = lines();
    assert!(lines.len() < REQUESTS as usize / 4, "{} lines: {lines:?}", lines.len());
}

#[test]
fn a_token_writes_no_lines_of_its_own_into_the_log() {
    let file = secret_file();
    let env = [("PROMBUS_LOG", "debug")];
    let hub = Setup { file: &file, env: &env, ..Setup::default() }.start();
    let evil = "x\nFAKE line of a log\r\n\u{1b}[31mred";
    let token = Signer::secret(SECRET).token_of(evil, &all());
    let forged = Signer::secret("wrong").token_of(evil, &with(all(), "sub", json!(evil)));
    for token in [&token, &forged] {
        hub.caller(token).get("/v1/topics");
        Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": token}));
    }
    Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": evil}));
    let said = hub.ends();
    assert!(!said.lines().any(|line| line.starts_with("FAKE")) && !said.contains("\u{1b}[31mred"), "{said}");
}

#[test]
fn the_key_of_the_encryption_is_not_named() {
    let identity = auth_support::tls::Identity::new();
    let swapped = auth_support::tls::Identity::new();
    let args = ["--tls-cert", "hub.pem", "--tls-key", "hub.key"];
    let beside = [("hub.pem", identity.cert_pem.as_str()), ("hub.key", swapped.key_pem.as_str())];
    let said = Setup { args: &args, beside: &beside, env: &[("PROMBUS_LOG", "debug")], ..Setup::default() }
        .gives_up();
    assert_ne!(said.code, Some(0));
    for line in swapped.key_pem.lines().filter(|line| !line.starts_with('-')) {
        assert!(!said.stderr.contains(line), "{said:?}");
    }
}

#[test]
fn a_short_secret_is_warned_of_with_how_to_make_a_better_one() {
    let short = "0123456789abcdef";
    let warning = |secret: &str| {
        let file = format!("[auth]\nmode = \"jwt\"\nsecret = \"{secret}\"\n");
        let said = Setup { file: &file, env: &[("PROMBUS_LOG", "warn,prombus=info")], ..Setup::default() }
            .start()
            .ends();
        assert!(!said.contains(secret), "{said}");
        said.lines().find(|line| line.contains("auth.secret")).map(str::to_owned)
    };
    let told = warning(short).unwrap();
    assert!(told.contains("WARN") && told.contains("32 bytes"), "{told}");
    assert!(told.contains("openssl rand -hex 32"), "{told}");
    // As that command makes them.
    assert_eq!(warning(&short.repeat(4)), None);
}
