//! Regular expressions: not larger than they need be, and paid for by what they cost at worst.
//!
//! A compiled pattern takes far more memory than its text, and thousands of groups and streams may have one each. So all
//! compiled patterns share one cache. A pattern that was evicted is compiled again when it is used.

use crate::cache::Cache;
use parking_lot::Mutex;
use regex::{Error, Regex, RegexBuilder};
use std::sync::{Arc, LazyLock};

/// The most that the patterns of one expression may take when they are compiled, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The most that the cache may hold, in bytes.
const MAX_CACHED_BYTES: usize = 128 << 20;
/// What each pattern in the cache counts for beside its size and its text: a share of what it remembers of texts.
const CACHED_BYTES: usize = 64 << 10;
/// How much a pattern may remember of texts like those it has seen, in bytes, for each thread that uses it.
const DFA_BYTES: usize = 256 << 10;
/// The sizes that are tried: a pattern is as large as the first that it fits.
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MAX_PATTERN_BYTES];
/// Each byte of a text is looked at by at most all of the pattern: so many bytes of it for one unit of work.
const BYTES_PER_WORK: usize = 256;

/// Memory is the machine's, whichever hub of the process uses a pattern.
static CACHE: LazyLock<Mutex<Cache<SizedRegex>>> = LazyLock::new(|| Mutex::new(Cache::new(MAX_CACHED_BYTES)));

/// A compiled pattern and its size.
type SizedRegex = (Arc<Regex>, usize);

/// A pattern that can be compiled.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    size: usize,
}

impl Pattern {
    /// Compiles a pattern, or says what is wrong with it.
    pub fn compile(source: &str) -> Result<Self, String> {
        let (_, size) = cached(source)?;
        Ok(Self { source: source.to_owned(), size })
    }

    /// Whether a text has it.
    pub fn is_match(&self, text: &str) -> bool {
        // What has compiled once always does.
        cached(&self.source).is_ok_and(|(regex, _)| regex.is_match(text))
    }

    /// What it costs at worst to look at a text.
    pub fn work(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul((self.size / BYTES_PER_WORK) as u64)
    }
}

/// A compiled pattern, which counts as used now.
fn cached(source: &str) -> Result<SizedRegex, String> {
    /// Large patterns take long. Whoever sends many of them keeps one processor busy, and not all of them.
    static COMPILING: Mutex<()> = Mutex::new(());
    if let Some(known) = CACHE.lock().get(source) {
        return Ok(known);
    }
    let _compiling = COMPILING.lock();
    // Another thread may have compiled it meanwhile.
    if let Some(known) = CACHE.lock().get(source) {
        return Ok(known);
    }
    let (regex, size) = compiled(source)?;
    let gone = CACHE.lock().insert(&source.into(), (regex.clone(), size), weight(source, size));
    drop(gone);
    Ok((regex, size))
}

fn compiled(source: &str) -> Result<SizedRegex, String> {
    for size in SIZES {
        match RegexBuilder::new(source).size_limit(size).dfa_size_limit(DFA_BYTES).build() {
            Ok(regex) => return Ok((Arc::new(regex), size)),
            Err(Error::CompiledTooBig(_)) => {}
            Err(_) => return Err("the pattern is not a valid regular expression".to_owned()),
        }
    }
    Err(too_large())
}

/// What a pattern takes in the cache. Its text is there twice: the compiled pattern has one of its own.
fn weight(source: &str, size: usize) -> usize {
    CACHED_BYTES + size + 2 * source.len()
}

fn too_large() -> String {
    format!(
        "the patterns of an expression may take {MAX_PATTERN_BYTES} bytes when they are compiled, and this is more"
    )
}

/// The patterns of one expression.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<Pattern>);

impl Patterns {
    pub fn get(&self, index: usize) -> Option<&Pattern> {
        self.0.get(index)
    }

    /// What they take when they are compiled, in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|pattern| pattern.size).sum()
    }

    /// Compiles a pattern, and says at which index it is.
    pub fn add(&mut self, source: &str) -> Result<usize, String> {
        if let Some(index) = self.0.iter().position(|known| known.source == source) {
            return Ok(index);
        }
        let pattern = Pattern::compile(source)?;
        if self.size() + pattern.size > MAX_PATTERN_BYTES {
            return Err(too_large());
        }
        self.0.push(pattern);
        Ok(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_a_size() {
        assert!(Pattern::compile("^a+(b|c)$").unwrap().is_match("aac"));
        assert!(Pattern::compile("a").unwrap().work("12") < Pattern::compile(r"\w{20}").unwrap().work("12"));
        assert!(Pattern::compile("(a{1000}){1000}").unwrap_err().contains("this is more"));
        assert!(Pattern::compile("(").unwrap_err().contains("not a valid"));
    }

    #[test]
    fn a_pattern_that_was_evicted_says_the_same() {
        let pattern = Pattern::compile("^evicted [0-9]$").unwrap();
        for _ in 0..2 {
            assert!(pattern.is_match("evicted 1") && !pattern.is_match("evicted"));
            CACHE.lock().remove("^evicted [0-9]$");
        }
    }

    #[test]
    fn all_patterns_together_have_a_size() {
        let mut patterns = Patterns::default();
        assert_eq!(patterns.add("a"), Ok(0));
        assert_eq!(patterns.add("b"), Ok(1));
        assert_eq!(patterns.add("a"), Ok(0));
        let last = (0..100).find_map(|n| patterns.add(&format!(r"[a-z]{{2000}}{n}")).err());
        assert!(last.unwrap().contains("this is more"));
    }
}
