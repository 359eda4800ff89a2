//! A consumer that polls, as anyone with an HTTP client could write it, and checks what it is told.

use crate::common::PATIENCE;
use crate::contract_support::{Answer, Api, Site};
use serde_json::{Value, json};
use std::time::Instant;

/// How long a pull waits for what has to come.
pub const LONG: u64 = 10_000;

/// How long a pull waits for what must not come.
pub const SHORT: u64 = 150;

/// One group of one topic.
#[derive(Debug, Clone)]
pub struct Group {
    pub api: Api,
    pub topic: String,
    pub name: String,
}

impl Group {
    pub fn of(site: &Site, topic: &str, name: &str) -> Self {
        Self { api: site.api.clone(), topic: topic.to_owned(), name: name.to_owned() }
    }

    /// The address of the group, or of something below it.
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/topics/{}/groups/{}{rest}", self.topic, self.name)
    }

    #[track_caller]
    pub fn post(&self, rest: &str, body: &Value) -> Answer {
        self.api.post(&self.path(rest), &body.to_string())
    }

    /// Makes the group.
    #[track_caller]
    pub fn make(&self, options: &Value) -> &Self {
        let answer = self.api.put(&self.path(""), &options.to_string());
        assert!(matches!(answer.status, 200 | 201 | 204), "{answer:?}");
        self
    }

    /// One pull, exactly as given.
    #[track_caller]
    pub fn pull(&self, body: &Value) -> Vec<Value> {
        deliveries(&self.post("/pull", body))
    }

    /// A pull that has to get something.
    #[track_caller]
    pub fn take(&self, mut body: Value) -> Vec<Value> {
        body["waitMs"] = json!(LONG);
        let got = self.pull(&body);
        assert!(!got.is_empty(), "nothing came to {body}: {}", self.status());
        got
    }

    /// A pull that has to get exactly one.
    #[track_caller]
    pub fn one(&self, mut body: Value) -> Value {
        body["max"] = json!(1);
        let mut got = self.take(body);
        assert_eq!(got.len(), 1, "{got:?}");
        got.remove(0)
    }

    /// Pulls until there are so many; more is wrong.
    #[track_caller]
    pub fn gather(&self, body: &Value, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.take(body.clone()));
        }
        assert_eq!(all.len(), count, "{all:?}");
        all
    }

    /// Pulls and acks until there were so many.
    #[track_caller]
    pub fn consume(&self, body: &Value, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < count {
            let got = self.take(body.clone());
            self.ack(&got);
            all.extend(got);
        }
        assert_eq!(all.len(), count, "{all:?}");
        all
    }

    /// A pull that must get nothing.
    #[track_caller]
    pub fn nothing(&self, mut body: Value) {
        body["waitMs"] = json!(SHORT);
        let got = self.pull(&body);
        assert!(got.is_empty(), "{got:?}");
    }

    /// What is answered to acks, nacks and extends: one for each, in order.
    #[track_caller]
    pub fn settle(&self, body: &Value) -> Vec<Value> {
        let answer = self.post("/ack", body).is(200);
        let results = answer["results"].as_array().unwrap().clone();
        let acks = body["ack"].as_array().into_iter().flatten();
        let others = ["nack", "extend"].into_iter().flat_map(|verb| body[verb].as_array()).flatten();
        let asked: Vec<&Value> = acks.chain(others.map(|one| &one["lease"])).collect();
        let told: Vec<&Value> = results.iter().map(|result| &result["lease"]).collect();
        assert_eq!(told, asked, "{answer}");
        for result in &results {
            if result["ok"] == true {
                assert!(result["error"].is_null(), "{answer}");
            } else {
                assert_eq!((&result["ok"], &result["error"]), (&json!(false), &json!("lease_expired")));
            }
        }
        results
    }

    /// Whether each was accepted.
    #[track_caller]
    pub fn accepted(&self, body: &Value) -> Vec<bool> {
        self.settle(body).iter().map(|result| result["ok"] == true).collect()
    }

    /// Acks that have to be accepted.
    #[track_caller]
    pub fn ack(&self, deliveries: &[Value]) {
        let results = self.accepted(&acks(deliveries));
        assert_eq!(results, vec![true; deliveries.len()]);
    }

    /// A nack that has to be accepted.
    #[track_caller]
    pub fn nack(&self, delivery: &Value) {
        assert_eq!(self.accepted(&nack(delivery, &json!({}))), [true]);
    }

    /// A nack that has to be accepted, and says when to try again.
    #[track_caller]
    pub fn nack_for(&self, delivery: &Value, delay_ms: u64) {
        assert_eq!(self.accepted(&nack(delivery, &json!({"delayMs": delay_ms}))), [true]);
    }

    #[track_caller]
    pub fn status(&self) -> Value {
        self.api.get(&self.path("")).is(200)
    }

    /// The status of one partition.
    #[track_caller]
    pub fn partition(&self, number: u64) -> Value {
        let status = self.status();
        let partitions = status["partitions"].as_array().unwrap();
        match partitions.iter().find(|one| one["partition"] == number) {
            Some(one) => one.clone(),
            None => panic!("no partition {number} in {status}"),
        }
    }

    /// The owner of each partition, in their order.
    #[track_caller]
    pub fn owners(&self) -> Vec<Value> {
        let status = self.status();
        let mut partitions = status["partitions"].as_array().unwrap().clone();
        partitions.sort_by_key(|one| one["partition"].as_u64());
        partitions.iter().map(|one| one["owner"].clone()).collect()
    }

    /// Moves the group.
    #[track_caller]
    pub fn move_to(&self, cursor: &Value) {
        let answer = self.set_cursor(cursor);
        assert!(matches!(answer.status, 200 | 204), "{answer:?}");
    }

    #[track_caller]
    pub fn set_cursor(&self, cursor: &Value) -> Answer {
        self.api.put(&self.path("/cursor"), &cursor.to_string())
    }

    /// Settles an event unseen.
    #[track_caller]
    pub fn skip(&self, partition: u64, offset: u64) {
        let answer = self.post("/skip", &json!({"partition": partition, "offset": offset}));
        assert!(matches!(answer.status, 200 | 204), "{answer:?}");
    }

    /// Forgets the group.
    #[track_caller]
    pub fn delete(&self) {
        let answer = self.api.delete(&self.path(""));
        assert!(matches!(answer.status, 200 | 204), "{answer:?}");
    }

    /// Waits until the group has settled all that there is.
    #[track_caller]
    pub fn is_done(&self) {
        eventually("all is settled", || {
            self.status()["partitions"].as_array().unwrap().iter().all(|one| one["lag"] == 0)
        });
    }
}

