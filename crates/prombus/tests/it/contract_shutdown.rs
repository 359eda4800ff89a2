//! What clients know when a hub is told to end under load: everything that was committed was answered, and nothing that was
//! not answered is there after a restart.

use crate::contract_support::{Answer, Api, Call, Connection, Site};
use crate::ws_support::{Heard, Socket};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tungstenite::Message;

/// How many requests a connection has in flight.
const WINDOW: u64 = 200;
/// How many connections there are.
const CONNECTIONS: u64 = 12;
/// How often the hub is told to end.
const ROUNDS: u64 = 5;

/// The next frame; nothing once the hub has said goodbye. A `corr` may be a number here.
#[track_caller]
fn next(socket: &mut Socket) -> Option<Value> {
    match socket.read() {
        Some(Heard::Text(text)) => Some(serde_json::from_str(&text).unwrap()),
        Some(Heard::Closed(1001, _)) => None,
        other => panic!("{other:?}"),
    }
}

/// How a client goes about its answers.
struct Pace {
    /// Maximum number of requests that are in flight.
    window: u64,
    /// How long it is busy with each answer.
    busy: Duration,
}

const QUICK: Pace = Pace { window: WINDOW, busy: Duration::ZERO };
/// The answers that are on their way when the hub is told to end take such a client some seconds.
const SLOW: Pace = Pace { window: 2_500, busy: Duration::from_millis(1) };

/// Keeps a window of requests in flight until the hub says goodbye: the numbers of those that were answered with OK.
fn ask_until_the_end(
    api: &Api,
    Pace { window, busy }: Pace,
    answered: &AtomicU64,
    request: impl Fn(u64) -> Value,
) -> BTreeSet<u64> {
    let mut socket = Socket::open(api);
    let (mut asked, mut open, mut done) = (0, 0, BTreeSet::new());
    loop {
        let more = asked..asked + window - open;
        (asked, open) = (more.end, window);
        // What the hub has closed takes nothing more, and still has its answers.
        let _ = socket.try_send_together(more.map(|n| {
            let mut frame = request(n);
            frame["corr"] = json!(n);
            frame
        }));
        let Some(answer) = next(&mut socket) else { return done };
        // That is how slow it is.
        std::thread::sleep(busy);
        open -= 1;
        match answer["op"].as_str().unwrap() {
            "OK" => {
                done.insert(answer["corr"].as_u64().unwrap());
                answered.fetch_add(1, Ordering::Relaxed);
            }
            _ => assert_eq!(answer["code"], "unavailable", "{answer}"),
        }
    }
}

