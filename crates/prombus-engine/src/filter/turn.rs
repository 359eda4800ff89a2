//! Turns at evaluating expressions.
//!
//! One evaluation may make as much as its budget allows, and thousands of clients may ask for one at the same time. So
//! only as many evaluate at once as there are processors, and each reads what it looks at once it has its turn: those
//! who wait hold no events.

use super::Filter;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Processors are the machine's, whichever hub of the process wants one.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));

/// Lets its holder evaluate expressions, for a while: others wait for it.
#[derive(Debug)]
pub(crate) struct Turn {
    #[expect(dead_code, reason = "it is there to be dropped")]
    permit: Option<SemaphorePermit<'static>>,
}

impl Turn {
    /// Waits for a turn at a filter, where there is one.
    pub async fn at(filter: Option<&Filter>) -> Option<Self> {
        match filter {
            Some(_) => Some(Self::wait().await),
            None => None,
        }
    }

    /// Waits for a turn, first come, first served.
    pub async fn wait() -> Self {
        // Others of the runtime want to be served too, whatever an expression costs.
        tokio::task::yield_now().await;
        // Nobody closes it.
        Self { permit: TURNS.acquire().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn there_are_as_many_turns_as_processors() {
        let processors = available_parallelism().unwrap().get();
        let mut held = Vec::new();
        // Other tests may have one for a moment.
        for _ in 0..processors {
            held.push(Turn::wait().await);
        }
        assert!(timeout(Duration::from_secs(1), Turn::wait()).await.is_err());
        held.pop();
        Turn::wait().await;
    }
}
