//! Valid files, and the errors for invalid ones.

use super::*;
use prombus_core::{Durability, TopicName, TopicPatch};
use std::time::Duration;

fn problem(text: &str) -> (Option<usize>, String) {
    let Problem { line, what } = ConfigFile::parse(text).unwrap_err();
    (line, what)
}

#[test]
fn a_file_may_be_empty() {
    assert_eq!(ConfigFile::parse("").unwrap(), ConfigFile::default());
}

#[test]
fn everything_that_can_be_said_is_understood() {
    let file = ConfigFile::parse(
        r#"
        [server]
        listen = "127.0.0.1:1"
        tls_cert = "c.pem"
        tls_key = "k.pem"
        allow_origins = ["https://app.example", "*", "null"]
        hosts = ["hub.example", "hub"]
        [log]
        format = "json"
        level = "debug"
        [auth]
        mode = "none"
        [store]
        data = "./d"
        part_bytes = 1048576
        rewrite_bytes_per_s = 1000000
        clean_every_ms = 500
        wait_ms = 2000
        [limits]
        event_bytes = 10
        commit_bytes = 20
        result_bytes = 33554432
        future_ts_ms = 30
        topics = 40
        collections = 45
        group_partitions = 47
        body_bytes = 50
        connections = 60
        buffer_bytes = 67108864
        connection_events_per_s = 70
        topic_events_per_s = 80
        header_timeout_ms = 90
        body_timeout_ms = 100
        send_timeout_ms = 110
        [topics]
        auto_create = false
        [topics."process.state"]
        partitions = 8
        durability = "interval"
        snapshot = { topic = "process.state.snapshot", every_ms = 30000 }
        [topics.plain]
        "#,
    )
    .unwrap();
    assert_eq!(file.server.listen.as_deref(), Some("127.0.0.1:1"));
    assert_eq!((file.log.format.as_deref(), file.log.level.as_deref()), (Some("json"), Some("debug")));
    assert_eq!(file.store.data.as_deref(), Some(Path::new("./d")));
    assert_eq!(file.store.part_bytes, Some(1 << 20));
    assert_eq!(file.store.rewrite_bytes_per_s, Some(1_000_000));
    assert_eq!(file.store.clean_every(), Duration::from_millis(500));
    assert_eq!(file.store.wait_ms, Some(2_000));
    assert_eq!(ConfigFile::default().store.clean_every(), Duration::from_secs(10));
    let limits = file.limits.limits();
    assert_eq!((limits.event_bytes, limits.commit_bytes), (10, 20));
    assert_eq!(file.limits.result_bytes(), 32 << 20);
    assert_eq!(
        (limits.future_ts_ms, limits.topics, limits.collections, limits.group_partitions),
        (30, 40, 45, 47)
    );
    assert_eq!((file.limits.body_bytes(), file.limits.connections), (50, Some(60)));
    assert_eq!(file.limits.buffer_bytes(), 64 << 20);
    assert_eq!((file.limits.connection_events_per_s, file.limits.topic_events_per_s), (Some(70), Some(80)));
    assert_eq!((file.limits.header_timeout_ms, file.limits.body_timeout_ms), (Some(90), Some(100)));
    assert_eq!(
        (file.limits.send_timeout_ms, file.server.hosts.map(|hosts| hosts.len())),
        (Some(110), Some(2))
    );
    assert_eq!(file.topics.auto_create, Some(false));
    let names: Vec<_> = file.topics.named.keys().map(TopicName::as_str).collect();
    assert_eq!(names, ["plain", "process.state"]);
    let state = &file.topics.named[&TopicName::parse("process.state").unwrap()];
    assert_eq!((state.partitions, state.durability), (Some(8), Some(Durability::Interval)));
    assert_eq!(file.topics.named[&TopicName::parse("plain").unwrap()], TopicPatch::default());
}

