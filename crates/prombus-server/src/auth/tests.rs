//! Valid tokens, and all the ways in which a token can be invalid.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const SECRET: &str = "a secret that is long enough to be one";

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn options(key: JwtKey) -> JwtOptions {
    JwtOptions { key, audience: Vec::new(), issuer: Vec::new(), require_exp: false }
}

fn auth_with(options: JwtOptions) -> Auth {
    Auth::open(AuthOptions::Jwt(options)).unwrap()
}

fn shared() -> Auth {
    auth_with(options(JwtKey::Secret(Secret::new(SECRET))))
}

fn signed(claims: &Value) -> String {
    signed_as(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET.as_bytes()))
}

fn signed_as(header: &Header, claims: &Value, key: &EncodingKey) -> String {
    encode(header, claims, key).unwrap()
}

fn good() -> Value {
    json!({"exp": now() + 60, "scopes": ["read:a.*"]})
}

fn why(auth: &Auth, token: &str) -> String {
    let error = auth.caller(Some(token)).expect_err("it is refused");
    assert_eq!(error.code().as_str(), "unauthorized");
    assert!(token.len() < 20 || !error.message().contains(token), "no token in errors");
    error.message().to_owned()
}

fn reads(caller: &Caller, topic: &str) -> bool {
    caller.may(AccessRequest::on(Action::Read, topic))
}

/// A key pair with its public key in PEM form.
struct Pair {
    private: EncodingKey,
    public: String,
    keys: KeyPair,
}

