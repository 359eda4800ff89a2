//! Good JWT: every algorithm, keys from a secret, a PEM and a set, the claims that a hub looks at, and keys that change.

use crate::auth_support::jwt::{Signer, all, jwks, scopes, seconds, with};
use crate::auth_support::line::{Flow, publish};
use crate::auth_support::{Guarded, SECRET, Setup, is_unauthorized, put_file, secret_file, until};
use crate::ws_support::Socket;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use std::net::TcpListener;

const PEM: &str = "[auth]\nmode = \"jwt\"\npublic_key_file = \"public.pem\"\n";
const SET: &str = "[auth]\nmode = \"jwt\"\njwks_file = \"keys.json\"\n";

fn with_pem(signer: &Signer) -> Guarded {
    Setup { file: PEM, beside: &[("public.pem", &signer.public_pem)], ..Setup::default() }.start()
}

fn with_set(keys: &[Value]) -> Guarded {
    Setup { file: SET, beside: &[("keys.json", &jwks(keys))], ..Setup::default() }.start()
}

/// Whether a token is taken just now.
fn gets_in(hub: &Guarded, token: &str) -> bool {
    hub.caller(token).get("/v1/topics").status == 200
}

/// Whether a token is taken, over both ways in; only for one that is not about to be taken, or not any more.
fn takes(hub: &Guarded, token: &str) -> bool {
    let answer = hub.caller(token).get("/v1/topics");
    let frame = Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": token}));
    match answer.status {
        200 => assert_eq!(frame["op"], "OK", "{frame}"),
        401 => assert_eq!(frame["code"], "unauthorized", "{frame}"),
        _ => panic!("{answer:?}"),
    }
    answer.status == 200
}

/// The hub takes the tokens of its own signer and of no other, and their scopes hold.
#[track_caller]
fn takes_only(hub: &Guarded, signer: &Signer, other: &Signer) {
    assert!(takes(hub, &signer.token(&all())));
    assert!(!takes(hub, &other.token(&all())));
    let token = signer.token(&scopes(&["publish:mine"]));
    hub.caller(&token).publish("mine").is(201);
    hub.caller(&token).publish("theirs").fails(403, "forbidden");
    Socket::bearer(&hub.api, &token).fails(publish("theirs"), "forbidden");
}

#[test]
fn hs256_with_a_secret_in_the_file() {
    takes_only(
        &Guarded::jwt(),
        &Signer::secret(SECRET),
        &Signer::secret("another-secret-of-the-same-length-00000"),
    );
}

#[test]
fn hs256_with_a_secret_in_the_environment() {
    let file = "[auth]\nmode = \"jwt\"\nsecret_env = \"HUB_SECRET\"\n";
    let hub = Setup { file, env: &[("HUB_SECRET", SECRET)], ..Setup::default() }.start();
    takes_only(&hub, &Signer::secret(SECRET), &Signer::secret("HUB_SECRET"));
}

#[test]
fn rs256_with_a_public_key() {
    let signer = Signer::rsa();
    takes_only(&with_pem(&signer), &signer, &Signer::rsa());
}

#[test]
fn es256_with_a_public_key() {
    let signer = Signer::ec();
    takes_only(&with_pem(&signer), &signer, &Signer::ec());
}

#[test]
fn eddsa_with_a_public_key() {
    let signer = Signer::ed();
    takes_only(&with_pem(&signer), &signer, &Signer::ed());
}

#[test]
fn a_set_of_several_keys_takes_the_tokens_of_each_by_its_kid() {
    let signers = [("r1", Signer::rsa()), ("e1", Signer::ec()), ("d1", Signer::ed()), ("e2", Signer::ec())];
    let hub = with_set(&signers.each_ref().map(|(kid, signer)| signer.jwk(kid)));
    for (kid, signer) in &signers {
        assert!(takes(&hub, &signer.token_of(kid, &all())), "{kid}");
    }
}

