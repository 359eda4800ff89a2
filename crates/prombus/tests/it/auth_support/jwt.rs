//! Tokens of every kind, good and bad, made by hand: no header and no claim is too odd.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};
use serde_json::{Value, json};

/// Seconds since the epoch.
pub fn seconds() -> i64 {
    crate::contract_support::now() / 1000
}

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub fn decode(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()
}

/// Claims that allow everything for an hour.
pub fn all() -> Value {
    scopes(&["*:**"])
}

/// Claims with these scopes, for an hour.
pub fn scopes(scopes: &[&str]) -> Value {
    json!({"sub": "tester", "exp": seconds() + 3600, "scopes": scopes})
}

/// Claims with these rules, for an hour.
pub fn policy(rules: &Value) -> Value {
    json!({"sub": "tester", "exp": seconds() + 3600, "policy": {"rules": rules}})
}

/// The same claims with one that differs.
pub fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

/// A token whose parts are what they are told to be.
pub fn assembled(header: &str, claims: &str, signature: &str) -> String {
    format!("{}.{}.{signature}", encode(header), encode(claims))
}

/// Someone who signs tokens.
#[derive(Debug)]
pub struct Signer {
    pub algorithm: Algorithm,
    key: EncodingKey,
    /// What a hub gets; nothing where the secret is shared.
    pub public_pem: String,
    raw: Vec<u8>,
}

impl Signer {
    pub fn secret(secret: &str) -> Self {
        let key = EncodingKey::from_secret(secret.as_bytes());
        Self { algorithm: Algorithm::HS256, key, public_pem: String::new(), raw: Vec::new() }
    }

    pub fn rsa() -> Self {
        let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        let key = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).unwrap();
        Self::of(Algorithm::RS256, key, &pair)
    }

    pub fn ec() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        Self::of(Algorithm::ES256, key, &pair)
    }

    pub fn ed() -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let key = EncodingKey::from_ed_der(pair.serialized_der());
        Self::of(Algorithm::EdDSA, key, &pair)
    }

    fn of(algorithm: Algorithm, key: EncodingKey, pair: &KeyPair) -> Self {
        Self { algorithm, key, public_pem: pair.public_key_pem(), raw: pair.public_key_raw().to_vec() }
    }

    fn name(&self) -> Value {
        serde_json::to_value(self.algorithm).unwrap()
    }

    /// A plain token.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.name(), "typ": "JWT"}), claims)
    }

    /// A token that names the key.
    pub fn token_of(&self, kid: &str, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.name(), "kid": kid}), claims)
    }

    /// A token with more in its header than the algorithm.
    pub fn token_and(&self, more: &Value, claims: &Value) -> String {
        let mut header = json!({"alg": self.name(), "typ": "JWT"});
        for (name, value) in more.as_object().unwrap() {
            header[name] = value.clone();
        }
        self.token_with(&header, claims)
    }

    /// A token with exactly this header, whatever it says of the algorithm.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        self.signed(&header.to_string(), &claims.to_string())
    }

    /// A signature over whatever stands there.
    pub fn signed(&self, header: &str, claims: &str) -> String {
        self.signed_by(self.algorithm, header, claims)
    }

    /// A signature of another algorithm with the same key.
    pub fn signed_by(&self, algorithm: Algorithm, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = crypto::sign(message.as_bytes(), &self.key, algorithm).unwrap();
        format!("{message}.{signature}")
    }

    /// The public key as one of a set.
    pub fn jwk(&self, kid: &str) -> Value {
        let mut jwk = match self.algorithm {
            Algorithm::EdDSA => {
                json!({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": encode(&self.raw)})
            }
            algorithm => serde_json::to_value(Jwk::from_encoding_key(&self.key, algorithm).unwrap()).unwrap(),
        };
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        jwk
    }
}

/// A file of keys.
pub fn jwks(keys: &[Value]) -> String {
    json!({"keys": keys}).to_string()
}
