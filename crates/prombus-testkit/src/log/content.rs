//! Events reach the reader as the producer gave them.

use crate::Subject;
use crate::build::{Draft, event, json, partitions};
use prombus_core::{Event, NewEvent, TopicName};

const PAYLOADS: [&str; 18] = [
    "null",
    "true",
    "0",
    "-0",
    "1.10",
    "1e400",
    "-0.0e+1",
    "123456789012345678901234567890.000",
    r#""""#,
    r#""\u00e9\ud83d\ude00\/\n\u0000""#,
    "\"é😀\u{7f}\u{2028}\"",
    "[]",
    "{}",
    r#"{"b":1,"a":2,"b":3}"#,
    r#"{"":{"":[[[[]]]]}}"#,
    r#"[1,1.0,1.00,10e-1]"#,
    r#"{"payload":null,"id":"x","offset":7}"#,
    r#""  white  space  inside  ""#,
];

/// Every read gives the payload digit for digit.
pub async fn payloads_come_back_byte_for_byte(s: Subject) {
    let topic = s.create("payloads", partitions(1)).await;
    let draft = |n: usize| event(PAYLOADS[n]).key(&format!("k{n}"));
    let receipt = s.published(&topic, (0..PAYLOADS.len()).map(draft)).await;
    s.assert_holds(&topic, 0, &PAYLOADS).await;
    for (n, appended) in receipt.iter().enumerate() {
        let key = format!("k{n}");
        let reads = [
            s.by_id(&topic, appended.id).await,
            s.latest(&topic, &key).await,
            s.history(&topic, &key, 10).await.pop(),
        ];
        for found in reads {
            let payload = found.map(|event| event.payload);
            assert_eq!(payload, Some(json(PAYLOADS[n])), "every read gives the payload byte for byte");
        }
    }
}

/// Optional fields are carried as given, and absent where they were not.
pub async fn optional_fields_are_carried_or_absent(s: Subject) {
    let topic = s.create("fields", partitions(1)).await;
    let fill = [
        |event: &mut NewEvent| event.key = Some("k".into()),
        |event: &mut NewEvent| event.ts = Some(7),
        |event: &mut NewEvent| event.sid = Some(json(r#""s-\u0031""#).into()),
        |event: &mut NewEvent| {
            event.headers = Some(json(r#"{"x-b":"2","x-a":"","content-type":"t/p"}"#).into())
        },
        |event: &mut NewEvent| event.caused_by = Some(json(r#"["0198c0de","b"]"#).into()),
        |event: &mut NewEvent| event.tags = Some(json(r##"["#stt","",""]"##).into()),
    ];
    // Every subset once, so that no field can take the place of another.
    let subsets = 0..1usize << fill.len();
    let drafts: Vec<Draft> = subsets
        .map(|subset| {
            let mut draft = event("1");
            fill.iter()
                .enumerate()
                .filter(|(n, _)| subset >> n & 1 == 1)
                .for_each(|(_, f)| f(&mut draft.event));
            draft
        })
        .collect();
    s.published(&topic, drafts.iter().cloned()).await;
    let events = s.all(&topic, 0).await;
    assert_eq!(events.len(), drafts.len());
    for (event, draft) in events.into_iter().zip(drafts) {
        assert_carried(&topic, event, &draft.event);
    }
}

fn assert_carried(topic: &TopicName, event: Event, given: &NewEvent) {
    assert_eq!(&event.topic, topic, "an event knows its topic");
    let carried = NewEvent {
        id: None,
        ts: given.ts.map(|_| event.ts),
        key: event.key,
        sid: event.sid,
        headers: event.headers,
        payload: event.payload,
        caused_by: event.caused_by,
        tags: event.tags,
    };
    assert_eq!(&carried, given, "optional fields are carried as given, and absent where they were not");
}

/// Keys are any text.
pub async fn keys_are_any_text(s: Subject) {
    let topic = s.create("texts", partitions(4)).await;
    let long = "k".repeat(1024);
    let keys = [
        ".",
        "..",
        "a b",
        "a/b",
        "/",
        "quote\"back\\slash",
        "line\nbreak",
        "per%2Fcent",
        "a+b&c=d?e#f",
        "ключ/🔑",
        &long,
    ];
    let receipt = s.published(&topic, keys.iter().map(|key| event("1").key(key))).await;
    for (key, appended) in keys.iter().zip(&receipt) {
        let found = s.latest(&topic, key).await.map(|event| (event.id, event.key));
        assert_eq!(found, Some((appended.id, Some((*key).into()))), "a key is any text");
        assert_eq!(s.history(&topic, key, 10).await.len(), 1, "keys that differ are different keys");
    }
}

/// The empty text is a key like any other, and not the absence of one.
pub async fn an_empty_key_is_a_key(s: Subject) {
    let topic = s.create("empty-key", partitions(1)).await;
    s.published_one(&topic, event("1")).await;
    assert_eq!(s.latest(&topic, "").await, None, "an event without a key has no key");
    let first = s.published_one(&topic, event("2").key("").expecting(None)).await;
    assert_eq!(s.latest(&topic, "").await.map(|event| event.id), Some(first.id), "the empty text is a key");
    assert_eq!(s.history(&topic, "", 5).await.len(), 1);
}

/// Events of up to half a megabyte are carried like any other.
pub async fn large_events_are_carried(s: Subject) {
    let topic = s.create("large", partitions(1)).await;
    let mut rng = fastrand::Rng::with_seed(2);
    let payloads: Vec<String> = [1 << 10, 1 << 16, (1 << 16) + 1, 1 << 19]
        .map(|length| {
            let text: String = (0..length).map(|_| rng.alphanumeric()).collect();
            format!("\"{text}\"")
        })
        .into();
    for payload in &payloads {
        s.published_one(&topic, event(payload)).await;
    }
    s.assert_holds(&topic, 0, &payloads.iter().map(String::as_str).collect::<Vec<_>>()).await;
}