#[test]
fn a_kid_that_names_another_key_of_the_set_is_refused() {
    let signers = [("r1", Signer::rsa()), ("r2", Signer::rsa()), ("e1", Signer::ec()), ("e2", Signer::ec())];
    let hub = with_set(&signers.each_ref().map(|(kid, signer)| signer.jwk(kid)));
    for (kid, _) in &signers {
        for (own, signer) in signers.iter().filter(|(own, _)| own != kid) {
            assert!(!takes(&hub, &signer.token_of(kid, &all())), "{own} as {kid}");
        }
    }
}

#[test]
fn a_kid_that_no_key_has_is_refused() {
    let signer = Signer::ec();
    let hub = with_set(&[signer.jwk("one"), Signer::rsa().jwk("two")]);
    let traversal = "../../../../../../dev/null";
    for kid in [
        "three",
        "",
        "ONE",
        "one ",
        "one\0",
        traversal,
        "/etc/passwd",
        "keys.json",
        "one' OR '1'='1",
        "one|cat /etc/passwd",
    ] {
        assert!(!takes(&hub, &signer.token_of(kid, &all())), "{kid:?}");
        let empty = Signer::secret("").token_of(kid, &all());
        assert!(!takes(&hub, &empty), "{kid:?}");
    }
    assert!(!takes(&hub, &signer.token_of(&"one".repeat(500), &all())));
    for kid in [json!(1), json!(["one"]), json!({"one": 1}), json!(true)] {
        assert!(!takes(&hub, &signer.token_and(&json!({"kid": kid}), &all())), "{kid}");
    }
}

#[test]
fn a_set_of_one_key_takes_a_token_without_kid() {
    let signer = Signer::ec();
    let hub = with_set(&[signer.jwk("only")]);
    assert!(takes(&hub, &signer.token(&all())));
    assert!(!takes(&hub, &Signer::ec().token(&all())));
}

#[test]
fn a_set_with_the_same_kid_twice_never_takes_a_stranger() {
    let (first, second) = (Signer::ec(), Signer::ec());
    let set = jwks(&[first.jwk("same"), second.jwk("same")]);
    let setup = Setup { file: SET, beside: &[("keys.json", &set)], ..Setup::default() };
    // A hub may say that such a set is a mistake; one that takes it has to take it safely.
    let hub = setup.start();
    assert!(!takes(&hub, &Signer::ec().token_of("same", &all())));
    assert!(takes(&hub, &first.token_of("same", &all())) || takes(&hub, &second.token_of("same", &all())));
}

#[test]
fn a_key_of_a_set_need_not_name_its_algorithm_nor_its_use() {
    let signers = [("r", Signer::rsa()), ("e", Signer::ec()), ("d", Signer::ed())];
    let bare = signers.each_ref().map(|(kid, signer)| {
        let mut jwk = signer.jwk(kid);
        jwk.as_object_mut().unwrap().retain(|name, _| name != "alg" && name != "use");
        jwk
    });
    let hub = with_set(&bare);
    for (kid, signer) in &signers {
        assert!(takes(&hub, &signer.token_of(kid, &all())), "{kid}");
    }
    let rsa = &signers[0].1;
    for (algorithm, name) in [(Algorithm::RS512, "RS512"), (Algorithm::PS256, "PS256")] {
        let header = json!({"alg": name, "kid": "r"}).to_string();
        assert!(!takes(&hub, &rsa.signed_by(algorithm, &header, &all().to_string())), "{name}");
    }
}

#[test]
fn a_key_for_encryption_signs_nothing() {
    let (signer, other) = (Signer::rsa(), Signer::ec());
    let mut jwk = signer.jwk("enc");
    jwk["use"] = json!("enc");
    let hub = with_set(&[jwk, other.jwk("sig")]);
    assert!(takes(&hub, &other.token_of("sig", &all())));
    assert!(!takes(&hub, &signer.token_of("enc", &all())));
}

