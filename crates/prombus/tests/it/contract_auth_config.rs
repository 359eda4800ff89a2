//! What a hub is told about tokens: where it may listen, which settings go together, and what it says of mistakes.

use crate::auth_support;
use crate::auth_support::jwt::{Signer, all};
use crate::auth_support::{SECRET, STRANGER, Setup, is_unauthorized, secret_file};

const TOKENS: &str = "tokens = [{ token = \"a-good-long-token-123\", scopes = [\"*:**\"] }]\n";

#[test]
fn without_auth_the_hub_refuses_to_listen_to_everyone() {
    for listen in ["0.0.0.0:0", "[::]:0", ":0"] {
        let said = Setup { args: &["--listen", listen], ..Setup::default() }.gives_up();
        assert_ne!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.contains("--insecure") && said.stderr.contains("auth"), "{said:?}");
    }
}

#[test]
fn it_refuses_as_well_where_the_file_or_the_environment_say_so() {
    let file = "[server]\nlisten = \"0.0.0.0:0\"\n";
    let said = Setup { file, ..Setup::default() }.gives_up();
    assert!(said.code != Some(0) && said.stderr.contains("--insecure"), "{said:?}");
    let file = "[auth]\nmode = \"none\"\n[server]\nlisten = \"0.0.0.0:0\"\n";
    let said = Setup { file, ..Setup::default() }.gives_up();
    assert!(said.code != Some(0) && said.stderr.contains("--insecure"), "{said:?}");
    // The file names a loopback address, which the environment wins over.
    let file = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let said = Setup { file, env: &[("PROMBUS_LISTEN", "0.0.0.0:0")], ..Setup::default() }.gives_up();
    assert!(said.code != Some(0) && said.stderr.contains("--insecure"), "{said:?}");
}

#[test]
fn encryption_alone_does_not_make_it_listen_to_everyone() {
    let identity = auth_support::tls::Identity::new();
    let args = ["--listen", "0.0.0.0:0", "--tls-cert", "hub.pem", "--tls-key", "hub.key"];
    let said = Setup { args: &args, beside: &identity.files(), ..Setup::default() }.gives_up();
    assert!(said.code != Some(0) && said.stderr.contains("--insecure"), "{said:?}");
}

#[test]
fn told_that_it_is_insecure_it_listens() {
    let hub = Setup { args: &["--listen", "0.0.0.0:0", "--insecure"], ..Setup::default() }.start();
    hub.api.publish("t", "1").is(201);
}

#[test]
fn with_tokens_it_listens_to_everyone() {
    let file = format!("[auth]\nmode = \"token\"\n{TOKENS}");
    let hub = Setup { file: &file, args: &["--listen", "0.0.0.0:0"], ..Setup::default() }.start();
    is_unauthorized(&hub.api.publish("t", "1"));
    hub.caller("a-good-long-token-123").publish("t").is(201);
}

#[test]
fn with_jwt_it_listens_to_everyone() {
    let file = secret_file();
    let hub = Setup { file: &file, args: &["--listen", "0.0.0.0:0"], ..Setup::default() }.start();
    is_unauthorized(&hub.caller(STRANGER).publish("t"));
    hub.caller(&Signer::secret(SECRET).token(&all())).publish("t").is(201);
}

#[test]
fn insecure_does_not_switch_auth_off() {
    let file = secret_file();
    let args = ["--listen", "0.0.0.0:0", "--insecure"];
    let hub = Setup { file: &file, args: &args, ..Setup::default() }.start();
    is_unauthorized(&hub.api.publish("t", "1"));
}

/// The hub gives up with a usage error that names all of these.
#[track_caller]
fn names(file: &str, words: &[&str]) {
    let beside =
        [("garbage.pem", "no key at all\n"), ("garbage.json", "{]"), ("empty.json", "{\"keys\":[]}")];
    let said = Setup { file, beside: &beside, ..Setup::default() }.is_usage_error();
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said:?} on\n{file}");
    }
    assert!(!said.contains(SECRET) && !said.contains("a-good-long-token-123"), "{said}");
    assert!(!said.contains("panic"), "{said}");
}