#[test]
fn a_topic_may_have_the_name_of_the_switch() {
    let file = ConfigFile::parse("[topics.auto_create]\npartitions = 2").unwrap();
    assert_eq!(file.topics.auto_create, None);
    assert_eq!(file.topics.named[&TopicName::parse("auto_create").unwrap()].partitions, Some(2));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
    for (text, line, unknown, nearest) in [
        ("\n[server]\nlisten = \"a:1\"\nlissten = \"b:1\"", 4, "server.lissten", "server.listen"),
        ("[sever]", 1, "sever", "server"),
        ("listen = \"a:1\"", 1, "listen", "server.listen"),
        ("[limits]\nevent_byte = 1", 2, "limits.event_byte", "limits.event_bytes"),
        ("[store]\nevent_bytes = 1", 2, "store.event_bytes", "limits.event_bytes"),
        ("log_format = \"json\"", 1, "log_format", "log.format"),
        ("[server]\nlog_format = \"json\"", 2, "server.log_format", "log.format"),
        ("[server]\nlog_level = \"warn\"", 2, "server.log_level", "log.level"),
        ("[log]\nfromat = \"json\"", 2, "log.fromat", "log.format"),
        ("[logs]", 1, "logs", "log"),
        ("partitions = 8", 1, "partitions", "topics.\"NAME\".partitions"),
        ("[store]\ncompaction = true", 2, "store.compaction", "topics.\"NAME\".compaction"),
        ("[auth]\ntombstone = \"x\"", 2, "auth.tombstone", "projection.tombstone"),
        ("[topics]\nauto_crate = true", 2, "topics.auto_crate", "topics.auto_create"),
        ("[topics.\"a.b\"]\npartition = 1", 2, "topics.\"a.b\".partition", "topics.\"a.b\".partitions"),
        (
            "[topics.a.snapshot]\ntopic = \"b\"\nevery = 1",
            3,
            "topics.\"a\".snapshot.every",
            "topics.\"a\".snapshot.every_ms",
        ),
    ] {
        let expected = format!("unknown key {unknown}; the nearest known one is {nearest}");
        assert_eq!(problem(text), (Some(line), expected), "{text}");
    }
}

#[test]
fn a_topic_without_quotes_is_explained() {
    let (line, what) = problem("[topics.process.state]\npartitions = 2");
    assert_eq!(line, Some(1));
    assert!(what.contains("[topics.\"process.state\"]"), "{what}");
}

#[test]
fn schemas_follow_each_other_by_a_rule_that_is_known() {
    let folder = |text: &str| ConfigFile::parse(text).unwrap().schemas.folder().unwrap();
    assert_eq!(folder("[schemas]\ncompat = \"full\""), None);
    let found = folder("[schemas]\ndir = \"x\"\ncompat = \"full_transitive\"\npolicy = \"strict\"").unwrap();
    assert_eq!(found.dir, std::path::PathBuf::from("x"));
    assert_eq!(
        (found.rule.demand.to_string().as_str(), found.rule.policy.to_string().as_str()),
        ("full_transitive", "strict")
    );
    for name in ["compat", "policy"] {
        let (_, what) = problem(&format!("[schemas]\n{name} = \"sideways\""));
        assert!(what.starts_with(&format!("schemas.{name}: \"sideways\" is not known")), "{what}");
    }
    let (line, what) = problem("[schemas]\ndri = \"x\"");
    assert_eq!(
        (line, what.as_str()),
        (Some(2), "unknown key schemas.dri; the nearest known one is schemas.dir")
    );
}

#[test]
fn a_limit_of_nothing_is_named() {
    for name in ["event_bytes", "commit_bytes", "topics", "collections", "connections", "body_timeout_ms"] {
        let (_, what) = problem(&format!("[limits]\n{name} = 0"));
        assert_eq!(what, format!("limits.{name} must be at least 1"));
    }
}

