//! The smallest load balancer: each connection goes to the next hub that takes it, and stays there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// How long to wait when no connection can be taken, as when there are too many.
const PAUSE: Duration = Duration::from_millis(100);

/// Hubs, of which one is next.
pub struct Balancer {
    hubs: Vec<SocketAddr>,
    next: AtomicUsize,
}

impl Balancer {
    pub fn new(hubs: Vec<SocketAddr>) -> Self {
        Self { hubs, next: AtomicUsize::new(0) }
    }

    /// Takes connections until it is dropped.
    pub async fn serve(self, listener: TcpListener) {
        let balancer = Arc::new(self);
        loop {
            match listener.accept().await {
                Ok((client, _)) => drop(tokio::spawn(balancer.clone().carry(client))),
                // Nobody tells when there is room for another one.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        // Where no hub takes it, it is closed, which says enough.
        let Some(mut hub) = self.connect().await else { return };
        // Small frames must not wait for more. Where that cannot be set, it is only slower.
        let _ = client.set_nodelay(true).and_then(|()| hub.set_nodelay(true));
        // However it ends, both sides see it.
        let _ = copy_bidirectional(&mut client, &mut hub).await;
    }

    /// A connection to the next hub, or to the first after it that takes one.
    async fn connect(&self) -> Option<TcpStream> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        for n in 0..self.hubs.len() {
            let hub = self.hubs[start.wrapping_add(n) % self.hubs.len()];
            if let Ok(stream) = TcpStream::connect(hub).await {
                return Some(stream);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Something that answers every connection with its name.
    async fn named(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(name.as_bytes()).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn connections_go_round_and_past_a_hub_that_is_gone() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let hubs = vec![named("a").await, gone, named("b").await];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(Balancer::new(hubs).serve(listener));
        let mut heard = String::new();
        for _ in 0..6 {
            TcpStream::connect(address).await.unwrap().read_to_string(&mut heard).await.unwrap();
        }
        assert_eq!(heard, "abbabb");
    }
}
