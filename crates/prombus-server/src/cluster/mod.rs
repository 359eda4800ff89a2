//! Several hubs on one store: who they are to each other, and how what is asked of one gets to the one that it is for.

mod batch;
mod door;
mod forgetting;
mod gather;
mod heard;
mod lanes;
mod peers;
mod place;
mod pledges;
mod told;
mod trust;

pub(crate) use batch::{PATH as PUBLISHES, publishes};
pub(crate) use door::{Patience, Question, Step, door, put_question};
pub(crate) use forgetting::{PATH as FORGET, forget, forget_everywhere};
pub(crate) use gather::{Part, gather};
pub(crate) use heard::{CallerFrame, Forwarded, Vouched, hear, hello, is_forwarded};
pub(crate) use lanes::Published;
pub(crate) use peers::{Forward, HELLO, OpenedSocket, Sent, Voucher};
pub(crate) use place::About;
pub(crate) use pledges::{AskedPledge, PLEDGE, Pledged, TELL, Told as ToldOutcome, pledge, tell, until_gone};
use trust::MIN_SECRET_BYTES;

use crate::auth::{AuthOptions, Secret};
use crate::error::ApiError;
use crate::tls::TlsFiles;
use lanes::Lanes;
use parking_lot::Mutex;
use peers::{Connections, Peer};
use pledges::Pledges;
use prombus_core::HomesError;
use prombus_core::{AboutHub, HubId, LiveHub};
use prombus_engine::Hub;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use trust::Trust;

/// A hub is heard of so many times while it could be silent without being missed.
const BEATS: u32 = 5;

/// How hubs ask their callers who they are. All hubs do it alike: where one asks nobody, another could be made to believe it.
const AUTH_MODES: [&str; 3] = ["none", "token", "jwt"];

/// What makes a hub one of several.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// What only the hubs know.
    pub secret: Secret,
    /// Where the others reach this one, such as `http://10.0.0.7:7070`; otherwise where it listens.
    pub advertise: Option<String>,
    /// For how long a hub may be silent before the others take over.
    pub hub_ttl: Duration,
}

impl ClusterOptions {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), String> {
        if self.secret.expose().len() < MIN_SECRET_BYTES {
            return Err(format!(
                "cluster.secret must have at least {MIN_SECRET_BYTES} bytes; generate one with `openssl rand -hex 32`"
            ));
        }
        self.advertise.as_deref().map_or(Ok(()), check_url)
    }
}

/// Where a hub listens.
pub(crate) struct ListensAt {
    pub address: SocketAddr,
    pub is_encrypted: bool,
}

impl ListensAt {
    /// Where others reach it, if that shows.
    fn url(&self) -> Result<String, String> {
        let Self { address, is_encrypted } = self;
        if address.ip().is_unspecified() {
            return Err(format!(
                "this hub listens on all addresses ({address}), so it cannot tell where other hubs reach it: set \
                 server.advertise, such as http://10.0.0.7:{}",
                address.port()
            ));
        }
        Ok(format!("{}://{address}", if *is_encrypted { "https" } else { "http" }))
    }
}

/// Refuses what is not the root of a server.
fn check_url(url: &str) -> Result<(), String> {
    let bad = |why: &str| format!("server.advertise = {url:?} {why}; write it as http://10.0.0.7:7070");
    let parsed: axum::http::Uri = url.parse().map_err(|_| bad("is not a URL"))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.authority().is_none() {
        return Err(bad("must have a scheme, http or https, and a host"));
    }
    let authority = parsed.authority().map_or("", |authority| authority.as_str());
    if parsed.path() != "/" || parsed.query().is_some() || url.ends_with('/') || authority.contains('@') {
        return Err(bad("must end after host and port"));
    }
    Ok(())
}

/// Which hub, and where it is.
type PeerKey = (HubId, Arc<str>);

/// What a hub knows of the others.
pub(crate) struct Cluster {
    options: ClusterOptions,
    version: &'static str,
    /// How callers are asked who they are.
    auth: &'static str,
    /// The name of this hub, once it is about to join.
    id: OnceLock<HubId>,
    trust: Trust,
    connections: Connections,
    peers: Mutex<HashMap<PeerKey, Arc<Peer>>>,
    /// Publishes on their way to others.
    lanes: Lanes,
    /// What is kept for commits of others.
    pledges: Pledges,
    /// What became of what was forwarded.
    counts: Counts,
}

/// How often something was forwarded, by what came of it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    answered: AtomicU64,
    not_begun: AtomicU64,
    unknown: AtomicU64,
    /// What others have forwarded to this hub.
    heard: AtomicU64,
}

impl Counts {
    /// The metrics.
    pub fn text(&self) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "# HELP forwarded_calls_total Requests forwarded to the home of their topic.\n\
             # TYPE forwarded_calls_total counter\n\
             forwarded_calls_total{{outcome=\"answered\"}} {}\n\
             forwarded_calls_total{{outcome=\"not_begun\"}} {}\n\
             forwarded_calls_total{{outcome=\"unknown\"}} {}\n\
             # HELP forwarded_calls_served_total Requests served for other hubs.\n\
             # TYPE forwarded_calls_served_total counter\n\
             forwarded_calls_served_total {}\n",
            read(&self.answered),
            read(&self.not_begun),
            read(&self.unknown),
            read(&self.heard)
        )
    }
}

