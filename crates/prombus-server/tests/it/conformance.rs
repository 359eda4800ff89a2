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
