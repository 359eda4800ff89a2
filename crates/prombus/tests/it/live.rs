//! What streams of server-sent events do beyond the public contract, which `contract_sse` tests.

use crate::common::Hub;
use crate::ws_support::stream::Stream;

fn follow(hub: &Hub, topic: &str, query: &str) -> Stream {
    Stream::open(&hub.api(), topic, query)
}

#[test]
fn what_cannot_be_followed_is_refused_at_once() {
    let hub = Hub::start();
    hub.run(&["pub", "t", "1"]).ok();
    let refused = |topic, query| Stream::refused(&hub.api(), topic, query, None).status;
    assert_eq!(refused("none", "from=offset&offset=0"), 404);
    assert_eq!(refused("t", "limit=5"), 400);
}

#[test]
fn it_ends_with_the_topic_and_with_the_hub() {
    let hub = Hub::start();
    hub.run(&["pub", "t", "1"]).ok();
    hub.run(&["pub", "u", "1"]).ok();
    let mut live = follow(&hub, "t", "");
    live.next();
    hub.run(&["topics", "delete", "t"]).ok();
    let last = live.rest();
    assert_eq!((last.len(), last[0].kind.as_str()), (1, "error"), "{last:?}");
    assert!(last[0].data.contains("gone"), "{last:?}");
    let mut live = follow(&hub, "u", "");
    live.next();
    assert!(hub.stop().success(), "a stream does not keep the hub from ending");
    assert!(live.rest().is_empty());
}
