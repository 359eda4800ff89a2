//! Bad JWT, as lists of attacks have them: each is refused on HTTP and on the WebSocket, and nobody hears the token.

use crate::auth_support;
use crate::auth_support::jwt::{Signer, all, assembled, decode, encode, scopes, with};
use crate::auth_support::{Guarded, SECRET, Setup, is_unauthorized};
use crate::contract_support::{Answer, Call};
use crate::ws_support::Socket;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

const PEM: &str = "[auth]\nmode = \"jwt\"\npublic_key_file = \"public.pem\"\n";

fn with_pem(signer: &Signer) -> Guarded {
    Setup { file: PEM, beside: &[("public.pem", &signer.public_pem)], ..Setup::default() }.start()
}

fn signer() -> Signer {
    Signer::secret(SECRET)
}

/// A token is refused on every way in, and no answer repeats it.
#[track_caller]
fn refuses(hub: &Guarded, token: &str) {
    let answer = hub.caller(token).get("/v1/topics");
    is_unauthorized(&answer);
    let mut frames = Socket::open(&hub.api);
    let told = frames.fails(json!({"op": "AUTH", "token": token}), "unauthorized");
    frames.fails(json!({"op": "PUBLISH", "topic": "t", "payload": 1}), "unauthorized");
    let value = format!("Bearer {token}");
    let Err(upgrade) = Socket::open_with(&hub.api, &[("authorization", &value)]) else {
        panic!("upgraded with {token}");
    };
    assert_eq!(upgrade.status, 401);
    if token.len() > 8 {
        for text in [answer.text(), &told.to_string(), upgrade.text()] {
            assert!(!text.contains(token), "{text}");
        }
    }
}

/// No token of these gets in, the log names none of them, and a good one still gets in.
#[track_caller]
fn refuses_all(hub: Guarded, good: &str, bad: &[String]) {
    for token in bad {
        println!("{token}");
        refuses(&hub, token);
    }
    hub.caller(good).get("/v1/topics").is(200);
    let said = hub.ends();
    for token in bad.iter().filter(|token| token.len() > 8) {
        assert!(!said.contains(token.as_str()), "{token} in {said}");
    }
}

#[test]
fn alg_none_in_every_spelling() {
    let claims = all().to_string();
    let signature = signer().token(&all()).rsplit('.').next().unwrap().to_owned();
    let mut bad = Vec::new();
    for alg in [
        "none",
        "None",
        "NONE",
        "nOnE",
        "NoNe",
        "none ",
        " none",
        "",
        "null",
        "non\u{435}",
        "hs256",
        "HS256 ",
        "HS",
    ] {
        let header = json!({"alg": alg, "typ": "JWT"}).to_string();
        bad.extend(["", &signature, "AAAA"].map(|signature| assembled(&header, &claims, signature)));
        bad.push(format!("{}.{}", encode(&header), encode(&claims)));
    }
    for header in [
        "{}",
        r#"{"alg":null}"#,
        r#"{"alg":0}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"alg":true}"#,
        r#"{"typ":"JWT"}"#,
    ] {
        bad.push(assembled(header, &claims, ""));
        // Signed, and still without an algorithm that anyone could check.
        bad.push(signer().signed(header, &claims));
    }
    refuses_all(Guarded::jwt(), &signer().token(&all()), &bad);
}

#[test]
fn alg_none_where_the_hub_has_a_public_key() {
    let real = Signer::rsa();
    let header = json!({"alg": "none"}).to_string();
    let bad = [assembled(&header, &all().to_string(), ""), assembled(&header, &all().to_string(), "AAAA")];
    refuses_all(with_pem(&real), &real.token(&all()), &bad);
}

#[test]
fn a_public_key_taken_for_a_secret() {
    for real in [Signer::rsa(), Signer::ec(), Signer::ed()] {
        let pem = &real.public_pem;
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let unix = pem.replace("\r\n", "\n");
        let dos = unix.replace('\n', "\r\n");
        let stripped = unix.trim().to_owned();
        let mut bad = Vec::new();
        for secret in [pem.as_str(), &unix, &dos, &stripped, &body, ""] {
            let fake = Signer::secret(secret);
            bad.push(fake.token(&all()));
            for (algorithm, name) in [(Algorithm::HS384, "HS384"), (Algorithm::HS512, "HS512")] {
                let header = json!({"alg": name}).to_string();
                bad.push(fake.signed_by(algorithm, &header, &all().to_string()));
            }
        }
        refuses_all(with_pem(&real), &real.token(&all()), &bad);
    }
}

