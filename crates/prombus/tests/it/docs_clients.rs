//! The programs in the documents that are in Python, JavaScript and HTML: they run as they stand, and where a document says
//! that they outlive the hub, through crashes and restarts of it.

use crate::auth_support::tls::Identity;
use crate::auth_support::{put_file, until};
use crate::client_support::Spot;
use crate::common::{binary, run};
use crate::docs_support::{Block, blocks_of, documents};
use crate::examples_support::page::{Page, Served};
use crate::examples_support::{Running, project, shell};
use serde_json::{Value, json};
use std::path::Path;

/// What a block is put through.
pub type Trial = fn(&Block);

/// The blocks that have a name, and the trial of each.
pub const PROGRAMS: &[(&str, Trial)] = &[
    ("python", |block| outlives_the_hub(&PYTHON, &block.text)),
    ("python-tls", |block| talks_tls(&PYTHON, block)),
    ("python-pull", polls),
    ("python-producer", |block| resends(block, &PYTHON, "producer.py")),
    ("node", |block| outlives_the_hub(&NODE, &block.text)),
    ("node-tls", |block| talks_tls(&NODE, block)),
    ("node-producer", |block| resends(block, &NODE, "producer.mjs")),
    ("browser", browser),
    ("websocket", websocket),
    ("jwt", signs_a_token),
    ("certificate", makes_a_certificate),
    ("workflow", lints_schemas),
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

#[test]
fn consumers_lose_nothing_to_a_limit() {
    std::thread::scope(|scope| {
        for language in [&PYTHON, &NODE] {
            scope.spawn(|| waits_for_the_limit(language));
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
    /// What is changed so that each commit publishes, and each event has one attempt.
    limited: [(&'static str, &'static str); 2],
}

const PYTHON: Language = Language {
    consumer: "python",
    started: ("python3 billing.py", "exec examples/python/.venv/bin/python billing.py"),
    file: "billing.py",
    limited: [
        ("return {", "return {\"publish\": [{\"topic\": \"receipts\", \"payload\": 1}], "),
        ("\"maxInFlight\": 16", "\"maxInFlight\": 16, \"maxAttempts\": 1"),
    ],
};

const NODE: Language = Language {
    consumer: "node",
    started: ("node billing.mjs", "exec node examples/node/billing.mjs"),
    file: "examples/node/billing.mjs",
    limited: [
        ("return { writes", "return { publish: [{ topic: \"receipts\", payload: 1 }], writes"),
        ("maxInFlight: 16", "maxInFlight: 16, maxAttempts: 1"),
    ],
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

    /// Waits until the group has settled everything, and checks that each order counted once.
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

    // It tells why the hub closes the connection.
    shop.hub.stop();
    shop.hub.start_again();

    // The program itself may be killed as well.
    let some: Vec<u64> = (0..20).map(|_| shop.order()).collect();
    handles(&mut consumer, some[0]);
    let said = consumer.kill();
    assert!(said.contains("the hub is closing"), "{said}");
    let mut consumer = Running::start(shell(language.started.1, folder.path(), &shop.hub.url()));
    let last = shop.order();
    handles(&mut consumer, last);
    shop.each_counted_once();
}

/// What a limit refuses is retried later, and costs the events no attempt: with one each, none becomes a dead letter.
fn waits_for_the_limit(language: &Language) {
    const ORDERS: u64 = 12;
    let (folder, place) = (project(), tempfile::tempdir().unwrap());
    std::fs::write(place.path().join("prombus.toml"), "[limits]\ntopic_events_per_s = 4\n").unwrap();
    let mut shop = Shop::new(Spot::with(place, &[]), &[]);
    // One publish of all of them is let through.
    shop.published = ORDERS;
    let orders = (1..=ORDERS).map(|n| json!({"payload": {"number": n, "customer": "c-7", "cents": n * 100}}));
    let mut publish = shell(
        "exec curl -sf \"$PROMBUS_URL/v1/topics/orders/events\" -H \"$JSON\" -d @-",
        folder.path(),
        &shop.hub.url(),
    );
    publish.env("JSON", "content-type: application/json");
    run(publish, Value::from_iter(orders).to_string().as_bytes()).ok();
    let mut program = named(language.consumer).text;
    for (from, to) in language.limited {
        assert!(program.contains(from), "{from} is not in {program}");
        program = program.replace(from, to);
    }
    std::fs::write(folder.path().join(language.file), program).unwrap();
    let consumer = Running::start(shell(language.started.1, folder.path(), &shop.hub.url()));
    until("an order is counted", || shop.total().is_some());
    shop.each_counted_once();
    let said = consumer.kill();
    assert!(said.contains("topic_events_per_s"), "the limit was met: {said}");
    assert_eq!(shop.ask(&["dlq", "list", "orders"]).unwrap(), "");
}

/// A consumer that pulls goes on after the hub was away, acks what it has handled and nacks what it cannot handle.
fn polls(block: &Block) {
    let (folder, mut shop) = (project(), Shop::new(Spot::start(), &[]));
    std::fs::write(folder.path().join("polling.py"), &block.text).unwrap();
    let first = shop.order();
    let started = "exec examples/python/.venv/bin/python polling.py";
    let mut consumer = Running::start(shell(started, folder.path(), &shop.hub.url()));
    handles(&mut consumer, first);
    let ends: [fn(&mut Spot); 2] = [Spot::kill, Spot::stop];
    for end in ends {
        end(&mut shop.hub);
        shop.hub.start_again();
        let next = shop.order();
        handles(&mut consumer, next);
    }
    shop.ask(&["groups", "alter", "orders", "polling", "--max-attempts", "1"]).unwrap();
    shop.ask(&["pub", "orders", "{}"]).unwrap();
    let last = shop.order();
    handles(&mut consumer, last);
    until("all is settled", || {
        let group = shop.ask(&["groups", "show", "orders", "polling"]);
        let group: Value = serde_json::from_str(&group.unwrap()).unwrap();
        group["partitions"][0]["lag"] == 0
    });
    let letters = shop.ask(&["dlq", "list", "orders"]).unwrap();
    assert!(letters.lines().count() == 1 && letters.contains("KeyError('number')"), "{letters}");
}

/// A producer sends again what was not answered, and each order is stored once and in its place.
fn resends(block: &Block, language: &Language, name: &str) {
    const ORDERS: u64 = 400;
    let (folder, mut shop) = (project(), Shop::new(Spot::start(), &[]));
    let consumer = language.file.rsplit('/').next().unwrap();
    std::fs::write(folder.path().join(language.file.replace(consumer, name)), &block.text).unwrap();
    let orders = (1..=ORDERS).map(|n| format!("{}\n", json!({"number": n, "customer": "c-7"})));
    std::fs::write(folder.path().join("orders.ndjson"), orders.collect::<String>()).unwrap();
    let script = format!("{} < orders.ndjson", language.started.1.replace(consumer, name));
    let mut running = Running::start(shell(&script, folder.path(), &shop.hub.url()));
    for n in 1..=ORDERS {
        assert_eq!(running.line(), format!("{n} {}", n - 1), "each order is where it belongs");
        if [50, 150, 250].contains(&n) {
            shop.hub.kill();
            shop.hub.start_again();
        }
    }
    assert!(running.end().contains("; trying again"), "it has met a hub that was away");
    let stored = shop.ask(&["export", "orders"]).unwrap();
    assert_eq!(stored.lines().count() as u64, ORDERS);
}

/// The consumer works with TLS and a token, started as the block says.
fn talks_tls(language: &Language, block: &Block) {
    let (folder, place, identity) = (project(), tempfile::tempdir().unwrap(), Identity::new());
    let tokens = "[auth]\nmode = \"token\"\ntokens = [\n\
                  { token = \"all-of-it\", scopes = [\"*:**\"] },\n\
                  { token = \"orders-only\", scopes = [\"subscribe:orders\"] },\n\
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
    assert!(said.stderr.contains("the token is not known"), "in the words of the hub: {said:?}");

    // What waiting does not help against ends it, in one line.
    let untrusted = with("billing-only").replace("PROMBUS_CA_CERT=ca.pem ", "");
    for (script, why) in [(untrusted, "certificate"), (with("orders-only"), "publish on totals")] {
        shop.order();
        let said = run(shell(&script, folder.path(), ""), b"");
        assert!(said.code != Some(0) && said.stderr.contains(why), "{said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    }
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

/// The token that the block makes is one that a hub with its secret takes.
fn signs_a_token(block: &Block) {
    let place = tempfile::tempdir().unwrap();
    let script = format!("{}\nprintf '%s %s' \"$JWT_SECRET\" \"$PROMBUS_TOKEN\"", block.text);
    let made = run(shell(&script, place.path(), ""), b"").ok();
    let (secret, token) = made.split_once(' ').unwrap();
    let config = format!("[auth]\nmode = \"jwt\"\nsecret = \"{secret}\"\n");
    put_file(&place.path().join("prombus.toml"), &config);
    let mut shop = Shop::new(Spot::with(place, &[]), &[]);
    assert_eq!(shop.ask(&["topics", "list"]), None, "nobody is let in without it");
    shop.args = vec!["--token".into(), token.into()];
    shop.order();
}

/// The certificate that the block makes serves a hub, and clients trust it by either of its names.
fn makes_a_certificate(block: &Block) {
    let place = tempfile::tempdir().unwrap();
    run(shell(&block.text, place.path(), ""), b"").ok();
    let trusted = place.path().join("hub.pem").display().to_string();
    let hub = Spot::with(place, &["--tls-cert", "hub.pem", "--tls-key", "hub.key"]);
    let mut shop = Shop::new(hub, &[]);
    assert_eq!(shop.ask(&["topics", "list"]), None, "it is not trusted by itself");
    shop.args = vec!["--ca-cert".into(), trusted.clone()];
    shop.order();
    let by_name = shop.hub.url().replace("127.0.0.1", "localhost");
    let script = format!("curl -sSf --cacert '{trusted}' {by_name}/healthz");
    run(shell(&script, Path::new("/"), ""), b"").ok();
}

/// The workflow passes over a folder in order, and stops at one that is not.
fn lints_schemas(block: &Block) {
    let steps: Vec<&str> =
        block.text.lines().filter_map(|line| line.trim().strip_prefix("- run: ")).collect();
    let [install, lint] = steps.as_slice() else { panic!("{}: {steps:?}", block.place()) };
    assert!(install.starts_with("cargo install "), "{install}");
    let args: Vec<&str> = lint.strip_prefix("prombus ").unwrap().split(' ').collect();
    let place = tempfile::tempdir().unwrap();
    put_file(&place.path().join("prombus.toml"), "[topics.\"orders\"]\n");
    std::fs::create_dir_all(place.path().join("schemas/orders")).unwrap();
    put_file(&place.path().join("schemas/orders/v1.json"), "{\"type\": \"number\"}");
    let linted = || {
        let mut command = binary(place.path());
        command.args(&args);
        run(command, b"")
    };
    assert_eq!(linted().ok(), "");
    put_file(&place.path().join("schemas/orders/v2.json"), "{\n  \"type\": \"integer\"\n}");
    let said = linted();
    let expected = "::error file=schemas/orders/v2.json,line=2,title=incompatible::";
    assert!(said.stdout.starts_with(expected), "{said:?}");
    said.fails_with(1);
}
