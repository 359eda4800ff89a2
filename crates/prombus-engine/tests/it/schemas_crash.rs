//! The machine goes down in every disk operation of a hub with schemas, an upcaster and copies: what was registered stays so,
//! an event and its copy are there together or not at all, and a backup has all of it.

use crate::upcasts::stage::{normalized, numbers_of, shown};
use prombus_core::*;
use prombus_engine::query::Query;
use prombus_engine::schemas::upcast::Upcaster;
use prombus_engine::schemas::{NewSchema, Policy, Rule};
use prombus_engine::{Hub, HubOptions, Store};
use prombus_store_disk::{DiskOptions, DiskStore, Target, check_on};
use prombus_testkit::SimDisk;
use prombus_testkit::sim_disk::Crash;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

const DIR: &str = "/data";
/// How many events each version has.
const EVENTS: u64 = 6;
/// What is below this is trimmed.
const TRIMMED: u64 = 2;
/// A key that is forgotten, in copies too.
const SECRET_KEY: &str = "forgotten-key";

type Outcome = Result<(), Box<dyn Error>>;

fn topic() -> TopicName {
    TopicName::parse("t").unwrap()
}

/// The topic of copies of a version.
fn copies(version: u32) -> TopicName {
    topic().of_version(version).unwrap()
}

fn start(disk: &SimDisk) -> Result<(Hub, Arc<DiskStore>), Box<dyn Error>> {
    let options = DiskOptions {
        part_bytes: 4096,
        slow_open: std::time::Duration::MAX,
        clock: Arc::new(ManualClock::at(1_000_000)),
        seed: 1,
        ..DiskOptions::new(DIR)
    };
    let store = DiskStore::open_on(Arc::new(disk.clone()), options)?;
    let clock = Arc::new(ManualClock::at(1_000_000));
    let hub = Hub::assemble(Store::new(store.clone()), HubOptions { clock, ..HubOptions::default() });
    Ok((hub, store))
}

/// Events of the version that has this field, with ids, so that they are there once however often they are published.
async fn publish(hub: &Hub, version: u64, field: &str) -> Outcome {
    for n in version * EVENTS..(version + 1) * EVENTS {
        let key = if n % 4 == 3 { SECRET_KEY.to_owned() } else { format!("key-{}", n % 2) };
        let event = NewEvent {
            id: Some(Uuid::from_u128(u128::from(n) + 1)),
            key: Some(key.into()),
            ..NewEvent::new(Json::from_value(&json!({ field: n, "pad": "x".repeat(150) })))
        };
        hub.publish(vec![Append::new(topic(), event)]).await?;
    }
    Ok(())
}

async fn register(hub: &Hub, version: u32, field: &str) -> Outcome {
    let rule = Rule { demand: "none".parse()?, policy: Policy::Lenient };
    let text = Json::from_value(&numbers_of(&[field]));
    let new = NewSchema { version: Some(version), rule, compare_from: 0, text };
    hub.schemas().register(&topic(), &new).await?;
    Ok(())
}

/// How far a run has come, as the answers say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answered {
    #[default]
    Nothing,
    First,
    Published,
    Upcaster,
    Second,
    All,
    BackedUp,
    Forgotten,
    Cleaned,
}

/// Two versions with their events, a backup, and then some of it goes. Whatever is there already is not done twice.
async fn story(hub: &Hub, (store, backup): (&DiskStore, &SimDisk), answered: &mut Answered) -> Outcome {
    hub.put_topic(&topic(), TopicPatch { dual_write: Some(true), ..TopicPatch::default() }).await?;
    register(hub, 1, "a").await?;
    *answered = Answered::First;
    publish(hub, 0, "a").await?;
    *answered = Answered::Published;
    let upcaster: Upcaster = serde_json::from_value(json!({"ops": [{"rename": ["a", "b"]}]}))?;
    hub.schemas().put_upcaster(&topic(), 1, &upcaster).await?;
    *answered = Answered::Upcaster;
    register(hub, 2, "b").await?;
    *answered = Answered::Second;
    publish(hub, 1, "b").await?;
    *answered = Answered::All;
    back_up(store, backup).await?;
    *answered = Answered::BackedUp;
    hub.cleaning().trim(&topic(), Partition(0), Offset(TRIMMED)).await?;
    for name in [topic(), copies(1), copies(2)] {
        hub.forget(&name, SECRET_KEY).await?;
    }
    *answered = Answered::Forgotten;
    for name in [topic(), copies(1), copies(2)] {
        hub.cleaning().clean(&name).await?;
    }
    *answered = Answered::Cleaned;
    Ok(())
}

/// Takes a backup of the store into the folder on `disk`.
async fn back_up(store: &DiskStore, disk: &SimDisk) -> Outcome {
    let copy = store.hold().await?;
    let target = Target::open_on(Arc::new(disk.clone()), Path::new(DIR))?;
    let update = target.begin(copy.files())?;
    for wanted in update.wanted().to_vec() {
        let (name, bytes) = (wanted.name.clone(), wanted.bytes);
        let mut incoming = update.receive(wanted.from_the_start())?;
        while incoming.at() < bytes {
            incoming.write(&copy.read(&name, incoming.at(), 10_000).await?)?;
        }
        incoming.finish()?;
    }
    update.finish()?;
    Ok(())
}

/// Payloads with the versions that their events are stamped with.
type Shown = Vec<(Value, Option<String>)>;

