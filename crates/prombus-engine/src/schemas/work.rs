//! Work on schemas that may take long: on threads of its own, a few at a time.

use prombus_core::ReadError;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Processors are the machine's, whichever hub of the process wants one.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processors()));
/// Turns of checks whether schemas follow each other, each of which may take a second: publishers do not wait for them.
static CHECK_TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((processors() / 2).max(1)));
/// How long a check waits for its turn.
const CHECK_WAIT: Duration = Duration::from_secs(10);

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Does work that publishers wait for.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadError> {
    // Nobody closes it.
    let turn = TURNS.acquire().await.ok();
    on_thread(work, turn).await
}

/// Does a check, or refuses it where others take too long.
pub(crate) async fn check<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadError> {
    let Ok(turn) = tokio::time::timeout(CHECK_WAIT, CHECK_TURNS.acquire()).await else {
        let message = "too many schemas are being checked at the same time; try again shortly";
        return Err(ReadError::Unavailable(message.into()));
    };
    on_thread(work, turn.ok()).await
}

/// The turn ends with the work, and not with who waits for it.
async fn on_thread<T: Send + 'static, P: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    turn: P,
) -> Result<T, ReadError> {
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    done.await.map_err(|error| ReadError::Unavailable(format!("a schema could not be used: {error}")))
}
