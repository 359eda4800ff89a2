//! The section `[auth]`: how callers are authenticated.

use prombus_server::{AuthOptions, JwtKey, JwtOptions, Policy, Rules, Secret, StaticToken};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How callers are authenticated.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `none`, `token` or `jwt`.
    pub mode: Option<Mode>,
    /// The key that verifies tokens.
    pub secret: Option<Secret>,
    /// The environment variable that holds it.
    pub secret_env: Option<String>,
    /// Or the public key, in PEM format.
    pub public_key_file: Option<PathBuf>,
    /// Or a set of keys.
    pub jwks_file: Option<PathBuf>,
    /// The required audience of tokens.
    pub audience: Option<OneOrMany>,
    /// The required issuer of tokens.
    pub issuer: Option<OneOrMany>,
    /// Whether they must expire.
    pub require_exp: Option<bool>,
    /// The tokens, for the mode `token`.
    pub tokens: Option<Vec<Token>>,
}

/// How callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not at all.
    None,
    /// By static tokens.
    Token,
    /// By signed tokens.
    Jwt,
}

/// A name, or several of which any one suffices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// A token and what it is good for.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Token {
    /// The token.
    pub token: Option<Secret>,
    /// The environment variable that holds it.
    pub token_env: Option<String>,
    /// What it allows.
    pub scopes: Option<Vec<String>>,
    /// The same as rules.
    pub policy: Option<Policy>,
}

/// Looks up an environment variable.
pub(super) type Variable = fn(&str) -> Option<String>;

impl Auth {
    /// The settings of the section.
    pub fn options(&self, variable: Variable) -> Result<AuthOptions, String> {
        let jwt_only = [
            ("secret", self.secret.is_some()),
            ("secret_env", self.secret_env.is_some()),
            ("public_key_file", self.public_key_file.is_some()),
            ("jwks_file", self.jwks_file.is_some()),
            ("audience", self.audience.is_some()),
            ("issuer", self.issuer.is_some()),
            ("require_exp", self.require_exp.is_some()),
        ];
        let token_only = [("tokens", self.tokens.is_some())];
        let misplaced = |names: &[(&str, bool)], mode: &str| match names.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(format!("auth.{name} goes with auth.mode = \"{mode}\" only")),
            None => Ok(()),
        };
        if self.mode != Some(Mode::Jwt) {
            misplaced(&jwt_only, "jwt")?;
        }
        if self.mode != Some(Mode::Token) {
            misplaced(&token_only, "token")?;
        }
        match self.mode {
            None | Some(Mode::None) => Ok(AuthOptions::None),
            Some(Mode::Token) => self.tokens(variable).map(AuthOptions::Tokens),
            Some(Mode::Jwt) => self.jwt(variable).map(AuthOptions::Jwt),
        }
    }

    fn tokens(&self, variable: Variable) -> Result<Vec<StaticToken>, String> {
        let tokens = self.tokens.as_deref().unwrap_or_default();
        if tokens.is_empty() {
            return Err("auth.mode = \"token\" needs auth.tokens".into());
        }
        let mut known: Vec<StaticToken> = Vec::with_capacity(tokens.len());
        for (index, token) in tokens.iter().enumerate() {
            let at_entry = |why: String| format!("auth.tokens, entry {}: {why}", index + 1);
            let token = token.resolve(variable).map_err(at_entry)?;
            if known.iter().any(|other| other.token == token.token) {
                return Err(at_entry("the token is already in an earlier entry".into()));
            }
            known.push(token);
        }
        Ok(known)
    }

    fn jwt(&self, variable: Variable) -> Result<JwtOptions, String> {
        let secret = secret(self.secret.as_ref(), self.secret_env.as_deref(), variable)
            .map_err(|why| format!("auth.secret: {why}"))?;
        let keys = [
            secret.map(JwtKey::Secret),
            self.public_key_file.clone().map(JwtKey::PublicKeyFile),
            self.jwks_file.clone().map(JwtKey::JwksFile),
        ];
        let mut keys = keys.into_iter().flatten();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return Err(
                "auth.mode = \"jwt\" needs one of secret, secret_env, public_key_file and jwks_file".into()
            );
        };
        let list = |name: &str, given: &Option<OneOrMany>| match given {
            None => Ok(Vec::new()),
            Some(OneOrMany::One(one)) => Ok(vec![one.clone()]),
            Some(OneOrMany::Many(many)) if many.is_empty() => {
                Err(format!("auth.{name} is empty: omit it to accept any"))
            }
            Some(OneOrMany::Many(many)) => Ok(many.clone()),
        };
        let (audience, issuer) = (list("audience", &self.audience)?, list("issuer", &self.issuer)?);
        let require_exp = self.require_exp.unwrap_or(false);
        Ok(JwtOptions { key, audience, issuer, require_exp })
    }
}

impl Token {
    fn resolve(&self, variable: Variable) -> Result<StaticToken, String> {
        let token = secret(self.token.as_ref(), self.token_env.as_deref(), variable)?
            .ok_or("it needs token or token_env")?;
        let mut rules = Rules::default();
        for scope in self.scopes.iter().flatten() {
            rules.add_scope(scope).map_err(|error| error.to_string())?;
        }
        if let Some(policy) = &self.policy {
            rules.add_policy(policy.clone()).map_err(|error| error.to_string())?;
        }
        if rules == Rules::default() {
            return Err("it needs scopes or a policy, or it would allow nothing".into());
        }
        Ok(StaticToken { token, rules })
    }
}