async fn read(hub: &Hub, name: &TopicName, query: Query) -> Shown {
    if hub.topic(name).await.unwrap().is_none() {
        return Shown::new();
    }
    let mut reader = hub.read(name, query).await.unwrap().up_to_now();
    let mut all = Shown::new();
    loop {
        let page = reader.next_page(4).await.unwrap();
        all.extend(page.events.iter().map(shown));
        if page.next.is_none() {
            return all;
        }
    }
}

/// The topic, its copies, and what the topic reads like in its latest version.
async fn picture(hub: &Hub) -> [Shown; 4] {
    let plain = || Query { normalize: false, ..normalized() };
    [
        read(hub, &topic(), plain()).await,
        read(hub, &copies(1), plain()).await,
        read(hub, &copies(2), plain()).await,
        read(hub, &topic(), normalized()).await,
    ]
}

async fn ends(hub: &Hub, name: &TopicName) -> u64 {
    let Some(state) = hub.topic(name).await.unwrap() else { return 0 };
    hub.bounds(&state).await.unwrap()[0].next.0
}

/// What was answered is there, and every event has the copy that it should have.
async fn verify(hub: &Hub, answered: Answered, what: &str) {
    let [all, ..] = picture(hub).await;
    for (payload, version) in &all {
        let field = if payload.get("a").is_some() { "1" } else { "2" };
        assert_eq!(version.as_deref(), Some(field), "{what}: {payload}");
    }
    let (events, first, second) =
        (ends(hub, &topic()).await, ends(hub, &copies(1)).await, ends(hub, &copies(2)).await);
    assert_eq!((first, second), (events.min(EVENTS), events.saturating_sub(EVENTS)), "{what}: copies");
    let versions = hub.schemas().version(&topic(), None).await.map_or(0, |stored| stored.head.version);
    let upcaster = hub.schemas().upcaster(&topic(), 1).await.is_ok();
    for (after, holds) in [
        (Answered::First, versions >= 1),
        (Answered::Published, events >= EVENTS),
        (Answered::Upcaster, upcaster),
        (Answered::Second, versions == 2),
        (Answered::All, events == 2 * EVENTS),
        (Answered::Forgotten, all.len() < 2 * EVENTS as usize - 2),
    ] {
        assert!(holds || answered < after, "{what}: {after:?} was answered");
    }
}

/// A backup that is complete opens, and has what was there when it was taken.
async fn verify_backup(backup: &SimDisk, expected: &[Shown; 4], what: &str) {
    assert_eq!(check_on(backup, Path::new(DIR), &mut |_| {}).unwrap().problems, [], "{what}");
    let (hub, _) = start(&backup.copy()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(&picture(&hub).await, expected, "{what}: the backup");
    // It goes on: what follows is checked and copied.
    let bad = NewEvent::new(Json::from_value(&json!({"a": 1})));
    hub.publish(vec![Append::new(topic(), bad)]).await.expect_err("of no version");
    hub.close().await;
}

async fn crash_everywhere(crash: Crash) {
    let (whole, backup) = (SimDisk::new(), SimDisk::new());
    let (hub, store) = start(&whole).unwrap();
    let mut answered = Answered::default();
    story(&hub, (&store, &backup), &mut answered).await.unwrap();
    verify(&hub, answered, "without a crash").await;
    let expected = picture(&hub).await;
    assert!(expected[1].len() > 3 && expected[2].len() > 3, "copies are kept: {expected:?}");
    assert!(
        expected[3]
            .iter()
            .all(|(payload, version)| payload.get("b").is_some() && version.as_deref() == Some("2"))
    );
    assert!(store.status().extra("reclaimed_bytes") > 0, "parts are rewritten");
    let (backed_up, _) = start(&backup.copy()).unwrap();
    let before = picture(&backed_up).await;
    assert_eq!(
        [before[0].len(), before[1].len(), before[2].len()].map(|len| len as u64),
        [2 * EVENTS, EVENTS, EVENTS]
    );
    verify_backup(&backup, &before, "without a crash").await;
    hub.close().await;
    let operations = whole.operations();
    for at in 1..=operations + 3 {
        let what = format!("{crash:?} in operation {at} of {operations}");
        let (disk, backup) = (SimDisk::new(), SimDisk::new());
        disk.restart(at * 31);
        disk.crash_at(at, crash);
        let mut answered = Answered::default();
        if let Ok((hub, store)) = start(&disk) {
            // Where it has come to is in the answers.
            let _ = story(&hub, (&store, &backup), &mut answered).await;
        }
        disk.crash(crash);
        disk.restart(at * 1_000);
        if answered >= Answered::BackedUp {
            verify_backup(&backup, &before, &what).await;
        }
        let (hub, store) = start(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        verify(&hub, answered, &what).await;
        story(&hub, (&store, &backup), &mut answered).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(picture(&hub).await, expected, "{what}");
        hub.close().await;
        drop((hub, store));
        assert_eq!(check_on(&disk, Path::new(DIR), &mut |_| {}).unwrap().problems, [], "{what}");
        assert_eq!(disk.holding(SECRET_KEY.as_bytes()), [""; 0].map(std::path::PathBuf::from), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_every_operation_keeps_schemas_and_copies() {
    crash_everywhere(Crash::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_in_every_operation_keeps_schemas_and_copies() {
    crash_everywhere(Crash::PowerCut).await;
}