/// The hub gives up over a value that cannot be, and says where it stands: by its key, or by its line.
#[track_caller]
fn finds(file: &str, key: &str) {
    let said = Setup { file, ..Setup::default() }.is_usage_error();
    let line = file.lines().position(|line| line.contains(key)).unwrap() + 1;
    assert!(said.contains(key) || said.contains(&format!("line {line}:")), "{said} on\n{file}");
    names(file, &[]);
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    let cases = [
        ("secert", "\"x\"", "secret"),
        ("audiance", "\"x\"", "audience"),
        ("isuer", "\"x\"", "issuer"),
        ("jwks_fiel", "\"x\"", "jwks_file"),
        ("require_expp", "true", "require_exp"),
        ("tokns", "[]", "tokens"),
        ("public_key_fil", "\"x\"", "public_key_file"),
    ];
    for (unknown, value, known) in cases {
        names(&format!("{}{unknown} = {value}\n", secret_file()), &[unknown, known]);
    }
}

#[test]
fn an_unknown_key_of_a_token_is_named_with_the_nearest_known_one() {
    let with = |rest: &str| {
        format!("[auth]\nmode = \"token\"\ntokens = [{{ token = \"a-good-long-token-123\", {rest} }}]\n")
    };
    names(&with("scope = [\"*:**\"]"), &["scope", "scopes"]);
    names(&with("scopes = [\"*:**\"], polcy = {}"), &["polcy", "policy"]);
}

#[test]
fn an_unknown_key_of_a_policy_is_named() {
    let rule = "{ effect = \"allow\", action = \"read\", topics = [\"**\"], group = [\"g\"] }";
    names(
        &format!(
            "[auth]\nmode = \"token\"\ntokens = [{{ token = \"a-good-long-token-123\", policy = {{ rules = [{rule}] }} }}]\n"
        ),
        &["group", "groups"],
    );
}

#[test]
fn an_unknown_mode_is_named_with_the_known_ones() {
    for mode in ["magic", "JWT", "tokens", ""] {
        let file = format!("[auth]\nmode = \"{mode}\"\n");
        finds(&file, "mode");
        names(&file, &["none", "token", "jwt"]);
    }
}

#[test]
fn jwt_wants_exactly_one_key() {
    names("[auth]\nmode = \"jwt\"\n", &["secret", "public_key_file", "jwks_file"]);
    names(&format!("{}secret_env = \"S\"\n", secret_file()), &["auth.secret"]);
    let sources = ["public_key_file = \"garbage.pem\"", "jwks_file = \"empty.json\""];
    for other in sources {
        let name = other.split(' ').next().unwrap();
        names(&format!("{}{other}\n", secret_file()), &["secret", name]);
    }
    names(
        "[auth]\nmode = \"jwt\"\npublic_key_file = \"a.pem\"\njwks_file = \"b.json\"\n",
        &["public_key_file", "jwks_file"],
    );
}

#[test]
fn tokens_want_mode_token() {
    names(&format!("{}{TOKENS}", secret_file()), &["tokens"]);
    names(&format!("[auth]\n{TOKENS}"), &["tokens"]);
    names(&format!("[auth]\nmode = \"none\"\n{TOKENS}"), &["tokens"]);
}

#[test]
fn keys_want_mode_jwt() {
    for key in [
        "secret = \"x1x2x3x4x5x6x7x8\"",
        "secret_env = \"S\"",
        "jwks_file = \"k\"",
        "public_key_file = \"k\"",
        "audience = \"a\"",
        "issuer = \"i\"",
        "require_exp = true",
    ] {
        let name = key.split(' ').next().unwrap();
        names(&format!("[auth]\nmode = \"token\"\n{TOKENS}{key}\n"), &[name]);
        names(&format!("[auth]\nmode = \"none\"\n{key}\n"), &[name]);
        names(&format!("[auth]\n{key}\n"), &[name]);
    }
}

#[test]
fn mode_token_wants_tokens() {
    names("[auth]\nmode = \"token\"\n", &["tokens"]);
    names("[auth]\nmode = \"token\"\ntokens = []\n", &["tokens"]);
}

#[test]
fn a_token_wants_one_value() {
    let with = |rest: &str| format!("[auth]\nmode = \"token\"\ntokens = [{{ {rest} }}]\n");
    names(&with("scopes = [\"*:**\"]"), &["token", "token_env"]);
    names(&with("token = \"a-good-long-token-123\", token_env = \"T\", scopes = []"), &["auth.tokens"]);
    names(&with("token = \"\", scopes = [\"*:**\"]"), &["token"]);
    names(&with("token_env = \"NOT_SET_ANYWHERE\", scopes = [\"*:**\"]"), &["NOT_SET_ANYWHERE"]);
}

#[test]
fn an_empty_token_from_the_environment_is_none() {
    let file = "[auth]\nmode = \"token\"\ntokens = [{ token_env = \"OPS_TOKEN\", scopes = [\"*:**\"] }]\n";
    let said = Setup { file, env: &[("OPS_TOKEN", "")], ..Setup::default() }.is_usage_error();
    assert!(said.contains("OPS_TOKEN"), "{said}");
}

