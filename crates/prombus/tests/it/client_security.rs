//! The Rust client with a hub that wants tokens, and one that speaks TLS.

use crate::client_support::{Spot, numbered, numbers_of, quick, reaches, soon};
use crate::common::PATIENCE;
use jsonwebtoken::{EncodingKey, Header, encode};
use prombus_client::{
    Client, ClientError, ClientOptions, LiveOptions, LiveState, PublisherOptions, SubscribeOptions, Token,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const SECRET: &str = "a secret that is long enough to be one";

/// A hub that wants tokens.
fn guarded() -> Spot {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("[auth]\nmode = \"jwt\"\nsecret = \"{SECRET}\"\n");
    std::fs::write(folder.path().join("prombus.toml"), file).unwrap();
    Spot::with(folder, &["--config", "prombus.toml"])
}

/// A token that expires so many seconds from now; the hub tolerates five seconds more.
fn token(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let claims = json!({"exp": now + seconds, "scopes": ["*:**"]});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

fn with_source(spot: &Spot, source: impl Fn() -> String + Send + Sync + 'static) -> Client {
    let options = ClientOptions::default().with_token(Token::source(source));
    Client::with_options(&spot.url(), options).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_token_is_told_at_once_and_not_shown() {
    let spot = guarded();
    let bad = token(-60);
    let client = Client::new(&spot.url(), Some(&bad)).unwrap();
    let error = client.connect().await.unwrap_err();
    assert_eq!(error.hub().unwrap().status, 401, "{error}");
    assert!(!format!("{error:?} {error}").contains(&bad));
    let live = Client::new(&spot.url(), Some(&token(60))).unwrap().connect().await.unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_token_expires_the_next_one_is_asked_for_and_nothing_is_lost() {
    let spot = guarded();
    let (asked, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicI64::new(-3)));
    let (counter, seconds) = (asked.clone(), left.clone());
    let client = with_source(&spot, move || {
        counter.fetch_add(1, Ordering::SeqCst);
        token(seconds.load(Ordering::SeqCst))
    });
    let live = client.connect_with(quick()).await.unwrap();
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let mut state = live.watch();
    left.store(3600, Ordering::SeqCst);
    // Publishing goes on while the first token expires.
    let publisher = live.publisher("t", PublisherOptions { window: 10, ..PublisherOptions::default() });
    let mut sent = 0;
    let expired = soon("the token has expired", async {
        loop {
            publisher.send(numbered(sent)).await.unwrap();
            sent += 1;
            publisher.flush().await.unwrap();
            if state.has_changed().unwrap() {
                return state.borrow_and_update().clone();
            }
        }
    })
    .await;
    // It may be back already.
    if let LiveState::Reconnecting { reason, .. } = &expired {
        assert!(reason.contains("token") && reason.contains("expired"), "{reason}");
    }
    reaches(&live, LiveState::is_connected).await;
    publisher.flush().await.unwrap();
    assert!(asked.load(Ordering::SeqCst) >= 2);
    assert_eq!(numbers_of(&client, "t").await, (0..sent).collect::<Vec<_>>());
    soon("the subscription goes on", events.next()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_late_with_its_token_is_asked_until_it_has_one() {
    const LATE: u64 = 12;
    let mut spot = guarded();
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let client = with_source(&spot, move || match counter.fetch_add(1, Ordering::SeqCst) {
        1..LATE => token(-3600),
        // No header can have this.
        LATE => "a\nb".to_owned(),
        _ => token(3600),
    });
    let live = client.connect_with(quick()).await.unwrap();
    tokio::task::block_in_place(|| spot.kill());
    tokio::task::block_in_place(|| spot.start_again());
    soon("it is back", live.publish("t", &numbered(0))).await.unwrap();
    assert!(asked.load(Ordering::SeqCst) > LATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_refuses_the_token_for_good_ends_the_connection() {
    let mut spot = guarded();
    let live = Client::new(&spot.url(), Some(&token(-3))).unwrap().connect_with(quick()).await.unwrap();
    tokio::task::block_in_place(|| spot.kill());
    // By the time that the hub is back, the token has expired.
    let expiry = SystemTime::now() + std::time::Duration::from_secs(3);
    while SystemTime::now() < expiry {
        // The token knows only the clock.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    tokio::task::block_in_place(|| spot.start_again());
    let state = reaches(&live, LiveState::is_ended).await;
    assert!(state.to_string().contains("unauthorized"), "{state}");
    assert!(matches!(live.publish("t", &numbered(0)).await, Err(ClientError::Ended(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_hubs_are_reached_by_http_and_websocket_if_their_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.path().join("hub.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("hub.key"), made.signing_key.serialize_pem()).unwrap();
    let mut spot = Spot::with(folder, &["--tls-cert", "hub.pem", "--tls-key", "hub.key"]);
    assert!(spot.url().starts_with("https://"), "{}", spot.url());

    let stranger = Client::new(&spot.url(), None).unwrap();
    let error = stranger.connect().await.unwrap_err();
    assert!(matches!(error, ClientError::NoConnection { .. }), "{error}");
    assert!(stranger.topics().await.is_err());

    let options = ClientOptions::default().with_extra_ca(made.cert.pem());
    let client = Client::with_options(&spot.url(), options).unwrap();
    assert!(client.topics().await.unwrap().is_empty());
    let live = client.connect_with(quick()).await.unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
    tokio::task::block_in_place(|| spot.kill());
    reaches(&live, |state| !state.is_connected()).await;
    tokio::task::block_in_place(|| spot.start_again());
    let mut events = live.subscribe("t", "g", SubscribeOptions::earliest()).await.unwrap();
    let delivery = soon("it comes", events.next()).await.unwrap();
    delivery.ack().await.unwrap();
    assert_eq!(numbers_of(&client, "t").await, [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_has_no_token_yet_is_waited_for() {
    let spot = guarded();
    let (renewed, current) = tokio::sync::watch::channel(None::<String>);
    let source = Token::async_source(move || std::future::ready(current.borrow().clone()));
    let options = ClientOptions::default().with_token(source);
    let client = Client::with_options(&spot.url(), options).unwrap();
    let error = client.topics().await.unwrap_err();
    assert!(matches!(&error, ClientError::NoToken(_)) && error.is_temporary(), "{error}");
    assert!(client.connect().await.unwrap_err().to_string().contains("no token yet"));
    let patient = LiveOptions { wait_for_hub: PATIENCE, ..quick() };
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.connect_with(patient).await }
    });
    renewed.send_replace(Some(token(3600)));
    let live = soon("it is connected", waiting).await.unwrap().unwrap();
    live.publish("t", &numbered(0)).await.unwrap();
    assert_eq!(client.topics().await.unwrap().len(), 1);
}
