//! Turns at evaluating expressions.
//!
//! One evaluation may make as much as its budget allows, and thousands of clients may ask for one at the same time. So
//! only as many evaluate at once as there are processors, and each reads what it looks at once it has its turn: those
//! who wait hold no events. Costly expressions have turns of their own, half as many, so that nobody else waits for one, and so
//! have projections.

use super::Filter;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Processors are the machine's, whichever hub of the process wants one.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));
/// Turns of projections, which work through whole topics: readers do not wait for them, however many there are.
static PROJECTION_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));
/// Turns of costly expressions.
static COSTLY_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((processors() / 2).max(1)));

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

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
            Some(filter) => Some(Self::at_filter(filter).await),
            None => None,
        }
    }

    /// Waits for a turn at a filter.
    pub async fn at_filter(filter: &Filter) -> Self {
        Self::wait(if filter.is_costly() { &COSTLY_TURNS } else { &TURNS }).await
    }

    /// Waits for a turn at the expressions of a projection.
    pub async fn at_projection(is_costly: bool) -> Self {
        Self::wait(if is_costly { &COSTLY_TURNS } else { &PROJECTION_TURNS }).await
    }

    /// Waits for a turn, first come, first served.
    async fn wait(turns: &'static Semaphore) -> Self {
        // Others of the runtime want to be served too, whatever an expression costs.
        tokio::task::yield_now().await;
        // Nobody closes it.
        Self { permit: turns.acquire().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn there_are_as_many_turns_as_processors_and_some_for_what_is_costly() {
        let all = [
            (&TURNS, processors()),
            (&PROJECTION_TURNS, processors()),
            (&COSTLY_TURNS, (processors() / 2).max(1)),
        ];
        for (turns, most) in all {
            let mut held = Vec::new();
            // Other tests may have one for a moment.
            for _ in 0..most {
                held.push(Turn::wait(turns).await);
            }
            assert!(timeout(Duration::from_secs(1), Turn::wait(turns)).await.is_err());
            for (others, _) in all.iter().filter(|(others, _)| !std::ptr::eq(*others, turns)) {
                Turn::wait(others).await;
            }
            held.pop();
            Turn::wait(turns).await;
        }
    }
}
