//! Slow clients, broken clients, and the end.

use crate::common::{Served, Setup, start, start_with};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(hub: &Served, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Everything until the other side closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .expect("the connection stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer on a connection that stays open.
async fn answer(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(end) {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("no answer");
        bytes.push(byte.unwrap_or_else(|_| panic!("closed after {:?}", String::from_utf8_lossy(&bytes))));
    }
    String::from_utf8(bytes).unwrap()
}

fn impatient() -> Setup {
    let mut setup = Setup::default();
    setup.gateway.header_timeout = Duration::from_millis(200);
    setup.gateway.body_timeout = Duration::from_millis(200);
    setup
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let hub = start_with(impatient()).await;
    rest(&mut connect(&hub, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: ").await).await;
    rest(&mut connect(&hub, "").await).await;
    hub.get("/healthz").await.is(200);
}

#[tokio::test]
async fn a_body_that_stands_still_is_not_waited_for() {
    let hub = start_with(impatient()).await;
    for head in [
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n123",
        "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n[",
        "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n",
        "PUT /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{",
    ] {
        let answer = rest(&mut connect(&hub, head).await).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("\"error\":\"bad_request\""), "{answer}");
        assert!(answer.contains(CLOSE), "{answer}");
    }
}

/// What an answer says where the connection ends with it.
const CLOSE: &str = "\r\nconnection: close\r\n";

#[tokio::test]
async fn a_connection_goes_on_after_an_answer_that_comes_before_a_small_body() {
    let hub = start().await;
    let group = format!("PUT /v1/topics/t/groups/{}", "g".repeat(2_000));
    for (request, host, status) in [
        ("POST /nope", "localhost", 404),
        ("POST /v1/topics/t", "localhost", 405),
        ("PUT /v1/topics/%ED%A0%80", "localhost", 400),
        (&group, "localhost", 400),
        ("POST /v1/topics/t/events?nope=1", "localhost", 400),
        ("POST /publish/t", "evil.example", 403),
    ] {
        let head = format!("{request} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 2\r\n\r\n");
        let mut stream = connect(&hub, &head).await;
        let early = answer(&mut stream, "}\n").await;
        assert!(early.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {early}");
        assert!(!early.contains(CLOSE), "{request}: {early}");
        stream.write_all(b"{").await.unwrap();
        stream.write_all(b"}POST /publish/t HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
        stream.write_all(b"content-length: 1\r\n\r\n1").await.unwrap();
        let next = answer(&mut stream, "}\n").await;
        assert!(next.starts_with("HTTP/1.1 201 "), "{request}: {next}");
    }
}

#[tokio::test]
async fn an_answer_before_a_body_that_is_not_read_says_that_the_connection_ends() {
    let mut setup = Setup::default();
    setup.gateway.max_body_bytes = 200_000;
    let hub = start_with(setup).await;
    for (request, body, status) in [
        ("POST /publish/t", "content-length: 200001", 413),
        ("POST /nope", "content-length: 200000", 404),
        ("POST /nope", "transfer-encoding: chunked", 404),
        ("POST /nope", "expect: 100-continue\r\ncontent-length: 2", 404),
    ] {
        let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\n{body}\r\n\r\n");
        let early = answer(&mut connect(&hub, &head).await, "}\n").await;
        assert!(early.starts_with(&format!("HTTP/1.1 {status} ")), "{body}: {early}");
        assert!(early.contains(CLOSE), "{body}: {early}");
    }
    // A client that reads nothing before it has sent everything gets to see it as well.
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000000\r\n\r\n";
    let mut stream = connect(&hub, head).await;
    stream.write_all(&vec![b'1'; 20_000_000]).await.unwrap();
    let early = rest(&mut stream).await;
    assert!(early.starts_with("HTTP/1.1 413 ") && early.ends_with("}\n"), "{early}");
}

#[tokio::test]
async fn nonsense_does_no_harm() {
    let hub = start().await;
    for nonsense in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12",
    ] {
        let answer = rest(&mut connect(&hub, nonsense).await).await;
        assert!(!answer.contains(" 500 ") && !answer.contains(" 201 "), "{nonsense:?}: {answer}");
    }
    // Half a body, and gone.
    drop(connect(&hub, "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n1").await);
    hub.get("/healthz").await.is(200);
    hub.get("/v1/topics/t").await.is_error(404, "not_found");
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_before_it_sends() {
    let mut setup = Setup::default();
    setup.gateway.max_body_bytes = 100;
    let hub = start_with(setup).await;
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: ";
    let refused = answer(&mut connect(&hub, &format!("{head}101\r\n\r\n")).await, "\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let mut stream = connect(&hub, &format!("{head}1\r\n\r\n")).await;
    let go = answer(&mut stream, "\r\n\r\n").await;
    assert!(go.starts_with("HTTP/1.1 100 "), "{go}");
    stream.write_all(b"1").await.unwrap();
    let done = answer(&mut stream, "}").await;
    assert!(done.starts_with("HTTP/1.1 201 "), "{done}");
}

#[tokio::test]
async fn requests_can_share_a_connection_and_be_sent_ahead() {
    let hub = start().await;
    let request = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n1";
    let mut stream = connect(&hub, &request.repeat(3)).await;
    for offset in 0..3 {
        let answer = answer(&mut stream, "}").await;
        assert!(answer.contains(&format!("\"offset\":{offset},")), "{answer}");
    }
}

#[tokio::test]
async fn idle_connections_do_not_delay_the_end() {
    let hub = start().await;
    hub.get("/healthz").await.is(200);
    let mut idle = connect(&hub, "").await;
    let begun = Instant::now();
    hub.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn a_request_under_way_is_finished() {
    let mut hub = start().await;
    let mut stream = connect(
        &hub,
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n",
    )
    .await;
    // That the hub asks for the body shows that the request is in flight.
    answer(&mut stream, "\r\n\r\n").await;
    let ending = hub.begin_stop();
    while TcpStream::connect(hub.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!ending.is_finished());
    stream.write_all(b"123").await.unwrap();
    let done = rest(&mut stream).await;
    assert!(done.starts_with("HTTP/1.1 201 "), "{done}");
    ending.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off() {
    let mut hub = start_with(Setup {
        gateway: prombus_server::GatewayOptions {
            body_timeout: Duration::from_secs(600),
            ..Setup::default().gateway
        },
        ..Setup::default()
    })
    .await;
    let mut stream = connect(
        &hub,
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n",
    )
    .await;
    answer(&mut stream, "\r\n\r\n").await;
    let begun = Instant::now();
    hub.begin_stop().await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(9)).contains(&took), "{took:?}");
    assert_eq!(rest(&mut stream).await, "");
}