fn pair(of: &'static SignatureAlgorithm) -> Pair {
    let keys = KeyPair::generate_for(of).unwrap();
    let private = keys.serialize_pem();
    let private = match of {
        _ if *of == rcgen::PKCS_RSA_SHA256 => EncodingKey::from_rsa_pem(private.as_bytes()),
        _ if *of == rcgen::PKCS_ED25519 => EncodingKey::from_ed_pem(private.as_bytes()),
        _ => EncodingKey::from_ec_pem(private.as_bytes()),
    };
    Pair { private: private.unwrap(), public: keys.public_key_pem(), keys }
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn nobody_is_asked_where_auth_is_off() {
    let auth = Auth::open(AuthOptions::None).unwrap();
    assert!(!auth.is_on());
    assert!(reads(&auth.caller(None).unwrap(), "a"));
    assert!(auth.caller(Some("whatever")).is_ok());
}

#[test]
fn written_tokens_are_known_and_others_are_not() {
    let mut rules = Rules::default();
    rules.add_scope("read:a").unwrap();
    let tokens = vec![StaticToken { token: Secret::new("first-token"), rules }];
    let auth = Auth::open(AuthOptions::Tokens(tokens.clone())).unwrap();
    let caller = auth.caller(Some("first-token")).unwrap();
    assert!(reads(&caller, "a") && !reads(&caller, "b"));
    for bad in ["", "first-toke", "first-token ", "other", "First-token", &"x".repeat(1 << 20)] {
        assert!(auth.caller(Some(bad)).is_err());
    }
    assert!(auth.caller(None).is_err());
    assert!(!format!("{tokens:?}").contains("first-token"), "secrets are not shown");
}

#[test]
fn a_good_token_says_what_its_holder_may_do() {
    let auth = shared();
    let caller = auth.caller(Some(&signed(&good()))).unwrap();
    assert!(reads(&caller, "a.b") && !reads(&caller, "b"));
    let policy = json!({"rules": [
        {"effect": "allow", "action": "*", "topics": ["**"]},
        {"effect": "deny", "action": "read", "topics": ["a.secret"]},
    ]});
    let caller =
        auth.caller(Some(&signed(&json!({"scopes": ["read:a.*", "openid"], "policy": policy})))).unwrap();
    assert!(reads(&caller, "a.b") && !reads(&caller, "a.secret"));
    let nothing = auth.caller(Some(&signed(&json!({"sub": "x"})))).unwrap();
    assert!(!reads(&nothing, "a"), "what no rule allows is denied");
}

#[test]
fn who_may_not_read_dead_letters_is_told_what_allows_it() {
    let caller = shared().caller(Some(&signed(&json!({"scopes": ["read:other"]})))).unwrap();
    let told = |topic| {
        let refused = caller.check(AccessRequest::on(Action::Read, topic)).unwrap_err();
        refused.message().to_owned()
    };
    assert!(told("dlq.orders").contains("read:orders, or read:dlq.orders for"), "{}", told("dlq.orders"));
    assert!(told("orders").contains("such as read:orders, and"), "{}", told("orders"));
}

/// OAuth has `scope`, a string with spaces between; what is meant by the other forms is plain too.
#[test]
fn scopes_come_as_a_string_or_as_an_array() {
    let auth = shared();
    for claims in [
        json!({"scope": "read:a openid read:b"}),
        json!({"scope": " read:a  read:b "}),
        json!({"scope": ["read:a", "read:b"]}),
        json!({"scopes": "read:a read:b"}),
        json!({"scopes": ["read:a read:b"]}),
        json!({"scopes": ["read:a"], "scope": "read:b"}),
        json!({"scopes": null, "scope": "read:a read:b"}),
    ] {
        let caller = auth.caller(Some(&signed(&claims))).unwrap();
        assert_eq!(["a", "b", "c"].map(|topic| reads(&caller, topic)), [true, true, false], "{claims}");
    }
    for claims in [json!({"scope": ""}), json!({"scope": "openid profile"}), json!({"scopes": []})] {
        let caller = auth.caller(Some(&signed(&claims))).unwrap();
        assert!(!reads(&caller, "a"), "{claims} allows nothing");
    }
}

#[test]
fn times_are_kept_with_a_little_tolerance() {
    let auth = shared();
    for (claims, fine) in [
        (json!({"exp": now() - 2}), true),
        (json!({"exp": now() - 10}), false),
        (json!({"nbf": now() + 2}), true),
        (json!({"nbf": now() + 10}), false),
        (json!({"exp": (now() + 60) as f64 + 0.5}), true),
        (json!({"exp": "soon"}), false),
        (json!({"exp": -1}), false),
        (json!({"exp": true}), false),
        (json!({"nbf": "now"}), false),
        (json!({}), true),
    ] {
        assert_eq!(auth.caller(Some(&signed(&claims))).is_ok(), fine, "{claims}");
    }
    let strict = auth_with(JwtOptions { require_exp: true, ..options(JwtKey::Secret(Secret::new(SECRET))) });
    assert_eq!(why(&strict, &signed(&json!({}))), "the token has no exp, which auth.require_exp requires");
}

#[test]
fn a_remembered_token_expires_too() {
    let auth = shared();
    // Within the tolerance, and out of it a moment later.
    let token = signed(&json!({"exp": now() - 4}));
    let Ok(caller) = auth.caller(Some(&token)) else { return };
    while !caller.is_expired() {
        std::thread::yield_now();
    }
    assert_eq!(why(&auth, &token), "the token has expired");
}

#[test]
fn audience_and_issuer_must_fit_where_they_are_asked_for() {
    let auth = auth_with(JwtOptions {
        audience: vec!["hub".into(), "bus".into()],
        issuer: vec!["idp".into()],
        ..options(JwtKey::Secret(Secret::new(SECRET)))
    });
    for (claims, fine) in [
        (json!({"aud": "hub", "iss": "idp"}), true),
        (json!({"aud": ["x", "bus"], "iss": "idp"}), true),
        (json!({"aud": "x", "iss": "idp"}), false),
        (json!({"aud": [], "iss": "idp"}), false),
        (json!({"iss": "idp"}), false),
        (json!({"aud": "hub"}), false),
        (json!({"aud": "hub", "iss": "evil"}), false),
        (json!({"aud": 7, "iss": "idp"}), false),
    ] {
        assert_eq!(auth.caller(Some(&signed(&claims))).is_ok(), fine, "{claims}");
    }
    assert!(
        shared().caller(Some(&signed(&json!({"aud": "any", "iss": "any"})))).is_ok(),
        "where nobody asks"
    );
}

#[test]
fn a_token_cannot_choose_how_it_is_checked() {
    let auth = shared();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = part(&good());
    for alg in ["none", "None", "NONE", "", "HS384", "HS512", "RS256", "ES256", "hs256"] {
        let head = part(&json!({"alg": alg, "typ": "JWT"}));
        let signature = signed(&good()).rsplit('.').next().unwrap().to_owned();
        for signature in ["", &signature] {
            why(&auth, &format!("{head}.{claims}.{signature}"));
        }
    }
    let crit = part(&json!({"alg": "HS256", "crit": ["exp"]}));
    assert!(why(&auth, &format!("{crit}.{claims}.x")).contains("extensions"));
    // A key that the token brings along is nobody's key.
    let own = EncodingKey::from_secret(b"attacker");
    let mut header = Header::new(Algorithm::HS256);
    header.jku = Some("http://127.0.0.1:1/keys".into());
    header.kid = Some("../../../../dev/null".into());
    why(&auth, &signed_as(&header, &good(), &own));
    let (head, rest) = signed(&good()).split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let other = part(&json!({"exp": now() + 60, "scopes": ["*:**"]}));
    let signature = rest.split_once('.').unwrap().1;
    assert_eq!(why(&auth, &format!("{head}.{other}.{signature}")), "the token's signature is invalid");
}

#[test]
fn what_is_no_token_is_refused() {
    let auth = shared();
    let token = signed(&good());
    let huge = signed(&json!({"exp": now() + 60, "x": "y".repeat(20 << 10)}));
    assert_eq!(why(&auth, &huge), "the token is too large");
    for bad in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "ö.ö.ö",
        &token[..token.len() - 1],
        &format!("{token}A"),
        &format!("{token}.x"),
    ] {
        assert!(auth.caller(Some(bad)).is_err(), "{bad}");
    }
    for claims in [
        json!({"scopes": [1]}),
        json!({"scopes": {"read": "a"}}),
        json!({"scope": 1}),
        json!({"scope": ["read:a", null]}),
        json!({"policy": {"rules": [{"effect": "allow", "action": "read", "topics": ["a"], "group": ["x"]}]}}),
        json!({"policy": {"rules": [{"effect": "deny", "action": "read", "topics": ["a-*"]}]}}),
        json!([1]),
    ] {
        why(&auth, &signed(&claims));
    }
}

