//! A hub, and stored projections whose expressions are not compiled yet.

use super::*;
use crate::Store;
use crate::hub::{Hub, HubOptions};
use crate::projections::ProjectionState;
use prombus_core::{Commit, DocumentWrite, EventLogExt, Json, SystemClock, WriteOp};
use prombus_store_memory::MemoryStore;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn hub_on(store: &Arc<MemoryStore>) -> Hub {
    Hub::assemble(Store::new(store.clone()), HubOptions::default())
}

fn definition(collection: &str) -> Definition {
    let json = json!({"topic": "t", "collection": collection, "key": "event.key"});
    serde_json::from_value(json).unwrap()
}

async fn state(hub: &Hub, name: &str) -> ProjectionState {
    hub.projections().get(name).await.unwrap().state
}

/// How it is doing once it has started.
async fn started(hub: &Hub, name: &str) -> ProjectionState {
    loop {
        match state(hub, name).await {
            ProjectionState::Starting | ProjectionState::Running => tokio::task::yield_now().await,
            state => return state,
        }
    }
}

/// On a clock that goes ahead when there is nothing else to do.
#[tokio::test(start_paused = true)]
async fn a_hub_starts_before_its_projections_are_compiled() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), 1));
    let hub = hub_on(&store);
    for (name, collection) in [("good", "a"), ("old", "b")] {
        hub.projections().put(name, definition(collection)).await.unwrap();
    }
    hub.projections().close().await;
    let old = json!({"topic": "t", "collection": "b", "key": "of_an_earlier.build("});
    let old = Json::from_value(&json!({"definition": old, "made": old}));
    let write = DocumentWrite::new(&stored::collection_name(), "old", WriteOp::Set(old));
    store.commit(Arc::new(Commit { documents: vec![write], ..Commit::default() })).await.unwrap();

    let hub = hub_on(&store);
    let compiling = hub.projections().hub.compiling.lock().await;
    hub.projections().start().await.unwrap();
    for name in ["good", "old"] {
        assert_eq!(state(&hub, name).await, ProjectionState::Starting);
        let refused = hub.projections().rebuild(name, false).await;
        assert!(matches!(refused, Err(ProjectionError::Read(ReadError::Unavailable(_)))), "{refused:?}");
    }
    let waiting = ProjectionState::Waiting(TopicName::parse("t").unwrap());
    hub.projections().put("new", definition("c")).await.unwrap();
    assert_eq!(started(&hub, "new").await, waiting, "nobody else waits for them");
    drop(compiling);
    assert_eq!(started(&hub, "good").await, waiting);
    let ProjectionState::Stopped(reason) = started(&hub, "old").await else { panic!("it has no reason") };
    assert!(reason.contains("does not compile"), "{reason}");
    assert!(hub.projections().rebuild("good", false).await.is_ok());
    hub.close().await;
}

/// Takes a change as long as nobody has forbidden it.
#[derive(Clone, Default)]
struct Guard {
    asked: Arc<AtomicUsize>,
    forbids: Arc<AtomicBool>,
}

impl Guard {
    fn ask(&self) -> Result<(), ProjectionError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let forbids = self.forbids.load(Ordering::SeqCst);
        if forbids { Err(ProjectionError::Bad("forbidden".into())) } else { Ok(()) }
    }
}

/// Has `change` wait for the turn, and forbids it then.
async fn is_refused<T: std::fmt::Debug>(
    projections: &Projections,
    guard: &Guard,
    change: impl Future<Output = Result<T, ProjectionError>>,
) {
    let turn = projections.turn().await.unwrap();
    let mut change = std::pin::pin!(change);
    for _ in 0..1_000 {
        assert!(futures::poll!(change.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    guard.forbids.store(true, Ordering::SeqCst);
    drop(turn);
    let refused = change.await;
    assert!(matches!(&refused, Err(ProjectionError::Bad(why)) if why == "forbidden"), "{refused:?}");
    assert!(guard.asked.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn who_may_change_a_projection_is_asked_where_nobody_else_changes_it() {
    let hub = hub_on(&Arc::new(MemoryStore::new(Arc::new(SystemClock), 1)));
    let projections = hub.projections();
    projections.put("p", definition("a")).await.unwrap();
    let guard = Guard::default();
    let asking = guard.clone();
    let put = projections.put_if("p", definition("b"), move |_| asking.ask());
    is_refused(projections, &guard, put).await;
    let guard = Guard::default();
    let asking = guard.clone();
    is_refused(projections, &guard, projections.delete_if("p", move |_| asking.ask())).await;
    let guard = Guard::default();
    is_refused(projections, &guard, projections.rebuild_if("p", false, |_| guard.ask())).await;
    assert_eq!(projections.get("p").await.unwrap().definition, definition("a"));
    hub.close().await;
}

#[tokio::test]
async fn what_earlier_definitions_wrote_is_told_to_whoever_decides_about_a_removal() {
    let hub = hub_on(&Arc::new(MemoryStore::new(Arc::new(SystemClock), 1)));
    let projections = hub.projections();
    for collection in ["a", "b"] {
        projections.put("p", definition(collection)).await.unwrap();
    }
    let told = projections.delete_if("p", |holdings| {
        Err(ProjectionError::Bad(format!("{:?} {:?}", holdings.collections, holdings.left_behind)))
    });
    assert_eq!(told.await.unwrap_err().to_string(), r#"["b"] ["a"]"#);
    assert_eq!(state(&hub, "p").await, ProjectionState::Waiting(TopicName::parse("t").unwrap()));
    hub.close().await;
}

#[tokio::test]
async fn a_hub_ends_though_its_projections_are_not_compiled() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock), 1));
    let hub = hub_on(&store);
    for (name, collection) in [("p", "a"), ("q", "b")] {
        hub.projections().put(name, definition(collection)).await.unwrap();
    }
    hub.projections().close().await;
    let hub = hub_on(&store);
    let _compiling = hub.projections().hub.compiling.lock().await;
    hub.projections().start().await.unwrap();
    hub.projections().delete("p").await.unwrap();
    hub.close().await;
}
