//! The threads that compile expressions.
//!
//! Parsing goes down as deep as a text lets it, so it needs a stack that no thread of the runtime has. These threads are started
//! with the first expression, and kept: whoever waits for one blocks nobody, and a machine that has no room for another thread
//! later on has these already.

use super::compile::{Checked, parse};
use super::touched::Root;
use super::{BadFilter, FilterError, MAX_SOURCE_BYTES};
use parking_lot::Mutex;
use prombus_core::ReadError;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::{mpsc, oneshot};

/// Parsing and dropping go down as deep as the text lets them; nothing deeper than [`MAX_DEPTH`](super::MAX_DEPTH) leaves this stack.
const STACK_BYTES: usize = 256 << 20;
/// An expression that is no longer than this is quickly compiled, unless it has a pattern.
const SHORT_BYTES: usize = 512;

/// The machine's, whichever hub of the process has something to compile.
static THREADS: Threads = Threads::new(STACK_BYTES);

/// Where to wait. Each queue has a thread of its own, so that nobody in it waits for those in another.
#[derive(Debug, Clone, Copy)]
pub(super) enum CompileQueue {
    /// What is quickly compiled.
    Short,
    /// What may take much longer.
    Long,
    /// What was evicted, and is evaluated now. As many wait here at most as evaluate at once.
    Evicted,
}

impl CompileQueue {
    /// The queue of a text that is new: a long one, or one that looks as if it had a pattern, may take much longer than
    /// others.
    pub fn of(source: &str) -> Self {
        let is_slow = source.len() > SHORT_BYTES || source.contains("matches");
        if is_slow { Self::Long } else { Self::Short }
    }
}

/// Compiles a text.
pub(super) async fn compile(root: Root, source: &str, queue: CompileQueue) -> Result<Checked, FilterError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(BadFilter::at_start(&format!("it is longer than {MAX_SOURCE_BYTES} bytes")).into());
    }
    THREADS.compile(root, source, queue).await
}

struct Job {
    root: Root,
    source: Box<str>,
    answer: oneshot::Sender<Result<Checked, BadFilter>>,
}

struct Threads {
    stack_bytes: usize,
    /// One for each queue, once they were started.
    queues: Mutex<Option<[mpsc::Sender<Job>; 3]>>,
}

impl Threads {
    const fn new(stack_bytes: usize) -> Self {
        Self { stack_bytes, queues: Mutex::new(None) }
    }

    /// Where no thread can be started, that is nothing that the text is to blame for.
    async fn compile(&self, root: Root, source: &str, queue: CompileQueue) -> Result<Checked, FilterError> {
        let unavailable = |why: String| {
            ReadError::Unavailable(format!("there is no thread to compile an expression on: {why}"))
        };
        let thread = self.queue(queue).map_err(|error| unavailable(error.to_string()))?;
        let ended = || unavailable("it has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        thread.send(Job { root, source: source.into(), answer }).await.map_err(|_| ended())?;
        Ok(answered.await.map_err(|_| ended())??)
    }

    fn queue(&self, queue: CompileQueue) -> io::Result<mpsc::Sender<Job>> {
        let mut queues = self.queues.lock();
        // All of them or none: what was compiled once can be compiled again.
        let queues = match &*queues {
            Some(queues) => queues,
            None => queues.insert([self.start()?, self.start()?, self.start()?]),
        };
        Ok(queues[queue as usize].clone())
    }

    fn start(&self) -> io::Result<mpsc::Sender<Job>> {
        // No more than one, so that whoever gives up leaves nothing behind.
        let (jobs, mut receiver) = mpsc::channel::<Job>(1);
        let work = move || {
            while let Some(Job { root, source, answer }) = receiver.blocking_recv() {
                // The parser is generated code that meets whatever a client sends; should it give up, only this filter must.
                let parsed = catch_unwind(AssertUnwindSafe(|| parse(root, &source)));
                let gave_up = |_| Err(BadFilter::at_start("the parser gave up on it"));
                // Whoever no longer waits does not want to know.
                let _ = answer.send(parsed.unwrap_or_else(gave_up));
            }
        };
        std::thread::Builder::new().name("compile".to_owned()).stack_size(self.stack_bytes).spawn(work)?;
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_without_room_says_nothing_about_an_expression() {
        let none = Threads::new(1 << 60);
        for source in ["true", "("] {
            let refused = none.compile(Root::Event, source, CompileQueue::Short).await;
            assert!(matches!(refused, Err(FilterError::Unavailable(ReadError::Unavailable(_)))), "{source}");
        }
        assert!(none.queues.lock().is_none(), "it is tried again the next time");
    }

    #[tokio::test]
    async fn threads_outlive_what_they_compile() {
        let threads = Threads::new(STACK_BYTES);
        for queue in [CompileQueue::Short, CompileQueue::Long, CompileQueue::Evicted] {
            assert!(matches!(threads.compile(Root::Event, "(", queue).await, Err(FilterError::Bad(_))));
            assert!(threads.compile(Root::Event, "true", queue).await.is_ok());
        }
    }
}
