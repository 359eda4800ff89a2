//! Who may do what over HTTP: every route without a token, with a bad one, with one that lacks the right, and with it.

use crate::auth_support;
use crate::auth_support::jwt::{Signer, all, policy, scopes};
use crate::auth_support::line::Flow;
use crate::auth_support::{Guarded, SECRET, STRANGER, is_unauthorized, name_of};
use crate::contract_support;
use crate::contract_support::{Answer, Call};
use serde_json::json;

const ID: &str = "6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60";
const ACTIONS: [&str; 4] = ["publish", "subscribe", "read", "admin"];

/// One route, and what it takes. `{t}` is its topic.
#[derive(Debug)]
struct Route {
    method: &'static str,
    target: &'static str,
    accept: &'static str,
    kind: &'static str,
    body: &'static str,
    /// Any one of them is enough.
    rights: &'static [&'static str],
}

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

const fn get(target: &'static str, rights: &'static [&'static str]) -> Route {
    Route { method: "GET", target, accept: JSON, kind: JSON, body: "", rights }
}

const fn send(method: &'static str, target: &'static str, body: &'static str) -> Route {
    Route { method, target, accept: JSON, kind: JSON, body, rights: &["subscribe"] }
}

const fn may(right: &'static [&'static str], mut route: Route) -> Route {
    route.rights = right;
    route
}