#[test]
fn a_set_with_keys_of_kinds_unknown_still_serves_the_known_ones() {
    let signer = Signer::ec();
    let odd = json!({"kty": "PQC", "kid": "odd", "pub": "AAAA"});
    let hub = with_set(&[odd, signer.jwk("known")]);
    assert!(takes(&hub, &signer.token_of("known", &all())));
}

#[test]
fn a_set_that_is_written_anew_brings_new_keys_and_takes_the_old_ones_away() {
    let (old, kept, new) = (Signer::ec(), Signer::ed(), Signer::rsa());
    let hub = with_set(&[old.jwk("old"), kept.jwk("kept")]);
    let tokens = [old.token_of("old", &all()), kept.token_of("kept", &all()), new.token_of("new", &all())];
    assert_eq!(tokens.each_ref().map(|token| takes(&hub, token)), [true, true, false]);
    put_file(&hub.folder().join("keys.json"), &jwks(&[kept.jwk("kept"), new.jwk("new")]));
    until("the new key", || gets_in(&hub, &tokens[2]));
    // What one way in takes, the other one does, too.
    assert!(takes(&hub, &tokens[2]));
    assert_eq!(tokens.each_ref().map(|token| takes(&hub, token)), [false, true, true]);
}

#[test]
fn what_is_open_ends_when_the_key_of_its_token_is_taken_away() {
    let (old, kept) = (Signer::ec(), Signer::ed());
    let hub = with_set(&[old.jwk("old"), kept.jwk("kept")]);
    let (gone, stays) = (old.token_of("old", &all()), kept.token_of("kept", &all()));
    hub.caller(&stays).publish("t").is(201);
    let [mut by_frame, mut good] = [&gone, &stays].map(|token| Socket::authed(&hub.api, token));
    let mut by_header = Socket::bearer(&hub.api, &gone);
    let [mut flow, mut good_flow] = [&gone, &stays].map(|token| Flow::open(&hub.api, "t", token));
    for open in [&mut flow, &mut good_flow] {
        open.until("\"offset\":0");
    }
    let (group, wait) = ("/v1/topics/t/groups/g", json!({"from": "latest", "waitMs": 30_000}));
    std::thread::scope(|scope| {
        let pull = scope.spawn(|| hub.caller(&gone).post(&format!("{group}/pull"), &wait));
        until("the pull", || hub.caller(&stays).get(group).status == 200);
        put_file(&hub.folder().join("keys.json"), &jwks(&[kept.jwk("kept")]));
        is_unauthorized(&pull.join().unwrap());
    });
    for one in [&mut by_frame, &mut by_header] {
        let (code, reason) = one.closes_eventually();
        assert!(code == 1008 && reason.contains("withdrawn"), "{code} {reason}");
    }
    let told = flow.rest();
    assert!(told.contains("unauthorized") && told.contains("withdrawn"), "{told}");
    good.ok(publish("t"));
    good_flow.until("\"offset\":1");
}

#[test]
fn a_set_that_is_put_in_place_by_a_rename_is_read() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let hub = with_set(&[old.jwk("k")]);
    assert!(takes(&hub, &old.token_of("k", &all())));
    // The same kid and the same length: only the key tells them apart.
    put_file(&hub.folder().join("next.json"), &jwks(&[new.jwk("k")]));
    std::fs::rename(hub.folder().join("next.json"), hub.folder().join("keys.json")).unwrap();
    until("the new key", || gets_in(&hub, &new.token_of("k", &all())));
    // What one way in takes, the other one does, too.
    assert!(takes(&hub, &new.token_of("k", &all())));
    assert!(!takes(&hub, &old.token_of("k", &all())));
}

#[test]
fn a_public_key_that_is_written_anew_is_read() {
    let (old, new) = (Signer::rsa(), Signer::rsa());
    let hub = with_pem(&old);
    assert!(takes(&hub, &old.token(&all())));
    put_file(&hub.folder().join("public.pem"), &new.public_pem);
    until("the new key", || gets_in(&hub, &new.token(&all())));
    // What one way in takes, the other one does, too.
    assert!(takes(&hub, &new.token(&all())));
    assert!(!takes(&hub, &old.token(&all())));
}

