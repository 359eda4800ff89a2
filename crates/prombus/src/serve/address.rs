//! The address to listen on, and when that is refused.

use crate::failure::Failure;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Who may reach what listens.
pub enum Exposure {
    /// Everyone.
    Open,
    /// Only this machine, and why; `{address}` stands for the address that others could reach.
    Loopback(&'static str),
}

impl Exposure {
    /// Everyone if that is `open`, and this machine otherwise.
    pub fn of(open: bool, why: &'static str) -> Self {
        if open { Self::Open } else { Self::Loopback(why) }
    }
}

/// Why a hub without authentication is not for everyone.
pub const NO_AUTH: &str = "this hub has no authentication, so it does not listen on {address}, where others can reach it: \
     set auth.mode, listen on 127.0.0.1, or pass --insecure if everyone there may do everything";

/// Binds `listen`, unless others can reach it and must not.
pub async fn bind(listen: &str, exposure: Exposure) -> Result<TcpListener, Failure> {
    // Only a port means every address, as it does elsewhere.
    let full = if listen.starts_with(':') { format!("0.0.0.0{listen}") } else { listen.to_owned() };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(&full)
        .await
        .map_err(|error| {
            Failure::Usage(format!(
                "cannot listen on {listen:?}: {error}; write it as host:port, like 127.0.0.1:7070"
            ))
        })?
        .collect();
    if let Some(reachable) = addresses.iter().find(|address| !address.ip().is_loopback())
        && let Exposure::Loopback(why) = exposure
    {
        return Err(Failure::Usage(why.replace("{address}", &reachable.to_string())));
    }
    TcpListener::bind(&addresses[..]).await.map_err(|error| {
        Failure::Failed(format!("cannot listen on {listen}: {error}; is something else running there?"))
    })
}
