//! A primary that stands still: it answers nothing, and closes no connection.

use mongodb::bson::doc;
use mongodb::{Client, Database};
use prombus_core::{Append, EventLog, EventLogExt, ManualClock, Offset, Partition};
use prombus_store_mongo::{MongoOptions, MongoStore};
use prombus_testkit::Subject;
use prombus_testkit::build::{numbered, partitions};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for what must happen, on any machine.
const LONG: Duration = Duration::from_secs(90);

/// A replica set that no other test uses.
struct OwnSet {
    process: Child,
    url: String,
}

impl OwnSet {
    fn start() -> Self {
        let mut program = repo::cargo(&["run", "--quiet", "--package", "mongo-set"]);
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { process, url: url.trim().replacen("/?", "/stopped?", 1) }
    }

    async fn admin(&self) -> Database {
        Client::with_uri_str(&self.url).await.unwrap().database("admin")
    }

    /// The process of the primary.
    async fn primary(&self) -> i64 {
        self.admin().await.run_command(doc! { "serverStatus": 1 }).await.unwrap().get_i64("pid").unwrap()
    }
}

impl Drop for OwnSet {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn signal(name: &str, process: i64) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_the_primary_stands_still() {
    let set = tokio::task::spawn_blocking(OwnSet::start).await.unwrap();
    let clock = Arc::new(ManualClock::at(1_754_683_200_000));
    let store = MongoStore::open(MongoOptions { clock: clock.clone(), ..MongoOptions::new(&*set.url) })
        .await
        .unwrap();
    let name = Subject::new(store.clone(), clock).create("t", partitions(1)).await;
    let publish = async |n: usize| {
        let append = Append::new(name.clone(), numbered(n).event);
        tokio::time::timeout(LONG, store.commit(Arc::new(vec![append].into()))).await.expect("it is answered")
    };
    publish(0).await.unwrap();
    for round in 1..=2 {
        let primary = set.primary().await;
        signal("STOP", primary);
        // Commits and reads that are under way end, and those after them go to another primary.
        let begun = Instant::now();
        let read = tokio::time::timeout(LONG, store.topic(&name));
        let (mut published, read) = tokio::join!(publish(round), read);
        read.expect("it is answered").ok();
        while let Err(error) = published {
            assert!(begun.elapsed() < LONG, "{error}");
            published = publish(round).await;
        }
        signal("CONT", primary);
    }
    let next = store.bounds(&(&name).into(), Partition(0)).await.unwrap().next;
    assert!(next >= Offset(3), "what was answered is there");
    store.close().await;
}
