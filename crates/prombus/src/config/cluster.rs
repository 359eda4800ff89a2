//! Several hubs on one database.

use super::auth::{Variable, secret};
use prombus_server::{ClusterOptions, Secret};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// For how long a hub may be silent, where nothing else is said.
pub const HUB_TTL: Duration = Duration::from_secs(5);
/// Less is over while a busy machine does something else.
const MIN_HUB_TTL_MS: u64 = 1_000;

/// The other hubs that use the same database.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// What only the hubs know, and all of them the same.
    pub secret: Option<Secret>,
    /// The environment variable that holds it.
    pub secret_env: Option<String>,
    /// For how long a hub may be silent before the others take over its topics.
    pub hub_ttl_ms: Option<u64>,
}

impl Cluster {
    /// What makes a hub one of several, where its store is one that hubs can share.
    pub fn options(
        &self,
        is_shared: bool,
        advertise: Option<&str>,
        variable: Variable,
    ) -> Result<Option<ClusterOptions>, String> {
        if !is_shared {
            let given = [
                ("server.advertise", advertise.is_some()),
                ("cluster.secret", self.secret.is_some()),
                ("cluster.secret_env", self.secret_env.is_some()),
                ("cluster.hub_ttl_ms", self.hub_ttl_ms.is_some()),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((name, _)) => Err(format!(
                    "{name} is for hubs that share a database, and the store of this one is its own: remove it"
                )),
                None => Ok(None),
            };
        }
        let secret = secret(self.secret.as_ref(), self.secret_env.as_deref(), variable);
        let secret = secret.map_err(|why| format!("cluster.secret: {why}"))?.ok_or(
            "hubs that share a database need cluster.secret or cluster.secret_env, the same on all of them; \
             generate one with `openssl rand -hex 32`",
        )?;
        if self.hub_ttl_ms.is_some_and(|ms| ms < MIN_HUB_TTL_MS) {
            return Err(format!("cluster.hub_ttl_ms must be at least {MIN_HUB_TTL_MS}"));
        }
        let hub_ttl = self.hub_ttl_ms.map_or(HUB_TTL, Duration::from_millis);
        let options = ClusterOptions { secret, advertise: advertise.map(str::to_owned), hub_ttl };
        options.check()?;
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn none(_: &str) -> Option<String> {
        None
    }

    fn options(cluster: &str, advertise: Option<&str>) -> Result<Option<ClusterOptions>, String> {
        toml::from_str::<Cluster>(cluster).unwrap().options(true, advertise, none)
    }

    #[test]
    fn hubs_that_share_a_database_need_a_secret_and_an_address() {
        let url = Some("http://10.0.0.7:7070");
        let (secret, too_short) =
            (format!("secret = {SECRET:?}"), format!("secret = {SECRET:?}\nhub_ttl_ms = 10"));
        let made = options(&format!("secret = {SECRET:?}\nhub_ttl_ms = 2000"), url).unwrap().unwrap();
        assert_eq!((made.secret.expose(), made.hub_ttl.as_millis()), (SECRET, 2_000));
        assert_eq!(made.advertise.as_deref(), url);
        let default = options(secret.as_str(), url).unwrap().unwrap();
        assert_eq!(default.hub_ttl, HUB_TTL);
        for (cluster, advertise, hint) in [
            ("", url, "cluster.secret"),
            ("secret = \"short\"", url, "cluster.secret"),
            ("secret_env = \"UNSET\"", url, "UNSET is not set"),
            (secret.as_str(), Some("10.0.0.7:7070"), "server.advertise"),
            (too_short.as_str(), url, "cluster.hub_ttl_ms"),
        ] {
            let why = options(cluster, advertise).unwrap_err();
            assert!(why.contains(hint), "{cluster}: {why}");
        }
    }

    #[test]
    fn a_hub_with_a_store_of_its_own_has_no_use_for_them() {
        let alone = |cluster: &str, advertise| {
            toml::from_str::<Cluster>(cluster).unwrap().options(false, advertise, none)
        };
        assert!(alone("", None).unwrap().is_none());
        for (cluster, advertise, name) in [
            ("", Some("http://a"), "server.advertise"),
            ("secret = \"s\"", None, "cluster.secret"),
            ("secret_env = \"s\"", None, "cluster.secret_env"),
            ("hub_ttl_ms = 5000", None, "cluster.hub_ttl_ms"),
        ] {
            assert!(alone(cluster, advertise).unwrap_err().starts_with(name), "{cluster}");
        }
    }
}
