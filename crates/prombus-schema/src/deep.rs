//! Runs what follows the nesting of schemas, on a stack that is large enough for it.

use std::{cell::Cell, panic, thread};

/// How large the stack is. Memory is taken only as far as it is used.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Why something was not done.
pub const NO_STACK: &str = "there is no memory for a large enough stack; try again later";

/// No thread with such a stack can be started. On the stack of the caller the work could end the whole program.
#[derive(Debug)]
pub struct NoStack;

thread_local! {
    /// Whether this thread has a large stack already.
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs something on a thread of its own, and waits for it; at once, if this is such a thread.
pub fn run<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NoStack> {
    if IS_DEEP.get() {
        return Ok(work());
    }
    run_on(STACK_BYTES, work)
}

fn run_on<T: Send>(stack: usize, work: impl FnOnce() -> T + Send) -> Result<T, NoStack> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("schema".to_owned()).stack_size(stack);
        let task = || {
            IS_DEEP.set(true);
            work()
        };
        let thread = thread.spawn_scoped(scope, task).map_err(|_| NoStack)?;
        Ok(thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_on_a_stack_that_is_too_small() {
        // More than any process may address.
        assert!(run_on(1 << 50, || 1).is_err());
        assert_eq!(run(|| run(|| 2).ok()).ok().flatten(), Some(2));
    }
}
