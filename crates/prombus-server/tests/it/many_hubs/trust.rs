//! Who is not another hub is not taken for one.

use super::Cluster;
use crate::common::{guarded, send};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const INTERNAL: [&str; 2] = ["x-prombus-forward", "x-prombus-caller"];

#[tokio::test]
async fn a_hub_with_another_secret_does_not_start() {
    let cluster = Cluster::of(1).await;
    let why = cluster.start("another secret that is long enough").await.err().unwrap();
    assert!(why.contains("cluster.secret") && why.contains("http://127.0.0.1"), "{why}");
    assert_eq!(cluster.hubs[0].hub().hubs().borrow().len(), 1, "it was never there");
}

#[tokio::test]
async fn of_hubs_with_different_secrets_that_start_at_once_one_does() {
    for _ in 0..10 {
        let cluster = Cluster::of(0).await;
        let (one, other) =
            tokio::join!(cluster.start(super::SECRET), cluster.start("another secret that is long enough"));
        let started = [&one, &other].iter().filter(|start| start.is_ok()).count();
        assert!(started <= 1, "they cannot believe each other");
        for why in [one.err(), other.err()].into_iter().flatten() {
            assert!(why.contains("cluster.secret"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_hub_that_asks_callers_otherwise_does_not_start() {
    let mut cluster = Cluster::with(1, guarded(&[]).gateway.auth).await;
    cluster.auth = prombus_server::AuthOptions::None;
    let why = cluster.start(super::SECRET).await.err().unwrap();
    assert!(why.contains("auth.mode"), "{why}");
}

#[tokio::test]
async fn headers_of_hubs_are_refused_to_everyone_else() {
    let cluster = Cluster::with(2, guarded(&[]).gateway.auth).await;
    let hub = &cluster.hubs[0];
    for name in INTERNAL {
        for value in ["x", "a b c 0 d e", "bnVsbA"] {
            let request = hub.request(Method::GET, "/v1/topics").bearer_auth("all").header(name, value);
            send(request).await.is_error(403, "forbidden");
        }
    }
    let both = hub
        .request(Method::GET, "/v1/topics")
        .header(INTERNAL[0], "hub a b 0 d e")
        .header(INTERNAL[1], "bnVsbA");
    send(both).await.is_error(403, "forbidden");
    // A hub that is alone has no use for them.
    let alone = crate::common::start().await;
    send(alone.request(Method::GET, "/v1/topics").header(INTERNAL[1], "bnVsbA")).await.is(200);
}

/// Stands between two hubs, keeps what goes by, and lets it go on unchanged.
async fn listen_in(
    to: std::net::SocketAddr,
) -> (std::net::SocketAddr, tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = stream.into_split();
            let (mut from_hub, mut to_hub) = tokio::net::TcpStream::connect(to).await.unwrap().into_split();
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                    let _ = tell.send(buffer[..count].to_vec());
                    if to_hub.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move { tokio::io::copy(&mut from_hub, &mut to_client).await });
        }
    });
    (address, told)
}

#[tokio::test]
async fn what_was_overheard_is_good_for_nothing() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    let home = cluster.hubs[0].address;
    let (address, mut overheard) = listen_in(home).await;
    // From here on the home is reached through the one who listens.
    cluster.advertise(0, address).await;
    cluster.hubs[1].fill(&topic, 1).await;
    let path = format!("/v1/topics/{topic}/groups/g");
    cluster.hubs[1].put(&path, "{}").await.is(201);
    let mut said = Vec::new();
    let request = loop {
        said.extend(overheard.recv().await.unwrap());
        let text = String::from_utf8_lossy(&said).into_owned();
        if let Some(at) = text.find("PUT /v1/topics").filter(|_| text.ends_with("{}")) {
            break text[at..].to_owned();
        }
    };
    assert!(!request.contains(super::SECRET), "{request}");
    let replay = async |request: String| {
        let mut stream = tokio::net::TcpStream::connect(home).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    // The same again; the same with another path or body; and with the next number.
    assert_eq!(replay(request.clone()).await, "HTTP/1.1 403");
    for (from, to) in [("/groups/g", "/groups/h"), ("\r\n\r\n{}", "\r\n\r\n[]"), ("PUT ", "GET ")] {
        assert!(request.contains(from), "{request}");
        assert_eq!(replay(request.replacen(from, to, 1)).await, "HTTP/1.1 403", "{to}");
    }
    cluster.hubs[0].get(&format!("/v1/topics/{topic}/groups/h")).await.is_error(404, "not_found");
}

#[tokio::test]
async fn one_who_answers_in_place_of_a_hub_is_not_believed() {
    let cluster = Cluster::of(2).await;
    let topic = cluster.topic_at(0);
    // Whatever it is asked, it says yes.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    let body = r#"{"hub":"HUB","challenge":"00","tag":"00"}"#;
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    if stream.write_all(head.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    cluster.advertise(0, address).await;
    cluster.hubs[1].put(&format!("/v1/topics/{topic}/groups/g"), "{}").await.is_error(503, "unavailable");
}
