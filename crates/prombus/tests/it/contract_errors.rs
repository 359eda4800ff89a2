//! What the hub says to what it does not take, and how it tells that it is well.

use crate::contract_support::{Answer, Call, Site};

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];

/// Each route, and the methods that it has.
const ROUTES: &[(&str, &[&str])] = &[
    ("/healthz", &["GET", "HEAD"]),
    ("/readyz", &["GET", "HEAD"]),
    ("/metrics", &["GET", "HEAD"]),
    ("/v1/topics", &["GET", "HEAD"]),
    ("/v1/topics/t", &["GET", "HEAD", "PUT", "DELETE"]),
    ("/v1/topics/t/events", &["GET", "HEAD", "POST"]),
    ("/v1/topics/t/events/6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", &["GET", "HEAD"]),
    ("/v1/topics/t/clean", &["POST"]),
    ("/v1/topics/t/trim", &["POST"]),
    ("/v1/topics/t/keys", &["POST"]),
    ("/v1/topics/t/keys/k", &["GET", "HEAD", "DELETE"]),
    ("/publish/t", &["POST"]),
    ("/v1/topics/t/groups", &["GET", "HEAD"]),
    ("/v1/topics/t/groups/g", &["GET", "HEAD", "PUT", "PATCH", "DELETE"]),
    ("/v1/topics/t/groups/g/pull", &["POST"]),
    ("/v1/topics/t/groups/g/ack", &["POST"]),
    ("/v1/topics/t/groups/g/cursor", &["GET", "HEAD", "PUT", "POST"]),
    ("/v1/topics/t/groups/g/skip", &["POST"]),
    ("/v1/dlq/t", &["GET", "HEAD"]),
    ("/v1/dlq/t/replay", &["POST"]),
    ("/v1/replays", &["GET", "HEAD", "POST"]),
    ("/v1/replays/r", &["GET", "HEAD", "DELETE"]),
    ("/v1/replays/r/pause", &["POST"]),
    ("/ops", &["GET", "HEAD"]),
];

#[test]
fn a_wrong_method_is_405_and_told_the_right_ones() {
    let site = Site::start();
    site.api.publish("t?key=k", "1").is(201);
    for (route, known) in ROUTES {
        for method in METHODS.iter().filter(|method| !known.contains(method)) {
            let answer = site.api.call(&Call::new(method, route));
            assert_eq!(answer.status, 405, "{method} {route}");
            if *method != "HEAD" {
                answer.fails(405, "method_not_allowed");
            }
            let allow = answer.header("allow").unwrap_or_else(|| panic!("{method} {route} has no allow"));
            let mut allowed: Vec<&str> = allow.split(',').map(str::trim).collect();
            allowed.sort_unstable();
            let mut expected = known.to_vec();
            expected.sort_unstable();
            assert_eq!(allowed, expected, "{method} {route}");
        }
    }
}

#[test]
fn what_is_not_there_is_404() {
    let site = Site::start();
    let targets = [
        "/",
        "/nope",
        "/v1",
        "/v1/",
        "/v1/topic",
        "/v1/topics/t/",
        "/v1/topics/t/nope",
        "/publish",
        "/publish/",
        "/healthz/x",
        "/v2/topics",
        "//v1/topics",
        "/v1/topics/t/events/",
        "/HEALTHZ",
        "/v1/topics/",
        "/%ff",
    ];
    for target in targets {
        for method in ["GET", "POST", "DELETE"] {
            let answer = site.api.call(&Call::new(method, target));
            answer.fails_as(&[400, 404, 405]);
        }
        site.api.get(target).fails(404, "not_found");
    }
}

#[test]
fn bodies_of_a_wrong_type_are_415() {
    let site = Site::start();
    for (method, target) in
        [("POST", "/v1/topics/t/events"), ("PUT", "/v1/topics/t"), ("POST", "/v1/topics/t/keys")]
    {
        for kind in ["text/csv", "application/xml", "x"] {
            let call = Call::new(method, target).header("content-type", kind).body(b"{}");
            site.api.call(&call).fails_as(&[415]);
        }
    }
    let call = Call::new("PUT", "/v1/topics/t").header("content-type", "application/x-ndjson").body(b"{}");
    site.api.call(&call).fails_as(&[400, 415]);
    let call =
        Call::new("POST", "/v1/topics/t/events").header("content-type", "application/json; charset=latin1");
    let answer = site.api.call(&call.body(b"{\"payload\":1}"));
    assert!(matches!(answer.status, 201 | 400 | 415), "{answer:?}");
}

#[test]
fn bad_utf_8_is_400_wherever_it_stands() {
    let site = Site::start();
    let api = &site.api;
    api.publish("t", "1").is(201);
    let bodies: &[&[u8]] = &[
        b"{\"payload\":\"\xff\"}",
        b"{\"payload\":1,\"key\":\"\xc3\x28\"}",
        b"{\"payload\":1,\"sid\":\"\xed\xa0\x80\"}",
        b"{\"payload\":1,\"headers\":{\"x-a\":\"\xff\"}}",
        b"{\"payload\":1,\"tags\":[\"\xff\"]}",
        b"{\"pay\xffload\":1}",
        b"\xff\xfe{\x00}\x00",
    ];
    for body in bodies {
        for kind in ["application/json", "application/x-ndjson"] {
            let call = Call::new("POST", "/v1/topics/t/events").header("content-type", kind).body(body);
            api.call(&call).fails_as(&[400]);
        }
        api.call(&Call::new("PUT", "/v1/topics/u").header("content-type", "application/json").body(body))
            .fails_as(&[400]);
    }
    for target in [
        "/v1/topics/%FF",
        "/v1/topics/t/keys/%FF",
        "/v1/topics/%FF/events",
        "/v1/topics/t/events?key=%FF",
        "/v1/topics/t/keys/%C3%28",
    ] {
        api.get(target).fails_as(&[400]);
    }
    api.publish("%FF", "1").fails_as(&[400]);
    api.publish("t?sid=%FF", "1").fails_as(&[400]);
    let request = b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\nx-event-a: \xff\xfe\r\nconnection: close\r\ncontent-length: 1\r\n\r\n1";
    Answer::parse(&api.raw(request, false), false).unwrap().fails_as(&[400]);
    assert_eq!(api.all("t", "").len(), 1);
}

