//! Limits of groups.

use crate::common::{self, start_with};

#[tokio::test]
async fn there_are_only_so_many_partitions_of_groups() {
    let mut setup = common::Setup::default();
    setup.limits.group_partitions = 29;
    let hub = start_with(setup).await;
    hub.put("/v1/topics/wide", r#"{"partitions":15}"#).await.is(201);
    hub.put("/v1/topics/wide/groups/first", "{}").await.is(201);
    let refused = [
        hub.put("/v1/topics/wide/groups/second", "{}").await,
        hub.post("/v1/topics/wide/groups/second/pull", "{}").await,
    ];
    for refused in refused {
        let error = refused.is_error(413, "too_large");
        assert_eq!(error["limit"], 29);
        assert!(error["message"].as_str().unwrap().contains("limits.group_partitions"), "{error}");
    }
    hub.get("/v1/topics/wide/groups/second").await.is_error(404, "not_found");
    // Groups have all partitions that their topic has, so it does not grow beyond that either.
    hub.put("/v1/topics/wide", r#"{"partitions":30}"#).await.is_error(413, "too_large");
    hub.put("/v1/topics/wide", r#"{"partitions":16}"#).await.is(200);
    hub.put("/v1/topics/wide", r#"{"partitions":29}"#).await.is(200);
    hub.put("/v1/topics/wide", r#"{"partitions":30,"retention_days":7}"#).await.is_error(413, "too_large");
    hub.put("/v1/topics/wide", r#"{"retention_days":7}"#).await.is(200);
    hub.put("/v1/topics/free", r#"{"partitions":5}"#).await.is(201);
    hub.put("/v1/topics/free", r#"{"partitions":1024}"#).await.is(200);
    // Those that are there go on, and one that goes makes room.
    hub.post("/v1/topics/wide/groups/first/pull", "{}").await.is(200);
    hub.delete("/v1/topics/wide/groups/first").await.is(204);
    hub.put("/v1/topics/wide/groups/second", "{}").await.is(201);
}
