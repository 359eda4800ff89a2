//! What a process writes to stderr, kept line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Everything that a process has logged so far. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    written: Mutex<Written>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    /// Nobody writes any more.
    ended: bool,
}

/// Why a line was waited for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoLine {
    /// The log has ended without it.
    Ended,
    /// It did not come in time.
    Late,
}

impl Log {
    /// Keeps what comes. It is read to its end, so that no process ever waits for a reader.
    pub(crate) fn follow(source: impl Read + Send + 'static) -> Self {
        let log = Self::default();
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                kept.written().lines.push(line);
                kept.0.grown.notify_all();
            }
            kept.written().ended = true;
            kept.0.grown.notify_all();
        });
        log
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lines.
    pub fn text(&self) -> String {
        self.written().lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    /// A thread that panicked is a failure, even where the hub goes on.
    pub fn no_panic(&self) -> Result<(), String> {
        let text = self.text();
        if text.contains("panicked at") { Err(format!("the hub panicked:\n{text}")) } else { Ok(()) }
    }

    /// The first line from number `from` on that contains `text`, and its number.
    pub(crate) fn wait_for(
        &self,
        text: &str,
        from: usize,
        limit: Duration,
    ) -> Result<(usize, String), NoLine> {
        let mut looked_at = from;
        let mut found = None;
        let is_missing = |written: &mut Written| {
            let mut fresh = written.lines.iter().enumerate().skip(looked_at);
            found = fresh.find(|(_, line)| line.contains(text)).map(|(at, line)| (at, line.clone()));
            looked_at = written.lines.len();
            found.is_none() && !written.ended
        };
        let waited = self.0.grown.wait_timeout_while(self.written(), limit, is_missing);
        let is_late = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        found.ok_or(if is_late { NoLine::Late } else { NoLine::Ended })
    }

    /// Waits until nobody writes any more; whether that came in time.
    pub(crate) fn wait_for_the_end(&self, limit: Duration) -> bool {
        let waited = self.0.grown.wait_timeout_while(self.written(), limit, |written| !written.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_found_in_their_order_and_kept() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let log = Log::follow(reader);
        writer.write_all(b"a 1\nb 2\na 3\n").unwrap();
        let patience = crate::PATIENCE;
        assert_eq!(log.wait_for("a", 0, patience), Ok((0, "a 1".to_owned())));
        assert_eq!(log.wait_for("a", 1, patience), Ok((2, "a 3".to_owned())));
        assert_eq!(log.wait_for("a", 3, Duration::ZERO), Err(NoLine::Late));
        assert!(!log.wait_for_the_end(Duration::ZERO));
        drop(writer);
        assert_eq!(log.wait_for("a", 3, patience), Err(NoLine::Ended));
        assert!(log.wait_for_the_end(patience));
        assert_eq!(log.text(), "a 1\nb 2\na 3\n");
    }

    #[test]
    fn a_panic_is_found() {
        let log = Log::follow(&b"thread 'x' panicked at src/a.rs\n"[..]);
        assert!(log.wait_for_the_end(crate::PATIENCE));
        assert!(log.no_panic().is_err());
    }
}