/// Runs clients until `enough` is answered, then tells the hub to end: what each client says. The hub starts again.
fn end_under_load<T: Send>(
    site: &mut Site,
    enough: u64,
    client: impl Fn(&Api, u64, &AtomicU64) -> T + Sync,
) -> Vec<T> {
    let (api, answered) = (site.api.clone(), AtomicU64::new(0));
    let told = std::thread::scope(|scope| {
        let (api, answered, client) = (&api, &answered, &client);
        let clients: Vec<_> =
            (0..CONNECTIONS).map(|number| scope.spawn(move || client(api, number, answered))).collect();
        while answered.load(Ordering::Relaxed) < enough {
            assert!(clients.iter().all(|client| !client.is_finished()), "a client has ended early");
            std::thread::yield_now();
        }
        site.hub().signal(Signal::TERM);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    site.restart_after_the_end();
    told
}

/// The numbers that a topic has of each client.
fn there(api: &Api, topic: &str) -> Vec<BTreeSet<u64>> {
    let mut all = vec![BTreeSet::new(); CONNECTIONS as usize];
    let export = api.export(topic, "");
    for line in export.text().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let (client, n) = (&event["payload"]["client"], &event["payload"]["n"]);
        assert!(all[client.as_u64().unwrap() as usize].insert(n.as_u64().unwrap()), "twice: {event}");
    }
    all
}

#[test]
fn publishes_that_were_committed_are_answered_before_the_hub_ends() {
    let mut site = Site::start();
    for round in 0..ROUNDS {
        let topic = format!("t{round}");
        let answered = end_under_load(&mut site, 3_000 + 777 * round, |api, client, answered| {
            ask_until_the_end(api, QUICK, answered, |n| {
                // One of them has to make its topic.
                let topic = if n == 150 { format!("{topic}.{client}") } else { topic.clone() };
                json!({"op": "PUBLISH", "topic": topic, "payload": {"client": client, "n": n}})
            })
        });
        let mut there = there(&site.api, &topic);
        for (client, numbers) in there.iter_mut().enumerate() {
            let own = site.api.page(&format!("{topic}.{client}"), "");
            if own.status == 200 && own.json()["count"] == 1 {
                numbers.insert(150);
            }
        }
        assert_eq!(there, answered, "in round {round}");
    }
}

#[test]
fn clients_that_read_slowly_and_go_on_asking_get_all_answers_before_the_hub_ends() {
    let mut site = Site::start();
    let answered = end_under_load(&mut site, 20_000, |api, client, answered| {
        ask_until_the_end(
            api,
            SLOW,
            answered,
            |n| json!({"op": "PUBLISH", "topic": "t", "payload": {"client": client, "n": n}}),
        )
    });
    assert_eq!(there(&site.api, "t"), answered);
}

/// Some libraries throw away what they have not read yet once a write fails.
#[test]
fn a_client_that_is_busy_for_a_while_can_still_write_and_read_its_answers() {
    let mut site = Site::start();
    let mut socket = Socket::open(&site.api);
    let publish = |n: u64| json!({"op": "PUBLISH", "topic": "t", "payload": n, "corr": n});
    socket.send_together((0..WINDOW).map(publish));
    while site.api.metric("events_published_total{topic=\"t\"}") != Some(WINDOW as f64) {}
    site.hub().signal(Signal::TERM);
    // It does something else.
    std::thread::sleep(Duration::from_secs(3));
    (WINDOW..WINDOW + 50).for_each(|n| socket.send(publish(n)));
    let mut answered = BTreeSet::new();
    while let Some(answer) = next(&mut socket) {
        assert_eq!(answer["op"], "OK", "{answer}");
        answered.insert(answer["corr"].as_u64().unwrap());
    }
    drop(socket);
    site.restart_after_the_end();
    assert_eq!(answered, (0..WINDOW).collect());
    assert_eq!(site.api.all("t", "limit=10000").len() as u64, WINDOW);
}

#[test]
fn commits_that_happened_are_answered_before_the_hub_ends() {
    let mut site = Site::start();
    for round in 0..ROUNDS {
        let topic = format!("t{round}");
        let answered = end_under_load(&mut site, 2_000 + 333 * round, |api, client, answered| {
            ask_until_the_end(api, QUICK, answered, |n| {
                let event = json!({"topic": topic, "payload": {"client": client, "n": n}});
                json!({"op": "COMMIT", "publish": [event]})
            })
        });
        assert_eq!(there(&site.api, &topic), answered, "in round {round}");
    }
}

/// Each of them changes all of some large documents, so most of them wait for a long time.
#[test]
fn commits_over_large_documents_are_answered_or_do_not_happen() {
    const DOCUMENTS: usize = 6;
    let mut site = Site::start();
    let text = "x".repeat(3 << 20);
    for key in 0..DOCUMENTS {
        let set = json!({"collection": "c", "key": key.to_string(), "set": {"n": 0, "text": text}});
        site.api.post("/v1/commit", &json!({"writes": [set]}).to_string()).is(200);
    }
    let answered = end_under_load(&mut site, 3, |api, _, answered| {
        ask_until_the_end(api, Pace { window: 8, ..QUICK }, answered, |_| {
            let inc = |key: usize| json!({"collection": "c", "key": key.to_string(), "inc": {"n": 1}});
            json!({"op": "COMMIT", "writes": (0..DOCUMENTS).map(inc).collect::<Vec<_>>()})
        })
    });
    let answered: usize = answered.iter().map(BTreeSet::len).sum();
    assert_eq!(site.api.get("/v1/collections/c/snap/0").is(200)["n"], json!(answered));
}

/// Acks what comes, one by one: what was acknowledged.
fn ack_until_the_end(api: &Api, topic: &str, answered: &AtomicU64) -> BTreeSet<u64> {
    let mut socket = Socket::open(api);
    let subscribe = json!({"op": "SUBSCRIBE", "topic": topic, "group": "g",
        "opts": {"from": "earliest", "ordering": "none", "maxInFlight": WINDOW, "ackTimeoutMs": 600_000}});
    socket.send(subscribe);
    let mut acked = BTreeSet::new();
    while let Some(frame) = next(&mut socket) {
        match frame["op"].as_str().unwrap() {
            "EVENT" => {
                let corr = &frame["event"]["offset"];
                let ack = json!({"op": "ACK", "topic": topic, "group": "g", "lease": frame["ctx"]["lease"], "corr": corr});
                let _ = socket.try_message(Message::text(ack.to_string()));
            }
            "OK" => {
                acked.insert(frame["corr"].as_u64().unwrap());
                answered.fetch_add(1, Ordering::Relaxed);
            }
            _ => assert_eq!(frame["code"], "unavailable", "{frame}"),
        }
    }
    acked
}

#[test]
fn acks_that_took_effect_are_answered_before_the_hub_ends() {
    const EVENTS: u64 = 80_000;
    let mut site = Site::start();
    for round in 0..ROUNDS {
        let topic = format!("t{round}");
        let events: String = (0..EVENTS).map(|n| format!("{{\"payload\":{n}}}\n")).collect();
        site.api.ndjson(&topic, events.as_bytes()).is(201);
        let acked = end_under_load(&mut site, 2_000 + 555 * round, |api, _, answered| {
            ack_until_the_end(api, &topic, answered)
        });
        let acked: BTreeSet<u64> = acked.into_iter().flatten().collect();
        assert!(acked.len() < EVENTS as usize, "there was too little to do");
        let mut left = BTreeSet::new();
        let pull = format!("/v1/topics/{topic}/groups/g/pull");
        while left.len() + acked.len() < EVENTS as usize {
            let got = site.api.post(&pull, r#"{"max":1000,"maxInFlight":100000}"#).is(200);
            let got = got["deliveries"].as_array().unwrap();
            assert!(!got.is_empty(), "round {round}: {} acked, only {} left", acked.len(), left.len());
            left.extend(got.iter().map(|one| one["event"]["offset"].as_u64().unwrap()));
        }
        assert!(left.is_disjoint(&acked), "round {round}: an acknowledged event came again");
    }
}

/// Publishes over one connection, one after the other, until the hub closes it: what was answered.
fn post_until_the_end(api: &Api, client: u64, topic: &str, answered: &AtomicU64) -> BTreeSet<u64> {
    let (mut line, mut done) = (Connection::open(&api.address).unwrap(), BTreeSet::new());
    let target = format!("/v1/topics/{topic}/events");
    for n in 0.. {
        let body = json!({"payload": {"client": client, "n": n}}).to_string();
        let Ok(answer) = line.call(&Call::json("POST", &target, &body)) else { break };
        answer.is(201);
        done.insert(n);
        answered.fetch_add(1, Ordering::Relaxed);
    }
    done
}

#[test]
fn http_publishes_that_were_committed_are_answered_before_the_hub_ends() {
    let mut site = Site::start();
    for round in 0..ROUNDS {
        let topic = format!("t{round}");
        let answered = end_under_load(&mut site, 500 + 111 * round, |api, client, answered| {
            post_until_the_end(api, client, &topic, answered)
        });
        assert_eq!(there(&site.api, &topic), answered, "in round {round}");
    }
}

#[test]
fn an_import_that_the_end_cuts_off_says_how_much_is_in() {
    let mut site = Site::start();
    let mut line = site.api.connect();
    let lines: String = (0..2_500).map(|n| format!("{{\"payload\":{n}}}\n")).collect();
    let head = "POST /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 999999\r\n\r\n";
    line.write_all(head.as_bytes()).unwrap();
    line.write_all(lines.as_bytes()).unwrap();
    while site.api.metric("events_published_total{topic=\"t\"}") != Some(2_000.0) {}
    site.hub().signal(Signal::TERM);
    let mut bytes = Vec::new();
    line.read_to_end(&mut bytes).unwrap();
    let told = Answer::parse(&bytes, false).unwrap().fails(503, "unavailable");
    assert_eq!((&told["count"], &told["line"]), (&json!(2_000), &json!(2_001)), "{told}");
    site.restart_after_the_end();
    assert_eq!(site.api.all("t", "limit=10000").len(), 2_000);
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let mut site = Site::start();
    let mut socket = Socket::open(&site.api);
    let padding = "x".repeat(1 << 10);
    // It asks until the hub takes no more, because of the answers that nobody reads.
    socket.stream().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let frame = json!({"op": "PUBLISH", "topic": "t", "payload": padding, "corr": padding}).to_string();
    while socket.try_message(Message::text(frame.clone())).is_ok() {}
    let started = Instant::now();
    site.stop();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