/// Acks these, and tells of each partition whether it was accepted.
#[track_caller]
pub fn accepted_by_partition(group: &Group, deliveries: &[Value]) -> Vec<(usize, bool)> {
    let places = deliveries.iter().map(|one| one["event"]["partition"].as_u64().unwrap());
    let places = places.map(|place| usize::try_from(place).unwrap());
    places.zip(group.accepted(&acks(deliveries))).collect()
}

/// The deliveries of an answer, if they look as they have to.
#[track_caller]
pub fn deliveries(answer: &Answer) -> Vec<Value> {
    let body = answer.is(200);
    let all = body["deliveries"].as_array().unwrap().clone();
    for one in &all {
        let (event, ctx) = (&one["event"], &one["ctx"]);
        for name in ["id", "ts", "topic", "partition", "offset", "payload"] {
            assert!(event.get(name).is_some(), "no {name} in {one}");
        }
        assert!(ctx["attempt"].as_u64().unwrap() >= 1, "{one}");
        assert!(ctx["maxAttempts"].is_u64() && ctx["ack_deadline_ms"].is_u64(), "{one}");
        assert!(!ctx["lease"].as_str().unwrap().is_empty(), "{one}");
    }
    all
}

/// The token of a delivery.
pub fn lease(delivery: &Value) -> &str {
    delivery["ctx"]["lease"].as_str().unwrap()
}