#[test]
fn broken_percent_encoding_is_never_500() {
    let site = Site::start();
    site.api.publish("t", "1").is(201);
    for target in [
        "/v1/topics/t/keys/%",
        "/v1/topics/t/keys/%4",
        "/v1/topics/t/keys/%zz",
        "/v1/topics/t/events?key=%",
        "/v1/topics/t/events?filter=%zz",
    ] {
        let answer = site.api.get(target);
        // It may be refused, or stand for itself.
        if answer.status != 200 {
            answer.fails_as(&[400, 404]);
        }
    }
}

#[test]
fn a_key_given_twice_in_a_request_object_does_no_harm() {
    let site = Site::start();
    for body in [
        r#"{"payload":1,"payload":2}"#,
        r#"{"payload":1,"key":"a","key":"b"}"#,
        r#"{"payload":1,"headers":{"x-a":"1","x-a":"2"}}"#,
    ] {
        let answer = site.api.events("t", body);
        assert!(answer.status == 201 || answer.fails_as(&[400])["error"] == "bad_request", "{answer:?}");
    }
    let answer = site.api.put("/v1/topics/u", r#"{"partitions":1,"partitions":2}"#);
    assert!(matches!(answer.status, 200 | 201 | 400), "{answer:?}");
}

#[test]
fn health_and_readiness_are_told() {
    let site = Site::start();
    for target in ["/healthz", "/readyz"] {
        assert_eq!(site.api.get(target).status, 200);
    }
}

#[test]
fn metrics_have_their_names_and_count_what_happened() {
    let site = Site::start();
    let api = &site.api;
    api.make("t", 2);
    for _ in 0..3 {
        api.publish("t", "1").is(201);
    }
    api.events("t", r#"[{"payload":1},{"payload":2}]"#).is(201);
    api.ndjson("t", b"{\"payload\":1}\n{\"payload\":1}\n").is(201);
    api.publish("t", "{").fails(400, "bad_json");
    api.publish("u?id=6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", "1").is(201);
    api.publish("u?id=6f2d5a3e-8c1b-4d7f-9a60-1b2c3d4e5f60", "2").fails(409, "id_conflict");
    assert_eq!(api.metric("events_published_total{topic=\"t\"}"), Some(7.0));
    assert_eq!(api.metric("events_published_total{topic=\"u\"}"), Some(1.0));
    assert!(api.metric("store_disk_bytes").unwrap() > 0.0);
    assert!(api.metric("store_disk_free_bytes").unwrap() > 0.0);
    assert!(api.metric("store_flush_duration_ms_count").unwrap() >= 1.0);
    assert!(api.metric("store_flush_duration_ms_sum").unwrap() > 0.0);
    assert_eq!(api.metric("build_info"), Some(1.0));
    let answer = api.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"), "{answer:?}");
    let types: Vec<&str> = answer.text().lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert!(types.contains(&"# TYPE store_flush_duration_ms histogram"), "{types:?}");
    assert!(
        types.iter().any(|line| line.contains("events_published") && line.ends_with("counter")),
        "{types:?}"
    );
}

#[test]
fn what_is_no_http_is_closed_with_400_at_most() {
    let site = Site::start();
    let requests: &[&[u8]] = &[
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /v1/to pics HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n1",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n11",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999999\r\n\r\n1",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n1",
        b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n1",
        b"POST /publish/t HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for request in requests {
        let bytes = site.api.raw(request, true);
        if let Some(answer) = Answer::parse(&bytes, false) {
            assert!((400..500).contains(&answer.status) || answer.status == 505, "{request:?} {answer:?}");
        }
        site.api.get("/healthz").is(200);
    }
    let long = format!(
        "GET /v1/topics/t/keys/{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        "k".repeat(200_000)
    );
    let answer = Answer::parse(&site.api.raw(long.as_bytes(), false), false).unwrap();
    assert!((400..500).contains(&answer.status), "{answer:?}");
    let fat = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\nconnection: close\r\n\r\n",
        "v".repeat(2_000_000)
    );
    let bytes = site.api.raw(fat.as_bytes(), false);
    assert!(Answer::parse(&bytes, false).is_none_or(|answer| answer.status < 500));
    site.api.get("/healthz").is(200);
    assert_eq!(site.api.page("t", "").status, 404);
}

#[test]
fn compressed_bodies_are_not_taken_for_json() {
    let site = Site::start();
    for body in [&b"\x1f\x8b\x08\x00\x00\x00"[..], b"1"] {
        let call = Call::new("POST", "/publish/t").header("content-encoding", "gzip").body(body);
        site.api.call(&call).fails_as(&[415]);
    }
    let request = b"POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
        transfer-encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n";
    let answer = Answer::parse(&site.api.raw(request, false), false);
    assert!(answer.as_ref().is_some_and(|answer| answer.status == 415), "{answer:?}");
    site.api.get("/v1/topics/t").fails_as(&[404]);
}