#[test]
fn a_claim_that_cannot_be_read_is_named_with_what_it_should_be() {
    let auth = shared();
    let policy = |rule: Value| json!({"policy": {"rules": [rule]}});
    for (claims, name, should) in [
        (json!({"exp": "hush"}), "claim exp ", "seconds since 1970"),
        (json!({"exp": -1}), "claim exp ", "seconds since 1970"),
        (json!({"nbf": "hush"}), "claim nbf ", "seconds since 1970"),
        (json!({"iss": ["hush"]}), "claim iss ", "one string"),
        (json!({"scopes": {"hush": 1}}), "claim scopes ", "array of strings"),
        (json!({"scopes": ["read:a", 7]}), "claim scopes ", "array of strings"),
        (json!({"scope": 7}), "claim scope ", "separated by spaces"),
        (policy(json!({"effect": "hush", "action": "read", "topics": ["a"]})), "claim policy ", "\"deny\""),
        (
            policy(json!({"effect": "deny", "action": "read", "topics": ["a"], "hush": 1})),
            "policy ",
            "groups",
        ),
        (
            policy(json!({"effect": "deny", "action": "read", "topics": ["hush-*"]})),
            "claim policy ",
            "wildcard",
        ),
        (json!([1]), "claims ", "a JSON object"),
    ] {
        let why = why(&auth, &signed(&claims));
        assert!(why.contains(name) && why.contains(should), "{claims}: {why}");
        assert!(!why.contains("hush"), "nothing of the token is shown: {why}");
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let (head, twice) = (r#"{"alg":"HS256"}"#, r#"{"aud":"a","aud":"b"}"#);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let text = format!("{}.{}", part(head), part(twice));
    let signature = jsonwebtoken::crypto::sign(text.as_bytes(), &key, Algorithm::HS256).unwrap();
    assert!(why(&auth, &format!("{text}.{signature}")).contains("nothing twice"));
}

#[test]
fn public_keys_of_each_kind_work_and_are_not_secrets() {
    let folder = tempfile::tempdir().unwrap();
    for (of, algorithm) in [
        (&rcgen::PKCS_RSA_SHA256, Algorithm::RS256),
        (&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
        (&rcgen::PKCS_ED25519, Algorithm::EdDSA),
    ] {
        let (ours, theirs) = (pair(of), pair(of));
        let auth = auth_with(options(JwtKey::PublicKeyFile(file(folder.path(), "key.pem", &ours.public))));
        let token = |key: &EncodingKey| signed_as(&Header::new(algorithm), &good(), key);
        assert!(reads(&auth.caller(Some(&token(&ours.private))).unwrap(), "a.b"), "{algorithm:?}");
        why(&auth, &token(&theirs.private));
        // The public key is public: it must not be taken for a secret that tokens are signed with.
        let confused = EncodingKey::from_secret(ours.public.as_bytes());
        why(&auth, &signed_as(&Header::new(Algorithm::HS256), &good(), &confused));
    }
    let p384 = pair(&rcgen::PKCS_ECDSA_P384_SHA384).public;
    let text = Auth::open(AuthOptions::Jwt(options(JwtKey::PublicKeyFile(file(
        folder.path(),
        "x.pem",
        "nonsense",
    )))));
    assert!(text.err().unwrap().contains("x.pem contains no RSA"));
    let wrong =
        Auth::open(AuthOptions::Jwt(options(JwtKey::PublicKeyFile(file(folder.path(), "p.pem", &p384)))));
    if let Ok(auth) = wrong {
        why(&auth, &signed(&good()));
    }
    let missing = Auth::open(AuthOptions::Jwt(options(JwtKey::JwksFile(folder.path().join("no.json")))));
    assert!(missing.err().unwrap().contains("cannot read"));
}

/// A set with an Ed25519 key of each name.
fn set(keys: &[(&str, &Pair)]) -> String {
    let key = |(id, pair): &(&str, &Pair)| {
        let x = URL_SAFE_NO_PAD.encode(pair.keys.der_bytes());
        json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": id, "use": "sig"})
    };
    let mut keys: Vec<Value> = keys.iter().map(key).collect();
    keys.push(json!({"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET), "kid": "shared", "use": "enc"}));
    keys.push(json!({"kty": "later", "kid": "x"}));
    json!({ "keys": keys }).to_string()
}

#[tokio::test]
async fn keys_of_a_set_are_chosen_by_name_and_change_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (pair(&rcgen::PKCS_ED25519), pair(&rcgen::PKCS_ED25519));
    let path = file(folder.path(), "keys.json", &set(&[("one", &one), ("two", &two)]));
    let jwt = Arc::new(Jwt::open(options(JwtKey::JwksFile(path.clone()))).unwrap());
    let token = |id: Option<&str>, pair: &Pair| {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::EdDSA) };
        signed_as(&header, &good(), &pair.private)
    };
    assert!(jwt.caller(&token(Some("one"), &one)).is_ok());
    assert!(jwt.caller(&token(Some("two"), &two)).is_ok());
    for bad in [token(Some("one"), &two), token(Some("three"), &one), token(None, &one), signed(&good())] {
        assert!(jwt.caller(&bad).is_err());
    }
    let callers = [("one", &one), ("two", &two)].map(|(id, key)| jwt.caller(&token(Some(id), key)).unwrap());
    let ended = || callers.each_ref().map(Caller::ended);
    assert_eq!(ended(), [None, None]);
    let mut end = std::pin::pin!(callers[0].end());
    assert!(end.as_mut().now_or_never().is_none());
    std::fs::write(&path, set(&[("two", &two)])).unwrap();
    jwt.look_now();
    assert_eq!(ended(), [Some(TOKEN_WITHDRAWN), None], "also what is open already");
    assert_eq!(end.now_or_never(), Some(TOKEN_WITHDRAWN));
    assert!(jwt.caller(&token(Some("one"), &one)).is_err(), "also where it was found good before");
    assert!(jwt.caller(&token(Some("two"), &two)).is_ok());
    assert!(jwt.caller(&token(None, &two)).is_ok(), "the only one of its kind");
    std::fs::write(&path, "{").unwrap();
    jwt.look_now();
    assert!(jwt.caller(&token(Some("two"), &two)).is_ok(), "a broken file changes nothing");
}