const ROUTES: &[Route] = &[
    may(&["publish"], send("POST", "/publish/{t}?key=a", "1")),
    may(&["publish"], send("POST", "/v1/topics/{t}/events", r#"{"payload":1}"#)),
    may(&["publish"], send("POST", "/v1/topics/{t}/events", r#"[{"payload":1},{"payload":2}]"#)),
    Route {
        method: "POST",
        target: "/v1/topics/{t}/events",
        accept: JSON,
        kind: NDJSON,
        body: "{\"payload\":1}\n",
        rights: &["publish"],
    },
    get("/v1/topics/{t}/events", &["read"]),
    Route {
        method: "GET",
        target: "/v1/topics/{t}/events",
        accept: NDJSON,
        kind: JSON,
        body: "",
        rights: &["read"],
    },
    get("/v1/topics/{t}/events/6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", &["read"]),
    get("/v1/topics/{t}/keys/k", &["read"]),
    get("/v1/topics/{t}/state", &["read"]),
    get("/v1/topics/{t}/state/k", &["read"]),
    may(&["read"], send("POST", "/v1/topics/{t}/keys", r#"{"keys":["k"]}"#)),
    get("/v1/topics/{t}", &["read", "admin"]),
    may(&["admin"], send("PUT", "/v1/topics/{t}", r#"{"partitions":2}"#)),
    may(&["admin"], send("POST", "/v1/topics/{t}/clean", "")),
    may(&["admin"], send("POST", "/v1/topics/{t}/trim", r#"{"partition":0,"before":0}"#)),
    may(&["admin"], send("DELETE", "/v1/topics/{t}/keys/k", "")),
    may(&["admin"], send("DELETE", "/v1/topics/{t}", "")),
    send("PUT", "/v1/topics/{t}/groups/other", r#"{"from":"earliest"}"#),
    send("POST", "/v1/topics/{t}/groups/g/pull", "{}"),
    send("POST", "/v1/topics/{t}/groups/new/pull", "{}"),
    send("POST", "/v1/topics/{t}/groups/g/ack", r#"{"ack":[]}"#),
    send("POST", "/v1/topics/{t}/groups/g/skip", r#"{"partition":0,"offset":0}"#),
    get("/v1/topics/{t}/groups/g", &["subscribe"]),
    get("/v1/topics/{t}/groups/g/cursor", &["subscribe"]),
    send("PUT", "/v1/topics/{t}/groups/g/cursor", r#"{"from":"earliest"}"#),
    send("POST", "/v1/topics/{t}/groups/g/cursor", r#"{"from":"earliest","dry_run":true}"#),
    send("PATCH", "/v1/topics/{t}/groups/g", r#"{"maxAttempts":7}"#),
    send("DELETE", "/v1/topics/{t}/groups/g", ""),
    get("/v1/dlq/{t}", &["read"]),
    may(&["admin"], send("POST", "/v1/dlq/{t}/replay", "{}")),
];

/// Routes that a valid token is enough for, whatever it allows.
const FOR_ANYONE: &[&str] = &["/v1/topics", "/metrics"];

/// A hub, and a maker of tokens for it.
struct World {
    hub: Guarded,
    signer: Signer,
    root: String,
}

impl World {
    fn new() -> Self {
        let signer = Signer::secret(SECRET);
        let root = signer.token(&all());
        Self { hub: Guarded::jwt(), signer, root }
    }

    fn token(&self, list: &[&str]) -> String {
        self.signer.token(&scopes(list))
    }

    /// Makes what a route needs to succeed.
    #[track_caller]
    fn furnish(&self, topic: &str) {
        let root = self.hub.caller(&self.root);
        let published = root.call(Call::new("POST", &format!("/publish/{topic}?key=k&id={ID}")).body(b"1"));
        assert_eq!(published.status, 201, "{published:?}");
        let made = root.put(&format!("/v1/topics/{topic}/groups/g"), &json!({"from": "earliest"}));
        assert!(matches!(made.status, 200 | 201), "{made:?}");
    }

    fn call(&self, route: &Route, topic: &str, authorization: Option<&str>) -> Answer {
        let target = route.target.replace("{t}", topic);
        let mut call = Call::new(route.method, &target).header("accept", route.accept);
        if let Some(value) = authorization {
            call = call.header("authorization", value);
        }
        if !route.body.is_empty() {
            call = call.header("content-type", route.kind).body(route.body.as_bytes());
        }
        self.hub.api.call(&call)
    }

    fn with_scope(&self, route: &Route, topic: &str, scope: &str) -> Answer {
        self.call(route, topic, Some(&format!("Bearer {}", self.token(&[scope]))))
    }
}

fn topic_of(place: usize) -> String {
    format!("area.topic-{place}")
}

#[test]
fn every_route_without_a_token_is_401_and_names_the_scheme() {
    let world = World::new();
    for (place, route) in ROUTES.iter().enumerate() {
        world.furnish(&topic_of(place));
        println!("{route:?}");
        is_unauthorized(&world.call(route, &topic_of(place), None));
    }
    for target in FOR_ANYONE.iter().chain(&["/ops", "/v1/topics/t/groups", "/nowhere"]) {
        is_unauthorized(&world.hub.api.get(target));
    }
}

#[test]
fn every_route_with_a_bad_token_is_401_and_names_the_scheme() {
    let world = World::new();
    let forged = Signer::secret("not-the-secret-of-the-hub-but-as-long").token(&all());
    for (place, route) in ROUTES.iter().enumerate() {
        world.furnish(&topic_of(place));
        for bad in [STRANGER, forged.as_str()] {
            println!("{route:?} {bad}");
            is_unauthorized(&world.call(route, &topic_of(place), Some(&format!("Bearer {bad}"))));
        }
    }
    for target in FOR_ANYONE.iter().chain(&["/ops", "/v1/topics/t/groups", "/nowhere"]) {
        is_unauthorized(&world.hub.caller(&forged).get(target));
    }
}

#[test]
fn every_route_with_a_token_of_another_right_is_403() {
    let world = World::new();
    for (place, route) in ROUTES.iter().enumerate() {
        let topic = topic_of(place);
        world.furnish(&topic);
        for action in ACTIONS.iter().filter(|action| !route.rights.contains(action)) {
            println!("{route:?} {action}");
            world.with_scope(route, &topic, &format!("{action}:{topic}")).fails(403, "forbidden");
        }
    }
}

#[test]
fn every_route_with_the_right_on_another_topic_is_403() {
    let world = World::new();
    for (place, route) in ROUTES.iter().enumerate() {
        let topic = topic_of(place);
        world.furnish(&topic);
        println!("{route:?}");
        world.with_scope(route, &topic, &format!("*:{topic}-not")).fails(403, "forbidden");
    }
}

#[test]
fn every_route_with_just_the_right_that_it_takes_is_2xx() {
    let world = World::new();
    for (place, route) in ROUTES.iter().enumerate() {
        for right in route.rights {
            let topic = format!("{}-{right}", topic_of(place));
            world.furnish(&topic);
            let answer = world.with_scope(route, &topic, &format!("{right}:{topic}"));
            assert!((200..300).contains(&answer.status), "{route:?} with {right}: {answer:?}");
        }
    }
}

#[test]
fn a_refused_call_changes_nothing() {
    let world = World::new();
    let topic = "area.calm";
    world.furnish(topic);
    let root = world.hub.caller(&world.root);
    let before = (root.read(topic).is(200), root.get(&format!("/v1/topics/{topic}")).is(200));
    let group = root.get(&format!("/v1/topics/{topic}/groups/g/cursor")).is(200);
    for route in ROUTES {
        world.call(route, topic, None);
        world.with_scope(route, topic, "*:elsewhere");
    }
    let after = (root.read(topic).is(200), root.get(&format!("/v1/topics/{topic}")).is(200));
    assert_eq!(before, after);
    assert_eq!(root.get(&format!("/v1/topics/{topic}/groups/g/cursor")).is(200), group);
    let groups = root.get(&format!("/v1/topics/{topic}/groups")).is(200);
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups}");
}

#[test]
fn a_topic_that_is_not_there_answers_a_caller_without_rights_like_one_that_is() {
    let world = World::new();
    world.furnish("area.there");
    let token = world.token(&["*:elsewhere"]);
    for route in ROUTES {
        let bearer = format!("Bearer {token}");
        let there = world.call(route, "area.there", Some(&bearer));
        let not = world.call(route, "area.other", Some(&bearer));
        assert_eq!((there.status, not.status), (403, 403), "{route:?}");
        assert_eq!(there.text().replace("area.there", "area.other"), not.text(), "{route:?}");
    }
}

#[test]
fn a_body_is_not_judged_before_the_token() {
    let world = World::new();
    let call = Call::new("POST", "/v1/topics/t/events").header("content-type", JSON).body(b"{broken");
    is_unauthorized(&world.hub.api.call(&call));
    world.hub.caller(&world.token(&["read:**"])).call(call.clone()).fails(403, "forbidden");
    world.hub.caller(&world.root).call(call).fails(400, "bad_json");
}

#[test]
fn health_is_open_to_everyone() {
    let world = World::new();
    for target in ["/healthz", "/readyz"] {
        assert_eq!(world.hub.api.get(target).status, 200);
        assert_eq!(world.hub.caller(&world.root).get(target).status, 200);
    }
}

#[test]
fn metrics_want_any_good_token() {
    let world = World::new();
    let answer = world.hub.caller(&world.token(&[])).get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text().contains("build_info"));
}

#[test]
fn the_list_of_topics_shows_what_may_be_read_or_administered() {
    let world = World::new();
    for topic in ["a.one", "a.two", "b.one"] {
        world.furnish(topic);
    }
    let shown = |scopes: &[&str]| world.hub.caller(&world.token(scopes)).topics();
    assert_eq!(shown(&["read:a.*"]), ["a.one", "a.two"]);
    assert_eq!(shown(&["admin:b.one"]), ["b.one"]);
    assert_eq!(shown(&["read:a.one", "admin:b.*"]), ["a.one", "b.one"]);
    assert_eq!(shown(&["*:**"]), ["a.one", "a.two", "b.one"]);
    assert!(shown(&["publish:**", "subscribe:**"]).is_empty());
    assert!(shown(&[]).is_empty());
}

#[test]
fn the_list_of_groups_shows_what_may_be_subscribed() {
    let world = World::new();
    world.furnish("t");
    world.hub.caller(&world.root).pull("t", "other").is(200);
    let groups = |token: String| {
        let list = world.hub.caller(&token).get("/v1/topics/t/groups").is(200);
        let all = list["groups"].as_array().unwrap();
        all.iter().map(|one| name_of(one, "group")).collect::<Vec<_>>()
    };
    assert_eq!(groups(world.token(&["subscribe:t"])), ["g", "other"]);
    let rule = json!([{"effect": "allow", "action": "subscribe", "topics": ["t"], "groups": ["other"]}]);
    assert_eq!(groups(world.signer.token(&policy(&rule))), ["other"]);
    let none = world.token(&["read:t", "publish:t", "admin:t"]);
    world.hub.caller(&none).get("/v1/topics/t/groups").fails(403, "forbidden");
}

#[test]
fn ops_shows_an_administrator_only_what_is_his() {
    let world = World::new();
    world.furnish("a.one");
    world.furnish("b.one");
    let ops = world.hub.caller(&world.token(&["admin:a.*"])).get("/ops").is(200);
    assert!(ops.to_string().contains("a.one") && !ops.to_string().contains("b.one"), "{ops}");
    let ops = world.hub.caller(&world.root).get("/ops").is(200);
    assert!(ops.to_string().contains("a.one") && ops.to_string().contains("b.one"), "{ops}");
}

#[test]
fn ops_is_403_for_someone_who_administers_nothing() {
    let world = World::new();
    world.furnish("t");
    let token = world.token(&["read:**", "publish:**", "subscribe:**"]);
    world.hub.caller(&token).get("/ops").fails(403, "forbidden");
}

#[test]
fn a_stream_wants_subscribe_and_no_other_right_will_do() {
    let world = World::new();
    world.furnish("t");
    is_unauthorized(&Flow::open(&world.hub.api, "t", "").refused());
    is_unauthorized(&Flow::open(&world.hub.api, "t", STRANGER).refused());
    let other = world.token(&["read:**", "publish:**", "admin:**", "subscribe:u"]);
    Flow::open(&world.hub.api, "t", &other).refused().fails(403, "forbidden");
    let mut flow = Flow::open(&world.hub.api, "t", &world.token(&["subscribe:t"]));
    flow.until("200 OK").until(ID);
}

#[test]
fn the_scheme_of_the_header_is_bearer_in_any_case_and_nothing_else() {
    let world = World::new();
    world.furnish("t");
    let read = |value: &str| {
        world.hub.api.call(&Call::new("GET", "/v1/topics/t/events").header("authorization", value))
    };
    for scheme in ["Bearer", "bearer", "BEARER"] {
        read(&format!("{scheme} {}", world.root)).is(200);
    }
    let basic = format!("Basic {}", auth_support::jwt::encode(format!("user:{}", world.root)));
    let others = [
        "Bearer",
        "Bearer ",
        "Token {}",
        "Bearer{}",
        "{}",
        "Bearer {} {}",
        "Bearer \"{}\"",
        "Bearer {}x",
        "",
    ];
    for value in others.iter().map(|text| text.replace("{}", &world.root)).chain([basic]) {
        println!("{value}");
        is_unauthorized(&read(&value));
    }
}

#[test]
fn two_authorization_headers_never_add_up_to_a_good_one() {
    let world = World::new();
    world.furnish("t");
    let good = format!("Bearer {}", world.root);
    let bad = format!("Bearer {STRANGER}");
    for (first, second) in [(&good, &bad), (&bad, &good)] {
        let call = Call::new("GET", "/v1/topics/t/events").header("authorization", first);
        let answer = world.hub.api.call(&call.header("authorization", second));
        answer.fails_as(&[400, 401]);
    }
}

#[test]
fn a_token_counts_for_its_own_call_and_not_for_the_next_on_the_same_connection() {
    let world = World::new();
    world.furnish("t");
    let call = |token: &str| {
        let header =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        format!("GET /v1/topics/t/events HTTP/1.1\r\nhost: localhost\r\n{header}")
    };
    let reader = world.token(&["read:t"]);
    let publisher = world.token(&["publish:t"]);
    let all = [call(&reader), call(""), call(&publisher), call(STRANGER), call(&reader)].join("\r\n");
    let bytes = world.hub.api.raw(format!("{all}connection: close\r\n\r\n").as_bytes(), false);
    let text = String::from_utf8(bytes).unwrap();
    let statuses: Vec<&str> =
        text.match_indices("HTTP/1.1 ").map(|(place, _)| &text[place + 9..place + 12]).collect();
    assert_eq!(statuses, ["200", "401", "403", "401", "200"], "{text}");
}

#[test]
fn a_token_in_the_address_or_in_a_cookie_is_none() {
    let world = World::new();
    world.furnish("t");
    for name in ["token", "access_token", "authorization", "auth"] {
        let target = format!("/v1/topics/t/events?{name}={}", world.root);
        is_unauthorized(&world.hub.api.get(&target));
    }
    let cookie = format!("token={0}; access_token={0}", world.root);
    is_unauthorized(&world.hub.api.call(&Call::new("GET", "/v1/topics/t/events").header("cookie", &cookie)));
}

#[test]
fn head_and_odd_spellings_of_a_route_are_guarded_like_the_route() {
    let world = World::new();
    world.furnish("t");
    let token = world.token(&["read:u"]);
    let odd = [
        "/v1/topics/%74/events",
        "/v1//topics/t/events",
        "/v1/topics/t/events/",
        "/v1/topics/u/../t/events",
        "/V1/topics/t/events",
        "/v1/topics/t%2Fevents",
    ];
    for target in odd {
        is_unauthorized(&world.hub.api.get(target));
        let answer = world.hub.caller(&token).get(target);
        assert!(matches!(answer.status, 400 | 403 | 404), "{target}: {answer:?}");
    }
    assert_eq!(world.hub.api.call(&Call::new("HEAD", "/v1/topics/t/events")).status, 401);
    assert_eq!(world.hub.caller(&token).call(Call::new("HEAD", "/v1/topics/t/events")).status, 403);
}

#[test]
fn a_cursor_of_one_topic_does_not_open_another() {
    let world = World::new();
    for topic in ["mine", "theirs"] {
        for _ in 0..3 {
            world.hub.caller(&world.root).publish(topic).is(201);
        }
    }
    let page = world.hub.caller(&world.root).get("/v1/topics/theirs/events?limit=1").is(200);
    let cursor = contract_support::encoded(page["next"].as_str().unwrap());
    let token = world.token(&["read:mine"]);
    let answer = world.hub.caller(&token).get(&format!("/v1/topics/mine/events?cursor={cursor}"));
    assert!(!answer.text().contains("\"theirs\""), "{answer:?}");
    let answer = world.hub.caller(&token).get(&format!("/v1/topics/theirs/events?cursor={cursor}"));
    answer.fails(403, "forbidden");
}

#[test]
fn without_auth_a_token_is_neither_wanted_nor_looked_at() {
    let hub = Guarded::start("");
    hub.api.publish("t", "1").is(201);
    hub.caller(STRANGER).read("t").is(200);
}