impl Cluster {
    pub fn new(
        options: ClusterOptions,
        (version, auth): (&'static str, &AuthOptions),
        tls: Option<&TlsFiles>,
    ) -> Result<Self, String> {
        options.check()?;
        Ok(Self {
            version,
            auth: match auth {
                AuthOptions::None => "none",
                AuthOptions::Tokens(_) => "token",
                AuthOptions::Jwt(_) => "jwt",
            },
            id: OnceLock::new(),
            trust: Trust::new(options.secret.expose())?,
            connections: Connections::new(tls)?,
            options,
            peers: Mutex::default(),
            lanes: Lanes::default(),
            pledges: Pledges::default(),
            counts: Counts::default(),
        })
    }

    /// Takes part with the other hubs of the store, unless one of them has another secret.
    pub async fn join(&self, hub: &Hub, listens: &ListensAt) -> Result<(), String> {
        let url = match &self.options.advertise {
            Some(url) => url.clone(),
            None => listens.url()?,
        };
        // It goes into a header, between blanks.
        if !hub.id().0.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("hub {:?} needs a name of ASCII characters without blanks", hub.id().0));
        }
        let _ = self.id.set(hub.id().clone());
        let failed = |error: HomesError| format!("this hub cannot take part with others: {error}");
        self.check_others(&hub.other_hubs().await.map_err(failed)?)?;
        let about = AboutHub {
            url: url.into(),
            version: self.version.into(),
            mark: self.trust.mark(&hub.id().0, self.auth).into(),
        };
        hub.take_part(about, self.options.hub_ttl / BEATS).await.map_err(failed)?;
        // Of two that start at once, neither has seen the other before: whoever was second sees it now.
        let (earlier, id) = (hub.other_hubs().await.map_err(failed)?, hub.id().clone());
        let since_ms = hub.hubs().borrow().iter().find(|one| one.id == id).map(|own| own.since_ms);
        let earlier = earlier.into_iter().filter(|other| since_ms.is_none_or(|own| other.since_ms <= own));
        if let Err(why) = self.check_others(&earlier.collect::<Vec<_>>()) {
            hub.leave().await;
            return Err(why);
        }
        Ok(())
    }

    /// Refuses to take part with hubs that cannot believe each other.
    fn check_others(&self, others: &[LiveHub]) -> Result<(), String> {
        let knows = |other: &LiveHub, auth| self.trust.knows(&other.id.0, auth, &other.about.mark);
        let Some(other) = others.iter().find(|other| !knows(other, self.auth)) else { return Ok(()) };
        let LiveHub { id, about: AboutHub { url, .. }, .. } = other;
        Err(match AUTH_MODES.iter().find(|auth| knows(other, auth)) {
            Some(auth) => format!(
                "hub {id} at {url} is alive and has auth.mode = \"{auth}\", and this one \"{}\": give all hubs of a \
                 database the same",
                self.auth
            ),
            None => format!(
                "hub {id} at {url} is alive and has another cluster.secret: give all hubs of a database the same one"
            ),
        })
    }

    /// The metrics of what was forwarded.
    pub fn counts_text(&self) -> String {
        self.counts.text()
    }

    /// A name that nothing else has.
    pub fn random_name() -> Result<String, ApiError> {
        Ok(trust::hex(&trust::nonce().map_err(ApiError::internal)?))
    }

    fn peer(&self, hub: &LiveHub) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        let known = (hub.id.clone(), hub.about.url.clone());
        peers.entry(known).or_default().clone()
    }

    /// Forgets hubs that are gone.
    fn keep_only(&self, alive: &[LiveHub]) {
        let is_alive =
            |(id, url): &(HubId, Arc<str>)| alive.iter().any(|hub| hub.id == *id && hub.about.url == *url);
        self.peers.lock().retain(|hub, _| is_alive(hub));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let options = |secret: &str, advertise: &str| ClusterOptions {
            secret: Secret::new(secret),
            advertise: Some(advertise.into()),
            hub_ttl: Duration::from_secs(5),
        };
        let secret = "0123456789abcdef";
        for good in ["http://10.0.0.7:7070", "https://hub.example", "http://[::1]:7070"] {
            assert_eq!(options(secret, good).check(), Ok(()), "{good}");
        }
        for bad in [
            "10.0.0.7:7070",
            "ftp://a",
            "http://a/b",
            "http://a/",
            "http://",
            "http://u:p@a",
            "http://a?b",
            "",
        ] {
            assert!(options(secret, bad).check().unwrap_err().contains("server.advertise"), "{bad}");
        }
        assert!(options("short", "http://a").check().unwrap_err().contains("cluster.secret"));
    }
}
