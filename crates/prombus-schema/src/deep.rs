//! Runs what follows the nesting of schemas, on a stack that is large enough for it.

use std::{panic, sync::Mutex, thread};

/// How large the stack is. Memory is taken only as far as it is used.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Runs something on a thread of its own, and waits for it.
pub fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let take = || work.lock().ok().and_then(|mut work| work.take());
    let task = || take().map(|work| work());
    let answer = thread::scope(|scope| {
        let thread = thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, task) {
            Ok(thread) => thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked)),
            // No thread can be started: the stack that we are on has to do.
            Err(_) => task(),
        }
    });
    answer.unwrap_or_else(|| panic::resume_unwind(Box::new("the work was taken twice")))
}