#[test]
fn a_value_of_the_wrong_type_is_told_with_its_key_and_what_it_should_be() {
    for (text, told) in [
        ("[server]\nlisten = 7", "server.listen: invalid type: integer, expected a string"),
        ("[server]\nhosts = [\"a\", 5]", "server.hosts: invalid type: integer, expected a string"),
        ("[topics]\nauto_create = \"yes\"", "topics.auto_create: expected true or false"),
        (
            "[topics.\"a.b\"]\npartitions = \"8\"",
            "topics.\"a.b\".partitions: invalid type: string, expected a whole number, 0 or more",
        ),
        (
            "[topics.a.snapshot]\ntopic = \"b\"\nevery_ms = \"1\"",
            "topics.\"a\".snapshot.every_ms: invalid type: string, expected a whole number, 0 or more",
        ),
        ("[topics.a.snapshot]\ntopic = \"b\"", "topics.\"a\".snapshot: missing field `every_ms`"),
        ("[limits]\nconnections = -1", "limits.connections: invalid value"),
        ("[store]\nmemory = 1", "store.memory: invalid type: integer, expected true or false"),
        ("[auth]\nmode = \"jtw\"", "auth.mode: unknown variant"),
        ("[auth]\ntokens = [{ token = 5 }]", "auth.tokens.token: invalid type: integer, expected a string"),
        ("[collections.c]\nindexes = [[5]]", "collections.\"c\".indexes: an index is"),
        ("server = 5", "server: invalid type: integer, expected a table"),
        ("projection = 5", "invalid type: integer, expected a list"),
    ] {
        let (line, what) = problem(text);
        assert!(line.is_some() && what.starts_with(told), "{text}: {what}");
    }
}

#[test]
fn wrong_types_and_values_are_told_with_their_line() {
    for (text, line) in [
        ("[server]\nlisten = 7", Some(2)),
        ("[topics]\nauto_create = \"yes\"", Some(2)),
        ("[topics.a]\npartitions = -1", Some(2)),
        ("[server]\nlisten = ", Some(2)),
        ("[log]\nformat = \"xml\"", None),
        ("[log]\nlevel = \"loud\"", None),
        ("[log]\nlevel = 3", Some(2)),
        ("[store]\ndata = \"d\"\nmemory = true", None),
        ("[store]\ndata = \"d\"\nurl = \"mongodb://h/db\"", None),
        ("[store]\nclean_every_ms = 0", None),
        ("[store]\nwait_ms = 0", None),
        ("[topics.a]\nretention_ms = 1\nretention_days = 1", Some(1)),
        ("[limits]\nevent_bytes = 9000000", None),
        ("[topics.A]", Some(1)),
        ("[server]\ntls_cert = \"c\"", None),
        ("[server]\nallow_origins = [\"app.example\"]", None),
        ("[server]\nallow_origins = [\"https://app.example/\"]", None),
        ("[limits]\nconnections = 0", None),
        ("[limits]\nsend_timeout_ms = 0", None),
        ("[limits]\nbuffer_bytes = 67108863", None),
        ("[limits]\nbuffer_bytes = 67108864\nbody_bytes = 16777217", None),
        ("[server]\nhosts = [\"hub:7070\"]", None),
        ("[server]\nhosts = [\"http://hub\"]", None),
        ("[limits]\nresult_bytes = 16777215", None),
        ("[limits]\nresult_bytes = 16777217\ncommit_bytes = 8388609", None),
        ("[limits]\nresult_bytes = 536870913", None),
        ("[topics.\"dlq.a\"]", None),
        ("[topics.a]\npartitions = 0", None),
    ] {
        let (at, what) = problem(text);
        assert_eq!(at, line, "{text}: {what}");
    }
}

/// Four times as much is more than a number holds, and is not taken for the largest that it does.
#[test]
fn a_body_that_no_buffer_is_large_enough_for_is_refused() {
    let largest = usize::MAX / 4;
    for (limits, least) in [
        (format!("body_bytes = {}", largest + 1), (largest as u128 + 1) * 4),
        ("body_bytes = 9223372036854775807".into(), 36_893_488_147_419_103_228),
        ("body_bytes = 18446744073709551615".into(), 73_786_976_294_838_206_460),
        (
            "buffer_bytes = 18446744073709551615\nbody_bytes = 9223372036854775807".into(),
            36_893_488_147_419_103_228,
        ),
    ] {
        let (_, what) = problem(&format!("[limits]\n{limits}"));
        let expected = format!("limits.buffer_bytes must be at least {least} (");
        assert!(what.contains(&expected), "{limits}: {what}");
    }
    let file = ConfigFile::parse(&format!("[limits]\nbody_bytes = {largest}")).unwrap();
    assert_eq!(file.limits.buffer_bytes(), largest * 4);
}
