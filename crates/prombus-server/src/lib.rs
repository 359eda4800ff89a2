//! The HTTP gateway: routes, errors, metrics, and the loop that serves them.
//!
//! A gateway can listen before there is a hub: `/healthz` says that it is alive, and everything else is answered `503`
//! until [`Gateway::open`] is called. It talks to the hub only, never to a store.

mod answers;
mod auth;
mod body;
mod cluster;
mod commit;
mod conditional;
mod definition;
mod error;
mod gateway;
mod gathered;
mod head_timer;
mod incoming;
mod media;
mod memory;
mod metrics;
mod params;
mod path;
mod pattern;
mod pieces;
mod pulls;
mod rate;
mod request_guard;
mod routes;
mod scrapes;
mod serve;
mod stall_guard;
mod tls;
mod unread;
mod ws;

pub use auth::{
    Action, AuthOptions, BadRules, Hosts, JwtKey, JwtOptions, Policy, Rules, Secret, StaticToken,
};
pub use cluster::ClusterOptions;
pub use gateway::{Gateway, GatewayOptions};
pub use memory::MAX_READ_BYTES;
pub use pattern::stands_for;
pub use serve::{accept, end_connections};
pub use stall_guard::StallGuard;
pub use tls::TlsFiles;
