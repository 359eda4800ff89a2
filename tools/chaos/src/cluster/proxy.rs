//! A proxy in front of a hub or of a member of the database: a network that can be cut, or held up in one direction.
//!
//! Who has a connection is told by what it says first: hubs give MongoDB a name of their own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// How much is passed on at once.
const CHUNK: usize = 64 << 10;

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// They break, and new ones too.
    Closed,
    /// Nothing gets through, and nobody is told.
    Stalled,
    /// What is asked gets through, and no answer does.
    NoAnswers,
    /// Nothing that is asked gets through.
    NoRequests,
}

/// What is cut, and for whom: for whoever says this first, or for everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of them.
    pub cut: Cut,
    /// A text that is in what such a connection says first.
    pub whose: Option<String>,
}

/// Somebody to be told when something is said; that connection then hears and says nothing more.
struct Trap {
    whose: String,
    word: &'static str,
    sprung: oneshot::Sender<()>,
}

/// A proxy. It ends with the runtime that it is started on.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    rules: watch::Sender<Option<Rule>>,
    trap: Arc<Mutex<Option<Trap>>>,
}

impl Proxy {
    /// A proxy on a free port, in front of `target`.
    pub async fn start(target: SocketAddr) -> Result<Self, String> {
        let cannot = |error: std::io::Error| format!("a proxy cannot listen: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (rules, _) = watch::channel(None);
        let trap = Arc::default();
        let gate = Gate { rules: rules.subscribe(), trap: Arc::clone(&trap) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // One that is not well is over.
                tokio::spawn(connection(client, target, gate.clone()));
            }
        });
        Ok(Self { address, rules, trap })
    }

    /// From now on.
    pub fn cut(&self, rule: Rule) {
        self.rules.send_replace(Some(rule));
    }

    /// Everything gets through again.
    pub fn heal(&self) {
        self.rules.send_replace(None);
        *self.trap.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Tells when a word was passed on that somebody says; their connection is silent from then on.
    pub fn trap(&self, whose: &str, word: &'static str) -> oneshot::Receiver<()> {
        let (sprung, told) = oneshot::channel();
        let trap = Trap { whose: whose.to_owned(), word, sprung };
        *self.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
        told
    }
}

/// What all connections of a proxy share.
#[derive(Clone)]
struct Gate {
    rules: watch::Receiver<Option<Rule>>,
    trap: Arc<Mutex<Option<Trap>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Answers,
}

/// What a connection may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Held,
    Closed,
}

async fn connection(mut client: TcpStream, target: SocketAddr, gate: Gate) -> Option<()> {
    let mut first = vec![0; CHUNK];
    let count = client.read(&mut first).await.ok()?;
    first.truncate(count);
    let first: Arc<[u8]> = first.into();
    let (silent, _) = watch::channel(false);
    let silent = Arc::new(silent);
    let pump = |way| Pump { way, first: first.clone(), gate: gate.clone(), silent: silent.clone() };
    let (mut requests, mut answers) = (pump(Way::Requests), pump(Way::Answers));
    requests.may_pass().await?;
    let mut server = TcpStream::connect(target).await.ok()?;
    server.set_nodelay(true).ok()?;
    client.set_nodelay(true).ok()?;
    server.write_all(&first).await.ok()?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first that ends takes the other one with it.
    tokio::select! {
        over = requests.run(from_client, to_server) => over,
        over = answers.run(from_server, to_client) => over,
    }
}

/// One direction of a connection.
struct Pump {
    way: Way,
    first: Arc<[u8]>,
    gate: Gate,
    silent: Arc<watch::Sender<bool>>,
}