#[test]
fn a_set_that_is_broken_in_between_does_not_end_the_hub_nor_open_it() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let hub = with_set(&[old.jwk("old")]);
    put_file(&hub.folder().join("keys.json"), "{\"keys\": [");
    let lines = hub.said().lines().count();
    until("a word on the broken file", || {
        assert!(!takes(&hub, &new.token_of("new", &all())));
        hub.said().lines().skip(lines).any(|line| line.contains("keys.json"))
    });
    put_file(&hub.folder().join("keys.json"), &jwks(&[new.jwk("new")]));
    until("the new key", || gets_in(&hub, &new.token_of("new", &all())));
    // What one way in takes, the other one does, too.
    assert!(takes(&hub, &new.token_of("new", &all())));
    assert!(!takes(&hub, &old.token_of("old", &all())));
    hub.ends();
}

#[test]
fn an_audience_has_to_be_named() {
    let file = format!("{}audience = \"hub-eu\"\n", secret_file());
    let hub = Guarded::start(&file);
    let signer = Signer::secret(SECRET);
    for good in [json!("hub-eu"), json!(["other", "hub-eu"])] {
        assert!(takes(&hub, &signer.token(&with(all(), "aud", good.clone()))), "{good}");
    }
    for bad in [
        json!("hub-us"),
        json!("hub-eu "),
        json!("HUB-EU"),
        json!("hub"),
        json!([]),
        json!(["a", "b"]),
        json!(null),
        json!(1),
        json!({"hub-eu": 1}),
    ] {
        assert!(!takes(&hub, &signer.token(&with(all(), "aud", bad.clone()))), "{bad}");
    }
    assert!(!takes(&hub, &signer.token(&all())), "no audience at all");
}

#[test]
fn an_issuer_has_to_be_named() {
    let file = format!("{}issuer = \"https://id.example\"\n", secret_file());
    let hub = Guarded::start(&file);
    let signer = Signer::secret(SECRET);
    assert!(takes(&hub, &signer.token(&with(all(), "iss", json!("https://id.example")))));
    for bad in [
        json!("https://id.example/"),
        json!("https://evil.example"),
        json!("http://id.example"),
        json!(""),
        json!(null),
        json!(7),
        json!({"https://id.example": 1}),
    ] {
        assert!(!takes(&hub, &signer.token(&with(all(), "iss", bad.clone()))), "{bad}");
    }
    assert!(!takes(&hub, &signer.token(&all())), "no issuer at all");
}

#[test]
fn an_issuer_is_one_and_not_a_list() {
    let file = format!("{}issuer = \"https://id.example\"\n", secret_file());
    let hub = Guarded::start(&file);
    let list = json!(["https://evil.example", "https://id.example"]);
    assert!(!takes(&hub, &Signer::secret(SECRET).token(&with(all(), "iss", list))));
}

#[test]
fn of_several_audiences_and_issuers_any_will_do_but_one_of_each_has_to() {
    let file = format!("{}audience = [\"a1\", \"a2\"]\nissuer = [\"i1\", \"i2\"]\n", secret_file());
    let hub = Guarded::start(&file);
    let token = |aud: &str, iss: &str| {
        Signer::secret(SECRET).token(&with(with(all(), "aud", json!(aud)), "iss", json!(iss)))
    };
    for (aud, iss) in [("a1", "i1"), ("a2", "i2"), ("a1", "i2")] {
        assert!(takes(&hub, &token(aud, iss)), "{aud} {iss}");
    }
    for (aud, iss) in [("a3", "i1"), ("a1", "i3"), ("i1", "a1")] {
        assert!(!takes(&hub, &token(aud, iss)), "{aud} {iss}");
    }
}

