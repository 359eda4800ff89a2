//! Where the hub listens, and where it refuses to.

use crate::failure::Failure;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Binds `listen`. Unless it may be `open` to others, that is only done where nobody else can reach it.
pub async fn bind(listen: &str, open: bool) -> Result<TcpListener, Failure> {
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
        && !open
    {
        return Err(Failure::Usage(format!(
            "this hub has no authentication, so it does not listen on {reachable}, where others can reach it: \
             set auth.mode, listen on 127.0.0.1, or say --insecure if everyone there may do everything"
        )));
    }
    TcpListener::bind(&addresses[..]).await.map_err(|error| {
        Failure::Failed(format!("cannot listen on {listen}: {error}; is another hub running there?"))
    })
}
