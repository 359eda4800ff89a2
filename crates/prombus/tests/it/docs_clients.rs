//! The programs in the documents that are in Python, JavaScript and HTML: they run as they stand, and where a document says
//! that they outlive the hub, through crashes and restarts of it.

use crate::auth_support::tls::Identity;
use crate::auth_support::{put_file, until};
use crate::client_support::Spot;
use crate::common::{binary, run};
use crate::docs_support::{Block, blocks_of, documents};
use crate::examples_support::page::{Page, Served};
use crate::examples_support::{Running, project, shell};
use serde_json::Value;
use std::path::Path;

/// What a block is put through.
pub type Trial = fn(&Block);

/// The blocks that have a name, and the trial of each.
pub const PROGRAMS: &[(&str, Trial)] = &[
    ("python", |block| outlives_the_hub(&PYTHON, &block.text)),
    ("python-tls", |block| talks_tls(&PYTHON, block)),
    ("node", |block| outlives_the_hub(&NODE, &block.text)),
    ("node-tls", |block| talks_tls(&NODE, block)),
    ("browser", browser),
    ("websocket", websocket),
];

#[test]
fn programs_work_as_they_stand() {
    std::thread::scope(|scope| {
        for (name, put_through) in PROGRAMS {
            // A failure tells the name of its thread.
            let thread = std::thread::Builder::new().name((*name).to_owned());
            thread.spawn_scoped(scope, move || put_through(&named(name))).unwrap();
        }
    });
}

fn named(name: &str) -> Block {
    let mut blocks = documents().into_iter().flat_map(|document| blocks_of(&document));
    blocks.find(|block| block.noted("test") == Some(name)).unwrap_or_else(|| panic!("no block is {name}"))
}

/// How a consumer is started.
struct Language {
    /// The name of the block that has the consumer.
    consumer: &'static str,
    /// How the documents start it, and how that works in the folder of a test.
    started: (&'static str, &'static str),
    /// Packages of Node are found from the folder of the script.
    file: &'static str,
}

const PYTHON: Language = Language {
    consumer: "python",
    started: ("python3 billing.py", "exec examples/python/.venv/bin/python billing.py"),
    file: "billing.py",
};

const NODE: Language = Language {
    consumer: "node",
    started: ("node billing.mjs", "exec node examples/node/billing.mjs"),
    file: "examples/node/billing.mjs",
};

/// A hub for the consumer of orders.
struct Shop {
    hub: Spot,
    /// What the hub's own commands need besides its address.
    args: Vec<String>,
    published: u64,
}

impl Shop {
    fn new(hub: Spot, args: &[&str]) -> Self {
        Self { hub, args: args.iter().map(|arg| (*arg).to_owned()).collect(), published: 0 }
    }

    fn ask(&self, args: &[&str]) -> Option<String> {
        let mut command = binary(Path::new("/"));
        command.args(["--url", &self.hub.url()]).args(&self.args).args(args);
        let said = run(command, b"");
        (said.code == Some(0)).then_some(said.stdout)
    }

