//! Someone between two hubs, who lets what they say pass, keeps it back, or loses the answers.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of what is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// What is asked waits.
    Hold,
    /// What is asked arrives, and the connection ends instead of an answer.
    LoseAnswers,
}

/// Where a hub is reached through someone else.
pub struct Between {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl Between {
    pub async fn before(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = watch::Sender::new(Mode::Pass);
        let modes = mode.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(hub) = TcpStream::connect(hub).await else { continue };
                let ((from_client, to_client), (from_hub, to_hub)) = (client.into_split(), hub.into_split());
                let (asked, answered) = (modes.subscribe(), modes.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = ask(from_client, to_hub, asked) => {}
                        () = answer(from_hub, to_client, answered) => {}
                    }
                });
            }
        });
        Self { address, mode }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if mode.wait_for(|mode| *mode != Mode::Hold).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if *mode.borrow() == Mode::LoseAnswers || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
