//! The page in `examples/browser` shows live events over both transports, in a real browser.

use crate::common::Hub;
use crate::examples_support::page::{Page, Served};
use serde_json::json;

/// A hub that lets pages of this origin in.
fn hub_for(origin: &str) -> Hub {
    let file = format!("[server]\nallow_origins = [\"{origin}\"]\n");
    Hub::with_file(&file, &["--store", "memory"])
}

fn open(served: &Served, hub: &Hub) -> Page {
    Page::open(&format!("{}/?hub={}&topic=live&group=page", served.origin, hub.url))
}

/// An expression that is true when a pane's state starts like this.
fn state(pane: &str, start: &str) -> String {
    format!("document.getElementById('{pane}-state').textContent.startsWith('{start}')")
}

/// An expression for the lines of a pane, once there are so many.
fn lines(pane: &str, count: usize) -> String {
    let items = format!("[...document.querySelectorAll('#{pane} > li')]");
    format!("{items}.length >= {count} && {items}.map((item) => item.textContent)")
}

#[test]
fn the_page_shows_events_over_both_transports() {
    let served = Served::file("examples/browser/index.html");
    let hub = hub_for(&served.origin);
    let mut page = open(&served, &hub);
    page.wait(&state("ws", "live"));
    page.wait(&state("sse", "live"));
    for number in 1..=3 {
        hub.run(&["pub", "live", &format!(r#"{{"n":{number}}}"#), "--key", "k"]).ok();
    }
    let shown = json!([r#"0 k {"n":1}"#, r#"1 k {"n":2}"#, r#"2 k {"n":3}"#]);
    assert_eq!(page.wait(&lines("ws", 3)), shown);
    assert_eq!(page.wait(&lines("sse", 3)), shown);
    page.wait(&state("ws", "live, 3 acked"));
    page.close();

    hub.run(&["pub", "live", r#"{"n":4}"#]).ok();
    let next = hub.run(&["sub", "live", "--group", "page", "--max", "1"]).ok();
    assert!(next.contains(r#""payload":{"n":4}"#), "what the page acked does not come again: {next}");
}

#[test]
fn an_event_is_text_to_the_page_and_never_markup() {
    let served = Served::file("examples/browser/index.html");
    let hub = hub_for(&served.origin);
    let mut page = open(&served, &hub);
    page.wait(&state("sse", "live"));
    hub.run(&["pub", "live", r#""<img src=x onerror=document.title='bad'>""#]).ok();
    for pane in ["ws", "sse"] {
        let shown = page.wait(&lines(pane, 1));
        assert!(shown[0].as_str().unwrap().contains("<img"), "{shown}");
        page.wait(&format!("document.querySelector('#{pane} img') === null"));
    }
    page.close();
}

#[test]
fn a_page_of_an_origin_that_the_hub_does_not_know_is_shut_out() {
    let served = Served::file("examples/browser/index.html");
    let hub = hub_for("http://localhost:1");
    let mut page = open(&served, &hub);
    page.wait(&state("ws", "closed"));
    let stream = format!("new EventSource('{}/v1/topics/live/events')", hub.url);
    hub.run(&["pub", "live", "1"]).ok();
    let refused = format!(
        "new Promise((told) => {{ const s = {stream}; s.onmessage = () => told('read'); \
         s.onerror = () => told('refused'); }})"
    );
    assert_eq!(page.wait(&refused), "refused");
    page.close();
}