#[test]
fn a_key_of_a_set_taken_for_a_secret() {
    let real = Signer::rsa();
    let jwk = real.jwk("k");
    let set = auth_support::jwt::jwks(std::slice::from_ref(&jwk));
    let file = "[auth]\nmode = \"jwt\"\njwks_file = \"keys.json\"\n";
    let hub = Setup { file, beside: &[("keys.json", &set)], ..Setup::default() }.start();
    let secrets = [
        jwk["n"].as_str().unwrap(),
        jwk["e"].as_str().unwrap(),
        &jwk.to_string(),
        &set,
        &real.public_pem,
        "k",
        "",
    ];
    let bad: Vec<String> =
        secrets.iter().map(|secret| Signer::secret(secret).token_of("k", &all())).collect();
    refuses_all(hub, &real.token_of("k", &all()), &bad);
}

#[test]
fn another_algorithm_of_the_same_key() {
    let named = |signer: &Signer, algorithm: Algorithm| {
        let header = json!({"alg": serde_json::to_value(algorithm).unwrap()}).to_string();
        signer.signed_by(algorithm, &header, &all().to_string())
    };
    let secret = signer();
    let bad = [Algorithm::HS384, Algorithm::HS512].map(|algorithm| named(&secret, algorithm));
    refuses_all(Guarded::jwt(), &secret.token(&all()), &bad);
    let rsa = Signer::rsa();
    let others = [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];
    let bad = others.map(|algorithm| named(&rsa, algorithm));
    refuses_all(with_pem(&rsa), &rsa.token(&all()), &bad);
}

#[test]
fn a_header_that_lies_about_the_algorithm() {
    let rsa = Signer::rsa();
    let mut bad = Vec::new();
    for alg in ["RS384", "RS512", "PS256", "ES256", "EdDSA", "HS256", "none", "RSA"] {
        bad.push(rsa.token_with(&json!({"alg": alg}), &all()));
    }
    refuses_all(with_pem(&rsa), &rsa.token(&all()), &bad);
}