#[test]
fn a_policy_of_a_token_that_makes_no_sense_is_found() {
    let with = |policy: &str| {
        format!(
            "[auth]\nmode = \"token\"\ntokens = [{{ token = \"a-good-long-token-123\", policy = {policy} }}]\n"
        )
    };
    finds(&with("{ rules = [{ effect = \"permit\", action = \"read\", topics = [\"**\"] }] }"), "effect");
    finds(&with("{ rules = [{ effect = \"allow\", action = \"write\", topics = [\"**\"] }] }"), "action");
    finds(&with("{ rules = [{ effect = \"allow\", action = \"read\", topics = \"**\" }] }"), "topics");
    finds(&with("\"all\""), "policy");
}

#[test]
fn a_secret_that_is_not_there_is_named() {
    names("[auth]\nmode = \"jwt\"\nsecret_env = \"NOT_SET_ANYWHERE\"\n", &["NOT_SET_ANYWHERE"]);
    names("[auth]\nmode = \"jwt\"\nsecret = \"\"\n", &["secret"]);
    let file = "[auth]\nmode = \"jwt\"\nsecret_env = \"HUB_SECRET\"\n";
    let said = Setup { file, env: &[("HUB_SECRET", "")], ..Setup::default() }.is_usage_error();
    assert!(said.contains("HUB_SECRET"), "{said}");
}

#[test]
fn a_file_of_keys_that_is_not_there_or_holds_none_is_named() {
    for (key, file) in [
        ("public_key_file", "missing.pem"),
        ("public_key_file", "garbage.pem"),
        ("jwks_file", "missing.json"),
        ("jwks_file", "garbage.json"),
        ("jwks_file", "empty.json"),
    ] {
        let text = format!("[auth]\nmode = \"jwt\"\n{key} = \"{file}\"\n");
        let beside =
            [("garbage.pem", "no key at all\n"), ("garbage.json", "{]"), ("empty.json", "{\"keys\":[]}")];
        let said = Setup { file: &text, beside: &beside, ..Setup::default() }.gives_up();
        assert!(matches!(said.code, Some(1 | 2)), "{said:?} on {text}");
        assert!(said.stderr.contains(file), "{said:?} on {text}");
    }
}

#[test]
fn values_of_the_wrong_kind_are_found_and_not_repeated() {
    finds("[auth]\nmode = \"jwt\"\nsecret = 42\n", "secret");
    finds(&format!("[auth]\nmode = 7\nsecret = \"{SECRET}\"\n"), "mode");
    finds(&format!("{}require_exp = \"yes\"\n", secret_file()), "require_exp");
    finds(&format!("{}audience = 1\n", secret_file()), "audience");
    finds("[auth]\nmode = \"token\"\ntokens = [\"a-good-long-token-123\"]\n", "tokens");
    finds("[auth]\nmode = \"token\"\ntokens = \"a-good-long-token-123\"\n", "tokens");
}

#[test]
fn a_mistake_on_the_line_of_a_secret_does_not_repeat_the_secret() {
    for line in [
        format!("secrett = \"{SECRET}\""),
        format!("secret = [\"{SECRET}\"]"),
        format!("secret = \"{SECRET}"),
        format!("secret = {SECRET}"),
        format!("secret = \"{SECRET}\" \"{SECRET}\""),
        "tokens = [{ token = \"a-good-long-token-123\", tokn = 1 }]".to_owned(),
        "tokens = [{ token = \"a-good-long-token-123\", scopes = 1 }]".to_owned(),
        "tokens = [{ token = [\"a-good-long-token-123\"] }]".to_owned(),
        "tokens = [{ tokn = \"a-good-long-token-123\" }]".to_owned(),
    ] {
        names(&format!("[auth]\nmode = \"jwt\"\n{line}\n"), &[]);
    }
}

#[test]
fn unknown_keys_beside_auth_are_named_too() {
    names("[server]\nallow_origin = [\"https://a.example\"]\n", &["allow_origin", "allow_origins"]);
    names("[server]\ntls_certs = \"x\"\n", &["tls_certs", "tls_cert"]);
    names("[limits]\nconection_events_per_s = 1\n", &["conection_events_per_s", "connection_events_per_s"]);
    names("[limits]\nheader_timeout = 1\n", &["header_timeout", "header_timeout_ms"]);
    names("[atuh]\nmode = \"none\"\n", &["atuh", "auth"]);
}
