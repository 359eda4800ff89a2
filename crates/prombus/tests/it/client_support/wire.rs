//! A wire between a client and a hub that can be cut, and can lose or falsify what the hub says.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A wire to a hub.
pub struct Wire {
    pub address: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    hub: watch::Sender<String>,
    /// Everything that is open ends when this changes.
    cuts: watch::Sender<u64>,
    /// What the hub says is lost.
    deaf: AtomicBool,
    /// How many bytes of the hub were lost.
    lost: AtomicU64,
    /// This byte of the hub arrives as another one.
    false_byte: OnceLock<u8>,
    changed: Notify,
    /// The heads of the requests that opened lines.
    heads: parking::Heads,
}

mod parking {
    use std::sync::{Mutex, PoisonError};

    /// Texts in their order.
    #[derive(Default)]
    pub struct Heads(Mutex<Vec<String>>);

    impl Heads {
        pub fn add(&self, head: String) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        }

        pub fn all(&self) -> Vec<String> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }
}

impl Wire {
    /// A wire to the hub at an address.
    pub async fn to(hub: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            hub: watch::Sender::new(hub.to_owned()),
            cuts: watch::Sender::new(0),
            deaf: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            false_byte: OnceLock::new(),
            changed: Notify::new(),
            heads: parking::Heads::default(),
        });
        let to = shared.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, to.clone()));
            }
        });
        Self { address, shared, accepting }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all lines.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        self.shared.deaf.store(false, Ordering::SeqCst);
    }

    /// From now on, what the hub says is lost, until the next cut.
    pub fn lose_answers(&self) {
        self.shared.lost.store(0, Ordering::SeqCst);
        self.shared.deaf.store(true, Ordering::SeqCst);
    }

    /// From now on, each of these bytes arrives as another one.
    pub fn falsify(&self, byte: u8) {
        self.shared.false_byte.set(byte).unwrap();
    }

    /// Waits until an answer was lost.
    pub async fn an_answer_was_lost(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.shared.lost.load(Ordering::SeqCst) > 0 {
                return;
            }
            changed.await;
        }
    }

    /// The heads of the requests that opened lines so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.all()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    let address = shared.hub.borrow().clone();
    let Ok(hub) = TcpStream::connect(address).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_hub, mut to_hub) = hub.into_split();
    let forth = async {
        let (mut buffer, mut first) = (vec![0; 1 << 16], true);
        while let Ok(size) = from_client.read(&mut buffer).await
            && size > 0
        {
            if std::mem::take(&mut first) {
                shared.heads.add(String::from_utf8_lossy(&buffer[..size]).into_owned());
            }
            if to_hub.write_all(&buffer[..size]).await.is_err() {
                break;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(size) = from_hub.read(&mut buffer).await
            && size > 0
        {
            if let Some(falsified) = shared.false_byte.get() {
                buffer[..size].iter_mut().filter(|byte| *byte == falsified).for_each(|byte| *byte ^= 1);
            }
            if shared.deaf.load(Ordering::SeqCst) {
                shared.lost.fetch_add(size as u64, Ordering::SeqCst);
                shared.changed.notify_waiters();
            } else if to_client.write_all(&buffer[..size]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = forth => {}
        () = back => {}
        _ = cuts.changed() => {}
    }
}