#[test]
fn a_signature_that_is_missing_cut_or_altered() {
    let good = signer().token(&all());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let bytes = decode(signature);
    let mut bad = vec![
        message.to_owned(),
        format!("{message}."),
        format!("{message}..{signature}"),
        format!("{good}.{signature}"),
    ];
    for place in [0, 15, 31] {
        let mut flipped = bytes.clone();
        flipped[place] ^= 1;
        bad.push(format!("{message}.{}", encode(&flipped)));
    }
    for length in [1, 16, 31] {
        bad.push(format!("{message}.{}", encode(&bytes[..length])));
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    bad.push(format!("{message}.{}", encode(&longer)));
    bad.push(format!("{message}.{}", encode([0; 32])));
    bad.push(format!("{message}.{}", signer().token(&scopes(&["read:t"])).rsplit('.').next().unwrap()));
    refuses_all(Guarded::jwt(), &good, &bad);
}

#[test]
fn claims_or_a_header_altered_under_a_good_signature() {
    let good = signer().token(&scopes(&["read:t"]));
    let parts: Vec<&str> = good.split('.').collect();
    let more = encode(scopes(&["*:**"]).to_string());
    let header = encode(json!({"alg": "HS256", "kid": "x"}).to_string());
    let bad = [
        format!("{}.{more}.{}", parts[0], parts[2]),
        format!("{header}.{}.{}", parts[1], parts[2]),
        format!("{}.{}.{}", parts[1], parts[0], parts[2]),
    ];
    refuses_all(Guarded::jwt(), &good, &bad);
}

#[test]
fn a_curve_signature_of_zeros_or_in_another_form() {
    let real = Signer::ec();
    let good = real.token(&all());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let raw = decode(signature);
    let mut der = vec![0x30, 0x44, 0x02, 0x20];
    der.extend_from_slice(&raw[..32]);
    der.extend_from_slice(&[0x02, 0x20]);
    der.extend_from_slice(&raw[32..]);
    let der_zeros = [0x30, 0x06, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00];
    let bad = [
        format!("{message}.{}", encode([0; 64])),
        format!("{message}.{}", encode(der_zeros)),
        format!("{message}.{}", encode(&der)),
        format!("{message}.{}", encode(&raw[..32])),
    ];
    refuses_all(with_pem(&real), &good, &bad);
}

#[test]
fn signed_with_a_secret_that_is_easy_to_guess() {
    let secrets = [
        "",
        " ",
        "secret",
        "\0",
        "null",
        "undefined",
        "your-256-bit-secret",
        &SECRET[1..],
        &encode(SECRET),
        &SECRET.to_uppercase(),
    ];
    let bad: Vec<String> = secrets.iter().map(|secret| Signer::secret(secret).token(&all())).collect();
    refuses_all(Guarded::jwt(), &signer().token(&all()), &bad);
}

#[test]
fn extensions_that_have_to_be_understood() {
    let bad: Vec<String> = [
        json!({"crit": ["exp"], "exp": 1}),
        json!({"crit": ["b64"], "b64": false}),
        json!({"crit": ["http://example/unknown"], "http://example/unknown": true}),
        json!({"crit": []}),
        json!({"crit": "b64"}),
    ]
    .iter()
    .map(|header| signer().token_and(header, &all()))
    .collect();
    refuses_all(Guarded::jwt(), &signer().token(&all()), &bad);
}

#[test]
fn kid_games_where_there_is_only_one_secret() {
    let games = ["../../../../dev/null", "/dev/null", "' UNION SELECT 'x", "prombus.toml", "| id"];
    let bad: Vec<String> = games
        .iter()
        .flat_map(|kid| ["", "x", "\0"].map(|secret| Signer::secret(secret).token_of(kid, &all())))
        .collect();
    refuses_all(Guarded::jwt(), &signer().token(&all()), &bad);
}

#[test]
fn claims_that_are_no_object() {
    let header = json!({"alg": "HS256"}).to_string();
    let nested = signer().token(&all());
    let nested = json!(nested).to_string();
    let odd = [
        "[]",
        "null",
        "1",
        "true",
        "\"x\"",
        "",
        "{",
        "{\"scopes\":[\"*:**\"]",
        "[{\"scopes\":[\"*:**\"]}]",
        "\u{feff}{}",
        nested.as_str(),
    ];
    let mut bad: Vec<String> = odd.iter().map(|claims| signer().signed(&header, claims)).collect();
    bad.push(signer().signed(&json!({"alg": "HS256", "cty": "JWT"}).to_string(), &signer().token(&all())));
    for header in ["", "[]", "null", "\"HS256\"", "{\"alg\":\"HS256\"", "HS256"] {
        bad.push(signer().signed(header, &all().to_string()));
    }
    refuses_all(Guarded::jwt(), &signer().token(&all()), &bad);
}

#[test]
fn what_is_no_token_at_all() {
    let good = signer().token(&all());
    let standard = good.replace('.', "=.");
    let five = format!("{good}.AAAA.BBBB");
    let quoted = format!("\"{good}\"");
    let texts = [
        ".",
        "..",
        "...",
        "a.b.c",
        "a.b",
        "null",
        "undefined",
        "{}",
        "%2e%2e",
        "=.=.=",
        "*",
        standard.as_str(),
        &five,
        &quoted,
    ];
    let bad: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
    refuses_all(Guarded::jwt(), &good, &bad);
}

/// Whether a caller got in, whatever else was answered; the hub must not break over it.
#[track_caller]
fn got_in(answer: &Answer) -> bool {
    assert!(answer.status < 500, "{answer:?}");
    answer.status < 300
}

#[test]
fn scopes_that_are_no_list_of_strings_open_nothing() {
    let hub = Guarded::jwt();
    hub.caller(&signer().token(&all())).publish("t").is(201);
    let odd = [
        json!(null),
        json!(7),
        json!(true),
        json!({"read": "t"}),
        json!({"0": "read:t"}),
        json!([["read:t"]]),
        json!([{"read": "t"}]),
        json!([1, null, true]),
        json!([null]),
    ];
    for list in odd {
        let token = signer().token(&with(all(), "scopes", list.clone()));
        assert!(!got_in(&hub.caller(&token).read("t")), "{list}");
        assert!(!got_in(&hub.caller(&token).publish("t")), "{list}");
    }
}

#[test]
fn claims_that_are_odd_are_carried_or_refused_but_break_nothing() {
    let hub = Guarded::jwt();
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let odd: [(&str, Value); 6] = [
        ("sub", json!({"a": [1, {"b": null}]})),
        ("iat", json!("yesterday")),
        ("jti", json!(1e300)),
        ("exp", json!(1e300)),
        ("deep", deep),
        ("__proto__", json!({"scopes": ["*:**"]})),
    ];
    for (name, value) in odd {
        let token = signer().token(&with(scopes(&["read:u"]), name, value));
        assert!(!got_in(&hub.caller(&token).publish("t")), "{name}");
        let answer = Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": token}));
        assert!(answer["op"] == "OK" || answer["code"] == "unauthorized", "{name}: {answer}");
    }
    hub.ends();
}

#[test]
fn names_of_claims_count_to_the_letter() {
    let hub = Guarded::jwt();
    for name in ["Scopes", "SCOPES", "scopes ", "roles", "Policy", "admin"] {
        let mut claims = scopes(&[]);
        claims[name] = json!(["*:**"]);
        assert!(!got_in(&hub.caller(&signer().token(&claims)).publish("t")), "{name}");
    }
}

#[test]
fn a_huge_token_is_refused_and_costs_nobody_else_anything() {
    let hub = Guarded::jwt();
    for size in [10_000, 100_000, 900_000] {
        let fake = Signer::secret("x").token(&with(all(), "pad", json!("a".repeat(size))));
        let dots = ".".repeat(size);
        for token in [fake, dots, "a".repeat(size)] {
            let bytes = format!(
                "GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
            );
            let bytes = hub.api.raw(bytes.as_bytes(), false);
            // One that is far too long may not even be read to its end.
            if let Some(answer) = Answer::parse(&bytes, false) {
                assert!(matches!(answer.status, 400 | 401 | 413 | 431), "{answer:?}");
            }
            let mut frames = Socket::open(&hub.api);
            frames.send(json!({"op": "AUTH", "token": token, "corr": "1"}));
            match frames.frame_or_close() {
                Ok(frame) => assert_eq!(frame["op"], "ERR", "{frame}"),
                Err((code, reason)) => assert!(matches!(code, 1008 | 1009), "{code} {reason}"),
            }
        }
    }
    hub.caller(&signer().token(&all())).get("/v1/topics").is(200);
    let said = hub.ends();
    assert!(!said.contains("aaaaaaaaaaaa"), "{said}");
}

#[test]
fn thousands_of_scopes_are_judged_all_the_same() {
    let hub = Guarded::jwt();
    let mut list: Vec<String> = (0..3000).map(|n| format!("publish:t{n}.**")).collect();
    list.push("publish:mine".to_owned());
    let token = signer().token(&with(all(), "scopes", json!(list)));
    let mut frames = Socket::open(&hub.api);
    let answer = frames.ask(json!({"op": "AUTH", "token": token}));
    // A hub may say that a token is too long; it must not take a part of it.
    if answer["op"] == "OK" {
        frames.ok(json!({"op": "PUBLISH", "topic": "mine", "payload": 1}));
        frames.fails(json!({"op": "PUBLISH", "topic": "theirs", "payload": 1}), "forbidden");
    } else {
        assert_eq!(answer["code"], "unauthorized", "{answer}");
    }
}

#[test]
fn bytes_that_are_no_text_in_the_header() {
    let hub = Guarded::jwt();
    for value in [&b"Bearer \xff\xfe"[..], b"Bearer \x80.\x80.\x80", "Bearer tokèn".as_bytes(), b"\xff"] {
        let mut bytes =
            b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: ".to_vec();
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n\r\n");
        let answer = Answer::parse(&hub.api.raw(&bytes, false), false).unwrap();
        answer.fails_as(&[400, 401]);
    }
}

#[test]
fn a_token_for_one_hub_is_nothing_to_another() {
    let (real, other) = (Signer::ed(), Signer::ed());
    let token = other.token(&all());
    with_pem(&other).caller(&token).get("/v1/topics").is(200);
    refuses_all(with_pem(&real), &real.token(&all()), &[token]);
}

#[test]
fn a_refused_token_leaves_no_trace_of_itself_after_a_call_that_would_change_something() {
    let hub = Guarded::jwt();
    let forged = Signer::secret("x").token(&all());
    let call = Call::new("POST", "/publish/t").body(b"1");
    is_unauthorized(&hub.caller(&forged).call(call));
    assert!(hub.caller(&signer().token(&all())).topics().is_empty());
}
