//! The log keeps its promises over HTTP, through a real socket.

use crate::common;
use prombus_testkit::{HttpLog, Subject};
use std::sync::Arc;

async fn http() -> Subject {
    let served = common::start_with(common::Setup { auto_create: false, ..Default::default() }).await;
    let log = Arc::new(HttpLog::new(&format!("http://{}", served.address)));
    Subject { log, documents: None, clock: None, keep: Box::new(served) }
}

prombus_testkit::log_conformance!(http);

/// The same where each call goes to any of three hubs.
mod any_of_three {
    use crate::many_hubs::Cluster;
    use prombus_testkit::{HttpLog, Subject};
    use std::sync::Arc;

    async fn three_hubs() -> Subject {
        let cluster = Cluster::without_auto_create(3).await;
        let bases: Vec<String> = cluster.hubs.iter().map(|hub| hub.url("")).collect();
        let log = Arc::new(HttpLog::of_any(&bases));
        Subject { log, documents: None, clock: None, keep: Box::new(cluster) }
    }

    prombus_testkit::log_conformance!(three_hubs);
}
