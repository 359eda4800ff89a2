//! Many topics at once: does the engine get slower when the same load is spread over more of them?

use super::context::Context;
use super::engine;
use super::load::{self, Ids, Maker, Shape, Topic};
use super::raw;
use super::table::{Group, Ledger, Row, Target};
use prombus_core::{Commit, EventLog};
use prombus_store_disk::DiskStore;
use std::sync::Arc;
use std::time::Instant;

/// How many commits are in flight at once.
const COMMITTERS: usize = 16;
/// Events in a commit.
const BATCH: u64 = 100;
/// Shape of the events: as most producers send them.
const SHAPE: Shape = Shape { ids: Ids::Hub, keys: false };

/// The group.
pub struct Topics;

impl Group for Topics {
    fn name(&self) -> &'static str {
        "topics"
    }

    fn needs_hub(&self) -> bool {
        false
    }

    fn round(&mut self, context: &Context, ledger: &mut Ledger) -> Result<(), String> {
        raw::record(BATCH, context, ledger)?;
        for (topics, row) in rows() {
            let rate = load::runtime()?.block_on(measure(context, topics))?;
            ledger.record(row, rate);
        }
        Ok(())
    }
}

fn rows() -> [(usize, Row); 3] {
    let one = "engine, 16 committers, 1 topic";
    let many = |topics: usize, share: f64| {
        let name = format!("engine, 16 committers, {topics} topics");
        (topics, Row::events(name).versus(one).target(Target::Ratio(share)))
    };
    [(1, Row::events(one).versus(raw::row_name(BATCH))), many(100, 0.85), many(1_000, 0.70)]
}

async fn measure(context: &Context, count: usize) -> Result<f64, String> {
    let dir = context.fresh_dir("topics")?;
    let store = load::open_store(&dir, context.part_bytes())?;
    let mut topics = Vec::with_capacity(count);
    for number in 0..count {
        topics.push(Topic::create(&store, &format!("bench-{number:04}")).await?);
    }
    let commits = context.scaled(engine::EVENTS) / BATCH;
    let maker = Maker::new(SHAPE)?;
    let of_commit = |number: u64| &topics[number as usize % count];
    let mut queues = vec![Vec::new(); COMMITTERS];
    for number in 0..commits {
        queues[number as usize % COMMITTERS].push(maker.commit(of_commit(number), BATCH));
    }
    let start = Instant::now();
    let committers: Vec<_> =
        queues.into_iter().map(|queue| tokio::spawn(commit_all(store.clone(), queue))).collect();
    for committer in committers {
        committer.await.map_err(|error| error.to_string())??;
    }
    let seconds = start.elapsed().as_secs_f64();
    for (number, topic) in topics.iter().enumerate() {
        let share = (0..commits).skip(number).step_by(count).count() as u64;
        topic.check(&store, share * BATCH).await?;
    }
    store.close().await;
    Ok((commits * BATCH) as f64 / seconds)
}

async fn commit_all(store: Arc<DiskStore>, queue: Vec<Arc<Commit>>) -> Result<(), String> {
    for commit in queue {
        load::send(&store, commit).await?;
    }
    Ok(())
}