#[test]
fn a_token_that_has_expired_or_is_not_yet_valid_is_refused() {
    let hub = Guarded::jwt();
    let signer = Signer::secret(SECRET);
    for age in [10, 60, 86_400, seconds()] {
        assert!(!takes(&hub, &signer.token(&with(all(), "exp", json!(seconds() - age)))), "{age}");
    }
    for ahead in [60, 86_400] {
        assert!(!takes(&hub, &signer.token(&with(all(), "nbf", json!(seconds() + ahead)))), "{ahead}");
    }
    assert!(takes(&hub, &signer.token(&with(all(), "nbf", json!(seconds() - 60)))));
}

#[test]
fn a_clock_that_is_a_little_off_is_forgiven() {
    let hub = Guarded::jwt();
    let signer = Signer::secret(SECRET);
    // The machine may be slow, so a token may be older on its arrival than it was made.
    until("a token that has just expired", || {
        gets_in(&hub, &signer.token(&with(all(), "exp", json!(seconds() - 2))))
    });
    assert!(takes(&hub, &signer.token(&with(all(), "nbf", json!(seconds() + 3)))));
}

#[test]
fn a_token_without_an_end_is_taken_unless_the_hub_wants_one() {
    let endless = json!({"scopes": ["*:**"]});
    let token = Signer::secret(SECRET).token(&endless);
    assert!(takes(&Guarded::jwt(), &token));
    let strict = Guarded::start(&format!("{}require_exp = true\n", secret_file()));
    assert!(!takes(&strict, &token));
    assert!(takes(&strict, &Signer::secret(SECRET).token(&all())));
}

#[test]
fn a_token_that_was_good_is_refused_once_it_has_expired() {
    let hub = Guarded::jwt();
    let token = Signer::secret(SECRET).token(&with(all(), "exp", json!(seconds() + 1)));
    assert!(takes(&hub, &token));
    until("a refusal", || {
        Socket::open(&hub.api).ask(json!({"op": "AUTH", "token": token}))["code"] == "unauthorized"
    });
    // What one way in refuses, the other one does not take any more.
    assert!(!takes(&hub, &token));
}

#[test]
fn times_that_are_no_numbers_are_refused() {
    let hub = Guarded::jwt();
    let signer = Signer::secret(SECRET);
    let late = seconds() + 3600;
    for name in ["exp", "nbf"] {
        let number = if name == "exp" { late } else { 1 };
        for bad in [
            json!(number.to_string()),
            json!([number]),
            json!({"n": number}),
            json!(true),
            json!("never"),
            json!(null),
        ] {
            assert!(!takes(&hub, &signer.token(&with(all(), name, bad.clone()))), "{name}: {bad}");
        }
    }
    assert!(!takes(&hub, &signer.token(&with(all(), "exp", json!(-1)))));
    assert!(!takes(&hub, &signer.token(&with(all(), "nbf", json!(1e300)))));
}

#[test]
fn times_may_have_a_fraction() {
    let hub = Guarded::jwt();
    let late = f64::from(u32::try_from(seconds()).unwrap()) + 3600.5;
    assert!(takes(&hub, &Signer::secret(SECRET).token(&with(all(), "exp", json!(late)))));
}

#[test]
fn addresses_of_keys_in_the_header_are_not_called_and_keys_there_not_used() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/keys.json", listener.local_addr().unwrap());
    let (signer, stranger) = (Signer::ec(), Signer::ec());
    let hub = with_set(&[signer.jwk("k")]);
    let headers = [
        json!({"jku": url}),
        json!({"jku": url, "kid": "stranger"}),
        json!({"x5u": url}),
        json!({"jwk": stranger.jwk("k")}),
        json!({"jwk": stranger.jwk("k"), "kid": "k"}),
        json!({"jwk": Signer::secret("x").jwk("k")}),
        json!({"x5c": [stranger.public_pem]}),
    ];
    for header in headers {
        assert!(!takes(&hub, &stranger.token_and(&header, &all())), "{header}");
    }
    assert!(takes(&hub, &signer.token_and(&json!({"kid": "k", "jku": url, "x5u": url}), &all())));
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