/// Which attempt a delivery is.
pub fn attempt(delivery: &Value) -> u64 {
    delivery["ctx"]["attempt"].as_u64().unwrap()
}

/// The number that an event was published with.
pub fn number(delivery: &Value) -> u64 {
    delivery["event"]["payload"]["n"].as_u64().unwrap()
}

/// The numbers of all of them.
pub fn numbers(deliveries: &[Value]) -> Vec<u64> {
    deliveries.iter().map(number).collect()
}

/// The numbers of all of them, from the least.
pub fn sorted_numbers(deliveries: &[Value]) -> Vec<u64> {
    let mut all = numbers(deliveries);
    all.sort_unstable();
    all
}

/// The one with this number.
#[track_caller]
pub fn numbered(deliveries: &[Value], wanted: u64) -> &Value {
    match deliveries.iter().find(|one| number(one) == wanted) {
        Some(one) => one,
        None => panic!("no {wanted} in {deliveries:?}"),
    }
}

/// The body that acks these.
pub fn acks(deliveries: &[Value]) -> Value {
    json!({"ack": deliveries.iter().map(lease).collect::<Vec<_>>()})
}

/// The body that nacks this one.
pub fn nack(delivery: &Value, more: &Value) -> Value {
    let mut one = more.clone();
    one["lease"] = json!(lease(delivery));
    json!({"nack": [one]})
}

/// The body that extends this one.
pub fn extend(delivery: &Value, extend_ms: u64) -> Value {
    json!({"extend": [{"lease": lease(delivery), "extend_ms": extend_ms}]})
}

/// Publishes events without a key, each with its number.
#[track_caller]
pub fn publish(api: &Api, topic: &str, range: std::ops::Range<u64>) -> Vec<Value> {
    let events: Vec<Value> = range.map(|n| json!({"payload": {"n": n}})).collect();
    publish_all(api, topic, &events)
}

/// Publishes one event for each key, numbered from `first` on.
#[track_caller]
pub fn publish_keys(api: &Api, topic: &str, first: u64, keys: &[&str]) -> Vec<Value> {
    let events: Vec<Value> =
        keys.iter().zip(first..).map(|(key, n)| json!({"payload": {"n": n}, "key": key})).collect();
    publish_all(api, topic, &events)
}

/// Publishes so many numbered events to each of so many partitions.
#[track_caller]
pub fn publish_spread(api: &Api, topic: &str, partitions: u64, each: u64) -> Vec<Value> {
    let events: Vec<Value> =
        (0..partitions * each).map(|n| json!({"payload": {"n": n}, "partition": n % partitions})).collect();
    publish_all(api, topic, &events)
}

/// Publishes these, and gives back what was answered for each.
#[track_caller]
pub fn publish_all(api: &Api, topic: &str, events: &[Value]) -> Vec<Value> {
    let answer = api.events(topic, &json!(events).to_string()).is(201);
    answer["events"].as_array().unwrap().clone()
}

/// Asks again and again until it is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it never came about that {what}");
    }
}

/// Milliseconds since then.
pub fn since(started: Instant) -> u128 {
    started.elapsed().as_millis()
}

/// The sum of a metric's samples that have all of these labels, in whatever order.
#[track_caller]
pub fn metric(api: &Api, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let answer = api.get("/metrics");
    assert_eq!(answer.status, 200);
    let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    let samples: Vec<f64> = answer
        .text()
        .lines()
        .filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
                && wanted.iter().all(|label| line.contains(label.as_str()))
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    if samples.is_empty() { None } else { Some(samples.iter().sum()) }
}
