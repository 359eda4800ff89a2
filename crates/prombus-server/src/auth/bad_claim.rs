//! Describes an invalid claim: its name and what it should be, never what the token contains.

use super::Refusal;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

/// The refusal of a token that is correctly signed but cannot be parsed as `Claims`.
pub(super) fn of_token<Claims: DeserializeOwned>(token: &str) -> Refusal {
    let text = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok()).unwrap_or_default();
    let mut text = serde_json::Deserializer::from_slice(&text);
    match serde_path_to_error::deserialize::<_, Claims>(&mut text) {
        Err(error) => of_path(&error.path().to_string()),
        // The claims that the hub reads are valid, so it is the header, or a duplicate claim.
        Ok(_) => Refusal::from(
            "the token's head or its claims are not those of a JSON Web Token: each must be an object that says \
             nothing twice",
        ),
    }
}

/// The refusal of a token with an invalid value at `path`.
pub(super) fn of_path(path: &str) -> Refusal {
    let claim = path.split(['.', '[']).next().unwrap_or_default();
    let should = match claim {
        "exp" | "nbf" => "must be a number of seconds since 1970",
        "iss" => "must be one string",
        "aud" => "must be a string or an array of strings",
        "scopes" => "must be an array of strings, like [\"publish:orders.*\"]",
        "scope" => "must be one string of scopes, separated by spaces",
        "policy" => {
            "is not as it should be: a policy is {\"rules\":[{\"effect\":\"allow\" or \"deny\",\"action\":\"publish\", \
             \"subscribe\", \"read\", \"admin\" or \"*\",\"topics\":[...],\"groups\":[...]}]}, and groups may be left out"
        }
        _ => {
            return Refusal::from(
                "the token's claims are invalid: they must be a JSON object without duplicate claims",
            );
        }
    };
    // Names further inside may be the token's own.
    let shown = path.split('.').next().unwrap_or_default();
    Refusal(format!("the token's claim {shown} {should}").into())
}