/// A secret, given directly or by an environment variable.
pub(super) fn secret(
    written: Option<&Secret>,
    name: Option<&str>,
    variable: Variable,
) -> Result<Option<Secret>, String> {
    let secret = match (written, name) {
        (Some(_), Some(_)) => return Err("it is given twice, directly and by a variable".into()),
        (Some(written), None) => Some(written.clone()),
        (None, Some(name)) => match variable(name) {
            // Files that are read into variables end with a line break.
            Some(value) => Some(Secret::new(value.trim())),
            None => return Err(format!("the environment variable {name} is not set")),
        },
        (None, None) => None,
    };
    match secret {
        Some(secret) if secret.expose().is_empty() => Err("it must not be empty".into()),
        secret => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConfigFile;
    use super::*;

    fn options(text: &str) -> Result<AuthOptions, String> {
        let variable: Variable = |name| (name == "SET").then(|| "0123456789abcdef".to_owned());
        ConfigFile::parse(text).map_err(|problem| problem.to_string())?.auth.options(variable)
    }

    #[test]
    fn without_a_word_there_is_none() {
        assert!(matches!(options(""), Ok(AuthOptions::None)));
        assert!(matches!(options("[auth]\nmode = \"none\""), Ok(AuthOptions::None)));
    }

    #[test]
    fn every_kind_of_key_is_understood() {
        for key in [
            "secret = \"0123456789abcdef\"",
            "secret_env = \"SET\"",
            "public_key_file = \"k.pem\"",
            "jwks_file = \"k\"",
        ] {
            let text = format!(
                "[auth]\nmode = \"jwt\"\n{key}\naudience = \"hub\"\nissuer = [\"a\", \"b\"]\nrequire_exp = true"
            );
            let Ok(AuthOptions::Jwt(jwt)) = options(&text) else { panic!("{text}") };
            assert_eq!((jwt.audience, jwt.issuer.len(), jwt.require_exp), (vec!["hub".to_owned()], 2, true));
        }
    }

    #[test]
    fn tokens_have_scopes_or_a_policy() {
        let text = r#"
            [auth]
            mode = "token"
            tokens = [{ token_env = "SET", scopes = ["*:**"] }, { token = "x", scopes = ["publish:a.*"] }]
            [[auth.tokens_]]
        "#;
        assert!(options(text).unwrap_err().contains("nearest known one is auth.tokens"));
        let text = text.replace("[[auth.tokens_]]", "");
        let Ok(AuthOptions::Tokens(tokens)) = options(&text) else { panic!() };
        assert_eq!((tokens.len(), tokens[0].token.expose()), (2, "0123456789abcdef"));
        let policy = r#"
            [auth]
            mode = "token"
            [[auth.tokens]]
            token = "x"
            policy = { rules = [{ effect = "allow", action = "read", topics = ["**"] }] }
        "#;
        assert!(matches!(options(policy), Ok(AuthOptions::Tokens(_))));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, told) in [
            ("mode = \"jtw\"", "jwt"),
            ("secret = \"0123456789abcdef\"", "auth.secret goes with auth.mode = \"jwt\" only"),
            ("mode = \"jwt\"", "needs one of"),
            ("mode = \"jwt\"\nsecret = \"0123456789abcdef\"\njwks_file = \"x\"", "needs one of"),
            ("mode = \"jwt\"\nsecret = \"\"", "must not be empty"),
            ("mode = \"jwt\"\nsecret_env = \"UNSET\"", "UNSET is not set"),
            ("mode = \"token\"", "needs auth.tokens"),
            ("mode = \"jwt\"\nsecret = \"0123456789abcdef\"\naudience = []", "auth.audience is empty"),
            ("mode = \"jwt\"\nsecret = 123456789", "invalid type: integer, expected"),
            (
                "mode = \"token\"\ntokens = [{ token = \"x\", scopes = [\"*:**\"] }, { token = \"x\", scopes = [\"*:**\"] }]",
                "entry 2: the token is already in an earlier entry",
            ),
            ("mode = \"token\"\ntokens = [{ token = \"x\" }]", "entry 1: it needs scopes"),
            ("mode = \"token\"\ntokens = [{ scopes = [\"*:**\"] }]", "entry 1: it needs token"),
            ("mode = \"token\"\ntokens = [{ token = \"x\", scopes = [\"write:a\"] }]", "is not a scope"),
            (
                "mode = \"token\"\ntokens = [{ token = \"x\", scope = [\"read:a\"] }]",
                "nearest known one is auth.tokens.scopes",
            ),
            (
                "mode = \"token\"\ntokens = [{ token = \"x\", scopes = [\"read:a\"] }]\nissuer = \"i\"",
                "auth.issuer goes with",
            ),
        ] {
            let why = options(&format!("[auth]\n{text}")).unwrap_err();
            assert!(why.contains(told), "{text}: {why}");
            assert!(!why.contains("123456789"), "secrets are not shown: {why}");
        }
    }
}