impl Pump {
    async fn run(&mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Option<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = tokio::select! {
                () = closed(self.gate.rules.clone(), &self.first, self.way) => return None,
                read = from.read(&mut chunk) => read.ok().filter(|count| *count > 0)?,
            };
            self.may_pass().await?;
            to.write_all(&chunk[..count]).await.ok()?;
            if self.way == Way::Requests {
                self.spring(&chunk[..count]);
            }
        }
    }

    /// Waits until something may pass. `None`: never.
    async fn may_pass(&mut self) -> Option<()> {
        let mut silent = self.silent.subscribe();
        if *silent.borrow_and_update() {
            // Nothing wakes it but the end of the connection.
            closed(self.gate.rules.clone(), &self.first, self.way).await;
            return None;
        }
        loop {
            let state = state(self.gate.rules.borrow_and_update().as_ref(), &self.first, self.way);
            match state {
                State::Open => return Some(()),
                State::Closed => return None,
                State::Held => self.gate.rules.changed().await.ok()?,
            }
        }
    }

    fn spring(&self, said: &[u8]) {
        let mut trap = self.gate.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |trap: &mut Trap| contains(&self.first, &trap.whose) && contains(said, trap.word);
        if let Some(Trap { sprung, .. }) = trap.take_if(is_it) {
            self.silent.send_replace(true);
            // Whoever has set it may have given up.
            let _ = sprung.send(());
        }
    }
}

async fn closed(mut rules: watch::Receiver<Option<Rule>>, first: &[u8], way: Way) {
    loop {
        let state = state(rules.borrow_and_update().as_ref(), first, way);
        if state == State::Closed || rules.changed().await.is_err() {
            return;
        }
    }
}

fn state(rule: Option<&Rule>, first: &[u8], way: Way) -> State {
    let Some(Rule { cut, whose }) = rule else { return State::Open };
    if whose.as_ref().is_some_and(|whose| !contains(first, whose)) {
        return State::Open;
    }
    match (cut, way) {
        (Cut::Closed, _) => State::Closed,
        (Cut::Stalled, _) | (Cut::NoAnswers, Way::Answers) | (Cut::NoRequests, Way::Requests) => State::Held,
        (Cut::NoAnswers, Way::Requests) | (Cut::NoRequests, Way::Answers) => State::Open,
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something that says everything back, and a proxy in front of it.
    async fn echo() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = peer.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Proxy::start(address).await.unwrap()
    }

    async fn said_back(peer: &mut TcpStream, text: &str) -> Option<String> {
        peer.write_all(text.as_bytes()).await.ok()?;
        let mut answer = vec![0; text.len()];
        peer.read_exact(&mut answer).await.ok()?;
        String::from_utf8(answer).ok()
    }

    #[tokio::test]
    async fn what_is_held_comes_later_and_what_is_closed_never() {
        let proxy = echo().await;
        let mut peer = TcpStream::connect(proxy.address).await.unwrap();
        let mut other = TcpStream::connect(proxy.address).await.unwrap();
        assert_eq!(said_back(&mut peer, "I am one").await.as_deref(), Some("I am one"));
        assert_eq!(said_back(&mut other, "I am two").await.as_deref(), Some("I am two"));
        for cut in [Cut::Stalled, Cut::NoAnswers, Cut::NoRequests] {
            proxy.cut(Rule { cut, whose: Some("one".into()) });
            peer.write_all(b"late").await.unwrap();
            assert_eq!(said_back(&mut other, "goes on").await.as_deref(), Some("goes on"));
            proxy.heal();
            let mut late = [0; 4];
            peer.read_exact(&mut late).await.unwrap();
            assert_eq!(&late, b"late");
        }
        proxy.cut(Rule { cut: Cut::Closed, whose: Some("one".into()) });
        assert_eq!(said_back(&mut peer, "no").await, None);
        assert_eq!(said_back(&mut other, "yes").await.as_deref(), Some("yes"));
    }

    #[tokio::test]
    async fn a_word_is_passed_on_and_nothing_after_it() {
        let proxy = echo().await;
        let told = proxy.trap("one", "commit");
        let mut peer = TcpStream::connect(proxy.address).await.unwrap();
        assert_eq!(said_back(&mut peer, "I am one").await.as_deref(), Some("I am one"));
        peer.write_all(b"commit").await.unwrap();
        told.await.unwrap();
        proxy.heal();
        let mut other = TcpStream::connect(proxy.address).await.unwrap();
        assert_eq!(said_back(&mut other, "I am one").await.as_deref(), Some("I am one"));
    }
}
