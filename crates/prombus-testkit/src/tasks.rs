//! Running things at once, and waiting for them without sleeping.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

/// After so long a behaviour that waits is taken to wait for ever. Those that ask a database a lot take a minute on a busy machine.
const GUARD: Duration = Duration::from_secs(180);

/// Runs one behaviour, and fails where it hangs.
pub async fn guarded(behaviour: &str, run: impl Future<Output = ()>) {
    if tokio::time::timeout(GUARD, run).await.is_err() {
        panic!("{behaviour} was not through after {GUARD:?}: something waits for ever");
    }
}

/// Starts `count` tasks at the same moment, and gives their results in order.
pub(crate) async fn together<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let spawn = |n| {
        let (start, work) = (start.clone(), task(n));
        tokio::spawn(async move {
            start.wait().await;
            work.await
        })
    };
    let tasks: Vec<JoinHandle<T>> = (0..count).map(spawn).collect();
    let mut results = Vec::with_capacity(count);
    for task in tasks {
        results.push(joined(task).await);
    }
    results
}

/// The result of a task; its panic is this task's panic.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Lets a future run until it first waits.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