    /// Publishes the next order; its number.
    #[track_caller]
    fn order(&mut self) -> u64 {
        self.published += 1;
        let number = self.published;
        let order = format!(r#"{{"number": {number}, "customer": "c-7", "cents": {}}}"#, number * 100);
        self.ask(&["pub", "orders", &order]).unwrap();
        number
    }

    fn total(&self) -> Option<Value> {
        self.ask(&["get", "totals", "c-7"]).map(|text| serde_json::from_str(&text).unwrap())
    }

    /// Waits until the group has settled everything, and looks whether each order counted once.
    #[track_caller]
    fn each_counted_once(&self) {
        let all_settled = || {
            let group = self.ask(&["groups", "show", "orders", "billing"]);
            let group: Value = serde_json::from_str(&group.unwrap()).unwrap();
            group["partitions"][0]["lag"] == 0
        };
        until("the group settles everything", all_settled);
        let (orders, total) = (self.published, self.total().unwrap());
        assert_eq!(total["orders"], orders, "{total}");
        assert_eq!(total["cents"], orders * (orders + 1) / 2 * 100, "{total}");
    }
}

/// Reads what the consumer prints until it has handled an order. What was not acked may come again, so it may also
/// print earlier ones.
#[track_caller]
fn handles(consumer: &mut Running, number: u64) {
    while consumer.line() != number.to_string() {}
}

fn outlives_the_hub(language: &Language, program: &str) {
    let (folder, mut shop) = (project(), Shop::new(Spot::start(), &[]));
    std::fs::write(folder.path().join(language.file), program).unwrap();
    let first = shop.order();
    let mut consumer = Running::start(shell(language.started.1, folder.path(), &shop.hub.url()));
    handles(&mut consumer, first);
    let end: [fn(&mut Spot); 4] = [Spot::kill, Spot::stop, Spot::kill, Spot::kill];
    for end in end {
        // The hub goes while there is work.
        let some: Vec<u64> = (0..20).map(|_| shop.order()).collect();
        handles(&mut consumer, some[0]);
        end(&mut shop.hub);
        shop.hub.start_again();
        let next = shop.order();
        handles(&mut consumer, next);
    }
    shop.each_counted_once();

    // The program itself may be killed as well.
    let some: Vec<u64> = (0..20).map(|_| shop.order()).collect();
    handles(&mut consumer, some[0]);
    drop(consumer);
    let mut consumer = Running::start(shell(language.started.1, folder.path(), &shop.hub.url()));
    let last = shop.order();
    handles(&mut consumer, last);
    shop.each_counted_once();
}

/// The consumer works with TLS and a token, started as the block says.
fn talks_tls(language: &Language, block: &Block) {
    let (folder, place, identity) = (project(), tempfile::tempdir().unwrap(), Identity::new());
    let tokens = "[auth]\nmode = \"token\"\ntokens = [\n\
                  { token = \"all-of-it\", scopes = [\"*:**\"] },\n\
                  { token = \"billing-only\", scopes = [\"subscribe:orders\", \"publish:totals\"] }]\n";
    std::fs::write(place.path().join("prombus.toml"), tokens).unwrap();
    identity.files().iter().for_each(|(name, text)| put_file(&place.path().join(name), text));
    std::fs::write(folder.path().join("ca.pem"), &identity.cert_pem).unwrap();
    std::fs::write(folder.path().join(language.file), named(language.consumer).text).unwrap();
    let hub = Spot::with(place, &["--tls-cert", "hub.pem", "--tls-key", "hub.key"]);
    let ca_cert = folder.path().join("ca.pem");
    let mut shop = Shop::new(hub, &["--token", "all-of-it", "--ca-cert", ca_cert.to_str().unwrap()]);

    let localhost = shop.hub.url().replace("127.0.0.1", "localhost");
    let (as_written, started) = language.started;
    assert!(block.text.contains("https://hub.example:7070") && block.text.contains(as_written), "{block:?}");
    let script = block.text.replace("https://hub.example:7070", &localhost).replace(as_written, started);
    let with = |token: &str| script.replace("PROMBUS_TOKEN=...", &format!("PROMBUS_TOKEN={token}"));
    let order = shop.order();
    let mut consumer = Running::start(shell(&with("billing-only"), folder.path(), ""));
    handles(&mut consumer, order);
    shop.each_counted_once();
    shop.hub.kill();
    shop.hub.start_again();
    let order = shop.order();
    handles(&mut consumer, order);
    shop.each_counted_once();
    drop(consumer);

    let said = run(shell(&with("a-bad-one"), folder.path(), ""), b"");
    assert!(said.code != Some(0) && said.stderr.contains("401"), "a bad token ends it: {said:?}");
}

/// A page that keeps what a block writes to the console.
fn page_of(block: &str) -> Served {
    let keep = "<script>const seen = []; console.log = (...all) => seen.push(all.join(' '));</script>\n";
    Served::page(format!("{keep}{block}"))
}

/// A hub with this configuration besides one that lets a page in.
fn hub_for(page: &Served, more: &str) -> Shop {
    let place = tempfile::tempdir().unwrap();
    let config = format!("[server]\nallow_origins = [\"{}\"]\n{more}", page.origin);
    std::fs::write(place.path().join("prombus.toml"), config).unwrap();
    Shop::new(Spot::with(place, &[]), &[])
}

/// Publishes orders until the page has seen a new one over each of these.
#[track_caller]
fn sees_orders(page: &mut Page, shop: &mut Shop, ways: &[&str]) {
    let mut missing: Vec<(&str, u64)> = ways.iter().map(|way| (*way, shop.published + 1)).collect();
    until("the page sees orders over each way", || {
        let last = shop.order();
        let seen = page.wait("new Promise((later) => setTimeout(() => later([seen]), 200))");
        let seen = seen[0].as_array().unwrap();
        missing.retain(|(way, from)| (*from..=last).all(|n| !seen.contains(&format!("{way} {n}").into())));
        missing.is_empty()
    });
}

/// The numbers that came this way, which must be in a row from the first to the last that there is.
#[track_caller]
fn misses_nothing(page: &mut Page, shop: &Shop, way: &str) {
    let last = shop.published;
    let seen = page.wait(&format!("seen.includes('{way} {last}') && seen"));
    let seen = seen
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|line| line.as_str()?.strip_prefix(way)?.trim().parse().ok());
    let mut numbers: Vec<u64> = seen.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let all: Vec<u64> = (numbers[0]..=last).collect();
    assert_eq!(numbers, all, "over {way}");
}

