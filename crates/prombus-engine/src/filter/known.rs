//! Expressions by their text.
//!
//! A compiled expression takes up to a hundred times its text, and thousands of groups, streams and projections may have one
//! each. So compiled expressions are a cache: there is one for each text, all of them together are bounded, and one that was
//! evicted is compiled again when it is used. What must not be forgotten meanwhile is kept beside.

use super::compile::Checked;
use super::threads::{self, CompileQueue};
use super::touched::Root;
use super::{Compiled, FilterError, Probation, wait};
use crate::cache::Cache;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

/// The most that compiled expressions may take, in bytes.
const MAX_COMPILED_BYTES: usize = 64 << 20;
/// What an operation of a compiled expression takes, about.
const OPERATION_BYTES: usize = 192;
/// Texts that nobody uses any more are forgotten when there are as many as were in use the last time, and this many more.
const SPARE_TEXTS: usize = 32;

/// How the keys of texts over payloads start.
const OF_PAYLOAD: char = '\0';

/// Memory is the machine's, whichever hub of the process uses an expression.
static KNOWN: LazyLock<Mutex<TextCache>> = LazyLock::new(|| Mutex::new(TextCache::new(MAX_COMPILED_BYTES)));

/// A text that has compiled, and what is known of it.
#[derive(Debug)]
pub(super) struct Text {
    pub root: Root,
    /// What it is known by.
    key: Arc<str>,
    /// Whether it may take long by what it does.
    pub is_written_costly: bool,
    /// What its regular expressions take when they are compiled, in bytes.
    pub pattern_bytes: usize,
    pub probation: Probation,
    compiled: Mutex<Weak<Compiled>>,
}

/// What a text is known by. The same text means something else over something else, and none starts like this.
fn key_of(root: Root, source: &str) -> Arc<str> {
    match root {
        Root::Event => source.into(),
        Root::Payload => format!("{OF_PAYLOAD}{source}").into(),
    }
}

impl Text {
    /// What was compiled.
    pub fn source(&self) -> &str {
        match self.root {
            Root::Event => &self.key,
            Root::Payload => self.key.strip_prefix(OF_PAYLOAD).unwrap_or_default(),
        }
    }

    /// The compiled expression. Whoever evaluates a whole batch asks for [`Text::compile`] instead, so that the cache knows what
    /// is in use.
    pub fn compiled(self: &Arc<Self>) -> Result<Arc<Compiled>, FilterError> {
        let compiled = self.compiled.lock().upgrade();
        compiled.map_or_else(|| wait(self.compile()), Ok)
    }

    /// The compiled expression, which counts as used now. What has compiled once compiles again.
    pub async fn compile(self: &Arc<Self>) -> Result<Arc<Compiled>, FilterError> {
        let known = KNOWN.lock().compiled.get(&self.key);
        if let Some((_, compiled)) = known {
            // Two may have compiled a text at once, and only one of them knows what was kept.
            *self.compiled.lock() = Arc::downgrade(&compiled);
            return Ok(compiled);
        }
        let (compiled, facts) = compiled(self.root, self.source(), CompileQueue::Evicted).await?;
        *self.compiled.lock() = Arc::downgrade(&compiled);
        let gone = KNOWN.lock().keep(self, &compiled, facts.bytes);
        drop(gone);
        Ok(compiled)
    }
}

/// What is known of a compiled expression.
struct Facts {
    is_written_costly: bool,
    bytes: usize,
}

async fn compiled(
    root: Root,
    source: &str,
    queue: CompileQueue,
) -> Result<(Arc<Compiled>, Facts), FilterError> {
    let Checked { expression, patterns, touched, operations, is_costly } =
        threads::compile(root, source, queue).await?;
    let facts =
        Facts { is_written_costly: is_costly, bytes: operations * OPERATION_BYTES + 4 * source.len() };
    Ok((Arc::new(Compiled { root, expression, patterns: Arc::new(patterns), touched }), facts))
}

/// A text that compiles.
pub(super) async fn text(root: Root, source: &str) -> Result<Arc<Text>, FilterError> {
    let key = key_of(root, source);
    let known = KNOWN.lock().texts.get(&key).and_then(Weak::upgrade);
    if let Some(known) = known {
        return Ok(known);
    }
    let (compiled, facts) = compiled(root, source, CompileQueue::of(source)).await?;
    let text = Arc::new(Text {
        root,
        key,
        is_written_costly: facts.is_written_costly,
        pattern_bytes: compiled.patterns.size(),
        probation: Probation::default(),
        compiled: Mutex::new(Arc::downgrade(&compiled)),
    });
    let gone = {
        let mut known = KNOWN.lock();
        known.note(&text);
        known.keep(&text, &compiled, facts.bytes)
    };
    drop(gone);
    Ok(text)
}

/// A text, and what it is compiled to: as long as that is kept, so is what is known of the text.
type Kept = (Arc<Text>, Arc<Compiled>);

struct TextCache {
    texts: HashMap<Arc<str>, Weak<Text>>,
    compiled: Cache<Kept>,
    /// When there are so many texts, those that nobody uses any more are forgotten.
    sweep_at: usize,
}

impl TextCache {
    fn new(max_bytes: usize) -> Self {
        Self { texts: HashMap::new(), compiled: Cache::new(max_bytes), sweep_at: SPARE_TEXTS }
    }

    fn note(&mut self, text: &Arc<Text>) {
        if self.texts.len() >= self.sweep_at {
            self.texts.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = 2 * self.texts.len() + SPARE_TEXTS;
        }
        self.texts.insert(text.key.clone(), Arc::downgrade(text));
    }

    /// Keeps a compiled expression, and gives those that had to go. They may be large, so they are dropped outside of the lock.
    fn keep(&mut self, text: &Arc<Text>, compiled: &Arc<Compiled>, bytes: usize) -> Vec<Kept> {
        self.compiled.insert(&text.key, (text.clone(), compiled.clone()), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str) -> Result<Arc<Text>, FilterError> {
        wait(super::text(Root::Event, source))
    }

    #[test]
    fn an_expression_is_compiled_once_while_there_is_room() {
        let source = "event.payload.known_once == 1";
        let first = text(source).unwrap();
        let again = text(source).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(Arc::ptr_eq(&first.compiled().unwrap(), &wait(again.compile()).unwrap()));
    }

    #[test]
    fn an_expression_that_was_evicted_is_compiled_again() {
        let text = text("event.payload.evicted == 1").unwrap();
        let first = Arc::downgrade(&text.compiled().unwrap());
        drop(KNOWN.lock().compiled.remove(&text.key));
        assert!(first.upgrade().is_none(), "nobody else keeps it");
        let second = text.compiled().unwrap();
        assert!(Arc::ptr_eq(&second, &wait(text.compile()).unwrap()));
    }

    #[test]
    fn all_compiled_expressions_together_are_bounded() {
        let mut known = TextCache::new(10_000);
        let texts: Vec<Arc<Text>> =
            (0..100).map(|n| text(&format!("event.payload.bounded == {n}")).unwrap()).collect();
        for text in &texts {
            known.note(text);
            known.keep(text, &wait(text.compile()).unwrap(), 1_000);
        }
        let kept = texts.iter().filter(|text| known.compiled.get(&text.key).is_some()).count();
        assert_eq!((kept, known.texts.len()), (10, 100));
        for text in texts {
            drop(KNOWN.lock().compiled.remove(&text.key));
        }
        known.compiled = Cache::new(0);
        known.sweep_at = 0;
        known.note(&text("event.payload.bounded == 100").unwrap());
        assert_eq!(known.texts.len(), 1, "texts that nobody uses are forgotten");
    }
}