fn browser(block: &Block) {
    // The page is served before its hub is there, because the hub has to know where from.
    let served = page_of("");
    let mut shop = hub_for(&served, "");
    let first = shop.order();
    assert_eq!(first, 1, "the topic is there, so that it can be followed");
    let mut page = open(&served, block, &shop, "null");
    sees_orders(&mut page, &mut shop, &["ws", "sse"]);
    for end in [Spot::kill, Spot::stop] {
        end(&mut shop.hub);
        shop.hub.start_again();
        sees_orders(&mut page, &mut shop, &["ws", "sse"]);
    }
    misses_nothing(&mut page, &shop, "ws");
    misses_nothing(&mut page, &shop, "sse");
    page.close();

    let tokens = "[auth]\nmode = \"token\"\ntokens = [{ token = \"a-token\", scopes = [\"*:**\"] }]\n";
    let mut shop = hub_for(&served, tokens);
    shop.args = vec!["--token".into(), "a-token".into()];
    let mut page = open(&served, block, &shop, "\"a-token\"");
    sees_orders(&mut page, &mut shop, &["ws"]);
    page.close();
}

/// Opens the page with the script of the block in it.
fn open(served: &Served, block: &Block, shop: &Shop, token: &str) -> Page {
    let script = block.text.replace("http://localhost:7070", &shop.hub.url());
    assert!(script.contains("const token = null;"), "{script}");
    let script = script.replace("const token = null;", &format!("const token = {token};"));
    let mut page = Page::open(&served.origin);
    let inner = script.split_once('>').unwrap().1.rsplit_once("</script>").unwrap().0;
    let add =
        "document.head.append(Object.assign(document.createElement('script'), { type: 'module', textContent:";
    page.wait(&format!("{add} {} }})) ?? true", serde_json::to_string(inner).unwrap()));
    page
}

/// What the guide shows for browsers runs in Node too, which has the same class in a package.
fn websocket(block: &Block) {
    let (folder, hub) = (project(), Spot::start());
    let script = block.text.replace("localhost:7070", &hub.address);
    let script = format!("globalThis.WebSocket = (await import(\"ws\")).default;\n{script}");
    std::fs::write(folder.path().join("examples/node/websocket.mjs"), script).unwrap();
    let mut node = Running::start(shell("exec node examples/node/websocket.mjs", folder.path(), &hub.url()));
    assert_eq!(node.line(), "{ job: 4 }");
}
